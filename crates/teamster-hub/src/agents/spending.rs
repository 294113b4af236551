//! What a turn used, as its program told it and the price list knows.

use teamster_agents::agent::{Tokens, Usage};
use teamster_core::spending::{Reported, Used};

use crate::prices::Prices;

/// What was told of the turn under way.
#[derive(Debug, Default)]
pub(super) struct Spending {
    model: Option<String>,
    /// Of the whole turn, told at its end.
    tokens: Option<Tokens>,
    /// Of the turn so far.
    so_far: Option<Tokens>,
    /// The turn used more than that.
    at_least: bool,
    calls: u32,
    /// Of the process so far, and how much of that earlier turns were charged.
    cost_micros: Option<u64>,
    charged_micros: u64,
    /// A turn was begun, and what it used is not counted yet.
    is_open: bool,
}

impl Spending {
    pub(super) fn begin(&mut self) {
        self.is_open = true;
        // What is told between turns is of none.
        (self.tokens, self.so_far, self.at_least, self.calls) = (None, None, false, 0);
    }

    pub(super) fn hear(&mut self, usage: Usage) {
        let Usage { model, tokens, context: _, cost, so_far, at_least, calls } = usage;
        self.model = model.or(self.model.take());
        self.tokens = tokens.or(self.tokens);
        self.so_far = so_far.or(self.so_far);
        self.at_least |= at_least;
        self.calls = calls.unwrap_or(self.calls);
        if let Some(cost) = cost.filter(|cost| cost.currency == "USD") {
            self.cost_micros = Some(cost.micros);
        }
    }

    /// Returns what the turn under way used so far; none between turns. `model` is what its role asks for, if the program does
    /// not tell.
    pub(super) fn so_far(&self, model: Option<&str>, prices: &Prices) -> Option<Used> {
        if !self.is_open {
            return None;
        }
        let tokens = self.tokens.or(self.so_far);
        let cost = self.cost_micros.map(|cost| cost.saturating_sub(self.charged_micros));
        let model = self.model.as_deref().or(model);
        let Tokens { input, output, cached_read, cached_write } = tokens.unwrap_or_default();
        // Programs that do not know a model's price say that it costs nothing.
        let told = cost.filter(|cost| *cost > 0 || (input, output) == (0, 0));
        let listed = || tokens.as_ref().and_then(|tokens| prices.cost(model?, tokens));
        Some(Used {
            model: model.map(Into::into),
            input,
            output,
            cached_read: cached_read.unwrap_or(0),
            cached_write: cached_write.unwrap_or(0),
            microdollars: told.or_else(listed),
            calls: self.calls,
            reported: match tokens {
                None => Reported::Nothing,
                Some(_) if self.at_least => Reported::AtLeast,
                Some(_) => Reported::Whole,
            },
        })
    }

    /// Returns what the turn used, once.
    pub(super) fn take(&mut self, model: Option<&str>, prices: &Prices) -> Option<Used> {
        let used = self.so_far(model, prices)?;
        self.is_open = false;
        (self.tokens, self.so_far, self.at_least, self.calls) = (None, None, false, 0);
        self.charged_micros = self.cost_micros.unwrap_or_default();
        Some(used)
    }
}

#[cfg(test)]
mod tests {
    use teamster_agents::agent::Cost;

    use super::*;
    use crate::settings::{Sources, read};

    fn check(cost: Option<u64>, model: Option<&str>, tokens: bool, expected: Option<u64>) {
        let prices = read(&Sources::default()).settings.prices;
        let mut spending = Spending::default();
        assert_eq!(spending.take(None, &prices), None, "there was no turn");
        spending.begin();
        let tokens = tokens.then_some(Tokens {
            input: 1_000_000,
            output: 0,
            cached_read: None,
            cached_write: None,
        });
        spending.hear(Usage { model: model.map(Into::into), tokens, ..Usage::default() });
        let cost = cost.map(|micros| Cost { micros, currency: "USD".into() });
        spending.hear(Usage { cost, ..Usage::default() });
        let used = spending.take(None, &prices);
        assert_eq!(
            used.map(|used| used.microdollars),
            Some(expected),
            "{cost:?} {model:?}",
            cost = spending
        );
        assert_eq!(spending.take(None, &prices), None, "it is counted once");
    }

    #[test]
    fn a_lie_about_tokens_is_only_a_lie() {
        let mut spending = Spending::default();
        spending.begin();
        let max = u64::MAX;
        let tokens =
            Tokens { input: max, output: max, cached_read: Some(max), cached_write: Some(max) };
        let cost = Some(Cost { micros: 0, currency: "USD".into() });
        spending.hear(Usage { tokens: Some(tokens), cost, ..Usage::default() });
        let used = spending.take(Some("gpt-5"), &read(&Sources::default()).settings.prices);
        assert_eq!(used.and_then(|used| used.microdollars), Some(max));
    }

    #[test]
    fn tokens_are_counted_in_the_middle_of_a_turn_and_once() {
        let prices = read(&Sources::default()).settings.prices;
        let mut spending = Spending::default();
        let tokens = |input| Some(Tokens { input, ..Tokens::default() });
        let so_far = |spending: &Spending| {
            spending.so_far(None, &prices).map(|used| (used.input, used.calls, used.reported))
        };
        assert_eq!(so_far(&spending), None);
        spending.begin();
        assert_eq!(so_far(&spending), Some((0, 0, Reported::Nothing)));
        spending.hear(Usage { calls: Some(1), so_far: tokens(100), ..Usage::default() });
        spending.hear(Usage { calls: Some(2), so_far: tokens(300), ..Usage::default() });
        assert_eq!(so_far(&spending), Some((300, 2, Reported::Whole)));
        // The end's total holds, and is not added.
        spending.hear(Usage { tokens: tokens(310), calls: Some(2), ..Usage::default() });
        assert_eq!(so_far(&spending), Some((310, 2, Reported::Whole)));
        assert_eq!(spending.take(None, &prices).map(|used| used.input), Some(310));
        spending.begin();
        spending.hear(Usage { tokens: tokens(7), at_least: true, ..Usage::default() });
        assert_eq!(so_far(&spending), Some((7, 0, Reported::AtLeast)));
    }

    #[test]
    fn what_is_told_goes_before_what_is_listed_and_nothing_is_not_zero() {
        check(Some(77), Some("gpt-5"), true, Some(77));
        check(None, Some("gpt-5"), true, Some(1_250_000));
        check(Some(0), Some("gpt-5"), true, Some(1_250_000));
        check(Some(0), Some("a-model-of-my-own"), true, None);
        check(None, Some("gpt-5"), false, None);
        check(None, None, true, None);
        check(Some(0), None, false, Some(0));
    }
}
