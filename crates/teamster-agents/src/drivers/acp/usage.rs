//! The tokens of a turn. Programs count differently: the end of a turn reports the turn, its last model call or the whole
//! session, and updates in between report the context or one call. [`Reports`] says which, for each program.

use agent_client_protocol_schema::v1::Meta;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::{AtEnd, InUpdates, Reports, Tokens};

/// What the turn under way used, as far as its program reports it.
#[derive(Debug, Default)]
pub(super) struct Counter {
    reports: Reports,
    so_far: Option<Tokens>,
    /// Model calls that were seen.
    n_calls: u32,
    /// The model's reply is under way; a tool's result ends it.
    in_reply: bool,
    /// The agent did something since a call was counted. Programs repeat their updates.
    is_fresh: bool,
    /// Of the session: so far, and before this turn.
    session: Tokens,
    session_before: Tokens,
}

/// What a turn used in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OfTurn {
    pub(super) tokens: Option<Tokens>,
    pub(super) at_least: bool,
    pub(super) n_calls: Option<u32>,
}

impl Counter {
    pub(super) fn new(reports: Reports) -> Self {
        Self { reports, ..Self::default() }
    }

    pub(super) fn begin_turn(&mut self) {
        let Self { reports, session, .. } = *self;
        *self =
            Self { reports, session, session_before: session, is_fresh: true, ..Self::default() };
    }

    /// The agent says or does something, which is part of a model's reply.
    pub(super) fn acts(&mut self) {
        self.is_fresh = true;
        if !std::mem::replace(&mut self.in_reply, true) {
            self.n_calls = self.n_calls.saturating_add(1);
        }
    }

    /// A tool is done: what follows is another reply.
    pub(super) fn tool_done(&mut self) {
        self.in_reply = false;
    }

    /// Takes in an update of the context. Returns whether it changed what is known of the turn.
    pub(super) fn updated(&mut self, used: u64, meta: Option<&Meta>) -> bool {
        if let Some(session) = meta.and_then(session_so_far) {
            let known = self.so_far;
            self.session = session;
            let of_turn = less(session, self.session_before);
            if total(&of_turn) > 0 {
                self.so_far = Some(of_turn);
            }
            return self.so_far != known;
        }
        match self.reports.updates {
            InUpdates::Context => false,
            InUpdates::Calls if used == 0 || !self.is_fresh => false,
            // Which of it is output is not reported.
            InUpdates::Calls => {
                self.is_fresh = false;
                self.add(Tokens { input: used, ..Tokens::default() });
                true
            }
        }
    }

    /// Takes in what a piece of a message reports of its model call, as Qwen does. Returns whether it did.
    pub(super) fn heard(&mut self, meta: Option<&Meta>) -> bool {
        let call = meta.and_then(|meta| Counted::read(meta.get("usage")?));
        let Some(call) = call.filter(|call| total(call) > 0) else { return false };
        self.add(call);
        true
    }

    fn add(&mut self, call: Tokens) {
        self.so_far = Some(more(self.so_far.unwrap_or_default(), call));
    }

    /// Returns what the turn used so far, and in how many calls.
    pub(super) fn so_far(&self) -> (Option<Tokens>, Option<u32>) {
        (self.so_far, Some(self.n_calls).filter(|n| *n > 0))
    }

    /// Ends the turn with what its result reports.
    pub(super) fn end(&mut self, result: &str) -> OfTurn {
        let told = at_end(result);
        let (so_far, n_calls) = self.so_far();
        let (tokens, at_least) = match (self.reports.end, told) {
            (_, None) => (so_far, false),
            (AtEnd::Turn, Some(told)) => (Some(told), false),
            (AtEnd::Session, Some(told)) => {
                self.session = told;
                (Some(less(told, self.session_before)), false)
            }
            (AtEnd::LastCall, Some(last)) => {
                match so_far.filter(|sum| total(sum) >= total(&last)) {
                    // The updates have the totals of all calls, the end has the parts of the last one.
                    Some(sum) => {
                        let rest = sum.input.saturating_sub(total(&last));
                        (Some(more(last, Tokens { input: rest, ..Tokens::default() })), false)
                    }
                    None => (Some(last), self.n_calls > 1),
                }
            }
        };
        OfTurn { tokens, at_least, n_calls }
    }
}

pub(super) fn total(tokens: &Tokens) -> u64 {
    let cached = [tokens.cached_read, tokens.cached_write].into_iter().flatten();
    cached.fold(tokens.input.saturating_add(tokens.output), u64::saturating_add)
}

fn each(a: Tokens, b: Tokens, with: fn(u64, u64) -> u64) -> Tokens {
    let cached = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(with(a.unwrap_or_default(), b.unwrap_or_default())),
    };
    Tokens {
        input: with(a.input, b.input),
        output: with(a.output, b.output),
        cached_read: cached(a.cached_read, b.cached_read),
        cached_write: cached(a.cached_write, b.cached_write),
    }
}

fn more(a: Tokens, b: Tokens) -> Tokens {
    each(a, b, u64::saturating_add)
}

fn less(a: Tokens, b: Tokens) -> Tokens {
    each(a, b, u64::saturating_sub)
}

/// The tokens at the end of a turn: in `usage`, which is on its way into the protocol, or where Gemini has them.
fn at_end(result: &str) -> Option<Tokens> {
    let result: Value = serde_json::from_str(result).ok()?;
    let places = ["/usage", "/_meta/quota/token_count"];
    places.iter().find_map(|place| Counted::read(result.pointer(place)?))
}

/// What Vibe reports of the session with every update.
fn session_so_far(meta: &Meta) -> Option<Tokens> {
    let n = |name: &str| meta.get(name).and_then(Value::as_u64);
    let (prompt, output, cached) = (n("promptTokens")?, n("completionTokens")?, n("cachedTokens"));
    Some(Tokens {
        input: prompt.saturating_sub(cached.unwrap_or_default()),
        output,
        cached_read: cached.filter(|n| *n > 0),
        cached_write: None,
    })
}

#[derive(Deserialize)]
struct Counted {
    #[serde(alias = "inputTokens")]
    input_tokens: u64,
    #[serde(alias = "outputTokens")]
    output_tokens: u64,
    #[serde(rename = "totalTokens")]
    total_tokens: Option<u64>,
    #[serde(rename = "cachedReadTokens")]
    cached_read_tokens: Option<u64>,
    #[serde(rename = "cachedWriteTokens")]
    cached_write_tokens: Option<u64>,
}

impl Counted {
    fn read(value: &Value) -> Option<Tokens> {
        let Self {
            input_tokens,
            output_tokens,
            total_tokens,
            cached_read_tokens,
            cached_write_tokens,
        } = Self::deserialize(value).ok()?;
        let cached = [cached_read_tokens, cached_write_tokens].into_iter().flatten();
        let cached = cached.fold(0, u64::saturating_add);
        // Where the total is input and output, the input has the cached tokens in it.
        let is_within = total_tokens == input_tokens.checked_add(output_tokens);
        Some(Tokens {
            input: if is_within { input_tokens.saturating_sub(cached) } else { input_tokens },
            output: output_tokens,
            cached_read: cached_read_tokens,
            cached_write: cached_write_tokens,
        })
    }
}
