//! Programs that fail: none is started again at once, and one that fails again and again not for a while, unless a person
//! wants it tried.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use teamster_agents::restarts::{Intensity, Restarts, Verdict};
use teamster_core::Timestamp;
use tokio::sync::Notify;

/// What the failures of each program led to.
#[derive(Debug, Default)]
pub(super) struct Failing {
    programs: Mutex<BTreeMap<Arc<str>, One>>,
    changed: Notify,
}

#[derive(Debug)]
struct One {
    restarts: Restarts,
    held: Backoff,
}

/// A program that is not started for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) until: Timestamp,
    /// How often it has failed lately.
    pub(super) n_failures: usize,
}

impl Failing {
    fn programs(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, One>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a program has failed.
    pub(super) fn note(&self, program: &Arc<str>, now: Timestamp) {
        let mut programs = self.programs();
        let one = programs.entry(program.clone()).or_insert_with(|| One {
            restarts: Restarts::new(Intensity::default()),
            held: Backoff { until: now, n_failures: 0 },
        });
        let (pause, n_failures) = match one.restarts.next(now.0) {
            Verdict::After(pause) => (pause, one.restarts.n_recent()),
            Verdict::Parked => {
                let (pause, n_failures) =
                    (Intensity::default().within, one.restarts.n_recent() + 1);
                tracing::warn!(program = &**program, "fails again and again; waits for {pause:?}");
                one.restarts.forget();
                (pause, n_failures)
            }
        };
        let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let until = Timestamp(now.0.saturating_add(pause_ms));
        // One that was at work all the time and fails last makes the wait no shorter.
        if until > one.held.until {
            one.held = Backoff { until, n_failures };
        }
        drop(programs);
        self.changed.notify_one();
    }

    /// Returns until when a program is not to be started, and why.
    pub(super) fn held(&self, program: &str, now: Timestamp) -> Option<Backoff> {
        self.programs().get(program).map(|one| one.held).filter(|held| held.until > now)
    }

    /// Returns when the first program may be started that may not be started now.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.programs().values().map(|one| one.held.until).filter(|at| *at > now).min()
    }

    /// Forgets what was: a person wants it tried.
    pub(super) fn forgive(&self, program: &str) {
        if self.programs().remove(program).is_some() {
            self.changed.notify_one();
        }
    }

    /// Waits until a program fails or is forgiven. Whoever asks is told also of what happened since it asked last.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_held_until_its_time_or_until_a_person_wants_it() {
        let failing = Failing::default();
        let program: Arc<str> = "scripted".into();
        for n in 0..6 {
            failing.note(&program, Timestamp(n));
        }
        let until = Timestamp(600_005);
        let held = failing.held("scripted", Timestamp(5));
        assert_eq!(held, Some(Backoff { until, n_failures: 6 }));
        assert_eq!(failing.next(Timestamp(5)), Some(until));
        failing.note(&program, Timestamp(7));
        assert_eq!(failing.held("scripted", Timestamp(7)), held);
        assert_eq!(failing.held("scripted", until), None);
        assert_eq!(failing.held("other", Timestamp(5)), None);
        failing.forgive("scripted");
        assert_eq!(failing.held("scripted", Timestamp(5)), None);
        // From then on it counts anew.
        failing.note(&program, Timestamp(6));
        let held = failing.held("scripted", Timestamp(6));
        assert_eq!(held, Some(Backoff { until: Timestamp(1_006), n_failures: 1 }));
    }
}
