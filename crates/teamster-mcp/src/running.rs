//! Runs a tool for a caller that may call it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use serde_json::{Map, Value};
use teamster_core::key::Key;
use teamster_core::token::Token;
use teamster_core::{Caller, text};

use crate::access::{allowed, shown};
use crate::answer::{Answer, Block, Fault, Outcome, Reply, ToolError};
use crate::arguments::{check_objects, in_order};
use crate::ask::{Ask, Client};
use crate::call::{Call, Request};
use crate::catalogue::Entry;
use crate::hub::Hub;
use crate::observe::{Observer, Watched};
use crate::scope::Scope;
use crate::set::Set;

/// Calls a tool. Every path answers, also refusals and panics, and every call is told to the observer once.
pub(crate) async fn run(
    entry: &Entry,
    hub: &dyn Hub,
    observer: &dyn Observer,
    token: &Token,
    scope: &Scope,
    request: &Request,
) -> Result<Outcome, Fault> {
    let watched = Watched::begin(observer, Some(entry), token, &request.trace);
    let outcome = answered(entry, hub, token, scope, request).await;
    watched.ends_with(&outcome);
    outcome
}

async fn answered(
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
        Err(refusal) => return Ok(Outcome::Answer(entry.failed(&refusal.into()))),
    };
    if let Err(wrong) = check_objects(&entry.schema, arguments) {
        return Ok(Outcome::Answer(entry.failed(&wrong)));
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
        Ok(Err(error)) => entry.failed(&error),
        Err(_panic) => {
            tracing::error!(tool = entry.name, "a tool panicked");
            let message = "the tool failed inside; this is a bug in Teamster, the hub's log has the details, and other calls still work";
            Answer { is_bug: true, ..entry.failed(&ToolError::named("Bug", message)) }
        }
    };
    Ok(Outcome::Answer(answer))
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
        Err(bound) if entry.set == Set::Session => entry.failed(&ToolError::new(bound)),
        Err(_) | Ok(()) => entry.refusal(shown(token, entry, scope)),
    })
}

fn succeeded(content: Vec<Block>, structured_content: Option<Value>) -> Answer {
    Answer { content, structured_content, is_error: false, is_bug: false }
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
