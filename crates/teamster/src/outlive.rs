//! What the hub does so that it outlives its agents when they take all that the machine has.

use crate::settings::Isolation;

/// Must be called before the hub starts anything.
pub(crate) fn prepare(isolation: &Isolation) {
    // When memory runs out, the kernel ends others first. Only root may ask for this; agents ask for the contrary.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
    let limits_memory = match take_over() {
        Ok(limits_memory) => limits_memory,
        Err(why) => {
            tracing::debug!(%why, "agents have no control groups");
            false
        }
    };
    if isolation.memory_mb.is_some() && !limits_memory {
        tracing::warn!(
            "`isolation.memory_mb` does nothing here: the hub has no control group that limits memory; start it with \
             `systemd-run --user --scope -p Delegate=yes teamster up`"
        );
    }
}

/// Returns whether agents' groups limit memory, or why there are none.
#[cfg(target_os = "linux")]
fn take_over() -> Result<bool, String> {
    teamster_agents::cgroup::take_over().map(|taken| taken.limits_memory)
}

#[cfg(not(target_os = "linux"))]
fn take_over() -> Result<bool, String> {
    Err("only Linux has them".into())
}
