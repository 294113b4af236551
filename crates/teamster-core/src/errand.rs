//! Errands: tool calls that outlive the request that made them.
//!
//! A call that takes longer than its client's patience is written down here and goes on without the client, which asks
//! for the result later. MCP calls that a "task", a word that agents know as an item of a run; hence another.
//!
//! Nothing of a call under way can be stored, so an errand is carried on after a restart by calling its tool again:
//! with the same arguments, with the answers given so far, and with the same idempotency key, so that what the tool
//! had done already is not done again.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::ids::{ErrandId, TokenId};
use crate::key::Key;
use crate::token::Kind;
use crate::{Context, PrincipalName, Record, RunName, Summary, Timestamp};

/// As many errands as one principal may have open. More than an agent can keep in mind; a bound for one in a loop.
pub const OPEN_MAX: usize = 64;
/// As many errands as are kept of one principal, ended ones included. Results must be kept for [`KEPT_MS`], so beyond
/// this new errands are refused and none forgotten.
pub const KEPT_MAX: usize = 1_000;
/// As many bytes as the kept errands of one principal have together, beyond the newest one's result.
pub const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long an errand is kept, counted from its beginning; one that is still open then is given up.
pub const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;
/// The largest arguments of a call, or answers to its questions, that an errand keeps: above the largest message.
pub const GIVEN_BYTES_MAX: usize = 256 * 1024;
/// The largest result.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;
/// As many questions as an errand may ask at once.
pub const ASKS_MAX: usize = 16;
/// As many bytes as the questions asked at once may have together.
pub const ASKS_BYTES_MAX: usize = 64 * 1024;

/// Texts by the name of their question.
pub type Texts = BTreeMap<Arc<str>, Arc<str>>;

/// Where a call came in. An errand can be reached only there, by its own principal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The one tool set that is served there, if not all are.
    #[serde(default)]
    pub set: Option<Arc<str>>,
    pub run: RunName,
}

/// How the caller will ask for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// By the errand's id.
    ById,
    /// By making the same call again.
    ByRepeating,
}

/// The call that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewErrand {
    pub tool: Arc<str>,
    pub place: Place,
    /// The arguments as JSON.
    pub arguments: Arc<str>,
    /// Makes what the tool does happen once, however often it is called.
    pub key: Key,
    pub awaited: Awaited,
    /// What the caller's client can be asked for, in the words of the tools.
    pub can: Arc<[Arc<str>]>,
    /// What was answered before the call became an errand, as JSON.
    pub given: Texts,
}

/// What became of an errand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tool answered; the answer is JSON, as the caller gets it.
    Answered(Arc<str>),
    /// The tool could not answer, which is a fault of the hub's; this says why.
    Failed(Arc<str>),
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    pub id: ErrandId,
    pub principal: PrincipalName,
    /// The token that asked for it.
    pub token: Option<TokenId>,
    pub call: NewErrand,
    pub begun_at: Timestamp,
    pub changed_at: Timestamp,
    /// The questions that wait for an answer, as JSON. While there are any, the errand rests.
    pub asked: Texts,
    /// All answers so far, as JSON.
    pub given: Texts,
    pub outcome: Option<Outcome>,
    /// Whether the result of one that is awaited by repeating was handed over.
    pub collected: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Writes down a call that goes on. With a key that is known from the same call, nothing happens.
    Begin(NewErrand),
    /// Asks the caller's client; the hub does it for the tool.
    Ask { id: ErrandId, asks: Texts },
    /// Answers questions. What was not asked is ignored.
    Give { which: String, place: Place, answers: Texts },
    /// Gives an errand up. One that has ended stays as it is.
    Cancel { which: String, place: Place },
    /// Says what became of an errand; the hub does it for the tool.
    End { id: ErrandId, outcome: Outcome },
    /// Says that the result was handed over, so that the same call made again is a new one.
    Collect { id: ErrandId },
    /// Forgets every errand whose time is over. The hub's timer says when to look.
    Expire,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Begun { id: ErrandId, errand: NewErrand },
    Asked { id: ErrandId, asks: Texts },
    Given { id: ErrandId, answers: Texts },
    Ended { id: ErrandId, outcome: Outcome },
    Collected { id: ErrandId },
    Expired { id: ErrandId },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    // Another's errand is answered like one that never was.
    #[error(
        "no call of yours is known here as {0:?}; it may have been forgotten, so make the call again"
    )]
    Unknown(String),
    #[error("only the hub itself asks and answers for a tool")]
    HubOnly,
    #[error("you have {OPEN_MAX} calls under way; wait for some of them, or cancel them, first")]
    TooManyOpen,
    #[error(
        "too many results of your calls are kept; the oldest is forgotten {} hours after its call",
        KEPT_MS / 3_600_000
    )]
    TooManyKept,
    #[error(
        "the call has {bytes} bytes of arguments and answers, which is more than the {GIVEN_BYTES_MAX} that are kept of a long call; put long text into a file and name it"
    )]
    GivenTooLarge { bytes: usize },
    #[error(
        "the result has {bytes} bytes, which is more than the {RESULT_BYTES_MAX} that are kept of a long call"
    )]
    ResultTooLarge { bytes: usize },
    #[error("the tool asks too much at once; this is a fault of the tool's")]
    AsksTooMuch,
    #[error("the tool asks again for {0:?}, which was answered; this is a fault of the tool's")]
    AskedBefore(String),
    #[error("the key {0:?} was used for another call; use a new key for each new call")]
    OtherCall(String),
}

/// The view of all errands that are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Errands {
    last: u32,
    kept: OrdMap<ErrandId, Arc<Errand>>,
    open: OrdSet<ErrandId>,
    held: OrdMap<PrincipalName, OfPrincipal>,
    by_key: OrdMap<(PrincipalName, Arc<str>), ErrandId>,
    /// Those that are awaited by repeating the call, until their result was handed over.
    repeatable: OrdMap<(PrincipalName, Place, u64), ErrandId>,
    expiring: OrdSet<(Timestamp, ErrandId)>,
}

/// What one principal has here.
#[derive(Debug, Clone, Default, PartialEq)]
struct OfPrincipal {
    ids: OrdSet<ErrandId>,
    n_open: usize,
    bytes: usize,
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    kept: Vec<Arc<Errand>>,
}

impl Errand {
    /// Says whether it goes on, or waits for an answer.
    pub fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Says whether it can go on, having nothing left to ask.
    pub fn is_ready(&self) -> bool {
        self.is_open() && self.asked.is_empty()
    }

    pub fn expires_at(&self) -> Timestamp {
        Timestamp(self.begun_at.0.saturating_add(KEPT_MS))
    }

    fn size_bytes(&self) -> usize {
        let result = match &self.outcome {
            Some(Outcome::Answered(text) | Outcome::Failed(text)) => text.len(),
            Some(Outcome::Cancelled) | None => 0,
        };
        self.call.arguments.len() + text_bytes(&self.asked) + text_bytes(&self.given) + result
    }
}

impl Errands {
    pub fn get(&self, id: ErrandId) -> Option<&Arc<Errand>> {
        self.kept.get(&id)
    }

    /// Returns the errand that a principal calls `which` at this place, if it is its own.
    pub fn find(
        &self,
        principal: &PrincipalName,
        which: &str,
        place: &Place,
    ) -> Result<&Arc<Errand>, Refusal> {
        ErrandId::parse(which)
            .and_then(|id| self.kept.get(&id))
            .filter(|errand| errand.principal == *principal && errand.call.place == *place)
            .ok_or_else(|| Refusal::Unknown(which.chars().take(80).collect()))
    }

    /// Returns the errand that a call with this key became.
    pub fn by_key(
        &self,
        principal: &PrincipalName,
        key: &Key,
    ) -> Result<Option<&Arc<Errand>>, Refusal> {
        let id = self.by_key.get(&(principal.clone(), key.key.clone()));
        match id.and_then(|id| self.kept.get(id)) {
            Some(errand) if errand.call.key.call != key.call => {
                Err(Refusal::OtherCall(key.key.to_string()))
            }
            known => Ok(known),
        }
    }

    /// Says whether an open errand needs this key when its tool is called again.
    pub(crate) fn needs_key(&self, principal: &PrincipalName, key: &Arc<str>) -> bool {
        let id = self.by_key.get(&(principal.clone(), key.clone()));
        id.is_some_and(|id| self.open.contains(id))
    }

    /// Returns the errand that the same call became before, if its result is still to be handed over.
    pub fn repeated(
        &self,
        principal: &PrincipalName,
        place: &Place,
        call: u64,
    ) -> Option<&Arc<Errand>> {
        let id = self.repeatable.get(&(principal.clone(), place.clone(), call))?;
        self.kept.get(id)
    }

    /// Returns those that go on, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Errand>> {
        self.open.iter().filter_map(|id| self.kept.get(id))
    }

    /// Returns the open errands of one principal.
    pub(crate) fn open_of(&self, principal: &PrincipalName) -> impl Iterator<Item = ErrandId> {
        let ids = self.held.get(principal).into_iter().flat_map(|held| held.ids.iter());
        ids.filter(|id| self.open.contains(*id)).copied()
    }

    /// Says what becomes of an event when the log is compacted. The last errand stays, since ids are counted on from it.
    pub(crate) fn fate(&self, event: &Event) -> Fate {
        let id = event.id();
        if id.0 == self.last || self.kept.contains_key(&id) { Fate::Kept } else { Fate::Dropped }
    }

    /// Returns when the next errand is forgotten.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiring.get_min().map(|(at, _)| *at)
    }

    /// Says whether a principal may begin an errand with `bytes` of arguments and answers. Whoever calls a tool that
    /// may take long asks before the call, rather than find out in the middle of it.
    pub fn check_room(&self, principal: &PrincipalName, bytes: usize) -> Result<(), Refusal> {
        if bytes > GIVEN_BYTES_MAX {
            return Err(Refusal::GivenTooLarge { bytes });
        }
        let Some(held) = self.held.get(principal) else { return Ok(()) };
        if held.n_open >= OPEN_MAX {
            return Err(Refusal::TooManyOpen);
        }
        if held.ids.len() >= KEPT_MAX || held.bytes + bytes > KEPT_BYTES_MAX {
            return Err(Refusal::TooManyKept);
        }
        Ok(())
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::Begin(new) => self.begin(new, &cx.caller.principal),
            Command::Ask { id, asks } => self.ask(*id, asks, cx),
            Command::Give { which, place, answers } => {
                let errand = self.find(&cx.caller.principal, which, place)?;
                give(errand, answers)
            }
            Command::Cancel { which, place } => {
                let errand = self.find(&cx.caller.principal, which, place)?;
                let cancelled = Event::Ended { id: errand.id, outcome: Outcome::Cancelled };
                Ok(if errand.is_open() { vec![cancelled] } else { Vec::new() })
            }
            Command::End { id, outcome } => {
                let open = self.open_for_hub(*id, cx)?.is_some();
                let bytes = match outcome {
                    Outcome::Answered(text) | Outcome::Failed(text) => text.len(),
                    Outcome::Cancelled => 0,
                };
                if bytes > RESULT_BYTES_MAX {
                    return Err(Refusal::ResultTooLarge { bytes });
                }
                let ended = Event::Ended { id: *id, outcome: outcome.clone() };
                Ok(if open { vec![ended] } else { Vec::new() })
            }
            Command::Collect { id } => {
                let errand = self.kept.get(id).filter(|errand| {
                    errand.principal == cx.caller.principal
                        && !errand.is_open()
                        && !errand.collected
                });
                Ok(errand.map(|errand| Event::Collected { id: errand.id }).into_iter().collect())
            }
            Command::Expire => {
                let over = self.expiring.range(..=(cx.now, ErrandId(u32::MAX)));
                Ok(over.map(|(_, id)| Event::Expired { id: *id }).collect())
            }
        }
    }

    fn begin(&self, new: &NewErrand, principal: &PrincipalName) -> Result<Vec<Event>, Refusal> {
        if self.by_key(principal, &new.key)?.is_some() {
            return Ok(Vec::new());
        }
        self.check_room(principal, new.arguments.len() + text_bytes(&new.given))?;
        Ok(vec![Event::Begun { id: ErrandId(self.last + 1), errand: new.clone() }])
    }

    fn ask(&self, id: ErrandId, asks: &Texts, cx: &Context) -> Result<Vec<Event>, Refusal> {
        let Some(errand) = self.open_for_hub(id, cx)? else { return Ok(Vec::new()) };
        if asks.is_empty() || asks.len() > ASKS_MAX || text_bytes(asks) > ASKS_BYTES_MAX {
            return Err(Refusal::AsksTooMuch);
        }
        if let Some(name) = asks.keys().find(|name| errand.given.contains_key(*name)) {
            return Err(Refusal::AskedBefore(name.to_string()));
        }
        Ok(vec![Event::Asked { id, asks: asks.clone() }])
    }

    /// Returns the errand if it is still open. What the hub says of one that was given up meanwhile changes nothing.
    fn open_for_hub(&self, id: ErrandId, cx: &Context) -> Result<Option<&Arc<Errand>>, Refusal> {
        match cx.caller.kind {
            Kind::Hub => Ok(self.kept.get(&id).filter(|errand| errand.is_open())),
            Kind::Person(_) | Kind::Agent => Err(Refusal::HubOnly),
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Begun { id, errand: call } => self.insert(Arc::new(Errand {
                id: *id,
                principal: record.by.clone(),
                token: record.token,
                call: call.clone(),
                begun_at: record.at,
                changed_at: record.at,
                asked: Texts::new(),
                given: call.given.clone(),
                outcome: None,
                collected: false,
            })),
            Event::Asked { id, asks } => self.change(*id, record, |errand| {
                errand.asked.extend(asks.iter().map(|(name, ask)| (name.clone(), ask.clone())));
            }),
            Event::Given { id, answers } => self.change(*id, record, |errand| {
                for (name, answer) in answers {
                    errand.asked.remove(name);
                    errand.given.insert(name.clone(), answer.clone());
                }
            }),
            Event::Ended { id, outcome } => self.change(*id, record, |errand| {
                errand.asked.clear();
                errand.outcome = Some(outcome.clone());
            }),
            Event::Collected { id } => self.change(*id, record, |errand| errand.collected = true),
            Event::Expired { id } => {
                self.remove(*id);
            }
        }
    }

    /// Forgets a principal that is gone, with its results.
    pub(crate) fn forget(&mut self, principal: &PrincipalName) {
        let ids: Vec<ErrandId> =
            self.held.get(principal).into_iter().flat_map(|held| &held.ids).copied().collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    fn change(&mut self, id: ErrandId, record: &Record, how: impl FnOnce(&mut Errand)) {
        let Some(before) = self.kept.get(&id).cloned() else { return };
        let mut errand = Errand::clone(&before);
        how(&mut errand);
        errand.changed_at = record.at;
        self.remove(id);
        self.insert(Arc::new(errand));
    }

    fn insert(&mut self, errand: Arc<Errand>) {
        let id = errand.id;
        self.last = self.last.max(id.0);
        let mut held = self.held.get(&errand.principal).cloned().unwrap_or_default();
        held.ids.insert(id);
        held.bytes += errand.size_bytes();
        if errand.is_open() {
            held.n_open += 1;
            self.open.insert(id);
        }
        self.held.insert(errand.principal.clone(), held);
        self.by_key.insert((errand.principal.clone(), errand.call.key.key.clone()), id);
        if errand.call.awaited == Awaited::ByRepeating && !errand.collected {
            self.repeatable.insert(repeat_of(&errand), id);
        }
        self.expiring.insert((errand.expires_at(), id));
        self.kept.insert(id, errand);
    }

    fn remove(&mut self, id: ErrandId) {
        let Some(errand) = self.kept.remove(&id) else { return };
        self.open.remove(&id);
        if let Some(mut held) = self.held.remove(&errand.principal) {
            held.ids.remove(&id);
            held.bytes -= errand.size_bytes();
            held.n_open -= usize::from(errand.is_open());
            if !held.ids.is_empty() {
                self.held.insert(errand.principal.clone(), held);
            }
        }
        self.by_key.remove(&(errand.principal.clone(), errand.call.key.key.clone()));
        let repeat = repeat_of(&errand);
        if self.repeatable.get(&repeat) == Some(&id) {
            self.repeatable.remove(&repeat);
        }
        self.expiring.remove(&(errand.expires_at(), id));
    }
}

fn repeat_of(errand: &Errand) -> (PrincipalName, Place, u64) {
    (errand.principal.clone(), errand.call.place.clone(), errand.call.key.call)
}

fn give(errand: &Errand, answers: &Texts) -> Result<Vec<Event>, Refusal> {
    let answers: Texts = answers
        .iter()
        .filter(|(name, _)| errand.asked.contains_key(*name))
        .map(|(name, answer)| (name.clone(), answer.clone()))
        .collect();
    let bytes = errand.call.arguments.len() + text_bytes(&errand.given) + text_bytes(&answers);
    if bytes > GIVEN_BYTES_MAX {
        return Err(Refusal::GivenTooLarge { bytes });
    }
    Ok(if answers.is_empty() { Vec::new() } else { vec![Event::Given { id: errand.id, answers }] })
}

fn text_bytes(texts: &Texts) -> usize {
    texts.iter().map(|(name, text)| name.len() + text.len()).sum()
}

impl Event {
    pub(crate) fn id(&self) -> ErrandId {
        match self {
            Self::Begun { id, .. }
            | Self::Asked { id, .. }
            | Self::Given { id, .. }
            | Self::Ended { id, .. }
            | Self::Collected { id }
            | Self::Expired { id } => *id,
        }
    }

    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Begun { errand, .. } => errand.arguments.len() + text_bytes(&errand.given),
            Self::Asked { asks: texts, .. } | Self::Given { answers: texts, .. } => {
                text_bytes(texts)
            }
            Self::Ended { outcome: Outcome::Answered(text) | Outcome::Failed(text), .. } => {
                text.len()
            }
            Self::Ended { outcome: Outcome::Cancelled, .. }
            | Self::Collected { .. }
            | Self::Expired { .. } => 0,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let names = |texts: &Texts| texts.keys().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        match self {
            Self::Begun { id, errand } => {
                Summary::new("add", format!("{} goes on as {id}", errand.tool))
            }
            Self::Asked { id, asks } => Summary::new("edit", format!("{id} asks: {}", names(asks))),
            Self::Given { id, answers } => {
                Summary::new("edit", format!("{id} was answered: {}", names(answers)))
            }
            Self::Ended { id, outcome } => {
                let how = match outcome {
                    Outcome::Answered(_) => "ended",
                    Outcome::Failed(_) => "failed",
                    Outcome::Cancelled => "was cancelled",
                };
                Summary::new("done", format!("{id} {how}"))
            }
            Self::Collected { id } => Summary::new("done", format!("{id}: result handed over")),
            Self::Expired { id } => Summary::new("free", format!("{id} forgotten")),
        }
    }
}

impl From<Stored> for Errands {
    fn from(stored: Stored) -> Self {
        let mut errands = Self { last: stored.last, ..Self::default() };
        stored.kept.into_iter().for_each(|errand| errands.insert(errand));
        errands
    }
}

impl From<Errands> for Stored {
    fn from(errands: Errands) -> Self {
        let kept = errands.kept.into_iter().map(|(_, errand)| errand).collect();
        Self { last: errands.last, kept }
    }
}

#[cfg(test)]
mod tests;
