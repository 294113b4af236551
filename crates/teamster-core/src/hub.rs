//! The hub itself, as far as the log knows it: when it was started.
//!
//! A hub's first commit is this one, before it answers anybody. What an earlier hub had sent and not heard of can no
//! longer arrive after it, because it would have to take its place.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::token::Kind;
use crate::{Context, Record, Summary, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Says that a hub of this version starts.
    Start { version: String },
    /// Says that the log was written anew: what is before this in it is not what was written first.
    Rewrite { before: String, how: Rewriting },
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
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("only the hub itself says that it starts")]
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
            (Command::Start { .. }, Kind::Operator | Kind::Agent) => Err(Refusal::HubOnly),
            (Command::Rewrite { before, how }, Kind::Operator) => {
                Ok(vec![Event::Rewritten { before: before.as_str().into(), how: how.clone() }])
            }
            (Command::Rewrite { .. }, Kind::Hub | Kind::Agent) => Err(Refusal::OperatorOnly),
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
            Event::Rewritten { .. } => {}
        }
    }
}

impl Event {
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
        };
        Summary::new("hub", text)
    }
}
