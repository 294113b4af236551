//! What every agent may take of the machine, with or without a control group.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// So many processes and threads an agent may have at once. A build on a large machine has some hundred.
pub(super) const PROCESSES_MAX: u32 = 4_096;

/// Has no memory of an agent, which may hold its token, written to a file when it crashes.
pub(super) fn leave_no_core() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Limits the processes of the user in this user namespace. Elsewhere this would count everything that the user runs.
#[cfg(target_os = "linux")]
pub(super) fn limit_processes_of_user() {
    let at_most = u64::from(PROCESSES_MAX);
    let now = getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX);
    let limit = Some(at_most.min(now));
    let _ = setrlimit(Resource::Nproc, Rlimit { current: limit, maximum: limit });
}

/// Limits the processes in this pid namespace, for root, whom the limit above does not bind. Returns what the kernel
/// answered; before Linux 6.14 the setting is the whole machine's, and is left alone.
#[cfg(target_os = "linux")]
pub(super) fn limit_processes_here() -> std::io::Result<()> {
    match is_own_setting(rustix::system::uname().release().to_str().unwrap_or_default()) {
        true => std::fs::write("/proc/sys/kernel/pid_max", PROCESSES_MAX.to_string()),
        false => Ok(()),
    }
}

/// Says whether a kernel of this version has the highest process number per namespace.
#[cfg(target_os = "linux")]
fn is_own_setting(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let version: (Option<u32>, Option<u32>) = (numbers.next().flatten(), numbers.next().flatten());
    matches!(version, (Some(major), Some(minor)) if (major, minor) >= (6, 14))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_setting_is_left_alone() {
        for release in ["6.14.0", "6.18.44-generic", "7.0.1", "10.1"] {
            assert!(is_own_setting(release), "{release}");
        }
        for release in ["6.13.9", "6.1.0-40-amd64", "5.15.167.4-microsoft-standard", "", "six"] {
            assert!(!is_own_setting(release), "{release}");
        }
    }
}
