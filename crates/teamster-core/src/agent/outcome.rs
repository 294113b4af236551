//! What comes of an agent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ENTRIES_MAX, ENTRY_BYTES_MAX, OUTCOME_BYTES_MAX};
use crate::text;

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It finished its turn.
    Completed,
    /// Somebody ended it.
    Aborted,
    /// Its program failed.
    Crashed,
    /// It took too long, or was silent for too long.
    TimedOut,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// What an agent says of its own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Success,
    Partial,
    Failed,
    Blocked,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Success, Self::Partial, Self::Failed, Self::Blocked];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// What came of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub ending: Ending,
    pub status: Status,
    pub summary: Arc<str>,
    pub changes: Vec<Arc<str>>,
    pub issues: Vec<Arc<str>>,
    pub questions: Vec<Arc<str>>,
    /// Millionths of a dollar, if the program told.
    pub cost_microdollars: Option<u64>,
}

impl Outcome {
    /// An outcome of which nothing is known but why.
    pub fn failed(ending: Ending, summary: impl Into<Arc<str>>) -> Self {
        Self {
            ending,
            status: Status::Failed,
            summary: summary.into(),
            changes: Vec::new(),
            issues: Vec::new(),
            questions: Vec::new(),
            cost_microdollars: None,
        }
    }
}

/// Cuts an outcome down to what is kept, without what would steer the terminal of people who read it.
pub(super) fn bounded(outcome: &Outcome) -> Outcome {
    let entries = |entries: &[Arc<str>]| {
        let kept = entries.iter().take(ENTRIES_MAX);
        kept.map(|entry| text::beginning(&text::plain(entry), ENTRY_BYTES_MAX)).collect()
    };
    Outcome {
        ending: outcome.ending,
        status: outcome.status,
        summary: text::beginning(&text::plain(&outcome.summary), OUTCOME_BYTES_MAX),
        changes: entries(&outcome.changes),
        issues: entries(&outcome.issues),
        questions: entries(&outcome.questions),
        cost_microdollars: outcome.cost_microdollars,
    }
}
