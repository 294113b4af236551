//! Which of the queued agents may begin, and what the others wait for: room, their account, their program, or their
//! directory.

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use teamster_core::agent::{self, Agent, AgentId, InLine, Next, Phase};
use teamster_core::role::Role;
use teamster_core::{State, Timestamp};

use super::failing::Failing;
use super::missing::missing;
use super::reload::Configured;
use super::resting::Resting;
use super::{fails_as, tree};
use crate::clock::Clock;
use crate::hub::Handle;
use crate::settings::Pool;

/// Knows what agents wait for. Cheap to clone.
#[derive(Clone)]
pub struct Queue {
    hub: Handle,
    clock: Arc<dyn Clock>,
    configured: Arc<Configured>,
    pub(super) failing: Arc<Failing>,
    pub(super) resting: Arc<Resting>,
}

/// What a queued agent waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// Its program fails.
    Program { program: Arc<str>, until: Timestamp, n_failures: usize },
    /// Its program is not there; this says which, and what to do.
    Missing { says: Arc<str> },
    /// Its account has nothing left.
    Account { account: Arc<str>, until: Timestamp },
    /// Somebody else works where it would.
    Directory { directory: Arc<str>, worker: Option<AgentId> },
    /// As many work as may.
    Room { running: u32, live: u32 },
}

impl WaitsFor {
    /// Returns until when, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Program { until, .. } | Self::Account { until, .. } => Some(*until),
            Self::Missing { .. } | Self::Directory { .. } | Self::Room { .. } => None,
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { program, until, n_failures } => {
                let until = time(*until);
                let times = if *n_failures == 1 { "time" } else { "times" };
                write!(
                    f,
                    "{program} is held back until {until}, because it failed {n_failures} {times} within ten minutes"
                )
            }
            Self::Missing { says } => f.write_str(says),
            Self::Account { account, until } => {
                write!(f, "the account {account} accepts no requests until {}", time(*until))
            }
            Self::Directory { directory, worker: Some(worker) } => {
                write!(f, "{worker} works in {directory}, where one works at a time")
            }
            Self::Directory { directory, worker: None } => {
                write!(f, "others wait for {directory}, where one works at a time")
            }
            Self::Room { running, live } => {
                write!(f, "the pool is full (pool.running = {running}, pool.live = {live})")
            }
        }
    }
}

/// Returns a time for people.
fn time(at: Timestamp) -> String {
    let shown = jiff::Timestamp::from_millisecond(at.0);
    let shown =
        shown.map(|at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string());
    shown.unwrap_or_else(|_| at.0.to_string())
}

impl Queue {
    pub fn new(hub: Handle, clock: Arc<dyn Clock>, configured: Arc<Configured>) -> Self {
        Self { hub, clock, configured, failing: Arc::default(), resting: Arc::default() }
    }

    fn pool(&self) -> Pool {
        self.configured.current().settings.pool.clone()
    }

    /// Returns what an agent waits for, if it is queued and not just about to be started.
    pub fn waits_for(&self, state: &State, agent: &Agent) -> Option<WaitsFor> {
        if agent.phase != Phase::Queued {
            return None;
        }
        if let Some(spared) = self.spared(state, agent, self.clock.now()) {
            return Some(spared);
        }
        if self.line(state, agent) != InLine::No
            && let Some(tree) = tree(state, agent)
        {
            let (directory, worker) = (tree.directory.clone(), self.hub.trees().worker(&tree));
            return Some(WaitsFor::Directory { directory, worker });
        }
        let pool = self.pool();
        let (running, live) = (pool.running.get(), pool.live.get());
        (!self.has_room(state)).then_some(WaitsFor::Room { running, live })
    }

    /// Lets an agent's program be tried at once: a person wants that. Says whether it was held back.
    pub fn forgive(&self, state: &State, agent: &Agent) -> bool {
        let Some(role) = state.behaviour(agent) else { return false };
        let program = fails_as(state, agent, role);
        let was_held = self.failing.held(&program, self.clock.now()).is_some();
        self.failing.forgive(&program);
        was_held && agent.phase == Phase::Queued
    }

    /// Lets a program be tried at once on this machine.
    pub fn forgive_program(&self, program: &str) {
        self.failing.forgive(program);
    }

    /// Returns until when an agent is not to be started, and why: its program fails, or its account has nothing left.
    pub(super) fn spared(&self, state: &State, agent: &Agent, now: Timestamp) -> Option<WaitsFor> {
        // Of one whose role or team is gone, it is told at once.
        let role = state.behaviour(agent)?;
        if let Some(missing) = self.missing(agent, role) {
            return Some(missing);
        }
        let program = fails_as(state, agent, role);
        let failing = self.failing.held(&program, now);
        let failing = failing.map(|held| WaitsFor::Program {
            program,
            until: held.until,
            n_failures: held.n_failures,
        });
        let account = state.agents.account_parked_until(&role.account);
        let parked = agent.parked.as_ref().map(|parked| parked.until);
        let until = account.max(parked).filter(|until| *until > now);
        let account = until.map(|until| WaitsFor::Account { account: role.account.clone(), until });
        failing.into_iter().chain(account).max_by_key(WaitsFor::until)
    }

    /// Returns what an agent waits for whose program is not there. Of one that was never started whoever drafted it is told at
    /// once, and so is whoever tells a team something.
    fn missing(&self, agent: &Agent, role: &Role) -> Option<WaitsFor> {
        let has_work_to_go_on_with = agent.incarnation > 0 || agent.draft.run.is_some();
        if agent.lasts() || !has_work_to_go_on_with {
            return None;
        }
        let configuration = self.configured.current();
        let says = missing(&configuration, self.configured.search_path(), agent, role)?;
        Some(WaitsFor::Missing { says: says.into() })
    }

    /// Returns how an agent would stand in line for the directory that it works in.
    pub(super) fn line(&self, state: &State, agent: &Agent) -> InLine {
        let conversation = state.conversations.of_agent(&agent.id);
        let has_work = conversation.is_some_and(|conversation| conversation.has_work());
        let Some(tree) = has_work.then(|| tree(state, agent)).flatten() else { return InLine::No };
        let trees = self.hub.trees();
        match (trees.is_held(&tree), trees.is_awaited(&tree)) {
            (_, true) => InLine::Later,
            (true, false) => InLine::Next,
            (false, false) => InLine::No,
        }
    }

    /// Returns when the first agent may be started that may not be started now.
    pub(super) fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        let account = self.hub.state().agents.next_account(now);
        [self.failing.next(now), account].into_iter().flatten().min()
    }

    /// Returns what there is to do so that more agents work.
    pub(super) fn next(&self, state: &State, can_make_room: bool, now: Timestamp) -> Next {
        agent::next(state, self.limits(), can_make_room, &Known { queue: self, state, now })
    }

    fn has_room(&self, state: &State) -> bool {
        self.limits().has_room(state, &Known { queue: self, state, now: self.clock.now() })
    }

    fn limits(&self) -> agent::Pool {
        let pool = self.pool();
        agent::Pool { running: pool.running.get() as usize, live: pool.live.get() as usize }
    }
}

/// What the hub knows of agents at some moment.
struct Known<'a> {
    queue: &'a Queue,
    state: &'a State,
    now: Timestamp,
}

impl agent::Knowledge for Known<'_> {
    fn only_waits(&self, agent: &Agent) -> bool {
        let Queue { hub, resting, .. } = self.queue;
        hub.idlers().contains(&agent.id.principal()) || resting.contains(&agent.id)
    }

    fn is_ready(&self, agent: &Agent) -> bool {
        self.queue.spared(self.state, agent, self.now).is_none()
    }

    fn line(&self, agent: &Agent) -> InLine {
        self.queue.line(self.state, agent)
    }
}
