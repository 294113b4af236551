//! A conversation as a document. Whatever was said stands in a quotation, where neither a fence that is not closed nor a
//! heading that is none of ours can get out of its place; what programs wrote stands in fences longer than any they hold.

use std::fmt::Write as _;

use super::super::agent::render::{called_with, line, plain};
use super::{Look, Shown};
use teamster_agents::agent::{Event, StepStatus};
use teamster_api::Millis;
use teamster_api::conversations::Conversation;

/// As much of a tool's output as is shown, of those that failed.
const OUTPUT_CHARS_MAX: usize = 1_000;

/// What the last piece was, where the next may be the rest of it.
#[derive(PartialEq)]
enum Open {
    Nothing,
    Told(String),
    Text(Option<String>),
    Thought(Option<String>),
    /// Lines of a list.
    List,
}

pub(super) struct Markdown {
    from: String,
    to: String,
    id: String,
    has_begun: bool,
    open: Open,
}

fn time(at: Millis) -> String {
    let at = jiff::Timestamp::from_millisecond(at);
    at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

/// Writes a few words so that nothing in them means anything.
fn code(text: &str) -> String {
    let text = line(text);
    let fence = "`".repeat(longest_run(&text) + 1);
    // Without the spaces, a fence next to a backtick would be longer.
    format!("{fence} {text} {fence}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// Goes on with a quotation.
fn quoted(text: &str) -> String {
    plain(text).replace('\n', "\n> ")
}

fn fenced(text: &str, indent: &str) -> String {
    let text = plain(text);
    let cut: String = text.chars().take(OUTPUT_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "\n…" } else { "" };
    let fence = "`".repeat(longest_run(&cut).max(2) + 1);
    let lines = format!("{fence}text\n{}{more}\n{fence}", cut.trim_end());
    lines.lines().map(|line| format!("{indent}{line}\n")).collect()
}

impl Markdown {
    pub(super) fn new(conversation: &Conversation) -> Self {
        let Conversation { from, to, id, .. } = conversation;
        let (from, to, id) = (line(from), line(to), line(id));
        Self { from, to, id, has_begun: false, open: Open::Nothing }
    }

    fn head(&mut self) -> String {
        if std::mem::replace(&mut self.has_begun, true) {
            return String::new();
        }
        format!("# {} → {} ({})\n", name(&self.from), name(&self.to), self.id)
    }

    /// Ends what is open, so that a new block can begin.
    fn closed(&mut self) -> String {
        let mut text = self.head();
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Told(_) | Open::Text(_) => text.push('\n'),
            Open::Nothing | Open::Thought(_) | Open::List => {}
        }
        text.push('\n');
        text
    }

    /// Begins a line of the list, which goes on if there is one.
    fn item(&mut self, text: &str) -> String {
        let before = if self.open == Open::List { String::new() } else { self.closed() };
        self.open = Open::List;
        format!("{before}- {text}\n")
    }

    fn record(&mut self, event: &Event) -> String {
        let open = match event {
            Event::Told { tell, .. } => Open::Told(tell.clone()),
            Event::Text(piece) => Open::Text(piece.message.clone()),
            Event::Thought(piece) => Open::Thought(piece.message.clone()),
            _ => Open::Nothing,
        };
        let goes_on = open != Open::Nothing && open == self.open;
        match event {
            Event::Told { text, .. } if goes_on => quoted(text),
            Event::Text(piece) if goes_on => quoted(&piece.text),
            Event::Thought(_) if goes_on => String::new(),
            Event::Told { tell, from, text: told, told_at_ms, again, .. } => {
                let mut text = self.closed();
                let again = if *again { ", again" } else { "" };
                let at = time(Millis::try_from(*told_at_ms).unwrap_or_default());
                let _ = write!(text, "## {} · {at}{again}\n\n", line(tell));
                let _ = write!(text, "**{}:**\n\n> {}", name(from), quoted(told));
                self.open = open;
                text
            }
            Event::Text(piece) => {
                let mut text = self.closed();
                let _ = write!(text, "**{}:**\n\n> {}", name(&self.to), quoted(&piece.text));
                self.open = open;
                text
            }
            Event::Thought(piece) => {
                let text = self.item(&format!("thought: {}", code(&piece.text)));
                self.open = open;
                text
            }
            Event::ToolCall(call) => {
                let input = match called_with(call) {
                    input if input.is_empty() => input,
                    input => format!(" {}", code(&input)),
                };
                self.item(&format!("tool: {}{input}", code(&call.title)))
            }
            Event::ToolResult { ok: false, output, .. } => {
                self.item("failed:\n") + &fenced(&output.text, "  ")
            }
            Event::ToolResult { output, .. } => {
                let mut lines = output.text.lines().filter(|line| !line.trim().is_empty());
                match lines.next() {
                    None => String::new(),
                    Some(first) => {
                        let more = if lines.next().is_some() { " …" } else { "" };
                        self.item(&format!("result: {}{more}", code(first)))
                    }
                }
            }
            Event::Plan { steps } => {
                let mut text = self.item("plan:");
                for step in steps {
                    let mark = if step.status == StepStatus::Completed { "x" } else { " " };
                    let _ = writeln!(text, "  - [{mark}] {}", code(&step.text));
                }
                text
            }
            Event::PermissionAsked { call, .. } => {
                self.item(&format!("asked for permission: {}", code(&call.title)))
            }
            Event::PermissionAnswered { option: Some(option), .. } => {
                self.item(&format!("answered: {}", code(option)))
            }
            Event::PermissionAnswered { option: None, .. } => self.item("nobody answered"),
            Event::Started(started) => {
                let how = if started.resumed { "went on with" } else { "began" };
                self.item(&format!("{how} session {}", code(&started.session)))
            }
            Event::NotStarted { message } => {
                self.item(&format!("did not start: {}", code(message)))
            }
            Event::UsageLimit { message, .. } => {
                self.item(&format!("usage limit: {}", code(message)))
            }
            Event::Retrying { message } => self.item(&format!("retrying: {}", code(message))),
            Event::Trouble { message } => self.item(&format!("trouble: {}", code(message))),
            Event::Settled { completed: true, .. } => self.closed() + "*completed*\n",
            Event::Settled { why, .. } => {
                let why = code(why.as_deref().unwrap_or_default());
                self.closed() + &format!("*terminated:* {why}\n")
            }
            Event::Prompted { .. }
            | Event::Usage(_)
            | Event::CancelAsked
            | Event::TurnEnded(_)
            | Event::Exited { .. } => String::new(),
        }
    }
}

/// Names are letters, digits and a few signs; one of them means something.
fn name(name: &str) -> String {
    line(name).replace('_', "\\_")
}

impl Look for Markdown {
    fn show(&mut self, shown: &Shown<'_>) -> String {
        match shown {
            Shown::Record(_, event) => event.map(|event| self.record(event)).unwrap_or_default(),
            Shown::Unbegun(tell) => {
                let mut text = self.closed();
                let _ = write!(text, "## {} · {}\n\n", line(&tell.id), time(tell.at));
                let message = quoted(tell.message.as_deref().unwrap_or_default());
                let _ = write!(text, "**{}:**\n\n> {message}\n\n", name(&self.from));
                let reason = tell.reason.as_deref().filter(|reason| !reason.is_empty());
                let reason = reason.map(|reason| format!(" {}", code(reason)));
                text + &format!("*{}*{}\n", tell.status, reason.unwrap_or_default())
            }
            Shown::Came { status, reason, .. } => {
                let reason = if reason.is_empty() { String::new() } else { code(reason) };
                self.closed() + &format!("*{status}* {reason}\n")
            }
            Shown::Forgotten { up_to, left_ms } => {
                let what = match left_ms {
                    Some(at) => format!("What was before {}", time(*at)),
                    None => format!("What was up to record {up_to}"),
                };
                self.closed() + &format!("*{what} was removed.*\n")
            }
        }
    }

    fn end(&mut self) -> String {
        match self.open {
            Open::Told(_) | Open::Text(_) => "\n".to_owned(),
            Open::Nothing | Open::Thought(_) | Open::List => self.head(),
        }
    }
}
