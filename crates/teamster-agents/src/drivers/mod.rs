//! Drivers: how to talk to one kind of program. A driver is a plain translation, from lines to events and from commands
//! to lines. It waits for nothing and keeps no time; that is [`crate::dialogue`]'s part.

pub mod acp;
pub mod claude;
pub mod codex;
mod json_rpc;
#[cfg(test)]
pub(crate) mod testing;
mod usage_limit;

use std::ffi::OsString;
use std::path::Path;

use serde::Serialize;

use crate::agent::{
    Begin, Clipped, Event, LABEL_BYTES_MAX, MESSAGE_BYTES_MAX, PermissionId, TARGETS_MAX, clipped,
};
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

/// Keeps as many targets as are kept of a tool call. Returns also how many bytes are not kept: they are added to what is cut
/// of the call's input, because who decides must know that there is more than they see.
fn targets(all: impl IntoIterator<Item = impl Into<String>>) -> (Vec<String>, usize) {
    let (mut kept, mut cut_bytes) = (Vec::new(), 0);
    for target in all {
        let target = target.into();
        let kept_bytes = if kept.len() < TARGETS_MAX { LABEL_BYTES_MAX } else { 0 };
        cut_bytes += Clipped::new(target.clone(), kept_bytes).cut_bytes;
        if kept.len() < TARGETS_MAX {
            kept.push(clipped(target, LABEL_BYTES_MAX));
        }
    }
    (kept, cut_bytes)
}

/// Millionths of an amount of money, rounded up, but not for what floats add to an amount.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn micros(amount: f64) -> u64 {
    (amount * 1e6 - 1e-3).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_little_does_not_cost_nothing() {
        for (amount, expected) in [
            (0.0, 0),
            (0.000_000_4, 1),
            (0.000_001, 1),
            (0.000_001_1, 2),
            (0.1 + 0.2, 300_000),
            (0.012_000_000_000_000_004, 12_000),
            (-1.0, 0),
            (f64::NAN, 0),
            (f64::INFINITY, u64::MAX),
        ] {
            assert_eq!(micros(amount), expected, "{amount}");
        }
    }

    #[test]
    fn targets_that_are_not_kept_are_counted() {
        let all = |n: usize| targets((0..n).map(|_| "ten bytes!"));
        assert_eq!((all(TARGETS_MAX).1, all(TARGETS_MAX + 2).1), (0, 20));
        assert_eq!(targets(["x".repeat(LABEL_BYTES_MAX + 3)]).1, 3);
    }
}
