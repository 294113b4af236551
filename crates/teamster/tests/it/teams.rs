//! Teams: projects that talk to each other, played by the scripted agent.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::World;
use crate::hub::Mcp;

/// A hub with three teams.
struct Teams {
    world: World,
    home: TempDir,
}

impl Teams {
    fn start(more: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let mut settings = String::from(more);
        for name in ["api", "web", "ops"] {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.join("src")).expect("it can be made");
            let _ =
                writeln!(settings, "[teams.{name}]\npath = {path:?}\ndescription = \"the {name}\"");
        }
        Self { world: World::start(&settings), home }
    }

    fn tell(&self, team: &str, message: &str) -> String {
        self.world.hub.ok(&["tell", team, message])
    }

    fn path(&self, name: &str) -> String {
        let path = std::fs::canonicalize(self.home.path().join(name)).expect("it is there");
        path.to_string_lossy().into_owned()
    }
}

async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> (Value, bool) {
    let (text, failed) = client.call(tool, arguments).await;
    (serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}")), failed)
}

#[test]
fn a_person_tells_a_team_something_and_gets_the_answer() {
    let teams = Teams::start("");
    assert_eq!(teams.tell("api", "! say all is well"), "all is well");
    // The same session goes on, awake or not.
    assert_eq!(teams.tell("api", "! say still well"), "still well");
    assert_eq!(teams.world.hub.ok(&["sleep", "api"]), "Team api has been put to sleep");
    assert_eq!(teams.world.hub.ok(&["sleep", "api"]), "Team api is already asleep");
    assert_eq!(teams.tell("api", "! say well again"), "well again");
    let agent = teams.world.agent("api-1");
    assert_eq!((&agent["incarnation"], &agent["phase"]), (&json!(2), &json!("running")));
    let log = teams.world.hub.ok(&["log"]);
    assert_eq!(log.matches("agent api-1 works (session").count(), 1, "{log}");
    let transcript = teams.world.hub.ok(&["transcript", "operator", "api"]);
    for said in ["all is well", "still well", "well again"] {
        assert!(transcript.contains(&format!("\n{said}\n· TELL-")), "{transcript}");
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

#[tokio::test]
async fn each_tool_answers_as_its_seed_says() {
    let teams = Teams::start("");
    let token =
        teams.world.hub.ok(&["token", "create", "wendy", "--team", "web", "--grant", "full"]);
    let mut wendy = teams.world.hub.modern(token.trim(), "/mcp/teams").await;
    let (named, _) =
        call(&mut wendy, "team_getTeamName", json!({"pwd": teams.path("api/src")})).await;
    assert_eq!(named, json!({"found": true, "teamName": "api", "path": teams.path("api")}));
    let (named, _) = call(&mut wendy, "team_getTeamName", json!({"pwd": "/nowhere"})).await;
    assert_eq!(named, json!({"found": false}));

    let (listed, _) = call(&mut wendy, "team_teams", json!({})).await;
    // The directory that the hub was started in is one, too.
    assert_eq!((&listed["totalTeams"], &listed["awakeTeams"]), (&json!(4), &json!(0)), "{listed}");

    let tell =
        json!({"toTeam": "api", "fromTeam": "web", "message": "! say hello", "timeout": 40_000});
    let (told, failed) = call(&mut wendy, "team_tell", tell).await;
    assert_eq!(
        (&told["response"], &told["async"], failed),
        (&json!("hello"), &json!(false), false),
        "{told}"
    );
    assert_eq!((&told["from"], &told["to"]), (&json!("web"), &json!("api")));

    let (awake, _) = call(&mut wendy, "team_isAwake", json!({"team": "api"})).await;
    assert_eq!(awake["awake"], true, "{awake}");
    let (awake, _) = call(&mut wendy, "team_isAwake", json!({})).await;
    assert_eq!(awake["teams"].as_array().map(Vec::len), Some(4));

    // Not waited for, and read later; the second waits for the first.
    let slow = json!({"toTeam": "api", "message": "! say slowly\n! sleep 300\n! say done", "waitForResponse": false});
    let (first, _) = call(&mut wendy, "team_tell", slow).await;
    assert_eq!((&first["async"], &first["response"]), (&json!(true), &Value::Null));
    let next = json!({"toTeam": "api", "message": "! say next", "timeout": 40_000});
    let (second, _) = call(&mut wendy, "team_tell", next).await;
    assert_eq!(second["response"], "next");
    let read = json!({"sessionId": first["sessionId"], "messageCount": 5});
    let (cache, _) = call(&mut wendy, "team_cache_read", read).await;
    assert_eq!(
        cache["stats"],
        json!({"totalEntries": 3, "activeEntries": 0, "completedEntries": 3})
    );
    assert_eq!(cache["entries"][1]["messages"][1]["data"]["text"], "slowly\ndone", "{cache}");
    let text = json!({"sessionId": first["sessionId"], "format": "text"});
    let (cache, _) = call(&mut wendy, "team_cache_read", text).await;
    assert!(
        cache["text"].as_str().is_some_and(|text| text.contains("api (completed): next")),
        "{cache}"
    );

    // A timeout is a result with what was said so far.
    let hang = json!({"toTeam": "api", "message": "! say so far\n! hang", "timeout": 1_500});
    let (partial, failed) = call(&mut wendy, "team_tell", hang).await;
    assert_eq!(
        (&partial["status"], &partial["response"], failed),
        (&json!("timeout"), &json!("so far"), false)
    );
    let (report, _) = call(&mut wendy, "team_report", json!({"team": "api"})).await;
    assert!(report["output"].as_str().is_some_and(|text| text.ends_with("so far")), "{report}");
    let (slept, _) = call(&mut wendy, "team_sleep", json!({"team": "api"})).await;
    assert_eq!(slept["status"], "asleep", "{slept}");
    let (report, _) = call(&mut wendy, "team_report", json!({"team": "api"})).await;
    assert!(report["output"].as_str().is_some_and(|text| text.contains("terminated")), "{report}");
    let (slept, _) = call(&mut wendy, "team_sleep", json!({"team": "api"})).await;
    assert_eq!(slept["status"], "already_asleep");

    let (woken, _) = call(&mut wendy, "team_wake", json!({"team": "api"})).await;
    assert_eq!(woken["status"], "awake", "{woken}");
    let (all, _) = call(&mut wendy, "team_wake_all", json!({"parallel": true})).await;
    assert_eq!((&all["totalTeams"], &all["failureCount"]), (&json!(3), &json!(0)), "{all}");
    let clear = json!({"sessionId": first["sessionId"]});
    let (cleared, _) = call(&mut wendy, "team_cache_clear", clear).await;
    assert_eq!(cleared["success"], true);
    let (cache, _) =
        call(&mut wendy, "team_cache_read", json!({"sessionId": first["sessionId"]})).await;
    assert_eq!(cache["stats"]["totalEntries"], 0);

    for (tool, arguments, error) in [
        ("team_tell", json!({"toTeam": "../api", "message": "x"}), "ValidationError"),
        ("team_tell", json!({"toTeam": "nobody", "message": "x"}), "TeamNotFoundError"),
        (
            "team_tell",
            json!({"toTeam": "api", "fromTeam": "ops", "message": "x"}),
            "ValidationError",
        ),
        ("team_tell", json!({"toTeam": "api", "message": " "}), "ValidationError"),
        ("team_tell", json!({"toTeam": "api", "message": "a\u{0}b"}), "ValidationError"),
        ("team_tell", json!({"toTeam": "api", "message": "x".repeat(102_401)}), "ValidationError"),
        ("team_tell", json!({"toTeam": "api", "message": "x", "timeout": 0}), "ValidationError"),
        ("team_tell", json!({"toTeam": "api", "message": "x", "timeout": -1}), "ValidationError"),
        ("team_sleep", json!({"team": "api", "force": true}), "Forbidden"),
        ("team_cache_read", json!({"sessionId": "CONV-99"}), "ValidationError"),
        (
            "team_cache_read",
            json!({"sessionId": first["sessionId"], "messageCount": 101}),
            "ValidationError",
        ),
        ("team_getTeamName", json!({"pwd": "relative"}), "ValidationError"),
    ] {
        let (answer, failed) = call(&mut wendy, tool, arguments).await;
        assert_eq!((&answer["error"], failed), (&json!(error), true), "{tool}: {answer}");
    }
    // Another's conversation is like one that never was.
    let mut ann = teams.world.client("ann", "full").await;
    let (answer, failed) =
        call(&mut ann, "team_cache_read", json!({"sessionId": first["sessionId"]})).await;
    assert!(failed, "{answer}");
}

#[test]
fn nobody_waits_for_one_that_fails() {
    let teams = Teams::start("");
    // It is cut off, goes on once, and is cut off again: the script is played again.
    let crash = teams.world.hub.run(&["tell", "api", "! crash\n! crash"]);
    assert!(!crash.status.success());
    let says = String::from_utf8_lossy(&crash.stderr).into_owned();
    assert!(says.contains("terminated:"), "{says}");
    assert_eq!(teams.tell("api", "! say fine"), "fine");
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

/// Many tell many at once, with room for few: all are answered, in order, and nobody who is at work makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_small_pool_answers_everybody_in_order() {
    const TEAMS: usize = 20;
    const TELLERS: usize = 5;
    const MESSAGES: usize = 40;
    let home = tempfile::tempdir().expect("a directory");
    let mut settings = String::from("[pool]\nrunning = 5\nlive = 5\n");
    for n in 0..TEAMS {
        let path = home.path().join(format!("team{n}"));
        std::fs::create_dir_all(&path).expect("it can be made");
        let _ = writeln!(settings, "[teams.team{n}]\npath = {path:?}");
    }
    let world = World::start(&settings);
    let tellers = (0..TELLERS).map(async |teller| {
        let token = world.hub.token(&format!("teller{teller}"), "teams");
        let mut client = world.hub.modern(&token, "/mcp/teams").await;
        // First all are sent, then the answers are read, so that conversations have queues.
        let mut sessions = std::collections::BTreeMap::new();
        for n in 0..MESSAGES {
            let team = format!("team{}", (n + teller) % (TEAMS / 2));
            let message = format!("! say answer {n}");
            let tell = json!({"toTeam": team, "message": message, "waitForResponse": false});
            let (told, failed) = call(&mut client, "team_tell", tell).await;
            assert!(!failed, "{told}");
            sessions.insert(team, told["sessionId"].clone());
        }
        // The last of each conversation is answered after all before it.
        for (team, session) in &sessions {
            let tell = json!({"toTeam": team, "message": "! say last", "timeout": 45_000});
            let (told, _) = call(&mut client, "team_tell", tell).await;
            assert_eq!(told["response"], "last", "{told}");
            let read = json!({"sessionId": session, "messageCount": 100});
            let (cache, _) = call(&mut client, "team_cache_read", read).await;
            let n = |entry: &Value| {
                let answer = entry["messages"][1]["data"]["text"].as_str().unwrap_or_default();
                answer.strip_prefix("answer ").map(|n| n.parse::<usize>().expect("a number"))
            };
            let entries = cache["entries"].as_array().expect("there are entries");
            let answers: Vec<_> = entries.iter().filter_map(n).collect();
            assert!(answers.is_sorted() && answers.len() == entries.len() - 1, "{cache}");
        }
    });
    futures_util::future::join_all(tellers).await;
    let log = world.hub.ok(&["log"]);
    assert!(!log.contains("has no answer"), "{log}");
    assert!(log.contains("others needed its place"), "the pool was never full");
}

#[test]
fn a_teller_that_waits_holds_no_place() {
    let teams = Teams::start("[pool]\nrunning = 1\nlive = 1\n");
    let script = "! call team_tell {\"toTeam\":\"web\",\"message\":\"! call team_tell {\\\"toTeam\\\":\\\"ops\\\",\\\"message\\\":\\\"! say deep\\\"}\\n! say $$last.response\"}\n! say $last.response";
    assert_eq!(teams.tell("api", script), "deep");
}
