//! The whole workspace at a glance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::agents::{Isolation, Phase, Verdict};
use crate::questions::Question;
use crate::runs::ListedRun;
use crate::spending::Spent;
use crate::teams::Team;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowTop {
    /// The number of the last event that the caller has seen the effect of.
    #[serde(default)]
    pub after: u64,
    /// The number of records that there were by then.
    #[serde(default)]
    pub records: u64,
    /// How long to wait for an event or a record.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Agents, runs, teams and questions in one answer. Agents and runs are bounded; their own lists have all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Top {
    pub seq: u64,
    /// How many records agents have written since the hub started.
    pub records: u64,
    pub agents: Vec<TopAgent>,
    pub runs: Vec<ListedRun>,
    pub teams: Vec<Team>,
    /// The open questions.
    pub questions: Vec<Question>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopAgent {
    pub id: String,
    pub phase: Phase,
    pub role: String,
    pub isolation: Option<Isolation>,
    pub program: Option<String>,
    pub turns: u32,
    pub used: Spent,
    pub parked_until: Option<Millis>,
    pub status: Option<Verdict>,
    /// What it said or did last, or waits for.
    pub doing: Option<String>,
}
