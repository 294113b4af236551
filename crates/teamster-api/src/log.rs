//! The log: every event, in order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadLog {
    /// The number of the last commit that the caller has; 0 reads from the beginning.
    #[serde(default)]
    pub after: u64,
    /// Maximum commits of the page, 1 to 500; 500 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long to wait for a commit if there is none.
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogPage {
    pub lines: Vec<Line>,
    /// The number of the last commit of the page, for `after`.
    pub last: u64,
}

/// One event, as `teamster log --json` prints it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Line {
    /// The number of the event.
    pub seq: u64,
    /// The number of the commit that it is in.
    pub commit: u64,
    pub at: Millis,
    /// The name of the principal that caused it.
    pub by: String,
    /// The event in a sentence.
    pub summary: String,
    pub run: Option<String>,
    /// The event as it is stored.
    pub event: Value,
}
