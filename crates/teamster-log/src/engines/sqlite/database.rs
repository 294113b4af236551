//! The database file: how it is opened, what is in it, and the few statements that more than one place needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, ffi};

use super::super::{OpenError, Synchronous};
use super::sealed;
use crate::{CommitId, Error, Extent, Hash, Head, TranscriptName};

/// The newest version of the tables, kept in SQLite's `user_version`. A database becomes one of this version when records
/// are first forgotten: a program that does not know of that would take them for damage, and use their numbers again.
pub(super) const VERSION: u32 = 2;

/// `body` is TEXT so that people can read a log with sqlite3. A commit's `prev` is the `hash` of the row before it.
/// `repairs` is written to settle a failed transaction: see `writer.rs`. Of a transcript whose oldest records are
/// forgotten, record 0 says which is the last of those: see `sealed.rs`.
const TABLES: &str = "
    CREATE TABLE commits (
        number INTEGER PRIMARY KEY,
        id     BLOB NOT NULL,
        hash   BLOB NOT NULL,
        body   TEXT NOT NULL
    ) STRICT;
    CREATE TABLE transcripts (
        conversation TEXT NOT NULL,
        number       INTEGER NOT NULL,
        record       BLOB NOT NULL,
        PRIMARY KEY (conversation, number)
    ) STRICT;
    CREATE TABLE repairs (n INTEGER NOT NULL) STRICT;
    INSERT INTO repairs VALUES (0);
    PRAGMA user_version = 1;
";

/// How long to wait for somebody else's lock: only a person who holds one with sqlite3, or a copy being made.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Above this the write-ahead file is cut back after a burst, so that it does not keep the disk space for ever.
const MAX_IDLE_WAL_BYTES: u32 = 64 << 20;

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("log.db")
}

/// Opens the database for writing and makes the tables if they are not there.
pub(super) fn open(path: &Path, synchronous: Synchronous) -> Result<Connection, OpenError> {
    let failed = |error| cannot("open", path, error);
    let mut connection = connect(path, synchronous).map_err(failed)?;
    if version(&connection, path)? == 0 {
        let transaction = connection.transaction().map_err(failed)?;
        transaction.execute_batch(TABLES).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    // A process that was killed may have left commits that are readable but not synced. Nobody may see them before they are.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)?;
    Ok(connection)
}

/// Opens an existing database for writing. The file exists, since whoever makes it decides who may read it.
pub(super) fn connect(path: &Path, synchronous: Synchronous) -> rusqlite::Result<Connection> {
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        let mode: String = row.get(0)?;
        // Without it (on some file systems) readers would block the writer, and an append would be more than one sync.
        if mode == "wal" { Ok(()) } else { Err(rusqlite::Error::InvalidQuery) }
    })?;
    let word = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
        Synchronous::Off => "OFF",
    };
    connection.pragma_update(None, "synchronous", word)?;
    connection.pragma_update(None, "journal_size_limit", MAX_IDLE_WAL_BYTES)?;
    Ok(connection)
}

/// Opens the database so that nothing can be written through it.
pub(super) fn open_readonly(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| cannot("open", path, error);
    let dir = || path.parent().unwrap_or(path).to_owned();
    let mut connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    if user_version(&connection).is_err_and(|error| needs_to_write(&error)) {
        if !is_closed(path) {
            return Err(OpenError::NotClosed { dir: dir() });
        }
        connection = open_closed(path).map_err(failed)?;
    }
    match version(&connection, path)? {
        // Somebody is making it right now, or was interrupted while doing so.
        0 => Err(OpenError::NoLog { dir: dir() }),
        _ => Ok(connection),
    }
}

/// Says whether SQLite lacks the files that it makes beside a database, and cannot make them.
fn needs_to_write(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let codes = [
        ffi::SQLITE_READONLY_DIRECTORY,
        ffi::SQLITE_READONLY_CANTINIT,
        ffi::SQLITE_READONLY_RECOVERY,
        ffi::SQLITE_CANTOPEN,
    ];
    code.is_some_and(|code| codes.contains(&code))
}

/// Says whether everything is in the database file: SQLite removes the other two when the last connection closes.
fn is_closed(path: &Path) -> bool {
    ["-wal", "-shm"].iter().all(|ending| {
        let mut beside = path.as_os_str().to_owned();
        beside.push(ending);
        matches!(Path::new(&beside).try_exists(), Ok(false))
    })
}

/// Opens a database that nobody has open, in a directory that cannot be written: without locks and without other files.
fn open_closed(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str("?immutable=1");
    open_file(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

fn open_file(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn user_version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn version(connection: &Connection, path: &Path) -> Result<u32, OpenError> {
    let found = user_version(connection).map_err(|error| cannot("read", path, error))?;
    if found > VERSION {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    Ok(found)
}

/// Says why a log was not opened. SQLite has two ways to say that the disk is full, and one of them nobody understands.
pub(super) fn cannot(verb: &str, path: &Path, error: rusqlite::Error) -> OpenError {
    let code = error.sqlite_error().map(|error| error.extended_code);
    if matches!(code, Some(ffi::SQLITE_FULL | ffi::SQLITE_IOERR_SHMSIZE)) {
        return OpenError::DiskFull { path: path.to_owned() };
    }
    OpenError::failed(format!("{verb} the log {}", path.display()), error)
}

pub(super) fn head(connection: &Connection) -> rusqlite::Result<Head> {
    connection
        .prepare_cached("SELECT number, id, hash FROM commits ORDER BY number DESC LIMIT 1")?
        .query_row([], |row| {
            Ok(Head { number: number(row, 0)?, id: Some(commit_id(row, 1)?), hash: hash(row, 2)? })
        })
        .optional()
        .map(|head| head.unwrap_or(Head::EMPTY))
}

/// Returns which records of a transcript there are.
pub(super) fn extent(
    connection: &Connection,
    transcript: &TranscriptName,
) -> rusqlite::Result<Result<Extent, Error>> {
    let kept: Option<Vec<u8>> = connection
        .prepare_cached("SELECT record FROM transcripts WHERE conversation = ? AND number = 0")?
        .query_row([transcript.as_str()], |row| row.get(0))
        .optional()?;
    let forgotten = match kept.map(|kept| sealed::forgotten(transcript, kept)) {
        None => 0,
        Some(Some(forgotten)) => forgotten,
        Some(None) => {
            let transcript = transcript.clone();
            return Ok(Err(Error::DamagedRecord { transcript, number: 0 }));
        }
    };
    let last = connection
        .prepare_cached("SELECT coalesce(max(number), 0) FROM transcripts WHERE conversation = ?")?
        .query_row([transcript.as_str()], |row| number(row, 0))?;
    Ok(Ok(Extent { forgotten, last: last.max(forgotten) }))
}

pub(super) fn commit_id(row: &Row<'_>, column: usize) -> rusqlite::Result<CommitId> {
    row.get(column).map(CommitId)
}

pub(super) fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Hash> {
    row.get(column).map(Hash)
}

/// SQLite's integers are signed; ours start at 1, so a negative one is rot and sorts before them.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

/// No log reaches the numbers that do not fit; asking for them finds nothing.
pub(super) fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Options, files};

    /// Losing one of these settings would lose acknowledged commits, and only when the power fails.
    #[test]
    fn every_writing_connection_syncs_each_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        files::create(&path).unwrap();
        let usual = Options::default().synchronous;
        for connection in [open(&path, usual).unwrap(), connect(&path, usual).unwrap()] {
            let journal_mode: String =
                connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
            let synchronous: u32 =
                connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
            assert_eq!((journal_mode.as_str(), synchronous), ("wal", 2), "2 is FULL");
        }
    }
}
