//! The whole workspace at a glance, for people's programs: agents, runs, teams and questions in one answer.

use std::pin::pin;

use axum::Router;
use futures_util::future::select;
use teamster_agents::agent::Event;
use teamster_agents::transcript::Record;
use teamster_api::ApiError;
use teamster_api::paths::ShowTop;
use teamster_api::top::{Top, TopAgent};
use teamster_core::agent::{Agent, Phase};
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::serving::{Answered, ApiRequest, Serve as _, internal};
use super::waiting::wait_for;
use super::{Api, shapes};
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
    Router::new().serve::<ShowTop, _, _>(top)
}

async fn top(ApiRequest { by, query, .. }: ApiRequest<ShowTop>) -> Answered<ShowTop> {
    let api = &by.api;
    let watch = api.hub.watch(&Topic::Log);
    let event = watch.until(&api.hub, |state| (state.seq() > query.after).then_some(()));
    let said = api.live.any(query.records);
    wait_for(api, query.wait_ms, select(pin!(event), pin!(said))).await;
    let (n_records, state) = (api.live.n_records(), api.hub.state());
    let live = state.agents.active().chain(state.agents.adopted()).chain(state.agents.queued());
    let all = live.take(AGENTS_MAX).chain(state.agents.ended().take(ENDED_MAX));
    let mut agents = Vec::new();
    for (n, agent) in all.enumerate() {
        let doing = match agent.phase {
            Phase::Running | Phase::Ending if n < DOING_MAX => doing(api, agent).await?,
            Phase::Queued => {
                api.queue.waits_for(&state, agent).map(|waits| format!("waits: {waits}"))
            }
            _ => agent.outcome.as_ref().map(|outcome| outcome.summary.to_string()),
        };
        let doing = doing.map(|text| text.chars().take(DOING_CHARS_MAX).collect::<String>());
        agents.push(TopAgent {
            id: agent.id.to_string(),
            phase: shapes::phase(agent.phase),
            role: agent.role.to_string(),
            isolation: agent.isolation.map(shapes::isolation),
            program: state.behaviour(agent).map(|role| role.program.to_string()),
            turns: agent.n_turns,
            used: shapes::spent(&agent.used),
            parked_until: agent.parked.as_ref().map(|parked| parked.until.0),
            status: agent.outcome.as_ref().map(|outcome| shapes::verdict(outcome.status)),
            doing,
        });
    }
    Ok(Top {
        seq: state.seq(),
        records: n_records,
        agents,
        runs: super::runs::all(&state),
        teams: super::teams::all(api, &state),
        questions: state.questions.open().map(|one| super::questions::shown(one)).collect(),
    })
}

/// Returns what an agent said or did last.
async fn doing(api: &Api, agent: &Agent) -> Result<Option<String>, ApiError> {
    let Ok(transcript) = retention::transcript_of(agent.id.as_str()) else { return Ok(None) };
    let last = api.log.transcripts().extent(&transcript).await.map_err(internal)?.last;
    let after = last.saturating_sub(RECORDS_BACK);
    let n_records = usize::try_from(RECORDS_BACK).unwrap_or_default();
    let records = api.log.transcripts().read(&transcript, after, n_records).await;
    let records = records.map_err(internal)?;
    Ok(records.iter().rev().find_map(|record| said(&Record::decode(&record.bytes).ok()?.event)))
}

fn said(event: &Event) -> Option<String> {
    match event {
        Event::Text(piece) | Event::Thought(piece) => {
            piece.text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
        }
        Event::ToolCall(call) => Some(format!("* {}", call.title)),
        Event::PermissionAsked { call, .. } => Some(format!("? {}", call.title)),
        Event::UsageLimit { message, .. }
        | Event::Retrying { message }
        | Event::Trouble { message }
        | Event::NotStarted { message } => Some(format!("! {message}")),
        Event::Prompted { .. } => Some("> was given its task".to_owned()),
        Event::Started(_)
        | Event::Told { .. }
        | Event::Settled { .. }
        | Event::ToolResult { .. }
        | Event::Plan { .. }
        | Event::Usage(_)
        | Event::PermissionAnswered { .. }
        | Event::CancelAsked
        | Event::TurnEnded(_)
        | Event::Exited { .. } => None,
    }
}
