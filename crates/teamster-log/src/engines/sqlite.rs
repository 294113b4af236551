//! The default engine: one SQLite database in write-ahead mode, written by one thread.
//!
//! `<dir>/log.db` holds commits and transcripts, `<dir>/blobs` and `<dir>/snapshot` the rest. Commits and records wait for
//! the disk together: see `writer.rs`. `<dir>/acknowledged` tells when the end of the log is missing: see `acknowledged.rs`.

mod acknowledged;
mod database;
mod reader;
mod sealed;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::sync::watch;

use self::acknowledged::Acknowledged;
use self::reader::Reader;
use self::writer::WriterHandle;
use super::blob_files::{Access, BlobFiles, READ_ONLY, blocking};
use super::snapshots::{SnapshotFile, belongs};
use super::tail::{TAIL_PAGE, tail};
use super::{OpenError, Options, directory, files};
use crate::log::{MAX_RECORD_BYTES, check_body, check_size};
use crate::{
    AppendError, Blobs, Commit, Error, Extent, Head, Log, Record, Snapshot, TranscriptName,
    Transcripts,
};

/// A log in a data directory.
pub struct Sqlite {
    /// Dropped before the writer: whoever closes the database last moves all of it into log.db, and a reader cannot.
    reader: Arc<Reader>,
    /// Absent if opened read-only. Dropping it waits until what was queued is written.
    writer: Option<WriterHandle>,
    snapshot: Arc<SnapshotFile>,
    blobs: BlobFiles,
    appended: watch::Receiver<()>,
}

impl Sqlite {
    /// Opens or makes a log for this process alone. [`crate::open`] does this for whatever engine the directory has.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let options = Options::default();
        Self::open_locked(directory::Lock::take(dir, options)?, options)
    }

    pub(super) fn open_locked(lock: directory::Lock, options: Options) -> Result<Self, OpenError> {
        let dir = lock.dir().to_owned();
        let path = database::path(&dir);
        files::create_dir(&dir.join("blobs"))
            .and_then(|()| files::create(&path))
            .and_then(|_| files::sync_dir(&dir))
            .map_err(|error| OpenError::failed(format!("make {}", path.display()), error))?;
        acknowledged::check_before_opening(&dir)?;
        let connection = database::open(&path, options.synchronous)?;
        let reader = Arc::new(Reader::open(&path)?);
        let (wake, appended) = watch::channel(());
        let acknowledged = Acknowledged::open(&dir).map_err(|error| {
            let path = acknowledged::path(&dir);
            OpenError::failed(format!("make {}", path.display()), error)
        })?;
        let writer =
            WriterHandle::start((path, options.synchronous), connection, acknowledged, wake, lock)?;
        Ok(Self {
            writer: Some(writer),
            reader,
            snapshot: Arc::new(SnapshotFile::new(&dir)),
            blobs: BlobFiles::new(&dir, Access::ReadWrite),
            appended,
        })
    }

    /// Opens an existing log for reading, whether or not a hub is using it.
    pub fn open_readonly(dir: &Path) -> Result<Self, OpenError> {
        let path = database::path(dir);
        if !path.exists() {
            return Err(OpenError::NoLog { dir: dir.to_owned() });
        }
        // Its sender is dropped here, which ends tails that have caught up.
        let (_, appended) = watch::channel(());
        Ok(Self {
            writer: None,
            reader: Arc::new(Reader::open(&path)?),
            snapshot: Arc::new(SnapshotFile::new(dir)),
            blobs: BlobFiles::new(dir, Access::ReadOnly),
            appended,
        })
    }

    /// Returns how many transactions were written since this was opened: how well appends share them.
    pub fn n_transactions(&self) -> u64 {
        self.writer.as_ref().map_or(0, WriterHandle::n_transactions)
    }

    async fn read_blocking<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let reader = self.reader.clone();
        blocking(doing, move || read(&reader)).await
    }
}

/// Puts the files of the rewritten log in `from` into the place of those in `dir`.
pub(super) fn adopt(dir: &Path, from: &Path) -> io::Result<()> {
    let rewritten = database::path(from);
    if rewritten.exists() {
        // None of these may be read together with the new database.
        for stale in ["log.db-wal", "log.db-shm", "snapshot"].map(|name| dir.join(name)) {
            files::remove(&stale)?;
        }
        files::remove(&acknowledged::path(dir))?;
        files::sync_dir(dir)?;
        fs::rename(rewritten, database::path(dir))?;
        files::sync_dir(dir)?;
    }
    if acknowledged::path(from).exists() {
        fs::rename(acknowledged::path(from), acknowledged::path(dir))?;
    }
    let blobs = from.join("blobs");
    if blobs.exists() {
        let old = dir.join("blobs");
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        fs::rename(blobs, old)?;
    }
    Ok(())
}

impl Log for Sqlite {
    fn append(&self, commit: Commit) -> BoxFuture<'_, Result<(), AppendError>> {
        async move {
            check_body(&commit.body)?;
            match &self.writer {
                Some(writer) => writer.append(commit).await,
                None => Err(AppendError::Unavailable(READ_ONLY.to_owned())),
            }
        }
        .boxed()
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, Error>> {
        async move {
            match &self.writer {
                // Only the writer knows whether the last transaction is settled.
                Some(writer) => writer.head().await,
                None => self.read_blocking("read the head", Reader::head).await,
            }
        }
        .boxed()
    }

    fn read(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Commit>, Error>> {
        self.read_blocking("read commits", move |reader| reader.commits(after, limit)).boxed()
    }

    fn tail(&self, after: u64) -> BoxStream<'_, Result<Commit, Error>> {
        tail(|after| Log::read(self, after, TAIL_PAGE), self.appended.clone(), after)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            if self.writer.is_none() {
                return Err(Error::Unavailable(READ_ONLY.to_owned()));
            }
            let file = self.snapshot.clone();
            blocking("write a snapshot", move || file.put(&snapshot)).await
        }
        .boxed()
    }

    fn snapshot(&self, format: u32) -> BoxFuture<'_, Result<Option<Snapshot>, Error>> {
        async move {
            let file = self.snapshot.clone();
            match blocking("read the snapshot", move || file.get()).await? {
                Some(kept) if kept.format == format && belongs(self, &kept).await? => {
                    Ok(Some(kept))
                }
                _ => Ok(None),
            }
        }
        .boxed()
    }

    fn damage(&self) -> BoxFuture<'_, Result<Option<String>, Error>> {
        self.read_blocking("check the database", Reader::damage).boxed()
    }

    fn transcripts(&self) -> &dyn Transcripts {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        &self.blobs
    }
}

impl Transcripts for Sqlite {
    fn append(
        &self,
        transcript: &TranscriptName,
        record: Vec<u8>,
    ) -> BoxFuture<'_, Result<u64, Error>> {
        let transcript = transcript.clone();
        async move {
            check_size("a transcript record", &record, MAX_RECORD_BYTES)?;
            match &self.writer {
                Some(writer) => writer.record(transcript, record).await,
                None => Err(Error::Unavailable(READ_ONLY.to_owned())),
            }
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
        self.read_blocking("read a transcript", move |reader| {
            reader.records(&transcript, after, limit)
        })
        .boxed()
    }

    fn extent(&self, transcript: &TranscriptName) -> BoxFuture<'_, Result<Extent, Error>> {
        let transcript = transcript.clone();
        self.read_blocking("read a transcript", move |reader| reader.extent(&transcript)).boxed()
    }

    fn forget(&self, transcript: &TranscriptName, up_to: u64) -> BoxFuture<'_, Result<(), Error>> {
        let transcript = transcript.clone();
        async move {
            match &self.writer {
                // Some at a time, so that nobody who writes waits for long.
                Some(writer) => {
                    while writer.forget(transcript.clone(), up_to).await? < up_to {}
                    Ok(())
                }
                None => Err(Error::Unavailable(READ_ONLY.to_owned())),
            }
        }
        .boxed()
    }

    fn names(
        &self,
        after: Option<&TranscriptName>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<TranscriptName>, Error>> {
        let after = after.cloned();
        self.read_blocking("list transcripts", move |reader| reader.names(after.as_ref(), limit))
            .boxed()
    }
}
