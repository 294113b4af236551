//! How the hub works a run off: the spec and the terms on which it is worked on, what people say meanwhile, and when it is
//! over. The hub asks [`next`] what each worker is to do; all that it needs to know of the past is in the state.

mod terms;
mod totals;

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Agents, Ending};
use crate::compaction::Fate;
use crate::ids::ItemId;
use crate::iteration::{End, Left, Open};
use crate::run::Run;
use crate::spending::Spent;
use crate::text::{self, BadText};
use crate::token::Kind;
use crate::{Context, Record, RunName, Summary, Timestamp};

pub use terms::{
    CHECK_BYTES_MAX, Repository, Request, SPEC_BYTES_MAX, TEMPLATE_BYTES_MAX, Terms, WORKERS_MAX,
    WantedAgents,
};
pub use totals::Totals;

/// As long as a message to those who work on a run may be.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// As many messages as may wait for the next iteration.
pub const MESSAGES_MAX: usize = 20;
/// As much of what hooks say as an agent is told.
pub const HOOKS_BYTES_MAX: usize = 16 * 1024;
/// As long as a warning may be, and as many as are kept at hand; all are in the log.
pub const WARNING_BYTES_MAX: usize = 2_000;
pub const WARNINGS_MAX: usize = 20;
/// After so many iterations of each worker in a row that failed, or so many in all that changed nothing, it is over: going
/// on would only cost money.
pub const FAILURES_MAX: u32 = 3;
pub const IDLE_MAX: u32 = 3;

/// What a person told those who work on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub number: u32,
    pub text: Arc<str>,
    pub at: Timestamp,
}

/// What people should know of a run, though it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub number: u32,
    pub says: Arc<str>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Working,
    /// Nothing is begun before a person says so.
    Paused,
    /// It is over when what is under way has ended.
    Stopping,
    Over(Why),
}

/// Why a run is no longer worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Completed,
    /// All of it is done, but not all that was done is where it belongs.
    Leftovers {
        says: Arc<str>,
    },
    IterationsUsed,
    BudgetSpent,
    Stopped,
    /// Several iterations in a row have changed nothing, or planned nothing.
    Idle,
    Failed {
        says: Arc<str>,
    },
}

impl Why {
    /// Returns it in a word, for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Leftovers { .. } => "leftovers",
            Self::IterationsUsed => "iterations-used",
            Self::BudgetSpent => "budget-spent",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Failed { .. } => "failed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("it is complete"),
            Self::Leftovers { says } => write!(f, "all is done, but something is left: {says}"),
            Self::IterationsUsed => f.write_str("its iterations are used up"),
            Self::BudgetSpent => f.write_str("its budget is spent"),
            Self::Stopped => f.write_str("it was stopped"),
            Self::Idle => write!(f, "{IDLE_MAX} iterations in a row made no progress"),
            Self::Failed { says } => write!(f, "it failed: {says}"),
        }
    }
}

/// A run that is worked off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub terms: Arc<Terms>,
    pub phase: Phase,
    /// When it was begun, or resumed last.
    pub begun_at: Timestamp,
    /// There is a plan.
    pub is_planned: bool,
    /// How many iterations it has had on these terms, the plan not counted.
    pub n_iterations: u32,
    pub n_failures: u32,
    pub n_idle: u32,
    /// What it has cost on these terms, without what is under way.
    pub spent: Spent,
    pub totals: Totals,
    /// What no iteration was told yet, oldest first.
    pub messages: Vector<Message>,
    pub last_message: u32,
    /// It was to stop at once.
    pub stops_now: bool,
    /// How the files were before an iteration of a worker that did not come to its end: the next one goes on from there.
    pub carried: OrdMap<u32, Carried>,
    /// The newest of what people should know since it was begun or gone on with, oldest first.
    pub warnings: Vector<Warning>,
    pub last_warning: u32,
}

/// What an iteration that was not committed has left in the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// How the files were before it.
    pub base: Arc<str>,
    /// How its agent left them. An older hub did not record it.
    pub left: Option<Left>,
}

impl Drive {
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Returns the limit of iterations over all the times that the run was begun and resumed. The terms limit only those
    /// since the last time.
    pub fn iterations_max(&self) -> Option<u32> {
        let before = self.totals.n_iterations.saturating_sub(self.n_iterations);
        self.terms.iterations.map(|most| most.saturating_add(before))
    }

    /// Returns the budget, in millionths of a dollar, over all the times that the run was begun and resumed.
    pub fn budget(&self) -> Option<u64> {
        let before = self.totals.spent.microdollars.saturating_sub(self.spent.microdollars);
        self.terms.microdollars.map(|most| most.saturating_add(before))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begins to work a run off, or resumes one.
    Begin(Request),
    Tell {
        text: String,
    },
    Pause,
    GoOn,
    /// Stops when what is under way has ended, or at once.
    Stop {
        now: bool,
    },
    /// Begins the next iteration of a worker; its agent is told all messages that wait.
    BeginIteration {
        worker: u32,
        plans: bool,
        base: Option<Arc<str>>,
        /// How its agent finds the files, if that is another thing than `base`.
        left: Option<Left>,
        directory: Arc<str>,
        /// What hooks said that its agent is to know.
        hooks: String,
    },
    /// Says that all of an iteration is done.
    EndIteration {
        iteration: u32,
        commit: Option<Arc<str>>,
        /// What went wrong after its agent had ended.
        problem: Option<String>,
    },
    /// Says how an agent left the files of its iteration when its process was gone.
    Leave {
        iteration: u32,
        left: Left,
    },
    /// Compares the files of an iteration with another base from now on, which has what others changed in it.
    Rebase {
        iteration: u32,
        base: Arc<str>,
        left: Left,
    },
    /// Says that what an iteration had left in the files is committed, or kept on a branch.
    SetAside,
    /// Tells people something that does not end it.
    Warn {
        says: String,
    },
    /// Says that it is over.
    End {
        why: Why,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Begun {
        terms: Arc<Terms>,
        resumes: bool,
    },
    Told {
        number: u32,
        text: Arc<str>,
    },
    Paused,
    WentOn,
    StopAsked {
        now: bool,
    },
    Warned {
        says: Arc<str>,
    },
    Over {
        why: Why,
    },
    /// What an iteration had left in the files is committed, or kept on a branch.
    SetAside,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Text(#[from] BadText),
    #[error("only an operator may steer a run")]
    OperatorsOnly,
    #[error("only the hub itself says how its runs are")]
    HubOnly,
    #[error("this run is being worked off already; watch it, or stop it first")]
    UnderWay,
    #[error(
        "there is such a run already, of {0}; go on with it with `resume`, or give this one another name with `name`"
    )]
    Exists(Arc<str>),
    #[error(
        "run {0} is working in this directory, and both would commit the same files; stop it first, or let one of them not \
         commit (`commits`)"
    )]
    SamePlace(RunName),
    #[error(
        "the run `default` is the list that all drafted agents share; give this run another name with `name`"
    )]
    Shared,
    #[error("there is no such run to go on with")]
    Nothing,
    #[error("its budget is spent; give it more with `microdollars`")]
    BudgetSpent,
    #[error(
        "several workers need a git repository with a commit, and commits: each works in a worktree of its own"
    )]
    NoRepository,
    #[error(
        "several workers need a branch to merge their work into, and HEAD is on none; run `git switch BRANCH`, or `git switch \
         -c NAME` for a new one"
    )]
    NoBranch,
    #[error("the template is empty; `teamster template` prints the usual one")]
    EmptyTemplate,
    #[error("the template, the check or the extra instructions are too long")]
    TooLong,
    #[error(
        "no shell reads the check, so {0:?} means nothing in it; let one: `check` \"sh -c '…'\""
    )]
    ShellWord(Arc<str>),
    #[error(
        "nobody works on this run; `teamster run --resume --name` goes on with one that is over"
    )]
    NotUnderWay,
    #[error("the number of workers is 1 to {WORKERS_MAX}")]
    Workers,
    #[error(
        "no program is installed that could work on it; name one with `program` (`teamster program list` shows which there are)"
    )]
    NoProgram,
    #[error("{MESSAGES_MAX} messages wait for the next iteration, which is the limit")]
    TooManyMessages,
    #[error("the run is not in a state for this")]
    OutOfStep,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing, before something changes.
    Wait,
    /// Its iteration's agent is at work.
    Await(Arc<Open>),
    /// Its iteration's agent is done, but not what comes after it.
    Finish(Arc<Open>),
    Begin {
        plans: bool,
    },
    /// The run is over for this reason, which is not recorded yet.
    End(Why),
    Over,
}

/// Returns what a worker of a run is to do.
pub fn next(run: &Run, agents: &Agents, worker: u32) -> Next {
    let Some(drive) = &run.drive else { return Next::Over };
    if let Some(open) = run.iterations.of_worker(worker) {
        let ended = agents.get(open.agent.as_str()).is_none_or(|agent| !agent.is_live());
        return if ended { Next::Finish(open.clone()) } else { Next::Await(open.clone()) };
    }
    if drive.is_over() {
        return Next::Over;
    }
    let n_open = run.iterations.open().count();
    let is_last = worker == 0 && n_open == 0;
    if let Some(why) = over(run, drive, agents) {
        return if is_last { Next::End(why) } else { Next::Wait };
    }
    match drive.phase {
        Phase::Paused | Phase::Stopping | Phase::Over(_) => return Next::Wait,
        Phase::Working => {}
    }
    if worker >= drive.terms.workers {
        return Next::Wait;
    }
    if !drive.is_planned {
        return if is_last { Next::Begin { plans: true } } else { Next::Wait };
    }
    // Each that has not taken its item yet will take one of those that are ready.
    let reserved = |id| run.iterations.open().any(|open| open.item == Some(id));
    let n_seeking = run.iterations.open().filter(|open| open.item.is_none()).count();
    let ready = run.items.ready().filter(|item| !reserved(item.id));
    let mut ready = ready.filter(|item| !run.is_early(item, None));
    if is_last || ready.nth(n_seeking).is_some() {
        return Next::Begin { plans: false };
    }
    Next::Wait
}

/// Why a worker of a run that is under way has nothing to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeldUp {
    #[error("waits: nothing more is begun, {0}")]
    Over(Why),
    #[error("waits: the run is paused")]
    Paused,
    #[error("waits for the plan")]
    Plan,
    #[error("waits: every open item is taken, blocked or after another")]
    NothingReady,
    #[error("is not needed any more")]
    TooMany,
}

/// Returns why a worker waits, if it does.
pub fn held_up(run: &Run, agents: &Agents, worker: u32) -> Option<HeldUp> {
    if next(run, agents, worker) != Next::Wait {
        return None;
    }
    let drive = run.drive.as_ref()?;
    Some(match (over(run, drive, agents), &drive.phase) {
        (Some(why), _) => HeldUp::Over(why),
        (None, Phase::Paused) => HeldUp::Paused,
        (None, Phase::Working | Phase::Stopping | Phase::Over(_)) => {
            if worker >= drive.terms.workers {
                HeldUp::TooMany
            } else if !drive.is_planned {
                HeldUp::Plan
            } else {
                HeldUp::NothingReady
            }
        }
    })
}

/// Returns why nothing more is to be begun, if so.
fn over(run: &Run, drive: &Drive, agents: &Agents) -> Option<Why> {
    if drive.phase == Phase::Stopping {
        return Some(Why::Stopped);
    }
    // What goes wrong for one of several often goes wrong for all of them at once.
    if drive.n_failures >= FAILURES_MAX * drive.terms.workers.max(1) {
        let last = run.iterations.ended().next_back().and_then(|ended| ended.end.failed.clone());
        return Some(Why::Failed { says: last.unwrap_or_else(|| "for no known reason".into()) });
    }
    let under_way = run.iterations.open().filter_map(|open| agents.get(open.agent.as_str()));
    let under_way: u64 = under_way.map(|agent| agent.spent.microdollars).sum();
    if drive.terms.microdollars.is_some_and(|most| drive.spent.microdollars + under_way >= most) {
        return Some(Why::BudgetSpent);
    }
    let has_message = !drive.messages.is_empty();
    if run.completed_at.is_some() && drive.is_planned && !has_message {
        return Some(Why::Completed);
    }
    let n_begun =
        drive.n_iterations + run.iterations.open().filter(|open| !open.plans).count() as u32;
    if drive.is_planned && drive.terms.iterations.is_some_and(|most| n_begun >= most) {
        return Some(Why::IterationsUsed);
    }
    (drive.n_idle >= IDLE_MAX && !has_message).then_some(Why::Idle)
}

/// Says whether a run may be over for this reason now.
pub(crate) fn may_end(run: &Run, agents: &Agents, why: &Why) -> bool {
    match (why, next(run, agents, 0)) {
        (Why::Failed { .. }, _) => true,
        (Why::Leftovers { .. }, Next::End(why)) => why == Why::Completed,
        (why, Next::End(other)) => *why == other,
        (_, Next::Wait | Next::Await(_) | Next::Finish(_) | Next::Begin { .. } | Next::Over) => {
            false
        }
    }
}

/// Returns what is left of the money, as far as it is known what was spent.
pub fn money_left(run: &Run, drive: &Drive, agents: &Agents) -> Option<u64> {
    let under_way = run.iterations.open().filter_map(|open| agents.get(open.agent.as_str()));
    let under_way: u64 = under_way.map(|agent| agent.spent.microdollars).sum();
    drive.terms.microdollars.map(|most| most.saturating_sub(drive.spent.microdollars + under_way))
}

/// Returns how an iteration's agent has ended, for its record.
pub(crate) fn end(
    run: &Run,
    open: &Open,
    agent: Option<&Agent>,
    commit: Option<Arc<str>>,
    problem: Option<&str>,
) -> End {
    let outcome = agent.and_then(|agent| agent.outcome.as_ref());
    let failed = match outcome {
        Some(outcome) if outcome.ending == Ending::Completed => {
            problem.map(|problem| text::beginning(problem, 2_000))
        }
        Some(outcome) => Some(with_problem(&outcome.summary, problem)),
        None => Some(with_problem("its agent is gone", problem)),
    };
    // To have begun something is not much; where nobody sees the files, its own word is believed that it did more.
    let is_further = |id: &ItemId| {
        let item = run.items.get(*id).filter(|item| !item.status.is_finished());
        Some(*id) != open.item || item.is_none()
    };
    let says_more = open.base.is_none()
        && !open.touched.is_empty()
        && run.iterations.summary(open.number).is_some();
    let is_idle =
        failed.is_none() && commit.is_none() && !says_more && !open.touched.iter().any(is_further);
    let spent = agent.map(|agent| agent.spent).unwrap_or_default();
    let is_cut_off = outcome.is_none_or(|outcome| outcome.ending != Ending::Completed);
    // What is committed is nobody's concern any more.
    let is_left = open.base.is_some() && failed.is_some() && commit.is_none();
    let left = match agent {
        Some(agent) => Some(open.left_by(agent)),
        None => open.left.clone(),
    };
    let left = left.filter(|_| is_left);
    End { commit, failed, is_idle, is_cut_off, item: open.item, spent, left }
}

/// Returns why an iteration failed, of whose agent this is known, with what went wrong after that.
fn with_problem(says: &str, problem: Option<&str>) -> Arc<str> {
    match problem {
        Some(problem) => {
            text::beginning(&format!("{}\n{problem}", text::beginning(says, 900)), 2_000)
        }
        None => text::beginning(says, 2_000),
    }
}

/// Returns the events that a person's command causes, or why it is refused.
pub(crate) fn decide(run: &Run, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
    if !cx.caller.kind.may_operate() {
        return Err(Refusal::OperatorsOnly);
    }
    let under_way =
        || run.drive.as_ref().filter(|drive| !drive.is_over()).ok_or(Refusal::NotUnderWay);
    Ok(match command {
        Command::Begin(request) => {
            match &run.drive {
                Some(drive) if !drive.is_over() => return Err(Refusal::UnderWay),
                Some(_) if run.iterations.open().next().is_some() => return Err(Refusal::UnderWay),
                Some(drive) if !request.resumes => {
                    return Err(Refusal::Exists(drive.terms.file.clone()));
                }
                None if request.resumes => return Err(Refusal::Nothing),
                Some(_) | None => {}
            }
            let terms = Arc::new(request.terms(run)?);
            vec![Event::Begun { terms, resumes: request.resumes }]
        }
        Command::Tell { text } => {
            // Also to one that is over: whoever goes on with it is told.
            let drive = run.drive.as_ref().ok_or(Refusal::NotUnderWay)?;
            if drive.messages.len() >= MESSAGES_MAX {
                return Err(Refusal::TooManyMessages);
            }
            let text = text::long("message", text, MESSAGE_BYTES_MAX)?;
            vec![Event::Told { number: drive.last_message + 1, text }]
        }
        Command::Pause => match under_way()?.phase {
            Phase::Working => vec![Event::Paused],
            Phase::Paused | Phase::Stopping | Phase::Over(_) => Vec::new(),
        },
        Command::GoOn => match under_way()?.phase {
            Phase::Paused | Phase::Stopping => vec![Event::WentOn],
            Phase::Working | Phase::Over(_) => Vec::new(),
        },
        Command::Stop { now } => match under_way()?.phase {
            Phase::Stopping if !now => Vec::new(),
            Phase::Working | Phase::Paused | Phase::Stopping | Phase::Over(_) => {
                vec![Event::StopAsked { now: *now }]
            }
        },
        Command::Warn { says } => {
            if cx.caller.kind != Kind::Hub {
                return Err(Refusal::HubOnly);
            }
            run.drive.as_ref().ok_or(Refusal::NotUnderWay)?;
            vec![warned(says)]
        }
        Command::SetAside => {
            if cx.caller.kind != Kind::Hub {
                return Err(Refusal::HubOnly);
            }
            match under_way()?.carried.is_empty() {
                true => Vec::new(),
                false => vec![Event::SetAside],
            }
        }
        Command::End { why } => {
            if cx.caller.kind != Kind::Hub {
                return Err(Refusal::HubOnly);
            }
            let _ = under_way()?;
            vec![Event::Over { why: why.clone() }]
        }
        Command::BeginIteration { .. }
        | Command::EndIteration { .. }
        | Command::Leave { .. }
        | Command::Rebase { .. } => {
            unreachable!("these are decided where agents are at hand")
        }
    })
}

/// Returns what tells people something. A program may have worded part of it.
pub(crate) fn warned(says: &str) -> Event {
    Event::Warned { says: text::beginning(&text::plain(says), WARNING_BYTES_MAX) }
}

/// Changes how a run is driven.
pub(crate) fn apply(drive: &mut Option<Drive>, event: &Event, record: &Record) {
    match event {
        Event::Begun { terms, resumes } => {
            // What was left in another place has nothing to do with the files in this one.
            let is_elsewhere = |was: &Drive| was.terms.directory != terms.directory;
            let was = drive.take();
            let carried = was.as_ref().filter(|was| !is_elsewhere(was));
            let carried = carried.map(|was| was.carried.clone()).unwrap_or_default();
            let totals = was.as_ref().map(|was| was.totals.clone());
            let mut totals = totals.unwrap_or_else(|| Totals::new(record.at));
            totals.n_resumes += u32::from(*resumes);
            *drive = Some(Drive {
                terms: terms.clone(),
                phase: Phase::Working,
                begun_at: record.at,
                // What is done is planned anew if there is more to do.
                is_planned: was.as_ref().is_some_and(|was| {
                    let is_more = was.terms.spec != terms.spec;
                    was.is_planned && !(is_more && was.phase == Phase::Over(Why::Completed))
                }),
                n_iterations: 0,
                n_failures: 0,
                n_idle: 0,
                spent: Spent::default(),
                totals,
                messages: was.as_ref().map(|was| was.messages.clone()).unwrap_or_default(),
                last_message: was.as_ref().map_or(0, |was| was.last_message),
                stops_now: false,
                carried,
                warnings: Vector::new(),
                last_warning: was.as_ref().map_or(0, |was| was.last_warning),
            });
        }
        Event::Told { number, text } => change(drive, |drive| {
            let (number, text) = (*number, text.clone());
            drive.messages.push_back(Message { number, text, at: record.at });
            drive.last_message = number;
            drive.n_idle = 0;
        }),
        Event::Paused => change(drive, |drive| drive.phase = Phase::Paused),
        Event::WentOn => change(drive, |drive| {
            drive.phase = Phase::Working;
            drive.stops_now = false;
        }),
        Event::StopAsked { now } => change(drive, |drive| {
            drive.phase = Phase::Stopping;
            drive.stops_now |= now;
        }),
        Event::Warned { says } => change(drive, |drive| {
            drive.last_warning += 1;
            let (number, says) = (drive.last_warning, says.clone());
            drive.warnings.push_back(Warning { number, says, at: record.at });
            if drive.warnings.len() > WARNINGS_MAX {
                drive.warnings.pop_front();
            }
        }),
        Event::Over { why } => change(drive, |drive| {
            drive.totals.over(drive.begun_at, record.at);
            drive.phase = Phase::Over(why.clone());
        }),
        Event::SetAside => change(drive, |drive| drive.carried.clear()),
    }
}

fn change(drive: &mut Option<Drive>, change: impl FnOnce(&mut Drive)) {
    if let Some(drive) = drive {
        change(drive);
    }
}

impl Drive {
    /// Notes that one of its iterations has ended. `has_plan` says that there is something to work on.
    pub(crate) fn iteration_ended(&mut self, open: &Open, end: &End, has_plan: bool) {
        if open.plans {
            self.is_planned = has_plan && end.failed.is_none();
        } else {
            self.n_iterations += 1;
        }
        // One that finished something before it failed is a step ahead all the same.
        let is_lost = end.failed.is_some() && end.commit.is_none();
        self.n_failures = if is_lost { self.n_failures + 1 } else { 0 };
        // A plan without items is none, whatever else its agent did: without this it could be made again for ever.
        let lacks_plan = open.plans && !self.is_planned && !end.is_cut_off;
        self.n_idle = if end.is_idle || lacks_plan { self.n_idle + 1 } else { 0 };
        self.spent.add_all(&end.spent);
        self.totals.iteration_ended(open, end);
        if end.is_cut_off {
            // Whoever comes next is told again.
            self.messages = open.told.iter().chain(&self.messages).cloned().collect();
        }
        // Of several workers each begins afresh: the next may be for something else.
        match (&open.base, &end.failed, &end.commit) {
            (Some(base), Some(_), None) if self.terms.workers == 1 => {
                let carried = Carried { base: base.clone(), left: end.left.clone() };
                self.carried.insert(open.worker, carried);
            }
            (Some(_) | None, _, _) if self.terms.workers == 1 => {
                self.carried.remove(&open.worker);
            }
            (Some(_) | None, _, _) => {}
        }
    }
}

impl Event {
    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Begun { terms, .. } => {
                let templates = [&terms.template, &terms.plan_template].into_iter().flatten();
                terms.spec.len()
                    + terms.behaviour.prompt.len()
                    + terms.extra.len()
                    + templates.map(|template| template.len()).sum::<usize>()
            }
            Self::Told { text, .. } => text.len(),
            Self::Warned { says } => says.len(),
            Self::Paused
            | Self::WentOn
            | Self::StopAsked { .. }
            | Self::Over { .. }
            | Self::SetAside => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        Fate::Kept
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Begun { terms, resumes } => {
                let what = if *resumes { "is gone on with" } else { "is worked off" };
                let (file, program) = (&terms.file, &terms.behaviour.program);
                let workers = match terms.workers {
                    1 => String::new(),
                    n => format!(" by {n} workers"),
                };
                Summary::new("add", format!("{file} {what}{workers} ({program})"))
            }
            Self::Told { number, text } => {
                let line = text.lines().next().unwrap_or_default();
                Summary::new("note", format!("message {number} for the next iteration: {line}"))
            }
            Self::Paused => Summary::new("edit", "paused after this iteration".into()),
            Self::WentOn => Summary::new("edit", "goes on".into()),
            Self::StopAsked { now: true } => Summary::new("edit", "stops now".into()),
            Self::StopAsked { now: false } => {
                Summary::new("edit", "stops after this iteration".into())
            }
            Self::Warned { says } => Summary::new("note", format!("warning: {says}")),
            Self::Over { why } => Summary::new("done", format!("no longer worked on: {why}")),
            Self::SetAside => {
                Summary::new("edit", "unfinished work is committed or on a branch".into())
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
