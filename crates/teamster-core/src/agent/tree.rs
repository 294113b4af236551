//! The tree of agents: who stands above and below whom, who may know of whom, and what is left for one more below.

use std::sync::Arc;

use super::{Agent, AgentId, Agents, Phase, Refusal};
use crate::role::Limits;
use crate::{Caller, Timestamp};

impl Agents {
    /// Returns those that an agent drafted, in the order of their names.
    pub fn children(&self, parent: &AgentId) -> impl Iterator<Item = &Arc<Agent>> {
        let children = self.children.range((parent.clone(), AgentId("".into()))..);
        let children = children.take_while(move |(above, _)| above == parent);
        children.filter_map(|(_, child)| self.by_id.get(child))
    }

    /// Returns the agents above one, nearest first.
    pub(super) fn above<'a>(&'a self, agent: &'a Agent) -> impl Iterator<Item = &'a Arc<Agent>> {
        let parent = |agent: &Agent| self.by_id.get(agent.draft.parent.as_ref()?);
        std::iter::successors(parent(agent), move |above| parent(above))
    }

    pub(super) fn ids_above(&self, id: &AgentId) -> Vec<AgentId> {
        let agent = self.by_id.get(id);
        let above = agent.into_iter().flat_map(|agent| self.above(agent));
        above.map(|above| above.id.clone()).collect()
    }

    /// Returns an agent and all below it, the agent itself first.
    pub(super) fn with_below(&self, id: &AgentId) -> Vec<AgentId> {
        let mut found = vec![id.clone()];
        let mut next = 0;
        while let Some(parent) = found.get(next).cloned() {
            let children = self.children.range((parent.clone(), AgentId("".into()))..);
            let children = children.take_while(|(above, _)| *above == parent);
            found.extend(children.map(|(_, child)| child.clone()));
            next += 1;
        }
        found
    }

    /// Says whether neither an agent nor any below it is under way.
    pub fn is_over_with_below(&self, id: &AgentId) -> bool {
        // One that lasts has no end but sleep.
        let is_live = |id: &AgentId| {
            self.by_id.get(id).is_some_and(|agent| agent.is_live() && agent.phase != Phase::Asleep)
        };
        !self.with_below(id).iter().any(is_live)
    }

    /// Returns an agent if the caller may know of it: operators all, agents those of their own tree, others what they
    /// drafted and what is below.
    pub fn visible(&self, which: &str, caller: &Caller) -> Result<&Arc<Agent>, Refusal> {
        let unknown = || Refusal::UnknownAgent(which.chars().take(80).collect());
        let agent = self.get(which).ok_or_else(unknown)?;
        if self.is_visible(agent, caller) { Ok(agent) } else { Err(unknown()) }
    }

    pub fn is_visible(&self, agent: &Agent, caller: &Caller) -> bool {
        if caller.kind.may_operate() {
            return true;
        }
        match self.of_caller(caller) {
            Some(own) => own.root == agent.root,
            None => {
                let root = self.by_id.get(&agent.root);
                root.map_or(&agent.drafted_by, |root| &root.drafted_by) == &caller.principal
            }
        }
    }

    /// Returns the agents of a caller's own tree: of an agent all from its root on, of others those that they drafted and
    /// all below.
    pub(crate) fn own_tree(&self, caller: &Caller) -> Vec<&Arc<Agent>> {
        match self.of_caller(caller) {
            Some(own) => {
                let ids = self.with_below(&own.root);
                let known = ids.iter().filter_map(|id| self.by_id.get(id));
                // Its root may have been forgotten by now.
                known.chain([own]).collect()
            }
            None => self.iter().filter(|agent| self.is_visible(agent, caller)).collect(),
        }
    }

    /// Returns an agent if the caller may end it: operators all, others those below them.
    pub(super) fn endable(&self, which: &str, caller: &Caller) -> Result<&Arc<Agent>, Refusal> {
        let agent = self.visible(which, caller)?;
        let below = match self.of_caller(caller).filter(|_| !caller.kind.may_operate()) {
            None => true,
            Some(own) => self.above(agent).any(|above| above.id == own.id),
        };
        if below { Ok(agent) } else { Err(Refusal::UnknownAgent(which.chars().take(80).collect())) }
    }

    /// Returns what is left for one more agent below `parent`, or why there may be none.
    pub(super) fn left(&self, parent: &Arc<Agent>, now: Timestamp) -> Result<Limits, Refusal> {
        let who = || parent.id.to_string();
        if parent.n_children >= parent.draft.limits.children {
            return Err(Refusal::TooManyChildren {
                who: who(),
                limit: parent.draft.limits.children,
            });
        }
        let mut left = parent.draft.limits;
        for above in std::iter::once(parent).chain(self.above(parent)) {
            let (limits, who) = (above.draft.limits, || above.id.to_string());
            if limits.depth <= parent.draft.depth - above.draft.depth {
                return Err(Refusal::TooDeep { depth: parent.draft.depth });
            }
            if above.n_below >= limits.total {
                return Err(Refusal::TotalSpent { who: who(), limit: limits.total });
            }
            if above.n_turns >= limits.turns {
                return Err(Refusal::TurnsSpent { who: who(), limit: limits.turns });
            }
            let time_left = above.deadline.map_or(limits.wall_ms, |deadline| {
                u64::try_from(deadline.0 - now.0).unwrap_or_default()
            });
            if time_left == 0 {
                return Err(Refusal::TimeSpent { who: who() });
            }
            has_means(above)?;
            let spent = &above.spent;
            left = left.within(Limits {
                depth: limits.depth - (parent.draft.depth - above.draft.depth) - 1,
                children: limits.children,
                total: limits.total - above.n_below - 1,
                turns: limits.turns - above.n_turns,
                wall_ms: time_left,
                microdollars: limits.microdollars.map(|limit| limit - spent.microdollars),
                tokens: limits.tokens.map(|limit| limit - spent.tokens()),
            });
        }
        Ok(left)
    }

    pub(super) fn change_with_above(&mut self, id: &AgentId, change: impl Fn(&mut Agent)) {
        for id in std::iter::once(id).chain(&self.ids_above(id)) {
            self.change(id, &change);
        }
    }
}

/// Refuses to go on when the money or the tokens are spent.
pub(super) fn has_means(agent: &Agent) -> Result<(), Refusal> {
    let (limits, spent) = (&agent.draft.limits, &agent.spent);
    let who = || agent.id.to_string();
    match (limits.microdollars, limits.tokens) {
        (Some(limit), _) if spent.microdollars >= limit => {
            Err(Refusal::MoneySpent { who: who(), limit })
        }
        (_, Some(limit)) if spent.tokens() >= limit => {
            Err(Refusal::TokensSpent { who: who(), limit })
        }
        _ => Ok(()),
    }
}
