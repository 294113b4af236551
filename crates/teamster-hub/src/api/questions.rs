//! What waits for people: listed, waited for, and answered.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::Command;
use teamster_core::question::{self, Question};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::waiting::wait_for;
use super::{Answer, Api, Given, InPath, submit};

/// As many questions that were settled as are listed.
const SETTLED_PAGE: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/questions", get(list))
        .route("/api/questions/{id}/answer", post(answer))
}

pub(super) fn shown(question: &Question) -> Value {
    let Question { id, asked, asked_at, settled } = question;
    json!({
        "id": id.to_string(), "agent": asked.agent.as_str(), "title": asked.title, "payload": asked.payload,
        "choices": asked.choices, "default": asked.default, "deadline": asked.deadline, "asked_at": asked_at,
        "settled": settled, "told": settled.as_ref().map(|settled| settled.how.told(asked)),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The newest question that the caller knows, by its number.
    #[serde(default)]
    after: u32,
    /// How long to wait until there is a newer one that is open.
    #[serde(default)]
    wait_ms: u64,
}

/// Those that are open, oldest first, then those that were settled, newest first.
async fn list(State(api): State<Api>, asked: Result<Query<ListQuery>, QueryRejection>) -> Answer {
    let Query(ListQuery { after, wait_ms }) = asked?;
    let watch = api.hub.watch(&Topic::Questions);
    let newer = watch.until(&api.hub, |state| {
        state.questions.open().any(|question| question.id.0 > after).then_some(())
    });
    wait_for(&api, wait_ms, newer).await;
    let state = api.hub.state();
    let open: Vec<Value> = state.questions.open().map(|question| shown(question)).collect();
    let settled = state.questions.settled().take(SETTLED_PAGE);
    let settled: Vec<Value> = settled.map(|question| shown(question)).collect();
    Ok(Json(json!({"open": open, "settled": settled})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    word: String,
    note: Option<String>,
}

async fn answer(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    id: InPath,
    asked: Given<Said>,
) -> Answer {
    let (Path(which), Json(Said { word, note })) = (id?, asked?);
    let command = Command::Question(question::Command::Answer { which, word, note });
    let done = submit(&api, &token, command).await?;
    let settled = done.events.iter().find_map(|event| match event {
        teamster_core::Event::Question(question::Event::Settled { id, .. }) => {
            done.state.questions.get(*id).map(|question| shown(question))
        }
        _ => None,
    });
    Ok(Json(settled.unwrap_or_default()))
}
