//! Who of several works in a team's directory, and what comes of answers that nobody waits for any more.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and git is a program"
)]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::World;
use crate::hub::Mcp;
use crate::unattended::until_said;
use crate::work::git;

/// A hub with two teams in git repositories.
struct Teams {
    world: World,
    home: TempDir,
}

fn start(pool: &str, each: &str) -> Teams {
    let home = tempfile::tempdir().expect("a directory");
    let mut settings = String::from(pool);
    for name in ["api", "web"] {
        let path = home.path().join(name);
        std::fs::create_dir_all(&path).expect("it can be made");
        git(&path, &["init", "-q", "-b", "main"]);
        git(&path, &["commit", "-q", "--allow-empty", "-m", "first"]);
        let _ = writeln!(settings, "[teams.{name}]\npath = {path:?}\n{each}");
    }
    Teams { world: World::start(&settings), home }
}

async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> Value {
    let (text, failed) = client.call(tool, arguments).await;
    assert!(!failed, "{text}");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Has four people tell one team something at once.
async fn told_by_four(world: &World, message: &str) -> Vec<Value> {
    let tellers = (0..4).map(async |n| {
        let token = world.hub.token(&format!("teller{n}"), "teams");
        let mut client = world.hub.modern(&token, "/mcp/teams").await;
        let tell = json!({"toTeam": "api", "message": message, "timeout": 40_000});
        call(&mut client, "team_tell", tell).await
    });
    futures_util::future::join_all(tellers).await
}

/// Returns how many messages were being answered at a time, at most.
fn most_at_once(world: &World) -> i32 {
    let log = world.hub.ok(&["log", "--json"]);
    let (mut now, mut most) = (0, 0);
    for line in log.lines() {
        now += i32::from(line.contains("is being answered"));
        now -= i32::from(line.contains("TELL-") && line.contains(" answered: "));
        most = most.max(now);
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_works_in_a_directory() {
    let teams = start("", "");
    let told = told_by_four(&teams.world, "! sleep 200\n! say done").await;
    assert!(told.iter().all(|told| told["response"] == "done"), "{told:?}");
    assert_eq!(most_at_once(&teams.world), 1);
}

/// The pool has places for all, but those who could only wait take none; and no process is started in vain.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_for_a_directory_take_turns_in_a_small_pool() {
    let teams = start("[pool]\nrunning = 2\nlive = 2\n", "");
    let told = told_by_four(&teams.world, "! sleep 50\n! say done").await;
    assert!(told.iter().all(|told| told["response"] == "done"), "{told:?}");
    assert_eq!(most_at_once(&teams.world), 1);
    let log = teams.world.hub.ok(&["log"]);
    let n_woken = log.matches("is woken").count();
    assert!(n_woken <= 12, "{n_woken} starts for four messages:\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_worktrees_all_work_at_once_each_in_its_own() {
    let teams = start("", "worktrees = true\n");
    let told = told_by_four(&teams.world, "! write mine.txt here\n! sleep 500\n! say done").await;
    assert!(told.iter().all(|told| told["response"] == "done"), "{told:?}");
    assert!(most_at_once(&teams.world) > 1);
    let api = teams.home.path().join("api");
    assert!(!api.join("mine.txt").exists());
    let listed = git(&api, &["worktree", "list", "--porcelain"]);
    assert_eq!(listed.matches("branch refs/heads/teamster/api/CONV-").count(), 4);
    let written = |path: &str| Path::new(path).join("mine.txt").exists();
    let trees = listed.lines().filter_map(|line| line.strip_prefix("worktree "));
    assert_eq!(trees.filter(|path| written(path)).count(), 4, "{listed}");
}

#[test]
fn a_team_without_a_repository_says_that_it_can_have_no_worktrees() {
    let teams = start("", "worktrees = true\n");
    std::fs::remove_dir_all(teams.home.path().join("api/.git")).expect("it can be removed");
    let told = teams.world.hub.run(&["tell", "api", "! say x"]);
    let says = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(says.contains("worktrees need a git repository"), "{says}");
}

/// Two people ask two teams, which ask each other: nobody waits for the other's directory.
#[test]
fn teams_that_ask_each_other_do_not_block_each_other() {
    let teams = start("", "");
    let ask = |other: &str| {
        format!(
            "! call team_tell {{\"toTeam\":\"{other}\",\"message\":\"! sleep 100\\n! say 42\",\"timeout\":40000}}\n! say {other} says $last.response"
        )
    };
    let hub = &teams.world.hub;
    let tells = [("api", "web"), ("web", "api")]
        .map(|(team, other)| hub.ok(&["tell", team, &ask(other), "--no-wait"]));
    for (tell, says) in tells.iter().zip(["web says 42", "api says 42"]) {
        until_said(&teams.world, &format!("{tell} answered: {says}"));
    }
}

/// The answer that came too late is the next message of the agent that asked.
#[test]
fn a_late_answer_is_sent_to_the_agent_that_asked() {
    let teams = start("", "");
    let hub = &teams.world.hub;
    // Once without waiting, and once without waiting long enough.
    for (n, wait) in ["\"waitForResponse\":false", "\"timeout\":1000"].iter().enumerate() {
        let ask = format!(
            "! call team_tell {{\"toTeam\":\"web\",\"message\":\"! sleep 1500\\n! say ! say I know {n}\",{wait}}}\n! say asked"
        );
        assert_eq!(hub.ok(&["tell", "api", &ask]), "asked");
        until_said(&teams.world, &format!("answered: I know {n}"));
    }
    let transcript = hub.ok(&["transcript", "operator", "api"]);
    assert_eq!(transcript.matches("web has answered your message").count(), 2, "{transcript}");
    assert_eq!(hub.ok(&["log"]).matches("answered: I know").count(), 2);
}

/// Whoever asked was cut off with the hub; the answer comes all the same, once.
#[test]
fn a_late_answer_survives_the_hub() {
    let mut teams = start("", "");
    let slow = "! sleep 1500\\n! say ! say I know now";
    let ask = format!(
        "! call team_tell {{\"toTeam\":\"web\",\"message\":\"{slow}\",\"waitForResponse\":false}}\n! say asked"
    );
    assert_eq!(teams.world.hub.ok(&["tell", "api", &ask]), "asked");
    teams.world.crash_and_start_again();
    until_said(&teams.world, "answered: I know now");
    assert_eq!(teams.world.hub.ok(&["log"]).matches("answered: I know now").count(), 1);
}

#[tokio::test]
async fn answers_are_unread_until_they_are_read() {
    let teams = start("", "");
    let token = teams.world.hub.token("ann", "teams");
    let mut ann = teams.world.hub.modern(&token, "/mcp/teams").await;
    let tell = json!({"toTeam": "api", "message": "! say later", "waitForResponse": false});
    let told = call(&mut ann, "team_tell", tell).await;
    until_said(&teams.world, "answered: later");
    let unread = json!({"queuedMessages": 0, "openQuestions": 0, "unreadAnswers": 1});
    let awake = call(&mut ann, "team_isAwake", json!({"team": "api"})).await;
    assert_eq!(awake["notifications"], unread);
    call(&mut ann, "team_cache_read", json!({"sessionId": told["sessionId"]})).await;
    let awake = call(&mut ann, "team_isAwake", json!({"team": "api"})).await;
    assert_eq!(awake["notifications"]["unreadAnswers"], 0);
}

#[test]
fn a_message_that_is_not_begun_can_be_taken_back() {
    let teams = start("", "");
    let hub = &teams.world.hub;
    let first = hub.ok(&["tell", "api", "! sleep 1000\n! say done", "--no-wait"]);
    let second = hub.ok(&["tell", "api", "! say never", "--no-wait"]);
    until_said(&teams.world, &format!("{first} is being answered"));
    assert_eq!(hub.ok(&["cancel", &second]), format!("{second} is taken back"));
    let refused = hub.run(&["cancel", &first]);
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && says.contains("is being answered already"), "{says}");
    until_said(&teams.world, &format!("{first} answered: done"));
    let unknown = hub.run(&["cancel", "TELL-99"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no message"));
}

/// One that only waits for its directory is not started and sent away again and again while another could work.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_directory_does_not_keep_others_from_a_place() {
    let teams = start("[pool]\nrunning = 2\nlive = 2\n", "");
    let tell = async |name: &str, team: &str, message: &str| {
        let token = teams.world.hub.token(name, "teams");
        let mut client = teams.world.hub.modern(&token, "/mcp/teams").await;
        let tell = json!({"toTeam": team, "message": message, "waitForResponse": false});
        call(&mut client, "team_tell", tell).await
    };
    tell("one", "api", "! sleep 3000\n! say done").await;
    until_said(&teams.world, "TELL-1 is being answered");
    tell("two", "api", "! say second").await;
    tell("three", "web", "! say third").await;
    until_said(&teams.world, "TELL-3 answered: third");
    let log = teams.world.hub.ok(&["log"]);
    assert!(!log.contains("TELL-1 answered"), "{log}");
    assert!(log.matches("is woken").count() < 8, "{log}");
}

/// Any name that a team may have can be told something.
#[test]
fn teams_have_dots_and_signs_in_their_names() {
    let home = tempfile::tempdir().expect("a directory");
    let mut settings = String::new();
    let names = ["my.app", "a@b", "x.lock", "-x", "."];
    for name in names {
        let _ = writeln!(settings, "[teams.{name:?}]\npath = {:?}", home.path());
    }
    let world = World::start(&settings);
    for name in names {
        assert_eq!(world.hub.ok(&["tell", "--", name, "! say hi"]), "hi", "{name}");
    }
}

/// Whoever waits when the hub is stopped is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_stops_answers_those_who_wait() {
    let mut teams = start("", "");
    let token = teams.world.hub.token("ann", "teams");
    let mut ann = teams.world.hub.modern(&token, "/mcp/teams").await;
    let waits = tokio::spawn(async move {
        let tell = json!({"toTeam": "api", "message": "! say begun\n! hang", "timeout": 40_000});
        call(&mut ann, "team_tell", tell).await
    });
    until_said(&teams.world, "TELL-1 is being answered");
    teams.world.hub.end(rustix::process::Signal::TERM);
    let told = waits.await.expect("it ends");
    assert_eq!(told["status"], "timeout", "{told}");
}
