//! Who does nothing but wait for somebody else: an agent that does takes no room from those that work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use teamster_core::PrincipalName;
use tokio::sync::Notify;

/// The principals that wait, with how many of their calls do.
#[derive(Debug, Default)]
pub struct WaitingCallers {
    waiting: Mutex<BTreeMap<PrincipalName, usize>>,
    changed: Notify,
}

/// One call that waits.
pub(super) struct Idle {
    idlers: Arc<WaitingCallers>,
    principal: PrincipalName,
}

impl WaitingCallers {
    pub fn contains(&self, principal: &PrincipalName) -> bool {
        self.waiting().contains_key(principal)
    }

    /// Waits until somebody begins to wait. Whoever asks is told also of what happened since it asked last.
    pub async fn more(&self) {
        self.changed.notified().await;
    }

    pub(super) fn enter(self: Arc<Self>, principal: &PrincipalName) -> Idle {
        *self.waiting().entry(principal.clone()).or_default() += 1;
        self.changed.notify_one();
        Idle { idlers: self, principal: principal.clone() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<PrincipalName, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let mut waiting = self.idlers.waiting();
        if let Some(n) = waiting.get_mut(&self.principal) {
            *n -= 1;
            if *n == 0 {
                waiting.remove(&self.principal);
            }
        }
    }
}
