//! A conversation as a document. Whatever was said stands in a quotation, where neither a fence that is not closed nor a
//! heading that is none of ours can get out of its place; what programs wrote stands in fences longer than any they hold.

use std::fmt::Write as _;

use super::super::agent::render::{called_with, line, plain};
use super::{Look, Shown};
use serde_json::Value;
use teamster_api::conversations::Conversation;

/// As much of a tool's output as is shown, of those that failed.
const OUTPUT_CHARS_MAX: usize = 1_000;

/// What the last piece was, where the next may be the rest of it.
#[derive(PartialEq)]
enum Open {
    Nothing,
    Told(String),
    Text(Value),
    Thought(Value),
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

fn time(at: &Value) -> String {
    let at = at.as_i64().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
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

    fn record(&mut self, record: &Value) -> String {
        let word = |name: &str| record[name].as_str().unwrap_or_default();
        let open = match word("type") {
            "told" => Open::Told(word("tell").to_owned()),
            "text" => Open::Text(record["message"].clone()),
            "thought" => Open::Thought(record["message"].clone()),
            _ => Open::Nothing,
        };
        let goes_on = open != Open::Nothing && open == self.open;
        match word("type") {
            "told" | "text" if goes_on => quoted(word("text")),
            "thought" if goes_on => String::new(),
            "told" => {
                let mut text = self.closed();
                let again = if record["again"] == true { ", again" } else { "" };
                let at = time(&record["told_at_ms"]);
                let _ = write!(text, "## {} · {at}{again}\n\n", line(word("tell")));
                let _ = write!(text, "**{}:**\n\n> {}", name(word("from")), quoted(word("text")));
                self.open = open;
                text
            }
            "text" => {
                let mut text = self.closed();
                let _ = write!(text, "**{}:**\n\n> {}", name(&self.to), quoted(word("text")));
                self.open = open;
                text
            }
            "thought" => {
                let text = self.item(&format!("thought: {}", code(word("text"))));
                self.open = open;
                text
            }
            "tool_call" => {
                let input = match called_with(record) {
                    input if input.is_empty() => input,
                    input => format!(" {}", code(&input)),
                };
                self.item(&format!("tool: {}{input}", code(word("title"))))
            }
            "tool_result" if record["ok"] == false => {
                let output = record["output"]["text"].as_str().unwrap_or_default();
                self.item("failed:\n") + &fenced(output, "  ")
            }
            "tool_result" => {
                let output = record["output"]["text"].as_str().unwrap_or_default();
                let mut lines = output.lines().filter(|line| !line.trim().is_empty());
                match lines.next() {
                    None => String::new(),
                    Some(first) => {
                        let more = if lines.next().is_some() { " …" } else { "" };
                        self.item(&format!("result: {}{more}", code(first)))
                    }
                }
            }
            "plan" => {
                let mut text = self.item("plan:");
                for step in record["steps"].as_array().into_iter().flatten() {
                    let mark = if step["status"] == "completed" { "x" } else { " " };
                    let step = code(step["text"].as_str().unwrap_or_default());
                    let _ = writeln!(text, "  - [{mark}] {step}");
                }
                text
            }
            "permission_asked" => {
                let title = record["call"]["title"].as_str().unwrap_or_default();
                self.item(&format!("asked for permission: {}", code(title)))
            }
            "permission_answered" => match record["option"].as_str() {
                Some(option) => self.item(&format!("answered: {}", code(option))),
                None => self.item("nobody answered"),
            },
            "started" => {
                let how = if record["resumed"] == true { "went on with" } else { "began" };
                self.item(&format!("{how} session {}", code(word("session"))))
            }
            "not_started" => self.item(&format!("did not start: {}", code(word("message")))),
            "usage_limit" => self.item(&format!("usage limit: {}", code(word("message")))),
            "retrying" => self.item(&format!("retrying: {}", code(word("message")))),
            "trouble" => self.item(&format!("trouble: {}", code(word("message")))),
            "settled" if record["completed"] == true => self.closed() + "*completed*\n",
            "settled" => self.closed() + &format!("*terminated:* {}\n", code(word("why"))),
            _ => String::new(),
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
            Shown::Record(record) => self.record(record),
            Shown::Unbegun(tell) => {
                let mut text = self.closed();
                let _ = write!(text, "## {} · {}\n\n", line(&tell.id), time(&tell.at.into()));
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
                    Some(at) => format!("What was before {}", time(&(*at).into())),
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
