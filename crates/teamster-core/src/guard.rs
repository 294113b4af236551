//! When an agent counts as going in circles: limits of its role. What it does is looked at by whoever runs it.

use serde::{Deserialize, Serialize};

/// How often an agent may do the same before it is stopped. 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The same call in a row.
    pub repeats: u32,
    /// Two calls that alternate, counted in pairs.
    pub pairs: u32,
    /// The same error, whatever succeeds in between.
    pub errors: u32,
}

impl Default for Guard {
    fn default() -> Self {
        Self { repeats: 5, pairs: 4, errors: 8 }
    }
}
