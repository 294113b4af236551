//! What happens to conversations.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Asker, Chain, How, Partner};
use crate::agent::AgentId;
use crate::compaction::Fate;
use crate::ids::{ConversationId, TellId};
use crate::{Summary, TeamName};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Opened {
        id: ConversationId,
        from: Partner,
        to: TeamName,
        agent: AgentId,
    },
    Told {
        id: TellId,
        conversation: ConversationId,
        message: Arc<str>,
        chain: Chain,
        #[serde(default)]
        is_awaited: bool,
        #[serde(default)]
        asker: Option<Asker>,
        #[serde(default)]
        answer_to: Option<TellId>,
    },
    Left {
        id: TellId,
        conversation: ConversationId,
    },
    /// The same message was sent again while it was under way, and is not told twice.
    Joined {
        id: TellId,
        conversation: ConversationId,
        is_awaited: bool,
        #[serde(default)]
        asker: Option<Asker>,
    },
    Read {
        conversation: ConversationId,
        up_to: TellId,
    },
    Begun {
        id: TellId,
        conversation: ConversationId,
        /// Its records are those after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    },
    Settled {
        id: TellId,
        conversation: ConversationId,
        how: How,
        answer: Arc<str>,
        /// Its records are those up to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up_to: Option<u64>,
    },
    Cleared {
        conversation: ConversationId,
        up_to: Option<TellId>,
    },
}

impl Event {
    pub fn conversation(&self) -> ConversationId {
        match self {
            Self::Opened { id, .. } => *id,
            Self::Told { conversation, .. }
            | Self::Left { conversation, .. }
            | Self::Joined { conversation, .. }
            | Self::Read { conversation, .. }
            | Self::Begun { conversation, .. }
            | Self::Settled { conversation, .. }
            | Self::Cleared { conversation, .. } => *conversation,
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Told { message, .. } => message.len(),
            Self::Settled { answer, .. } => answer.len(),
            Self::Opened { .. }
            | Self::Left { .. }
            | Self::Joined { .. }
            | Self::Read { .. }
            | Self::Begun { .. }
            | Self::Cleared { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Cleared { conversation, .. } => {
                Fate::KeptIfLast(vec![format!("{conversation} cleared")])
            }
            Self::Read { conversation, .. } => {
                Fate::KeptIfLast(vec![format!("{conversation} read")])
            }
            Self::Opened { .. }
            | Self::Told { .. }
            | Self::Left { .. }
            | Self::Joined { .. }
            | Self::Begun { .. }
            | Self::Settled { .. } => Fate::Kept,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let line = |text: &str| {
            text.lines().next().unwrap_or_default().chars().take(100).collect::<String>()
        };
        match self {
            Self::Opened { id, from, to, agent } => {
                Summary::new("add", format!("{id}: {from} can talk to {to} ({agent})"))
            }
            Self::Told { id, conversation, message, .. } => {
                Summary::new("note", format!("{id} in {conversation}: {}", line(message)))
            }
            Self::Left { id, .. } => {
                Summary::new("edit", format!("{id} is no longer waited for; its answer is kept"))
            }
            Self::Joined { id, .. } => {
                Summary::new("edit", format!("{id} was sent again, and is answered once"))
            }
            Self::Read { conversation, up_to } => {
                Summary::new("edit", format!("{conversation} was read up to {up_to}"))
            }
            Self::Begun { id, .. } => Summary::new("take", format!("{id} is being answered")),
            Self::Settled { id, how, answer, .. } => {
                let text = match how {
                    How::Completed => format!("{id} answered: {}", line(answer)),
                    How::Terminated { why } => format!("{id} has no answer: {}", line(why)),
                    How::Cancelled => format!("{id} was taken back"),
                };
                Summary::new("done", text)
            }
            Self::Cleared { conversation, .. } => {
                Summary::new("edit", format!("{conversation} begins anew for those who read it"))
            }
        }
    }
}
