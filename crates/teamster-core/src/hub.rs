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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started { version: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("only the hub itself says that it starts")]
    HubOnly,
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
        let Command::Start { version } = command;
        match cx.caller.kind {
            Kind::Hub => Ok(vec![Event::Started { version: version.as_str().into() }]),
            Kind::Operator | Kind::Agent => Err(Refusal::HubOnly),
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        let Event::Started { version } = event;
        *self = Self {
            n_starts: self.n_starts + 1,
            last_at: record.at,
            last_version: Some(version.clone()),
        };
    }
}

impl Event {
    pub(crate) fn summary(&self) -> Summary {
        let Self::Started { version } = self;
        Summary::new("hub", format!("hub started (version {version})"))
    }
}
