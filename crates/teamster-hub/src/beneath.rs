//! Opens files below a directory without following symbolic links on the way. Agents can change every name in a project, also
//! between a check and its use, so a path there is walked name by name, from one open directory to the next, and what was
//! opened is what is checked.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// A directory that was opened.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

/// Opening for the way only needs no right to list a directory, where the system has it.
#[cfg(target_os = "linux")]
const WAY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const WAY: OFlags = OFlags::RDONLY;

impl Directory {
    /// Opens a directory that the user named, wherever links lead on the way.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = WAY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens a file below it with these flags. A link, a pipe or a device in its place is an error, and nobody waits for one.
    pub(crate) fn file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let above = self.walk(path.parent().unwrap_or(Path::new("")))?;
        let directory = above.as_ref().unwrap_or(&self.0);
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns the directory that a path leads to, if that is another one.
    fn walk(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let mut at: Option<OwnedFd> = None;
        for part in path.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(ErrorKind::InvalidInput.into());
                }
            };
            let flags = WAY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = Some(openat(at.as_ref().unwrap_or(&self.0), name, flags, Mode::empty())?);
        }
        Ok(at)
    }
}

/// Says whether an error means that a link is in the way.
pub(crate) fn is_link(error: &io::Error) -> bool {
    // A link in the place of a directory is none.
    let is_loop = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_loop || error.kind() == ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_below_are_opened_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("project/a/b")).unwrap();
        fs::create_dir_all(path("data")).unwrap();
        fs::write(path("data/token"), "secret").unwrap();
        fs::write(path("project/a/b/plain"), "text").unwrap();
        symlink(path("data"), path("project/out")).unwrap();
        symlink("a", path("project/within")).unwrap();
        symlink("a/b/plain", path("project/link")).unwrap();
        symlink(path("project"), path("by-link")).unwrap();
        let read = |root: &str, name: &str| {
            let file = Directory::open(&path(root))?.file(Path::new(name), OFlags::RDONLY);
            let mut text = String::new();
            file.and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        // The user may name the directory by a link.
        for root in ["project", "by-link"] {
            assert_eq!(read(root, "a/b/plain").unwrap(), "text");
            assert_eq!(read(root, "./a/b/plain").unwrap(), "text");
            for (name, is_link_in_the_way) in [
                ("out/token", true),
                ("within/b/plain", true),
                ("link", true),
                ("a/b", false),
                ("../data/token", false),
                ("a/../../data/token", false),
                ("/etc/hostname", false),
                ("missing", false),
                ("", false),
            ] {
                let error = read(root, name).expect_err(name);
                assert_eq!(is_link(&error), is_link_in_the_way, "{name}: {error}");
            }
        }
    }

    /// Exchanges a directory with a link as fast as it can, while a file below that name is opened.
    #[cfg(target_os = "linux")]
    #[test]
    fn nobody_wins_a_race_against_it() {
        use std::sync::atomic::{AtomicBool, Ordering};

        use rustix::fs::{RenameFlags, renameat_with};

        const OPENS: usize = 20_000;
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for (directory, text) in [("project/git", "public"), ("data", "secret")] {
            fs::create_dir_all(path(directory)).unwrap();
            fs::write(path(directory).join("index"), text).unwrap();
        }
        symlink(path("data"), path("project/link")).unwrap();
        let is_over = AtomicBool::new(false);
        let (git, link) = (path("project/git"), path("project/link"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &git, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let project = Directory::open(&path("project")).unwrap();
            let (mut n_public, mut n_by_path) = (0, 0);
            for _ in 0..OPENS {
                if let Ok(mut file) = project.file(Path::new("git/index"), OFlags::RDONLY) {
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "public");
                    n_public += 1;
                }
                // The control: a check of the directory, and then its use.
                if path("project/git").symlink_metadata().is_ok_and(|about| about.is_dir())
                    && fs::read_to_string(path("project/git/index"))
                        .is_ok_and(|text| text == "secret")
                {
                    n_by_path += 1;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(n_public > 0);
            assert!(n_by_path > 0, "the race was never lost by path either");
        });
    }
}
