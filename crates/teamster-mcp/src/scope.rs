//! Where a call came in.

use teamster_core::RunName;

use crate::set::Set;

/// Where a call came in: which sets it can see there, and which run it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// One set, or all that are granted.
    pub set: Option<Set>,
    pub run: RunName,
    /// Whether the path named the run.
    pub names_run: bool,
}

impl Scope {
    /// Everything granted, in the default run.
    pub fn all() -> Self {
        Self { set: None, run: RunName::default_run(), names_run: false }
    }

    pub fn shows(&self, set: Set) -> bool {
        self.set.is_none_or(|only| only == set)
    }
}
