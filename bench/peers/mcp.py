"""A minimal MCP client, over stdio and over HTTP, with a deadline on every call."""

import http.client
import json
import os
import select
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

# Longer than any call or start that was seen, also on a busy machine; a server that takes longer counts as hung.
CALL_TIMEOUT_S = 120
PROTOCOL = "2025-06-18"


class McpError(Exception):
    """The server is gone, hangs, or answered a request with an error."""


class Client:
    """What both transports share. A subclass sends one message and, if it is a request, returns the answer."""

    def __init__(self):
        self.last_id = 0

    def exchange(self, message: dict) -> dict | None:
        raise NotImplementedError

    def close(self):
        raise NotImplementedError

    def pids(self) -> list[int]:
        """The processes that exist for this client alone."""
        return []

    def request(self, method: str, params: dict) -> dict:
        self.last_id += 1
        answer = self.exchange({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})
        if "error" in answer:
            raise McpError(f"{method}: {answer['error']}")
        return answer["result"]

    def initialize(self):
        client_info = {"name": "bench", "version": "1"}
        self.request("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client_info})
        self.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self) -> list[dict]:
        tools, params = [], {}
        while True:
            page = self.request("tools/list", params)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        """Whether the server says that it worked, and the text of its answer."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(block.get("text", "") for block in result["content"])
        return not result.get("isError", False), text


class StdioClient(Client):
    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], stderr: Path):
        super().__init__()
        self.stderr = stderr
        self.buffer = b""
        with stderr.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )

    def pids(self) -> list[int]:
        return [self.process.pid]

    def send(self, message: dict):
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self.gone() from error

    def gone(self) -> McpError:
        return McpError(f"the server ended; its last messages: {self.stderr.read_text(errors='replace')[-1000:]}")

    def read_line(self, deadline: float) -> bytes:
        while b"\n" not in self.buffer:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            if not readable:
                raise McpError(f"no answer within {CALL_TIMEOUT_S} s")
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise self.gone()
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def exchange(self, message: dict) -> dict | None:
        self.send(message)
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while "id" in message:
            try:
                incoming = json.loads(self.read_line(deadline))
            except ValueError:
                continue  # Some servers print other things to stdout; agents skip them too.
            if "method" in incoming:
                if "id" in incoming:
                    refusal = {"code": -32601, "message": "not supported"}
                    self.send({"jsonrpc": "2.0", "id": incoming["id"], "error": refusal})
            elif incoming.get("id") == message["id"]:
                return incoming
        return None

    def close(self):
        """As agents do: the end of stdin means go, and who stays is killed."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class HttpClient(Client):
    def __init__(self, url: str, token: str):
        super().__init__()
        parts = urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=CALL_TIMEOUT_S)
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    def exchange(self, message: dict) -> dict | None:
        try:
            self.connection.request("POST", self.path, json.dumps(message), self.headers)
            response = self.connection.getresponse()
            body = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise McpError(f"{message['method']}: {error!r}") from error
        if response.status >= 300:
            raise McpError(f"{message['method']}: HTTP {response.status} {body}")
        if session := response.getheader("Mcp-Session-Id"):
            self.headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": PROTOCOL}
        if "id" not in message:
            return None
        if "text/event-stream" not in response.getheader("Content-Type", ""):
            return json.loads(body)
        events = (json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:") and line[5:].strip())
        return next(event for event in events if event.get("id") == message["id"])

    def close(self):
        self.connection.close()
