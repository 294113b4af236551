//! What models cost: those of `prices.toml`, which is built in, and what the user says. A model that is in neither has no
//! known price, which is not the same as none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_agents::agent::Tokens;

use crate::reading::{self, Layer, Line, Money, Node, Origin, Problem};

/// What is built in.
const BUILT_IN: &str = include_str!("../prices.toml");

/// What a model costs, in dollars per million tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    /// Input that is in no cache
    pub input: Money,
    /// Output, thoughts included
    pub output: Money,
    /// Input from a cache, as other input if not said
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<Money>,
    /// Input that goes into a cache, as other input if not said
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_write: Option<Money>,
}

/// The prices that are known, by model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Prices(BTreeMap<Line, Price>);

impl Prices {
    /// Returns what a turn cost, in millionths of a dollar, if the model's price is known.
    pub fn cost(&self, model: &str, tokens: &Tokens) -> Option<u64> {
        let Price { input, output, cached_read, cached_write } = self.find(model)?;
        let of = |n: u64, price: Money| u128::from(n) * u128::from(price.micros());
        let sum = of(tokens.input, *input)
            + of(tokens.output, *output)
            + of(tokens.cached_read.unwrap_or(0), cached_read.unwrap_or(*input))
            + of(tokens.cached_write.unwrap_or(0), cached_write.unwrap_or(*input));
        Some(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    fn find(&self, model: &str) -> Option<&Price> {
        // Programs put the maker before the model: `openai/gpt-5`.
        let bare = model.rsplit_once('/').map_or(model, |(_, bare)| bare);
        [model, bare].into_iter().find_map(|name| {
            let same = |known: &Line| {
                name.strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.is_empty() || is_date(rest))
            };
            self.0.iter().find(|(known, _)| same(known)).map(|(_, price)| price)
        })
    }
}

/// What may follow a model's name without making it another model.
fn is_date(rest: &str) -> bool {
    let rest = rest.strip_prefix(['-', '@']).unwrap_or_default();
    let digits = rest.chars().filter(char::is_ascii_digit).count();
    rest == "latest" || (digits == 8 && rest.chars().all(|c| c.is_ascii_digit() || c == '-'))
}

/// Returns the prices that are built in, as what a configuration file would say.
pub(crate) fn built_in(problems: &mut Vec<Problem>) -> Node {
    let at = Origin::new(Layer::BuiltIn, "prices.toml");
    reading::read_toml(BUILT_IN, &at, problems).unwrap_or_else(|| Node::table(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Sources, read};

    fn check(model: &str, expected: Option<u64>) {
        let prices = read(&Sources::default()).settings.prices;
        let tokens =
            Tokens { input: 1_000, output: 100, cached_read: Some(10_000), cached_write: None };
        assert_eq!(prices.cost(model, &tokens), expected, "{model}");
    }

    #[test]
    fn a_model_has_its_own_price_or_none() {
        let sonnet = Some(3_000 + 1_500 + 3_000);
        check("claude-sonnet-4-5", sonnet);
        check("claude-sonnet-4-5-20250929", sonnet);
        check("anthropic/claude-sonnet-4-5@20250929", sonnet);
        check("gpt-5-2025-08-07", Some(1_250 + 1_000 + 1_250));
        // Names that only begin the same.
        check("claude-sonnet-4-5-turbo", None);
        check("gpt-5-nano", None);
        check("gpt-51", None);
        check("scripted", None);
        check("", None);
    }
}
