//! Up to which moment changes of files are an agent's, if its hub was killed.
//!
//! A script can kill the hub and write a file at once, while the agent still runs. A launcher does not see the kill. It sees
//! the hub's socket close, which is some milliseconds later. The hub cannot tell the agent's changes from the user's in
//! that time, so these changes count as unknown.

use teamster_agents::launches::Leftover;
use teamster_core::Timestamp;

use crate::clock;

/// How long a killed hub may take to close its sockets. The kernel frees the hub's memory first. Measured: 15 ms for 100 MB,
/// 200 ms for 2 GB; with four busy processes on two cores 35 ms for 100 MB, 170 ms for 500 MB,
/// 1.1 s for 2 GB, which is not covered.
const HUB_UNSEEN_MS: i64 = 500;

/// The kernel dates files by a clock that moves every 1 to 10 ms, so a file can look older than it is.
const TICK_MS: i64 = 10;

/// The last that is known from before the hub was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The launchers saw that the hub, or the agent itself, had ended.
    EndOfHub(Timestamp),
    /// No launcher saw that; the agent was last heard of then.
    Word(Timestamp),
}

/// Returns when the launchers of an agent saw that the hub had ended, or the agent itself before the hub; nothing if one of
/// them did not see its agent end.
pub(super) fn end_of_hub<'a>(launches: impl Iterator<Item = &'a Leftover>) -> Option<Timestamp> {
    let ends = launches.map(|one| Some(one.alone_at.unwrap_or(one.gone_at?)));
    let ends: Option<Vec<_>> = ends.collect();
    ends?.into_iter().max().map(clock::timestamp)
}

/// Returns up to when changes are the agent's.
pub(super) fn cutoff(seen: Seen, now: Timestamp) -> Timestamp {
    let (at, margin_ms) = match seen {
        Seen::EndOfHub(at) => (at, HUB_UNSEEN_MS),
        Seen::Word(at) => (at, TICK_MS),
    };
    // The clock was set back since, so times say nothing: no change is surely the agent's.
    if at > now {
        return Timestamp(0);
    }
    Timestamp(at.0.saturating_sub(margin_ms))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn leftover(alone_at: Option<u64>, gone_at: Option<u64>) -> Leftover {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let (id, note, processes) = ("worker-1-1-0".to_owned(), None, Vec::new());
        let (alone_at, gone_at) = (alone_at.map(at), gone_at.map(at));
        Leftover { id, note, processes, n_killed: 0, n_left: 0, alone_at, gone_at }
    }

    #[test]
    fn launchers_see_the_end_of_the_hub_or_of_the_agent() {
        for (launches, seen) in [
            (&[(Some(9_000), Some(9_020))][..], Some(9_000)),
            // The agent ended first, or an older launcher noted no more.
            (&[(None, Some(9_020))], Some(9_020)),
            (&[(Some(9_000), Some(9_020)), (None, Some(8_000))], Some(9_000)),
            // A launcher that was killed saw nothing to its end.
            (&[(Some(9_000), None)], None),
            (&[(Some(9_000), Some(9_020)), (None, None)], None),
            (&[], None),
        ] {
            let launches: Vec<Leftover> =
                launches.iter().map(|(alone, gone)| leftover(*alone, *gone)).collect();
            assert_eq!(end_of_hub(launches.iter()), seen.map(Timestamp), "{launches:?}");
        }
    }

    /// The hub is killed at 10,000, and its launchers see that at 10,030.
    #[test]
    fn what_is_written_at_the_kill_or_after_it_is_not_the_agents() {
        let now = Timestamp(60_000);
        let hub_ended = cutoff(Seen::EndOfHub(Timestamp(10_030)), now);
        let all_killed = cutoff(Seen::Word(Timestamp(9_998)), now);
        let clock_set_back = cutoff(Seen::EndOfHub(Timestamp(10_030)), Timestamp(10_029));
        for (changed_at, [by_hub_ended, by_all_killed, by_clock]) in [
            (9_000, [true, true, false]),
            (9_500, [true, true, false]),
            // Within the margins.
            (9_600, [false, true, false]),
            (9_992, [false, false, false]),
            // By a script that does not wait.
            (10_001, [false, false, false]),
            // By the agent, which still runs, or by the user.
            (10_035, [false, false, false]),
            (30_000, [false, false, false]),
        ] {
            let is_agents = |cutoff: Timestamp| Timestamp(changed_at) <= cutoff;
            assert_eq!(
                [hub_ended, all_killed, clock_set_back].map(is_agents),
                [by_hub_ended, by_all_killed, by_clock],
                "{changed_at}"
            );
        }
    }
}
