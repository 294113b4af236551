//! What goes wrong in a [`Memory`](super::Memory), decided by its test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Commit, CommitId};

/// What becomes of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered truthfully.
    Stored,
    /// It is stored, or refused, and the caller does not learn it.
    UnknownStored,
    /// It never arrives, and the caller does not learn it.
    UnknownNotStored,
    /// The caller does not learn it, and the commit arrives only just before the next append does, or never.
    UnknownLate,
    /// Somebody else appends this first.
    ForeignFirst { id: CommitId, body: Vec<u8> },
    /// It is refused.
    Unavailable,
}

/// Decides what goes wrong; by default nothing. Clones are the same, so a test keeps one while the engine has another.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Script>>);

type Decide = Box<dyn FnMut(&Commit) -> Fate + Send>;

#[derive(Default)]
struct Script {
    scripted: VecDeque<Fate>,
    otherwise: Option<Decide>,
    append_latency: Duration,
    head_latency: Duration,
    n_failing_heads: usize,
}

impl Faults {
    /// Decides the next append that is not decided yet.
    pub fn next_append(&self, fate: Fate) {
        self.script().scripted.push_back(fate);
    }

    /// Decides every append that [`Self::next_append`] does not; a simulation draws from its seed here.
    pub fn decide(&self, decide: impl FnMut(&Commit) -> Fate + Send + 'static) {
        self.script().otherwise = Some(Box::new(decide));
    }

    /// Delays every append from now on, before it reaches the log.
    pub fn set_append_latency(&self, latency: Duration) {
        self.script().append_latency = latency;
    }

    /// Delays every answer about the head from now on.
    pub fn set_head_latency(&self, latency: Duration) {
        self.script().head_latency = latency;
    }

    /// Lets the next `n` questions for the head fail.
    pub fn fail_heads(&self, n: usize) {
        self.script().n_failing_heads = n;
    }

    pub(super) fn fate(&self, commit: &Commit) -> Fate {
        let mut script = self.script();
        match (script.scripted.pop_front(), &mut script.otherwise) {
            (Some(fate), _) => fate,
            (None, Some(decide)) => decide(commit),
            (None, None) => Fate::Stored,
        }
    }

    pub(super) fn append_latency(&self) -> Duration {
        self.script().append_latency
    }

    pub(super) fn head_latency(&self) -> Duration {
        self.script().head_latency
    }

    pub(super) fn head_fails(&self) -> bool {
        let n_left = &mut self.script().n_failing_heads;
        let fails = *n_left > 0;
        *n_left = n_left.saturating_sub(1);
        fails
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
