//! The ten tools of teams, one case for each, with the examples of their seed as data; and every error that is documented.

use serde_json::{Value, json};

use crate::hub::Mcp;
use crate::teams::{Teams, call};

/// Says how an answer differs from what is expected of it, where `"<number>"` stands for any number, `"<text>"` for any
/// text and `"<session>"` for the id of a conversation. What an answer has besides is its own.
fn difference(expected: &Value, got: &Value, at: &str) -> Option<String> {
    let fits = match (expected, got) {
        (Value::String(kind), got) if kind == "<number>" => got.is_number(),
        (Value::String(kind), got) if kind == "<text>" => got.is_string(),
        (Value::String(kind), got) if kind == "<session>" => {
            got.as_str().is_some_and(|id| id.starts_with("CONV-"))
        }
        (Value::String(kind), got) if kind == "<none>" => got.is_null(),
        (Value::Object(fields), Value::Object(_)) => {
            return fields
                .iter()
                .find_map(|(name, value)| difference(value, &got[name], &format!("{at}.{name}")));
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let mut pairs = items.iter().zip(others).enumerate();
            return pairs
                .find_map(|(n, (one, other))| difference(one, other, &format!("{at}.{n}")));
        }
        (expected, got) => expected == got,
    };
    (!fits).then(|| format!("{at} is {got}, not {expected}"))
}

async fn check(client: &mut Mcp, tool: &str, arguments: Value, expected: Value) -> Value {
    let (answer, failed) = call(client, tool, arguments.clone()).await;
    assert!(!failed, "{tool} {arguments}: {answer}");
    let differs = difference(&expected, &answer, tool);
    assert_eq!(differs, None, "{tool} {arguments}: {answer}");
    answer
}

/// The teams of the seed's examples.
fn teams(more: &str) -> Teams {
    let color = "color = \"#FF6B9D\"\nidle_minutes = 5\npermissions = { otherwise = \"allow\" }\n";
    let teams = [("frontend", color), ("backend", ""), ("mobile", ""), ("data-pipeline", "")];
    Teams::of(&teams.map(|(name, more)| (name.to_owned(), more)), more)
}

#[tokio::test]
async fn team_tell_waits_for_the_answer() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let message =
        "Please review PR #123: Add authentication middleware\n! say Reviewed PR #123. LGTM!";
    let tell = json!({"toTeam": "backend", "fromTeam": "frontend", "message": message});
    let expected = json!({
        "from": "frontend", "to": "backend", "message": message, "response": "Reviewed PR #123. LGTM!",
        "duration": "<number>", "timestamp": "<number>", "async": false, "sessionId": "<session>", "status": "<none>",
    });
    check(&mut frontend, "team_tell", tell, expected).await;
    // Without saying who one is, and with a time.
    let tell = json!({
        "toTeam": "backend", "message": "What's the API status?\n! say All APIs operational",
        "waitForResponse": true, "timeout": 30_000,
    });
    let expected = json!({"from": "frontend", "response": "All APIs operational", "async": false});
    check(&mut frontend, "team_tell", tell, expected).await;
}

#[tokio::test]
async fn team_tell_does_not_wait_and_the_answer_is_read_later() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let report = "Generate annual report for 2024\n! say begun\n! sleep 200\n! say done";
    let tell = json!({"toTeam": "data-pipeline", "message": report, "waitForResponse": false});
    let expected = json!({
        "to": "data-pipeline", "async": true, "response": "<none>", "duration": "<none>", "timestamp": "<number>",
        "sessionId": "<session>",
    });
    let task = check(&mut frontend, "team_tell", tell, expected).await;
    // The next one waits for it.
    let next = json!({"toTeam": "data-pipeline", "message": "! say next"});
    check(&mut frontend, "team_tell", next, json!({"response": "next"})).await;
    let read = json!({"sessionId": task["sessionId"]});
    let message =
        |kind: &str, data: Value| json!({"timestamp": "<number>", "type": kind, "data": data});
    let expected = json!({
        "sessionId": task["sessionId"],
        "entries": [{
            "type": "TELL", "status": "completed", "messageCount": 3, "messages": [
                message("user", json!({"text": report})), message("assistant", json!({"text": "begun\n\ndone"})),
                message("result", json!({"status": "completed"})),
            ],
        }, {"type": "TELL", "status": "completed", "messageCount": 3}],
        "stats": {"totalEntries": 2, "activeEntries": 0, "completedEntries": 2},
    });
    check(&mut frontend, "team_cache_read", read, expected).await;
}

#[tokio::test]
async fn a_timeout_is_a_result_with_what_was_said_so_far() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    check(&mut frontend, "team_wake", json!({"team": "backend"}), json!({"status": "awake"})).await;
    let tell = json!({"toTeam": "backend", "message": "! say so far\n! hang", "timeout": 1_500});
    let expected = json!({
        "status": "timeout", "response": "so far", "async": false, "sessionId": "<session>", "note": "<text>",
    });
    let partial = check(&mut frontend, "team_tell", tell, expected).await;
    let report = json!({"team": "backend", "fromTeam": "frontend"});
    let expected = json!({
        "team": "backend", "output": "<text>", "timestamp": "<number>", "sessionId": partial["sessionId"],
        "hasProcess": true, "queued": 0,
    });
    let report = check(&mut frontend, "team_report", report, expected).await;
    assert!(report["output"].as_str().is_some_and(|text| text.ends_with("so far")), "{report}");
    let read = json!({"sessionId": partial["sessionId"]});
    let so_far = json!({"type": "assistant", "data": {"text": "so far", "partial": true}});
    let active = json!({
        "entries": [{
            "type": "TELL", "status": "active", "messageCount": 2, "messages": [{"type": "user"}, so_far],
        }],
        "stats": {"totalEntries": 1, "activeEntries": 1},
    });
    check(&mut frontend, "team_cache_read", read.clone(), active.clone()).await;
    let text = json!({"sessionId": partial["sessionId"], "format": "text"});
    let text = check(&mut frontend, "team_cache_read", text, json!({})).await;
    assert!(
        text["text"].as_str().is_some_and(|text| text.contains("backend (active): so far")),
        "{text}"
    );
    // Nothing hides it: neither that an awake team is woken nor that the cache is cleared.
    let awake = json!({"status": "awake", "message": "Team backend is awake"});
    check(&mut frontend, "team_wake", json!({"team": "backend"}), awake).await;
    let clear = json!({"sessionId": partial["sessionId"]});
    let says = "Cache cleared up to the first message that is not answered; 1 stay";
    check(&mut frontend, "team_cache_clear", clear, json!({"success": true, "message": says}))
        .await;
    check(&mut frontend, "team_cache_read", read.clone(), active).await;
    // The same call joins it, also of another client with the same token's name.
    let tell = json!({"toTeam": "backend", "message": "! say so far\n! hang", "timeout": 1_000});
    let expected = json!({"status": "timeout", "tellId": partial["tellId"], "response": "so far"});
    check(&mut frontend, "team_tell", tell, expected).await;
    // Put to sleep in the middle, whoever asks later learns it.
    let expected = json!({"team": "backend", "status": "asleep", "duration": "<number>"});
    check(&mut frontend, "team_sleep", json!({"team": "backend"}), expected).await;
    let expected = json!({"entries": [{"status": "terminated", "messages": [
        {"type": "user"}, {"type": "assistant", "data": {"text": "so far"}}, {"type": "result"},
    ]}]});
    check(&mut frontend, "team_cache_read", read, expected).await;
}

#[tokio::test]
async fn team_is_awake_and_team_wake_and_team_sleep() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let asleep = json!({"team": "backend", "awake": false, "timestamp": "<number>"});
    check(&mut frontend, "team_isAwake", json!({"team": "backend"}), asleep.clone()).await;
    let waking = json!({
        "team": "backend", "status": "awake", "sessionId": "<session>", "message": "Team backend has woken up",
        "duration": "<number>", "timestamp": "<number>",
    });
    check(&mut frontend, "team_wake", json!({"team": "backend", "fromTeam": "frontend"}), waking)
        .await;
    let again = json!({"status": "awake", "message": "Team backend is awake"});
    check(&mut frontend, "team_wake", json!({"team": "backend"}), again).await;
    let awake = json!({"team": "backend", "awake": true, "notifications": {"queuedMessages": 0}});
    check(&mut frontend, "team_isAwake", json!({"team": "backend"}), awake).await;
    let all = json!({"awake": true, "timestamp": "<number>", "notifications": "<none>"});
    let all =
        check(&mut frontend, "team_isAwake", json!({"includeNotifications": false}), all).await;
    let of = |name: &str| {
        let teams = all["teams"].as_array().expect("there are teams");
        teams.iter().find(|team| team["name"] == name).expect("it is one of them").clone()
    };
    assert_eq!(
        difference(&json!({"awake": true, "sessionId": "<session>"}), &of("backend"), ""),
        None
    );
    assert_eq!(of("mobile"), json!({"name": "mobile", "awake": false}));
    // One who has no conversation of their own sees whether there is anybody.
    let mut moe = teams.client("moe", Some("mobile")).await;
    check(&mut moe, "team_isAwake", json!({"team": "backend"}), json!({"awake": true})).await;

    let slept = json!({
        "team": "backend", "status": "asleep", "message": "Team backend has been put to sleep", "duration": "<number>",
        "timestamp": "<number>",
    });
    let sleep = json!({"team": "backend", "fromTeam": "frontend", "force": false});
    check(&mut frontend, "team_sleep", sleep.clone(), slept).await;
    let slept = json!({"status": "already_asleep", "message": "Team backend is already asleep"});
    check(&mut frontend, "team_sleep", sleep, slept).await;
    check(&mut frontend, "team_isAwake", json!({"team": "backend"}), asleep).await;
}

/// A client that gives up waiting, as one whose connection is lost, asks again and gets the answer once.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_given_up_is_joined_and_its_answer_kept() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let file = teams.home.path().join("backend/go");
    let until = "until [ -e go ]; do sleep 0.1; done; rm go";
    let tell = json!({"toTeam": "backend", "message": format!("! run {until}\n! say came"), "timeout": 60_000});
    let given_up = frontend.call("team_tell", tell.clone());
    assert!(tokio::time::timeout(std::time::Duration::from_secs(2), given_up).await.is_err());
    drop(frontend);
    crate::unattended::until_said(&teams.world, "TELL-1 is no longer waited for");
    let token = teams.world.hub.ok(&[
        "token",
        "create",
        "fay",
        "--replace",
        "--grant",
        "teams",
        "--team",
        "frontend",
    ]);
    let mut frontend = teams.world.hub.modern(token.trim(), "/mcp/teams").await;
    let sent = tell.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends with its test")]
    let again = tokio::spawn(async move {
        let answered = frontend.call("team_tell", sent).await;
        (frontend, answered)
    });
    // The call is made by another thread meanwhile.
    tokio::task::block_in_place(|| {
        crate::unattended::until_said(&teams.world, "TELL-1 was sent again");
    });
    std::fs::write(&file, "").expect("it can be written");
    let (mut frontend, (answer, failed)) = again.await.expect("it ends");
    let answer: Value = serde_json::from_str(&answer).expect("it is JSON");
    let expected = json!({"tellId": "TELL-1", "response": "came", "status": "<none>"});
    assert_eq!((difference(&expected, &answer, ""), failed), (None, false), "{answer}");
    // What was heard is not told again: the next one is new.
    std::fs::write(&file, "").expect("it can be written");
    check(&mut frontend, "team_tell", tell, json!({"tellId": "TELL-2", "response": "came"})).await;
}

/// Its grace is longer than a call waits.
#[tokio::test]
async fn force_kills_at_once_and_only_operators_end_the_talks_of_others() {
    let programs = "[programs.stubborn]\ncommand = \"{TEAMSTER}\"\nargs = [\"scripted-agent\"]\ngrace_s = 120\n";
    let programs = programs.replace("{TEAMSTER}", &crate::hub::program().to_string_lossy());
    let teams = [("frontend", ""), ("backend", "program = \"stubborn\"\n"), ("mobile", "")];
    let teams = Teams::of(&teams.map(|(name, more)| (name.to_owned(), more)), &programs);
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let mut mobile = teams.client("moe", Some("mobile")).await;
    let tell = json!({"toTeam": "backend", "message": "! ignore-sigterm\n! say up\n! hang", "timeout": 1_000});
    let partial = check(&mut frontend, "team_tell", tell, json!({"response": "up"})).await;
    // Somebody else's conversation is not ended by that.
    let force = json!({"team": "backend", "force": true});
    check(&mut mobile, "team_sleep", force.clone(), json!({"status": "already_asleep"})).await;
    let (answer, failed) =
        call(&mut mobile, "team_sleep", json!({"team": "backend", "all": true})).await;
    assert_eq!((&answer["error"], failed), (&json!("Forbidden"), true), "{answer}");
    let slept = json!({
        "status": "asleep", "message": "Team backend has been put to sleep; 1 message that was not answered is terminated",
        "terminated": 1,
    });
    check(&mut frontend, "team_sleep", force, slept).await;
    let expected = json!({"entries": [{"status": "terminated", "messages": [
        {"type": "user"}, {"type": "assistant", "data": {"text": "up"}}, {"type": "result"},
    ]}]});
    let read = json!({"sessionId": partial["sessionId"]});
    check(&mut frontend, "team_cache_read", read, expected).await;
    // A person has the same words.
    teams.world.hub.ok(&["tell", "backend", "! ignore-sigterm\n! say up"]);
    let says = teams.world.hub.ok(&["sleep", "backend", "--all", "--force"]);
    assert_eq!(says, "Team backend has been put to sleep");
}

#[tokio::test]
async fn why_a_team_does_not_wake_up_is_told_to_whoever_wakes_it() {
    let programs = "[programs.broken]\ncommand = \"/bin/sh\"\n\
                    args = [\"-c\", \"printf 'no \\\\033[31mkey\\\\033[0m in the box\\\\n' >&2; exit 7\"]\n";
    let teams = [("frontend", ""), ("backend", "program = \"broken\"\n")];
    let teams = Teams::of(&teams.map(|(name, more)| (name.to_owned(), more)), programs);
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let (answer, failed) = call(&mut frontend, "team_wake", json!({"team": "backend"})).await;
    assert_eq!((&answer["error"], failed), (&json!("ProcessError"), true), "{answer}");
    let says = answer["message"].as_str().expect("it is text");
    assert!(says.starts_with("team backend did not wake up: it did not start"), "{says}");
    assert!(says.contains("exit code 7") && says.contains("in the box"), "{says}");
    assert!(!says.contains('\u{1b}'), "{says}");
    let expected = json!({"hasProcess": false, "stderr": "no key in the box", "failure": "<text>"});
    check(&mut frontend, "team_report", json!({"team": "backend"}), expected).await;
}

#[tokio::test]
async fn team_wake_all_leaves_the_caller_out_and_tells_who_failed() {
    let teams = [("frontend", ""), ("backend", ""), ("mobile", "program = \"missing\"\n")];
    let missing = "[programs.missing]\ncommand = \"/nowhere/missing\"\n";
    let teams = Teams::of(&teams.map(|(name, more)| (name.to_owned(), more)), missing);
    let mut frontend = teams.client("fay", Some("frontend")).await;
    for arguments in [json!({}), json!({"fromTeam": "frontend", "parallel": true})] {
        let expected = json!({
            "totalTeams": 3, "successCount": 2, "failureCount": 1, "duration": "<number>", "timestamp": "<number>",
        });
        let all = check(&mut frontend, "team_wake_all", arguments, expected).await;
        let results = all["results"].as_array().expect("there are results");
        let of = |name: &str| results.iter().find(|one| one["team"] == name);
        assert!(of("frontend").is_none(), "{all}");
        let expected = json!({"success": true, "status": "awake", "message": "<text>"});
        assert_eq!(difference(&expected, of("backend").expect("it is told"), ""), None, "{all}");
        let expected = json!({"success": false, "error": "<text>"});
        assert_eq!(difference(&expected, of("mobile").expect("it is told"), ""), None, "{all}");
    }
}

#[tokio::test]
async fn team_cache_read_has_forms_pages_and_an_end() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let mut session = Value::Null;
    for n in 0..4 {
        let tell = json!({"toTeam": "backend", "message": format!("! say {n}")});
        session = check(&mut frontend, "team_tell", tell, json!({})).await["sessionId"].clone();
    }
    let read = json!({"sessionId": session, "includeMessages": true, "messageCount": 1});
    let expected =
        json!({"status": "completed", "messageCount": 3, "messages": [{"type": "result"}]});
    let expected = json!({"entries": vec![expected; 4], "nextCursor": "<none>"});
    check(&mut frontend, "team_cache_read", read, expected).await;
    let read = json!({"sessionId": session, "includeMessages": false});
    let expected = json!({"entries": vec![json!({"messages": "<none>", "messageCount": 3}); 4]});
    check(&mut frontend, "team_cache_read", read, expected).await;
    // Starts are listed with what the agent did, and count.
    let read = json!({"sessionId": session, "includeProtocolMessages": true});
    let expected = json!({"stats": {"totalEntries": 5, "activeEntries": 0, "completedEntries": 5}});
    let all = check(&mut frontend, "team_cache_read", read, expected).await;
    let spawn = json!({"type": "SPAWN", "status": "completed"});
    assert_eq!(difference(&spawn, &all["entries"][0], ""), None, "{all}");
    assert_eq!(all["entries"].as_array().map(Vec::len), Some(5), "{all}");
    let read = json!({"sessionId": session, "format": "text"});
    let text = check(&mut frontend, "team_cache_read", read, json!({"text": "<text>"})).await;
    assert!(
        text["text"].as_str().is_some_and(|text| text.contains("backend (completed): 3")),
        "{text}"
    );

    let cleared = json!({
        "success": true, "sessionId": session, "message": "Cache cleared successfully", "timestamp": "<number>",
    });
    let clear = json!({"sessionId": session, "fromTeam": "frontend"});
    check(&mut frontend, "team_cache_clear", clear, cleared).await;
    let expected = json!({"entries": [], "stats": {"totalEntries": 0}});
    check(&mut frontend, "team_cache_read", json!({"sessionId": session}), expected).await;
    // What was said is still known to those who look at the log.
    assert!(teams.world.hub.ok(&["log"]).contains("answered: 3"));
}

#[tokio::test]
async fn team_get_team_name_and_team_teams() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let path = teams.path("frontend");
    let found = json!({"found": true, "teamName": "frontend", "path": path});
    for pwd in [path.clone(), format!("{path}/"), teams.path("frontend/src")] {
        check(&mut frontend, "team_getTeamName", json!({"pwd": pwd}), found.clone()).await;
    }
    for pwd in ["/Users/jenova/projects/frontend", "/", &format!("{path}-too")] {
        let answer = check(&mut frontend, "team_getTeamName", json!({"pwd": pwd}), json!({})).await;
        assert_eq!(answer, json!({"found": false}));
    }
    let tell = json!({"toTeam": "frontend", "message": "! say hello"});
    check(&mut frontend, "team_tell", tell, json!({})).await;
    // The directory that the hub was started in is a team, too.
    let expected =
        json!({"totalTeams": 5, "awakeTeams": 1, "asleepTeams": 4, "timestamp": "<number>"});
    let details = json!({"includeProcessDetails": true});
    let all = check(&mut frontend, "team_teams", details, expected).await;
    let of = |all: &Value, name: &str| {
        let teams = all["teams"].as_array().expect("there are teams");
        teams.iter().find(|team| team["name"] == name).expect("it is one of them").clone()
    };
    let expected = json!({
        "status": "awake",
        "config": {
            "path": path, "description": "the frontend", "color": "#FF6B9D", "idleTimeout": 300_000,
            "skipPermissions": true,
        },
        "process": {"sessionId": "<session>", "messageCount": 1, "lastActivity": "<number>"},
    });
    assert_eq!(difference(&expected, &of(&all, "frontend"), ""), None, "{all}");
    let expected = json!({"status": "asleep", "process": "<none>", "config": {"color": "<none>"}});
    assert_eq!(difference(&expected, &of(&all, "backend"), ""), None, "{all}");
    let plain = check(&mut frontend, "team_teams", json!({}), json!({})).await;
    assert!(of(&plain, "frontend")["process"].is_null(), "{plain}");
}

#[tokio::test]
async fn every_error_has_the_name_and_the_words_of_the_seed_and_names_its_field() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let path = "Invalid team name (no path separators allowed)";
    let long = "Team name too long (max 100 characters)";
    let (timeout, message) = ("Timeout must be between 1s and 1hr", "Message too long (max 100KB)");
    let name_of_102 = "x".repeat(101);
    let tell = |to: &str, message: &str| json!({"toTeam": to, "message": message});
    let within = |timeout: Value| json!({"toTeam": "backend", "message": "x", "timeout": timeout});
    let big = |text: &str, n: usize| tell("backend", &text.repeat(n));
    let read = |more: Value| {
        let mut read = json!({"sessionId": "CONV-1"});
        read.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        read
    };
    check(&mut frontend, "team_tell", tell("backend", "! say hi"), json!({"sessionId": "CONV-1"}))
        .await;
    let cases = [
        ("team_tell", tell("", "x"), "toTeam", "Team name is required"),
        ("team_tell", tell("../../etc/passwd", "x"), "toTeam", path),
        ("team_tell", tell("invalid/team", "hi"), "toTeam", path),
        ("team_tell", tell("a\\b", "x"), "toTeam", path),
        ("team_tell", tell("a..b", "x"), "toTeam", path),
        ("team_tell", tell(&name_of_102, "x"), "toTeam", long),
        ("team_tell", tell("backend", ""), "message", "Message is required"),
        ("team_tell", tell("backend", " \n"), "message", "Message is required"),
        ("team_tell", big("x", 102_401), "message", message),
        // Bytes count, not characters.
        ("team_tell", big("ä", 51_201), "message", message),
        ("team_tell", big("\u{1f4e3}", 25_601), "message", message),
        ("team_tell", tell("backend", "a\0b"), "message", "Message contains null bytes"),
        (
            "team_tell",
            tell("backend", "a\u{7}b"),
            "message",
            "message contains a control character",
        ),
        ("team_tell", within(json!(999)), "timeout", timeout),
        ("team_tell", within(json!(3_600_001)), "timeout", timeout),
        ("team_tell", within(json!(0)), "timeout", timeout),
        ("team_tell", within(json!(-1)), "timeout", timeout),
        ("team_wake", json!({"team": "a/b"}), "team", path),
        ("team_sleep", json!({"team": &name_of_102}), "team", long),
        ("team_isAwake", json!({"team": ""}), "team", "Team name is required"),
        ("team_report", json!({"team": ".."}), "team", path),
        (
            "team_cache_read",
            json!({"sessionId": "abc123-..."}),
            "sessionId",
            "sessionId is not one",
        ),
        (
            "team_cache_read",
            json!({"sessionId": "CONV-99"}),
            "sessionId",
            "there is no such conversation",
        ),
        (
            "team_cache_read",
            read(json!({"messageCount": 0})),
            "messageCount",
            "messageCount must be",
        ),
        (
            "team_cache_read",
            read(json!({"messageCount": 101})),
            "messageCount",
            "messageCount must be",
        ),
        ("team_cache_read", read(json!({"format": "xml"})), "format", "format is json or text"),
        ("team_cache_read", read(json!({"cursor": "x"})), "cursor", "unknown cursor"),
        (
            "team_cache_clear",
            json!({"sessionId": "CONV-99"}),
            "sessionId",
            "there is no such conversation",
        ),
        ("team_getTeamName", json!({"pwd": "relative"}), "pwd", "pwd must be an absolute path"),
    ];
    for (tool, arguments, field, says) in cases {
        let (answer, failed) = call(&mut frontend, tool, arguments).await;
        assert!(failed, "{tool}: {answer}");
        assert_eq!(
            (&answer["error"], &answer["field"]),
            (&json!("ValidationError"), &json!(field)),
            "{answer}"
        );
        assert!(answer["message"].as_str().is_some_and(|text| text.starts_with(says)), "{answer}");
    }
    // Wrong types are told as everywhere.
    let (answer, _) = call(&mut frontend, "team_tell", within(json!("soon"))).await;
    assert_eq!(answer["error"], "ValidationError");
    assert!(
        answer["message"].as_str().is_some_and(|text| text.starts_with("timeout:")),
        "{answer}"
    );
    for (tool, arguments, field) in [
        ("team_tell", tell("nonexistent", "x"), "toTeam"),
        ("team_wake", json!({"team": "nonexistent"}), "team"),
        ("team_sleep", json!({"team": "nonexistent"}), "team"),
        ("team_isAwake", json!({"team": "nonexistent"}), "team"),
        ("team_report", json!({"team": "nonexistent"}), "team"),
    ] {
        let (answer, failed) = call(&mut frontend, tool, arguments).await;
        let expected = json!({"error": "TeamNotFoundError", "field": field, "message": "<text>"});
        assert_eq!(difference(&expected, &answer, tool), None);
        let says = answer["message"].as_str().expect("it is text");
        assert!(failed && says.starts_with("Unknown team: nonexistent. Known teams: "), "{answer}");
    }
    // As long as it may be.
    check(&mut frontend, "team_tell", big("x", 102_400), json!({"sessionId": "CONV-1"})).await;
    assert!(!teams.world.hub.ok(&["log"]).contains("CONV-2"), "a refusal opened a conversation");
}

#[tokio::test]
async fn a_team_is_busy_when_fifty_wait() {
    let teams = teams("");
    let mut frontend = teams.client("fay", Some("frontend")).await;
    let tell =
        |message: &str| json!({"toTeam": "backend", "message": message, "waitForResponse": false});
    check(&mut frontend, "team_tell", tell("! hang"), json!({})).await;
    crate::unattended::until_said(&teams.world, "TELL-1 is being answered");
    for n in 0..50 {
        check(&mut frontend, "team_tell", tell(&format!("! say {n}")), json!({"async": true}))
            .await;
    }
    let (answer, failed) = call(&mut frontend, "team_tell", tell("! say one too many")).await;
    assert_eq!((&answer["error"], failed), (&json!("ProcessBusyError"), true), "{answer}");
    let expected = json!({"awake": true, "notifications": {"queuedMessages": 50}});
    check(&mut frontend, "team_isAwake", json!({"team": "backend"}), expected).await;
    // Others are not refused; they wait for the directory.
    let mut moe = teams.client("moe", Some("mobile")).await;
    check(&mut moe, "team_tell", tell("! say hello"), json!({"async": true})).await;
    check(&mut frontend, "team_sleep", json!({"team": "backend"}), json!({"status": "asleep"}))
        .await;
    crate::unattended::until_said(&teams.world, "TELL-52 answered: hello");
    let after = json!({"toTeam": "backend", "message": "! say and again"});
    check(&mut frontend, "team_tell", after, json!({"response": "and again"})).await;
}
