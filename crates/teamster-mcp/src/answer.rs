//! What tools answer, and what their callers get.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use teamster_core::Refusal;

use crate::ask::{Ask, Capability};
use crate::hub::Failure;

/// What a tool says when it succeeds.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Text(String),
    /// The same JSON as text and as structured content: some clients show the model only the one, some the other.
    Json(Value),
    Blocks(Vec<Block>),
    /// The tool cannot go on before these are answered; it is called again with the answers.
    Ask(Vec<Ask>),
    /// The tool cannot work for a client that lacks this.
    Needs(Capability),
}

/// A part of an answer. Bytes are given in base64, as they are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        data: String,
        mime_type: String,
    },
    Resource {
        resource: Resource,
    },
}

/// A text with an address, carried in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub uri: String,
    pub mime_type: String,
    pub text: String,
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// Why a tool failed, in words for whoever called it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{says}")]
pub struct ToolError {
    pub says: String,
    /// What programs know it by, in the sets that tell.
    pub name: &'static str,
    /// Which argument is wrong, where the words have to be those of a seed and do not say it.
    pub field: Option<&'static str>,
}

impl ToolError {
    pub fn new(says: impl Into<String>) -> Self {
        Self::named("Failed", says)
    }

    pub fn named(name: &'static str, says: impl Into<String>) -> Self {
        Self { says: says.into(), name, field: None }
    }

    /// Says which argument is wrong.
    pub fn on(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        let name = match &failure {
            Failure::Refused(refusal) => refusal.name(),
            Failure::Unavailable(_) => "Unavailable",
            Failure::Unknown(_) => "OutcomeUnknown",
        };
        Self::named(name, failure.to_string())
    }
}

impl<R: Into<Refusal>> From<R> for ToolError {
    fn from(refusal: R) -> Self {
        let refusal = refusal.into();
        Self::named(refusal.name(), refusal.to_string())
    }
}

/// What a caller gets: something it can act on, whether the tool succeeded or not. Its JSON is what is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub content: Vec<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    pub is_error: bool,
    /// Whether it is our fault: the tool broke instead of refusing.
    #[serde(skip)]
    pub is_bug: bool,
}

impl Answer {
    /// Returns its texts, a line each.
    pub fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text { text } => Some(text.clone()),
            Block::Image { .. } | Block::Audio { .. } | Block::Resource { .. } => None,
        };
        self.content.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Answer(Answer),
    /// The call is to be made again with answers to these.
    Ask(Vec<Ask>),
}

/// Why a call could not even be tried; the only cases that are protocol errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("unknown tool {0:?}; tools/list shows the tools there are")]
    UnknownTool(String),
    #[error("this call needs a client that declares the capability {0}")]
    Needs(Capability),
    #[error("{0}")]
    BadAnswers(String),
}
