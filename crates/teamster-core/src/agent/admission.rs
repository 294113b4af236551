//! Which queued agent starts next, and whether there is room for one.

use std::sync::Arc;

use super::{Agent, AgentId};
use crate::State;

/// How many agents may work, and how many may have a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub running: usize,
    pub live: usize,
}

/// The place of an agent in the line for its directory, where one works at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLine {
    /// Nobody works there.
    No,
    /// Somebody does, and nobody else waits.
    Next,
    Later,
}

/// The hub's knowledge of agents that is not in the log.
pub trait Knowledge {
    /// Says whether an agent with a process only waits: for another agent, for a person, or for a message.
    fn only_waits(&self, agent: &Agent) -> bool;

    /// Says whether an agent's program and account can be used now.
    fn is_ready(&self, agent: &Agent) -> bool;

    fn line(&self, agent: &Agent) -> InLine;
}

/// What the hub does to have more agents at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Start(AgentId),
    /// An agent that rests gives up its process.
    MakeRoom,
    Nothing,
}

impl Pool {
    fn is_crowded(self, state: &State) -> bool {
        state.agents.active().count() >= self.live
    }

    /// Says whether another agent may start. Agents that only wait count among the live ones, not among the running ones.
    /// If all live agents wait for other agents, one more may start: otherwise they would wait for ever.
    pub fn has_room(self, state: &State, knowledge: &impl Knowledge) -> bool {
        let running = state.agents.active().filter(|agent| !knowledge.only_waits(agent));
        let n_running = running.count();
        let asks = |agent: &Arc<Agent>| state.questions.open_of(&agent.id).next().is_some();
        // A person's answer does not need another agent.
        let all_wait = n_running == 0 && !state.agents.active().any(asks);
        n_running < self.running && (!self.is_crowded(state) || all_wait)
    }
}

/// Returns what the hub does next. It asks again without `can_make_room` if no agent rests.
pub fn next(state: &State, pool: Pool, can_make_room: bool, knowledge: &impl Knowledge) -> Next {
    let is_crowded = pool.is_crowded(state);
    let is_at =
        |agent: &&Arc<Agent>, place| knowledge.is_ready(agent) && knowledge.line(agent) == place;
    let can_work = |agent: &&Arc<Agent>| is_at(agent, InLine::No);
    if is_crowded && can_make_room && state.agents.queued().any(|agent| can_work(&agent)) {
        return Next::MakeRoom;
    }
    // If every place is taken by an agent that waits, only an agent that others wait for may start.
    let is_awaited = |agent: &Arc<Agent>| agent.draft.parent.is_some() || agent.lasts();
    let mut queued = state.agents.queued().filter(|agent| !is_crowded || is_awaited(agent));
    // An agent that can work at once goes before one that is next in line for its directory.
    let next = queued.find(can_work).or_else(|| {
        let mut queued = state.agents.queued().filter(|_| !is_crowded);
        queued.find(|agent| is_at(agent, InLine::Next))
    });
    match next.filter(|_| pool.has_room(state, knowledge)) {
        Some(agent) => Next::Start(agent.id.clone()),
        None => Next::Nothing,
    }
}

#[cfg(test)]
mod tests;
