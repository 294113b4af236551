//! Private files that are either whole and durable or absent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind::{InvalidInput, PermissionDenied};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes a directory, and those above it, that only the user can enter; durable. An existing one stays as it is.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    let missing = dir
        .ancestors()
        .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
        .collect::<Vec<_>>();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_dir)
}

/// Opens a file that only the user can read, and makes it if it does not exist.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes new names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let is_here = dir.as_os_str().is_empty();
    File::open(if is_here { Path::new(".") } else { dir })?.sync_all()
}

/// Makes sure that a directory can still be found after a crash, whoever made it and those above it.
pub(super) fn sync_names_of(dir: &Path) -> io::Result<()> {
    for above in fs::canonicalize(dir)?.ancestors().skip(1) {
        match sync_dir(above) {
            // One that we may not read we did not make, and some file systems have nothing to sync.
            Err(error) if matches!(error.kind(), PermissionDenied | InvalidInput) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Writes `parts` to `target`, replacing what was there: after a crash either the old or the new content is there, and when
/// this returns it is the new. `scratch` is a directory on the same file system for the unfinished file.
pub(super) fn replace(scratch: &Path, target: &Path, parts: &[&[u8]]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let unfinished =
        scratch.join(format!("{}-{}", process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let written = write(&unfinished, parts).and_then(|()| fs::rename(&unfinished, target));
    if written.is_err() {
        // It may not exist; what stays is removed when the directory is next opened.
        let _ = fs::remove_file(&unfinished);
    }
    written?;
    target.parent().map_or(Ok(()), sync_dir)
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

/// Removes what a crash left unfinished. Only for the holder of the directory's lock.
pub(super) fn empty_dir(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// Removes a file; it may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
