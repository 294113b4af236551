//! Why something is not done in a conversation; each sentence says what to do next.

use super::{CHAIN_TOTAL_MAX, CONVERSATIONS_MAX, MESSAGE_BYTES_MAX, QUEUE_MAX, RATE_MAX};
use crate::TeamName;
use crate::agent::AgentId;
use crate::text::BadText;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Name(String),
    #[error("Unknown team: {team}. Known teams: {known}")]
    UnknownTeam { team: String, known: String },
    #[error(
        "no program is installed that could play team {0}; install one and start the hub again"
    )]
    NoProgram(TeamName),
    #[error("you are {own}; fromTeam must be left out or say so, not {given:?}")]
    NotYou { own: String, given: String },
    #[error("Message is required")]
    NoMessage,
    #[error(
        "Message too long (max 100KB), that is {MESSAGE_BYTES_MAX} bytes; put long text into a file and name it"
    )]
    MessageTooLong,
    #[error("Message contains null bytes")]
    NullBytes,
    #[error(transparent)]
    Text(#[from] BadText),
    #[error(
        "{QUEUE_MAX} messages wait for {0} in this conversation, which is the limit; wait for some to be answered"
    )]
    Busy(TeamName),
    #[error(
        "this message would be number {length} of a chain in which each was caused by the one before; finish with what you \
         know instead of telling somebody again"
    )]
    ChainTooLong { length: u32 },
    #[error(
        "the message that began this has caused {CHAIN_TOTAL_MAX} messages, which is the limit; finish with what you know"
    )]
    ChainTooWide,
    #[error(
        "{RATE_MAX} messages were sent to {to} within the last hour, which is the limit; wait, or say more at once"
    )]
    TooOften { to: TeamName },
    #[error("there are {CONVERSATIONS_MAX} conversations, which is the limit")]
    TooMany,
    #[error("there is no such conversation; team_report shows yours")]
    UnknownConversation,
    #[error("there is no such message, or it is not yours to take back")]
    UnknownTell,
    #[error("only an operator may do this for the conversations of others")]
    OperatorsOnly,
    #[error("only the hub itself says how its agents are")]
    HubOnly,
    #[error("agent {0} is not in a state for this")]
    OutOfStep(AgentId),
}

impl Refusal {
    /// Returns the name by which programs know the refusal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Name(_)
            | Self::NoMessage
            | Self::MessageTooLong
            | Self::NullBytes
            | Self::NotYou { .. }
            | Self::Text(_)
            | Self::UnknownConversation
            | Self::UnknownTell => "ValidationError",
            Self::UnknownTeam { .. } => "TeamNotFoundError",
            Self::NoProgram(_) | Self::OutOfStep(_) => "ProcessError",
            Self::Busy(_) => "ProcessBusyError",
            Self::ChainTooLong { .. } | Self::ChainTooWide | Self::TooOften { .. } => {
                "ChainLimitError"
            }
            Self::TooMany => "PoolLimitExceededError",
            Self::OperatorsOnly | Self::HubOnly => "Forbidden",
        }
    }
}
