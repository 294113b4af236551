//! Real Goose, offline, started and driven by the hub: agents draft, await and kill agents.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hub::{Hub, command};
use crate::real_agents::find;
use crate::scripted_model::{Script, ScriptedModel, Step};

/// A hub whose agents are played by a real Goose, which asks a scripted model.
struct Driven {
    hub: Hub,
    home: TempDir,
    goose: std::path::PathBuf,
    model_url: String,
}

impl Driven {
    fn start(goose: &Path, model: &ScriptedModel) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for directory in ["config/teamster", "work"] {
            std::fs::create_dir_all(home.path().join(directory)).expect("it can be made");
        }
        let settings = format!(
            "program = \"goose\"\n[programs.goose]\ncommand = {:?}\n",
            goose.to_string_lossy()
        );
        std::fs::write(home.path().join("config/teamster/teamster.toml"), settings)
            .expect("it can be written");
        let data = home.path().join("data");
        let (goose, model_url) = (goose.to_owned(), model.url.clone());
        let hub = Hub::start_with(up(&home, &model_url), &data);
        Self { hub, home, goose, model_url }
    }

    /// Kills the hub as a crash would, and starts another on its data.
    fn crash_and_start_again(&mut self) {
        self.hub.end(Signal::KILL);
        self.hub = Hub::start_with(up(&self.home, &self.model_url), &self.home.path().join("data"));
    }

    /// Drafts an agent as a person does, and waits until it has ended.
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

    /// Returns how many processes of Goose there are that this hub started: they have its home.
    fn n_processes(&self) -> usize {
        let contains = |file: std::path::PathBuf, part: &Path| {
            let part = part.as_os_str().as_encoded_bytes();
            // It may have ended while we look.
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes.windows(part.len()).any(|window| window == part)
        };
        let processes = std::fs::read_dir("/proc").expect("it can be read");
        let processes = processes.map(|entry| entry.expect("it can be read").path());
        processes
            .filter(|process| {
                contains(process.join("cmdline"), &self.goose)
                    && contains(process.join("environ"), self.home.path())
            })
            .count()
    }
}

fn up(home: &TempDir, model_url: &str) -> Command {
    let mut up = command(&home.path().join("data"));
    up.current_dir(home.path().join("work"))
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("GOOSE_PROVIDER", "openai")
        .env("GOOSE_MODEL", "scripted")
        .env("GOOSE_DISABLE_KEYRING", "1")
        .env("OPENAI_HOST", model_url)
        .env("OPENAI_API_KEY", "dummy")
        .arg("up");
    up
}

const LEAD: &str = "Have the kitchen cleaned.";
const SWEEP: &str = "Sweep the kitchen floor.";
const LOOK: &str = "Find out where the mop is.";
const FOREVER: &str = "Polish the spoon for ever.";

fn team() -> [Script; 4] {
    let draft = |role: &str, prompt: &str| {
        Step::call("draft_agent", json!({"role": role, "prompt": prompt}))
    };
    let of = |tool: &str, id: &str| Step::call(tool, json!({"agentId": id}));
    [
        Script::new(
            SWEEP,
            [
                Step::call("list_tasks", json!({})),
                Step::call("task-add", json!({"tasks": [{"content": "empty the dustpan"}]})),
                Step::say(
                    r#"Swept. {"status":"partial","summary":"One corner is left.","issues":["a spider"]}"#,
                ),
            ],
        ),
        Script::new(LOOK, [Step::say("The mop is in the shed.")]),
        Script::new(FOREVER, [Step::Hang]),
        // Last, for whoever starts after another has ended is told what was asked of the lead.
        Script::new(
            LEAD,
            [
                draft("coder", SWEEP),
                draft("researcher", LOOK),
                of("await_agent", "coder-2"),
                of("await_agent", "researcher-3"),
                draft("coder", FOREVER),
                of("kill_agent", "coder-4"),
                Step::say(r#"{"status":"success","summary":"The kitchen is clean."}"#),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lead_drafts_awaits_and_kills_others() {
    let Some(goose) = find("goose") else { return };
    let model = ScriptedModel::start(team()).await;
    let driven = Driven::start(&goose, &model);
    let output = driven.draft("coordinator", LEAD, &["--wait"]);
    let story: Vec<String> = model.requests().iter().map(ToString::to_string).collect();
    assert!(
        output.status.success(),
        "{output:?}\n{}\n{}",
        story.join("\n"),
        driven.hub.ok(&["log"])
    );
    model.assert_played(LEAD);
    model.assert_played(SWEEP);
    model.assert_played(LOOK);

    let outcome = |id: &str| driven.agent(id)["outcome"].clone();
    assert_eq!(outcome("coordinator-1")["summary"], "The kitchen is clean.");
    assert_eq!(outcome("coder-2")["status"], "partial");
    assert_eq!(outcome("coder-2")["issues"], json!(["a spider"]));
    assert_eq!(outcome("researcher-3")["summary"], "The mop is in the shed.");
    assert_eq!(outcome("coder-4")["ending"], "aborted");
    for id in ["coder-2", "researcher-3", "coder-4"] {
        assert_eq!(driven.agent(id)["parent"], "coordinator-1");
        assert_eq!(driven.agent(id)["dossier"], driven.agent("coordinator-1")["dossier"]);
    }
    // Each acted under its own name, and only the lead saw how to draft.
    let log = driven.hub.log();
    let added = ("coder-2".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(log.contains(&added), "{log:?}");
    let offers = |prompt: &str, tool: &str| {
        model.offered_in(prompt).iter().any(|offered| offered.ends_with(tool))
    };
    assert!(offers(LEAD, "draft_agent"));
    assert!(
        offers(SWEEP, "list_tasks")
            && !offers(SWEEP, "draft_agent")
            && !offers(SWEEP, "kill_agent")
    );
    // Nothing of them is left: no process, no token.
    assert_eq!(driven.n_processes(), 0);
    let tokens = driven.hub.ok(&["token", "list"]);
    assert!(!tokens.contains("coder") && !tokens.contains("coordinator"), "{tokens}");
    let context = driven
        .hub
        .ok(&["dossiers", driven.agent("coder-2")["dossier"].as_str().expect("it has one")]);
    assert!(context.contains("One corner is left."), "{context}");
}

const CHORE: &str = "Wash all the windows.";
/// How the hub begins to tell an agent that it goes on.
const CUT_OFF: &str = "You were cut off in the middle of your work.";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let Some(goose) = find("goose") else { return };
    let scripts = [
        Script::new(
            CUT_OFF,
            [Step::say(r#"{"status":"success","summary":"The rest is washed."}"#)],
        ),
        Script::new(
            CHORE,
            [
                Step::call("task-add", json!({"tasks": [{"content": "wash the last window"}]})),
                Step::Hang,
            ],
        ),
    ];
    let model = ScriptedModel::start(scripts).await;
    let mut driven = Driven::start(&goose, &model);
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.crash_and_start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    assert_eq!(driven.n_processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_killed_in_the_middle_of_a_turn_is_asked_to_give_it_up_first() {
    let Some(goose) = find("goose") else { return };
    // Goose gives up a turn only once the model has begun to answer.
    let begun = "Rubbing. ";
    let model = ScriptedModel::start([Script::new(FOREVER, [Step::Stall(begun.into())])]).await;
    let driven = Driven::start(&goose, &model);
    assert!(driven.draft("coder", FOREVER, &[]).status.success());
    let mut follow = driven.hub.command();
    follow.args(["agent", "show", "coder-1", "--follow"]).stdout(Stdio::piped());
    let mut follow = follow.spawn().expect("it starts");
    let lines = BufReader::new(follow.stdout.take().expect("it is piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.trim() == begun.trim()));
    follow.kill().expect("it can be killed");
    follow.wait().expect("it ends");
    driven.hub.ok(&["kill", "coder-1"]);
    model.until_given_up().await;
    assert_eq!(driven.n_processes(), 0);
    assert_eq!(driven.agent("coder-1")["outcome"]["ending"], "aborted");
    let transcript = driven.hub.ok(&["agent", "show", "coder-1", "--json"]);
    let records = transcript.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    let records: Vec<Value> = records.collect();
    let at = |wanted: Value| {
        let same = |record: &Value| {
            wanted.as_object().expect("it is an object").iter().all(|(k, v)| record[k] == *v)
        };
        records.iter().position(same).unwrap_or_else(|| panic!("no {wanted} in {transcript}"))
    };
    let asked = at(json!({"type": "cancel_asked"}));
    let ended = at(json!({"type": "turn_ended", "why": "cancelled"}));
    let exited = at(json!({"type": "exited"}));
    assert!(asked < ended && ended < exited, "{transcript}");
}
