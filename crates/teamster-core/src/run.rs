//! Runs: a list of items with its notes and iterations, worked off until it is complete.

use std::path::Path;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::drive::{self, Drive, Terms};
use crate::ids::{ItemId, TokenId};
use crate::item::{self, Item, Items, Status};
use crate::iteration::{self, Iterations};
use crate::note::{self, Notes};
use crate::token::Kind;
use crate::{Caller, Context, Record, RunName, Summary, Timestamp};

/// As many items as one token may have in progress: when it ends they are all released in one commit.
pub const HELD_MAX: usize = 1_000;
/// As many runs as one workspace may hold.
pub const RUNS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub items: Items,
    pub notes: Notes,
    pub iterations: Iterations,
    pub completed_at: Option<Timestamp>,
    /// How the hub works it off, if it does or did.
    pub drive: Option<Drive>,
}

impl Run {
    /// Says whether the hub works it off.
    pub fn is_driven(&self) -> bool {
        self.drive.as_ref().is_some_and(|drive| !drive.is_over())
    }

    /// Says whether an item waits for one that was finished in an iteration, other than `own`, that is not over: what was
    /// done in it is not with the others yet.
    pub(crate) fn is_early(&self, item: &Item, own: Option<u32>) -> bool {
        let is_open =
            |number| Some(number) != own && self.iterations.open().any(|one| one.number == number);
        item.depends_on.iter().any(|id| {
            let on = self.items.get(*id).filter(|on| on.status == Status::Completed);
            on.is_some_and(|on| is_open(on.iteration))
        })
    }
}

/// What can be asked of a run. Each noun in it has its own commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Item(item::Command),
    Note(note::Command),
    Iteration(iteration::Command),
    Drive(drive::Command),
    /// Marks the run complete. Repeating it is answered, not refused.
    Complete,
    /// Removes the run, whose name can be used again then. Repeating it is answered, not refused.
    Forget,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Item(item::Event),
    Note(note::Event),
    Iteration(iteration::Event),
    Drive(drive::Event),
    Completed,
    /// Something unfinished came into a completed run.
    Reopened,
    /// There is no such run any more.
    Forgotten,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Item(#[from] item::Refusal),
    #[error(transparent)]
    Note(#[from] note::Refusal),
    #[error(transparent)]
    Iteration(#[from] iteration::Refusal),
    #[error(transparent)]
    Drive(#[from] drive::Refusal),
    #[error(
        "iteration #{0} only makes the plan: add the tasks, write the iteration-summary and end your turn"
    )]
    OnlyPlans(u32),
    #[error(
        "iteration #{iteration} is for {item}; finish that one, write the iteration-summary and end your turn: the next \
         iteration takes the next"
    )]
    OnePerIteration { iteration: u32, item: ItemId },
    #[error(
        "{0} is being worked on in another iteration; take another one, task-next gives you one"
    )]
    Taken(ItemId),
    #[error("{0} was cancelled; leave it as it is, write the iteration-summary, and end your turn")]
    Cancelled(ItemId),
    #[error(
        "cannot complete session: {n} task(s) not in terminal state ({first}); complete, block or cancel them first"
    )]
    Unfinished { n: u32, first: String },
    #[error("you have {HELD_MAX} tasks in progress, which is the limit; finish some of them first")]
    TooManyHeld,
    #[error("there are {RUNS_MAX} runs, which is the limit; use one of them")]
    TooMany,
    #[error("run {0} is under way; stop it first with `teamster steer {0} stop`, then forget it")]
    UnderWay(RunName),
    #[error(
        "run {run} cannot be forgotten: {holder} is working on {item}; wait, or revoke its token"
    )]
    Held { run: RunName, item: ItemId, holder: crate::PrincipalName },
}

/// The view of all runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "OrdMap<RunName, Arc<Run>>", into = "OrdMap<RunName, Arc<Run>>")]
pub struct Runs {
    by_name: OrdMap<RunName, Arc<Run>>,
    /// What each token has in progress.
    held: OrdSet<(TokenId, RunName, ItemId)>,
    nothing: Run,
}

impl Runs {
    /// Returns the run; one that nobody has written to yet is empty.
    pub fn get(&self, name: &RunName) -> &Run {
        self.by_name.get(name).map_or(&self.nothing, |run| run)
    }

    /// Says whether there is such a run.
    pub fn has(&self, name: &RunName) -> bool {
        self.by_name.contains_key(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RunName, &Arc<Run>)> {
        self.by_name.iter()
    }

    /// Returns the items that a token has in progress, in every run.
    pub(crate) fn held_by(&self, token: TokenId) -> impl Iterator<Item = (&RunName, ItemId)> {
        // Run names are not empty, so this lower bound is below all of them.
        self.held
            .range(lowest(token)..)
            .take_while(move |(holder, _, _)| *holder == token)
            .map(|(_, run, item)| (run, *item))
    }

    /// Returns the events that `command` causes in the run `name`, or why it is refused.
    pub(crate) fn decide(
        &self,
        name: &RunName,
        command: &Command,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if *command == Command::Forget {
            return self.forget(name, &cx.caller);
        }
        if !self.by_name.contains_key(name) && self.by_name.len() >= RUNS_MAX {
            return Err(Refusal::TooMany);
        }
        let starts = matches!(
            &command,
            Command::Item(item::Command::Claim)
                | Command::Item(item::Command::Update { status: Some(Status::InProgress), .. })
        );
        if starts
            && cx.caller.token.is_some_and(|token| self.held_by(token).nth(HELD_MAX - 1).is_some())
        {
            return Err(Refusal::TooManyHeld);
        }
        let is_edit = matches!(
            command,
            Command::Item(item::Command::Edit { .. })
                | Command::Note(note::Command::Edit { .. } | note::Command::Remove { .. })
        );
        if is_edit && !cx.caller.kind.may_operate() {
            return Err(drive::Refusal::OperatorsOnly.into());
        }
        let is_merge = matches!(
            command,
            Command::Item(item::Command::AddMerge { .. } | item::Command::Return { .. })
        );
        if is_merge && cx.caller.kind != Kind::Hub {
            return Err(drive::Refusal::HubOnly.into());
        }
        let run = self.get(name);
        let mut events: Vec<Event> = match command {
            Command::Item(command) => {
                let held = cx.caller.token.into_iter().flat_map(|token| self.held_by(token));
                let current = run.iterations.number_of(&cx.caller.principal);
                let held = held
                    .filter(|(held_in, _)| *held_in == name)
                    .map(|(_, id)| id)
                    .filter(|id| run.items.get(*id).is_some_and(|item| item.iteration == current));
                let own = run.iterations.of(&cx.caller.principal);
                let other = run.iterations.open().filter(|open| own != Some(*open));
                let reserved: Vec<ItemId> = other.filter_map(|open| open.item).collect();
                let number = own.map(|open| open.number);
                let is_reserved =
                    |item: &Item| reserved.contains(&item.id) || run.is_early(item, number);
                let first = own.and_then(|open| open.item);
                let events = run.items.decide(command, held, first, &is_reserved)?;
                // What another iteration has begun is for it to say.
                let is_others = |event: &&item::Event| {
                    event.changes_status() && own.is_some() && reserved.contains(&event.item())
                };
                if let Some(event) = events.iter().find(is_others) {
                    return Err(Refusal::Taken(event.item()));
                }
                let is_cancelled = |id: &ItemId| {
                    run.items.get(*id).is_some_and(|item| item.status == Status::Cancelled)
                };
                let changed = events.iter().filter(|event| event.changes_status());
                if let Some(id) = changed.map(item::Event::item).find(is_cancelled)
                    && own.is_some()
                {
                    return Err(Refusal::Cancelled(id));
                }
                if let Some(id) = events.iter().find_map(item::Event::starts) {
                    match own {
                        Some(open) if open.plans => return Err(Refusal::OnlyPlans(open.number)),
                        Some(open) if open.item.is_some_and(|item| item != id) => {
                            let item = open.item.unwrap_or(id);
                            return Err(Refusal::OnePerIteration { iteration: open.number, item });
                        }
                        Some(_) | None
                            if run.items.get(id).is_some_and(|item| is_reserved(item)) =>
                        {
                            return Err(Refusal::Taken(id));
                        }
                        Some(_) | None => {}
                    }
                }
                events.into_iter().map(Event::Item).collect()
            }
            Command::Note(command) => {
                run.notes.decide(command)?.into_iter().map(Event::Note).collect()
            }
            Command::Iteration(command) => run
                .iterations
                .decide(command, run.items.in_progress(), &cx.caller.principal, run.is_driven())?
                .into_iter()
                .map(Event::Iteration)
                .collect(),
            Command::Drive(command) => {
                let is_begin = matches!(command, drive::Command::Begin(_));
                if is_begin && *name == RunName::default_run() && run.drive.is_none() {
                    return Err(drive::Refusal::Shared.into());
                }
                let events = drive::decide(run, command, cx)?;
                if let [drive::Event::Begun { terms, .. }] = &*events {
                    self.has_room(name, terms)?;
                }
                // Iteration 0 makes the plan.
                let is_new = matches!(&*events, [drive::Event::Begun { resumes: false, .. }])
                    && run.iterations == Iterations::default();
                let numbered = is_new.then_some(iteration::Event::Numbered { next: 0 });
                let numbered = numbered.map(Event::Iteration);
                events.into_iter().map(Event::Drive).chain(numbered).collect()
            }
            Command::Forget => Vec::new(),
            Command::Complete if run.completed_at.is_some() => Vec::new(),
            Command::Complete => match run.items.n_unfinished() {
                0 => vec![Event::Completed],
                n => {
                    let unfinished =
                        run.items.ranked_after(None).filter(|item| !item.status.is_finished());
                    let mut first: Vec<String> =
                        unfinished.take(5).map(|item| item.id.to_string()).collect();
                    if n > 5 {
                        first.push("…".into());
                    }
                    return Err(Refusal::Unfinished { n, first: first.join(", ") });
                }
            },
        };
        if run.completed_at.is_some() && events.iter().any(leaves_something_unfinished) {
            events.insert(0, Event::Reopened);
        }
        Ok(events)
    }

    /// Refuses what [`Command::Forget`] would be refused. The hub asks before it removes the files of a run.
    pub fn may_forget(&self, name: &RunName, caller: &Caller) -> Result<(), Refusal> {
        self.forget(name, caller).map(|_| ())
    }

    fn forget(&self, name: &RunName, caller: &Caller) -> Result<Vec<Event>, Refusal> {
        if !caller.kind.may_operate() {
            return Err(drive::Refusal::OperatorsOnly.into());
        }
        let Some(run) = self.by_name.get(name) else { return Ok(Vec::new()) };
        if run.is_driven() || run.iterations.open().next().is_some() {
            return Err(Refusal::UnderWay(name.clone()));
        }
        let in_progress = run.items.in_progress().filter_map(|id| run.items.get(id));
        let mut held = in_progress.filter_map(|item| Some((item.id, item.holder.as_ref()?)));
        // A caller that forgets a run no longer needs the items it holds there.
        match held.find(|(_, holder)| holder.principal != caller.principal) {
            Some((item, holder)) => {
                let (run, holder) = (name.clone(), holder.principal.clone());
                Err(Refusal::Held { run, item, holder })
            }
            None => Ok(vec![Event::Forgotten]),
        }
    }

    /// Refuses terms on which two runs would commit the same files, or in the same repository.
    fn has_room(&self, name: &RunName, terms: &Terms) -> Result<(), drive::Refusal> {
        for (other, run) in self.iter().filter(|(other, run)| *other != name && run.is_driven()) {
            let Some(theirs) = run.drive.as_ref().map(|drive| &drive.terms) else { continue };
            if terms.commits && theirs.commits && share_files(terms, theirs) {
                return Err(drive::Refusal::SamePlace(other.clone()));
            }
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, name: &RunName, event: &Event, record: &Record) {
        let mut run = self.by_name.get(name).map(|run| Run::clone(run)).unwrap_or_default();
        match event {
            Event::Forgotten => {
                for item in run.items.in_progress().filter_map(|id| run.items.get(id)) {
                    if let Some(holder) = &item.holder {
                        self.held.remove(&(holder.token, name.clone(), item.id));
                    }
                }
                self.by_name.remove(name);
                return;
            }
            Event::Item(event) => {
                let id = event.item();
                let holder = |run: &Run| {
                    run.items.get(id).and_then(|item| item.holder.as_ref().map(|held| held.token))
                };
                let was = holder(&run);
                run.items.apply(event, record, run.iterations.number_of(&record.by));
                run.iterations.touch(event, &record.by);
                if let Some(token) = was {
                    self.held.remove(&(token, name.clone(), id));
                }
                if let Some(token) = holder(&run) {
                    self.held.insert((token, name.clone(), id));
                }
            }
            Event::Note(event) => {
                run.notes.apply(event, record, run.iterations.number_of(&record.by));
            }
            Event::Iteration(event) => {
                if let iteration::Event::Ended { iteration, end } = event
                    && let Some(open) = run.iterations.open().find(|one| one.number == *iteration)
                    && let Some(drive) = &mut run.drive
                {
                    let has_plan = !run.items.is_empty() || run.completed_at.is_some();
                    drive.iteration_ended(open, end, has_plan);
                }
                let begins = matches!(event, iteration::Event::Begun { .. });
                let drive = run.drive.as_mut().filter(|_| begins);
                let messages = drive.map(|drive| std::mem::take(&mut drive.messages));
                run.iterations.apply(event, record, messages.unwrap_or_default());
            }
            Event::Drive(event) => drive::apply(&mut run.drive, event, record),
            Event::Completed => run.completed_at = Some(record.at),
            Event::Reopened => run.completed_at = None,
        }
        self.by_name.insert(name.clone(), Arc::new(run));
    }
}

/// Says whether two runs that commit work on the same files, or in the same repository.
fn share_files(ours: &Terms, theirs: &Terms) -> bool {
    let [our_directory, their_directory] = [ours, theirs].map(|terms| Path::new(&*terms.directory));
    let is_same_repository = match (&ours.repository, &theirs.repository) {
        (Some(ours), Some(theirs)) => ours == theirs,
        // A run that an older hub began has no repository on record; its directory is most likely in this one.
        (Some(ours), None) => their_directory.starts_with(&**ours),
        (None, _) => false,
    };
    is_same_repository
        || our_directory.starts_with(their_directory)
        || their_directory.starts_with(our_directory)
}

fn lowest(token: TokenId) -> (TokenId, RunName, ItemId) {
    (token, RunName::lowest(), ItemId(0))
}

fn leaves_something_unfinished(event: &Event) -> bool {
    match event {
        Event::Item(item::Event::Added { status, .. }) => !status.is_finished(),
        Event::Item(item::Event::Updated { status, .. }) => {
            status.is_some_and(|status| !status.is_finished())
        }
        Event::Item(
            item::Event::Claimed { .. }
            | item::Event::Released { .. }
            | item::Event::Returned { .. },
        ) => true,
        Event::Item(
            item::Event::Edited { .. }
            | item::Event::Linked { .. }
            | item::Event::MergeAsked { .. },
        ) => false,
        Event::Note(_)
        | Event::Iteration(_)
        | Event::Drive(_)
        | Event::Completed
        | Event::Reopened
        | Event::Forgotten => false,
    }
}

impl From<OrdMap<RunName, Arc<Run>>> for Runs {
    fn from(by_name: OrdMap<RunName, Arc<Run>>) -> Self {
        let mut held = OrdSet::new();
        for (name, run) in &by_name {
            for item in run.items.ranked_after(None) {
                if let Some(holder) = &item.holder {
                    held.insert((holder.token, name.clone(), item.id));
                }
            }
        }
        Self { by_name, held, nothing: Run::default() }
    }
}

impl From<Runs> for OrdMap<RunName, Arc<Run>> {
    fn from(runs: Runs) -> Self {
        runs.by_name
    }
}

impl Event {
    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Item(event) => event.text_bytes(),
            Self::Note(event) => event.text_bytes(),
            Self::Iteration(event) => event.text_bytes(),
            Self::Drive(event) => event.text_bytes(),
            Self::Completed | Self::Reopened | Self::Forgotten => 0,
        }
    }

    pub(crate) fn fate(&self, run: &Run) -> Fate {
        match self {
            // Who began it, and in which iteration, is needed when that comes to its end.
            Self::Item(event) if run.iterations.is_touched(event.item()) => Fate::Kept,
            Self::Item(event) => event.fate(),
            Self::Note(event) => event.fate(),
            Self::Iteration(_) | Self::Forgotten => Fate::Kept,
            Self::Drive(event) => event.fate(),
            Self::Completed | Self::Reopened => Fate::KeptIfLast(vec!["completed".into()]),
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Item(event) => event.summary(),
            Self::Note(event) => event.summary(),
            Self::Iteration(event) => event.summary(),
            Self::Drive(event) => event.summary(),
            Self::Completed => Summary::new("done", "run marked complete".into()),
            Self::Reopened => Summary::new("edit", "run reopened".into()),
            Self::Forgotten => Summary::new("edit", "run forgotten".into()),
        }
    }
}

#[cfg(test)]
mod tests;
