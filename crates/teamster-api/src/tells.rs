//! Messages to teams, and their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::words::words;

words! {
    /// How far a message is.
    #[schemars(rename = "TellStatus")]
    Status {
        Queued = "queued",
        Active = "active",
        Completed = "completed",
        Terminated = "terminated",
        Cancelled = "cancelled",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTell {
    /// The team that receives the message.
    pub to: String,
    /// The team that is spoken for; yourself if it is left out.
    pub from: Option<String>,
    pub message: String,
    /// Somebody waits for the answer. Otherwise it is unread until somebody reads it.
    pub wait: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Told {
    pub tell_id: String,
    /// The conversation.
    pub session_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowTell {
    /// How long to wait if it is not settled.
    #[serde(default)]
    pub wait_ms: u64,
    /// The `stands` that the caller knows; the hub answers when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Tell {
    pub tell_id: String,
    /// The conversation.
    pub session_id: String,
    pub message: String,
    pub status: Status,
    /// What it waits for, in words.
    pub stands: String,
    /// The answer; while the team still works, its text so far.
    pub answer: String,
    /// Why it was terminated.
    pub reason: Option<String>,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CancelledTell {
    pub tell_id: String,
    pub cancelled: bool,
    pub status: Option<Status>,
}
