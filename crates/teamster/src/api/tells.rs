//! Messages to teams for people's programs: how one stands, and waiting for its answer.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::conversation::{How, Progress};
use teamster_core::ids::TellId;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::{Answer, Api, InPath, LOG_WAIT_MAX, Problem};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/tells/{id}", get(show))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    /// How long to wait if it is not settled.
    #[serde(default)]
    wait_ms: u64,
}

async fn show(
    State(api): State<Api>,
    id: InPath,
    asked: Result<Query<ShowQuery>, QueryRejection>,
) -> Answer {
    let (Path(which), Query(ShowQuery { wait_ms })) = (id?, asked?);
    let unknown = || {
        let which: String = which.chars().take(80).collect();
        Problem(StatusCode::NOT_FOUND, format!("there is no message {which:?}"))
    };
    let id = TellId::parse(&which).ok_or_else(unknown)?;
    let state = api.hub.state();
    let conversation = state.conversations.tell(id).ok_or_else(unknown)?.conversation;
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
    let tell = state.conversations.tell(id).ok_or_else(unknown)?;
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
