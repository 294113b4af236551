//! One way in for every tool call, whatever door it came by.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use teamster_core::key::Key;
use teamster_core::token::Token;
use teamster_core::{Caller, Command, Refusal, State, text};

use crate::access::{Scope, allowed};
use crate::catalogue::{Catalogue, Entry};
use crate::hub::{Done, Failure, Hub};

/// What a tool says when it succeeds.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Text(String),
}

/// Why a tool failed, in words for whoever called it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        Self(failure.to_string())
    }
}

impl<R: Into<Refusal>> From<R> for ToolError {
    fn from(refusal: R) -> Self {
        Self(refusal.into().to_string())
    }
}

/// What a caller gets: text it can act on, whether it succeeded or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    pub is_error: bool,
}

/// No tool has this name; the one case that is a protocol error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool {0:?}; tools/list shows the tools there are")]
pub struct UnknownTool(String);

/// A call under way, as a tool sees it. Who calls comes from the credential, never from an argument.
pub struct Call<'a> {
    hub: &'a dyn Hub,
    caller: Caller,
    key: Option<Key>,
    pub(crate) scope: &'a Scope,
}

impl Call<'_> {
    /// Returns the newest state that can no longer be lost.
    pub(crate) fn state(&self) -> Arc<State> {
        self.hub.state()
    }

    /// Decides a command and makes what it causes durable.
    pub(crate) async fn submit(&self, command: Command) -> Result<Done, ToolError> {
        Ok(self.hub.submit(self.caller.clone(), command, self.key.clone()).await?)
    }

    pub(crate) async fn project_commit(&self) -> Option<String> {
        self.hub.project_commit().await
    }
}

/// A tool call as a door hands it over.
#[derive(Debug)]
pub struct Request<'a> {
    pub name: &'a str,
    pub arguments: Map<String, Value>,
    /// What the caller sent so that it may send the call again.
    pub key: Option<&'a str>,
}

/// Calls a tool. Every path answers, also refusals and panics.
pub async fn dispatch(
    catalogue: &Catalogue,
    hub: &dyn Hub,
    token: &Token,
    scope: &Scope,
    request: Request<'_>,
) -> Result<Answer, UnknownTool> {
    let Some(entry) = catalogue.find(scope.set, request.name) else {
        return Err(UnknownTool(request.name.chars().take(80).collect()));
    };
    if !allowed(token, entry, scope) {
        let bound = hub.state().check_run(token, &scope.run);
        let text = match bound {
            Err(bound) if entry.set == crate::Set::Session => entry.set.failure(&bound),
            Err(_) | Ok(()) => entry.refusal(),
        };
        return Ok(Answer { text, is_error: true });
    }
    let key = match request
        .key
        .map(|key| Key::new(key, call_print(entry, scope, &request.arguments)))
        .transpose()
    {
        Ok(key) => key,
        Err(refusal) => return Ok(failed(entry, &refusal.to_string())),
    };
    if let Err(ToolError(message)) = check_objects(&entry.schema, &request.arguments) {
        return Ok(failed(entry, &message));
    }
    let call = Call { hub, caller: Caller::of(token), key, scope };
    // A panic in one tool is a bug in that tool; its caller is told, and nobody else notices.
    match AssertUnwindSafe((entry.run)(&call, request.arguments)).catch_unwind().await {
        Ok(Ok(Reply::Text(text))) => Ok(Answer { text, is_error: false }),
        Ok(Err(ToolError(message))) => Ok(failed(entry, &message)),
        Err(_panic) => {
            tracing::error!(tool = entry.name, "a tool panicked");
            Ok(failed(
                entry,
                "the tool failed inside; this is a bug in Teamster, the hub's log has the details, and other calls still work",
            ))
        }
    }
}

fn failed(entry: &Entry, message: &str) -> Answer {
    Answer { text: entry.set.failure(message), is_error: true }
}

/// Tells calls apart, so that a key cannot be used for two different ones.
fn call_print(entry: &Entry, scope: &Scope, arguments: &Map<String, Value>) -> u64 {
    let arguments = in_order(&Value::Object(arguments.clone())).to_string();
    let parts = [entry.set.name(), entry.name, scope.run.as_str(), &arguments];
    text::fingerprint(parts.into_iter().flat_map(|part| part.bytes().chain([0])))
}

/// Returns the value with the members of its objects in order: who repeats a call may write them in another.
fn in_order(value: &Value) -> Value {
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

/// Refuses an array where the schema has an object: serde would read it as the object's fields in their order.
fn check_objects(
    schema: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<(), ToolError> {
    for (name, argument) in arguments {
        let wants_objects = schema["properties"][name]["items"]["type"] == "object";
        let mut items = argument.as_array().into_iter().flatten().filter(|_| wants_objects);
        if let Some(i) = items.position(Value::is_array) {
            return Err(ToolError(format!(
                "{name}[{i}]: invalid type: sequence, expected an object"
            )));
        }
    }
    Ok(())
}

/// Reads a tool's arguments, or says which of them is wrong.
pub(crate) fn arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(Value::Object(given)).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().to_string();
        let missing =
            problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        ToolError(match (path.as_str(), missing) {
            (".", Some(field)) => format!("missing '{field}' parameter"),
            (path, Some(field)) => format!("missing '{field}' in {path}"),
            (".", None) => problem,
            (path, None) => format!("{path}: {problem}"),
        })
    })
}

#[cfg(test)]
mod tests;
