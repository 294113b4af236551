//! What agents use up: tokens and money. Prices are known or not; what is not known is never taken for nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// More tokens than a turn can use, and more money: a program that says so is wrong, and its sums must stay sums.
const TOKENS_MAX: u64 = 1_000_000_000;
const MICRODOLLARS_MAX: u64 = 100_000_000_000;
const CALLS_MAX: u32 = 1_000_000;

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
    /// Calls of the model, as far as they can be told apart.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u32,
    #[serde(default, skip_serializing_if = "Reported::is_whole")]
    pub reported: Reported,
}

/// How much of the tokens of a turn its program reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    #[default]
    Whole,
    /// Some of several model calls, or what was used up to an interruption.
    AtLeast,
    Nothing,
}

impl Reported {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
    fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Reads a number that the API leaves out where it is not known.
fn or_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // Snapshots have a number there always.
    if deserializer.is_human_readable() {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    } else {
        u64::deserialize(deserializer)
    }
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
            calls: self.calls.min(CALLS_MAX),
            reported: self.reported,
        }
    }

    /// All tokens, cached ones too.
    pub fn tokens(&self) -> u64 {
        [self.input, self.output, self.cached_read, self.cached_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What several turns used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    #[serde(default, deserialize_with = "or_zero")]
    pub input: u64,
    #[serde(default, deserialize_with = "or_zero")]
    pub output: u64,
    #[serde(default, deserialize_with = "or_zero")]
    pub cached_read: u64,
    #[serde(default, deserialize_with = "or_zero")]
    pub cached_write: u64,
    /// Millionths of a dollar, of those turns whose price is known.
    pub microdollars: u64,
    /// How many turns have a known price, and how many not.
    pub n_priced: u32,
    pub n_unpriced: u32,
    /// How many turns reported no tokens, and how many only some of them.
    #[serde(default)]
    pub n_unreported: u32,
    #[serde(default)]
    pub n_partial: u32,
    /// Calls of the model that are known.
    #[serde(default)]
    pub calls: u64,
}

impl Spent {
    /// All tokens, cached ones too.
    pub fn tokens(&self) -> u64 {
        [self.input, self.output, self.cached_read, self.cached_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Says whether any tokens were reported. Where nothing was used yet, nothing is missing.
    pub fn is_reported(&self) -> bool {
        self.n_unreported == 0 || self.tokens() > 0
    }

    /// Says whether all tokens were reported.
    pub fn is_whole(&self) -> bool {
        self.n_unreported == 0 && self.n_partial == 0
    }

    /// Shows the tokens as far as they were reported, and the model calls where that is not the whole.
    pub fn tokens_shown(&self, shown: impl Fn(u64) -> String) -> String {
        let n = shown(self.tokens());
        let calls = match self.calls {
            0 => String::new(),
            1 => " (1 call)".to_owned(),
            n => format!(" ({n} calls)"),
        };
        match (self.is_whole(), self.is_reported()) {
            (true, _) => format!("{n} tokens"),
            (false, true) => format!("at least {n} tokens{calls}"),
            (false, false) => format!("tokens not reported{calls}"),
        }
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
        self.n_unreported = self.n_unreported.saturating_add(other.n_unreported);
        self.n_partial = self.n_partial.saturating_add(other.n_partial);
        add(&mut self.calls, other.calls);
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
        match used.reported {
            Reported::Whole => {}
            Reported::AtLeast => self.n_partial += 1,
            Reported::Nothing => self.n_unreported += 1,
        }
        add(&mut self.calls, used.calls.into());
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
        let n = self.tokens();
        match self.reported {
            Reported::Whole => write!(f, "{n} tokens ({cost})"),
            Reported::AtLeast => write!(f, "at least {n} tokens ({cost})"),
            Reported::Nothing if self.calls == 0 => write!(f, "tokens not reported ({cost})"),
            Reported::Nothing => {
                write!(f, "tokens not reported, {} model calls ({cost})", self.calls)
            }
        }
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
    fn tokens_that_are_not_reported_are_not_zero() {
        let whole = Used { input: 5, calls: 1, ..Used::default() };
        let partial = Used { input: 7, calls: 4, reported: Reported::AtLeast, ..Used::default() };
        let nothing = Used { calls: 3, reported: Reported::Nothing, ..Used::default() };
        for (turns, shown) in [
            (vec![], "0 tokens"),
            (vec![&whole], "5 tokens"),
            (vec![&partial], "at least 7 tokens (4 calls)"),
            (vec![&nothing], "tokens not reported (3 calls)"),
            (vec![&nothing, &whole], "at least 5 tokens (4 calls)"),
        ] {
            let mut spent = Spent::default();
            turns.into_iter().for_each(|used| spent.add(used));
            assert_eq!(spent.tokens_shown(|n| n.to_string()), shown);
        }
        assert_eq!(nothing.to_string(), "tokens not reported, 3 model calls (unknown price)");
        let null: Spent = serde_json::from_str(
            r#"{"input":null,"output":null,"cached_read":null,"cached_write":null,"microdollars":0,"n_priced":0,"n_unpriced":1}"#,
        )
        .unwrap();
        assert_eq!(null, Spent { n_unpriced: 1, ..Spent::default() });
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
