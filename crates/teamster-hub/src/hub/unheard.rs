//! Messages whose answers somebody waited for, and waits for no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use teamster_core::ids::TellId;
use tokio::sync::Notify;

/// Those that are not recorded yet. What is here when the hub is killed is made good by the state: whoever waited is gone.
#[derive(Debug, Default)]
pub struct UnreadAnswers {
    waits: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// How many wait for each answer: a caller that asks the same again may come before the first has given up.
    listeners: HashMap<TellId, usize>,
    given_up: Vec<TellId>,
}

/// Somebody who waits for the answer to a message, until it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    unheard: Arc<UnreadAnswers>,
    tell: TellId,
    is_heard: bool,
}

impl Listener {
    /// Stops waiting without having heard the answer.
    pub(super) fn gives_up(mut self) {
        self.is_heard = false;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut waits = self.unheard.lock();
        let n = waits.listeners.get(&self.tell).map_or(0, |n| n.saturating_sub(1));
        if n > 0 {
            waits.listeners.insert(self.tell, n);
            return;
        }
        waits.listeners.remove(&self.tell);
        if !self.is_heard {
            waits.given_up.push(self.tell);
            self.unheard.more.notify_one();
        }
    }
}

impl UnreadAnswers {
    pub(super) fn listener(self: Arc<Self>, tell: TellId) -> Listener {
        *self.lock().listeners.entry(tell).or_default() += 1;
        Listener { unheard: self, tell, is_heard: true }
    }

    /// Waits until there are some that nobody waits for any more, and takes them.
    pub async fn take(&self) -> Vec<TellId> {
        loop {
            {
                let mut waits = self.lock();
                let mut given_up = std::mem::take(&mut waits.given_up);
                given_up.retain(|tell| !waits.listeners.contains_key(tell));
                if !given_up.is_empty() {
                    return given_up;
                }
            }
            self.more.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_unheard_when_the_last_has_given_up() {
        let unheard = Arc::new(UnreadAnswers::default());
        let [first, second] = [(); 2].map(|()| unheard.clone().listener(TellId(1)));
        let heard = unheard.clone().listener(TellId(2));
        let third = unheard.clone().listener(TellId(3));
        drop(heard);
        first.gives_up();
        third.gives_up();
        assert_eq!(unheard.take().await, [TellId(3)]);
        second.gives_up();
        assert_eq!(unheard.take().await, [TellId(1)]);
    }
}
