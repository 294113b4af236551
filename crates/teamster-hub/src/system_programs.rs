//! The programs that the hub itself runs: git and ssh. They are looked up once, because agents can put a program of the same
//! name into a directory that is searched earlier; and again if one is gone, as after an upgrade.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the hub's own programs are.
#[derive(Debug, Clone)]
pub struct SystemPrograms {
    search_path: Arc<[PathBuf]>,
    git: Known,
    ssh: Known,
}

type Known = Arc<Mutex<Option<Found>>>;

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    path: PathBuf,
    /// The user can write where it is, so agents have to be kept from it.
    is_within_reach: bool,
}

impl SystemPrograms {
    /// Looks them up now; one that is not there yet, when it is first needed.
    pub fn find(search_path: Vec<PathBuf>) -> Self {
        let search_path = search_path.into();
        let programs = Self { search_path, git: Arc::default(), ssh: Arc::default() };
        let _ = (programs.git(), programs.ssh());
        programs
    }

    pub fn git(&self) -> OsString {
        self.get("git", &self.git)
    }

    pub fn ssh(&self) -> OsString {
        self.get("ssh", &self.ssh)
    }

    fn get(&self, name: &str, known: &Known) -> OsString {
        let mut known = lock(known);
        if !known.as_ref().is_some_and(|found| found.path.exists()) {
            *known = look_up(name, &self.search_path);
        }
        // By its name it is not found either, and whoever starts it says so.
        known.as_ref().map_or_else(|| name.into(), |found| found.path.clone().into())
    }

    /// Returns those that agents could replace.
    pub(crate) fn within_reach(&self) -> Vec<PathBuf> {
        // One that is gone is looked up again, and cannot be protected.
        let _ = (self.git(), self.ssh());
        let found = [&self.git, &self.ssh].into_iter().filter_map(|known| lock(known).clone());
        found.filter(|found| found.is_within_reach).map(|found| found.path).collect()
    }
}

fn lock(known: &Known) -> MutexGuard<'_, Option<Found>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds a program: the first that is out of the reach of agents, or else the first.
fn look_up(name: &str, search_path: &[PathBuf]) -> Option<Found> {
    let mut within_reach = None;
    for path in candidates(name, search_path) {
        let Ok(real) = path.canonicalize() else { continue };
        // Where nothing can be mounted, nothing is kept from agents, and the user's own choice counts.
        if cfg!(target_os = "linux") && is_out_of_reach(&path) && is_out_of_reach(&real) {
            // Under this name: it may be a program that looks at how it is called.
            return Some(Found { path, is_within_reach: false });
        }
        within_reach.get_or_insert(Found { path: real, is_within_reach: true });
    }
    within_reach
}

/// Says whether the user can change neither a file nor any directory above it. Of root, who can change everything, whether
/// anybody else can.
fn is_out_of_reach(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid();
    let Some(directory) = path.parent().and_then(|directory| directory.canonicalize().ok()) else {
        return false;
    };
    directory.ancestors().chain([path]).all(|path| match path.metadata() {
        Ok(about) if user.is_root() => about.uid() == 0 && about.mode() & 0o022 == 0,
        Ok(about) => {
            about.uid() != user.as_raw()
                && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err()
        }
        Err(_) => false,
    })
}

/// Says whether this is a file that can be run.
pub(crate) fn is_program(path: &PathBuf) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the file that a command means.
pub(crate) fn on_path(command: &str, search_path: &[PathBuf]) -> Option<PathBuf> {
    let command = Path::new(command);
    if command.is_absolute() {
        return Some(command.to_owned()).filter(is_program);
    }
    candidates(command, search_path).next()
}

/// Returns the files that a name can mean, in the order in which they are searched.
pub(crate) fn candidates(
    name: impl AsRef<Path>,
    search_path: &[PathBuf],
) -> impl Iterator<Item = PathBuf> {
    // A directory that depends on where we are could be anybody's.
    let directories = search_path.iter().filter(|directory| directory.is_absolute());
    directories.map(move |directory| directory.join(&name)).filter(is_program)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn fake(directory: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(directory).unwrap();
        let path = directory.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_agents_can_replace_comes_after_one_that_they_cannot() {
        let place = tempfile::tempdir().unwrap();
        let (bin, system) = (place.path().join("bin"), PathBuf::from("/bin"));
        let early = fake(&bin, "sh").canonicalize().unwrap();
        // A link to what is out of reach is within it.
        std::os::unix::fs::symlink("/bin/cat", bin.join("cat")).unwrap();
        let path = |found: Option<Found>| found.map(|found| (found.path, found.is_within_reach));
        let search = [bin.clone(), system.clone()];
        for name in ["sh", "cat"] {
            assert_eq!(path(look_up(name, &search)), Some((system.join(name), false)), "{name}");
        }
        // Where there is no other, it is the one, and is kept from agents.
        assert_eq!(path(look_up("sh", &[bin])), Some((early, true)));
        assert_eq!(path(look_up("sh", &["bin".into()])), None);
    }

    #[test]
    fn what_was_found_stays_although_another_appears_earlier() {
        let place = tempfile::tempdir().unwrap();
        let (early, late) = (place.path().join("early"), place.path().join("late"));
        let programs = SystemPrograms::find(vec![early.clone(), late.clone()]);
        assert_eq!((programs.git(), programs.within_reach()), ("git".into(), vec![]));
        let git = fake(&late, "git").canonicalize().unwrap();
        assert_eq!(programs.git(), git);
        fake(&early, "git");
        assert_eq!((programs.git(), programs.within_reach()), (git.clone().into(), vec![git]));
    }
}
