//! Teams: who can be told something, and who talks to whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::words::words;

words! {
    /// What the agent of a conversation does.
    Doing {
        Asleep = "asleep",
        Starting = "starting",
        Awake = "awake",
        Busy = "busy",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTeams {
    /// The number of the last event that the caller has seen the effect of.
    #[serde(default)]
    pub after: u64,
    /// How long to wait for an event after that.
    #[serde(default)]
    pub wait_ms: u64,
    /// Maximum items of the page, 1 to 500; 100 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Team {
    pub name: String,
    /// Its directory, after the machine if it is another one.
    pub path: String,
    pub description: String,
    pub color: Option<String>,
    /// Why it cannot work, as far as the hub can see.
    pub problem: Option<String>,
    /// Nobody described it: a hub was started in its directory.
    pub is_automatic: bool,
    pub conversations: Vec<Talk>,
}

/// One of its conversations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Talk {
    pub id: String,
    pub from: String,
    pub agent: String,
    pub status: Doing,
    /// Messages that wait.
    pub queued: usize,
    /// Messages in all.
    pub messages: u32,
    pub last_used_at: Millis,
    /// Why its agent does not continue, if it has something to do.
    pub holds_up: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemovedTeam {
    pub name: String,
    pub removed: bool,
}
