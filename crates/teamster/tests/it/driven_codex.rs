//! Real Codex, offline, started and driven by the hub through its own protocol.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hub::{Hub, TEAMSTER, command};
use crate::real_agents::find;
use crate::scripted_model::{Script, ScriptedModel, Step};

/// A hub whose agents are played by a real Codex, which asks a scripted model.
struct Driven {
    hub: Hub,
    home: TempDir,
}

impl Driven {
    fn start(codex: &Path, model: &ScriptedModel) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for directory in ["config/teamster", "work", ".codex"] {
            std::fs::create_dir_all(home.path().join(directory)).expect("it can be made");
        }
        let write = |path: &str, text: String| {
            std::fs::write(home.path().join(path), text).expect("it can be written");
        };
        let command = codex.to_string_lossy();
        let settings = format!("program = \"codex\"\n[programs.codex]\ncommand = {command:?}\n");
        write("config/teamster/teamster.toml", settings);
        // Somebody has connected Codex to another hub by hand; that must not be in the way.
        let codex_settings = format!(
            "model = \"scripted\"\nmodel_provider = \"scripted\"\n\
             [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\n\
             wire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n\
             [mcp_servers.teamster]\nurl = \"http://127.0.0.1:1/mcp\"\n\
             http_headers = {{ Authorization = \"Bearer other\" }}\n",
            model.url
        );
        write(".codex/config.toml", codex_settings);
        let hub = Hub::start_with(up(&home), &home.path().join("data"));
        Self { hub, home }
    }

    /// Kills the hub as a crash would, and starts another on its data.
    fn crash_and_start_again(&mut self) {
        self.hub.end(Signal::KILL);
        self.hub = Hub::start_with(up(&self.home), &self.home.path().join("data"));
    }

    /// Drafts an agent as a person does.
    fn draft(&self, prompt: &str, more: &[&str]) -> Output {
        let mut command = self.hub.command();
        command.current_dir(self.home.path().join("work"));
        command.args(["draft", "coder", prompt]).args(more).output().expect("it starts")
    }

    fn agent(&self, id: &str) -> Value {
        let all = self.hub.ok(&["agents", "--all", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&all).expect("it is JSON");
        all.into_iter().find(|agent| agent["id"] == id).expect("the agent is known")
    }

    /// Returns what was kept of an agent's events, oldest first.
    fn transcript(&self, id: &str) -> Vec<Value> {
        let lines = self.hub.ok(&["agent", "show", id, "--json"]);
        lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    /// Returns the command lines of the processes that agents of this hub have: its home is theirs, too.
    fn processes(&self) -> Vec<String> {
        // It may have ended while we look.
        let read = |file: PathBuf| std::fs::read(file).unwrap_or_default();
        let home = self.home.path().as_os_str().as_encoded_bytes();
        let processes = std::fs::read_dir("/proc").expect("it can be read");
        let processes = processes.map(|entry| entry.expect("it can be read").path());
        let of_agents = |process: PathBuf| {
            let environment = read(process.join("environ"));
            let is_ours = environment.windows(home.len()).any(|window| window == home);
            let command_line = read(process.join("cmdline"));
            let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
            (is_ours && !command_line.starts_with(TEAMSTER)).then_some(command_line)
        };
        processes.filter_map(of_agents).collect()
    }
}

fn up(home: &TempDir) -> Command {
    let mut up = command(&home.path().join("data"));
    up.current_dir(home.path().join("work"))
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("OPENAI_API_KEY", "dummy")
        .arg("up");
    up
}

const SWEEP: &str = "Sweep the kitchen floor.";

#[tokio::test(flavor = "multi_thread")]
async fn codex_uses_our_tools_and_asks_before_it_leaves_its_sandbox() {
    let Some(codex) = find("codex") else { return };
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
    let driven = Driven::start(&codex, &model);
    let output = driven.draft(SWEEP, &["--wait"]);
    let story: Vec<String> = model.requests().iter().map(ToString::to_string).collect();
    assert!(output.status.success(), "{output:?}\n{}", story.join("\n"));
    model.assert_played(SWEEP);
    assert_eq!(driven.agent("coder-1")["outcome"]["summary"], "Swept.");

    // It acted under its own name, on this hub.
    let log = driven.hub.log();
    let added = ("coder-1".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(log.contains(&added), "{log:?}");
    let written = |file: &str| {
        let file = driven.home.path().join("work").join(file);
        std::fs::read_to_string(file).unwrap_or_default()
    };
    assert_eq!((written("floor.txt"), written("asked.txt")), ("swept\n".into(), "asked\n".into()));

    let transcript = driven.transcript("coder-1");
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
    assert_eq!(driven.processes(), Vec::<String>::new());
    assert_eq!(files_with(&driven.home.path().join(".codex"), "tmst_"), Vec::<PathBuf>::new());
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
    let driven = Driven::start(&codex, &model);
    assert!(driven.draft(FOREVER, &[]).status.success());
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
    let transcript = driven.transcript("coder-1");
    let place = |type_: &str| transcript.iter().position(|event| event["type"] == type_);
    let ended = place("turn_ended").expect("it was told");
    assert_eq!(transcript[ended]["why"], "cancelled", "{transcript:?}");
    assert!(place("cancel_asked").is_some_and(|asked| asked < ended), "{transcript:?}");
    assert_eq!(driven.processes(), Vec::<String>::new());
}

const CHORE: &str = "Wash all the windows.";
/// How the hub begins to tell an agent that it goes on.
const CUT_OFF: &str = "You were cut off in the middle of your work.";

#[tokio::test(flavor = "multi_thread")]
async fn codex_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let Some(codex) = find("codex") else { return };
    let add = |content: &str| Step::call("task-add", json!({"tasks": [{"content": content}]}));
    let rest = Step::say(r#"{"status":"success","summary":"The rest is washed."}"#);
    let scripts = [
        Script::new(CUT_OFF, [add("dry the windows"), rest]),
        Script::new(CHORE, [add("wash the last window"), Step::Hang]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let mut driven = Driven::start(&codex, &model);
    assert!(driven.draft(CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.crash_and_start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    let transcript = driven.transcript("coder-1");
    let started = transcript.iter().filter(|event| event["type"] == "started");
    let resumed: Vec<(&Value, &Value)> =
        started.map(|event| (&event["session"], &event["resumed"])).collect();
    assert_eq!(resumed, [(&session, &json!(false)), (&session, &json!(true))]);
    let log = driven.hub.log();
    let added: Vec<&str> = log
        .iter()
        .filter(|(who, what)| who == "coder-1" && what.starts_with("TAS-"))
        .map(|(_, what)| what.as_str())
        .collect();
    let expected = ["TAS-1 added (P2): wash the last window", "TAS-2 added (P2): dry the windows"];
    assert_eq!(added, expected, "{log:?}");
    assert_eq!(driven.processes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_shakes_hands_with_codex() {
    let Some(codex) = find("codex") else { return };
    let model = ScriptedModel::start([]).await;
    let driven = Driven::start(&codex, &model);
    let mut check = driven.hub.command();
    check
        .env("HOME", driven.home.path())
        .env("XDG_CONFIG_HOME", driven.home.path().join("config"))
        .env("OPENAI_API_KEY", "dummy");
    let output = check.args(["program", "check", "codex"]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    expect![[r#"
        codex works: codex 0.166.0, model scripted; its sessions can be resumed
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
}
