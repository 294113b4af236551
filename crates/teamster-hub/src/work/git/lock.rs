//! The lock that one hub at a time has on a repository. Its file is there only while somebody has it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::Tree;
use crate::beneath::Directory;

/// Whoever had the lock may remove its file just when it is opened; so often it is opened again.
const TRIES_MAX: u32 = 10;

/// A lock on a repository, until it is dropped.
#[derive(Debug)]
pub(in crate::work) struct Lock {
    path: PathBuf,
    _file: std::fs::File,
}

/// What came of trying to get the lock.
#[derive(Debug)]
pub(in crate::work) enum Locking {
    Locked(Lock),
    /// Another hub has it.
    Taken,
    /// Not all file systems have locks, and not all repositories can be written.
    Impossible,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: whoever opened the file before sees that it is gone, and makes another.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Tree {
    /// Tries to get the lock of the repository.
    pub(in crate::work) fn lock(&self) -> Locking {
        let Some(common) = &self.common else { return Locking::Impossible };
        let path = common.join("teamster.lock");
        // Git names where it is without links, and an agent may have put one there.
        let Ok(below) = path.strip_prefix("/") else { return Locking::Impossible };
        for _ in 0..TRIES_MAX {
            let opened = Directory::open(Path::new("/"))
                .and_then(|root| root.file(below, OFlags::RDWR | OFlags::CREATE));
            let Ok(file) = opened else { return Locking::Impossible };
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => return Locking::Taken,
                Err(std::fs::TryLockError::Error(_)) => return Locking::Impossible,
            }
            let is_it = match (file.metadata(), std::fs::symlink_metadata(&path)) {
                (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
                (Err(_), _) | (_, Err(_)) => false,
            };
            if is_it {
                return Locking::Locked(Lock { path, _file: file });
            }
        }
        Locking::Taken
    }
}
