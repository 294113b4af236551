//! How often something that ends may be started again: with growing pauses, and not for ever.

use std::collections::VecDeque;
use std::time::Duration;

/// How many restarts are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// So many restarts within `within` are granted; the next one is not.
    pub restarts_max: usize,
    pub within: Duration,
    /// The pause before the first restart; it doubles with each one that is still remembered.
    pub first_pause: Duration,
    pub pause_max: Duration,
}

impl Default for Intensity {
    /// Five in ten minutes: a program that is broken is told so in half a minute, and one that fails now and then is not.
    fn default() -> Self {
        Self {
            restarts_max: 5,
            within: Duration::from_secs(600),
            first_pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again after this pause.
    After(Duration),
    /// It has ended too often; somebody has to look.
    Parked,
}

/// The restarts of one thing.
#[derive(Debug, Clone)]
pub struct Restarts {
    intensity: Intensity,
    /// When restarts were granted, oldest first: at most `restarts_max`.
    granted_ms: VecDeque<i64>,
}

impl Restarts {
    pub fn new(intensity: Intensity) -> Self {
        Self { intensity, granted_ms: VecDeque::new() }
    }

    /// Decides what happens now that it has ended, and remembers it. A clock that was set back forgets nothing.
    pub fn next(&mut self, now_ms: i64) -> Verdict {
        let Intensity { restarts_max, within, first_pause, pause_max } = self.intensity;
        let within_ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
        while self.granted_ms.front().is_some_and(|at| now_ms.saturating_sub(*at) >= within_ms) {
            self.granted_ms.pop_front();
        }
        let n_recent = self.granted_ms.len();
        if n_recent >= restarts_max {
            return Verdict::Parked;
        }
        self.granted_ms.push_back(now_ms);
        let doublings = u32::try_from(n_recent).unwrap_or(u32::MAX);
        let pause = first_pause.saturating_mul(2_u32.saturating_pow(doublings));
        Verdict::After(pause.min(pause_max))
    }

    /// Returns how many restarts are remembered.
    pub fn n_recent(&self) -> usize {
        self.granted_ms.len()
    }

    /// Forgets what was: somebody has looked.
    pub fn forget(&mut self) {
        self.granted_ms.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ends_at_s: &[i64], expected: &[Option<u64>]) {
        let mut restarts = Restarts::new(Intensity {
            restarts_max: 4,
            within: Duration::from_secs(100),
            first_pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(5),
        });
        let verdicts: Vec<Option<u64>> = ends_at_s
            .iter()
            .map(|at_s| match restarts.next(at_s * 1_000) {
                Verdict::After(pause) => Some(pause.as_secs()),
                Verdict::Parked => None,
            })
            .collect();
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn pauses_double_up_to_their_bound_and_then_it_is_parked() {
        check(&[0, 1, 3, 7, 12, 13], &[Some(1), Some(2), Some(4), Some(5), None, None]);
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        check(&[0, 200, 400, 600, 800, 1_000], &[Some(1); 6]);
        check(&[0, 50, 101, 151], &[Some(1), Some(2), Some(2), Some(2)]);
    }

    #[test]
    fn what_was_parked_can_be_started_after_a_while() {
        check(
            &[0, 1, 2, 3, 4, 99, 100],
            &[Some(1), Some(2), Some(4), Some(5), None, None, Some(5)],
        );
    }

    #[test]
    fn a_clock_set_back_grants_nothing_more() {
        check(&[1_000, 900, 800, 700, 600], &[Some(1), Some(2), Some(4), Some(5), None]);
    }

    #[test]
    fn somebody_who_has_looked_begins_anew() {
        let mut restarts = Restarts::new(Intensity { restarts_max: 1, ..Intensity::default() });
        assert_eq!(restarts.next(0), Verdict::After(Duration::from_secs(1)));
        assert_eq!(restarts.next(0), Verdict::Parked);
        restarts.forget();
        assert_eq!(restarts.next(0), Verdict::After(Duration::from_secs(1)));
    }
}
