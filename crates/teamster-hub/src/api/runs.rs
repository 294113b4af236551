//! Runs for people's programs: worked off, watched, and steered.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Router;
use teamster_api::paths::{BeginRun, EditItem, EditNote, ForgetRun, ListRuns, ShowRun, SteerRun};
use teamster_api::runs::{
    self, BegunRun, EndedIteration, ForgottenRun, ListedRun, OpenIteration, RunLine, ShownRun,
    SinceResumed, Steer, WaitingWorker,
};
use teamster_api::{ApiError, Code};
use teamster_core::agent::{Agent, Phase as AgentPhase};
use teamster_core::drive::{self, Drive, Next, Phase, WantedAgents, Why};
use teamster_core::ids::NoteId;
use teamster_core::item::{self, Priority, Status};
use teamster_core::note::{self, NewNote};
use teamster_core::run::{self, Run};
use teamster_core::spending::Spent;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, RunName, State, Timestamp};
use teamster_mcp::Hub as _;

use super::serving::{Answered, ApiRequest, Serve as _, internal, invalid, page};
use super::waiting::wait_for;
use super::{Api, shapes};
use crate::work::ForgetProblem;
use crate::{agents, system_programs};

/// As many items, notes and iterations as are shown of a run, the newest or most urgent.
const ITEMS_SHOWN: usize = 500;
const NOTES_SHOWN: usize = 100;
const ITERATIONS_SHOWN: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<ListRuns, _, _>(list)
        .serve::<BeginRun, _, _>(begin)
        .serve::<ShowRun, _, _>(show)
        .serve::<SteerRun, _, _>(steer)
        .serve::<ForgetRun, _, _>(forget)
        .serve::<EditItem, _, _>(edit_item)
        .serve::<EditNote, _, _>(edit_note)
}

fn name_of(given: &str) -> Result<RunName, ApiError> {
    RunName::parse(given).map_err(invalid)
}

/// Returns the name of a run that there is.
fn known(api: &Api, given: &str) -> Result<RunName, ApiError> {
    let name = name_of(given)?;
    match api.hub.state().runs.has(&name) || name == RunName::default_run() {
        true => Ok(name),
        false => {
            let says = format!("there is no run {name}; `teamster runs` shows those there are");
            Err(ApiError::new(Code::NotFound, says))
        }
    }
}

/// How a run stands, in a word.
pub(super) fn phase(run: &Run) -> runs::Phase {
    match run.drive.as_ref().map(|drive| &drive.phase) {
        None if run.completed_at.is_some() => runs::Phase::Complete,
        None => runs::Phase::Open,
        Some(Phase::Working) => runs::Phase::Working,
        Some(Phase::Paused) => runs::Phase::Paused,
        Some(Phase::Stopping) => runs::Phase::Stopping,
        Some(Phase::Over(why)) => match why {
            Why::Completed => runs::Phase::Completed,
            Why::Leftovers { .. } => runs::Phase::Leftovers,
            Why::IterationsUsed => runs::Phase::IterationsUsed,
            Why::BudgetSpent => runs::Phase::BudgetSpent,
            Why::Stopped => runs::Phase::Stopped,
            Why::Idle => runs::Phase::Idle,
            Why::Failed { .. } => runs::Phase::Failed,
        },
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
fn spent_now(state: &State, run: &Run) -> Option<Spent> {
    let mut sum = run.drive.as_ref()?.totals.spent;
    let agents = run.iterations.open().filter_map(|open| state.agents.get(open.agent.as_str()));
    agents.for_each(|agent| sum.add_all(&agent.spent));
    Some(sum)
}

/// Returns what each worker that has no iteration waits for.
fn waiting(state: &State, run: &Run) -> Vec<WaitingWorker> {
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
    workers.filter_map(|worker| Some(WaitingWorker { worker, why: why(worker)? })).collect()
}

fn line(state: &State, name: &RunName, run: &Run) -> RunLine {
    let drive = run.drive.as_ref();
    let why = drive.and_then(|drive| match &drive.phase {
        Phase::Over(why) => Some(why.to_string()),
        Phase::Working | Phase::Paused | Phase::Stopping => None,
    });
    let totals = drive.map(|drive| &drive.totals);
    let resumed = drive.filter(|drive| drive.totals.n_resumes > 0);
    let terms = drive.map(|drive| &*drive.terms);
    RunLine {
        name: name.to_string(),
        phase: phase(run),
        why,
        under_way: run.is_driven(),
        items: shapes::item_counts(&run.items),
        complete: run.completed_at.is_some(),
        file: terms.map(|terms| terms.file.to_string()),
        directory: terms.map(|terms| terms.directory.to_string()),
        program: terms.map(|terms| terms.behaviour.program.to_string()),
        model: terms.and_then(|terms| shapes::text(terms.behaviour.model.as_ref())),
        workers: terms.map(|terms| terms.workers),
        iterations: totals.map(|totals| totals.n_iterations),
        iterations_max: drive.and_then(Drive::iterations_max),
        next_iteration: run.iterations.current(),
        iteration: iteration(run),
        failed: totals.map(|totals| totals.n_failed),
        commits: totals.map(|totals| totals.n_commits),
        is_planned: drive.map(|drive| drive.is_planned),
        begun_at: totals.map(|totals| totals.begun_at.0),
        resumes: totals.map(|totals| totals.n_resumes),
        resumed_at: resumed.map(|drive| drive.begun_at.0),
        worked_ms: totals.map(|totals| totals.worked_ms),
        since_resumed: resumed.map(|drive| SinceResumed {
            iterations: drive.n_iterations,
            spent: shapes::spent(&drive.spent),
        }),
        spent: totals.map(|totals| shapes::spent(&totals.spent)),
        spent_now: spent_now(state, run).map(|now| shapes::spent(&now)),
        budget_microdollars: drive.and_then(Drive::budget),
        queued_messages: drive.map(|drive| drive.messages.len()),
    }
}

fn item_shown(item: &item::Item) -> runs::Item {
    runs::Item {
        id: item.id.to_string(),
        content: item.content.to_string(),
        status: match item.status {
            Status::Remaining => runs::ItemStatus::Remaining,
            Status::InProgress => runs::ItemStatus::InProgress,
            Status::Completed => runs::ItemStatus::Completed,
            Status::Blocked => runs::ItemStatus::Blocked,
            Status::Cancelled => runs::ItemStatus::Cancelled,
        },
        priority: item.priority.number(),
        iteration: item.iteration,
        depends_on: item.depends_on.iter().map(ToString::to_string).collect(),
        holder: item.holder.as_ref().map(|holder| holder.principal.to_string()),
        branch: item.merge.as_ref().map(|merge| merge.branch.to_string()),
    }
}

fn note_shown(note: &note::Note) -> runs::Note {
    runs::Note {
        id: note.id.to_string(),
        kind: match note.kind {
            note::Kind::Learning => runs::NoteKind::Learning,
            note::Kind::Stuck => runs::NoteKind::Stuck,
            note::Kind::Tip => runs::NoteKind::Tip,
            note::Kind::Decision => runs::NoteKind::Decision,
        },
        content: note.content.to_string(),
        iteration: note.iteration,
        by: note.by.to_string(),
        at: note.at.0,
    }
}

/// All of a run that a view of it shows.
fn shown(api: &Api, state: &State, name: &RunName) -> runs::Run {
    let run = state.runs.get(name);
    let open = run.iterations.open().map(|open| {
        let agent = state.agents.get(open.agent.as_str());
        let waits = agent.and_then(|agent| api.queue.waits_for(state, agent));
        OpenIteration {
            number: open.number,
            worker: open.worker,
            agent: open.agent.to_string(),
            plans: open.plans,
            item: open.item.map(|item| item.to_string()),
            begun_at: open.begun_at.0,
            agent_phase: agent.map(|agent| shapes::phase(agent.phase)),
            spent: agent.map(|agent| shapes::spent(&agent.spent)),
            waits_for: waits.as_ref().map(ToString::to_string),
            waits_until: waits.and_then(|waits| waits.until()).map(|at| at.0),
            held_up: agent.and_then(|agent| held_up(api, state, agent)),
        }
    });
    let ended = run.iterations.ended().rev().take(ITERATIONS_SHOWN).map(|ended| EndedIteration {
        number: ended.open.number,
        worker: ended.open.worker,
        agent: ended.open.agent.to_string(),
        plans: ended.open.plans,
        item: ended.open.item.map(|item| item.to_string()),
        begun_at: ended.open.begun_at.0,
        ended_at: ended.at.0,
        commit: shapes::text(ended.end.commit.as_ref()),
        failed: shapes::text(ended.end.failed.as_ref()),
        spent: shapes::spent(&ended.end.spent),
        summary: run.iterations.summary(ended.open.number).map(|summary| summary.text.to_string()),
    });
    let message =
        |one: &drive::Message| runs::Message { number: one.number, text: one.text.to_string() };
    let warning = |one: &drive::Warning| runs::Warning {
        number: one.number,
        says: one.says.to_string(),
        at: one.at.0,
    };
    let mut notes: Vec<_> = run.notes.after(NoteId(0), None).collect();
    notes.drain(..notes.len().saturating_sub(NOTES_SHOWN));
    let drive = run.drive.as_ref();
    runs::Run {
        line: line(state, name, run),
        item_list: run
            .items
            .ranked_after(None)
            .take(ITEMS_SHOWN)
            .map(|item| item_shown(item))
            .collect(),
        notes: notes.into_iter().map(|note| note_shown(note)).collect(),
        open: open.collect(),
        waiting: waiting(state, run),
        ended: ended.collect(),
        messages: drive.map(|drive| drive.messages.iter().map(message).collect()),
        warnings: drive.map(|drive| drive.warnings.iter().map(warning).collect()),
        seq: state.seq(),
    }
}

/// All runs: those that are worked off, then those that were, both the newest first, then what people and agents only share.
pub(super) fn all(state: &State) -> Vec<ListedRun> {
    sorted(state).into_iter().map(|(name, run)| listed(state, name, run)).collect()
}

fn begun_at(run: &Run) -> Option<Timestamp> {
    run.drive.as_ref().map(|drive| drive.begun_at)
}

fn sorted(state: &State) -> Vec<(&RunName, &Arc<Run>)> {
    let mut runs: Vec<_> = state.runs.iter().collect();
    runs.sort_by_key(|(_, run)| std::cmp::Reverse((run.is_driven(), begun_at(run))));
    runs
}

fn listed(state: &State, name: &RunName, run: &Run) -> ListedRun {
    let is_over = run.drive.is_some() && !run.is_driven();
    let last = run.iterations.ended().next_back().filter(|_| is_over);
    let last = last.filter(|ended| Some(ended.at) >= begun_at(run));
    ListedRun { line: line(state, name, run), ended_at: last.map(|ended| ended.at.0) }
}

async fn list(ApiRequest { by, query, .. }: ApiRequest<ListRuns>) -> Answered<ListRuns> {
    let state = by.api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    let all = sorted(&state).into_iter();
    let shown = |(name, run): (&RunName, &Arc<Run>)| listed(&state, name, run);
    page(state.seq(), all, |(name, _)| name.to_string(), shown, which)
}

async fn show(ApiRequest { by, param: name, query, .. }: ApiRequest<ShowRun>) -> Answered<ShowRun> {
    let api = &by.api;
    let runs::ShowRun { after, wait_ms } = query;
    let name = known(api, &name)?;
    if wait_ms > 0 {
        let seen = api.hub.state();
        // What happened before we began to wait is answered at once.
        if after >= seen.seq() {
            let run = api.hub.watch(&Topic::Run(name.clone()));
            let event = run.until(&api.hub, |state| (state.seq() > after).then_some(()));
            // What its agents use, how they are and what they ask is shown as well.
            let known = agents_of(&seen, &name);
            let is_new = |state: &State| (agents_of(state, &name) != known).then_some(());
            let agents = api.hub.watch(&Topic::Agents);
            let questions = api.hub.watch(&Topic::Questions);
            let changed = async {
                tokio::select! {
                    () = event => {}
                    () = agents.until(&api.hub, is_new) => {}
                    () = questions.until(&api.hub, is_new) => {}
                }
            };
            wait_for(api, wait_ms, changed).await;
        }
    }
    // Noted before the view is made: from here on the log tells what changes it.
    let head = api.log.head().await.map_err(internal)?;
    Ok(ShownRun { run: shown(api, &api.hub.state(), &name), commit: head.number })
}

/// Says what keeps an iteration's agent from going on, if something does.
fn held_up(api: &Api, state: &State, agent: &Arc<Agent>) -> Option<String> {
    if let Some(why) = super::stands::holds_up(state, api.hub.trees(), agent, true) {
        return Some(why);
    }
    api.queue.waits_for(state, agent).map(|waits| format!("waits: {waits}"))
}

/// Returns what is shown of the agents that are at work on a run.
fn agents_of(state: &State, name: &RunName) -> Vec<(AgentPhase, Spent, bool, usize)> {
    let open = state.runs.get(name).iterations.open();
    let agents = open.filter_map(|open| state.agents.get(open.agent.as_str()));
    let shown = agents.map(|agent| {
        let n_questions = state.questions.open_of(&agent.id).count();
        (agent.phase, agent.spent, agent.parked.is_some(), n_questions)
    });
    shown.collect()
}

async fn begin(ApiRequest { by, body: asked, .. }: ApiRequest<BeginRun>) -> Answered<BeginRun> {
    let api = &by.api;
    let name = name_of(&asked.name)?;
    if by.is_repeated() {
        // Nobody heard that it was begun.
        let head = api.log.head().await.map_err(internal)?;
        let run = shown(api, &api.hub.state(), &name);
        return Ok(BegunRun { run, commit: head.number, ..BegunRun::default() });
    }
    let directory = FilePath::new(&asked.directory);
    if !directory.is_absolute() || !directory.is_dir() {
        return Err(invalid(format!("there is no directory {:?}", asked.directory)));
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
    request.check_texts().map_err(invalid)?;
    if let Some(program) = request.check.as_deref().and_then(<[_]>::first) {
        can_check(api, program, directory)?;
    }
    let state = api.hub.state();
    let run = state.runs.get(&name);
    let commits = request.commits(run);
    if commits {
        let found = crate::work::repository(api.hub.held(), directory).await;
        request.repository = found.map_err(invalid)?;
    }
    let before = request.before(run);
    if before.is_none() || !wanted.is_empty() {
        let wanted = wanted.or_as_before(before.map(|terms| &*terms.behaviour));
        let behaviour = agents::worker(&api.configured, &wanted).map_err(invalid)?;
        request.behaviour = Some(Arc::new(behaviour));
    }
    let spec_changed = before.is_some_and(|terms| terms.spec != request.spec).then(|| {
        format!(
            "warning: {} has changed since the run began; agents get the new text as yours",
            request.file
        )
    });
    let uncommitted = (commits && request.repository.is_none())
        .then(|| format!("{} is in no git repository, so nothing is committed", asked.directory));
    // From here on the log tells how it goes.
    let head = api.log.head().await.map_err(internal)?;
    let what = run::Command::Drive(drive::Command::Begin(request));
    let done = by.submit(Command::Run { run: name.clone(), what }).await?;
    // A person wants it tried, however it failed before.
    if let Some(drive) = &done.state.runs.get(&name).drive {
        api.queue.forgive_program(&drive.terms.behaviour.program);
    }
    let run = shown(api, &done.state, &name);
    Ok(BegunRun { run, uncommitted, spec_changed, commit: head.number })
}

/// Refuses a check whose program is not there.
fn can_check(api: &Api, program: &str, directory: &FilePath) -> Result<(), ApiError> {
    let found = match program.contains('/') {
        true => directory.join(program).is_file(),
        false => system_programs::on_path(program, api.configured.search_path()).is_some(),
    };
    match found {
        true => Ok(()),
        false => Err(invalid(format!(
            "the check's program {program:?} is not on the PATH of the hub; install it, or name it with its path"
        ))),
    }
}

async fn steer(
    ApiRequest { by, param: name, body, .. }: ApiRequest<SteerRun>,
) -> Answered<SteerRun> {
    let name = known(&by.api, &name)?;
    let command = match body {
        Steer::Tell { text } => drive::Command::Tell { text },
        Steer::Pause => drive::Command::Pause,
        Steer::GoOn => drive::Command::GoOn,
        Steer::Stop { now } => drive::Command::Stop { now },
    };
    let what = run::Command::Drive(command);
    let done = by.submit(Command::Run { run: name.clone(), what }).await?;
    Ok(line(&done.state, &name, done.state.runs.get(&name)))
}

/// Removes a run with what it left in its repository. First there, so that a call that was cut short can be repeated.
async fn forget(
    ApiRequest { by, param: name, body, .. }: ApiRequest<ForgetRun>,
) -> Answered<ForgetRun> {
    let api = &by.api;
    let name = name_of(&name)?;
    let state = api.hub.state();
    if !state.runs.has(&name) {
        // Whoever lost the answer to the same request is told that it worked.
        let forgotten = by.is_repeated();
        return Ok(ForgottenRun { name: name.to_string(), forgotten, removed: None });
    }
    // Before anything of it is removed.
    let allowed = state.runs.may_forget(&name, &Caller::of(&by.token));
    allowed.map_err(|refusal| ApiError::new(Code::Refused, refusal.to_string()))?;
    let (run, data) = (state.runs.get(&name), api.configured.data());
    let removed = crate::work::forget(api.hub.held(), data, &name, run, body.force).await;
    let removed = removed.map_err(|problem| {
        let code = match problem {
            ForgetProblem::Unmerged { .. } => Code::Refused,
            ForgetProblem::Git(_) => Code::Invalid,
        };
        ApiError::new(code, problem.to_string())
    })?;
    by.submit(Command::Run { run: name.clone(), what: run::Command::Forget }).await?;
    let worktrees = removed.worktrees.iter().map(|path| path.to_string_lossy().into_owned());
    let removed = runs::Removed {
        branches: removed.branches,
        refs: removed.refs,
        worktrees: worktrees.collect(),
        kept: removed.kept,
    };
    Ok(ForgottenRun { name: name.to_string(), forgotten: true, removed: Some(removed) })
}

async fn edit_item(
    ApiRequest { by, param: name, body: asked, .. }: ApiRequest<EditItem>,
) -> Answered<EditItem> {
    let name = known(&by.api, &name)?;
    let status = asked.status.as_deref().map(Status::parse).transpose().map_err(invalid)?;
    let priority = asked.priority.map(Priority::new).transpose().map_err(invalid)?;
    let what = match asked.yak {
        Some(yak) => item::Command::AddYak { yak },
        None if asked.item.is_none() && asked.content.is_none() => {
            return Err(invalid(
                "say what is to be done with `content`, or name the item to change",
            ));
        }
        None => {
            let (item, content, depends_on) = (asked.item, asked.content, asked.depends_on);
            item::Command::Edit { item, content, status, priority, depends_on }
        }
    };
    by.submit(Command::Run { run: name.clone(), what: run::Command::Item(what) }).await?;
    Ok(shown(&by.api, &by.api.hub.state(), &name))
}

async fn edit_note(
    ApiRequest { by, param: name, body: asked, .. }: ApiRequest<EditNote>,
) -> Answered<EditNote> {
    let name = known(&by.api, &name)?;
    let note = asked.note.as_deref().map(|given| {
        NoteId::parse(given).ok_or_else(|| invalid("that is no note's id; they look like NOT-3"))
    });
    let kind = asked.kind.as_deref().map(note::Kind::parse).transpose().map_err(invalid)?;
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
            return Err(invalid(
                "say what it says with `content`, or name a note to change or remove",
            ));
        }
    };
    let what = run::Command::Note(command);
    by.submit(Command::Run { run: name.clone(), what }).await?;
    Ok(shown(&by.api, &by.api.hub.state(), &name))
}
