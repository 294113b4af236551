//! The driver for Codex: `codex app-server`, whose messages are JSON-RPC without saying so. It does not mind that ours do.
//!
//! A session is a *thread*, and what happens in a turn is told as *items*, each when it begins and when it is complete. Our
//! MCP server, with its token, is part of the request that opens the thread: so it is in no argument and in no file. Codex
//! keeps its own sandbox, and asks us for what it would ask a person.

mod items;
mod permissions;
#[cfg(test)]
mod tests;
mod usage;

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::items::{Calls, Item};
use self::permissions::Permissions;
use self::usage::{Counts, Limits, TokenUsage};
use super::json_rpc::{self, Failure, Message};
use super::{Driver, Out, usage_limit};
use crate::agent::{
    Begin, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, MESSAGE_BYTES_MAX, PermissionId, Piece, Program,
    STEPS_MAX, Started, Step, StepStatus, TurnEnd, Usage, clipped,
};

/// As many messages are remembered to have been told in pieces; there are a few at a time.
const STREAMED_MAX: usize = 64;

/// What we ask Codex not to tell: the whole change of a turn, again with each of its changes.
const NOT_TOLD: [&str; 1] = ["turn/diff/updated"];

/// Notifications that matter only to somebody who sits before the program, by how they begin.
const QUIET: [&str; 32] = [
    "account/",
    "app/",
    "autoApprovalReview/",
    "command/exec/",
    "configWarning",
    "deprecationNotice",
    "externalAgentConfig/",
    "fs/",
    "fuzzyFileSearch/",
    "guardianWarning",
    "hook/",
    "item/autoApprovalReview/",
    "item/commandExecution/",
    "item/fileChange/",
    "item/mcpToolCall/progress",
    "item/plan/delta",
    "mcpServer/",
    "model/",
    "modelProvider/",
    "process/",
    "project/",
    "rawResponse",
    "remoteControl/",
    "skills/",
    "thread/compacted",
    "thread/environment/",
    "thread/goal/",
    "thread/realtime/",
    "thread/settings/",
    "thread/started",
    "thread/status/",
    "warning",
];

#[derive(Debug, Default)]
pub struct Codex {
    begin: Begin,
    /// What is known of the agent so far; said when it is complete.
    started: Started,
    /// The one request that is not answered yet, but for an interruption.
    asked: Option<(u64, Awaited)>,
    /// An interruption that is not answered yet; one that comes too late never is.
    interruption: Option<u64>,
    n_asked: u64,
    turn: Turn,
    calls: Calls,
    /// Messages and thoughts that are told in pieces.
    streamed: VecDeque<String>,
    counts: Counts,
    usage: Usage,
    limits: Limits,
    permissions: Permissions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Initialize,
    Account,
    Resume,
    New,
    Turn,
}

/// Where the turn is that we asked for.
#[derive(Debug, Default)]
enum Turn {
    #[default]
    None,
    /// It is asked for. What is told now may still be of an earlier one, and it cannot be interrupted yet.
    Awaited {
        cancelled: bool,
    },
    UnderWay {
        id: String,
        cancelled: bool,
    },
}

impl Driver for Codex {
    fn begin(&mut self, begin: &Begin, out: &mut Out) {
        if begin.directory.to_str().is_none() {
            let directory = begin.directory.display();
            return not_started(format!("the name of {directory} is not UTF-8"), out);
        }
        self.begin = begin.clone();
        let us = json!({
            "name": "teamster", "title": "Teamster", "version": env!("CARGO_PKG_VERSION"),
        });
        let capabilities = json!({
            "experimentalApi": false, "requestAttestation": false,
            "optOutNotificationMethods": NOT_TOLD,
        });
        let params = json!({"clientInfo": us, "capabilities": capabilities});
        self.ask(Awaited::Initialize, "initialize", &params, out);
    }

    fn prompt(&mut self, text: &str, out: &mut Out) {
        self.turn = Turn::Awaited { cancelled: false };
        let input = json!([{"type": "text", "text": text}]);
        let params = json!({"threadId": self.started.session, "input": input});
        self.ask(Awaited::Turn, "turn/start", &params, out);
    }

    fn cancel(&mut self, out: &mut Out) {
        match &mut self.turn {
            Turn::None => {}
            Turn::Awaited { cancelled } => *cancelled = true,
            Turn::UnderWay { cancelled, .. } => {
                *cancelled = true;
                self.interrupt(out);
            }
        }
    }

    fn answer(&mut self, permission: PermissionId, option: Option<&str>, out: &mut Out) {
        self.permissions.answer(permission, option, out);
    }

    fn hear(&mut self, line: &[u8], out: &mut Out) {
        let heard = match json_rpc::parse(line) {
            Ok(Message::Answer { id, outcome }) => {
                self.answered(id, outcome, out);
                Ok(())
            }
            Ok(Message::Notification { method, params }) => self.notified(&method, params, out),
            Ok(Message::Request { id, method, params }) => {
                self.permissions.asked(id, &method, params, &self.calls, out)
            }
            Err(wrong) => Err(wrong),
        };
        if let Err(wrong) = heard {
            out.trouble(wrong);
        }
    }
}

/// The handshake: initialize, then a thread.
impl Codex {
    fn send(&mut self, method: &str, params: &impl Serialize, out: &mut Out) -> u64 {
        self.n_asked += 1;
        out.send(&json_rpc::request(self.n_asked, method, params));
        self.n_asked
    }

    fn ask(&mut self, asked: Awaited, method: &str, params: &impl Serialize, out: &mut Out) {
        let id = self.send(method, params, out);
        self.asked = Some((id, asked));
    }

    fn answered(&mut self, id: &str, outcome: Result<&str, Failure>, out: &mut Out) {
        if self.interruption.take_if(|asked| asked.to_string() == id).is_some() {
            // Without a turn it came too late, as it may.
            if let (Err(failure), Turn::UnderWay { .. }) = (outcome, &self.turn) {
                out.trouble(format!("it could not be interrupted: {failure}"));
            }
            return;
        }
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| asked.to_string() == id) else {
            return out.trouble(format!("an answer to {id}, which was not asked"));
        };
        match (asked, outcome) {
            (Awaited::Initialize, Ok(_)) => {
                out.send(&json_rpc::notification("initialized", &Value::Null));
                if self.begin.checks_login {
                    let params = json!({"refreshToken": false});
                    self.ask(Awaited::Account, "account/read", &params, out);
                } else {
                    self.begin_thread(out);
                }
            }
            // Versions that do not know the question are as good.
            (Awaited::Account, outcome) => {
                self.started.login_missing = outcome.ok().and_then(login_missing);
                self.begin_thread(out);
            }
            (Awaited::New, Ok(result)) => self.opened(result, false, out),
            (Awaited::Resume, Ok(result)) => self.opened(result, true, out),
            (Awaited::Initialize | Awaited::New, Err(failure)) => {
                not_started(failure.to_string(), out);
            }
            (Awaited::Resume, Err(failure)) => {
                let why = format!("the session could not be resumed: {failure}");
                if self.begin.resume.take().is_some_and(|resume| resume.or_new) {
                    out.trouble(format!("{why}; this is a new session"));
                    self.open(out);
                } else {
                    not_started(why, out);
                }
            }
            // Its end is told later.
            (Awaited::Turn, Ok(_)) => {}
            (Awaited::Turn, Err(failure)) => self.turn_failed(&failure.to_string(), out),
        }
    }

    fn begin_thread(&mut self, out: &mut Out) {
        match self.begin.resume.as_ref().map(|resume| resume.session.clone()) {
            Some(session) => self.resume(&session, out),
            None => self.open(out),
        }
    }

    fn open(&mut self, out: &mut Out) {
        let params = self.thread();
        self.ask(Awaited::New, "thread/start", &params, out);
    }

    fn resume(&mut self, session: &str, out: &mut Out) {
        let mut params = self.thread();
        params.insert("threadId".to_owned(), json!(session));
        // What happened in it is known, and may be more than fits into a line.
        params.insert("excludeTurns".to_owned(), json!(true));
        self.ask(Awaited::Resume, "thread/resume", &params, out);
    }

    /// Returns what a thread is to be like. Its sandbox is what Codex has for a directory that is trusted: there it may
    /// write, and whatever needs more is asked for.
    fn thread(&self) -> Map<String, Value> {
        let servers = self.begin.mcp_servers.iter().map(|server| {
            let headers: Map<String, Value> =
                server.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let mut settings = json!({
                "url": server.url,
                "http_headers": headers,
                // It is laid over what the user's own configuration says of a server of this name.
                "enabled": true,
                // An agent without our tools is none of ours; then it had better not start.
                "required": true,
            });
            if let Some(timeout) = server.tool_timeout {
                settings["tool_timeout_sec"] = json!(timeout.as_secs());
            }
            // What the user has connected is for the user's own sessions, and fails in one of ours. It may not be there at
            // all, so it needs a command, too.
            let users = json!({"command": "teamster", "args": ["mcp"], "enabled": false});
            [
                (format!("mcp_servers.{}", server.name), settings),
                (format!("mcp_servers.{}-mcp", server.name), users),
            ]
        });
        let config: Map<String, Value> = servers.flatten().collect();
        let thread = [
            ("cwd", json!(self.begin.directory.to_str())),
            ("model", json!(self.begin.model)),
            // Codex runs commands in its sandbox without asking, unless it trusts none but those that only read.
            ("approvalPolicy", json!(if self.begin.asks { "untrusted" } else { "on-request" })),
            ("approvalsReviewer", json!("user")),
            ("sandbox", json!("workspace-write")),
            ("config", json!(config)),
        ];
        thread.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn opened(&mut self, result: &str, resumed: bool, out: &mut Out) {
        #[derive(Deserialize)]
        struct Opened {
            thread: Thread,
            model: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Thread {
            id: String,
            cli_version: Option<String>,
        }
        let Ok(Opened { thread, model }) = serde_json::from_str(result) else {
            return not_started("its answer does not name the thread".to_owned(), out);
        };
        if !(1..=ID_BYTES_MAX).contains(&thread.id.len()) {
            return not_started("its thread has no usable name".to_owned(), out);
        }
        self.started = Started {
            session: thread.id,
            resumed,
            can_resume: true,
            program: thread.cli_version.map(|version| Program {
                name: "codex".to_owned(),
                version: clipped(version, LABEL_BYTES_MAX),
            }),
            model: model.filter(|model| model.len() <= ID_BYTES_MAX),
            models: Vec::new(),
            login_missing: self.started.login_missing.take(),
        };
        // It holds a token, which nobody needs any more.
        self.begin = Begin::default();
        out.event(Event::Started(self.started.clone()));
    }
}

/// Reads the answer to `account/read`: a provider of its own needs no account.
fn login_missing(answer: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Account {
        #[serde(default)]
        account: Value,
        #[serde(default)]
        requires_openai_auth: bool,
    }
    let Account { account, requires_openai_auth } = serde_json::from_str(answer).ok()?;
    let is_missing = account.is_null() && requires_openai_auth;
    is_missing.then(|| "it is not logged in; run `codex login`".to_owned())
}

/// The turn: what the program says while it works, and how it ends.
impl Codex {
    fn notified(&mut self, method: &str, params: &str, out: &mut Out) -> Result<(), String> {
        match method {
            "turn/started" => self.turn_started(read(method, params)?, out),
            "turn/completed" => self.turn_completed(read(method, params)?, out),
            "turn/plan/updated" => self.planned(read(method, params)?, out),
            "item/started" => self.item_started(read(method, params)?, out)?,
            "item/completed" => self.item_completed(read(method, params)?, out)?,
            "item/agentMessage/delta" => {
                out.events.extend(self.piece(read(method, params)?).map(Event::Text));
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                out.events.extend(self.piece(read(method, params)?).map(Event::Thought));
            }
            "item/reasoning/summaryPartAdded" => {
                out.events.extend(self.next_part(read(method, params)?).map(Event::Thought));
            }
            "thread/tokenUsage/updated" => self.used(read(method, params)?, out),
            "account/rateLimits/updated" => self.limits.told(read(method, params)?),
            "serverRequest/resolved" => self.permissions.resolved(read(method, params)?, out),
            "model/rerouted" => self.rerouted(read(method, params)?),
            "mcpServer/startupStatus/updated" => server_failed(read(method, params)?, out),
            "error" => self.failed_for_now(read(method, params)?, out),
            "thread/closed" => {
                let Of { thread_id } = read(method, params)?;
                if self.is_ours(&thread_id) {
                    self.turn_failed("its thread was closed", out);
                }
            }
            _ if QUIET.iter().any(|quiet| method.starts_with(quiet)) => {}
            _ => {
                let method = clipped(method, LABEL_BYTES_MAX);
                return Err(format!("an unknown notification: {method}"));
            }
        }
        Ok(())
    }

    /// Says whether something is of our thread. Others are of agents that Codex has itself; what they do is theirs, only
    /// what they use is counted.
    fn is_ours(&self, thread: &str) -> bool {
        !self.started.session.is_empty() && thread == self.started.session
    }

    fn turn_started(&mut self, told: OfTurn<'_>, out: &mut Out) {
        if let Turn::Awaited { cancelled } = self.turn
            && self.is_ours(&told.thread_id)
            && told.turn.id.len() <= ID_BYTES_MAX
        {
            self.turn = Turn::UnderWay { id: told.turn.id.into_owned(), cancelled };
            if cancelled {
                self.interrupt(out);
            }
        }
    }

    fn interrupt(&mut self, out: &mut Out) {
        if let Turn::UnderWay { id, .. } = &self.turn {
            let params = json!({"threadId": self.started.session, "turnId": id});
            self.interruption = Some(self.send("turn/interrupt", &params, out));
        }
    }

    fn item_started(&mut self, told: OfItem<'_>, out: &mut Out) -> Result<(), String> {
        if self.is_ours(&told.thread_id) {
            self.calls.began(&item(told.item)?, out)?;
        }
        Ok(())
    }

    fn item_completed(&mut self, told: OfItem<'_>, out: &mut Out) -> Result<(), String> {
        if !self.is_ours(&told.thread_id) {
            return Ok(());
        }
        match item(told.item)? {
            // Usually it was told in pieces.
            Item::AgentMessage { id, text } | Item::Plan { id, text } => {
                out.events.extend(self.unsaid(id, text).map(Event::Text));
            }
            Item::Reasoning { id, summary, content } => {
                let parts = if summary.is_empty() { content } else { summary };
                out.events.extend(self.unsaid(id, parts.join("\n\n")).map(Event::Thought));
            }
            item => self.calls.completed(&item, out)?,
        }
        Ok(())
    }

    fn piece(&mut self, told: OfPiece<'_>) -> Option<Piece> {
        let OfPiece { thread_id, item_id, delta } = told;
        if !self.is_ours(&thread_id) || item_id.len() > ID_BYTES_MAX || delta.is_empty() {
            return None;
        }
        if self.streamed.back().is_none_or(|last| *last != item_id) {
            if self.streamed.len() == STREAMED_MAX {
                self.streamed.pop_front();
            }
            self.streamed.push_back(item_id.clone().into_owned());
        }
        Some(Piece { text: delta.into_owned(), message: Some(item_id.into_owned()) })
    }

    /// Thoughts have parts, which belong on lines of their own.
    fn next_part(&mut self, told: OfPart<'_>) -> Option<Piece> {
        let OfPart { thread_id, item_id, summary_index } = told;
        let told = OfPiece { thread_id, item_id, delta: Cow::Borrowed("\n\n") };
        if summary_index > 0 { self.piece(told) } else { None }
    }

    /// Returns a whole message, unless it was told in pieces.
    fn unsaid(&mut self, id: String, text: String) -> Option<Piece> {
        let streamed = self.streamed.len();
        self.streamed.retain(|told| *told != id);
        let is_news = self.streamed.len() == streamed && !text.is_empty();
        is_news.then_some(Piece { text, message: Some(id).filter(|id| id.len() <= ID_BYTES_MAX) })
    }

    fn planned(&self, told: OfPlan<'_>, out: &mut Out) {
        if self.is_ours(&told.thread_id) {
            let steps = told.plan.into_iter().take(STEPS_MAX).map(|step| Step {
                text: clipped(step.step, LABEL_BYTES_MAX),
                status: match step.status.as_ref() {
                    "completed" => StepStatus::Completed,
                    "inProgress" => StepStatus::InProgress,
                    _ => StepStatus::Pending,
                },
            });
            out.event(Event::Plan { steps: steps.collect() });
        }
    }

    fn used(&mut self, told: OfUsage<'_>, out: &mut Out) {
        let OfUsage { thread_id, turn_id, token_usage } = told;
        let is_ours = self.is_ours(&thread_id);
        let in_turn = match &self.turn {
            Turn::UnderWay { id, .. } => !is_ours || *id == turn_id,
            Turn::None | Turn::Awaited { .. } => false,
        };
        self.counts.told(&thread_id, &token_usage, in_turn);
        let model = self.started.model.clone();
        // Between turns nothing is used.
        let so_far = self.counts.so_far().filter(|_| in_turn);
        let context = if is_ours { token_usage.context() } else { self.usage.context };
        let usage = Usage { model, context, so_far, ..Usage::default() };
        let has_news = usage.context.is_some() || usage.so_far.is_some();
        if has_news && usage != self.usage {
            self.usage = usage.clone();
            out.event(Event::Usage(usage));
        }
    }

    fn rerouted(&mut self, told: OfModel<'_>) {
        if self.is_ours(&told.thread_id) && told.to_model.len() <= ID_BYTES_MAX {
            self.started.model = Some(told.to_model.into_owned());
        }
    }

    /// What ends the turn is told again with its end.
    fn failed_for_now(&self, told: OfError<'_>, out: &mut Out) {
        if told.will_retry && self.is_ours(&told.thread_id) {
            out.trouble(format!("it tries again: {}", told.error.says()));
        }
    }

    fn turn_completed(&mut self, told: OfTurn<'_>, out: &mut Out) {
        let (id, cancelled) = match &self.turn {
            Turn::UnderWay { id, cancelled } => (Some(id.as_str()), *cancelled),
            Turn::Awaited { cancelled } => (None, *cancelled),
            Turn::None => return,
        };
        let is_other = id.is_some_and(|id| id != told.turn.id);
        if !self.is_ours(&told.thread_id) || is_other {
            return;
        }
        let error = told.turn.error;
        let end = match told.turn.status.as_deref() {
            Some("completed") => TurnEnd::Done,
            Some("interrupted") => TurnEnd::Cancelled,
            // Whatever the interruption caused in it.
            Some("failed") if cancelled => TurnEnd::Cancelled,
            Some("failed") => {
                let message = error.as_ref().map_or("its turn failed".into(), ErrorTold::says);
                let message = clipped(message, MESSAGE_BYTES_MAX);
                let limited = error.is_some_and(|error| error.is_usage_limit());
                out.events.extend(self.limits.recognise(&message, limited));
                TurnEnd::Failed { message }
            }
            other => {
                let status = clipped(other.unwrap_or("no status"), LABEL_BYTES_MAX);
                TurnEnd::Failed { message: format!("its turn ended oddly: {status}") }
            }
        };
        self.end_turn(end, out);
    }

    fn turn_failed(&mut self, message: &str, out: &mut Out) {
        let message = clipped(message, MESSAGE_BYTES_MAX);
        match self.turn {
            Turn::None => {}
            Turn::Awaited { cancelled: true } | Turn::UnderWay { cancelled: true, .. } => {
                self.end_turn(TurnEnd::Cancelled, out);
            }
            Turn::Awaited { .. } | Turn::UnderWay { .. } => {
                out.events.extend(usage_limit::recognise(&message));
                self.end_turn(TurnEnd::Failed { message }, out);
            }
        }
    }

    fn end_turn(&mut self, end: TurnEnd, out: &mut Out) {
        if let Some(tokens) = self.counts.of_turn() {
            let model = self.started.model.clone();
            out.event(Event::Usage(Usage { model, tokens: Some(tokens), ..Usage::default() }));
        }
        self.turn = Turn::None;
        self.calls = Calls::default();
        self.streamed.clear();
        out.event(Event::TurnEnded(end));
    }
}

fn not_started(message: String, out: &mut Out) {
    let message = clipped(message, MESSAGE_BYTES_MAX);
    out.event(Event::NotStarted { message });
}

fn server_failed(told: OfServer<'_>, out: &mut Out) {
    if told.status == "failed" {
        let why = told.error.unwrap_or(Cow::Borrowed("it does not say why"));
        out.trouble(format!("its MCP server {} failed: {why}", told.name));
    }
}

fn read<'a, T: Deserialize<'a>>(method: &str, params: &'a str) -> Result<T, String> {
    serde_json::from_str(params).map_err(|error| format!("a wrong {method}: {error}"))
}

fn item(item: &RawValue) -> Result<Item, String> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    match serde_json::from_str(item.get()).map_err(|error| format!("a wrong item: {error}"))? {
        Item::Unknown => {
            let kind = serde_json::from_str(item.get()).map(|Kind { kind }| kind);
            let kind = clipped(kind.unwrap_or_default(), LABEL_BYTES_MAX);
            Err(format!("an unknown item: {kind}"))
        }
        item => Ok(item),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Of<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTurn<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    turn: TurnTold<'a>,
}

#[derive(Deserialize)]
struct TurnTold<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    status: Option<String>,
    error: Option<ErrorTold>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfError<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    error: ErrorTold,
    #[serde(default)]
    will_retry: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ErrorTold {
    #[serde(default)]
    message: String,
    #[serde(default)]
    codex_error_info: Value,
    additional_details: Option<String>,
}

impl ErrorTold {
    fn says(&self) -> String {
        match &self.additional_details {
            Some(details) if !details.is_empty() => format!("{}: {details}", self.message),
            _ => self.message.clone(),
        }
    }

    fn is_usage_limit(&self) -> bool {
        self.codex_error_info == "usageLimitExceeded"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfItem<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    item: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfPiece<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    #[serde(borrow)]
    delta: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfPart<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    #[serde(default)]
    summary_index: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfPlan<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    plan: Vec<StepTold<'a>>,
}

#[derive(Deserialize)]
struct StepTold<'a> {
    #[serde(borrow)]
    step: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfUsage<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    turn_id: Cow<'a, str>,
    token_usage: TokenUsage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfModel<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
    #[serde(borrow)]
    to_model: Cow<'a, str>,
}

#[derive(Deserialize)]
struct OfServer<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
}
