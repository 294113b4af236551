//! Hooks: commands that a run starts at certain moments, from the user's file and from the project's. What the project's
//! file says is somebody else's until the user has trusted it (`trust.rs`); `running.rs` starts them.

mod running;
mod shown;
mod trust;

use std::path::Path;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use crate::settings::{self, Configuration, FILE_NAME, Node, Problem, Sources, Value, Whole};

pub use running::{How, Outcome, Ran, Starter, Values};
pub use shown::{payload, plain, word};
pub use trust::{Stand, Trust, Trusted};

/// As many problems of a project's file as a run tells of.
const PROBLEMS_MAX: usize = 5;
/// As many hooks as one moment may have in one file: they run one after the other, and all wait for them.
pub const HOOKS_MAX: usize = 10;

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    SessionStart,
    PreIteration,
    PostIteration,
    SessionEnd,
    OnItemComplete,
    OnError,
}

impl Event {
    pub const ALL: [Self; 6] = [
        Self::SessionStart,
        Self::PreIteration,
        Self::PostIteration,
        Self::SessionEnd,
        Self::OnItemComplete,
        Self::OnError,
    ];

    /// Returns its key in a configuration file.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "session_start",
            Self::PreIteration => "pre_iteration",
            Self::PostIteration => "post_iteration",
            Self::SessionEnd => "session_end",
            Self::OnItemComplete => "on_item_complete",
            Self::OnError => "on_error",
        }
    }
}

/// What one file says of hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HookFields {
    /// What is run when a run starts or goes on, each with `command`, `timeout_s` and `pipe_output`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub session_start: Vec<Hook>,
    /// Before each iteration
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub pre_iteration: Vec<Hook>,
    /// After each iteration
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub post_iteration: Vec<Hook>,
    /// When a run ends
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub session_end: Vec<Hook>,
    /// When an item was completed
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub on_item_complete: Vec<Hook>,
    /// When an agent failed
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = HOOKS_MAX))]
    pub on_error: Vec<Hook>,
}

impl HookFields {
    /// Returns the hooks of a moment in the order in which they run.
    pub fn at(&self, event: Event) -> &[Hook] {
        match event {
            Event::SessionStart => &self.session_start,
            Event::PreIteration => &self.pre_iteration,
            Event::PostIteration => &self.post_iteration,
            Event::SessionEnd => &self.session_end,
            Event::OnItemComplete => &self.on_item_complete,
            Event::OnError => &self.on_error,
        }
    }

    /// Returns all hooks with their moments.
    pub fn iter(&self) -> impl Iterator<Item = (Event, &Hook)> {
        Event::ALL
            .into_iter()
            .flat_map(|event| self.at(event).iter().map(move |hook| (event, hook)))
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hook {
    /// A program and its arguments; no shell reads them
    pub command: CommandLine,
    /// How long it may take before it is ended with all that it started
    pub timeout_s: Whole<1, 3_600>,
    /// Whether the next agent is told what it printed
    pub pipe_output: bool,
}

impl Default for Hook {
    fn default() -> Self {
        let timeout_s = const { Whole::new(30) };
        Self { command: CommandLine::default(), timeout_s, pipe_output: false }
    }
}

/// A program and its arguments. One that cannot be read is none at all: without one of its words it would be another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct CommandLine(#[schemars(length(min = 1, max = 1_000))] Vec<String>);

/// The kernel has a limit for all words together; this is more than anybody writes.
const WORDS_MAX: usize = 1_000;

impl CommandLine {
    /// Returns the command if these words are one.
    pub fn of(words: Vec<String>) -> Option<Self> {
        let (program, _) = words.split_first()?;
        let fits = !program.trim().is_empty()
            && words.len() <= WORDS_MAX
            && !words.iter().any(|word| word.contains('\0'));
        fits.then_some(Self(words))
    }

    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |word: Json| if let Json::String(word) = word { Some(word) } else { None };
        let words = match Json::deserialize(deserializer)? {
            Json::Array(words) => words.into_iter().map(text).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        words.and_then(Self::of).ok_or_else(|| {
            D::Error::custom(r#"expected a program and its arguments as a list of texts, such as ["make", "check"]"#)
        })
    }
}

/// Makes a list of a moment that has one hook, and takes out what are too many.
pub(crate) fn tidy(tree: &mut Node, problems: &mut Vec<Problem>) {
    let Some(hooks) = tree.member_mut("hooks") else { return };
    for event in Event::ALL.map(Event::name) {
        let Some(said) = hooks.member_mut(event) else { continue };
        if let Value::Table(_) = &said.value {
            let one = said.clone();
            said.value = Value::List(vec![one]);
        }
        if let Value::List(list) = &mut said.value
            && let Some(too_many) = list.get(HOOKS_MAX)
        {
            let says = format!("hooks.{event}: only the first {HOOKS_MAX} hooks are used");
            problems.push(Problem::new(&too_many.at, says));
            list.truncate(HOOKS_MAX);
        }
    }
}

/// Takes hooks out that do not say what to run.
pub(crate) fn leave_out_incomplete(tree: &mut Node, problems: &mut Vec<Problem>) {
    let Some(hooks) = tree.member_mut("hooks") else { return };
    for event in Event::ALL.map(Event::name) {
        let Some(Value::List(list)) = hooks.member_mut(event).map(|said| &mut said.value) else {
            continue;
        };
        list.retain(|hook| {
            let is_complete = hook.member("command").is_some();
            if !is_complete {
                let says = format!("hooks.{event}: a hook without a command is left out");
                problems.push(Problem::new(&hook.at, says));
            }
            is_complete
        });
    }
}

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
