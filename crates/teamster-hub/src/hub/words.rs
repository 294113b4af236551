//! What agents have said so far in the turns that are under way, for those who do not wait for the end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::agent::AgentId;

/// The words of each agent that is in a turn; bounded by whoever puts them here.
#[derive(Debug, Default)]
pub struct Words(Mutex<HashMap<AgentId, String>>);

impl Words {
    pub fn get(&self, agent: &AgentId) -> String {
        self.all().get(agent).cloned().unwrap_or_default()
    }

    pub fn set(&self, agent: &AgentId, words: &str) {
        let mut all = self.all();
        if words.is_empty() {
            all.remove(agent);
        } else {
            words.clone_into(all.entry(agent.clone()).or_default());
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AgentId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
