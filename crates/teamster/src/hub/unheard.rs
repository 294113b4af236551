//! Messages whose answers somebody waited for, and waits for no more.

use std::sync::{Mutex, PoisonError};

use teamster_core::ids::TellId;
use tokio::sync::Notify;

/// Those that are not recorded yet. What is here when the hub is killed is made good by the state: whoever waited is gone.
#[derive(Debug, Default)]
pub struct Unheard {
    tells: Mutex<Vec<TellId>>,
    more: Notify,
}

impl Unheard {
    pub(super) fn push(&self, tell: TellId) {
        self.tells.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
        self.more.notify_one();
    }

    /// Waits until there are some, and takes them.
    pub async fn take(&self) -> Vec<TellId> {
        loop {
            let taken =
                std::mem::take(&mut *self.tells.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            self.more.notified().await;
        }
    }
}
