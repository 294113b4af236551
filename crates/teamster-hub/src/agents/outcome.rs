//! What an agent says in the end, read as an outcome.
//!
//! Roles ask for a JSON object at the end of the last message. Models leave it out, wrap it or get it half right; then
//! their words are the summary.

use std::sync::Arc;

use serde_json::{Map, Value};
use teamster_core::agent::{Ending, Outcome, Status};

use crate::plain::cleaned;

/// Reads the outcome of an agent that finished its turn.
pub(super) fn read(last_words: &str) -> Outcome {
    let text = cleaned(last_words);
    let text = text.trim();
    let plain = || Outcome {
        status: Status::Success,
        ..Outcome::failed(
            Ending::Completed,
            if text.is_empty() { "(it said nothing)" } else { text },
        )
    };
    let Some(object) = last_object(text) else { return plain() };
    let Some(status) = object.get("status").and_then(Value::as_str).and_then(Status::parse) else {
        return plain();
    };
    let summary = object.get("summary").and_then(Value::as_str).unwrap_or(text);
    Outcome {
        ending: Ending::Completed,
        status,
        summary: summary.into(),
        changes: entries(&object, "changes"),
        issues: entries(&object, "issues"),
        questions: entries(&object, "questions"),
        cost_microdollars: None,
    }
}

/// Returns the last JSON object that the text ends with, perhaps in a code fence.
fn last_object(text: &str) -> Option<Map<String, Value>> {
    let text = text.strip_suffix("```").unwrap_or(text).trim_end();
    if !text.ends_with('}') {
        return None;
    }
    // From the first brace on that leads to the end: an object within the object ends earlier.
    let starts = text.match_indices('{').map(|(at, _)| at);
    starts.take(TRIES_MAX).find_map(|at| match serde_json::from_str(&text[at..]) {
        Ok(Value::Object(object)) if object.contains_key("status") => Some(object),
        _ => None,
    })
}

/// More braces than a message has before its end, unless it means harm.
const TRIES_MAX: usize = 1_000;

fn entries(object: &Map<String, Value>, name: &str) -> Vec<Arc<str>> {
    let entry = |value: &Value| match value {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    match object.get(name) {
        Some(Value::Array(entries)) => entries.iter().map(entry).collect(),
        None | Some(Value::Null) => Vec::new(),
        Some(one) => vec![entry(one)],
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expect: Expect) {
        let Outcome { status, summary, changes, issues, questions, .. } = read(text);
        expect.assert_eq(&format!(
            "{}: {summary} {changes:?} {issues:?} {questions:?}",
            status.as_str()
        ));
    }

    #[test]
    fn an_object_at_the_end_is_the_outcome() {
        check(
            r#"Done.
```json
{"status": "partial", "summary": "half of it", "changes": ["a.rs", {"file": "b.rs"}], "issues": "one", "questions": null}
```"#,
            expect![[r#"partial: half of it ["a.rs", "{\"file\":\"b.rs\"}"] ["one"] []"#]],
        );
        check(
            r#"{"status":"blocked","summary":"no {braces}","questions":["why?"]}"#,
            expect![[r#"blocked: no {braces} [] [] ["why?"]"#]],
        );
    }

    #[test]
    fn anything_else_is_a_summary() {
        for text in [
            "",
            "It works now.",
            "fn main() {}",
            r#"{"state":"success"}"#,
            r#"{"status":"great","summary":"x"}"#,
            "{".repeat(5_000).as_str(),
        ] {
            let outcome = read(text);
            assert_eq!(outcome.status, Status::Success, "{text}");
        }
        check(
            " It works\nnow. ",
            expect![[r#"
            success: It works
            now. [] [] []"#]],
        );
        check("", expect!["success: (it said nothing) [] [] []"]);
        check("\u{1b}[32mAll tests pass\u{1b}[0m", expect!["success: All tests pass [] [] []"]);
    }
}
