//! What the hub counts, and who may read it.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a checker of the page is run where it is installed, and a broken fixture should panic"
)]

use std::collections::BTreeMap;
use std::process::Command;

use expect_test::expect;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::hub::{Answer, Http, Hub, LEGACY, MODERN, feed};

async fn page(http: &mut Http, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    http.send(Method::GET, "/metrics", &[("authorization", &bearer)], "").await
}

/// Returns the samples of a page by their names and labels.
async fn samples(hub: &Hub) -> BTreeMap<String, f64> {
    let page = page(&mut hub.http().await, &hub.operator).await;
    assert_eq!(page.status, StatusCode::OK, "{page:?}");
    let samples = page.body.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
        (name.to_owned(), value.parse().expect("a value is a number"))
    });
    samples.collect()
}

/// Returns those samples that are not zero of the metrics that begin so.
fn some(samples: &BTreeMap<String, f64>, start: &str) -> String {
    let some = samples.iter().filter(|(name, value)| name.starts_with(start) && **value != 0.0);
    some.map(|(name, value)| format!("{name} {value}\n")).collect()
}

#[tokio::test]
async fn every_door_and_adapter_counts_each_call_once() {
    let hub = Hub::start();
    let ann = hub.token("ann", "full");
    let mut modern = hub.modern(&ann, "/mcp").await;
    let mut legacy = hub.legacy(&ann, "/mcp/session", LEGACY[0]).await;
    let mut socket = hub.modern(&ann, "/mcp").await;
    socket.http = Http::over_socket(&hub.data().join("hub.sock")).await;
    for client in [&mut modern, &mut legacy, &mut socket] {
        client.call("task-list", json!({})).await;
        client.call("task-next", json!({"claim": "perhaps"})).await;
    }
    hub.ok(&["tool", "task-list"]);
    let call = |id, name| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": name, "arguments": {}, "_meta": meta}})
    };
    let mut stdio = hub.command();
    stdio.arg("mcp");
    let lines = format!("{}\n{}\n", call(1, "task-list"), call(2, "no-such-tool"));
    let answered = feed(stdio, &lines);
    assert!(answered.status.success(), "{answered:?}");
    modern
        .request("tools/call", json!({"name": "await_agent", "arguments": {"agentId": "x-1"}}))
        .await;
    let eve = hub.token("eve", "yaks");
    let mut eve = hub.modern(&eve, "/mcp").await;
    // One that waits is refused before it waits.
    eve.call("await_agent", json!({"agentId": "x-1"})).await;

    let samples = samples(&hub).await;
    expect![[r#"
        teamster_tool_calls_total{set="",tool="(unknown)",outcome="failed"} 1
        teamster_tool_calls_total{set="agents",tool="await_agent",outcome="refused"} 2
        teamster_tool_calls_total{set="session",tool="task-list",outcome="ok"} 5
        teamster_tool_calls_total{set="session",tool="task-next",outcome="refused"} 3
    "#]]
    .assert_eq(&some(&samples, "teamster_tool_calls_total"));
    expect![[r#"
        teamster_role_calls_total{role="(client)",outcome="failed"} 1
        teamster_role_calls_total{role="(client)",outcome="ok"} 4
        teamster_role_calls_total{role="(client)",outcome="refused"} 5
        teamster_role_calls_total{role="(operator)",outcome="ok"} 1
    "#]]
    .assert_eq(&some(&samples, "teamster_role_calls_total"));
    let count = "teamster_tool_call_duration_seconds_count{set=\"session\",tool=\"task-list\"}";
    let last = "teamster_tool_call_duration_seconds_bucket{set=\"session\",tool=\"task-list\",le=\"+Inf\"}";
    assert_eq!((samples[count], samples[last]), (5.0, 5.0));

    let status = hub.ok(&["status"]);
    assert!(status.contains("since the hub started, "), "{status}");
    assert!(status.contains("\n         task-list: 5, p50 "), "{status}");
    let status: Value = serde_json::from_str(&hub.ok(&["status", "--json"])).expect("it is JSON");
    let tools = status["calls"]["tools"].as_array().expect("a list");
    let next = tools.iter().find(|tool| tool["tool"] == "task-next").expect("it was called");
    assert_eq!((&next["calls"], &next["refused"]), (&json!(3), &json!(3)), "{next}");
}

#[tokio::test]
async fn an_agents_calls_are_its_own_and_its_roles() {
    let (hub, _directory) = Hub::start_with_variable("TEAMSTER_PROGRAM", "scripted");
    let script = "! call task-list\n! call task-list\n! call task-update {\"id\": \"TAS-9\"}";
    hub.ok(&["draft", "coder", script, "--wait"]);
    let agent = hub.ok(&["agent", "show", "coder-1"]);
    let calls = "  calls      3 since the hub started, 1 refused\n             task-update: 1, 1 refused\n             task-list: 2\n";
    assert!(agent.contains(calls), "{agent}");

    let samples = samples(&hub).await;
    let of_roles = some(&samples, "teamster_role_calls_total{role=\"coder\"");
    expect![[r#"
        teamster_role_calls_total{role="coder",outcome="ok"} 2
        teamster_role_calls_total{role="coder",outcome="refused"} 1
    "#]]
    .assert_eq(&of_roles);
    expect![[r#"
        teamster_agents_ended_total{role="coder",ending="completed"} 1
    "#]]
    .assert_eq(&some(&samples, "teamster_agents"));
    let by_agent = samples.keys().filter(|name| name.starts_with("teamster_agent_calls_total"));
    let coders = by_agent.filter(|name| name.contains("coder-1")).count();
    assert_eq!(coders, 0, "an agent's own samples end with it");
}

#[tokio::test]
async fn a_live_agent_has_samples_of_its_own() {
    let (hub, _directory) = Hub::start_with_variable("TEAMSTER_PROGRAM", "scripted");
    hub.ok(&["draft", "coder", "! call task-list\n! sleep 600000"]);
    let mut found = String::new();
    while found.is_empty() {
        // It shows when the agent has made its call; what is in between is the hub's own time.
        found = some(&samples(&hub).await, "teamster_agent_calls_total");
    }
    let expected =
        "teamster_agent_calls_total{agent=\"coder-1\",role=\"coder\",outcome=\"ok\"} 1\n";
    assert_eq!(found, expected);
    hub.ok(&["kill", "coder-1"]);
}

#[tokio::test]
async fn the_metrics_are_for_operators_and_for_whom_they_are_granted() {
    let hub = Hub::start();
    let (reader, full) = (hub.token("prometheus", "metrics"), hub.token("ann", "full,main,self"));
    let mut http = hub.http().await;
    for (who, token, status) in [
        ("operator", hub.operator.as_str(), StatusCode::OK),
        ("reader", &reader, StatusCode::OK),
        ("ann", &full, StatusCode::FORBIDDEN),
        ("nobody", "wrong", StatusCode::UNAUTHORIZED),
    ] {
        let answer = page(&mut http, token).await;
        assert_eq!(answer.status, status, "{who}: {answer:?}");
    }
    let bearer = format!("Bearer {reader}");
    for (header, method, status) in [
        (("host", "hub.example"), Method::GET, StatusCode::FORBIDDEN),
        (("origin", "http://page.example"), Method::GET, StatusCode::FORBIDDEN),
        (("accept", "*/*"), Method::POST, StatusCode::METHOD_NOT_ALLOWED),
        (("accept", "*/*"), Method::GET, StatusCode::OK),
    ] {
        let headers = [("authorization", bearer.as_str()), header];
        let answer = http.send(method, "/metrics", &headers, "").await;
        assert_eq!(answer.status, status, "{header:?}: {answer:?}");
    }
    // It can read the metrics and nothing else.
    let headers = [("authorization", bearer.as_str())];
    let answer = http.send(Method::GET, "/api/status", &headers, "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer:?}");
    let (said, refused) = hub.modern(&reader, "/mcp").await.call("task-list", json!({})).await;
    assert!(refused, "{said}");
}

#[tokio::test]
async fn the_page_is_in_prometheus_text_format() {
    let (hub, _directory) = Hub::start_with_variable("TEAMSTER_PROGRAM", "scripted");
    hub.ok(&["draft", "coder", "! call task-list", "--wait"]);
    hub.ok(&["tool", "task-add", "--tasks", "x"]);
    let page = page(&mut hub.http().await, &hub.operator).await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let names = page.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = names.collect::<Vec<_>>().join("\n");
    expect![[r#"
        teamster_tool_calls_total counter
        teamster_tool_call_duration_seconds histogram
        teamster_role_calls_total counter
        teamster_role_call_duration_seconds histogram
        teamster_agent_calls_total counter
        teamster_agent_call_seconds_total counter
        teamster_agents gauge
        teamster_agents_ended_total counter
        teamster_log_commits_total counter
        teamster_log_records_total counter
        teamster_log_events gauge
        teamster_log_bytes gauge
        teamster_tokens gauge
        teamster_waiting gauge
        teamster_connections gauge
        process_cpu_seconds_total counter
        process_resident_memory_bytes gauge
        process_open_fds gauge
        process_start_time_seconds gauge
        teamster_build_info gauge"#]]
    .assert_eq(&names);
    let check = ["promtool", "/usr/bin/promtool"].into_iter().find(|path| {
        Command::new(path).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(check) = check else {
        println!("skipped: promtool is not installed, so nobody else has read the page");
        return;
    };
    let mut command = Command::new(check);
    command.args(["check", "metrics"]);
    let checked = feed(command, &page.body);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.trim().is_empty(), "{said}");
    let mut broken = Command::new(check);
    broken.args(["check", "metrics"]);
    assert!(!feed(broken, "a{b=c} 1\n").status.success(), "it can tell");
}
