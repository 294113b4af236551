//! How agents and their transcripts look on a terminal.

use std::fmt::Write as _;

use serde_json::Value;
use teamster_core::spending::Spent;
use teamster_core::{Timestamp, text};

use super::super::status::failures;
use super::super::{dim, local_time};
use teamster_hub::isolation;

/// As much of a tool's input or output as fits a line.
const LINE_CHARS_MAX: usize = 160;

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn time(value: &Value) -> String {
    value.as_i64().map(|at| local_time(Timestamp(at))).unwrap_or_default()
}

/// What came from an agent must not steer the terminal, nor show other words than it has.
pub(in crate::cli) fn plain(text: &str) -> String {
    text::plain(text)
}

pub(in crate::cli) fn line(text: &str) -> String {
    let text = plain(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

pub(super) fn table(agents: &[&Value]) -> String {
    let mut text = format!(
        "{:<20} {:<8} {:<14} {:<19} {:<10} {}\n",
        "id", "phase", "drafted by", "since", "isolation", "dossier"
    );
    for agent in agents {
        let since = [&agent["ended_at"], &agent["started_at"], &agent["drafted_at"]];
        let since = since.into_iter().find(|at| !at.is_null()).map(time).unwrap_or_default();
        let ending = word(&agent["outcome"], "status");
        let parked = !agent["parked_until"].is_null();
        let phase = match (ending, parked) {
            ("", true) => "parked",
            ("", false) => word(agent, "phase"),
            (ending, _) => ending,
        };
        let _ = writeln!(
            text,
            "{:<20} {phase:<8} {:<14} {since:<19} {:<10} {}",
            word(agent, "id"),
            word(agent, "drafted_by"),
            word(agent, "isolation"),
            word(agent, "dossier"),
        );
        if !word(agent, "waits_for").is_empty() {
            let _ = writeln!(
                text,
                "{:<20} {}",
                "",
                line(&format!("waits: {}", word(agent, "waits_for")))
            );
        }
    }
    text
}

pub(super) fn head(agent: &Value) -> String {
    let parked = !agent["parked_until"].is_null();
    let phase = if parked { "parked" } else { word(agent, "phase") };
    let mut text = format!("{} ({phase})\n", word(agent, "id"));
    for (title, value) in [
        ("dossier", word(agent, "dossier").to_owned()),
        ("directory", word(agent, "directory").to_owned()),
        ("over", word(agent, "remote").to_owned()),
        ("drafted by", word(agent, "drafted_by").to_owned()),
        ("drafted at", time(&agent["drafted_at"])),
        ("started at", time(&agent["started_at"])),
        ("isolation", isolation::shown(&agent["isolation"])),
        ("session", session(agent)),
        ("parked", until(&agent["parked_until"])),
        ("waits", line(word(agent, "waits_for"))),
        ("used", used(&agent["used"])),
        ("task", line(word(agent, "prompt"))),
    ] {
        if !value.is_empty() {
            let _ = writeln!(text, "  {title:<10} {value}");
        }
    }
    calls(&mut text, &agent["calls"]);
    text
}

/// Its session, and whether another process can resume it.
fn session(agent: &Value) -> String {
    let session = line(word(agent, "session"));
    if session.is_empty() || agent["can_resume"] != false {
        return session;
    }
    format!("{session} (its program cannot resume it)")
}

fn until(at: &Value) -> String {
    if at.is_null() { String::new() } else { format!("until {}", time(at)) }
}

/// What it used itself; what is not known is said to be.
fn used(spent: &Value) -> String {
    let spent: Spent = serde_json::from_value(spent.clone()).unwrap_or_default();
    let cost = super::super::budget::cost(&spent);
    if spent == Spent::default() {
        return String::new();
    }
    let tokens = spent.tokens_shown(|n| n.to_string());
    if !spent.is_reported() {
        return format!("{tokens}, cost {cost}");
    }
    let cached = spent.cached_read.saturating_add(spent.cached_write);
    format!("{tokens} ({} in, {} out, {cached} cached), cost {cost}", spent.input, spent.output)
}

/// Adds what the agent called of ours.
fn calls(text: &mut String, calls: &Value) {
    let Some(n) = calls["calls"].as_u64() else { return };
    let title = "calls";
    let _ = writeln!(text, "  {title:<10} {n} since the hub started{}", failures(calls));
    for tool in calls["tools"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "             {}: {}{}",
            word(tool, "tool"),
            tool["calls"],
            failures(tool)
        );
    }
}

pub(super) fn outcome(agent: &Value) -> String {
    let outcome = &agent["outcome"];
    let took = agent["duration_ms"].as_f64().map(|ms| format!(" after {:.1} s", ms / 1e3));
    let mut text = format!(
        "{} {} ({}){}: {}",
        word(agent, "id"),
        word(outcome, "ending"),
        word(outcome, "status"),
        took.unwrap_or_default(),
        plain(word(outcome, "summary")).trim()
    );
    for name in ["changes", "issues", "questions"] {
        for entry in outcome[name].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let _ = write!(text, "\n  {}: {}", name.trim_end_matches('s'), line(entry));
        }
    }
    text
}

/// Whatever an agent says stands to the right of this; none of our own lines begins with it, so nothing that is said can look
/// like one of them.
pub(in crate::cli) const SAID: &str = "  ";

/// Shows what an agent said.
fn said(text: &str) -> String {
    let indented =
        |line: &str| if line.is_empty() { String::new() } else { format!("{SAID}{line}") };
    plain(text).trim_end().lines().map(indented).collect::<Vec<_>>().join("\n")
}

/// Shows what a tool is called with; if the program does not tell, what the call is about.
pub(in crate::cli) fn called_with(record: &Value) -> String {
    let targets = record["targets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match line(word(&record["input"], "text")) {
        none if none.is_empty() || none == "{}" => line(&targets.collect::<Vec<_>>().join(" ")),
        input => input,
    }
}

/// Shows a record, if it is one that people want to see.
pub(in crate::cli) fn record(record: &Value) -> Option<String> {
    let short = |name: &str| line(word(record, name));
    Some(match word(record, "type") {
        "started" => dim(&format!("· works (session {})", short("session"))),
        "not_started" => format!("! did not start: {}", short("message")),
        "told" => {
            let (tell, from) = (short("tell"), short("from"));
            format!("> {tell} from {from}: {}", short("text"))
        }
        "prompted" => dim(&format!("> {}", short("text"))),
        "text" => said(word(record, "text")),
        "thought" => dim(&format!("~ {}", short("text"))),
        "tool_call" => {
            format!("* {} {}", short("title"), dim(&called_with(record))).trim_end().to_owned()
        }
        "tool_result" => {
            let mark = if record["ok"] == true { "→" } else { "✗" };
            dim(&format!("{mark} {}", line(word(&record["output"], "text"))))
        }
        "permission_asked" => {
            let title = line(word(&record["call"], "title"));
            format!("? may it: {title} {}", dim("(rules decide, or you: `teamster questions`)"))
        }
        "permission_answered" => dim(&format!("· answered: {}", short("option"))),
        "usage_limit" => {
            let message = short("message");
            format!(
                "! limit: {message}; the agent is parked and resumes by itself (`teamster agents` shows when)"
            )
        }
        "retrying" => dim(&format!("! retrying: {}", short("message"))),
        "trouble" => dim(&format!("! {}", short("message"))),
        "turn_ended" => dim(&format!("· turn ended: {}", short("why"))),
        "exited" => dim(&format!("· program ended: {}", short("how"))),
        _ => return None,
    })
}
