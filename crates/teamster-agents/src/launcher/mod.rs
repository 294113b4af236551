//! The launcher: a mode of our own binary that starts one agent and sees to it that nothing of it is left in the end.
//!
//! The hub starts it with a socket as its standard input; see `wire.rs` for what is said there. In a namespace there are
//! two of them: one outside, which can kill the namespace and see that it is gone, and one inside, as its first process,
//! which reaps what the agent leaves behind. Elsewhere there is one.

mod keeper;
mod limits;
#[cfg(target_os = "linux")]
mod namespaces;

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;

use crate::deputy;
#[cfg(not(target_os = "linux"))]
use crate::isolation::Step;
use crate::isolation::{Failure, Isolation};
use crate::launch::LINGER;
use crate::launcher::keeper::Reach;
use crate::launches;
use crate::verb::DEPUTY;
use crate::wire::{self, Report};

/// What a launcher is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Hold an agent by this isolation.
    Hold(Isolation),
    /// Be the first process of a pid namespace.
    Init,
    /// Be what runs commands for the hub: what another launcher starts, no launcher itself.
    Deputy,
}

const INIT: &str = "init";

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let held = Isolation::ALL.into_iter().find(|isolation| isolation.name() == name);
        match held {
            Some(isolation) => Ok(Self::Hold(isolation)),
            None if name == INIT => Ok(Self::Init),
            None if name == DEPUTY => Ok(Self::Deputy),
            None => Err(format!("{name} is nothing that a launcher does")),
        }
    }
}

/// Plays this part until nothing is left. Must be called before the process has any other thread.
pub fn run(part: Part, lingers: bool) -> io::Result<()> {
    if part == Part::Deputy {
        return deputy::serve();
    }
    close_strangers();
    prefer_to_die();
    limits::leave_no_core();
    // Before the directory that it is in is hidden.
    let note = launches::own_note();
    // Signals from the hub's terminal are not for us, and the agent has no business with that terminal.
    let _ = rustix::process::setsid();
    // The socket stays open as standard input too, which no child of ours shares.
    let control = UnixStream::from(fcntl_dupfd_cloexec(std::io::stdin(), 3)?);
    let linger = if lingers { LINGER } else { Duration::ZERO };
    let played = match part {
        Part::Hold(Isolation::Group) => keeper::keep(&control, Reach::Group, linger, note),
        #[cfg(target_os = "linux")]
        Part::Hold(Isolation::Subreaper) => {
            keeper::keep(&control, Reach::Descendants, linger, note)
        }
        #[cfg(target_os = "linux")]
        Part::Hold(Isolation::Namespaces) => namespaces::hold(&control, linger, note),
        #[cfg(target_os = "linux")]
        Part::Init => keeper::keep(&control, Reach::Namespace, linger, None),
        Part::Deputy => Ok(()),
        #[cfg(not(target_os = "linux"))]
        Part::Hold(Isolation::Subreaper | Isolation::Namespaces) | Part::Init => {
            Err(Failure::at(Step::Namespaces)("only Linux has this").into())
        }
    };
    match played {
        Ok(()) => Ok(()),
        Err(NotHeld::Failed(failure)) => wire::say(&control, &Report::NotStarted(failure)),
        Err(NotHeld::Io(error)) => Err(error),
    }
}

/// Why nothing was started.
#[derive(Debug)]
enum NotHeld {
    /// The hub is told.
    Failed(Failure),
    /// There is nobody who could be told.
    Io(io::Error),
}

impl From<Failure> for NotHeld {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for NotHeld {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How much sooner than others the processes of an agent are chosen when memory runs out; the hub is at 0 or below. Everybody
/// may raise it.
const OOM_SCORE: &str = "500";

/// Has the kernel end agents before their hub when memory runs out. What we start inherits it.
fn prefer_to_die() {
    // Only Linux has it. Without it agents are chosen by their size, as everybody is.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
}

/// Closes what whoever started the hub left open, or it would be the agent's.
fn close_strangers() {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let files = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let strangers: Vec<RawFd> = files.filter(|file| *file > 2).collect();
    for file in strangers {
        // The one that read the directory is closed already.
        let _ = nix::unistd::close(file);
    }
}
