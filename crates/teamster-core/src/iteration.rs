//! Iterations: the steps in which a run is worked off, and the summary each leaves behind.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::ids::ItemId;
use crate::text::{self, BadText};
use crate::{PrincipalName, Record, Timestamp};

/// What an iteration left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub text: Arc<str>,
    pub items_worked: Vec<ItemId>,
    pub by: PrincipalName,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Records the summary of the current iteration, which ends it.
    Summarise { text: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Summarised { iteration: u32, text: Arc<str>, items_worked: Vec<ItemId> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Text(#[from] BadText),
    #[error(
        "Iteration #{0} already has a summary recorded, and nothing has happened since; go on with task-next"
    )]
    AlreadyRecorded(u32),
}

/// The view of one run's iterations. The first is number 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    current: u32,
    touched: OrdSet<ItemId>,
    summaries: OrdMap<u32, Arc<Summary>>,
}

impl Default for Iterations {
    fn default() -> Self {
        Self { current: 1, touched: OrdSet::new(), summaries: OrdMap::new() }
    }
}

impl Iterations {
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Returns the summaries, oldest first, with their iterations' numbers.
    pub fn summaries(&self) -> impl DoubleEndedIterator<Item = (u32, &Arc<Summary>)> {
        self.summaries.iter().map(|(number, summary)| (*number, summary))
    }

    /// Returns the events that `command` causes, or why it is refused. `in_progress` are the items under way.
    pub(crate) fn decide(
        &self,
        command: &Command,
        in_progress: impl Iterator<Item = ItemId>,
    ) -> Result<Vec<Event>, Refusal> {
        let Command::Summarise { text } = command;
        let text = text::body("summary", text)?;
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

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        let Event::Summarised { iteration, text, items_worked } = event;
        let (text, items_worked) = (text.clone(), items_worked.clone());
        let summary = Summary { text, items_worked, by: record.by.clone(), at: record.at };
        self.summaries.insert(*iteration, Arc::new(summary));
        self.current = iteration + 1;
        self.touched = OrdSet::new();
    }

    /// Notes that an item was worked on in the current iteration.
    pub(crate) fn touch(&mut self, item: ItemId) {
        self.touched.insert(item);
    }
}

impl Event {
    pub(crate) fn summary(&self) -> crate::Summary {
        let Self::Summarised { iteration, text, items_worked: _ } = self;
        let first_line = text.lines().next().unwrap_or_default();
        crate::Summary::new("done", format!("iteration {iteration}: {first_line}"))
    }
}

#[cfg(test)]
mod tests;
