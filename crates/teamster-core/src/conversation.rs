//! Conversations: one for each ordered pair of somebody who tells and a team that is told. Each has an agent of its own,
//! whose session goes on for as long as the conversation does, awake or asleep. What is told waits in order until the
//! agent has worked off what came before.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::compaction::Fate;
use crate::ids::{ConversationId, TellId};
use crate::text::{self, BadText};
use crate::token::Kind;
use crate::{Caller, Context, PrincipalName, Record, Summary, TeamName, Timestamp};

/// As long as a message may be.
pub const MESSAGE_BYTES_MAX: usize = 102_400;
/// What is kept of an answer; all of it is in the transcript.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// As many messages as may wait in one conversation.
pub const QUEUE_MAX: usize = 50;
/// As many messages as are kept at hand of one conversation; of older ones the log knows.
pub const TELLS_MAX: usize = 200;
pub const CONVERSATIONS_MAX: usize = 10_000;
/// A message that was caused by a message that was caused by … so many times is not sent: somebody is being polite.
pub const CHAIN_LENGTH_MAX: u32 = 8;
/// So many messages may one message cause in all.
pub const CHAIN_TOTAL_MAX: u32 = 50;
/// So many messages may be sent in one conversation within [`RATE_MS`].
pub const RATE_MAX: usize = 60;
pub const RATE_MS: i64 = 60 * 60 * 1_000;

/// Who tells: a team, or somebody who belongs to none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partner {
    Team(TeamName),
    Principal(PrincipalName),
}

impl Partner {
    pub fn of(caller: &Caller) -> Self {
        match &caller.team {
            Some(team) => Self::Team(team.clone()),
            None => Self::Principal(caller.principal.clone()),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Team(name) => name.as_str(),
            Self::Principal(name) => name.as_str(),
        }
    }
}

impl fmt::Display for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a message stands in what caused what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// The message that began it.
    pub first: TellId,
    /// How many messages stand before this one, each the cause of the next.
    pub length: u32,
}

/// How a message was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Completed,
    /// The agent was put to sleep, ended or failed before it had answered; the answer is what it had said by then.
    Terminated {
        why: Arc<str>,
    },
    /// It was taken back before it was begun.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    Queued,
    Active { since: Timestamp },
    Settled { how: How, answer: Arc<str>, at: Timestamp },
}

/// Which records of its agent's transcript belong to a message, as far as is known: those after one, up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Records {
    /// Known once it is begun.
    pub after: Option<u64>,
    /// Known once it is settled, unless its agent was cut off; then what comes next begins where they end.
    pub up_to: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tell {
    pub id: TellId,
    pub conversation: ConversationId,
    pub message: Arc<str>,
    pub by: PrincipalName,
    pub at: Timestamp,
    pub chain: Chain,
    pub progress: Progress,
    pub records: Records,
}

impl Tell {
    pub fn is_settled(&self) -> bool {
        matches!(self.progress, Progress::Settled { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub from: Partner,
    pub to: TeamName,
    /// Who answers in it.
    pub agent: AgentId,
    pub opened_at: Timestamp,
    pub last_used_at: Timestamp,
    /// What waits, oldest first.
    pub queue: Vector<TellId>,
    pub current: Option<TellId>,
    /// All at hand, oldest first.
    pub tells: Vector<TellId>,
    pub n_tells: u32,
    /// What is told of the past begins after this message.
    pub cleared: Option<TellId>,
}

/// What a caller tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTell {
    pub to: String,
    /// Whom the caller says it is, if it says so.
    pub from: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Tell(NewTell),
    /// Opens the conversation with a team, if there is none, and has its agent started.
    Wake {
        to: String,
        from: Option<String>,
        clear: bool,
    },
    /// Ends the process of a conversation's agent; of all with that team if an operator says so.
    Sleep {
        to: String,
        from: Option<String>,
        all: bool,
    },
    /// Takes a message back that is not begun.
    Cancel {
        tell: TellId,
    },
    /// Moves the start of what is told of the past.
    Clear {
        conversation: ConversationId,
    },
    /// Says that an agent begins with the next message.
    Begin {
        agent: AgentId,
        incarnation: u32,
        /// The last of its transcript so far, if that is known.
        last_record: Option<u64>,
    },
    /// Says what came of a message.
    Settle {
        agent: AgentId,
        incarnation: u32,
        tell: TellId,
        how: How,
        answer: String,
        last_record: Option<u64>,
    },
}

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
        "Message too long (max {MESSAGE_BYTES_MAX} bytes); put long text into a file and name it"
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

/// The view of all conversations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Conversations {
    last: u32,
    last_tell: u32,
    by_id: OrdMap<ConversationId, Arc<Conversation>>,
    tells: OrdMap<TellId, Arc<Tell>>,
    by_pair: OrdMap<(Partner, TeamName), ConversationId>,
    by_team: OrdSet<(TeamName, ConversationId)>,
    by_agent: OrdMap<AgentId, ConversationId>,
    /// How many messages each that began a chain has caused, of those whose first is at hand.
    chains: OrdMap<TellId, u32>,
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    last_tell: u32,
    conversations: Vec<Arc<Conversation>>,
    tells: Vec<Arc<Tell>>,
    chains: OrdMap<TellId, u32>,
}

impl Conversations {
    pub fn get(&self, id: ConversationId) -> Option<&Arc<Conversation>> {
        self.by_id.get(&id)
    }

    pub fn tell(&self, id: TellId) -> Option<&Arc<Tell>> {
        self.tells.get(&id)
    }

    pub fn of_pair(&self, from: &Partner, to: &TeamName) -> Option<&Arc<Conversation>> {
        self.by_id.get(self.by_pair.get(&(from.clone(), to.clone()))?)
    }

    pub fn of_agent(&self, agent: &AgentId) -> Option<&Arc<Conversation>> {
        self.by_id.get(self.by_agent.get(agent)?)
    }

    /// Returns those in which a team answers, oldest first.
    pub fn with(&self, team: &TeamName) -> impl Iterator<Item = &Arc<Conversation>> {
        let start = (team.clone(), ConversationId(0));
        let own = self.by_team.range(start..).take_while(move |(name, _)| name == team);
        own.filter_map(|(_, id)| self.by_id.get(id))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Conversation>> {
        self.by_id.values()
    }

    pub(crate) fn next_id(&self) -> ConversationId {
        ConversationId(self.last + 1)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_id.len() >= CONVERSATIONS_MAX
    }

    /// Returns the message that comes next, and where it stands in what caused what.
    pub(crate) fn tell_event(
        &self,
        message: &str,
        id: ConversationId,
        to: &TeamName,
        cx: &Context,
        caller_agent: Option<&AgentId>,
    ) -> Result<Event, Refusal> {
        let message = checked(message)?;
        let tell = TellId(self.last_tell + 1);
        let cause = caller_agent.and_then(|agent| self.of_agent(agent)?.current);
        let cause = cause.and_then(|cause| self.tells.get(&cause));
        let chain = match cause {
            None => Chain { first: tell, length: 0 },
            Some(cause) => {
                let length = cause.chain.length + 1;
                if length >= CHAIN_LENGTH_MAX {
                    return Err(Refusal::ChainTooLong { length: length + 1 });
                }
                let caused = self.chains.get(&cause.chain.first).copied().unwrap_or_default();
                if caused >= CHAIN_TOTAL_MAX {
                    return Err(Refusal::ChainTooWide);
                }
                Chain { first: cause.chain.first, length }
            }
        };
        if let Some(conversation) = self.by_id.get(&id) {
            if conversation.queue.len() >= QUEUE_MAX {
                return Err(Refusal::Busy(to.clone()));
            }
            // People may say as much as they like.
            let at = conversation.tells.len().checked_sub(RATE_MAX);
            let earliest = at.and_then(|at| self.tells.get(conversation.tells.get(at)?));
            let too_often = earliest.is_some_and(|tell| cx.now.0 - tell.at.0 < RATE_MS);
            if too_often && cx.caller.kind == Kind::Agent {
                return Err(Refusal::TooOften { to: to.clone() });
            }
        }
        Ok(Event::Told { id: tell, conversation: id, message, chain })
    }

    /// Decides what concerns no other noun.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::Cancel { tell } => {
                let tell = self.tells.get(tell).ok_or(Refusal::UnknownTell)?;
                let conversation =
                    self.by_id.get(&tell.conversation).ok_or(Refusal::UnknownTell)?;
                let own = conversation.from == Partner::of(&cx.caller);
                if !own && cx.caller.kind == Kind::Agent {
                    return Err(Refusal::UnknownTell);
                }
                let is_queued = tell.progress == Progress::Queued;
                Ok(is_queued
                    .then(|| Event::Settled {
                        id: tell.id,
                        conversation: conversation.id,
                        how: How::Cancelled,
                        answer: "".into(),
                        up_to: None,
                    })
                    .into_iter()
                    .collect())
            }
            Command::Clear { conversation } => {
                let conversation = self.visible(*conversation, &cx.caller)?;
                let up_to = conversation.tells.back().copied();
                Ok(vec![Event::Cleared { conversation: conversation.id, up_to }])
            }
            Command::Begin { agent, last_record: after, .. } => {
                let conversation =
                    self.of_agent(agent).ok_or_else(|| Refusal::OutOfStep(agent.clone()))?;
                // One that was cut off in the middle goes on with it.
                let next = match conversation.current {
                    Some(_) => None,
                    None => conversation.queue.front().copied(),
                };
                let begun = |id| Event::Begun { id, conversation: conversation.id, after: *after };
                Ok(next.map(begun).into_iter().collect())
            }
            Command::Settle { agent, tell, how, answer, last_record, .. } => {
                let conversation =
                    self.of_agent(agent).ok_or_else(|| Refusal::OutOfStep(agent.clone()))?;
                if conversation.current != Some(*tell) {
                    return Err(Refusal::OutOfStep(agent.clone()));
                }
                let plain = |text: &str| {
                    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "")
                };
                let answer = text::beginning(&plain(answer), ANSWER_BYTES_MAX);
                let (id, conversation) = (*tell, conversation.id);
                let (how, up_to) = (how.clone(), *last_record);
                Ok(vec![Event::Settled { id, conversation, how, answer, up_to }])
            }
            Command::Tell(_) | Command::Wake { .. } | Command::Sleep { .. } => {
                unreachable!("these are decided where the other nouns are at hand")
            }
        }
    }

    /// Returns a conversation if the caller may know of it: operators all, others their own and those in which they answer.
    pub fn visible(
        &self,
        id: ConversationId,
        caller: &Caller,
    ) -> Result<&Arc<Conversation>, Refusal> {
        let found = self.by_id.get(&id).filter(|conversation| match caller.kind {
            Kind::Operator | Kind::Hub => true,
            Kind::Agent => {
                conversation.from == Partner::of(caller)
                    || caller.team.as_ref() == Some(&conversation.to)
            }
        });
        found.ok_or(Refusal::UnknownConversation)
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Opened { id, from, to, agent } => {
                self.last = self.last.max(id.0);
                self.insert(Arc::new(Conversation {
                    id: *id,
                    from: from.clone(),
                    to: to.clone(),
                    agent: agent.clone(),
                    opened_at: record.at,
                    last_used_at: record.at,
                    queue: Vector::new(),
                    current: None,
                    tells: Vector::new(),
                    n_tells: 0,
                    cleared: None,
                }));
            }
            Event::Told { id, conversation, message, chain } => {
                self.last_tell = self.last_tell.max(id.0);
                let tell = Tell {
                    id: *id,
                    conversation: *conversation,
                    message: message.clone(),
                    by: record.by.clone(),
                    at: record.at,
                    chain: *chain,
                    progress: Progress::Queued,
                    records: Records::default(),
                };
                self.tells.insert(*id, Arc::new(tell));
                *self.chains.entry(chain.first).or_default() += 1;
                let mut forgotten = None;
                self.change(*conversation, |conversation| {
                    conversation.queue.push_back(*id);
                    conversation.tells.push_back(*id);
                    conversation.n_tells += 1;
                    conversation.last_used_at = record.at;
                    let is_over = conversation.tells.len() > TELLS_MAX;
                    let oldest = conversation.tells.front().copied().filter(|_| is_over);
                    let waits = |id: &TellId| {
                        conversation.queue.contains(id) || conversation.current == Some(*id)
                    };
                    forgotten = oldest.filter(|oldest| !waits(oldest));
                    if forgotten.is_some() {
                        conversation.tells.pop_front();
                    }
                });
                if let Some(forgotten) = forgotten {
                    self.tells.remove(&forgotten);
                    self.chains.remove(&forgotten);
                }
            }
            Event::Begun { id, conversation, after } => {
                self.change(*conversation, |conversation| {
                    conversation.queue.retain(|queued| queued != id);
                    conversation.current = Some(*id);
                });
                let known = |records| Records { after: *after, ..records };
                self.progress(*id, Progress::Active { since: record.at }, known);
            }
            Event::Settled { id, conversation, how, answer, up_to } => {
                self.change(*conversation, |conversation| {
                    conversation.queue.retain(|queued| queued != id);
                    conversation.current = conversation.current.filter(|current| current != id);
                    conversation.last_used_at = record.at;
                });
                let (how, answer) = (how.clone(), answer.clone());
                let known = |records| Records { up_to: *up_to, ..records };
                self.progress(*id, Progress::Settled { how, answer, at: record.at }, known);
            }
            Event::Cleared { conversation, up_to } => {
                self.change(*conversation, |conversation| conversation.cleared = *up_to);
            }
        }
    }

    fn progress(&mut self, id: TellId, progress: Progress, known: impl FnOnce(Records) -> Records) {
        if let Some(tell) = self.tells.get(&id).filter(|tell| !tell.is_settled()) {
            let tell = Tell { progress, records: known(tell.records), ..Tell::clone(tell) };
            self.tells.insert(id, Arc::new(tell));
        }
    }

    fn change(&mut self, id: ConversationId, change: impl FnOnce(&mut Conversation)) {
        if let Some(conversation) = self.by_id.get(&id) {
            let mut conversation = Conversation::clone(conversation);
            change(&mut conversation);
            self.by_id.insert(id, Arc::new(conversation));
        }
    }

    fn insert(&mut self, conversation: Arc<Conversation>) {
        let (id, to) = (conversation.id, conversation.to.clone());
        self.by_pair.insert((conversation.from.clone(), to.clone()), id);
        self.by_team.insert((to, id));
        self.by_agent.insert(conversation.agent.clone(), id);
        self.by_id.insert(id, conversation);
    }
}

/// Returns a message without surrounding white space, if it may be sent.
fn checked(message: &str) -> Result<Arc<str>, Refusal> {
    if message.contains('\0') {
        return Err(Refusal::NullBytes);
    }
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Refusal::MessageTooLong);
    }
    match text::long("message", message, MESSAGE_BYTES_MAX) {
        Err(BadText::Empty { .. }) => Err(Refusal::NoMessage),
        other => Ok(other?),
    }
}

/// Reads the name of a team as the seed's validation words it.
pub fn team_name(given: &str) -> Result<TeamName, Refusal> {
    let refuse = |says: &str| Err(Refusal::Name(says.to_owned()));
    if given.is_empty() {
        return refuse("Team name is required");
    }
    if given.contains(['/', '\\']) || given.contains("..") {
        return refuse("Invalid team name (no path separators allowed)");
    }
    if given.chars().count() > 100 {
        return refuse("Team name too long (max 100 characters)");
    }
    TeamName::parse(given).map_err(|error| Refusal::Name(error.to_string()))
}

impl Event {
    pub fn conversation(&self) -> ConversationId {
        match self {
            Self::Opened { id, .. } => *id,
            Self::Told { conversation, .. }
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
            Self::Opened { .. } | Self::Begun { .. } | Self::Cleared { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Cleared { conversation, .. } => {
                Fate::KeptIfLast(vec![format!("{conversation} cleared")])
            }
            Self::Opened { .. } | Self::Told { .. } | Self::Begun { .. } | Self::Settled { .. } => {
                Fate::Kept
            }
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

impl From<Stored> for Conversations {
    fn from(stored: Stored) -> Self {
        let Stored { last, last_tell, conversations, tells, chains } = stored;
        let mut all = Self { last, last_tell, chains, ..Self::default() };
        conversations.into_iter().for_each(|conversation| all.insert(conversation));
        all.tells = tells.into_iter().map(|tell| (tell.id, tell)).collect();
        all
    }
}

impl From<Conversations> for Stored {
    fn from(all: Conversations) -> Self {
        let Conversations { last, last_tell, by_id, tells, chains, .. } = all;
        Self {
            last,
            last_tell,
            conversations: by_id.into_iter().map(|(_, conversation)| conversation).collect(),
            tells: tells.into_iter().map(|(_, tell)| tell).collect(),
            chains,
        }
    }
}

#[cfg(test)]
mod tests;
