//! Reading, over a connection of its own, so that a long read never delays a write.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::OpenError;
use super::super::page::Page;
use super::database::{self, to_column};
use crate::{Commit, Conversation, Error, Hash, Head, Record};

/// Waits for the disk: call it where that is allowed.
pub(super) struct Reader(Mutex<Connection>);

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        database::open_readonly(path).map(|connection| Self(Mutex::new(connection)))
    }

    pub(super) fn head(&self) -> Result<Head, Error> {
        database::head(&self.connection())
            .map_err(|error| Error::failed("read the head of the log", error))
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
        conversation: &Conversation,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        let failed = |error| Error::failed(format!("read the transcript of {conversation}"), error);
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached(
                "SELECT number, record FROM transcripts WHERE conversation = ? AND number > ? ORDER BY number LIMIT ?",
            )
            .map_err(failed)?;
        let mut rows = statement
            .query(params![conversation.as_str(), to_column(after), to_column(limit as u64)])
            .map_err(failed)?;
        let mut page = Page::new(limit);
        while let Some(row) = rows.next().map_err(failed)? {
            let record = Record {
                number: database::number(row, 0).map_err(failed)?,
                bytes: row.get(1).map_err(failed)?,
            };
            if !page.takes(record.bytes.len(), record) {
                break;
            }
        }
        Ok(page.into_items())
    }

    /// A panic while reading leaves nothing half done, so a poisoned lock is as good as another.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    Ok((commit, hash))
}
