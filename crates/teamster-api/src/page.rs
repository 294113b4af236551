//! Lists: a page at a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Items per page if the request does not say.
pub const LIMIT_DEFAULT: u32 = 100;
/// Maximum items per page, so that an answer stays well below the limit of a body.
pub const LIMIT_MAX: u32 = 500;

/// Which page of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Maximum items of the page, 1 to 500; 100 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before; the first page if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page; nothing on the last page.
    pub next: Option<String>,
    /// The number of the last event that the page includes the effect of.
    pub seq: u64,
}

/// A query that says which page is wanted.
pub trait Paged: Clone {
    fn set_cursor(&mut self, cursor: String);
}

impl Paged for ListQuery {
    fn set_cursor(&mut self, cursor: String) {
        self.cursor = Some(cursor);
    }
}

// Only the first page is waited for.
impl Paged for crate::questions::ListQuestions {
    fn set_cursor(&mut self, cursor: String) {
        self.cursor = Some(cursor);
        self.wait_ms = 0;
    }
}

impl Paged for crate::teams::ListTeams {
    fn set_cursor(&mut self, cursor: String) {
        self.cursor = Some(cursor);
        self.wait_ms = 0;
    }
}
