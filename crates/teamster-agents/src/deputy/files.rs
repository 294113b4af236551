//! File operations at paths that others name: git, a project, an agent. The hub can read what agents must not, so it never
//! opens such a path itself. Its deputy does, and sees no more than agents do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::command::STDOUT_BYTES_MAX;

/// Maximum size of a file to copy: the index of a repository with millions of files is smaller.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// Something to be done with a file. A symbolic link as the last part of a path is never followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileTask {
    /// Copies a regular file to a new one, with its modification time.
    Copy {
        from: OsString,
        to: OsString,
    },
    /// Reads the beginning of a regular file.
    Read {
        path: OsString,
        bytes_max: u64,
    },
    /// Lists the names in a directory, each followed by a NUL.
    List {
        directory: OsString,
    },
    Rename {
        from: OsString,
        to: OsString,
    },
    /// Makes a directory and those above it.
    MakeDirectory {
        directory: OsString,
    },
    /// Removes a file.
    Remove {
        path: OsString,
    },
    /// Removes a directory if it is empty.
    RemoveDirectory {
        directory: OsString,
    },
    /// Removes a directory with everything in it.
    RemoveAll {
        directory: OsString,
    },
}

impl FileTask {
    pub fn copy(from: &Path, to: &Path) -> Self {
        Self::Copy { from: from.into(), to: to.into() }
    }

    /// Reads at most 64 MB.
    pub fn read(path: &Path, bytes_max: u64) -> Self {
        Self::Read { path: path.into(), bytes_max: bytes_max.min(STDOUT_BYTES_MAX as u64) }
    }

    pub fn list(directory: &Path) -> Self {
        Self::List { directory: directory.into() }
    }

    pub fn rename(from: &Path, to: &Path) -> Self {
        Self::Rename { from: from.into(), to: to.into() }
    }

    pub fn make_directory(directory: &Path) -> Self {
        Self::MakeDirectory { directory: directory.into() }
    }

    pub fn remove(path: &Path) -> Self {
        Self::Remove { path: path.into() }
    }

    pub fn remove_directory(directory: &Path) -> Self {
        Self::RemoveDirectory { directory: directory.into() }
    }

    pub fn remove_all(directory: &Path) -> Self {
        Self::RemoveAll { directory: directory.into() }
    }
}

/// Does it, and returns what was read.
pub(super) fn perform(task: &FileTask) -> io::Result<Vec<u8>> {
    match task {
        FileTask::Copy { from, to } => copy(from.as_ref(), to.as_ref())?,
        FileTask::Read { path, bytes_max } => {
            let mut bytes = Vec::new();
            open(path.as_ref())?.take(*bytes_max).read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
        FileTask::List { directory } => return list(directory.as_ref()),
        FileTask::Rename { from, to } => fs::rename(from, to)?,
        FileTask::MakeDirectory { directory } => fs::create_dir_all(directory)?,
        FileTask::Remove { path } => fs::remove_file(path)?,
        FileTask::RemoveDirectory { directory } => fs::remove_dir(directory)?,
        FileTask::RemoveAll { directory } => fs::remove_dir_all(directory)?,
    }
    Ok(Vec::new())
}

/// Opens a regular file. Opening a pipe would wait for its writer.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(ErrorKind::InvalidInput.into()),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let from = open(from)?;
    let about = from.metadata()?;
    if about.len() > COPY_BYTES_MAX {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let mut to = File::options().write(true).create_new(true).open(to)?;
    io::copy(&mut from.take(COPY_BYTES_MAX), &mut to)?;
    to.set_modified(about.modified()?)
}

fn list(directory: &Path) -> io::Result<Vec<u8>> {
    if directory.is_symlink() {
        return Err(ErrorKind::NotADirectory.into());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.extend_from_slice(entry?.file_name().as_bytes());
        names.push(0);
        if names.len() > STDOUT_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_neither_read_nor_copied_and_nobody_waits() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("plain"), "text").unwrap();
        symlink(path("plain"), path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        assert_eq!(perform(&FileTask::read(&path("plain"), 3)).unwrap(), b"tex");
        for name in ["link", "directory", "pipe", "missing"] {
            perform(&FileTask::read(&path(name), 3)).expect_err(name);
            perform(&FileTask::copy(&path(name), &path("copy"))).expect_err(name);
            assert!(!path("copy").exists(), "{name}");
        }
        perform(&FileTask::copy(&path("plain"), &path("copy"))).unwrap();
        let changed = |name: &str| path(name).metadata().unwrap().modified().unwrap();
        assert_eq!(changed("copy"), changed("plain"));
        // What is there stays.
        perform(&FileTask::copy(&path("plain"), &path("copy"))).unwrap_err();
        assert_eq!(perform(&FileTask::list(&path("directory"))).unwrap(), b"");
        symlink(path("directory"), path("elsewhere")).unwrap();
        perform(&FileTask::list(&path("elsewhere"))).unwrap_err();
        // The link goes, and not what it leads to.
        perform(&FileTask::remove_all(&path("elsewhere"))).unwrap();
        assert!(path("directory").exists() && !path("elsewhere").exists());
    }
}
