//! What a turn used, and what the account has left.

use serde::Deserialize;

use crate::agent::{Context, Event, ID_BYTES_MAX, Tokens};
use crate::drivers::usage_limit;

/// As many threads are counted: ours, and those of the agents that Codex has itself.
const THREADS_MAX: usize = 64;

/// What Codex tells after each request to the model.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenUsage {
    /// Of the thread, in all its processes.
    total: Breakdown,
    /// Of the request.
    last: Breakdown,
    model_context_window: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Breakdown {
    total_tokens: u64,
    /// With what came from and went into a cache.
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
}

impl Breakdown {
    fn map(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            total_tokens: with(self.total_tokens, other.total_tokens),
            input_tokens: with(self.input_tokens, other.input_tokens),
            cached_input_tokens: with(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_input_tokens: with(
                self.cache_write_input_tokens,
                other.cache_write_input_tokens,
            ),
            output_tokens: with(self.output_tokens, other.output_tokens),
        }
    }
}

impl TokenUsage {
    pub(super) fn context(&self) -> Option<Context> {
        self.model_context_window.map(|size| Context { used: self.last.total_tokens, size })
    }
}

/// What threads have used, and how much of it before this turn.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<Count>);

#[derive(Debug)]
struct Count {
    thread: String,
    before: Breakdown,
    now: Breakdown,
}

impl Counts {
    /// Takes in what a thread has used. What is told outside of a turn was used before it. Some of it is told twice, so
    /// what counts is the difference of the totals.
    pub(super) fn told(&mut self, thread: &str, used: &TokenUsage, in_turn: bool) {
        let has_room = self.0.len() < THREADS_MAX && thread.len() <= ID_BYTES_MAX;
        let known = self.0.iter_mut().find(|count| count.thread == thread);
        match known {
            Some(count) => {
                count.now = used.total;
                if !in_turn {
                    count.before = count.now;
                }
            }
            None if has_room => {
                let before = match in_turn {
                    true => used.total.map(used.last, u64::saturating_sub),
                    false => used.total,
                };
                self.0.push(Count { thread: thread.to_owned(), before, now: used.total });
            }
            None => {}
        }
    }

    /// Returns what the turn that ends has used, if anything.
    pub(super) fn of_turn(&mut self) -> Option<Tokens> {
        let used = self.so_far();
        for count in &mut self.0 {
            count.before = count.now;
        }
        used
    }

    /// Returns what the turn under way has used so far, if anything.
    pub(super) fn so_far(&self) -> Option<Tokens> {
        let mut sum = Breakdown::default();
        for count in &self.0 {
            let used = count.now.map(count.before, u64::saturating_sub);
            sum = sum.map(used, u64::saturating_add);
        }
        let cached = sum.cached_input_tokens.saturating_add(sum.cache_write_input_tokens);
        (sum != Breakdown::default()).then(|| Tokens {
            input: sum.input_tokens.saturating_sub(cached),
            output: sum.output_tokens,
            cached_read: Some(sum.cached_input_tokens),
            cached_write: Some(sum.cache_write_input_tokens),
        })
    }
}

/// The account's limit that is used up, as far as Codex told.
#[derive(Debug, Default)]
pub(super) struct Limits {
    limit: Option<String>,
    until_unix_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfLimits {
    rate_limits: RateLimits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimits {
    limit_id: Option<String>,
    primary: Option<Window>,
    secondary: Option<Window>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Window {
    #[serde(default)]
    used_percent: f64,
    resets_at: Option<u64>,
}

impl Limits {
    pub(super) fn told(&mut self, told: OfLimits) {
        let RateLimits { limit_id, primary, secondary } = told.rate_limits;
        let used_up = [primary, secondary].into_iter().flatten();
        let used_up = used_up.filter(|window| window.used_percent >= 100.0);
        let until_unix_s = used_up.filter_map(|window| window.resets_at).max();
        // Another limit that is not used up says nothing about this one.
        if until_unix_s.is_some() || limit_id == self.limit {
            *self = Self { limit: limit_id.filter(|id| id.len() <= ID_BYTES_MAX), until_unix_s };
        }
    }

    /// Returns the event for a turn that failed with this message, if a usage limit is why.
    pub(super) fn recognise(&self, message: &str, is_limit: bool) -> Option<Event> {
        let until = match usage_limit::recognise(message) {
            Some(Event::UsageLimit { until_unix_s, .. }) => until_unix_s,
            _ if is_limit => None,
            _ => return None,
        };
        let until_unix_s = until.or(self.until_unix_s);
        Some(Event::UsageLimit { until_unix_s, message: message.to_owned() })
    }
}
