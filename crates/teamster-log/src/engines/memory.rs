//! An engine without a disk, for tests and simulation: deterministic, and as unreliable as its test wants it to be.
//!
//! The [`Store`] is what would be on disk. A crash is dropping everything that holds a [`Memory`] and making a new one on
//! the same store.

mod faults;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::sync::watch;

pub use self::faults::{Fate, Faults};
use super::page::Page;
use super::snapshots::{belongs, outranks};
use super::tail::{TAIL_PAGE, tail};
use crate::log::{MAX_BLOB_BYTES, MAX_RECORD_BYTES, check_body, check_size};
use crate::{
    AppendError, Blobs, Commit, Error, Extent, Hash, Head, Log, Record, Snapshot, TranscriptName,
    Transcripts,
};

/// What survives a crash. Clones are the same store.
#[derive(Clone, Default)]
pub struct Store(Arc<Shared>);

#[derive(Default)]
struct Shared {
    contents: Mutex<Contents>,
    appended: watch::Sender<()>,
}

#[derive(Default)]
struct Contents {
    commits: Vec<Commit>,
    /// A commit still on its way: see [`Fate::UnknownLate`].
    late: Option<Commit>,
    snapshot: Option<Snapshot>,
    transcripts: BTreeMap<TranscriptName, Transcript>,
    blobs: BTreeMap<Hash, Vec<u8>>,
}

#[derive(Default)]
struct Transcript {
    forgotten: u64,
    records: Vec<Vec<u8>>,
}

impl Transcript {
    fn extent(&self) -> Extent {
        let last = self.forgotten.saturating_add(self.records.len() as u64);
        Extent { forgotten: self.forgotten, last }
    }
}

impl Store {
    /// Changes a stored blob, as a failing disk would.
    pub fn damage_blob(&self, hash: Hash) {
        self.contents().blobs.entry(hash).or_default().push(b'!');
    }

    /// No await holds it, and a test that panicked while it did fails anyway.
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, commit: Commit) -> Result<(), AppendError> {
        let mut contents = self.contents();
        let head = contents.head();
        if !head.is_followed_by(&commit) {
            return Err(AppendError::Conflict { head });
        }
        contents.commits.push(commit);
        self.0.appended.send_replace(());
        Ok(())
    }
}

impl Contents {
    fn head(&self) -> Head {
        self.commits.last().map_or(Head::EMPTY, Head::of)
    }
}

/// A handle on a [`Store`].
pub struct Memory {
    store: Store,
    faults: Faults,
}

impl Memory {
    /// Opens a store that never fails.
    pub fn new(store: &Store) -> Self {
        Self::with_faults(store, &Faults::default())
    }

    /// Opens a store that fails as `faults` say.
    pub fn with_faults(store: &Store, faults: &Faults) -> Self {
        Self { store: store.clone(), faults: faults.clone() }
    }

    async fn append_as_fated(&self, commit: Commit) -> Result<(), AppendError> {
        check_body(&commit.body)?;
        // Decided before waiting, so that the order of decisions is the order of calls.
        let fate = self.faults.fate(&commit);
        wait(self.faults.append_latency()).await;
        let late = self.store.contents().late.take();
        if let Some(late) = late {
            // Either it still fits or it is refused, and nobody is there to hear it.
            let _ = self.store.append(late);
        }
        match fate {
            Fate::Stored => self.store.append(commit),
            Fate::UnknownStored => {
                // A conflict is not heard either: the answer got lost.
                let _ = self.store.append(commit);
                Err(AppendError::Unknown("the answer got lost".to_owned()))
            }
            Fate::UnknownNotStored => Err(AppendError::Unknown("the request got lost".to_owned())),
            Fate::UnknownLate => {
                self.store.contents().late = Some(commit);
                Err(AppendError::Unknown("the request is late".to_owned()))
            }
            Fate::ForeignFirst { id, body } => {
                let head = self.store.contents().head();
                self.store.append(head.next(id, body))?;
                self.store.append(commit)
            }
            Fate::Unavailable => Err(AppendError::Unavailable("the log is down".to_owned())),
        }
    }

    async fn head_if_up(&self) -> Result<Head, Error> {
        wait(self.faults.head_latency()).await;
        if self.faults.head_fails() {
            return Err(Error::failed("read the head of the log", "the log is down"));
        }
        Ok(self.store.contents().head())
    }
}

async fn wait(latency: Duration) {
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
}

impl Log for Memory {
    fn append(&self, commit: Commit) -> BoxFuture<'_, Result<(), AppendError>> {
        self.append_as_fated(commit).boxed()
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, Error>> {
        self.head_if_up().boxed()
    }

    fn read(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Commit>, Error>> {
        async move {
            let mut page = Page::new(limit);
            let contents = self.store.contents();
            for commit in contents.commits.iter().skip(as_index(after)) {
                if !page.takes(commit.body.len(), commit.clone()) {
                    break;
                }
            }
            Ok(page.into_items())
        }
        .boxed()
    }

    fn tail(&self, after: u64) -> BoxStream<'_, Result<Commit, Error>> {
        tail(|after| Log::read(self, after, TAIL_PAGE), self.store.0.appended.subscribe(), after)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let kept = &mut self.store.contents().snapshot;
            if !kept.as_ref().is_some_and(|kept| outranks(kept, &snapshot)) {
                *kept = Some(snapshot);
            }
            Ok(())
        }
        .boxed()
    }

    fn snapshot(&self, format: u32) -> BoxFuture<'_, Result<Option<Snapshot>, Error>> {
        async move {
            let kept = self.store.contents().snapshot.clone();
            match kept {
                Some(kept) if kept.format == format && belongs(self, &kept).await? => {
                    Ok(Some(kept))
                }
                _ => Ok(None),
            }
        }
        .boxed()
    }

    fn damage(&self) -> BoxFuture<'_, Result<Option<String>, Error>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn transcripts(&self) -> &dyn Transcripts {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        self
    }
}

impl Transcripts for Memory {
    fn append(
        &self,
        transcript: &TranscriptName,
        record: Vec<u8>,
    ) -> BoxFuture<'_, Result<u64, Error>> {
        let transcript = transcript.clone();
        async move {
            check_size("a transcript record", &record, MAX_RECORD_BYTES)?;
            let mut contents = self.store.contents();
            let transcript = contents.transcripts.entry(transcript).or_default();
            transcript.records.push(record);
            Ok(transcript.extent().last)
        }
        .boxed()
    }

    fn read(
        &self,
        transcript: &TranscriptName,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, Error>> {
        let transcript = transcript.clone();
        async move {
            let mut page = Page::new(limit);
            let contents = self.store.contents();
            let Some(transcript) = contents.transcripts.get(&transcript) else {
                return Ok(Vec::new());
            };
            let Transcript { forgotten, records } = transcript;
            let skipped = as_index(after.saturating_sub(*forgotten));
            for (number, bytes) in (forgotten + 1..).zip(records).skip(skipped) {
                if !page.takes(bytes.len(), Record { number, bytes: bytes.clone() }) {
                    break;
                }
            }
            Ok(page.into_items())
        }
        .boxed()
    }

    fn extent(&self, transcript: &TranscriptName) -> BoxFuture<'_, Result<Extent, Error>> {
        let found = self.store.contents().transcripts.get(transcript).map(Transcript::extent);
        std::future::ready(Ok(found.unwrap_or_default())).boxed()
    }

    fn forget(&self, transcript: &TranscriptName, up_to: u64) -> BoxFuture<'_, Result<(), Error>> {
        let transcript = transcript.clone();
        async move {
            let mut contents = self.store.contents();
            if up_to == 0 {
                return Ok(());
            }
            let transcript = contents.transcripts.entry(transcript).or_default();
            let n_over = as_index(up_to.saturating_sub(transcript.forgotten));
            transcript.records.drain(..n_over.min(transcript.records.len()));
            transcript.forgotten = transcript.forgotten.max(up_to);
            Ok(())
        }
        .boxed()
    }

    fn names(
        &self,
        after: Option<&TranscriptName>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<TranscriptName>, Error>> {
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        async move {
            let contents = self.store.contents();
            let later = contents.transcripts.range((after, Bound::Unbounded));
            Ok(later.map(|(transcript, _)| transcript.clone()).take(limit).collect())
        }
        .boxed()
    }
}

impl Blobs for Memory {
    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<Hash, Error>> {
        async move {
            check_size("a blob", &bytes, MAX_BLOB_BYTES)?;
            let hash = Hash::of(&bytes);
            self.store.contents().blobs.insert(hash, bytes);
            Ok(hash)
        }
        .boxed()
    }

    fn get(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Vec<u8>>, Error>> {
        async move {
            match self.store.contents().blobs.get(&hash) {
                Some(bytes) if Hash::of(bytes) != hash => Err(Error::DamagedBlob(hash)),
                bytes => Ok(bytes.cloned()),
            }
        }
        .boxed()
    }

    fn names(&self, after: Option<Hash>, limit: usize) -> BoxFuture<'_, Result<Vec<Hash>, Error>> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        async move {
            let contents = self.store.contents();
            let later = contents.blobs.range((after, Bound::Unbounded));
            Ok(later.map(|(hash, _)| *hash).take(limit).collect())
        }
        .boxed()
    }
}

/// Number `after` is at index `after - 1`, so what follows it begins at `after`.
fn as_index(after: u64) -> usize {
    usize::try_from(after).unwrap_or(usize::MAX)
}
