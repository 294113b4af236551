//! Crowds at a real hub: thousands of idle connections, too few files for them, slow readers, one who floods, and a token
//! that has ended.

use std::path::Path;
use std::process::Command;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{has_files, memory_kib, status};
use crate::hub::{Hub, Mcp, command, program};

async fn connect(hub: &Hub) -> TcpStream {
    let authority = hub.url.trim_start_matches("http://");
    TcpStream::connect(authority).await.expect("the hub listens")
}

async fn add(mcp: &mut Mcp, text: &str) -> (String, bool) {
    mcp.call("task-add", json!({"tasks": [{"content": text}]})).await
}

async fn note(mcp: &mut Mcp, text: &str) -> (String, bool) {
    mcp.call("note-add", json!({"notes": [{"content": text, "type": "tip"}]})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_idle_connections_are_in_nobodys_way() {
    const IDLE: u64 = 5_000;
    if !has_files(IDLE + 1_000) {
        return;
    }
    let hub = Hub::start();
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    add(&mut mcp, "before").await;
    let before = memory_kib(&hub);
    let request = format!(
        "GET /api/status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        hub.operator
    );
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        // Those who show no token do not stay.
        let mut stream = connect(&hub).await;
        stream.write_all(request.as_bytes()).await.expect("it is open");
        stream.readable().await.expect("it is answered");
        idle.push(stream);
    }
    let (answer, is_error) = add(&mut hub.modern(&hub.operator, "/mcp").await, "during").await;
    assert!(!is_error, "{answer}");
    let bytes_each = memory_kib(&hub).saturating_sub(before) * 1_024 / IDLE;
    println!("{IDLE} idle connections, {bytes_each} bytes each");
    assert!(bytes_each <= 50 * 1_024, "{bytes_each} bytes for an idle connection");
    drop(idle);
    assert!(!add(&mut mcp, "after").await.1);
}

/// Anybody on the machine can connect to the port, and needs no token for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_the_port_keeps_nobody_out_who_has_a_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let hub = with_files(&directory.path().join("data"), 128);
    let ann = hub.token("ann", "full");
    let mut before = hub.modern(&ann, "/mcp").await;
    assert!(!add(&mut before, "before they came").await.1);
    let mut crowd = Vec::new();
    for n in 0..300 {
        crowd.push(connect(&hub).await);
        if n % 50 == 0 {
            let (answer, is_error) = add(&mut hub.modern(&ann, "/mcp").await, &n.to_string()).await;
            assert!(!is_error, "{answer}");
        }
    }
    // The control: those who came first are gone, and not because there was room for all.
    let mut answer = String::new();
    let _ = crowd.swap_remove(0).read_to_string(&mut answer).await;
    assert!(answer.is_empty(), "{answer}");
    assert!(!add(&mut hub.modern(&hub.operator, "/mcp").await, "an operator").await.1);
    assert!(!add(&mut before, "on a connection of before").await.1);
    tokio::task::block_in_place(|| {
        hub.ok(&["status"]);
        hub.ok(&["tool", "task-add", "--tasks", "while they are there"]);
        hub.ok(&["down"]);
    });
}

/// Starts a hub that may open no more than so many files.
fn with_files(data: &Path, n_files: u32) -> Hub {
    let plain = command(data);
    let mut shell = Command::new("sh");
    shell.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(std::env::temp_dir()).stdin(std::process::Stdio::null());
    shell.arg("-c").arg(format!("ulimit -n {n_files}; exec \"$0\" up")).arg(program());
    Hub::start_with(shell, data)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_files_ends_connections_and_recovers() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut hub = with_files(&directory.path().join("data"), 64);
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    let mut acknowledged = Vec::new();
    let mut n_ended = 0;
    for round in 0..3 {
        let mut crowd = Vec::new();
        for n in 0..100 {
            crowd.push(connect(&hub).await);
            // Whoever is in continues to work, also while others come and go.
            if n % 10 == 0 {
                let text = format!("{round}/{n}");
                let (answer, is_error) = add(&mut mcp, &text).await;
                assert!(!is_error, "{answer}");
                acknowledged.push(text);
            }
        }
        for mut stream in crowd.drain(..50) {
            let mut answer = String::new();
            // Those who came first had to make room for others.
            let _ = stream.read_to_string(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
            n_ended += 1;
        }
        drop(crowd);
    }
    let n_acknowledged = acknowledged.len();
    println!("with 64 files: {n_ended} ended, {n_acknowledged} acknowledged meanwhile");
    let (list, _) = mcp.call("task-list", json!({})).await;
    assert!(acknowledged.iter().all(|text| list.contains(text)), "{list}");
    assert!(!add(&mut mcp, "after").await.1);
    // With the crowd gone new connections are let in again; the hub may hear of that a little later.
    let answered = join_all((0..5).map(|_| async { healthy(&hub).await })).await;
    assert_eq!(answered.len(), 5);
    assert!(hub.end(Signal::TERM).success());
}

/// Connects until somebody answers well.
async fn healthy(hub: &Hub) {
    for _ in 0..10_000 {
        let mut stream = connect(hub).await;
        let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        let sent = stream.write_all(request.as_bytes()).await;
        if sent.is_ok()
            && stream.read_to_string(&mut answer).await.is_ok()
            && answer.starts_with("HTTP/1.1 200 ")
        {
            return;
        }
    }
    panic!("the hub does not recover");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_hold_up_nobody_and_take_up_what_they_asked_for() {
    const SLOW: u64 = 100;
    let hub = Hub::start();
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    for n in 0..100 {
        add(&mut mcp, &format!("{n} {}", "x".repeat(5_000))).await;
    }
    let request = format!(
        "GET /api/log HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        hub.operator
    );
    let before = memory_kib(&hub);
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let mut stream = connect(&hub).await;
        stream.write_all(request.as_bytes()).await.expect("it is open");
        slow.push(stream);
    }
    let mut n_bytes = 0;
    for round in 0..20 {
        for stream in &mut slow {
            // One byte at a time, as slowly as the calls in between.
            n_bytes += stream.read(&mut [0]).await.expect("it is answered");
        }
        let (answer, is_error) = add(&mut mcp, &format!("meanwhile {round}")).await;
        assert!(!is_error, "{answer}");
    }
    let bytes_each = memory_kib(&hub).saturating_sub(before) * 1_024 / SLOW;
    println!(
        "{SLOW} slow readers have {n_bytes} bytes of 500 KB each; the hub holds {bytes_each} bytes each"
    );
    assert!(bytes_each <= 1 << 20, "{bytes_each} bytes for a slow reader");
}

/// Counted: what is served between a call and its answer, while another has hundreds waiting. That turns are taken, and
/// not only that everybody's comes, is shown in `hub_loop.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_floods_does_not_come_first() {
    const FLOOD: u64 = 400;
    const CALLS_EACH: u64 = 10;
    /// Each of the flood's connections has one call under way, and may have sent another before ours was looked at.
    const SERVED_FIRST_MAX: u64 = 3 * FLOOD;
    if !has_files(2 * FLOOD) {
        return;
    }
    let hub = Hub::start();
    let (flood, ann) = (hub.token("flood", "full"), hub.token("ann", "full"));
    let flooding = |n: u64| {
        let (url, flood) = (hub.url.clone(), flood.clone());
        async move {
            let mut mcp =
                Mcp::connect(&url, &flood, "/mcp/session/flood").await.expect("it listens");
            let mut n_served = 0;
            for call in 0..CALLS_EACH {
                n_served += u64::from(!note(&mut mcp, &format!("{n}/{call}")).await.1);
            }
            n_served
        }
    };
    let floods: Vec<_> = (0..FLOOD).map(|n| tokio::spawn(flooding(n))).collect();
    let mut mcp = hub.modern(&ann, "/mcp").await;
    let mut http = hub.http().await;
    let mut most = 0;
    let mut n_calls = 0;
    while floods.iter().any(|flood| !flood.is_finished()) && n_calls < 50 {
        let before = status(&hub, &mut http).await.events;
        let (answer, is_error) = add(&mut mcp, &format!("ann {n_calls}")).await;
        assert!(!is_error, "{answer}");
        n_calls += 1;
        let after = status(&hub, &mut http).await.events;
        most = most.max(after - before);
    }
    let served = join_all(floods).await.into_iter().map(|flood| flood.expect("it ends"));
    let n_served: u64 = served.sum();
    println!(
        "{FLOOD} flooding connections: {n_served} calls served; {n_calls} calls of another in between, at most {most} \
         events during one"
    );
    assert!(n_calls >= 3, "the flood was over too soon to say anything");
    assert!(most <= SERVED_FIRST_MAX, "{most} were served first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_has_ended_is_never_accepted_again() {
    const REPLAYS: usize = 1_000;
    let mut hub = Hub::start();
    let token = hub.token("worker", "full");
    assert!(!add(&mut hub.modern(&token, "/mcp").await, "while it lived").await.1);
    // It is used without a pause while it is revoked; who asked after that was answered is refused.
    let (revoked, told) = tokio::sync::watch::channel(false);
    let users = (0..8).map(|user| {
        let (url, token, told) = (hub.url.clone(), token.clone(), told.clone());
        tokio::spawn(async move {
            let mut mcp = Mcp::connect(&url, &token, "/mcp").await.expect("it listens");
            for n in 0_usize.. {
                let asked_after = *told.borrow();
                let note = json!({"notes": [{"content": format!("{user}/{n}"), "type": "tip"}]});
                let params = json!({"name": "note-add", "arguments": note});
                let answer = mcp.request("tools/call", params).await;
                let accepted =
                    answer.status == StatusCode::OK && answer.json()["result"]["isError"] != true;
                assert!(!(asked_after && accepted), "accepted after it was revoked: {answer:?}");
                if asked_after {
                    return n;
                }
            }
            0
        })
    });
    let users: Vec<_> = users.collect();
    tokio::task::block_in_place(|| hub.ok(&["token", "revoke", "worker"]));
    revoked.send_replace(true);
    let n_before: usize =
        join_all(users).await.into_iter().map(|user| user.expect("it ends")).sum();

    let events = hub.n_events().await;
    let mut n_accepted = 0;
    for life in ["the same hub", "the next one"] {
        let mut mcp = hub.modern(&token, "/mcp").await;
        let bearer = format!("Bearer {token}");
        let mut http = hub.http().await;
        for n in 0..REPLAYS / 2 {
            let answer = match n % 4 {
                0 => mcp.request("tools/list", json!({})).await,
                1 => mcp.request("tools/call", json!({"name": "task-list", "arguments": {}})).await,
                2 => http.send(Method::GET, "/api/status", &[("authorization", &bearer)], "").await,
                _ => {
                    let headers = [("authorization", &*bearer), ("accept", "text/event-stream")];
                    http.send(Method::GET, "/mcp", &headers, "").await
                }
            };
            n_accepted += usize::from(answer.status != StatusCode::UNAUTHORIZED);
        }
        println!(
            "{REPLAYS} replays of a revoked token, half of them at {life}: {n_accepted} accepted"
        );
        hub.crash_and_start_again();
    }
    println!("{n_before} calls were made while it was being revoked");
    assert_eq!(n_accepted, 0);
    let log: Value = serde_json::from_str(&hub.ok(&["log", "verify", "--json"])).expect("JSON");
    assert_eq!(log["broken"], Value::Null);
    // Each of the two hubs since then has left the event of its start, and nothing else is new.
    assert_eq!(hub.n_events().await, events + 2, "a replay left a trace");
}
