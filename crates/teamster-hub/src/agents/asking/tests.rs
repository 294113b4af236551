use std::sync::LazyLock;

use serde_json::{Value, json};
use teamster_agents::agent::{Begin, Clipped, Event, Shown, ToolKind};
use teamster_agents::drivers::acp::Acp;
use teamster_agents::drivers::{Driver, Out};
use teamster_core::permission::Pattern;

use super::*;

fn call(title: &str, kind: ToolKind, input: &str) -> ToolCall {
    ToolCall {
        id: "1".into(),
        title: title.into(),
        name: None,
        kind,
        input: Some(Clipped::new(input.to_owned(), 1_000)),
        targets: Vec::new(),
        shown: Shown::default(),
    }
}

/// Decides with the programs that are built in.
fn verdict(role: &Role, call: &ToolCall) -> Verdict {
    static BUILT_IN: LazyLock<Programs> = LazyLock::new(|| {
        crate::settings::read(&crate::settings::Sources::default()).settings.programs
    });
    super::verdict(role, call, &BUILT_IN)
}

fn rules(list: &[&str]) -> Vec<Pattern> {
    list.iter().map(|rule| Pattern::parse(rule).unwrap()).collect()
}

/// What a program sends of one call up to its request for permission, as recorded.
struct Recorded {
    program: &'static str,
    /// Updates, then the request's call.
    updates: Vec<Value>,
    request: Value,
    options: Vec<&'static str>,
}

impl Recorded {
    /// Returns the call that our driver makes of it.
    fn call(&self) -> ToolCall {
        let mut driver = Acp::default();
        let mut out = Out::default();
        let mut hear = |driver: &mut Acp, mut message: Value| {
            message["jsonrpc"] = "2.0".into();
            driver.hear(message.to_string().as_bytes(), &mut out);
            out.take_events()
        };
        driver.begin(&Begin { directory: "/w".into(), ..Begin::default() }, &mut Out::default());
        hear(&mut driver, json!({"id": 1, "result": {"protocolVersion": 1}}));
        hear(&mut driver, json!({"id": 2, "result": {"sessionId": "s"}}));
        driver.prompt("work", &mut Out::default());
        for update in &self.updates {
            let mut update = update.clone();
            update["toolCallId"] = "call-1".into();
            let params = json!({"sessionId": "s", "update": update});
            hear(&mut driver, json!({"method": "session/update", "params": params}));
        }
        let mut call = self.request.clone();
        call["toolCallId"] = "call-1".into();
        let options = self
            .options
            .iter()
            .map(|name| json!({"optionId": name, "name": name, "kind": "allow_once"}));
        let params =
            json!({"sessionId": "s", "toolCall": call, "options": options.collect::<Vec<_>>()});
        let request = json!({"id": 9, "method": "session/request_permission", "params": params});
        let events = hear(&mut driver, request);
        let asked = events.into_iter().find_map(|event| match event {
            Event::PermissionAsked { call, .. } => Some(call),
            _ => None,
        });
        asked.unwrap_or_else(|| panic!("{}: nothing is asked", self.program))
    }

    fn verdict(&self, permissions: &Permissions) -> Verdict {
        let mut role = crate::agents::tests::role();
        role.program = self.program.into();
        role.permissions = permissions.clone();
        verdict(&role, &self.call())
    }
}

fn text(text: &str) -> Value {
    json!([{"type": "content", "content": {"type": "text", "text": text}}])
}

fn recorded(program: &'static str, updates: Vec<Value>, request: Value) -> Recorded {
    Recorded { program, updates, request, options: vec!["Allow", "Reject"] }
}

/// How each program asks to run a command.
fn shell(command: &str) -> Vec<Recorded> {
    let (call, update) = ("tool_call", "tool_call_update");
    let input = json!({"command": command});
    vec![
        recorded(
            "goose",
            vec![
                json!({"sessionUpdate": call, "title": format!("shell · {command}"), "rawInput": input,
                        "_meta": {"goose": {"toolCall": {"toolName": "shell", "extensionName": "developer"}}}}),
            ],
            json!({"kind": "other", "status": "pending", "title": format!("shell · {command}"), "rawInput": input}),
        ),
        recorded(
            "opencode",
            vec![
                json!({"sessionUpdate": call, "title": "bash", "kind": "execute", "rawInput": {"cwd": "/w"}}),
            ],
            json!({"title": command, "kind": "execute", "status": "pending", "locations": [], "rawInput": input}),
        ),
        recorded(
            "gemini",
            vec![],
            json!({"status": "pending", "title": command, "kind": "execute", "locations": [],
                   "content": text("[current working directory /w] (does what was asked)")}),
        ),
        // An older version has the directory in the title.
        recorded(
            "gemini",
            vec![],
            json!({"title": format!("{command} [current working directory /w] (a remark)"), "kind": "execute"}),
        ),
        recorded(
            "qwen",
            vec![
                json!({"sessionUpdate": call, "title": "Shell", "kind": "execute", "rawInput": {},
                        "_meta": {"toolName": "run_shell_command", "phase": "preparing"}}),
            ],
            json!({"title": format!("{command} (a remark)"), "kind": "execute", "content": [], "locations": [],
                   "rawInput": {"command": command, "description": "a remark"},
                   "_meta": {"toolName": "run_shell_command"}}),
        ),
        recorded(
            "claude-agent-acp",
            vec![
                json!({"sessionUpdate": call, "title": "Terminal", "name": "Bash", "kind": "execute", "rawInput": {}}),
            ],
            json!({"title": command, "name": "Bash", "kind": "execute", "rawInput": input,
                   "content": text("a remark"), "locations": [{"path": "/w/x"}]}),
        ),
        recorded(
            "codex-acp",
            vec![
                json!({"sessionUpdate": call, "title": command, "kind": "execute", "status": "in_progress",
                        "rawInput": {"command": command, "cwd": "/w"}}),
            ],
            json!({"title": command, "kind": "execute", "rawInput": {"command": command, "cwd": "/w"}}),
        ),
        recorded(
            "copilot",
            vec![json!({"sessionUpdate": call, "title": "a remark", "kind": "execute",
                        "rawInput": {"command": command, "description": "a remark", "mode": "sync"}})],
            json!({"title": "a remark", "kind": "execute", "rawInput": {"command": command, "commands": [command]}}),
        ),
        recorded(
            "kimi",
            vec![
                json!({"sessionUpdate": call, "title": "Bash", "kind": "execute", "content": text("")}),
                json!({"sessionUpdate": update, "status": "in_progress", "content": text(&input.to_string())}),
            ],
            json!({"title": "Bash", "content": text(&format!("Requesting approval to Running: {command}"))}),
        ),
        recorded(
            "vibe",
            vec![
                json!({"sessionUpdate": call, "title": format!("bash: {command}"), "kind": "execute",
                        "rawInput": input, "_meta": {"tool_name": "bash", "effect_kind": "shell"}}),
            ],
            json!({}),
        ),
        // One that the user adds, and that shows as little as possible.
        recorded("mine", vec![], json!({"title": format!("shell: {command}")})),
        recorded(
            "mine",
            vec![],
            json!({"title": "runner", "rawInput": {"cmd": ["sh", "-c", command]}}),
        ),
    ]
}

/// How each program asks to change a file.
fn edits(path: &str) -> Vec<Recorded> {
    let call = "tool_call";
    let diff = json!([{"type": "diff", "path": path, "oldText": "", "newText": "hello"}]);
    let at = json!([{"path": path}]);
    vec![
        recorded(
            "goose",
            vec![json!({"sessionUpdate": call, "title": format!("write · {path}"),
                        "rawInput": {"path": path, "content": "hello"},
                        "_meta": {"goose": {"toolCall": {"toolName": "write"}}}})],
            json!({"kind": "other", "title": format!("write · {path}"), "rawInput": {"path": path, "content": "hello"}}),
        ),
        recorded(
            "opencode",
            vec![json!({"sessionUpdate": call, "title": "write", "kind": "edit", "rawInput": {}})],
            json!({"title": path, "kind": "edit", "locations": at, "content": diff,
                   "rawInput": {"filepath": path, "diff": "+hello"}}),
        ),
        recorded(
            "gemini",
            vec![],
            json!({"title": "Writing to f.txt", "kind": "edit", "locations": at, "content": diff}),
        ),
        recorded(
            "gemini",
            vec![],
            json!({"title": "Writing to f.txt", "kind": "edit", "content": diff}),
        ),
        recorded(
            "qwen",
            vec![],
            json!({"title": "Writing to f.txt", "kind": "edit", "locations": at, "content": diff,
                   "rawInput": {"file_path": path, "content": "hello"}, "_meta": {"toolName": "write_file"}}),
        ),
        recorded(
            "claude-agent-acp",
            vec![],
            json!({"title": "Write f.txt", "name": "Write", "kind": "edit", "locations": at, "content": diff,
                   "rawInput": {"file_path": path, "content": "hello"}}),
        ),
        recorded(
            "copilot",
            vec![],
            json!({"title": "Create file", "kind": "edit", "locations": at,
                   "rawInput": {"fileName": path, "diff": "+hello"}}),
        ),
        recorded(
            "kimi",
            vec![
                json!({"sessionUpdate": call, "title": "Write", "kind": "edit", "content": text("")}),
                json!({"sessionUpdate": "tool_call_update",
                       "content": text(&json!({"path": path, "content": "hello"}).to_string())}),
            ],
            json!({"title": "Write", "content": text("Requesting approval to Writing f.txt")}),
        ),
        recorded(
            "vibe",
            vec![
                json!({"sessionUpdate": call, "title": "Writing f.txt", "kind": "edit", "locations": at,
                        "content": diff, "rawInput": {"filePath": path, "content": "hello"},
                        "_meta": {"tool_name": "write_file"}}),
            ],
            json!({}),
        ),
    ]
}

fn check(all: Vec<Recorded>, permissions: &Permissions, expected: Verdict) {
    for (n, recorded) in all.iter().enumerate() {
        let found = recorded.verdict(permissions);
        assert_eq!(
            found,
            expected,
            "{} ({n}) with {permissions:?}\n{:?}",
            recorded.program,
            recorded.call()
        );
    }
}

#[test]
fn commands_of_every_program_are_denied_and_asked_about() {
    let deny = |rule: &str| Permissions { deny: rules(&[rule]), ..Permissions::default() };
    let ask = |rule: &str| Permissions { ask: rules(&[rule]), ..Permissions::default() };
    for rule in ["execute", "execute(*curl*)", "execute(curl *)", "*(curl -s http://x/)"] {
        check(shell("curl -s http://x/"), &deny(rule), Verdict::Deny);
        check(shell("curl -s http://x/"), &ask(rule), Verdict::Ask);
    }
    // In a chain, too.
    check(shell("cd /w && git push origin"), &ask("execute(git push*)"), Verdict::Ask);
    check(shell("bash -lc 'git push origin'"), &ask("execute(git push*)"), Verdict::Ask);
    // Others are not.
    check(shell("ls -l"), &deny("execute(*curl*)"), Verdict::Allow);
    check(shell("ls -l"), &deny("edit"), Verdict::Allow);
    check(shell("ls -l"), &deny("fetch"), Verdict::Allow);
    for rule in ["edit", "edit(/w/*)", "*(*/f.txt)"] {
        check(edits("/w/f.txt"), &deny(rule), Verdict::Deny);
        check(edits("/w/f.txt"), &ask(rule), Verdict::Ask);
    }
    check(edits("/w/f.txt"), &deny("execute"), Verdict::Allow);
    check(edits("/w/f.txt"), &deny("edit(/etc/*)"), Verdict::Allow);
}

#[test]
fn a_title_allows_nothing() {
    let allow = |rule: &str| Permissions {
        allow: rules(&[rule]),
        otherwise: Verdict::Ask,
        ..Permissions::default()
    };
    for recorded in shell("git status") {
        let structured = !matches!(recorded.program, "gemini" | "mine");
        let expected = if structured { Verdict::Allow } else { Verdict::Ask };
        let found = recorded.verdict(&allow("execute(git *)"));
        assert_eq!(found, expected, "{:?}", recorded.call());
    }
    for recorded in shell("git status; curl x") {
        for rule in ["execute(git *)", "git*", "shell(git *)", "read"] {
            assert_eq!(
                recorded.verdict(&allow(rule)),
                Verdict::Ask,
                "{rule} {:?}",
                recorded.call()
            );
        }
    }
    // A kind that the program's own name contradicts allows nothing either.
    let disguised = recorded(
        "goose",
        vec![],
        json!({"title": "x", "kind": "read", "name": "developer__shell",
                                                     "rawInput": {"command": "ls"}}),
    );
    assert_eq!(disguised.verdict(&allow("read")), Verdict::Ask);
    assert_eq!(disguised.verdict(&allow("execute")), Verdict::Allow);
}

#[test]
fn a_title_that_was_not_seen_whole_is_asked_about() {
    let long = format!("echo {}; curl x", "y".repeat(3_000));
    let deny = Permissions { deny: rules(&["execute(*curl*)"]), ..Permissions::default() };
    check(shell(&long), &deny, Verdict::Deny);
    let longer = format!("echo {}; curl x", "y".repeat(30_000));
    for recorded in shell(&longer) {
        assert_ne!(recorded.verdict(&deny), Verdict::Allow, "{}", recorded.program);
    }
    // Nor is a call of which nothing is known allowed.
    let blank = recorded("vibe", vec![], json!({}));
    assert_eq!(blank.verdict(&deny), Verdict::Ask);
    assert_eq!(blank.verdict(&Permissions::default()), Verdict::Allow);
    // As many files as there are, each is looked at.
    let paths: Vec<Value> = (0..40)
        .map(|n| json!({"path": format!("/w/{n}")}))
        .chain([json!({"path": "/etc/passwd"})])
        .collect();
    let many = recorded(
        "mine",
        vec![],
        json!({"title": "change files", "kind": "edit", "locations": paths}),
    );
    let deny = Permissions { deny: rules(&["edit(/etc/*)"]), ..Permissions::default() };
    assert_eq!(many.verdict(&deny), Verdict::Deny);
}

#[test]
fn our_own_tools_are_recognised_however_they_are_spelled() {
    let strict =
        Permissions { ask: rules(&["*"]), otherwise: Verdict::Deny, ..Permissions::default() };
    let tasks = json!({"tasks": [{"content": "curl"}]});
    let ours =
        |request: Value| recorded("mine", vec![], request).verdict(&strict) == Verdict::Allow;
    for name in [
        "mcp__teamster__task-add",
        "mcp__teamster__task_add",
        "mcp__teamster/task_add",
        "mcp_teamster_task-add",
        "mcp_teamster.task_add",
        "mcp.teamster.task-add",
        "teamster__task-add",
        "teamster_task-add",
        "teamster-task-add",
        "teamster/task-add",
        "teamster: task-add",
        "teamster - task-add (MCP)",
        "task-add (teamster MCP Server)",
        "Tool: teamster/task-add",
        "task-add",
        "task_add",
    ] {
        for kind in ["other", "read"] {
            assert!(
                ours(json!({"title": name, "kind": kind, "rawInput": tasks})),
                "{name} as title, {kind}"
            );
        }
        assert!(
            ours(json!({"title": "a remark", "name": name, "rawInput": tasks})),
            "{name} as name"
        );
        // A title is the model's where it is a command, a file or an address.
        for kind in ["execute", "edit", "delete", "move", "fetch"] {
            assert!(
                !ours(json!({"title": name, "kind": kind, "rawInput": tasks})),
                "{name} as title, {kind}"
            );
        }
        assert!(
            !ours(json!({"title": name, "kind": "execute", "rawInput": {"command": name}})),
            "{name} as a command"
        );
        assert!(
            !ours(json!({"title": name, "name": "shell", "rawInput": {"command": name}})),
            "{name} in a shell"
        );
    }
    for bare in ["task-add", "task_add"] {
        for input in [
            json!({"command": "task-add"}),
            json!({"tasks": [], "command": "x"}),
            json!({}),
            json!("task-add"),
            Value::Null,
        ] {
            assert!(
                !ours(json!({"title": bare, "kind": "other", "rawInput": input})),
                "{bare} with {input}"
            );
        }
        let at = json!([{"path": "/w/task-add"}]);
        assert!(!ours(json!({"title": bare, "kind": "read", "locations": at, "rawInput": tasks})));
    }
    for name in [
        "mcp__evil__task-add",
        "evil__task-add",
        "evil_teamster_task-add",
        "teamster_evil__task-add",
        "teamster2_task-add",
        "mcp__teamster__shell",
        "teamster: rm",
        "task-add (evil MCP Server)",
        "task-add (teamster2 MCP Server)",
        "x; teamster_task-add",
        "teamster_task-add; x",
    ] {
        assert!(!ours(json!({"title": name, "kind": "other", "rawInput": tasks})), "{name}");
        assert!(!ours(json!({"title": "x", "name": name, "rawInput": tasks})), "{name}");
    }
    // Copilot asks with the bare name, and has announced the server's.
    let copilot = |server: &str| {
        let announced = json!({"sessionUpdate": "tool_call", "title": format!("{server}-task-add"), "kind": "other", "rawInput": tasks});
        recorded(
            "copilot",
            vec![announced],
            json!({"title": "task-add", "kind": "other", "rawInput": tasks}),
        )
    };
    assert_eq!(copilot("teamster").verdict(&strict), Verdict::Allow);
    assert_eq!(copilot("evil").verdict(&strict), Verdict::Ask);
    // codex-acp calls it a command, and says whose it is.
    let codex = |server: &str, title: &str| {
        json!({"title": title, "kind": "execute",
                    "rawInput": {"server": server, "tool": "task-add", "arguments": tasks}})
    };
    assert!(ours(codex("teamster", "mcp.teamster.task-add")));
    assert!(ours(codex("teamster", "Tool: teamster/task-add")));
    assert!(!ours(codex("evil", "mcp.evil.task-add")));
    assert!(!ours(codex("teamster", "mcp.evil.task-add")));
    assert!(!ours(codex("teamster", "rm")));
    // A bare name does not get around a deny rule; one that is surely ours is denied by its name only.
    let deny = |rule: &str| Permissions { deny: rules(&[rule]), ..Permissions::default() };
    let bare = recorded("mine", vec![], json!({"title": "task-add", "rawInput": tasks}));
    let surely = recorded("mine", vec![], json!({"title": "teamster_task-add", "rawInput": tasks}));
    for (rule, of_bare, of_sure) in [
        ("other", Verdict::Deny, Verdict::Allow),
        ("*(*curl*)", Verdict::Deny, Verdict::Allow),
        ("*task-add", Verdict::Deny, Verdict::Deny),
        ("execute(*curl*)", Verdict::Allow, Verdict::Allow),
    ] {
        assert_eq!(bare.verdict(&deny(rule)), of_bare, "{rule}");
        assert_eq!(surely.verdict(&deny(rule)), of_sure, "{rule}");
    }
}

#[test]
fn people_see_what_the_program_shows() {
    let gemini = &shell("curl x")[2];
    let shown = payload(&gemini.call());
    assert!(shown.contains("[current working directory /w] (does what was asked)"), "{shown}");
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
    let shown = "rm\\u{202e} \\u{1b}[2Ka\\u{d}\n\tb\\u{2066}";
    assert_eq!(plain("rm\u{202e} \u{1b}[2Ka\r\n\tb\u{2066}"), shown);
    // A terminal shows nothing of this, a shell runs it.
    assert!(plain("echo \u{1b}]; rm -rf ~; echo \u{7}").contains("; rm -rf ~;"));
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
        let arguments = serde_json::json!({"command": command, "description": "tells how it is"});
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
    assert_eq!(verdict(&call("mcp__teamster__task-add", ToolKind::Other, "{}")), Verdict::Allow);
}

#[test]
fn a_question_is_kept_without_secrets() {
    let secret = crate::secret::new_secret();
    let input = format!("{{\"command\":\"curl -H 'Authorization: Bearer {secret}'\"}}");
    let shown = payload(&call("shell", ToolKind::Execute, &input));
    assert!(!shown.contains(&secret) && shown.contains("Bearer tmst_(redacted)"), "{shown}");
}

/// Goose keeps an "always" for all uses of a tool, for ever: after it nothing asks, and no rule sees anything.
#[test]
fn always_is_not_offered_where_rules_would_miss_what_it_allows() {
    let options: Vec<PermissionOption> = [
        ("once", PermissionKind::AllowOnce),
        ("ever", PermissionKind::AllowAlways),
        ("no", PermissionKind::RejectOnce),
    ]
    .map(|(id, kind)| PermissionOption { id: id.into(), name: id.into(), kind })
    .into();
    let words = |permissions: &Permissions| {
        let choices = choices(permissions, &options);
        choices.iter().map(|choice| choice.word.to_string()).collect::<Vec<_>>().join(" ")
    };
    let none = Permissions { otherwise: Verdict::Ask, ..Permissions::default() };
    assert_eq!(words(&none), "allow always deny");
    assert_eq!(
        words(&Permissions { deny: rules(&["execute(*curl*)"]), ..none.clone() }),
        "allow deny"
    );
    assert_eq!(words(&Permissions { ask: rules(&["execute"]), ..none }), "allow deny");
}
