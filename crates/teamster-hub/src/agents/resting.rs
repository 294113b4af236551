//! Agents that last and have nothing to do: the one that rests longest makes room when others need it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use teamster_core::agent::AgentId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Who rests, in the order in which they began to.
#[derive(Debug, Default)]
pub(super) struct Resting {
    all: Mutex<All>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct All {
    last: u64,
    by_age: BTreeMap<u64, (AgentId, CancellationToken)>,
}

/// One that rests; dropped when it goes on.
pub(super) struct Rest {
    resting: Arc<Resting>,
    number: u64,
    /// Its place is needed.
    pub(super) is_over: CancellationToken,
}

impl Resting {
    pub(super) fn enter(self: &Arc<Self>, agent: &AgentId) -> Rest {
        let mut all = self.all();
        all.last += 1;
        let (number, is_over) = (all.last, CancellationToken::new());
        all.by_age.insert(number, (agent.clone(), is_over.clone()));
        drop(all);
        self.changed.notify_one();
        Rest { resting: self.clone(), number, is_over }
    }

    /// Waits until somebody begins to rest. Whoever asks is told also of what happened since it asked last.
    pub(super) async fn more(&self) {
        self.changed.notified().await;
    }

    pub(super) fn contains(&self, agent: &AgentId) -> bool {
        self.all().by_age.values().any(|(one, _)| one == agent)
    }

    /// Tells the one that rests longest to make room; says whether there is one that was not told yet.
    pub(super) fn make_room(&self) -> bool {
        match self.all().by_age.pop_first() {
            Some((_, (_, is_over))) => {
                is_over.cancel();
                true
            }
            None => false,
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.resting.all().by_age.remove(&self.number);
    }
}
