//! Agents that the hub runs: drafted by somebody, played by a program, ended with an outcome.
//!
//! An agent waits in the queue until the hub has room for it; then it is admitted, which gives it a token, and its process
//! is started. Each start is an incarnation with a token of its own; when it ends, the token ends in the same commit.
//! Limits form a tree: whatever an agent uses up counts for everybody above it too.

mod event;
mod outcome;
mod refusal;

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::role::{Limits, RoleName, Roles};
use crate::spending::{Spent, Used};
use crate::text;
use crate::token::{Kind, SecretHash};
use crate::{Caller, Context, DossierName, PrincipalName, Record, RunName, TeamName, Timestamp};

pub use self::event::{Event, SleepWhy, Why};
use self::outcome::bounded;
pub use self::outcome::{Ending, Outcome, Status};
pub use self::refusal::Refusal;

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
    /// Gives a queued agent a token with this secret; its process is started next.
    Admit {
        id: AgentId,
        secret: SecretHash,
    },
    /// Says what the program calls the conversation.
    Begin {
        id: AgentId,
        incarnation: u32,
        session: String,
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

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    agents: Vec<Arc<Agent>>,
    accounts: OrdMap<Arc<str>, Timestamp>,
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

    /// Returns those that a person runs.
    pub fn adopted(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.adopted.iter().filter_map(|id| self.by_id.get(id))
    }

    /// Returns those that an agent drafted, in the order of their names.
    pub fn children(&self, parent: &AgentId) -> impl Iterator<Item = &Arc<Agent>> {
        let children = self.children.range((parent.clone(), AgentId("".into()))..);
        let children = children.take_while(move |(above, _)| above == parent);
        children.filter_map(|(_, child)| self.by_id.get(child))
    }

    /// Returns when the first account has something left again, of those that have nothing now.
    pub fn next_account(&self, now: Timestamp) -> Option<Timestamp> {
        self.accounts.values().copied().filter(|at| *at > now).min()
    }

    /// Returns until when an account has nothing left, if that was said.
    pub fn account_parked_until(&self, account: &str) -> Option<Timestamp> {
        self.accounts.get(account).copied()
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

    /// Returns an agent if the caller may know of it: operators all, agents those of their own tree, others what they
    /// drafted and what is below.
    pub fn visible(&self, which: &str, caller: &Caller) -> Result<&Arc<Agent>, Refusal> {
        let unknown = || Refusal::UnknownAgent(which.chars().take(80).collect());
        let agent = self.get(which).ok_or_else(unknown)?;
        if self.is_visible(agent, caller) { Ok(agent) } else { Err(unknown()) }
    }

    pub fn is_visible(&self, agent: &Agent, caller: &Caller) -> bool {
        match caller.kind {
            Kind::Operator | Kind::Hub => true,
            Kind::Agent => match self.of_caller(caller) {
                Some(own) => own.root == agent.root,
                None => {
                    let root = self.by_id.get(&agent.root);
                    root.map_or(&agent.drafted_by, |root| &root.drafted_by) == &caller.principal
                }
            },
        }
    }

    /// Returns an agent if the caller may end it: operators all, others those below them.
    fn endable(&self, which: &str, caller: &Caller) -> Result<&Arc<Agent>, Refusal> {
        let agent = self.visible(which, caller)?;
        let below = match (caller.kind, self.of_caller(caller)) {
            (Kind::Operator | Kind::Hub, _) | (Kind::Agent, None) => true,
            (Kind::Agent, Some(own)) => self.above(agent).any(|above| above.id == own.id),
        };
        if below { Ok(agent) } else { Err(Refusal::UnknownAgent(which.chars().take(80).collect())) }
    }

    /// Returns the agents above one, nearest first.
    fn above<'a>(&'a self, agent: &'a Agent) -> impl Iterator<Item = &'a Arc<Agent>> {
        let parent = |agent: &Agent| self.by_id.get(agent.draft.parent.as_ref()?);
        std::iter::successors(parent(agent), move |above| parent(above))
    }

    /// Says whether neither an agent nor any below it is under way.
    pub fn is_over_with_below(&self, id: &AgentId) -> bool {
        // One that lasts has no end but sleep.
        let is_live = |id: &AgentId| {
            self.by_id.get(id).is_some_and(|agent| agent.is_live() && agent.phase != Phase::Asleep)
        };
        !self.with_below(id).iter().any(is_live)
    }

    /// Returns an agent and all below it, the agent itself first.
    fn with_below(&self, id: &AgentId) -> Vec<AgentId> {
        let mut found = vec![id.clone()];
        let mut next = 0;
        while let Some(parent) = found.get(next).cloned() {
            let children = self.children.range((parent.clone(), AgentId("".into()))..);
            let children = children.take_while(|(above, _)| *above == parent);
            found.extend(children.map(|(_, child)| child.clone()));
            next += 1;
        }
        found
    }

    /// Returns the agent that a draft comes to.
    pub(crate) fn draft(
        &self,
        new: &NewAgent,
        roles: &Roles,
        new_dossier: impl FnOnce(&str) -> Result<DossierName, Refusal>,
        is_taken: impl Fn(&PrincipalName) -> bool,
        cx: &Context,
    ) -> Result<Event, Refusal> {
        let Some(role) = roles.get(&new.role) else {
            let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
            let role = new.role.chars().take(80).collect();
            return Err(Refusal::UnknownRole { role, available: names.join(", ") });
        };
        if role.program.is_empty() {
            return Err(Refusal::NoProgram(role.name.clone()));
        }
        let prompt = text::long("prompt", &new.prompt, PROMPT_BYTES_MAX)?;
        if self.n_live() >= LIVE_MAX {
            return Err(Refusal::TooMany);
        }
        let parent = self.of_caller(&cx.caller);
        if parent.is_some_and(|parent| !matches!(parent.phase, Phase::Running | Phase::Adopted)) {
            return Err(Refusal::BeingEnded);
        }
        let mut limits = match cx.caller.kind {
            Kind::Operator | Kind::Hub => new.limits.over(role.limits),
            Kind::Agent => new.limits.over(role.limits).within(role.limits),
        };
        if let Some(parent) = parent {
            limits = limits.within(self.left(parent, cx.now)?);
        } else if cx.caller.kind == Kind::Agent {
            let n = self.drafted_by.get(&cx.caller.principal).copied().unwrap_or_default();
            if n >= CLIENT_CHILDREN_MAX {
                let (who, limit) = (cx.caller.principal.to_string(), CLIENT_CHILDREN_MAX);
                return Err(Refusal::TooManyChildren { who, limit });
            }
        }
        let dossier = match (&new.dossier, parent) {
            (Some(name), _) => DossierName::parse(name)?,
            (None, Some(parent)) => parent.draft.dossier.clone(),
            (None, None) => new_dossier(&prompt)?,
        };
        let inherited = parent.map(|parent| parent.draft.directory.as_ref());
        let directory = new.directory.as_deref().or(role.directory.as_deref()).or(inherited);
        let directory = directory.unwrap_or(&new.default_directory);
        // What is inherited was good enough for the parent, who may be on another machine.
        let is_inherited = inherited == Some(directory);
        if !(directory.starts_with('/') || is_inherited) || directory.len() > DIRECTORY_BYTES_MAX {
            return Err(Refusal::Directory(directory.chars().take(200).collect()));
        }
        let (id, number) = self.new_id(&role.name, is_taken);
        let draft = Draft {
            role: role.name.clone(),
            dossier,
            prompt,
            directory: directory.into(),
            parent: parent.map(|parent| parent.id.clone()),
            depth: parent.map_or(0, |parent| parent.draft.depth + 1),
            limits,
            team: None,
            run: None,
        };
        Ok(Event::Drafted { id, number, draft })
    }

    fn new_id(&self, role: &RoleName, is_taken: impl Fn(&PrincipalName) -> bool) -> (AgentId, u32) {
        let mut ids =
            (self.last + 1..).map(|number| (AgentId(format!("{role}-{number}").into()), number));
        ids.find(|(id, _)| !is_taken(&id.principal()))
            .unwrap_or_else(|| unreachable!("there are fewer tokens than numbers"))
    }

    /// Returns the agent that an adoption comes to; its token will be `token`.
    pub(crate) fn adopt(
        &self,
        adoption: &Adoption,
        roles: &Roles,
        new_dossier: impl FnOnce(&str) -> Result<DossierName, Refusal>,
        is_taken: impl Fn(&PrincipalName) -> bool,
        token: TokenId,
        cx: &Context,
    ) -> Result<Event, Refusal> {
        if cx.caller.kind != Kind::Operator {
            return Err(Refusal::OperatorsOnly);
        }
        let Some(role) = roles.get(&adoption.role) else {
            let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
            let role = adoption.role.chars().take(80).collect();
            return Err(Refusal::UnknownRole { role, available: names.join(", ") });
        };
        if self.n_live() >= LIVE_MAX {
            return Err(Refusal::TooMany);
        }
        let directory = &adoption.directory;
        if !directory.starts_with('/') || directory.len() > DIRECTORY_BYTES_MAX {
            return Err(Refusal::Directory(directory.chars().take(200).collect()));
        }
        let session = adoption.session.as_deref();
        let session = session.map(|session| text::line("session", session, 256)).transpose()?;
        let dossier = match &adoption.dossier {
            Some(name) => DossierName::parse(name)?,
            None => new_dossier("adopted")?,
        };
        let (id, number) = self.new_id(&role.name, is_taken);
        let draft = Draft {
            role: role.name.clone(),
            dossier,
            prompt: "(a person runs it)".into(),
            directory: directory.as_str().into(),
            parent: None,
            depth: 0,
            limits: role.limits,
            team: None,
            run: None,
        };
        Ok(Event::Adopted { id, number, draft, token, session })
    }

    /// Returns an agent that speaks for a team, which lasts as long as its conversation.
    pub(crate) fn convene(
        &self,
        team: &crate::team::Team,
        directory: Arc<str>,
        is_taken: impl Fn(&PrincipalName) -> bool,
    ) -> Event {
        let role = RoleName::of_team(&team.name);
        let (id, number) = self.new_id(&role, is_taken);
        let draft = Draft {
            role,
            dossier: DossierName::new("conversations".to_owned()),
            prompt: "".into(),
            directory,
            parent: None,
            depth: 0,
            // Its turns and its time are those of its conversation, which has no end.
            limits: Limits { turns: u32::MAX, wall_ms: u64::MAX, ..team.behaviour.limits },
            team: Some(team.name.clone()),
            run: None,
        };
        Event::Convened { id, number, draft }
    }

    /// Returns the agent of an iteration of a run.
    pub(crate) fn engage(
        &self,
        run: &RunName,
        terms: &crate::drive::Terms,
        directory: Arc<str>,
        prompt: Arc<str>,
        microdollars: Option<u64>,
        is_taken: impl Fn(&PrincipalName) -> bool,
    ) -> Event {
        let role = terms.behaviour.name.clone();
        let (id, number) = self.new_id(&role, is_taken);
        let limits = terms.behaviour.limits;
        let money = Limits { microdollars, ..limits };
        let draft = Draft {
            role,
            dossier: DossierName::new(format!("run-{run}")),
            prompt,
            directory,
            parent: None,
            depth: 0,
            limits: limits.within(money),
            team: None,
            run: Some(run.clone()),
        };
        Event::Drafted { id, number, draft }
    }

    /// Has one that lasts started, if it sleeps.
    pub(crate) fn wake(&self, id: &AgentId) -> Option<Event> {
        let asleep = self.by_id.get(id).filter(|agent| agent.phase == Phase::Asleep);
        asleep.map(|agent| Event::Woken { id: agent.id.clone() })
    }

    /// Has one that lasts put to sleep, if it does not sleep yet.
    pub(crate) fn put_to_sleep(&self, id: &AgentId) -> Vec<Event> {
        self.kill(id, &Why::ToSleep)
    }

    /// Returns what is left for one more agent below `parent`, or why there may be none.
    fn left(&self, parent: &Arc<Agent>, now: Timestamp) -> Result<Limits, Refusal> {
        let who = || parent.id.to_string();
        if parent.n_children >= parent.draft.limits.children {
            return Err(Refusal::TooManyChildren {
                who: who(),
                limit: parent.draft.limits.children,
            });
        }
        let mut left = parent.draft.limits;
        for above in std::iter::once(parent).chain(self.above(parent)) {
            let (limits, who) = (above.draft.limits, || above.id.to_string());
            if limits.depth <= parent.draft.depth - above.draft.depth {
                return Err(Refusal::TooDeep { depth: parent.draft.depth });
            }
            if above.n_below >= limits.total {
                return Err(Refusal::TotalSpent { who: who(), limit: limits.total });
            }
            if above.n_turns >= limits.turns {
                return Err(Refusal::TurnsSpent { who: who(), limit: limits.turns });
            }
            let time_left = above.deadline.map_or(limits.wall_ms, |deadline| {
                u64::try_from(deadline.0 - now.0).unwrap_or_default()
            });
            if time_left == 0 {
                return Err(Refusal::TimeSpent { who: who() });
            }
            has_means(above)?;
            let spent = &above.spent;
            left = left.within(Limits {
                depth: limits.depth - (parent.draft.depth - above.draft.depth) - 1,
                children: limits.children,
                total: limits.total - above.n_below - 1,
                turns: limits.turns - above.n_turns,
                wall_ms: time_left,
                microdollars: limits.microdollars.map(|limit| limit - spent.microdollars),
                tokens: limits.tokens.map(|limit| limit - spent.tokens()),
            });
        }
        Ok(left)
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
            | Command::Admit { .. } => {
                unreachable!("these are decided elsewhere")
            }
            Command::Begin { id, incarnation, session } => {
                let agent = self.at(id, *incarnation)?;
                // Whoever wakes one that lasts waits for this.
                let known = agent.session.as_deref() == Some(session.as_str())
                    && (agent.is_ready() || !agent.lasts());
                let begun = Event::Begun { id: id.clone(), session: session.as_str().into() };
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
                let is_something = Used { model: None, ..used.clone() } != nothing;
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
                    Event::Ended { id, outcome: Outcome::failed(Ending::Aborted, why) }
                } else if agent.n_parks >= PARKS_MAX {
                    Event::Ended { id, outcome: Outcome::failed(Ending::Crashed, why) }
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
                    Event::Ended { id: id.clone(), outcome: Outcome::failed(Ending::Aborted, why) }
                } else {
                    Event::Ended { id: id.clone(), outcome: Outcome::failed(Ending::Crashed, why) }
                }])
            }
            Command::End { id, incarnation, outcome } => {
                let agent = self.at(id, *incarnation)?;
                if agent.lasts() {
                    let says = text::beginning(&outcome.summary, ENTRY_BYTES_MAX);
                    let why = SleepWhy::Failed { says };
                    return Ok(vec![Event::Slept { id: id.clone(), why }]);
                }
                Ok(vec![Event::Ended { id: id.clone(), outcome: bounded(outcome) }])
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
        if cx.caller.kind != Kind::Operator {
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

    /// Ends an agent and all below it. One that has no process yet has ended at once.
    fn kill(&self, id: &AgentId, why: &Why) -> Vec<Event> {
        let mut events = Vec::new();
        for below in self.with_below(id).iter().filter_map(|id| self.by_id.get(id)) {
            let why = if below.id == *id { why.clone() } else { Why::WithParent };
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
            Event::Slept { id, .. } => self.change(id, |agent| {
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
            Event::Admitted { id, token } => {
                // It may have been queued for long, and those above it may have ended: their time is still its time.
                let agent = self.by_id.get(id);
                let above = agent.into_iter().flat_map(|agent| self.above(agent));
                let above = above.filter_map(|above| above.deadline).min();
                self.change(id, |agent| {
                    agent.phase = Phase::Running;
                    agent.incarnation += 1;
                    agent.token = Some(*token);
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
            Event::Begun { id, session } => {
                self.change(id, |agent| {
                    agent.session = Some(session.clone());
                    agent.ready_in = agent.incarnation;
                });
            }
            Event::TurnBegun { id } => {
                self.change_with_above(id, |agent| agent.n_turns += 1);
                self.change(id, |agent| agent.has_open_turn = true);
            }
            Event::Interrupted { id, blameless, .. } => self.change(id, |agent| {
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

    /// Parks an agent until its account has something left. The time until then is nobody's fault: it does not count, for
    /// those above it as for itself.
    fn park(&mut self, id: &AgentId, account: &Arc<str>, until: Timestamp, now: Timestamp) {
        for above in self.ids_above(id) {
            self.change(&above, |agent| {
                // It may be waiting for several that are parked at once.
                let more = (until.0 - agent.stands_still_until.max(now).0).max(0);
                agent.deadline = agent.deadline.map(|at| Timestamp(at.0.saturating_add(more)));
                agent.stands_still_until = agent.stands_still_until.max(until);
            });
        }
        self.change(id, |agent| {
            agent.queued_at = Some(now);
            agent.phase = Phase::Queued;
            agent.token = None;
            agent.parked = Some(Parked { account: account.clone(), until });
            agent.n_parks += 1;
        });
        let parked = self.accounts.iter().filter(|(_, at)| **at > now);
        self.accounts = parked.map(|(account, at)| (account.clone(), *at)).collect();
        // Who is told another end waits for the later one, like all of the account.
        let until = self.accounts.get(account).map_or(until, |known| until.max(*known));
        self.accounts.insert(account.clone(), until);
    }

    fn ids_above(&self, id: &AgentId) -> Vec<AgentId> {
        let agent = self.by_id.get(id);
        let above = agent.into_iter().flat_map(|agent| self.above(agent));
        above.map(|above| above.id.clone()).collect()
    }

    /// Lets all of an account go on at once; those above get back no more time than was waited.
    fn unpark(&mut self, account: &Arc<str>, now: Timestamp) {
        self.accounts.remove(account);
        let is_parked =
            |agent: &&Arc<Agent>| agent.parked.as_ref().is_some_and(|at| at.account == *account);
        let parked: Vec<AgentId> =
            self.queued().filter(is_parked).map(|agent| agent.id.clone()).collect();
        for id in &parked {
            self.change(id, |agent| agent.parked = None);
            for above in self.ids_above(id) {
                self.change(&above, |agent| {
                    let too_much = (agent.stands_still_until.0 - now.0).max(0);
                    agent.deadline = agent.deadline.map(|at| Timestamp(at.0 - too_much));
                    agent.stands_still_until = agent.stands_still_until.min(now);
                });
            }
        }
    }

    fn change_with_above(&mut self, id: &AgentId, change: impl Fn(&mut Agent)) {
        for id in std::iter::once(id).chain(&self.ids_above(id)) {
            self.change(id, &change);
        }
    }

    /// Changes an agent, and the indexes with it.
    fn change(&mut self, id: &AgentId, change: impl FnOnce(&mut Agent)) {
        let Some(old) = self.by_id.get(id).cloned() else { return };
        self.unindex(&old);
        let mut agent = Agent::clone(&old);
        change(&mut agent);
        self.insert(Arc::new(agent));
    }

    fn unindex(&mut self, agent: &Agent) {
        self.queued.remove(&agent.number);
        self.active.remove(&agent.id);
        self.adopted.remove(&agent.id);
        if let Some(at) = agent.deadline {
            self.deadlines.remove(&(at, agent.id.clone()));
        }
        if agent.is_live() && agent.draft.parent.is_none() && !agent.lasts() {
            let n = self.drafted_by.get(&agent.drafted_by).copied().unwrap_or_default();
            match n {
                0 | 1 => self.drafted_by.remove(&agent.drafted_by),
                _ => self.drafted_by.insert(agent.drafted_by.clone(), n - 1),
            };
        }
    }

    fn insert(&mut self, agent: Arc<Agent>) {
        match agent.phase {
            Phase::Queued => {
                self.queued.insert(agent.number, agent.id.clone());
            }
            Phase::Running | Phase::Ending => {
                self.active.insert(agent.id.clone());
            }
            Phase::Adopted => {
                self.adopted.insert(agent.id.clone());
            }
            Phase::Asleep | Phase::Ended => {}
        }
        // One that is being ended needs no second reason.
        if agent.phase == Phase::Running
            && let Some(at) = agent.deadline
        {
            self.deadlines.insert((at, agent.id.clone()));
        }
        match &agent.draft.parent {
            Some(parent) => {
                self.children.insert((parent.clone(), agent.id.clone()));
            }
            None if agent.is_live() && !agent.lasts() => {
                let n = self.drafted_by.get(&agent.drafted_by).copied().unwrap_or_default();
                self.drafted_by.insert(agent.drafted_by.clone(), n + 1);
            }
            None => {}
        }
        self.by_id.insert(agent.id.clone(), agent);
    }
}

/// Refuses to go on when the money or the tokens are spent.
fn has_means(agent: &Agent) -> Result<(), Refusal> {
    let (limits, spent) = (&agent.draft.limits, &agent.spent);
    let who = || agent.id.to_string();
    match (limits.microdollars, limits.tokens) {
        (Some(limit), _) if spent.microdollars >= limit => {
            Err(Refusal::MoneySpent { who: who(), limit })
        }
        (_, Some(limit)) if spent.tokens() >= limit => {
            Err(Refusal::TokensSpent { who: who(), limit })
        }
        _ => Ok(()),
    }
}

impl From<Stored> for Agents {
    fn from(stored: Stored) -> Self {
        let Stored { last, agents: all, accounts, ended } = stored;
        let mut agents = Self { last, accounts, ended, ..Self::default() };
        all.into_iter().for_each(|agent| agents.insert(agent));
        agents
    }
}

impl From<Agents> for Stored {
    fn from(agents: Agents) -> Self {
        let Agents { last, by_id, accounts, ended, .. } = agents;
        let agents = by_id.into_iter().map(|(_, agent)| agent).collect();
        Self { last, agents, accounts, ended }
    }
}

#[cfg(test)]
pub(crate) mod tests;
