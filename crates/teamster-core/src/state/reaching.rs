//! Boundaries between runs and between trees of agents: which runs and dossiers a token reaches.
//!
//! A token that is bound to a run reaches that run alone, and the dossiers of its own tree. A drafted agent's token is
//! bound when it is created, unless its role says otherwise; a token without a run reaches the whole workspace.

use std::collections::BTreeSet;

use super::{Caller, State};
use crate::agent::{self, Draft};
use crate::dossier::Dossier;
use crate::role::{Reach, Role};
use crate::token::Token;
use crate::{DossierName, RunName};

/// The names of the runs' own dossiers begin with this.
const RUNS_DOSSIER: &str = "run-";

/// Returns the run that an agent's token is bound to. An agent whose role is gone reaches no more than its own.
pub(super) fn run_of(draft: &Draft, role: Option<&Role>) -> Option<RunName> {
    let given = draft.run.as_ref().or(draft.within.as_ref()).cloned();
    given.or_else(|| match role.map(|role| role.reach).unwrap_or_default() {
        Reach::Own => Some(RunName::default_run()),
        Reach::Workspace => None,
    })
}

impl State {
    /// Returns the sentence that refuses a run to a token that is bound to another one.
    pub fn check_run(&self, token: &Token, run: &RunName) -> Result<(), String> {
        match &token.run {
            Some(bound) if bound != run => Err(format!(
                "this token belongs to the run {bound}; use the path /mcp/session/{bound}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the run that a caller's token is bound to, if it is bound.
    pub(super) fn bound_run(&self, caller: &Caller) -> Option<&RunName> {
        match caller.kind.may_operate() {
            true => None,
            false => self.tokens.get(caller.token?)?.run.as_ref(),
        }
    }

    /// Returns the dossiers that a caller reaches, or none if it reaches all.
    pub fn own_dossiers(&self, caller: &Caller) -> Option<BTreeSet<DossierName>> {
        let run = self.bound_run(caller)?;
        let own = self.agents.own_tree(caller).into_iter();
        // A client that is bound to a run has no tree, but a run whose agents have a dossier.
        let of_run = self.dossiers.get(&format!("{RUNS_DOSSIER}{run}"));
        let of_run = of_run.filter(|dossier| self.is_of_run(dossier, run));
        let own = own.map(|agent| agent.draft.dossier.clone());
        Some(own.chain(of_run.map(|dossier| dossier.name.clone())).collect())
    }

    /// Says whether the agents of a run belong to a dossier.
    fn is_of_run(&self, dossier: &Dossier, run: &RunName) -> bool {
        let mut agents = dossier.agents.iter().filter_map(|id| self.agents.get(id.as_str()));
        agents.any(|agent| agent.draft.run.as_ref() == Some(run))
    }

    /// Refuses to put a new agent into a dossier that its drafter does not reach: the agent would see what is in it, and
    /// others would be told what it says.
    pub(super) fn check_dossier(
        &self,
        caller: &Caller,
        dossier: &DossierName,
    ) -> Result<(), agent::Refusal> {
        // Also before it is opened: a run opens its own dossier with its first agent.
        let is_others = self.dossiers.get(dossier.as_str()).is_some()
            || dossier.as_str().starts_with(RUNS_DOSSIER);
        match self.own_dossiers(caller) {
            Some(own) if is_others && !own.contains(dossier) => {
                Err(agent::Refusal::OthersDossier(dossier.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
