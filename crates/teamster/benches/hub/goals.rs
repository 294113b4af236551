//! What is to be kept, as data.

use crate::results::Results;

pub(crate) struct Goal {
    pub(crate) name: &'static str,
    pub(crate) bound: Bound,
    pub(crate) goal: f64,
    /// What we would like better still.
    pub(crate) aim: Option<f64>,
    /// Half of the goal, or less, where the result is a ratio: beyond it the short form fails. Times and sizes have none, since
    /// they depend on the machine.
    pub(crate) half_goal: Option<f64>,
    /// Whether it is not judged on a slow disk.
    waits_for_disk: bool,
}

/// Where a sync takes longer than this, 32 clients of the rmcp echo have long been answered by then: how writes compare
/// with it says more about the disk than about the hub.
const SLOW_SYNC_US: f64 = 1_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

impl Bound {
    pub(crate) fn holds(self, value: f64, goal: f64) -> bool {
        match self {
            Self::AtLeast => value >= goal,
            Self::AtMost => value <= goal,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥",
            Self::AtMost => "≤",
        }
    }
}

const fn at_most(name: &'static str, goal: f64) -> Goal {
    let (bound, aim, half_goal) = (Bound::AtMost, None, None);
    Goal { name, bound, goal, aim, half_goal, waits_for_disk: false }
}

const fn ratio_at_most(name: &'static str, goal: f64) -> Goal {
    Goal { half_goal: Some(goal * 2.0), ..at_most(name, goal) }
}

const fn ratio_at_least(name: &'static str, goal: f64, aim: f64) -> Goal {
    let (bound, aim, half_goal) = (Bound::AtLeast, Some(aim), Some(goal / 2.0));
    Goal { name, bound, goal, aim, half_goal, waits_for_disk: false }
}

pub(crate) const GOALS: &[Goal] = &[
    Goal {
        waits_for_disk: true,
        // A third: the echo is much faster than the one that the goal was set by, so half of it is where we are.
        half_goal: Some(0.5),
        ..ratio_at_least("write_32_modern_vs_rmcp", 1.5, 2.0)
    },
    ratio_at_least("read_32_modern_vs_rmcp", 2.5, 3.5),
    ratio_at_most("alone_write_less_rmcp_in_syncs", 1.5),
    ratio_at_most("growth_read_10k_vs_1k", 1.25),
    ratio_at_most("growth_read_100k_vs_1k", 1.25),
    ratio_at_most("growth_read_history_vs_1k", 1.25),
    ratio_at_most("growth_list_10k_vs_1k", 1.25),
    ratio_at_most("growth_list_100k_vs_1k", 1.25),
    ratio_at_most("growth_list_history_vs_1k", 1.25),
    ratio_at_most("growth_update_10k_vs_1k", 1.25),
    ratio_at_most("growth_update_100k_vs_1k", 1.25),
    ratio_at_most("growth_update_history_vs_1k", 1.25),
    ratio_at_most("transcript_page_200k_vs_1k", 1.25),
    ratio_at_most("transcript_page_1m_vs_1k", 1.25),
    at_most("draft_overhead_ms", 10.0),
    at_most("tell_overhead_ms", 2.0),
    // Half a dozen syncs, one after the other: against a program that starts in 3 ms a slow disk is most of it.
    Goal { waits_for_disk: true, ..ratio_at_most("draft_begin_vs_by_hand", 5.0) },
    at_most("iteration_hub_ms", 20.0),
    at_most("wake_p50_us", 1_000.0),
    at_most("start_empty_ms", 50.0),
    at_most("start_history_ms", 1_000.0),
    at_most("idle_memory_mb", 25.0),
    at_most("idle_cpu_percent", 0.1),
    at_most("parked_wait_kib", 50.0),
    at_most("idle_agent_kib", 200.0),
];

/// Returns the goals that results are far off.
pub(crate) fn far_off(results: &Results) -> Vec<&'static Goal> {
    let slow_disk = results.get("alone_sync_p50_us").is_some_and(|sync| sync > SLOW_SYNC_US);
    let far = |goal: &&Goal| {
        if goal.waits_for_disk && slow_disk {
            return false;
        }
        let (value, half_goal) = (results.get(goal.name), goal.half_goal);
        value.zip(half_goal).is_some_and(|(value, half_goal)| !goal.bound.holds(value, half_goal))
    };
    GOALS.iter().filter(far).collect()
}
