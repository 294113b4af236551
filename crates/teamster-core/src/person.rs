//! People: principals who are neither agents nor the hub. A person's name is the principal's name, and their role says what
//! they may do.

use serde::{Deserialize, Serialize};

/// What a person may do here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs the hub: everything that the command line and the operator's API can do.
    Owner,
}

impl Role {
    /// Says whether the person may steer runs and agents, answer questions, and change the configuration.
    pub fn operates(self) -> bool {
        match self {
            Self::Owner => true,
        }
    }
}
