//! What an engine must do, how it may fail, and how to settle an append whose outcome it could not tell.

use std::error::Error as StdError;
use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::{Commit, Hash, Head};

/// The largest commit body. A commit is one message on a cluster engine, whose servers accept 8 MiB when configured to and
/// recommend no more; bodies over 16 KiB are meant to be blobs, so a commit near this is a mistake.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// About how much one page of commits or records carries: enough that paging costs nothing, little enough to hold several.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// The largest transcript record. A record is one step of a transcript; what is larger belongs in a blob.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// The largest blob. Blobs are held in memory whole while they are hashed.
pub const MAX_BLOB_BYTES: usize = 256 << 20;

/// An ordered list of commits with one writer's view of its end, and transcripts, blobs and a snapshot beside it.
///
/// Object safe, so that nothing but [`crate::open`] knows the engine.
pub trait Log: Send + Sync + 'static {
    /// Appends one commit; durable when `Ok`.
    ///
    /// Refused with [`AppendError::Conflict`] unless the commit extends the head ([`Head::is_followed_by`]). Appending the
    /// same commit twice is therefore harmless: the second is a conflict with a head that [`settle`] recognises.
    /// Dropping the future does not withdraw the commit.
    fn append(&self, commit: Commit) -> BoxFuture<'_, Result<(), AppendError>>;

    /// Returns the end of the log, as certain as an acknowledged append: what it shows is there after a crash, and what it
    /// does not show of an append that has ended will not appear by itself. An engine that cannot tell returns an error.
    fn head(&self) -> BoxFuture<'_, Result<Head, Error>>;

    /// Returns the commits after number `after`, in order: at most `limit`, and no more than [`MAX_PAGE_BYTES`] of bodies
    /// unless the first alone is larger. Empty only at the end (or if `limit` is 0).
    fn read(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Commit>, Error>>;

    /// Returns the commits after number `after`, then each new one as it is appended; no gaps and no polling.
    /// Ends after an error; the tail of a log opened read-only ends when it has caught up, since nobody would wake it.
    fn tail(&self, after: u64) -> BoxStream<'_, Result<Commit, Error>>;

    /// Keeps a snapshot instead of the one kept so far, unless that is of the same format and newer.
    fn put_snapshot(&self, snapshot: Snapshot) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns the kept snapshot if it has this format. A damaged one, or one that does not belong to this log's history,
    /// is `None`: snapshots can always be made again from the commits.
    fn snapshot(&self, format: u32) -> BoxFuture<'_, Result<Option<Snapshot>, Error>>;

    /// Returns what is wrong with the engine's own files beside the commits, if anything is. Reads everything.
    fn damage(&self) -> BoxFuture<'_, Result<Option<String>, Error>>;

    fn transcripts(&self) -> &dyn Transcripts;

    fn blobs(&self) -> &dyn Blobs;
}

/// Append-only records per transcript. They are read by page and never replayed, so they may be large and many. The
/// oldest may be forgotten; numbers are never used again.
pub trait Transcripts: Send + Sync {
    /// Appends a record and returns its number (1, 2, 3, … in each transcript); durable when `Ok`.
    fn append(
        &self,
        transcript: &TranscriptName,
        record: Vec<u8>,
    ) -> BoxFuture<'_, Result<u64, Error>>;

    /// Returns the records after number `after`, bounded as [`Log::read`] is. A transcript without records is empty, and
    /// what was forgotten is left out.
    fn read(
        &self,
        transcript: &TranscriptName,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, Error>>;

    /// Returns which records of a transcript there are.
    fn extent(&self, transcript: &TranscriptName) -> BoxFuture<'_, Result<Extent, Error>>;

    /// Removes the records up to number `up_to`, for good when `Ok`; what is appended later has a higher number. One that is
    /// cut short has removed the oldest, and can be repeated.
    fn forget(&self, transcript: &TranscriptName, up_to: u64) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns the transcripts after `after` that have or had records, in the order of their names: at most `limit`.
    fn names(
        &self,
        after: Option<&TranscriptName>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<TranscriptName>, Error>>;
}

/// Byte strings named by their SHA-256.
pub trait Blobs: Send + Sync {
    /// Stores bytes and returns their name; durable when `Ok`, so an event may name them.
    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<Hash, Error>>;

    /// Returns the bytes of that name, `None` if there are none, [`Error::DamagedBlob`] if they no longer match it.
    fn get(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Vec<u8>>, Error>>;

    /// Returns the names after `after` of what is stored, in order: at most `limit`.
    fn names(&self, after: Option<Hash>, limit: usize) -> BoxFuture<'_, Result<Vec<Hash>, Error>>;
}

/// State at some commit, so that starting need not replay everything before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last commit it includes.
    pub number: u64,
    /// That commit's hash, [`Hash::ZERO`] for number 0.
    pub hash: Hash,
    /// Changes whenever the meaning of `bytes` does.
    pub format: u32,
    pub bytes: Vec<u8>,
}

/// Which records of a transcript there are: those after `forgotten`, up to `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub forgotten: u64,
    pub last: u64,
}

impl Extent {
    pub fn n_records(self) -> u64 {
        self.last.saturating_sub(self.forgotten)
    }
}

/// One record of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub number: u64,
    pub bytes: Vec<u8>,
}

/// The name of a transcript: words of ASCII letters, digits, `-` and `_`, separated by single dots, 128 characters at most.
/// That is a legal subject on a message server and a harmless file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TranscriptName(String);

/// Why a text is no [`TranscriptName`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a transcript; use words of letters, digits, - and _ separated by dots, at most {MAX_NAME} characters"
)]
pub struct NotATranscriptName(String);

/// Leaves room for a prefix within the 255 bytes of a file name.
const MAX_NAME: usize = 128;

impl TranscriptName {
    pub fn new(name: impl Into<String>) -> Result<Self, NotATranscriptName> {
        let name = name.into();
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if name.len() <= MAX_NAME && name.split('.').all(is_word) {
            Ok(Self(name))
        } else {
            Err(NotATranscriptName(name))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TranscriptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why an append did not return `Ok`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log has moved on. After a repeated append the head may be one's own commit: [`settle`] tells.
    #[error("the log ends at commit {} now; decide again from there", head.number)]
    Conflict { head: Head },
    #[error("a commit holds at most {max_bytes} bytes; store large parts as blobs")]
    TooLarge { max_bytes: usize },
    #[error("a commit's body must be UTF-8 text; store other bytes as blobs")]
    NotText,
    /// It may or may not be stored: ask [`settle`] before answering anyone.
    #[error("it is unknown whether the commit was stored: {0}")]
    Unknown(String),
    /// Surely not stored, now or later.
    #[error("the commit was not stored: {0}")]
    Unavailable(String),
}

/// Why anything but an append failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing}")]
    Failed {
        doing: String,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// Surely nothing was written.
    #[error("nothing was written: {0}")]
    Unavailable(String),
    /// It may or may not be written.
    #[error("it is unknown whether this was written: {0}")]
    Unknown(String),
    #[error("{what} holds at most {max_bytes} bytes")]
    TooLarge { what: &'static str, max_bytes: usize },
    #[error("commit {number} is damaged: {why}; see what else is with `teamster log verify`")]
    DamagedCommit { number: u64, why: String },
    #[error(
        "record {number} of the transcript {transcript} is damaged or missing; restore it from a backup"
    )]
    DamagedRecord { transcript: TranscriptName, number: u64 },
    #[error(
        "blob {0} is damaged: its bytes have another hash; restore it from a backup, or store the same bytes again"
    )]
    DamagedBlob(Hash),
}

impl Error {
    pub(crate) fn failed(
        doing: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Failed { doing: doing.into(), source: source.into() }
    }
}

/// What became of an append.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is in the log.
    Stored,
    /// The log still ends where it would extend it. Append *the same* commit again: should the first attempt still be on
    /// its way, one of the two is stored and the other is a conflict that settles as `Stored`.
    NotStored,
    /// Somebody else's commit has taken its place.
    Conflict(Head),
}

/// Finds out what became of `commit` after [`AppendError::Unknown`], or after a conflict of a repeated append.
pub async fn settle(log: &dyn Log, commit: &Commit) -> Result<Settled, Error> {
    let head = log.head().await?;
    if head.is_followed_by(commit) {
        return Ok(Settled::NotStored);
    }
    let stored = if head.number > commit.number {
        // Another writer may have extended ours already.
        log.read(commit.number.saturating_sub(1), 1)
            .await?
            .first()
            .is_some_and(|there| there == commit)
    } else {
        head == Head::of(commit)
    };
    Ok(if stored { Settled::Stored } else { Settled::Conflict(head) })
}

/// What every engine refuses before it writes.
pub(crate) fn check_body(body: &[u8]) -> Result<(), AppendError> {
    if body.len() > MAX_BODY_BYTES {
        return Err(AppendError::TooLarge { max_bytes: MAX_BODY_BYTES });
    }
    if std::str::from_utf8(body).is_err() {
        return Err(AppendError::NotText);
    }
    Ok(())
}

pub(crate) fn check_size(what: &'static str, bytes: &[u8], max_bytes: usize) -> Result<(), Error> {
    if bytes.len() > max_bytes { Err(Error::TooLarge { what, max_bytes }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_dotted_words() {
        for good in ["a", "frontend.backend", "A-1_b.C", &"x".repeat(MAX_NAME)] {
            assert_eq!(TranscriptName::new(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a/b",
            "..",
            "a.*",
            "a.>",
            "é",
            &"x".repeat(MAX_NAME + 1),
        ] {
            assert_eq!(TranscriptName::new(bad), Err(NotATranscriptName(bad.to_owned())));
        }
    }
}
