//! Spending: tokens and money that agents used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens and money of several turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Spent {
    /// Tokens; nothing if no program reported them.
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cached_read: Option<u64>,
    pub cached_write: Option<u64>,
    /// Millionths of a dollar, of the turns whose price is known.
    pub microdollars: u64,
    /// Turns whose price is known.
    pub n_priced: u32,
    /// Turns whose price is unknown.
    pub n_unpriced: u32,
    /// Turns that reported no tokens.
    pub n_unreported: u32,
    /// Turns that reported only some of their tokens.
    pub n_partial: u32,
    /// Calls of the model, as far as they are known.
    pub calls: u64,
}
