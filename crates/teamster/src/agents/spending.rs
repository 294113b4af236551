//! What a turn used, as its program told it and the price list knows.

use teamster_agents::agent::{Tokens, Usage};
use teamster_core::spending::Used;

use crate::prices::Prices;

/// What was told of the turn under way.
#[derive(Debug, Default)]
pub(super) struct Spending {
    model: Option<String>,
    tokens: Option<Tokens>,
    /// Of the process so far, and how much of that earlier turns were charged.
    cost_micros: Option<u64>,
    charged_micros: u64,
    /// A turn was begun, and what it used is not counted yet.
    is_open: bool,
}

impl Spending {
    pub(super) fn begin(&mut self) {
        self.is_open = true;
    }

    pub(super) fn hear(&mut self, usage: Usage) {
        let Usage { model, tokens, context: _, cost, .. } = usage;
        self.model = model.or(self.model.take());
        self.tokens = tokens.or(self.tokens);
        if let Some(cost) = cost.filter(|cost| cost.currency == "USD") {
            self.cost_micros = Some(cost.micros);
        }
    }

    /// Returns what the program says the turn has cost so far.
    pub(super) fn told_micros(&self) -> Option<u64> {
        self.cost_micros.filter(|_| self.is_open)
    }

    /// Returns what the turn used, once. `model` is what its role asks for, if the program does not tell.
    pub(super) fn take(&mut self, model: Option<&str>, prices: &Prices) -> Option<Used> {
        if !std::mem::take(&mut self.is_open) {
            return None;
        }
        let tokens = self.tokens.take();
        let cost = self.cost_micros.map(|cost| cost.saturating_sub(self.charged_micros));
        self.charged_micros = self.cost_micros.unwrap_or_default();
        let model = self.model.as_deref().or(model);
        let Tokens { input, output, cached_read, cached_write } =
            tokens.unwrap_or(Tokens { input: 0, output: 0, cached_read: None, cached_write: None });
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
        })
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
