//! Client sessions: what MCP clients of the older protocol era opened, so that they survive a restart of the hub.
//!
//! A session belongs to the principal and the path that opened it. Only how the client introduced itself is kept; nothing
//! of the application depends on a session.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::token::Kind;
use crate::{Context, PrincipalName, Record, Summary};

/// As many sessions as are kept of one principal; a client that opens more loses the oldest and starts that over.
pub const SESSIONS_MAX: usize = 100;
const ID_BYTES_MAX: usize = 100;
const PATH_BYTES_MAX: usize = 200;
/// An introduction is a name, a version and a few capabilities.
const INTRODUCTION_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    pub principal: PrincipalName,
    /// Where it was opened, e.g. `/mcp`.
    pub path: Arc<str>,
    /// How the client introduced itself: the JSON it initialized the session with.
    pub introduction: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Keeps the caller's session.
    Open { id: String, path: String, introduction: String },
    /// Forgets the caller's session. Repeating it is answered.
    Close { id: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Opened { id: Arc<str>, path: Arc<str>, introduction: Arc<str> },
    Closed { id: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the session's introduction is too large; a client's name and capabilities fit in {INTRODUCTION_BYTES_MAX} bytes"
    )]
    TooLarge,
    #[error("the session id is taken; initialize again")]
    Taken,
    #[error("the hub itself has no sessions")]
    NotForHub,
}

/// The view of all sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSessions {
    by_id: OrdMap<Arc<str>, Arc<ClientSession>>,
    oldest_first: OrdMap<PrincipalName, Vector<Arc<str>>>,
}

impl ClientSessions {
    pub fn get(&self, id: &str) -> Option<&Arc<ClientSession>> {
        self.by_id.get(id)
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match (command, cx.caller.kind) {
            (_, Kind::Hub) => Err(Refusal::NotForHub),
            (Command::Open { id, path, introduction }, Kind::Person(_) | Kind::Agent) => {
                let fits = id.len() <= ID_BYTES_MAX
                    && path.len() <= PATH_BYTES_MAX
                    && introduction.len() <= INTRODUCTION_BYTES_MAX;
                if !fits {
                    return Err(Refusal::TooLarge);
                }
                if self.by_id.contains_key(id.as_str()) {
                    return Err(Refusal::Taken);
                }
                let (id, path, introduction) =
                    (id.as_str().into(), path.as_str().into(), introduction.as_str().into());
                Ok(vec![Event::Opened { id, path, introduction }])
            }
            (Command::Close { id }, Kind::Person(_) | Kind::Agent) => {
                let own = self
                    .by_id
                    .get(id.as_str())
                    .filter(|session| session.principal == cx.caller.principal);
                Ok(own.map(|_| Event::Closed { id: id.as_str().into() }).into_iter().collect())
            }
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Opened { id, path, introduction } => {
                let (principal, path, introduction) =
                    (record.by.clone(), path.clone(), introduction.clone());
                let mut own = self.oldest_first.get(&principal).cloned().unwrap_or_default();
                own.push_back(id.clone());
                if own.len() > SESSIONS_MAX
                    && let Some(oldest) = own.pop_front()
                {
                    self.by_id.remove(&oldest);
                }
                self.oldest_first.insert(principal.clone(), own);
                self.by_id
                    .insert(id.clone(), Arc::new(ClientSession { principal, path, introduction }));
            }
            Event::Closed { id } => {
                if let Some(session) = self.by_id.remove(id)
                    && let Some(own) = self.oldest_first.get_mut(&session.principal)
                {
                    own.retain(|other| other != id);
                    if own.is_empty() {
                        self.oldest_first.remove(&session.principal);
                    }
                }
            }
        }
    }

    /// Forgets the sessions of a principal that is gone.
    pub(crate) fn forget(&mut self, principal: &PrincipalName) {
        for id in self.oldest_first.remove(principal).into_iter().flatten() {
            self.by_id.remove(&id);
        }
    }
}

impl Event {
    pub(crate) fn fate(&self, sessions: &ClientSessions) -> Fate {
        match self {
            Self::Opened { id, .. } if sessions.by_id.contains_key(id) => Fate::Kept,
            Self::Opened { .. } | Self::Closed { .. } => Fate::Dropped,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Opened { path, .. } => Summary::new("key", format!("session opened at {path}")),
            Self::Closed { .. } => Summary::new("key", "session closed".into()),
        }
    }
}

#[cfg(test)]
mod tests;
