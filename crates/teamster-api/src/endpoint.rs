//! What the table of paths is made of.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The method of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    /// Says whether a request changes something, and so has an idempotency key.
    pub const fn is_command(self) -> bool {
        match self {
            Self::Get => false,
            Self::Post | Self::Delete => true,
        }
    }
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Post => Self::POST,
            Method::Delete => Self::DELETE,
        }
    }
}

/// A query or a body without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

/// One row of the table: a method and a path, with what goes in and what comes out.
pub trait Endpoint: Send + Sync + 'static {
    const METHOD: Method;
    /// The path, with at most one parameter in braces.
    const PATH: &'static str;
    const HAS_BODY: bool;
    type Query: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    type Body: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// Returns the path with its parameter.
    fn path(param: &str) -> String {
        match (Self::PATH.split_once('{'), Self::PATH.split_once('}')) {
            (Some((before, _)), Some((_, after))) => {
                format!("{before}{}{after}", crate::in_path(param))
            }
            _ => Self::PATH.to_owned(),
        }
    }
}

/// A row of the table as data, for documents and tests.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub noun: &'static str,
    pub name: &'static str,
    pub method: Method,
    pub path: &'static str,
    /// The sentence that describes it.
    pub says: &'static str,
    pub param: Option<&'static str>,
    pub query: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub body: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub answer: fn(&mut SchemaGenerator) -> Schema,
}

/// Returns the fields that a body can have.
pub fn fields<B: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(B);
    let properties = schema.get("properties").and_then(|properties| properties.as_object());
    properties.into_iter().flatten().map(|(name, _)| name.clone()).collect()
}
