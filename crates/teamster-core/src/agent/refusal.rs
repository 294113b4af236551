//! Why something is not done with an agent; each sentence says what to do next.

use super::{AgentId, LIVE_MAX};
use crate::DossierName;
use crate::role::RoleName;
use crate::spending::dollars;
use crate::text::BadText;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("Unknown role \"{role}\". Available: {available}")]
    UnknownRole { role: String, available: String },
    #[error(
        "no program is installed that could play {0}: install one (`teamster program list` shows which are known) and start \
         the hub again, or try it out with the one that needs none (`teamster up --set program=scripted`)"
    )]
    NoProgram(RoleName),
    // Another's agent is answered like one that never was.
    #[error("No agent with ID \"{0}\" found; list_agents shows those there are")]
    UnknownAgent(String),
    #[error(transparent)]
    Text(#[from] BadText),
    #[error(transparent)]
    Dossier(#[from] crate::ids::BadName),
    #[error(
        "the task \"{0}\" is not yours: a new agent can join the tasks of your own tree, or open a new one under another \
         name; leave taskSlug out to use yours"
    )]
    OthersDossier(DossierName),
    #[error("there are as many dossiers as a workspace can have; use one of them")]
    TooManyDossiers,
    #[error("{0} is not an absolute path; name the directory in full")]
    Directory(String),
    #[error(
        "you are {depth} generations deep, which is the limit; do this work yourself, or report what should be drafted"
    )]
    TooDeep { depth: u32 },
    #[error("{who} has {limit} agents under way, which is the limit; await or kill one first")]
    TooManyChildren { who: String, limit: u32 },
    #[error(
        "{limit} agents have been drafted below {who}, which is the limit; finish with what you have"
    )]
    TotalSpent { who: String, limit: u32 },
    #[error("the {limit} turns of {who} are used up; finish with what you have")]
    TurnsSpent { who: String, limit: u32 },
    #[error("the time of {who} is over; finish with what you have")]
    TimeSpent { who: String },
    #[error("the {} of {who} are spent; finish with what you have", dollars(*.limit))]
    MoneySpent { who: String, limit: u64 },
    #[error("the {limit} tokens of {who} are used up; finish with what you have")]
    TokensSpent { who: String, limit: u64 },
    #[error("only a person can say that an agent is theirs")]
    OperatorsOnly,
    #[error("{0} is neither parked nor adopted with a session that its program can go on with")]
    NotResumable(AgentId),
    #[error("{0} waits for its account and goes on with the task it has; leave the prompt out")]
    HasItsTask(AgentId),
    #[error(
        "there are {LIVE_MAX} agents queued or under way, which is the limit; wait for some to end"
    )]
    TooMany,
    #[error("you are being ended; nothing more can be drafted")]
    BeingEnded,
    #[error("only the hub itself says how its agents are")]
    HubOnly,
    #[error("agent {0} is not in a state for this")]
    OutOfStep(AgentId),
}

impl Refusal {
    /// Returns the name by which programs know the refusal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UnknownRole { .. } => "UnknownRole",
            Self::NoProgram(_) => "NoProgram",
            Self::UnknownAgent(_) => "UnknownAgent",
            Self::Text(_) | Self::Dossier(_) | Self::Directory(_) => "ValidationError",
            Self::TooDeep { .. }
            | Self::TooManyChildren { .. }
            | Self::TotalSpent { .. }
            | Self::TurnsSpent { .. }
            | Self::TimeSpent { .. }
            | Self::MoneySpent { .. }
            | Self::TokensSpent { .. }
            | Self::BeingEnded
            | Self::TooManyDossiers
            | Self::TooMany => "LimitReached",
            Self::HubOnly | Self::OperatorsOnly | Self::OthersDossier(_) => "Forbidden",
            Self::OutOfStep(_) | Self::NotResumable(_) | Self::HasItsTask(_) => "OutOfStep",
        }
    }
}
