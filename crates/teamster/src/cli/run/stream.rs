//! What an agent says and does, as lines for people: as many as are worth scrolling back to.

use std::collections::VecDeque;

use serde_json::Value;
use teamster_agents::agent::{Event, Piece, Step, StepStatus, ToolCall, ToolKind, TurnEnd};

use crate::cli::records;
use crate::cli::screen::{clean, clean_line, cut, wrap};

/// As much as is kept of a stream, in pieces and in all: some thousand lines.
const ENTRIES_MAX: usize = 4_000;
const BYTES_MAX: usize = 1 << 20;
/// A longer text goes on as another piece, so that no piece takes long to break into lines.
const TEXT_BYTES_MAX: usize = 32 * 1024;
/// As much of a title or a result as can be on one line.
const LINE_BYTES_MAX: usize = 500;
/// The result of a call is not looked for further back.
const CALLS_BACK: usize = 200;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Dim,
    Bad,
    Head,
    Call,
    Good,
    Urgent,
}

/// One piece of a stream. Its number stays the same for as long as it is kept.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Another iteration begins.
    Head(String),
    Text {
        message: Option<String>,
        text: String,
    },
    Thought {
        message: Option<String>,
        text: String,
    },
    Call {
        id: String,
        title: String,
        ok: Option<bool>,
        said: String,
    },
    Said(Look, String),
    /// What people should know, whole.
    Warning(String),
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            Self::Head(text) | Self::Said(_, text) | Self::Warning(text) => text.len(),
            Self::Text { text, .. } | Self::Thought { text, .. } => text.len(),
            Self::Call { title, said, .. } => title.len() + said.len(),
        }
    }
}

impl Entry {
    /// Returns its lines; thoughts are one line unless they are unfolded.
    pub(super) fn lines(&self, columns: usize, unfolded: bool) -> Vec<(Look, String)> {
        let all = |look: Look, text: &str, columns: usize| {
            wrap(text.trim_end(), columns).into_iter().map(|line| (look, line)).collect()
        };
        match &self.what {
            What::Head(text) => vec![(Look::Head, cut(text, columns))],
            What::Text { text, .. } => all(Look::Plain, text, columns),
            What::Thought { text, .. } if unfolded => {
                let lines: Vec<(Look, String)> = all(Look::Dim, text, columns.saturating_sub(2));
                lines.into_iter().map(|(look, line)| (look, format!("~ {line}"))).collect()
            }
            What::Thought { text, .. } => {
                vec![(Look::Dim, cut(&format!("~ {}", clean_line(text)), columns))]
            }
            What::Call { title, ok, said, .. } => {
                let (mark, look) = match ok {
                    None => ("*", Look::Call),
                    Some(true) => ("✓", Look::Call),
                    Some(false) => ("✗", Look::Bad),
                };
                let line = match said.is_empty() {
                    true => format!("{mark} {title}"),
                    // A long call leaves room for what came of it.
                    false => format!("{mark} {} → {said}", cut(title, columns * 3 / 5)),
                };
                vec![(look, cut(&line, columns))]
            }
            What::Said(look, text) => vec![(*look, cut(text, columns))],
            What::Warning(text) => all(Look::Bad, text, columns),
        }
    }

    /// Returns it as one line, the first of what was said; thoughts have none.
    fn line(&self, columns: usize) -> Option<String> {
        match &self.what {
            What::Thought { .. } => None,
            What::Text { text, .. } => text
                .lines()
                .find(|line| !line.trim().is_empty())
                .map(|line| cut(line.trim(), columns)),
            What::Head(_) | What::Call { .. } | What::Said(..) | What::Warning(_) => {
                self.lines(columns, false).pop().map(|(_, line)| line)
            }
        }
    }
}

/// The newest part of what an agent, or one worker's agents one after the other, said and did.
#[derive(Debug, Default)]
pub(super) struct Stream {
    entries: VecDeque<Entry>,
    bytes: usize,
    last: u64,
}

/// One line of something, short enough to be kept.
fn short(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(4 * LINE_BYTES_MAX)];
    let mut line = clean_line(text);
    line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
    line
}

impl Stream {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(super) fn head(&mut self, text: &str) {
        self.push(What::Head(short(text)));
    }

    /// Takes out what will not change any more, or everything, a line for each.
    pub(super) fn drain(&mut self, everything: bool, columns: usize) -> Vec<String> {
        let last = self.last;
        let is_done = |entry: &Entry| match &entry.what {
            // There may be more of it.
            What::Text { .. } | What::Thought { .. } => everything || entry.number != last,
            What::Call { ok, .. } => everything || ok.is_some(),
            What::Head(_) | What::Said(..) | What::Warning(_) => true,
        };
        let (done, rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(is_done);
        self.bytes = rest.iter().map(|entry| entry.what.bytes()).sum();
        self.entries = rest;
        done.iter().filter_map(|entry| entry.line(columns)).collect()
    }

    /// Returns the newest call that nothing has come of yet.
    pub(super) fn calls(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match &entry.what {
            What::Call { title, ok: None, .. } => Some(title.as_str()),
            _ => None,
        })
    }

    pub(super) fn warn(&mut self, says: &str) {
        self.push(What::Warning(short(&format!("! {says}"))));
    }

    fn push(&mut self, what: What) {
        self.last += 1;
        self.bytes += what.bytes();
        self.entries.push_back(Entry { number: self.last, what });
        while self.entries.len() > ENTRIES_MAX || self.bytes > BYTES_MAX {
            match self.entries.pop_front() {
                Some(entry) => self.bytes -= entry.what.bytes(),
                None => break,
            }
        }
    }

    fn say(&mut self, look: Look, text: &str) {
        self.push(What::Said(look, short(text)));
    }

    /// Takes in a record of a transcript. Paths are shown from this directory on.
    pub(super) fn take(&mut self, event: &Event, directory: &str) {
        match event {
            Event::Text(Piece { text, message }) => self.words(message.as_ref(), text, false),
            Event::Thought(Piece { text, message }) => self.words(message.as_ref(), text, true),
            Event::ToolCall(call) => self.call(call, directory),
            Event::ToolResult { id, ok, output } => self.result(id, *ok, &output.text),
            Event::Started(started) => {
                let model = started.model.as_ref().map(|model| format!(", {model}"));
                self.say(Look::Dim, &format!("· started{}", model.unwrap_or_default()));
            }
            Event::NotStarted { message } => {
                self.say(Look::Bad, &format!("! did not start: {message}"));
            }
            Event::Prompted { text } => {
                let n_lines = text.lines().count();
                self.say(Look::Dim, &format!("> was given its task ({n_lines} lines)"));
            }
            Event::Told { from, text, .. } => self.say(Look::Head, &format!("> {from}: {text}")),
            Event::Plan { steps } => {
                let is = |step: &&Step, status: StepStatus| step.status == status;
                let n_done = steps.iter().filter(|step| is(step, StepStatus::Completed)).count();
                let now = steps.iter().find(|step| is(step, StepStatus::InProgress));
                let now = now.map_or("", |step| &step.text);
                self.say(Look::Dim, &format!("· plan: {n_done} of {} done {now}", steps.len()));
            }
            Event::PermissionAsked { call, .. } => {
                let title = &call.title;
                self.say(Look::Urgent, &format!("? may it: {title} (`teamster questions`)"));
            }
            Event::PermissionAnswered { option, .. } => {
                let option = option.as_deref().unwrap_or_default();
                self.say(Look::Dim, &format!("  answered: {option}"));
            }
            Event::UsageLimit { message, .. } => {
                self.say(Look::Bad, &format!("! usage limit: {message}; it goes on by itself"));
            }
            Event::Retrying { message } => self.say(Look::Dim, &format!("! retrying: {message}")),
            Event::Trouble { message } => self.say(Look::Dim, &format!("! {message}")),
            Event::TurnEnded(TurnEnd::Done) => {}
            Event::TurnEnded(end) => {
                let message = match end {
                    TurnEnd::Failed { message } => message.as_str(),
                    _ => "",
                };
                self.say(Look::Bad, &format!("· turn ended: {} {message}", records::why(end)));
            }
            Event::Exited { how } => self.say(Look::Dim, &format!("· program ended: {how}")),
            Event::Settled { .. } | Event::Usage(_) | Event::CancelAsked => {}
        }
    }

    fn words(&mut self, message: Option<&String>, piece: &str, thinks: bool) {
        let piece = clean(piece);
        let mut rest = piece.as_str();
        if let Some(Entry { what, .. }) = self.entries.back_mut() {
            let open = match what {
                What::Text { message: of, text } if !thinks && of.as_ref() == message => Some(text),
                What::Thought { message: of, text } if thinks && of.as_ref() == message => {
                    Some(text)
                }
                _ => None,
            };
            if let Some(text) = open.filter(|text| text.len() + rest.len() <= TEXT_BYTES_MAX) {
                text.push_str(rest);
                self.bytes += rest.len();
                return;
            }
        }
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.floor_char_boundary(TEXT_BYTES_MAX));
            let (text, message) = (now.to_owned(), message.cloned());
            self.push(match thinks {
                true => What::Thought { message, text },
                false => What::Text { message, text },
            });
            rest = later;
        }
    }

    fn call(&mut self, call: &ToolCall, directory: &str) {
        let id = &call.id;
        let shown = match changes(call, directory) {
            Some(changes) => changes,
            None => {
                let input = call.input.as_ref().map_or("", |input| &input.text);
                let input = if matches!(input, "{}" | "null") { "" } else { input };
                format!("{} {input}", call.title)
            }
        };
        let shown = short(&shown);
        let mut back = self.entries.iter_mut().rev().take(CALLS_BACK);
        let known = back.find_map(|entry| match &mut entry.what {
            What::Call { id: of, title, ok: None, .. } if of == id => Some(title),
            _ => None,
        });
        match known {
            Some(title) => {
                self.bytes = self.bytes + shown.len() - title.len();
                *title = shown;
            }
            None => self.push(What::Call {
                id: id.to_owned(),
                title: shown,
                ok: None,
                said: String::new(),
            }),
        }
    }

    fn result(&mut self, id: &str, is_ok: bool, output: &str) {
        let output = short(output);
        let mut back = self.entries.iter_mut().rev().take(CALLS_BACK);
        let known = back.find_map(|entry| match &mut entry.what {
            What::Call { id: of, ok, said, .. } if of == id => Some((ok, said)),
            _ => None,
        });
        if let Some((ok, said)) = known {
            *ok = Some(is_ok);
            self.bytes = self.bytes + output.len() - said.len();
            *said = output;
        }
    }
}

/// Returns what a call changes, as `path +2 -1`, if its arguments tell: agent programs have their own words for that.
fn changes(call: &ToolCall, directory: &str) -> Option<String> {
    if call.kind != ToolKind::Edit {
        return None;
    }
    let input: Value = serde_json::from_str(&call.input.as_ref()?.text).ok()?;
    let word = |of: &Value, names: &[&str]| {
        names.iter().find_map(|name| of[*name].as_str()).map(str::to_owned)
    };
    let path_of = |of: &Value| word(of, &["file_path", "filePath", "path"]);
    let near = |path: String| match path.strip_prefix(directory) {
        Some(rest) if rest.starts_with('/') && !directory.is_empty() => rest[1..].to_owned(),
        Some(_) | None => path,
    };
    let edit = |of: &Value| {
        let new = ["new_string", "newString", "new_str", "content", "file_text", "text"];
        let old = word(of, &["old_string", "oldString", "old_str"]);
        let new = word(of, &new)?;
        Some(counted(&old.unwrap_or_default(), &new))
    };
    // A list of files, each with a patch.
    if let Some(files) = input.as_array() {
        let shown = files.iter().filter_map(|file| {
            let (plus, minus) = patched(file["diff"].as_str()?, file["kind"]["type"].as_str()?);
            Some(format!("{} +{plus} -{minus}", near(path_of(file)?)))
        });
        let shown: Vec<String> = shown.collect();
        return (!shown.is_empty()).then(|| shown.join(", "));
    }
    let path = near(path_of(&input)?);
    let edits = match input["edits"].as_array() {
        Some(edits) => edits.iter().filter_map(edit).collect(),
        None => vec![edit(&input)?],
    };
    let sum = edits.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Some(format!("{path} +{} -{}", sum.0, sum.1))
}

/// Returns how many lines are new and how many are gone, where one part of a file is replaced.
fn counted(old: &str, new: &str) -> (usize, usize) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    (new.len() - same, old.len() - same)
}

/// The same of a patch; that of a new or removed file is just its lines.
fn patched(diff: &str, kind: &str) -> (usize, usize) {
    let n = |sign: char, head: &str| {
        diff.lines().filter(|line| line.starts_with(sign) && !line.starts_with(head)).count()
    };
    match kind {
        "add" => (diff.lines().count(), 0),
        "delete" => (0, diff.lines().count()),
        _ => (n('+', "+++ "), n('-', "--- ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(stream: &Stream, columns: usize, unfolded: bool) -> Vec<String> {
        let lines = stream.entries().flat_map(|entry| entry.lines(columns, unfolded));
        lines.map(|(_, line)| line).collect()
    }

    #[test]
    fn pieces_are_put_together_and_thoughts_folded() {
        let mut stream = Stream::default();
        for record in [
            json!({"type": "thought", "text": "first this,\n", "message": "a"}),
            json!({"type": "thought", "text": "then that", "message": "a"}),
            json!({"type": "text", "text": "I beg", "message": "b"}),
            json!({"type": "text", "text": "in.\u{1b}[2J", "message": "b"}),
            json!({"type": "text", "text": "Next.", "message": "c"}),
            json!({"type": "tool_call", "id": "1", "title": "ls", "kind": "execute", "input": {"text": "{}"}}),
            json!({"type": "tool_call", "id": "1", "title": "ls -l", "kind": "execute"}),
            json!({"type": "tool_result", "id": "1", "ok": true, "output": {"text": "a\nb\u{7}"}}),
            json!({"type": "tool_call", "id": "2", "title": "rm", "kind": "execute"}),
            json!({"type": "tool_result", "id": "2", "ok": false, "output": {"text": "no"}}),
            json!({"type": "tool_call", "id": "3", "title": "wait", "kind": "other"}),
            json!({"type": "usage"}),
        ] {
            stream.take(&records::event(&record).unwrap(), "/project");
        }
        let folded = shown(&stream, 40, false);
        let rest = ["I begin.", "Next.", "✓ ls -l → a b", "✗ rm → no", "* wait"];
        assert_eq!(folded[0], "~ first this, then that");
        assert_eq!(folded[1..], rest);
        let unfolded = shown(&stream, 40, true);
        assert_eq!(unfolded[..2], ["~ first this,", "~ then that"]);
        assert_eq!(unfolded[2..], rest);
    }

    fn edit(input: &str) -> ToolCall {
        let call = json!({"id": "1", "kind": "edit", "title": "Edit", "input": {"text": input}});
        serde_json::from_value(call).unwrap()
    }

    #[test]
    fn changes_are_counted_in_every_programs_words() {
        let shown = |input: Value| changes(&edit(&input.to_string()), "/p");
        let cases = [
            (
                json!({"file_path": "/p/a.rs", "old_string": "a\nb\nc", "new_string": "a\nx\ny\nc"}),
                "a.rs +2 -1",
            ),
            (json!({"filePath": "/q/a", "content": "one\ntwo\n"}), "/q/a +2 -0"),
            (json!({"path": "/p/a", "old_str": "x\n", "new_str": ""}), "a +0 -1"),
            (
                json!({"file_path": "/p/a", "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}]}),
                "a +1 -2",
            ),
            (
                json!([{"path": "/p/n", "kind": {"type": "add"}, "diff": "a\nb\n"}, {"path": "/p/u", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-a\n+b\n+c\n"}]),
                "n +2 -0, u +2 -1",
            ),
        ];
        for (input, wanted) in cases {
            assert_eq!(shown(input).as_deref(), Some(wanted));
        }
        assert_eq!(shown(json!({"path": 3})), None);
        assert_eq!(changes(&edit("{\"cut"), "/p"), None);
    }

    #[test]
    fn only_the_newest_part_is_kept() {
        let mut stream = Stream::default();
        let long = "x".repeat(100_000);
        for n in 0..2_000 {
            let message = Some(n.to_string());
            stream.take(&Event::Text(Piece { text: long.clone(), message }), "");
        }
        assert!(stream.bytes <= BYTES_MAX);
        assert_eq!(
            stream.bytes,
            stream.entries.iter().map(|entry| entry.what.bytes()).sum::<usize>()
        );
        for n in 0..10_000 {
            stream.take(&Event::Trouble { message: n.to_string() }, "");
        }
        assert_eq!(stream.entries.len(), ENTRIES_MAX);
    }
}
