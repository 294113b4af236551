//! The lock that one hub at a time has on a repository. Its file is there only while somebody has it.

use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::Tree;

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
        // An agent may have put a link there.
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        for _ in 0..TRIES_MAX {
            let mut open = std::fs::File::options();
            let open = open.read(true).write(true).create(true).truncate(false);
            let Ok(file) = open.custom_flags(no_link).open(&path) else {
                return Locking::Impossible;
            };
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
