//! What kept an agent's processes apart from the rest of the machine when they were started.

use serde::{Deserialize, Serialize};

/// How an incarnation of an agent was isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Its own processes and mounts: it sees neither the hub's processes nor its data.
    Namespaces,
    /// Its orphans are found and ended. Nothing is hidden from it.
    Subreaper,
    /// Its process group is ended. Nothing is hidden from it.
    Group,
    /// It ran on another machine, where this hub isolates nothing.
    Remote,
}

impl Isolation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Subreaper => "subreaper",
            Self::Group => "group",
            Self::Remote => "remote",
        }
    }
}
