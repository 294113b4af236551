//! Recognises in a failure's words that an account has nothing left, or that it is asked too often. No protocol has a field
//! for it, so this reads what programs are known to write, and the status that their service answered.

use super::error_report::has_number;
use crate::agent::Event;

/// Words of programs whose account has nothing left, or whose service is too busy for it.
const WORDS: [&str; 16] = [
    "usage limit",
    "usage_limit",
    "session limit",
    "hit your limit",
    "rate limit",
    "rate_limit",
    "ratelimit",
    "quota exceeded",
    "quota_exceeded",
    "insufficient_quota",
    "exceeded your current quota",
    "resource_exhausted",
    "too many requests",
    "overloaded",
    "credit balance is too low",
    "out of credits",
];
/// HTTP's too many requests, and the service's overload.
const STATUSES: [&str; 2] = ["429", "529"];

/// What stands before the time at which there is more, in seconds or milliseconds since 1970.
const BEFORE_TIME: [&str; 4] = ["limit reached|", "resets_at", "resetsat", "reset_at"];

/// Returns the event for a turn that failed with this message, if a usage limit is why.
pub fn recognise(message: &str) -> Option<Event> {
    let words = message.to_lowercase();
    let is_limit = WORDS.iter().any(|known| words.contains(known))
        || STATUSES.iter().any(|status| has_number(&words, status));
    is_limit.then(|| Event::UsageLimit {
        until_unix_s: BEFORE_TIME.iter().find_map(|before| time_after(&words, before)),
        message: message.to_owned(),
    })
}

fn time_after(words: &str, before: &str) -> Option<u64> {
    let (_, rest) = words.split_once(before)?;
    let rest = rest.trim_start_matches(['"', '\\', ':', '=', ' ']);
    let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let time: u64 = rest.get(..n_digits)?.parse().ok()?;
    match n_digits {
        10 => Some(time),
        13 => Some(time / 1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: Option<Option<u64>>) {
        let found = recognise(message).map(|event| match event {
            Event::UsageLimit { until_unix_s, .. } => until_unix_s,
            other => panic!("{other:?}"),
        });
        assert_eq!(found, expected, "{message}");
    }

    #[test]
    fn a_limit_is_told_with_its_end_if_that_is_known() {
        check("AI usage limit reached|1794706740", Some(Some(1_794_706_740)));
        check(
            r#"429: {"type":"usage_limit_reached","resets_at":1794706740}"#,
            Some(Some(1_794_706_740)),
        );
        check(r#"Rate limit; "resetsAt": 1794706740123"#, Some(Some(1_794_706_740)));
        check("You've hit your limit · resets 4pm (Europe/Berlin)", Some(None));
        check("usage limit; resets_at tomorrow", Some(None));
        check("exceeded retry limit, last status: 429 Too Many Requests", Some(None));
        check("API Error: 529 Overloaded", Some(None));
        check("HTTP 429", Some(None));
        check("got status RESOURCE_EXHAUSTED", Some(None));
        check("RateLimitError: slow down", Some(None));
    }

    #[test]
    fn other_failures_are_none() {
        check("connection refused", None);
        check("context window exceeded", None);
        check("HTTP 401 Unauthorized", None);
        check("request req_14290 failed", None);
        check("", None);
    }
}
