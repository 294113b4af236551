//! Writing a log anew: a second log grows in `<dir>/log.rewrite` and takes the place of the first, all or nothing.
//!
//! The moment at which that is settled is the renaming to `<dir>/log.rewritten`. Whoever takes the directory's lock next,
//! usually ourselves, puts it into place; before that moment whatever was written is only in the way, and removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::{OpenError, Options, files, open};
use crate::Log;

/// A log that is being written anew. Dropping it leaves the old one as it was.
pub struct Rewrite {
    dir: PathBuf,
    old: Arc<dyn Log>,
    new: Arc<dyn Log>,
}

impl Rewrite {
    /// Takes the directory for this process and makes an empty log beside the one it has.
    pub fn begin(dir: &Path, options: Options) -> Result<Self, OpenError> {
        if !super::directory::engine_path(dir).exists() {
            return Err(OpenError::NoLog { dir: dir.to_owned() });
        }
        let old = open(dir, options)?;
        let new = open(&unfinished(dir), options)?;
        Ok(Self { dir: dir.to_owned(), old, new })
    }

    pub fn old(&self) -> &dyn Log {
        self.old.as_ref()
    }

    pub fn new_log(&self) -> &dyn Log {
        self.new.as_ref()
    }

    /// Puts the new log into the place of the old one.
    pub fn finish(self) -> Result<(), OpenError> {
        let Self { dir, old, new } = self;
        // Closing writes all of it into its files, which are what is moved.
        drop(new);
        fs::rename(unfinished(&dir), finished(&dir))
            .and_then(|()| files::sync_dir(&dir))
            .map_err(|error| failed("finish", &dir, error))?;
        drop(old);
        open(&dir, Options::default()).map(drop)
    }
}

fn unfinished(dir: &Path) -> PathBuf {
    dir.join("log.rewrite")
}

fn finished(dir: &Path) -> PathBuf {
    dir.join("log.rewritten")
}

/// Ends what an earlier process began, one way or the other. Only for the holder of the directory's lock. `adopt` moves an
/// engine's files; it may be repeated after a crash.
pub(super) fn settle(
    dir: &Path,
    adopt: fn(&Path, &Path) -> io::Result<()>,
) -> Result<(), OpenError> {
    let (unfinished, finished) = (unfinished(dir), finished(dir));
    let settle = || {
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        if finished.exists() {
            adopt(dir, &finished)?;
            files::sync_dir(dir)?;
            fs::remove_dir_all(&finished)?;
            files::sync_dir(dir)?;
        }
        Ok(())
    };
    settle().map_err(|error| failed("take over", dir, error))
}

fn failed(doing: &str, dir: &Path, error: io::Error) -> OpenError {
    OpenError::failed(format!("{doing} the rewritten log in {}", dir.display()), error)
}
