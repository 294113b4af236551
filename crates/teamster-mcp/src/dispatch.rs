//! One way in for every tool call, whatever door it came by.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use teamster_core::agent::AgentId;
use teamster_core::grant::{Grant, Grants};
use teamster_core::ids::TellId;
use teamster_core::key::Key;
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Refusal, State, Timestamp, text};
use tokio::sync::mpsc;

use crate::Set;
use crate::access::{Scope, allowed, shown};
use crate::ask::{Answers, Ask, Capability, Client};
use crate::catalogue::{Catalogue, Entry};
use crate::door::http::PATIENCE;
use crate::errands;
use crate::hub::{self, Done, Failure, Hub, Listens};
use crate::observe::{Observer, Trace, Watched};

/// How long a call may take, beyond its own wait, until nobody else works in its caller's directory.
const BACK_PATIENCE: Duration = Duration::from_secs(5);

/// What a tool says when it succeeds.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Text(String),
    /// The same JSON as text and as structured content: some clients show the model only the one, some the other.
    Json(Value),
    Blocks(Vec<Block>),
    /// The tool cannot go on before these are answered; it is called again with the answers.
    Ask(Vec<Ask>),
    /// The tool cannot work for a client that lacks this.
    Needs(Capability),
}

/// A part of an answer. Bytes are given in base64, as they are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        data: String,
        mime_type: String,
    },
    Resource {
        resource: Resource,
    },
}

/// A text with an address, carried in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub uri: String,
    pub mime_type: String,
    pub text: String,
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// Why a tool failed, in words for whoever called it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{says}")]
pub struct ToolError {
    pub says: String,
    /// What programs know it by, in the sets that tell.
    pub name: &'static str,
    /// Which argument is wrong, where the words have to be those of a seed and do not say it.
    pub field: Option<&'static str>,
}

impl ToolError {
    pub fn new(says: impl Into<String>) -> Self {
        Self::named("Failed", says)
    }

    pub fn named(name: &'static str, says: impl Into<String>) -> Self {
        Self { says: says.into(), name, field: None }
    }

    /// Says which argument is wrong.
    pub fn on(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        let name = match &failure {
            Failure::Refused(refusal) => refusal.name(),
            Failure::Unavailable(_) => "Unavailable",
            Failure::Unknown(_) => "OutcomeUnknown",
        };
        Self::named(name, failure.to_string())
    }
}

impl<R: Into<Refusal>> From<R> for ToolError {
    fn from(refusal: R) -> Self {
        let refusal = refusal.into();
        Self::named(refusal.name(), refusal.to_string())
    }
}

/// What a caller gets: something it can act on, whether the tool succeeded or not. Its JSON is what is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub content: Vec<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    pub is_error: bool,
    /// Whether it is our fault: the tool broke instead of refusing.
    #[serde(skip)]
    pub is_bug: bool,
}

impl Answer {
    /// Returns its texts, a line each.
    pub fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text { text } => Some(text.clone()),
            Block::Image { .. } | Block::Audio { .. } | Block::Resource { .. } => None,
        };
        self.content.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Answer(Answer),
    /// The call is to be made again with answers to these.
    Ask(Vec<Ask>),
}

/// Why a call could not even be tried; the only cases that are protocol errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("unknown tool {0:?}; tools/list shows the tools there are")]
    UnknownTool(String),
    #[error("this call needs a client that declares the capability {0}")]
    Needs(Capability),
    #[error("{0}")]
    BadAnswers(String),
}

/// Where a call says how far it is. Nobody may be listening, and then nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<mpsc::Sender<Step>>);

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub done: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// As many steps as wait to be sent to a slow client; further ones are left out.
const STEPS_MAX: usize = 16;

impl Progress {
    pub fn channel() -> (Self, mpsc::Receiver<Step>) {
        let (sender, steps) = mpsc::channel(STEPS_MAX);
        (Self(Some(sender)), steps)
    }

    /// Says that the call still waits.
    pub(crate) fn waited(&self, waited: Duration) {
        let message = Some(format!("still waiting after {} s", waited.as_secs()));
        self.say(Step { done: waited.as_secs_f64(), total: None, message });
    }

    fn say(&self, step: Step) {
        if let Some(listener) = &self.0 {
            // A listener that is gone or slow misses a step, which the next one makes good.
            let _ = listener.try_send(step);
        }
    }
}

/// So much sooner than the door a call gives up waiting for a client that cannot be given a task.
const BEFORE_THE_DOOR: Duration = Duration::from_secs(5);

/// A call under way, as a tool sees it. Who calls comes from the credential, never from an argument.
pub struct Call<'a> {
    hub: &'a dyn Hub,
    caller: Caller,
    grants: &'a Grants,
    key: Option<Key>,
    request: &'a Request,
    pub(crate) scope: &'a Scope,
}

impl Call<'_> {
    /// Returns the newest state that can no longer be lost.
    pub fn state(&self) -> Arc<State> {
        self.hub.state()
    }

    /// Decides a command and makes what it causes durable.
    pub async fn submit(&self, command: Command) -> Result<Done, ToolError> {
        Ok(self.hub.submit(self.caller.clone(), command, self.key.clone()).await?)
    }

    /// The same for one of several commands of a call: each is recognised by itself when the call is repeated.
    pub(crate) async fn submit_nth(&self, n: usize, command: Command) -> Result<Done, ToolError> {
        let key = self.key.as_ref().map(|key| match n {
            0 => key.clone(),
            n => Key { key: format!("{}#{n}", key.key).into(), ..key.clone() },
        });
        Ok(self.hub.submit(self.caller.clone(), command, key).await?)
    }

    pub(crate) async fn project_commit(&self) -> Option<String> {
        self.hub.project_commit().await
    }

    /// Returns the directory of the hub's project.
    pub fn directory(&self) -> String {
        self.hub.directory()
    }

    /// Returns who calls.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.hub.now()
    }

    /// Returns what an agent has said so far in its turn.
    pub(crate) fn said(&self, agent: &AgentId) -> String {
        self.hub.said(agent)
    }

    /// Returns the process of an agent's program, if it is known.
    pub(crate) fn pid(&self, agent: &AgentId) -> Option<u32> {
        self.hub.pid(agent)
    }

    /// Returns the end of what an agent's program wrote to stderr.
    pub(crate) fn stderr(&self, agent: &AgentId) -> String {
        self.hub.stderr(agent)
    }

    /// Says whether the caller has a whole tool set.
    pub(crate) fn has_all(&self, set: Set) -> bool {
        [Grant::Full, Grant::Set(set.name().into())].iter().any(|grant| self.grants.has(grant))
    }

    /// Returns records of an agent's transcript, oldest first.
    pub(crate) async fn records(&self, asked: hub::Asked) -> Result<Vec<Value>, ToolError> {
        self.hub.records(asked).await.map_err(ToolError::new)
    }

    /// Returns how long a call may wait so that the answer is its own and not the door's.
    pub(crate) fn inline_wait(&self) -> Duration {
        self.patience().saturating_sub(BEFORE_THE_DOOR)
    }

    /// Returns how long the caller waits for an answer.
    pub(crate) fn patience(&self) -> Duration {
        errands::patience(&self.hub.state(), &self.caller, PATIENCE)
    }

    /// Returns what the caller's client can do.
    pub fn client(&self) -> Client {
        self.request.client
    }

    /// Returns what was answered to the questions that the tool asked before.
    pub fn answers(&self) -> &Answers {
        &self.request.answers
    }

    /// Says how far the call is.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<String>) {
        self.request.progress.say(Step { done, total, message });
    }

    /// Waits until `check` finds what it is looking for, at most `at_most`, and says meanwhile that it waits. Only
    /// tools that [`crate::catalogue::Tool::WAITS`] may.
    pub async fn wait<T>(
        &self,
        topic: &Topic,
        at_most: Duration,
        check: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let _waits = self.hub.waits(&self.caller);
        let aside = self.hub.steps_aside(&self.caller);
        let began = self.now();
        let progress = |waited| self.request.progress.waited(waited);
        let found = hub::wait(self.hub, topic, at_most, progress, check).await;
        let waited = u64::try_from(self.now().0 - began.0).unwrap_or_default();
        let left = at_most.saturating_sub(Duration::from_millis(waited));
        aside.back(left.max(BACK_PATIENCE)).await;
        found
    }

    /// Notes that the caller waits for the answer to a message.
    pub(crate) fn listens(&self, tell: TellId) -> Listens {
        self.hub.listens(tell)
    }
}

/// A tool call as a door hands it over.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub name: String,
    pub arguments: Map<String, Value>,
    /// What the caller sent so that it may send the call again.
    pub key: Option<String>,
    /// What the caller answered to what the tool asked before.
    pub answers: Answers,
    pub client: Client,
    pub progress: Progress,
    /// The trace that the caller said the call belongs to.
    pub trace: Trace,
}

/// Calls a tool. Every path answers, also refusals and panics, and every call is told to the observer once.
pub async fn dispatch(
    catalogue: &Catalogue,
    hub: &dyn Hub,
    observer: &dyn Observer,
    token: &Token,
    scope: &Scope,
    request: &Request,
) -> Result<Outcome, Fault> {
    let entry = find(catalogue, scope, &request.name);
    let watched = Watched::begin(observer, entry.as_ref().ok().copied(), token, &request.trace);
    let outcome = match entry {
        Ok(entry) => run(entry, hub, token, scope, request).await,
        Err(unknown) => Err(unknown),
    };
    watched.ends_with(&outcome);
    outcome
}

async fn run(
    entry: &Entry,
    hub: &dyn Hub,
    token: &Token,
    scope: &Scope,
    request: &Request,
) -> Result<Outcome, Fault> {
    if let Err(refused) = admit(hub, token, scope, entry, &request.arguments) {
        return Ok(Outcome::Answer(refused));
    }
    let arguments = &request.arguments;
    let key = request.key.as_deref().map(|key| Key::new(key, call_print(entry, scope, arguments)));
    let key = match key.transpose() {
        Ok(key) => key,
        Err(refusal) => return Ok(Outcome::Answer(failed(entry, &refusal.into()))),
    };
    if let Err(wrong) = check_objects(&entry.schema, arguments) {
        return Ok(Outcome::Answer(failed(entry, &wrong)));
    }
    let grants = &token.grants;
    let call = Call { hub, caller: Caller::of(token), grants, key, request, scope };
    // A panic in one tool is a bug in that tool; its caller is told, and nobody else notices.
    let answer = match AssertUnwindSafe((entry.run)(&call, arguments)).catch_unwind().await {
        Ok(Ok(Reply::Text(text))) => succeeded(vec![Block::text(text)], None),
        Ok(Ok(Reply::Json(json))) => succeeded(vec![Block::text(json.to_string())], Some(json)),
        Ok(Ok(Reply::Blocks(content))) => succeeded(content, None),
        Ok(Ok(Reply::Ask(asks))) => return asked(request.client, asks),
        Ok(Ok(Reply::Needs(capability))) => return Err(Fault::Needs(capability)),
        Ok(Err(error)) => failed(entry, &error),
        Err(_panic) => {
            tracing::error!(tool = entry.name, "a tool panicked");
            let message = "the tool failed inside; this is a bug in Teamster, the hub's log has the details, and other calls still work";
            Answer { is_bug: true, ..failed(entry, &ToolError::named("Bug", message)) }
        }
    };
    Ok(Outcome::Answer(answer))
}

/// Returns the tool that a call names.
pub(crate) fn find<'a>(
    catalogue: &'a Catalogue,
    scope: &Scope,
    name: &str,
) -> Result<&'a Entry, Fault> {
    catalogue
        .find(scope.set, name)
        .ok_or_else(|| Fault::UnknownTool(name.chars().take(80).collect()))
}

/// Lets a caller in that may call the tool with these arguments, or says that it may not.
pub(crate) fn admit(
    hub: &dyn Hub,
    token: &Token,
    scope: &Scope,
    entry: &Entry,
    arguments: &Map<String, Value>,
) -> Result<(), Answer> {
    if allowed(token, entry, scope, arguments) {
        return Ok(());
    }
    Err(match hub.state().check_run(token, &scope.run) {
        Err(bound) if entry.set == crate::Set::Session => failed(entry, &ToolError::new(bound)),
        Err(_) | Ok(()) => entry.refusal(shown(token, entry, scope)),
    })
}

fn succeeded(content: Vec<Block>, structured_content: Option<Value>) -> Answer {
    Answer { content, structured_content, is_error: false, is_bug: false }
}

/// Says in the set's own way that something went wrong.
pub(crate) fn failed(entry: &Entry, error: &ToolError) -> Answer {
    let (text, structured_content) = entry.set.failure(error);
    Answer { content: vec![Block::text(text)], structured_content, is_error: true, is_bug: false }
}

/// A client is asked only for what it said it can answer.
fn asked(client: Client, asks: Vec<Ask>) -> Result<Outcome, Fault> {
    match asks.iter().find(|ask| !client.has(ask.needs)) {
        Some(ask) => Err(Fault::Needs(ask.needs)),
        None => Ok(Outcome::Ask(asks)),
    }
}

/// Tells calls apart, so that a key cannot be used for two different ones.
pub(crate) fn call_print(entry: &Entry, scope: &Scope, arguments: &Map<String, Value>) -> u64 {
    let arguments = in_order(&Value::Object(arguments.clone())).to_string();
    let parts = [entry.set.name(), entry.name, scope.run.as_str(), &arguments];
    text::fingerprint(parts.into_iter().flat_map(|part| part.bytes().chain([0])))
}

/// Returns the value with the members of its objects in order: who repeats a call may write them in another.
pub(crate) fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let sorted: std::collections::BTreeMap<&String, Value> =
                object.iter().map(|(name, value)| (name, in_order(value))).collect();
            sorted.into_iter().map(|(name, value)| (name.clone(), value)).collect()
        }
        Value::Array(values) => values.iter().map(in_order).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// What programs know wrong arguments by.
const INVALID: &str = "ValidationError";

/// Refuses an array where the schema has an object: serde would read it as the object's fields in their order.
fn check_objects(
    schema: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<(), ToolError> {
    for (name, argument) in arguments {
        let wants_objects = schema["properties"][name]["items"]["type"] == "object";
        let mut items = argument.as_array().into_iter().flatten().filter(|_| wants_objects);
        if let Some(i) = items.position(Value::is_array) {
            return Err(ToolError::named(
                INVALID,
                format!("{name}[{i}]: invalid type: sequence, expected an object"),
            ));
        }
    }
    Ok(())
}

/// Reads a tool's arguments, or says which of them is wrong.
pub(crate) fn arguments<T: DeserializeOwned>(given: &Map<String, Value>) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(given).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().to_string();
        let missing =
            problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        let says = match (path.as_str(), missing) {
            (".", Some(field)) => format!("missing '{field}' parameter"),
            (path, Some(field)) => format!("missing '{field}' in {path}"),
            (".", None) => problem,
            (path, None) => format!("{path}: {problem}"),
        };
        ToolError::named(INVALID, says)
    })
}

#[cfg(test)]
mod tests;
