//! A scripted language model on loopback. Real agents pointed at it do exactly what a script says, so what is under
//! test is everything around the model: the agent, the protocol, the hub.
//!
//! The model remembers nothing between requests. The step to play is the number of replies that the request itself
//! shows after the prompt, so agents may retry, restart and resume, and many may share one model.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "test support: the server's task ends with the test, and a broken fixture should panic"
)]

use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the model does when it sees a prompt: one step for each of its replies.
pub(crate) struct Script {
    prompt: String,
    steps: Vec<Step>,
}

impl Script {
    /// Agents wrap prompts in context of their own, so any user message that contains `prompt` starts the script.
    pub(crate) fn new(prompt: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { prompt: prompt.to_owned(), steps: steps.into_iter().collect() }
    }
}

pub(crate) enum Step {
    Call {
        tool: String,
        arguments: Value,
    },
    Say(String),
    /// Never answers.
    Hang,
    /// Begins to say this, and never goes on. Some agents can be interrupted only then.
    Stall(String),
    /// Says the first part, and the second when the test says so: see [`ScriptedModel::let_go_on`].
    Confined(String, String),
    /// Says, as the vendor does, that the account has nothing left until then.
    UsedUp {
        until_unix_s: u64,
    },
}

impl Step {
    /// Calls the offered tool whose name is `tool`, give or take the agent's prefix and punctuation.
    ///
    /// Ids are only known at run time: the string `"${task-next.id}"` in `arguments` stands for the field `id` of the
    /// JSON that the latest `task-next` of this script answered.
    pub(crate) fn call(tool: &str, arguments: Value) -> Self {
        Self::Call { tool: tool.to_owned(), arguments }
    }

    /// Says this; `"${team_tell.response}"` stands for what a tool answered, as in the arguments of a call.
    pub(crate) fn say(text: &str) -> Self {
        Self::Say(text.to_owned())
    }
}

/// A model that answers until it is dropped.
pub(crate) struct ScriptedModel {
    /// Agents append `/v1/messages`, `/v1/chat/completions` or `/v1/responses`.
    pub(crate) url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    scripts: Vec<Script>,
    requests: Mutex<Vec<Request>>,
    asked: tokio::sync::Notify,
    given_up: tokio::sync::Notify,
    /// The prompts that need not be held any longer.
    let_go: tokio::sync::watch::Sender<Vec<String>>,
}

/// A request that is not answered; its end is noticed.
struct Hanging(Arc<Shared>);

impl Drop for Hanging {
    fn drop(&mut self) {
        // Kept for whoever asks later.
        self.0.given_up.notify_one();
    }
}

/// One request that an agent made, and what it got.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) offered_tools: Vec<String>,
    /// What the user has said so far, as the agent remembers it.
    heard: Vec<String>,
    answer: Answer,
}

/// A reply, and where it comes from.
#[derive(Clone, Debug)]
enum Answer {
    /// Step `step` of the script for `prompt`.
    Step { prompt: String, step: usize, reply: Reply },
    /// The script says not to answer, or no more than these words.
    Hung { prompt: String, step: usize, words: Option<String> },
    /// The script says to answer in two parts.
    Confined { prompt: String, step: usize, parts: [String; 2] },
    /// The script says that the account has nothing left.
    UsedUp { prompt: String, step: usize, until_unix_s: u64 },
    /// The script could not go on; the agent is told the reason as the model's words.
    Stuck { prompt: String, step: usize, reason: String },
    /// No turn of a script: titles, probes, suggestions.
    LeftDirectory,
    /// Not a model call, or one of an API that the model does not speak.
    Other(StatusCode),
}

#[derive(Clone, Debug)]
enum Reply {
    Text(String),
    Call { tool: String, arguments: Value },
}

impl ScriptedModel {
    pub(crate) async fn start(scripts: impl IntoIterator<Item = Script>) -> Self {
        let shared = Arc::new(Shared {
            scripts: scripts.into_iter().collect(),
            requests: Mutex::default(),
            asked: tokio::sync::Notify::new(),
            given_up: tokio::sync::Notify::new(),
            let_go: tokio::sync::watch::Sender::default(),
        });
        let router = Router::new()
            .fallback(serve)
            // Agents send their whole context with every request.
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let url =
            format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the model serves until it is aborted");
        });
        Self { url, shared, server }
    }

    /// Returns every request so far; printed one per line, they are the model's side of the story.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("no request panicked").clone()
    }

    /// Returns the tools that were offered when the script for `prompt` was played.
    pub(crate) fn offered_in(&self, prompt: &str) -> Vec<String> {
        let requests = self.requests();
        let request = requests.iter().find(
            |request| matches!(&request.answer, Answer::Step { prompt: of, .. } if of == prompt),
        );
        request.expect("the script was played").offered_tools.clone()
    }

    /// Waits until the model was asked for this step of the script for `prompt`.
    pub(crate) async fn until_asked(&self, prompt: &str, step: usize) {
        self.until_asked_by(prompt, step, 1).await;
    }

    /// Waits until the model was asked for it so many times.
    pub(crate) async fn until_asked_by(&self, prompt: &str, step: usize, n_times: usize) {
        let asked = |request: &&Request| match &request.answer {
            Answer::Step { prompt: of, step: at, .. }
            | Answer::Hung { prompt: of, step: at, .. }
            | Answer::Confined { prompt: of, step: at, .. }
            | Answer::UsedUp { prompt: of, step: at, .. } => of == prompt && *at == step,
            Answer::Stuck { .. } | Answer::LeftDirectory | Answer::Other(_) => false,
        };
        loop {
            let more = self.shared.asked.notified();
            if self.requests().iter().filter(asked).count() >= n_times {
                return;
            }
            more.await;
        }
    }

    /// Has what was held for `prompt` said, now and whenever it is asked for.
    pub(crate) fn let_go_on(&self, prompt: &str) {
        self.shared.let_go.send_modify(|all| all.push(prompt.to_owned()));
    }

    /// Returns what the user had said, as the agent remembers it, when it was last asked about `prompt`.
    pub(crate) fn heard_with(&self, prompt: &str) -> Vec<String> {
        let requests = self.requests();
        let request = requests.iter().rev().find(|request| {
            let heard = request.heard.last();
            !matches!(request.answer, Answer::LeftDirectory)
                && heard.is_some_and(|last| last.contains(prompt))
        });
        request.expect("the prompt was heard").heard.clone()
    }

    /// Waits until an agent no longer waits for an answer that does not come.
    pub(crate) async fn until_given_up(&self) {
        self.shared.given_up.notified().await;
    }

    /// Panics, with every request, unless the whole script for `prompt` was played and never got stuck.
    pub(crate) fn assert_played(&self, prompt: &str) {
        let script = self.shared.scripts.iter().find(|script| script.prompt == prompt);
        let last = script.expect("the prompt has a script").steps.len() - 1;
        let requests = self.requests();
        let stuck = requests.iter().any(
            |request| matches!(&request.answer, Answer::Stuck { prompt: of, .. } if of == prompt),
        );
        let ended = requests.iter().any(
            |request| matches!(&request.answer, Answer::Step { prompt: of, step, .. } if of == prompt && *step == last),
        );
        let story: Vec<String> = requests.iter().map(ToString::to_string).collect();
        assert!(
            ended && !stuck,
            "script {prompt:?} was not played to its end:\n{}",
            story.join("\n")
        );
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} tools: {}", self.path, self.offered_tools.len(), self.answer)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hung { prompt, step, .. } => write!(f, "{prompt:?} step {step}: no answer"),
            Self::Confined { prompt, step, .. } => write!(f, "{prompt:?} step {step}: held"),
            Self::UsedUp { prompt, step, .. } => write!(f, "{prompt:?} step {step}: used up"),
            Self::Step { prompt, step, reply: Reply::Text(text) } => {
                write!(f, "{prompt:?} step {step}: {text:?}")
            }
            Self::Step { prompt, step, reply: Reply::Call { tool, arguments } } => {
                write!(f, "{prompt:?} step {step}: {tool} {arguments}")
            }
            Self::Stuck { prompt, step, reason } => write!(f, "{prompt:?} step {step}: {reason}"),
            Self::LeftDirectory => write!(f, "not a scripted turn"),
            Self::Other(status) => write!(f, "{status}"),
        }
    }
}

impl Answer {
    fn reply(&self) -> Reply {
        match self {
            Self::Step { reply, .. } => reply.clone(),
            Self::Stuck { reason, .. } => Reply::Text(reason.clone()),
            Self::Hung { words: Some(words), .. } => Reply::Text(words.clone()),
            Self::Confined { parts, .. } => Reply::Text(parts.concat()),
            Self::Hung { words: None, .. }
            | Self::UsedUp { .. }
            | Self::LeftDirectory
            | Self::Other(_) => Reply::Text("ok".to_owned()),
        }
    }
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let api = [&MESSAGES, &CHAT, &RESPONSES].into_iter().find(|api| path.ends_with(api.path));

    let Some(api) = api.filter(|_| method == Method::POST) else {
        let (status, answer) = if path.ends_with("/count_tokens") {
            (StatusCode::OK, json!({"input_tokens": TOKENS}))
        } else if path.ends_with("/models") {
            let model = json!({"id": "scripted", "object": "model", "owned_by": "test"});
            (StatusCode::OK, json!({"object": "list", "data": [model]}))
        } else {
            let message = "the scripted model has no such path";
            (StatusCode::NOT_FOUND, json!({"error": {"message": message}}))
        };
        shared.record(format!("{method} {path}"), None, Answer::Other(status));
        return (status, axum::Json(answer)).into_response();
    };

    let conversation = (api.read)(&body);
    let answer = shared.answer(&conversation);
    let hangs = matches!(answer, Answer::Hung { words: None, .. });
    let stalls_at = match &answer {
        Answer::Hung { words: Some(words), .. } => Some(words.clone()),
        _ => None,
    };
    let used_up = match answer {
        Answer::UsedUp { until_unix_s, .. } => Some((api.used_up)(until_unix_s)),
        _ => None,
    };
    let held = match &answer {
        Answer::Confined { prompt, parts, .. } => Some((prompt.clone(), parts.clone())),
        _ => None,
    };
    let reply = answer.reply();
    shared.record(format!("{method} {path}"), Some(&conversation), answer);
    if hangs {
        let _hanging = Hanging(shared);
        return std::future::pending().await;
    }
    if let Some((headers, body)) = used_up {
        return (StatusCode::TOO_MANY_REQUESTS, AppendHeaders(headers), axum::Json(body))
            .into_response();
    }
    // Call ids must be unique within a conversation, which has a longer history at every request.
    let id = format!("call_{}", conversation.turns.len());
    let whole = (api.whole)(&reply, &id, body["model"].as_str().unwrap_or("scripted"));
    if let Some((prompt, parts)) = held {
        let model = body["model"].as_str().unwrap_or("scripted").to_owned();
        let part = |n: usize| {
            let stream = (api.stream)(&(api.whole)(&Reply::Text(parts[n].clone()), &id, &model));
            let at = stream.find(&parts[n]).expect("the words are streamed");
            let start = stream[..at].rfind("\n\n").map_or(0, |at| at + 2);
            (start, at + stream[at..].find("\n\n").expect("an event ends") + 2, stream)
        };
        let (_, end, first) = part(0);
        let (start, second_end, second) = part(1);
        // The end of the whole repeats all of it, where a vendor does so.
        let all = (api.stream)(&whole);
        let at = all.find(&parts.concat()).expect("the words are streamed");
        let rest = at + all[at..].find("\n\n").expect("an event ends") + 2;
        let rest = format!("{}{}", &second[start..second_end], &all[rest..]);
        let begun = Bytes::from(first[..end].to_owned());
        let begun =
            futures_util::stream::once(async move { Ok::<_, std::convert::Infallible>(begun) });
        let rest = futures_util::stream::once(async move {
            let mut let_go = shared.let_go.subscribe();
            // The model goes on for as long as the test does.
            let _ = let_go.wait_for(|all| all.contains(&prompt)).await;
            Ok(Bytes::from(rest))
        });
        let stream = axum::body::Body::from_stream(futures_util::StreamExt::chain(begun, rest));
        return ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response();
    }
    if let Some(words) = stalls_at {
        let stream = (api.stream)(&whole);
        let begun = stream.find(&words).and_then(|at| Some(at + stream[at..].find("\n\n")? + 2));
        let begun = Bytes::from(stream[..begun.expect("the words are streamed")].to_owned());
        let hanging = Hanging(shared);
        let begun =
            futures_util::stream::once(async move { Ok::<_, std::convert::Infallible>(begun) });
        let rest = futures_util::stream::once(async move {
            let _hanging = hanging;
            std::future::pending().await
        });
        let stream = futures_util::StreamExt::chain(begun, rest);
        let stream = axum::body::Body::from_stream(stream);
        ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response()
    } else if body["stream"] == true {
        ([(header::CONTENT_TYPE, "text/event-stream")], (api.stream)(&whole)).into_response()
    } else {
        axum::Json(whole).into_response()
    }
}

impl Shared {
    fn record(&self, path: String, conversation: Option<&Conversation>, answer: Answer) {
        let offered_tools = conversation.map(|one| one.tools.clone()).unwrap_or_default();
        let heard = conversation.into_iter().flat_map(|one| &one.turns);
        let heard = heard.filter_map(|turn| match turn {
            Turn::User(text) if !text.is_empty() => Some(text.clone()),
            Turn::User(_) | Turn::Reply | Turn::Result(_) => None,
        });
        let request = Request { path, offered_tools, heard: heard.collect(), answer };
        self.requests.lock().expect("no request panicked").push(request);
        self.asked.notify_waiters();
    }

    fn answer(&self, Conversation { turns, tools }: &Conversation) -> Answer {
        let newest_prompt = turns.iter().enumerate().rev().find_map(|(at, turn)| match turn {
            Turn::User(text) => {
                let script = self.scripts.iter().find(|script| text.contains(&script.prompt))?;
                Some((script, &turns[at + 1..]))
            }
            Turn::Reply | Turn::Result(_) => None,
        });
        let Some((script, since)) = newest_prompt else { return Answer::LeftDirectory };
        let step = since.iter().filter(|turn| matches!(turn, Turn::Reply)).count();
        // Requests for a title quote the prompt, but offer no tools; suggestions for the next prompt come after the end.
        if tools.is_empty() || step >= script.steps.len() {
            return Answer::LeftDirectory;
        }
        let prompt = script.prompt.clone();
        match &script.steps[step] {
            Step::Hang => return Answer::Hung { prompt, step, words: None },
            Step::Stall(words) => {
                return Answer::Hung { prompt, step, words: Some(words.clone()) };
            }
            Step::Confined(said, rest) => {
                let parts = [said.clone(), rest.clone()];
                return Answer::Confined { prompt, step, parts };
            }
            Step::UsedUp { until_unix_s } => {
                return Answer::UsedUp { prompt, step, until_unix_s: *until_unix_s };
            }
            Step::Call { .. } | Step::Say(_) => {}
        }
        match script.reply(step, since, tools) {
            Ok(reply) => Answer::Step { prompt, step, reply },
            Err(reason) => {
                Answer::Stuck { prompt, step, reason: format!("SCRIPT ERROR: {reason}") }
            }
        }
    }
}

impl Script {
    fn reply(&self, step: usize, since: &[Turn], tools: &[String]) -> Result<Reply, String> {
        match &self.steps[step] {
            Step::Hang | Step::Stall(_) | Step::Confined(..) | Step::UsedUp { .. } => {
                Err("there is no reply".to_owned())
            }
            Step::Say(text) => {
                let text = Value::String(text.clone());
                let text = fill(&text, &|tool, field| self.field(tool, field, since))?;
                Ok(Reply::Text(text.as_str().map_or_else(|| text.to_string(), str::to_owned)))
            }
            Step::Call { tool, arguments } => {
                let offered = find_tool(tool, tools).ok_or_else(|| {
                    format!("the tool {tool} is not offered, only {}", tools.join(", "))
                })?;
                let arguments = fill(arguments, &|tool, field| self.field(tool, field, since))?;
                Ok(Reply::Call { tool: offered.to_owned(), arguments })
            }
        }
    }

    /// Returns `field` of what the latest call of `tool` answered.
    fn field(&self, tool: &str, field: &str, since: &[Turn]) -> Result<Value, String> {
        let mut n_replies: usize = 0;
        let mut found = Err(format!("{tool} has not answered yet"));
        for turn in since {
            match turn {
                Turn::User(_) => {}
                Turn::Reply => n_replies += 1,
                // The n-th reply played the n-th step, so what follows it answers that step's call.
                Turn::Result(text) => {
                    match n_replies.checked_sub(1).and_then(|step| self.steps.get(step)) {
                        Some(Step::Call { tool: called, .. }) if called == tool => {
                            found =
                                json_in(text).and_then(|json| json.get(field).cloned()).ok_or_else(
                                    || format!("{tool} answered without a field {field}: {text}"),
                                );
                        }
                        _ => {}
                    }
                }
            }
        }
        found
    }
}

/// Agents prefix the names of MCP tools and some replace dashes: `mcp__teamster__task-add`, `teamster_task_add`.
fn find_tool<'a>(wanted: &str, offered: &'a [String]) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let wanted = plain(wanted);
    let suffix = format!("_{wanted}");
    offered.iter().map(String::as_str).find(|name| {
        let name = plain(name);
        name == wanted || name.ends_with(&suffix)
    })
}

/// Replaces the strings `"${tool.field}"` in `arguments` by what `field` returns for them.
fn fill(
    arguments: &Value,
    field: &dyn Fn(&str, &str) -> Result<Value, String>,
) -> Result<Value, String> {
    Ok(match arguments {
        Value::String(text) => {
            let placeholder = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            match placeholder.and_then(|inner| inner.split_once('.')) {
                Some((tool, name)) => field(tool, name)?,
                None => arguments.clone(),
            }
        }
        Value::Array(items) => {
            items.iter().map(|item| fill(item, field)).collect::<Result<_, _>>()?
        }
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| Ok((name.clone(), fill(value, field)?)))
                .collect::<Result<_, String>>()?,
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => arguments.clone(),
    })
}

/// Returns the first JSON object in `text`; agents may put words of their own around a tool's answer.
fn json_in(text: &str) -> Option<Value> {
    let start = text.find('{')?;
    serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok()
}

/// What a request says, in any of the three APIs.
struct Conversation {
    turns: Vec<Turn>,
    tools: Vec<String>,
}

enum Turn {
    User(String),
    Reply,
    Result(String),
}

/// One HTTP API of language models.
struct Api {
    path: &'static str,
    read: fn(&Value) -> Conversation,
    /// Makes the answer to a request that does not stream, from the reply, an id for its call and the model's name.
    whole: fn(&Reply, &str, &str) -> Value,
    /// Turns that answer into server-sent events.
    stream: fn(&Value) -> String,
    /// Makes the headers and the body by which the vendor says that the account has nothing left until then.
    used_up: fn(u64) -> (Headers, Value),
}

type Headers = Vec<(&'static str, String)>;

const TOKENS: u32 = 10;

/// Anthropic's Messages: Claude Code.
const MESSAGES: Api = Api {
    path: "/v1/messages",
    read: |body| {
        let mut turns = Vec::new();
        for message in array(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => turns.push(Turn::Reply),
                Some("user") => {
                    let results =
                        array(&message["content"]).filter(|block| block["type"] == "tool_result");
                    turns.extend(results.map(|block| Turn::Result(text_of(&block["content"]))));
                    turns.push(Turn::User(text_of(&message["content"])));
                }
                _ => {}
            }
        }
        Conversation { turns, tools: names(array(&body["tools"])) }
    },
    whole: |reply, id, model| {
        let (block, stop_reason) = match reply {
            Reply::Text(text) => (json!({"type": "text", "text": text}), "end_turn"),
            Reply::Call { tool, arguments } => (
                json!({"type": "tool_use", "id": id, "name": tool, "input": arguments}),
                "tool_use",
            ),
        };
        json!({
            "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "content": [block],
            "stop_reason": stop_reason, "stop_sequence": null,
            "usage": {"input_tokens": TOKENS, "output_tokens": TOKENS},
        })
    },
    stream: |whole| {
        let mut start = whole.clone();
        start["content"] = json!([]);
        start["stop_reason"] = Value::Null;
        let block = &whole["content"][0];
        let mut empty = block.clone();
        let delta = if block["type"] == "text" {
            empty["text"] = json!("");
            json!({"type": "text_delta", "text": block["text"]})
        } else {
            empty["input"] = json!({});
            json!({"type": "input_json_delta", "partial_json": block["input"].to_string()})
        };
        events([
            json!({"type": "message_start", "message": start}),
            json!({"type": "content_block_start", "index": 0, "content_block": empty}),
            json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({
                "type": "message_delta",
                "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": null},
                "usage": whole["usage"],
            }),
            json!({"type": "message_stop"}),
        ])
    },
    used_up: |until_unix_s| {
        let headers = vec![
            ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
            ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned()),
            ("anthropic-ratelimit-unified-reset", until_unix_s.to_string()),
            ("x-should-retry", "false".to_owned()),
        ];
        let message = "This request would exceed your account's rate limit.";
        let error = json!({"type": "rate_limit_error", "message": message});
        (headers, json!({"type": "error", "error": error}))
    },
};

/// OpenAI's Chat Completions.
const CHAT: Api = Api {
    path: "/chat/completions",
    read: |body| {
        let turns = array(&body["messages"]).filter_map(|message| match message["role"].as_str() {
            Some("user") => Some(Turn::User(text_of(&message["content"]))),
            Some("assistant") => Some(Turn::Reply),
            Some("tool") => Some(Turn::Result(text_of(&message["content"]))),
            _ => None,
        });
        let tools = array(&body["tools"]).map(|tool| &tool["function"]);
        Conversation { turns: turns.collect(), tools: names(tools) }
    },
    whole: |reply, id, model| {
        let (message, finish_reason) = match reply {
            Reply::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
            Reply::Call { tool, arguments } => {
                let function = json!({"name": tool, "arguments": arguments.to_string()});
                let call = json!({"index": 0, "id": id, "type": "function", "function": function});
                (json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
            }
        };
        json!({
            "id": format!("chatcmpl-{id}"), "object": "chat.completion", "created": 0, "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": TOKENS, "completion_tokens": TOKENS, "total_tokens": 2 * TOKENS},
        })
    },
    stream: |whole| {
        let choice = &whole["choices"][0];
        let chunk = |choices: Value, usage: &Value| {
            let mut chunk = whole.clone();
            chunk["object"] = json!("chat.completion.chunk");
            chunk["choices"] = choices;
            chunk["usage"] = usage.clone();
            chunk
        };
        let delta = json!([{"index": 0, "delta": choice["message"], "finish_reason": null}]);
        let end = json!([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]);
        let chunks = [
            chunk(delta, &Value::Null),
            chunk(end, &Value::Null),
            chunk(json!([]), &whole["usage"]),
        ];
        events(chunks) + "data: [DONE]\n\n"
    },
    used_up: |until_unix_s| {
        let message = format!("You exceeded your current quota (resets_at {until_unix_s}).");
        let code = "insufficient_quota";
        (Vec::new(), json!({"error": {"message": message, "type": code, "code": code}}))
    },
};

/// OpenAI's Responses.
const RESPONSES: Api = Api {
    path: "/responses",
    read: |body| {
        let turns = array(&body["input"]).filter_map(|item| match item["type"].as_str() {
            Some("function_call") => Some(Turn::Reply),
            Some("function_call_output") => Some(Turn::Result(text_of(&item["output"]))),
            // Messages may leave their type out.
            Some("message") | None => match item["role"].as_str() {
                Some("user") => Some(Turn::User(text_of(&item["content"]))),
                Some("assistant") => Some(Turn::Reply),
                _ => None,
            },
            _ => None,
        });
        // Codex offers the tools of an MCP server within a namespace, and wants both names back; here they are one.
        let tools = array(&body["tools"]).flat_map(|tool| match tool["name"].as_str() {
            Some(space) if tool["type"] == "namespace" => {
                names(array(&tool["tools"])).iter().map(|name| format!("{space}/{name}")).collect()
            }
            _ => names([tool]),
        });
        Conversation { turns: turns.collect(), tools: tools.collect() }
    },
    whole: |reply, id, model| {
        let item = match reply {
            Reply::Text(text) => json!({
                "type": "message", "id": format!("msg_{id}"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }),
            Reply::Call { tool, arguments } => {
                let mut call = json!({
                    "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": tool,
                    "arguments": arguments.to_string(), "status": "completed",
                });
                if let Some((space, name)) = tool.split_once('/') {
                    call["namespace"] = json!(space);
                    call["name"] = json!(name);
                }
                call
            }
        };
        json!({
            "id": format!("resp_{id}"), "object": "response", "created_at": 0, "status": "completed", "model": model,
            "output": [item],
            "usage": {
                "input_tokens": TOKENS, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": TOKENS, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2 * TOKENS,
            },
        })
    },
    stream: |whole| {
        let item = &whole["output"][0];
        let mut started = whole.clone();
        started["status"] = json!("in_progress");
        started["output"] = json!([]);
        started["usage"] = Value::Null;
        let mut empty = item.clone();
        empty["status"] = json!("in_progress");
        let (delta, text) = if item["type"] == "message" {
            empty["content"] = json!([]);
            ("response.output_text.delta", &item["content"][0]["text"])
        } else {
            empty["arguments"] = json!("");
            ("response.function_call_arguments.delta", &item["arguments"])
        };
        let mut all = [
            json!({"type": "response.created", "response": started}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": empty}),
            json!({"type": delta, "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": text}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": whole}),
        ];
        for (number, event) in all.iter_mut().enumerate() {
            event["sequence_number"] = json!(number);
        }
        events(all)
    },
    used_up: |until_unix_s| {
        let headers = vec![
            ("x-codex-primary-used-percent", "100".to_owned()),
            ("x-codex-primary-window-minutes", "300".to_owned()),
            ("x-codex-primary-reset-at", until_unix_s.to_string()),
        ];
        let message = "The usage limit has been reached";
        let error = json!({
            "type": "usage_limit_reached", "message": message, "plan_type": "plus",
            "resets_at": until_unix_s,
        });
        (headers, json!({"error": error}))
    },
};

/// Formats server-sent events, each named by its `type` where it has one.
fn events(all: impl IntoIterator<Item = Value>) -> String {
    let format = |event: Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    all.into_iter().map(format).collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn names<'a>(tools: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    tools.into_iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
}

/// Returns a message's own text: content is a string or a list of blocks, of which only some are text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Checks what the model answers to a request whose script is: claim an item, then complete it.
fn check(api: &Api, body: &Value, expected: Expect) {
    let claim = Step::call("task-next", json!({"claim": true}));
    let complete = Step::call("task-update", json!({"ids": ["${task-next.id}"]}));
    let shared = Shared {
        scripts: vec![Script::new("work", [claim, complete])],
        requests: Mutex::default(),
        asked: tokio::sync::Notify::new(),
        given_up: tokio::sync::Notify::new(),
        let_go: tokio::sync::watch::Sender::default(),
    };
    expected.assert_eq(&shared.answer(&(api.read)(body)).to_string());
}

#[test]
fn each_api_reaches_the_second_step_once_the_first_is_answered() {
    check(
        &MESSAGES,
        &json!({
            "tools": [{"name": "mcp__teamster__task-update"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "context"}, {"type": "text", "text": "work!"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "x", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "{\"id\":7}"}]}]},
            ],
        }),
        expect![[r#""work" step 1: mcp__teamster__task-update {"ids":[7]}"#]],
    );
    check(
        &CHAT,
        &json!({
            "tools": [{"type": "function", "function": {"name": "teamster__task-update"}}],
            "messages": [
                {"role": "user", "content": "work!"},
                {"role": "assistant", "tool_calls": []},
                {"role": "tool", "content": "{\"id\":7}"},
            ],
        }),
        expect![[r#""work" step 1: teamster__task-update {"ids":[7]}"#]],
    );
    check(
        &RESPONSES,
        &json!({
            "tools": [{"type": "namespace", "name": "mcp__teamster", "tools": [{"name": "task_update"}]}],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "work!"}]},
                {"type": "function_call"},
                {"type": "function_call_output", "output": "Output: {\"id\":7}"},
            ],
        }),
        expect![[r#""work" step 1: mcp__teamster/task_update {"ids":[7]}"#]],
    );
}

#[test]
fn a_script_that_cannot_go_on_says_why() {
    let prompt = json!({"role": "user", "content": "work!"});
    check(
        &CHAT,
        &json!({"tools": [{"function": {"name": "shell"}}], "messages": [prompt]}),
        expect![[r#""work" step 0: SCRIPT ERROR: the tool task-next is not offered, only shell"#]],
    );
    check(
        &CHAT,
        &json!({
            "tools": [{"function": {"name": "task-update"}}],
            "messages": [prompt, {"role": "assistant"}, {"role": "tool", "content": "No ready tasks"}],
        }),
        expect![[
            r#""work" step 1: SCRIPT ERROR: task-next answered without a field id: No ready tasks"#
        ]],
    );
}

#[test]
fn a_request_without_tools_is_no_turn() {
    let title = json!({"messages": [{"role": "user", "content": "Give a title to: work!"}]});
    check(&CHAT, &title, expect!["not a scripted turn"]);
}
