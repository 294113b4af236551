//! The data directory itself: its lock, the note of its engine, and whether it is a place for a log at all.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use super::{OpenError, Options, files};

/// The right to write into a data directory; released when dropped, and by the system when the process ends.
pub(super) struct Lock {
    dir: PathBuf,
    _file: File,
}

impl Lock {
    /// Makes the directory if necessary and takes it, unless another process has it.
    pub(super) fn take(dir: &Path, options: Options) -> Result<Self, OpenError> {
        files::create_dir(dir)
            .and_then(|()| files::sync_names_of(dir))
            .map_err(|error| failed("make the data directory", dir, error))?;
        let found = file_system(dir).map_err(|error| failed("look at", dir, error))?;
        if found.is_network && !options.accept_network_file_system {
            return Err(OpenError::NetworkFileSystem { dir: dir.to_owned(), kind: found.name });
        }
        let path = dir.join("lock");
        let mut file = files::create(&path).map_err(|error| failed("open", &path, error))?;
        match try_for_a_moment(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: dir.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path, error)),
        }
        write_pid(&mut file).map_err(|error| failed("write", &path, error))?;
        let scratch = scratch(dir);
        files::create_dir(&scratch)
            .and_then(|()| files::empty_dir(&scratch))
            .map_err(|error| failed("clear", &scratch, error))?;
        Ok(Self { dir: dir.to_owned(), _file: file })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Takes the lock, unless somebody keeps it. Whoever only asks whether it is taken holds it for a moment, too.
fn try_for_a_moment(file: &File) -> Result<(), TryLockError> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            taken => return taken,
        }
    }
    file.try_lock()
}

/// Where unfinished files are.
pub(super) fn scratch(dir: &Path) -> PathBuf {
    dir.join("log.unfinished")
}

pub(super) fn engine_path(dir: &Path) -> PathBuf {
    dir.join("engine")
}

/// Returns what the directory says about its engine; `None` in a new directory.
pub(super) fn read_engine(dir: &Path) -> Result<Option<String>, OpenError> {
    let path = engine_path(dir);
    match files::read(&path) {
        Ok(line) => Ok(line.map(|line| String::from_utf8_lossy(&line).into_owned())),
        Err(error) => Err(failed("read", &path, error)),
    }
}

pub(super) fn write_engine(dir: &Path, line: &str) -> Result<(), OpenError> {
    let path = engine_path(dir);
    files::replace(&scratch(dir), &path, &[line.as_bytes()])
        .map_err(|error| failed("write", &path, error))
}

fn failed(doing: &str, path: &Path, error: io::Error) -> OpenError {
    OpenError::failed(format!("{doing} {}", path.display()), error)
}

/// The pid is only for people: whether the directory is free is what the lock says.
fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// What kind of file system a directory is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// As `mount` calls it; "unknown" for those that need no special care.
    pub name: &'static str,
    /// Several machines can open the same file. FUSE is not among these: most of it is local.
    pub is_network: bool,
    /// It is gone when the machine restarts.
    pub is_in_memory: bool,
}

/// Returns what kind of file system `dir` is on, as far as this platform tells.
#[cfg(target_os = "linux")]
pub fn file_system(dir: &Path) -> io::Result<FileSystem> {
    // The magic number is 32 bits wide whatever the platform's field is.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    Ok(file_system_of(rustix::fs::statfs(dir)?.f_type as u32))
}

#[cfg(not(target_os = "linux"))]
pub fn file_system(_dir: &Path) -> io::Result<FileSystem> {
    Ok(file_system_of(0))
}

fn file_system_of(magic: u32) -> FileSystem {
    let kind = |name, is_network, is_in_memory| FileSystem { name, is_network, is_in_memory };
    match magic {
        0x0000_6969 => kind("nfs", true, false),
        0xFF53_4D42 | 0xFE53_4D42 | 0x0000_517B => kind("smb", true, false),
        0x0102_1997 => kind("9p", true, false),
        0x00C3_6400 => kind("ceph", true, false),
        0x5346_414F => kind("afs", true, false),
        0x0102_1994 | 0x8584_58F6 => kind("tmpfs", false, true),
        0x0000_EF53 => kind("ext4", false, false),
        0x5846_5342 => kind("xfs", false, false),
        0x9123_683E => kind("btrfs", false, false),
        0x2FC1_2FC1 => kind("zfs", false, false),
        0x794C_7630 => kind("overlay", false, false),
        _ => kind("unknown", false, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_file_systems_are_refused() {
        let [nfs, ext4, tmpfs] = [0x6969, 0xEF53, 0x0102_1994].map(file_system_of);
        assert_eq!((nfs.is_network, ext4.is_network, tmpfs.is_network), (true, false, false));
    }
}
