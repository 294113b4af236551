//! What the hub does so that it outlives its agents when they take all that the machine has.

/// Must be called before the hub starts anything.
pub(crate) fn prepare() {
    // When memory runs out, the kernel ends others first. Only root may ask for this; agents ask for the contrary.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
    #[cfg(target_os = "linux")]
    if let Err(why) = teamster_agents::cgroup::take_over() {
        tracing::debug!(%why, "agents have no control groups");
    }
}

/// Says whether the memory of agents can be limited here.
pub(crate) fn limits_memory() -> bool {
    #[cfg(target_os = "linux")]
    return teamster_agents::cgroup::limits_memory();
    #[cfg(not(target_os = "linux"))]
    false
}
