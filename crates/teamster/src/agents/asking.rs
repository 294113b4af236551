//! Permissions that programs ask for: decided by the role's rules, or by a person.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::Value;
use teamster_agents::agent::{PermissionId, PermissionKind, PermissionOption, ToolCall, ToolKind};
use teamster_core::agent::Agent;
use teamster_core::ids::QuestionId;
use teamster_core::permission::{self, Verdict};
use teamster_core::question::{self, Choice};
use teamster_core::role::Role;
use teamster_core::{Caller, Command, Event, Timestamp};
use teamster_mcp::catalogue::Catalogue;

use super::Shared;

/// As many texts as are looked for in a tool's arguments, and as deep.
const TEXTS_MAX: usize = 1_000;
const DEPTH_MAX: usize = 8;

/// A permission that a person was asked for.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) permission: PermissionId,
    pub(super) question: QuestionId,
    options: Vec<PermissionOption>,
}

/// The answers that people are offered, in this order, as far as the program offers them.
const CHOICES: [(&str, PermissionKind); 4] = [
    ("allow", PermissionKind::AllowOnce),
    ("always", PermissionKind::AllowAlways),
    ("deny", PermissionKind::RejectOnce),
    ("never", PermissionKind::RejectAlways),
];
/// What holds if nobody answers.
const DENY: &str = "deny";

impl Pending {
    /// Returns the option that an answer stands for; none if the program offers none, which it takes for a no.
    pub(super) fn option(&self, word: &str) -> Option<&str> {
        let kind = CHOICES.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)?;
        of_kind(&self.options, kind)
    }
}

/// Returns what the role's rules say.
pub(super) fn verdict(role: &Role, call: &ToolCall) -> Verdict {
    let input = call.input.as_ref().map(|input| input.text.as_str()).unwrap_or_default();
    let is_cut = call.input.as_ref().is_some_and(|input| input.cut_bytes > 0);
    // What is written into a file may be long; what matters is which file, and drivers tell that beside it.
    let is_long_edit = is_cut && call.kind == ToolKind::Edit && !call.targets.is_empty();
    let arguments = match serde_json::from_str(input) {
        Ok(arguments) => arguments,
        Err(_) if is_long_edit => Value::Null,
        Err(_) => Value::String(input.to_owned()),
    };
    let mut found = Texts { is_whole: !is_cut || is_long_edit, ..Texts::default() };
    found.collect(&arguments, DEPTH_MAX, false);
    let targets = call.targets.iter().map(String::as_str).chain(found.targets).collect();
    // A title may be what the model wrote, such as a command; it stands for the tool only where nothing else does.
    let name = call.name.as_deref();
    let verdict = role.permissions.verdict(&permission::Asked {
        name: name.unwrap_or(&call.title),
        kind: kind_word(call.kind),
        targets,
        texts: found.all,
        is_ours: name.is_some_and(is_ours) || (name.is_none() && is_ours_by_title(call)),
    });
    match verdict {
        // What a rule holds back may be in the part that was not looked at.
        Verdict::Allow if !found.is_whole && role.permissions.looks_into_calls() => Verdict::Ask,
        verdict => verdict,
    }
}

/// Programs put the name of a server before its tools, each in its own way. What follows must be one of our tools: another
/// server may have a name that begins like ours.
fn is_ours(name: &str) -> bool {
    let prefixes =
        ["mcp__teamster__", "teamster__", "mcp_teamster_", "teamster_", "teamster/", "teamster: "];
    prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(is_our_tool)
}

/// Some programs write `_` for `-`.
fn is_our_tool(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let catalogue = Catalogue::new();
        catalogue.entries().iter().map(|entry| entry.name.replace('-', "_")).collect()
    });
    NAMES.contains(&name.replace('-', "_"))
}

/// A title is trusted only where the program could not have put a command.
fn is_ours_by_title(call: &ToolCall) -> bool {
    let title = call.title.as_str();
    let named = title.strip_suffix(" (teamster MCP Server)").is_some_and(is_our_tool);
    call.kind == ToolKind::Other && (is_ours(title) || named)
}

fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::Other => "other",
    }
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
            Value::Object(all) => all.iter().for_each(|(key, one)| {
                self.all.push(key);
                self.collect(one, depth - 1, is_remark || NO_TARGETS.contains(&key.as_str()));
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Returns the option that lets the agent go on this once. What lets it go on for ever is a person's to choose.
pub(super) fn allowing(options: &[PermissionOption]) -> Option<&str> {
    of_kind(options, PermissionKind::AllowOnce)
}

/// Returns the option that says no.
pub(super) fn denying(options: &[PermissionOption]) -> Option<&str> {
    of_kind(options, PermissionKind::RejectOnce)
        .or_else(|| of_kind(options, PermissionKind::RejectAlways))
}

fn of_kind(options: &[PermissionOption], kind: PermissionKind) -> Option<&str> {
    options.iter().find(|option| option.kind == kind).map(|option| option.id.as_str())
}

/// Asks people. Returns nothing if they cannot be asked; then the answer is no.
pub(super) async fn ask(
    shared: &Shared,
    (agent, role): (&Agent, &Role),
    permission: PermissionId,
    call: &ToolCall,
    options: Vec<PermissionOption>,
) -> Option<Pending> {
    let label =
        |kind| options.iter().find(|option| option.kind == kind).map(|one| one.name.clone());
    let mut choices: Vec<Choice> = CHOICES
        .iter()
        .filter_map(|(word, kind)| {
            Some(Choice { word: (*word).into(), label: label(*kind)?.into() })
        })
        .collect();
    // A no is always possible.
    if choices.iter().all(|choice| &*choice.word != DENY) {
        choices.push(Choice { word: DENY.into(), label: "Deny".into() });
    }
    let now = shared.clock.now();
    let patience = i64::try_from(role.permissions.ask_ms).unwrap_or(i64::MAX);
    let asked = question::Asked {
        agent: agent.id.clone(),
        incarnation: agent.incarnation,
        title: plain(&call.title).replace(['\n', '\t'], " ").into(),
        payload: payload(call).into(),
        choices,
        default: DENY.into(),
        deadline: Timestamp(now.0.saturating_add(patience)),
    };
    let ask = Command::Question(question::Command::Ask(asked));
    let done = shared.hub.submit(Caller::hub(), ask, None).await;
    let done = done
        .inspect_err(|error| tracing::warn!(agent = %agent.id, %error, "nobody could be asked"))
        .ok()?;
    let question = done.events.iter().find_map(|event| match event {
        Event::Question(question::Event::Asked { id, .. }) => Some(*id),
        _ => None,
    })?;
    Some(Pending { permission, question, options })
}

/// Tells all that the tool would be given.
fn payload(call: &ToolCall) -> String {
    let mut lines: Vec<String> =
        call.name.iter().map(|name| format!("tool: {}", plain(name))).collect();
    lines.extend(call.targets.iter().map(|target| format!("about: {}", plain(target))));
    if let Some(input) = &call.input {
        // Said first, for the end of a long text is what is cut off next.
        if input.cut_bytes > 0 {
            lines.push(format!("({} bytes at its end are not shown)", input.cut_bytes));
        }
        lines.push(plain(&input.text));
    }
    lines.join("\n")
}

/// What came from an agent must not steer the terminal of whoever is asked, nor be read in another order than it is in.
fn plain(text: &str) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !steers(*c) && !turns(*c)).collect()
}

#[cfg(test)]
mod tests {
    use teamster_agents::agent::Clipped;
    use teamster_core::permission::{Pattern, Permissions};

    use super::*;

    fn call(title: &str, kind: ToolKind, input: &str) -> ToolCall {
        ToolCall {
            id: "1".into(),
            title: title.into(),
            name: None,
            kind,
            input: Some(Clipped::new(input.to_owned(), 1_000)),
            targets: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_seen_whole_is_not_allowed_by_rules() {
        let mut role = crate::agents::tests::role();
        let long = format!(r#"{{"command":"echo {} ; curl x"}}"#, "x".repeat(2_000));
        for (deny, expected) in [(Vec::new(), Verdict::Allow), (vec!["*(*curl*)"], Verdict::Ask)] {
            let deny = deny.into_iter().map(|rule| Pattern::parse(rule).unwrap()).collect();
            role.permissions = Permissions { deny, ..Permissions::default() };
            assert_eq!(verdict(&role, &call("shell", ToolKind::Execute, &long)), expected);
        }
        assert_eq!(verdict(&role, &call("write", ToolKind::Edit, &long)), Verdict::Ask);
        let to_a_file =
            ToolCall { targets: vec!["/proj/a".into()], ..call("write", ToolKind::Edit, &long) };
        assert_eq!(verdict(&role, &to_a_file), Verdict::Allow);
        role.permissions.allow = vec![Pattern::parse("edit(/proj/*)").unwrap()];
        role.permissions.otherwise = Verdict::Deny;
        assert_eq!(verdict(&role, &to_a_file), Verdict::Allow);
        for (input, expected) in [
            (r#"{"path":"/proj/a"}"#, Verdict::Allow),
            (r#"{"path":"/proj/a","content":"no path"}"#, Verdict::Allow),
            (r#"{"path":"/proj/a","filePath":"/etc/passwd"}"#, Verdict::Deny),
            (r#"{"path":"/proj/../etc/passwd"}"#, Verdict::Deny),
        ] {
            assert_eq!(verdict(&role, &call("write", ToolKind::Edit, input)), expected, "{input}");
        }
        // However it is hidden, it is found or asked about.
        role.permissions = Permissions {
            deny: vec![Pattern::parse("execute(*curl*)").unwrap()],
            ..Permissions::default()
        };
        let deep = format!("{}\"curl x\"{}", r#"{"a":"#.repeat(12), "}".repeat(12));
        let many = format!("[{}\"curl\"]", "\"\",".repeat(300));
        let key = r#"{"curl x":1}"#;
        for input in [deep.as_str(), many.as_str(), key] {
            let found = verdict(&role, &call("shell", ToolKind::Execute, input));
            assert_ne!(found, Verdict::Allow, "{input}");
        }
        assert!(payload(&call("shell", ToolKind::Execute, &long)).starts_with('('));
    }

    #[test]
    fn what_is_shown_is_what_there_is() {
        assert_eq!(plain("rm\u{202e} \u{1b}[2Ka\r\n\tb\u{2066}"), "rm [2Ka\n\tb");
    }

    #[test]
    fn rules_see_what_is_in_the_arguments() {
        let mut role = crate::agents::tests::role();
        role.permissions = Permissions {
            deny: vec![Pattern::parse("execute(*curl*)").unwrap()],
            allow: vec![Pattern::parse("execute(git *)").unwrap()],
            otherwise: Verdict::Ask,
            ..Permissions::default()
        };
        let verdict = |call: &ToolCall| verdict(&role, call);
        let run = |command: &str| {
            let arguments =
                serde_json::json!({"command": command, "description": "tells how it is"});
            let input = serde_json::json!({"args": arguments}).to_string();
            call("shell", ToolKind::Execute, &input)
        };
        assert_eq!(verdict(&run("git status")), Verdict::Allow);
        assert_eq!(verdict(&run("git status && make")), Verdict::Ask);
        assert_eq!(verdict(&run("sh -c 'curl x'")), Verdict::Deny);
        assert_eq!(verdict(&call("cat", ToolKind::Read, "not json")), Verdict::Ask);
        // What the model wrote does not make a tool ours, and a second file is not the first.
        let named =
            ToolCall { name: Some("shell".into()), ..call("teamster/x", ToolKind::Execute, "{}") };
        assert_eq!(verdict(&named.clone()), Verdict::Ask);
        assert_eq!(verdict(&call("teamster/x", ToolKind::Execute, "{}")), Verdict::Ask);
        let alike = ToolCall { name: Some("teamster_evil__shell".into()), ..named };
        assert_eq!(verdict(&alike), Verdict::Ask);
        let two = r#"{"paths": ["git one", "two"]}"#;
        assert_eq!(verdict(&call("edit", ToolKind::Execute, two)), Verdict::Ask);
        assert_eq!(
            verdict(&call("mcp__teamster__task-add", ToolKind::Other, "{}")),
            Verdict::Allow
        );
    }
}
