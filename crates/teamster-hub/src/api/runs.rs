//! Runs for people's programs: worked off, watched, and steered.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::agent::{Agent, Phase as AgentPhase};
use teamster_core::drive::{self, Drive, Next, Phase, WantedAgents};
use teamster_core::ids::NoteId;
use teamster_core::item::{self, Priority, Status};
use teamster_core::note::{self, NewNote};
use teamster_core::run::{self, Run};
use teamster_core::spending::Spent;
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, RunName};
use teamster_mcp::Hub as _;

use super::waiting::wait_for;
use super::{Answer, Api, Given, InPath, Problem, submit};
use crate::work::ForgetProblem;
use crate::{agents, system_programs};

/// As many items, notes and iterations as are shown of a run, the newest or most urgent.
const ITEMS_SHOWN: usize = 500;
const NOTES_SHOWN: usize = 100;
const ITERATIONS_SHOWN: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/runs", get(list).post(begin))
        .route("/api/runs/{name}", get(show))
        .route("/api/runs/{name}/steer", post(steer))
        .route("/api/runs/{name}/forget", post(forget))
        .route("/api/runs/{name}/items", post(edit_item))
        .route("/api/runs/{name}/notes", post(edit_note))
}

fn bad(says: impl Into<String>) -> Problem {
    Problem(StatusCode::UNPROCESSABLE_ENTITY, says.into())
}

fn name_of(given: &str) -> Result<RunName, Problem> {
    RunName::parse(given).map_err(|error| bad(error.to_string()))
}

/// Returns the name of a run that there is.
fn known(api: &Api, given: &str) -> Result<RunName, Problem> {
    let name = name_of(given)?;
    match api.hub.state().runs.has(&name) || name == RunName::default_run() {
        true => Ok(name),
        false => {
            let says = format!("there is no run {name}; `teamster runs` shows those there are");
            Err(Problem(StatusCode::NOT_FOUND, says))
        }
    }
}

/// How a run stands, in a word.
pub(super) fn phase(run: &Run) -> &'static str {
    match run.drive.as_ref().map(|drive| &drive.phase) {
        None if run.completed_at.is_some() => "complete",
        None => "open",
        Some(Phase::Working) => "working",
        Some(Phase::Paused) => "paused",
        Some(Phase::Stopping) => "stopping",
        Some(Phase::Over(why)) => why.as_str(),
    }
}

/// Returns the number of the iteration that a run is in, or was in last. Where the hub does not drive it, its workers begin
/// the next one by ending the last.
pub(super) fn iteration(run: &Run) -> Option<u32> {
    match &run.drive {
        Some(_) => run.iterations.newest(),
        None => Some(run.iterations.current()),
    }
}

/// Returns what a run has cost in all, with what is under way.
fn spent_now(state: &teamster_core::State, run: &Run) -> Option<Spent> {
    let mut sum = run.drive.as_ref()?.totals.spent;
    let agents = run.iterations.open().filter_map(|open| state.agents.get(open.agent.as_str()));
    agents.for_each(|agent| sum.add_all(&agent.spent));
    Some(sum)
}

/// Returns what each worker that has no iteration waits for.
fn waiting(state: &teamster_core::State, run: &Run) -> Vec<Value> {
    let Some(drive) = run.drive.as_ref().filter(|drive| !drive.is_over()) else { return vec![] };
    let why = |worker| match drive::next(run, &state.agents, worker) {
        Next::Wait => drive::held_up(run, &state.agents, worker).map(|why| why.to_string()),
        Next::Begin { .. } if drive.n_failures > 0 => {
            Some("waits a while after a failure".to_owned())
        }
        Next::Begin { .. } => Some("begins".to_owned()),
        Next::End(_) => Some("ends the run".to_owned()),
        Next::Await(_) | Next::Finish(_) | Next::Over => None,
    };
    let workers = 0..drive.terms.workers;
    workers.filter_map(|worker| Some(json!({"worker": worker, "why": why(worker)?}))).collect()
}

pub(super) fn line(state: &teamster_core::State, name: &RunName, run: &Run) -> Value {
    let counts =
        Status::ALL.map(|status| (status.as_str().to_owned(), json!(run.items.count(status))));
    let drive = run.drive.as_ref();
    let why = drive.and_then(|drive| match &drive.phase {
        Phase::Over(why) => Some(why.to_string()),
        Phase::Working | Phase::Paused | Phase::Stopping => None,
    });
    let totals = drive.map(|drive| &drive.totals);
    let resumed = drive.filter(|drive| drive.totals.n_resumes > 0);
    json!({
        "name": name.as_str(), "phase": phase(run), "why": why, "under_way": run.is_driven(),
        "items": serde_json::Map::from_iter(counts), "complete": run.completed_at.is_some(),
        "file": drive.map(|drive| &drive.terms.file), "directory": drive.map(|drive| &drive.terms.directory),
        "program": drive.map(|drive| &drive.terms.behaviour.program), "model": drive.map(|drive| &drive.terms.behaviour.model),
        "workers": drive.map(|drive| drive.terms.workers), "iterations": totals.map(|totals| totals.n_iterations),
        "iterations_max": drive.and_then(Drive::iterations_max), "next_iteration": run.iterations.current(), "iteration": iteration(run),
        "failed": totals.map(|totals| totals.n_failed), "commits": totals.map(|totals| totals.n_commits),
        "is_planned": drive.map(|drive| drive.is_planned), "begun_at": totals.map(|totals| totals.begun_at),
        "resumes": totals.map(|totals| totals.n_resumes), "resumed_at": resumed.map(|drive| drive.begun_at),
        "worked_ms": totals.map(|totals| totals.worked_ms),
        "since_resumed": resumed.map(|drive| json!({"iterations": drive.n_iterations, "spent": super::spent(&drive.spent)})),
        "spent": totals.map(|totals| super::spent(&totals.spent)),
        "spent_now": spent_now(state, run).map(|now| super::spent(&now)), "budget_microdollars": drive.and_then(Drive::budget),
        "queued_messages": drive.map(|drive| drive.messages.len()),
    })
}

/// All of a run that a view of it shows.
fn shown(api: &Api, state: &teamster_core::State, name: &RunName) -> Value {
    let run = state.runs.get(name);
    let mut view = line(state, name, run);
    let items = run.items.ranked_after(None).take(ITEMS_SHOWN).map(|item| {
        json!({
            "id": item.id.to_string(), "content": item.content, "status": item.status.as_str(),
            "priority": item.priority.number(), "iteration": item.iteration,
            "depends_on": item.depends_on.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "holder": item.holder.as_ref().map(|holder| &holder.principal),
            "branch": item.merge.as_ref().map(|merge| &merge.branch),
        })
    });
    view["item_list"] = items.collect();
    let notes: Vec<Value> = run
        .notes
        .after(NoteId(0), None)
        .map(|note| {
            json!({
                "id": note.id.to_string(), "type": note.kind.as_str(), "content": note.content,
                "iteration": note.iteration, "by": note.by, "at": note.at,
            })
        })
        .collect();
    view["notes"] = notes[notes.len().saturating_sub(NOTES_SHOWN)..].into();
    let open = run.iterations.open().map(|open| {
        let agent = state.agents.get(open.agent.as_str());
        let waits = agent.and_then(|agent| api.queue.waits_for(state, agent));
        json!({
            "number": open.number, "worker": open.worker, "agent": open.agent.as_str(), "plans": open.plans,
            "item": open.item.map(|item| item.to_string()), "begun_at": open.begun_at,
            "agent_phase": agent.map(|agent| agent.phase.as_str()), "spent": agent.map(|agent| super::spent(&agent.spent)),
            "waits_for": waits.as_ref().map(ToString::to_string), "waits_until": waits.and_then(|waits| waits.until()),
            "held_up": agent.and_then(|agent| held_up(api, state, agent)),
        })
    });
    view["open"] = open.collect();
    view["waiting"] = waiting(state, run).into();
    let ended = run.iterations.ended().rev().take(ITERATIONS_SHOWN).map(|ended| {
        let summary = run.iterations.summary(ended.open.number);
        json!({
            "number": ended.open.number, "worker": ended.open.worker, "agent": ended.open.agent.as_str(),
            "plans": ended.open.plans, "item": ended.open.item.map(|item| item.to_string()),
            "begun_at": ended.open.begun_at, "ended_at": ended.at, "commit": ended.end.commit,
            "failed": ended.end.failed, "spent": super::spent(&ended.end.spent), "summary": summary.map(|summary| &summary.text),
        })
    });
    view["ended"] = ended.collect();
    let messages = run.drive.as_ref().map(|drive| {
        drive
            .messages
            .iter()
            .map(|message| json!({"number": message.number, "text": message.text}))
            .collect::<Value>()
    });
    view["messages"] = messages.unwrap_or_default();
    let warnings = run.drive.as_ref().map(|drive| {
        let warning =
            |one: &drive::Warning| json!({"number": one.number, "says": one.says, "at": one.at});
        drive.warnings.iter().map(warning).collect::<Value>()
    });
    view["warnings"] = warnings.unwrap_or_default();
    view["seq"] = state.seq().into();
    view
}

/// All runs: those that are worked off, then those that were, both the newest first, then what people and agents only share.
pub(super) fn all(state: &teamster_core::State) -> Vec<Value> {
    let mut runs: Vec<_> = state.runs.iter().collect();
    let begun_at = |run: &Run| run.drive.as_ref().map(|drive| drive.begun_at);
    runs.sort_by_key(|(_, run)| std::cmp::Reverse((run.is_driven(), begun_at(run))));
    let shown = runs.into_iter().map(|(name, run)| {
        let mut line = line(state, name, run);
        let is_over = run.drive.is_some() && !run.is_driven();
        let last = run.iterations.ended().next_back().filter(|_| is_over);
        let last = last.filter(|ended| Some(ended.at) >= begun_at(run));
        line["ended_at"] = json!(last.map(|ended| ended.at));
        line
    });
    shown.collect()
}

async fn list(State(api): State<Api>) -> Json<Value> {
    Json(all(&api.hub.state()).into())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    /// The last event that the caller has seen the effect of.
    #[serde(default)]
    after: u64,
    /// How long to wait if the run has not changed since.
    #[serde(default)]
    wait_ms: u64,
}

async fn show(
    State(api): State<Api>,
    name: InPath,
    asked: Result<Query<ShowQuery>, QueryRejection>,
) -> Answer {
    let (Path(name), Query(ShowQuery { after, wait_ms })) = (name?, asked?);
    let name = known(&api, &name)?;
    if wait_ms > 0 {
        let seen = api.hub.state();
        // What happened before we began to wait is answered at once.
        if after >= seen.seq() {
            let run = api.hub.watch(&Topic::Run(name.clone()));
            let event = run.until(&api.hub, |state| (state.seq() > after).then_some(()));
            // What its agents use, how they are and what they ask is shown as well.
            let known = agents_of(&seen, &name);
            let is_new =
                |state: &teamster_core::State| (agents_of(state, &name) != known).then_some(());
            let agents = api.hub.watch(&Topic::Agents);
            let questions = api.hub.watch(&Topic::Questions);
            let changed = async {
                tokio::select! {
                    () = event => {}
                    () = agents.until(&api.hub, is_new) => {}
                    () = questions.until(&api.hub, is_new) => {}
                }
            };
            wait_for(&api, wait_ms, changed).await;
        }
    }
    // Noted before the view is made: from here on the log tells what changes it.
    let head = api.log.head().await?;
    let mut view = shown(&api, &api.hub.state(), &name);
    view["commit"] = head.number.into();
    Ok(Json(view))
}

/// Says what keeps an iteration's agent from going on, if something does.
fn held_up(api: &Api, state: &teamster_core::State, agent: &Arc<Agent>) -> Option<String> {
    if let Some(why) = super::stands::holds_up(state, api.hub.trees(), agent, true) {
        return Some(why);
    }
    api.queue.waits_for(state, agent).map(|waits| format!("waits: {waits}"))
}

/// Returns what is shown of the agents that are at work on a run.
fn agents_of(
    state: &teamster_core::State,
    name: &RunName,
) -> Vec<(AgentPhase, Spent, bool, usize)> {
    let open = state.runs.get(name).iterations.open();
    let agents = open.filter_map(|open| state.agents.get(open.agent.as_str()));
    let shown = agents.map(|agent| {
        let n_questions = state.questions.open_of(&agent.id).count();
        (agent.phase, agent.spent, agent.parked.is_some(), n_questions)
    });
    shown.collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    name: String,
    spec: String,
    file: String,
    directory: String,
    /// It goes on, on the terms that it had where no others are said. What was spent stays spent.
    #[serde(default)]
    resume: bool,
    program: Option<String>,
    model: Option<String>,
    role: Option<String>,
    iterations: Option<u32>,
    workers: Option<u32>,
    microdollars: Option<u64>,
    commits: Option<bool>,
    check: Option<Vec<String>>,
    template: Option<String>,
    plan_template: Option<String>,
    extra: Option<String>,
}

async fn begin(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    asked: Given<Begin>,
) -> Answer {
    let Json(asked) = asked?;
    let name = name_of(&asked.name)?;
    let directory = FilePath::new(&asked.directory);
    if !directory.is_absolute() || !directory.is_dir() {
        return Err(bad(format!("there is no directory {:?}", asked.directory)));
    }
    let wanted = WantedAgents { role: asked.role, program: asked.program, model: asked.model };
    let mut request = drive::Request {
        resumes: asked.resume,
        spec: asked.spec.into(),
        file: asked.file.into(),
        directory: asked.directory.as_str().into(),
        behaviour: None,
        iterations: asked.iterations,
        workers: asked.workers,
        microdollars: asked.microdollars,
        commits: asked.commits,
        check: asked.check.map(|words| words.into_iter().map(Into::into).collect()),
        template: asked.template.map(Into::into),
        plan_template: asked.plan_template.map(Into::into),
        extra: asked.extra.map(Into::into),
        repository: None,
    };
    request.check_texts().map_err(|refusal| bad(refusal.to_string()))?;
    if let Some(program) = request.check.as_deref().and_then(<[_]>::first) {
        can_check(&api, program, directory)?;
    }
    let state = api.hub.state();
    let run = state.runs.get(&name);
    let commits = request.commits(run);
    if commits {
        let found = crate::work::repository(api.hub.held(), directory).await.map_err(bad)?;
        request.repository = found;
    }
    let before = request.before(run);
    if before.is_none() || !wanted.is_empty() {
        let wanted = wanted.or_as_before(before.map(|terms| &*terms.behaviour));
        let behaviour = agents::worker(&api.configured, &wanted).map_err(bad)?;
        request.behaviour = Some(Arc::new(behaviour));
    }
    let spec_changed = before.is_some_and(|terms| terms.spec != request.spec).then(|| {
        format!(
            "warning: {} has changed since the run began; agents get the new text as yours",
            request.file
        )
    });
    let is_uncommitted = commits && request.repository.is_none();
    // From here on the log tells how it goes.
    let head = api.log.head().await?;
    let what = run::Command::Drive(drive::Command::Begin(request));
    let done = submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    // A person wants it tried, however it failed before.
    if let Some(drive) = &done.state.runs.get(&name).drive {
        api.queue.forgive_program(&drive.terms.behaviour.program);
    }
    let mut view = shown(&api, &done.state, &name);
    if is_uncommitted {
        let says = "{} is in no git repository, so nothing is committed";
        view["uncommitted"] = says.replace("{}", &asked.directory).into();
    }
    view["spec_changed"] = spec_changed.into();
    view["commit"] = head.number.into();
    Ok(Json(view))
}

/// Refuses a check whose program is not there.
fn can_check(api: &Api, program: &str, directory: &FilePath) -> Result<(), Problem> {
    let found = match program.contains('/') {
        true => directory.join(program).is_file(),
        false => system_programs::on_path(program, api.configured.search_path()).is_some(),
    };
    match found {
        true => Ok(()),
        false => Err(bad(format!(
            "the check's program {program:?} is not on the PATH of the hub; install it, or name it with its path"
        ))),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "do")]
enum Steer {
    Tell { text: String },
    Pause,
    GoOn,
    Stop { now: bool },
}

async fn steer(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    name: InPath,
    asked: Given<Steer>,
) -> Answer {
    let (Path(name), Json(asked)) = (name?, asked?);
    let name = known(&api, &name)?;
    let command = match asked {
        Steer::Tell { text } => drive::Command::Tell { text },
        Steer::Pause => drive::Command::Pause,
        Steer::GoOn => drive::Command::GoOn,
        Steer::Stop { now } => drive::Command::Stop { now },
    };
    let what = run::Command::Drive(command);
    let done = submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    Ok(Json(line(&done.state, &name, done.state.runs.get(&name))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    /// Also work that is not merged.
    #[serde(default)]
    force: bool,
}

/// Removes a run with what it left in its repository. First there, so that a call that was cut short can be repeated.
async fn forget(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    name: InPath,
    asked: Given<Forget>,
) -> Answer {
    let (Path(name), Json(Forget { force })) = (name?, asked?);
    let name = name_of(&name)?;
    let state = api.hub.state();
    if !state.runs.has(&name) {
        return Ok(Json(json!({"name": name, "forgotten": false})));
    }
    // Before anything of it is removed.
    let allowed = state.runs.may_forget(&name, &Caller::of(&token));
    allowed.map_err(|refusal| Problem(StatusCode::CONFLICT, refusal.to_string()))?;
    let (run, data) = (state.runs.get(&name), api.configured.data());
    let removed = crate::work::forget(api.hub.held(), data, &name, run, force).await;
    let removed = removed.map_err(|problem| {
        let code = match problem {
            ForgetProblem::Unmerged { .. } => StatusCode::CONFLICT,
            ForgetProblem::Git(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Problem(code, problem.to_string())
    })?;
    submit(&api, &token, Command::Run { run: name.clone(), what: run::Command::Forget }).await?;
    Ok(Json(json!({"name": name, "forgotten": true, "removed": removed})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditItem {
    /// Which one; without it, a new one.
    item: Option<String>,
    content: Option<String>,
    status: Option<String>,
    priority: Option<i64>,
    depends_on: Option<String>,
    /// A yak to make an item of.
    yak: Option<String>,
}

async fn edit_item(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    name: InPath,
    asked: Given<EditItem>,
) -> Answer {
    let (Path(name), Json(asked)) = (name?, asked?);
    let name = known(&api, &name)?;
    let status = asked.status.as_deref().map(Status::parse).transpose();
    let status = status.map_err(|refusal| bad(refusal.to_string()))?;
    let priority = asked.priority.map(Priority::new).transpose();
    let priority = priority.map_err(|refusal| bad(refusal.to_string()))?;
    if let Some(yak) = asked.yak {
        let what = run::Command::Item(item::Command::AddYak { yak });
        submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
        return Ok(Json(shown(&api, &api.hub.state(), &name)));
    }
    if asked.item.is_none() && asked.content.is_none() {
        return Err(bad("say what is to be done with --content, or name the item to change"));
    }
    let (item, content, depends_on) = (asked.item, asked.content, asked.depends_on);
    let edit = item::Command::Edit { item, content, status, priority, depends_on };
    let what = run::Command::Item(edit);
    submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    Ok(Json(shown(&api, &api.hub.state(), &name)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditNote {
    /// Which one; without it, a new one.
    note: Option<String>,
    content: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    remove: bool,
}

async fn edit_note(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    name: InPath,
    asked: Given<EditNote>,
) -> Answer {
    let (Path(name), Json(asked)) = (name?, asked?);
    let name = known(&api, &name)?;
    let note = asked.note.as_deref().map(|given| {
        NoteId::parse(given).ok_or_else(|| bad("that is no note's id; they look like NOT-3"))
    });
    let kind = asked.kind.as_deref().map(note::Kind::parse).transpose();
    let kind = kind.map_err(|refusal| bad(refusal.to_string()))?;
    let command = match (note.transpose()?, asked.content, asked.remove) {
        (Some(note), _, true) => note::Command::Remove { note },
        (Some(note), content, false) if content.is_some() || kind.is_some() => {
            note::Command::Edit { note, content, kind }
        }
        (None, Some(content), false) => {
            let kind = kind.unwrap_or(note::Kind::Tip);
            note::Command::Add(vec![NewNote { content, kind }])
        }
        (Some(_), _, false) | (None, _, _) => {
            return Err(bad("say what it says with --content, or name a note to change or remove"));
        }
    };
    let what = run::Command::Note(command);
    submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    Ok(Json(shown(&api, &api.hub.state(), &name)))
}
