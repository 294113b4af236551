//! Works runs off: begins their iterations, each with an agent of its own, and finishes what comes after an agent. What is
//! to be done next is decided by the core from the state, so a hub that starts again goes on where the log says.

mod beginning;
mod between;
mod branch;
mod forgetting;
mod git;
pub mod hooks;
mod merging;
pub mod prompt;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use teamster_agents::supervise::Supervise;
use teamster_core::drive::{self, Carried, Drive, Next, Terms};
use teamster_core::item::{Item, Status};
use teamster_core::iteration::Open;
use teamster_core::run::Run;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, RunName, State, run};
use teamster_mcp::Hub as _;
use teamster_mcp::hub::Failure;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::between::Between;
use self::between::Seals;
use self::git::{Lock, Locking, Message, Standing, Tree};
use self::hooks::{Event, Hooks, Starter, Values};
use self::merging::Landed;
use crate::agents::{self, Configured};
use crate::config::DataFiles;
use crate::held::{Confined, Guarded};
use crate::hub::Handle;
use crate::{reading, tasks};

pub(crate) use forgetting::{Problem as ForgetProblem, forget};

/// How long a command is waited for that could not be stored, before it is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// As much of a summary as is a commit's first line.
const SUBJECT_CHARS_MAX: usize = 72;

/// What runs are worked off with.
pub struct Setup {
    pub hub: Handle,
    /// What runs hooks and checks.
    pub supervisor: Arc<dyn Supervise>,
    pub data: DataFiles,
    pub guarded: Guarded,
    pub configured: Arc<Configured>,
    pub between: Arc<Between>,
}

struct Shared {
    hub: Handle,
    data: DataFiles,
    configured: Arc<Configured>,
    starter: Starter,
    between: Arc<Between>,
    seals: Seals,
    stop: CancellationToken,
}

/// Works all runs off that are to be.
pub struct Work {
    shared: Arc<Shared>,
    under_way: Arc<Mutex<BTreeSet<RunName>>>,
    tracker: TaskTracker,
}

/// Ends the work when the hub ends.
pub struct Stopper {
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Stopper {
    /// Returns when nothing is under way; whatever was goes on when the hub starts again.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Work {
    /// After whoever ends what an earlier hub left.
    pub fn new(setup: Setup) -> anyhow::Result<Self> {
        let Setup { hub, supervisor, data, guarded, configured, between } = setup;
        let starter = Starter::new(supervisor, guarded);
        let seals = Seals::read(&data)?;
        let stop = CancellationToken::new();
        let shared = Shared { hub, data, configured, starter, between, seals, stop };
        let (under_way, tracker) = (Arc::default(), TaskTracker::new());
        Ok(Self { shared: Arc::new(shared), under_way, tracker })
    }

    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.shared.stop.clone(), tracker: self.tracker.clone() }
    }

    /// Runs until the hub ends.
    pub async fn run(self) {
        let hub = self.shared.hub.clone();
        let watch = hub.watch(&Topic::Drives);
        loop {
            let seen = hub.state().seq();
            for (name, run) in hub.state().runs.iter() {
                let has_work = run.is_driven() || run.iterations.open().next().is_some();
                if has_work && self.begins(name) {
                    self.begin(name.clone());
                }
            }
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return,
                () = watch.until(&hub, |state| (state.seq() != seen).then_some(())) => {}
            }
        }
    }

    fn begins(&self, name: &RunName) -> bool {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone())
    }

    fn begin(&self, name: RunName) {
        let (shared, under_way) = (self.shared.clone(), self.under_way.clone());
        let task = self.tracker.track_future(async move {
            loop {
                RunDriver::new(&shared, &name).run().await;
                let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                // It may have been begun anew before we noticed that it was over.
                if shared.stop.is_cancelled() || !shared.hub.state().runs.get(&name).is_driven() {
                    under_way.remove(&name);
                    return;
                }
            }
        });
        tasks::spawn("work a run off", task);
    }
}

/// Returns where the workers of a run have their worktrees.
fn worktrees(data: &DataFiles, name: &RunName) -> PathBuf {
    data.worktrees(&format!("run-{name}"))
}

/// Returns what the names of branches begin with on which work of a run is kept.
fn kept(name: &RunName) -> String {
    format!("teamster/run-{name}")
}

/// Returns what the names begin with under which a repository keeps something for a run.
fn anchors(name: &RunName) -> String {
    between::anchor(name, "")
}

/// Returns the repository that a directory is in, if it is in one; if git does not answer for it, what to do about that.
pub(crate) async fn repository(
    held: &Confined,
    directory: &Path,
) -> Result<Option<drive::Repository>, String> {
    match Tree::at(held, directory).await {
        Ok(Some(tree)) => {
            let standing = tree.standing().await.map_err(|error| error.to_string())?;
            let (has_commit, is_on_branch) = match standing {
                Standing::Branch { .. } => (true, true),
                Standing::Detached { .. } => (true, false),
                Standing::Unborn => (false, true),
            };
            let root = tree.root().to_string_lossy().as_ref().into();
            Ok(Some(drive::Repository { root, has_commit, is_on_branch }))
        }
        Ok(None) => Ok(None),
        Err(error) => Err(format!(
            "there is a repository here, but nothing could be committed: {error}\ninstall git, or do what it says, or begin \
             with --no-commit"
        )),
    }
}

/// Returns the items that were completed in an iteration.
fn finished<'a>(run: &'a Run, open: &'a Open) -> impl Iterator<Item = &'a Arc<Item>> {
    let touched = open.touched.iter().filter_map(|item| run.items.get(*item));
    touched.filter(|item| item.status == Status::Completed && item.iteration == open.number)
}

fn finishes(run: &Run, open: &Open) -> bool {
    finished(run, open).next().is_some()
}

/// One run on its way.
struct RunDriver<'a> {
    shared: &'a Shared,
    name: &'a RunName,
    /// Work is taken over by one worker at a time.
    merges: tokio::sync::Mutex<()>,
    /// Iterations are begun by one at a time.
    begins: tokio::sync::Mutex<()>,
    warns: tokio::sync::Mutex<()>,
    /// What hooks said since the last iteration began, for the next.
    said: Mutex<Vec<String>>,
    /// Iterations whose agents an earlier hub saw end: others may have changed the files since.
    found_ended: Vec<u32>,
    /// The run was over before all of its iterations were.
    is_uncleared: AtomicBool,
}

impl<'a> RunDriver<'a> {
    fn new(shared: &'a Shared, name: &'a RunName) -> Self {
        let (merges, begins, warns) = Default::default();
        let state = shared.hub.state();
        let is_live = |open: &&Arc<Open>| {
            state.agents.get(open.agent.as_str()).is_some_and(|agent| agent.is_live())
        };
        let open = state.runs.get(name).iterations.open().filter(|open| !is_live(open));
        let found_ended = open.map(|open| open.number).collect();
        let (said, is_uncleared) = (Mutex::default(), AtomicBool::new(false));
        Self { shared, name, merges, begins, warns, said, found_ended, is_uncleared }
    }

    /// Works until the run is over, or the hub ends.
    async fn run(&self) {
        let state = self.shared.hub.state();
        let Some(drive) = &state.runs.get(self.name).drive else { return };
        // Some may be left of a time when there were more.
        let open = state.runs.get(self.name).iterations.open().map(|open| open.worker + 1).max();
        let n_workers = drive.terms.workers.max(open.unwrap_or_default());
        let _alone = self.alone(drive).await;
        if state.runs.get(self.name).is_driven() && drive.n_iterations == 0 && open.is_none() {
            for says in prompt::doubts(&drive.terms) {
                self.warn_once(says).await;
            }
            let configuration = self.shared.configured.current();
            let programs = &configuration.settings.programs;
            if let Some(says) = agents::doubt(programs, &drive.terms.behaviour) {
                self.warn_once(says).await;
            }
            if drive.terms.workers == 1 && !drive.terms.check.is_empty() {
                let says = "the check is not run, because one works alone; a hook can check each iteration (docs/hooks.md)";
                self.warn_once(says.to_owned()).await;
            }
            self.hook(Event::SessionStart, &drive.terms, Values::default()).await;
        }
        if drive.terms.workers > 1 {
            self.set_carried_aside(drive).await;
        }
        let workers = (0..n_workers).map(|worker| self.work(worker));
        futures_util::future::join_all(workers).await;
        if self.shared.stop.is_cancelled() {
            return;
        }
        // One of several may have ended after the run was over.
        if (self.has_worktrees() || self.is_uncleared.load(Ordering::Relaxed))
            && let Some(drive) = self.drive(&self.shared.hub.state())
        {
            self.clear_up(&drive).await;
        }
    }

    /// Waits until no other hub works in the same repository: each would commit the other's files.
    async fn alone(&self, drive: &Drive) -> Option<Lock> {
        let directory = Path::new(&*drive.terms.directory);
        let tree = Tree::at(self.shared.hub.held(), directory).await.ok().flatten();
        let tree = tree.filter(|_| drive.terms.commits)?;
        loop {
            match tree.lock() {
                Locking::Locked(lock) => return Some(lock),
                Locking::Impossible => return None,
                Locking::Taken => {}
            }
            let says =
                "another hub works a run off in this repository; this one waits until that is over";
            self.warn_once(says.to_owned()).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                () = self.shared.stop.cancelled() => return None,
            }
            let phase = self.drive(&self.shared.hub.state()).map(|drive| drive.phase);
            if !matches!(phase, Some(drive::Phase::Working | drive::Phase::Paused)) {
                return None;
            }
        }
    }

    /// Has it recorded that the run is over, when all that belongs to it is done: after that nobody looks again.
    async fn end(&self, why: drive::Why) {
        let state = self.shared.hub.state();
        let Some(mut drive) = self.drive(&state) else { return };
        let why = match (why, drive.carried.get(&0)) {
            // There is no iteration to come that would commit what the last one could not.
            (drive::Why::Completed, Some(carried))
                if drive.terms.commits && drive.terms.workers == 1 =>
            {
                match self.commit_carried(&state, &drive, carried).await {
                    Ok(()) => {
                        drive.carried.clear();
                        self.tell(drive::Command::SetAside).await;
                        drive::Why::Completed
                    }
                    Err(problem) => {
                        let says = format!("not all of it is committed: {problem}");
                        drive::Why::Leftovers { says: says.into() }
                    }
                }
            }
            (why, _) => why,
        };
        let left = match state.runs.get(self.name).iterations.open().next() {
            None => self.clear_up(&drive).await,
            Some(_) => {
                self.is_uncleared.store(true, Ordering::Relaxed);
                Vec::new()
            }
        };
        let why = match (why, left.is_empty()) {
            (drive::Why::Completed, false) => {
                let says = format!("work that is not on your branch is on {}", git::some_of(&left));
                drive::Why::Leftovers { says: says.into() }
            }
            (drive::Why::Completed, true) => match self.mixed(&drive).await {
                mixed if mixed.is_empty() => drive::Why::Completed,
                mixed => {
                    let files = git::some_of(&mixed);
                    let says = format!(
                        "these files are not committed, because no agent changed them alone: {files}; the warnings say where \
                         each version is kept"
                    );
                    drive::Why::Leftovers { says: says.into() }
                }
            },
            (why, _) => why,
        };
        let is_complete = self.shared.hub.state().runs.get(self.name).completed_at.is_some();
        let is_done = matches!(why, drive::Why::Completed | drive::Why::Leftovers { .. });
        if is_done && !is_complete {
            // Something was left that has to be brought in.
            return;
        }
        let error = match &why {
            drive::Why::Failed { says } | drive::Why::Leftovers { says } => says.to_string(),
            drive::Why::Completed
            | drive::Why::IterationsUsed
            | drive::Why::BudgetSpent
            | drive::Why::Stopped
            | drive::Why::Idle => String::new(),
        };
        let values = Values { why: why.as_str(), error, ..Values::default() };
        self.hook(Event::SessionEnd, &drive.terms, values).await;
        if !self.shared.stop.is_cancelled() {
            self.tell(drive::Command::End { why }).await;
        }
    }

    /// Commits what iterations have left that failed.
    async fn commit_carried(
        &self,
        state: &State,
        drive: &Drive,
        carried: &Carried,
    ) -> Result<(), git::GitError> {
        let Some(last) = state.runs.get(self.name).iterations.ended().next_back() else {
            return Ok(());
        };
        let main = self.main_tree(drive).await?;
        let (base, _) = self.base_after(&main, carried, last.open.number).await?;
        self.commit(state, drive, &last.open, &base).await.map(drop)
    }

    /// Runs the hooks of a moment, if there are some; what is for agents is kept for the next. Says whether there were.
    async fn hook(&self, event: Event, terms: &Terms, values: Values) -> bool {
        let directory = Path::new(&*terms.directory);
        let configuration = self.shared.configured.current();
        let trust = hooks::Trust::of(&self.shared.data);
        let hooks = Hooks::in_project(&configuration, directory, &trust);
        for says in hooks.problems().iter().map(String::as_str).chain(hooks.withheld()) {
            self.warn_once(says.to_owned()).await;
        }
        if !hooks.has(event) {
            return false;
        }
        let values =
            Values { run: self.name.to_string(), spec: PathBuf::from(&*terms.file), ..values };
        let run = |stop: CancellationToken| {
            let (hooks, values, starter) = (&hooks, &values, &self.shared.starter);
            async move { hooks.run(event, values, directory, starter, &stop).await }
        };
        let outcome = match event {
            // Also of a run that was stopped at once.
            Event::SessionEnd => run(self.shared.stop.clone()).await,
            _ => self.unless_stopped(run).await,
        };
        // That it was cut short by the hub's own end is nobody's fault.
        let is_cut = self.shared.stop.is_cancelled();
        for says in outcome.failures().into_iter().filter(|_| !is_cut) {
            self.tell(drive::Command::Warn { says }).await;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(outcome.text_for_prompt());
        true
    }

    /// Does something that is cut short when the hub ends, or when a person has the run stopped at once.
    async fn unless_stopped<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> T {
        let stop = self.shared.stop.child_token();
        let mut work = std::pin::pin!(work(stop.clone()));
        let watch = self.shared.hub.watch(&Topic::Run(self.name.clone()));
        let is_cut = |state: &State| {
            let drive = state.runs.get(self.name).drive.as_ref();
            drive.is_some_and(|drive| drive.stops_now && !drive.is_over()).then_some(())
        };
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = watch.until(&self.shared.hub, is_cut) => stop.cancel(),
        }
        work.await
    }

    /// Tells people something that they were not told since the run was begun. What is wrong with a file is the same when it
    /// moves to another line.
    async fn warn_once(&self, says: String) {
        // Several workers may notice the same.
        let _one_at_a_time = self.warns.lock().await;
        let state = self.shared.hub.state();
        let Some(drive) = self.drive(&state) else { return };
        let same = reading::without_line(&says);
        if !drive.warnings.iter().any(|warning| reading::without_line(&warning.says) == same) {
            self.tell(drive::Command::Warn { says }).await;
        }
    }

    /// Does what one worker is to do, step by step.
    async fn work(&self, worker: u32) {
        let hub = &self.shared.hub;
        let next = |state: &State| drive::next(state.runs.get(self.name), &state.agents, worker);
        while !self.shared.stop.is_cancelled() {
            let step = next(&hub.state());
            match step {
                Next::Over => return,
                Next::Wait => {
                    let watch = hub.watch(&Topic::Run(self.name.clone()));
                    tokio::select! {
                        biased;
                        () = watch.until(hub, |state| (next(state) != Next::Wait).then_some(())) => {}
                        () = self.shared.stop.cancelled() => return,
                    }
                }
                Next::Await(open) => {
                    let watch = hub.watch(&Topic::Agent(open.agent.clone()));
                    let ended = watch.until(hub, |state| {
                        let agent = state.agents.get(open.agent.as_str());
                        agent.is_none_or(|agent| !agent.is_live()).then_some(())
                    });
                    tokio::select! {
                        biased;
                        () = ended => {}
                        () = self.shared.stop.cancelled() => return,
                    }
                }
                Next::Begin { plans } => self.begin(worker, plans).await,
                Next::Finish(open) => self.finish(&open).await,
                Next::End(why) => self.end(why).await,
            }
        }
    }

    fn drive(&self, state: &State) -> Option<Drive> {
        state.runs.get(self.name).drive.clone()
    }

    /// Has something recorded; tries until the log can be written. What comes too late is left out.
    async fn tell(&self, command: drive::Command) -> bool {
        self.submit(run::Command::Drive(command)).await
    }

    /// Says whether it was in time.
    async fn submit(&self, what: run::Command) -> bool {
        self.record(Command::Run { run: self.name.clone(), what }).await
    }

    async fn record(&self, command: Command) -> bool {
        loop {
            match self.shared.hub.submit(Caller::hub(), command.clone(), None).await {
                Ok(_) => return true,
                Err(Failure::Refused(refusal)) => {
                    tracing::debug!(run = self.name.as_str(), %refusal, "too late");
                    return false;
                }
                Err(Failure::Unavailable(why) | Failure::Unknown(why)) => {
                    tracing::warn!(run = self.name.as_str(), why, "could not be recorded");
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                        () = self.shared.stop.cancelled() => return false,
                    }
                }
            }
        }
    }

    /// Returns the name under which a repository keeps something for the run.
    fn anchor(&self, what: &str) -> String {
        between::anchor(self.name, what)
    }

    fn mark(&self, open: &Open) -> String {
        between::mark(self.name, open)
    }

    fn seal(&self, open: &Open, base: &str) -> String {
        self.shared.seals.seal(self.name, open, base)
    }

    /// Returns the repository of a run that has one.
    async fn main_tree(&self, drive: &Drive) -> Result<Tree, git::GitError> {
        let directory = Path::new(&*drive.terms.directory);
        let main = Tree::at(self.shared.hub.held(), directory).await?;
        main.ok_or_else(|| git::GitError::gone(directory))
    }

    /// Does what comes after an iteration's agent.
    async fn finish(&self, open: &Open) {
        let settled = self.settled(open).await;
        let state = self.shared.hub.state();
        let Some(drive) = self.drive(&state) else { return };
        let mut open_now = state.runs.get(self.name).iterations.open();
        let Some(open) = open_now.find(|one| one.number == open.number) else { return };
        let agent = state.agents.get(open.agent.as_str());
        let completed = agent
            .and_then(|agent| agent.outcome.as_ref())
            .is_some_and(|outcome| outcome.ending == teamster_core::agent::Ending::Completed);
        let came = match &open.base {
            _ if settled.is_err() => settled.map(|()| Landed::Nothing),
            // What was finished stays so, whatever became of its agent after that.
            Some(base) if completed || finishes(state.runs.get(self.name), open) => {
                self.commit(&state, &drive, open, base).await
            }
            Some(base) if drive.terms.workers > 1 => {
                self.set_aside(&state, &drive, open, base).await.map(|()| Landed::Nothing)
            }
            Some(base) => {
                // Nobody may ever resume the run, and `run forget` removes how the files were.
                let kept = async {
                    let main = self.main_tree(&drive).await?;
                    self.keep_theirs(&main, open, base).await
                };
                if let Err(error) = kept.await {
                    tracing::warn!(run = self.name.as_str(), %error, "nothing could be kept");
                }
                Ok(Landed::Nothing)
            }
            None => Ok(Landed::Nothing),
        };
        if self.shared.stop.is_cancelled() {
            // It may have been cut short, and is done again when the hub starts again.
            return;
        }
        self.return_unmerged(&drive, open).await;
        let state = self.shared.hub.state();
        let (commit, problem) = match came {
            Ok(Landed::Nothing) => (None, None),
            Ok(Landed::Commit(commit)) => (Some(commit), None),
            Ok(Landed::LeftOver(why)) => (None, Some(why)),
            Err(problem) => {
                (None, Some(format!("what it changed could not be committed: {problem}")))
            }
        };
        self.hooks_after(&state, &drive, open, completed, commit.as_deref(), problem.as_deref())
            .await;
        if self.shared.stop.is_cancelled() {
            return;
        }
        let (iteration, commit) = (open.number, commit.map(Into::into));
        self.tell(drive::Command::EndIteration { iteration, commit, problem }).await;
    }

    /// Has recorded what others have changed since an agent ended, if that was in the time of an earlier hub, or since it last
    /// had a process, if it was ended without one.
    async fn settled(&self, open: &Open) -> Result<(), git::GitError> {
        let state = self.shared.hub.state();
        let Some(agent) = state.agents.get(open.agent.as_str()) else { return Ok(()) };
        let was_left = open.left.as_ref().is_some_and(|left| left.incarnation == agent.incarnation);
        if !self.found_ended.contains(&open.number) && !was_left {
            return Ok(());
        }
        for command in self.shared.between.settle(agent).await? {
            self.record(command).await;
        }
        Ok(())
    }

    /// Runs the hooks that come after an iteration's agent.
    async fn hooks_after(
        &self,
        state: &State,
        drive: &Drive,
        open: &Open,
        completed: bool,
        commit: Option<&str>,
        problem: Option<&str>,
    ) {
        if open.plans && completed && problem.is_none() {
            return;
        }
        let iteration = Some(open.number.into());
        let values = || Values {
            iteration,
            commit: commit.unwrap_or_default().to_owned(),
            ..Values::default()
        };
        let run = state.runs.get(self.name);
        for item in finished(run, open) {
            let id = item.id.to_string();
            let values = Values { item_id: id, item_content: item.content.to_string(), ..values() };
            self.hook(Event::OnItemComplete, &drive.terms, values).await;
        }
        let error = match problem {
            None if completed => {
                self.hook(Event::PostIteration, &drive.terms, values()).await;
                return;
            }
            Some(problem) => problem.to_owned(),
            None => {
                let agent = state.agents.get(open.agent.as_str());
                let outcome = agent.and_then(|agent| agent.outcome.as_ref());
                outcome.map(|outcome| outcome.summary.to_string()).unwrap_or_default()
            }
        };
        let values = Values { error, ..values() };
        self.hook(Event::OnError, &drive.terms, values).await;
    }

    /// Commits what an iteration has changed, and takes it over if its worker works apart.
    async fn commit(
        &self,
        state: &State,
        drive: &Drive,
        open: &Open,
        base: &str,
    ) -> Result<Landed, git::GitError> {
        let main = self.main_tree(drive).await?;
        let seal = self.seal(open, base);
        if drive.terms.workers == 1 {
            let (subject, body) = self.words(state, open);
            let mark = self.mark(open);
            let message = Message { subject: &subject, body: &body, mark: &mark, seal: &seal };
            self.keep_theirs(&main, open, base).await?;
            // Its agent may have committed all of it itself.
            let (commit, left_out) = main.commit_since(base, &message).await?;
            let commit = match commit {
                Some(commit) => Some(commit),
                None => main.moved_since(base).await,
            };
            self.warn_of(&main, open, base, &left_out).await;
            return Ok(commit.map_or(Landed::Nothing, Landed::Commit));
        }
        if let Some(known) = main.find(base, &seal).await? {
            // Only that was not written down; what a check has left is no work.
            let tree = self.worktree_of(&main, open.worker).await?;
            tree.reset_to(&known).await?;
            return Ok(Landed::Commit(known));
        }
        let tree = match self.worktree_after(&main, open).await? {
            Ok(tree) => tree,
            Err(came) => return Ok(came),
        };
        match self.gathered(state, &tree, open, base).await? {
            Some(work) => self.take_over(&main, &tree, drive, open, &work).await,
            None => Ok(Landed::Nothing),
        }
    }

    /// Tells the user what an agent did to the repository beside changing files.
    async fn warn_of(&self, main: &Tree, open: &Open, base: &str, left_out: &git::LeftOut) {
        let number = open.number;
        let git::LeftOut { repositories, unclear } = left_out;
        if !unclear.is_empty() {
            self.warn_once(format!(
                "iteration {number} changed what git ignores, and git ignored too many files before to list them all. These new \
                 files are not committed, because they may be yours: {}. Commit them yourself if you want to keep them",
                git::some_of(unclear)
            ))
            .await;
        }
        if let Some(first) = repositories.first() {
            self.warn_once(format!(
                "iteration {number} created a git repository in {}. Its files are not committed. To have them committed, remove                  {first}/.git, or make it a submodule",
                git::some_of(repositories)
            ))
            .await;
        }
        if let Some((was, is)) = main.switched_since(base).await {
            self.warn_once(format!(
                "the branch changed from {was} to {is} during iteration {number}. Its commit is on {is}, and so are those of later                  iterations. To go back, run `git switch {was}`"
            ))
            .await;
        }
    }

    /// Keeps how files were that a person had changed, if an agent has changed them further, and tells the person.
    async fn keep_theirs(&self, main: &Tree, open: &Open, base: &str) -> Result<(), git::GitError> {
        let files = main.overwritten(base).await?;
        if files.is_empty() {
            return Ok(());
        }
        let name = between::yours_name(self.name, open.number);
        let name = main.keep_files(&name, base, &files).await?;
        let first = files.first().map(String::as_str).unwrap_or_default();
        self.warn_once(format!(
            "iteration {} has changed what you had changed before and not committed: {}; it is not committed, and as you had it \
             it is kept (`git show {name}:{first}`)",
            open.number,
            git::some_of(&files)
        ))
        .await;
        Ok(())
    }

    /// Returns the files that both the user and an agent of the run have changed, at any time, and that are not committed yet.
    async fn mixed(&self, drive: &Drive) -> Vec<String> {
        if !drive.terms.commits {
            return Vec::new();
        }
        let mixed = async {
            let main = self.main_tree(drive).await?;
            let mut kept = main.names(&self.anchor("yours-*")).await?;
            kept.extend(main.names(&self.anchor("left-*")).await?);
            main.uncommitted_of(&kept).await
        };
        mixed.await.unwrap_or_else(|error| {
            tracing::warn!(run = self.name.as_str(), %error, "the files cannot be looked at");
            Vec::new()
        })
    }

    /// Returns the first line and the rest of a commit's message.
    fn words(&self, state: &State, open: &Open) -> (String, String) {
        let run = state.runs.get(self.name);
        let item = open.item.and_then(|item| run.items.get(item));
        let summary = run.iterations.summary(open.number).map(|summary| summary.text.clone());
        let summary = summary.unwrap_or_default();
        let mut lines = summary.lines();
        let first = lines.next().unwrap_or_default().trim();
        let first = match (first, item) {
            ("", Some(item)) => item.content.lines().next().unwrap_or_default(),
            (first, _) => first,
        };
        let plain = |text: &str| text.replace(|c: char| c.is_control() && c != '\n', " ");
        let first = plain(first);
        let is_long = first.chars().count() > SUBJECT_CHARS_MAX;
        let subject: String = match (first.is_empty(), is_long) {
            (true, _) => format!("iteration {} of {}", open.number, self.name),
            (false, true) => {
                let cut: String = first.chars().take(SUBJECT_CHARS_MAX - 1).collect();
                format!("{cut}…")
            }
            (false, false) => first.clone(),
        };
        let rest: Vec<&str> = lines.collect();
        let rest = if is_long { summary.to_string() } else { rest.join("\n") };
        let item = item.map(|item| format!("{}: {}", item.id, item.content));
        let body = [plain(rest.trim()), plain(&item.unwrap_or_default())];
        let body: Vec<String> = body.into_iter().filter(|part| !part.is_empty()).collect();
        (subject, body.join("\n\n"))
    }
}
