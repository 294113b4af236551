//! Recognises a program's own messages among the words of its agent. Several programs end a turn whose model call failed as
//! if it were done, and report the failure as text. Such a text must not become a successful outcome; an agent that writes
//! about errors must not fail because of it. So the form decides: a fixed form that a program was seen to use, or a short
//! message that opens like an error line and names what went wrong with the account or the service.

use crate::agent::{MESSAGE_BYTES_MAX, clipped};

/// What a message is, if it is not the agent's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The model call failed for good. The turn has failed if nothing follows.
    Failed(String),
    /// The model call failed, and the program tries again.
    Retries(String),
    /// Something else that the program says, such as that its user cancelled a call.
    Notice(String),
}

/// How a message begins and ends, and what it is then.
type Form = (&'static str, &'static str, fn(String) -> Report);

/// The forms that programs were seen to use.
const FORMS: &[Form] = &[
    // Goose 1.52.0.
    (
        "Ran into this error: ",
        "Please retry if you think this is a transient or recoverable error.",
        Report::Failed,
    ),
    // fast-agent 0.10.46, which ends such a turn as refused.
    ("I hit an internal error while calling the model: ", "", Report::Failed),
    // codex-acp 2.6.0.
    ("exceeded retry limit, last status: ", "", Report::Failed),
    ("unexpected status ", "", Report::Failed),
    ("Warning: Model metadata for `", "", Report::Notice),
    // Copilot 1.0.102.
    ("Info: Request failed due to a transient API error.", "", Report::Retries),
    ("Info: Operation cancelled by user", "", Report::Notice),
];

/// A longer message is not only an error line.
const BYTES_MAX: usize = 1_000;
const LINES_MAX: usize = 8;

/// How an error line begins, in lower case.
const OPENINGS: &[&str] = &[
    "error:",
    "error code:",
    "api error",
    "[api error",
    "apierror",
    "fatal:",
    "http 4",
    "http 5",
    "http error",
    "request failed",
    "request error",
    "stream error",
    "provider error",
    "model error",
    "internal error",
    "failed to authenticate",
    "authentication failed",
    "authentication required",
    "authentication error",
    "authentication_error",
    "unauthorized",
    "invalid api key",
    "incorrect api key",
    "not logged in",
    "please log in",
    "please run /login",
    "login required",
    "rate limit exceeded",
    "rate limit reached",
    "rate limited",
    "rate_limit_e",
    "too many requests",
    "quota exceeded",
    "you exceeded your current quota",
    "you've hit your",
    "you have hit your",
    "you've reached your",
    "usage limit reached",
    "overloaded",
    "401 ",
    "403 ",
    "429 ",
    "503 ",
    "529 ",
    "401:",
    "403:",
    "429:",
    "503:",
    "529:",
];

/// Words for a refused login and for a limit. A status counts as a number of its own.
const CAUSES: &[&str] = &[
    "unauthorized",
    "unauthenticated",
    "forbidden",
    "permission_denied",
    "api key",
    "api_key",
    "authentication",
    "authenticate",
    "logged in",
    "log in",
    "/login",
    "login required",
    "too many requests",
    "rate limit",
    "rate_limit",
    "resource_exhausted",
    "quota",
    "usage limit",
    "hit your limit",
    "credit balance",
    "overloaded",
];
const STATUSES: &[&str] = &["401", "403", "429", "500", "502", "503", "504", "529"];

/// Words of an agent that reports on its work. An error line does not have them.
const WORK: &[&str] = &[
    "fixed",
    "implemented",
    "added",
    "handled",
    "handles",
    "handling",
    "updated",
    "refactored",
    "tests pass",
    "is now",
    "are now",
    "done",
];

/// Reads one message of a turn, which begins here and is whole.
pub(crate) fn read(text: &str) -> Option<Report> {
    let text = text.trim();
    let of_form = FORMS.iter().find_map(|(begin, end, report)| {
        let rest = text.strip_prefix(begin)?.strip_suffix(end)?;
        // A form without an end is the whole line; what an agent says about it goes on.
        if end.is_empty() && !is_short(text) {
            return None;
        }
        let message = if end.is_empty() { text } else { rest.trim_end().trim_end_matches('.') };
        Some(report(clipped(message, MESSAGE_BYTES_MAX)))
    });
    of_form.or_else(|| is_error_line(text).then(|| Report::Failed(text.to_owned())))
}

fn is_short(text: &str) -> bool {
    text.len() <= BYTES_MAX && text.lines().count() <= LINES_MAX
}

fn is_error_line(text: &str) -> bool {
    if !is_short(text) {
        return false;
    }
    let words = text.to_lowercase();
    let opens = OPENINGS.iter().any(|opening| words.starts_with(opening));
    let has_cause = CAUSES.iter().any(|cause| words.contains(cause))
        || STATUSES.iter().any(|status| has_number(&words, status));
    let is_of_work = WORK.iter().any(|word| has_word(&words, word));
    opens && has_cause && !is_of_work
}

/// Says whether a number stands in a text by itself, not inside a longer one or a word.
pub(crate) fn has_number(text: &str, number: &str) -> bool {
    has_word(text, number)
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !joins(before) && !joins(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_programs_report_as_text_are_recognised() {
        for (text, message) in [
            // Goose 1.52.0.
            (
                "Ran into this error: Rate limit exceeded: slow down.\n\nPlease retry if you think this is a transient or recoverable error.",
                "Rate limit exceeded: slow down",
            ),
            // codex-acp 2.6.0.
            (
                "exceeded retry limit, last status: 429 Too Many Requests\n\n",
                "exceeded retry limit, last status: 429 Too Many Requests",
            ),
            // Copilot 1.0.102.
            (
                "Error: Authentication failed with provider at http://127.0.0.1:8891/v1 (HTTP 401).\n  Check your COPILOT_PROVIDER_API_KEY.",
                "Error: Authentication failed with provider at http://127.0.0.1:8891/v1 (HTTP 401).\n  Check your COPILOT_PROVIDER_API_KEY.",
            ),
            // fast-agent 0.10.46.
            (
                "I hit an internal error while calling the model: generic request failed for model 'scripted' (status=401)",
                "I hit an internal error while calling the model: generic request failed for model 'scripted' (status=401)",
            ),
            ("API Error: 529 Overloaded", "API Error: 529 Overloaded"),
            ("[API Error: 401 Incorrect API key]", "[API Error: 401 Incorrect API key]"),
            ("429 Too Many Requests", "429 Too Many Requests"),
            (
                "You've hit your limit · resets 4pm (Europe/Berlin)",
                "You've hit your limit · resets 4pm (Europe/Berlin)",
            ),
            ("Invalid API key · Please run /login", "Invalid API key · Please run /login"),
            ("Unauthorized: the token is not valid", "Unauthorized: the token is not valid"),
        ] {
            assert_eq!(read(text), Some(Report::Failed(message.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_agent_that_writes_about_errors_has_not_failed() {
        let long = format!("Error: 429 Too Many Requests. {}", "I looked at it. ".repeat(100));
        for text in [
            "",
            "Done.",
            "Fixed the 429 handling; all tests pass.",
            "429 handling is fixed.",
            "Error: 429 is now handled with a backoff.",
            "Rate limiting is implemented with a token bucket.",
            "The server answers 401 Unauthorized when the key is missing.",
            "Unauthorized requests are now refused with 401.",
            "Error: the test suite does not compile.",
            "Ran into this error: a typo. It is corrected.",
            "The rate limit was exceeded once, so I waited.",
            "Warning: I could not run the tests.",
            long.as_str(),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn retries_and_notices_are_the_programs_own_words() {
        let retries = "Info: Request failed due to a transient API error. Retrying...";
        assert_eq!(read(retries), Some(Report::Retries(retries.to_owned())));
        for notice in
            ["Info: Operation cancelled by user", "Warning: Model metadata for `x` not found."]
        {
            assert_eq!(read(notice), Some(Report::Notice(notice.to_owned())), "{notice}");
        }
    }
}
