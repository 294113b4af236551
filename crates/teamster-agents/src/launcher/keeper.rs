//! Starts the program, reaps whatever ends, and ends everything: when the program ends, or when the hub's side does.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    wait, waitid,
};

use super::NotHeld;
#[cfg(target_os = "linux")]
use super::limits::PROCESSES_MAX;
#[cfg(target_os = "linux")]
use crate::cgroup::Group;
use crate::isolation::{Failure, Step};
use crate::launch::PrivateFile;
use crate::launches;
#[cfg(target_os = "linux")]
use crate::launches::MARK;
use crate::process;
#[cfg(target_os = "linux")]
use crate::processes;
use crate::wire::{self, Handed, Order, Report, Request, Status};

/// How a keeper gets at what the program started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The keeper is the first process of a pid namespace, with which the others end.
    #[cfg(target_os = "linux")]
    Namespace,
    /// Orphans become the keeper's children.
    #[cfg(target_os = "linux")]
    Descendants,
    /// Only what stays in the program's process group.
    Group,
}

/// Plays the keeper. Returns only if nothing was started; otherwise the process ends when everything has.
pub(super) fn keep(
    control: &UnixStream,
    reach: Reach,
    linger: Duration,
    note: Option<File>,
) -> Result<(), NotHeld> {
    let handed = wire::take_over(control)?;
    let mut hub = BufReader::new(control.try_clone()?);
    let Some(order) = wire::hear::<Order>(&mut hub)? else { return Ok(()) };
    #[cfg(target_os = "linux")]
    let group = join_group(order.memory_max)?;
    match reach {
        #[cfg(target_os = "linux")]
        Reach::Namespace => {
            let private = order.private.as_ref().map(|(directory, _)| directory.as_os_str());
            super::namespaces::furnish(&order.masked, &order.read_only, private)?;
        }
        #[cfg(target_os = "linux")]
        Reach::Descendants => {
            let us = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(us)).map_err(Failure::at(Step::Subreaper))?;
        }
        Reach::Group => {}
    }
    if let Some((directory, files)) = &order.private {
        write(Path::new(directory), files)?;
    }
    let program = start(order, handed)?;
    // From here on nothing may end us but the end of everything. If the hub is gone, listening tells.
    let _ = wire::say(control, &Report::Started);
    let keeper = Keeper {
        control,
        program,
        reach,
        linger,
        note,
        #[cfg(target_os = "linux")]
        group,
        status: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let listener = std::thread::Builder::new().spawn_scoped(scope, || keeper.listen(&mut hub));
        if listener.is_err() {
            keeper.finish(keeper.lock());
        }
        keeper.reap()
    })
}

/// Enters the control group of this launch, if the hub has such groups. It must be done before the groups are read-only.
#[cfg(target_os = "linux")]
fn join_group(memory_max: Option<u64>) -> Result<Option<Group>, Failure> {
    let launch = std::env::var_os(MARK).unwrap_or_default();
    let Some(group) = Group::of(&launch.to_string_lossy()) else { return Ok(None) };
    group.join(PROCESSES_MAX, memory_max).map_err(Failure::at(Step::Group))?;
    Ok(Some(group))
}

/// Writes what only the program may read.
fn write(directory: &Path, files: &[PrivateFile]) -> Result<(), Failure> {
    for PrivateFile { name, contents } in files {
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(contents.as_bytes())).map_err(|error| Failure {
            step: Step::Files,
            why: format!("{}: {error}", path.display()),
        })?;
    }
    Ok(())
}

fn start(order: Order, handed: Handed) -> Result<Pid, Failure> {
    let Order {
        program,
        args,
        directory,
        environment,
        joins_stderr,
        masked: _,
        read_only: _,
        private: _,
        memory_max: _,
    } = order;
    let Handed { stdin, stdout } = handed;
    if !Path::new(&directory).is_dir() {
        let why = format!("there is no directory {}", Path::new(&directory).display());
        return Err(Failure { step: Step::Directory, why });
    }
    let mut command = process::bare(&program);
    command.args(args).envs(environment).current_dir(directory);
    let not_started = |error: std::io::Error| Failure {
        step: Step::Program,
        why: format!("{}: {error}", Path::new(&program).display()),
    };
    let stderr = match joins_stderr {
        true => stdout.try_clone().map_err(not_started)?.into(),
        false => Stdio::inherit(),
    };
    command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
    let started = command.spawn().map_err(not_started)?;
    Ok(Pid::from_child(&started))
}

/// What an agent's stderr ends with when the kernel has killed a process of it.
#[cfg(target_os = "linux")]
const OUT_OF_MEMORY: &str = "teamster: the agent took more memory than its control group allows, so the kernel killed a process of it";

struct Keeper<'a> {
    control: &'a UnixStream,
    program: Pid,
    reach: Reach,
    /// How long the program may take when the hub is gone. In a namespace the launcher outside sees to that.
    linger: Duration,
    /// Where it is noted that nothing is left, if we can see that.
    note: Option<File>,
    #[cfg(target_os = "linux")]
    group: Option<Group>,
    /// How the program ended, once it was reaped. Nothing is reaped or signalled without this lock, so that no signal
    /// reaches a stranger that got the number of a process of ours.
    status: Mutex<Option<Status>>,
}

impl Keeper<'_> {
    /// Does what the hub asks for, and ends everything when the hub's side ends.
    fn listen(&self, hub: &mut BufReader<UnixStream>) {
        while let Ok(Some(request)) = wire::hear(hub) {
            let status = self.lock();
            if status.is_none() {
                // It may have ended just now.
                let _ = match request {
                    Request::TerminateProgram => kill_process(self.program, Signal::TERM),
                    Request::TerminateGroup => kill_process_group(self.program, Signal::TERM),
                };
            }
        }
        launches::note_alone(self.note.as_ref());
        std::thread::sleep(self.linger);
        self.finish(self.lock());
    }

    /// Reaps whatever ends, until that is the program.
    fn reap(&self) -> ! {
        loop {
            let ended = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let mut status = self.lock();
            // In a group there is no other child, and its number names the group only as long as it is not reaped.
            if ended.is_ok() && self.reach == Reach::Group {
                self.finish(status);
            }
            if self.reap_ended(&mut status) == Children::None || status.is_some() {
                self.finish(status);
            }
        }
    }

    /// Reaps those that have ended, and notes the program's end if it is among them.
    fn reap_ended(&self, status: &mut Option<Status>) -> Children {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, ended))) if pid == self.program => *status = Some(read(ended)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Children::Some,
                Err(_) => return Children::None,
            }
        }
    }

    /// Ends everything, says so, and ends.
    fn finish(&self, mut status: MutexGuard<'_, Option<Status>>) -> ! {
        let n_left = match self.reach {
            #[cfg(target_os = "linux")]
            Reach::Namespace => None,
            #[cfg(target_os = "linux")]
            Reach::Descendants => {
                // Orphans become our children, so without a child there is no descendant, whatever a look may miss.
                Some(processes::end_all(|| match self.reap_ended(&mut status) {
                    Children::Some => Some(processes::descendants()),
                    Children::None => None,
                }))
            }
            Reach::Group => {
                let _ = kill_process_group(self.program, Signal::KILL);
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                let _ = waitid(WaitId::Pid(self.program), ended);
                self.reap_ended(&mut status);
                Some(0)
            }
        };
        #[cfg(target_os = "linux")]
        if self.group.as_ref().is_some_and(Group::ran_out_of_memory) {
            // Our stderr is the agent's, of which the hub shows the end.
            let _ = writeln!(std::io::stderr(), "{OUT_OF_MEMORY}");
        }
        if n_left == Some(0) {
            launches::note_gone(self.note.as_ref());
        }
        // If the hub is gone, nobody hears it.
        if let Some(status) = *status {
            let _ = wire::say(self.control, &Report::Ended(status));
        }
        // In a namespace, the launcher outside says it: it sees that we and all others are gone.
        if let Some(n_left) = n_left {
            let _ = wire::say(self.control, &Report::Gone { n_left });
        }
        std::process::exit(0)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Status>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Children {
    Some,
    None,
}

fn read(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or_default()),
    }
}
