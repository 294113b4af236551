//! Messages to teams for people's programs: how one stands, and waiting for its answer.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use futures_util::future::select;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use teamster_core::conversation::{self, How, NewTell, Progress, Tell};
use teamster_core::ids::{ConversationId, TellId};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Command, Event, State as Everything};
use teamster_mcp::Hub as _;

use super::stands::stands;
use super::waiting::wait_for;
use super::{Answer, Api, Given, InPath, Problem, submit};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/tells", post(tell))
        .route("/api/tells/{id}", get(show))
        .route("/api/tells/{id}/cancel", post(cancel))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    /// How long to wait if it is not settled.
    #[serde(default)]
    wait_ms: u64,
    /// How the caller knows that it stands; as long as it does, there is nothing to say.
    stands: Option<String>,
}

fn unknown(which: &str) -> Problem {
    let which: String = which.chars().take(80).collect();
    let says = format!(
        "there is no message {which:?} at hand; `teamster transcript` has those of long ago"
    );
    Problem(StatusCode::NOT_FOUND, says)
}

fn find(api: &Api, which: &str) -> Result<(TellId, ConversationId), Problem> {
    let id = TellId::parse(which).ok_or_else(|| unknown(which))?;
    let state = api.hub.state();
    let tell = state.conversations.tell(id).ok_or_else(|| unknown(which))?;
    Ok((id, tell.conversation))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    to: String,
    from: Option<String>,
    message: String,
    /// Whether the answer is waited for; else it is unread until somebody reads it.
    wait: bool,
}

/// Tells a team something; its answer is asked for by the id.
async fn tell(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    asked: Given<NewMessage>,
) -> Answer {
    let Json(NewMessage { to, from, message, wait }) = asked?;
    let new = NewTell { to, from, message, is_awaited: wait };
    let command = Command::Conversation(conversation::Command::Tell(new));
    let done = submit(&api, &token, command).await?;
    let told = done.events.iter().find_map(|event| match event {
        Event::Conversation(
            conversation::Event::Told { id, conversation, .. }
            | conversation::Event::Joined { id, conversation, .. },
        ) => Some(json!({"tellId": id.to_string(), "sessionId": conversation.to_string()})),
        _ => None,
    });
    let none = || Problem(StatusCode::INTERNAL_SERVER_ERROR, "the message left no trace".into());
    Ok(Json(told.ok_or_else(none)?))
}

/// Takes a message back that is not begun; says how it stands.
async fn cancel(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    id: InPath,
) -> Answer {
    let Path(which) = id?;
    let (tell, _) = find(&api, &which)?;
    let cancel = conversation::Command::Cancel { tell };
    let done = submit(&api, &token, Command::Conversation(cancel)).await?;
    let progress = done.state.conversations.tell(tell).map(|tell| progress_word(&tell.progress));
    Ok(Json(json!({
        "tellId": tell.to_string(), "cancelled": !done.events.is_empty(), "status": progress,
    })))
}

/// Returns what people's programs call the progress of a message.
pub(super) fn progress_word(progress: &Progress) -> &'static str {
    match progress {
        Progress::Queued => "queued",
        Progress::Active { .. } => "active",
        Progress::Settled { how, .. } => match how {
            How::Completed => "completed",
            How::Terminated { .. } => "terminated",
            How::Cancelled => "cancelled",
        },
    }
}

async fn show(
    State(api): State<Api>,
    id: InPath,
    asked: Result<Query<ShowQuery>, QueryRejection>,
) -> Answer {
    let (Path(which), Query(ShowQuery { wait_ms, stands: known })) = (id?, asked?);
    let (id, conversation) = find(&api, &which)?;
    let trees = api.hub.trees();
    let is_new = |state: &Everything| {
        let is_new = |tell: &Arc<Tell>| {
            let differs = |known: &String| *known != stands(state, trees, tell);
            tell.is_settled() || known.as_ref().is_some_and(differs)
        };
        state.conversations.tell(id).is_none_or(is_new).then_some(())
    };
    // What it waits for may be anything; its end is of its conversation.
    let topic = if known.is_some() { Topic::Log } else { Topic::Conversation(conversation) };
    let watch = api.hub.watch(&topic);
    let told = watch.until(&api.hub, is_new);
    let moved = trees.until(|| is_new(&api.hub.state()));
    wait_for(&api, wait_ms, select(pin!(told), pin!(moved))).await;
    let state = api.hub.state();
    let tell = state.conversations.tell(id).ok_or_else(|| unknown(&which))?;
    let agent = state.conversations.get(conversation).map(|conversation| &conversation.agent);
    let (answer, reason) = match &tell.progress {
        Progress::Queued => (String::new(), None),
        Progress::Active { .. } => {
            (agent.map(|agent| api.hub.said(agent)).unwrap_or_default(), None)
        }
        Progress::Settled { how, answer, .. } => match how {
            How::Completed | How::Cancelled => (answer.to_string(), None),
            How::Terminated { why } => (answer.to_string(), Some(why.clone())),
        },
    };
    Ok(Json(json!({
        "tellId": tell.id.to_string(), "sessionId": conversation.to_string(), "message": tell.message,
        "status": progress_word(&tell.progress), "stands": stands(&state, trees, tell), "answer": answer,
        "reason": reason, "at": tell.at,
    })))
}
