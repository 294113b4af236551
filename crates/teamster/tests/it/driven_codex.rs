//! Real Codex, offline, started and driven by the hub through its own protocol.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::{Path, PathBuf};
use std::process::Output;

use expect_test::expect;
use serde_json::{Value, json};

use crate::driven::{CUT_OFF, Driven, story};
use crate::real_agents::find;
use crate::scripted_model::{Script, ScriptedModel, Step};

const SWEEP: &str = "Sweep the kitchen floor.";

#[tokio::test(flavor = "multi_thread")]
async fn codex_uses_our_tools_and_asks_before_it_leaves_its_sandbox() {
    let run = |arguments: Value| Step::call("exec_command", arguments);
    let script = Script::new(
        SWEEP,
        [
            Step::call("task-add", json!({"tasks": [{"content": "empty the dustpan"}]})),
            run(json!({"cmd": "echo swept > floor.txt"})),
            run(json!({
                "cmd": "echo asked > asked.txt", "sandbox_permissions": "require_escalated",
                "justification": "May I?",
            })),
            Step::say(r#"{"status":"success","summary":"Swept."}"#),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let Some(driven) = Driven::start(&["codex"], "", &model) else { return };
    let output = driven.draft("coder", SWEEP, &["--wait"]);
    assert!(output.status.success(), "{output:?}\n{}", story(&model));
    model.assert_played(SWEEP);
    assert_eq!(driven.agent("coder-1")["outcome"]["summary"], "Swept.");

    // It acted under its own name, on this hub.
    let log = driven.hub.log();
    let added = ("coder-1".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(log.contains(&added), "{log:?}");
    assert_eq!(driven.file("floor.txt").as_deref(), Some("swept\n"));
    assert_eq!(driven.file("asked.txt").as_deref(), Some("asked\n"));

    let transcript = driven.events("coder-1");
    let of = |kind: &str| -> Vec<&Value> {
        transcript.iter().filter(|event| event["type"] == kind).collect()
    };
    let asked: Vec<&Value> = of("permission_asked");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["call"]["title"], "$ echo asked > asked.txt (May I?)");
    assert_eq!(of("permission_answered")[0]["option"], "accept");
    let results = of("tool_result");
    assert!(results.len() == 3 && results.iter().all(|result| result["ok"] == true), "{results:?}");
    let told = of("usage").into_iter().filter(|usage| !usage["tokens"].is_null());
    let told: Vec<String> =
        told.map(|usage| format!("{} {}", usage["model"], usage["tokens"])).collect();
    // Four requests to the model, ten tokens each.
    expect![[r#""scripted" {"input":40,"output":40,"cached_read":0,"cached_write":0}"#]]
        .assert_eq(&told.join("\n"));
    assert!(of("trouble").is_empty(), "{:?}", of("trouble"));

    // Nothing of it is left: no process, and nowhere its token.
    driven.assert_nothing_is_left();
    assert_eq!(files_with(&driven.home.path().join(".codex"), "tmst_"), Vec::<PathBuf>::new());
}

/// As soon as a rule can deny or ask, Codex asks for commands inside its sandbox, too.
#[tokio::test(flavor = "multi_thread")]
async fn codex_asks_for_sandboxed_commands_if_a_rule_can_deny() {
    let run = |command: &str| Step::call("exec_command", json!({"cmd": command}));
    let script = Script::new(
        SWEEP,
        [
            run("echo swept > floor.txt"),
            run("echo wiped > table.txt"),
            Step::say(r#"{"status":"success","summary":"Wiped."}"#),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let rules = "[permissions]\ndeny = [\"execute(*floor.txt*)\"]\n";
    let Some(driven) = Driven::start(&["codex"], rules, &model) else { return };
    let output = driven.draft("coder", SWEEP, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    assert_eq!(driven.file("floor.txt"), None, "{told}");
    assert_eq!(driven.file("table.txt").as_deref(), Some("wiped\n"), "{told}");
    let transcript = driven.events("coder-1");
    let asked = transcript.iter().filter(|event| event["type"] == "permission_asked");
    let titles: Vec<&str> = asked.filter_map(|event| event["call"]["title"].as_str()).collect();
    assert!(titles.len() == 2 && titles[0].contains("floor.txt"), "{titles:?}");
}

/// Returns the files below a directory that contain a text.
fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let found = paths.flat_map(|path| match path.is_dir() {
        true => files_with(&path, text),
        false => {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let contains = bytes.windows(text.len()).any(|window| window == text.as_bytes());
            contains.then_some(path).into_iter().collect()
        }
    });
    found.collect()
}

const FOREVER: &str = "Polish the spoon for ever.";

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_codex_leaves_nothing_behind() {
    let Some(codex) = find("codex") else { return };
    // A command that goes on while the model thinks about what comes next.
    let sleep = json!({"cmd": "sleep 1000", "yield_time_ms": 250});
    let script = Script::new(FOREVER, [Step::call("exec_command", sleep), Step::Hang]);
    let model = ScriptedModel::start([script]).await;
    let Some(driven) = Driven::start(&["codex"], "", &model) else { return };
    assert!(driven.draft("coder", FOREVER, &[]).status.success());
    model.until_asked(FOREVER, 1).await;
    let running = driven.processes();
    for part in [&*codex.to_string_lossy(), "sleep 1000"] {
        assert!(running.iter().any(|command_line| command_line.contains(part)), "{running:?}");
    }
    assert!(!running.iter().any(|command_line| command_line.contains("tmst_")), "{running:?}");
    driven.hub.ok(&["kill", "coder-1"]);
    driven.hub.run(&["await", "coder-1"]);
    assert_eq!(driven.agent("coder-1")["outcome"]["ending"], "aborted");
    // It was asked to give up its turn, and did.
    let transcript = driven.events("coder-1");
    let place = |type_: &str| transcript.iter().position(|event| event["type"] == type_);
    let ended = place("turn_ended").expect("it was told");
    assert_eq!(transcript[ended]["why"], "cancelled", "{transcript:?}");
    assert!(place("cancel_asked").is_some_and(|asked| asked < ended), "{transcript:?}");
    driven.assert_nothing_is_left();
}

const CHORE: &str = "Wash all the windows.";

#[tokio::test(flavor = "multi_thread")]
async fn codex_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let add = |content: &str| Step::call("task-add", json!({"tasks": [{"content": content}]}));
    let rest = Step::say(r#"{"status":"success","summary":"The rest is washed."}"#);
    let scripts = [
        Script::new(CUT_OFF, [add("dry the windows"), rest]),
        Script::new(CHORE, [add("wash the last window"), Step::Hang]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(mut driven) = Driven::start(&["codex"], "", &model) else { return };
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.crash_and_start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    let transcript = driven.events("coder-1");
    let started = transcript.iter().filter(|event| event["type"] == "started");
    let resumed: Vec<(&Value, &Value)> =
        started.map(|event| (&event["session"], &event["resumed"])).collect();
    assert_eq!(resumed, [(&session, &json!(false)), (&session, &json!(true))]);
    let expected = ["TAS-1 added (P2): wash the last window", "TAS-2 added (P2): dry the windows"];
    assert_eq!(driven.did("coder-1"), expected);
    driven.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_sees_codex_list_our_tools_and_miss_its_login() {
    let model = ScriptedModel::start([]).await;
    let Some(driven) = Driven::start(&["codex"], "", &model) else { return };
    let path = find("codex").expect("it is there").to_string_lossy().into_owned();
    let report = |output: &Output| String::from_utf8_lossy(&output.stdout).replace(&path, "CODEX");
    let output = driven.person().args(["program", "check", "codex"]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    expect![[r#"
        codex starts: codex 0.166.0, model scripted
          tried     CODEX in the environment of this shell; the hub uses the one it was started in
          tools     connected to the hub's tools and listed them
          login     a key is set, or none is needed; whether it is valid shows with the first prompt
          asking    asks before it runs a command or changes a file, if a rule can deny or ask
          sessions  can be resumed
    "#]]
    .assert_eq(&report(&output));
    // Without a provider of its own it needs an account.
    std::fs::remove_file(driven.home.path().join(".codex/config.toml")).expect("it is there");
    let output = driven.person().args(["program", "check", "codex"]).output().expect("it starts");
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("codex cannot work: it is not logged in; run `codex login`"), "{said}");
    assert!(report(&output).contains("\n  login     missing\n"), "{}", report(&output));
}
