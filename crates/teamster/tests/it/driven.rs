//! A hub for one test whose agents are played by real programs, offline: they ask a scripted model.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::hub::{Hub, command, program};
use crate::launcher::orphans::wait_for_ends;
use crate::real_agents::find;
use crate::scripted_model::ScriptedModel;
use crate::unattended::first_line;

/// How the hub begins to tell an agent that it goes on.
pub(crate) const CUT_OFF: &str = "You were cut off in the middle of your work.";

/// A hub that knows real programs.
pub(crate) struct Driven {
    pub(crate) hub: Hub,
    /// The hub's home, and that of its agents, who work in `work`.
    pub(crate) home: TempDir,
    model_url: String,
}

impl Driven {
    /// Starts a hub with these programs, the first of which plays the built-in roles; a role named as a program is played
    /// by that. Returns nothing where one of them is not installed.
    pub(crate) fn start(programs: &[&str], settings: &str, model: &ScriptedModel) -> Option<Self> {
        Self::start_with(programs, settings, "", model)
    }

    /// Starts one whose programs are given these variables, too.
    pub(crate) fn start_with(
        programs: &[&str],
        settings: &str,
        variables: &str,
        model: &ScriptedModel,
    ) -> Option<Self> {
        let found: Option<Vec<(&str, PathBuf)>> =
            programs.iter().map(|name| Some((*name, find(name)?))).collect();
        let home = tempfile::tempdir().expect("a temporary directory");
        for directory in ["config/teamster", "work", "tmp", ".codex"] {
            std::fs::create_dir_all(home.path().join(directory)).expect("it can be made");
        }
        let known: String = found?
            .iter()
            .map(|(name, path)| {
                let command = path.to_string_lossy();
                // Without these Claude Code would look for servers that are not there.
                format!(
                    "[programs.{name}]\ncommand = {command:?}\n\
                     set.CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"\n\
                     set.DISABLE_TELEMETRY = \"1\"\nset.DISABLE_ERROR_REPORTING = \"1\"\n{variables}\
                     [roles.{name}]\nprogram = \"{name}\"\nprompt = \"Work.\"\n"
                )
            })
            .collect();
        let first = programs[0];
        let write = |path: &str, text: String| {
            std::fs::write(home.path().join(path), text).expect("it can be written");
        };
        let settings = format!("program = \"{first}\"\n{settings}\n{known}");
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
        let model_url = model.url.clone();
        let hub = up(home.path(), &model_url);
        let driven = Self { hub, home, model_url };
        // Nor must what they have connected to this one.
        for program in programs.iter().filter(|name| ["claude", "codex", "goose"].contains(name)) {
            let connected = driven.person().args(["connect", program, "--write"]).output();
            assert!(
                connected.as_ref().is_ok_and(|output| output.status.success()),
                "{connected:?}"
            );
        }
        Some(driven)
    }

    /// Kills the hub as a crash would, and starts another on its data.
    pub(crate) fn crash_and_start_again(&mut self) {
        self.hub.end(Signal::KILL);
        self.start_again();
    }

    /// Starts another hub on the data of one that has ended.
    pub(crate) fn start_again(&mut self) {
        self.hub = up(self.home.path(), &self.model_url);
    }

    /// Prepares a command as the person gives it whose home this is.
    pub(crate) fn person(&self) -> Command {
        person(self.home.path(), &self.model_url)
    }

    /// Drafts an agent as a person does.
    pub(crate) fn draft(&self, role: &str, prompt: &str, more: &[&str]) -> Output {
        self.person().args(["draft", role, prompt]).args(more).output().expect("it starts")
    }

    pub(crate) fn agent(&self, id: &str) -> Value {
        let all = self.hub.ok(&["agents", "--all", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&all).expect("it is JSON");
        all.into_iter().find(|agent| agent["id"] == id).expect("the agent is known")
    }

    /// Follows the log up to a line that says this, and fails if the agent ends before.
    pub(crate) fn until_said(&self, id: &str, what: &str) -> String {
        let ends = [" completed (", " aborted (", " crashed (", " timed out ("];
        let ends = ends.map(|ending| format!("agent {id}{ending}"));
        let line = first_line(&self.hub, &["log", "--follow"], |line| {
            line.contains(what) || ends.iter().any(|end| line.contains(end))
        });
        let told = || format!("{}\n{}", self.hub.ok(&["log"]), self.transcript(id));
        assert!(line.contains(what), "{what} is not said before {line}\n{}", told());
        line
    }

    /// Returns what was kept of an agent's events, oldest first, one line of JSON for each.
    pub(crate) fn transcript(&self, id: &str) -> String {
        self.hub.ok(&["agent", "show", id, "--json"])
    }

    pub(crate) fn events(&self, id: &str) -> Vec<Value> {
        let lines = self.transcript(id);
        lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    /// Returns what an agent did to the list of tasks, oldest first.
    pub(crate) fn did(&self, id: &str) -> Vec<String> {
        let log = self.hub.log().into_iter();
        log.filter(|(by, what)| by == id && what.starts_with("TAS-"))
            .map(|(_, what)| what)
            .collect()
    }

    /// Reads a file of the directory that agents work in.
    pub(crate) fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.home.path().join("work").join(name)).ok()
    }

    /// Returns the command lines of the processes that agents of this hub have: its home is theirs, too.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.found().into_iter().map(|(_, line)| line).collect()
    }

    /// Waits until the agents of a killed hub have no process left. They end some milliseconds after the hub.
    pub(crate) fn until_no_process_is_left(&self) {
        loop {
            let pids: Vec<Pid> = self.found().into_iter().map(|(pid, _)| pid).collect();
            if pids.is_empty() {
                return;
            }
            wait_for_ends(&pids);
        }
    }

    /// Returns the processes that agents of this hub have, with their command lines.
    fn found(&self) -> Vec<(Pid, String)> {
        // It may have ended while we look.
        let read = |file: PathBuf| {
            String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).replace('\0', " ")
        };
        let home = self.home.path().to_string_lossy();
        let teamster = program();
        let processes = std::fs::read_dir("/proc").expect("it can be read");
        processes
            .map(|entry| entry.expect("it can be read").path())
            .filter(|process| read(process.join("environ")).contains(&*home))
            .filter_map(|process| {
                let pid = process.file_name().and_then(|name| name.to_str()?.parse().ok());
                Some((Pid::from_raw(pid?)?, read(process.join("cmdline"))))
            })
            .filter(|(_, line)| !line.starts_with(&*teamster.to_string_lossy()))
            // It is the hub's, for a minute.
            .filter(|(_, line)| {
                !line.ends_with(" launch deputy ") && !line.ends_with(" --lingers ")
            })
            .collect()
    }

    /// Returns the directories of launches for private files.
    pub(crate) fn private(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path().join("tmp")).expect("it can be read");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        let ours = |path: &PathBuf| path.to_string_lossy().contains("/teamster-launch-");
        paths.filter(ours).collect()
    }

    /// Neither a process of an agent is left nor its private files nor its token.
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.private(), Vec::<PathBuf>::new());
        let tokens = self.hub.ok(&["token", "list"]);
        let of_agents = ["coder", "coordinator", "researcher", "claude", "codex", "goose"];
        assert!(!of_agents.iter().any(|id| tokens.contains(id)), "{tokens}");
    }
}

fn up(home: &Path, model_url: &str) -> Hub {
    let mut up = person(home, model_url);
    up.arg("up");
    Hub::start_with(up, &home.join("data"))
}

fn person(home: &Path, model_url: &str) -> Command {
    let mut command = command(&home.join("data"));
    command
        .current_dir(home.join("work"))
        .env("HOME", home)
        .env("TMPDIR", home.join("tmp"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env("ANTHROPIC_BASE_URL", model_url)
        .env("ANTHROPIC_API_KEY", "dummy")
        .env("OPENAI_HOST", model_url)
        .env("OPENAI_API_KEY", "dummy")
        .env("GOOSE_PROVIDER", "openai")
        .env("GOOSE_MODEL", "scripted")
        .env("GOOSE_DISABLE_KEYRING", "1");
    command
}

/// Returns the model's side of the story.
pub(crate) fn story(model: &ScriptedModel) -> String {
    model.requests().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
