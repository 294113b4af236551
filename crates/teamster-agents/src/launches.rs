//! What is running, as the next hub can find out: a note for each launch in a directory, and the launch's id in the
//! environment of each of its processes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
use crate::processes;

/// The variable that marks an agent's processes with their launch.
pub const MARK: &str = "TEAMSTER_LAUNCH";

/// The variable that tells a launcher where the note of its launch is.
pub(crate) const NOTE: &str = "TEAMSTER_LAUNCH_NOTE";

/// How the line begins that a launcher adds to the note when its hub's side has ended. The moment follows, in milliseconds.
const ALONE: &str = "\nalone ";

/// The line that a launcher adds to the note when nothing of the launch is left. The time of the file is that moment.
const GONE: &str = "\ngone\n";

/// Launchers see at once that their hub has died; so long may they take to end what they started.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Longer names are somebody's mistake; file systems bear 255 bytes.
const ID_BYTES_MAX: usize = 128;

/// What one launch was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub program: String,
    pub isolation: String,
    /// The directory with its private files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PathBuf>,
}

/// A launch of an earlier hub that was not seen to end, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub id: String,
    /// What was launched, if the note can be read.
    pub note: Option<Note>,
    /// The command lines of the processes that still ran when they were first looked for.
    pub processes: Vec<OsString>,
    /// So many of them had to be killed; the others ended by themselves, as they should.
    pub n_killed: usize,
    /// So many could not be killed.
    pub n_left: usize,
    /// When its launcher saw that the hub's side had ended, if it saw that before nothing was left. A hub that is killed
    /// ends somewhat earlier: the kernel frees its memory before it closes its sockets.
    pub alone_at: Option<SystemTime>,
    /// When nothing of it was left, if its launcher saw that.
    pub gone_at: Option<SystemTime>,
}

/// The directory with the notes.
#[derive(Debug, Clone)]
pub struct Launches {
    directory: PathBuf,
}

impl Launches {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, if it is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    pub(crate) fn begin(&self, id: &str, note: &Note) -> io::Result<()> {
        let path = self.path(id)?;
        self.make()?;
        // Not synced: if the machine goes down, so do the processes that it tells of.
        let note_bytes = serde_json::to_vec(note)?;
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = file.write_all(&note_bytes).and_then(|()| match &note.private {
            // Never one that is there already, which could be anybody's.
            Some(private) => std::fs::DirBuilder::new().mode(0o700).create(private),
            None => Ok(()),
        });
        if made.is_err() {
            std::fs::remove_file(path)?;
        }
        made
    }

    /// Returns where the note of a launch is.
    pub(crate) fn note(&self, id: &str) -> io::Result<PathBuf> {
        self.path(id)
    }

    pub(crate) fn end(&self, id: &str) -> io::Result<()> {
        let path = self.path(id)?;
        if let Some(private) = read_note(&path).and_then(|note| note.private) {
            // If it cannot be, the token in it is worth nothing any more.
            let _ = remove_own(&private);
        }
        std::fs::remove_file(path)
    }

    fn path(&self, id: &str) -> io::Result<PathBuf> {
        let proper = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(proper) {
            let why = format!("{id:?} is no id for a launch: letters, digits, - and _ only");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(self.directory.join(id))
    }

    /// Returns the launches that nobody saw end. To be called when no hub but the caller's runs, before its first launch.
    pub fn leftovers(&self) -> io::Result<Vec<Leftover>> {
        let mut leftovers = Vec::new();
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(leftovers),
            entries => entries?,
        };
        let running = Running::look();
        for entry in entries {
            let entry = entry?;
            let Ok(id) = entry.file_name().into_string() else { continue };
            let processes = running.commands(&id);
            let note = read_note(&entry.path());
            let (n_killed, n_left, alone_at, gone_at) = (0, 0, None, None);
            leftovers.push(Leftover { id, note, processes, n_killed, n_left, alone_at, gone_at });
        }
        leftovers.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(leftovers)
    }

    /// Waits for the ends of [`Launches::leftovers`], kills what does not end, and returns what it found. The notes stay
    /// until [`Launches::forget`], so that a hub that is killed meanwhile knows as much.
    pub fn end_leftovers(&self, patience: Duration) -> io::Result<Vec<Leftover>> {
        let mut leftovers = self.leftovers()?;
        if leftovers.iter().any(|leftover| !leftover.processes.is_empty()) {
            wait_for_ends(&leftovers, patience);
        }
        for leftover in &mut leftovers {
            if !leftover.processes.is_empty() {
                (leftover.n_killed, leftover.n_left) = end_marked(&leftover.id);
            }
            (leftover.alone_at, leftover.gone_at) = seen(&self.path(&leftover.id)?);
        }
        Ok(leftovers)
    }

    /// Removes the notes of launches that are over.
    pub fn forget(&self, leftovers: &[Leftover]) -> io::Result<()> {
        leftovers.iter().try_for_each(|leftover| self.end(&leftover.id))
    }
}

/// Opens the note of the launch that this process is the launcher of. Later it may be out of sight.
pub(crate) fn own_note() -> Option<File> {
    std::fs::OpenOptions::new().append(true).open(std::env::var_os(NOTE)?).ok()
}

/// Adds to a note that the hub's side has ended, and when. That is the time which the file system gives the note: it dates
/// what agents and users write by the same clock.
pub(crate) fn note_alone(note: Option<&File>) {
    let add = |mut note: &File| -> io::Result<()> {
        note.write_all(ALONE.as_bytes())?;
        let at =
            note.metadata()?.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        note.write_all(at.as_millis().to_string().as_bytes())
    };
    // Without it, nobody knows the moment.
    let _ = note.map(add);
}

/// Adds to a note that nothing of its launch is left.
pub(crate) fn note_gone(note: Option<&File>) {
    // Without it, nobody knows the moment.
    let _ = note.map(|mut note| note.write_all(GONE.as_bytes()));
}

/// Returns when the launcher saw the end of the hub's side, and when nothing of the launch was left, as far as it said so.
fn seen(note: &Path) -> (Option<SystemTime>, Option<SystemTime>) {
    let text = std::fs::read_to_string(note).unwrap_or_default();
    let Some(text) = text.strip_suffix(GONE) else { return (None, None) };
    let gone_at = std::fs::metadata(note).and_then(|about| about.modified()).ok();
    match text.split_once(ALONE) {
        None => (None, gone_at),
        Some((_, at)) => {
            match at.parse().ok().and_then(|at| UNIX_EPOCH.checked_add(Duration::from_millis(at))) {
                Some(at) => (Some(at), gone_at),
                // It saw the moment, and could not write it down.
                None => (None, None),
            }
        }
    }
}

/// Removes a directory that we made, unless another user's has taken its place since.
fn remove_own(directory: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(directory) {
        Ok(found) if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() => {
            std::fs::remove_dir_all(directory)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn read_note(path: &Path) -> Option<Note> {
    let note = std::fs::read_to_string(path).ok()?;
    // JSON in one line; launchers add theirs below.
    serde_json::from_str(note.lines().next()?).ok()
}

#[cfg(target_os = "linux")]
struct Running(std::collections::HashMap<OsString, Vec<processes::Process>>);

#[cfg(target_os = "linux")]
impl Running {
    fn look() -> Self {
        Self(processes::by_variable(MARK))
    }

    fn of(&self, id: &str) -> &[processes::Process] {
        self.0.get(std::ffi::OsStr::new(id)).map_or(&[], Vec::as_slice)
    }

    fn commands(&self, id: &str) -> Vec<OsString> {
        self.of(id).iter().map(processes::Process::command).collect()
    }
}

#[cfg(target_os = "linux")]
fn wait_for_ends(leftovers: &[Leftover], patience: Duration) {
    let running = Running::look();
    let processes = leftovers.iter().flat_map(|leftover| running.of(&leftover.id));
    // Those of one hub end together; one that does not end in this time has nobody who ends it.
    let _ = processes.into_iter().all(|process| process.ends_within(patience));
}

/// Kills the processes that carry the mark of this launch; returns how many it killed and how many it could not.
#[cfg(target_os = "linux")]
pub(crate) fn end_marked(id: &str) -> (usize, usize) {
    let mut n_seen = 0;
    let n_left = processes::end_all(|| {
        let marked = Running::look().0.remove(std::ffi::OsStr::new(id)).unwrap_or_default();
        n_seen = n_seen.max(marked.len());
        (!marked.is_empty()).then_some(marked)
    });
    (n_seen.saturating_sub(n_left), n_left)
}

/// Elsewhere nobody can see the environment of processes: notes are found, processes are not.
#[cfg(not(target_os = "linux"))]
struct Running;

#[cfg(not(target_os = "linux"))]
impl Running {
    fn look() -> Self {
        Self
    }

    fn commands(&self, _id: &str) -> Vec<OsString> {
        Vec::new()
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_ends(_leftovers: &[Leftover], _patience: Duration) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_marked(_id: &str) -> (usize, usize) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_its_launcher_saw() {
        let directory = tempfile::tempdir().expect("a directory");
        let launches = Launches::new(directory.path());
        let note = Note { program: "p".into(), isolation: "group".into(), private: None };
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        for (id, added, alone_at, is_gone) in [
            ("nothing", "", None, false),
            ("killed", "\nalone 9000", None, false),
            ("both", "\nalone 9000\ngone\n", Some(at(9_000)), true),
            // The agent ended first, or its launcher is older than `alone`.
            ("gone", "\ngone\n", None, true),
            // On a full disk.
            ("half", "\nalone \ngone\n", None, false),
        ] {
            launches.begin(id, &note).expect("it can be written");
            let path = directory.path().join(id);
            let mut file =
                std::fs::OpenOptions::new().append(true).open(&path).expect("it is there");
            file.write_all(added.as_bytes()).expect("it can be written");
            let (alone, gone) = seen(&path);
            assert_eq!((alone, gone.is_some()), (alone_at, is_gone), "{id}");
            assert_eq!(read_note(&path).as_ref(), Some(&note), "{id}");
        }
        launches.begin("written", &note).expect("it can be written");
        let path = directory.path().join("written");
        let file = std::fs::OpenOptions::new().append(true).open(&path).expect("it is there");
        note_alone(Some(&file));
        note_gone(Some(&file));
        let (alone, gone) = seen(&path);
        assert!(alone.is_some() && alone <= gone, "{alone:?} {gone:?}");
    }
}
