//! What the hub counts, and who may read it.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a checker of the page is run where it is installed, and a broken fixture should panic"
)]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use bytes::Bytes;
use expect_test::expect;
use http::{HeaderMap, Method, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Answer, DEADLINE, Http, Hub, LEGACY, MODERN, command, feed};
use crate::optional::Optional;

async fn page(http: &mut Http, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    http.send(Method::GET, "/metrics", &[("authorization", &bearer)], "").await
}

/// Returns the samples of a page by their names and labels.
pub(crate) async fn samples(hub: &Hub) -> BTreeMap<String, f64> {
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
        teamster_tool_calls_total{set="teams",tool="team_getTeamName",outcome="ok"} 1
    "#]]
    .assert_eq(&some(&samples, "teamster_tool_calls_total"));
    expect![[r#"
        teamster_role_calls_total{role="(client)",outcome="failed"} 1
        teamster_role_calls_total{role="(client)",outcome="ok"} 4
        teamster_role_calls_total{role="(client)",outcome="refused"} 5
        teamster_role_calls_total{role="(operator)",outcome="ok"} 2
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
    let called = async {
        loop {
            let found = some(&samples(&hub).await, "teamster_agent_calls_total");
            if !found.is_empty() {
                return found;
            }
        }
    };
    let found = tokio::time::timeout(DEADLINE, called).await.expect("the agent calls");
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
        teamster_role_tokens gauge
        teamster_role_cost_dollars gauge
        teamster_role_unpriced_turns gauge
        teamster_agent_tokens gauge
        teamster_agent_cost_dollars gauge
        teamster_agent_unpriced_turns gauge
        teamster_questions gauge
        teamster_log_commits_total counter
        teamster_log_records_total counter
        teamster_log_events gauge
        teamster_log_bytes gauge
        teamster_tokens gauge
        teamster_waiting gauge
        teamster_loop_waiting gauge
        teamster_loop_stalled_seconds gauge
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
        Optional::Promtool.is_usable(false);
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

/// A collector: it takes spans over OTLP/HTTP and keeps them.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Returns it and its URL.
    async fn start() -> (Self, String) {
        let (collector, listener) = (Self::default(), tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let keeps = collector.clone();
        let take = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let batch = ExportTraceServiceRequest::decode(body).expect("spans in protobuf");
            let scopes = batch.resource_spans.into_iter().flat_map(|spans| spans.scope_spans);
            keeps.0.lock().expect("nobody panicked").extend(scopes.flat_map(|spans| spans.spans));
        };
        let router = Router::new().route("/v1/traces", axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, url)
    }

    /// Returns what came: of each span its name, trace, parent, attributes and status.
    fn came(&self) -> Vec<String> {
        let spans = self.0.lock().expect("nobody panicked");
        let mut came: Vec<String> = spans.iter().map(shown).collect();
        came.sort();
        came
    }
}

fn shown(span: &Span) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
    let of = if span.parent_span_id.is_empty() {
        "of no other".to_owned()
    } else {
        format!("of {} in {}", hex(&span.parent_span_id), hex(&span.trace_id))
    };
    let attributes = span.attributes.iter().map(|attribute| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let text = match value {
            Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text)) => {
                text
            }
            other => panic!("texts are sent: {other:?}"),
        };
        format!("\n  {}={text}", attribute.key)
    });
    let code = span.status.as_ref().map_or(0, |status| status.code);
    format!(
        "{} {of}, kind {}, status {code}{}",
        span.name,
        span.kind,
        attributes.collect::<String>()
    )
}

// The collector must answer while the test waits for the hub to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn spans_belong_to_the_traces_of_their_callers() {
    let (collector, url) = Collector::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let mut up = command(&data);
    up.env("TEAMSTER_TELEMETRY_OTLP", url).env("TEAMSTER_PROGRAM", "scripted").arg("up");
    let mut hub = Hub::start_with(up, &data);
    let ann = hub.token("ann", "full");
    for (n, era) in [MODERN, LEGACY[0]].into_iter().enumerate() {
        let mut client = hub.client(era, &ann, "/mcp").await;
        let parent = format!("00-0af7651916cd43dd8448eb211c80319{n}-b7ad6b716920333{n}-01");
        let call = json!({"name": "task-list", "arguments": {}, "_meta": {"traceparent": parent}});
        client.request("tools/call", call).await;
        // This one's caller does not want to be traced.
        let parent = parent.replace("-01", "-00");
        let call = json!({"name": "note-list", "arguments": {}, "_meta": {"traceparent": parent}});
        client.request("tools/call", call).await;
        // And this one's caller means something else.
        let call = json!({"name": "task-update", "arguments": {}, "_meta": {"traceparent": "?"}});
        client.request("tools/call", call).await;
    }
    hub.ok(&["draft", "coder", "! call task-list", "--wait"]);
    hub.end(Signal::TERM);
    expect![[r#"
        tools/call task-list of b7ad6b7169203330 in 0af7651916cd43dd8448eb211c803190, kind 2, status 0
          mcp.method.name=tools/call
          gen_ai.operation.name=execute_tool
          gen_ai.tool.name=task-list
          teamster.set=session
          teamster.principal=ann
          teamster.outcome=ok
        tools/call task-list of b7ad6b7169203331 in 0af7651916cd43dd8448eb211c803191, kind 2, status 0
          mcp.method.name=tools/call
          gen_ai.operation.name=execute_tool
          gen_ai.tool.name=task-list
          teamster.set=session
          teamster.principal=ann
          teamster.outcome=ok
        tools/call task-list of no other, kind 2, status 0
          mcp.method.name=tools/call
          gen_ai.operation.name=execute_tool
          gen_ai.tool.name=task-list
          teamster.set=session
          teamster.principal=coder-1
          teamster.outcome=ok
          teamster.agent=coder-1
          teamster.role=coder
        tools/call task-update of no other, kind 2, status 2
          mcp.method.name=tools/call
          gen_ai.operation.name=execute_tool
          gen_ai.tool.name=task-update
          teamster.set=session
          teamster.principal=ann
          teamster.outcome=refused
          error.type=tool_error
        tools/call task-update of no other, kind 2, status 2
          mcp.method.name=tools/call
          gen_ai.operation.name=execute_tool
          gen_ai.tool.name=task-update
          teamster.set=session
          teamster.principal=ann
          teamster.outcome=refused
          error.type=tool_error"#]].assert_eq(&collector.came().join("\n"));
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_one_warning() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let directory = tempfile::tempdir().expect("a directory");
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let mut up = command(&data);
    let stderr = std::fs::File::create(&log).expect("a file");
    up.env("TEAMSTER_TELEMETRY_OTLP", url).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    up.arg("up").stderr(stderr);
    let mut hub = Hub::try_start_with(up, &data).expect("the hub starts all the same");
    let mut client = hub.modern(&hub.operator, "/mcp").await;
    let refused = async {
        while samples(&hub).await["teamster_otlp_failures_total"] < 5.0 {
            let (said, failed) = client.call("task-list", json!({})).await;
            assert!(!failed, "{said}");
        }
    };
    tokio::time::timeout(DEADLINE, refused).await.expect("it is tried again and again");
    hub.end(Signal::TERM);
    let said = std::fs::read_to_string(&log).expect("it is text");
    // Who runs the tests may be root, which the hub warns of.
    let warnings = said.lines().filter(|line| line.contains("WARN") && !line.contains("as root"));
    let warnings: Vec<&str> = warnings.collect();
    assert!(matches!(warnings[..], [one] if one.contains("does not take spans")), "{said}");
}
