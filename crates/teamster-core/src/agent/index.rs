//! The indexes of the view of all agents, which follow every change; a snapshot does without them.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use super::{Agent, AgentId, Agents, Phase};
use crate::Timestamp;

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    last: u32,
    agents: Vec<Arc<Agent>>,
    accounts: OrdMap<Arc<str>, Timestamp>,
    ended: Vector<AgentId>,
}

impl Agents {
    /// Changes an agent, and the indexes with it.
    pub(super) fn change(&mut self, id: &AgentId, change: impl FnOnce(&mut Agent)) {
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

    pub(super) fn insert(&mut self, agent: Arc<Agent>) {
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
