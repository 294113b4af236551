//! The hub itself for people's programs: its state at a glance, its isolation, and its end.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use teamster_api::hub::{
    AgentCounts, IsolationReport, RunAtAGlance, Status, Stopping, TeamCounts, YakCounts,
};
use teamster_api::paths::{ShowIsolation, ShowStatus, StopHub};
use teamster_api::{ApiError, Code};
use teamster_core::agent::Phase;
use teamster_core::spending::Spent;
use teamster_core::{State, TeamName, yak};

use super::serving::{Answered, ApiRequest, Serve as _};
use super::{Api, runs, shapes};

/// Maximum reasons for queued agents that are shown.
const WAITS_SHOWN: usize = 10;
/// How long it may take to find out how agents are isolated: two launches, on a machine at many times its load.
const ISOLATION_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<ShowStatus, _, _>(status)
        .serve::<ShowIsolation, _, _>(isolation)
        .serve::<StopHub, _, _>(stop)
}

async fn status(ApiRequest { by, .. }: ApiRequest<ShowStatus>) -> Answered<ShowStatus> {
    let api = &by.api;
    let state = api.hub.state();
    let runs = state.runs.iter().map(|(name, run)| RunAtAGlance {
        name: name.to_string(),
        items: shapes::item_counts(&run.items),
        notes: run.notes.len(),
        iteration: runs::iteration(run),
        complete: run.completed_at.is_some(),
        phase: runs::phase(run),
        under_way: run.is_driven(),
    });
    let is_awake = |team: &TeamName| {
        let agents = state.conversations.with(team).map(|talk| talk.agent.as_str());
        let mut agents = agents.filter_map(|agent| state.agents.get(agent));
        agents.any(|agent| !matches!(agent.phase, Phase::Asleep | Phase::Ended))
    };
    let found = api.standing.now();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        events: state.seq(),
        since: state.hub.last_at.0,
        starts: state.hub.n_starts,
        runs: runs.collect(),
        teams: TeamCounts {
            known: state.teams.iter().count(),
            awake: state.teams.iter().filter(|team| is_awake(&team.name)).count(),
        },
        yaks: YakCounts {
            hairy: state.yaks.count(yak::Status::Hairy),
            shaving: state.yaks.count(yak::Status::Shaving),
            shorn: state.yaks.count(yak::Status::Shorn),
        },
        tokens: state.tokens.live().count(),
        agents: AgentCounts {
            active: state.agents.active().count(),
            queued: state.agents.queued().count(),
            adopted: state.agents.adopted().count(),
            parked: state.agents.queued().filter(|agent| agent.parked.is_some()).count(),
            wait_for: waits(api, &state),
        },
        questions: state.questions.n_open(),
        used: shapes::spent(&used(&state)),
        waiting: api.hub.n_waiting(),
        stalled: api.hub.pulse().says(),
        calls: api.telemetry.calls(),
        isolation: found.as_ref().map(|found| shapes::isolation_here(found.isolation)),
        agents_refused: found.is_some_and(|found| found.refused().is_some()),
    })
}

/// Returns what queued agents wait for, each thing once.
fn waits(api: &Api, state: &State) -> Vec<String> {
    let all = state.agents.queued().filter_map(|agent| api.queue.waits_for(state, agent));
    let all: BTreeSet<String> = all.map(|waits| waits.to_string()).collect();
    all.into_iter().take(WAITS_SHOWN).collect()
}

/// Returns what the agents at hand have used, in all.
fn used(state: &State) -> Spent {
    let mut sum = Spent::default();
    state.agents.iter().for_each(|agent| sum.add_all(&agent.used));
    sum
}

/// Shows how agents are really isolated here, once that is known.
async fn isolation(ApiRequest { by, .. }: ApiRequest<ShowIsolation>) -> Answered<ShowIsolation> {
    let known = tokio::time::timeout(ISOLATION_PATIENCE, by.api.standing.known()).await;
    let unknown = || ApiError::new(Code::Unavailable, "it is not known yet");
    let found = known.ok().flatten().ok_or_else(unknown)?;
    Ok(IsolationReport {
        isolation: shapes::isolation_here(found.isolation),
        failure: found.failure.as_ref().map(ToString::to_string),
        required: found.is_required,
        warnings: found.warnings(),
    })
}

async fn stop(ApiRequest { by, .. }: ApiRequest<StopHub>) -> Answered<StopHub> {
    let _ = by.api.stop.send(true);
    Ok(Stopping { stopping: std::process::id() })
}
