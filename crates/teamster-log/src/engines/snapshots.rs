//! The kept snapshot as a file: `<dir>/snapshot`. Not in the database, since one large write there would hold up every
//! commit behind it, twice (once into the journal, once at the checkpoint).

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::{directory, files};
use crate::{Error, Hash, Log, Snapshot};

/// Starts the file; the last letter is the version of its layout.
const MAGIC: &[u8; 16] = b"teamstersnapshtA";
/// Magic, checksum, format, number, hash.
const HEADER_BYTES: usize = 16 + 32 + 4 + 8 + 32;

/// More than any state that fits in memory comfortably; a larger one is a mistake that would fill the disk.
const MAX_SNAPSHOT_BYTES: usize = 1 << 30;

pub(super) struct SnapshotFile {
    path: PathBuf,
    scratch: PathBuf,
    /// Comparing with the kept one and replacing it is one step.
    replacing: Mutex<()>,
}

impl SnapshotFile {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            path: dir.join("snapshot"),
            scratch: directory::scratch(dir),
            replacing: Mutex::new(()),
        }
    }

    pub(super) fn put(&self, snapshot: &Snapshot) -> Result<(), Error> {
        crate::log::check_size("a snapshot", &snapshot.bytes, MAX_SNAPSHOT_BYTES)?;
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get()?.is_some_and(|kept| outranks(&kept, snapshot)) {
            return Ok(());
        }
        let fields = fields(snapshot);
        let checksum = checksum(&fields, &snapshot.bytes);
        files::replace(&self.scratch, &self.path, &[MAGIC, &checksum.0, &fields, &snapshot.bytes])
            .map_err(|error| Error::failed(format!("write {}", self.path.display()), error))
    }

    /// Returns what is kept, of whatever format; nothing if it is damaged.
    pub(super) fn get(&self) -> Result<Option<Snapshot>, Error> {
        let file = files::read(&self.path)
            .map_err(|error| Error::failed(format!("read {}", self.path.display()), error))?;
        let Some(file) = file else { return Ok(None) };
        let snapshot = decode(file);
        if snapshot.is_none() {
            tracing::warn!(path = %self.path.display(), "ignoring a damaged snapshot; starting takes longer this time");
        }
        Ok(snapshot)
    }
}

/// Tells whether `kept` stays although `new` was offered. One of another format is of no use to the program that offers.
pub(super) fn outranks(kept: &Snapshot, new: &Snapshot) -> bool {
    kept.format == new.format && kept.number > new.number
}

/// Tells whether a snapshot was made from this log: after restoring an older log beside it, it was not.
pub(super) async fn belongs(log: &dyn Log, snapshot: &Snapshot) -> Result<bool, Error> {
    let hash = match snapshot.number.checked_sub(1) {
        None => Some(Hash::ZERO),
        Some(before) => log.read(before, 1).await?.first().map(|commit| commit.hash()),
    };
    let belongs = hash == Some(snapshot.hash);
    if !belongs {
        tracing::warn!(number = snapshot.number, "ignoring a snapshot of another history");
    }
    Ok(belongs)
}

fn fields(snapshot: &Snapshot) -> Vec<u8> {
    [&snapshot.format.to_be_bytes()[..], &snapshot.number.to_be_bytes(), &snapshot.hash.0].concat()
}

fn checksum(fields: &[u8], bytes: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update(fields).chain_update(bytes).finalize().into())
}

fn decode(mut file: Vec<u8>) -> Option<Snapshot> {
    let (magic, rest) = file.split_first_chunk::<16>()?;
    let (recorded, rest) = rest.split_first_chunk::<32>()?;
    let (format, rest) = rest.split_first_chunk::<4>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (hash, _) = rest.split_first_chunk::<32>()?;
    let snapshot = Snapshot {
        number: u64::from_be_bytes(*number),
        hash: Hash(*hash),
        format: u32::from_be_bytes(*format),
        bytes: Vec::new(),
    };
    let sound =
        magic == MAGIC && checksum(&fields(&snapshot), &file[HEADER_BYTES..]).0 == *recorded;
    file.drain(..HEADER_BYTES);
    sound.then_some(Snapshot { bytes: file, ..snapshot })
}
