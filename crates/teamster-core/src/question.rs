//! Questions: what waits for a person. An agent's program asks for permission; the first answer that an operator gives is
//! the answer, and what nobody answers in time is answered by the question's default.

use std::fmt::Write as _;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::compaction::Fate;
use crate::ids::QuestionId;
use crate::text::{self, BadText};
use crate::token::Kind;
use crate::{Context, PrincipalName, Record, Summary, Timestamp};

/// As many questions as may be open at a time: more than people could answer.
pub const OPEN_MAX: usize = 1_000;
/// As many questions that were answered as are kept at hand; of older ones the log knows.
pub const SETTLED_MAX: usize = 1_000;
/// As many answers as a question may offer.
pub const CHOICES_MAX: usize = 16;
const TITLE_BYTES_MAX: usize = 1_000;
/// What is kept of what the program wants to do; what is cut off is said to be.
pub const PAYLOAD_BYTES_MAX: usize = text::TEXT_BYTES_MAX;
const NOTE_BYTES_MAX: usize = 2_000;

/// One of the answers that a question offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What is typed to choose it.
    pub word: Arc<str>,
    /// What people are shown.
    pub label: Arc<str>,
}

/// What an agent wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewQuestion {
    /// The agent that waits for the answer, and which start of it.
    pub agent: AgentId,
    pub incarnation: u32,
    /// What it is about, in one line: the tool it wants to use.
    pub title: Arc<str>,
    /// All of what it wants to do, as it would do it.
    pub payload: Arc<str>,
    pub choices: Vec<Choice>,
    /// The answer if nobody gives one in time.
    pub default: Arc<str>,
    pub deadline: Timestamp,
}

/// How a question was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub how: How,
    pub by: PrincipalName,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Answered {
        word: Arc<str>,
        note: Option<Arc<str>>,
    },
    /// Nobody answered in time; the default holds.
    Expired,
    /// Nobody needs the answer any more.
    Withdrawn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub id: QuestionId,
    pub asked: NewQuestion,
    pub asked_at: Timestamp,
    pub settled: Option<Settled>,
}

impl Question {
    /// Returns the answer, if there is one: the chosen word, or none if nobody needs it any more.
    pub fn answer(&self) -> Option<Option<&Arc<str>>> {
        self.settled.as_ref().map(|settled| match &settled.how {
            How::Answered { word, .. } => Some(word),
            How::Expired => Some(&self.asked.default),
            How::Withdrawn => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Ask(NewQuestion),
    Answer {
        which: String,
        word: String,
        note: Option<String>,
    },
    /// Says that nobody needs the answer any more.
    Withdraw {
        id: QuestionId,
    },
    /// Settles every question whose time is over. The hub's timer says when to look.
    Expire,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Asked { id: QuestionId, asked: NewQuestion },
    Settled { id: QuestionId, agent: AgentId, how: How },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no question {0:?}; `teamster questions` shows those that are open")]
    Unknown(String),
    #[error("{id} was settled already: {how}")]
    Settled { id: QuestionId, how: String },
    #[error("{given:?} is no answer to {id}; choose one of {choices}")]
    NoSuchChoice { id: QuestionId, given: String, choices: String },
    #[error("questions are answered by people; an agent cannot answer them")]
    OperatorsOnly,
    #[error("only the hub itself asks for its agents")]
    HubOnly,
    #[error("{OPEN_MAX} questions are open, which is the limit")]
    TooMany,
    #[error("a question needs between 1 and {CHOICES_MAX} choices, one of which is its default")]
    Choices,
    #[error(transparent)]
    Text(#[from] BadText),
}

/// The view of all questions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Questions {
    last: u32,
    by_id: OrdMap<QuestionId, Arc<Question>>,
    open: OrdSet<QuestionId>,
    deadlines: OrdSet<(Timestamp, QuestionId)>,
    by_agent: OrdSet<(AgentId, QuestionId)>,
    /// Oldest first.
    settled: Vector<QuestionId>,
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    questions: Vec<Arc<Question>>,
    settled: Vector<QuestionId>,
}

impl Questions {
    pub fn get(&self, id: QuestionId) -> Option<&Arc<Question>> {
        self.by_id.get(&id)
    }

    /// Returns those that wait for an answer, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Question>> {
        self.open.iter().filter_map(|id| self.by_id.get(id))
    }

    pub fn n_open(&self) -> usize {
        self.open.len()
    }

    /// Returns those that were settled and are at hand, the newest first.
    pub fn settled(&self) -> impl Iterator<Item = &Arc<Question>> {
        self.settled.iter().rev().filter_map(|id| self.by_id.get(id))
    }

    /// Returns those of an agent that wait for an answer, oldest first.
    pub fn open_of(&self, agent: &AgentId) -> impl Iterator<Item = &Arc<Question>> {
        let start = (agent.clone(), QuestionId(0));
        let own = self.by_agent.range(start..).take_while(move |(one, _)| one == agent);
        own.filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Returns when the next question's time is over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.get_min().map(|(at, _)| *at)
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        if let Command::Answer { which, word, note } = command {
            return self.answer(which, word, note.as_deref(), cx).map(|event| vec![event]);
        }
        if cx.caller.kind != Kind::Hub {
            return Err(Refusal::HubOnly);
        }
        match command {
            Command::Ask(asked) => {
                if self.open.len() >= OPEN_MAX {
                    return Err(Refusal::TooMany);
                }
                let has_default = asked.choices.iter().any(|choice| choice.word == asked.default);
                if asked.choices.len() > CHOICES_MAX || !has_default {
                    return Err(Refusal::Choices);
                }
                let asked = NewQuestion {
                    title: text::beginning(&asked.title, TITLE_BYTES_MAX),
                    payload: text::beginning(&asked.payload, PAYLOAD_BYTES_MAX),
                    ..asked.clone()
                };
                Ok(vec![Event::Asked { id: QuestionId(self.last + 1), asked }])
            }
            Command::Withdraw { id } => {
                let open = self.by_id.get(id).filter(|question| question.settled.is_none());
                Ok(open.map(|question| settled(question, How::Withdrawn)).into_iter().collect())
            }
            Command::Expire => {
                let due = self.deadlines.iter().take_while(|(at, _)| *at <= cx.now);
                let due = due.filter_map(|(_, id)| self.by_id.get(id));
                Ok(due.map(|question| settled(question, How::Expired)).collect())
            }
            Command::Answer { .. } => unreachable!("it was decided above"),
        }
    }

    fn answer(
        &self,
        which: &str,
        word: &str,
        note: Option<&str>,
        cx: &Context,
    ) -> Result<Event, Refusal> {
        if !cx.caller.kind.is_operator() {
            return Err(Refusal::OperatorsOnly);
        }
        let unknown = || Refusal::Unknown(which.chars().take(80).collect());
        // People leave the prefix out.
        let id = QuestionId::parse(which).or_else(|| which.parse().ok().map(QuestionId));
        let question = id.and_then(|id| self.by_id.get(&id)).ok_or_else(unknown)?;
        if let Some(settled) = &question.settled {
            let how = format!("{} by {}", settled.how.told(&question.asked), settled.by);
            return Err(Refusal::Settled { id: question.id, how });
        }
        let choices = &question.asked.choices;
        let chosen = choices.iter().find(|choice| choice.word.eq_ignore_ascii_case(word.trim()));
        let Some(chosen) = chosen else {
            let words: Vec<&str> = choices.iter().map(|choice| &*choice.word).collect();
            let given = word.chars().take(80).collect();
            let choices = words.join(", ");
            return Err(Refusal::NoSuchChoice { id: question.id, given, choices });
        };
        let note = note.filter(|note| !note.trim().is_empty());
        let note = note.map(|note| text::long("note", note, NOTE_BYTES_MAX)).transpose()?;
        Ok(settled(question, How::Answered { word: chosen.word.clone(), note }))
    }

    /// Returns the events by which the open questions of an agent end with its incarnation.
    pub(crate) fn withdraw_of(&self, agent: &AgentId) -> impl Iterator<Item = Event> {
        self.open_of(agent).map(|question| settled(question, How::Withdrawn))
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Asked { id, asked } => {
                self.last = self.last.max(id.0);
                let asked = asked.clone();
                let question = Question { id: *id, asked, asked_at: record.at, settled: None };
                self.insert(Arc::new(question));
            }
            Event::Settled { id, how, .. } => {
                let open = self.by_id.get(id).filter(|question| question.settled.is_none());
                let Some(question) = open.cloned() else { return };
                self.open.remove(id);
                self.deadlines.remove(&(question.asked.deadline, *id));
                self.by_agent.remove(&(question.asked.agent.clone(), *id));
                let settled = Settled { how: how.clone(), by: record.by.clone(), at: record.at };
                let question = Question { settled: Some(settled), ..Question::clone(&question) };
                self.insert(Arc::new(question));
                self.settled.push_back(*id);
                if self.settled.len() > SETTLED_MAX
                    && let Some(oldest) = self.settled.pop_front()
                {
                    self.by_id.remove(&oldest);
                }
            }
        }
    }

    fn insert(&mut self, question: Arc<Question>) {
        if question.settled.is_none() {
            self.open.insert(question.id);
            self.deadlines.insert((question.asked.deadline, question.id));
            self.by_agent.insert((question.asked.agent.clone(), question.id));
        }
        self.by_id.insert(question.id, question);
    }
}

fn settled(question: &Question, how: How) -> Event {
    Event::Settled { id: question.id, agent: question.asked.agent.clone(), how }
}

impl How {
    /// Tells it in words.
    pub fn told(&self, asked: &NewQuestion) -> String {
        match self {
            Self::Answered { word, note: None } => format!("answered {word:?}"),
            Self::Answered { word, note: Some(note) } => format!("answered {word:?} ({note})"),
            Self::Expired => format!("nobody answered in time, so {:?} holds", &*asked.default),
            Self::Withdrawn => "nobody needs the answer any more".to_owned(),
        }
    }
}

impl Event {
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Asked { asked, .. } => &asked.agent,
            Self::Settled { agent, .. } => agent,
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Asked { asked, .. } => asked.title.len() + asked.payload.len(),
            Self::Settled { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        Fate::Kept
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Asked { id, asked } => {
                Summary::new("note", format!("{id}: {} asks: {}", asked.agent, asked.title))
            }
            Self::Settled { id, agent, how } => {
                let mut text = format!("{id} of {agent}: ");
                match how {
                    How::Answered { word, note } => {
                        let _ = write!(text, "answered {word:?}");
                        if let Some(note) = note {
                            let _ = write!(text, " ({note})");
                        }
                    }
                    How::Expired => text.push_str("nobody answered in time"),
                    How::Withdrawn => text.push_str("nobody needs the answer any more"),
                }
                Summary::new("note", text)
            }
        }
    }
}

impl From<Stored> for Questions {
    fn from(stored: Stored) -> Self {
        let mut all = Self { last: stored.last, settled: stored.settled, ..Self::default() };
        stored.questions.into_iter().for_each(|question| all.insert(question));
        all
    }
}

impl From<Questions> for Stored {
    fn from(all: Questions) -> Self {
        let Questions { last, by_id, settled, .. } = all;
        let questions = by_id.into_iter().map(|(_, question)| question).collect();
        Self { last, questions, settled }
    }
}

#[cfg(test)]
pub(crate) mod tests;
