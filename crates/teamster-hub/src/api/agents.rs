//! Agents for people's programs: drafted, listed, shown, and followed.

use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use futures_util::future::select;
use serde_json::Value;
use teamster_api::agents::{
    Adopt, AdoptedAgent, AgentDetails, Draft, DraftedAgent, Limits, Transcript,
};
use teamster_api::paths::{
    AdoptAgent, DraftAgent, ListAgents, ReadTranscript, ResumeAgent, ShowAgent,
};
use teamster_api::{ApiError, Code, agents as api_agents};
use teamster_core::agent::{self, Adoption, Agent, AskedLimits, NewAgent};
use teamster_core::role::Role;
use teamster_core::topic::Topic;
use teamster_core::{Command, Event, State};
use teamster_mcp::Hub as _;

use super::serving::{Answered, ApiRequest, Serve as _, internal, invalid, page};
use super::waiting::wait_for;
use super::{Api, shapes};
use crate::agents::{self, remote, retention};

/// Maximum records per page of a transcript.
const RECORDS_MAX: u32 = 200;
/// As many agents that have ended as are listed.
pub const ENDED_PAGE: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<ListAgents, _, _>(list)
        .serve::<DraftAgent, _, _>(draft)
        .serve::<AdoptAgent, _, _>(adopt)
        .serve::<ShowAgent, _, _>(show)
        .serve::<ResumeAgent, _, _>(resume)
        .serve::<ReadTranscript, _, _>(transcript)
}

fn shown(api: &Api, state: &State, agent: &Agent) -> api_agents::Agent {
    let waits = api.queue.waits_for(state, agent);
    let can_load = || state.behaviour(agent).is_some_and(|role| loads_sessions(api, role));
    api_agents::Agent {
        id: agent.id.to_string(),
        role: agent.role.to_string(),
        dossier: agent.draft.dossier.to_string(),
        phase: shapes::phase(agent.phase),
        parent: agent.draft.parent.as_ref().map(ToString::to_string),
        drafted_by: agent.drafted_by.to_string(),
        drafted_at: agent.drafted_at.0,
        started_at: agent.started_at.map(|at| at.0),
        ended_at: agent.ended_at.map(|at| at.0),
        directory: agent.draft.directory.to_string(),
        incarnation: agent.incarnation,
        session: shapes::text(agent.session.as_ref()),
        isolation: agent.isolation.map(shapes::isolation),
        can_resume: agent.session.is_some() && can_load(),
        turns: agent.n_turns,
        below: agent.n_below,
        limits: limits(agent),
        used: shapes::spent(&agent.used),
        spent: shapes::spent(&agent.spent),
        parked_until: agent.parked.as_ref().map(|parked| parked.until.0),
        outcome: agent.outcome.as_ref().map(shapes::outcome),
        duration_ms: agent.duration_ms(),
        waits_for: waits.as_ref().map(ToString::to_string),
        waits_until: waits.and_then(|waits| waits.until()).map(|at| at.0),
    }
}

/// Says whether the program of a role can go on with a session in a new process.
fn loads_sessions(api: &Api, role: &Role) -> bool {
    let configuration = api.configured.current();
    let program = configuration.settings.programs.find(&role.program);
    program.map_or(true, |known| known.program.load_session)
}

/// One that lasts has no end of turns or time, which is a number only for the core.
fn limits(agent: &Agent) -> Limits {
    let limits = agent.draft.limits;
    let ends = !agent.lasts();
    Limits {
        depth: limits.depth,
        children: limits.children,
        total: limits.total,
        turns: ends.then_some(limits.turns),
        wall_ms: ends.then_some(limits.wall_ms),
        microdollars: limits.microdollars,
        tokens: limits.tokens,
    }
}

/// Lists those under way, then those queued, then the newest of those that sleep, then the newest of those that have ended.
async fn list(ApiRequest { by, query, .. }: ApiRequest<ListAgents>) -> Answered<ListAgents> {
    let api = &by.api;
    let state = api.hub.state();
    let live = state.agents.active().chain(state.agents.adopted()).chain(state.agents.queued());
    let talking = state.conversations.iter().rev();
    let lasting = talking.filter_map(|one| state.agents.get(one.agent.as_str()));
    let asleep = lasting.filter(|agent| agent.phase == agent::Phase::Asleep).take(ENDED_PAGE);
    let all = live.chain(asleep).chain(state.agents.ended().take(ENDED_PAGE));
    let which = (query.limit, query.cursor.as_deref());
    page(state.seq(), all, |agent| agent.id.to_string(), |agent| shown(api, &state, agent), which)
}

async fn draft(ApiRequest { by, body, .. }: ApiRequest<DraftAgent>) -> Answered<DraftAgent> {
    let api = &by.api;
    let Draft { role, prompt, dossier, directory, limits } = body;
    let default_directory = api.hub.directory();
    let limits = AskedLimits {
        turns: limits.turns,
        wall_ms: limits.wall_ms,
        microdollars: limits.microdollars,
        tokens: limits.tokens,
    };
    let new = NewAgent { role, prompt, dossier, directory, default_directory, limits };
    let done = by.submit(Command::Agent(agent::Command::Draft(new))).await?;
    let drafted = done.events.iter().find_map(|event| match event {
        Event::Agent(agent::Event::Drafted { id, .. }) => done.state.agents.get(id.as_str()),
        _ => None,
    });
    let drafted = drafted.ok_or_else(|| internal("the draft left no trace"))?;
    // A person wants it tried.
    api.queue.forgive(&done.state, drafted);
    let mut agent = shown(api, &done.state, drafted);
    let found = api.standing.now();
    let is_remote = remote::of(&done.state, drafted).is_some();
    agent.isolation = match is_remote {
        true => Some(api_agents::Isolation::Remote),
        // As the next one is started; how it really was is known when it works.
        false => found.as_ref().map(|found| shapes::isolation_here(found.isolation)),
    };
    let configuration = api.configured.current();
    let role = done.state.roles.get(drafted.role.as_str());
    let doubt = role.and_then(|role| agents::doubt(&configuration.settings.programs, role));
    let refused = found.and_then(|found| found.refused()).filter(|_| !is_remote);
    if refused.is_some() {
        agent.isolation = None;
    }
    let refused = refused.map(|why| format!("this agent cannot start: {why}"));
    Ok(DraftedAgent { agent, warning: refused.or(doubt) })
}

async fn adopt(ApiRequest { by, body, .. }: ApiRequest<AdoptAgent>) -> Answered<AdoptAgent> {
    let api = &by.api;
    let Adopt { role, directory, session, dossier } = body;
    let state = api.hub.state();
    if let Some(known) = state.roles.get(&role).filter(|known| !loads_sessions(api, known)) {
        let says = format!(
            "{} cannot resume a session in a new process, so the hub could not continue it; draft a new agent instead",
            known.program
        );
        return Err(ApiError::new(Code::Refused, says));
    }
    let secret = crate::secret::new_secret();
    let hash = crate::secret::hash(&secret);
    let is_repeated = by.is_repeated();
    let adoption = Adoption { role, directory, session, dossier, secret: hash };
    let done = by.submit(Command::Agent(agent::Command::Adopt(adoption))).await?;
    let adopted = done.events.iter().find_map(|event| match event {
        Event::Agent(agent::Event::Adopted { id, .. }) => done.state.agents.get(id.as_str()),
        _ => None,
    });
    let adopted = adopted.ok_or_else(|| internal("the adoption left no trace"))?;
    if is_repeated {
        // Only the hash of a secret is kept, so nobody can say it again.
        let id = &adopted.id;
        let says =
            format!("{id} is adopted, and the secret of its token was only in the first answer");
        return Err(ApiError::new(Code::Gone, says)
            .with_hint(format!("end it with `teamster kill {id}` and adopt the session again")));
    }
    Ok(AdoptedAgent { agent: shown(api, &done.state, adopted), secret })
}

async fn resume(
    ApiRequest { by, param: which, body, .. }: ApiRequest<ResumeAgent>,
) -> Answered<ResumeAgent> {
    let api = &by.api;
    let state = api.hub.state();
    let queued = state.agents.get(&which);
    let was_held = queued.is_some_and(|agent| api.queue.forgive(&state, agent));
    let has_prompt = body.prompt.is_some();
    let command = agent::Command::Resume { which: which.clone(), prompt: body.prompt };
    let state = match by.submit(Command::Agent(command)).await {
        Ok(done) => done.state,
        // It waited for nothing but its program.
        Err(error) if error.code == Code::Refused && was_held && !has_prompt => state,
        Err(error) => return Err(error),
    };
    Ok(state.agents.get(&which).map(|agent| shown(api, &state, agent)))
}

fn find(api: &Api, id: &str) -> Result<Arc<Agent>, ApiError> {
    let found = api.hub.state().agents.get(id).cloned();
    found.ok_or_else(|| {
        let id: String = id.chars().take(80).collect();
        let message = format!("there is no agent {id:?}; `teamster agents` shows those there are");
        ApiError::new(Code::NotFound, message)
    })
}

async fn show(ApiRequest { by, param: id, .. }: ApiRequest<ShowAgent>) -> Answered<ShowAgent> {
    let api = &by.api;
    let agent = find(api, &id)?;
    let state = api.hub.state();
    Ok(AgentDetails {
        agent: shown(api, &state, &agent),
        prompt: agent.draft.prompt.to_string(),
        remote: remote::of(&state, &agent).map(|remote| remote.to_string()),
        calls: api.telemetry.calls_of(&agent.id),
    })
}

async fn transcript(
    ApiRequest { by, param: id, query, .. }: ApiRequest<ReadTranscript>,
) -> Answered<ReadTranscript> {
    let api = &by.api;
    let limit = match query.limit.unwrap_or(RECORDS_MAX) {
        limit @ 1..=RECORDS_MAX => limit as usize,
        _ => return Err(invalid(format!("`limit` is a number from 1 to {RECORDS_MAX}"))),
    };
    let mut after = query.after;
    let agent = find(api, &id)?;
    let transcript = retention::transcript_of(&id).map_err(invalid)?;
    if let Some(since_ms) = query.since_ms {
        let last = retention::last_before(&*api.log, &transcript, since_ms).await;
        after = after.max(last.map_err(internal)?);
    }
    let read = || api.log.transcripts().read(&transcript, after, limit);
    let mut records = read().await.map_err(internal)?;
    if records.is_empty() && query.wait_ms > 0 && agent.is_live() {
        let watch = api.hub.watch(&Topic::Agent(agent.id.clone()));
        let ended = watch.until(&api.hub, |state| {
            let now = state.agents.get(agent.id.as_str());
            // A queued one that starts has a transcript to wait for from then on.
            (now.map(|now| now.phase) != Some(agent.phase)).then_some(())
        });
        let grown = async {
            if agent.phase == agent::Phase::Queued {
                std::future::pending::<()>().await;
            }
            api.live.more(&agent.id, after).await;
        };
        wait_for(api, query.wait_ms, select(pin!(grown), pin!(ended))).await;
        records = read().await.map_err(internal)?;
    }
    let last = records.last().map_or(after, |record| record.number);
    let live = find(api, &id)?.is_live();
    let records =
        records.iter().map(|record| serde_json::from_slice(&record.bytes).unwrap_or(Value::Null));
    let records = records.collect();
    let extent = api.log.transcripts().extent(&transcript).await.map_err(internal)?;
    Ok(Transcript { records, last, live, forgotten: extent.forgotten })
}
