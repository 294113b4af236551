//! What agents use up: tokens and money. Prices are known or not; what is not known is never taken for nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// More tokens than a turn can use, and more money: a program that says so is wrong, and its sums must stay sums.
const TOKENS_MAX: u64 = 1_000_000_000;
const MICRODOLLARS_MAX: u64 = 100_000_000_000;

/// What one turn used, as far as its program told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Used {
    pub model: Option<Arc<str>>,
    pub input: u64,
    pub output: u64,
    pub cached_read: u64,
    pub cached_write: u64,
    /// Millionths of a dollar; none if neither the program nor the price list knows.
    pub microdollars: Option<u64>,
}

impl Used {
    /// Returns it without what cannot be.
    pub(crate) fn bounded(&self) -> Self {
        let tokens = |n: u64| n.min(TOKENS_MAX);
        Self {
            model: self.model.as_ref().map(|model| crate::text::beginning(model, 200)),
            input: tokens(self.input),
            output: tokens(self.output),
            cached_read: tokens(self.cached_read),
            cached_write: tokens(self.cached_write),
            microdollars: self.microdollars.map(|cost| cost.min(MICRODOLLARS_MAX)),
        }
    }

    fn tokens(&self) -> u64 {
        self.input + self.output + self.cached_read + self.cached_write
    }
}

/// What several turns used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    pub input: u64,
    pub output: u64,
    pub cached_read: u64,
    pub cached_write: u64,
    /// Millionths of a dollar, of those turns whose price is known.
    pub microdollars: u64,
    /// How many turns have a known price, and how many not.
    pub n_priced: u32,
    pub n_unpriced: u32,
}

impl Spent {
    /// All tokens, cached ones too.
    pub fn tokens(&self) -> u64 {
        [self.input, self.output, self.cached_read, self.cached_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Adds what others used.
    pub fn add_all(&mut self, other: &Self) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.input, other.input);
        add(&mut self.output, other.output);
        add(&mut self.cached_read, other.cached_read);
        add(&mut self.cached_write, other.cached_write);
        add(&mut self.microdollars, other.microdollars);
        self.n_priced = self.n_priced.saturating_add(other.n_priced);
        self.n_unpriced = self.n_unpriced.saturating_add(other.n_unpriced);
    }

    pub(crate) fn add(&mut self, used: &Used) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.input, used.input);
        add(&mut self.output, used.output);
        add(&mut self.cached_read, used.cached_read);
        add(&mut self.cached_write, used.cached_write);
        match used.microdollars {
            Some(cost) => {
                add(&mut self.microdollars, cost);
                self.n_priced += 1;
            }
            None => self.n_unpriced += 1,
        }
    }
}

/// Shows an amount of money.
pub fn dollars(microdollars: u64) -> String {
    // Rounded up: what costs something is never shown as nothing.
    match microdollars {
        0 => "$0".to_owned(),
        1..10_000 => {
            let hundredths = microdollars.div_ceil(100);
            format!("${}.{:04}", hundredths / 10_000, hundredths % 10_000)
        }
        _ => {
            let cents = microdollars.div_ceil(10_000);
            format!("${}.{:02}", cents / 100, cents % 100)
        }
    }
}

impl std::fmt::Display for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cost = self.microdollars.map_or_else(|| "unknown price".to_owned(), dollars);
        write!(f, "{} tokens ({cost})", self.tokens())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_rounded_up() {
        for (given, shown) in [
            (0, "$0"),
            (1, "$0.0001"),
            (9_999, "$0.0100"),
            (10_000, "$0.01"),
            (1_234_567, "$1.24"),
            (12_000_000, "$12.00"),
        ] {
            assert_eq!(dollars(given), shown);
        }
    }

    #[test]
    fn what_is_not_known_is_not_nothing() {
        let mut spent = Spent::default();
        spent.add(&Used { input: 5, microdollars: None, ..Used::default() });
        spent.add(&Used { output: 7, microdollars: Some(3), ..Used::default() });
        assert_eq!((spent.tokens(), spent.microdollars), (12, 3));
        assert_eq!((spent.n_priced, spent.n_unpriced), (1, 1));
        let lie = Used { input: u64::MAX, microdollars: Some(u64::MAX), ..Used::default() };
        assert!(lie.bounded().input < u64::MAX / 1_000);
    }
}
