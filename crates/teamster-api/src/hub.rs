//! The hub itself: its state at a glance, its isolation, and its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::agents::Isolation;
use crate::calls::Tally;
use crate::runs::{self, ItemCounts};
use crate::spending::Spent;

/// The state of the hub at a glance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "HubStatus")]
pub struct Status {
    pub version: String,
    pub pid: u32,
    /// The number of the last event.
    pub events: u64,
    /// When the hub started.
    pub since: Millis,
    /// How often a hub was started for this data directory.
    pub starts: u64,
    pub runs: Vec<RunAtAGlance>,
    pub teams: TeamCounts,
    pub yaks: YakCounts,
    /// Live tokens.
    pub tokens: usize,
    pub agents: AgentCounts,
    /// Open questions.
    pub questions: usize,
    /// Tokens and money that the agents used.
    pub used: Spent,
    /// Calls that wait for something to happen.
    pub waiting: usize,
    /// Why the hub does not answer calls, if it does not.
    pub stalled: Option<String>,
    pub calls: Calls,
    /// How agents are isolated; nothing before the hub knows.
    pub isolation: Option<Isolation>,
    /// Agents are not started, because they could not be isolated as required.
    pub agents_refused: bool,
}

/// A run in a line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunAtAGlance {
    pub name: String,
    pub items: ItemCounts,
    pub notes: usize,
    pub iteration: Option<u32>,
    pub complete: bool,
    pub phase: runs::Phase,
    /// The hub is working on it.
    pub under_way: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TeamCounts {
    pub known: usize,
    pub awake: usize,
}

/// Yaks by status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct YakCounts {
    pub hairy: u32,
    pub shaving: u32,
    pub shorn: u32,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentCounts {
    pub active: usize,
    pub queued: usize,
    pub adopted: usize,
    pub parked: usize,
    /// What queued agents wait for, each thing once.
    pub wait_for: Vec<String>,
}

/// Tool calls since the hub started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Calls {
    pub tools: Vec<ToolCalls>,
    pub roles: Vec<RoleCalls>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolCalls {
    #[serde(flatten)]
    pub tally: Tally,
    pub set: String,
    pub tool: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoleCalls {
    #[serde(flatten)]
    pub tally: Tally,
    pub role: String,
}

/// How agents are isolated on this machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IsolationReport {
    pub isolation: Isolation,
    /// Why it is not better.
    pub failure: Option<String>,
    /// The configuration requires namespaces.
    pub required: bool,
    pub warnings: Vec<String>,
}

/// The hub is stopping.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stopping {
    /// Its process.
    pub stopping: u32,
}
