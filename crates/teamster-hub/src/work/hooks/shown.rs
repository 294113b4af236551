//! Commands as people read them: word by word, and with everything visible that a terminal would hide or obey.

use std::fmt::Write;

use super::{CommandLine, Event, Hook, HookFields};

/// As much of a command as a sentence has room for.
const BRIEF_CHARS: usize = 160;

/// Returns a word as it is if it cannot be mistaken, and else in quotes with escapes.
pub fn word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%+,-".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

/// Returns text in which nothing steers a terminal or hides.
pub fn plain(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if matches!(c, '"' | '\'' | '\\') { shown.push(c) } else { shown.extend(c.escape_debug()) }
    }
    shown
}

fn line(command: &CommandLine) -> String {
    command.words().iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

/// Returns the beginning of a hook's command, for a sentence.
pub(super) fn brief(hook: &Hook) -> String {
    let line = line(&hook.command);
    match line.char_indices().nth(BRIEF_CHARS) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// Returns everything that hooks say, as it would be run.
pub fn payload(hooks: &HookFields) -> String {
    let mut text = String::new();
    for event in Event::ALL {
        for hook in hooks.at(event) {
            let piped = if hook.pipe_output { ", its output goes to the agent" } else { "" };
            let _ = writeln!(text, "{} (at most {} s{piped})", event.name(), hook.timeout_s.get());
            text.push_str(&words(&hook.command));
        }
    }
    text
}

/// Shows a command word by word; one of several lines, usually a script, on lines of its own.
fn words(command: &CommandLine) -> String {
    let mut text = String::from("   ");
    let mut is_at_start = false;
    for said in command.words() {
        if said.trim_end_matches('\n').contains('\n') {
            text.push_str(" …\n");
            for line in said.split('\n') {
                let space = if line.is_empty() { "" } else { " " };
                let _ = writeln!(text, "      |{space}{}", plain(line));
            }
            is_at_start = true;
        } else {
            let before = if std::mem::take(&mut is_at_start) { "    " } else { " " };
            let _ = write!(text, "{before}{}", word(said));
        }
    }
    if !is_at_start {
        text.push('\n');
    }
    text
}
