//! Hooks: commands that a run starts at certain moments, from the user's file and from the project's. What the project's
//! file says is somebody else's until the user has trusted it (`trust.rs`); `running.rs` starts them.

mod running;
mod shown;
mod trust;

use std::path::Path;

use crate::settings::{self, Configuration, FILE_NAME, Sources};

pub use crate::hook_settings::{CommandLine, Event, HOOKS_MAX, Hook, HookFields};

pub use running::{How, Outcome, Ran, Starter, Values};
pub use shown::{payload, plain, word};
pub use trust::{Stand, Trust, Trusted};

/// As many problems of a project's file as a run tells of.
const PROBLEMS_MAX: usize = 5;
/// The hooks of a run that may run, and what there is to say about those that may not.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    users: HookFields,
    projects: HookFields,
    withheld: Option<String>,
    problems: Vec<String>,
}

impl Hooks {
    /// Returns what may run in a project, which need not be the one that the hub was started in.
    pub fn in_project(configuration: &Configuration, project: &Path, trust: &Trust) -> Self {
        let file = project.join(FILE_NAME);
        if !file.exists() {
            return Self { users: configuration.settings.hooks.clone(), ..Self::default() };
        }
        let sources =
            Sources { project: Some(project.to_owned()), ..configuration.sources.clone() };
        let read = settings::read(&sources);
        let file = file.to_string_lossy();
        let problems = read.problems.iter().filter(|problem| *problem.file == *file);
        let problems = problems.take(PROBLEMS_MAX).map(ToString::to_string).collect();
        // The hub's own project is as the hub has it: what cannot be read at all changes nothing there.
        let is_own = configuration.sources.project.as_deref() == Some(project);
        let hooks = Self::of(if is_own { configuration } else { &read }, project, trust);
        Self { problems, ..hooks }
    }

    /// Returns what may run of a configuration in its project's directory. Reads what is trusted, so it can change from one
    /// call to the next.
    pub fn of(configuration: &Configuration, project: &Path, trust: &Trust) -> Self {
        let users = configuration.settings.hooks.clone();
        let said = &configuration.projects_hooks;
        if said.is_empty() {
            return Self { users, ..Self::default() };
        }
        let why_not = match trust.stand(project, said) {
            Stand::Trusted => return Self { users, projects: said.clone(), ..Self::default() },
            Stand::Changed => {
                ("have changed since they were trusted", "has changed since it was trusted")
            }
            Stand::Unknown => ("are not trusted", "is not trusted"),
        };
        let withheld = Some(withheld(said, project, why_not));
        Self { users, withheld, ..Self::default() }
    }

    /// Returns a sentence about hooks of the project that are not run, and what to do about it.
    pub fn withheld(&self) -> Option<&str> {
        self.withheld.as_deref()
    }

    /// Returns a sentence for each thing that is wrong with the project's file.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns those of a moment: the user's, then the project's.
    fn at(&self, event: Event) -> impl Iterator<Item = &Hook> {
        self.users.at(event).iter().chain(self.projects.at(event))
    }

    /// Says whether anything is to be run at this moment.
    pub fn has(&self, event: Event) -> bool {
        self.at(event).next().is_some()
    }
}

fn withheld(said: &HookFields, project: &Path, why: (&str, &str)) -> String {
    let (directory, n_hooks) = (shown::word(&project.to_string_lossy()), said.iter().count());
    let (hooks, do_not) = match n_hooks {
        1 => ("1 hook".to_owned(), "does not"),
        n => (format!("{n} hooks"), "do not"),
    };
    let why = if n_hooks == 1 { why.1 } else { why.0 };
    format!(
        "{hooks} of this project {why} and {do_not} run; `teamster trust {directory}` shows them and asks you"
    )
}

#[cfg(test)]
mod tests;
