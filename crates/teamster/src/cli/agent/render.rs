//! How agents and their transcripts look on a terminal.

use std::fmt::Write as _;

use serde_json::Value;
use teamster_api::agents::{Agent, AgentCalls, AgentDetails, AgentToolCalls, Isolation};
use teamster_api::{Millis, spending};
use teamster_core::spending::Spent;
use teamster_core::{Timestamp, text};

use super::super::status::failures;
use super::super::{budget, dim, local_time};

/// As much of a tool's input or output as fits a line.
const LINE_CHARS_MAX: usize = 160;

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn time(at: Option<Millis>) -> String {
    at.map(|at| local_time(Timestamp(at))).unwrap_or_default()
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

pub(super) fn table(agents: &[&Agent]) -> String {
    let mut text = format!(
        "{:<20} {:<8} {:<14} {:<19} {:<10} {}\n",
        "id", "phase", "drafted by", "since", "isolation", "dossier"
    );
    for agent in agents {
        let since = agent.ended_at.or(agent.started_at).unwrap_or(agent.drafted_at);
        let phase = match (&agent.outcome, agent.parked_until) {
            (Some(outcome), _) => outcome.status.as_str(),
            (None, Some(_)) => "parked",
            (None, None) => agent.phase.as_str(),
        };
        let _ = writeln!(
            text,
            "{:<20} {phase:<8} {:<14} {:<19} {:<10} {}",
            agent.id,
            agent.drafted_by,
            time(Some(since)),
            agent.isolation.map_or("", Isolation::as_str),
            agent.dossier,
        );
        if let Some(why) = &agent.waits_for {
            let _ = writeln!(text, "{:<20} {}", "", line(&format!("waits: {why}")));
        }
    }
    text
}

/// Shows how an agent is isolated, in a word or two.
pub(in crate::cli) fn isolation(isolation: Isolation) -> String {
    match isolation {
        Isolation::Namespaces => "namespaces".to_owned(),
        weaker => format!("{weaker} (advisory)"),
    }
}

pub(super) fn head(details: &AgentDetails) -> String {
    let AgentDetails { agent, prompt, remote, calls } = details;
    let phase = if agent.parked_until.is_some() { "parked" } else { agent.phase.as_str() };
    let mut text = format!("{} ({phase})\n", agent.id);
    for (title, value) in [
        ("dossier", agent.dossier.clone()),
        ("directory", agent.directory.clone()),
        ("over", remote.clone().unwrap_or_default()),
        ("drafted by", agent.drafted_by.clone()),
        ("drafted at", time(Some(agent.drafted_at))),
        ("started at", time(agent.started_at)),
        ("isolation", agent.isolation.map(isolation).unwrap_or_default()),
        ("session", session(agent)),
        (
            "parked",
            agent.parked_until.map(|at| format!("until {}", time(Some(at)))).unwrap_or_default(),
        ),
        ("waits", line(agent.waits_for.as_deref().unwrap_or_default())),
        ("used", used(&agent.used)),
        ("task", line(prompt)),
    ] {
        if !value.is_empty() {
            let _ = writeln!(text, "  {title:<10} {value}");
        }
    }
    if let Some(calls) = calls {
        self::calls(&mut text, calls);
    }
    text
}

/// Its session, and whether another process can resume it.
fn session(agent: &Agent) -> String {
    let session = line(agent.session.as_deref().unwrap_or_default());
    if session.is_empty() || agent.can_resume {
        return session;
    }
    format!("{session} (its program cannot resume it)")
}

/// What it used itself; what is not known is said to be.
fn used(used: &spending::Spent) -> String {
    let spent = budget::sum(used);
    let cost = budget::cost(&spent);
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
fn calls(text: &mut String, calls: &AgentCalls) {
    let (title, n) = ("calls", calls.tally.calls);
    let failed = failures(&calls.tally.failures);
    let _ = writeln!(text, "  {title:<10} {n} since the hub started{failed}");
    for AgentToolCalls { tool, calls, failures: failed, .. } in &calls.tools {
        let _ = writeln!(text, "             {tool}: {calls}{}", failures(failed));
    }
}

pub(super) fn outcome(agent: &Agent) -> String {
    let took = agent.duration_ms.map(|ms| format!(" after {:.1} s", ms as f64 / 1e3));
    let took = took.unwrap_or_default();
    let Some(outcome) = &agent.outcome else {
        return format!("{}  (){took}: ", agent.id);
    };
    let mut text = format!(
        "{} {} ({}){took}: {}",
        agent.id,
        outcome.ending,
        outcome.status,
        plain(&outcome.summary).trim()
    );
    for (name, entries) in
        [("change", &outcome.changes), ("issue", &outcome.issues), ("question", &outcome.questions)]
    {
        for entry in entries {
            let _ = write!(text, "\n  {name}: {}", line(entry));
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
