//! What was acknowledged last, noted outside the database: `<dir>/acknowledged`.
//!
//! SQLite takes a damaged write-ahead file for one whose end was never written, and drops what it held from there on; and
//! no hash chain can tell that its own end is missing. This note can. It is written after each durable transaction and
//! never synced: after a power loss it may be an old one, but it never names what was not durable. It costs a few
//! microseconds, and one that is damaged or missing only says nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::super::{OpenError, files};
use super::database::{self, to_column};
use crate::Hash;

/// How far a database goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The last commit and its hash; 0 and [`Hash::ZERO`] without commits.
    pub(super) number: u64,
    pub(super) hash: Hash,
    /// How many records there are, in all transcripts.
    pub(super) n_records: u64,
}

/// The note, open for writing.
pub(super) struct Acknowledged(File);

/// Starts the file; the last letter is the version of its layout.
const MAGIC: &[u8; 16] = b"teamsteracknowlA";
/// Magic, number, hash, number of records, checksum: well within a sector, so that it is written whole or not at all.
const NOTE_BYTES: usize = 16 + 8 + 32 + 8 + 32;

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("acknowledged")
}

impl Acknowledged {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        files::create(&path(dir)).map(Self)
    }

    /// Notes that everything up to here is durable and may be acknowledged.
    pub(super) fn note(&self, extent: Extent) {
        if let Err(error) = self.0.write_all_at(&encode(extent), 0) {
            // The note before it still holds.
            tracing::warn!(%error, "cannot note what was acknowledged");
        }
    }
}

impl Extent {
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let head = database::head(connection)?;
        let n_records = connection
            .prepare_cached("SELECT coalesce(max(rowid), 0) FROM transcripts")?
            .query_row([], |row| database::number(row, 0))?;
        Ok(Self { number: head.number, hash: head.hash, n_records })
    }
}

/// What a note names and the database does not have.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("commit {number} was acknowledged, but the log ends at commit {end}")]
    Commits { number: u64, end: u64 },
    #[error("commit {number} is not the one that was acknowledged")]
    OtherCommit { number: u64 },
    #[error("{noted} transcript records were acknowledged, but there are {found}")]
    Records { noted: u64, found: u64 },
    #[error(transparent)]
    Unreadable(#[from] rusqlite::Error),
}

/// Refuses a database that lacks what the directory's note names. Called before anything is written, so that what is
/// left of a damaged write-ahead file stays as it is.
pub(super) fn check_before_opening(dir: &Path) -> Result<(), OpenError> {
    let Some(noted) = read(dir) else { return Ok(()) };
    let connection = database::open_readonly(&database::path(dir))?;
    check(&connection, noted).map_err(|lost| match lost {
        Lost::Unreadable(error) => database::cannot("read", &database::path(dir), error),
        lost => OpenError::Lost { dir: dir.to_owned(), lost: lost.to_string(), note: path(dir) },
    })
}

pub(super) fn check(connection: &Connection, noted: Extent) -> Result<(), Lost> {
    let found = Extent::of(connection)?;
    if noted.number > found.number {
        return Err(Lost::Commits { number: noted.number, end: found.number });
    }
    if noted.n_records > found.n_records {
        return Err(Lost::Records { noted: noted.n_records, found: found.n_records });
    }
    let recorded = connection
        .prepare_cached("SELECT hash FROM commits WHERE number = ?")?
        .query_row([to_column(noted.number)], |row| database::hash(row, 0))
        .optional()?;
    match recorded.unwrap_or(Hash::ZERO) == noted.hash {
        true => Ok(()),
        false => Err(Lost::OtherCommit { number: noted.number }),
    }
}

/// Returns the note; nothing if there is none or it is damaged.
pub(super) fn read(dir: &Path) -> Option<Extent> {
    let bytes = files::read(&path(dir)).ok().flatten()?;
    let (magic, rest) = bytes.split_first_chunk::<16>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let (n_records, _) = rest.split_first_chunk::<8>()?;
    let extent = Extent {
        number: u64::from_be_bytes(*number),
        hash: Hash(*hash),
        n_records: u64::from_be_bytes(*n_records),
    };
    (magic == MAGIC && bytes == encode(extent)).then_some(extent)
}

fn encode(extent: Extent) -> Vec<u8> {
    let mut note = Vec::with_capacity(NOTE_BYTES);
    note.extend(MAGIC);
    note.extend(extent.number.to_be_bytes());
    note.extend(extent.hash.0);
    note.extend(extent.n_records.to_be_bytes());
    let checksum = Sha256::digest(&note);
    note.extend(checksum);
    note
}
