//! Pid and mount namespaces: the launcher outside, and what the first process inside prepares before the program starts.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstat, openat2, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{
    DumpableBehavior, Signal, getegid, geteuid, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

use super::{INIT, NotHeld, limits};
use crate::isolation::{Failure, Step};
use crate::launch::{Identity, Mask};
use crate::launches::{self, MARK};
use crate::mounts;
use crate::process;
use crate::verb::VERB;
use crate::wire::{self, Handed, Report};

/// What the program keeps of root's privileges if it runs as root: what packages need to be installed and services to
/// listen. Without the others it cannot unmount what hides the masked directories, nor look around it.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::AUDIT_WRITE);

/// Holds a namespace from outside: whatever becomes of the hub, it ends, and its end is seen.
pub(super) fn hold(
    control: &UnixStream,
    linger: Duration,
    note: Option<File>,
) -> Result<(), NotHeld> {
    let Handed { stdin, stdout } = wire::take_over(control)?;
    enter()?;
    let (inside, theirs) = UnixStream::pair()?;
    let mut init = start_init(theirs).map_err(Failure::at(Step::Init))?;
    let handed = wire::hand_over(&inside, stdin.as_fd(), stdout.as_fd());
    drop((stdin, stdout));
    let relayed = handed.and_then(|()| relay(control, &inside, linger, note.as_ref()));
    // The end of a namespace's first process is seen only after the ends of all others.
    let _ = init.kill();
    init.wait()?;
    launches::note_gone(note.as_ref());
    // If the hub is gone, nobody hears it.
    let _ = wire::say(control, &Report::Gone { n_left: 0 });
    Ok(relayed?)
}

/// Makes the namespaces, in which our next child will be the first process. From now on we cannot start threads.
fn enter() -> Result<(), Failure> {
    let namespaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    match unshare(namespaces) {
        Err(nix::Error::EPERM) => {}
        entered => return entered.map_err(Failure::at(Step::Namespaces)),
    }
    // Who may not make them alone may do so in a user namespace, if the machine allows that.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(namespaces | CloneFlags::CLONE_NEWUSER).map_err(Failure::at(Step::Namespaces))?;
    limits::limit_processes_of_user();
    keep_ids(user, group).map_err(Failure::at(Step::Ids))
}

/// Remains the same user in a new user namespace, so that files belong to whom they should, and lets our child mount.
fn keep_ids(user: u32, group: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    let mut ours = capabilities(None)?;
    ours.inheritable |= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, ours)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    Ok(())
}

fn start_init(control: UnixStream) -> io::Result<Child> {
    // The file that we run, even if another has taken its place since.
    let mut command = process::bare("/proc/self/exe");
    command.arg0("teamster").args([VERB, INIT]).current_dir("/");
    command.envs(std::env::var_os(MARK).map(|launch| (MARK, launch)));
    command.stdin(std::os::fd::OwnedFd::from(control)).stdout(Stdio::null());
    command.stderr(Stdio::inherit()).spawn()
}

/// Room for a request; an order takes several turns.
const RELAY_BYTES: usize = 16 * 1024;

/// Copies what the hub and the first process say, until the latter ends, or the hub's side does.
fn relay(
    control: &UnixStream,
    inside: &UnixStream,
    linger: Duration,
    note: Option<&File>,
) -> io::Result<()> {
    let mut buffer = [0; RELAY_BYTES];
    let mut hub_lives = true;
    let linger = Timespec::try_from(linger).map_err(io::Error::other)?;
    loop {
        let mut sides = [PollFd::new(inside, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
        // Of the first process no more than its program's end is to come, and its own.
        let (n_sides, patience) = if hub_lives { (2, None) } else { (1, Some(&linger)) };
        match poll(&mut sides[..n_sides], patience) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Ok(()),
            polled => polled?,
        };
        let [from_inside, from_hub] = sides.map(|side| !side.revents().is_empty());
        if from_inside {
            match read(inside, &mut buffer) {
                [] => return Ok(()),
                // If the hub is gone, the end of its side says so.
                said => drop((&*control).write_all(said)),
            }
        }
        if from_hub && hub_lives {
            match read(control, &mut buffer) {
                [] => {
                    hub_lives = false;
                    launches::note_alone(note);
                }
                // If the first process is gone, the end of its side says so.
                said => drop((&*inside).write_all(said)),
            }
        }
    }
}

/// Returns what there is to read: nothing at the end, however it came.
fn read<'a>(mut socket: &UnixStream, buffer: &'a mut [u8]) -> &'a [u8] {
    let n_bytes = loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.unwrap_or(0),
        }
    };
    buffer.get(..n_bytes).unwrap_or_default()
}

/// Prepares the inside of the namespaces for the program.
pub(super) fn furnish(
    masked: &[Mask],
    read_only: &[OsString],
    private: Option<&OsStr>,
) -> Result<(), Failure> {
    // Should the launcher be killed, the end of its socket would tell us too; this holds even if we are stopped.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::at(Step::Init))?;
    // What we know and where we are is not for the program, which may be the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Failure::at(Step::Init))?;
    let ours_alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", ours_alone).map_err(Failure::at(Step::Proc))?;
    mount("proc", "/proc", "proc", HARMLESS, None).map_err(Failure::at(Step::Proc))?;
    if geteuid().is_root() {
        limits::limit_processes_here().map_err(Failure::at(Step::Proc))?;
        guard_kernel().map_err(Failure::at(Step::Proc))?;
    }
    guard_devices().map_err(Failure::at(Step::Proc))?;
    let read_only: Vec<&Path> = read_only.iter().map(Path::new).collect();
    let places = masked.iter().map(|mask| Path::new(&mask.directory));
    pin(places.chain(read_only.iter().copied()))?;
    for path in read_only {
        protect(path).map_err(at(path))?;
    }
    for mask in masked {
        cover(mask).map_err(at(Path::new(&mask.directory)))?;
    }
    // What is written there only this program sees, though others are the same user.
    if let Some(directory) = private {
        mount("tmpfs", directory, "tmpfs", HARMLESS, c"mode=0700")
            .map_err(at(Path::new(directory)))?;
    }
    give_up_privileges().map_err(Failure::at(Step::Privileges))
}

/// For what holds no programs and no devices.
const HARMLESS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Parts of /proc that change the machine. The kernel asks only whether the writer is root outside, not for a capability, so
/// a root agent could name a program there that the kernel starts outside of every namespace.
const KERNEL: [&str; 5] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

fn guard_kernel() -> io::Result<()> {
    let mut there = KERNEL.map(Path::new).into_iter().filter(|path| path.exists());
    there.try_for_each(protect)
}

/// Makes `/sys` read-only with all that is mounted in it: it has settings of the kernel that start programs
/// (`uevent_helper`), and the control groups, which belong to the hub's user.
fn guard_devices() -> io::Result<()> {
    let sys = Path::new("/sys");
    if !sys.exists() {
        return Ok(());
    }
    mount_bind_recursive(sys, sys)?;
    let inside = mounts::all()?.into_iter().map(|mount| mount.path);
    for path in inside.filter(|path| path.starts_with(sys)).collect::<BTreeSet<_>>() {
        match make_read_only(&path) {
            // What we cannot reach, because it is forbidden or hidden below another mount, the agent cannot either.
            Err(_) if !is_seen(&path) => {}
            made => made?,
        }
    }
    Ok(())
}

fn is_seen(path: &Path) -> bool {
    statvfs(path).is_ok()
}

/// Names the path at which something failed.
fn at<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> Failure {
    let path = path.display().to_string();
    move |error| Failure { step: Step::Masks, why: format!("{path}: {error}") }
}

/// Keeps the directories above some paths where they are: what is mounted somewhere cannot be renamed from here. Otherwise
/// an agent could move one away with what is below it, and find it there unmasked when it is started again.
fn pin<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), Failure> {
    // In this order a directory comes before those inside it.
    let above: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
    for directory in above.into_iter().filter(|directory| directory.parent().is_some()) {
        mount_bind_recursive(directory, directory).map_err(at(directory))?;
    }
    Ok(())
}

/// Makes a path unchangeable from here.
fn protect(path: &Path) -> io::Result<()> {
    mount_bind_recursive(path, path)?;
    make_read_only(path)
}

/// Makes what is mounted at a path read-only from here.
fn make_read_only(path: &Path) -> io::Result<()> {
    Ok(mount_remount(path, locked_flags(path)? | MountFlags::BIND | MountFlags::RDONLY, c"")?)
}

/// Returns what restricts a mount already, which an ordinary user may not take off.
fn locked_flags(path: &Path) -> io::Result<MountFlags> {
    let now = statvfs(path)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(is_set, _)| now.contains(*is_set));
    let flags = kept.fold(MountFlags::empty(), |all, (_, flag)| all | flag);
    let has_times = now.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RELATIME);
    Ok(if has_times { flags } else { flags | MountFlags::STRICTATIME })
}

/// Hides a directory behind an empty one, but for what stays visible in it.
fn cover(mask: &Mask) -> io::Result<()> {
    let directory = open(Path::new(&mask.directory))?;
    let about = fstat(&directory)?;
    if (Identity { device: about.st_dev, inode: about.st_ino }) != mask.identity {
        let why = "another directory has taken the place of the hub's; stop the hub and look who moved it";
        return Err(io::Error::other(why));
    }
    let seen = mask.except.iter().map(Path::new);
    let seen: Vec<(&Path, OwnedFd)> =
        seen.map(|path| Ok((path, open(path)?))).collect::<io::Result<_>>()?;
    // On the directory that was looked at, whatever its name leads to by now.
    mount("tmpfs", by_descriptor(&directory), "tmpfs", HARMLESS, c"mode=0755")?;
    for (path, opened) in seen {
        std::fs::create_dir_all(path)?;
        mount_bind_recursive(by_descriptor(&opened), path)?;
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY | HARMLESS;
    Ok(mount_remount(&mask.directory, flags, c"")?)
}

/// Opens a directory by a path without symbolic links.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Returns a name for what a descriptor stands for.
fn by_descriptor(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// Sees to it that what we start cannot undo what we did.
fn give_up_privileges() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let mut ours = capabilities(None)?;
    ours.inheritable = CapabilitySet::empty();
    set_capabilities(None, ours)?;
    if geteuid().is_root() {
        let each = (0..u64::BITS).map(|n| CapabilitySet::from_bits_retain(1 << n));
        for capability in each.filter(|capability| !KEPT.contains(*capability)) {
            // The kernel does not know those beyond its last.
            if matches!(capability_is_in_bounding_set(capability), Ok(true)) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    Ok(())
}
