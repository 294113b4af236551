//! Accounts that have nothing left, and the agents that are parked until they do.

use std::sync::Arc;

use super::{Agent, AgentId, Agents, Parked, Phase};
use crate::Timestamp;

impl Agents {
    /// Returns when the first account has something left again, of those that have nothing now.
    pub fn next_account(&self, now: Timestamp) -> Option<Timestamp> {
        self.accounts.values().copied().filter(|at| *at > now).min()
    }

    /// Returns until when an account has nothing left, if that was said.
    pub fn account_parked_until(&self, account: &str) -> Option<Timestamp> {
        self.accounts.get(account).copied()
    }

    /// Parks an agent until its account has something left. The time until then is nobody's fault: it does not count, for
    /// those above it as for itself.
    pub(super) fn park(
        &mut self,
        id: &AgentId,
        account: &Arc<str>,
        until: Timestamp,
        now: Timestamp,
    ) {
        for above in self.ids_above(id) {
            self.change(&above, |agent| {
                // It may be waiting for several that are parked at once.
                let more = (until.0 - agent.stands_still_until.max(now).0).max(0);
                agent.deadline = agent.deadline.map(|at| Timestamp(at.0.saturating_add(more)));
                agent.stands_still_until = agent.stands_still_until.max(until);
            });
        }
        self.change(id, |agent| {
            agent.queued_at = Some(now);
            agent.phase = Phase::Queued;
            agent.token = None;
            agent.parked = Some(Parked { account: account.clone(), until });
            agent.n_parks += 1;
        });
        let parked = self.accounts.iter().filter(|(_, at)| **at > now);
        self.accounts = parked.map(|(account, at)| (account.clone(), *at)).collect();
        // Who is told another end waits for the later one, like all of the account.
        let until = self.accounts.get(account).map_or(until, |known| until.max(*known));
        self.accounts.insert(account.clone(), until);
    }

    /// Lets all of an account go on at once; those above get back no more time than was waited.
    pub(super) fn unpark(&mut self, account: &Arc<str>, now: Timestamp) {
        self.accounts.remove(account);
        let is_parked =
            |agent: &&Arc<Agent>| agent.parked.as_ref().is_some_and(|at| at.account == *account);
        let parked: Vec<AgentId> =
            self.queued().filter(is_parked).map(|agent| agent.id.clone()).collect();
        for id in &parked {
            self.change(id, |agent| agent.parked = None);
            for above in self.ids_above(id) {
                self.change(&above, |agent| {
                    let too_much = (agent.stands_still_until.0 - now.0).max(0);
                    agent.deadline = agent.deadline.map(|at| Timestamp(at.0 - too_much));
                    agent.stands_still_until = agent.stands_still_until.min(now);
                });
            }
        }
    }
}
