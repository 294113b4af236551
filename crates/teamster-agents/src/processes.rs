//! The processes of this machine as `/proc` shows them, and how a set of them is ended for certain.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// A process that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    parent: i32,
    /// In clock ticks since the machine started. Together with the pid it names a process even after its end.
    started: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The second field is the program's name in brackets, and names have brackets and spaces too.
        let name_end = stat.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        // What has ended and is not yet waited for is no process any more.
        (!matches!(state, "Z" | "X")).then_some(Self { pid, parent, started })
    }

    pub(crate) fn command(&self) -> OsString {
        let path = format!("/proc/{}/cmdline", self.pid.as_raw_nonzero());
        let mut line = std::fs::read(path).unwrap_or_default();
        while line.pop_if(|byte| *byte == 0).is_some() {}
        line.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        OsString::from_vec(line)
    }

    /// Opens the process, so that its number cannot come to mean another one.
    fn open(&self) -> Result<OwnedFd, Errno> {
        let file = pidfd_open(self.pid, PidfdFlags::empty())?;
        if Self::read(self.pid.as_raw_nonzero().get())
            .is_some_and(|now| now.started == self.started)
        {
            Ok(file)
        } else {
            Err(Errno::SRCH)
        }
    }

    fn kill(&self) -> Result<(), Errno> {
        match self.open() {
            Ok(file) => pidfd_send_signal(file, Signal::KILL),
            // Before Linux 5.3.
            Err(Errno::NOSYS) => kill_process(self.pid, Signal::KILL),
            Err(error) => Err(error),
        }
    }

    /// Waits until the process has ended, and says whether it did in this time.
    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        let Ok(file) = self.open() else { return true };
        let Ok(patience) = Timespec::try_from(patience) else { return false };
        poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&patience)).is_ok_and(|n| n > 0)
    }
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Returns our children, theirs, and so on, as far as they can be seen in one look.
pub(crate) fn descendants() -> Vec<Process> {
    let us = getpid().as_raw_nonzero().get();
    // Quick enough to catch processes that are there for a moment only. Not every kernel has these files.
    let mut children: Box<dyn FnMut(i32) -> Vec<Process>> =
        if Path::new(&format!("/proc/self/task/{us}/children")).exists() {
            Box::new(children)
        } else {
            let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
            for process in all() {
                by_parent.entry(process.parent).or_default().push(process);
            }
            Box::new(move |parent| by_parent.remove(&parent).unwrap_or_default())
        };
    let mut found = children(us);
    let mut n_looked_at = 0;
    while let Some(process) = found.get(n_looked_at) {
        found.extend(children(process.pid.as_raw_nonzero().get()));
        n_looked_at += 1;
    }
    found
}

/// Returns the child of a process that was started first, where the kernel tells.
pub(crate) fn first_child(parent: u32) -> Option<u32> {
    let children = children(i32::try_from(parent).ok()?);
    let first = children.iter().min_by_key(|child| child.started)?;
    u32::try_from(first.pid.as_raw_nonzero().get()).ok()
}

fn children(parent: i32) -> Vec<Process> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let pids = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        found.extend(pids.filter_map(Process::read));
    }
    found
}

/// Returns the processes that have this variable in the environment they were started with, by its value.
pub(crate) fn by_variable(name: &str) -> HashMap<OsString, Vec<Process>> {
    let start = format!("{name}=");
    let mut found: HashMap<OsString, Vec<Process>> = HashMap::new();
    for process in all() {
        let path = format!("/proc/{}/environ", process.pid.as_raw_nonzero());
        // Other users' are not ours to read, and not ours at all.
        let Ok(environment) = std::fs::read(path) else { continue };
        let mut variables = environment.split(|&byte| byte == 0);
        if let Some(value) = variables.find_map(|variable| variable.strip_prefix(start.as_bytes()))
        {
            found.entry(OsString::from_vec(value.to_vec())).or_default().push(process);
        }
    }
    found
}

/// The ends of processes that are not our children make no event. So they are looked at again: at once while there are
/// new ones, which will start others, and ever less often while there are not.
const FIRST_PAUSE: Duration = Duration::from_micros(10);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Kills what `find` finds until it says that nothing is left, or finds only what we may not kill; returns how many those
/// are.
pub(crate) fn end_all(mut find: impl FnMut() -> Option<Vec<Process>>) -> usize {
    let mut pause = FIRST_PAUSE;
    let mut found_before = Vec::new();
    loop {
        let Some(found) = find() else { return 0 };
        let refused = found.iter().filter(|process| process.kill() == Err(Errno::PERM)).count();
        if refused == found.len() && refused > 0 {
            return refused;
        }
        if found.iter().any(|process| !found_before.contains(process)) {
            pause = FIRST_PAUSE;
        } else {
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        found_before = found;
    }
}
