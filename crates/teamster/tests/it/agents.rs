//! Agents that the hub runs, played by the scripted one: the tools, the leash, and what becomes of those that misbehave.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and how many drafts there are is the tester's to say"
)]

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hub::{Hub, Mcp, command};
use crate::unattended::first_line;

/// A hub whose agents are scripted.
pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) home: TempDir,
}

impl World {
    pub(crate) fn start(settings: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let config = home.path().join("config/teamster");
        std::fs::create_dir_all(&config).expect("it can be made");
        let settings = format!("program = \"scripted\"\n{settings}");
        std::fs::write(config.join("teamster.toml"), settings).expect("it can be written");
        let hub = Hub::start_with(up(&home), &home.path().join("data"));
        Self { hub, home }
    }

    pub(crate) fn crash_and_start_again(&mut self) {
        self.hub.end(Signal::KILL);
        self.start_again();
    }

    /// Starts another hub on the data of one that is ended, which finds programs only here.
    pub(crate) fn start_again_with_path(&mut self, path: &std::path::Path) {
        self.hub.end(Signal::TERM);
        let mut up = up(&self.home);
        up.env("PATH", path);
        self.hub = Hub::start_with(up, &self.home.path().join("data"));
    }

    /// Starts another hub on the data of one that has ended.
    pub(crate) fn start_again(&mut self) {
        self.hub = Hub::start_with(up(&self.home), &self.home.path().join("data"));
    }

    /// Drafts an agent as a person does, and returns its id.
    pub(crate) fn draft(&self, role: &str, script: &str) -> String {
        self.hub.ok(&["draft", role, script])
    }

    /// Waits for an agent's end, and returns what is known of it then.
    pub(crate) fn ended(&self, id: &str) -> Value {
        // How it ended is the test's to judge, so it may fail.
        let output = self.hub.run(&["await", id, "--json"]);
        serde_json::from_slice(&output.stdout).expect("it prints the agent")
    }

    pub(crate) fn agent(&self, id: &str) -> Value {
        let all = self.hub.ok(&["agents", "--all", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&all).expect("it is JSON");
        all.into_iter().find(|agent| agent["id"] == id).expect("the agent is known")
    }

    pub(crate) async fn client(&self, name: &str, grants: &str) -> Mcp {
        self.hub.modern(&self.hub.token(name, grants), "/mcp").await
    }
}

fn up(home: &TempDir) -> Command {
    let mut up = command(&home.path().join("data"));
    up.env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("TMPDIR", home.path())
        .current_dir(home.path())
        .arg("up");
    up
}

pub(crate) fn outcome(agent: &Value) -> (&str, &str, &str) {
    let word = |name: &str| agent["outcome"][name].as_str().expect("it has ended");
    (word("ending"), word("status"), word("summary"))
}

/// Returns the processes of a hub's agents, whose home is the hub's.
fn processes(world: &World) -> Vec<PathBuf> {
    // It may have ended while we look.
    let read = |file: PathBuf| {
        String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
    };
    let home = world.home.path().to_string_lossy();
    let all = std::fs::read_dir("/proc").expect("it can be read");
    let mut found: Vec<PathBuf> = all
        .map(|entry| entry.expect("it can be read").path())
        .filter(|process| read(process.join("cmdline")).contains("scripted-agent"))
        .filter(|process| read(process.join("environ")).contains(&*home))
        .collect();
    found.sort();
    found
}

#[test]
fn a_hub_that_starts_again_ends_only_what_was_its_own() {
    let (mut one, other) = (World::start(""), World::start(""));
    for world in [&one, &other] {
        assert_eq!(world.draft("coder", "! hang"), "coder-1");
        first_line(&world.hub, &["log", "--follow"], |line| line.contains("begins a turn"));
    }
    let before = processes(&other);
    assert!(!before.is_empty());
    one.crash_and_start_again();
    assert_eq!(processes(&other), before);
    assert_eq!(other.agent("coder-1")["incarnation"], 1);
}

/// Calls a tool of the set, whose answers are JSON, and says whether it failed.
async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> (Value, bool) {
    let (text, failed) = client.call(tool, arguments).await;
    (serde_json::from_str(&text).expect("the answer is JSON"), failed)
}

#[tokio::test]
async fn each_tool_answers_as_its_table_says() {
    let world = World::start("");
    let mut ann = world.client("ann", "full").await;
    let prompt = "Look around.\n! say hello\n! ask to look around\n! outcome {\"status\":\"partial\",\"summary\":\"seen\",\"changes\":[\"a\"],\"questions\":[\"why?\"]}";
    let draft = json!({"role": "coder", "prompt": prompt, "taskSlug": "tour"});
    let (drafted, failed) = call(&mut ann, "draft_agent", draft).await;
    assert_eq!(
        (drafted, failed),
        (json!({"agentId": "coder-1", "role": "coder", "taskSlug": "tour"}), false)
    );

    // Again and by several, also after it has ended.
    let mut results = Vec::new();
    for _ in 0..2 {
        let (mut result, _) = call(&mut ann, "await_agent", json!({"agentId": "coder-1"})).await;
        assert!(result["duration_ms"].is_u64(), "{result}");
        result["duration_ms"] = json!(0);
        results.push(result);
    }
    let expected = json!({
        "status": "completed",
        "result": {"status": "partial", "summary": "seen", "changes": ["a"], "issues": [], "questions": ["why?"]},
        "cost": null, "duration_ms": 0,
    });
    assert_eq!(results, [expected.clone(), expected]);

    let (killed, failed) = call(&mut ann, "kill_agent", json!({"agentId": "coder-1"})).await;
    let had_ended = json!({"success": true, "message": "Agent \"coder-1\" had ended already"});
    assert_eq!((killed, failed), (had_ended, false));
    let (tasks, _) = call(&mut ann, "list_tasks", json!({})).await;
    assert_eq!(
        (&tasks["tasks"][0]["slug"], &tasks["tasks"][0]["dispatchCount"]),
        (&json!("tour"), &json!(1))
    );
    let (context, _) = call(&mut ann, "get_task_context", json!({"taskSlug": "tour"})).await;
    let context = context["context"].as_str().expect("it is text");
    assert!(
        context.contains("### Previous Work") && context.contains("Summary: seen"),
        "{context}"
    );

    let draft = json!({"role": "coder", "prompt": "! hang"});
    call(&mut ann, "draft_agent", draft).await;
    let (agents, _) = call(&mut ann, "list_agents", json!({})).await;
    assert_eq!(agents["agents"][0]["id"], "coder-2");
    let (killed, _) = call(&mut ann, "kill_agent", json!({"agentId": "coder-2"})).await;
    assert_eq!(killed, json!({"success": true, "message": "Agent \"coder-2\" killed"}));
    assert_eq!(call(&mut ann, "list_agents", json!({})).await.0, json!({"agents": []}));

    for (tool, arguments, error) in [
        ("draft_agent", json!({"role": "nobody", "prompt": "x"}), "UnknownRole"),
        ("draft_agent", json!({"role": "coder"}), "ValidationError"),
        ("await_agent", json!({"agentId": "nobody-1"}), "UnknownAgent"),
        ("get_task_context", json!({"taskSlug": "nothing"}), "UnknownTask"),
    ] {
        let (answer, failed) = call(&mut ann, tool, arguments).await;
        assert_eq!((&answer["error"], failed), (&json!(error), true), "{tool}: {answer}");
    }
    // Another's agent is like one that never was, and who may only look may not draft.
    let mut bob = world.client("bob", "full").await;
    for tool in ["await_agent", "kill_agent"] {
        let (answer, _) = call(&mut bob, tool, json!({"agentId": "coder-1"})).await;
        assert_eq!(answer["error"], "UnknownAgent", "{tool}: {answer}");
    }
    // Who may draft sees that others work, too, and no more of it than that; who may only look sees nothing of others.
    let mut eve = world.client("eve", "read-only").await;
    call(&mut ann, "draft_agent", json!({"role": "coder", "prompt": "! hang", "taskSlug": "tour"}))
        .await;
    crate::unattended::until_said(&world, "agent coder-3 begins a turn");
    let one = json!({"id": "coder-3", "role": "coder", "taskSlug": "tour", "status": "running"});
    assert_eq!(call(&mut bob, "list_agents", json!({})).await.0, json!({"agents": [one]}));
    assert_eq!(call(&mut eve, "list_agents", json!({})).await.0, json!({"agents": []}));
    let (mut own, _) = call(&mut ann, "list_agents", json!({})).await;
    assert!(own["agents"][0]["startedAt"].take().is_string(), "{own}");
    call(&mut ann, "kill_agent", json!({"agentId": "coder-3"})).await;
    let (answer, failed) =
        call(&mut eve, "draft_agent", json!({"role": "coder", "prompt": "x"})).await;
    assert_eq!((&answer["error"], failed), (&json!("Forbidden"), true));
}

/// A script that drafts an agent which does the same, so many generations deep.
fn generations(n: u32) -> String {
    let below = if n == 0 { "! say the last".to_owned() } else { generations(n - 1) };
    let draft = json!({"role": "coordinator", "prompt": below.replace('$', "$$")});
    format!(
        "! call draft_agent {draft}\n! call await_agent {{\"agentId\":\"$call1.agentId\"}}\n\
         ! outcome {{\"status\":\"success\",\"summary\":\"$call1 $call2\"}}"
    )
}

#[test]
fn a_role_that_drafts_itself_stops_at_the_limit() {
    let world = World::start("[limits]\ndepth = 2\n");
    let root = world.draft("coordinator", &generations(5));
    assert_eq!(world.ended(&root)["below"], 2);
    let last = world.agent("coordinator-3");
    assert!(outcome(&last).2.contains("you are 2 generations deep"), "{last}");
}

#[test]
fn drafts_start_in_their_order_and_waiting_ones_take_no_room() {
    let world = World::start("[pool]\nrunning = 2\nlive = 6\n");
    // Each waits for one that it drafts: with two places, they could all wait for ever.
    let script = "! call draft_agent {\"role\":\"coder\",\"prompt\":\"! say hello\"}\n\
                  ! call await_agent {\"agentId\":\"$call1.agentId\"}\n! outcome {\"status\":\"success\",\"summary\":\"$call2.result.summary\"}";
    let parents: Vec<String> = (0..3).map(|_| world.draft("coordinator", script)).collect();
    let plain: Vec<String> =
        (0..n_drafts()).map(|n| world.draft("coder", &format!("! say {n}"))).collect();
    for id in &parents {
        assert_eq!(outcome(&world.ended(id)), ("completed", "success", "hello"));
    }
    for (n, id) in plain.iter().enumerate() {
        assert_eq!(outcome(&world.ended(id)).2, n.to_string());
    }
    let log = world.hub.ok(&["log"]);
    let started = |id: &String| log.find(&format!("agent {id} starts")).expect("it started");
    assert!(plain.is_sorted_by_key(started), "{log}");
}

/// As many drafts as are queued at once; `TEAMSTER_DRAFTS` makes it more.
fn n_drafts() -> usize {
    std::env::var("TEAMSTER_DRAFTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// Returns how many processes there are that sleep this long.
fn n_sleepers(seconds: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("it can be read");
    let sleeps = |path: std::path::PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line == format!("sleep\0{seconds}\0").as_bytes()
    };
    processes.filter(|entry| sleeps(entry.as_ref().expect("it can be read").path())).count()
}

#[test]
fn nothing_is_left_of_an_agent_that_resists() {
    let mut world = World::start("[programs.scripted]\ngrace_s = 1\n");
    let (killed, lost) = ("86411", "86412");
    let resisting = |mark: &str| format!("! ignore-sigterm\n! fork {mark}\n! say ready\n! hang");
    let wait_for = |world: &World, id: &str| {
        let follow = world
            .hub
            .command()
            .args(["agent", "show", id, "--follow", "--json"])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut follow = follow.expect("it starts");
        let lines = std::io::BufReader::new(follow.stdout.take().expect("it is piped"));
        let ready = std::io::BufRead::lines(lines)
            .map_while(Result::ok)
            .any(|line| line.contains(r#""type":"text""#) && line.contains("ready"));
        follow.kill().expect("it can be killed");
        follow.wait().expect("it ends");
        assert!(ready, "the agent never was ready");
    };
    let id = world.draft("coder", &resisting(killed));
    wait_for(&world, &id);
    assert!(n_sleepers(killed) > 0, "the control: they are seen while they run");
    world.hub.ok(&["kill", &id]);
    assert_eq!(n_sleepers(killed), 0);
    assert_eq!(outcome(&world.agent(&id)).0, "aborted");

    let id = world.draft("coder", &resisting(lost));
    wait_for(&world, &id);
    world.crash_and_start_again();
    // The next hub says what it found, and goes on with the agent: it hangs where it did.
    assert_eq!(n_sleepers(lost), 0);
    world.hub.ok(&["kill", &id]);
}

#[test]
fn what_an_agent_does_wrong_is_its_own_harm() {
    let world = World::start("[categories.coding]\nstall_s = 2\n");
    let circles = "! call task-list\n".repeat(8);
    for (script, expected) in [
        ("! hang", ("timed_out", "failed")),
        ("! exit 3", ("crashed", "failed")),
        ("! crash", ("crashed", "failed")),
        ("! garbage\n! say fine", ("completed", "success")),
        ("! flood 20000000\n! say fine", ("completed", "success")),
        ("! long-line 20000000\n! say fine", ("completed", "success")),
        (circles.as_str(), ("aborted", "failed")),
    ] {
        let id = world.draft("coder", script);
        let agent = world.ended(&id);
        let (ending, status, _) = outcome(&agent);
        let script: String = script.chars().take(40).collect();
        assert_eq!((ending, status), expected, "{script}: {agent}");
        // Whatever became of it, its token is dead.
        assert!(!world.hub.ok(&["token", "list"]).contains(&id), "{script}");
    }
    assert!(world.hub.ok(&["log"]).contains("was called 3 times in a row"));
}

#[test]
fn the_demonstration_ends_well_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let output = up(&home).arg("--demo").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("agent coordinator-1 completed (success): The kitchen is clean"),
        "{said}"
    );
    assert!(said.contains("TAS-1 now completed") && said.contains("TAS-2 now completed"), "{said}");
    let left: Vec<_> = std::fs::read_dir(home.path())
        .expect("it can be read")
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("teamster-demo"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_program_is_checked_with_our_tools() {
    let world = World::start(
        "[programs.broken]\ncommand = \"/bin/false\"\n\
         [programs.noisy]\ncommand = \"/bin/ls\"\nargs = [\"/no/such/file\"]\n",
    );
    let run = |name: &str| {
        let mut check = command(&world.home.path().join("other"));
        check.env("HOME", world.home.path()).env("TMPDIR", world.home.path());
        check.env("XDG_CONFIG_HOME", world.home.path().join("config"));
        check.args(["program", "check", name]).output().expect("it starts")
    };
    let works = run("scripted");
    assert!(works.status.success(), "{works:?}");
    let said = String::from_utf8_lossy(&works.stdout);
    assert!(said.starts_with("scripted starts: "), "{said}");
    // It connects only when it calls a tool.
    assert!(said.contains("tools     not connected yet"), "{said}");
    let broken = run("broken");
    assert!(!broken.status.success());
    assert!(String::from_utf8_lossy(&broken.stderr).contains("broken cannot work"), "{broken:?}");
    let said = String::from_utf8_lossy(&broken.stdout);
    assert!(said.starts_with("broken does not start: "), "{said}");
    let tried = "\n  tried     /bin/false in the environment of this shell; ";
    assert!(said.contains(tried) && said.contains("\n  login     a key is set"), "{said}");
    // What only a program shows that starts is left out.
    assert!(!said.contains("\n  tools ") && !said.contains("\n  sessions "), "{said}");
    let noisy = run("noisy");
    assert!(!noisy.status.success());
    let said = String::from_utf8_lossy(&noisy.stderr);
    assert!(said.contains("its last words:\n") && said.contains("/no/such/file"), "{said}");
}

#[test]
fn a_call_waits_as_long_as_the_caller_s_program_does() {
    // The wait ends five seconds before the program's patience does, and not when the child ends.
    let world = World::start("[programs.scripted]\nmax_wait_s = 6\n");
    let script = "! call draft_agent {\"role\":\"coder\",\"prompt\":\"! sleep 20000\"}\n\
                  ! call await_agent {\"agentId\":\"coder-2\"}\n! say $last.status";
    let id = world.draft("coordinator", script);
    assert_eq!(outcome(&world.ended(&id)).2, "running");
}

#[test]
fn one_that_waits_for_others_is_not_taken_for_stalled() {
    let world = World::start("[categories.conversational]\nstall_s = 1\n");
    let script = "! call draft_agent {\"role\":\"coder\",\"prompt\":\"! sleep 3000\\n! say done\"}\n\
                  ! call await_agent {\"agentId\":\"coder-2\"}\n! say $last.status";
    let id = world.draft("coordinator", script);
    assert_eq!(outcome(&world.ended(&id)).2, "completed");
    let silent = world.draft("coordinator", "! sleep 60000");
    assert_eq!(outcome(&world.ended(&silent)).0, "timed_out");
}

/// A program that prints a token, its own or another, must not hand it to those who read transcripts and outcomes.
#[test]
fn tokens_are_not_kept_in_transcripts() {
    let world = World::start("");
    // Made by a command, so that nobody but the program has written it.
    let script = "! run printf tmst_%064d 7\n! say it is $last";
    let id = world.draft("coder", script);
    assert_eq!(outcome(&world.ended(&id)).2, "it is tmst_(redacted)");
    let transcript = world.hub.ok(&["agent", "show", &id, "--json"]);
    assert!(transcript.matches("tmst_(redacted)").count() >= 2, "{transcript}");
    for printed in [transcript, world.hub.ok(&["log", "--json"])] {
        assert!(!printed.contains("tmst_0"), "{printed}");
    }
    // What only looks like one stays.
    let id = world.draft("coder", "! say tokens begin with tmst_0");
    assert_eq!(outcome(&world.ended(&id)).2, "tokens begin with tmst_0");
}

/// Nobody is left to read the results of those that a coordinator drafted, be it ended by a person, a watchdog or a crash.
#[test]
fn those_below_one_that_does_not_complete_end_with_it() {
    let world = World::start("[categories.conversational]\nstall_s = 1\n");
    let draft = "! call draft_agent {\"role\":\"coder\",\"prompt\":\"! hang\"}\n";
    for (n, (end, ending)) in [("! hang", "timed_out"), ("! exit 3\n! exit 3\n! exit 3", "crashed")]
        .into_iter()
        .enumerate()
    {
        let id = world.draft("coordinator", &format!("{draft}{end}"));
        assert_eq!(outcome(&world.ended(&id)).0, ending, "{end}");
        let child = format!("coder-{}", 2 * n + 2);
        let ended = world.ended(&child);
        assert_eq!(outcome(&ended).0, "aborted", "{end}: {ended}");
    }
    // One that completes its work leaves them: whoever reads the dossier sees what comes of them.
    let id = world.draft("coordinator", &format!("{draft}! say done"));
    assert_eq!(outcome(&world.ended(&id)).0, "completed");
    assert_ne!(world.agent("coder-6")["phase"], "ended");
    world.hub.ok(&["kill", "coder-6"]);
}

#[test]
fn people_are_told_what_they_do_not_see() {
    let world = World::start("");
    // An id where a verb belongs, and ids that would be another path.
    let hint = world.hub.run(&["agent", "coder-1"]);
    assert!(String::from_utf8_lossy(&hint.stderr).contains("agent show coder-1`"), "{hint:?}");
    for id in ["../status", "coder-1?x", "a b"] {
        let unknown = world.hub.run(&["agent", "show", id]);
        assert!(
            String::from_utf8_lossy(&unknown.stderr).contains("there is no agent"),
            "{unknown:?}"
        );
    }
    // The first line says at once whom all others are about.
    let lines = world.hub.ok(&["draft", "coder", "! say hello", "--wait", "--json"]);
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    let lines: Vec<Value> = lines.collect();
    assert_eq!((&lines[0]["id"], &lines[0]["phase"]), (&json!("coder-1"), &json!("queued")));
    assert_eq!(lines[lines.len() - 1]["phase"], "ended");
}
