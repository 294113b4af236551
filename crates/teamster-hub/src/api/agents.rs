//! Agents for people's programs: drafted, listed, shown, and followed.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use futures_util::future::select;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::agent::{self, Adoption, Agent, AskedLimits, NewAgent};
use teamster_core::role::Role;
use teamster_core::token::Token;
use teamster_core::{Command, Event};
use teamster_mcp::Hub as _;

use crate::agents::{self, retention};

use super::waiting::wait_for;
use super::{Answer, Api, Given, InPath, Problem, submit};
use crate::agents::remote;

/// As many records as one page of a transcript has.
const RECORDS_PAGE: usize = 200;
/// As many agents that have ended as are listed.
pub const ENDED_PAGE: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/agents", get(list).post(draft))
        .route("/api/agents/adopt", post(adopt))
        .route("/api/agents/{id}", get(show))
        .route("/api/agents/{id}/resume", post(resume))
        .route("/api/agents/{id}/transcript", get(transcript))
}

fn shown(api: &Api, state: &teamster_core::State, agent: &Agent) -> Value {
    let waits = api.queue.waits_for(state, agent);
    json!({
        "id": agent.id.as_str(), "role": agent.role.as_str(), "dossier": agent.draft.dossier.as_str(),
        "phase": agent.phase.as_str(), "parent": agent.draft.parent, "drafted_by": agent.drafted_by,
        "drafted_at": agent.drafted_at, "started_at": agent.started_at, "ended_at": agent.ended_at,
        "directory": agent.draft.directory, "incarnation": agent.incarnation, "session": agent.session,
        "isolation": agent.isolation,
        "can_resume": agent.session.is_some() && state.behaviour(agent).is_some_and(|role| loads_sessions(api, role)),
        "turns": agent.n_turns, "below": agent.n_below, "limits": limits(agent), "used": super::spent(&agent.used),
        "spent": super::spent(&agent.spent), "parked_until": agent.parked.as_ref().map(|parked| parked.until),
        "outcome": agent.outcome, "duration_ms": agent.duration_ms(),
        "waits_for": waits.as_ref().map(ToString::to_string), "waits_until": waits.and_then(|waits| waits.until()),
    })
}

/// Says whether the program of a role can go on with a session in a new process.
fn loads_sessions(api: &Api, role: &Role) -> bool {
    let configuration = api.configured.current();
    let program = configuration.settings.programs.find(&role.program);
    program.map_or(true, |known| known.program.load_session)
}

/// One that lasts has no end of turns or time, which is a number only for the core.
fn limits(agent: &Agent) -> Value {
    let mut limits = json!(agent.draft.limits);
    if agent.lasts() {
        (limits["turns"], limits["wall_ms"]) = (Value::Null, Value::Null);
    }
    limits
}

/// Those under way, then those queued, then the newest of those that sleep, then the newest of those that have ended.
async fn list(State(api): State<Api>) -> Json<Value> {
    let state = api.hub.state();
    let live = state.agents.active().chain(state.agents.adopted()).chain(state.agents.queued());
    let talking = state.conversations.iter().rev();
    let lasting = talking.filter_map(|one| state.agents.get(one.agent.as_str()));
    let asleep = lasting.filter(|agent| agent.phase == agent::Phase::Asleep).take(ENDED_PAGE);
    let all = live.chain(asleep).chain(state.agents.ended().take(ENDED_PAGE));
    Json(all.map(|agent| shown(&api, &state, agent)).collect())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    role: String,
    prompt: String,
    dossier: Option<String>,
    directory: Option<String>,
    #[serde(default)]
    limits: AskedLimits,
}

async fn draft(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    asked: Given<Draft>,
) -> Answer {
    let Json(Draft { role, prompt, dossier, directory, limits }) = asked?;
    let default_directory = api.hub.directory();
    let new = NewAgent { role, prompt, dossier, directory, default_directory, limits };
    let done = submit(&api, &token, Command::Agent(agent::Command::Draft(new))).await?;
    let drafted = done.events.iter().find_map(|event| match event {
        Event::Agent(agent::Event::Drafted { id, .. }) => done.state.agents.get(id.as_str()),
        _ => None,
    });
    let drafted = drafted.ok_or_else(|| {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, "the draft left no trace".into())
    })?;
    // A person wants it tried.
    api.queue.forgive(&done.state, drafted);
    let mut answer = shown(&api, &done.state, drafted);
    let is_remote = remote::of(&done.state, drafted).is_some();
    answer["isolation"] = match is_remote {
        true => json!(agent::Isolation::Remote),
        // As the next one is started; how it really was is known when it works.
        false => api.standing.now().map(|found| found.isolation.name()).into(),
    };
    let configuration = api.configured.current();
    let role = done.state.roles.get(drafted.role.as_str());
    let doubt = role.and_then(|role| agents::doubt(&configuration.settings.programs, role));
    let refused = api.standing.now().and_then(|found| found.refused()).filter(|_| !is_remote);
    if let Some(why) = &refused {
        answer["isolation"] = Value::Null;
        answer["warning"] = format!("this agent cannot start: {why}").into();
    } else if let Some(says) = doubt {
        answer["warning"] = says.into();
    }
    Ok(Json(answer))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Adopt {
    role: String,
    directory: String,
    session: Option<String>,
    dossier: Option<String>,
}

async fn adopt(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    asked: Given<Adopt>,
) -> Answer {
    let Json(Adopt { role, directory, session, dossier }) = asked?;
    let state = api.hub.state();
    if let Some(known) = state.roles.get(&role).filter(|known| !loads_sessions(&api, known)) {
        let says = format!(
            "{} cannot resume a session in a new process, so the hub could not continue it; draft a new agent instead",
            known.program
        );
        return Err(Problem(StatusCode::CONFLICT, says));
    }
    let secret = crate::secret::new_secret();
    let hash = crate::secret::hash(&secret);
    let adoption = Adoption { role, directory, session, dossier, secret: hash };
    let done = submit(&api, &token, Command::Agent(agent::Command::Adopt(adoption))).await?;
    let adopted = done.events.iter().find_map(|event| match event {
        Event::Agent(agent::Event::Adopted { id, .. }) => done.state.agents.get(id.as_str()),
        _ => None,
    });
    let adopted = adopted.ok_or_else(|| {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, "the adoption left no trace".into())
    })?;
    Ok(Json(json!({"agent": shown(&api, &done.state, adopted), "secret": secret})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeAgent {
    prompt: Option<String>,
}

async fn resume(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    id: InPath,
    asked: Given<ResumeAgent>,
) -> Answer {
    let (Path(which), Json(ResumeAgent { prompt })) = (id?, asked?);
    let state = api.hub.state();
    let queued = state.agents.get(&which);
    let was_held = queued.is_some_and(|agent| api.queue.forgive(&state, agent));
    let has_prompt = prompt.is_some();
    let command = agent::Command::Resume { which: which.clone(), prompt };
    let state = match submit(&api, &token, Command::Agent(command)).await {
        Ok(done) => done.state,
        // It waited for nothing but its program.
        Err(Problem(StatusCode::CONFLICT, _)) if was_held && !has_prompt => state,
        Err(problem) => return Err(problem),
    };
    let agent = state.agents.get(&which);
    Ok(Json(agent.map(|agent| shown(&api, &state, agent)).unwrap_or_default()))
}

fn find(api: &Api, id: &str) -> Result<Arc<Agent>, Problem> {
    let found = api.hub.state().agents.get(id).cloned();
    found.ok_or_else(|| {
        let id: String = id.chars().take(80).collect();
        let message = format!("there is no agent {id:?}; `teamster agents` shows those there are");
        Problem(StatusCode::NOT_FOUND, message)
    })
}

async fn show(State(api): State<Api>, id: InPath) -> Answer {
    let Path(id) = id?;
    let agent = find(&api, &id)?;
    let mut answer = shown(&api, &api.hub.state(), &agent);
    answer["prompt"] = (&*agent.draft.prompt).into();
    answer["remote"] = json!(remote::of(&api.hub.state(), &agent));
    answer["calls"] = api.telemetry.calls_of(&agent.id);
    Ok(Json(answer))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TranscriptQuery {
    /// The last record the caller has.
    #[serde(default)]
    after: u64,
    /// How long to wait if there is nothing after it and the agent is under way.
    #[serde(default)]
    wait_ms: u64,
    /// Leaves out what is from before this time, in milliseconds since 1970.
    since_ms: Option<i64>,
}

async fn transcript(
    State(api): State<Api>,
    id: InPath,
    asked: Result<Query<TranscriptQuery>, QueryRejection>,
) -> Answer {
    let (Path(id), Query(TranscriptQuery { mut after, wait_ms, since_ms })) = (id?, asked?);
    let agent = find(&api, &id)?;
    let conversation =
        retention::transcript_of(&id).map_err(|error| super::bad(error.to_string()))?;
    if let Some(since_ms) = since_ms {
        after = after.max(retention::last_before(&*api.log, &conversation, since_ms).await?);
    }
    let read = || api.log.transcripts().read(&conversation, after, RECORDS_PAGE);
    let mut records = read().await?;
    if records.is_empty() && wait_ms > 0 && agent.is_live() {
        let topic = teamster_core::topic::Topic::Agent(agent.id.clone());
        let watch = api.hub.watch(&topic);
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
        wait_for(&api, wait_ms, select(pin!(grown), pin!(ended))).await;
        records = read().await?;
    }
    let last = records.last().map_or(after, |record| record.number);
    let live = find(&api, &id)?.is_live();
    let records: Vec<Value> = records
        .iter()
        .map(|record| serde_json::from_slice(&record.bytes).unwrap_or(Value::Null))
        .collect();
    let forgotten = api.log.transcripts().extent(&conversation).await?.forgotten;
    Ok(Json(json!({"records": records, "last": last, "live": live, "forgotten": forgotten})))
}
