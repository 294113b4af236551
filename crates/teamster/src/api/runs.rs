//! Runs for people's programs: worked off, watched, and steered.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::drive::{self, Phase, Terms};
use teamster_core::ids::NoteId;
use teamster_core::item::{self, NewItem, Priority, Status};
use teamster_core::note::{self, NewNote};
use teamster_core::run::{self, Run};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Command, RunName};
use teamster_mcp::hub::wait;

use super::{Answer, Api, Given, InPath, LOG_WAIT_MAX, Problem, submit};
use crate::agents;
use crate::held::Held;
use crate::work::hooks::{Hooks, Trust};

/// As many items, notes and iterations as are shown of a run, the newest or most urgent.
const ITEMS_SHOWN: usize = 500;
const NOTES_SHOWN: usize = 100;
const ITERATIONS_SHOWN: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/runs", get(list).post(begin))
        .route("/api/runs/{name}", get(show))
        .route("/api/runs/{name}/steer", post(steer))
        .route("/api/runs/{name}/items", post(edit_item))
        .route("/api/runs/{name}/notes", post(edit_note))
}

fn bad(says: impl Into<String>) -> Problem {
    Problem(StatusCode::UNPROCESSABLE_ENTITY, says.into())
}

fn name_of(given: &str) -> Result<RunName, Problem> {
    RunName::parse(given).map_err(|error| bad(error.to_string()))
}

/// How a run stands, in a word.
fn phase(run: &Run) -> &'static str {
    match run.drive.as_ref().map(|drive| &drive.phase) {
        None if run.completed_at.is_some() => "complete",
        None => "open",
        Some(Phase::Working) => "working",
        Some(Phase::Paused) => "paused",
        Some(Phase::Stopping) => "stopping",
        Some(Phase::Over(why)) => match why {
            drive::Why::Completed => "completed",
            drive::Why::IterationsUsed => "iterations-used",
            drive::Why::BudgetSpent => "budget-spent",
            drive::Why::Stopped => "stopped",
            drive::Why::Idle => "idle",
            drive::Why::Failed { .. } => "failed",
        },
    }
}

pub(super) fn line(name: &RunName, run: &Run) -> Value {
    let counts =
        Status::ALL.map(|status| (status.as_str().to_owned(), json!(run.items.count(status))));
    let drive = run.drive.as_ref();
    let why = drive.and_then(|drive| match &drive.phase {
        Phase::Over(why) => Some(why.to_string()),
        Phase::Working | Phase::Paused | Phase::Stopping => None,
    });
    json!({
        "name": name.as_str(), "phase": phase(run), "why": why, "under_way": run.is_driven(),
        "items": serde_json::Map::from_iter(counts), "complete": run.completed_at.is_some(),
        "file": drive.map(|drive| &drive.terms.file), "directory": drive.map(|drive| &drive.terms.directory),
        "program": drive.map(|drive| &drive.terms.behaviour.program), "model": drive.map(|drive| &drive.terms.behaviour.model),
        "workers": drive.map(|drive| drive.terms.workers), "iterations": drive.map(|drive| drive.n_iterations),
        "iterations_max": drive.and_then(|drive| drive.terms.iterations), "next_iteration": run.iterations.current(),
        "is_planned": drive.map(|drive| drive.is_planned), "begun_at": drive.map(|drive| drive.begun_at),
        "spent": drive.map(|drive| drive.spent), "budget_microdollars": drive.and_then(|drive| drive.terms.microdollars),
        "queued_messages": drive.map(|drive| drive.messages.len()),
    })
}

/// All of a run that a view of it shows.
fn shown(state: &teamster_core::State, name: &RunName) -> Value {
    let run = state.runs.get(name);
    let mut view = line(name, run);
    let items = run.items.ranked_after(None).take(ITEMS_SHOWN).map(|item| {
        json!({
            "id": item.id.to_string(), "content": item.content, "status": item.status.as_str(),
            "priority": item.priority.number(), "iteration": item.iteration,
            "depends_on": item.depends_on.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "holder": item.holder.as_ref().map(|holder| &holder.principal),
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
        json!({
            "number": open.number, "worker": open.worker, "agent": open.agent.as_str(), "plans": open.plans,
            "item": open.item.map(|item| item.to_string()), "begun_at": open.begun_at,
            "agent_phase": agent.map(|agent| agent.phase.as_str()), "spent": agent.map(|agent| agent.spent),
        })
    });
    view["open"] = open.collect();
    let ended = run.iterations.ended().rev().take(ITERATIONS_SHOWN).map(|ended| {
        let summary = run.iterations.summary(ended.open.number);
        json!({
            "number": ended.open.number, "worker": ended.open.worker, "agent": ended.open.agent.as_str(),
            "plans": ended.open.plans, "item": ended.open.item.map(|item| item.to_string()),
            "begun_at": ended.open.begun_at, "ended_at": ended.at, "commit": ended.end.commit,
            "failed": ended.end.failed, "spent": ended.end.spent, "summary": summary.map(|summary| &summary.text),
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
    view["seq"] = state.seq().into();
    view
}

async fn list(State(api): State<Api>) -> Json<Value> {
    let state = api.hub.state();
    Json(state.runs.iter().map(|(name, run)| line(name, run)).collect())
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
    let name = name_of(&name)?;
    if !api.hub.state().runs.iter().any(|(known, _)| *known == name) {
        let says = format!("there is no run {name}; `teamster runs` shows those there are");
        return Err(Problem(StatusCode::NOT_FOUND, says));
    }
    if wait_ms > 0 {
        let at_most = Duration::from_millis(wait_ms).min(LOG_WAIT_MAX);
        let seen = shown(&api.hub.state(), &name);
        // What happened before we began to wait is answered at once.
        if after >= seen["seq"].as_u64().unwrap_or_default() {
            let topic = Topic::Run(name.clone());
            let changed = wait(
                &api.hub,
                &topic,
                at_most,
                |_| (),
                |state| (state.seq() > after).then_some(()),
            );
            let mut stop = api.stop.subscribe();
            tokio::select! {
                _ = changed => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
    }
    // Noted before the view is made: from here on the log tells what changes it.
    let head = api.log.head().await?;
    let mut view = shown(&api.hub.state(), &name);
    view["commit"] = head.number.into();
    Ok(Json(view))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    name: String,
    spec: String,
    file: String,
    directory: String,
    #[serde(default)]
    resume: bool,
    /// It goes on on the terms that it had; only the spec is another.
    #[serde(default)]
    same_terms: bool,
    program: Option<String>,
    model: Option<String>,
    role: Option<String>,
    iterations: Option<u32>,
    workers: Option<u32>,
    microdollars: Option<u64>,
    commits: Option<bool>,
    check: Option<Vec<String>>,
    template: Option<String>,
    extra: Option<String>,
}

/// As long as a template and what else agents are told may be.
const TEMPLATE_BYTES_MAX: usize = 64 * 1024;
/// As many words as a check may have, and as long as they may be together.
const CHECK_BYTES_MAX: usize = 4_096;

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
    let texts = [&asked.extra, &asked.template];
    let is_long = texts.into_iter().flatten().any(|text| text.len() > TEMPLATE_BYTES_MAX)
        || asked.check.iter().flatten().map(String::len).sum::<usize>() > CHECK_BYTES_MAX;
    if is_long || asked.check.iter().flatten().any(|word| word.contains('\0')) {
        return Err(bad("the template, the check or what else is told is too long"));
    }
    // Whoever goes on with a run need not say again on which terms.
    let state = api.hub.state();
    let before = state.runs.get(&name).drive.as_ref().filter(|_| asked.resume);
    let before = before.map(|drive| drive.terms.clone());
    let before = before.as_deref();
    let workers = asked.workers.or_else(|| before.map(|terms| terms.workers)).unwrap_or(1);
    let commits = asked.commits.or_else(|| before.map(|terms| terms.commits)).unwrap_or(true);
    let repository = match commits {
        true => crate::work::repository(api.hub.held(), directory).await.map_err(bad)?,
        false => None,
    };
    if workers > 1 {
        let says = "several workers need a git repository with a commit, and commits: each works in a worktree of its own";
        if !repository.as_ref().is_some_and(|repository| repository.has_commit) {
            return Err(bad(says));
        }
    }
    if let Some(repository) = &repository {
        has_room(api.hub.held(), &state, &name, &repository.root).await?;
    }
    let says_who = asked.role.is_some() || asked.program.is_some() || asked.model.is_some();
    let behaviour = match before.filter(|_| !says_who) {
        Some(before) => before.behaviour.clone(),
        None => {
            let (role, program, model) = (asked.role, asked.program, asked.model);
            let wanted = agents::Worker { role, program, model };
            Arc::new(agents::worker(&api.configured, &wanted).map_err(bad)?)
        }
    };
    let check = asked.check.map(|words| words.into_iter().map(Into::into).collect());
    let check = check.or_else(|| before.map(|terms| terms.check.clone())).unwrap_or_default();
    let template = asked.template.map(Into::into);
    let extra = asked.extra.map(Into::into);
    let terms = Terms {
        spec: asked.spec.into(),
        file: asked.file.into(),
        directory: asked.directory.as_str().into(),
        behaviour,
        iterations: asked.iterations,
        workers,
        microdollars: asked.microdollars,
        commits,
        check,
        template: template.or_else(|| before.and_then(|terms| terms.template.clone())),
        extra: extra.or_else(|| before.map(|terms| terms.extra.clone())).unwrap_or_default(),
    };
    let known = api.hub.state().runs.get(&name).drive.as_ref().map(|drive| drive.terms.clone());
    let terms = match known.filter(|_| asked.same_terms) {
        Some(known) => Terms { spec: terms.spec, ..(*known).clone() },
        None => terms,
    };
    // From here on the log tells how it goes.
    let head = api.log.head().await?;
    let what = run::Command::Drive(drive::Command::Begin { terms, resumes: asked.resume });
    let done = submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    let mut view = shown(&done.state, &name);
    let (current, trust) = (api.configured.current(), Trust::of(&api.data));
    let hooks = Hooks::in_project(&current, directory, &trust);
    view["withheld"] = hooks.withheld().into();
    if commits && repository.is_none() {
        let says = "{} is in no git repository, so nothing is committed";
        view["uncommitted"] = says.replace("{}", &asked.directory).into();
    }
    view["commit"] = head.number.into();
    Ok(Json(view))
}

/// Refuses a run that would commit in the same repository as another one. Of the same directory the core takes care.
async fn has_room(
    held: &Held,
    state: &teamster_core::State,
    name: &RunName,
    root: &FilePath,
) -> Result<(), Problem> {
    let others = state.runs.iter().filter(|(other, run)| *other != name && run.is_driven());
    let others = others.filter_map(|(other, run)| Some((other, &run.drive.as_ref()?.terms)));
    let others: Vec<_> = others.filter(|(_, terms)| terms.commits).collect();
    for (other, terms) in others {
        let theirs = crate::work::repository(held, FilePath::new(&*terms.directory)).await;
        if theirs.is_ok_and(|theirs| theirs.is_some_and(|theirs| theirs.root == root)) {
            return Err(bad(drive::Refusal::SamePlace(other.clone()).to_string()));
        }
    }
    Ok(())
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
    let name = name_of(&name)?;
    let command = match asked {
        Steer::Tell { text } => drive::Command::Tell { text },
        Steer::Pause => drive::Command::Pause,
        Steer::GoOn => drive::Command::GoOn,
        Steer::Stop { now } => drive::Command::Stop { now },
    };
    let what = run::Command::Drive(command);
    let done = submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    Ok(Json(line(&name, done.state.runs.get(&name))))
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
    let name = name_of(&name)?;
    let status = asked.status.as_deref().map(Status::parse).transpose();
    let status = status.map_err(|refusal| bad(refusal.to_string()))?;
    let priority = asked.priority.map(Priority::new).transpose();
    let priority = priority.map_err(|refusal| bad(refusal.to_string()))?;
    if let Some(yak) = asked.yak {
        let what = run::Command::Item(item::Command::AddYak { yak });
        submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
        return Ok(Json(shown(&api.hub.state(), &name)));
    }
    let commands = match (asked.item, asked.content) {
        (None, Some(content)) => {
            vec![item::Command::Add(vec![NewItem { content, status, priority }])]
        }
        (None, None) => return Err(bad("give `content` for a new item, or `item` to change one")),
        (Some(item), content) => {
            let changes = status.is_some() || priority.is_some() || asked.depends_on.is_some();
            let depends_on = asked.depends_on;
            let update = item::Command::Update { item: item.clone(), status, priority, depends_on };
            let edit = content.map(|content| item::Command::Edit { item, content });
            edit.into_iter().chain(changes.then_some(update)).collect()
        }
    };
    for command in commands {
        let what = run::Command::Item(command);
        submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    }
    Ok(Json(shown(&api.hub.state(), &name)))
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
    let name = name_of(&name)?;
    let note = asked.note.as_deref().map(|given| {
        NoteId::parse(given).ok_or_else(|| bad("that is no note's id; they look like NOT-3"))
    });
    let command = match (note.transpose()?, asked.content, asked.remove) {
        (Some(note), _, true) => note::Command::Remove { note },
        (Some(note), Some(content), false) => note::Command::Edit { note, content },
        (None, Some(content), false) => {
            let kind = note::Kind::parse(asked.kind.as_deref().unwrap_or("tip"));
            let kind = kind.map_err(|refusal| bad(refusal.to_string()))?;
            note::Command::Add(vec![NewNote { content, kind }])
        }
        (Some(_), None, false) | (None, _, _) => {
            return Err(bad("give `content`, or `note` and `remove`"));
        }
    };
    let what = run::Command::Note(command);
    submit(&api, &token, Command::Run { run: name.clone(), what }).await?;
    Ok(Json(shown(&api.hub.state(), &name)))
}
