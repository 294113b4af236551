//! The terms on which agents work on a run, and how a person's request and the earlier terms become them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Drive, Refusal};
use crate::role::Role;
use crate::run::Run;
use crate::text;

/// Maximum length of a spec.
pub const SPEC_BYTES_MAX: usize = 256 * 1024;
/// Maximum length of each template and of the additional instructions.
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a check, all words together.
pub const CHECK_BYTES_MAX: usize = 4_096;
pub const WORKERS_MAX: u32 = 16;

/// The terms of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub spec: Arc<str>,
    /// Where it was read.
    pub file: Arc<str>,
    /// Where its agents work, or what their worktrees are of.
    pub directory: Arc<str>,
    /// How its agents behave.
    pub behaviour: Arc<Role>,
    /// How many iterations it may have from now on, the plan not counted; as many as it takes if none.
    pub iterations: Option<u32>,
    pub workers: u32,
    /// How many millionths of a dollar it may cost from now on.
    pub microdollars: Option<u64>,
    /// What an iteration has changed is committed.
    pub commits: bool,
    /// The check: a program and its arguments. With several workers, it must succeed before a worker's work is merged.
    pub check: Vec<Arc<str>>,
    /// The prompt of each iteration, if it is not the usual one.
    pub template: Option<Arc<str>>,
    /// What else its agents are told.
    pub extra: Arc<str>,
    /// The prompt of the iteration that makes the plan, if it is not the usual one.
    #[serde(default)]
    pub plan_template: Option<Arc<str>>,
    /// The root of the git repository that its agents commit in. Older hubs did not record it.
    #[serde(default)]
    pub repository: Option<Arc<str>>,
}

/// A git repository as the hub finds it when a run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    pub root: Arc<str>,
    pub has_commit: bool,
    /// HEAD is on a branch.
    pub is_on_branch: bool,
}

/// A person's request to begin or resume a run. A resumed run keeps its earlier terms where the request names none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub resumes: bool,
    pub spec: Arc<str>,
    pub file: Arc<str>,
    pub directory: Arc<str>,
    /// Absent only for a resumed run that keeps its agents' behaviour.
    pub behaviour: Option<Arc<Role>>,
    pub iterations: Option<u32>,
    pub workers: Option<u32>,
    pub microdollars: Option<u64>,
    pub commits: Option<bool>,
    pub check: Option<Vec<Arc<str>>>,
    pub template: Option<Arc<str>>,
    pub plan_template: Option<Arc<str>>,
    pub extra: Option<Arc<str>>,
    /// The repository that the directory is in. The hub looks for one only if the run [commits](Request::commits).
    pub repository: Option<Repository>,
}

impl Request {
    /// Returns how the run was worked on before, if this request resumes it.
    fn earlier<'a>(&self, run: &'a Run) -> Option<&'a Drive> {
        run.drive.as_ref().filter(|_| self.resumes)
    }

    /// Returns the terms that this request resumes on, if it does.
    pub fn before<'a>(&self, run: &'a Run) -> Option<&'a Arc<Terms>> {
        self.earlier(run).map(|drive| &drive.terms)
    }

    /// Says whether the run's work will be committed.
    pub fn commits(&self, run: &Run) -> bool {
        self.commits.or_else(|| self.before(run).map(|terms| terms.commits)).unwrap_or(true)
    }

    /// Returns the terms of the run from now on, or why there can be none.
    pub(super) fn terms(&self, run: &Run) -> Result<Terms, Refusal> {
        self.check_texts()?;
        let drive = self.earlier(run);
        let before = drive.map(|drive| &*drive.terms);
        let workers = self.workers.or_else(|| before.map(|terms| terms.workers)).unwrap_or(1);
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(Refusal::Workers);
        }
        let commits = self.commits(run);
        let repository = self.repository.as_ref().filter(|_| commits);
        if workers > 1 {
            if !repository.is_some_and(|repository| repository.has_commit) {
                return Err(Refusal::NoRepository);
            }
            if !repository.is_some_and(|repository| repository.is_on_branch) {
                return Err(Refusal::NoBranch);
            }
        }
        let behaviour = self.behaviour.as_ref().or(before.map(|terms| &terms.behaviour));
        let behaviour = behaviour.filter(|behaviour| !behaviour.program.is_empty());
        let inherit =
            |field: fn(&Terms) -> &Option<Arc<str>>| before.and_then(|it| field(it).clone());
        Ok(Terms {
            spec: text::long("spec", &self.spec, SPEC_BYTES_MAX)?,
            file: self.file.clone(),
            directory: self.directory.clone(),
            behaviour: behaviour.ok_or(Refusal::NoProgram)?.clone(),
            iterations: self.iterations.or_else(|| iterations_left(drive?)),
            workers,
            microdollars: match (self.microdollars, drive) {
                (None, Some(drive)) => budget_left(drive)?,
                (microdollars, _) => microdollars,
            },
            commits,
            check: self
                .check
                .clone()
                .or_else(|| before.map(|terms| terms.check.clone()))
                .unwrap_or_default(),
            template: self.template.clone().or_else(|| inherit(|terms| &terms.template)),
            extra: self
                .extra
                .clone()
                .or_else(|| before.map(|terms| terms.extra.clone()))
                .unwrap_or_default(),
            plan_template: self
                .plan_template
                .clone()
                .or_else(|| inherit(|terms| &terms.plan_template)),
            repository: repository.map(|repository| repository.root.clone()),
        })
    }

    /// Refuses texts that no run can have. The hub asks before it looks for what they name.
    pub fn check_texts(&self) -> Result<(), Refusal> {
        let templates = [&self.template, &self.plan_template].into_iter().flatten();
        if templates.clone().any(|text| text.trim().is_empty()) {
            return Err(Refusal::EmptyTemplate);
        }
        let words = || self.check.iter().flatten();
        let is_long = templates.chain(&self.extra).any(|text| text.len() > TEMPLATE_BYTES_MAX)
            || words().map(|word| word.len()).sum::<usize>() > CHECK_BYTES_MAX;
        if is_long || words().any(|word| word.contains('\0')) {
            return Err(Refusal::TooLong);
        }
        // No shell reads the check, so these would be arguments of its program.
        let is_shells = |word: &&Arc<str>| matches!(&***word, "&&" | "||" | "|" | ";" | ">");
        match words().find(is_shells) {
            Some(word) => Err(Refusal::ShellWord(word.clone())),
            None => Ok(()),
        }
    }
}

/// Returns how many iterations a resumed run has left. If it has used all of them, the person wants more: no limit.
fn iterations_left(drive: &Drive) -> Option<u32> {
    let left = drive.terms.iterations?.checked_sub(drive.n_iterations);
    left.filter(|left| *left > 0)
}

/// Returns the rest of a resumed run's budget. More money needs a person's word.
fn budget_left(drive: &Drive) -> Result<Option<u64>, Refusal> {
    let spent = drive.spent.microdollars;
    match drive.terms.microdollars.map(|budget| budget.saturating_sub(spent)) {
        Some(0) => Err(Refusal::BudgetSpent),
        left => Ok(left),
    }
}

/// Which agents a person wants for a run: a role, a program, a model of that program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedAgents {
    pub role: Option<String>,
    pub program: Option<String>,
    pub model: Option<String>,
}

impl WantedAgents {
    /// The role's name where the person names none.
    pub const NO_ROLE: &str = "worker";

    /// Says whether the person names anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Fills in unnamed fields from the agents that worked on the run before. A model belongs to its program, and both
    /// belong to the role.
    pub fn or_as_before(self, before: Option<&Role>) -> Self {
        let Some(before) = before.filter(|_| self.role.is_none()) else { return self };
        let is_same = self.program.as_deref().is_none_or(|program| program == &*before.program);
        let name = before.name.as_str();
        Self {
            role: (name != Self::NO_ROLE).then(|| name.to_owned()),
            program: Some(self.program.unwrap_or_else(|| before.program.to_string())),
            model: self
                .model
                .or_else(|| before.model.as_deref().filter(|_| is_same).map(str::to_owned)),
        }
    }
}

#[cfg(test)]
mod tests;
