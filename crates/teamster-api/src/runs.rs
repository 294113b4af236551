//! Runs: specs that agents complete in iterations.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spending::Spent;
use crate::words::words;
use crate::{Millis, agents};

words! {
    /// Where a run is: shared (`open`, `complete`), under way (`working`, `paused`, `stopping`), or how it ended.
    #[schemars(rename = "RunPhase")]
    Phase {
        Open = "open",
        Complete = "complete",
        Working = "working",
        Paused = "paused",
        Stopping = "stopping",
        Completed = "completed",
        /// Everything is done, and something that was done is not merged.
        Leftovers = "leftovers",
        IterationsUsed = "iterations-used",
        BudgetSpent = "budget-spent",
        Stopped = "stopped",
        Idle = "idle",
        Failed = "failed",
    }
}

words! {
    /// How far an item is.
    ItemStatus {
        Remaining = "remaining",
        InProgress = "in_progress",
        Completed = "completed",
        Blocked = "blocked",
        Cancelled = "cancelled",
    }
}

words! {
    /// What a note is about.
    NoteKind {
        Learning = "learning",
        Stuck = "stuck",
        Tip = "tip",
        Decision = "decision",
    }
}

/// Items by status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ItemCounts {
    pub remaining: u32,
    pub in_progress: u32,
    pub completed: u32,
    pub blocked: u32,
    pub cancelled: u32,
}

/// A run in a line. What only a run has that the hub works on is nothing for others.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunLine {
    pub name: String,
    pub phase: Phase,
    /// Why it ended.
    pub why: Option<String>,
    /// The hub is working on it.
    pub under_way: bool,
    pub items: ItemCounts,
    pub complete: bool,
    /// The spec.
    pub file: Option<String>,
    pub directory: Option<String>,
    pub program: Option<String>,
    pub model: Option<String>,
    pub workers: Option<u32>,
    /// Iterations so far, without the plan.
    pub iterations: Option<u32>,
    pub iterations_max: Option<u32>,
    pub next_iteration: u32,
    /// The iteration that it is in, or was in last.
    pub iteration: Option<u32>,
    pub failed: Option<u32>,
    pub commits: Option<u32>,
    pub is_planned: Option<bool>,
    /// When it began first.
    pub begun_at: Option<Millis>,
    pub resumes: Option<u32>,
    /// When it was resumed last.
    pub resumed_at: Option<Millis>,
    /// How long it was under way until it ended last.
    pub worked_ms: Option<u64>,
    pub since_resumed: Option<SinceResumed>,
    /// What its ended iterations cost.
    pub spent: Option<Spent>,
    /// The same with the iterations under way.
    pub spent_now: Option<Spent>,
    pub budget_microdollars: Option<u64>,
    pub queued_messages: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SinceResumed {
    pub iterations: u32,
    pub spent: Spent,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListedRun {
    #[serde(flatten)]
    pub line: RunLine,
    pub ended_at: Option<Millis>,
}

impl Deref for ListedRun {
    type Target = RunLine;

    fn deref(&self) -> &RunLine {
        &self.line
    }
}

/// A run with its items, notes and iterations: the most urgent 500 items, the newest 100 notes and iterations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Run {
    #[serde(flatten)]
    pub line: RunLine,
    pub item_list: Vec<Item>,
    pub notes: Vec<Note>,
    /// Iterations under way.
    pub open: Vec<OpenIteration>,
    /// Workers without an iteration.
    pub waiting: Vec<WaitingWorker>,
    /// Iterations that ended, newest first.
    pub ended: Vec<EndedIteration>,
    /// Messages that no iteration was told yet.
    pub messages: Option<Vec<Message>>,
    pub warnings: Option<Vec<Warning>>,
    /// The number of the last event that this includes the effect of.
    pub seq: u64,
}

impl Deref for Run {
    type Target = RunLine;

    fn deref(&self) -> &RunLine {
        &self.line
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShownRun {
    #[serde(flatten)]
    pub run: Run,
    /// The last commit of the log before this view was made; from here on the log reports what changes it.
    pub commit: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BegunRun {
    #[serde(flatten)]
    pub run: Run,
    /// Why nothing is committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<String>,
    /// Reports that the spec is another one than at the beginning.
    pub spec_changed: Option<String>,
    /// The last commit of the log before it began.
    pub commit: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Item {
    pub id: String,
    pub content: String,
    pub status: ItemStatus,
    /// 0 (critical) to 4 (backlog).
    pub priority: u8,
    pub iteration: u32,
    pub depends_on: Vec<String>,
    pub holder: Option<String>,
    /// The branch that it merges.
    pub branch: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Note {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: NoteKind,
    pub content: String,
    pub iteration: u32,
    pub by: String,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpenIteration {
    pub number: u32,
    /// From 0.
    pub worker: u32,
    pub agent: String,
    /// It only makes the plan.
    pub plans: bool,
    pub item: Option<String>,
    pub begun_at: Millis,
    pub agent_phase: Option<agents::Phase>,
    pub spent: Option<Spent>,
    /// Why its agent is not started yet.
    pub waits_for: Option<String>,
    pub waits_until: Option<Millis>,
    /// Why its agent does not continue.
    pub held_up: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitingWorker {
    /// From 0.
    pub worker: u32,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EndedIteration {
    pub number: u32,
    pub worker: u32,
    pub agent: String,
    pub plans: bool,
    pub item: Option<String>,
    pub begun_at: Millis,
    pub ended_at: Millis,
    pub commit: Option<String>,
    pub failed: Option<String>,
    pub spent: Spent,
    pub summary: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RunMessage")]
pub struct Message {
    pub number: u32,
    pub text: String,
}

/// Something that you should know of a run, though it continues.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Warning {
    pub number: u32,
    pub says: String,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowRun {
    /// The number of the last event that the caller has seen the effect of.
    #[serde(default)]
    pub after: u64,
    /// How long to wait for a change.
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    pub name: String,
    /// The text of the spec.
    pub spec: String,
    /// Where it was read.
    pub file: String,
    pub directory: String,
    /// Resume a run with the terms that it had, unless others are given. What was spent stays spent.
    #[serde(default)]
    pub resume: bool,
    pub program: Option<String>,
    pub model: Option<String>,
    pub role: Option<String>,
    pub iterations: Option<u32>,
    pub workers: Option<u32>,
    pub microdollars: Option<u64>,
    pub commits: Option<bool>,
    /// A program and its arguments that must succeed before a worker's changes are merged.
    pub check: Option<Vec<String>>,
    pub template: Option<String>,
    pub plan_template: Option<String>,
    /// What else its agents are told.
    pub extra: Option<String>,
}

/// Changes the course of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "do")]
pub enum Steer {
    /// Tells the next iteration something.
    Tell { text: String },
    /// Begins nothing new.
    Pause,
    /// Continues after a pause.
    GoOn,
    /// Stops after the iterations under way, or at once.
    Stop { now: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Also remove work that is not merged.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ForgottenRun {
    pub name: String,
    /// False if there was no such run.
    pub forgotten: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removed>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Removed {
    pub branches: Vec<String>,
    pub refs: Vec<String>,
    pub worktrees: Vec<String>,
    /// What could not be removed, and why.
    pub kept: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditItem {
    /// The item to change; a new one if it is left out.
    pub item: Option<String>,
    pub content: Option<String>,
    /// `remaining`, `in_progress`, `completed`, `blocked` or `cancelled`.
    pub status: Option<String>,
    pub priority: Option<i64>,
    /// Another item that must be done first.
    pub depends_on: Option<String>,
    /// A yak to make an item of.
    pub yak: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditNote {
    /// The note to change or remove; a new one if it is left out.
    pub note: Option<String>,
    pub content: Option<String>,
    /// `learning`, `stuck`, `tip` or `decision`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub remove: bool,
}
