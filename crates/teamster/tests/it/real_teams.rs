//! Teams played by real Goose and real Claude Code, offline: projects that ask each other through their own tools.
//! `team_faults` and `team_tools` play more with the scripted agent.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use serde_json::{Value, json};

use crate::driven::{Driven, story};
use crate::hub::Mcp;
use crate::scripted_model::{Script, ScriptedModel, Step};
use crate::unattended::first_line;

/// Two teams on Goose and one on Claude Code, each in a project of its own.
fn start(model: &ScriptedModel) -> Option<Driven> {
    let teams = [("api", "goose"), ("web", "goose"), ("ops", "claude")];
    let settings: String = teams
        .iter()
        .map(|(name, program)| {
            format!("[teams.{name}]\npath = \"~/{name}\"\nprogram = \"{program}\"\n")
        })
        .collect();
    let driven = Driven::start(&["goose", "claude"], &settings, model)?;
    for (name, _) in teams {
        std::fs::create_dir(driven.home.path().join(name)).expect("it can be made");
    }
    Some(driven)
}

/// Returns a client that speaks for a team.
async fn client(driven: &Driven, team: &str) -> Mcp {
    let token = driven.hub.ok(&["token", "create", "pat", "--team", team, "--grant", "teams"]);
    driven.hub.modern(token.trim(), "/mcp/teams").await
}

async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> Value {
    let (text, failed) = client.call(tool, arguments).await;
    assert!(!failed, "{tool}: {text}");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Follows the log up to a line that says this.
fn until_said(driven: &Driven, what: &str) {
    first_line(&driven.hub, &["log", "--follow"], |line| line.contains(what));
}

fn tell(to: &str, message: &str) -> Step {
    Step::call("team_tell", json!({"toTeam": to, "message": message}))
}

fn file(driven: &Driven, path: &str) -> Option<String> {
    std::fs::read_to_string(driven.home.path().join(path)).ok()
}

const WHERE: &str = "Find out where the server runs.";
const PORT: &str = "Which port does the server use?";
const ORDERS: &str = "Find out who lists the orders.";
const LIST: &str = "Do you list the orders?";
const PASSED_ON: &str = "${team_tell.response}";

#[tokio::test(flavor = "multi_thread")]
async fn goose_asks_claude_and_claude_asks_goose_and_each_passes_the_answer_on() {
    let scripts = [
        Script::new(WHERE, [tell("ops", PORT), Step::say(PASSED_ON)]),
        Script::new(
            PORT,
            [
                Step::call("Bash", json!({"command": "echo 8080 > port.txt"})),
                Step::say("It is port 8080."),
            ],
        ),
        Script::new(ORDERS, [tell("web", LIST), Step::say(PASSED_ON)]),
        Script::new(
            LIST,
            [
                Step::call("shell", json!({"command": "echo orders > list.txt"})),
                Step::say("Yes, on the first page."),
            ],
        ),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = start(&model) else { return };
    let ask = |team: &str, message: &str| {
        let output = driven.hub.run(&["tell", team, message, "--timeout", "120"]);
        let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
        assert!(output.status.success(), "{told}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(ask("api", WHERE), "It is port 8080.");
    assert_eq!(ask("ops", ORDERS), "Yes, on the first page.");
    for prompt in [WHERE, PORT, ORDERS, LIST] {
        model.assert_played(prompt);
    }
    // Each spoke for its own team, and worked in its own directory.
    let log = driven.hub.ok(&["log"]);
    for said in ["operator can talk to api", "api can talk to ops", "ops can talk to web"] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert_eq!(file(&driven, "ops/port.txt").as_deref(), Some("8080\n"));
    assert_eq!(file(&driven, "web/list.txt").as_deref(), Some("orders\n"));
    let transcript = driven.hub.ok(&["transcript", "api", "ops"]);
    assert!(transcript.contains("\n  It is port 8080.\n· TELL-"), "{transcript}");
}

const REPORT: &str = "Write the annual report.";
const TITLE: &str = "What is its title?";
const AUTHOR: &str = "And who wrote it?";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_waited_for_is_read_later_and_a_busy_team_answers_in_order() {
    let scripts = [
        Script::new(REPORT, [Step::Confined("So far ".into(), "and to the end.".into())]),
        Script::new(TITLE, [Step::say("Annual report.")]),
        Script::new(AUTHOR, [Step::say("Nobody.")]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = start(&model) else { return };
    let mut pat = client(&driven, "ops").await;
    let woken = call(&mut pat, "team_wake", json!({"team": "api"})).await;
    assert_eq!(woken["status"], "awake", "{woken}");
    // A caller that has no more patience gets what there is, as a result.
    let report = json!({"toTeam": "api", "message": REPORT, "timeout": 3_000});
    let partial = call(&mut pat, "team_tell", report).await;
    assert_eq!((&partial["status"], &partial["async"]), (&json!("timeout"), &json!(false)));
    let said = partial["response"].as_str().expect("it is text").trim_end();
    assert!(said.is_empty() || said == "So far", "{partial}");
    first_line(&driven.hub, &["agent", "show", "api-1", "--follow"], |line| {
        line.contains("So far")
    });
    let shown = call(&mut pat, "team_report", json!({"team": "api"})).await;
    assert!(
        shown["output"].as_str().is_some_and(|text| text.trim().ends_with("So far")),
        "{shown}"
    );

    // Now that it is busy, what is told waits, whoever waits for it or not.
    let mut told = Vec::new();
    for message in [TITLE, AUTHOR] {
        let later = json!({"toTeam": "api", "message": message, "waitForResponse": false});
        told.push(call(&mut pat, "team_tell", later).await);
    }
    assert!(told.iter().all(|one| one["async"] == true && one["response"].is_null()), "{told:?}");
    let shown = call(&mut pat, "team_report", json!({"team": "api"})).await;
    assert_eq!(shown["queued"], 2, "{shown}");
    model.let_go_on(REPORT);
    until_said(&driven, "TELL-3 answered: Nobody.");
    let read = json!({"sessionId": told[0]["sessionId"]});
    let cache = call(&mut pat, "team_cache_read", read).await;
    let answers = cache["entries"].as_array().expect("there are entries").iter();
    let answers: Vec<&Value> = answers.map(|entry| &entry["messages"][1]["data"]["text"]).collect();
    assert_eq!(answers, ["So far and to the end.", "Annual report.", "Nobody."], "{cache}");
    let log = driven.hub.ok(&["log"]);
    let place = |what: &str| log.find(what).unwrap_or_else(|| panic!("no {what}: {log}"));
    assert!(place("TELL-1 answered") < place("TELL-2 is being answered"));
    assert!(place("TELL-2 answered") < place("TELL-3 is being answered"));
    assert_eq!(driven.agent("api-1")["incarnation"], 1, "one process played all of it");
}

const FIRST: &str = "Remember the number seven.";
const SECOND: &str = "Which number was it?";

async fn check_that_sleep_keeps_the_session(team: &str) {
    let scripts = [
        Script::new(FIRST, [Step::say("I shall remember it.")]),
        Script::new(SECOND, [Step::say("Seven.")]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = start(&model) else { return };
    assert_eq!(driven.hub.ok(&["tell", team, FIRST]), "I shall remember it.");
    let agent = driven.agent(&format!("{team}-1"));
    assert!(agent["session"].is_string(), "{agent}");
    assert!(!driven.processes().is_empty());
    driven.hub.ok(&["sleep", team]);
    driven.assert_nothing_is_left();
    assert_eq!(driven.hub.ok(&["tell", team, SECOND]), "Seven.");
    let again = driven.agent(&format!("{team}-1"));
    assert_eq!((&again["session"], &again["incarnation"]), (&agent["session"], &json!(2)));
    let events = driven.events(&format!("{team}-1"));
    let resumed = events.iter().filter(|event| event["type"] == "started");
    let resumed: Vec<&Value> = resumed.map(|event| &event["resumed"]).collect();
    assert_eq!(resumed, [&json!(false), &json!(true)]);
    // The model sees what was said before.
    let heard = model.heard_with(SECOND);
    assert!(heard.iter().any(|text| text.contains(FIRST)), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn goose_wakes_up_in_the_session_it_went_to_sleep_in() {
    check_that_sleep_keeps_the_session("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_wakes_up_in_the_session_it_went_to_sleep_in() {
    check_that_sleep_keeps_the_session("ops").await;
}

const CUT_OFF: &str = "You were cut off while you answered this message.";
const LONG: &str = "Count all the stars.";
const NEXT: &str = "And the planets?";

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_comes_though_the_hub_was_killed_in_the_middle() {
    let scripts = [
        Script::new(CUT_OFF, [Step::say("There are many.")]),
        Script::new(LONG, [Step::Hang]),
        Script::new(NEXT, [Step::say("Eight.")]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(mut driven) = start(&model) else { return };
    for team in ["api", "ops"] {
        driven.hub.ok(&["tell", team, LONG, "--no-wait"]);
        until_said(
            &driven,
            &format!("agent {team}-{} begins a turn", if team == "api" { 1 } else { 2 }),
        );
        driven.hub.ok(&["tell", team, NEXT, "--no-wait"]);
    }
    model.until_asked_by(LONG, 0, 2).await;
    driven.crash_and_start_again();
    for (tell, answer) in [
        ("TELL-1", "There are many."),
        ("TELL-2", "Eight."),
        ("TELL-3", "There are many."),
        ("TELL-4", "Eight."),
    ] {
        until_said(&driven, &format!("{tell} answered: {answer}"));
    }
    let log = driven.hub.ok(&["log"]);
    for tell in ["TELL-1", "TELL-2", "TELL-3", "TELL-4"] {
        assert_eq!(log.matches(&format!("{tell} answered")).count(), 1, "{log}");
        assert_eq!(log.matches(&format!("{tell} is being answered")).count(), 1, "{log}");
    }
    assert!(!log.contains("has no answer"), "{log}");
}
