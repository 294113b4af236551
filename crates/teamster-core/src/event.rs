//! Everything that can be asked, can happen, and can be refused: one line per noun.

use serde::{Deserialize, Serialize};

use crate::topic::Topic;
use crate::{
    RunName, agent, client_session, conversation, dossier, errand, hub, key, question, quota, role,
    run, team, token, yak,
};

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    ClientSession(client_session::Command),
    Hub(hub::Command),
    Token(token::Command),
    Run { run: RunName, what: run::Command },
    Yak(yak::Command),
    Errand(errand::Command),
    Role(role::Command),
    Agent(agent::Command),
    Question(question::Command),
    Team(team::Command),
    Conversation(conversation::Command),
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    ClientSession(client_session::Event),
    Hub(hub::Event),
    Token(token::Event),
    Run { run: RunName, what: run::Event },
    Yak(yak::Event),
    Errand(errand::Event),
    Role(role::Event),
    Dossier(dossier::Event),
    Agent(agent::Event),
    Question(question::Event),
    Team(team::Event),
    Conversation(conversation::Event),
}

/// Why a command was refused. Each sentence says what the caller can do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    ClientSession(#[from] client_session::Refusal),
    #[error(transparent)]
    Hub(#[from] hub::Refusal),
    #[error(transparent)]
    Token(#[from] token::Refusal),
    #[error(transparent)]
    Run(#[from] run::Refusal),
    #[error(transparent)]
    Yak(#[from] yak::Refusal),
    #[error(transparent)]
    Errand(#[from] errand::Refusal),
    #[error(transparent)]
    Role(#[from] role::Refusal),
    #[error(transparent)]
    Agent(#[from] agent::Refusal),
    #[error(transparent)]
    Question(#[from] question::Refusal),
    #[error(transparent)]
    Team(#[from] team::Refusal),
    #[error(transparent)]
    Conversation(#[from] conversation::Refusal),
    #[error(transparent)]
    Key(#[from] key::Refusal),
    #[error(transparent)]
    Quota(#[from] quota::Refusal),
}

impl Refusal {
    /// Returns what programs know the refusal by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Agent(refusal) => refusal.name(),
            Self::Conversation(refusal) => refusal.name(),
            Self::Quota(_) => "QuotaExceeded",
            Self::ClientSession(_)
            | Self::Hub(_)
            | Self::Token(_)
            | Self::Run(_)
            | Self::Yak(_)
            | Self::Errand(_)
            | Self::Role(_)
            | Self::Question(_)
            | Self::Team(_)
            | Self::Key(_) => "Refused",
        }
    }
}

/// How an event is shown where nothing better is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// A word for a symbol: add, edit, take, free, note, done, key, yak, hub.
    pub icon: &'static str,
    pub text: String,
    /// The run it happened in, if any.
    pub run: Option<RunName>,
}

impl Summary {
    pub(crate) fn new(icon: &'static str, text: String) -> Self {
        // A line stays a line: text of an agent must not look like other lines of the log, nor steer a terminal, nor be
        // read in another order than it is in.
        let text = text.replace(['\n', '\r', '\t'], " ");
        Self { icon, text: crate::text::plain(&text), run: None }
    }
}

impl Event {
    /// Says in a line what happened.
    pub fn summary(&self) -> Summary {
        match self {
            Self::ClientSession(event) => event.summary(),
            Self::Hub(event) => event.summary(),
            Self::Token(event) => event.summary(),
            Self::Run { run, what } => Summary { run: Some(run.clone()), ..what.summary() },
            Self::Yak(event) => event.summary(),
            Self::Errand(event) => event.summary(),
            Self::Role(event) => event.summary(),
            Self::Dossier(event) => event.summary(),
            Self::Agent(event) => event.summary(),
            Self::Question(event) => event.summary(),
            Self::Team(event) => event.summary(),
            Self::Conversation(event) => event.summary(),
        }
    }

    /// Returns what changed, for those who wait for it. Every event is also a change of [`Topic::Log`].
    pub fn topics(&self) -> impl Iterator<Item = Topic> {
        let wider = match self {
            Self::Agent(_) => Some(Topic::Agents),
            Self::Question(_) => Some(Topic::Questions),
            Self::Team(event) => Some(Topic::Team(event.name().clone())),
            // The runner looks at agents, and what is told wakes them.
            Self::Conversation(_) => Some(Topic::Agents),
            Self::Run { what: run::Event::Drive(_), .. } => Some(Topic::Drives),
            Self::ClientSession(_)
            | Self::Hub(_)
            | Self::Token(_)
            | Self::Run { .. }
            | Self::Yak(_)
            | Self::Errand(_)
            | Self::Role(_)
            | Self::Dossier(_) => None,
        };
        std::iter::once(self.topic()).chain(wider)
    }

    fn topic(&self) -> Topic {
        match self {
            Self::ClientSession(_) | Self::Hub(_) => Topic::Log,
            Self::Token(token::Event::Created { token, .. }) => {
                Topic::Principal(token.principal.clone())
            }
            Self::Token(
                token::Event::Granted { principal, .. } | token::Event::Ended { principal, .. },
            ) => Topic::Principal(principal.clone()),
            Self::Run { run, .. } => Topic::Run(run.clone()),
            Self::Yak(_) => Topic::Yaks,
            Self::Errand(event) => Topic::Errand(event.id()),
            Self::Role(_) | Self::Dossier(_) | Self::Team(_) => Topic::Agents,
            Self::Conversation(event) => Topic::Conversation(event.conversation()),
            Self::Agent(event) => Topic::Agent(event.agent().clone()),
            Self::Question(event) => Topic::Agent(event.agent().clone()),
        }
    }

    /// Returns about how much memory the event takes, for bounds.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.text_bytes()
    }

    /// Returns how much text the event carries.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::ClientSession(_) | Self::Token(_) => 0,
            Self::Hub(event) => event.text_bytes(),
            Self::Run { what, .. } => what.text_bytes(),
            Self::Yak(event) => event.text_bytes(),
            Self::Errand(event) => event.text_bytes(),
            Self::Role(role::Event::Defined { role }) => role.prompt.len(),
            Self::Dossier(event) => event.text_bytes(),
            Self::Role(role::Event::Removed { .. }) => 0,
            Self::Agent(event) => event.text_bytes(),
            Self::Question(event) => event.text_bytes(),
            Self::Team(event) => event.text_bytes(),
            Self::Conversation(event) => event.text_bytes(),
        }
    }
}
