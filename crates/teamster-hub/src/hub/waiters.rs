//! Who waits for what. A change wakes those who wait for its topic and nobody else; without waiters it costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use teamster_core::topic::Topic;
use teamster_mcp::hub::Watch;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_topic: Mutex<HashMap<Topic, Weak<Notify>>>,
    n_wakes: AtomicUsize,
}

/// Topics nobody waits for any more are swept out when there are this many more than at the last sweep.
const SWEEP_ABOVE: usize = 64;

impl Waiters {
    pub(super) fn watch(&self, topic: &Topic) -> Watch {
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = by_topic.get(topic).and_then(Weak::upgrade) {
            return Watch::new(notify);
        }
        if by_topic.len() >= SWEEP_ABOVE && by_topic.len().is_power_of_two() {
            by_topic.retain(|_, notify| notify.strong_count() > 0);
        }
        let notify = Arc::new(Notify::new());
        by_topic.insert(topic.clone(), Arc::downgrade(&notify));
        Watch::new(notify)
    }

    /// Wakes those who wait for any of these topics.
    pub(super) fn wake(&self, topics: impl Iterator<Item = Topic>) {
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        if by_topic.is_empty() {
            return;
        }
        for topic in topics {
            match by_topic.get(&topic).map(Weak::upgrade) {
                Some(Some(notify)) => {
                    self.n_wakes.fetch_add(1, Ordering::Relaxed);
                    notify.notify_waiters();
                }
                Some(None) => {
                    by_topic.remove(&topic);
                }
                None => {}
            }
        }
    }

    /// Returns how many wait, for whatever it is.
    pub(super) fn n_waiting(&self) -> usize {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        // For all agents or runs at once waits only what runs them, and that always.
        let is_ours = |topic: &Topic| matches!(topic, Topic::Agents | Topic::Drives);
        let counted = by_topic.iter().filter(|(topic, _)| !is_ours(topic));
        counted.map(|(_, notify)| notify.strong_count()).sum()
    }

    /// Returns how often somebody was woken, for tests that count instead of measuring time.
    pub(super) fn n_wakes(&self) -> usize {
        self.n_wakes.load(Ordering::Relaxed)
    }
}
