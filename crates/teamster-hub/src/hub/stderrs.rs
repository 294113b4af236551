//! What the programs of teams' agents write to stderr, for those who talk to them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_agents::started::Process;
use teamster_core::agent::AgentId;

use crate::plain::cleaned;

/// Maximum bytes of one program's stderr, the newest.
const BYTES_MAX: usize = 4 * 1024;
/// Maximum agents whose last process has ended and whose stderr is kept.
const ENDED_MAX: usize = 200;

#[derive(Debug, Default)]
pub struct Stderrs(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    live: HashMap<AgentId, Process>,
    ended: HashMap<AgentId, String>,
    /// Those that have ended, oldest first.
    order: VecDeque<AgentId>,
}

impl Stderrs {
    /// Returns the end of what the newest process of an agent wrote.
    pub fn get(&self, agent: &AgentId) -> String {
        let kept = self.kept();
        let live = kept.live.get(agent).map(shown);
        live.or_else(|| kept.ended.get(agent).cloned()).unwrap_or_default()
    }

    pub(crate) fn begins(&self, agent: &AgentId, process: Process) {
        self.kept().live.insert(agent.clone(), process);
    }

    pub(crate) fn ends(&self, agent: &AgentId) {
        let mut kept = self.kept();
        let Some(process) = kept.live.remove(agent) else { return };
        if kept.ended.insert(agent.clone(), shown(&process)).is_none() {
            kept.order.push_back(agent.clone());
        }
        if kept.order.len() > ENDED_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.ended.remove(&oldest);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown(process: &Process) -> String {
    let text = cleaned(&process.stderr_tail());
    let text = text.trim();
    let start = text.len().saturating_sub(BYTES_MAX);
    text[text.ceil_char_boundary(start)..].to_owned()
}
