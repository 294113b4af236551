//! Notices when an agent goes in circles: the same tool with the same input again and again, two calls that alternate, or
//! the same error whatever it tries.
//!
//! A call is judged once, at its result. Before that its input may not be known: many programs announce a call with no
//! input, or with a part of it, and send the rest later. A call whose input the program never shows is not judged.

use std::collections::VecDeque;

use teamster_agents::agent::{ToolCall, ToolKind};
use teamster_core::guard::Guard as Limits;
use teamster_core::text::fingerprint;

/// Maximum calls without a result that are kept. Above it the oldest is judged by what is known of it.
const OPEN_MAX: usize = 16;
/// Maximum characters of an input or an error that are shown.
const SHOWN_CHARS_MAX: usize = 120;

/// What the last calls look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Warn(String),
    Stop(String),
}

#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    /// Calls that have no result yet, oldest first.
    open: VecDeque<ToolCall>,
    /// Calls that were judged, oldest first.
    calls: VecDeque<Seen>,
    /// The last error's fingerprint, and how often it came.
    error: (u64, usize),
}

#[derive(Debug)]
struct Seen {
    /// Of the tool and its whole input.
    print: u64,
    tool: String,
    /// The input, as it is shown to people.
    shown: String,
}

impl Guard {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: VecDeque::new(), calls: VecDeque::new(), error: (0, 0) }
    }

    /// Starts anew, for a new turn: a person may ask for the same thing again.
    pub(super) fn begin_turn(&mut self) {
        self.open.clear();
        self.calls.clear();
        self.error = (0, 0);
    }

    /// Takes in a call, or more of a call.
    pub(super) fn announced(&mut self, call: &ToolCall) -> Verdict {
        if let Some(known) = self.open.iter_mut().find(|known| known.id == call.id) {
            known.clone_from(call);
            return Verdict::Fine;
        }
        self.open.push_back(call.clone());
        match (self.open.len() > OPEN_MAX).then(|| self.open.pop_front()).flatten() {
            Some(oldest) => self.judge(&oldest, ""),
            None => Verdict::Fine,
        }
    }

    /// Judges a call that ended. An error counts as well.
    pub(super) fn ended(&mut self, id: &str, ok: bool, output: &str) -> Verdict {
        let call = self.open.iter().position(|call| call.id == id);
        let call = call.and_then(|at| self.open.remove(at));
        let of_call = call.map_or(Verdict::Fine, |call| self.judge(&call, output));
        let of_error = if ok { Verdict::Fine } else { self.see_error(output) };
        match (&of_call, &of_error) {
            (Verdict::Stop(_), _) | (_, Verdict::Fine) => of_call,
            (_, Verdict::Stop(_)) | (Verdict::Fine, Verdict::Warn(_)) => of_error,
            (Verdict::Warn(_), Verdict::Warn(_)) => of_call,
        }
    }

    fn judge(&mut self, call: &ToolCall, output: &str) -> Verdict {
        let tool = call.name.as_deref().unwrap_or(&call.title);
        // await_agent tells its callers to call it again.
        if tool.ends_with("await_agent") || call.title.contains("await_agent") {
            return Verdict::Fine;
        }
        let Some(input) = input(call, output) else { return Verdict::Fine };
        self.see(tool, &call.title, &input)
    }

    fn see(&mut self, tool: &str, title: &str, input: &str) -> Verdict {
        let print =
            fingerprint([tool, "\0", title, "\0", input].iter().flat_map(|text| text.bytes()));
        let (repeats_max, pairs_max) = (often(self.limits.repeats), often(self.limits.pairs));
        // One pair more, to see where an alternation began.
        let window = repeats_max.max((pairs_max + 1) * 2).max(2);
        self.calls.push_back(Seen { print, tool: tool.to_owned(), shown: shown(input) });
        while self.calls.len() > window {
            self.calls.pop_front();
        }
        let newest_first: Vec<&Seen> = self.calls.iter().rev().collect();
        let repeats = newest_first.iter().take_while(|call| call.print == print).count();
        let repeated =
            || format!("{tool} was called {repeats} times in a row with {}", shown(input));
        match grade(repeats, repeats_max) {
            Grade::Stop => return Verdict::Stop(repeated()),
            Grade::Warn => return Verdict::Warn(repeated()),
            Grade::Fine => {}
        }
        let pairs = pairs(&newest_first);
        let alternated = || {
            let names = |seen: &Seen| format!("{} with {}", seen.tool, seen.shown);
            let both: Vec<String> = newest_first.iter().take(2).map(|seen| names(seen)).collect();
            format!("two calls alternated {pairs} times: {}", both.join("; "))
        };
        match grade(pairs, pairs_max) {
            Grade::Stop => Verdict::Stop(alternated()),
            // Warned when the pair is complete, not again by its other half.
            Grade::Warn if is_complete(&newest_first, pairs) => Verdict::Warn(alternated()),
            Grade::Warn | Grade::Fine => Verdict::Fine,
        }
    }

    fn see_error(&mut self, error: &str) -> Verdict {
        let error = error.trim();
        // A program that does not show the error would fail each time with the same one.
        if error.is_empty() {
            return Verdict::Fine;
        }
        let print = fingerprint(error.bytes());
        let times = if self.error.0 == print { self.error.1 + 1 } else { 1 };
        self.error = (print, times);
        let says = || format!("the same error came {times} times: {}", shown(error));
        match grade(times, count(self.limits.errors)) {
            Grade::Stop => Verdict::Stop(says()),
            Grade::Warn => Verdict::Warn(says()),
            Grade::Fine => Verdict::Fine,
        }
    }
}

/// Returns what a call was about, or nothing where its program does not show it.
fn input(call: &ToolCall, output: &str) -> Option<String> {
    let targets = call.targets.join(" ");
    match call.input.as_ref().map(|input| input.text.trim()) {
        None | Some("" | "null") => {
            // A title of several words is the command or the address itself; one word is the tool's name.
            let is_told =
                matches!(call.kind, ToolKind::Execute | ToolKind::Search | ToolKind::Fetch);
            (is_told && call.title.trim().contains(char::is_whitespace)).then(|| call.title.clone())
        }
        // A tool of an MCP server may have no arguments; then its output says whether anything changed. The tools of a
        // program always have some.
        Some("{}") if call.kind == ToolKind::Other && targets.is_empty() => {
            (!output.trim().is_empty()).then(|| format!("{{}} and the answer {output}"))
        }
        Some("{}") => None,
        Some(input) => Some(format!("{targets} {input}").trim().to_owned()),
    }
}

enum Grade {
    Fine,
    Warn,
    Stop,
}

/// A warning comes once, after more than half of what is allowed.
fn grade(times: usize, max: usize) -> Grade {
    match times {
        _ if max == 0 => Grade::Fine,
        times if times >= max => Grade::Stop,
        times if times == max / 2 + 1 => Grade::Warn,
        _ => Grade::Fine,
    }
}

/// Returns a limit of what can only be seen in two calls or two pairs.
fn often(limit: u32) -> usize {
    match count(limit) {
        1 => 2,
        limit => limit,
    }
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// Returns how many times the two newest calls, if they differ, alternate.
fn pairs(newest_first: &[&Seen]) -> usize {
    let [a, b, ..] = newest_first else { return 0 };
    if a.print == b.print {
        return 0;
    }
    let alternates = |pair: &&[&Seen]| pair[0].print == a.print && pair[1].print == b.print;
    newest_first.chunks_exact(2).take_while(alternates).count()
}

/// Says whether the alternation began with just these pairs.
fn is_complete(newest_first: &[&Seen], pairs: usize) -> bool {
    newest_first.get(pairs * 2).is_none_or(|before| before.print != newest_first[0].print)
}

#[cfg(test)]
mod tests;
