//! Reading, over a connection of its own, so that a long read never delays a write.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::OpenError;
use super::super::page::Page;
use super::database::{self, to_column};
use super::{acknowledged, sealed};
use crate::{Commit, Error, Extent, Hash, Head, Record, TranscriptName};

/// Waits for the disk: call it where that is allowed.
pub(super) struct Reader {
    connection: Mutex<Connection>,
    dir: PathBuf,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let dir = path.parent().unwrap_or(path).to_owned();
        database::open_readonly(path)
            .map(|connection| Self { connection: Mutex::new(connection), dir })
    }

    pub(super) fn head(&self) -> Result<Head, Error> {
        // Read first: a hub at work notes more meanwhile.
        let noted = acknowledged::read(&self.dir);
        let connection = self.connection();
        if let Some(noted) = noted {
            acknowledged::check(&connection, noted)
                .map_err(|lost| Error::failed("find the end of the log", lost))?;
        }
        database::head(&connection)
            .map_err(|error| Error::failed("read the head of the log", error))
    }

    /// Has SQLite check its own structures; takes as long as reading all of the database.
    pub(super) fn damage(&self) -> Result<Option<String>, Error> {
        let found: String = self
            .connection()
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|error| Error::failed("check the database", error))?;
        Ok(Some(found).filter(|found| found != "ok"))
    }

    pub(super) fn commits(&self, after: u64, limit: usize) -> Result<Vec<Commit>, Error> {
        let failed = |error| Error::failed(format!("read the commits after {after}"), error);
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT number, id, hash, body FROM commits WHERE number > ? ORDER BY number LIMIT ?")
            .map_err(failed)?;
        let mut rows =
            statement.query(params![to_column(after), to_column(limit as u64)]).map_err(failed)?;
        let mut page = Page::new(limit);
        let mut number = after;
        let mut prev = None;
        while let Some(row) = rows.next().map_err(failed)? {
            number += 1;
            if prev.is_none() {
                prev = hash_of(&connection, after).map_err(failed)?;
            }
            let (commit, hash) = match commit(row, number, prev) {
                Ok(found) => found,
                // What is sound before it is delivered; the next read begins with the damage.
                Err(_) if !page.is_empty() => break,
                Err(why) => return Err(Error::DamagedCommit { number, why }),
            };
            prev = Some(hash);
            if !page.takes(commit.body.len(), commit) {
                break;
            }
        }
        Ok(page.into_items())
    }

    pub(super) fn records(
        &self,
        transcript: &TranscriptName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        let failed = |error| Error::failed(format!("read the transcript {transcript}"), error);
        let connection = self.connection();
        let Extent { forgotten, .. } =
            database::extent(&connection, transcript).map_err(failed)??;
        let after = after.max(forgotten);
        let mut statement = connection
            .prepare_cached(
                "SELECT number, record FROM transcripts WHERE conversation = ? AND number > ? ORDER BY number LIMIT ?",
            )
            .map_err(failed)?;
        let mut rows = statement
            .query(params![transcript.as_str(), to_column(after), to_column(limit as u64)])
            .map_err(failed)?;
        let mut page = Page::new(limit);
        let mut number = after;
        while let Some(row) = rows.next().map_err(failed)? {
            number += 1;
            let found = database::number(row, 0).map_err(failed)?;
            let bytes = sealed::unseal(transcript, number, row.get(1).map_err(failed)?);
            let record = match bytes.filter(|_| found == number) {
                Some(bytes) => Record { number, bytes },
                None if !page.is_empty() => break,
                None => {
                    let transcript = transcript.clone();
                    return Err(Error::DamagedRecord { transcript, number });
                }
            };
            if !page.takes(record.bytes.len(), record) {
                break;
            }
        }
        Ok(page.into_items())
    }

    pub(super) fn extent(&self, transcript: &TranscriptName) -> Result<Extent, Error> {
        database::extent(&self.connection(), transcript)
            .map_err(|error| Error::failed(format!("read the transcript {transcript}"), error))?
    }

    pub(super) fn names(
        &self,
        after: Option<&TranscriptName>,
        limit: usize,
    ) -> Result<Vec<TranscriptName>, Error> {
        let failed = |error| Error::failed("list the transcripts", error);
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT DISTINCT conversation FROM transcripts WHERE conversation > ? ORDER BY conversation LIMIT ?")
            .map_err(failed)?;
        let after = after.map_or("", TranscriptName::as_str);
        let names = statement
            .query_map(params![after, to_column(limit as u64)], |row| row.get::<_, String>(0))
            .map_err(failed)?;
        names
            .map(|name| {
                TranscriptName::new(name.map_err(failed)?)
                    .map_err(|damaged| Error::failed("list the transcripts", damaged))
            })
            .collect()
    }

    /// A panic while reading leaves nothing half done, so a poisoned lock is as good as another.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the hash recorded for a commit; `None` if there is no such commit.
fn hash_of(connection: &Connection, number: u64) -> rusqlite::Result<Option<Hash>> {
    if number == 0 {
        return Ok(Some(Hash::ZERO));
    }
    connection
        .prepare_cached("SELECT hash FROM commits WHERE number = ?")?
        .query_row([to_column(number)], |row| database::hash(row, 0))
        .optional()
}

/// Returns a commit and the hash recorded for it, or why it is damaged.
fn commit(row: &Row<'_>, number: u64, prev: Option<Hash>) -> Result<(Commit, Hash), String> {
    let found = database::number(row, 0).map_err(|error| error.to_string())?;
    if found != number {
        return Err(format!("it is missing, though commit {found} exists"));
    }
    let commit = Commit {
        number,
        id: database::commit_id(row, 1).map_err(|_| "its id is not an id")?,
        prev: prev.ok_or("the commit before it is missing")?,
        // Not as a string: rot must be found by the hash, not by UTF-8.
        body: row
            .get_ref(3)
            .and_then(|body| Ok(body.as_bytes()?.to_vec()))
            .map_err(|error| error.to_string())?,
    };
    let hash = database::hash(row, 2).map_err(|_| "its recorded hash is not a hash")?;
    // On every read, not only when somebody verifies: what a hub replays or shows is what was written.
    let is = commit.hash();
    if is != hash {
        return Err(format!("its hash is {is}, but {hash} was recorded"));
    }
    Ok((commit, hash))
}
