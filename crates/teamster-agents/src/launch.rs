//! What is launched, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::isolation::Isolation;

/// Agents put whole files on a line.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Enough for the last words of a program, and for a thousand programs.
pub const STDERR_TAIL_BYTES: usize = 16 * 1024;

/// What is written in the middle of something may be in everybody's way, such as a lock; less than the next hub waits.
pub const LINGER: Duration = Duration::from_millis(1_500);

/// A program to be started as an agent.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Names this launch and no other: letters, digits, `-` and `_`.
    pub id: String,
    /// A path, or a name that is looked up in the program's `PATH`.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub directory: PathBuf,
    /// Variables of our own that the program gets beside the usual few.
    pub passed_on: Vec<String>,
    /// Variables with their values; they go before those passed on.
    pub environment: Vec<(OsString, OsString)>,
    /// Directories that the program finds empty, where [`Isolation::masks`].
    pub masked: Vec<Mask>,
    /// Directories and files that the program cannot change, where [`Isolation::masks`].
    pub read_only: Vec<PathBuf>,
    pub private: Option<Private>,
    /// So many bytes of memory it may take with all that it starts, where the hub has control groups ([`crate::cgroup`]).
    pub memory_max: Option<u64>,
    pub isolation: Isolation,
    /// A longer line of its output is thrown away.
    pub line_bytes_max: usize,
    /// So much is kept of the end of its stderr.
    pub stderr_tail_bytes: usize,
    /// Whether its stderr goes where its output goes, in the order in which it writes them.
    pub joins_stderr: bool,
    /// Whether it may finish what it does, for [`LINGER`], when the hub is gone, or has it killed.
    pub lingers: bool,
}

impl Launch {
    pub fn new(id: impl Into<String>, program: impl Into<OsString>, isolation: Isolation) -> Self {
        Self {
            id: id.into(),
            program: program.into(),
            args: Vec::new(),
            directory: PathBuf::from("/"),
            passed_on: Vec::new(),
            environment: Vec::new(),
            masked: Vec::new(),
            read_only: Vec::new(),
            private: None,
            memory_max: None,
            isolation,
            line_bytes_max: LINE_BYTES_MAX,
            stderr_tail_bytes: STDERR_TAIL_BYTES,
            joins_stderr: false,
            lingers: false,
        }
    }
}

/// A directory that a program finds empty. The program cannot rename it, nor any directory above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Its path, without symbolic links.
    pub(crate) directory: OsString,
    /// The directory that must be there. If another one has its name, nothing is started: the mask would hide that one.
    pub(crate) identity: Identity,
    /// Directories inside it that the program still sees.
    pub(crate) except: Vec<OsString>,
}

/// Tells a directory from every other one, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Mask {
    /// Masks the directory that a path leads to now, also if it is renamed or replaced later.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let directory = directory.canonicalize()?;
        let about = directory.metadata()?;
        if !about.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let identity = Identity { device: about.dev(), inode: about.ino() };
        Ok(Self { directory: directory.into(), identity, except: Vec::new() })
    }

    /// Leaves a directory inside visible, if it is inside and exists when the program starts.
    pub fn except(mut self, directory: &Path) -> Self {
        if let Ok(inside) = directory.canonicalize()
            && inside.starts_with(&self.directory)
        {
            self.except.push(inside.into());
        }
        self
    }

    /// Says whether a path leads into it.
    pub fn covers(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| path.starts_with(&self.directory))
    }
}

/// Files of one launch, such as one with its token. Where [`Isolation::masks`], nobody else sees them, and no disk does;
/// elsewhere they are the user's own.
#[derive(Debug, Clone)]
pub struct Private {
    /// Made for this launch, and removed after it; it must not be there yet. Absolute.
    pub directory: PathBuf,
    pub files: Vec<PrivateFile>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFile {
    pub name: String,
    pub contents: String,
}

/// What is private is not for logs.
impl fmt::Debug for PrivateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a program is asked to end before it is killed: its standard input is closed, then it gets SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// How long it may take to end by itself once its standard input is closed.
    pub after_stdin: Duration,
    pub terminate: Terminate,
    /// How long it may take once it got SIGTERM.
    pub after_terminate: Duration,
}

/// Who gets SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminate {
    Program,
    /// The program's process group, for programs that only wrap another.
    Group,
}

/// How a program and all that it started ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exited {
    pub how: How,
    /// What had been done to end it, if anything.
    pub after: Option<Measure>,
    /// So many of its processes could not be killed, because they have become another user's. In a group nobody looks.
    pub n_left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Code(i32),
    /// It ended by this signal.
    Signal(i32),
    /// It was killed with everything that it started.
    Killed,
    /// Somebody killed its launcher; what carried the mark of the launch was killed.
    LauncherLost,
    /// The hub's side stopped watching, because its runtime ends; the launcher is killing it.
    Unwatched,
}

/// What is done to end a program, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    StdinClosed,
    Terminated,
    Killed,
}
