//! How a conversation looks on a terminal.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::agent::render::{self, line, plain};
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

pub(super) struct Terminal {
    to: String,
    open: Open,
}

impl Terminal {
    pub(super) fn new(conversation: &Value) -> Self {
        let to = line(conversation["to"].as_str().unwrap_or_default());
        Self { to, open: Open::Nothing }
    }

    /// Ends what is open, if something is.
    fn closed(&mut self) -> String {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Told(_) | Open::Text(_) => "\n".to_owned(),
            Open::Nothing | Open::Thought(_) => String::new(),
        }
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
                Open::Told(_) | Open::Text(_) => plain(word("text")),
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
                let _ = write!(shown, "\n{head}\n{}", plain(word("text")));
            }
            "text" => shown += &plain(word("text")),
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
                    let _ = writeln!(shown, "{}", dim(&format!("  [{mark}] {text}")));
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
                let word = |name: &str| line(tell[name].as_str().unwrap_or_default());
                let at = tell["at"].as_i64().map(|at| local_time(Timestamp(at)));
                let mut text = self.closed();
                let (id, by, at) = (word("id"), word("by"), at.unwrap_or_default());
                let _ = writeln!(text, "\n── {id} · {by} → {} · {at}", self.to);
                let message = plain(tell["message"].as_str().unwrap_or_default());
                let _ = writeln!(text, "{}", message.trim_end());
                let reason = match word("reason") {
                    reason if reason.is_empty() => reason,
                    reason => format!(": {reason}"),
                };
                text + &format!("· {id} {}{reason}\n", word("status"))
            }
            Shown::Came { tell, status, reason } => {
                self.closed() + &format!("· {} {}: {}\n", line(tell), line(status), line(reason))
            }
            Shown::Forgotten(up_to) => {
                let says =
                    format!("(the records up to {up_to} were removed, as [transcripts] says)");
                self.closed() + &dim(&says) + "\n"
            }
        }
    }

    fn end(&mut self) -> String {
        self.closed()
    }
}
