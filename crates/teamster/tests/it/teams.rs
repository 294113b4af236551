//! Teams: projects that talk to each other, played by the scripted agent.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::World;
use crate::hub::Mcp;

/// A hub with teams, each with a directory of its own.
pub(crate) struct Teams {
    pub(crate) world: World,
    pub(crate) home: TempDir,
}

impl Teams {
    pub(crate) fn start(more: &str) -> Self {
        Self::of(&["api", "web", "ops"].map(|name| (name.to_owned(), "")), more)
    }

    /// Starts a hub with these teams, each with more that is configured of it.
    pub(crate) fn of(teams: &[(String, &str)], more: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let mut settings = String::from(more);
        for (name, of_team) in teams {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.join("src")).expect("it can be made");
            let _ = writeln!(
                settings,
                "[teams.{name}]\npath = {path:?}\ndescription = \"the {name}\"\n{of_team}"
            );
        }
        Self { world: World::start(&settings), home }
    }

    pub(crate) fn tell(&self, team: &str, message: &str) -> String {
        self.world.hub.ok(&["tell", team, message])
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let path = std::fs::canonicalize(self.home.path().join(name)).expect("it is there");
        path.to_string_lossy().into_owned()
    }

    /// Returns a client that speaks for a team, or for itself.
    pub(crate) async fn client(&self, name: &str, team: Option<&str>) -> Mcp {
        let mut arguments = vec!["token", "create", name, "--grant", "teams"];
        arguments.extend(team.iter().flat_map(|team| ["--team", team]));
        let token = self.world.hub.ok(&arguments);
        self.world.hub.modern(token.trim(), "/mcp/teams").await
    }
}

/// Returns the sessions that an agent has worked in.
pub(crate) fn sessions<'a>(log: &'a str, agent: &str) -> std::collections::BTreeSet<&'a str> {
    let works = format!("agent {agent} works (session ");
    log.lines().filter_map(|line| Some(line.split_once(&works)?.1)).collect()
}

/// Calls a tool of the set, whose answers are JSON, and says whether it failed.
pub(crate) async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> (Value, bool) {
    let (text, failed) = client.call(tool, arguments).await;
    (serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}")), failed)
}

#[test]
fn a_person_tells_a_team_something_and_gets_the_answer() {
    let teams = Teams::start("");
    assert_eq!(teams.tell("api", "! say all is well"), "all is well");
    // The same session goes on, awake or not.
    assert_eq!(teams.tell("api", "! say still well"), "still well");
    let sleep = || teams.world.hub.ok(&["sleep", "api"]);
    assert_eq!(sleep(), "your conversation with api has been put to sleep");
    assert_eq!(sleep(), "your conversation with api is already asleep");
    assert_eq!(teams.tell("api", "! say well again"), "well again");
    assert_eq!(teams.world.hub.ok(&["sleep", "api"]).lines().count(), 1);
    let agent = teams.world.agent("api-1");
    assert_eq!((&agent["phase"], &agent["limits"]["turns"]), (&json!("asleep"), &Value::Null));
    assert!(!teams.world.hub.ok(&["agents", "--json"]).contains("api-1"));
    assert_eq!(teams.world.hub.ok(&["wake", "--all"]).lines().count(), 4);
    let agent = teams.world.agent("api-1");
    assert_eq!((&agent["incarnation"], &agent["phase"]), (&json!(3), &json!("running")));
    let log = teams.world.hub.ok(&["log"]);
    assert_eq!(sessions(&log, "api-1").len(), 1, "{log}");
    let transcript = teams.world.hub.ok(&["transcript", "operator", "api"]);
    for said in ["all is well", "still well", "well again"] {
        assert!(transcript.contains(&format!("\n  {said}\n· TELL-")), "{transcript}");
    }
    let listed = teams.world.hub.ok(&["teams"]);
    assert!(
        listed.contains("api") && listed.contains("awake") && listed.contains("the ops"),
        "{listed}"
    );
}

#[tokio::test]
async fn agents_of_teams_tell_each_other() {
    let teams = Teams::start("");
    let script = "! call team_tell {\"toTeam\":\"web\",\"message\":\"! say 42\"}\n! say web says $last.response";
    assert_eq!(teams.tell("api", script), "web says 42");
    let log = teams.world.hub.ok(&["log"]);
    assert!(log.contains("api can talk to web (web-2)"), "{log}");
    // Two that are always polite come to an end.
    let polite = "! call team_tell {\"toTeam\":\"api\",\"message\":\"x\"}\n! say $last";
    let answer = teams.tell("web", polite);
    assert!(answer.contains("\"response\""), "{answer}");
}

#[test]
fn a_message_survives_the_hub() {
    let mut teams = Teams::start("");
    let wait = "! say begun\n! sleep 1000\n! say done";
    let tell = teams.world.hub.ok(&["tell", "api", wait, "--no-wait"]);
    assert_eq!(tell, "TELL-1");
    let queued = teams.world.hub.ok(&["tell", "api", "! say second", "--no-wait"]);
    crate::unattended::until_said(&teams.world, "TELL-1 is being answered");
    teams.world.crash_and_start_again();
    crate::unattended::until_said(&teams.world, &format!("{queued} answered: second"));
    let transcript = teams.world.hub.ok(&["transcript", "operator", "api"]);
    assert!(
        transcript.contains("done\n") && transcript.contains("second\n· TELL-2 completed"),
        "{transcript}"
    );
}

/// Starts a `tell` that waits, and returns once the message is begun or waits.
fn telling(teams: &Teams, message: &str, until: &str) -> Child {
    let mut tell = teams.world.hub.command();
    tell.args(["tell", "api", message]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let tell = tell.spawn().expect("it starts");
    crate::unattended::until_said(&teams.world, until);
    tell
}

fn outputs(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn who_waits_for_an_answer_waits_for_the_hub() {
    let mut teams = Teams::start("");
    let tell = telling(&teams, "! sleep 500\n! say done", "TELL-1 is being answered");
    teams.world.crash_and_start_again();
    let output = tell.wait_with_output().expect("it ends");
    let (answer, says) = outputs(&output);
    assert_eq!(answer, "done", "{says}");
    assert_eq!(says, "the hub is gone; TELL-1 is kept, and this waits until it runs again");
    // Who gives up is told where the answer will be.
    let tell = telling(&teams, "! hang", "TELL-2 is being answered");
    let id = rustix::process::Pid::from_child(&tell);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it is there");
    let output = tell.wait_with_output().expect("it ends");
    let (answer, says) = outputs(&output);
    assert!(answer.is_empty() && !output.status.success());
    assert!(says.contains("TELL-2 is kept all the same") && says.contains(" transcript CONV-1`"));
}

/// Returns what is said to somebody who waits for one second.
fn said_soon(teams: &Teams, arguments: &[&str]) -> String {
    let output = teams.world.hub.run(&[&["tell", "--timeout", "1"], arguments].concat());
    let (answer, says) = outputs(&output);
    assert!(answer.is_empty() && !output.status.success(), "{answer}");
    says
}

#[test]
fn who_waits_is_told_what_for() {
    let teams = Teams::start("[permissions]\notherwise = \"ask\"\n");
    let hub = &teams.world.hub;
    let says = said_soon(&teams, &["api", "! ask to look around\n! hang"]);
    assert!(says.starts_with("TELL-1 waits for your answer to Q-1"), "{says}");
    hub.ok(&["answer", "Q-1", "allow"]);
    let says = said_soon(&teams, &["api", "! say hi"]);
    assert!(says.starts_with("TELL-2 waits until another message is answered;"), "{says}");
    assert!(says.ends_with("cancel TELL-2` takes it back"), "{says}");
    let says = said_soon(&teams, &["api", "! say hi", "--from", "web"]);
    let place = teams.path("api");
    let waits = format!("waits for {place}, in which api-1 works");
    assert!(says.starts_with(&format!("TELL-3 {waits}")), "{says}");
    let shown = hub.ok(&["teams"]);
    assert!(
        shown.contains("CONV-1") && shown.contains("CONV-2") && shown.contains(&waits),
        "{shown}"
    );

    let cancel = |tell: &str| hub.run(&["cancel", tell, "--json"]);
    let refused = hub.fails(&["cancel", "TELL-1"]);
    assert!(refused.contains("TELL-1 is being answered already"), "{refused}");
    assert!(cancel("TELL-2").status.success());
    let again = cancel("TELL-2");
    assert!(!again.status.success() && outputs(&again).0.contains("\"status\":\"cancelled\""));
    hub.ok(&["sleep", "api"]);
    crate::unattended::until_said(&teams.world, "TELL-3 answered");
    let refused = hub.fails(&["cancel", "TELL-3"]);
    assert!(refused.contains("TELL-3 was answered already"), "{refused}");
    let (_, says) = outputs(&hub.run(&["sleep", "api"]));
    assert!(says.contains("api is awake for web (CONV-2)") && says.contains("sleep api --all`"));

    let long = "x".repeat(200_000);
    let output = crate::hub::feed(
        {
            let mut tell = hub.command();
            tell.args(["tell", "api", "-"]);
            tell
        },
        &long,
    );
    assert!(outputs(&output).1.contains("Message too long (max 100KB)"));
}

#[test]
fn what_a_team_lacks_is_shown() {
    let teams = Teams::of(
        &[
            ("api".to_owned(), ""),
            ("web".to_owned(), "program = \"nonesuch\"\n"),
            ("ops".to_owned(), "worktrees = true\n"),
        ],
        "",
    );
    std::fs::remove_dir_all(teams.path("api")).expect("it is there");
    let list: Value =
        serde_json::from_str(&teams.world.hub.ok(&["teams", "--json"])).expect("it is JSON");
    let problem = |name: &str| {
        let mut all = list["teams"].as_array().expect("teams").iter();
        let team = all.find(|team| team["name"] == name).expect("it is there");
        assert_eq!(team["conversations"], json!([]));
        team["problem"].as_str().expect("something is wrong").to_owned()
    };
    assert!(problem("api").ends_with("is not there, or is no directory"));
    assert!(problem("web").contains("nonesuch"));
    assert!(problem("ops").contains("`git init`"));
    let shown = teams.world.hub.ok(&["teams"]);
    assert!(shown.contains("! worktrees need a git repository"), "{shown}");
    let made = teams.world.hub.run(&["token", "create", "ann", "--team", "later"]);
    let (_, says) = outputs(&made);
    assert!(
        says.contains("of team later)") && says.contains("there is no team later yet"),
        "{says}"
    );
    let says = teams.world.hub.fails(&["tell", "ops", "! say hi"]);
    assert!(says.contains("`git init`"), "{says}");
}

#[test]
fn those_who_rest_longest_make_room() {
    let teams = Teams::start("[pool]\nrunning = 2\nlive = 2\n");
    for team in ["api", "web", "ops", "api"] {
        assert_eq!(teams.tell(team, "! say here"), "here");
    }
    let log = teams.world.hub.ok(&["log"]);
    assert!(log.contains("agent api-1 sleeps: others needed its place"), "{log}");
    assert!(Path::new(&teams.path("api")).is_dir());
}

#[test]
fn a_teller_that_waits_holds_no_place() {
    let teams = Teams::start("[pool]\nrunning = 1\nlive = 1\n");
    let script = "! call team_tell {\"toTeam\":\"web\",\"message\":\"! call team_tell {\\\"toTeam\\\":\\\"ops\\\",\\\"message\\\":\\\"! say deep\\\"}\\n! say $$last.response\"}\n! say $last.response";
    assert_eq!(teams.tell("api", script), "deep");
}

/// One that speaks for a team has no end: it sleeps, and nobody waits for more.
#[test]
fn who_speaks_for_a_team_is_killed_by_sleep_and_not_awaited() {
    let teams = Teams::start("");
    assert_eq!(teams.tell("api", "! say here"), "here");
    let hub = &teams.world.hub;
    let killed = hub.run(&["kill", "api-1"]);
    let says = String::from_utf8_lossy(&killed.stderr).into_owned();
    assert!(killed.status.success() && says.contains("was put to sleep"), "{says}");
    let killed = hub.run(&["kill", "api-1"]);
    assert!(String::from_utf8_lossy(&killed.stderr).contains("sleeps already"));
    let says = hub.fails(&["await", "api-1"]);
    assert!(says.contains("has no end"), "{says}");
    assert_eq!(teams.tell("api", "! say again"), "again");
}

#[test]
fn what_is_missing_of_a_long_answer_is_said() {
    let teams = Teams::start("");
    let answer = teams.tell("api", &format!("! say BEGIN{}END", "x".repeat(80_000)));
    assert!(answer.starts_with('[') && answer.ends_with("END"), "{}", &answer[..100]);
    assert!(answer.contains("bytes before this are only in the transcript of CONV-1]"));
}

#[test]
fn sleep_says_what_it_costs() {
    let teams = Teams::start("");
    let hub = &teams.world.hub;
    let first = hub.ok(&["tell", "api", "! hang", "--no-wait"]);
    hub.ok(&["tell", "api", "! say never", "--no-wait"]);
    crate::unattended::until_said(&teams.world, &format!("{first} is being answered"));
    let says = hub.ok(&["sleep", "api"]);
    assert!(says.ends_with("2 messages that were not answered are terminated"), "{says}");
}
