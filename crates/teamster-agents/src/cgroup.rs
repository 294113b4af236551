//! Control groups (Linux, version 2): what an agent may take of the machine, where the hub was given a group of its own.
//!
//! A hub that is alone in a group that it may write, such as a service with `Delegate=yes`, moves into the group `hub` below
//! it and makes `agents` beside that. Every launcher finds the two by its own group, and makes one below `agents` for what
//! it starts. Elsewhere there are no groups, and only the limits in `launcher/limits.rs` hold.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::mounts;

const HUB: &str = "hub";
const AGENTS: &str = "agents";
const PROCESSES: &str = "cgroup.procs";
const CONTROLLERS: &str = "cgroup.subtree_control";

/// What is limited, and the controllers that do it.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

/// The hub gets twice the processor time of all agents together when there is not enough for everybody.
const HUB_WEIGHT: &str = "200";

/// What agents' groups limit here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub limits_memory: bool,
    pub limits_processes: bool,
}

/// Makes room for the groups of agents below the hub's own. Must be called before the hub starts anything. Returns why there
/// are none.
pub fn take_over() -> Result<Taken, String> {
    let own = own().ok_or("this machine has no control groups of version 2")?;
    let agents = own.with_file_name(AGENTS);
    if own.ends_with(HUB) && agents.is_dir() {
        // The hub was started again in the same group.
        remove_empty(&agents);
        return Ok(taken(&agents));
    }
    if !own.join("cgroup.type").exists() {
        return Err("the hub is in the machine's root group".into());
    }
    let lacks_access = access(own.join(PROCESSES), Access::WRITE_OK).is_err();
    if lacks_access || access(&own, Access::WRITE_OK).is_err() {
        return Err("the hub may not change its group".into());
    }
    let processes = std::fs::read_to_string(own.join(PROCESSES)).unwrap_or_default();
    if processes.trim() != std::process::id().to_string() {
        return Err("other processes are in the hub's group".into());
    }
    divide(&own).map_err(|error| format!("{}: {error}", own.display()))
}

/// Says whether agents' groups limit memory, once the hub has made room for them.
pub fn limits_memory() -> bool {
    own().is_some_and(|own| own.ends_with(HUB) && taken(&own.with_file_name(AGENTS)).limits_memory)
}

fn divide(own: &Path) -> io::Result<Taken> {
    let (hub, agents) = (own.join(HUB), own.join(AGENTS));
    make(&hub)?;
    // A group with groups that are limited has no processes itself.
    std::fs::write(hub.join(PROCESSES), "0")?;
    make(&agents)?;
    let offered = std::fs::read_to_string(own.join("cgroup.controllers"))?;
    for controller in
        WANTED.iter().filter(|wanted| offered.split_whitespace().any(|it| it == **wanted))
    {
        for group in [own, &agents] {
            std::fs::write(group.join(CONTROLLERS), format!("+{controller}"))?;
        }
    }
    // Without the controller there is no such file.
    let _ = std::fs::write(hub.join("cpu.weight"), HUB_WEIGHT);
    remove_empty(&agents);
    Ok(taken(&agents))
}

fn taken(agents: &Path) -> Taken {
    let enabled = std::fs::read_to_string(agents.join(CONTROLLERS)).unwrap_or_default();
    let limits = |name| enabled.split_whitespace().any(|it| it == name);
    Taken { limits_memory: limits("memory"), limits_processes: limits("pids") }
}

fn make(group: &Path) -> io::Result<()> {
    match std::fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes groups that launchers of an earlier hub left; one with a process in it stays.
fn remove_empty(agents: &Path) {
    let Ok(groups) = std::fs::read_dir(agents) else { return };
    for group in groups.flatten().filter(|group| group.path().is_dir()) {
        let _ = std::fs::remove_dir(group.path());
    }
}

/// The group of one launch.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// Returns the group for a launch, if the hub that started this launcher has groups for agents.
    pub(crate) fn of(launch: &str) -> Option<Self> {
        let own = own()?;
        let agents = own.with_file_name(AGENTS);
        (own.ends_with(HUB) && agents.is_dir()).then(|| Self(agents.join(launch)))
    }

    /// Makes the group and moves this process into it, and with it whatever it starts.
    pub(crate) fn join(&self, processes_max: u32, memory_max: Option<u64>) -> io::Result<()> {
        make(&self.0)?;
        self.limit("pids.max", u64::from(processes_max))?;
        if let Some(bytes) = memory_max {
            self.limit("memory.max", bytes)?;
            self.limit("memory.swap.max", 0)?;
        }
        std::fs::write(self.0.join(PROCESSES), "0")
    }

    /// Sets a limit. A controller that is not there was not handed over; the hub says so when it starts.
    fn limit(&self, name: &str, value: u64) -> io::Result<()> {
        let file = self.0.join(name);
        if file.exists() { std::fs::write(file, value.to_string()) } else { Ok(()) }
    }

    /// Says whether the kernel has killed a process of it because the group had no memory left.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let events = std::fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let mut killed = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        killed.any(|count| count.trim() != "0")
    }

    /// Removes it once nothing is left in it.
    pub(crate) fn remove(&self) {
        // The next hub tries again.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Returns the directory of the group that this process is in.
fn own() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts::all().ok()?.into_iter().find(|mount| mount.kind == "cgroup2")?;
    let group = mount.path.join(own);
    group.is_dir().then_some(group)
}
