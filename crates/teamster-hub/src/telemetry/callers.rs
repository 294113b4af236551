//! Whose calls are whose: from the token of a call to the counters of its agent and role.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use imbl::OrdMap;
use teamster_core::agent::{Agent, AgentId};
use teamster_core::ids::TokenId;
use teamster_core::role::RoleName;
use teamster_core::token::{Kind, Token};
use teamster_core::{Caller, State};
use teamster_mcp::observe::How;

use super::counts::{Counter, Tally, place};

/// As many roles as are counted by name; all further ones count together.
pub(super) const ROLES_MAX: usize = 64;
/// As many agents as are counted by name. Those that have ended make room; the calls of any more count together.
pub(super) const AGENTS_MAX: usize = 1_000;
/// Tokens that have ended are forgotten when there are this many more than at the last time.
const FORGET_ABOVE: usize = 1_024;

/// Names that no role and no agent has.
pub(super) const OPERATOR: &str = "(operator)";
pub(super) const CLIENT: &str = "(client)";
pub(super) const OTHER: &str = "(other)";
/// The places of those that are no role of ours; the roles follow them.
pub(super) const NOT_ROLES: [&str; 3] = [OPERATOR, CLIENT, OTHER];

/// What a call counts for beside its tool.
#[derive(Debug, Clone)]
pub(super) struct Who {
    /// The place of the role's counter.
    pub(super) role: usize,
    pub(super) agent: Option<Arc<AgentCounts>>,
}

/// The agent that made some calls.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) id: AgentId,
    pub(super) role: RoleName,
    /// Its place in the order of drafting.
    number: u32,
}

impl Whose {
    fn of(agent: &Agent) -> Self {
        Self { id: agent.id.clone(), role: agent.role.clone(), number: agent.number }
    }
}

/// The calls of one agent since the hub started, over all its incarnations.
#[derive(Debug)]
pub(super) struct AgentCounts {
    /// Nobody's are those of all for whom there was no room.
    pub(super) of: Option<Whose>,
    all: Counter,
    by_tool: Box<[[AtomicU64; How::ALL.len()]]>,
}

impl AgentCounts {
    fn new(of: Option<Whose>, n_tools: usize) -> Self {
        Self {
            of,
            all: Counter::default(),
            by_tool: (0..n_tools).map(|_| Default::default()).collect(),
        }
    }

    pub(super) fn add(&self, tool: usize, how: How, took: std::time::Duration) {
        self.all.add(how, took);
        self.by_tool[tool][place(how)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.all.add_to(&mut tally);
        tally
    }

    /// Returns how many calls of each tool ended how.
    pub(super) fn by_tool(&self) -> impl Iterator<Item = [u64; How::ALL.len()]> {
        self.by_tool.iter().map(|by_how| by_how.each_ref().map(|n| n.load(Ordering::Relaxed)))
    }
}

/// Everybody who has called.
#[derive(Debug)]
pub(super) struct Callers {
    n_tools: usize,
    by_token: ArcSwap<OrdMap<TokenId, Who>>,
    named: Mutex<Named>,
    /// Those for whom there was no room.
    others: Arc<AgentCounts>,
}

#[derive(Debug, Default)]
struct Named {
    roles: Vec<RoleName>,
    agents: BTreeMap<AgentId, Arc<AgentCounts>>,
    /// When tokens that have ended are forgotten the next time.
    forget_above: usize,
}

impl Callers {
    pub(super) fn new(n_tools: usize) -> Self {
        Self {
            n_tools,
            by_token: ArcSwap::default(),
            named: Mutex::new(Named { forget_above: FORGET_ABOVE, ..Named::default() }),
            others: Arc::new(AgentCounts::new(None, n_tools)),
        }
    }

    /// Tells `then` what the calls of a token count for. Only its first call looks at the state.
    pub(super) fn with<T>(
        &self,
        token: &Token,
        state: impl FnOnce() -> Arc<State>,
        then: impl FnOnce(&Who) -> T,
    ) -> T {
        if let Some(who) = self.by_token.load().get(&token.id) {
            return then(who);
        }
        then(&self.meet(token, &state()))
    }

    fn meet(&self, token: &Token, state: &State) -> Who {
        let is_live = state.tokens.get(token.id).is_some();
        let agent = state.agents.of_caller(&Caller::of(token)).or_else(|| {
            // An agent's last call may be over only after the agent.
            state.agents.get(token.principal.as_str()).filter(|_| !is_live)
        });
        let mut named = self.named();
        let who = match (agent, token.kind) {
            (Some(agent), _) => {
                let counts = named.agent(Whose::of(agent), state, self.n_tools);
                let counts = counts.unwrap_or_else(|| self.others.clone());
                Who { role: named.role(&agent.role), agent: Some(counts) }
            }
            (None, Kind::Person(_) | Kind::Hub) => Who { role: 0, agent: None },
            (None, Kind::Agent) => Who { role: 1, agent: None },
        };
        if is_live {
            let mut known = OrdMap::clone(&self.by_token.load());
            if known.len() >= named.forget_above {
                known = known
                    .into_iter()
                    .filter(|(token, _)| state.tokens.get(*token).is_some())
                    .collect();
                named.forget_above = known.len() + FORGET_ABOVE;
            }
            known.insert(token.id, who.clone());
            // Nobody else stores: we hold the lock.
            self.by_token.store(Arc::new(known));
        }
        who
    }

    fn named(&self) -> MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the roles that have called, in the order of their counters.
    pub(super) fn roles(&self) -> Vec<RoleName> {
        self.named().roles.clone()
    }

    pub(super) fn agent(&self, id: &AgentId) -> Option<Arc<AgentCounts>> {
        self.named().agents.get(id).cloned()
    }

    /// Returns the live agents that have called, then those for whom there was no room.
    pub(super) fn live(&self, state: &State) -> Vec<Arc<AgentCounts>> {
        let mut live: Vec<_> = self.named().agents.values().cloned().collect();
        live.retain(|counts| is_live(counts, state));
        live.push(self.others.clone());
        live
    }
}

fn is_live(counts: &AgentCounts, state: &State) -> bool {
    let agent = counts.of.as_ref().and_then(|of| state.agents.get(of.id.as_str()));
    agent.is_some_and(|agent| agent.is_live())
}

impl Named {
    /// Returns the place of a role's counter.
    fn role(&mut self, role: &RoleName) -> usize {
        let known = self.roles.iter().position(|known| known == role);
        let place = known.or_else(|| {
            (self.roles.len() < ROLES_MAX).then(|| {
                self.roles.push(role.clone());
                self.roles.len() - 1
            })
        });
        place.map_or(NOT_ROLES.len() - 1, |place| NOT_ROLES.len() + place)
    }

    /// Returns an agent's counters, if there is room for them.
    fn agent(&mut self, of: Whose, state: &State, n_tools: usize) -> Option<Arc<AgentCounts>> {
        if let Some(counts) = self.agents.get(&of.id) {
            return Some(counts.clone());
        }
        if self.agents.len() >= AGENTS_MAX {
            let ended = self.agents.values().filter(|counts| !is_live(counts, state));
            let number = |counts: &AgentCounts| counts.of.as_ref().map_or(0, |of| of.number);
            let mut ended: Vec<u32> = ended.map(|counts| number(counts)).collect();
            ended.sort_unstable();
            // Several at once, so that not each new one looks at all.
            let last = ended.get((AGENTS_MAX / 4).min(ended.len().checked_sub(1)?)).copied()?;
            self.agents.retain(|_, counts| number(counts) > last || is_live(counts, state));
        }
        let id = of.id.clone();
        let counts = Arc::new(AgentCounts::new(Some(of), n_tools));
        self.agents.insert(id, counts.clone());
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(number: u32, role: &str) -> Whose {
        let id = serde_json::from_value(json!(format!("{role}-{number}"))).unwrap();
        Whose { id, role: serde_json::from_value(json!(role)).unwrap(), number }
    }

    #[test]
    fn names_are_bounded_and_the_oldest_that_ended_make_room() {
        let (mut named, state) = (Named::default(), State::default());
        for number in 1..=3_000 {
            assert!(named.agent(agent(number, "coder"), &state, 1).is_some());
            assert!(named.agents.len() <= AGENTS_MAX);
        }
        assert!(named.agents.contains_key(&agent(3_000, "coder").id));
        assert!(!named.agents.contains_key(&agent(1, "coder").id));
        let places: Vec<usize> =
            (0..200).map(|n| named.role(&agent(1, &format!("role-{n}")).role)).collect();
        assert_eq!(places[..2], [3, 4]);
        assert_eq!(places[ROLES_MAX..], [2; 200 - ROLES_MAX], "all others count together");
        assert_eq!(named.role(&agent(1, "role-1").role), 4);
    }
}
