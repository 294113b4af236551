//! Conversations: who talks to which team, and what became of each message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Millis, tells};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindConversation {
    /// The team or the principal that told.
    pub from: String,
    /// The team that was told.
    pub to: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Conversation {
    /// Such as `CONV-1`.
    pub id: String,
    pub from: String,
    pub to: String,
    pub agent: String,
    pub program: Option<String>,
    pub session: Option<String>,
    pub directory: Option<String>,
    /// The machine of the team, if it is another one.
    pub remote: Option<String>,
    pub tells: Vec<Message>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ConversationMessage")]
pub struct Message {
    /// Such as `TELL-3`.
    pub id: String,
    pub at: Millis,
    pub by: String,
    pub status: tells::Status,
    /// Why it was terminated.
    pub reason: Option<String>,
    /// Its agent has begun with it, so the transcript has it whole.
    pub begun: bool,
    /// The beginning of a message that was not begun.
    pub message: Option<String>,
}
