//! The one thread that writes, and the handle through which others ask it to.
//!
//! It takes everything that has queued up while the last transaction was synced into the next one, so many writers share
//! one sync (group commit) and a lone one waits for nobody. Nobody is answered before COMMIT has returned.
//!
//! **When COMMIT fails.** SQLite appends a transaction to the write-ahead file and then syncs it. If the sync fails, COMMIT
//! fails and readers do not see the transaction, but it is complete in the file: should the process end now, recovery would
//! find it there and bring it back. Rolling back and looking is therefore no proof. A later transaction that is synced is
//! one, because it overwrites the same place in the file. So after a failed COMMIT the writer makes such a transaction
//! (`settle`) and looks, in it, whether the batch is there; until one succeeds the batch is in doubt, its callers are told
//! `Unknown`, and the head is not told to anyone.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::super::{OpenError, Synchronous, directory};
use super::acknowledged::{Acknowledged, Extent};
use super::database::{self, to_column};
use super::sealed::{seal, seal_forgotten};
use crate::{AppendError, Commit, Error, Hash, Head, TranscriptName};

/// How many requests may wait, and so how many share a transaction: more than the hub ever has open at once. Whoever comes
/// when it is full waits for room.
const MAX_QUEUED: usize = 1_024;

/// How much may wait in all: several of the largest commits, and a bound on memory when the disk is slow.
const MAX_QUEUED_BYTES: u32 = 64 << 20;

/// As many records as are forgotten in one transaction, which others wait for: some milliseconds' worth.
const FORGOTTEN_AT_ONCE: u64 = 2_000;

/// Starts the writer and talks to it.
pub(super) struct WriterHandle {
    /// `None` only while dropping.
    queue: Option<mpsc::Sender<Queued>>,
    room: Arc<Semaphore>,
    n_transactions: Arc<AtomicU64>,
    /// `None` only while dropping.
    thread: Option<JoinHandle<()>>,
    /// Released last: the directory is free when nothing more can be written.
    _lock: directory::Lock,
}

/// A request with the room that it takes up in the queue.
struct Queued {
    request: Request,
    _room: OwnedSemaphorePermit,
}

enum Request {
    Append {
        commit: Commit,
        hash: Hash,
        reply: oneshot::Sender<Result<(), AppendError>>,
    },
    Record {
        transcript: TranscriptName,
        bytes: Vec<u8>,
        reply: oneshot::Sender<Result<u64, Error>>,
    },
    Forget {
        transcript: TranscriptName,
        up_to: u64,
        reply: oneshot::Sender<Result<u64, Error>>,
    },
    Head {
        reply: oneshot::Sender<Result<Head, Error>>,
    },
}

impl WriterHandle {
    pub(super) fn start(
        (path, synchronous): (PathBuf, Synchronous),
        connection: Connection,
        acknowledged: Acknowledged,
        appended: watch::Sender<()>,
        lock: directory::Lock,
    ) -> Result<Self, OpenError> {
        let (queue, requests) = mpsc::channel(MAX_QUEUED);
        let n_transactions = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            path,
            synchronous,
            connection: Some(connection),
            in_doubt: false,
            acknowledged,
            appended,
            n_transactions: n_transactions.clone(),
            commit: |transaction| transaction.commit(),
        };
        let thread = thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run(requests))
            .map_err(|error| {
                OpenError::failed("start the log's writer thread".to_owned(), error)
            })?;
        let room = Arc::new(Semaphore::new(MAX_QUEUED_BYTES as usize));
        Ok(Self { queue: Some(queue), room, n_transactions, thread: Some(thread), _lock: lock })
    }

    pub(super) async fn append(&self, commit: Commit) -> Result<(), AppendError> {
        let (reply, answer) = oneshot::channel();
        let n_bytes = commit.body.len();
        // Hashed here, since the writer is the one thread that everybody waits for.
        let hash = commit.hash();
        if self.send(n_bytes, Request::Append { commit, hash, reply }).await.is_err() {
            return Err(AppendError::Unavailable(STOPPED.to_owned()));
        }
        answer.await.unwrap_or_else(|_| Err(AppendError::Unknown(STOPPED.to_owned())))
    }

    pub(super) async fn record(
        &self,
        transcript: TranscriptName,
        bytes: Vec<u8>,
    ) -> Result<u64, Error> {
        let (reply, answer) = oneshot::channel();
        let n_bytes = bytes.len();
        if self.send(n_bytes, Request::Record { transcript, bytes, reply }).await.is_err() {
            return Err(Error::Unavailable(STOPPED.to_owned()));
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unknown(STOPPED.to_owned())))
    }

    /// Forgets records up to `up_to`, or as many as one transaction should; returns how far it came.
    pub(super) async fn forget(
        &self,
        transcript: TranscriptName,
        up_to: u64,
    ) -> Result<u64, Error> {
        let (reply, answer) = oneshot::channel();
        if self.send(0, Request::Forget { transcript, up_to, reply }).await.is_err() {
            return Err(Error::Unavailable(STOPPED.to_owned()));
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unknown(STOPPED.to_owned())))
    }

    pub(super) async fn head(&self) -> Result<Head, Error> {
        let (reply, answer) = oneshot::channel();
        // If this fails the answer does too.
        let _ = self.send(0, Request::Head { reply }).await;
        answer.await.unwrap_or_else(|_| Err(Error::failed("read the head of the log", STOPPED)))
    }

    pub(super) fn n_transactions(&self) -> u64 {
        self.n_transactions.load(Ordering::Relaxed)
    }

    async fn send(&self, n_bytes: usize, request: Request) -> Result<(), Stopped> {
        let n_bytes = u32::try_from(n_bytes).map_err(|_| Stopped)?;
        let room = self.room.clone().acquire_many_owned(n_bytes).await.map_err(|_| Stopped)?;
        let queue = self.queue.as_ref().ok_or(Stopped)?;
        queue.send(Queued { request, _room: room }).await.map_err(|_| Stopped)
    }
}

/// Nothing reached the writer.
struct Stopped;

const STOPPED: &str = "the log's writer has stopped; restart the hub";

impl Drop for WriterHandle {
    /// Waits until what is queued is written, so that whoever opens the directory next finds it.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the log's writer panicked");
        }
    }
}

struct Writer {
    path: PathBuf,
    synchronous: Synchronous,
    /// `None` after a failure: the next transaction begins with a new connection.
    connection: Option<Connection>,
    /// A COMMIT failed, and no transaction has been synced since.
    in_doubt: bool,
    acknowledged: Acknowledged,
    appended: watch::Sender<()>,
    n_transactions: Arc<AtomicU64>,
    /// [`Transaction::commit`], except in tests of what happens when it fails.
    commit: fn(Transaction<'_>) -> rusqlite::Result<()>,
}

/// What a request comes to if its transaction is committed.
#[derive(Clone, Copy)]
enum Outcome {
    Appended,
    Conflict(Head),
    Recorded(u64),
    Forgotten(u64),
    Head(Head),
}

/// What a whole batch comes to if its transaction is not.
enum Failure {
    NotWritten(String),
    Unknown(String),
}

impl Failure {
    fn not_written(error: rusqlite::Error) -> Self {
        Self::NotWritten(error.to_string())
    }
}

impl Writer {
    fn run(mut self, mut requests: mpsc::Receiver<Queued>) {
        let mut batch = Vec::new();
        while requests.blocking_recv_many(&mut batch, MAX_QUEUED) > 0 {
            self.write(&mut batch);
        }
    }

    fn write(&mut self, batch: &mut Vec<Queued>) {
        match self.transact(batch) {
            Ok(outcomes) => {
                if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Appended)) {
                    self.appended.send_replace(());
                }
                for (queued, outcome) in batch.drain(..).zip(outcomes) {
                    queued.request.answer(outcome);
                }
            }
            Err(failure) => {
                self.connection = None;
                let (Failure::NotWritten(why) | Failure::Unknown(why)) = &failure;
                tracing::debug!(why, in_doubt = self.in_doubt, "cannot write to the log");
                for queued in batch.drain(..) {
                    queued.request.fail(&failure);
                }
            }
        }
    }

    fn transact(&mut self, batch: &[Queued]) -> Result<Vec<Outcome>, Failure> {
        if self.in_doubt {
            self.settle(|_| Ok(())).map_err(Failure::not_written)?;
        }
        let commit = self.commit;
        self.n_transactions.fetch_add(1, Ordering::Relaxed);
        let transaction = self.begin().map_err(Failure::not_written)?;
        // What fails before COMMIT leaves nothing: the transaction is rolled back when it is dropped.
        let outcomes = batch
            .iter()
            .map(|queued| queued.request.apply(&transaction))
            .collect::<rusqlite::Result<Vec<_>>>()
            .map_err(Failure::not_written)?;
        let extent = Extent::of(&transaction).map_err(Failure::not_written)?;
        match commit(transaction) {
            Ok(()) => {}
            // The mark that completes a transaction is written last, so without room for all of it there is none.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                return Err(Failure::not_written(error));
            }
            Err(error) => {
                match self.settle(|transaction| is_stored(transaction, batch, &outcomes)) {
                    Ok(true) => {}
                    Ok(false) => return Err(Failure::not_written(error)),
                    Err(second) => {
                        let why = format!("{error}; then, while settling it, {second}");
                        return Err(Failure::Unknown(why));
                    }
                }
            }
        }
        self.acknowledged.note(extent);
        Ok(outcomes)
    }

    /// Makes a transaction that ends all doubt about those before it, and looks at the log in it.
    fn settle<T>(
        &mut self,
        look: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.in_doubt = true;
        self.connection = None;
        let transaction = self.begin()?;
        transaction.execute("UPDATE repairs SET n = n + 1", [])?;
        let seen = look(&transaction)?;
        transaction.commit()?;
        self.in_doubt = false;
        // What was in doubt may turn out to be there.
        self.appended.send_replace(());
        Ok(seen)
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => database::connect(&self.path, self.synchronous)?,
        };
        // Takes the write lock at once, so that a conflict with a stranger shows before anything is done.
        self.connection.insert(connection).transaction_with_behavior(TransactionBehavior::Immediate)
    }
}

impl Request {
    fn apply(&self, transaction: &Transaction<'_>) -> rusqlite::Result<Outcome> {
        match self {
            Self::Append { commit, hash, .. } => {
                let head = database::head(transaction)?;
                if !head.is_followed_by(commit) {
                    return Ok(Outcome::Conflict(head));
                }
                // Lossless: nothing but UTF-8 is let into the queue.
                let body = String::from_utf8_lossy(&commit.body);
                transaction
                    .prepare_cached(
                        "INSERT INTO commits (number, id, hash, body) VALUES (?, ?, ?, ?)",
                    )?
                    .execute(params![to_column(commit.number), commit.id.0, hash.0, body])?;
                Ok(Outcome::Appended)
            }
            Self::Record { transcript, bytes, .. } => {
                let last = last_number(transaction, transcript)?;
                // Rot may have left any number there.
                let number = last.saturating_add(1);
                let stored = seal(transcript, number, bytes);
                transaction
                    .prepare_cached(
                        "INSERT INTO transcripts (conversation, number, record) VALUES (?, ?, ?)",
                    )?
                    .execute(params![transcript.as_str(), to_column(number), stored])?;
                Ok(Outcome::Recorded(number))
            }
            Self::Forget { transcript, up_to, .. } => {
                forget(transaction, transcript, *up_to).map(Outcome::Forgotten)
            }
            Self::Head { .. } => database::head(transaction).map(Outcome::Head),
        }
    }

    /// Nobody need be waiting any more, and an outcome always fits the request that had it.
    fn answer(self, outcome: Outcome) {
        match (self, outcome) {
            (Self::Append { reply, .. }, Outcome::Conflict(head)) => {
                let _ = reply.send(Err(AppendError::Conflict { head }));
            }
            (Self::Append { reply, .. }, _) => {
                let _ = reply.send(Ok(()));
            }
            (Self::Record { reply, .. }, Outcome::Recorded(number))
            | (Self::Forget { reply, .. }, Outcome::Forgotten(number)) => {
                let _ = reply.send(Ok(number));
            }
            (Self::Head { reply }, Outcome::Head(head)) => {
                let _ = reply.send(Ok(head));
            }
            (Self::Record { .. } | Self::Forget { .. } | Self::Head { .. }, _) => {}
        }
    }

    fn fail(self, failure: &Failure) {
        match (self, failure) {
            (Self::Append { reply, .. }, Failure::NotWritten(why)) => {
                let _ = reply.send(Err(AppendError::Unavailable(why.clone())));
            }
            (Self::Append { reply, .. }, Failure::Unknown(why)) => {
                let _ = reply.send(Err(AppendError::Unknown(why.clone())));
            }
            (Self::Record { reply, .. } | Self::Forget { reply, .. }, Failure::NotWritten(why)) => {
                let _ = reply.send(Err(Error::Unavailable(why.clone())));
            }
            (Self::Record { reply, .. } | Self::Forget { reply, .. }, Failure::Unknown(why)) => {
                let _ = reply.send(Err(Error::Unknown(why.clone())));
            }
            (Self::Head { reply }, Failure::NotWritten(why) | Failure::Unknown(why)) => {
                let _ = reply.send(Err(Error::failed("read the head of the log", why.clone())));
            }
        }
    }
}

/// Returns the highest number that a transcript has used.
fn last_number(
    transaction: &Transaction<'_>,
    transcript: &TranscriptName,
) -> rusqlite::Result<u64> {
    // Nobody may lose a record because what is known of forgotten ones is damaged: those who read learn of that.
    let extent = database::extent(transaction, transcript)?;
    match extent {
        Ok(extent) => Ok(extent.last),
        Err(_) => transaction
            .prepare_cached("SELECT max(number) FROM transcripts WHERE conversation = ?")?
            .query_row([transcript.as_str()], |row| database::number(row, 0)),
    }
}

/// Removes the oldest records of a transcript, and returns the number up to which they are removed.
fn forget(
    transaction: &Transaction<'_>,
    transcript: &TranscriptName,
    up_to: u64,
) -> rusqlite::Result<u64> {
    let known = database::extent(transaction, transcript)?.unwrap_or_default();
    if up_to <= known.forgotten {
        return Ok(known.forgotten);
    }
    let step = known.forgotten.saturating_add(FORGOTTEN_AT_ONCE);
    let up_to = if step < known.last { up_to.min(step) } else { up_to };
    // Written before others are removed, so that the last row of the table is never one that is: see `acknowledged.rs`.
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO transcripts (conversation, number, record) VALUES (?, 0, ?)",
        )?
        .execute(params![transcript.as_str(), seal_forgotten(transcript, up_to)])?;
    transaction
        .prepare_cached(
            "DELETE FROM transcripts WHERE conversation = ? AND number BETWEEN 1 AND ?",
        )?
        .execute(params![transcript.as_str(), to_column(up_to)])?;
    if known.forgotten == 0 {
        transaction.pragma_update(None, "user_version", database::VERSION)?;
    }
    Ok(up_to)
}

/// Tells whether the batch that came to `outcomes` is in the log. One of its rows speaks for all: a transaction is atomic.
fn is_stored(
    transaction: &Transaction<'_>,
    batch: &[Queued],
    outcomes: &[Outcome],
) -> rusqlite::Result<bool> {
    for (queued, outcome) in batch.iter().zip(outcomes) {
        match (&queued.request, outcome) {
            (Request::Append { commit, .. }, Outcome::Appended) => {
                return transaction.query_row(
                    "SELECT EXISTS (SELECT 1 FROM commits WHERE number = ? AND id = ?)",
                    params![to_column(commit.number), commit.id.0],
                    |row| row.get(0),
                );
            }
            (Request::Record { transcript, .. }, Outcome::Recorded(number)) => {
                return transaction.query_row(
                    "SELECT EXISTS (SELECT 1 FROM transcripts WHERE conversation = ? AND number = ?)",
                    params![transcript.as_str(), to_column(*number)],
                    |row| row.get(0),
                );
            }
            (Request::Forget { transcript, .. }, Outcome::Forgotten(up_to)) => {
                let extent = database::extent(transaction, transcript)?;
                return Ok(extent.is_ok_and(|extent| extent.forgotten >= *up_to));
            }
            _ => {}
        }
    }
    // It wrote nothing, so there is nothing to lose.
    Ok(true)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;
    use crate::CommitId;
    use crate::engines::files;

    fn io_error() -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None)
    }

    /// Appends a commit and a record in one transaction whose COMMIT is `commit`, and returns what each was told.
    fn append_with(
        commit: fn(Transaction<'_>) -> rusqlite::Result<()>,
    ) -> (Result<(), AppendError>, Result<u64, String>, Head) {
        let dir = tempfile::tempdir().unwrap();
        let path = database::path(dir.path());
        files::create(&path).unwrap();
        let connection = Some(database::open(&path, Synchronous::Full).unwrap());
        let (appended, _) = watch::channel(());
        let mut writer = Writer {
            path,
            synchronous: Synchronous::Full,
            connection,
            in_doubt: false,
            acknowledged: Acknowledged::open(dir.path()).unwrap(),
            appended,
            n_transactions: Arc::default(),
            commit,
        };

        let room = Arc::new(Semaphore::new(0));
        let queued =
            |request| Queued { request, _room: room.clone().try_acquire_many_owned(0).unwrap() };
        let first = Head::EMPTY.next(CommitId([1; 16]), b"{}".to_vec());
        let (append, mut appended) = oneshot::channel();
        let (record, mut recorded) = oneshot::channel();
        let transcript = TranscriptName::new("a.b").unwrap();
        writer.write(&mut vec![
            queued(Request::Append { hash: first.hash(), commit: first, reply: append }),
            queued(Request::Record { transcript, bytes: b"hello".to_vec(), reply: record }),
        ]);
        let head = database::head(&writer.begin().unwrap()).unwrap();
        let recorded = recorded.try_recv().unwrap().map_err(|error| error.to_string());
        (appended.try_recv().unwrap(), recorded, head)
    }

    #[test]
    fn what_is_stored_although_commit_failed_is_acknowledged() {
        let (appended, recorded, head) = append_with(|transaction| {
            transaction.commit()?;
            Err(io_error())
        });
        assert_eq!((appended, recorded, head.number), (Ok(()), Ok(1), 1));
    }

    #[test]
    fn what_is_not_stored_when_commit_failed_is_refused() {
        let (appended, recorded, head) = append_with(|_| Err(io_error()));
        let why = io_error().to_string();
        assert_eq!(
            (appended, recorded, head),
            (
                Err(AppendError::Unavailable(why.clone())),
                Err(Error::Unavailable(why).to_string()),
                Head::EMPTY
            )
        );
    }
}
