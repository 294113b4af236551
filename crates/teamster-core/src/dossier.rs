//! Dossiers: what the harness calls a task. A dossier groups agents that were drafted for one purpose, so that later ones
//! are told what earlier ones found.

use std::fmt::Write as _;
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentId, Agents};
use crate::compaction::Fate;
use crate::run::Runs;
use crate::text::beginning;
use crate::{DossierName, Record, Summary, Timestamp};

/// As many dossiers as a workspace may have.
pub const DOSSIERS_MAX: usize = 100_000;
/// As much of earlier results as an agent is told: what it can read at once, beside its own task.
pub const CONTEXT_BYTES_MAX: usize = 32 * 1024;
/// As much as is kept of the prompt that a dossier was opened with.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Maximum iteration summaries in a context, the newest.
const SUMMARIES_MAX: usize = 10;
/// Maximum bytes of one of them.
const SUMMARY_BYTES_MAX: usize = 700;
/// Maximum bytes of the request in a context: quoting makes it longer.
const QUOTED_BYTES_MAX: usize = 18 * 1024;
/// A dossier's name begins with this many words of the first prompt.
const WORDS_MAX: usize = 5;
const WORDS_BYTES_MAX: usize = 30;
/// Words that say nothing about a task.
const STOP_WORDS: [&str; 24] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "into", "is", "it", "of",
    "on", "or", "please", "that", "the", "this", "to", "with", "you",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dossier {
    pub name: DossierName,
    /// The first line of the prompt that it was opened with.
    pub description: Arc<str>,
    /// That prompt, if it is longer.
    pub request: Option<Arc<str>>,
    pub opened_at: Timestamp,
    /// Oldest first.
    pub agents: Vector<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Opened {
        name: DossierName,
        description: Arc<str>,
        /// The whole prompt, if the description is only a part of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<Arc<str>>,
    },
}

/// The view of all dossiers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dossiers {
    by_name: OrdMap<DossierName, Arc<Dossier>>,
    /// Oldest first.
    names: Vector<DossierName>,
}

impl Dossiers {
    pub fn get(&self, name: &str) -> Option<&Arc<Dossier>> {
        self.by_name.get(&DossierName::parse(name).ok()?)
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the dossiers after the first `n`, oldest first.
    pub fn after(&self, n: usize) -> impl Iterator<Item = &Arc<Dossier>> {
        self.names.iter().skip(n).filter_map(|name| self.by_name.get(name))
    }

    /// Returns the event that opens a dossier of this name, unless there is one.
    pub(crate) fn open(&self, name: &DossierName, prompt: &str) -> Option<Event> {
        let prompt = prompt.trim();
        let line = prompt.lines().next().unwrap_or_default();
        let description: Arc<str> = line.chars().take(200).collect::<String>().into();
        let request = (*description != *prompt).then(|| beginning(prompt, REQUEST_BYTES_MAX));
        (!self.by_name.contains_key(name)).then(|| Event::Opened {
            name: name.clone(),
            description,
            request,
        })
    }

    /// Returns a name for a dossier that is opened with this prompt: its first words, and a number.
    pub(crate) fn new_name(&self, prompt: &str) -> DossierName {
        let mut name = String::new();
        let words = prompt.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
            !word.is_empty() && !STOP_WORDS.contains(&word.to_ascii_lowercase().as_str())
        });
        for word in words.take(WORDS_MAX) {
            if name.len() + word.len() > WORDS_BYTES_MAX {
                break;
            }
            name.push_str(&word.to_ascii_lowercase());
            name.push('-');
        }
        // Names of runs' own dossiers begin with `run-`.
        if name.is_empty() || name.starts_with("run-") {
            name.insert_str(0, "task-");
        }
        let numbered = (self.names.len() + 1..).map(|n| DossierName::new(format!("{name}{n}")));
        numbered
            .into_iter()
            .find(|name| !self.by_name.contains_key(name))
            .unwrap_or_else(|| unreachable!("there are more numbers than dossiers"))
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        let Event::Opened { name, description, request } = event;
        let dossier = Dossier {
            name: name.clone(),
            description: description.clone(),
            request: request.clone(),
            opened_at: record.at,
            agents: Vector::new(),
        };
        self.by_name.insert(name.clone(), Arc::new(dossier));
        self.names.push_back(name.clone());
    }

    /// Notes that an agent was drafted for a dossier.
    pub(crate) fn add(&mut self, name: &DossierName, agent: &AgentId) {
        if let Some(dossier) = self.by_name.get_mut(name) {
            Arc::make_mut(dossier).agents.push_back(agent.clone());
        }
    }
}

impl Dossier {
    /// Tells what was asked and what came of it, in at most [`CONTEXT_BYTES_MAX`] bytes; the newest results stay.
    pub fn context(&self, agents: &Agents, runs: &Runs) -> String {
        // Quoted, so that nothing in it looks like a part of this text.
        let request = self.request.as_ref().unwrap_or(&self.description).replace('\n', "\n> ");
        let request = beginning(&request, QUOTED_BYTES_MAX);
        let mut head = format!("## Task History\n\n### Original Request\n> {request}\n");
        head.push_str(&self.iterations(agents, runs));
        let mut room = CONTEXT_BYTES_MAX.saturating_sub(head.len() + 200);
        let mut parts = Vec::new();
        let mut n_left_out = 0;
        for agent in self.agents.iter().rev().filter_map(|id| agents.get(id.as_str())) {
            let Some(part) = told(agent) else { continue };
            if part.len() > room {
                n_left_out += 1;
                room = 0;
            } else {
                room -= part.len();
                parts.push(part);
            }
        }
        let mut text = head;
        if !parts.is_empty() || n_left_out > 0 {
            text.push_str("\n### Previous Work\n");
        }
        if n_left_out > 0 {
            let _ =
                writeln!(text, "\n({n_left_out} earlier results are left out for their length)");
        }
        text.extend(parts.into_iter().rev());
        text
    }
}

impl Dossier {
    /// Returns what the iterations of a run wrote down for those after them, if the dossier is a run's.
    fn iterations(&self, agents: &Agents, runs: &Runs) -> String {
        let newest = self.agents.iter().rev().find_map(|id| agents.get(id.as_str()));
        let Some(run) = newest.and_then(|agent| agent.draft.run.as_ref()) else {
            return String::new();
        };
        let iterations = &runs.get(run).iterations;
        let newest: Vec<_> = iterations.summaries().rev().take(SUMMARIES_MAX).collect();
        if newest.is_empty() {
            return String::new();
        }
        let mut text = "\n### Iterations\n".to_owned();
        for (number, summary) in newest.iter().rev() {
            let said = beginning(&summary.text.replace('\n', "\n  "), SUMMARY_BYTES_MAX);
            let _ = writeln!(text, "- #{number} ({}): {said}", summary.by);
        }
        text
    }
}

/// Tells what came of one agent, if it has ended.
fn told(agent: &Agent) -> Option<String> {
    let outcome = agent.outcome.as_ref()?;
    let mut text = format!("\n**{}** ({}, {})\n", agent.role, agent.id, outcome.status.as_str());
    // Indented, so that nothing in it looks like a part of this text, or of the task that follows it.
    let indented = |text: &str| text.replace('\n', "\n  ");
    let _ = writeln!(text, "Summary: {}", indented(&outcome.summary));
    for (title, entries) in [
        ("Changes", &outcome.changes),
        ("Issues", &outcome.issues),
        ("Questions", &outcome.questions),
    ] {
        if !entries.is_empty() {
            let _ = writeln!(text, "{title}:");
            entries.iter().for_each(|entry| {
                let _ = writeln!(text, "- {}", indented(entry));
            });
        }
    }
    Some(text)
}

impl Event {
    pub(crate) fn fate(&self) -> Fate {
        Fate::Kept
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        let Self::Opened { description, request, .. } = self;
        description.len() + request.as_ref().map_or(0, |request| request.len())
    }

    pub(crate) fn summary(&self) -> Summary {
        let Self::Opened { name, description, .. } = self;
        Summary::new("add", format!("dossier {name} opened: {description}"))
    }
}
