//! Which tools a caller has. The same answer filters `tools/list` and guards each call.

use teamster_core::RunName;
use teamster_core::grant::{Grant, Grants};
use teamster_core::token::Token;

use crate::Set;
use crate::catalogue::Entry;

/// What a tool needs its caller to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but a valid token.
    Token,
    /// Leave to read the set.
    Read,
    /// Leave to write the set.
    Write,
    /// The `main` grant, which no other grant includes.
    Main,
}

/// Where a call came in: which sets it can see there, and which run it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// One set, or all that are granted.
    pub set: Option<Set>,
    pub run: RunName,
}

impl Scope {
    /// Everything granted, in the default run.
    pub fn all() -> Self {
        Self { set: None, run: RunName::default_run() }
    }

    pub fn shows(&self, set: Set) -> bool {
        self.set.is_none_or(|only| only == set)
    }
}

/// Says whether `token` has the tool `entry` in `scope`.
pub fn allowed(token: &Token, entry: &Entry, scope: &Scope) -> bool {
    let bound_elsewhere =
        entry.set == Set::Session && token.run.as_ref().is_some_and(|run| *run != scope.run);
    !bound_elsewhere && granted(&token.grants, entry)
}

fn granted(grants: &Grants, entry: &Entry) -> bool {
    let base = |needed: &[Grant]| needed.iter().any(|grant| grants.has(grant));
    let set = || Grant::Set(entry.set.name().into());
    let tool = || Grant::Tool(entry.set.name().into(), entry.name.into());
    match entry.needs {
        Needs::Token => true,
        Needs::Read => base(&[Grant::Full, Grant::ReadOnly, set(), tool()]),
        Needs::Write => base(&[Grant::Full, set(), tool()]),
        Needs::Main => grants.has(&Grant::Main),
    }
}
