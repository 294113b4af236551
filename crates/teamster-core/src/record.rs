//! How events are written down. Old logs replay forever, so what is here only ever grows.

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::key::Key;
use crate::{Event, PrincipalName, Timestamp};

/// The version of the stored form. A log that carries a higher one was written by a newer program.
pub const FORMAT: u32 = 1;

/// What one command caused, and who gave it when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub at: Timestamp,
    pub by: PrincipalName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    pub events: Vec<Event>,
}

/// The body of one commit: the records that became durable together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    pub format: u32,
    /// The sequence number of the first event. Events are numbered from 1 without gaps.
    pub first: u64,
    pub records: Vec<Record>,
}

#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(
        "the log was written by a newer version of Teamster (format {0}, this one reads up to {FORMAT}); start that version"
    )]
    Newer(u32),
    #[error(
        "a commit is not readable by this version of Teamster: {0}; a newer version may have written it"
    )]
    Unknown(#[from] serde_json::Error),
}

impl Body {
    pub fn new(first: u64, records: Vec<Record>) -> Self {
        Self { format: FORMAT, first, records }
    }

    /// Returns the JSON that is stored.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self)
            .unwrap_or_else(|error| unreachable!("events always have a JSON form: {error}"))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let body: Result<Self, _> = serde_json::from_slice(bytes);
        match body {
            Ok(body) if body.format <= FORMAT => Ok(body),
            Ok(body) => Err(Unreadable::Newer(body.format)),
            Err(error) => match serde_json::from_slice::<Version>(bytes) {
                Ok(version) if version.format > FORMAT => Err(Unreadable::Newer(version.format)),
                Ok(_) | Err(_) => Err(Unreadable::Unknown(error)),
            },
        }
    }

    pub fn n_events(&self) -> u64 {
        self.records.iter().map(|record| record.events.len() as u64).sum()
    }
}
