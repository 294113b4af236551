//! What the numbers were measured on.

use std::path::Path;

use crate::load::{TURNS, median};
use crate::sync::SyncedFile;

/// As many bytes as a sync writes when it is measured for its own sake: about a commit.
const SYNC_BYTES: usize = 256;
/// By which a file system that is only in memory is known.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Says in a line what this machine is.
pub(crate) fn describe(directory: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let information = read("/proc/cpuinfo");
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    let model =
        model.map_or("unknown processor", |model| model.trim_start_matches([' ', '\t', ':']));
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let mut file = SyncedFile::new(directory, SYNC_BYTES);
    let syncs_us: Vec<f64> = (0..TURNS).map(|_| file.append()).collect();
    let sync_us = median(&syncs_us);
    let date = jiff::Zoned::now().date();
    let disk = if is_in_memory(directory) { " (in memory: syncs mean nothing here)" } else { "" };
    format!(
        "{date}; {cores} cores of {model}; Linux {}; an fdatasync of {SYNC_BYTES} bytes takes {sync_us:.0} µs{disk}; \
         load average before the run {load}.",
        kernel.trim()
    )
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn is_in_memory(directory: &Path) -> bool {
    let system = rustix::fs::statfs(directory).expect("the directory is on a file system");
    u64::try_from(system.f_type).is_ok_and(|magic| magic == TMPFS_MAGIC)
}
