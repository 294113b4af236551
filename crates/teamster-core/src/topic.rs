//! What a waiting call can wait for. A change wakes exactly those that wait for its topic.

use crate::agent::AgentId;
use crate::ids::{ConversationId, ErrandId};
use crate::{PrincipalName, RunName, TeamName};

/// A part of the state that changes as one, as far as waiting is concerned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Anything at all: the log grew.
    Log,
    /// A run's items, notes and iterations.
    Run(RunName),
    /// Which runs are worked off, and how people steer them.
    Drives,
    /// What a principal may do, or whether it may do anything.
    Principal(PrincipalName),
    /// The backlog.
    Yaks,
    /// Agents that the hub runs: any of them.
    Agents,
    /// One of them.
    Agent(AgentId),
    /// What a team is, or whether it is one.
    Team(TeamName),
    /// What two partners say to each other.
    Conversation(ConversationId),
    /// What waits for people.
    Questions,
    /// A call that outlives its request: what it asks, was given, and came to.
    Errand(ErrandId),
}
