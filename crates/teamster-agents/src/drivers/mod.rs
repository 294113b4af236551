//! Drivers: how to talk to one kind of program. A driver is a plain translation, from lines to events and from commands
//! to lines. It waits for nothing and keeps no time; that is [`crate::dialogue`]'s part.

pub mod acp;
pub mod claude;
pub mod codex;
mod error_report;
mod json_rpc;
#[cfg(test)]
pub(crate) mod testing;
mod usage_limit;

pub use self::usage_limit::recognise as usage_limit_in;

use std::ffi::OsString;
use std::path::Path;

use serde::Serialize;

use crate::agent::{Begin, Event, MESSAGE_BYTES_MAX, PermissionId, clipped};
use crate::launch::PrivateFile;

/// A driver as `programs.toml` names it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub make: fn() -> Box<dyn Driver>,
}

/// Every driver there is.
pub const ALL: &[Entry] = &[
    Entry { name: "acp", make: || Box::new(acp::Acp::default()) },
    Entry { name: "claude", make: || Box::new(claude::Claude::default()) },
    Entry { name: "codex", make: || Box::new(codex::Codex::default()) },
];

/// What a driver wants for the launch of its program, beside what the program is configured to be started with.
#[derive(Debug, Clone, Default)]
pub struct Preparation {
    /// They come last.
    pub args: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Files in the launch's private directory.
    pub files: Vec<PrivateFile>,
}

/// Translates for one process of one kind of program.
///
/// `prepare` comes before the program is launched, if it is launched at all; the same `Begin` follows. The dialogue sees
/// to it that the commands come at their time: `begin` first and once, then one `prompt` at a time and `cancel` only during
/// a turn. For `begin` a driver says `Started` or `NotStarted` at some time, for every `prompt`
/// `TurnEnded`; what was pending when the program exits is the dialogue's.
pub trait Driver: Send {
    /// Says what the program is to be launched with. `private` is where its files will be.
    fn prepare(&mut self, _begin: &Begin, _private: &Path) -> Preparation {
        Preparation::default()
    }
    fn begin(&mut self, begin: &Begin, out: &mut Out);
    fn prompt(&mut self, text: &str, out: &mut Out);
    fn cancel(&mut self, out: &mut Out);
    /// Answers a permission that the driver has said to be asked; without an option when nobody decides it any more.
    fn answer(&mut self, permission: PermissionId, option: Option<&str>, out: &mut Out);
    /// Takes in one whole line that the program wrote.
    fn hear(&mut self, line: &[u8], out: &mut Out);
}

/// What a driver wants to happen: lines for the program and events for the hub.
#[derive(Debug, Default)]
pub struct Out {
    pub(crate) lines: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

impl Out {
    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Returns the events so far and forgets them.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn trouble(&mut self, message: impl Into<String>) {
        let message = clipped(message, MESSAGE_BYTES_MAX);
        self.event(Event::Trouble { message });
    }

    /// Sends `message` as a line of JSON.
    pub fn send(&mut self, message: &impl Serialize) {
        let before = self.lines.len();
        match serde_json::to_writer(&mut self.lines, message) {
            Ok(()) => self.lines.push(b'\n'),
            // Paths that are not UTF-8 have no JSON.
            Err(error) => {
                self.lines.truncate(before);
                self.trouble(format!("a message could not be written as JSON: {error}"));
            }
        }
    }
}

/// Millionths of an amount of money.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn micros(amount: f64) -> u64 {
    (amount * 1e6).round() as u64
}
