//! Notices when an agent goes in circles: the same tool on the same target again and again, two that alternate, or the
//! same error whatever it tries.

use std::collections::VecDeque;

/// As many calls as are looked back at.
const WINDOW: usize = 10;
/// The same call this often in a row is worth a warning, and then an end.
const REPEATS_WARN: usize = 3;
const REPEATS_STOP: usize = 5;
/// So many pairs of two alternating calls are.
const PAIRS_WARN: usize = 3;
const PAIRS_STOP: usize = 4;
/// The same error this often, whatever succeeded in between.
const ERRORS_WARN: usize = 4;
const ERRORS_STOP: usize = 8;

/// What the last calls look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Warn(String),
    Stop(String),
}

#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Fingerprints of tool and target, oldest first.
    calls: VecDeque<u64>,
    /// The last error's fingerprint, and how often it came.
    error: (u64, usize),
}

impl Guard {
    /// Looks at one more call.
    pub(super) fn see(&mut self, tool: &str, target: &str) -> Verdict {
        let print = teamster_core::text::fingerprint(tool.bytes().chain([0]).chain(target.bytes()));
        self.calls.push_back(print);
        if self.calls.len() > WINDOW {
            self.calls.pop_front();
        }
        let newest_first: Vec<u64> = self.calls.iter().rev().copied().collect();
        let repeats = newest_first.iter().take_while(|call| **call == print).count();
        let target: String = target.chars().take(80).collect();
        let repeated = || format!("{tool} was called {repeats} times in a row with {target:?}");
        match repeats {
            REPEATS_STOP.. => return Verdict::Stop(repeated()),
            REPEATS_WARN => return Verdict::Warn(repeated()),
            _ => {}
        }
        let pairs = pairs(&newest_first);
        let alternated = || format!("two calls alternate, {tool} being one of them, {pairs} times");
        match pairs {
            PAIRS_STOP.. => Verdict::Stop(alternated()),
            // Warned when the pair is complete, not again by its other half.
            PAIRS_WARN if is_complete(&newest_first, pairs) => Verdict::Warn(alternated()),
            _ => Verdict::Fine,
        }
    }
}

impl Guard {
    /// Looks at one more error of a tool.
    pub(super) fn see_error(&mut self, error: &str) -> Verdict {
        let print = teamster_core::text::fingerprint(error.trim().bytes());
        let times = if self.error.0 == print { self.error.1 + 1 } else { 1 };
        self.error = (print, times);
        let error: String = error.trim().chars().take(120).collect();
        let says = || format!("the same error came {times} times: {error:?}");
        match times {
            ERRORS_STOP.. => Verdict::Stop(says()),
            ERRORS_WARN => Verdict::Warn(says()),
            _ => Verdict::Fine,
        }
    }
}

/// Returns how many times the two newest calls, if they differ, alternate.
fn pairs(newest_first: &[u64]) -> usize {
    let [a, b, ..] = newest_first else { return 0 };
    if a == b {
        return 0;
    }
    newest_first.chunks_exact(2).take_while(|pair| pair[0] == *a && pair[1] == *b).count()
}

/// Says whether the alternation began with just these pairs.
fn is_complete(newest_first: &[u64], pairs: usize) -> bool {
    newest_first.get(pairs * 2).is_none_or(|before| *before != newest_first[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(calls: &[&str], expected: &str) {
        let mut guard = Guard::default();
        let shown: Vec<&str> = calls
            .iter()
            .map(|call| match guard.see("read", call) {
                Verdict::Fine => "-",
                Verdict::Warn(_) => "warn",
                Verdict::Stop(_) => "stop",
            })
            .collect();
        assert_eq!(shown.join(" "), expected, "{calls:?}");
    }

    #[test]
    fn the_same_call_again_and_again_is_stopped() {
        check(&["a", "a", "a", "a", "a", "a"], "- - warn - stop stop");
        check(&["a", "a", "b", "a", "a", "b"], "- - - - - -");
    }

    #[test]
    fn the_same_error_again_and_again_is_stopped() {
        let mut guard = Guard::default();
        let mut see = |error: &str| guard.see_error(error);
        for _ in 0..3 {
            assert_eq!(see("no such file"), Verdict::Fine);
        }
        assert!(matches!(see("no such file"), Verdict::Warn(_)));
        assert_eq!(see("another"), Verdict::Fine);
        for n in 1..8 {
            assert!(!matches!(see("no such file\n"), Verdict::Stop(_)), "{n}");
        }
        assert!(matches!(see("no such file"), Verdict::Stop(_)));
    }

    #[test]
    fn two_calls_that_alternate_are_stopped() {
        check(&["a", "b", "a", "b", "a", "b", "a", "b"], "- - - - - warn - stop");
        check(&["a", "b", "c", "a", "b", "c", "a", "b", "c"], "- - - - - - - - -");
    }
}
