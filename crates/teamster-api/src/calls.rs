//! Counts of tool calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls, how long they took, and how they failed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tally {
    pub calls: u64,
    /// Median duration in milliseconds.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    #[serde(flatten)]
    pub failures: Failures,
}

/// Calls that did not succeed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Failures {
    pub refused: u64,
    pub failed: u64,
    pub abandoned: u64,
}
