//! Iterations: the steps in which a run is worked off, and the summary each leaves behind. Whoever works on a run by
//! itself ends one step with its summary and so begins the next. Where the hub works a run off, each step is an agent of
//! its own, several may be under way at once, and each is ended by the hub when all of it is done.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentId};
use crate::drive::Message;
use crate::ids::ItemId;
use crate::item;
use crate::spending::Spent;
use crate::text::{self, BadText};
use crate::{PrincipalName, Record, Timestamp};

/// As many iterations as are kept at hand with how they ended; of older ones the log knows.
pub const ENDED_MAX: usize = 1_000;

/// What an iteration left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub text: Arc<str>,
    pub items_worked: Vec<ItemId>,
    pub by: PrincipalName,
    pub at: Timestamp,
}

/// An iteration that an agent of the hub is in, or was when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub number: u32,
    /// Which of the run's workers.
    pub worker: u32,
    pub agent: AgentId,
    /// It only makes the plan.
    pub plans: bool,
    /// How the files were before it, in words of whoever keeps them.
    pub base: Option<Arc<str>>,
    /// How its agent left the files when its process last ended.
    pub left: Option<Left>,
    pub begun_at: Timestamp,
    /// The item that it is for, once it has begun one.
    pub item: Option<ItemId>,
    pub touched: OrdSet<ItemId>,
    /// What people told those who work on the run, and no earlier one was told.
    pub told: Vector<Message>,
    /// What hooks said that its agent is to know.
    pub hooks: Arc<str>,
}

/// How an agent left the files when its process was gone: later changes are not its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The incarnation of the agent whose process it was.
    pub incarnation: u32,
    /// The files as they were then, in words of whoever keeps them; none if nobody could look at that moment.
    pub files: Option<Arc<str>>,
    /// Up to this moment changes are its own. It is that of the process's end, or an earlier one if that is not known exactly.
    pub at: Timestamp,
}

impl Open {
    /// Returns how the agent left the files, now that none of its processes is running.
    pub fn left_by(&self, agent: &Agent) -> Left {
        let incarnation = agent.ready_in;
        match &self.left {
            // No process after that one was told anything.
            Some(left) if left.incarnation >= incarnation => left.clone(),
            None if incarnation == 0 => {
                Left { incarnation, files: self.base.clone(), at: self.begun_at }
            }
            Some(_) | None => {
                Left { incarnation, files: None, at: agent.ended_at.unwrap_or(self.begun_at) }
            }
        }
    }
}

/// How an iteration ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The commit of what it changed.
    pub commit: Option<Arc<str>>,
    /// What went wrong, if something did.
    pub failed: Option<Arc<str>>,
    /// It came to its end and has changed nothing.
    pub is_idle: bool,
    /// Its agent did not come to its end.
    #[serde(default)]
    pub is_cut_off: bool,
    /// The item that it was for.
    #[serde(default)]
    pub item: Option<ItemId>,
    pub spent: Spent,
    /// How its agent left the files, if what it changed is not committed.
    #[serde(default)]
    pub left: Option<Left>,
}

/// An iteration that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub open: Arc<Open>,
    pub end: Arc<End>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Records the summary of the current iteration, which ends it, or of the one that the caller is the agent of.
    Summarise { text: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Summarised {
        iteration: u32,
        text: Arc<str>,
        items_worked: Vec<ItemId>,
    },
    Begun {
        iteration: u32,
        worker: u32,
        agent: AgentId,
        plans: bool,
        base: Option<Arc<str>>,
        /// How its agent finds the files, if work of an earlier one is in them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Left>,
        hooks: Arc<str>,
    },
    Ended {
        iteration: u32,
        end: Arc<End>,
    },
    /// The process of its agent is gone, though the iteration has not ended.
    Left {
        iteration: u32,
        left: Left,
    },
    /// Changes that are not its agent's were told apart: its files are now compared with this base.
    Rebased {
        iteration: u32,
        base: Arc<str>,
        left: Left,
    },
    /// The next iteration has this number.
    Numbered {
        next: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Text(#[from] BadText),
    #[error(
        "Iteration #{0} already has a summary recorded, and nothing has happened since; go on with task-next"
    )]
    AlreadyRecorded(u32),
    #[error(
        "Iteration #{0} already has a summary recorded; end your turn, and the next iteration begins"
    )]
    AlreadySummarised(u32),
    #[error(
        "this run is being worked off, and each of its iterations writes its own summary; add a note instead"
    )]
    NotYours,
}

/// The view of one run's iterations. The first is number 1, or 0 if it makes a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    current: u32,
    touched: OrdSet<ItemId>,
    summaries: OrdMap<u32, Arc<Summary>>,
    open: OrdMap<u32, Arc<Open>>,
    ended: OrdMap<u32, Arc<Ended>>,
}

impl Default for Iterations {
    fn default() -> Self {
        Self {
            current: 1,
            touched: OrdSet::new(),
            summaries: OrdMap::new(),
            open: OrdMap::new(),
            ended: OrdMap::new(),
        }
    }
}

impl Iterations {
    /// Returns the number of the iteration that is under way, or comes next where the hub works.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Returns the number of the newest iteration that has begun, if one has.
    pub fn newest(&self) -> Option<u32> {
        let begun = [self.open.keys().next_back(), self.ended.keys().next_back()];
        begun.into_iter().flatten().max().copied()
    }

    /// Returns the number of the iteration that somebody works in.
    pub fn number_of(&self, who: &PrincipalName) -> u32 {
        self.of(who).map_or(self.current, |open| open.number)
    }

    /// Returns the iteration that somebody is the agent of.
    pub fn of(&self, who: &PrincipalName) -> Option<&Arc<Open>> {
        self.open.values().find(|open| open.agent.principal() == *who)
    }

    /// Returns those that agents of the hub are in, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Open>> {
        self.open.values()
    }

    /// Says whether an item was worked on in an iteration that is not over.
    pub(crate) fn is_touched(&self, item: ItemId) -> bool {
        self.open.values().any(|open| open.touched.contains(&item))
    }

    /// Returns those that have ended and are at hand, oldest first.
    pub fn ended(&self) -> impl DoubleEndedIterator<Item = &Arc<Ended>> {
        self.ended.values()
    }

    pub fn of_worker(&self, worker: u32) -> Option<&Arc<Open>> {
        self.open.values().find(|open| open.worker == worker)
    }

    /// Returns the summaries, oldest first, with their iterations' numbers.
    pub fn summaries(&self) -> impl DoubleEndedIterator<Item = (u32, &Arc<Summary>)> {
        self.summaries.iter().map(|(number, summary)| (*number, summary))
    }

    pub fn summary(&self, iteration: u32) -> Option<&Arc<Summary>> {
        self.summaries.get(&iteration)
    }

    /// Returns the events that `command` causes, or why it is refused. `in_progress` are the items under way; `is_driven`
    /// says that the hub works the run off.
    pub(crate) fn decide(
        &self,
        command: &Command,
        in_progress: impl Iterator<Item = ItemId>,
        who: &PrincipalName,
        is_driven: bool,
    ) -> Result<Vec<Event>, Refusal> {
        let Command::Summarise { text } = command;
        let text = text::body("summary", text)?;
        if let Some(open) = self.of(who) {
            if self.summaries.contains_key(&open.number) {
                return Err(Refusal::AlreadySummarised(open.number));
            }
            let items_worked = open.touched.iter().copied().collect();
            return Ok(vec![Event::Summarised { iteration: open.number, text, items_worked }]);
        }
        if is_driven {
            return Err(Refusal::NotYours);
        }
        // Without a key, the same words again are the same call again, unless work was done in between.
        if let Some((last, summary)) = self.summaries().next_back()
            && summary.text == text
            && self.touched.is_empty()
        {
            return Err(Refusal::AlreadyRecorded(last));
        }
        let mut items_worked: OrdSet<ItemId> = self.touched.clone();
        items_worked.extend(in_progress);
        Ok(vec![Event::Summarised {
            iteration: self.current,
            text,
            items_worked: items_worked.into_iter().collect(),
        }])
    }

    /// Changes how the iterations stand; one that begins is told `messages`.
    pub(crate) fn apply(&mut self, event: &Event, record: &Record, messages: Vector<Message>) {
        match event {
            Event::Summarised { iteration, text, items_worked } => {
                let (text, items_worked) = (text.clone(), items_worked.clone());
                let summary = Summary { text, items_worked, by: record.by.clone(), at: record.at };
                self.summaries.insert(*iteration, Arc::new(summary));
                if !self.open.contains_key(iteration) {
                    self.current = iteration + 1;
                    self.touched = OrdSet::new();
                }
            }
            Event::Begun { iteration, worker, agent, plans, base, left, hooks } => {
                let open = Open {
                    number: *iteration,
                    worker: *worker,
                    agent: agent.clone(),
                    plans: *plans,
                    base: base.clone(),
                    left: left.clone(),
                    begun_at: record.at,
                    item: None,
                    touched: OrdSet::new(),
                    told: messages,
                    hooks: hooks.clone(),
                };
                self.open.insert(*iteration, Arc::new(open));
                self.current = self.current.max(iteration + 1);
                self.touched = OrdSet::new();
            }
            Event::Ended { iteration, end } => {
                if let Some(open) = self.open.remove(iteration) {
                    // What it was told is in the log.
                    let (told, hooks) = (Vector::new(), "".into());
                    // So is what it touched; its item is said anew, for a compacted log may not say when it was begun.
                    let (item, touched) = (end.item, OrdSet::new());
                    let left = None;
                    let open = Open { told, hooks, item, touched, left, ..Open::clone(&open) };
                    let open = Arc::new(open);
                    let ended = Ended { open, end: end.clone(), at: record.at };
                    self.ended.insert(*iteration, Arc::new(ended));
                }
                if self.ended.len() > ENDED_MAX {
                    self.ended = self.ended.without_min().1;
                }
            }
            Event::Left { iteration, left } => {
                self.change(*iteration, |open| open.left = Some(left.clone()));
            }
            Event::Rebased { iteration, base, left } => self.change(*iteration, |open| {
                open.base = Some(base.clone());
                open.left = Some(left.clone());
            }),
            Event::Numbered { next } => self.current = *next,
        }
    }

    fn change(&mut self, iteration: u32, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.get(&iteration) {
            let mut open = Open::clone(open);
            change(&mut open);
            self.open.insert(iteration, Arc::new(open));
        }
    }

    /// Notes that an item was worked on in the iteration of whoever did.
    pub(crate) fn touch(&mut self, event: &item::Event, who: &PrincipalName) {
        let (item, is_begun) = (event.item(), event.starts().is_some());
        match self.of(who) {
            Some(open) => {
                let mut open = Open::clone(open);
                open.touched.insert(item);
                if is_begun {
                    open.item = Some(item);
                }
                self.open.insert(open.number, Arc::new(open));
            }
            None => {
                self.touched.insert(item);
            }
        }
    }
}

impl Event {
    pub(crate) fn summary(&self) -> crate::Summary {
        match self {
            Self::Summarised { iteration, text, items_worked: _ } => {
                let first_line = text.lines().next().unwrap_or_default();
                crate::Summary::new("done", format!("iteration {iteration}: {first_line}"))
            }
            Self::Begun { iteration, worker, agent, plans, .. } => {
                let what = if *plans { "plans" } else { "begins" };
                // People count from 1; where there is only one, nobody asks.
                let by = match worker {
                    0 => String::new(),
                    n => format!(", worker {}", n + 1),
                };
                crate::Summary::new("take", format!("iteration {iteration} {what} ({agent}{by})"))
            }
            Self::Ended { iteration, end } => {
                let how = match (&end.failed, &end.commit) {
                    (Some(why), commit) => {
                        let short = |commit: &Arc<str>| commit.chars().take(12).collect::<String>();
                        let commit =
                            commit.as_ref().map(|commit| format!(", commit {}", short(commit)));
                        let why = why.lines().next().unwrap_or_default();
                        format!("failed{}: {why}", commit.unwrap_or_default())
                    }
                    (None, Some(commit)) => {
                        format!("ended, commit {}", commit.chars().take(12).collect::<String>())
                    }
                    (None, None) => "ended".to_owned(),
                };
                crate::Summary::new("done", format!("iteration {iteration} {how}"))
            }
            Self::Left { iteration, .. } => {
                crate::Summary::new("note", format!("iteration {iteration} is interrupted"))
            }
            Self::Rebased { iteration, .. } => crate::Summary::new(
                "note",
                format!("iteration {iteration} continues; changes made in between are not its own"),
            ),
            Self::Numbered { next } => {
                crate::Summary::new("edit", format!("the next iteration is number {next}"))
            }
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Summarised { text, .. } => text.len(),
            Self::Ended { end, .. } => end.failed.as_ref().map_or(0, |why| why.len()),
            Self::Begun { hooks, .. } => hooks.len(),
            Self::Left { .. } | Self::Rebased { .. } | Self::Numbered { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests;
