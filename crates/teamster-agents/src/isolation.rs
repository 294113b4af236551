//! How an agent's processes are held together, which decides what is promised about them, and what this machine offers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What holds an agent's processes together, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Linux: a pid and a mount namespace. All processes end with the first, whatever they did to get away; they see
    /// only each other; and the directories that are masked are empty for them.
    Namespaces,
    /// Linux: orphans come to the launcher, which kills all of its descendants until none is left. Nothing is hidden,
    /// and an agent that kills its launcher gets away, but for processes that still carry the mark of their launch.
    Subreaper,
    /// Any unix: only the program's process group is killed. What leaves the group gets away.
    Group,
}

impl Isolation {
    pub const ALL: [Self; 3] = [Self::Namespaces, Self::Subreaper, Self::Group];

    /// Says whether the masked directories are hidden.
    pub fn masks(self) -> bool {
        self == Self::Namespaces
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Subreaper => "subreaper",
            Self::Group => "group",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A step on the way to a running program, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Subreaper,
    Namespaces,
    Ids,
    Init,
    Group,
    Proc,
    Masks,
    Privileges,
    Files,
    Directory,
    Program,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subreaper => "becoming the parent of orphans",
            Self::Namespaces => "making pid and mount namespaces",
            Self::Ids => "keeping the user in a user namespace",
            Self::Init => "starting the first process of a pid namespace",
            Self::Group => "entering its control group",
            Self::Proc => "mounting a fresh /proc",
            Self::Masks => "masking a directory",
            Self::Privileges => "giving up privileges",
            Self::Files => "writing its private files",
            Self::Directory => "entering the working directory",
            Self::Program => "starting the program",
        })
    }
}

/// A step that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {why}")]
pub struct Failure {
    pub step: Step,
    pub why: String,
}

impl Failure {
    pub(crate) fn at<E: fmt::Display>(step: Step) -> impl FnOnce(E) -> Self {
        move |why| Self { step, why: why.to_string() }
    }
}

/// What was found out by trying: whether each isolation works here, and if not, which step failed and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub namespaces: Result<(), Failure>,
    pub subreaper: Result<(), Failure>,
}

impl Probe {
    /// Returns the strongest isolation that works here.
    pub fn best(&self) -> Isolation {
        match (&self.namespaces, &self.subreaper) {
            (Ok(()), _) => Isolation::Namespaces,
            (Err(_), Ok(())) => Isolation::Subreaper,
            (Err(_), Err(_)) => Isolation::Group,
        }
    }

    /// Returns each thing that agents are held by, and why it does not hold here if it does not.
    pub fn facts(&self) -> [(&'static str, Option<&Failure>); 4] {
        // A step that was reached says that those before it worked.
        let lacking = |needed: Step| self.namespaces.as_ref().err().filter(|at| at.step <= needed);
        [
            ("an agent's processes end together (pid namespace)", lacking(Step::Init)),
            ("an agent sees only its own processes (fresh /proc)", lacking(Step::Proc)),
            ("an agent cannot read the hub's data (masked directory)", lacking(Step::Privileges)),
            ("orphans of an agent are found (subreaper)", self.subreaper.as_ref().err()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_what_holds_up_to_the_step_that_failed() {
        let failure = Failure { step: Step::Proc, why: "not permitted".into() };
        let probe = Probe { namespaces: Err(failure.clone()), subreaper: Ok(()) };
        assert_eq!(probe.best(), Isolation::Subreaper);
        let lacking = probe.facts().map(|(_, why_not)| why_not.cloned());
        assert_eq!(lacking, [None, Some(failure.clone()), Some(failure), None]);
    }
}
