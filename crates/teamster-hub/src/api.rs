//! What people's programs ask of the hub beside the tools: tokens, the log, how things stand. Operators only, but for the
//! metrics, which a token can be granted.

mod agents;
pub mod backlog;
mod configuration;
mod conversations;
mod questions;
mod runs;
mod serving;
mod stands;
pub mod teams;
mod tells;
mod tokens;
mod top;
mod waiting;

pub use self::agents::ENDED_PAGE;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use teamster_api::{ApiError, Code, ErrorBody};
use teamster_core::agent::Phase;
use teamster_core::grant::Grant;
use teamster_core::record::Body;
use teamster_core::spending::Spent;
use teamster_core::token::{Kind, Token};
use teamster_core::topic::Topic;
use teamster_core::yak::Yak;
use teamster_core::{Caller, Command, PrincipalName, RunName, TeamName, Timestamp, item, yak};
use teamster_log::Log;
use teamster_mcp::door::http::{problem, wrong_method};
use teamster_mcp::hub::{Done, Failure};
use tokio::sync::watch;

use self::waiting::wait_for_event;
use crate::agents::{Configured, Live, Queue};
use crate::clock::Clock;
use crate::hub::Handle;
use crate::isolation::{Found, Standing};
use crate::telemetry::{self, Telemetry};

/// What the routes need.
#[derive(Clone)]
pub struct Api {
    pub hub: Handle,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// Set to true to end the hub.
    pub stop: watch::Sender<bool>,
    /// Which agents' transcripts grow.
    pub live: Live,
    /// What agents wait for.
    pub queue: Queue,
    pub telemetry: Arc<Telemetry>,
    pub configured: Arc<Configured>,
    /// How agents are isolated.
    pub standing: Standing,
}

/// As many things as are told that queued agents wait for.
const WAITS_SHOWN: usize = 10;
/// How long it may take to find out how agents are isolated: two launches, on a machine at many times its load.
const ISOLATION_PATIENCE: Duration = Duration::from_secs(60);
/// As many commits as one page of the log has.
const LOG_PAGE: usize = 500;

pub fn router(api: Api) -> Router {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/isolation", get(isolation))
        .route("/api/log", get(log))
        .route("/api/yaks", get(yaks))
        .route("/api/yaks/{id}/labels", post(label_yak))
        .route("/api/stop", post(stop))
        .merge(agents::routes())
        .merge(backlog::routes())
        .merge(configuration::routes())
        .merge(questions::routes())
        .merge(runs::routes())
        .merge(teams::routes())
        .merge(conversations::routes())
        .merge(tells::routes())
        .merge(tokens::routes())
        .merge(top::routes())
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn(operators_only))
        .merge(metrics_route())
        .with_state(api)
}

async fn operators_only(
    Extension(token): Extension<Arc<Token>>,
    request: Request,
    next: Next,
) -> Response {
    match token.kind {
        Kind::Operator => next.run(request).await,
        Kind::Agent | Kind::Hub => {
            serving::problem(ApiError::new(Code::Forbidden, "only an operator may do this"))
        }
    }
}

async fn no_such_method(method: Method) -> Response {
    let says = format!("this path does not answer {method}; the Allow header says what it does");
    serving::problem(ApiError::new(Code::MethodNotAllowed, says))
}

/// Returns the route that Prometheus reads.
fn metrics_route() -> Router<Api> {
    Router::new().route("/metrics", get(metrics)).method_not_allowed_fallback(wrong_method)
}

/// It tells names of agents and roles, so not every agent may read it.
async fn metrics(State(api): State<Api>, Extension(token): Extension<Arc<Token>>) -> Response {
    let may = match token.kind {
        Kind::Operator => true,
        Kind::Agent | Kind::Hub => token.grants.has(&Grant::Metrics),
    };
    if !may {
        let message = "reading the metrics needs the grant `metrics`, or the operator's token";
        return problem(StatusCode::FORBIDDEN, message);
    }
    let kind = [(header::CONTENT_TYPE, telemetry::metrics::CONTENT_TYPE)];
    (kind, api.telemetry.metrics()).into_response()
}

/// Why a request was not carried out.
struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, says) = self;
        let code = Code::of_status(status.as_u16());
        (status, Json(ErrorBody { error: ApiError::new(code, says) })).into_response()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure {
            Failure::Refused(_) => StatusCode::CONFLICT,
            Failure::Unavailable(_) | Failure::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, failure.to_string())
    }
}

impl From<teamster_log::Error> for Problem {
    fn from(error: teamster_log::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<JsonRejection> for Problem {
    fn from(wrong: JsonRejection) -> Self {
        Self(wrong.status(), wrong.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(wrong: PathRejection) -> Self {
        Self(wrong.status(), wrong.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(wrong: QueryRejection) -> Self {
        Self(wrong.status(), wrong.body_text())
    }
}

fn bad(message: impl ToString) -> Problem {
    Problem(StatusCode::BAD_REQUEST, message.to_string())
}

type Answer = Result<Json<Value>, Problem>;

/// What a request brings, or what is wrong with it; its handler says that as [`Problem`]s are said.
type Given<T> = Result<Json<T>, JsonRejection>;
type InPath = Result<Path<String>, PathRejection>;

async fn submit(api: &Api, token: &Token, command: Command) -> Result<Done, Problem> {
    Ok(api.hub.submit(Caller::of(token), command, None).await?)
}

async fn status(State(api): State<Api>) -> Json<Value> {
    let state = api.hub.state();
    let runs = state.runs.iter().map(|(name, run)| {
        let counts = item::Status::ALL
            .map(|status| (status.as_str().to_owned(), json!(run.items.count(status))));
        json!({
            "name": name, "items": serde_json::Map::from_iter(counts), "notes": run.notes.len(),
            "iteration": runs::iteration(run), "complete": run.completed_at.is_some(),
            "phase": runs::phase(run), "under_way": run.is_driven(),
        })
    });
    let yaks = yak::Status::ALL
        .map(|status| (status.as_str().to_owned(), json!(state.yaks.count(status))));
    let parked = state.agents.queued().filter(|agent| agent.parked.is_some());
    let is_awake = |team: &TeamName| {
        let agents = state.conversations.with(team).map(|talk| talk.agent.as_str());
        let mut agents = agents.filter_map(|agent| state.agents.get(agent));
        agents.any(|agent| !matches!(agent.phase, Phase::Asleep | Phase::Ended))
    };
    let n_awake = state.teams.iter().filter(|team| is_awake(&team.name)).count();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(), "events": state.seq(), "since": state.hub.last_at, "starts": state.hub.n_starts,
        "runs": runs.collect::<Vec<_>>(), "teams": {"known": state.teams.iter().count(), "awake": n_awake}, "yaks": serde_json::Map::from_iter(yaks), "tokens": state.tokens.live().count(),
        "agents": {
            "active": state.agents.active().count(), "queued": state.agents.queued().count(),
            "adopted": state.agents.adopted().count(), "parked": parked.count(),
            "wait_for": waits(&api, &state),
        },
        "questions": state.questions.n_open(), "used": spent(&used(&state)),
        "waiting": api.hub.n_waiting(), "stalled": api.hub.pulse().says(),
        "calls": api.telemetry.calls(),
        "isolation": api.standing.now().map(|found| found.isolation.name()),
        "agents_refused": api.standing.now().is_some_and(|found| found.refused().is_some()),
    }))
}

/// How agents are really isolated here, once that is known.
async fn isolation(State(api): State<Api>) -> Answer {
    let known = tokio::time::timeout(ISOLATION_PATIENCE, api.standing.known()).await;
    let unknown = || Problem(StatusCode::SERVICE_UNAVAILABLE, "it is not known yet".into());
    known.ok().flatten().as_ref().map(Found::to_json).map(Json).ok_or_else(unknown)
}

/// What queued agents wait for, each thing once.
fn waits(api: &Api, state: &teamster_core::State) -> Vec<String> {
    let all = state.agents.queued().filter_map(|agent| api.queue.waits_for(state, agent));
    let all: std::collections::BTreeSet<String> = all.map(|waits| waits.to_string()).collect();
    all.into_iter().take(WAITS_SHOWN).collect()
}

/// What the agents at hand have used, in all.
/// Shows what turns used: tokens that no program reported are null, not 0.
pub(crate) fn spent(spent: &Spent) -> Value {
    let mut shown = json!(spent);
    if !spent.is_reported() {
        for name in ["input", "output", "cached_read", "cached_write"] {
            shown[name] = Value::Null;
        }
    }
    shown
}

fn used(state: &teamster_core::State) -> Spent {
    let mut sum = Spent::default();
    state.agents.iter().for_each(|agent| sum.add_all(&agent.used));
    sum
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    /// The last commit the caller has.
    #[serde(default)]
    after: u64,
    /// How long to wait if there is nothing after it.
    #[serde(default)]
    wait_ms: u64,
}

/// One line of the log, as `teamster log --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub seq: u64,
    pub commit: u64,
    pub at: Timestamp,
    pub by: PrincipalName,
    pub summary: String,
    pub run: Option<RunName>,
    pub event: Value,
}

/// Returns the lines of one commit.
pub fn lines(
    commit: &teamster_log::Commit,
) -> Result<Vec<Line>, teamster_core::record::Unreadable> {
    let body = Body::decode(&commit.body)?;
    let mut seq = body.first;
    let mut lines = Vec::new();
    for record in body.records {
        for event in &record.events {
            let summary = event.summary();
            let event = serde_json::to_value(event)?;
            let (at, by) = (record.at, record.by.clone());
            lines.push(Line {
                seq,
                commit: commit.number,
                at,
                by,
                summary: summary.text,
                run: summary.run,
                event,
            });
            seq += 1;
        }
    }
    Ok(lines)
}

async fn log(State(api): State<Api>, asked: Result<Query<LogQuery>, QueryRejection>) -> Answer {
    let Query(LogQuery { after, wait_ms }) = asked?;
    // Noted before we read, so that what is written in between is not waited for as if it were still to come.
    let seq = api.hub.state().seq();
    let mut commits = api.log.read(after, LOG_PAGE).await?;
    if commits.is_empty() && wait_ms > 0 {
        wait_for_event(&api, wait_ms, &Topic::Log, seq).await;
        commits = api.log.read(after, LOG_PAGE).await?;
    }
    let unreadable = |error: teamster_core::record::Unreadable| {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    };
    let mut all = Vec::new();
    for commit in &commits {
        all.extend(lines(commit).map_err(unreadable)?);
    }
    let last = commits.last().map_or(after, |commit| commit.number);
    Ok(Json(json!({"lines": all, "last": last})))
}

async fn yaks(State(api): State<Api>) -> Json<Value> {
    let state = api.hub.state();
    let shown = |yak: &Arc<Yak>| {
        let tangled_by: Vec<_> = state.yaks.tangled_by(yak).collect();
        json!({
            "id": yak.id, "title": yak.title, "type": yak.kind.as_str(), "priority": yak.priority.number(),
            "status": yak.status.as_str(), "description": yak.description, "labels": yak.labels, "commit": yak.commit,
            "depends_on": yak.depends_on, "tangled_by": tangled_by, "created_by": yak.created_by,
            "created_at": yak.created_at, "updated_at": yak.updated_at,
        })
    };
    Json(state.yaks.ranked_after(None, None).map(shown).collect())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    #[serde(default)]
    add: Vec<String>,
    #[serde(default)]
    remove: Vec<String>,
}

async fn label_yak(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    id: InPath,
    labels: Given<Labels>,
) -> Answer {
    let (Path(id), Json(Labels { add, remove })) = (id?, labels?);
    submit(&api, &token, Command::Yak(yak::Command::Label { yak: id.clone(), add, remove }))
        .await?;
    Ok(Json(json!({"labelled": id})))
}

async fn stop(State(api): State<Api>) -> Json<Value> {
    let _ = api.stop.send(true);
    Json(json!({"stopping": std::process::id()}))
}
