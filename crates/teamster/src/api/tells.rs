//! Messages to teams for people's programs: how one stands, and waiting for its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::conversation::{self, How, NewTell, Progress};
use teamster_core::ids::{ConversationId, TellId};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Command, Event};
use teamster_mcp::Hub as _;

use super::{Answer, Api, Given, InPath, LOG_WAIT_MAX, Problem, submit};

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
        Event::Conversation(conversation::Event::Told { id, conversation, .. }) => {
            Some(json!({"tellId": id.to_string(), "sessionId": conversation.to_string()}))
        }
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
    Ok(Json(json!({"id": tell.to_string(), "cancelled": !done.events.is_empty()})))
}

async fn show(
    State(api): State<Api>,
    id: InPath,
    asked: Result<Query<ShowQuery>, QueryRejection>,
) -> Answer {
    let (Path(which), Query(ShowQuery { wait_ms })) = (id?, asked?);
    let (id, conversation) = find(&api, &which)?;
    if wait_ms > 0 {
        let at_most = Duration::from_millis(wait_ms).min(LOG_WAIT_MAX);
        let mut stop = api.stop.subscribe();
        let watch = api.hub.watch(&Topic::Conversation(conversation));
        let settled = watch.until(&api.hub, |state| {
            state.conversations.tell(id).is_none_or(|tell| tell.is_settled()).then_some(())
        });
        tokio::select! {
            () = settled => {}
            () = tokio::time::sleep(at_most) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
    let state = api.hub.state();
    let tell = state.conversations.tell(id).ok_or_else(|| unknown(&which))?;
    let agent = state.conversations.get(conversation).map(|conversation| &conversation.agent);
    let (status, answer, reason) = match &tell.progress {
        Progress::Queued => ("queued", String::new(), None),
        Progress::Active { .. } => {
            ("active", agent.map(|agent| api.hub.said(agent)).unwrap_or_default(), None)
        }
        Progress::Settled { how, answer, .. } => match how {
            How::Completed => ("completed", answer.to_string(), None),
            How::Terminated { why } => ("terminated", answer.to_string(), Some(why.clone())),
            How::Cancelled => ("cancelled", String::new(), None),
        },
    };
    let shown: Value = json!({
        "id": tell.id.to_string(), "sessionId": conversation.to_string(), "message": tell.message, "status": status,
        "answer": answer, "reason": reason, "at": tell.at,
    });
    Ok(Json(shown))
}
