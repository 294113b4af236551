//! The HTTP door, from outside: both protocol eras, who gets in, and what each caller sees there.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tasks live no longer than their test, and a broken fixture should panic"
)]

use std::fmt::Write as _;

use bytes::Bytes;
use expect_test::expect;
use http::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Answer, ERAS, Hub, LEGACY, MODERN};

const PATHS: [&str; 4] = ["/mcp", "/mcp/session", "/mcp/session/alpha", "/mcp/yaks"];

/// Returns the names of listed tools.
fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().expect("a list of tools").iter();
    tools.map(|tool| tool["name"].as_str().expect("a tool has a name")).collect()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn both_eras_list_the_same_tools_on_every_path() {
    let hub = Hub::start();
    let token = hub.token("ann", "full,main");
    for path in PATHS {
        let listed = hub.modern(&token, path).await.tools().await;
        assert!(!names(&listed).is_empty(), "{path}");
        for era in LEGACY {
            assert_eq!(hub.client(era, &token, path).await.tools().await, listed, "{path} {era}");
        }
    }
}

/// Some clients append `/mcp` to a URL that does not end in it.
#[tokio::test]
async fn a_path_that_ends_in_mcp_is_the_one_without_it_with_the_same_checks() {
    let hub = Hub::start();
    let ann = hub.token("ann", "full");
    for (path, longer) in [
        ("/mcp", "/mcp/mcp"),
        ("/mcp/yaks", "/mcp/yaks/mcp"),
        ("/mcp/session/alpha", "/mcp/session/alpha/mcp"),
    ] {
        for era in ERAS {
            let listed = hub.client(era, &ann, path).await.tools().await;
            assert_eq!(hub.client(era, &ann, longer).await.tools().await, listed, "{longer} {era}");
        }
    }
    // Who calls, and which run is meant, is the same.
    let add = |content: &str| json!({"tasks": [{"content": content}]});
    for era in ERAS {
        let mut client = hub.client(era, &ann, "/mcp/session/alpha/mcp").await;
        let params = json!({"name": "task-add", "arguments": add(era)});
        client.request("tools/call", params).await;
    }
    let log = hub.log().into_iter().filter(|(_, what)| what.starts_with("TAS-"));
    let by: Vec<_> = log.map(|(by, _)| by).collect();
    assert_eq!(by, ["ann"; 3]);
    let listed = hub.ok(&["tool", "task-list", "--run", "alpha"]);
    assert!(ERAS.iter().all(|era| listed.contains(era)), "{listed}");
    // A run that is called mcp keeps its path.
    let mut client = hub.modern(&ann, "/mcp/session/mcp").await;
    let params = json!({"name": "task-add", "arguments": add("x")});
    client.request("tools/call", params).await;
    assert!(hub.ok(&["tool", "task-list", "--run", "mcp"]).contains("[TAS-1] x"));

    let bound = hub.ok(&["token", "create", "bob", "--run", "alpha"]);
    let refused = async |token: &str, path: &str| {
        let authorization = bearer(token);
        let headers = [
            ("host", "127.0.0.1"),
            ("authorization", &*authorization),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        hub.http().await.send(Method::POST, path, &headers, body).await.status
    };
    let bound = bound.lines().next_back().unwrap_or_default().trim();
    assert_eq!(refused(bound, "/mcp/session/beta/mcp").await, StatusCode::FORBIDDEN);
    assert_eq!(refused("nobody", "/mcp/session/alpha/mcp").await, StatusCode::UNAUTHORIZED);
    for none in ["/mcp/session/alpha/mcp/mcp", "/mcp/nothing/mcp", "/mcp/yaks/alpha/mcp"] {
        assert_eq!(refused(&ann, none).await, StatusCode::NOT_FOUND, "{none}");
    }
}

#[tokio::test]
async fn both_eras_call_the_same_tools_with_the_same_results() {
    let hub = Hub::start();
    let token = hub.token("ann", "full,main");
    let session = [
        ("task-add", json!({"tasks": [{"content": "sweep"}, {"content": "mop", "priority": 1.0}]})),
        ("task-add", json!({"tasks": [{"content": "SWEEP"}]})),
        ("task-next", json!({"claim": true})),
        ("task-list", json!({})),
        ("task-update", json!({"id": "TAS-2", "status": "completed"})),
        ("note-add", json!({"notes": [{"content": "the broom is in the shed", "type": "tip"}]})),
        ("note-list", json!({"type": "stuck"})),
        ("iteration-summary", json!({"summary": "mopped"})),
        ("session-complete", json!({})),
        ("session-complete", json!({"force": true})),
        ("no-such-tool", json!({})),
    ];
    let yaks = [
        ("list_yaks", json!({"status": "all"})),
        ("show_yak", json!({"yak_id": "nobody-0000"})),
        ("create_yak", json!({"title": "x"})),
    ];
    let mut by_era = Vec::new();
    for (i, era) in ERAS.into_iter().enumerate() {
        let mut answers = Vec::new();
        // A run of its own for each, so that all begin with an empty list.
        let mut client = hub.client(era, &token, &format!("/mcp/session/era-{i}")).await;
        for (name, arguments) in &session {
            let params = json!({"name": name, "arguments": arguments});
            answers.push(client.request("tools/call", params).await.json());
        }
        for path in ["/mcp", "/mcp/yaks"] {
            let mut client = hub.client(era, &token, path).await;
            for (name, arguments) in &yaks {
                let params = json!({"name": name, "arguments": arguments});
                answers.push(client.request("tools/call", params).await.json());
            }
        }
        by_era.push(answers.iter().map(said).collect::<Vec<_>>().join("\n"));
    }
    assert_eq!(by_era[0], by_era[1]);
    assert_eq!(by_era[0], by_era[2]);
    expect![[r#"
        Added 2 task(s):
          TAS-1: sweep
          TAS-2: mop
        ! error: task already exists with ID TAS-1: "sweep"; update that one instead
        {"id":"TAS-2","content":"mop","priority":1,"status":"in_progress"}
        Remaining:
          [TAS-1] sweep
        In progress:
          [TAS-2] mop
        Updated task TAS-2: status=completed
        Added 1 note(s): NOT-1 (tip)
        No notes with type 'stuck'
        Summary recorded for iteration #1
        ! error: cannot complete session: 1 task(s) not in terminal state (TAS-1); complete, block or cancel them first
        ! error: force: unknown field `force`, there are no fields
        -32602 "unknown tool \"no-such-tool\"; tools/list shows the tools there are"
        No yaks found.
        ! Yak nobody-0000 not found; list_yaks shows the ids.
        ! Missing 'yak_type' parameter.
        No yaks found.
        ! Yak nobody-0000 not found; list_yaks shows the ids.
        ! Missing 'yak_type' parameter."#]].assert_eq(&by_era[0]);
}

/// Returns what a call was answered with, without what belongs to one era only.
fn said(answer: &Value) -> String {
    match answer["error"].as_object() {
        Some(error) => format!("{} {}", error["code"], error["message"]),
        None => {
            let result = &answer["result"];
            let text = result["content"][0]["text"].as_str().expect("a result has text");
            assert_eq!(result["content"].as_array().map(Vec::len), Some(1), "{answer}");
            let mark = if result["isError"] == true { "! " } else { "" };
            format!("{mark}{text}")
        }
    }
}

#[tokio::test]
async fn the_server_is_called_teamster_in_both_eras() {
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    let mut modern = hub.modern(&token, "/mcp").await;
    let discovered = modern.request("server/discover", json!({})).await.json();
    let discovered = &discovered["result"];
    let versions = discovered["supportedVersions"].as_array().expect("versions are listed");
    for era in ERAS {
        assert!(versions.contains(&era.into()), "{era} in {discovered}");
    }
    let info = &discovered["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "teamster", "{discovered}");
    assert_eq!(discovered["capabilities"]["tools"]["listChanged"], true, "{discovered}");
    for era in LEGACY {
        let mut client = hub.client(era, &token, "/mcp").await;
        client.session = None;
        let params = json!({
            "protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let result = client.request("initialize", params).await.json()["result"].clone();
        assert_eq!(result["serverInfo"]["name"], "teamster", "{result}");
        assert_eq!(result["capabilities"]["tools"]["listChanged"], true, "{result}");
        assert_eq!(result["instructions"], discovered["instructions"], "{result}");
    }
}

#[tokio::test]
async fn each_principal_sees_its_own_tools_always_in_the_same_order() {
    let hub = Hub::start();
    let mut seen = String::new();
    let grants = [
        "full",
        "read-only",
        "session:task-list",
        "session",
        "yaks",
        "main",
        "full,main",
        "read-only,main",
        "session:task-add,main",
    ];
    for (i, grant) in grants.into_iter().enumerate() {
        let token = hub.token(&format!("ann-{i}"), grant);
        for path in PATHS {
            let mut modern = hub.modern(&token, path).await;
            let first = modern.request("tools/list", json!({})).await;
            let again = modern.request("tools/list", json!({})).await;
            assert_eq!(first.body, again.body, "{grant} {path}");
            let tools = &first.json()["result"]["tools"];
            for era in LEGACY {
                assert_eq!(*tools, hub.client(era, &token, path).await.tools().await);
            }
            let _ = writeln!(seen, "{grant} {path}: {}", names(tools).join(" "));
        }
    }
    expect![[r#"
        full /mcp: task-add task-update task-list task-next note-add note-list iteration-summary session-complete draft_agent await_agent kill_agent list_agents list_tasks get_task_context list_yaks show_yak
        full /mcp/session: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        full /mcp/session/alpha: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        full /mcp/yaks: list_yaks show_yak
        read-only /mcp: task-list task-next note-list list_agents list_tasks get_task_context list_yaks show_yak
        read-only /mcp/session: task-list task-next note-list
        read-only /mcp/session/alpha: task-list task-next note-list
        read-only /mcp/yaks: list_yaks show_yak
        session:task-list /mcp: task-list list_yaks show_yak
        session:task-list /mcp/session: task-list
        session:task-list /mcp/session/alpha: task-list
        session:task-list /mcp/yaks: list_yaks show_yak
        session /mcp: task-add task-update task-list task-next note-add note-list iteration-summary session-complete list_yaks show_yak
        session /mcp/session: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        session /mcp/session/alpha: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        session /mcp/yaks: list_yaks show_yak
        yaks /mcp: list_yaks show_yak
        yaks /mcp/session: 
        yaks /mcp/session/alpha: 
        yaks /mcp/yaks: list_yaks show_yak
        main /mcp: task-add task-update task-list task-next note-add note-list iteration-summary session-complete draft_agent await_agent kill_agent list_agents list_tasks get_task_context create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        main /mcp/session: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        main /mcp/session/alpha: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        main /mcp/yaks: create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        full,main /mcp: task-add task-update task-list task-next note-add note-list iteration-summary session-complete draft_agent await_agent kill_agent list_agents list_tasks get_task_context create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        full,main /mcp/session: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        full,main /mcp/session/alpha: task-add task-update task-list task-next note-add note-list iteration-summary session-complete
        full,main /mcp/yaks: create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        read-only,main /mcp: task-list task-next note-list list_agents list_tasks get_task_context create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        read-only,main /mcp/session: task-list task-next note-list
        read-only,main /mcp/session/alpha: task-list task-next note-list
        read-only,main /mcp/yaks: create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        session:task-add,main /mcp: task-add create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
        session:task-add,main /mcp/session: task-add
        session:task-add,main /mcp/session/alpha: task-add
        session:task-add,main /mcp/yaks: create_yak list_yaks show_yak update_yak shave_yak shorn_yak regrow_yak dep_yak
    "#]].assert_eq(&seen);
}

#[tokio::test]
async fn a_known_tool_that_is_not_granted_refuses_in_words_and_an_unknown_one_is_a_protocol_error()
{
    let hub = Hub::start();
    let cases = [
        (
            "full",
            "/mcp",
            "create_yak",
            json!({"title": "x", "yak_type": "bug", "priority": 1, "description": "x"}),
        ),
        ("full", "/mcp/yaks", "update_yak", json!({"yak_id": "x"})),
        ("full", "/mcp/yaks", "shave_yak", json!({"yak_id": "x"})),
        ("full", "/mcp/yaks", "shorn_yak", json!({"yak_id": "x"})),
        ("full", "/mcp/yaks", "regrow_yak", json!({"yak_id": "x"})),
        (
            "full",
            "/mcp/yaks",
            "dep_yak",
            json!({"yak_id": "x", "dep_action": "add", "dep_id": "y"}),
        ),
        ("read-only", "/mcp", "task-add", json!({"tasks": [{"content": "x"}]})),
        ("read-only", "/mcp/session", "task-next", json!({"claim": true})),
        ("read-only", "/mcp/session", "task-next", json!({"claim": "no"})),
        ("read-only", "/mcp/session", "task-next", json!({"claim": false})),
        ("read-only", "/mcp", "task-next", json!({})),
        ("session:task-list", "/mcp", "task-next", json!({})),
        ("session:task-list", "/mcp", "note-list", json!({})),
        ("session:task-list", "/mcp", "task-list", json!({})),
        ("session:task-list", "/mcp", "list_yaks", json!({})),
        ("full", "/mcp", "task-claim", json!({})),
        ("full", "/mcp/session", "list_yaks", json!({})),
        ("full", "/mcp/yaks", "task-list", json!({})),
        ("full", "/mcp", "TASK-LIST", json!({})),
    ];
    let tokens = ["full", "read-only", "session:task-list"]
        .map(|grant| (grant, hub.token(&grant.replace(':', "-"), grant)));
    let before = hub.n_events().await;
    let mut by_era = Vec::new();
    for era in ERAS {
        let mut seen = String::new();
        for (grant, path, name, arguments) in &cases {
            let (_, token) = tokens.iter().find(|(other, _)| other == grant).expect("a token");
            let mut client = hub.client(era, token, path).await;
            let params = json!({"name": name, "arguments": arguments});
            let answer = client.request("tools/call", params).await;
            let _ = writeln!(seen, "{grant} {path} {name}: {}", said(&answer.json()));
        }
        by_era.push(seen);
    }
    assert_eq!(by_era[0], by_era[1]);
    assert_eq!(by_era[0], by_era[2]);
    expect![[r#"
        full /mcp create_yak: ! Only the main group can create yaks.
        full /mcp/yaks update_yak: ! Only the main group can update yaks.
        full /mcp/yaks shave_yak: ! Only the main group can shave yaks.
        full /mcp/yaks shorn_yak: ! Only the main group can mark yaks as shorn.
        full /mcp/yaks regrow_yak: ! Only the main group can regrow yaks.
        full /mcp/yaks dep_yak: ! Only the main group can change the dependencies of yaks.
        read-only /mcp task-add: ! error: task-add is not granted to this token here; tools/list shows what is, and an operator can grant more (`teamster token grant`)
        read-only /mcp/session task-next: ! error: task-next with these arguments is not granted to this token here; an operator can grant more (`teamster token grant`)
        read-only /mcp/session task-next: ! error: task-next with these arguments is not granted to this token here; an operator can grant more (`teamster token grant`)
        read-only /mcp/session task-next: No ready tasks
        read-only /mcp task-next: No ready tasks
        session:task-list /mcp task-next: ! error: task-next is not granted to this token here; tools/list shows what is, and an operator can grant more (`teamster token grant`)
        session:task-list /mcp note-list: ! error: note-list is not granted to this token here; tools/list shows what is, and an operator can grant more (`teamster token grant`)
        session:task-list /mcp task-list: No tasks
        session:task-list /mcp list_yaks: No hairy yaks found.
        full /mcp task-claim: -32602 "unknown tool \"task-claim\"; tools/list shows the tools there are"
        full /mcp/session list_yaks: -32602 "unknown tool \"list_yaks\"; tools/list shows the tools there are"
        full /mcp/yaks task-list: -32602 "unknown tool \"task-list\"; tools/list shows the tools there are"
        full /mcp TASK-LIST: -32602 "unknown tool \"TASK-LIST\"; tools/list shows the tools there are"
    "#]].assert_eq(&by_era[0]);
    assert_eq!(hub.n_events().await, before, "nothing was written");
}

#[tokio::test]
async fn only_one_valid_bearer_token_gets_in() {
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    let (good, again) = (bearer(&token), bearer(&token));
    let (lower, spaced) = (format!("bearer {token}"), format!("Bearer   {token} "));
    let basic = format!("Basic {token}");
    let (cut, longer) = (bearer(&token[..token.len() - 1]), bearer(&format!("{token}0")));
    let two = bearer(&format!("{token} {token}"));
    let comma = bearer(&format!("{token}, {token}"));
    let upper = bearer(&token.to_uppercase());
    let good: &[(&str, &[&str])] =
        &[("as it should be", &[&good]), ("lower case", &[&lower]), ("spaces", &[&spaced])];
    let bad: &[(&str, &[&str])] = &[
        ("missing", &[]),
        ("empty", &[""]),
        ("scheme only", &["Bearer"]),
        ("scheme and space", &["Bearer "]),
        ("no scheme", &[&token]),
        ("other scheme", &[&basic]),
        (
            "wrong",
            &["Bearer tmst_0000000000000000000000000000000000000000000000000000000000000000"],
        ),
        ("cut", &[&cut]),
        ("longer", &[&longer]),
        ("upper case", &[&upper]),
        ("twice in one", &[&two]),
        ("twice with a comma", &[&comma]),
        ("twice", &[&again, &again]),
        ("good and bad", &[&again, "Bearer x"]),
        ("bad and good", &["Bearer x", &again]),
        ("not ASCII", &["Bearer ünicode"]),
    ];
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
    for path in ["/mcp", "/mcp/session/alpha", "/mcp/nothing", "/api/status", "/api/tokens"] {
        for (expected, cases) in [(true, good), (false, bad)] {
            for (what, values) in cases {
                let mut http = hub.http().await;
                let headers: Vec<_> =
                    values.iter().map(|value| ("authorization", *value)).collect();
                let answer = http.send(Method::POST, path, &headers, list.clone()).await;
                let admitted = answer.status != StatusCode::UNAUTHORIZED;
                assert_eq!(admitted, expected, "{path}, token {what}: {answer:?}");
                if !admitted {
                    assert_eq!(
                        answer.headers.get("www-authenticate").map(String::as_str),
                        Some("Bearer")
                    );
                    assert!(
                        answer.json()["error"].as_str().is_some_and(|text| text.contains("token"))
                    );
                    assert!(!answer.body.contains(&token), "an answer repeats no secret");
                }
            }
        }
        let answer = hub
            .http()
            .await
            .send(Method::POST, &format!("{path}?token={token}"), &[], list.clone())
            .await;
        assert_eq!(
            answer.status,
            StatusCode::UNAUTHORIZED,
            "a token in the URL is none: {answer:?}"
        );
    }
}

#[tokio::test]
async fn the_operators_routes_are_closed_to_agents() {
    let hub = Hub::start();
    let token = bearer(&hub.token("ann", "full,main,self"));
    let before = hub.n_events().await;
    let routes = [
        (Method::GET, "/api/status"),
        (Method::GET, "/api/tokens"),
        (Method::POST, "/api/tokens"),
        (Method::DELETE, "/api/tokens/ann"),
        (Method::POST, "/api/tokens/ann/grants"),
        (Method::GET, "/api/log"),
        (Method::GET, "/api/yaks"),
        (Method::POST, "/api/yaks/x-0000/labels"),
        (Method::POST, "/api/stop"),
    ];
    for (method, path) in routes {
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let answer = hub.http().await.send(method.clone(), path, &headers, "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}: {answer:?}");
    }
    assert_eq!(hub.n_events().await, before);
}

#[tokio::test]
async fn every_route_checks_host_and_origin_each_alone() {
    let hub = Hub::start();
    let (agent, operator) = (bearer(&hub.token("ann", "full")), bearer(&hub.operator));
    let authority = hub.url.trim_start_matches("http://");
    let port = authority.rsplit(':').next().expect("the URL has a port");
    let local = format!("localhost:{port}");
    let (evil_port, user) =
        (format!("evil.example:{port}"), format!("127.0.0.1@evil.example:{port}"));
    let (sub, prefix) =
        (format!("127.0.0.1.evil.example:{port}"), format!("localhost.evil.example:{port}"));
    let hosts: &[(bool, &[&str])] = &[
        (true, &[authority]),
        (true, &[&local]),
        (true, &["LOCALHOST"]),
        // A port that ssh forwards is another; the name is what web pages cannot have.
        (true, &["127.0.0.1:20001"]),
        (false, &["evil.example"]),
        (false, &[&evil_port]),
        (false, &[&sub]),
        (false, &[&prefix]),
        (false, &[&user]),
        (false, &["0.0.0.0"]),
        (false, &[""]),
        (false, &["a b"]),
        (false, &["<none>"]),
        (false, &[authority, authority]),
        (false, &[authority, "evil.example"]),
    ];
    let (own, own_local) = (format!("http://{authority}"), format!("http://localhost:{port}"));
    let (https, slash) = (format!("https://{authority}"), format!("http://{authority}/"));
    let (other_port, evil) = ("http://127.0.0.1:1", format!("http://evil.example:{port}"));
    let origins: &[(bool, &[&str])] = &[
        (true, &[]),
        (true, &[&own]),
        (true, &[&own_local]),
        (false, &["http://evil.example"]),
        (false, &[&evil]),
        (false, &[other_port]),
        (false, &[&https]),
        (false, &[&slash]),
        (false, &["null"]),
        (false, &[""]),
        (false, &["not an origin"]),
        (false, &["http://"]),
        (false, &["ünicode"]),
        (false, &[&own, &own]),
        (false, &[&own, "http://evil.example"]),
    ];
    let list = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}},
    });
    let list = list.to_string();
    let accept = "application/json, text/event-stream";
    let mcp = |token| {
        vec![
            ("authorization", token),
            ("accept", accept),
            ("content-type", "application/json"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/list"),
        ]
    };
    let routes = [
        (Method::POST, "/mcp", mcp(agent.as_str()), list.as_str(), StatusCode::OK),
        (Method::POST, "/mcp/session", mcp(agent.as_str()), list.as_str(), StatusCode::OK),
        (
            Method::GET,
            "/api/status",
            vec![("authorization", operator.as_str())],
            "",
            StatusCode::OK,
        ),
        (Method::GET, "/healthz", vec![], "", StatusCode::OK),
        (Method::GET, "/nothing/here", vec![], "", StatusCode::NOT_FOUND),
        (Method::GET, "/.well-known/oauth-protected-resource", vec![], "", StatusCode::NOT_FOUND),
        // The guard comes before the token.
        (Method::POST, "/mcp", vec![], list.as_str(), StatusCode::UNAUTHORIZED),
    ];
    for (method, path, headers, body, passed) in routes {
        let mut http = hub.http().await;
        for (host_ok, hosts) in hosts {
            for (origin_ok, origins) in origins {
                let mut headers = headers.clone();
                headers.extend(hosts.iter().map(|host| ("host", *host)));
                headers.extend(origins.iter().map(|origin| ("origin", *origin)));
                let answer = http.send(method.clone(), path, &headers, body.to_owned()).await;
                let expected = if *host_ok && *origin_ok { passed } else { StatusCode::FORBIDDEN };
                assert_eq!(answer.status, expected, "{path} {hosts:?} {origins:?}: {answer:?}");
                if expected == StatusCode::FORBIDDEN {
                    let at_fault = if *host_ok { "Origin" } else { "Host" };
                    let error = answer.json()["error"].as_str().expect("a reason").to_owned();
                    assert!(error.contains(at_fault), "{hosts:?} {origins:?}: {error}");
                }
                assert!(
                    !answer.headers.keys().any(|name| name.starts_with("access-control-")),
                    "no web page is invited: {answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_needs_no_token() {
    let hub = Hub::start();
    let mut http = hub.http().await;
    for (method, path, expected) in [
        (Method::GET, "/healthz", StatusCode::OK),
        (Method::HEAD, "/healthz", StatusCode::OK),
        (Method::POST, "/healthz", StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, "/.well-known/oauth-authorization-server", StatusCode::NOT_FOUND),
        (Method::GET, "/.well-known/oauth-authorization-server/mcp", StatusCode::NOT_FOUND),
        (Method::GET, "/.well-known/oauth-protected-resource", StatusCode::NOT_FOUND),
        (Method::GET, "/.well-known/oauth-protected-resource/mcp", StatusCode::NOT_FOUND),
        (Method::GET, "/.well-known/openid-configuration", StatusCode::NOT_FOUND),
        (Method::POST, "/register", StatusCode::NOT_FOUND),
        (Method::GET, "/", StatusCode::NOT_FOUND),
        (Method::GET, "/sse", StatusCode::NOT_FOUND),
        (Method::POST, "/mcp", StatusCode::UNAUTHORIZED),
        (Method::GET, "/mcp", StatusCode::UNAUTHORIZED),
        (Method::DELETE, "/mcp", StatusCode::UNAUTHORIZED),
        (Method::GET, "/api/status", StatusCode::UNAUTHORIZED),
        (Method::POST, "/api/stop", StatusCode::UNAUTHORIZED),
    ] {
        let answer = http.send(method.clone(), path, &[], "").await;
        assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_session_belongs_to_its_principal_and_its_path() {
    let hub = Hub::start();
    let (ann, bob) = (hub.token("ann", "full"), hub.token("bob", "full"));
    for era in LEGACY {
        let mut owner = hub.client(era, &ann, "/mcp").await;
        let session = owner.session.clone().expect("the older era has sessions");
        // The same principal elsewhere, and another one at the same place.
        for (token, path) in [
            (&ann, "/mcp/session"),
            (&ann, "/mcp/yaks"),
            (&ann, "/mcp/session/alpha"),
            (&bob, "/mcp"),
        ] {
            let mut thief = hub.client(era, token, path).await;
            let own = thief.session.replace(session.clone());
            let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
            for (method, body) in [
                (Method::POST, list.to_string()),
                (Method::GET, String::new()),
                (Method::DELETE, String::new()),
            ] {
                let headers = thief.headers(&Value::Null);
                let headers: Vec<_> =
                    headers.iter().map(|(name, value)| (*name, &**value)).collect();
                let answer = hub.http().await.send(method.clone(), path, &headers, body).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}: {answer:?}");
            }
            thief.session = own;
            assert!(!names(&thief.tools().await).is_empty(), "its own session still works");
        }
        let (text, is_error) = owner.call("task-list", json!({})).await;
        assert_eq!((text.as_str(), is_error), ("No tasks", false), "the owner was not disturbed");

        let headers = owner.headers(&Value::Null);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = hub.http().await.send(Method::DELETE, "/mcp", &headers, "").await;
        assert!(answer.status.is_success(), "the owner may end it: {answer:?}");
        let answer = owner.request("tools/list", json!({})).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "then it is gone: {answer:?}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_in_words() {
    const LIMIT: usize = 4 * 1024 * 1024;
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    let before = hub.n_events().await;
    let check = |what: &str, answer: &Answer| {
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{what}: {answer:?}");
        let error = answer.json()["error"].as_str().expect("a reason").to_owned();
        assert!(error.contains("larger than 4194304 bytes"), "{error}");
    };
    for era in ERAS {
        let client = hub.client(era, &token, "/mcp").await;
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "task-add", "arguments": {"tasks": [{"content": "x"}]}},
        });
        let headers = client.headers(&call);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        for size in [LIMIT + 1, 5 * LIMIT] {
            // White space is JSON too, so nothing but the size is wrong with it.
            let body = Bytes::from(format!("{call}{}", " ".repeat(size - call.to_string().len())));
            let answer = hub.http().await.send(Method::POST, "/mcp", &headers, body.clone()).await;
            check(&format!("{era}, {size} bytes, with a length"), &answer);
            let chunks = body.chunks(64 * 1024).map(Bytes::copy_from_slice).collect();
            let answer = hub.http().await.send_chunked("/mcp", &headers, chunks).await;
            check(&format!("{era}, {size} bytes, chunked"), &answer.expect("an answer"));
        }
    }
    assert_eq!(hub.n_events().await, before);
    let mut client = hub.modern(&token, "/mcp").await;
    // Two spaces short of the limit, the body is read, and it is the text in it that is too long.
    let (text, is_error) =
        client.call("task-add", json!({"tasks": [{"content": "x".repeat(LIMIT - 1024)}]})).await;
    assert!(
        is_error && text.starts_with("error: tasks[0].content is 4193280 bytes long"),
        "{text}"
    );
}

#[tokio::test]
async fn a_token_bound_to_a_run_works_only_there() {
    let hub = Hub::start();
    let token = hub.ok(&["token", "create", "ann", "--run", "alpha"]);
    for era in ERAS {
        let mut there = hub.client(era, &token, "/mcp/session/alpha").await;
        assert!(names(&there.tools().await).contains(&"task-add"));
        let (text, is_error) = there.call("task-list", json!({})).await;
        assert!(!is_error, "{text}");

        let mut everywhere = hub.client(era, &token, "/mcp").await;
        let tools = everywhere.tools().await;
        let tools = names(&tools);
        assert!(tools.contains(&"list_yaks") && !tools.contains(&"task-list"), "{tools:?}");
        let before = hub.n_events().await;
        let (text, is_error) =
            everywhere.call("task-add", json!({"tasks": [{"content": "x"}]})).await;
        assert_eq!(
            text,
            "error: this token belongs to the run alpha; use the path /mcp/session/alpha"
        );
        assert!(is_error);
        assert_eq!(hub.n_events().await, before);
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
    for path in ["/mcp/session", "/mcp/session/default", "/mcp/session/beta", "/mcp/session/Alpha"]
    {
        let token = bearer(&token);
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let headers = [("authorization", token.as_str())];
            let answer = hub.http().await.send(method.clone(), path, &headers, list.clone()).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}: {answer:?}");
            let error = answer.json()["error"].as_str().expect("a reason").to_owned();
            assert!(error.contains("alpha"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_out_at_once_and_its_streams_end() {
    let hub = Hub::start();
    for era in ERAS {
        let name = format!("ann-{era}");
        let token = hub.token(&name, "full");
        let mut client = hub.client(era, &token, "/mcp").await;
        let mut other = hub.client(era, &hub.token(&format!("bob-{era}"), "full"), "/mcp").await;
        let (mut events, mut others) = (client.listen(&hub).await, other.listen(&hub).await);
        hub.ok(&["token", "revoke", &name]);
        while events.next().await.is_some() {}
        let answer = client.request("tools/list", json!({})).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{era}: {answer:?}");
        // Nobody else notices.
        hub.ok(&["token", "grant", &format!("bob-{era}"), "--grant", "read-only"]);
        others.until("notifications/tools/list_changed").await;
        assert!(!names(&other.tools().await).contains(&"task-add"));
    }
}

#[tokio::test]
async fn a_replaced_token_ends_the_same_way() {
    let hub = Hub::start();
    for era in ERAS {
        let name = format!("ann-{era}");
        let mut client = hub.client(era, &hub.token(&name, "full"), "/mcp").await;
        let mut events = client.listen(&hub).await;
        let again = hub.ok(&["token", "create", &name, "--replace"]);
        while events.next().await.is_some() {}
        assert_eq!(client.request("tools/list", json!({})).await.status, StatusCode::UNAUTHORIZED);
        assert!(!names(&hub.client(era, &again, "/mcp").await.tools().await).is_empty());
    }
}

#[tokio::test]
async fn open_streams_do_not_keep_a_stopping_hub() {
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    let mut open = Vec::new();
    for era in ERAS {
        open.push(hub.client(era, &token, "/mcp").await.listen(&hub).await);
    }
    let stopped = hub.ok(&["down"]);
    assert_eq!(stopped, "");
    for mut events in open {
        while events.next().await.is_some() {}
    }
}

#[tokio::test]
async fn a_grant_is_told_to_those_who_listen() {
    let hub = Hub::start();
    for era in ERAS {
        let name = format!("ann-{era}");
        let mut client = hub.client(era, &hub.token(&name, "read-only"), "/mcp").await;
        assert!(!names(&client.tools().await).contains(&"task-add"));
        let mut events = client.listen(&hub).await;
        // More, less, and more again: each change is told, and the list is the new one by then.
        for (grant, n_tools) in [("full", 16), ("session:task-list", 3), ("full,main", 22)] {
            hub.ok(&["token", "grant", &name, "--grant", grant]);
            let told = events.until("notifications/tools/list_changed").await;
            if era == MODERN {
                let id = &told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
                assert_eq!(*id, 1, "{told}");
            }
            assert_eq!(names(&client.tools().await).len(), n_tools, "{era} {grant}");
        }
    }
}

#[tokio::test]
async fn a_key_gives_the_first_answer_again() {
    let hub = Hub::start();
    let (ann, bob) = (hub.token("ann", "full"), hub.token("bob", "full"));
    let add = |content: &str| json!({"tasks": [{"content": content}]});
    for (i, era) in ERAS.into_iter().enumerate() {
        let path = format!("/mcp/session/run-{i}");
        let mut client = hub.client(era, &ann, &path).await;
        let mut others = hub.client(era, &bob, &path).await;
        for as_header in [true, false] {
            let (one, two, three) = (
                format!("one {as_header}"),
                format!("two {as_header}"),
                format!("three {as_header}"),
            );
            let key = format!("key-{i}-{as_header}");
            let call = async |client: &mut crate::hub::Mcp, name: &str, arguments: Value| {
                let mut params = json!({"name": name, "arguments": arguments});
                client.key = as_header.then(|| key.clone());
                if !as_header {
                    params["_meta"] = json!({"teamster/key": key});
                }
                said(&client.request("tools/call", params).await.json())
            };
            let first = call(&mut client, "task-add", add(&one)).await;
            assert!(first.starts_with("Added 1 task(s):"), "{first}");
            let before = hub.n_events().await;
            assert_eq!(call(&mut client, "task-add", add(&one)).await, first);
            let refused = call(&mut client, "task-add", add(&two)).await;
            assert_eq!(
                refused,
                format!(
                    "! error: the key {key:?} was used for another call; use a new key for each new call"
                )
            );
            let refused = call(&mut client, "task-next", json!({"claim": true})).await;
            assert!(
                refused.starts_with("! error: the key"),
                "another tool is another call: {refused}"
            );
            assert_eq!(hub.n_events().await, before);
            let others_first = call(&mut others, "task-add", add(&three)).await;
            assert!(
                others_first.starts_with("Added 1 task(s):"),
                "another's key is another key: {others_first}"
            );
            assert_eq!(call(&mut client, "task-add", add(&one)).await, first);
        }
        // A claim repeated with its key hands out the same item; without one, each gets another.
        let claim = json!({"name": "task-next", "arguments": {"claim": true}});
        client.key = Some(format!("claim-{i}"));
        let first = said(&client.request("tools/call", claim.clone()).await.json());
        assert_eq!(said(&client.request("tools/call", claim.clone()).await.json()), first);
        client.key = None;
        assert_ne!(said(&client.request("tools/call", claim).await.json()), first);
    }
}

#[tokio::test]
async fn a_key_outlives_the_hub() {
    let mut hub = Hub::start();
    let token = hub.token("ann", "full");
    let mut client = hub.modern(&token, "/mcp").await;
    client.key = Some("k".into());
    let first = client.call("task-add", json!({"tasks": [{"content": "x"}]})).await;
    hub.crash_and_start_again();
    let mut client = hub.modern(&token, "/mcp").await;
    client.key = Some("k".into());
    assert_eq!(client.call("task-add", json!({"tasks": [{"content": "x"}]})).await, first);
}

#[tokio::test]
async fn a_bad_key_is_refused() {
    let hub = Hub::start();
    let mut client = hub.modern(&hub.token("ann", "full"), "/mcp").await;
    let before = hub.n_events().await;
    let long = "k".repeat(201);
    let mut answers = Vec::new();
    for key in ["", "with space", "tab\there", long.as_str()] {
        client.key = Some(key.into());
        let params = json!({"name": "task-add", "arguments": {"tasks": [{"content": "x"}]}});
        answers.push(said(&client.request("tools/call", params).await.json()));
    }
    client.key = None;
    for key in [json!(""), json!(7), json!({}), json!("ünicode")] {
        let params = json!({
            "name": "task-add", "arguments": {"tasks": [{"content": "x"}]}, "_meta": {"teamster/key": key},
        });
        answers.push(said(&client.request("tools/call", params).await.json()));
    }
    assert_eq!(answers, ["! error: a key is 1 to 200 visible ASCII characters"; 8]);
    assert_eq!(hub.n_events().await, before);
}

#[tokio::test]
async fn a_workers_tool_list_is_small() {
    // Clients put it into every request to their model.
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    for era in ERAS {
        let listed = hub.client(era, &token, "/mcp").await.request("tools/list", json!({})).await;
        let n_bytes = listed.json().to_string().len();
        assert!(n_bytes <= 8 * 1024, "{era}: {n_bytes} bytes");
    }
}

/// A hub that stops answers what it has taken in.
#[tokio::test]
async fn calls_under_way_are_answered_when_the_hub_stops() {
    for era in ERAS {
        let mut hub = Hub::start();
        let mut callers = Vec::new();
        for n in 0..16 {
            let mut client = hub.client(era, &hub.token(&format!("c{n}"), "full"), "/mcp").await;
            callers.push(tokio::spawn(async move {
                let mut acknowledged = 0;
                loop {
                    let task = json!({"tasks": [{"content": format!("{n}-{acknowledged}")}]});
                    match client.try_call("1", "task-add", task).await {
                        Ok((text, false)) => assert!(text.starts_with("Added 1 task"), "{text}"),
                        // From here on nothing was taken in, and it says so.
                        Ok((text, true)) => {
                            assert!(text.contains("nothing was changed"), "{text}");
                            return acknowledged;
                        }
                        Err(_) => return acknowledged,
                    }
                    acknowledged += 1;
                }
            }));
        }
        hub.ok(&["tool", "task-list"]);
        assert!(hub.end(Signal::TERM).success());
        let mut acknowledged = 0;
        for caller in callers {
            acknowledged += caller.await.expect("a caller ends");
        }
        let again = Hub::start_in(hub.data());
        let stored = again.log().iter().filter(|(_, what)| what.contains("added")).count();
        assert_eq!(stored, acknowledged, "{era}: stored, and whoever asked was not told");
    }
}
