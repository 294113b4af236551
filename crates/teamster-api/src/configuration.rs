//! The configuration: reading it again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Readings {
    /// How often a reading changed or reported something.
    pub readings: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadAgain {
    /// The number of readings that the caller knows of. Changes that the hub noticed by itself since then are reported, too.
    pub after: Option<u64>,
}

/// The result of reading the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reading {
    /// The result in a sentence.
    pub says: String,
    /// The new configuration is in use.
    pub used: bool,
    /// The first changes.
    pub changes: Vec<String>,
    pub n_changes: u64,
    /// The first problems.
    pub problems: Vec<String>,
    pub n_problems: u64,
}
