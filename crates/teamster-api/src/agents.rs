//! Agents: drafted, adopted, resumed, and their transcripts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Millis;
use crate::calls::{Failures, Tally};
use crate::spending::Spent;
use crate::words::words;

words! {
    /// Where an agent is in its life.
    #[schemars(rename = "AgentPhase")]
    Phase {
        Queued = "queued",
        Running = "running",
        /// A person runs it.
        Adopted = "adopted",
        /// It has no process and can be woken.
        Asleep = "asleep",
        Ending = "ending",
        Ended = "ended",
    }
}

words! {
    /// How an agent ended.
    Ending {
        Completed = "completed",
        Aborted = "aborted",
        Crashed = "crashed",
        TimedOut = "timed_out",
    }
}

words! {
    /// What an agent reports of its own work.
    Verdict {
        Success = "success",
        Partial = "partial",
        Failed = "failed",
        Blocked = "blocked",
    }
}

words! {
    /// How an agent is isolated.
    Isolation {
        Namespaces = "namespaces",
        /// Orphans are found and ended; nothing is hidden from the agent.
        Subreaper = "subreaper",
        /// The process group is ended; nothing is hidden from the agent.
        Group = "group",
        /// The agent runs on another machine, where this hub isolates nothing.
        Remote = "remote",
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Agent {
    pub id: String,
    pub role: String,
    pub dossier: String,
    pub phase: Phase,
    /// The agent that drafted it.
    pub parent: Option<String>,
    pub drafted_by: String,
    pub drafted_at: Millis,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub directory: String,
    /// How often it was started.
    pub incarnation: u32,
    /// Its program's name for the session.
    pub session: Option<String>,
    pub isolation: Option<Isolation>,
    /// Another process can resume its session.
    pub can_resume: bool,
    /// Turns that it and the agents below it have had.
    pub turns: u32,
    /// How many agents were drafted below it.
    pub below: u32,
    pub limits: Limits,
    /// What it used itself.
    pub used: Spent,
    /// What it and the agents below it used.
    pub spent: Spent,
    /// Its account's limit is reached until then.
    pub parked_until: Option<Millis>,
    pub outcome: Option<Outcome>,
    pub duration_ms: Option<i64>,
    /// Why it is not started yet.
    pub waits_for: Option<String>,
    pub waits_until: Option<Millis>,
}

/// Limits of an agent and everything below it. Nothing is no limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Generations of agents below it.
    pub depth: u32,
    /// Agents that it may have under way at once.
    pub children: u32,
    /// Agents that may be drafted below it.
    pub total: u32,
    pub turns: Option<u32>,
    pub wall_ms: Option<u64>,
    pub microdollars: Option<u64>,
    pub tokens: Option<u64>,
}

/// The result of an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Outcome {
    pub ending: Ending,
    pub status: Verdict,
    pub summary: String,
    pub changes: Vec<String>,
    pub issues: Vec<String>,
    pub questions: Vec<String>,
    /// Nothing if the program did not report it.
    pub cost_microdollars: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    pub role: String,
    /// Its task.
    pub prompt: String,
    /// The dossier that it belongs to; a new one if it is left out.
    pub dossier: Option<String>,
    /// Where it works; as its role says if it is left out.
    pub directory: Option<String>,
    #[serde(default)]
    pub limits: DraftLimits,
}

/// Limits of a draft. The role sets the limits that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DraftLimits {
    pub turns: Option<u32>,
    pub wall_ms: Option<u64>,
    pub microdollars: Option<u64>,
    pub tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DraftedAgent {
    #[serde(flatten)]
    pub agent: Agent,
    /// Why it may not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// An agent that a person runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub role: String,
    pub directory: String,
    /// Its program's name for the session, so that the hub can resume it later.
    pub session: Option<String>,
    pub dossier: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdoptedAgent {
    pub agent: Agent,
    /// The secret of its token, shown only once.
    pub secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// What an adopted agent is prompted with.
    pub prompt: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentDetails {
    #[serde(flatten)]
    pub agent: Agent,
    pub prompt: String,
    /// The machine that it runs on, if it is another one.
    pub remote: Option<String>,
    /// Its calls of the hub's tools since the hub started; nothing if it made none.
    pub calls: Option<AgentCalls>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentCalls {
    #[serde(flatten)]
    pub tally: Tally,
    pub tools: Vec<AgentToolCalls>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentToolCalls {
    pub set: String,
    pub tool: String,
    pub calls: u64,
    #[serde(flatten)]
    pub failures: Failures,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTranscript {
    /// The number of the last record that the caller has.
    #[serde(default)]
    pub after: u64,
    /// Maximum records of the page, 1 to 200; 200 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long to wait for a record if there is none and the agent has not ended.
    #[serde(default)]
    pub wait_ms: u64,
    /// Leave out records from before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Transcript {
    /// The records as they are stored.
    pub records: Vec<Value>,
    /// The number of the last record of the page, for `after`.
    pub last: u64,
    /// The agent has not ended.
    pub live: bool,
    /// The records up to this number were removed.
    pub forgotten: u64,
}
