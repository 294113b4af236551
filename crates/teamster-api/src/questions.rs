//! Questions: what waits for a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuestions {
    /// List settled questions, newest first, instead of the open ones, oldest first.
    #[serde(default)]
    pub settled: bool,
    /// The number of the newest question that the caller knows.
    #[serde(default)]
    pub after: u32,
    /// How long to wait for an open question that is newer.
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
pub struct Question {
    /// Such as `Q-3`.
    pub id: String,
    /// The agent that waits for the answer.
    pub agent: String,
    /// What the agent wants to do, in a line.
    pub title: String,
    /// What it wants to do, whole.
    pub payload: String,
    pub choices: Vec<Choice>,
    /// The answer if nobody gives one until the deadline.
    pub default: String,
    pub deadline: Millis,
    pub asked_at: Millis,
    pub settled: Option<Settled>,
    /// How it was settled, in words.
    pub told: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Choice {
    /// The word that chooses it.
    pub word: String,
    pub label: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Settled {
    pub how: How,
    pub by: String,
    pub at: Millis,
}

/// How a question was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Answered {
        word: String,
        note: Option<String>,
    },
    /// Nobody answered in time; the default holds.
    Expired,
    /// Nobody needs the answer any more.
    Withdrawn,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// One of the choices.
    pub word: String,
    pub note: Option<String>,
}
