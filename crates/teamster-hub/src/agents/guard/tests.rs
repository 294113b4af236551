use serde_json::{Value, json};
use teamster_agents::agent::{Begin, Clipped, Event, Shown};
use teamster_agents::drivers::acp::Acp;
use teamster_agents::drivers::{Driver, Out};

use super::*;

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "-",
        Verdict::Warn(_) => "warn",
        Verdict::Stop(_) => "stop",
    }
}

fn call(id: &str, kind: ToolKind, title: &str, input: Option<&str>) -> ToolCall {
    ToolCall {
        id: id.into(),
        title: title.into(),
        name: None,
        kind,
        input: input.map(|input| Clipped { text: input.into(), cut_bytes: 0 }),
        targets: Vec::new(),
        shown: Shown::default(),
    }
}

/// One call after the other, each with its result.
fn play(limits: Limits, calls: &[(ToolKind, &str, Option<&str>, &str)]) -> String {
    let mut guard = Guard::new(limits);
    let words = calls.iter().enumerate().map(|(n, (kind, title, input, output))| {
        let id = n.to_string();
        assert_eq!(guard.announced(&call(&id, *kind, title, *input)), Verdict::Fine);
        word(&guard.ended(&id, true, output))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn check(calls: &[&str], expected: &str) {
    check_with(Limits::default(), calls, expected);
}

fn check_with(limits: Limits, calls: &[&str], expected: &str) {
    let calls: Vec<_> =
        calls.iter().map(|input| (ToolKind::Read, "read", Some(*input), "")).collect();
    assert_eq!(play(limits, &calls), expected, "{limits:?} {calls:?}");
}

#[test]
fn the_same_call_again_and_again_is_stopped() {
    check(&["a", "a", "a", "a", "a", "a"], "- - warn - stop stop");
    check(&["a", "a", "b", "a", "a", "b"], "- - - - - -");
}

#[test]
fn two_calls_that_alternate_are_stopped() {
    check(&["a", "b", "a", "b", "a", "b", "a", "b"], "- - - - - warn - stop");
    check(&["a", "b", "c", "a", "b", "c", "a", "b", "c"], "- - - - - - - - -");
}

#[test]
fn a_role_sets_how_often() {
    let often = Limits { repeats: 8, pairs: 0, errors: 2 };
    check_with(often, &["a"; 8], "- - - - warn - - stop");
    check_with(often, &["a", "b"].repeat(6), "- - - - - - - - - - - -");
    check_with(Limits { repeats: 0, ..often }, &["a"; 20], &["-"; 20].join(" "));
    check_with(Limits { repeats: 2, ..often }, &["a", "a"], "- stop");
    // Once is no repetition.
    let once = Limits { repeats: 1, pairs: 1, errors: 0 };
    check_with(once, &["a", "b", "c", "d", "d"], "- - - - stop");
    check_with(once, &["a", "b", "a", "b"], "- - - stop");
    let mut guard = Guard::new(often);
    assert_eq!(word(&guard.ended("1", false, "no such file")), "-");
    assert_eq!(word(&guard.ended("2", false, "no such file")), "stop");
}

#[test]
fn the_same_error_again_and_again_is_stopped() {
    let mut guard = Guard::new(Limits::default());
    let mut n = 0;
    let mut see = |error: &str| {
        n += 1;
        guard.ended(&n.to_string(), false, error)
    };
    for _ in 0..4 {
        assert_eq!(see("no such file"), Verdict::Fine);
    }
    assert!(matches!(see("no such file"), Verdict::Warn(_)));
    assert_eq!(see("another"), Verdict::Fine);
    for n in 1..8 {
        assert!(!matches!(see("no such file\n"), Verdict::Stop(_)), "{n}");
    }
    assert!(matches!(see("no such file"), Verdict::Stop(_)));
    for _ in 0..20 {
        assert_eq!(see(" "), Verdict::Fine, "the program does not show its errors");
    }
}

#[test]
fn a_call_whose_input_is_not_shown_is_not_judged() {
    let (shell, none, title) = (ToolKind::Execute, None, "Bash");
    for (case, calls, expected) in [
        ("no input", vec![(shell, title, none, "ok"); 6], "- - - - - -"),
        ("an empty one", vec![(shell, title, Some("{}"), "ok"); 6], "- - - - - -"),
        ("a title of a file", vec![(ToolKind::Edit, "Writing to f", none, ""); 6], "- - - - - -"),
        (
            "an MCP tool",
            vec![(ToolKind::Other, "task-add (x MCP Server)", none, "ok"); 6],
            "- - - - - -",
        ),
        ("a command as title", vec![(shell, "cargo test", none, ""); 5], "- - warn - stop"),
        (
            "no arguments",
            vec![(ToolKind::Other, "task-list", Some("{}"), "none"); 5],
            "- - warn - stop",
        ),
        (
            "no arguments, no answer",
            vec![(ToolKind::Other, "ping", Some("{}"), ""); 6],
            "- - - - - -",
        ),
    ] {
        assert_eq!(play(Limits::default(), &calls), expected, "{case}");
    }
    let waits =
        ["1", "2", "3", "4", "5", "6"].map(|n| (ToolKind::Other, "task-list", Some("{}"), n));
    assert_eq!(play(Limits::default(), &waits), "- - - - - -", "the answer changes");
    let awaits =
        [(ToolKind::Other, "mcp__teamster__await_agent", Some(r#"{"agentId":"a"}"#), "running"); 9];
    assert_eq!(play(Limits::default(), &awaits), "- - - - - - - - -");
}

#[test]
fn it_says_what_it_saw() {
    let mut guard = Guard::new(Limits::default());
    let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(1_000));
    let mut last = Verdict::Fine;
    for n in 0..5 {
        guard.announced(&call(&n.to_string(), ToolKind::Execute, "Bash", Some(&long)));
        last = guard.ended(&n.to_string(), true, "");
    }
    let Verdict::Stop(says) = last.clone() else { panic!("{last:?}") };
    assert!(
        says.starts_with(r#"Bash was called 5 times in a row with "{\"command\":\"xxx"#),
        "{says}"
    );
    assert!(says.len() < 300 && says.ends_with('…'), "{says}");
    guard.begin_turn();
    for n in 0..8 {
        let input = ["a", "b"][n % 2];
        guard.announced(&call(&n.to_string(), ToolKind::Read, "read", Some(input)));
        last = guard.ended(&n.to_string(), true, "");
    }
    let expected = r#"two calls alternated 4 times: read with "b"; read with "a""#;
    assert_eq!(last, Verdict::Stop(expected.into()));
}

#[test]
fn calls_without_a_result_are_judged_in_the_end() {
    let mut guard = Guard::new(Limits::default());
    let words = (0..21).map(|n| {
        word(&guard.announced(&call(&n.to_string(), ToolKind::Execute, "Bash", Some("ls"))))
    });
    assert_eq!(words.last(), Some("stop"));
}

/// The updates that one shell command leads to, as each program sends them.
fn updates(program: &str, id: &str, command: &str) -> Vec<Value> {
    let input = json!({"command": command});
    let (call, update) = ("tool_call", "tool_call_update");
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let mut updates = match program {
        "opencode" => vec![
            json!({"sessionUpdate": call, "title": "bash", "kind": "execute", "status": "pending",
                   "locations": [{"path": "/w"}], "rawInput": {"cwd": "/w"}}),
            json!({"sessionUpdate": update, "title": command, "kind": "execute", "status": "in_progress",
                   "locations": [{"path": "/w"}], "rawInput": {"command": command, "cwd": "/w"}}),
            json!({"sessionUpdate": update, "status": "completed", "title": command, "content": text("done\n")}),
        ],
        "qwen" => vec![
            json!({"sessionUpdate": call, "title": "Shell", "kind": "execute", "status": "pending", "rawInput": {},
                   "_meta": {"toolName": "run_shell_command", "phase": "preparing"}}),
            json!({"sessionUpdate": update, "title": format!("{command} (as asked)"), "rawInput": input}),
            json!({"sessionUpdate": update, "status": "completed", "content": text("Output: done")}),
        ],
        "claude-agent-acp" => vec![
            json!({"sessionUpdate": call, "title": "Terminal", "name": "Bash", "kind": "execute",
                   "status": "pending", "rawInput": {}, "content": []}),
            json!({"sessionUpdate": update, "title": command, "rawInput": input}),
            json!({"sessionUpdate": update, "_meta": {"claudeCode": {"toolName": "Bash"}}}),
            json!({"sessionUpdate": update, "status": "completed", "rawOutput": "done"}),
        ],
        "kimi" => vec![
            json!({"sessionUpdate": call, "title": "Bash", "kind": "execute", "status": "pending",
                   "content": text("")}),
            json!({"sessionUpdate": update, "status": "in_progress", "content": text(&input.to_string())}),
            json!({"sessionUpdate": update, "title": format!("Running: {command}"), "kind": "execute",
                   "status": "in_progress", "rawInput": input}),
            json!({"sessionUpdate": update, "status": "completed", "rawOutput": "done\n"}),
        ],
        "fast-agent" => vec![
            json!({"sessionUpdate": call, "title": "execute", "kind": "execute", "status": "pending"}),
            json!({"sessionUpdate": update, "title": "execute", "rawInput": input}),
            json!({"sessionUpdate": update, "status": "completed", "content": text("done")}),
        ],
        "gemini" => vec![
            json!({"sessionUpdate": update, "title": command, "kind": "execute", "status": "completed",
                   "content": [], "locations": []}),
        ],
        "goose" => vec![
            json!({"sessionUpdate": call, "title": format!("shell · {command}"), "rawInput": input,
                   "_meta": {"goose": {"toolCall": {"toolName": "shell"}}}}),
            json!({"sessionUpdate": update, "status": "completed", "content": text("done")}),
        ],
        other => panic!("{other} is not known"),
    };
    updates.iter_mut().for_each(|update| update["toolCallId"] = id.into());
    updates
}

/// Has a program run commands, and returns what is made of each.
fn run(program: &str, commands: &[&str]) -> String {
    let mut driver = Acp::default();
    let mut out = Out::default();
    let mut hear = |driver: &mut Acp, message: Value| {
        driver.hear(message.to_string().as_bytes(), &mut out);
        out.take_events()
    };
    driver.begin(&Begin { directory: "/w".into(), ..Begin::default() }, &mut Out::default());
    hear(&mut driver, json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}}));
    hear(&mut driver, json!({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s"}}));
    driver.prompt("work", &mut Out::default());
    let mut guard = Guard::new(Limits::default());
    let words = commands.iter().enumerate().map(|(n, command)| {
        let mut worst = "-";
        for update in updates(program, &format!("call-{n}"), command) {
            let params = json!({"sessionId": "s", "update": update});
            let message = json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
            for event in hear(&mut driver, message) {
                let verdict = match event {
                    Event::ToolCall(call) => guard.announced(&call),
                    Event::ToolResult { id, ok, output } => guard.ended(&id, ok, &output.text),
                    other => panic!("{program}: {other:?}"),
                };
                worst = if verdict == Verdict::Fine { worst } else { word(&verdict) };
            }
        }
        worst
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn different_commands_of_every_program_pass_and_equal_ones_do_not() {
    let different =
        ["ls", "cat a", "make", "make test", "git add .", "git diff", "ls -l", "touch b"];
    for program in ["opencode", "qwen", "claude-agent-acp", "kimi", "fast-agent", "goose"] {
        assert_eq!(run(program, &different), "- - - - - - - -", "{program}");
        assert_eq!(run(program, &["make test"; 5]), "- - warn - stop", "{program}");
    }
    // It shows a command as the title only.
    assert_eq!(run("gemini", &different), "- - - - - - - -");
    assert_eq!(run("gemini", &["make test"; 5]), "- - warn - stop");
}
