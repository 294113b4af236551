//! Real Claude Code, offline, started and driven by the hub.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hub::{Hub, command};
use crate::real_agents::find;
use crate::scripted_model::{Script, ScriptedModel, Step};

/// A hub whose agents are played by a real Claude Code, which asks a scripted model.
struct Driven {
    hub: Hub,
    home: TempDir,
    claude: PathBuf,
    model_url: String,
}

impl Driven {
    fn start(claude: &Path, model: &ScriptedModel) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for directory in ["config/teamster", "work", "tmp"] {
            std::fs::create_dir_all(home.path().join(directory)).expect("it can be made");
        }
        // Without these it would look for servers that are not there.
        let settings = format!(
            "program = \"claude\"\n[programs.claude]\ncommand = {:?}\n[programs.claude.set]\n\
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"\nDISABLE_TELEMETRY = \"1\"\n\
             DISABLE_ERROR_REPORTING = \"1\"\n[roles.waiter]\nprogram = \"scripted\"\n\
             prompt = \"Wait.\"\n",
            claude.to_string_lossy()
        );
        std::fs::write(home.path().join("config/teamster/teamster.toml"), settings)
            .expect("it can be written");
        let (claude, model_url) = (claude.to_owned(), model.url.clone());
        let hub = Hub::start_with(up(&home, &model_url), &home.path().join("data"));
        Self { hub, home, claude, model_url }
    }

    /// Starts another hub on the data of one that has ended.
    fn start_again(&mut self) {
        self.hub = Hub::start_with(up(&self.home, &self.model_url), &self.home.path().join("data"));
    }

    /// Drafts an agent as a person does.
    fn draft(&self, role: &str, prompt: &str, more: &[&str]) -> Output {
        let mut command = self.hub.command();
        command.current_dir(self.home.path().join("work"));
        command.args(["draft", role, prompt]).args(more).output().expect("it starts")
    }

    fn agent(&self, id: &str) -> Value {
        let all = self.hub.ok(&["agents", "--all", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&all).expect("it is JSON");
        all.into_iter().find(|agent| agent["id"] == id).expect("the agent is known")
    }

    /// Returns the command lines of what this hub started of Claude Code: it has the hub's home.
    fn processes(&self) -> Vec<String> {
        let read = |file: PathBuf| {
            // It may have ended while we look.
            String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
        };
        let home = self.home.path().to_string_lossy();
        let claude = self.claude.to_string_lossy();
        let processes = std::fs::read_dir("/proc").expect("it can be read");
        let processes = processes.map(|entry| entry.expect("it can be read").path());
        processes
            .filter(|process| read(process.join("environ")).contains(&*home))
            .map(|process| read(process.join("cmdline")))
            .filter(|line| line.contains(&*claude))
            .collect()
    }

    /// Returns the directories for private files.
    fn private(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path().join("tmp")).expect("it can be read");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        let ours = |path: &PathBuf| path.to_string_lossy().contains("/teamster-launch-");
        paths.filter(ours).collect()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.private(), Vec::<PathBuf>::new());
        let tokens = self.hub.ok(&["token", "list"]);
        assert!(!tokens.contains("coder"), "{tokens}");
    }
}

fn up(home: &TempDir, model_url: &str) -> Command {
    let mut up = command(&home.path().join("data"));
    up.current_dir(home.path().join("work"))
        .env("HOME", home.path())
        .env("TMPDIR", home.path().join("tmp"))
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("ANTHROPIC_BASE_URL", model_url)
        .env("ANTHROPIC_API_KEY", "dummy")
        .arg("up");
    up
}

fn story(model: &ScriptedModel) -> String {
    model.requests().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const CLEAN: &str = "Clean the kitchen.";

#[tokio::test(flavor = "multi_thread")]
async fn claude_works_with_our_tools_and_asks_before_it_acts() {
    let Some(claude) = find("claude") else { return };
    let outcome = r#"{"status":"success","summary":"The kitchen is clean."}"#;
    let script = Script::new(
        CLEAN,
        [
            Step::call("task-add", json!({"tasks": [{"content": "empty the dustpan"}]})),
            Step::call("Bash", json!({"command": "echo clean > kitchen.txt"})),
            Step::say(outcome),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let driven = Driven::start(&claude, &model);
    let output = driven.draft("coder", CLEAN, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    model.assert_played(CLEAN);
    // It was offered our tools at once, and acted under its own name.
    assert!(model.offered_in(CLEAN).contains(&"mcp__teamster__task-add".to_owned()), "{told}");
    let added = ("coder-1".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(driven.hub.log().contains(&added), "{told}");
    let kitchen = std::fs::read_to_string(driven.home.path().join("work/kitchen.txt"));
    assert_eq!(kitchen.expect("it was allowed to write"), "clean\n");
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The kitchen is clean.");
    assert!(agent["outcome"]["cost_microdollars"].as_u64() > Some(0), "{agent}");
    let transcript = driven.hub.ok(&["agent", "show", "coder-1", "--json"]);
    for part in
        [r#""permission_asked""#, r#""option":"allow""#, r#""tokens":{"input":30,"output":30"#]
    {
        assert!(transcript.contains(part), "{part}: {transcript}");
    }
    assert!(!transcript.contains(r#""trouble""#), "{transcript}");
    driven.assert_nothing_is_left();
}

const FOREVER: &str = "Polish the spoon for ever.";

#[tokio::test(flavor = "multi_thread")]
async fn claude_is_ended_in_the_middle_of_its_turn() {
    let Some(claude) = find("claude") else { return };
    let model = ScriptedModel::start([Script::new(FOREVER, [Step::Hang])]).await;
    let driven = Driven::start(&claude, &model);
    assert!(driven.draft("coder", FOREVER, &[]).status.success());
    model.until_asked(FOREVER, 0).await;
    // Everyone can read command lines; and where it is hidden, nobody but Claude can read the file.
    let lines = driven.processes();
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("tmst_")), "{lines:?}");
    assert_eq!(driven.private().len(), 1);
    driven.hub.ok(&["kill", "coder-1"]);
    driven.hub.run(&["await", "coder-1"]);
    assert_eq!(driven.agent("coder-1")["outcome"]["ending"], "aborted");
    // It was asked to give up its turn, and did.
    let transcript = driven.hub.ok(&["agent", "show", "coder-1", "--json"]);
    let place = |text: &str| transcript.find(text).unwrap_or_else(|| panic!("{transcript}"));
    let asked = place(r#""type":"cancel_asked""#);
    assert!(asked < place(r#""type":"turn_ended","why":"cancelled""#), "{transcript}");
    driven.assert_nothing_is_left();
}

const CHORE: &str = "Wash all the windows.";
/// How the hub begins to tell an agent that it goes on.
const CUT_OFF: &str = "You were cut off in the middle of your work.";

fn chore() -> [Script; 2] {
    let washed = r#"{"status":"success","summary":"The rest is washed."}"#;
    let add = Step::call("task-add", json!({"tasks": [{"content": "wash the last window"}]}));
    [Script::new(CUT_OFF, [Step::say(washed)]), Script::new(CHORE, [add, Step::Hang])]
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let Some(claude) = find("claude") else { return };
    let model = ScriptedModel::start(chore()).await;
    let mut driven = Driven::start(&claude, &model);
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.hub.end(Signal::KILL);
    driven.start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    let transcript = driven.hub.ok(&["agent", "show", "coder-1", "--json"]);
    assert!(transcript.contains(r#""resumed":true"#), "{transcript}");
    driven.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_claude_has_lost_becomes_a_new_one() {
    let Some(claude) = find("claude") else { return };
    let model = ScriptedModel::start(chore()).await;
    let mut driven = Driven::start(&claude, &model);
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.hub.end(Signal::KILL);
    std::fs::remove_dir_all(driven.home.path().join(".claude/projects")).expect("it is there");
    driven.start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    let log = driven.hub.ok(&["log"]);
    assert!(output.status.success(), "{output:?}\n{log}");
    assert!(log.contains("it begins a new session"), "{log}");
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_ne!(agent["session"], session);
    driven.assert_nothing_is_left();
}

const LEAD: &str = "Have somebody wait.";
const INNER: &str = "Look for the kettle.";

/// Claude would have its own sub-agents work in the background, and end its turn before they are done.
#[tokio::test(flavor = "multi_thread")]
async fn claude_waits_for_its_own_sub_agents_and_for_those_it_drafts() {
    let Some(claude) = find("claude") else { return };
    let waits = "! sleep 1000\n! outcome {\"status\":\"success\",\"summary\":\"Waited.\"}";
    let look = json!({"description": "look", "prompt": INNER, "subagent_type": "general-purpose"});
    let scripts = [
        Script::new(INNER, [Step::say(r#"{"status":"failed","summary":"There is no kettle."}"#)]),
        Script::new(
            LEAD,
            [
                Step::call("Agent", look),
                Step::call("draft_agent", json!({"role": "waiter", "prompt": waits})),
                Step::call("await_agent", json!({"agentId": "waiter-2"})),
                Step::say(r#"{"status":"success","summary":"Somebody waited."}"#),
            ],
        ),
    ];
    let model = ScriptedModel::start(scripts).await;
    let driven = Driven::start(&claude, &model);
    let output = driven.draft("coordinator", LEAD, &["--wait"]);
    let transcript = driven.hub.ok(&["agent", "show", "coordinator-1", "--json"]);
    assert!(output.status.success(), "{output:?}\n{}\n{transcript}", story(&model));
    model.assert_played(INNER);
    model.assert_played(LEAD);
    assert_eq!(driven.agent("waiter-2")["outcome"]["summary"], "Waited.");
    assert_eq!(driven.agent("coordinator-1")["outcome"]["summary"], "Somebody waited.");
    // What the sub-agent said is a result, not the agent's word.
    let said = transcript.lines().filter(|line| line.contains("There is no kettle."));
    assert!(said.into_iter().all(|line| line.contains(r#""type":"tool_result""#)), "{transcript}");
    driven.assert_nothing_is_left();
}
