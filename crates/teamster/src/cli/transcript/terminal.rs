//! How a conversation looks on a terminal. What was told is quoted, what was said is indented, and none of our own lines
//! begins like that: whatever an agent says, it cannot look like a message of somebody else.

use std::fmt::Write as _;

use teamster_agents::agent::{Event, StepStatus};
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
    Text(Option<String>),
    /// What it thinks; only the beginning is shown.
    Thought(Option<String>),
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

    fn record(&mut self, event: &Event) -> String {
        let next = match event {
            Event::Told { tell, .. } => Open::Told(tell.clone()),
            Event::Text(piece) => Open::Text(piece.message.clone()),
            Event::Thought(piece) => Open::Thought(piece.message.clone()),
            _ => Open::Nothing,
        };
        if next != Open::Nothing && next == self.open {
            // The rest of it.
            return match event {
                Event::Told { text, .. } => self.marked(TOLD, text),
                Event::Text(piece) => self.marked(SAID, &piece.text),
                _ => String::new(),
            };
        }
        let mut shown = self.closed();
        self.open = next;
        match event {
            Event::Told { tell, from, text, told_at_ms, again, .. } => {
                let at = i64::try_from(*told_at_ms).unwrap_or_default();
                let head = format!(
                    "── {} · {} → {} · {}{}",
                    line(tell),
                    line(from),
                    self.to,
                    local_time(Timestamp(at)),
                    if *again { ", again" } else { "" },
                );
                let _ = write!(shown, "\n{head}\n{}", self.marked(TOLD, text));
            }
            Event::Text(piece) => shown += &self.marked(SAID, &piece.text),
            Event::Settled { tell, completed: true, .. } => {
                let _ = writeln!(shown, "{}", dim(&format!("· {} completed", line(tell))));
            }
            Event::Settled { tell, why, .. } => {
                let why = line(why.as_deref().unwrap_or_default());
                let _ = writeln!(shown, "· {} terminated: {why}", line(tell));
            }
            // What was told is shown; the rest is what every agent is prompted.
            Event::Prompted { .. } | Event::TurnEnded(_) => {}
            Event::Plan { steps } => {
                for step in steps {
                    let mark = match step.status {
                        StepStatus::Completed => "x",
                        StepStatus::InProgress => "~",
                        StepStatus::Pending => " ",
                    };
                    let text = line(&step.text);
                    let _ = writeln!(shown, "{}", dim(&format!("[{mark}] {text}")));
                }
            }
            _ => {
                if let Some(text) = render::record(event) {
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
            Shown::Record(_, event) => event.map(|event| self.record(event)).unwrap_or_default(),
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
