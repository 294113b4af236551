//! The configuration for people's programs: having it read again, and what came of that.

use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::hub::Reading;

use super::{Answer, Api, Query};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/configuration", get(show).post(read_again))
}

/// Says how often there was something to say.
async fn show(State(api): State<Api>) -> Json<Value> {
    Json(json!({"readings": api.configured.told().await.0}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    /// How many readings the caller knows of. The hub may have noticed by itself what changed since then.
    after: Option<u64>,
}

async fn read_again(
    State(api): State<Api>,
    asked: Result<Query<ReadQuery>, QueryRejection>,
) -> Answer {
    let Query(ReadQuery { after }) = asked?;
    let now = api.configured.read_again().await?;
    let (readings, last) = api.configured.told().await;
    let noticed = last.filter(|_| now.n_changes == 0 && after.is_some_and(|n| n < readings));
    let Reading { is_used, changes, n_changes, problems, n_problems } =
        noticed.as_ref().unwrap_or(&now);
    Ok(Json(json!({
        "says": noticed.as_ref().unwrap_or(&now).to_string(), "used": is_used, "changes": changes,
        "n_changes": n_changes, "problems": problems, "n_problems": n_problems,
    })))
}
