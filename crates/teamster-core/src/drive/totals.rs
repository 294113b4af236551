//! What a run came to over all the times that it was begun and resumed.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::iteration::{End, Open};
use crate::spending::Spent;

/// Counts over the whole run, without what is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// When it was begun first.
    pub begun_at: Timestamp,
    pub n_resumes: u32,
    /// The plan is not counted.
    pub n_iterations: u32,
    pub n_failed: u32,
    pub n_commits: u32,
    pub spent: Spent,
    /// How long it was under way until it was over last.
    pub worked_ms: u64,
}

impl Totals {
    pub(super) fn new(begun_at: Timestamp) -> Self {
        Self {
            begun_at,
            n_resumes: 0,
            n_iterations: 0,
            n_failed: 0,
            n_commits: 0,
            spent: Spent::default(),
            worked_ms: 0,
        }
    }

    pub(super) fn iteration_ended(&mut self, open: &Open, end: &End) {
        self.spent.add_all(&end.spent);
        if !open.plans {
            self.n_iterations += 1;
            self.n_failed += u32::from(end.failed.is_some());
            self.n_commits += u32::from(end.commit.is_some());
        }
    }

    /// Notes that it is over, since it was begun or resumed last.
    pub(super) fn over(&mut self, since: Timestamp, at: Timestamp) {
        self.worked_ms += u64::try_from(at.0.saturating_sub(since.0)).unwrap_or_default();
    }
}
