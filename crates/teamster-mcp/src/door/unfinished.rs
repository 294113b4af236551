//! How much a principal's unfinished requests take up: many large bodies that do not end would fill the memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::PrincipalName;

use super::http::BODY_BYTES_MAX;

/// As many bytes as one principal's unfinished bodies have together: eight of the largest, when hardly anybody sends one.
const UNFINISHED_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;

/// A body up to this size does not count: usual calls go on while somebody's large ones take up all the room. As much
/// again is buffered of each connection anyway, and connections are bounded.
const SMALL_BODY_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Unfinished {
    n_bytes: Mutex<BTreeMap<PrincipalName, usize>>,
}

/// What one body takes up until it is dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    unfinished: &'a Unfinished,
    principal: &'a PrincipalName,
    n_bytes: usize,
}

impl Unfinished {
    pub(super) fn room_of<'a>(&'a self, principal: &'a PrincipalName) -> Room<'a> {
        Room { unfinished: self, principal, n_bytes: 0 }
    }

    fn n_bytes(&self) -> MutexGuard<'_, BTreeMap<PrincipalName, usize>> {
        self.n_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room<'_> {
    /// Takes up room for a body that has grown to this size, or says that there is no more.
    pub(super) fn grow_to(&mut self, n_bytes: usize) -> Result<(), String> {
        if n_bytes <= SMALL_BODY_BYTES {
            return Ok(());
        }
        let principal = self.principal;
        let mut all = self.unfinished.n_bytes();
        let others = all.get(principal).map_or(0, |taken| taken - self.n_bytes);
        if others + n_bytes > UNFINISHED_BYTES_MAX {
            return Err(format!(
                "{principal} has {others} bytes of unfinished requests already; finish some, then send this again"
            ));
        }
        all.insert(principal.clone(), others + n_bytes);
        self.n_bytes = n_bytes;
        Ok(())
    }

    /// Gives back what the body took up, when nothing of it is kept.
    pub(super) fn leave(&mut self) {
        if self.n_bytes == 0 {
            return;
        }
        let mut all = self.unfinished.n_bytes();
        if let Some(taken) = all.get_mut(self.principal) {
            *taken -= self.n_bytes;
            if *taken == 0 {
                all.remove(self.principal);
            }
        }
        self.n_bytes = 0;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
