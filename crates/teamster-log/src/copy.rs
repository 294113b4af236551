//! Copies a whole log, as it is or edited: for backups, and for the few occasions on which history is changed on purpose.

use std::error::Error as StdError;

use futures_util::future::try_join_all;
use tokio::task::coop::unconstrained;

use crate::{Commit, Error, Head, Log};

/// How much is read, and then written together, at once; a page's own bound in bytes is what usually ends it.
const PAGE: usize = 500;

/// What a copy changes or leaves out.
pub trait Edit: Send {
    /// Returns the body that takes the place of this commit's; `None` leaves the commit out.
    fn body(&mut self, commit: Commit) -> Result<Option<Vec<u8>>, EditError>;

    /// Returns what takes the place of a transcript's record, which may be empty but stays a record.
    fn record(&mut self, bytes: Vec<u8>) -> Vec<u8>;

    /// Tells whether a blob is copied.
    fn keeps_blob(&mut self, bytes: &[u8]) -> bool;
}

/// Why a commit could not be edited.
pub type EditError = Box<dyn StdError + Send + Sync>;

/// Copies everything as it is, so that the copy has the same hashes.
pub struct Verbatim;

impl Edit for Verbatim {
    fn body(&mut self, commit: Commit) -> Result<Option<Vec<u8>>, EditError> {
        Ok(Some(commit.body))
    }

    fn record(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn keeps_blob(&mut self, _bytes: &[u8]) -> bool {
        true
    }
}

/// Copies the log as it is now into an empty one; durable when `Ok`. Works while others append: what comes later is left
/// out. `progress` hears how many of how many commits are copied.
///
/// Commits go first. What they name was there before them, so the transcripts and blobs that follow hold all of it.
pub async fn copy(
    from: &dyn Log,
    into: &dyn Log,
    edit: &mut dyn Edit,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Head, Error> {
    let end = from.head().await?.number;
    let mut at = into.head().await?;
    if at.number > 0 {
        return Err(Error::Unavailable("the log to copy into is not empty".to_owned()));
    }
    let mut copied = 0;
    while copied < end {
        let page = from.read(copied, PAGE).await?;
        if page.is_empty() {
            let why = "it is missing, though later commits were there".to_owned();
            return Err(Error::DamagedCommit { number: copied + 1, why });
        }
        let mut edited = Vec::with_capacity(page.len());
        for commit in page.into_iter().take_while(|commit| commit.number <= end) {
            let (number, id) = (commit.number, commit.id);
            copied = number;
            let body = edit
                .body(commit)
                .map_err(|error| Error::failed(format!("edit commit {number}"), error))?;
            if let Some(body) = body {
                let commit = at.next(id, body);
                at = Head::of(&commit);
                edited.push(commit);
            }
        }
        together(edited.into_iter().map(|commit| into.append(commit)))
            .await
            .map_err(|error| Error::failed("write the copy", error))?;
        progress(copied, end);
    }
    copy_transcripts(from, into, edit).await?;
    copy_blobs(from, into, edit).await?;
    Ok(at)
}

/// Has a page's writes queued in their order, so that they share transactions. A page is less than a queue takes; without
/// a budget, which would let later ones overtake the one that used it up, each is queued when it is first polled.
async fn together<T, E>(
    writes: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<Vec<T>, E> {
    unconstrained(try_join_all(writes)).await
}

async fn copy_transcripts(
    from: &dyn Log,
    into: &dyn Log,
    edit: &mut dyn Edit,
) -> Result<(), Error> {
    let mut last = None;
    while let Some(next) = from.transcripts().names(last.as_ref(), 1).await?.into_iter().next() {
        // What is left keeps its numbers: messages know their records by them.
        let mut after = from.transcripts().extent(&next).await?.forgotten;
        if after > 0 {
            into.transcripts().forget(&next, after).await?;
        }
        loop {
            let page = from.transcripts().read(&next, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.number;
            let edited: Vec<_> = page.into_iter().map(|record| edit.record(record.bytes)).collect();
            together(edited.into_iter().map(|bytes| into.transcripts().append(&next, bytes)))
                .await?;
        }
        last = Some(next);
    }
    Ok(())
}

async fn copy_blobs(from: &dyn Log, into: &dyn Log, edit: &mut dyn Edit) -> Result<(), Error> {
    let mut last = None;
    loop {
        let names = from.blobs().names(last, PAGE).await?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            last = Some(name);
            if let Some(bytes) = from.blobs().get(name).await?
                && edit.keeps_blob(&bytes)
            {
                into.blobs().put(bytes).await?;
            }
        }
    }
}
