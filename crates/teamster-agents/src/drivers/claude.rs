//! The driver for Claude Code, by the lines of JSON that it speaks with programs (`stream-json`, both ways).
//!
//! Nothing in them is promised by anybody, so they are read for what is there: a field that is missing or odd is as good as
//! none, and only the end of a turn has to be recognised. The session's name is ours, because the program tells its own
//! only after the first prompt.

mod calls;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::{Driver, Out, Preparation, micros, usage_limit};
use crate::agent::{
    Begin, Context, Cost, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, MESSAGE_BYTES_MAX, MODELS_MAX,
    McpServer, PAYLOAD_BYTES_MAX, PermissionId, PermissionKind, PermissionOption, Piece, Program,
    Started, Tokens, ToolCall, TurnEnd, Usage, clipped,
};
use crate::launch::PrivateFile;

/// The file that names our MCP server, with the token for it.
const MCP_CONFIG: &str = "mcp.json";

/// What the program is always started with. It asks us whatever it would ask the person before it, and shows what the model
/// says as it comes: a long file that is being written is otherwise silence.
const ARGS: [&str; 10] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--include-partial-messages",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
    "--strict-mcp-config",
];

/// A tool's input up to this size goes back with the permission, as older versions of the program want it.
const INPUT_BYTES_MAX: usize = 1024 * 1024;

const ALLOW: &str = "allow";
const ALLOW_ALWAYS: &str = "allow-always";
const REJECT: &str = "reject";

#[derive(Debug, Default)]
pub struct Claude {
    /// What is known of the agent so far; said when it is complete.
    started: Started,
    /// The one request that is not answered yet, but for cancelling, whose answer is the end of the turn.
    asked: Option<(u64, Awaited)>,
    n_asked: u64,
    in_turn: bool,
    cancelled: bool,
    streamed: Streamed,
    /// What this process has cost.
    cost_dollars: f64,
    /// How full the context was at the latest answer of the model.
    context_used: Option<u64>,
    /// When the account has something again, if it was said to have nothing.
    limited_until: Option<Option<u64>>,
    /// What the turn used so far.
    counted: Counted,
    permissions: Vec<Permission>,
    n_permissions: u64,
}

/// What was said of a message before it was whole.
#[derive(Debug, Default)]
struct Streamed {
    message: Option<String>,
    text: bool,
    thought: bool,
}

/// Shown to a person whose Claude Code has neither a login nor a key.
const LOGIN_MISSING: &str =
    "it is not logged in; run `claude` and log in, or set ANTHROPIC_API_KEY";

#[derive(Debug, Clone, Copy)]
enum Awaited {
    Initialize,
    Settings,
}

/// A permission that is not decided yet.
#[derive(Debug)]
struct Permission {
    id: PermissionId,
    request: String,
    input: Option<Value>,
    /// What the program suggests to allow from now on.
    suggestions: Vec<Value>,
}

impl Driver for Claude {
    fn prepare(&mut self, begin: &Begin, private: &Path) -> Preparation {
        let mut args: Vec<OsString> = ARGS.map(Into::into).to_vec();
        let mut files = Vec::new();
        if !begin.mcp_servers.is_empty() {
            args.extend(["--mcp-config".into(), private.join(MCP_CONFIG).into()]);
            let contents = mcp_config(&begin.mcp_servers).to_string();
            files.push(PrivateFile { name: MCP_CONFIG.to_owned(), contents });
        }
        // In one word, so that a name that looks like an option is none.
        args.push(match &begin.resume {
            Some(resume) => format!("--resume={}", resume.session).into(),
            None => format!("--session-id={}", new_session(begin.nonce)).into(),
        });
        Preparation { args, environment: Vec::new(), files }
    }

    fn begin(&mut self, begin: &Begin, out: &mut Out) {
        let resumed = begin.resume.as_ref().map(|resume| resume.session.clone());
        self.started.resumed = resumed.is_some();
        self.started.session = resumed.unwrap_or_else(|| new_session(begin.nonce));
        self.started.can_resume = true;
        self.ask(Awaited::Initialize, "initialize", out);
    }

    fn prompt(&mut self, text: &str, out: &mut Out) {
        (self.in_turn, self.cancelled) = (true, false);
        self.counted = Counted::default();
        out.send(&json!({
            "type": "user",
            "message": {"role": "user", "content": [{"type": "text", "text": text}]},
            "session_id": self.started.session,
            "parent_tool_use_id": null,
        }));
    }

    fn cancel(&mut self, out: &mut Out) {
        self.cancelled = true;
        self.request("interrupt", out);
    }

    fn answer(&mut self, permission: PermissionId, option: Option<&str>, out: &mut Out) {
        let Some(at) = self.permissions.iter().position(|asked| asked.id == permission) else {
            return;
        };
        let Permission { request, input, suggestions, .. } = self.permissions.swap_remove(at);
        let mut decision = match option {
            Some(ALLOW | ALLOW_ALWAYS) => json!({"behavior": "allow"}),
            Some(_) => json!({"behavior": "deny", "message": "This is not permitted here."}),
            None => json!({"behavior": "deny", "message": "Nobody decided about this."}),
        };
        if let (Some(ALLOW | ALLOW_ALWAYS), Some(input)) = (option, input) {
            decision["updatedInput"] = input;
        }
        if option == Some(ALLOW_ALWAYS) {
            decision["updatedPermissions"] = suggestions.into();
        }
        out.send(&json!({
            "type": "control_response",
            "response": {"subtype": "success", "request_id": request, "response": decision},
        }));
    }

    fn hear(&mut self, line: &[u8], out: &mut Out) {
        let message: Value = match serde_json::from_slice(line) {
            Ok(message @ Value::Object(_)) => message,
            Ok(_) | Err(_) => {
                let line = clipped(String::from_utf8_lossy(line), LABEL_BYTES_MAX);
                return out.trouble(format!("not a message: {line}"));
            }
        };
        match word(&message["type"]) {
            "control_response" => self.answered(&message["response"], out),
            "control_request" => self.requested(&message, out),
            "control_cancel_request" => self.withdrawn(word(&message["request_id"]), out),
            "stream_event" => self.saying(&message, out),
            "assistant" => self.said(&message, out),
            "user" => results(&message, out),
            "result" => self.ended(&message, out),
            "rate_limit_event" => self.limited(&message["rate_limit_info"]),
            "system" => {
                if word(&message["subtype"]) == "init" {
                    self.initiated(&message);
                }
            }
            // What only matters to somebody who sits before the program.
            "auth_status" | "keep_alive" | "prompt_suggestion" | "tool_progress"
            | "tool_use_summary" => {}
            "" => out.trouble("a message without a type"),
            other => {
                let other = clipped(other, LABEL_BYTES_MAX);
                out.trouble(format!("an unknown message: {other}"));
            }
        }
    }
}

/// The handshake: initialize, then the model in use.
impl Claude {
    fn ask(&mut self, asked: Awaited, subtype: &str, out: &mut Out) {
        let number = self.request(subtype, out);
        self.asked = Some((number, asked));
    }

    fn request(&mut self, subtype: &str, out: &mut Out) -> u64 {
        self.n_asked += 1;
        out.send(&json!({
            "type": "control_request",
            "request_id": self.n_asked.to_string(),
            "request": {"subtype": subtype},
        }));
        self.n_asked
    }

    fn answered(&mut self, answer: &Value, out: &mut Out) {
        let number = word(&answer["request_id"]);
        let failure = (word(&answer["subtype"]) != "success").then(|| word(&answer["error"]));
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| asked.to_string() == number) else {
            if let Some(failure) = failure {
                out.trouble(format!("a request failed: {failure}"));
            }
            return;
        };
        let answer = &answer["response"];
        match (asked, failure) {
            (Awaited::Initialize, None) => {
                let version = word(&answer["claude_code_version"]);
                self.started.program = (!version.is_empty()).then(|| Program {
                    name: "claude".to_owned(),
                    version: clipped(version, LABEL_BYTES_MAX),
                });
                let account = &answer["account"];
                let without_login = word(&account["tokenSource"]) == "none"
                    && account["apiKeySource"].is_null()
                    && word(&account["apiProvider"]) == "firstParty";
                self.started.login_missing = without_login.then(|| LOGIN_MISSING.to_owned());
                let models = answer["models"].as_array().into_iter().flatten();
                let models = models.filter_map(|model| name(&model["value"]));
                self.started.models = models.take(MODELS_MAX).collect();
                self.ask(Awaited::Settings, "get_settings", out);
            }
            (Awaited::Initialize, Some(failure)) => not_started(failure, out),
            // Versions that do not tell are as good.
            (Awaited::Settings, _) => {
                self.started.model = name(&answer["applied"]["model"]);
                out.event(Event::Started(self.started.clone()));
            }
        }
    }

    /// Said again at the beginning of each turn.
    fn initiated(&mut self, init: &Value) {
        if let Some(model) = name(&init["model"]) {
            self.started.model = Some(model);
        }
    }
}

/// The turn: what the program says while it works, and how it ends.
impl Claude {
    fn saying(&mut self, message: &Value, out: &mut Out) {
        let event = &message["event"];
        let is_own = message["parent_tool_use_id"].is_null();
        match word(&event["type"]) {
            "message_start" if is_own => {
                let message = name(&event["message"]["id"]);
                self.streamed = Streamed { message, ..Streamed::default() };
            }
            "content_block_delta" if is_own && self.streamed.message.is_some() => {
                let delta = &event["delta"];
                let message = self.streamed.message.clone();
                let piece = |text: &Value| Piece { text: word(text).to_owned(), message };
                match word(&delta["type"]) {
                    "text_delta" => {
                        self.streamed.text = true;
                        out.events.extend(some(piece(&delta["text"])).map(Event::Text));
                    }
                    "thinking_delta" => {
                        self.streamed.thought = true;
                        out.events.extend(some(piece(&delta["thinking"])).map(Event::Thought));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, message: &Value, out: &mut Out) {
        // What its sub-agents say is not its own; what they do is.
        let is_own = message["parent_tool_use_id"].is_null();
        // The end of the turn tells of it too.
        let is_failure = message["error"].is_string();
        let message = &message["message"];
        let id = name(&message["id"]);
        if let Some(tokens) = tokens(&message["usage"]).filter(|used| used.input > 0) {
            if is_own {
                let cached = [tokens.cached_read, tokens.cached_write].into_iter().flatten();
                self.context_used = Some(cached.fold(tokens.input, u64::saturating_add));
            }
            let so_far = id.as_deref().and_then(|id| self.counted.add(id, tokens));
            if self.in_turn && so_far.is_some() {
                let model = self.started.model.clone();
                out.event(Event::Usage(Usage { model, so_far, ..Usage::default() }));
            }
        }
        let is_known = id.is_some() && id == self.streamed.message;
        let piece = |text: &Value| Piece { text: word(text).to_owned(), message: id.clone() };
        for block in message["content"].as_array().into_iter().flatten() {
            match word(&block["type"]) {
                "text" if is_own && !is_failure && !(is_known && self.streamed.text) => {
                    out.events.extend(some(piece(&block["text"])).map(Event::Text));
                }
                "thinking" if is_own && !(is_known && self.streamed.thought) => {
                    out.events.extend(some(piece(&block["thinking"])).map(Event::Thought));
                }
                "tool_use" | "server_tool_use" => match calls::read(block) {
                    Some(call) => {
                        out.events.extend(calls::plan(block).filter(|_| is_own));
                        out.event(Event::ToolCall(call));
                    }
                    None => out.trouble("a tool call without a proper id or name"),
                },
                _ => {}
            }
        }
    }

    fn limited(&mut self, info: &Value) {
        let until = info["resetsAt"].as_u64();
        // Some versions tell milliseconds.
        let until = until.map(|at| if at > 100_000_000_000 { at / 1000 } else { at });
        self.limited_until = (word(&info["status"]) == "rejected").then_some(until);
    }

    fn ended(&mut self, result: &Value, out: &mut Out) {
        if self.asked.take().is_some() {
            return not_started(&failure(result), out);
        }
        // One that it began by itself, because something in the background was done, is nobody's; but it costs.
        let usage = self.used(result);
        if !std::mem::take(&mut self.in_turn) {
            return out.event(Event::Usage(Usage { tokens: None, ..usage }));
        }
        out.event(Event::Usage(usage));
        let end = self.end(result, out);
        out.event(Event::TurnEnded(end));
    }

    fn end(&mut self, result: &Value, out: &mut Out) -> TurnEnd {
        let is_error = result["is_error"].as_bool().unwrap_or_default();
        match (word(&result["subtype"]), word(&result["stop_reason"])) {
            ("success", "refusal") => TurnEnd::Refused,
            ("success", "max_tokens") => TurnEnd::MaxTokens,
            ("success", _) if !is_error => TurnEnd::Done,
            _ if self.cancelled => TurnEnd::Cancelled,
            ("error_max_turns", _) => TurnEnd::MaxTurns,
            _ => {
                let message = failure(result);
                out.events.extend(self.limit(result, &message));
                TurnEnd::Failed { message }
            }
        }
    }

    /// Recognises that the account has nothing left.
    fn limit(&mut self, result: &Value, message: &str) -> Option<Event> {
        let rejected = self.limited_until.take();
        // Some gateways say so when it is only they that are too busy.
        let is_busy = word(&result["api_error_type"]) == "overloaded_error";
        let known = rejected.is_some() || (result["api_error_status"] == 429 && !is_busy);
        let until = rejected.flatten();
        match usage_limit::recognise(message) {
            Some(Event::UsageLimit { until_unix_s, message }) => {
                Some(Event::UsageLimit { until_unix_s: until_unix_s.or(until), message })
            }
            _ => known
                .then(|| Event::UsageLimit { until_unix_s: until, message: message.to_owned() }),
        }
    }

    /// A process that resumes a session begins with what the session had cost, or does not, depending on how the one before
    /// it ended. What was used since the last end of a turn is told too, with what sub-agents used.
    fn used(&mut self, result: &Value) -> Usage {
        let model = self.started.model.clone();
        let dollars = |amount: &Value| amount.as_f64().filter(|amount| *amount >= 0.0);
        let tokens = match result["model_usage_since_last_result"].as_object() {
            Some(models) => {
                let costs = models.values().filter_map(|used| dollars(&used["costUSD"]));
                self.cost_dollars += costs.sum::<f64>();
                Some(models.values().fold(Tokens::default(), added))
            }
            None => {
                self.cost_dollars = dollars(&result["total_cost_usd"]).unwrap_or(self.cost_dollars);
                tokens(&result["usage"])
            }
        };
        let size = model.as_deref().and_then(|model| {
            result["modelUsage"][model]["contextWindow"].as_u64().filter(|size| *size > 0)
        });
        let context = self.context_used.zip(size).map(|(used, size)| Context { used, size });
        let micros = micros(self.cost_dollars);
        let cost = Some(Cost { micros, currency: "USD".to_owned() });
        Usage { model, tokens, context, cost, ..Usage::default() }
    }
}

/// The messages of a turn, whose tokens are told with each piece of them.
#[derive(Debug, Default)]
struct Counted {
    /// The latest messages; sub-agents speak at the same time.
    latest: VecDeque<(String, Tokens)>,
    /// All before them.
    before: Tokens,
}

impl Counted {
    /// As many messages may be under way at a time.
    const LATEST_MAX: usize = 64;

    /// Takes in what a message used so far. Returns what all did, if that is news.
    fn add(&mut self, id: &str, tokens: Tokens) -> Option<Tokens> {
        match self.latest.iter_mut().find(|(known, _)| known == id) {
            Some((_, known)) if *known == tokens => return None,
            Some((_, known)) => *known = tokens,
            None => {
                if self.latest.len() == Self::LATEST_MAX
                    && let Some((_, oldest)) = self.latest.pop_front()
                {
                    self.before = sum(self.before, &oldest);
                }
                self.latest.push_back((id.to_owned(), tokens));
            }
        }
        Some(self.latest.iter().fold(self.before, |all, (_, tokens)| sum(all, tokens)))
    }
}

fn sum(all: Tokens, more: &Tokens) -> Tokens {
    let cached = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or_default().saturating_add(b.unwrap_or_default())),
    };
    Tokens {
        input: all.input.saturating_add(more.input),
        output: all.output.saturating_add(more.output),
        cached_read: cached(all.cached_read, more.cached_read),
        cached_write: cached(all.cached_write, more.cached_write),
    }
}

/// Permissions.
impl Claude {
    fn requested(&mut self, message: &Value, out: &mut Out) {
        let id = word(&message["request_id"]);
        let request = &message["request"];
        let wrong = match word(&request["subtype"]) {
            "can_use_tool" if (1..=ID_BYTES_MAX).contains(&id.len()) => {
                match calls::read_request(request) {
                    Some(call) => return self.permission_asked(id, request, call, out),
                    None => "a permission for a tool call without a proper id or name".to_owned(),
                }
            }
            "" => "a request for nothing".to_owned(),
            other => format!("{} is not offered", clipped(other, LABEL_BYTES_MAX)),
        };
        out.send(&json!({
            "type": "control_response",
            "response": {"subtype": "error", "request_id": id, "error": wrong},
        }));
        out.trouble(wrong);
    }

    fn permission_asked(&mut self, id: &str, request: &Value, call: ToolCall, out: &mut Out) {
        self.n_permissions += 1;
        let permission = PermissionId(self.n_permissions);
        let suggestions = suggestions(&request["permission_suggestions"]);
        let option = |id: &str, name: &str, kind| PermissionOption {
            id: id.to_owned(),
            name: name.to_owned(),
            kind,
        };
        let always = (!suggestions.is_empty())
            .then(|| option(ALLOW_ALWAYS, "Allow for this session", PermissionKind::AllowAlways));
        let options = [
            Some(option(ALLOW, "Allow once", PermissionKind::AllowOnce)),
            always,
            Some(option(REJECT, "Reject", PermissionKind::RejectOnce)),
        ];
        let input = &request["input"];
        self.permissions.push(Permission {
            id: permission,
            request: id.to_owned(),
            input: (size(input) <= INPUT_BYTES_MAX).then(|| input.clone()),
            suggestions,
        });
        let options = options.into_iter().flatten().collect();
        out.event(Event::PermissionAsked { id: permission, call, options });
    }

    fn withdrawn(&mut self, request: &str, out: &mut Out) {
        // One that was answered in the meantime is gone already.
        if let Some(at) = self.permissions.iter().position(|asked| asked.request == request) {
            let id = self.permissions.swap_remove(at).id;
            out.event(Event::PermissionAnswered { id, option: None });
        }
    }
}

fn not_started(message: &str, out: &mut Out) {
    let message = clipped(message, MESSAGE_BYTES_MAX);
    out.event(Event::NotStarted { message });
}

fn some(piece: Piece) -> Option<Piece> {
    (!piece.text.is_empty()).then_some(piece)
}

/// Why a turn failed, in the program's words.
fn failure(result: &Value) -> String {
    let errors = result["errors"].as_array().into_iter().flatten();
    let errors = errors.map(word).filter(|error| !error.is_empty()).collect::<Vec<_>>().join("; ");
    let subtype = word(&result["subtype"]).replace('_', " ");
    let said = [word(&result["result"]), &errors, &subtype].into_iter().find(|it| !it.is_empty());
    clipped(said.unwrap_or("it does not say why"), MESSAGE_BYTES_MAX)
}

/// What tools gave back, to the agent or to its sub-agents.
fn results(message: &Value, out: &mut Out) {
    for block in message["message"]["content"].as_array().into_iter().flatten() {
        if word(&block["type"]) == "tool_result" {
            match name(&block["tool_use_id"]) {
                Some(id) => out.event(Event::ToolResult {
                    id,
                    ok: block["is_error"] != true,
                    output: calls::output(&block["content"]),
                }),
                None => out.trouble("a result of a tool call without a proper id"),
            }
        }
    }
}

/// Rules and directories that the program suggests to allow. They are for this session: it would write them into the
/// project, which is nobody's business here. Modes allow more than was asked for, and are left out if there is something
/// narrower.
fn suggestions(suggested: &Value) -> Vec<Value> {
    let all = || suggested.as_array().into_iter().flatten();
    let is_mode = |one: &&Value| word(&one["type"]) == "setMode";
    let has_narrower = !all().all(|one| is_mode(&one));
    let for_session = all().filter(|one| !(has_narrower && is_mode(one))).map(|one| {
        let mut one = one.clone();
        if let Some(fields) = one.as_object_mut() {
            fields.insert("destination".to_owned(), "session".into());
        }
        one
    });
    let suggestions: Vec<Value> = for_session.collect();
    let bearable = suggestions.iter().map(size).sum::<usize>() <= PAYLOAD_BYTES_MAX;
    if bearable { suggestions } else { Vec::new() }
}

/// The file by which the program finds our tools. They are few and all of use, so it lists them at once.
fn mcp_config(servers: &[McpServer]) -> Value {
    let server = |server: &McpServer| {
        let headers =
            server.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        let headers = headers.collect::<serde_json::Map<String, Value>>();
        let config = json!({
            "type": "http", "url": server.url, "headers": headers, "alwaysLoad": true,
        });
        (server.name.clone(), config)
    };
    json!({"mcpServers": servers.iter().map(server).collect::<serde_json::Map<String, Value>>()})
}

/// The name of a new session: a UUID of version 4, which the program wants.
fn new_session(nonce: u128) -> String {
    let bits = nonce & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let [a, b, c, d] = [bits >> 96, bits >> 80 & 0xffff, bits >> 64 & 0xffff, bits >> 48 & 0xffff];
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}", bits & 0xffff_ffff_ffff)
}

/// The tokens of one request, or of a turn.
fn tokens(usage: &Value) -> Option<Tokens> {
    Some(Tokens {
        input: usage["input_tokens"].as_u64()?,
        output: usage["output_tokens"].as_u64()?,
        cached_read: usage["cache_read_input_tokens"].as_u64(),
        cached_write: usage["cache_creation_input_tokens"].as_u64(),
    })
}

/// Adds what one model used.
fn added(sum: Tokens, used: &Value) -> Tokens {
    let plus = |sum: u64, counted: &Value| sum.saturating_add(counted.as_u64().unwrap_or(0));
    let cached = |sum: Option<u64>, counted: &Value| Some(plus(sum.unwrap_or(0), counted));
    Tokens {
        input: plus(sum.input, &used["inputTokens"]),
        output: plus(sum.output, &used["outputTokens"]),
        cached_read: cached(sum.cached_read, &used["cacheReadInputTokens"]),
        cached_write: cached(sum.cached_write, &used["cacheCreationInputTokens"]),
    }
}

/// The text of a string; of anything else, nothing.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A string that can be a name or an id.
fn name(value: &Value) -> Option<String> {
    let name = word(value);
    (1..=ID_BYTES_MAX).contains(&name.len()).then(|| name.to_owned())
}

/// About as many bytes as it takes.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 8 + size(item)).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| 8 + name.len() + size(value)).sum()
        }
    }
}
