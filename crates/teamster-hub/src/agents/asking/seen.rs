//! What is seen of a call that a program asks permission for: what is certain, for rules that allow, and everything that
//! the program shows, for rules that deny or ask.

use serde_json::Value;
use teamster_agents::agent::{LABEL_BYTES_MAX, ToolCall, ToolKind};
use teamster_core::permission::{Ours, PermissionRequest};

use super::ours::ours;
use crate::programs::Programs;

/// Maximum texts that are looked for in a tool's arguments, and how deep.
const TEXTS_MAX: usize = 1_000;
const DEPTH_MAX: usize = 8;
/// Maximum commands that are looked for in what a shell is given.
const COMMANDS_MAX: usize = 1_000;
/// A longer text is no tool's name.
const NAME_BYTES_MAX: usize = 128;

/// The kind of what runs commands.
const EXECUTE: &str = "execute";

pub(super) struct Seen {
    arguments: Value,
    name: String,
    aliases: Vec<String>,
    kind: &'static str,
    kinds: Vec<&'static str>,
    /// What the program shows beside the arguments, and the single commands in all of it.
    shown: Vec<String>,
    pub(super) ours: Ours,
    /// Nothing is known of the call.
    pub(super) is_blank: bool,
    /// Everything that the program shows was looked at.
    pub(super) is_whole: bool,
}

impl Seen {
    /// Looks at a call of a program.
    pub(super) fn of(call: &ToolCall, program: &str, programs: &Programs) -> Self {
        let input = call.input.as_ref().map(|input| input.text.as_str()).unwrap_or_default();
        let is_cut = call.input.as_ref().is_some_and(|input| input.cut_bytes > 0);
        // What is written into a file may be long; what matters is which file, and drivers tell that beside it.
        let is_edit = call.kind == ToolKind::Edit && !call.targets.is_empty();
        let arguments = match serde_json::from_str(input) {
            Ok(arguments) => arguments,
            Err(_) if is_cut && is_edit => Value::Null,
            Err(_) => Value::String(input.to_owned()),
        };
        let ours = ours(call, &arguments);
        let aliases = aliases(call);
        let own = call.name.iter().flat_map(|name| names(name));
        let own = own.filter_map(|name| programs.kind_of(program, name)).next();
        let kind = own.unwrap_or(kind_word(call.kind));
        let mut kinds = vec![kind_word(call.kind)];
        kinds.extend(aliases.iter().flat_map(|alias| programs.kinds_of(alias)));
        // What is too long to be read may be a command.
        let is_unread = is_cut && arguments.is_string() && call.kind == ToolKind::Other;
        if ours == Ours::No && (has_command(&arguments) || is_unread) {
            kinds.push(EXECUTE);
        }
        let may_run = kind == EXECUTE || kinds.contains(&EXECUTE);
        let name = match &call.name {
            Some(name) => name.clone(),
            // A command is no name: the model wrote it.
            None if may_run => String::new(),
            None => call.title.clone(),
        };
        let mut found = Texts { is_whole: true, ..Texts::default() };
        found.collect(&arguments, DEPTH_MAX, false);
        let mut is_whole = found.is_whole && (is_edit || !is_cut);
        is_whole &= call.shown.cut_bytes == 0 || is_edit;
        is_whole &= !is_title_cut(call) || call.input.is_some();
        let mut shown: Vec<String> = call.shown.texts.clone();
        shown.push(call.title.clone());
        if may_run {
            let all = shown.iter().map(String::as_str).chain(found.targets);
            let commands: Vec<String> = all.flat_map(commands).take(COMMANDS_MAX + 1).collect();
            is_whole &= commands.len() <= COMMANDS_MAX;
            shown.extend(commands);
        }
        let is_blank = call.input.is_none() && call.targets.is_empty() && call.title == call.id;
        Self { arguments, name, aliases, kind, kinds, shown, ours, is_blank, is_whole }
    }

    pub(super) fn asked<'a>(&'a self, call: &'a ToolCall) -> PermissionRequest<'a> {
        let mut found = Texts::default();
        found.collect(&self.arguments, DEPTH_MAX, false);
        let files = call.targets.iter().map(String::as_str);
        // A rule about a command means the command, not the files that the program thinks it is about.
        let (targets, files): (Vec<&str>, Vec<&str>) = match has_command(&self.arguments) {
            true => (found.targets, files.collect()),
            false => (files.chain(found.targets).collect(), Vec::new()),
        };
        let mut texts = found.all;
        texts.extend(files);
        texts.extend(self.shown.iter().map(String::as_str));
        PermissionRequest {
            name: &self.name,
            aliases: self.aliases.iter().map(String::as_str).collect(),
            kind: self.kind,
            kinds: self.kinds.clone(),
            targets,
            texts,
            ours: self.ours,
        }
    }
}

pub(super) fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => EXECUTE,
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::Other => "other",
    }
}

/// Returns the names that a tool may go by: its own, its titles, and each without the server or what follows it.
fn aliases(call: &ToolCall) -> Vec<String> {
    let is_word = |text: &&str| !text.contains(char::is_whitespace);
    let shown = call.shown.texts.iter().map(String::as_str).filter(is_word);
    let all = call.name.iter().chain([&call.title]).map(String::as_str).chain(shown);
    let mut aliases: Vec<String> = Vec::new();
    for name in all.flat_map(names) {
        if !aliases.iter().any(|known| known == name) {
            aliases.push(name.to_owned());
        }
    }
    aliases
}

/// Returns a name, its part after the server's, and its part before what it is about: `developer__shell`, `shell · ls`,
/// `bash: ls`.
fn names(name: &str) -> impl Iterator<Item = &str> {
    let after = ["__", "/", "."].into_iter().filter_map(|mark| Some(name.rsplit_once(mark)?.1));
    let before = [" · ", ": "].into_iter().filter_map(|mark| Some(name.split_once(mark)?.0));
    let fits = |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    std::iter::once(name).chain(after).chain(before).filter(fits)
}

/// A title that was longer than what is kept, and of which nothing more is shown.
fn is_title_cut(call: &ToolCall) -> bool {
    let Some(kept) = call.title.strip_suffix('…') else { return false };
    let is_full = call.title.len() >= LABEL_BYTES_MAX;
    is_full && !call.shown.texts.iter().any(|text| text.starts_with(kept))
}

/// Under these names tools take what a shell is to run.
const COMMANDS: [&str; 6] = ["command", "commands", "cmd", "cmdline", "script", "shell_command"];

/// And under these, where.
const DIRECTORIES: [&str; 4] = ["cwd", "directory", "workdir", "working_directory"];

fn has_command(arguments: &Value) -> bool {
    let is_text = |value: &Value| value.is_string() || value.is_array();
    COMMANDS.iter().any(|key| arguments.get(key).is_some_and(is_text))
}

/// Returns the single commands in what a shell is given, with what programs write around a command taken off.
fn commands(text: &str) -> impl Iterator<Item = String> {
    const BETWEEN: [char; 10] = [';', '&', '|', '\n', '\r', '`', '(', ')', '"', '\''];
    // Gemini names the directory behind a command.
    let text = text.split(" [current working directory ").next().unwrap_or(text);
    let parts = text.split(BETWEEN).flat_map(|part| {
        let after =
            [": ", " · ", "$ "].into_iter().filter_map(|mark| Some(part.split_once(mark)?.1));
        std::iter::once(part).chain(after).map(|part| part.trim().to_owned()).collect::<Vec<_>>()
    });
    parts.filter(|part| !part.is_empty())
}

/// Under these names programs give remarks and contents; all else is what a call is about.
const NO_TARGETS: [&str; 14] = [
    "description",
    "explanation",
    "reason",
    "justification",
    "thought",
    "content",
    "contents",
    "file_text",
    "text",
    "old_string",
    "new_string",
    "old_str",
    "new_str",
    "prompt",
];

/// The texts in a tool's arguments.
#[derive(Default)]
struct Texts<'a> {
    /// Names included.
    all: Vec<&'a str>,
    /// Those that may be what the call is about.
    targets: Vec<&'a str>,
    /// All of them were looked at.
    is_whole: bool,
}

impl<'a> Texts<'a> {
    fn collect(&mut self, value: &'a Value, depth: usize, is_remark: bool) {
        if depth == 0 || self.all.len() >= TEXTS_MAX {
            self.is_whole = false;
            return;
        }
        match value {
            Value::String(text) => {
                self.all.push(text);
                if !is_remark {
                    self.targets.push(text);
                }
            }
            Value::Array(all) => all.iter().for_each(|one| self.collect(one, depth - 1, is_remark)),
            Value::Object(all) => {
                let runs = has_command(value);
                all.iter().for_each(|(key, one)| {
                    let key = key.as_str();
                    self.all.push(key);
                    let is_place = runs && DIRECTORIES.contains(&key);
                    let is_remark = is_remark || is_place || NO_TARGETS.contains(&key);
                    self.collect(one, depth - 1, is_remark);
                });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
