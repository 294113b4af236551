//! Conversations: one for each ordered pair of somebody who tells and a team that is told. Each has an agent of its own,
//! whose session goes on for as long as the conversation does, awake or asleep. What is told waits in order until the
//! agent has worked off what came before.

mod answers;
mod event;
mod refusal;

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::ids::{ConversationId, TellId};
use crate::spending::Used;
use crate::text::{self, BadText};
use crate::{Caller, Context, PrincipalName, Record, TeamName, Timestamp};

pub use self::event::Event;
pub use self::refusal::Refusal;

/// As long as a message may be.
pub const MESSAGE_BYTES_MAX: usize = 102_400;
/// What is kept of an answer; all of it is in the transcript.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// As many messages as may wait in one conversation.
pub const QUEUE_MAX: usize = 50;
/// As many messages as are kept at hand of one conversation; of older ones the log knows.
pub const TELLS_MAX: usize = 200;
/// As much text of settled messages as is kept at hand of one conversation, but for the newest.
pub const TELLS_BYTES_MAX: usize = 1024 * 1024;
pub const CONVERSATIONS_MAX: usize = 10_000;
/// A message that was caused by a message that was caused by … so many times is not sent: somebody is being polite.
pub const CHAIN_LENGTH_MAX: u32 = 8;
/// So many messages may one message cause in all.
pub const CHAIN_TOTAL_MAX: u32 = 50;
/// As much as is kept of why there is no answer.
pub(crate) const WHY_BYTES_MAX: usize = 2_000;
/// How long an answer waits for a caller that stopped waiting and asks the same again: the longest wait of a call.
const JOIN_MS: i64 = 60 * 60 * 1_000;
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

/// The agent that told, and in which of its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    pub agent: AgentId,
    pub incarnation: u32,
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
    /// Whoever told waits for the answer.
    pub is_awaited: bool,
    /// Whoever told waited for the answer, and stopped.
    pub is_left: bool,
    /// The agent that told, if it is one that can be told the answer when it no longer waits.
    pub asker: Option<Asker>,
    /// The message that this one brings the answer to.
    pub answer_to: Option<TellId>,
    /// The answer has been sent to the asker as a message.
    pub is_delivered: bool,
    pub progress: Progress,
    pub records: Records,
}

impl Tell {
    /// Returns how much text it holds.
    fn text_bytes(&self) -> usize {
        let answer = match &self.progress {
            Progress::Settled { answer, .. } => answer.len(),
            Progress::Queued | Progress::Active { .. } => 0,
        };
        self.message.len() + answer
    }

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
    /// Whoever tells has read the answers up to this message.
    pub read: Option<TellId>,
}

impl Conversation {
    /// Says whether a message is being answered, or waits for an answer.
    pub fn has_work(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }
}

/// What a caller tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTell {
    pub to: String,
    /// Whom the caller says it is, if it says so.
    pub from: Option<String>,
    pub message: String,
    /// The caller waits for the answer; if not, or no longer, an agent is told it as a message.
    pub is_awaited: bool,
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
        /// Kills the process instead of asking it to end.
        at_once: bool,
    },
    /// Takes a message back that is not begun.
    Cancel {
        tell: TellId,
    },
    /// Says that nobody waits for the answer any more.
    Leave {
        tell: TellId,
    },
    /// Says that the caller has read the answers so far.
    Read {
        conversation: ConversationId,
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
        /// What the turn used.
        used: Option<Used>,
    },
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
    by_partner: OrdSet<(Partner, ConversationId)>,
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

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Conversation>> {
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
        new: &NewTell,
        id: ConversationId,
        to: &TeamName,
        cx: &Context,
        asker: Option<Asker>,
        cause: Option<TellId>,
    ) -> Result<Event, Refusal> {
        let message = checked(&new.message)?;
        let tell = TellId(self.last_tell + 1);
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
            let told = conversation.tells.iter().rev().filter_map(|tell| self.tells.get(tell));
            let earliest = told.filter(|tell| tell.answer_to.is_none()).nth(RATE_MAX - 1);
            let too_often = earliest.is_some_and(|tell| cx.now.0 - tell.at.0 < RATE_MS);
            if too_often && !cx.caller.kind.may_operate() {
                return Err(Refusal::TooOften { to: to.clone() });
            }
        }
        let is_awaited = new.is_awaited;
        Ok(Event::Told {
            id: tell,
            conversation: id,
            message,
            chain,
            is_awaited,
            asker,
            answer_to: None,
        })
    }

    /// Returns the message that a caller sends again with the same words: one that is under way, or was answered after the
    /// caller had stopped waiting for it.
    pub(crate) fn same(&self, new: &NewTell, id: ConversationId, cx: &Context) -> Option<&Tell> {
        let message = new.message.trim();
        let conversation = self.by_id.get(&id)?;
        let shown = conversation.tells.iter().rev().filter(|id| Some(**id) > conversation.cleared);
        let mut told = shown.filter_map(|id| self.tells.get(id));
        let is_kept = |tell: &Tell| match &tell.progress {
            Progress::Queued | Progress::Active { .. } => true,
            Progress::Settled { how: How::Completed, at, .. } => {
                let is_unread = tell.is_left && !tell.is_delivered;
                is_unread && Some(tell.id) > conversation.read && cx.now.0 - at.0 <= JOIN_MS
            }
            Progress::Settled { how: How::Terminated { .. } | How::Cancelled, .. } => false,
        };
        let is_same = |tell: &&Arc<Tell>| {
            tell.by == cx.caller.principal && tell.answer_to.is_none() && &*tell.message == message
        };
        told.find(is_same).filter(|tell| is_kept(tell)).map(|tell| &**tell)
    }

    /// Returns the event that hides the messages of a conversation up to the first that is not settled, or that `may_go`
    /// keeps; none if there is nothing to hide.
    pub(crate) fn clear(
        &self,
        conversation: &Conversation,
        may_go: impl Fn(&Tell) -> bool,
    ) -> Option<Event> {
        let goes =
            |id: &&TellId| self.tells.get(*id).is_none_or(|tell| tell.is_settled() && may_go(tell));
        let up_to = conversation.tells.iter().take_while(goes).last().copied();
        let is_new = up_to > conversation.cleared;
        is_new.then_some(Event::Cleared { conversation: conversation.id, up_to })
    }

    /// Returns the message that an agent acts on, or acted on last.
    pub(crate) fn cause_of(&self, agent: &AgentId) -> Option<TellId> {
        let conversation = self.of_agent(agent)?;
        let tells = conversation.tells.iter().rev().filter_map(|id| self.tells.get(id));
        let mut begun = tells.filter(|tell| tell.progress != Progress::Queued);
        conversation.current.or_else(|| begun.next().map(|tell| tell.id))
    }

    /// Returns the conversations in which somebody tells.
    pub fn of_partner(&self, partner: &Partner) -> impl Iterator<Item = &Arc<Conversation>> {
        let start = (partner.clone(), ConversationId(0));
        let own = self.by_partner.range(start..).take_while(move |(from, _)| from == partner);
        own.filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Decides what concerns no other noun.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::Cancel { tell } => {
                let tell = self.tells.get(tell).ok_or(Refusal::UnknownTell)?;
                let conversation =
                    self.by_id.get(&tell.conversation).ok_or(Refusal::UnknownTell)?;
                let own = conversation.from == Partner::of(&cx.caller);
                if !own && !cx.caller.kind.may_operate() {
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
            Command::Leave { tell } => {
                let tell = self.tells.get(tell).filter(|tell| tell.is_awaited);
                let left =
                    tell.map(|tell| Event::Left { id: tell.id, conversation: tell.conversation });
                Ok(left.into_iter().collect())
            }
            Command::Read { conversation } => {
                let conversation = self.visible(*conversation, &cx.caller)?;
                let is_own = conversation.from == Partner::of(&cx.caller);
                let up_to = self.unread(conversation).next().filter(|_| is_own);
                let conversation = conversation.id;
                Ok(up_to
                    .map(|tell| Event::Read { conversation, up_to: tell.id })
                    .into_iter()
                    .collect())
            }
            Command::Clear { conversation } => {
                let conversation = self.visible(*conversation, &cx.caller)?;
                Ok(self.clear(conversation, |_| true).into_iter().collect())
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
                let answer = text::beginning(&text::plain(answer), ANSWER_BYTES_MAX);
                let how = match how {
                    How::Terminated { why } => {
                        How::Terminated { why: text::beginning(&text::plain(why), WHY_BYTES_MAX) }
                    }
                    How::Completed | How::Cancelled => how.clone(),
                };
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
        let found = self.by_id.get(&id).filter(|conversation| {
            caller.kind.may_operate()
                || conversation.from == Partner::of(caller)
                || caller.team.as_ref() == Some(&conversation.to)
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
                    read: None,
                }));
            }
            Event::Told { id, conversation, message, chain, is_awaited, asker, answer_to } => {
                self.last_tell = self.last_tell.max(id.0);
                let tell = Tell {
                    id: *id,
                    conversation: *conversation,
                    message: message.clone(),
                    by: record.by.clone(),
                    at: record.at,
                    chain: *chain,
                    is_awaited: *is_awaited,
                    is_left: false,
                    asker: asker.clone(),
                    answer_to: *answer_to,
                    is_delivered: false,
                    progress: Progress::Queued,
                    records: Records::default(),
                };
                self.tells.insert(*id, Arc::new(tell));
                match answer_to {
                    // Once its first message is no longer at hand, only the length of a chain is bounded.
                    None if self.tells.contains_key(&chain.first) => {
                        *self.chains.entry(chain.first).or_default() += 1;
                    }
                    None => {}
                    Some(told) => self.change_tell(*told, |tell| tell.is_delivered = true),
                }
                self.change(*conversation, |conversation| {
                    conversation.queue.push_back(*id);
                    conversation.tells.push_back(*id);
                    conversation.n_tells += 1;
                    conversation.last_used_at = record.at;
                });
                self.forget(*conversation);
            }
            Event::Left { id, .. } => self.change_tell(*id, |tell| {
                tell.is_awaited = false;
                tell.is_left = true;
            }),
            Event::Joined { id, is_awaited, asker, .. } => self.change_tell(*id, |tell| {
                tell.is_awaited = *is_awaited;
                tell.is_left = false;
                tell.asker.clone_from(asker);
            }),
            Event::Read { conversation, up_to } => {
                self.change(*conversation, |conversation| conversation.read = Some(*up_to));
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
                self.forget(*conversation);
            }
            Event::Cleared { conversation, up_to } => {
                self.change(*conversation, |conversation| conversation.cleared = *up_to);
            }
        }
    }

    fn progress(&mut self, id: TellId, progress: Progress, known: impl FnOnce(Records) -> Records) {
        self.change_tell(id, |tell| {
            if !tell.is_settled() {
                tell.progress = progress;
                tell.records = known(tell.records);
            }
        });
    }

    fn change_tell(&mut self, id: TellId, change: impl FnOnce(&mut Tell)) {
        if let Some(tell) = self.tells.get(&id) {
            let mut tell = Tell::clone(tell);
            change(&mut tell);
            self.tells.insert(id, Arc::new(tell));
        }
    }

    /// Lets go of the oldest settled messages of a conversation that are more than is kept at hand.
    fn forget(&mut self, id: ConversationId) {
        let Some(conversation) = self.by_id.get(&id) else { return };
        let at_hand = conversation.tells.iter().filter_map(|tell| self.tells.get(tell));
        let mut n_bytes: usize = at_hand.map(|tell| tell.text_bytes()).sum();
        let mut n_tells = conversation.tells.len();
        let mut gone = Vec::new();
        for tell in conversation.tells.iter().filter_map(|tell| self.tells.get(tell)) {
            let is_over = n_tells > TELLS_MAX || (n_bytes > TELLS_BYTES_MAX && n_tells > 1);
            if !is_over || !tell.is_settled() {
                break;
            }
            n_bytes -= tell.text_bytes();
            n_tells -= 1;
            gone.push(tell.id);
        }
        if gone.is_empty() {
            return;
        }
        self.change(id, |conversation| {
            conversation.tells = conversation.tells.skip(gone.len());
        });
        for tell in gone {
            self.tells.remove(&tell);
            self.chains.remove(&tell);
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
        self.by_partner.insert((conversation.from.clone(), id));
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
pub(crate) mod tests;
