//! What the view of a run shows: the run as the hub tells it, what its agent does, and where the person is.

use teamster_agents::agent::Event;
use teamster_api::agents::Phase;
use teamster_api::runs::{Item, ItemStatus, Message, Note, Run};
use teamster_core::Timestamp;
use teamster_core::spending::Spent;

use super::editor::Editor;
use super::stream::Stream;
use crate::cli::budget;

/// What the views ask a run.
pub(in crate::cli) trait Watched {
    /// The hub does not work on it, and none of its iterations is open.
    fn is_over(&self) -> bool;
    fn n_workers(&self) -> u32;
    /// What it has cost in all, with what is under way.
    fn spent(&self) -> Spent;
    /// How long it was worked on, in milliseconds.
    fn took_ms(&self, now: Timestamp) -> Option<i64>;
    fn messages(&self) -> &[Message];
    fn n_items(&self, statuses: &[ItemStatus]) -> usize;
    /// The items, those first that matter now.
    fn items(&self) -> Vec<&Item>;
    fn item(&self, id: &str) -> Option<&Item>;
}

impl Watched for Run {
    fn is_over(&self) -> bool {
        !self.line.under_way && self.open.is_empty()
    }

    fn n_workers(&self) -> u32 {
        let seen = self.open.iter().map(|open| open.worker + 1).max().unwrap_or(1);
        self.line.workers.unwrap_or(1).max(seen)
    }

    fn spent(&self) -> Spent {
        let mut sum = budget::sum(&self.line.spent.unwrap_or_default());
        let open = self.open.iter().filter_map(|open| open.spent.as_ref());
        open.for_each(|more| sum.add_all(&budget::sum(more)));
        sum
    }

    fn took_ms(&self, now: Timestamp) -> Option<i64> {
        let begun = self.line.resumed_at.or(self.line.begun_at)?;
        let before = i64::try_from(self.line.worked_ms.unwrap_or_default()).unwrap_or(i64::MAX);
        // Its agents may still be ending after it is over.
        let since = if self.line.under_way { now.0.saturating_sub(begun).max(0) } else { 0 };
        Some(before.saturating_add(since))
    }

    fn messages(&self) -> &[Message] {
        self.messages.as_deref().unwrap_or_default()
    }

    fn n_items(&self, statuses: &[ItemStatus]) -> usize {
        self.item_list.iter().filter(|item| statuses.contains(&item.status)).count()
    }

    fn items(&self) -> Vec<&Item> {
        let rank = |item: &&Item| match item.status {
            ItemStatus::InProgress => 0,
            ItemStatus::Remaining => 1,
            ItemStatus::Blocked => 2,
            ItemStatus::Completed => 3,
            ItemStatus::Cancelled => 4,
        };
        let mut items: Vec<&Item> = self.item_list.iter().collect();
        items.sort_by_key(rank);
        items
    }

    fn item(&self, id: &str) -> Option<&Item> {
        self.item_list.iter().find(|item| item.id == id)
    }
}

/// A part of the screen that can be scrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Stream,
    Items,
    Iterations,
    Notes,
    Messages,
}

impl Pane {
    pub(super) const ALL: [Self; 5] =
        [Self::Stream, Self::Items, Self::Iterations, Self::Notes, Self::Messages];
    pub(super) const SIDE: [Self; 4] = [Self::Items, Self::Iterations, Self::Notes, Self::Messages];
}

/// What is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Writes {
    Message,
    NewItem,
    /// An item, and what it said when that was begun.
    Item {
        id: String,
        was: String,
    },
    Note,
}

/// What the person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Stop now, and go on watching.
    Stop,
    /// Stop now, and leave.
    Interrupt,
}

#[derive(Debug)]
pub(super) enum Mode {
    Normal,
    Writing(Writes, Editor),
    Asking(Asks),
    Help,
    /// One thing, whole; from which line on.
    Reading {
        title: String,
        text: String,
        first: usize,
    },
}

/// Whose stream is shown, and how far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Feed {
    pub(super) agent: String,
    iteration: u32,
    is_done: bool,
}

/// Where a stream is looked at: from this line of this entry on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Top {
    pub(super) entry: u64,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) run: Run,
    pub(super) now: Timestamp,
    /// Columns and rows.
    pub(super) size: (u16, u16),
    pub(super) stream: Stream,
    pub(super) feed: Option<Feed>,
    /// The worker whose stream is shown, from 0.
    pub(super) worker: u32,
    /// Where the person has scrolled to; otherwise the newest is shown.
    pub(super) top: Option<Top>,
    /// Thoughts are shown whole.
    pub(super) unfolded: bool,
    pub(super) focus: Pane,
    /// The item that the person has chosen; otherwise the first one is marked.
    pub(super) item: Option<String>,
    /// What is chosen in the other panes, by its place.
    pub(super) chosen: [usize; 3],
    pub(super) mode: Mode,
    /// What came of the last thing that was asked for.
    pub(super) says: Option<Result<String, String>>,
    /// The hub is gone: it was so when we last heard of it.
    pub(super) is_gone: bool,
    /// What starts a hub.
    pub(super) starts_hub: String,
    /// The last warning that is in the stream.
    warned: u32,
}

impl Model {
    pub(super) fn new(run: Run, now: Timestamp) -> Self {
        let mut model = Self {
            run: Run::default(),
            now,
            size: (80, 24),
            stream: Stream::default(),
            feed: None,
            worker: 0,
            top: None,
            unfolded: false,
            focus: Pane::Stream,
            item: None,
            chosen: [0; 3],
            mode: Mode::Normal,
            says: None,
            is_gone: false,
            starts_hub: "teamster up -d".to_owned(),
            warned: 0,
        };
        model.take_run(run);
        model
    }

    pub(super) fn take_run(&mut self, run: Run) {
        self.run = run;
        // What is done is at the end, and would take the eye away from what matters now.
        let is_wanted =
            |item: &Item| self.focus == Pane::Items || item.status != ItemStatus::Completed;
        let chosen = self.item.as_ref().and_then(|id| self.run.item(id));
        if !chosen.is_some_and(is_wanted) {
            self.item = None;
        }
        self.worker = self.worker.min(self.run.n_workers() - 1);
        self.take_warnings();
        self.next_feed();
    }

    /// Takes in what came of something that was asked for. What the person wrote for it in vain can be sent again.
    pub(super) fn take_done(
        &mut self,
        says: Result<String, String>,
        written: Option<(Writes, String)>,
    ) {
        let written = written.filter(|_| says.is_err());
        if let (Some((what, text)), Mode::Normal) = (written, &self.mode) {
            self.mode = Mode::Writing(what, Editor::with(&text));
        }
        self.says = Some(says);
    }

    /// Chooses whose stream is shown.
    pub(super) fn choose_worker(&mut self, worker: u32) {
        if worker < self.run.n_workers() && worker != self.worker {
            self.worker = worker;
            self.stream.clear();
            (self.feed, self.top) = (None, None);
            self.warned = 0;
            self.take_warnings();
            self.next_feed();
        }
    }

    /// Adds the warnings to the stream that are not in it.
    fn take_warnings(&mut self) {
        for warning in self.run.warnings.iter().flatten() {
            if warning.number > self.warned {
                self.stream.warn(&warning.says);
                self.warned = warning.number;
            }
        }
    }

    /// Goes on with the worker's next iteration, if the one that is shown has been shown to its end.
    fn next_feed(&mut self) {
        if self.feed.as_ref().is_some_and(|feed| !feed.is_done) {
            return;
        }
        let worker = self.worker;
        let open = self.run.open.iter().filter(|open| open.worker == worker);
        let open = open.map(|open| (open.number, &open.agent, open.plans, &open.item));
        let ended = self.run.ended.iter().filter(|ended| ended.worker == worker);
        let ended = ended.map(|ended| (ended.number, &ended.agent, ended.plans, &ended.item));
        let all = open.chain(ended);
        let next = match &self.feed {
            Some(feed) => all
                .filter(|one| one.0 >= feed.iteration && *one.1 != feed.agent)
                .min_by_key(|one| one.0),
            None => all.max_by_key(|one| one.0),
        };
        if let Some((iteration, agent, plans, item)) = next {
            let feed = Feed { agent: agent.clone(), iteration, is_done: false };
            let about = match (plans, item) {
                (true, _) => " · plans".to_owned(),
                (false, Some(id)) => format!(" · {}", self.item_line(id)),
                (false, None) => String::new(),
            };
            self.stream.head(&format!("── iteration {iteration} · {agent}{about}"));
            self.feed = Some(feed);
        }
    }

    fn item_line(&self, id: &str) -> String {
        let content = self.run.item(id).map(|item| item.content.as_str()).unwrap_or_default();
        format!("{id} {content}")
    }

    /// Returns what a worker works on, or why it does not.
    pub(super) fn works_on(&self, worker: u32) -> String {
        let Some(open) = self.run.open.iter().find(|open| open.worker == worker) else {
            let waits = self.run.waiting.iter().find(|waits| waits.worker == worker);
            return waits.map_or_else(|| "idle".to_owned(), |waits| waits.why.clone());
        };
        let about = match (open.plans, &open.item) {
            (true, _) => " · plans".to_owned(),
            (false, Some(id)) => format!(" · {}", self.item_line(id)),
            (false, None) => String::new(),
        };
        let phase = match open.agent_phase {
            _ if open.held_up.is_some() => {
                format!(" · {}", open.held_up.as_deref().unwrap_or_default())
            }
            Some(phase @ (Phase::Queued | Phase::Ending)) => format!(" · {phase}"),
            // Its agent is done, what comes after it is not.
            Some(Phase::Ended) => " · finishing".to_owned(),
            Some(Phase::Running | Phase::Adopted | Phase::Asleep) | None => String::new(),
        };
        format!("iteration {}{phase} · {}{about}", open.number, open.agent)
    }

    /// Returns what a worker works on in a line among those of others: its item matters most.
    pub(super) fn works_on_briefly(&self, worker: u32) -> String {
        let Some(open) = self.run.open.iter().find(|open| open.worker == worker) else {
            return self.works_on(worker);
        };
        let state = match open.agent_phase {
            _ if open.held_up.is_some() => open.held_up.as_deref().unwrap_or_default(),
            Some(Phase::Queued) => "is queued",
            Some(Phase::Ending) => "is being ended",
            Some(Phase::Ended) => "finishes",
            Some(Phase::Running | Phase::Adopted | Phase::Asleep) | None => "works",
        };
        let about = match (open.plans, &open.item) {
            (true, _) => "the plan".to_owned(),
            (false, Some(id)) => self.item_line(id),
            (false, None) => "chooses an item".to_owned(),
        };
        format!("#{} {state} · {about}", open.number)
    }

    /// Takes in records of an agent's transcript.
    pub(super) fn take_records(&mut self, agent: &str, records: &[Event], is_end: bool) {
        let Some(feed) = self.feed.as_mut().filter(|feed| feed.agent == agent) else { return };
        feed.is_done |= is_end;
        let directory = self.run.line.directory.clone().unwrap_or_default();
        records.iter().for_each(|record| self.stream.take(record, &directory));
        self.next_feed();
    }

    /// Returns whose records are to be read, if somebody's are.
    pub(super) fn wants(&self) -> Option<&str> {
        self.feed.as_ref().filter(|feed| !feed.is_done).map(|feed| feed.agent.as_str())
    }

    pub(super) fn n_rows(&self, pane: Pane) -> usize {
        match pane {
            Pane::Stream => 0,
            Pane::Items => self.run.item_list.len(),
            Pane::Iterations => self.run.ended.len(),
            Pane::Notes => self.run.notes.len(),
            Pane::Messages => self.run.messages().len(),
        }
    }

    /// Returns the place of what is chosen in a pane.
    pub(super) fn chosen(&self, pane: Pane) -> usize {
        let most = self.n_rows(pane).saturating_sub(1);
        match pane {
            Pane::Stream => 0,
            Pane::Items => {
                let place = |id: &String| self.run.items().iter().position(|item| item.id == *id);
                self.item.as_ref().and_then(place).unwrap_or_default()
            }
            Pane::Iterations => self.chosen[0].min(most),
            Pane::Notes => self.chosen[1].min(most),
            Pane::Messages => self.chosen[2].min(most),
        }
    }

    pub(super) fn choose(&mut self, pane: Pane, place: usize) {
        let place = place.min(self.n_rows(pane).saturating_sub(1));
        match pane {
            Pane::Stream => {}
            Pane::Items => self.item = self.run.items().get(place).map(|item| item.id.clone()),
            Pane::Iterations => self.chosen[0] = place,
            Pane::Notes => self.chosen[1] = place,
            Pane::Messages => self.chosen[2] = place,
        }
    }

    pub(super) fn chosen_item(&self) -> Option<&Item> {
        match &self.item {
            Some(id) => self.run.item(id),
            None => self.run.items().first().copied(),
        }
    }

    /// Returns what is chosen, whole: its title and text.
    pub(super) fn whole(&self) -> Option<(String, String)> {
        let place = self.chosen(self.focus);
        match self.focus {
            Pane::Stream => None,
            Pane::Items => self.chosen_item().map(|item| {
                let after = match item.depends_on.is_empty() {
                    true => String::new(),
                    false => format!(" · after {}", item.depends_on.join(", ")),
                };
                let title = format!("{} · P{} · {}{after}", item.id, item.priority, item.status);
                (title, item.content.clone())
            }),
            Pane::Iterations => self.run.ended.get(place).map(|ended| {
                let commit = ended.commit.as_deref().unwrap_or("no commit");
                let failed = ended.failed.as_ref().map(|why| format!("failed: {why}\n\n"));
                let summary = ended.summary.as_deref().unwrap_or("(no summary)");
                let text = format!("{}{summary}", failed.unwrap_or_default());
                (format!("iteration {} · {} · {commit}", ended.number, ended.agent), text)
            }),
            Pane::Notes => self.notes().nth(place).map(|note| {
                let title = format!("{} · {} · iteration {}", note.id, note.kind, note.iteration);
                (title, note.content.clone())
            }),
            Pane::Messages => self.run.messages().get(place).map(|message| {
                (
                    format!("message {}, for the next iteration", message.number),
                    message.text.clone(),
                )
            }),
        }
    }

    /// The notes, newest first.
    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.run.notes.iter().rev()
    }
}
