//! How agents and their transcripts look on a terminal.

use std::fmt::Write as _;

use teamster_agents::agent::{Event, ToolCall};
use teamster_api::agents::{Agent, AgentCalls, AgentDetails, AgentToolCalls, Isolation};
use teamster_api::{Millis, spending};
use teamster_core::spending::Spent;
use teamster_core::{Timestamp, text};

use super::super::status::failures;
use super::super::{budget, dim, local_time, records};

/// As much of a tool's input or output as fits a line.
const LINE_CHARS_MAX: usize = 160;

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
pub(in crate::cli) fn called_with(call: &ToolCall) -> String {
    match line(call.input.as_ref().map_or("", |input| &input.text)) {
        none if none.is_empty() || none == "{}" => line(&call.targets.join(" ")),
        input => input,
    }
}

/// Shows a record, if it is one that people want to see.
pub(in crate::cli) fn record(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started(started) => dim(&format!("· works (session {})", line(&started.session))),
        Event::NotStarted { message } => format!("! did not start: {}", line(message)),
        Event::Told { tell, from, text, .. } => {
            format!("> {} from {}: {}", line(tell), line(from), line(text))
        }
        Event::Prompted { text } => dim(&format!("> {}", line(text))),
        Event::Text(piece) => said(&piece.text),
        Event::Thought(piece) => dim(&format!("~ {}", line(&piece.text))),
        Event::ToolCall(call) => {
            format!("* {} {}", line(&call.title), dim(&called_with(call))).trim_end().to_owned()
        }
        Event::ToolResult { ok, output, .. } => {
            let mark = if *ok { "→" } else { "✗" };
            dim(&format!("{mark} {}", line(&output.text)))
        }
        Event::PermissionAsked { call, .. } => {
            let title = line(&call.title);
            format!("? may it: {title} {}", dim("(rules decide, or you: `teamster questions`)"))
        }
        Event::PermissionAnswered { option, .. } => {
            dim(&format!("· answered: {}", line(option.as_deref().unwrap_or_default())))
        }
        Event::UsageLimit { message, .. } => {
            let message = line(message);
            format!(
                "! limit: {message}; the agent is parked and resumes by itself (`teamster agents` shows when)"
            )
        }
        Event::Retrying { message } => dim(&format!("! retrying: {}", line(message))),
        Event::Trouble { message } => dim(&format!("! {}", line(message))),
        Event::TurnEnded(end) => dim(&format!("· turn ended: {}", records::why(end))),
        Event::Exited { how } => dim(&format!("· program ended: {}", line(how))),
        Event::Settled { .. } | Event::Plan { .. } | Event::Usage(_) | Event::CancelAsked => {
            return None;
        }
    })
}
