//! A program that was started, from both sides: the hub's, which talks to it and ends it, and that of whatever runs it.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::isolation::Isolation;
use crate::launch::{Exited, Grace, How, Launch};
use crate::lines::Lines;
use crate::stdin::{Closer, Stdin};
use crate::tail::Tail;

/// What a program writes to its standard output.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// A program that was started.
pub struct Started {
    pub process: Process,
    pub stdin: Stdin,
    /// Ends when everything that could write has ended. Where the isolation is weak, that may be later than
    /// [`Process::exited`], or never.
    pub stdout: Lines<Output>,
}

/// A program that runs with all that it starts, or did. Dropping it ends nothing.
#[derive(Debug, Clone)]
pub struct Process {
    id: Arc<str>,
    isolation: Isolation,
    launcher_pid: Option<u32>,
    stderr: Tail,
    wanted: Arc<watch::Sender<Wanted>>,
    exited: watch::Receiver<Option<Exited>>,
}

/// What the hub wants of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Alive,
    Ended(Grace),
    Killed,
}

/// The other side of a [`Process`], for whatever runs the program.
#[derive(Debug)]
pub struct Running {
    wanted: watch::Receiver<Wanted>,
    exited: watch::Sender<Option<Exited>>,
    stderr: Tail,
    stdin: Closer,
}

impl Started {
    /// Returns both sides of a program that reads what is written to `stdin` and writes what `stdout` reads.
    pub fn new(
        launch: &Launch,
        launcher_pid: Option<u32>,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
    ) -> (Self, Running) {
        let (wanted_sender, wanted) = watch::channel(Wanted::Alive);
        let (exited_sender, exited) = watch::channel(None);
        let stdin = Stdin::new(stdin);
        let process = Process {
            id: launch.id.clone().into(),
            isolation: launch.isolation,
            launcher_pid,
            stderr: Tail::new(launch.stderr_tail_bytes),
            wanted: Arc::new(wanted_sender),
            exited,
        };
        let running = Running {
            wanted,
            exited: exited_sender,
            stderr: process.stderr.clone(),
            stdin: stdin.closer(),
        };
        let stdout: Output = Box::new(stdout);
        (Self { process, stdin, stdout: Lines::new(stdout, launch.line_bytes_max) }, running)
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Running {
    /// Returns what the hub wants now.
    pub fn wanted(&self) -> Wanted {
        *self.wanted.borrow()
    }

    /// Waits until the hub wants something else. Returns nothing when nobody is left who could.
    pub async fn asked(&mut self) -> Option<Wanted> {
        self.wanted.changed().await.ok()?;
        Some(*self.wanted.borrow_and_update())
    }

    /// Keeps the end of what the program writes to stderr.
    pub fn says(&self, stderr: &[u8]) {
        self.stderr.push(stderr);
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Closes the program's standard input; a write that waits for it fails.
    pub fn close_stdin(&self) {
        self.stdin.close();
    }

    /// Tells the hub that nothing of the program is left.
    pub fn end(&self, exited: Exited) {
        self.exited.send_replace(Some(exited));
    }
}

impl Process {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Returns the process whose descendants are the program and all that it starts.
    pub fn launcher_pid(&self) -> Option<u32> {
        self.launcher_pid
    }

    /// Returns the program's own process, as it is seen from here; nothing where that cannot be known, or when it is gone.
    pub fn program_pid(&self) -> Option<u32> {
        let launcher = self.launcher_pid.filter(|_| self.has_exited().is_none())?;
        match self.isolation {
            // The launcher's child is the first process inside, and starts the program before anything else is there.
            Isolation::Namespaces => child(child(launcher)?),
            Isolation::Subreaper | Isolation::Group => child(launcher),
        }
    }

    /// Returns the last that it wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Asks it to end, and kills it if it takes longer than `grace`. A second call changes nothing.
    pub fn end(&self, grace: Grace) {
        self.wanted.send_if_modified(|wanted| {
            let first = *wanted == Wanted::Alive;
            if first {
                *wanted = Wanted::Ended(grace);
            }
            first
        });
    }

    /// Kills it at once.
    pub fn kill(&self) {
        self.wanted.send_if_modified(|wanted| {
            let first = *wanted != Wanted::Killed;
            *wanted = Wanted::Killed;
            first
        });
    }

    /// Says how it ended, if all of it has.
    pub fn has_exited(&self) -> Option<Exited> {
        *self.exited.borrow()
    }

    /// Waits until all of it has ended.
    pub async fn exited(&self) -> Exited {
        let unwatched = Exited { how: How::Unwatched, after: None, n_left: 0 };
        let mut exited = self.exited.clone();
        exited
            .wait_for(Option::is_some)
            .await
            .map_or(unwatched, |exited| exited.unwrap_or(unwatched))
    }
}

/// Returns the oldest child of a process.
#[cfg(target_os = "linux")]
fn child(parent: u32) -> Option<u32> {
    crate::processes::first_child(parent)
}

#[cfg(not(target_os = "linux"))]
fn child(_parent: u32) -> Option<u32> {
    None
}
