//! The log: an ordered, durable, hash-chained list of opaque commits, with transcripts and blobs beside it.
//!
//! [`Log`] is what the rest of Teamster knows; which engine is behind it is decided by [`open`] from what is written in
//! the data directory. Nothing here knows events: a commit's body is text that somebody else encodes and decodes.
//!
//! What every engine promises, and `tests/it/conformance.rs` checks:
//! - an append that returned `Ok` survives the loss of power;
//! - commits are numbered 1, 2, 3, … without a gap, and each names the hash of the one before it;
//! - when an engine cannot tell whether an append was stored it says so ([`AppendError::Unknown`]) and [`settle`] finds out.

mod commit;
mod copy;
mod engines;
mod log;
mod verify;

pub use commit::{Commit, CommitId, Hash, Head, NotAHash};
pub use copy::{Edit, EditError, Verbatim, copy};
pub use engines::{
    BadLocation, FileSystem, Location, OpenError, Options, Rewrite, Synchronous, file_system,
    memory, open, open_at, open_readonly, sqlite,
};
pub use log::{
    AppendError, Blobs, Error, Extent, Log, MAX_BLOB_BYTES, MAX_BODY_BYTES, MAX_PAGE_BYTES,
    MAX_RECORD_BYTES, NotATranscriptName, Record, Settled, Snapshot, TranscriptName, Transcripts,
    settle,
};
pub use verify::{Broken, Report, verify};
