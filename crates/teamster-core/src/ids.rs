//! The types that name things. Two names of different things cannot be swapped.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch. Events are ordered by sequence; this is for people.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not a valid name; use {rule}")]
pub struct BadName {
    what: &'static str,
    given: String,
    rule: &'static str,
}

/// A name is checked where it enters (`parse`), not where a stored one is read: old logs replay forever.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $allowed:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name, if `given` is one.
            pub fn parse(given: &str) -> Result<Self, BadName> {
                let allowed: fn(char) -> bool = $allowed;
                let fits = !given.is_empty() && given.len() <= $max && given.chars().all(allowed) && !given.contains("..");
                if fits {
                    Ok(Self(given.into()))
                } else {
                    Err(BadName { what: $what, given: given.chars().take(80).collect(), rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A run: one spec, or one shared list, being worked off.
    RunName, "run", 64, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'),
    "1 to 64 letters, digits, `_` or `-`"
);
name!(
    /// Who acts: an agent, a person, or the hub itself.
    PrincipalName, "name", 100, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.' | '-'),
    "1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`"
);
name!(
    /// A project that others can talk to.
    TeamName, "team", 100, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.' | '-'),
    "1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`"
);

name!(
    /// A node: a machine with a hub that runs agents.
    NodeName, "node", 64, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'),
    "1 to 64 letters, digits, `_`, `-` or `.`, without `..`"
);

name!(
    /// A dossier: what several agents were drafted for.
    DossierName, "taskSlug", 64, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'),
    "1 to 64 letters, digits, `_`, `-` or `.`, without `..`"
);

impl DossierName {
    /// A name that is made of parts that fit.
    pub(crate) fn new(name: String) -> Self {
        Self(name.into())
    }
}

impl NodeName {
    /// The only node of a workspace that one hub serves. Its agents are this hub's wherever the log was copied to.
    pub fn only() -> Self {
        Self("local".into())
    }
}

impl RunName {
    /// The run that `/mcp` and `/mcp/session` mean.
    pub fn default_run() -> Self {
        Self("default".into())
    }

    /// Sorts before every run's name; it is not one itself.
    pub(crate) fn lowest() -> Self {
        Self("".into())
    }
}

impl PrincipalName {
    /// The hub, acting by itself: at start-up and when a timer is due. No token can be made for it.
    pub fn hub() -> Self {
        Self("hub".into())
    }

    /// An agent of ours; its name is made of parts that fit.
    pub(crate) fn of_agent(name: Arc<str>) -> Self {
        Self(name)
    }
}

/// A count-based id with a prefix that people and agents read, e.g. `TAS-12`.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Returns the id that `given` spells in full, in any case.
            pub fn parse(given: &str) -> Option<Self> {
                let digits = given.get($prefix.len()..).filter(|_| given[..$prefix.len()].eq_ignore_ascii_case($prefix))?;
                let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
                if plain { digits.parse().ok().map(Self) } else { None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }
    };
}

number!(
    /// An item of a run. Ids count per run and are never used again.
    ItemId, "TAS-"
);
number!(
    /// A note of a run. Ids count per run and are never used again.
    NoteId, "NOT-"
);
number!(
    /// A call that outlives its request. Ids are never used again.
    ErrandId, "ERRAND-"
);
number!(
    /// What one partner and a team say to each other. Ids are never used again.
    ConversationId, "CONV-"
);
number!(
    /// A message to a team. Ids are never used again.
    TellId, "TELL-"
);
number!(
    /// Something that waits for a person. Ids are never used again.
    QuestionId, "Q-"
);
number!(
    /// A token; each is one incarnation of its principal.
    TokenId, "TOK-"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_out_what_could_be_a_path() {
        for bad in ["", "a/b", "..", "a..b", "a\0", "a b", "ä", &"x".repeat(101)] {
            assert!(PrincipalName::parse(bad).is_err(), "{bad:?}");
            assert!(RunName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(RunName::parse("a.b").is_err());
        assert_eq!(PrincipalName::parse("ann@home.net").unwrap().as_str(), "ann@home.net");
    }

    #[test]
    fn numbers_are_read_in_full_or_not_at_all() {
        assert_eq!(ItemId::parse("TAS-12"), Some(ItemId(12)));
        assert_eq!(ItemId::parse("tas-12"), Some(ItemId(12)));
        for bad in
            ["TAS-", "TAS-0", "TAS-01", "TAS-1x", "TAS-+1", "NOT-1", "TAS-99999999999", "TÄS-1", ""]
        {
            assert_eq!(ItemId::parse(bad), None, "{bad:?}");
        }
    }
}
