//! What files say of hooks: for each moment of a run, the commands to start.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use crate::reading::{Node, Problem, Value, Whole};

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
