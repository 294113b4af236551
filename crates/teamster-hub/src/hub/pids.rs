//! The processes of agents that are under way, as this machine numbers them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::agent::AgentId;

/// One for each agent that runs, as far as they are known; whoever runs agents puts them here.
#[derive(Debug, Default)]
pub struct Pids(Mutex<HashMap<AgentId, u32>>);

impl Pids {
    pub fn get(&self, agent: &AgentId) -> Option<u32> {
        self.all().get(agent).copied()
    }

    pub fn set(&self, agent: &AgentId, pid: Option<u32>) {
        let mut all = self.all();
        match pid {
            Some(pid) => all.insert(agent.clone(), pid),
            None => all.remove(agent),
        };
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AgentId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
