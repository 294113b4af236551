//! The driver for the Agent Client Protocol, version 1.
//!
//! The messages are those of agent-client-protocol-schema. The loop is our own, because the connection of
//! agent-client-protocol puts what it reads into a queue without a bound. We offer no files and no terminals: agents use
//! their own, inside their sandbox.

mod calls;
mod login;
mod models;
#[cfg(test)]
mod tests;
mod usage;

use std::borrow::Cow;
use std::collections::HashSet;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, CLIENT_METHOD_NAMES, CancelNotification, ContentBlock,
    ContentChunk, EmbeddedResourceResource, EnvVariable, HttpHeader, Implementation,
    InitializeRequest, InitializeResponse, LoadSessionRequest, McpServer, McpServerHttp,
    McpServerStdio, NewSessionRequest, PROTOCOL_LEVEL_METHOD_NAMES, PermissionOptionKind,
    PlanEntry, PlanEntryStatus, PromptRequest, RequestPermissionOutcome, RequestPermissionResponse,
    ResumeSessionRequest, SelectedPermissionOutcome, SessionUpdate, StopReason, ToolCallStatus,
    ToolCallUpdate, UsageUpdate,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::calls::Calls;
use self::login::Login;
use self::models::Models;
use self::usage::{Counter, OfTurn};
use super::error_report::{self, Report};
use super::json_rpc::{self, Failure, INVALID_PARAMS, METHOD_NOT_FOUND, Message};
use super::{Driver, Out, micros, usage_limit};
use crate::agent::{
    Begin, Context, Cost, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, MESSAGE_BYTES_MAX, OPTIONS_MAX,
    PermissionId, PermissionKind, PermissionOption, Piece, Program, STEPS_MAX, Started, Step,
    StepStatus, Tokens, ToolCall, Transport, TurnEnd, Usage, clipped,
};

#[derive(Debug, Default)]
pub struct Acp {
    begin: Begin,
    /// What is known of the agent so far; said when it is complete.
    started: Started,
    login: Login,
    can: Can,
    /// Whether our MCP servers are given to it as commands.
    over_stdio: bool,
    /// The one request that is not answered yet. There is never a second one.
    asked: Option<(u64, Awaited)>,
    n_asked: u64,
    cancelled: bool,
    /// The last it said is that its turn failed.
    failure: Option<String>,
    /// The message under way is the agent's own: the next piece is not the beginning of one.
    speaks: Option<Option<String>>,
    /// What it said that is not known, each kind once.
    unknown: HashSet<String>,
    calls: Calls,
    usage: Usage,
    /// What was told of it last.
    told: Option<Usage>,
    counter: Counter,
    /// What the session had cost before this process.
    cost_before_micros: u64,
    permissions: Vec<(PermissionId, Box<RawValue>)>,
    n_permissions: u64,
}

#[derive(Debug)]
enum Awaited {
    Initialize,
    /// Logging in by this method.
    Authenticate(String),
    /// `session/load` or `session/resume`.
    Resume,
    New,
    Model(String),
    Prompt,
}

/// What the program can do.
#[derive(Debug, Default)]
struct Can {
    load: bool,
    resume: bool,
    mcp_over_http: bool,
}

impl Driver for Acp {
    fn begin(&mut self, begin: &Begin, out: &mut Out) {
        if begin.directory.to_str().is_none() {
            let directory = begin.directory.display();
            return not_started(format!("the name of {directory} is not UTF-8"), out);
        }
        self.begin = begin.clone();
        self.counter = Counter::new(begin.reports);
        let us = Implementation::new("teamster", env!("CARGO_PKG_VERSION"));
        let params = InitializeRequest::new(ProtocolVersion::V1).client_info(us);
        self.ask(Awaited::Initialize, AGENT_METHOD_NAMES.initialize, &params, out);
    }

    fn prompt(&mut self, text: &str, out: &mut Out) {
        self.cancelled = false;
        self.failure = None;
        self.speaks = None;
        self.counter.begin_turn();
        let blocks = vec![ContentBlock::from(text)];
        let params = PromptRequest::new(self.started.session.clone(), blocks);
        self.ask(Awaited::Prompt, AGENT_METHOD_NAMES.session_prompt, &params, out);
    }

    fn cancel(&mut self, out: &mut Out) {
        self.cancelled = true;
        let params = CancelNotification::new(self.started.session.clone());
        out.send(&json_rpc::notification(AGENT_METHOD_NAMES.session_cancel, &params));
    }

    fn answer(&mut self, permission: PermissionId, option: Option<&str>, out: &mut Out) {
        let Some(at) = self.permissions.iter().position(|(id, _)| *id == permission) else {
            return;
        };
        let (_, id) = self.permissions.swap_remove(at);
        let outcome = match option {
            Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(
                option.to_owned(),
            )),
            None => RequestPermissionOutcome::Cancelled,
        };
        out.send(&json_rpc::answer(&id, &RequestPermissionResponse::new(outcome)));
    }

    fn hear(&mut self, line: &[u8], out: &mut Out) {
        match json_rpc::parse(line) {
            Ok(Message::Answer { id, outcome }) => self.answered(id, outcome, out),
            Ok(Message::Notification { method, params }) => self.notified(&method, params, out),
            Ok(Message::Request { id, method, params }) => {
                if method == CLIENT_METHOD_NAMES.session_request_permission {
                    self.permission_asked(id, params, out);
                } else {
                    let message = format!("{} is not offered", clipped(method, LABEL_BYTES_MAX));
                    out.send(&json_rpc::error(&id, METHOD_NOT_FOUND, &message));
                    self.unknown(message, out);
                }
            }
            Err(wrong) => out.trouble(wrong),
        }
    }
}

/// The handshake: initialize, then a session, then its model.
impl Acp {
    fn ask(&mut self, asked: Awaited, method: &str, params: &impl Serialize, out: &mut Out) {
        self.n_asked += 1;
        self.asked = Some((self.n_asked, asked));
        out.send(&json_rpc::request(self.n_asked, method, params));
    }

    fn answered(&mut self, id: &str, outcome: Result<&str, Failure>, out: &mut Out) {
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| asked.to_string() == id) else {
            return out.trouble(format!("an answer to {id}, which was not asked"));
        };
        match (asked, outcome) {
            (Awaited::Initialize, Ok(result)) => self.initialized(result, out),
            (Awaited::Resume | Awaited::New, Err(failure))
                if login::is_missing(&failure) && self.login.has_method() =>
            {
                self.authenticate(out);
            }
            (Awaited::Authenticate(_), Ok(_)) => self.begin_session(out),
            (Awaited::Authenticate(method), Err(failure)) => {
                not_started(format!("it does not log in by {method}: {failure}"), out);
            }
            (Awaited::New, Ok(result)) => self.opened(result, false, out),
            (Awaited::Resume, Ok(result)) => self.opened(result, true, out),
            (Awaited::Resume, Err(failure)) => {
                self.cannot_resume(format!("the session could not be resumed: {failure}"), out);
            }
            (Awaited::Initialize | Awaited::New, Err(failure)) => {
                not_started(self.login.explain(&failure), out);
            }
            (Awaited::Model(model), Ok(_)) => {
                self.started.model = Some(model);
                self.start(out);
            }
            (Awaited::Model(model), Err(failure)) => {
                out.trouble(format!("the model {model} could not be chosen: {failure}"));
                self.start(out);
            }
            (Awaited::Prompt, Ok(result)) => self.turn_ended(result, out),
            (Awaited::Prompt, Err(failure)) => self.turn_failed(&failure, out),
        }
    }

    fn initialized(&mut self, result: &str, out: &mut Out) {
        let answer: InitializeResponse = match serde_json::from_str(result) {
            Ok(answer) => answer,
            Err(error) => {
                return not_started(format!("its answer to initialize is wrong: {error}"), out);
            }
        };
        if answer.protocol_version != ProtocolVersion::V1 {
            let version = answer.protocol_version;
            return not_started(format!("it speaks version {version} of ACP, not 1"), out);
        }
        let capabilities = answer.agent_capabilities;
        self.can = Can {
            load: capabilities.load_session,
            resume: capabilities.session_capabilities.resume.is_some(),
            mcp_over_http: capabilities.mcp_capabilities.http,
        };
        self.started.can_resume = (self.can.load || self.can.resume) && !self.begin.cannot_resume;
        self.started.program = answer.agent_info.map(|info| Program {
            name: clipped(info.name, LABEL_BYTES_MAX),
            version: clipped(info.version, LABEL_BYTES_MAX),
        });
        self.login = Login::offered(result, &self.begin);
        self.over_stdio = match self.begin.transport {
            Transport::Auto => !self.can.mcp_over_http,
            Transport::Http => false,
            Transport::Stdio => true,
        };
        if self.over_stdio && self.begin.mcp_servers.iter().any(|server| server.bridge.is_none()) {
            let message = "it does not say that it takes MCP servers over HTTP, and there is no command for one";
            return not_started(message.to_owned(), out);
        }
        self.begin_session(out);
    }

    fn begin_session(&mut self, out: &mut Out) {
        match self.begin.resume.as_ref().map(|resume| resume.session.clone()) {
            Some(session) => self.resume(session, out),
            None => self.open(out),
        }
    }

    /// Logs in by the next method that fits; the session is asked for again after it.
    fn authenticate(&mut self, out: &mut Out) {
        let Some(method) = self.login.take_method() else { return };
        let params = AuthenticateRequest::new(method.clone());
        self.ask(Awaited::Authenticate(method), AGENT_METHOD_NAMES.authenticate, &params, out);
    }

    fn resume(&mut self, session: String, out: &mut Out) {
        let directory = self.begin.directory.clone();
        if self.can.load {
            let params =
                LoadSessionRequest::new(session, directory).mcp_servers(self.mcp_servers());
            self.ask(Awaited::Resume, AGENT_METHOD_NAMES.session_load, &params, out);
        } else if self.can.resume {
            let params =
                ResumeSessionRequest::new(session, directory).mcp_servers(self.mcp_servers());
            self.ask(Awaited::Resume, AGENT_METHOD_NAMES.session_resume, &params, out);
        } else {
            self.cannot_resume("it cannot resume sessions".to_owned(), out);
        }
    }

    fn cannot_resume(&mut self, why: String, out: &mut Out) {
        if self.begin.resume.take().is_some_and(|resume| resume.or_new) {
            out.trouble(format!("{why}; this is a new session"));
            self.open(out);
        } else {
            not_started(why, out);
        }
    }

    fn open(&mut self, out: &mut Out) {
        let params =
            NewSessionRequest::new(self.begin.directory.clone()).mcp_servers(self.mcp_servers());
        self.ask(Awaited::New, AGENT_METHOD_NAMES.session_new, &params, out);
    }

    fn mcp_servers(&self) -> Vec<McpServer> {
        let server = |server: &crate::agent::McpServer| {
            if let Some(bridge) = server.bridge.as_ref().filter(|_| self.over_stdio) {
                let variables = bridge.environment.iter();
                let variables = variables.map(|(name, value)| EnvVariable::new(name, value));
                let stdio = McpServerStdio::new(server.name.clone(), bridge.command.clone());
                let stdio = stdio.args(bridge.args.clone()).env(variables.collect());
                return McpServer::Stdio(stdio);
            }
            let headers = server.headers.iter();
            let headers = headers.map(|(name, value)| HttpHeader::new(name.clone(), value.clone()));
            let http = McpServerHttp::new(server.name.clone(), server.url.clone());
            McpServer::Http(http.headers(headers.collect()))
        };
        self.begin.mcp_servers.iter().map(server).collect()
    }

    fn opened(&mut self, result: &str, resumed: bool, out: &mut Out) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Opened {
            session_id: Option<String>,
        }
        let opened: Option<Opened> = serde_json::from_str(result).ok();
        let resume = self.begin.resume.take();
        // A program that does not tell again what the session had cost is known to go on counting from there.
        if let Some(resume) = resume.as_ref().filter(|_| resumed && self.cost_before_micros == 0) {
            self.cost_before_micros = resume.spent_micros;
        }
        let asked = resume.map(|resume| resume.session);
        // The answer to session/load need not name the session, nor say anything at all.
        let session = opened.and_then(|opened| opened.session_id).or(asked);
        match session {
            Some(session) if (1..=ID_BYTES_MAX).contains(&session.len()) => {
                self.started.session = session;
            }
            _ => return not_started("its answer does not name the session".to_owned(), out),
        }
        self.started.resumed = resumed;
        self.choose_model(&Models::offered(result), out);
    }

    fn choose_model(&mut self, models: &Models, out: &mut Out) {
        self.started.model.clone_from(&models.current);
        self.started.models.clone_from(&models.offered);
        let Some(wanted) = self.begin.model.take().filter(|wanted| models.is_other(wanted)) else {
            return self.start(out);
        };
        match models.choose(&self.started.session, &wanted) {
            Some((method, params)) => self.ask(Awaited::Model(wanted), method, &params, out),
            None => {
                out.trouble(format!("it does not offer the model {wanted}"));
                self.start(out);
            }
        }
    }

    fn start(&mut self, out: &mut Out) {
        // It holds a token, which nobody needs any more.
        self.begin = Begin::default();
        out.event(Event::Started(self.started.clone()));
    }
}

/// The turn: what the program says while it works, and how it ends.
impl Acp {
    fn notified(&mut self, method: &str, params: &str, out: &mut Out) {
        if method == CLIENT_METHOD_NAMES.session_update {
            if let Err(wrong) = self.updated(params, out) {
                self.unknown(wrong, out);
            }
        } else if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request {
            self.permission_withdrawn(params, out);
        } else if method == "_session/retrying" {
            self.retries(params, out);
        } else if !method.starts_with(['_', '$']) {
            // Those are extensions, which one may ignore without a word.
            self.unknown(format!("an unknown notification: {method}"), out);
        }
    }

    /// Takes in that the program tries its model again, as Vibe 3.0.2 reports it.
    fn retries(&self, params: &str, out: &mut Out) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Params {
            category: String,
            detail: String,
        }
        let Params { category, detail } = serde_json::from_str(params).unwrap_or_default();
        let message = clipped(format!("{category}: {detail}"), LABEL_BYTES_MAX);
        out.event(Event::Retrying { message });
    }

    fn updated(&mut self, params: &str, out: &mut Out) -> Result<(), String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            session_id: Cow<'a, str>,
            #[serde(borrow)]
            update: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind<'a> {
            #[serde(borrow)]
            session_update: Cow<'a, str>,
        }
        let Params { session_id, update } =
            serde_json::from_str(params).map_err(|error| format!("a wrong update: {error}"))?;
        // While a session is loaded, what happened in it is told again, and is known; but what it had cost is not of this
        // process.
        if self.started.session.is_empty() {
            if let Ok(SessionUpdate::UsageUpdate(UsageUpdate { cost, meta, .. })) =
                serde_json::from_str(update.get())
            {
                self.counter.updated(0, meta.as_ref());
                if let Some(cost) = cost {
                    self.cost_before_micros = micros(cost.amount);
                }
            }
            return Ok(());
        }
        if session_id != self.started.session {
            let session_id = clipped(session_id, ID_BYTES_MAX);
            return Err(format!("an update of another session: {session_id}"));
        }
        let update: SessionUpdate = serde_json::from_str(update.get()).map_err(|error| {
            let kind: Option<Kind<'_>> = serde_json::from_str(update.get()).ok();
            let kind = kind.map_or(Cow::Borrowed("without a kind"), |kind| kind.session_update);
            format!("a wrong update, {kind}: {}", brief(&error))
        })?;
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                let is_counted = self.counter.heard(chunk.meta.as_ref());
                if let Some(piece) = piece(chunk) {
                    self.said(piece, out);
                }
                if is_counted {
                    self.tell_usage(out);
                }
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.counter.acts();
                out.events.extend(piece(chunk).map(Event::Thought));
            }
            SessionUpdate::ToolCall(call) => {
                self.failure = None;
                self.speaks = None;
                self.counter.acts();
                self.called(call.into(), out)?;
            }
            SessionUpdate::ToolCallUpdate(update) => self.called(update, out)?,
            SessionUpdate::Plan(plan) => out.event(Event::Plan { steps: steps(plan.entries) }),
            SessionUpdate::UsageUpdate(update) => self.used(update, out),
            // Our own prompts, and what only matters to somebody who sits before the program.
            _ => {}
        }
        Ok(())
    }

    fn called(&mut self, update: ToolCallUpdate, out: &mut Out) -> Result<(), String> {
        let is_done = matches!(
            update.fields.status,
            Some(ToolCallStatus::Completed | ToolCallStatus::Failed)
        );
        self.calls.update(update, out)?;
        if is_done {
            self.counter.tool_done();
        }
        Ok(())
    }

    /// Takes in a piece of what the agent says, or what its program says in its place.
    fn said(&mut self, piece: Piece, out: &mut Out) {
        // A program reports a failure in one piece, and not in the middle of a message.
        let begins = match &self.speaks {
            Some(message) => piece.message.is_some() && *message != piece.message,
            None => true,
        };
        let report = error_report::read(&piece.text).filter(|_| begins);
        self.failure = None;
        match report {
            Some(Report::Retries(message)) => return out.event(Event::Retrying { message }),
            Some(Report::Notice(message)) => return out.trouble(message),
            Some(Report::Failed(message)) => self.failure = Some(message),
            // A line break that follows a report is not the beginning of a message.
            None if !piece.text.trim().is_empty() => {
                self.counter.acts();
                self.speaks = Some(piece.message.clone());
            }
            None => {}
        }
        out.event(Event::Text(piece));
    }

    /// Notes something that is not known, once for each kind: programs repeat themselves at every turn.
    fn unknown(&mut self, message: String, out: &mut Out) {
        /// More kinds than a program has, unless it means harm; then the rest is not noted.
        const KINDS_MAX: usize = 64;
        if self.unknown.len() < KINDS_MAX && self.unknown.insert(message.clone()) {
            out.trouble(message);
        }
    }

    fn used(&mut self, update: UsageUpdate, out: &mut Out) {
        let UsageUpdate { used, size, cost, meta, .. } = update;
        self.counter.updated(used, meta.as_ref());
        // One that counts less than before has begun anew.
        if cost.as_ref().is_some_and(|cost| micros(cost.amount) < self.cost_before_micros) {
            self.cost_before_micros = 0;
        }
        let cost = cost.filter(|cost| cost.amount >= 0.0).map(|cost| Cost {
            micros: micros(cost.amount).saturating_sub(self.cost_before_micros),
            currency: clipped(cost.currency, LABEL_BYTES_MAX),
        });
        self.usage.cost = cost.or(self.usage.cost.take());
        self.usage.context = Some(Context { used, size });
        self.tell_usage(out);
    }

    /// Tells what is known of the turn's use so far. Some programs repeat it with every message.
    fn tell_usage(&mut self, out: &mut Out) {
        let (so_far, n_calls) = self.counter.so_far();
        let usage = Usage {
            model: self.started.model.clone(),
            context: self.usage.context,
            cost: self.usage.cost.clone(),
            so_far,
            calls: n_calls.filter(|_| so_far.is_some()),
            ..Usage::default()
        };
        if self.told.as_ref() != Some(&usage) {
            out.event(Event::Usage(usage.clone()));
            self.told = Some(usage);
        }
    }

    fn turn_ended(&mut self, result: &str, out: &mut Out) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Ended {
            stop_reason: StopReason,
        }
        let OfTurn { tokens, at_least, n_calls } = self.counter.end(result);
        self.tell_end(tokens, at_least, n_calls, out);
        let end = match serde_json::from_str(result) {
            Ok(Ended { stop_reason }) => match stop_reason {
                StopReason::EndTurn | StopReason::Refusal if self.failure.is_some() => {
                    let message = self.failure.take().unwrap_or_default();
                    out.events.extend(usage_limit::recognise(&message));
                    TurnEnd::Failed { message }
                }
                StopReason::EndTurn => TurnEnd::Done,
                StopReason::Cancelled => TurnEnd::Cancelled,
                StopReason::Refusal => TurnEnd::Refused,
                StopReason::MaxTokens => TurnEnd::MaxTokens,
                StopReason::MaxTurnRequests => TurnEnd::MaxTurns,
                other => TurnEnd::Failed { message: format!("it stopped for: {other:?}") },
            },
            Err(error) => {
                TurnEnd::Failed { message: format!("its turn ended oddly: {}", brief(&error)) }
            }
        };
        self.end_turn(end, out);
    }

    fn tell_end(
        &mut self,
        tokens: Option<Tokens>,
        at_least: bool,
        calls: Option<u32>,
        out: &mut Out,
    ) {
        if tokens.is_some() || calls.is_some() {
            let model = self.started.model.clone();
            out.event(Event::Usage(Usage { model, tokens, at_least, calls, ..Usage::default() }));
        }
    }

    fn turn_failed(&mut self, failure: &Failure, out: &mut Out) {
        let (so_far, n_calls) = self.counter.so_far();
        self.tell_end(so_far, false, n_calls, out);
        // Some programs report the exceptions that a cancellation causes in them.
        if self.cancelled {
            return self.end_turn(TurnEnd::Cancelled, out);
        }
        let message = clipped(self.login.explain(failure), MESSAGE_BYTES_MAX);
        out.events.extend(usage_limit::recognise(&message));
        self.end_turn(TurnEnd::Failed { message }, out);
    }

    fn end_turn(&mut self, end: TurnEnd, out: &mut Out) {
        self.calls = Calls::default();
        out.event(Event::TurnEnded(end));
    }
}

/// Permissions.
impl Acp {
    fn permission_asked(&mut self, id: Box<RawValue>, params: &str, out: &mut Out) {
        match self.read_permission(params, out) {
            Ok((call, options)) => {
                self.n_permissions += 1;
                let permission = PermissionId(self.n_permissions);
                self.permissions.push((permission, id));
                out.event(Event::PermissionAsked { id: permission, call, options });
            }
            Err(wrong) => {
                let wrong = clipped(wrong, LABEL_BYTES_MAX);
                out.send(&json_rpc::error(&id, INVALID_PARAMS, &wrong));
                out.trouble(format!("a wrong request for permission: {wrong}"));
            }
        }
    }

    fn read_permission(
        &mut self,
        params: &str,
        out: &mut Out,
    ) -> Result<(ToolCall, Vec<PermissionOption>), String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            session_id: String,
            tool_call: ToolCallUpdate,
            options: Vec<Offered>,
        }
        // Unlike the schema's, this one bears kinds that are not known yet.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Offered {
            option_id: String,
            name: String,
            #[serde(default)]
            kind: Value,
        }
        let Params { session_id, tool_call, options } =
            serde_json::from_str(params).map_err(|error| error.to_string())?;
        if self.started.session.is_empty() || session_id != self.started.session {
            return Err("there is no such session".to_owned());
        }
        let too_long = |offered: &Offered| offered.option_id.len() > ID_BYTES_MAX;
        if options.len() > OPTIONS_MAX || options.iter().any(too_long) {
            return Err("there are too many options, or too long ones".to_owned());
        }
        let options = options.into_iter().map(|offered| PermissionOption {
            id: offered.option_id,
            name: clipped(offered.name, LABEL_BYTES_MAX),
            kind: permission_kind(offered.kind),
        });
        let options: Vec<PermissionOption> = options.collect();
        Ok((self.calls.ask(tool_call, &options, out)?, options))
    }

    fn permission_withdrawn(&mut self, params: &str, out: &mut Out) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let Ok(Params { request_id }) = serde_json::from_str(params) else {
            return;
        };
        let found = self.permissions.iter().find(|(_, id)| id.get() == request_id.get());
        if let Some((permission, _)) = found {
            let permission = *permission;
            self.answer(permission, None, out);
            out.event(Event::PermissionAnswered { id: permission, option: None });
        }
    }
}

fn not_started(message: String, out: &mut Out) {
    let message = clipped(message, MESSAGE_BYTES_MAX);
    out.event(Event::NotStarted { message });
}

/// The error without the list of everything that would have been right.
fn brief(error: &serde_json::Error) -> String {
    let error = error.to_string();
    error.split(", expected").next().unwrap_or_default().to_owned()
}

fn piece(chunk: ContentChunk) -> Option<Piece> {
    let text = text(chunk.content);
    let message = chunk.message_id.map(|id| id.0.to_string());
    let message = message.filter(|id| id.len() <= ID_BYTES_MAX);
    (!text.is_empty()).then_some(Piece { text, message })
}

/// A block of content as text, or what stands for it.
fn text(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(contents) => contents.text,
            _ => "[a resource]".to_owned(),
        },
        ContentBlock::Image(_) => "[an image]".to_owned(),
        ContentBlock::Audio(_) => "[a sound]".to_owned(),
        _ => String::new(),
    }
}

fn steps(entries: Vec<PlanEntry>) -> Vec<Step> {
    let step = |entry: PlanEntry| Step {
        text: clipped(entry.content, LABEL_BYTES_MAX),
        status: match entry.status {
            PlanEntryStatus::InProgress => StepStatus::InProgress,
            PlanEntryStatus::Completed => StepStatus::Completed,
            _ => StepStatus::Pending,
        },
    };
    entries.into_iter().take(STEPS_MAX).map(step).collect()
}

fn permission_kind(kind: Value) -> PermissionKind {
    match serde_json::from_value(kind) {
        Ok(PermissionOptionKind::AllowOnce) => PermissionKind::AllowOnce,
        Ok(PermissionOptionKind::AllowAlways) => PermissionKind::AllowAlways,
        Ok(PermissionOptionKind::RejectOnce) => PermissionKind::RejectOnce,
        Ok(PermissionOptionKind::RejectAlways) => PermissionKind::RejectAlways,
        _ => PermissionKind::Other,
    }
}
