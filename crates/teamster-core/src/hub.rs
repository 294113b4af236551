//! The hub itself, as far as the log knows it: when it was started, and when its configuration changed.
//!
//! A hub's first commit is this one, before it answers anybody. What an earlier hub had sent and not heard of can no
//! longer arrive after it, because it would have to take its place.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::token::Kind;
use crate::{Context, Record, Summary, Timestamp, text};

/// As many changes as one reading tells; `config show` shows all values.
const CHANGES_MAX: usize = 20;
/// As many problems: nobody mends more at once.
const PROBLEMS_MAX: usize = 5;
/// As much as is told of each: they repeat names, and the texts of files.
const ENTRY_BYTES_MAX: usize = 600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Says that a hub of this version starts.
    Start { version: String },
    /// Says what came of reading the configuration again.
    Configure { reading: Reading },
    /// Says that the log was written anew: what is before this in it is not what was written first.
    Rewrite { before: String, how: Rewriting },
}

/// What came of reading the configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Whether what was read is used; if not, all stays as it was.
    pub is_used: bool,
    /// The first of them.
    pub changes: Vec<Arc<str>>,
    pub n_changes: u64,
    /// The first of them.
    pub problems: Vec<Arc<str>>,
    pub n_problems: u64,
}

impl Reading {
    pub fn new(is_used: bool, changes: &[String], problems: &[String]) -> Self {
        let first = |all: &[String], max| {
            all.iter().take(max).map(|one| text::beginning(one, ENTRY_BYTES_MAX)).collect()
        };
        Self {
            is_used,
            changes: first(changes, CHANGES_MAX),
            n_changes: changes.len() as u64,
            problems: first(problems, PROBLEMS_MAX),
            n_problems: problems.len() as u64,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = |f: &mut fmt::Formatter<'_>, n: u64, n_told: usize| match n - n_told as u64 {
            0 => Ok(()),
            n => write!(f, " and {n} more"),
        };
        match (self.is_used, self.n_changes, self.n_problems) {
            (false, _, _) => f.write_str("configuration not read again, all stays as it was")?,
            (true, 0, 0) => {
                f.write_str("configuration read again: nothing has changed, and nothing is wrong")?;
            }
            (true, 0, _) => f.write_str("configuration read again: nothing has changed")?,
            (true, n, _) => {
                write!(f, "configuration read again: {}", self.changes.join(", "))?;
                more(f, n, self.changes.len())?;
            }
        }
        if self.n_problems > 0 {
            let word = if self.n_problems == 1 { "problem" } else { "problems" };
            write!(f, "; {} {word}: {}", self.n_problems, self.problems.join("; "))?;
            more(f, self.n_problems, self.problems.len())?;
        }
        Ok(())
    }
}

/// How a log was written anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewriting {
    /// A text that should not have been there was taken out.
    Redacted { n_commits: u64, n_records: u64, n_blobs: u64 },
    /// Events that nothing depended on were left out.
    Compacted { n_dropped: u64, n_before: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started {
        version: Arc<str>,
    },
    Rewritten {
        /// The head that the log had, as `log verify` prints it: NUMBER:HASH.
        before: Arc<str>,
        how: Rewriting,
    },
    Configured {
        reading: Reading,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("only the hub itself says that it starts, or what its configuration is")]
    HubOnly,
    #[error("only an operator may rewrite the log; ask the person who runs the hub")]
    OperatorOnly,
}

/// The view of the hub's own history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Starts {
    pub n_starts: u64,
    pub last_at: Timestamp,
    pub last_version: Option<Arc<str>>,
}

impl Starts {
    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match (command, cx.caller.kind) {
            (Command::Start { version }, Kind::Hub) => {
                Ok(vec![Event::Started { version: version.as_str().into() }])
            }
            (Command::Configure { reading }, Kind::Hub) => {
                Ok(vec![Event::Configured { reading: reading.clone() }])
            }
            (Command::Start { .. } | Command::Configure { .. }, Kind::Person(_) | Kind::Agent) => {
                Err(Refusal::HubOnly)
            }
            (Command::Rewrite { before, how }, kind) if kind.is_operator() => {
                Ok(vec![Event::Rewritten { before: before.as_str().into(), how: how.clone() }])
            }
            (Command::Rewrite { .. }, Kind::Person(_) | Kind::Hub | Kind::Agent) => {
                Err(Refusal::OperatorOnly)
            }
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Started { version } => {
                *self = Self {
                    n_starts: self.n_starts + 1,
                    last_at: record.at,
                    last_version: Some(version.clone()),
                };
            }
            Event::Rewritten { .. } | Event::Configured { .. } => {}
        }
    }
}

impl Event {
    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Configured { reading } => {
                reading.changes.iter().chain(&reading.problems).map(|text| text.len()).sum()
            }
            Self::Started { .. } | Self::Rewritten { .. } => 0,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let text = match self {
            Self::Started { version } => format!("hub started (version {version})"),
            Self::Rewritten { before, how } => {
                let what = match how {
                    Rewriting::Redacted { n_commits, n_records, n_blobs } => format!(
                        "redacted in {n_commits} commits, {n_records} transcript records and {n_blobs} blobs"
                    ),
                    Rewriting::Compacted { n_dropped, n_before } => {
                        format!("compacted: {n_dropped} of {n_before} events were left out")
                    }
                };
                format!("log {what}; its head was {before}")
            }
            Self::Configured { reading } => reading.to_string(),
        };
        Summary::new("hub", text)
    }
}
