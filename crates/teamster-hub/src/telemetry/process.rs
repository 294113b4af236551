//! What the system knows of this process. Where it does not tell, nothing is told.

use rustix::time::{ClockId, clock_gettime};

/// Returns the memory that the process holds.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the processor time that the process has used.
pub(super) fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Returns how many files and connections the process has open.
pub(super) fn open_files() -> Option<usize> {
    // The one that lists them is not counted.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}
