//! How a conversation looks on a terminal. What was told is quoted, what was said is indented, and none of our own lines
//! begins like that: whatever an agent says, it cannot look like a message of somebody else.

use std::fmt::Write as _;

use serde_json::Value;
use teamster_api::conversations::Conversation;

use super::super::agent::render::{self, SAID, line, plain};
use super::super::{dim, local_time};
use super::{Look, Shown};
use teamster_core::Timestamp;

/// What the last piece was, where the next may be the rest of it.
#[derive(PartialEq)]
enum Open {
    Nothing,
    /// A message to the agent.
    Told(String),
    /// What the agent says, in the message of this name.
    Text(Value),
    /// What it thinks; only the beginning is shown.
    Thought(Value),
}

/// Before each line of what was told.
const TOLD: &str = "> ";

pub(super) struct Terminal {
    from: String,
    to: String,
    open: Open,
    /// The last line is not ended.
    is_in_line: bool,
}

impl Terminal {
    pub(super) fn new(conversation: &Conversation) -> Self {
        let (from, to) = (line(&conversation.from), line(&conversation.to));
        Self { from, to, open: Open::Nothing, is_in_line: false }
    }

    /// Ends what is open, if something is.
    fn closed(&mut self) -> String {
        self.open = Open::Nothing;
        if std::mem::take(&mut self.is_in_line) { "\n".to_owned() } else { String::new() }
    }

    /// Goes on with what somebody said, line by line behind a mark.
    fn marked(&mut self, mark: &str, text: &str) -> String {
        let mut marked = String::new();
        for line in plain(text).split_inclusive('\n') {
            if !self.is_in_line {
                marked += if line == "\n" { mark.trim_end() } else { mark };
            }
            marked += line;
            self.is_in_line = !line.ends_with('\n');
        }
        marked
    }

    fn record(&mut self, record: &Value) -> String {
        let word = |name: &str| record[name].as_str().unwrap_or_default();
        let next = match word("type") {
            "told" => Open::Told(word("tell").to_owned()),
            "text" => Open::Text(record["message"].clone()),
            "thought" => Open::Thought(record["message"].clone()),
            _ => Open::Nothing,
        };
        if next != Open::Nothing && next == self.open {
            // The rest of it.
            return match next {
                Open::Thought(_) | Open::Nothing => String::new(),
                Open::Told(_) => self.marked(TOLD, word("text")),
                Open::Text(_) => self.marked(SAID, word("text")),
            };
        }
        let mut shown = self.closed();
        self.open = next;
        match word("type") {
            "told" => {
                let at = record["told_at_ms"].as_i64().map(|at| local_time(Timestamp(at)));
                let again = if record["again"] == true { ", again" } else { "" };
                let head = format!(
                    "── {} · {} → {} · {}{again}",
                    line(word("tell")),
                    line(word("from")),
                    self.to,
                    at.unwrap_or_default()
                );
                let _ = write!(shown, "\n{head}\n{}", self.marked(TOLD, word("text")));
            }
            "text" => shown += &self.marked(SAID, word("text")),
            "settled" if record["completed"] == true => {
                let _ = writeln!(shown, "{}", dim(&format!("· {} completed", line(word("tell")))));
            }
            "settled" => {
                let _ =
                    writeln!(shown, "· {} terminated: {}", line(word("tell")), line(word("why")));
            }
            // What was told is shown; the rest is what every agent is prompted.
            "prompted" | "turn_ended" => {}
            "plan" => {
                for step in record["steps"].as_array().into_iter().flatten() {
                    let mark = match step["status"].as_str() {
                        Some("completed") => "x",
                        Some("in_progress") => "~",
                        _ => " ",
                    };
                    let text = line(step["text"].as_str().unwrap_or_default());
                    let _ = writeln!(shown, "{}", dim(&format!("[{mark}] {text}")));
                }
            }
            _ => {
                if let Some(text) = render::record(record) {
                    let _ = writeln!(shown, "{text}");
                }
            }
        }
        shown
    }
}

impl Look for Terminal {
    fn show(&mut self, shown: &Shown<'_>) -> String {
        match shown {
            Shown::Record(record) => self.record(record),
            Shown::Unbegun(tell) => {
                let mut text = self.closed();
                let (id, at) = (line(&tell.id), local_time(Timestamp(tell.at)));
                let _ = writeln!(text, "\n── {id} · {} → {} · {at}", self.from, self.to);
                text += &self.marked(TOLD, tell.message.as_deref().unwrap_or_default());
                text += &self.closed();
                let reason = tell.reason.as_deref().filter(|reason| !reason.is_empty());
                let reason = reason.map(|reason| format!(": {}", line(reason)));
                text + &format!("· {id} {}{}\n", tell.status, reason.unwrap_or_default())
            }
            Shown::Came { tell, status, reason } => {
                self.closed() + &format!("· {} {}: {}\n", line(tell), status, line(reason))
            }
            Shown::Forgotten { up_to, left_ms } => {
                let what = match left_ms {
                    Some(at) => format!("what was before {}", local_time(Timestamp(*at))),
                    None => format!("what was up to record {up_to}"),
                };
                self.closed() + &dim(&format!("({what} was removed, as [transcripts] says)\n"))
            }
        }
    }

    fn end(&mut self) -> String {
        self.closed()
    }
}
