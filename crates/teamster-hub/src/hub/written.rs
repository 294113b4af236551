//! What was made durable since the hub started, counted for those who watch it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::agent::{self, Ending};
use teamster_core::role::RoleName;
use teamster_core::{Event, Record, State};

#[derive(Debug, Default)]
pub struct Written {
    n_commits: AtomicU64,
    n_records: AtomicU64,
    /// Agents that ended. There are not many roles, and few ways to end.
    ended: Mutex<BTreeMap<RoleName, Vec<(Ending, u64)>>>,
}

impl Written {
    /// Counts commits and their records; `state` has them in it.
    pub(super) fn add(&self, n_commits: u64, records: &[Record], state: &State) {
        self.n_commits.fetch_add(n_commits, Ordering::Relaxed);
        self.n_records.fetch_add(records.len() as u64, Ordering::Relaxed);
        for event in records.iter().flat_map(|record| &record.events) {
            if let Event::Agent(agent::Event::Ended { id, outcome }) = event
                && let Some(agent) = state.agents.get(id.as_str())
            {
                let mut ended = self.endings();
                let endings = ended.entry(agent.role.clone()).or_default();
                match endings.iter_mut().find(|(ending, _)| *ending == outcome.ending) {
                    Some((_, n)) => *n += 1,
                    None => endings.push((outcome.ending, 1)),
                }
            }
        }
    }

    pub fn commits(&self) -> u64 {
        self.n_commits.load(Ordering::Relaxed)
    }

    pub fn records(&self) -> u64 {
        self.n_records.load(Ordering::Relaxed)
    }

    /// Returns how many agents of each role ended how.
    pub fn ended(&self) -> Vec<((RoleName, Ending), u64)> {
        let ended = self.endings();
        let all = ended.iter().flat_map(|(role, endings)| {
            endings.iter().map(|(ending, n)| ((role.clone(), *ending), *n))
        });
        all.collect()
    }

    fn endings(&self) -> MutexGuard<'_, BTreeMap<RoleName, Vec<(Ending, u64)>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
