//! Tokens: who may call the hub.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::words::words;

words! {
    /// Whose token it is.
    #[schemars(rename = "TokenKind")]
    Kind {
        Agent = "agent",
        Operator = "operator",
        /// The hub itself.
        Hub = "hub",
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Token {
    /// Such as `TOK-3`.
    pub id: String,
    /// The name of its principal.
    pub name: String,
    pub kind: Kind,
    /// What it allows, as one text.
    pub grants: String,
    /// The only run that it may use.
    pub run: Option<String>,
    /// The team that it belongs to.
    pub team: Option<String>,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
}

/// A token that is to be created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The agent's name; `agent-<number>` if it is left out.
    pub name: Option<String>,
    /// `full`, `read-only`, `main`, `self`, `metrics`, a set such as `session`, or a tool such as `session:task-list`.
    pub grants: Vec<String>,
    /// The only run that it may use.
    pub run: Option<String>,
    /// The team that it belongs to.
    pub team: Option<String>,
    /// Lifetime in seconds; without end if it is left out.
    pub expires_in_s: Option<u32>,
    /// Revoke a live token of the same name.
    #[serde(default)]
    pub replace: bool,
}

/// A new token with its secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CreatedToken {
    #[serde(flatten)]
    pub token: Token,
    /// The secret, for the `Authorization: Bearer` header.
    pub secret: String,
}

/// What a token allows now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Granted {
    pub which: String,
    pub grants: String,
}

/// A token that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Revoked {
    pub revoked: String,
    /// How many items in progress returned to the list.
    pub released_items: usize,
}
