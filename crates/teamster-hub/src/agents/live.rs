//! How far each agent's transcript has come, for those who follow it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use teamster_core::agent::AgentId;
use tokio::sync::watch;

/// The agents under way, each with the number of its last record; and how many records there were of all of them.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<Mutex<HashMap<AgentId, watch::Sender<u64>>>>, Arc<watch::Sender<u64>>);

impl Live {
    /// Says that a transcript has a new record.
    pub(super) fn grown(&self, agent: &AgentId, number: u64) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.entry(agent.clone()).or_insert_with(|| watch::channel(0).0).send_replace(number);
        self.1.send_modify(|n| *n += 1);
    }

    /// Returns how many records there were of all agents since the hub started.
    pub fn n_records(&self) -> u64 {
        *self.1.borrow()
    }

    /// Returns the agents under way, each with the number of its last record.
    pub fn all(&self) -> Vec<(AgentId, u64)> {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.iter().map(|(agent, last)| (agent.clone(), *last.borrow())).collect()
    }

    /// Waits until there were more than so many of all agents.
    pub async fn any(&self, after: u64) {
        // We hold the sender, so that it cannot end.
        let _ = self.1.subscribe().wait_for(|n| *n > after).await;
    }

    /// Says that a transcript grows no more, for now.
    pub(super) fn ended(&self, agent: &AgentId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(agent);
    }

    /// Waits until the transcript of an agent under way has more than `after` records, or grows no more. One that has said
    /// nothing yet is waited for like any other.
    pub async fn more(&self, agent: &AgentId, after: u64) {
        let mut grows = {
            let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            live.entry(agent.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
        };
        // An error means that it has ended.
        let _ = grows.wait_for(|number| *number > after).await;
    }
}
