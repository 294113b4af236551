//! The operator's API: every request and answer as a type, every path in one table, and a client.
//!
//! The hub, the command line and the terminal views share these types, so no JSON between them is read by string keys.
//! The crate knows neither the hub nor the core: the hub converts its state to these types (`api/` there).
//!
//! # Adding a noun
//!
//! 1. Write `src/<noun>.rs`: one struct per request (with `deny_unknown_fields`, since a misspelt key must not be ignored)
//!    and per answer (with `#[serde(default)]`, so that a program can read the answer of an older hub). A field's doc
//!    comment is its description in the generated documents. Enums with fixed words use `words!`.
//! 2. Add its rows to the table in [`paths`]. A row is a method, a path, the request's types, the answer's type and one
//!    sentence. It generates the type of the endpoint and the method of [`Client`].
//! 3. In the hub, write `api/<noun>.rs` with one handler per row and bind it: `.serve::<ListTokens, _, _>(list)`. A handler
//!    of another type does not compile, and a test fails for a row that nobody serves.
//! 4. In the command line, call the client's method: `client.list_tokens(&query).await?`.
//! 5. `UPDATE_EXPECT=1 cargo test -p teamster-api` writes `docs/reference/api.md` and `docs/reference/openapi.json`.
//!
//! # Lists
//!
//! A list answers a [`Page`]: at most `limit` items and the cursor of the next page. [`Client::all`] follows the cursors.
//! The log and transcripts are read by number instead (`after`), because their readers continue where they stopped.
//!
//! # Commands
//!
//! Every request that is not a `GET` carries an `Idempotency-Key`. The hub carries out a key once: a client that lost the
//! answer sends the request again with the same key. The hub then changes nothing and shows the first result as it is now,
//! also after a restart.
//!
//! # Errors
//!
//! Every failure is an [`ApiError`]: a code for programs, a sentence for people, an optional hint, and the fields of the
//! request that the sentences name in backquotes. The command line shows these fields as its flags.

mod client;
mod endpoint;
mod error;
mod hub_file;
pub mod openapi;
mod page;
pub mod paths;
mod words;

pub mod agents;
pub mod calls;
pub mod configuration;
pub mod conversations;
pub mod events;
pub mod hub;
pub mod log;
pub mod questions;
pub mod runs;
pub mod spending;
pub mod teams;
pub mod tells;
pub mod tokens;
pub mod top;
pub mod yaks;

pub use self::client::{
    Client, failure, in_path, shake_hands, tool_call, tool_call_headers, tool_result,
};
pub use self::endpoint::{Endpoint, Method, Nothing, fields};
pub use self::error::{ApiError, Code, ErrorBody, Lost};
pub use self::hub_file::{HubFile, Place, read_token, wait_until_gone};
pub use self::page::{LIMIT_DEFAULT, LIMIT_MAX, ListQuery, Page, Paged};

/// A point in time: milliseconds since 1970.
pub type Millis = i64;

/// The header that makes a command repeatable.
pub const KEY_HEADER: &str = "idempotency-key";
