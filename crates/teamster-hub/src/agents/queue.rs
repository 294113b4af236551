//! Which of the queued agents may begin, and what the others wait for: room, their account, their program, or their
//! directory.

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use teamster_core::agent::{Agent, AgentId, Phase};
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
pub enum Waits {
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

impl Waits {
    /// Returns until when, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Program { until, .. } | Self::Account { until, .. } => Some(*until),
            Self::Missing { .. } | Self::Directory { .. } | Self::Room { .. } => None,
        }
    }
}

impl fmt::Display for Waits {
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

/// How an agent would stand in line for its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InLine {
    /// Nobody works there.
    No,
    /// Somebody does, and nobody else waits.
    Next,
    Later,
}

impl Queue {
    pub fn new(hub: Handle, clock: Arc<dyn Clock>, configured: Arc<Configured>) -> Self {
        Self { hub, clock, configured, failing: Arc::default(), resting: Arc::default() }
    }

    pub(super) fn pool(&self) -> Pool {
        self.configured.current().settings.pool.clone()
    }

    /// Returns what an agent waits for, if it is queued and not just about to be started.
    pub fn waits_for(&self, state: &State, agent: &Agent) -> Option<Waits> {
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
            return Some(Waits::Directory { directory, worker });
        }
        let pool = self.pool();
        let (running, live) = (pool.running.get(), pool.live.get());
        (!self.has_room(state)).then_some(Waits::Room { running, live })
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
    pub(super) fn spared(&self, state: &State, agent: &Agent, now: Timestamp) -> Option<Waits> {
        // Of one whose role or team is gone, it is told at once.
        let role = state.behaviour(agent)?;
        if let Some(missing) = self.missing(agent, role) {
            return Some(missing);
        }
        let program = fails_as(state, agent, role);
        let failing = self.failing.held(&program, now);
        let failing = failing.map(|held| Waits::Program {
            program,
            until: held.until,
            n_failures: held.n_failures,
        });
        let account = state.agents.account_parked_until(&role.account);
        let parked = agent.parked.as_ref().map(|parked| parked.until);
        let until = account.max(parked).filter(|until| *until > now);
        let account = until.map(|until| Waits::Account { account: role.account.clone(), until });
        failing.into_iter().chain(account).max_by_key(Waits::until)
    }

    /// Returns what an agent waits for whose program is not there. Of one that was never started whoever drafted it is told at
    /// once, and so is whoever tells a team something.
    fn missing(&self, agent: &Agent, role: &Role) -> Option<Waits> {
        let has_work_to_go_on_with = agent.incarnation > 0 || agent.draft.run.is_some();
        if agent.lasts() || !has_work_to_go_on_with {
            return None;
        }
        let configuration = self.configured.current();
        let says = missing(&configuration, self.configured.search_path(), agent, role)?;
        Some(Waits::Missing { says: says.into() })
    }

    /// Returns how an agent would stand in line for the directory that it works in.
    pub(super) fn line(&self, state: &State, agent: &Agent) -> InLine {
        let has_work = state.conversations.of_agent(&agent.id).is_some_and(|conversation| {
            conversation.current.is_some() || !conversation.queue.is_empty()
        });
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

    /// Those that only wait take no room among the running, but all take room among the living; unless nobody but waiters
    /// lives, who would wait for ever.
    pub(super) fn has_room(&self, state: &State) -> bool {
        let idlers = self.hub.idlers();
        let running = state.agents.active().filter(|agent| {
            !idlers.contains(&agent.id.principal()) && !self.resting.contains(&agent.id)
        });
        let (n_running, n_live) = (running.count(), state.agents.active().count());
        let pool = self.pool();
        let crowded = n_live >= pool.live.get() as usize;
        // Who waits for a person does not wait for whoever is queued.
        let asks = |agent: &&Arc<Agent>| state.questions.open_of(&agent.id).next().is_some();
        let all_wait = n_running == 0 && state.agents.active().filter(asks).count() == 0;
        n_running < pool.running.get() as usize && (!crowded || all_wait)
    }
}
