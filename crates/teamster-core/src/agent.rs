//! Agents that the hub runs: drafted by somebody, played by a program, ended with an outcome.
//!
//! An agent waits in the queue until the hub has room for it; then it is admitted, which gives it a token, and its process
//! is started. Each start is an incarnation with a token of its own; when it ends, the token ends in the same commit.
//! Limits form a tree: whatever an agent uses up counts for everybody above it too.

mod admission;
mod drafting;
mod event;
mod index;
mod isolation;
mod outcome;
mod parking;
mod refusal;
mod tree;

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::role::{Limits, RoleName};
use crate::spending::{Spent, Used};
use crate::text;
use crate::token::{Kind, SecretHash};
use crate::{
    Caller, Context, DossierName, NodeName, PrincipalName, Record, RunName, TeamName, Timestamp,
};

pub use self::admission::{InLine, Knowledge, Next, Pool, next};
pub use self::event::{Event, SleepWhy, Why};
use self::index::Stored;
pub use self::isolation::Isolation;
use self::outcome::bounded;
pub use self::outcome::{Ending, Outcome, Status};
pub use self::refusal::Refusal;
use self::tree::has_means;

/// As long as a task may be: a spec fits, a repository does not.
pub const PROMPT_BYTES_MAX: usize = 64 * 1024;
/// As many agents as may be under way or wait for it.
pub const LIVE_MAX: usize = 10_000;
/// As many agents that have ended as are kept at hand; of older ones the log knows.
pub const ENDED_MAX: usize = 10_000;
/// As many agents as somebody may have under way who is no agent of ours and no operator.
pub const CLIENT_CHILDREN_MAX: u32 = Limits::USUAL.children;
/// How often an agent is started again after it was cut off: once, so that what ends a program does not end it for ever.
pub const INTERRUPTIONS_MAX: u32 = 1;
/// How often an agent may be parked by a usage limit: two weeks of limits that end every four hours.
pub const PARKS_MAX: u32 = 84;
/// The longest text of an outcome, and of one entry of its lists.
pub const OUTCOME_BYTES_MAX: usize = text::TEXT_BYTES_MAX;
pub const ENTRY_BYTES_MAX: usize = 2_000;
pub const ENTRIES_MAX: usize = 100;
const DIRECTORY_BYTES_MAX: usize = 4_096;

/// The name of an agent, which is its principal's name too: `<role>-<number>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns what an agent of some number would be called, for those who keep something by it.
    pub fn new(role: &RoleName, number: u32) -> Self {
        Self(format!("{role}-{number}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the principal that the agent acts as.
    pub fn principal(&self) -> PrincipalName {
        PrincipalName::of_agent(self.0.clone())
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an agent was drafted as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub role: RoleName,
    pub dossier: DossierName,
    pub prompt: Arc<str>,
    pub directory: Arc<str>,
    pub parent: Option<AgentId>,
    /// How many agents stand above it.
    pub depth: u32,
    pub limits: Limits,
    /// The team that it speaks for. Then it lasts: it has a conversation to go on with, and sleeps in between.
    #[serde(default)]
    pub team: Option<TeamName>,
    /// The run that it works on, in an iteration of it.
    #[serde(default)]
    pub run: Option<RunName>,
    /// The run that its drafter's token is bound to. It binds this agent too, whatever its role says.
    #[serde(default)]
    pub within: Option<RunName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits for room, or for its account to have something left.
    Queued,
    /// It has a token, and a process or soon will.
    Running,
    /// It has a token, and a person runs it.
    Adopted,
    /// It has no process and nothing to do, and can be woken.
    Asleep,
    /// It is being ended.
    Ending,
    Ended,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Adopted => "adopted",
            Self::Asleep => "asleep",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub id: AgentId,
    /// Its place in the order of drafting.
    pub number: u32,
    pub role: RoleName,
    pub draft: Draft,
    pub drafted_by: PrincipalName,
    pub drafted_at: Timestamp,
    /// The one at the top of its tree.
    pub root: AgentId,
    pub phase: Phase,
    /// How many times it was admitted.
    pub incarnation: u32,
    pub token: Option<TokenId>,
    pub n_interruptions: u32,
    /// The program's own name for the conversation, by which another process can go on with it.
    pub session: Option<Arc<str>>,
    /// The program that it began with, which alone can go on with its session.
    pub program: Option<Arc<str>>,
    /// Isolation of its latest ready process. None if an older hub started the process.
    pub isolation: Option<Isolation>,
    /// The node that has its process, or had the latest one. None if an older hub started it.
    pub node: Option<NodeName>,
    /// In which incarnation its program was last known to be ready.
    pub ready_in: u32,
    pub started_at: Option<Timestamp>,
    /// When its time is over, and that of all below it, even if it has ended before.
    pub deadline: Option<Timestamp>,
    /// This account of its has nothing left until then.
    pub parked: Option<Parked>,
    pub n_parks: u32,
    /// Up to here, time that somebody below it was parked has been added to its deadline.
    pub stands_still_until: Timestamp,
    /// Since when it waits to be started again: that time does not count.
    pub queued_at: Option<Timestamp>,
    /// It has begun a turn of which nobody has said what it used.
    pub has_open_turn: bool,
    /// What it used itself, and what it used together with those below it.
    pub used: Spent,
    pub spent: Spent,
    /// How many turns it and those below it have had.
    pub n_turns: u32,
    /// How many were drafted below it.
    pub n_below: u32,
    /// How many that it drafted itself have not ended.
    pub n_children: u32,
    /// Why it is being ended, if it is.
    pub ending_why: Option<Why>,
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// Why its last process failed, until another one is ready.
    pub failure: Option<Arc<str>>,
}

/// Where an agent waits, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    pub account: Arc<str>,
    pub until: Timestamp,
}

impl Agent {
    pub fn is_live(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// Says whether it goes on after a turn.
    pub fn lasts(&self) -> bool {
        self.draft.team.is_some()
    }

    /// Says whether its program can be talked to.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready_in == self.incarnation
    }

    pub fn duration_ms(&self) -> Option<i64> {
        Some((self.ended_at?.0 - self.started_at.unwrap_or(self.ended_at?).0).max(0))
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    pub role: String,
    pub prompt: String,
    /// The dossier it belongs to; else that of the agent that drafts it, else a new one.
    pub dossier: Option<String>,
    /// Where it works; else where its role says, else where its parent works.
    pub directory: Option<String>,
    /// Where the hub itself works, if nothing else is said.
    pub default_directory: String,
    /// How far it may go, if whoever drafts it says so. Operators may say more than its role does, others only less.
    pub limits: AskedLimits,
}

/// Limits that a draft names; what it does not name is as its role says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedLimits {
    pub turns: Option<u32>,
    pub wall_ms: Option<u64>,
    pub microdollars: Option<u64>,
    pub tokens: Option<u64>,
}

impl AskedLimits {
    fn over(self, limits: Limits) -> Limits {
        Limits {
            turns: self.turns.unwrap_or(limits.turns),
            wall_ms: self.wall_ms.unwrap_or(limits.wall_ms),
            microdollars: self.microdollars.or(limits.microdollars),
            tokens: self.tokens.or(limits.tokens),
            ..limits
        }
    }
}

/// An agent that a person runs, as the caller tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    pub role: String,
    pub directory: String,
    /// The program's own name for the conversation, by which the hub can go on with it later.
    pub session: Option<String>,
    pub dossier: Option<String>,
    pub secret: SecretHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Draft(NewAgent),
    /// Ends an agent and all below it.
    Kill {
        which: String,
    },
    /// Takes in an agent that a person runs.
    Adopt(Adoption),
    /// Has the hub go on with an adopted agent's conversation, or with all of an account that was parked, at once.
    Resume {
        which: String,
        prompt: Option<String>,
    },
    /// Gives a queued agent a token with this secret; its process is started next, on this node.
    Admit {
        id: AgentId,
        secret: SecretHash,
        node: NodeName,
    },
    /// Says what the program calls the conversation.
    Begin {
        id: AgentId,
        incarnation: u32,
        session: String,
        /// Which program it is.
        program: Option<Arc<str>>,
        isolation: Option<Isolation>,
    },
    /// Says that a turn is about to begin, unless the limits are spent.
    BeginTurn {
        id: AgentId,
        incarnation: u32,
    },
    /// Says what a turn used.
    Spend {
        id: AgentId,
        incarnation: u32,
        used: Used,
    },
    /// Says that its account has nothing left until then. Its process is gone.
    Park {
        id: AgentId,
        incarnation: u32,
        account: Arc<str>,
        until: Timestamp,
        why: String,
    },
    /// Says that its process is gone though its work is not done.
    Interrupt {
        id: AgentId,
        incarnation: u32,
        why: String,
        /// Nobody's fault, such as that the hub was stopped: it does not count.
        blameless: bool,
    },
    /// Says that the process of one that lasts is gone.
    Sleep {
        id: AgentId,
        incarnation: u32,
        why: SleepWhy,
    },
    /// Says that all of it has ended.
    End {
        id: AgentId,
        incarnation: u32,
        outcome: Outcome,
    },
    /// Says that its program could not be started.
    NotStarted {
        id: AgentId,
        incarnation: u32,
        why: String,
    },
    /// Says that its process ended together with the hub that had started it.
    Lose {
        id: AgentId,
        incarnation: u32,
        why: String,
    },
    /// Tells people something about an agent.
    Warn {
        id: AgentId,
        says: String,
    },
    /// Ends every agent whose time is over. The hub's timer says when to look.
    Expire,
}

/// The view of all agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Agents {
    last: u32,
    by_id: OrdMap<AgentId, Arc<Agent>>,
    /// Those that wait for room, in the order of drafting.
    queued: OrdMap<u32, AgentId>,
    /// Those that are neither queued nor ended.
    active: OrdSet<AgentId>,
    /// All that are known, by the one that drafted them: one that has ended may have some below it that have not.
    children: OrdSet<(AgentId, AgentId)>,
    /// How many each principal that is no agent has under way.
    drafted_by: OrdMap<PrincipalName, u32>,
    deadlines: OrdSet<(Timestamp, AgentId)>,
    /// Those that a person runs.
    adopted: OrdSet<AgentId>,
    /// Accounts that have nothing left, and until when.
    accounts: OrdMap<Arc<str>, Timestamp>,
    /// Oldest first.
    ended: Vector<AgentId>,
}

impl Agents {
    pub fn get(&self, id: &str) -> Option<&Arc<Agent>> {
        self.by_id.get(&AgentId(id.into()))
    }

    /// Returns all that are known, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.by_id.values()
    }

    /// Returns those that wait for room, first come first.
    pub fn queued(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.queued.values().filter_map(|id| self.by_id.get(id))
    }

    /// Returns those that have a process, or should have one.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.active.iter().filter_map(|id| self.by_id.get(id))
    }

    /// Returns the agents that have a process on a node, or should have one. An agent without a node is from an older hub,
    /// which had only one node.
    pub fn active_on(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Agent>> {
        self.active().filter(move |agent| agent.node.as_ref().is_none_or(|of| of == node))
    }

    /// Returns those that a person runs.
    pub fn adopted(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.adopted.iter().filter_map(|id| self.by_id.get(id))
    }

    /// Returns those that have ended and are at hand, the newest first.
    pub fn ended(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.ended.iter().rev().filter_map(|id| self.by_id.get(id))
    }

    pub fn n_live(&self) -> usize {
        self.queued.len() + self.active.len() + self.adopted.len()
    }

    /// Returns when the next agent's time is over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.get_min().map(|(at, _)| *at)
    }

    /// Returns the live agent that a caller is, if it is one of ours.
    pub fn of_caller(&self, caller: &Caller) -> Option<&Arc<Agent>> {
        let agent = self.get(caller.principal.as_str())?;
        (agent.token.is_some() && agent.token == caller.token).then_some(agent)
    }

    /// Has one that lasts started, if it sleeps.
    pub(crate) fn wake(&self, id: &AgentId) -> Option<Event> {
        let asleep = self.by_id.get(id).filter(|agent| agent.phase == Phase::Asleep);
        asleep.map(|agent| Event::Woken { id: agent.id.clone() })
    }

    /// Has one that lasts put to sleep, if it does not sleep yet.
    pub(crate) fn put_to_sleep(&self, id: &AgentId, at_once: bool) -> Vec<Event> {
        if !at_once {
            return self.kill(id, &Why::ToSleep);
        }
        let why = Why::ToSleepAtOnce;
        let mut events = self.kill(id, &why);
        // One that is being ended gets no more time for it.
        let has_time = |agent: &&Arc<Agent>| {
            agent.phase == Phase::Ending && agent.ending_why.as_ref() != Some(&why)
        };
        let ending = self.by_id.get(id).filter(has_time);
        events.extend(
            ending.map(|agent| Event::KillAsked { id: agent.id.clone(), why: why.clone() }),
        );
        events
    }

    /// Returns the events that `command` causes, or why it is refused. A draft and an admission concern other nouns too
    /// and are decided where those are at hand.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        if let Command::Kill { which } = command {
            let agent = self.endable(which, &cx.caller)?;
            return Ok(self.kill(&agent.id, &Why::Killed));
        }
        if cx.caller.kind != Kind::Hub {
            return Err(Refusal::HubOnly);
        }
        match command {
            Command::Draft(_)
            | Command::Adopt(_)
            | Command::Resume { .. }
            | Command::Kill { .. }
            | Command::Admit { .. }
            | Command::Lose { .. } => {
                unreachable!("these are decided elsewhere")
            }
            Command::Begin { id, incarnation, session, program, isolation } => {
                let agent = self.at(id, *incarnation)?;
                // Whoever wakes one that lasts waits for this.
                let known = agent.session.as_deref() == Some(session.as_str())
                    && agent.isolation == *isolation
                    && (agent.is_ready() || !agent.lasts());
                let (session, program) = (session.as_str().into(), program.clone());
                let begun =
                    Event::Begun { id: id.clone(), session, program, isolation: *isolation };
                Ok(if known { Vec::new() } else { vec![begun] })
            }
            Command::BeginTurn { id, incarnation } => {
                let agent = self.at(id, *incarnation)?;
                for above in std::iter::once(agent).chain(self.above(agent)) {
                    let (limits, who) = (above.draft.limits, || above.id.to_string());
                    if above.n_turns >= limits.turns {
                        return Err(Refusal::TurnsSpent { who: who(), limit: limits.turns });
                    }
                    if above.deadline.is_some_and(|deadline| deadline <= cx.now) {
                        return Err(Refusal::TimeSpent { who: who() });
                    }
                    has_means(above)?;
                }
                Ok(vec![Event::TurnBegun { id: id.clone() }])
            }
            Command::Spend { id, incarnation, used } => {
                self.at(id, *incarnation)?;
                let used = used.bounded();
                let nothing = Used { microdollars: Some(0), model: None, ..Used::default() };
                let is_something = Used { model: None, calls: 0, ..used.clone() } != nothing;
                Ok(is_something
                    .then(|| Event::Spent { id: id.clone(), used })
                    .into_iter()
                    .collect())
            }
            Command::Park { id, incarnation, account, until, why } => {
                let agent = self.at(id, *incarnation)?;
                let why = text::beginning(why, ENTRY_BYTES_MAX);
                let id = id.clone();
                // One that lasts has no end: those who talk to it later would wait for ever.
                Ok(vec![if agent.lasts() && agent.phase == Phase::Ending {
                    Event::Slept { id, why: SleepWhy::Asked }
                } else if agent.lasts() && agent.n_parks >= PARKS_MAX {
                    Event::Slept { id, why: SleepWhy::Failed { says: why } }
                } else if agent.phase == Phase::Ending {
                    return Ok(self.end_with_below(&id, Outcome::failed(Ending::Aborted, why)));
                } else if agent.n_parks >= PARKS_MAX {
                    return Ok(self.end_with_below(&id, Outcome::failed(Ending::Crashed, why)));
                } else {
                    Event::Parked { id, account: account.clone(), until: *until, why }
                }])
            }
            Command::Sleep { id, incarnation, why } => {
                self.at(id, *incarnation)?;
                Ok(vec![Event::Slept { id: id.clone(), why: why.clone() }])
            }
            Command::Interrupt { id, incarnation, why, blameless } => {
                let agent = self.at(id, *incarnation)?;
                let blameless = *blameless;
                let again = agent.phase == Phase::Running
                    && (blameless || agent.n_interruptions < INTERRUPTIONS_MAX);
                let why = text::beginning(why, ENTRY_BYTES_MAX);
                Ok(vec![if again {
                    Event::Interrupted { id: id.clone(), why, blameless }
                } else if agent.lasts() {
                    Event::Slept { id: id.clone(), why: SleepWhy::Failed { says: why } }
                } else if agent.phase == Phase::Ending {
                    return Ok(self.end_with_below(id, Outcome::failed(Ending::Aborted, why)));
                } else {
                    return Ok(self.end_with_below(id, Outcome::failed(Ending::Crashed, why)));
                }])
            }
            Command::End { id, incarnation, outcome } => {
                let agent = self.at(id, *incarnation)?;
                if agent.lasts() {
                    let says = text::beginning(&outcome.summary, ENTRY_BYTES_MAX);
                    let why = SleepWhy::Failed { says };
                    return Ok(vec![Event::Slept { id: id.clone(), why }]);
                }
                Ok(self.end_with_below(id, bounded(outcome)))
            }
            Command::NotStarted { id, incarnation, why } => {
                let agent = self.at(id, *incarnation)?;
                let says = text::beginning(why, ENTRY_BYTES_MAX);
                // One that lasts is tried again when somebody talks to it.
                Ok(match agent.lasts() {
                    true => {
                        let why = SleepWhy::NotStarted { says };
                        vec![Event::Slept { id: id.clone(), why }]
                    }
                    false => self.end_with_below(id, Outcome::failed(Ending::Crashed, says)),
                })
            }
            Command::Warn { id, says } => {
                let says = text::beginning(says, ENTRY_BYTES_MAX);
                let known = self.by_id.contains_key(id);
                Ok(if known { vec![Event::Warned { id: id.clone(), says }] } else { Vec::new() })
            }
            Command::Expire => {
                let due = self.deadlines.iter().take_while(|(at, _)| *at <= cx.now);
                let mut due: Vec<&Arc<Agent>> =
                    due.filter_map(|(_, id)| self.by_id.get(id)).collect();
                // One and the one above it, which was drafted before, may be due at once.
                due.sort_by_key(|agent| agent.number);
                let killed = due.iter().flat_map(|agent| self.kill(&agent.id, &Why::OutOfTime));
                let mut seen = OrdSet::new();
                Ok(killed.filter(|event| seen.insert(event.agent().clone()).is_none()).collect())
            }
        }
    }

    /// Has the hub go on with what a person began.
    pub(crate) fn resume(
        &self,
        which: &str,
        prompt: Option<&str>,
        account: Option<&Arc<str>>,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if !cx.caller.kind.is_operator() {
            return Err(Refusal::OperatorsOnly);
        }
        let agent = self.visible(which, &cx.caller)?;
        // One that waits for its account, be it that its own limit or another's was reached.
        let parked = agent.parked.as_ref().map(|parked| &parked.account);
        let held_back = account.filter(|account| {
            agent.phase == Phase::Queued
                && self.accounts.get(*account).is_some_and(|until| *until > cx.now)
        });
        if let Some(account) = parked.or(held_back) {
            if prompt.is_some() {
                return Err(Refusal::HasItsTask(agent.id.clone()));
            }
            return Ok(vec![Event::Unparked { id: agent.id.clone(), account: account.clone() }]);
        }
        if agent.phase != Phase::Adopted || agent.session.is_none() {
            return Err(Refusal::NotResumable(agent.id.clone()));
        }
        let prompt = text::long("prompt", prompt.unwrap_or("Go on."), PROMPT_BYTES_MAX)?;
        Ok(vec![Event::Resumed { id: agent.id.clone(), prompt }])
    }

    /// Returns the agent if this incarnation of it is under way: what an earlier one has to say comes too late.
    fn at(&self, id: &AgentId, incarnation: u32) -> Result<&Arc<Agent>, Refusal> {
        let agent = self.by_id.get(id).filter(|agent| {
            matches!(agent.phase, Phase::Running | Phase::Ending)
                && agent.incarnation == incarnation
        });
        agent.ok_or_else(|| Refusal::OutOfStep(id.clone()))
    }

    /// Says whether this incarnation of an agent is under way.
    pub(crate) fn is_at(&self, id: &AgentId, incarnation: u32) -> bool {
        self.at(id, incarnation).is_ok()
    }

    /// One that has come to the end of a message may be cut off once more.
    pub(crate) fn recover(&mut self, id: &AgentId) {
        if self.by_id.get(id).is_some_and(|agent| agent.n_interruptions > 0) {
            self.change(id, |agent| agent.n_interruptions = 0);
        }
    }

    /// Returns an agent that may be admitted.
    pub(crate) fn admissible(&self, id: &AgentId) -> Result<&Arc<Agent>, Refusal> {
        let agent = self.by_id.get(id).filter(|agent| agent.phase == Phase::Queued);
        agent.ok_or_else(|| Refusal::OutOfStep(id.clone()))
    }

    /// Ends an agent and all below it, whoever wants it.
    pub(crate) fn end_now(&self, id: &AgentId) -> Vec<Event> {
        self.kill(id, &Why::Killed)
    }

    /// Records an agent's end. Unless it completed its work, all agents below it end too: nobody reads their results.
    fn end_with_below(&self, id: &AgentId, outcome: Outcome) -> Vec<Event> {
        let below = match outcome.ending {
            Ending::Completed => Vec::new(),
            Ending::Aborted | Ending::Crashed | Ending::TimedOut => {
                self.with_below(id).split_off(1)
            }
        };
        let mut events = vec![Event::Ended { id: id.clone(), outcome }];
        events.extend(self.kill_each(&below, |_| Why::WithParent));
        events
    }

    /// Ends an agent and all below it.
    fn kill(&self, id: &AgentId, why: &Why) -> Vec<Event> {
        let why = |below: &AgentId| if below == id { why.clone() } else { Why::WithParent };
        self.kill_each(&self.with_below(id), why)
    }

    /// Ends agents. One that has no process yet has ended at once.
    fn kill_each(&self, ids: &[AgentId], why: impl Fn(&AgentId) -> Why) -> Vec<Event> {
        let mut events = Vec::new();
        for below in ids.iter().filter_map(|id| self.by_id.get(id)) {
            let why = why(&below.id);
            match below.phase {
                Phase::Queued if below.lasts() => {
                    events.push(Event::Slept { id: below.id.clone(), why: SleepWhy::Asked });
                }
                Phase::Running => events.push(Event::KillAsked { id: below.id.clone(), why }),
                // Its process is a person's; only its access is ours to end.
                Phase::Adopted => {
                    let outcome = Outcome::failed(Ending::Aborted, "it was let go");
                    events.push(Event::Ended { id: below.id.clone(), outcome });
                }
                Phase::Queued => {
                    let outcome = Outcome::failed(Ending::Aborted, "it was ended before it began");
                    events.push(Event::Ended { id: below.id.clone(), outcome });
                }
                Phase::Asleep | Phase::Ending | Phase::Ended => {}
            }
        }
        events
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Drafted { id, number, draft } => self.add(id, *number, draft, record),
            Event::Adopted { id, number, draft, token, session } => {
                self.add(id, *number, draft, record);
                self.change(id, |agent| {
                    agent.phase = Phase::Adopted;
                    agent.token = Some(*token);
                    agent.session.clone_from(session);
                    agent.started_at = Some(record.at);
                });
            }
            Event::Convened { id, number, draft } => {
                self.add(id, *number, draft, record);
                self.change(id, |agent| agent.phase = Phase::Asleep);
            }
            Event::Woken { id } => self.change(id, |agent| agent.phase = Phase::Queued),
            Event::Slept { id, why } => self.change(id, |agent| {
                agent.failure = match why {
                    SleepWhy::Failed { says } | SleepWhy::NotStarted { says } => {
                        Some(failure(says))
                    }
                    SleepWhy::Idle | SleepWhy::Room | SleepWhy::Asked | SleepWhy::Changed => None,
                };
                agent.phase = Phase::Asleep;
                agent.token = None;
                agent.parked = None;
                agent.n_interruptions = 0;
                agent.ending_why = None;
                agent.deadline = None;
            }),
            Event::Resumed { id, prompt } => self.change(id, |agent| {
                agent.phase = Phase::Queued;
                agent.token = None;
                agent.draft.prompt = prompt.clone();
                // Its time begins when the hub starts it.
                agent.started_at = None;
            }),
            Event::Spent { id, used } => {
                self.change(id, |agent| {
                    agent.used.add(used);
                    agent.has_open_turn = false;
                });
                self.change_with_above(id, |agent| agent.spent.add(used));
            }
            Event::Parked { id, account, until, .. } => self.park(id, account, *until, record.at),
            Event::Unparked { account, .. } => self.unpark(account, record.at),
            Event::Admitted { id, token, node } => {
                // It may have been queued for long, and those above it may have ended: their time is still its time.
                let agent = self.by_id.get(id);
                let above = agent.into_iter().flat_map(|agent| self.above(agent));
                let above = above.filter_map(|above| above.deadline).min();
                self.change(id, |agent| {
                    agent.phase = Phase::Running;
                    agent.incarnation += 1;
                    agent.token = Some(*token);
                    agent.node.clone_from(node);
                    agent.parked = None;
                    let started_at = *agent.started_at.get_or_insert(record.at);
                    let wall_ms = i64::try_from(agent.draft.limits.wall_ms).unwrap_or(i64::MAX);
                    let own = Timestamp(started_at.0.saturating_add(wall_ms));
                    // One that was started before has its deadline, and has waited since.
                    let waited = agent.queued_at.take().map_or(0, |since| record.at.0 - since.0);
                    let own =
                        agent.deadline.map_or(own, |at| Timestamp(at.0.saturating_add(waited)));
                    agent.deadline = Some(above.map_or(own, |above| own.min(above)));
                });
            }
            Event::Begun { id, session, program, isolation } => {
                self.change(id, |agent| {
                    agent.isolation = *isolation;
                    agent.session = Some(session.clone());
                    agent.failure = None;
                    agent.program = program.clone();
                    agent.ready_in = agent.incarnation;
                });
            }
            Event::TurnBegun { id } => {
                self.change_with_above(id, |agent| agent.n_turns += 1);
                self.change(id, |agent| {
                    agent.has_open_turn = true;
                    agent.ready_in = agent.incarnation;
                });
            }
            Event::Interrupted { id, blameless, why } => self.change(id, |agent| {
                agent.failure = (!blameless).then(|| failure(why));
                agent.phase = Phase::Queued;
                agent.token = None;
                agent.queued_at = Some(record.at);
                agent.n_interruptions += u32::from(!blameless);
            }),
            Event::KillAsked { id, why } => self.change(id, |agent| {
                agent.phase = Phase::Ending;
                agent.ending_why = Some(why.clone());
            }),
            Event::Ended { id, outcome } => self.end(id, outcome, record),
            Event::Warned { .. } => {}
        }
    }

    fn add(&mut self, id: &AgentId, number: u32, draft: &Draft, record: &Record) {
        self.last = self.last.max(number);
        let parent = draft.parent.as_ref().and_then(|parent| self.by_id.get(parent)).cloned();
        let agent = Agent {
            id: id.clone(),
            number,
            role: draft.role.clone(),
            draft: draft.clone(),
            drafted_by: record.by.clone(),
            drafted_at: record.at,
            root: parent.as_ref().map_or_else(|| id.clone(), |parent| parent.root.clone()),
            phase: Phase::Queued,
            incarnation: 0,
            token: None,
            n_interruptions: 0,
            session: None,
            isolation: None,
            program: None,
            node: None,
            ready_in: 0,
            started_at: None,
            deadline: None,
            parked: None,
            n_parks: 0,
            stands_still_until: Timestamp::default(),
            queued_at: None,
            has_open_turn: false,
            used: Spent::default(),
            spent: Spent::default(),
            n_turns: 0,
            n_below: 0,
            n_children: 0,
            ending_why: None,
            ended_at: None,
            outcome: None,
            failure: None,
        };
        let above: Vec<AgentId> = self.above(&agent).map(|above| above.id.clone()).collect();
        for above in &above {
            self.change(above, |agent| agent.n_below += 1);
        }
        if let Some(parent) = &draft.parent {
            self.change(parent, |agent| agent.n_children += 1);
        }
        self.insert(Arc::new(agent));
    }

    fn end(&mut self, id: &AgentId, outcome: &Outcome, record: &Record) {
        // Whoever has ended has ended, whatever else is said of it.
        let live = self.by_id.get(id).filter(|agent| agent.is_live());
        let Some(parent) = live.map(|agent| agent.draft.parent.clone()) else { return };
        self.change(id, |agent| {
            agent.phase = Phase::Ended;
            agent.token = None;
            agent.ended_at = Some(record.at);
            agent.outcome = Some(outcome.clone());
        });
        if let Some(parent) = parent {
            self.change(&parent, |agent| agent.n_children = agent.n_children.saturating_sub(1));
        }
        self.ended.push_back(id.clone());
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && let Some(forgotten) = self.by_id.remove(&oldest)
            && let Some(parent) = &forgotten.draft.parent
        {
            self.children.remove(&(parent.clone(), oldest));
        }
    }
}

/// Returns as much of a failure's words as is kept, without what would steer a terminal.
fn failure(says: &str) -> Arc<str> {
    text::beginning(&text::plain(says), ENTRY_BYTES_MAX)
}

#[cfg(test)]
pub(crate) mod tests;
