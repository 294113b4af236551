//! What agents that work on a run need from whoever drives the run. `work` implements it; agents do not know how.

use teamster_core::agent::Agent;
use teamster_core::{Command, State, Timestamp};

use crate::fence::Prompt;

/// The side of a run that its agents see.
#[async_trait::async_trait]
pub trait OfRuns: Send + Sync {
    /// Returns the prompt of the iteration that an agent is in, if it is in one.
    fn prompt(&self, state: &State, agent: &Agent) -> Option<Prompt>;

    /// Returns what has to be recorded of an agent whose process is gone before its work is done, if anything.
    async fn left(&self, agent: &Agent) -> Option<Command>;

    /// Returns what has to be recorded of an agent whose process ended at a moment that an earlier hub did not see: up to
    /// `at`, changes are its own.
    fn lost(&self, agent: &Agent, at: Timestamp) -> Option<Command>;

    /// Tells apart what was changed while an agent had no process. Returns what has to be recorded before it gets one, or
    /// says why that cannot be known.
    async fn settle(&self, agent: &Agent) -> Result<Vec<Command>, String>;
}
