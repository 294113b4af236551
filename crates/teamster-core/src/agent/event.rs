//! What happens to agents.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentId, Draft, Isolation, Outcome};
use crate::compaction::Fate;
use crate::ids::TokenId;
use crate::spending::Used;
use crate::{NodeName, Summary, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Drafted {
        id: AgentId,
        number: u32,
        draft: Draft,
    },
    Admitted {
        id: AgentId,
        token: TokenId,
        /// The node that starts its process. Older hubs did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
    },
    Begun {
        id: AgentId,
        session: Arc<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<Isolation>,
    },
    TurnBegun {
        id: AgentId,
    },
    Spent {
        id: AgentId,
        used: Used,
    },
    Parked {
        id: AgentId,
        account: Arc<str>,
        until: Timestamp,
        why: Arc<str>,
    },
    Adopted {
        id: AgentId,
        number: u32,
        draft: Draft,
        token: TokenId,
        session: Option<Arc<str>>,
    },
    Resumed {
        id: AgentId,
        prompt: Arc<str>,
    },
    Convened {
        id: AgentId,
        number: u32,
        draft: Draft,
    },
    Woken {
        id: AgentId,
    },
    Slept {
        id: AgentId,
        why: SleepWhy,
    },
    Unparked {
        id: AgentId,
        account: Arc<str>,
    },
    Interrupted {
        id: AgentId,
        why: Arc<str>,
        #[serde(default)]
        blameless: bool,
    },
    KillAsked {
        id: AgentId,
        why: Why,
    },
    Ended {
        id: AgentId,
        outcome: Outcome,
    },
    Warned {
        id: AgentId,
        says: Arc<str>,
    },
}

/// Why an agent is being ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Killed,
    /// The one above it was.
    WithParent,
    /// Its time, or that of one above it, is over.
    OutOfTime,
    /// It is to sleep.
    ToSleep,
    /// The same without time to end: its process is killed.
    ToSleepAtOnce,
}

/// Why one that lasts has no process any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SleepWhy {
    /// It had nothing to do for long.
    Idle,
    /// Others needed its place.
    Room,
    /// Somebody said so.
    Asked,
    /// Its program failed in the middle.
    Failed { says: Arc<str> },
    /// Its program could not be started.
    NotStarted { says: Arc<str> },
    /// Its team has other settings now, or is gone.
    Changed,
}

impl Event {
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Drafted { id, .. }
            | Self::Admitted { id, .. }
            | Self::Begun { id, .. }
            | Self::TurnBegun { id }
            | Self::Spent { id, .. }
            | Self::Parked { id, .. }
            | Self::Adopted { id, .. }
            | Self::Resumed { id, .. }
            | Self::Unparked { id, .. }
            | Self::Convened { id, .. }
            | Self::Woken { id }
            | Self::Slept { id, .. }
            | Self::Interrupted { id, .. }
            | Self::KillAsked { id, .. }
            | Self::Ended { id, .. }
            | Self::Warned { id, .. } => id,
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Drafted { draft, .. } => draft.prompt.len() + draft.directory.len(),
            Self::Ended { outcome, .. } => {
                let Outcome { summary, changes, issues, questions, .. } = outcome;
                let entries = changes.iter().chain(issues).chain(questions);
                summary.len() + entries.map(|entry| entry.len()).sum::<usize>()
            }
            Self::Interrupted { why, .. } | Self::Parked { why, .. } => why.len(),
            Self::Resumed { prompt, .. } => prompt.len(),
            Self::Warned { says, .. } => says.len(),
            Self::Admitted { .. }
            | Self::Adopted { .. }
            | Self::Convened { .. }
            | Self::Woken { .. }
            | Self::Slept { .. }
            | Self::Begun { .. }
            | Self::TurnBegun { .. }
            | Self::Spent { .. }
            | Self::Unparked { .. }
            | Self::KillAsked { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Begun { id, .. } => Fate::KeptIfLast(vec![format!("{id} session")]),
            Self::Warned { .. } => Fate::Dropped,
            Self::Drafted { .. }
            | Self::Admitted { .. }
            | Self::Adopted { .. }
            | Self::Resumed { .. }
            | Self::Convened { .. }
            | Self::Woken { .. }
            | Self::Slept { .. }
            | Self::TurnBegun { .. }
            | Self::Spent { .. }
            | Self::Parked { .. }
            | Self::Unparked { .. }
            | Self::Interrupted { .. }
            | Self::KillAsked { .. }
            | Self::Ended { .. } => Fate::Kept,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Drafted { id, draft, .. } => {
                let first_line = draft.prompt.lines().next().unwrap_or_default();
                let first_line: String = first_line.chars().take(100).collect();
                Summary::new(
                    "add",
                    format!("agent {id} drafted for {}: {first_line}", draft.dossier),
                )
            }
            Self::Admitted { id, .. } => Summary::new("take", format!("agent {id} starts")),
            Self::Begun { id, session, isolation, .. } => {
                let isolation =
                    isolation.map(|by| format!(", isolation {}", by.as_str())).unwrap_or_default();
                Summary::new("take", format!("agent {id} works (session {session}{isolation})"))
            }
            Self::TurnBegun { id } => Summary::new("take", format!("agent {id} begins a turn")),
            Self::Spent { id, used } => Summary::new("note", format!("agent {id} used {used}")),
            Self::Parked { id, account, why, .. } => Summary::new(
                "free",
                format!("agent {id} is parked: {account} accepts no requests for now: {why}"),
            ),
            Self::Adopted { id, draft, .. } => {
                Summary::new("add", format!("agent {id} adopted in {}", draft.directory))
            }
            Self::Convened { id, draft, .. } => {
                Summary::new("add", format!("agent {id} speaks for a team in {}", draft.directory))
            }
            Self::Woken { id } => Summary::new("take", format!("agent {id} is woken")),
            Self::Slept { id, why } => {
                let why = match why {
                    SleepWhy::Idle => "it had nothing to do",
                    SleepWhy::Room => "others needed its place",
                    SleepWhy::Asked => "it was told to",
                    SleepWhy::Changed => "its team has changed",
                    SleepWhy::Failed { says } | SleepWhy::NotStarted { says } => says,
                };
                Summary::new("free", format!("agent {id} sleeps: {why}"))
            }
            Self::Unparked { account, .. } => {
                Summary::new("take", format!("agents of {account} are parked no longer"))
            }
            Self::Resumed { id, .. } => {
                Summary::new("take", format!("agent {id} is the hub's to go on with"))
            }
            Self::Interrupted { id, why, .. } => {
                Summary::new("free", format!("agent {id} was cut off and goes on later: {why}"))
            }
            Self::KillAsked { id, why } => {
                let why = match why {
                    Why::Killed => "it was told to end",
                    Why::WithParent => "the one above it ends",
                    Why::OutOfTime => "its time is over",
                    Why::ToSleep => "it is to sleep",
                    Why::ToSleepAtOnce => "it is to sleep at once",
                };
                Summary::new("free", format!("agent {id} ends: {why}"))
            }
            Self::Ended { id, outcome } => {
                let first_line = outcome.summary.lines().next().unwrap_or_default();
                let (ending, status) = (outcome.ending.as_str(), outcome.status.as_str());
                Summary::new("done", format!("agent {id} {ending} ({status}): {first_line}"))
            }
            Self::Warned { id, says } => Summary::new("note", format!("agent {id}: {says}")),
        }
    }
}
