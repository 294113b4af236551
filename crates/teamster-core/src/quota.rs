//! How much agents have stored in the log, and how much they may.
//!
//! An agent's bytes count for its whole tree, so that drafting more agents gives no more room, and for the run that they
//! are stored in. What was stored is what the log holds: a compaction gives room back, and so does forgetting a run.
//! Operators and the hub itself are counted but never refused.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::{Context, Event, PrincipalName, Record, RunName};

/// How much may be stored. These come with each decision, from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// By one agent and all of its tree; none is no limit.
    pub owner_bytes: Option<u64>,
    /// In one run, by all agents.
    pub run_bytes: Option<u64>,
}

/// An agent that has stored all it may still changes what there is: it completes items and gives them back. For such
/// events without text there is this part of the limit beyond it.
const REST_PARTS: u64 = 8;

/// What an event counts beside its text. It is the same for every version of the program, so that all count alike.
const EVENT_BYTES: u64 = 256;

fn size_of_event(event: &Event) -> u64 {
    EVENT_BYTES + event.text_bytes() as u64
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "you have stored {} of {} MiB, together with the agents of your tree; put long texts into files, or ask the \
         operator to raise quotas.stored_mib",
        mib(*stored), mib(*limit)
    )]
    OwnerFull { stored: u64, limit: u64 },
    #[error(
        "the run {run} holds {} of {} MiB; put long texts into files, or ask the operator to raise \
         quotas.run_stored_mib or to forget old runs",
        mib(*stored), mib(*limit)
    )]
    RunFull { run: RunName, stored: u64, limit: u64 },
}

/// Returns a number of bytes in MiB with one decimal, without `.0`.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

/// The view of how much was stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    by_owner: OrdMap<PrincipalName, u64>,
    by_run: OrdMap<RunName, u64>,
}

impl Stored {
    /// Returns how many bytes a tree of agents, or somebody without one, has stored.
    pub fn by_owner(&self, owner: &PrincipalName) -> u64 {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    /// Returns how many bytes a run holds.
    pub fn in_run(&self, run: &RunName) -> u64 {
        self.by_run.get(run).copied().unwrap_or_default()
    }

    /// Refuses what an agent would store beyond the limits.
    pub(crate) fn check(
        &self,
        owner: &PrincipalName,
        events: &[Event],
        limits: Limits,
        cx: &Context,
    ) -> Result<(), Refusal> {
        if cx.caller.kind.may_operate() || limits == Limits::default() || events.is_empty() {
            return Ok(());
        }
        let has_text = events.iter().any(|event| event.text_bytes() > 0);
        let is_full = |stored: u64, more: u64, limit: u64| {
            let rest = if has_text { 0 } else { limit / REST_PARTS };
            stored.saturating_add(more) > limit.saturating_add(rest)
        };
        if let Some(limit) = limits.owner_bytes {
            let stored = self.by_owner(owner);
            let more = events.iter().map(size_of_event).sum();
            if is_full(stored, more, limit) {
                return Err(Refusal::OwnerFull { stored, limit });
            }
        }
        if let Some(limit) = limits.run_bytes
            && let Some(run) = events.iter().find_map(run_of)
        {
            let stored = self.in_run(run);
            let in_run = events.iter().filter(|event| run_of(event) == Some(run));
            let more = in_run.map(size_of_event).sum();
            if is_full(stored, more, limit) {
                return Err(Refusal::RunFull { run: run.clone(), stored, limit });
            }
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, owner: &PrincipalName, record: &Record) {
        let mut n_bytes = 0;
        for event in &record.events {
            let size = size_of_event(event);
            n_bytes += size;
            let Event::Run { run, what } = event else { continue };
            if *what == crate::run::Event::Forgotten {
                self.by_run.remove(run);
            } else if let Some(stored) = self.by_run.get_mut(run) {
                *stored += size;
            } else {
                self.by_run.insert(run.clone(), size);
            }
        }
        if let Some(stored) = self.by_owner.get_mut(owner) {
            *stored += n_bytes;
        } else {
            self.by_owner.insert(owner.clone(), n_bytes);
        }
    }

    /// Forgets somebody who is gone.
    pub(crate) fn forget(&mut self, owner: &PrincipalName) {
        self.by_owner.remove(owner);
    }
}

fn run_of(event: &Event) -> Option<&RunName> {
    match event {
        Event::Run { run, .. } => Some(run),
        Event::ClientSession(_)
        | Event::Hub(_)
        | Event::Token(_)
        | Event::Yak(_)
        | Event::Errand(_)
        | Event::Role(_)
        | Event::Dossier(_)
        | Event::Agent(_)
        | Event::Question(_)
        | Event::Team(_)
        | Event::Conversation(_) => None,
    }
}

#[cfg(test)]
mod tests;
