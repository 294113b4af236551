//! Yaks: the backlog.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::words::words;

words! {
    /// The kind of a yak.
    #[schemars(rename = "YakKind")]
    Kind {
        Task = "task",
        Bug = "bug",
        Feature = "feature",
    }
}

words! {
    /// How far a yak is.
    #[schemars(rename = "YakStatus")]
    Status {
        Hairy = "hairy",
        Shaving = "shaving",
        Shorn = "shorn",
    }
}

/// An entry of the backlog.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Yak {
    pub id: String,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// 0 (critical) to 4 (backlog).
    pub priority: u8,
    pub status: Status,
    pub description: String,
    pub labels: Vec<String>,
    pub commit: Option<String>,
    pub depends_on: Vec<String>,
    /// The unfinished yaks that this yak depends on.
    pub tangled_by: Vec<String>,
    pub created_by: String,
    pub created_at: Millis,
    pub updated_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Label {
    #[serde(default)]
    pub add: Vec<String>,
    #[serde(default)]
    pub remove: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Labelled {
    /// The yak.
    pub labelled: String,
}

/// A yak with everything that other trackers know of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WholeYak {
    pub id: String,
    /// In an import it can be left out of a yak that exists, to set only its dependencies.
    pub content: Option<WholeContent>,
    /// In an import, they stay as they are if it is left out.
    pub depends_on: Option<Vec<String>>,
    pub created_at: Option<Millis>,
    pub updated_at: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WholeContent {
    pub title: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub priority: i64,
    pub description: String,
    pub status: Status,
    pub labels: Vec<String>,
    pub commit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExportPage {
    /// What new ids begin with.
    pub prefix: Option<String>,
    pub yaks: Vec<WholeYak>,
    /// The cursor of the next page; nothing on the last page.
    pub next: Option<String>,
}

/// Yaks to import, at most 500 at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToImport {
    pub yaks: Vec<WholeYak>,
    /// What new ids begin with, if the backlog is still empty.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Leave yaks alone that exist already.
    #[serde(default)]
    pub only_new: bool,
    /// Report what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of an import. Yaks that are not in it are unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Report {
    pub changes: Vec<Change>,
    pub problems: Vec<Trouble>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Change {
    pub id: String,
    pub is_new: bool,
    /// The fields that changed, unless the yak is new.
    pub fields: Vec<String>,
}

/// Why a yak, or one of its dependencies, was not imported.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Trouble {
    /// The place of the yak in the request, from 0.
    pub index: usize,
    pub field: String,
    pub says: String,
}
