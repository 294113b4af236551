"""A scripted language model on loopback, in the words of the four APIs that agent programs use.

It remembers nothing between requests: the step to play is the number of replies that the request itself shows after the
newest prompt with the script's mark. So programs may retry, restart and resume, and many may share one model.
"""

import gzip
import json
import re
import threading
import time
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What every reply costs.
TOKENS_IN, TOKENS_OUT = 100, 20

# A hidden tool is looked for so often in one conversation.
SEARCHES_MAX = 20

SHELLS = ("bash", "shell", "run_shell_command", "exec_command", "shell_command", "execute", "terminal", "run_command")


@dataclass
class Call:
    """Calls a tool; the strings ${tool.field} in the arguments are filled with what that tool answered."""

    tool: str
    arguments: dict


@dataclass
class Shell:
    """Runs a command with whatever tool the program has for that."""

    command: str


@dataclass
class Say:
    text: str


@dataclass
class Stall:
    """Begins to say this, and does not end for as long as the program waits; if `once`, then it is left out."""

    text: str
    once: bool = False


@dataclass
class Fail:
    """Answers with an HTTP error."""

    status: int


@dataclass
class Request:
    mark: str | None
    step: int
    tools: list[str]
    said: str


@dataclass
class Tool:
    name: str
    schema: dict


@dataclass
class Talk:
    """What a request says, in any API. Turns are ("user" | "reply" | "search" | "result", text)."""

    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    everything: str = ""


def text_of(content) -> str:
    """A message's own text: content is a string, or a list of blocks of which only some are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(text_of, content) if text)
    if isinstance(content, dict):
        for key in ("text", "output", "content", "result"):
            if key in content:
                return text_of(content[key])
    return ""


def parsed(text) -> dict:
    try:
        return json.loads(text) if isinstance(text, str) else (text or {})
    except ValueError:
        return {}


def is_search(name: str) -> bool:
    return name.lower() in ("toolsearch", "tool_search", "select_tools")


class Messages:
    """Anthropic's Messages."""

    path = re.compile(r"/messages$")
    error = staticmethod(lambda status, text: {"type": "error", "error": {"type": ERRORS[status], "message": text}})

    @staticmethod
    def read(body: dict) -> Talk:
        talk = Talk(tools=[Tool(tool["name"], tool.get("input_schema") or {}) for tool in body.get("tools") or [] if "name" in tool])
        for message in body.get("messages") or []:
            blocks = message["content"]
            blocks = blocks if isinstance(blocks, list) else [{"type": "text", "text": blocks}]
            if message["role"] == "assistant":
                used = [block.get("name", "") for block in blocks if block.get("type") == "tool_use"]
                talk.turns.append(("search" if used and all(map(is_search, used)) else "reply", text_of(blocks)))
                continue
            talk.turns += [("result", text_of(block.get("content"))) for block in blocks if block.get("type") == "tool_result"]
            talk.turns.append(("user", text_of([block for block in blocks if block.get("type") == "text"])))
        return talk

    @staticmethod
    def whole(reply, id_: str, model: str) -> dict:
        if isinstance(reply, Call):
            block, reason = {"type": "tool_use", "id": id_, "name": reply.tool, "input": reply.arguments}, "tool_use"
        else:
            block, reason = {"type": "text", "text": reply.text}, "end_turn"
        return {
            "id": f"msg_{id_}", "type": "message", "role": "assistant", "model": model, "content": [block],
            "stop_reason": reason, "stop_sequence": None,
            "usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT},
        }

    @staticmethod
    def stream(whole: dict) -> list[dict]:
        block = whole["content"][0]
        if block["type"] == "text":
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return [
            {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None}, "usage": whole["usage"]},
            {"type": "message_stop"},
        ]


class Chat:
    """OpenAI's Chat Completions."""

    path = re.compile(r"/chat/completions$")
    error = staticmethod(lambda status, text: {"error": {"message": text, "type": ERRORS[status], "code": ERRORS[status]}})

    @staticmethod
    def read(body: dict) -> Talk:
        functions = [tool.get("function") or {} for tool in body.get("tools") or []]
        talk = Talk(tools=[Tool(one["name"], one.get("parameters") or {}) for one in functions if "name" in one])
        for message in body.get("messages") or []:
            if message["role"] == "user":
                talk.turns.append(("user", text_of(message.get("content"))))
            elif message["role"] == "tool":
                talk.turns.append(("result", text_of(message.get("content"))))
            elif message["role"] == "assistant":
                used = [call["function"]["name"] for call in message.get("tool_calls") or []]
                text = text_of(message.get("content"))
                talk.turns.append(("search" if used and all(map(is_search, used)) else "reply", text))
        return talk

    @staticmethod
    def whole(reply, id_: str, model: str) -> dict:
        if isinstance(reply, Call):
            function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
            calls = [{"index": 0, "id": id_, "type": "function", "function": function}]
            message, reason = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
        else:
            message, reason = {"role": "assistant", "content": reply.text}, "stop"
        usage = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
        return {
            "id": f"chatcmpl-{id_}", "object": "chat.completion", "created": int(time.time()), "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage,
        }

    @staticmethod
    def stream(whole: dict) -> list:
        choice = whole["choices"][0]
        chunk = whole | {"object": "chat.completion.chunk"}
        return [
            chunk | {"choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}], "usage": None},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}], "usage": None},
            chunk | {"choices": []},
            "[DONE]",
        ]


class Responses:
    """OpenAI's Responses."""

    path = re.compile(r"/responses$")
    error = Chat.error

    @staticmethod
    def read(body: dict) -> Talk:
        talk = Talk()
        for tool in body.get("tools") or []:
            if tool.get("type") == "namespace":
                # Both names are wanted back; here they are one.
                inner = [one for one in tool.get("tools") or [] if "name" in one]
                talk.tools += [Tool(f"{tool['name']}/{one['name']}", one.get("parameters") or {}) for one in inner]
            elif "name" in tool:
                talk.tools.append(Tool(tool["name"], tool.get("parameters") or {}))
        items = body.get("input") or []
        for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
            kind, role = item.get("type", "message"), item.get("role")
            if kind == "function_call":
                talk.turns.append(("search" if is_search(item.get("name", "")) else "reply", ""))
            elif kind == "function_call_output":
                talk.turns.append(("result", text_of(item.get("output"))))
            elif kind == "message" and role == "user":
                talk.turns.append(("user", text_of(item.get("content"))))
            elif kind == "message" and role == "assistant":
                talk.turns.append(("reply", text_of(item.get("content"))))
        return talk

    @staticmethod
    def whole(reply, id_: str, model: str) -> dict:
        if isinstance(reply, Call):
            space, _, name = reply.tool.rpartition("/")
            item = {
                "type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name,
                "arguments": json.dumps(reply.arguments), "status": "completed",
            }
            item |= {"namespace": space} if space else {}
        else:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            item = {"type": "message", "id": f"msg_{id_}", "role": "assistant", "status": "completed", "content": content}
        return {
            "id": f"resp_{id_}", "object": "response", "created_at": int(time.time()), "status": "completed",
            "model": model, "output": [item],
            "usage": {
                "input_tokens": TOKENS_IN, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": TOKENS_OUT, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": TOKENS_IN + TOKENS_OUT,
            },
        }

    @staticmethod
    def stream(whole: dict) -> list[dict]:
        item = whole["output"][0]
        started = whole | {"status": "in_progress", "output": [], "usage": None}
        if item["type"] == "message":
            empty, delta, text = item | {"content": []}, "response.output_text.delta", item["content"][0]["text"]
        else:
            empty, delta, text = item | {"arguments": ""}, "response.function_call_arguments.delta", item["arguments"]
        events = [
            {"type": "response.created", "response": started},
            {"type": "response.output_item.added", "output_index": 0, "item": empty | {"status": "in_progress"}},
            {"type": delta, "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": text},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
        return [event | {"sequence_number": n} for n, event in enumerate(events)]


class Gemini:
    """Google's generateContent."""

    path = re.compile(r":(?:streamG|g)enerateContent$")
    error = staticmethod(lambda status, text: {"error": {"code": status, "message": text, "status": GOOGLE_ERRORS[status]}})

    @staticmethod
    def read(body: dict) -> Talk:
        talk = Talk()
        for group in body.get("tools") or []:
            for one in group.get("functionDeclarations") or []:
                talk.tools.append(Tool(one["name"], one.get("parametersJsonSchema") or one.get("parameters") or {}))
        for content in body.get("contents") or []:
            parts = content.get("parts") or []
            if content.get("role") == "model":
                used = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
                text = text_of([part for part in parts if "text" in part])
                talk.turns.append(("search" if used and all(map(is_search, used)) else "reply", text))
                continue
            for part in parts:
                if "functionResponse" in part:
                    talk.turns.append(("result", text_of(part["functionResponse"].get("response"))))
            text = text_of([part for part in parts if "text" in part])
            if text:
                talk.turns.append(("user", text))
        return talk

    @staticmethod
    def whole(reply, id_: str, model: str) -> dict:
        if isinstance(reply, Call):
            part = {"functionCall": {"id": id_, "name": reply.tool, "args": reply.arguments}}
        else:
            part = {"text": reply.text}
        usage = {"promptTokenCount": TOKENS_IN, "candidatesTokenCount": TOKENS_OUT, "totalTokenCount": TOKENS_IN + TOKENS_OUT}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}

    @staticmethod
    def stream(whole: dict) -> list[dict]:
        return [whole]


APIS = (Messages, Chat, Responses, Gemini)
ERRORS = {401: "authentication_error", 429: "rate_limit_error"}
GOOGLE_ERRORS = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
WORDS = {401: "Unauthorized: the API key is not valid", 429: "Too many requests: the rate limit is reached"}


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def find(wanted: str, tools: list[Tool]) -> Tool | None:
    """Programs prefix the names of MCP tools, and some replace dashes."""
    wanted = plain(wanted)
    return next((tool for tool in tools if plain(tool.name) == wanted or plain(tool.name).endswith(f"_{wanted}")), None)


def shell(command: str, tools: list[Tool]) -> Call | None:
    """The program's own way to run a command, with whatever else its schema wants."""
    exact = [tool for name in SHELLS for tool in tools if plain(tool.name).removeprefix("developer__") == name]
    tool = next(iter(exact), None)
    if tool is None:
        return None
    properties = tool.schema.get("properties") or {}
    key = next((key for key in ("command", "cmd", "script") if key in properties), "command")
    kind = (properties.get(key) or {}).get("type")
    kind = str(kind).lower()
    arguments = {key: ["bash", "-lc", command] if "array" in kind else command}
    fillers = {"string": "run it", "boolean": False, "integer": 60_000, "number": 60_000, "array": [], "object": {}}
    for name in tool.schema.get("required") or []:
        kind = str((properties.get(name) or {}).get("type", "string")).lower()
        arguments.setdefault(name, fillers.get(kind, "run it"))
    return Call(tool.name, arguments)


class Model:
    """Answers until it is closed. `scripts` are lists of steps by mark; a mark is a text that is in the prompt."""

    def __init__(self, scripts: dict[str, list]):
        self.scripts = scripts
        self.requests: list[Request] = []
        self.stalled: set[str] = set()
        self.changed = threading.Condition()
        self.closing = False
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            log_message = staticmethod(lambda *_: None)

            def do_GET(self):
                models = [{"id": "scripted", "object": "model", "owned_by": "bench"}]
                self.send(200, {"object": "list", "data": models, "models": [{"name": "models/scripted"}]})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                encoding = self.headers.get("content-encoding", "")
                body = gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body) if encoding == "deflate" else body
                model.answer(self, self.path.partition("?")[0], parsed(body.decode(errors="replace")))

            def send(self, status: int, body: dict):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def begin_stream(self):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True

            def event(self, event):
                named = isinstance(event, dict) and "type" in event
                name = f"event: {event['type']}\n" if named else ""
                data = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f"{name}data: {data}\n\n".encode())
                self.wfile.flush()

        class Server(ThreadingHTTPServer):
            # Programs that are killed leave their connections as they are.
            handle_error = staticmethod(lambda *_: None)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.closing = True
        self.server.shutdown()

    def wait_for(self, mark: str, step: int, seconds: float, times: int = 1) -> bool:
        """Waits until that step of a script was asked for."""
        asked = lambda: sum(one.mark == mark and one.step == step for one in self.requests) >= times
        with self.changed:
            return self.changed.wait_for(asked, timeout=seconds)

    def troubles(self, mark: str) -> list[str]:
        return [one.said for one in self.requests if one.mark == mark and one.said.startswith("SCRIPT ERROR")]

    def answer(self, http, path: str, body: dict):
        if re.search(r"count_?[tT]okens$", path):
            return http.send(200, {"input_tokens": TOKENS_IN, "totalTokens": TOKENS_IN})
        api = next((api for api in APIS if api.path.search(path)), None)
        if api is None:
            return http.send(404, {"error": {"message": "the scripted model has no such path"}})
        talk = api.read(body)
        talk.everything = json.dumps(body)
        mark, step, reply = self.play(talk)
        said = reply.text if isinstance(reply, (Say, Stall)) else str(reply)
        with self.changed:
            self.requests.append(Request(mark, step, [tool.name for tool in talk.tools], said))
            self.changed.notify_all()
        if isinstance(reply, Fail):
            return http.send(reply.status, api.error(reply.status, WORDS[reply.status]))
        model = body.get("model") or "scripted"
        # Unique within a conversation, which has a longer history at every request.
        id_ = f"call_{len(talk.turns)}_{len(self.requests)}"
        whole = api.whole(reply, id_, model)
        streams = body.get("stream") or "stream" in path
        if not streams and not isinstance(reply, Stall):
            return http.send(200, whole)
        try:
            http.begin_stream()
            events = api.stream(whole)
            for event in events:
                http.event(event)
                if isinstance(reply, Stall) and reply.text in json.dumps(event):
                    # Comments keep the connection alive, and show when the program has gone.
                    while not self.closing:
                        time.sleep(0.2)
                        http.wfile.write(b": wait\n\n")
                        http.wfile.flush()
        except OSError:
            http.close_connection = True
        return None

    def play(self, talk: Talk) -> tuple[str | None, int, object]:
        mark, since = None, []
        for at, (who, text) in reversed(list(enumerate(talk.turns))):
            mark = next((mark for mark in self.scripts if who == "user" and mark in text), None)
            if mark is not None:
                since = talk.turns[at + 1 :]
                break
        # Requests for a title quote the prompt, but offer no tools.
        if mark is None or not talk.tools:
            return None, 0, Say("ok")
        # Some programs keep what had begun.
        begun = [one.text.strip() for one in self.scripts[mark] if isinstance(one, Stall)]
        since = [(who, text) for who, text in since if not (who == "reply" and text.strip() and text.strip() in begun)]
        step = sum(who == "reply" for who, _ in since)
        script = [one for one in self.scripts[mark] if not (isinstance(one, Stall) and one.once and mark in self.stalled)]
        if step >= len(script):
            return None, step, Say("ok")
        wanted = script[step]
        if isinstance(wanted, Stall):
            self.stalled.add(mark)
        if isinstance(wanted, (Say, Stall, Fail)):
            return mark, step, wanted
        if isinstance(wanted, Shell):
            call = shell(wanted.command, talk.tools)
            names = ", ".join(tool.name for tool in talk.tools)
            return mark, step, call or Say(f"SCRIPT ERROR: no shell is offered, only {names}")
        return mark, step, self.call(wanted, talk, since, script)

    def call(self, wanted: Call, talk: Talk, since: list[tuple[str, str]], script: list):
        arguments = fill(wanted.arguments, answers(script, since))
        tool = find(wanted.tool, talk.tools)
        if tool is not None:
            return Call(tool.name, arguments)
        # Some programs hide MCP tools, and say somewhere what they are called.
        named = [Tool(name, {}) for name in re.findall(r"\bmcp__[\w-]+", talk.everything)]
        hidden = find(wanted.tool, named)
        by_name = find("tool_call", talk.tools)
        if hidden and by_name:
            return Call(by_name.name, {"name": hidden.name, "arguments": arguments})
        code = find("run_typescript", talk.tools)
        if code:
            body = f"return await tools.mcp_teamster.{plain(wanted.tool)}({json.dumps(arguments)});"
            return Call(code.name, {"code": f"async function main() {{ {body} }}"})
        search = next((tool for tool in talk.tools if is_search(tool.name)), None)
        if search and sum(who == "search" for who, _ in since) < SEARCHES_MAX:
            key = next(iter(search.schema.get("properties") or {"query": {}}))
            query = f"select:{hidden.name}" if hidden else wanted.tool
            kind = str(((search.schema.get("properties") or {}).get(key) or {}).get("type")).lower()
            return Call(search.name, {key: [hidden.name if hidden else wanted.tool] if "array" in kind else query})
        names = ", ".join(tool.name for tool in talk.tools)
        return Say(f"SCRIPT ERROR: the tool {wanted.tool} is not offered, only {names}")


def answers(script: list, since: list[tuple[str, str]]) -> dict[str, str]:
    """What the latest call of each tool answered: what follows the n-th reply answers the n-th step."""
    found, n_replies = {}, 0
    for who, text in since:
        n_replies += who == "reply"
        if who == "result" and 0 < n_replies <= len(script) and isinstance(script[n_replies - 1], Call):
            found[script[n_replies - 1].tool] = text
    return found


def fill(value, found: dict[str, str]):
    if isinstance(value, dict):
        return {key: fill(one, found) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, found) for one in value]
    if isinstance(value, str) and (match := re.fullmatch(r"\$\{([\w-]+)\.(\w+)\}", value)):
        # Programs put words of their own around an answer, or quote it once more.
        said = re.search(rf'\\*"{match[2]}\\*"\s*:\s*\\*"([^"\\]+)', found.get(match[1], ""))
        return said[1] if said else "missing"
    return value
