//! How much unfinished requests take up: many large bodies that do not end would fill the memory.
//!
//! Bodies are counted as they arrive, for each principal and in all. Small ones have room of their own, so that usual
//! calls continue while large ones take up all of theirs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::PrincipalName;
use teamster_core::token::Token;

use super::http::BODY_BYTES_MAX;

/// Maximum bytes of one principal's unfinished large bodies: two of the largest, when hardly anybody sends one.
const LARGE_BYTES_EACH_MAX: usize = 2 * BODY_BYTES_MAX;
/// Maximum bytes of all principals' unfinished large bodies. Operators are counted but not refused by it.
const LARGE_BYTES_MAX: usize = 6 * LARGE_BYTES_EACH_MAX;
/// A body up to this size is small.
const SMALL_BODY_BYTES: usize = 64 * 1024;
/// Maximum bytes of one principal's unfinished small bodies.
const SMALL_BYTES_EACH_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes of all principals' unfinished small bodies.
const SMALL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A body up to this size does not count: the connection's own buffer holds it.
const UNCOUNTED_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct Unfinished {
    small: Pool,
    large: Pool,
}

/// Bodies of one kind.
#[derive(Debug, Default)]
struct Pool(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    by_principal: BTreeMap<PrincipalName, usize>,
    in_all: usize,
}

/// What one body takes up until it is dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    unfinished: &'a Unfinished,
    principal: &'a PrincipalName,
    is_operator: bool,
    n_small: usize,
    n_large: usize,
}

impl Unfinished {
    pub(super) fn room_of<'a>(&'a self, token: &'a Token) -> Room<'a> {
        let is_operator = token.kind.is_operator();
        let principal = &token.principal;
        Room { unfinished: self, principal, is_operator, n_small: 0, n_large: 0 }
    }
}

impl Pool {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `n_more` bytes of a principal, unless it would have more than `each` or all together more than `all`.
    fn take(
        &self,
        principal: &PrincipalName,
        n_more: usize,
        (each, all): (usize, usize),
    ) -> Result<(), String> {
        let mut taken = self.taken();
        let has = taken.by_principal.get(principal).copied().unwrap_or_default();
        if has + n_more > each {
            return Err(format!(
                "{principal} has {has} bytes of unfinished requests already; finish some, then send this again"
            ));
        }
        if taken.in_all + n_more > all {
            let in_all = taken.in_all;
            return Err(format!(
                "the hub has {in_all} bytes of unfinished requests already; send this again in a moment"
            ));
        }
        taken.by_principal.insert(principal.clone(), has + n_more);
        taken.in_all += n_more;
        Ok(())
    }

    fn give_back(&self, principal: &PrincipalName, n_bytes: usize) {
        if n_bytes == 0 {
            return;
        }
        let mut taken = self.taken();
        taken.in_all -= n_bytes;
        if let Some(has) = taken.by_principal.get_mut(principal) {
            *has -= n_bytes;
            if *has == 0 {
                taken.by_principal.remove(principal);
            }
        }
    }
}

impl Room<'_> {
    /// Takes up room for a body that has grown to this size, or says that there is no more.
    pub(super) fn grow_to(&mut self, n_bytes: usize) -> Result<(), String> {
        let Unfinished { small, large } = self.unfinished;
        let limits = |each, all| (each, if self.is_operator { usize::MAX } else { all });
        if n_bytes <= UNCOUNTED_BYTES {
            return Ok(());
        }
        if n_bytes <= SMALL_BODY_BYTES {
            let more = n_bytes - self.n_small;
            small.take(self.principal, more, limits(SMALL_BYTES_EACH_MAX, SMALL_BYTES_MAX))?;
            self.n_small = n_bytes;
            return Ok(());
        }
        let more = n_bytes - self.n_large;
        large.take(self.principal, more, limits(LARGE_BYTES_EACH_MAX, LARGE_BYTES_MAX))?;
        self.n_large = n_bytes;
        small.give_back(self.principal, std::mem::take(&mut self.n_small));
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.unfinished.small.give_back(self.principal, self.n_small);
        self.unfinished.large.give_back(self.principal, self.n_large);
    }
}
