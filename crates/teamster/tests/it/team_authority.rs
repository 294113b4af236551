//! What teams may not do: speak as another, read or end what is another's, or hide behind a name.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::hub::feed;
use crate::teams::{Teams, call};

#[tokio::test]
async fn a_token_of_one_team_is_no_other() {
    let teams = Teams::start("");
    let mut wendy = teams.client("wendy", Some("web")).await;
    let mut olga = teams.client("olga", Some("ops")).await;
    // A person without a team who is called like one.
    let mut imp = teams.client("web", None).await;
    let tell = json!({"toTeam": "api", "message": "! say the secret is 42"});
    let (told, _) = call(&mut wendy, "team_tell", tell).await;
    let session = told["sessionId"].clone();
    assert_eq!(told["from"], "web");

    let n_events = teams.world.hub.n_events().await;
    for other in [&mut olga, &mut imp] {
        for (tool, arguments) in [
            ("team_cache_read", json!({"sessionId": session})),
            ("team_cache_read", json!({"sessionId": session, "format": "text"})),
            ("team_cache_clear", json!({"sessionId": session})),
        ] {
            let (answer, failed) = call(other, tool, arguments).await;
            assert!(failed && answer["error"] == "ValidationError", "{tool}: {answer}");
            assert!(!answer.to_string().contains("42"), "{tool}: {answer}");
        }
        let (report, _) = call(other, "team_report", json!({"team": "api"})).await;
        assert_eq!(
            (&report["hasSession"], &report["output"]),
            (&json!(false), &json!("")),
            "{report}"
        );
        // Its own is none, so there is nothing to put to sleep.
        let (slept, _) = call(other, "team_sleep", json!({"team": "api"})).await;
        assert_eq!(slept["status"], "already_asleep", "{slept}");
        let (refused, failed) =
            call(other, "team_sleep", json!({"team": "api", "all": true})).await;
        assert_eq!((&refused["error"], failed), (&json!("Forbidden"), true), "{refused}");
    }
    for from in
        ["web", "api", "operator", "hub", "nobody", "", "WEB", "ｗeb", "w\u{200b}eb", "../web"]
    {
        for (tool, mut arguments) in [
            ("team_tell", json!({"toTeam": "api", "message": "! say hi"})),
            ("team_wake", json!({"team": "api"})),
            ("team_sleep", json!({"team": "api"})),
            ("team_wake_all", json!({})),
            ("team_report", json!({"team": "api"})),
            ("team_cache_clear", json!({"sessionId": session})),
        ] {
            arguments["fromTeam"] = from.into();
            let (answer, failed) = call(&mut olga, tool, arguments).await;
            let named = (&answer["error"], &answer["field"]);
            assert_eq!(
                (named, failed),
                ((&json!("ValidationError"), &json!("fromTeam")), true),
                "{tool}: {answer}"
            );
        }
    }
    assert_eq!(teams.world.hub.n_events().await, n_events, "something was written");
    let (awake, _) = call(&mut wendy, "team_isAwake", json!({"team": "api"})).await;
    assert_eq!(awake["awake"], true, "{awake}");

    // The one who is called like a team has a conversation of their own, and the told one is told the difference.
    let (told, _) = call(
        &mut imp,
        "team_tell",
        json!({"toTeam": "api", "fromTeam": "web", "message": "! say hi"}),
    )
    .await;
    assert_ne!(told["sessionId"], session, "{told}");
    let prompt = |agent: &str| teams.world.hub.ok(&["agent", "show", agent, "--json"]);
    assert!(prompt("api-1").contains("Message from team web (TELL-1)"), "{}", prompt("api-1"));
    assert!(
        prompt("api-2").contains("Message from web, who is of no team (TELL-2)"),
        "{}",
        prompt("api-2")
    );
    // The team that was told knows what it was told, and nothing else.
    let mut api = teams.client("anna", Some("api")).await;
    let (read, failed) = call(&mut api, "team_cache_read", json!({"sessionId": session})).await;
    assert!(!failed, "{read}");
}

#[tokio::test]
async fn an_operator_speaks_for_teams_that_there_are() {
    let teams = Teams::start("");
    let hub = &teams.world.hub;
    assert_eq!(hub.ok(&["tell", "api", "! say hi", "--from", "web"]), "hi");
    assert!(hub.ok(&["transcript", "web", "api"]).contains("web → api"));
    let says = hub.fails(&["tell", "api", "! say hi", "--from", "nobody"]);
    assert!(says.contains("Unknown team: nobody"), "{says}");
    // Not the operator's own conversation instead of one that is not there.
    hub.ok(&["tell", "api", "! say mine"]);
    let says = hub.fails(&["transcript", "nobody", "api"]);
    assert!(!says.contains("mine"), "{says}");
    assert!(
        says.contains("nobody is called \"nobody\"; there are CONV-1 (web api), CONV-2"),
        "{says}"
    );
    let says = hub.fails(&["transcript", "CONV-1", "api"]);
    assert!(says.contains("CONV-1 is a conversation already; leave api out"), "{says}");
    assert_eq!(hub.ok(&["sleep", "api"]), "your conversation with api has been put to sleep");
    let awake = hub.ok(&["teams", "--json"]);
    assert!(awake.contains("\"awakeTeams\":1"), "that of web is still awake: {awake}");
    assert_eq!(hub.ok(&["sleep", "api", "--all"]), "Team api has been put to sleep");
    assert!(hub.ok(&["teams", "--json"]).contains("\"awakeTeams\":0"));
}

#[tokio::test]
async fn names_that_look_like_others_are_no_names() {
    let teams = Teams::start("");
    let mut wendy = teams.client("wendy", Some("web")).await;
    let n_events = teams.world.hub.n_events().await;
    let long = "a".repeat(101);
    let names = [
        "../api",
        "..",
        "/etc/passwd",
        "api/../web",
        "a\\b",
        "аpi",
        "ａｐｉ",
        "ap\u{200b}i",
        "\u{202e}ipa",
        "api\u{301}",
        "api ",
        " api",
        "api\n",
        "api\0",
        "",
        &long,
        "API",
    ];
    for name in names {
        for (tool, field) in [
            ("team_tell", "toTeam"),
            ("team_wake", "team"),
            ("team_sleep", "team"),
            ("team_report", "team"),
        ] {
            let mut arguments = json!({field: name});
            if tool == "team_tell" {
                arguments["message"] = "! say hi".into();
            }
            let (answer, failed) = call(&mut wendy, tool, arguments).await;
            let error = if name == "API" { "TeamNotFoundError" } else { "ValidationError" };
            assert_eq!(
                (&answer["error"], &answer["field"]),
                (&json!(error), &json!(field)),
                "{name:?}: {answer}"
            );
            assert!(failed && answer.to_string().len() < 1_000, "{answer}");
        }
        if !name.contains('\0') {
            let said = teams.world.hub.fails(&["tell", "--", name, "! say hi"]);
            assert!(!said.is_empty(), "{name:?}");
        }
    }
    assert_eq!(teams.world.hub.n_events().await, n_events, "something was written");
}

#[tokio::test]
async fn the_command_line_and_the_routes_are_as_strict() {
    let teams = Teams::start("");
    let tell = |message: &str| {
        let mut command = teams.world.hub.command();
        command.args(["tell", "api", "-"]);
        let output = feed(command, message);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (message, says) in [
        ("x".repeat(102_401), "Message too long (max 100KB)"),
        ("ä".repeat(51_201), "Message too long (max 100KB)"),
        ("a\0b".to_owned(), "Message contains null bytes"),
        (" \n".to_owned(), "Message is required"),
    ] {
        let (success, said) = tell(&message);
        assert!(!success && said.contains(says), "{said}");
    }
    teams.tell("api", "! say the secret is 42");
    // Messages are read by id only by operators.
    let token =
        teams.world.hub.ok(&["token", "create", "anna", "--team", "api", "--grant", "full"]);
    let bearer = |token: &str| format!("Bearer {}", token.trim());
    for (token, status) in
        [(&token, StatusCode::FORBIDDEN), (&teams.world.hub.operator, StatusCode::OK)]
    {
        let bearer = bearer(token);
        let headers = [("authorization", bearer.as_str())];
        let mut http = teams.world.hub.http().await;
        let answer = http.send(Method::GET, "/api/tells/TELL-1", &headers, "").await;
        assert_eq!((answer.status, answer.body.contains("42")), (status, status == StatusCode::OK));
    }
    let mut http = teams.world.hub.http().await;
    let answer = http.send(Method::GET, "/api/tells/TELL-1", &[], "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let bearer = bearer(&teams.world.hub.operator);
    for id in ["TELL-99", "TELL-0", "CONV-1", "..%2f..", "TELL-99999999999999999999"] {
        let headers = [("authorization", bearer.as_str())];
        let answer = http.send(Method::GET, &format!("/api/tells/{id}"), &headers, "").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{id}: {answer:?}");
    }
}

/// Whoever a team's agent drafts is not that team: it is told apart, and cannot read what the team was told.
#[test]
fn who_is_drafted_by_a_team_does_not_speak_for_it() {
    let tools = "tools = [\"full\", \"teams\"]\n";
    let drafter = [("api".to_owned(), tools), ("web".to_owned(), "")];
    let teams = Teams::of(&drafter, "[roles.helper]\nprompt = \"Help.\"\ntools = [\"teams\"]\n");
    let inner = "! call team_tell {\"toTeam\":\"web\",\"fromTeam\":\"api\",\"message\":\"! say hi\"}\n! call team_tell {\"toTeam\":\"web\",\"message\":\"! say hi\"}\n! call team_cache_read {\"sessionId\":\"CONV-1\"}\n! outcome {\"status\":\"success\",\"summary\":\"$$call1.field $$call2.from $$call3.error\"}";
    let draft = json!({"role": "helper", "prompt": inner});
    let script = format!(
        "! call draft_agent {draft}\n! call await_agent {{\"agentId\":\"$last.agentId\"}}\n! say $last.result.summary"
    );
    assert_eq!(teams.tell("api", &script), "fromTeam helper-2 ValidationError");
}

#[test]
fn the_names_of_the_hub_and_its_operator_are_not_for_teams() {
    let home = tempfile::tempdir().expect("a directory");
    let settings: String = ["operator", "hub", "fine"]
        .map(|name| format!("[teams.{name}]\npath = {:?}\n", home.path()))
        .concat();
    let world = crate::agents::World::start(&settings);
    let teams: Value =
        serde_json::from_str(&world.hub.ok(&["teams", "--json"])).expect("it is JSON");
    let names: Vec<&str> = teams["teams"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|team| team["name"].as_str())
        .collect();
    assert!(
        names.contains(&"fine") && !names.contains(&"operator") && !names.contains(&"hub"),
        "{names:?}"
    );
    for name in ["operator", "hub"] {
        let output = world.hub.run(&["token", "create", "eve", "--team", name, "--grant", "teams"]);
        assert!(!output.status.success(), "a token speaks as {name}");
    }
}
