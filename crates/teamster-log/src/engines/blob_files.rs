//! Blobs as files: `<dir>/blobs/<2 hex>/<62 hex>`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{directory, files};
use crate::log::{MAX_BLOB_BYTES, check_size};
use crate::{Blobs, Error, Hash};

pub(super) struct BlobFiles(Arc<Places>);

struct Places {
    blobs: PathBuf,
    scratch: PathBuf,
    access: Access,
}

/// What the one who opened the log may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Why a write was refused.
pub(super) const READ_ONLY: &str = "the log was opened read-only";

impl BlobFiles {
    pub(super) fn new(dir: &Path, access: Access) -> Self {
        Self(Arc::new(Places {
            blobs: dir.join("blobs"),
            scratch: directory::scratch(dir),
            access,
        }))
    }
}

impl Blobs for BlobFiles {
    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<Hash, Error>> {
        let places = self.0.clone();
        blocking("store a blob", move || places.put(&bytes)).boxed()
    }

    fn get(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Vec<u8>>, Error>> {
        let places = self.0.clone();
        blocking("read a blob", move || places.get(hash)).boxed()
    }

    fn names(&self, after: Option<Hash>, limit: usize) -> BoxFuture<'_, Result<Vec<Hash>, Error>> {
        let places = self.0.clone();
        blocking("list blobs", move || {
            places.names(after, limit).map_err(|error| {
                Error::failed(format!("list the blobs in {}", places.blobs.display()), error)
            })
        })
        .boxed()
    }
}

impl Places {
    /// Always writes, even if the file exists: that mends a damaged one, and there is no question whether an earlier,
    /// interrupted `put` had synced it.
    fn put(&self, bytes: &[u8]) -> Result<Hash, Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::Unavailable(READ_ONLY.to_owned()));
        }
        check_size("a blob", bytes, MAX_BLOB_BYTES)?;
        let hash = Hash::of(bytes);
        let (dir, path) = self.paths(hash);
        files::create_dir(&dir)
            .and_then(|()| files::sync_dir(&self.blobs))
            .and_then(|()| files::replace(&self.scratch, &path, &[bytes]))
            .map_err(|error| Error::failed(format!("store blob {}", path.display()), error))?;
        Ok(hash)
    }

    fn get(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        let (_, path) = self.paths(hash);
        let bytes = files::read(&path)
            .map_err(|error| Error::failed(format!("read blob {}", path.display()), error))?;
        match bytes {
            Some(bytes) if Hash::of(&bytes) != hash => Err(Error::DamagedBlob(hash)),
            bytes => Ok(bytes),
        }
    }

    fn names(&self, after: Option<Hash>, limit: usize) -> io::Result<Vec<Hash>> {
        let mut names = Vec::new();
        for dir in sorted(&self.blobs)? {
            // As much of the name as the directory says; a later one has only later blobs.
            if after.is_some_and(|after| *dir < after.to_string()[..2]) {
                continue;
            }
            for file in sorted(&self.blobs.join(&dir))? {
                // Whatever else is there is nobody's blob.
                let Ok(hash) = format!("{dir}{file}").parse() else { continue };
                if names.len() == limit {
                    return Ok(names);
                }
                if after.is_none_or(|after| hash > after) {
                    names.push(hash);
                }
            }
        }
        Ok(names)
    }

    fn paths(&self, hash: Hash) -> (PathBuf, PathBuf) {
        let name = hash.to_string();
        let (dir, file) = name.split_at(2);
        let dir = self.blobs.join(dir);
        let path = dir.join(file);
        (dir, path)
    }
}

/// Returns the names in a directory in order; none if there is no such directory.
fn sorted(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Runs what waits for the disk where it does not hold up others.
pub(super) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::failed(doing, error)),
    }
}
