//! The whole workspace at a glance, for people's programs: agents, runs, teams and questions in one answer.

use std::pin::pin;

use axum::extract::State;
use axum::extract::rejection::QueryRejection;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::select;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::agent::{Agent, Phase};
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::waiting::wait_for;
use super::{Answer, Api, Problem, Query};
use crate::agents::retention;

/// As many agents as are told, those under way first, and as many of those that have ended.
const AGENTS_MAX: usize = 200;
const ENDED_MAX: usize = 10;
/// What an agent does is told of no more than so many: each is a look into its transcript.
const DOING_MAX: usize = 50;
/// The last records of a transcript among which there is one that says something.
const RECORDS_BACK: u64 = 8;
const DOING_CHARS_MAX: usize = 300;

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/top", get(top))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    /// The last event that the caller has seen the effect of.
    #[serde(default)]
    after: u64,
    /// How many records of agents there were by then.
    #[serde(default)]
    records: u64,
    /// How long to wait if nothing has happened since, nor any agent said something.
    #[serde(default)]
    wait_ms: u64,
}

async fn top(State(api): State<Api>, asked: Result<Query<TopQuery>, QueryRejection>) -> Answer {
    let Query(TopQuery { after, records, wait_ms }) = asked?;
    let watch = api.hub.watch(&Topic::Log);
    let event = watch.until(&api.hub, |state| (state.seq() > after).then_some(()));
    let said = api.live.any(records);
    wait_for(&api, wait_ms, select(pin!(event), pin!(said))).await;
    let (n_records, state) = (api.live.n_records(), api.hub.state());
    let live = state.agents.active().chain(state.agents.adopted()).chain(state.agents.queued());
    let all = live.take(AGENTS_MAX).chain(state.agents.ended().take(ENDED_MAX));
    let mut agents = Vec::new();
    for (n, agent) in all.enumerate() {
        let doing = match agent.phase {
            Phase::Running | Phase::Ending if n < DOING_MAX => doing(&api, agent).await?,
            Phase::Queued => {
                api.queue.waits_for(&state, agent).map(|waits| format!("waits: {waits}"))
            }
            _ => agent.outcome.as_ref().map(|outcome| outcome.summary.to_string()),
        };
        let doing = doing.map(|text| text.chars().take(DOING_CHARS_MAX).collect::<String>());
        agents.push(json!({
            "id": agent.id.as_str(), "phase": agent.phase.as_str(), "role": agent.role.as_str(), "isolation": agent.isolation,
            "program": state.behaviour(agent).map(|role| &*role.program), "turns": agent.n_turns, "used": super::spent(&agent.used),
            "parked_until": agent.parked.as_ref().map(|parked| parked.until),
            "status": agent.outcome.as_ref().map(|outcome| outcome.status), "doing": doing,
        }));
    }
    let runs = super::runs::all(&state);
    let questions: Vec<Value> =
        state.questions.open().map(|question| super::questions::shown(question)).collect();
    Ok(Json(json!({
        "seq": state.seq(), "records": n_records, "agents": agents, "runs": runs, "teams": super::teams::all(&api, &state), "questions": questions,
    })))
}

/// Returns what an agent said or did last.
async fn doing(api: &Api, agent: &Agent) -> Result<Option<String>, Problem> {
    let Ok(transcript) = retention::transcript_of(agent.id.as_str()) else { return Ok(None) };
    let last = api.log.transcripts().extent(&transcript).await?.last;
    let after = last.saturating_sub(RECORDS_BACK);
    let n_records = usize::try_from(RECORDS_BACK).unwrap_or_default();
    let records = api.log.transcripts().read(&transcript, after, n_records).await?;
    Ok(records.iter().rev().find_map(|record| said(&serde_json::from_slice(&record.bytes).ok()?)))
}

fn said(record: &Value) -> Option<String> {
    let word = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    match record["type"].as_str()? {
        "text" | "thought" => {
            let text = word(record, "text")?;
            text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
        }
        "tool_call" => Some(format!("* {}", word(record, "title")?)),
        "permission_asked" => Some(format!("? {}", word(&record["call"], "title")?)),
        "usage_limit" | "retrying" | "trouble" | "not_started" => {
            Some(format!("! {}", word(record, "message")?))
        }
        "prompted" => Some("> was given its task".to_owned()),
        _ => None,
    }
}
