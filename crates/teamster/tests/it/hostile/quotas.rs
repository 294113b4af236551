//! One token that floods, a crowd of connections, and an agent that breeds, all at once: others are served, the hub stays
//! small, and those who go too far are told what to do.
//!
//! `TEAMSTER_FLOOD_SECONDS=12` measures it with the quotas that hubs have, `TEAMSTER_FLOOD_ALONE=1` without the crowd and
//! the agents, and then it fails if others wait too long. `TEAMSTER_BIN` has another build measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{has_files, memory_kib};
use crate::agents::World;
use crate::hub::{Hub, Mcp};

/// What the hub may take up in the middle of it.
const MIB_MAX: u64 = 300;
/// How long one in a hundred calls of others may take, where that is measured.
const P99_MAX: Duration = Duration::from_millis(50);

const FLOODING_CONNECTIONS: usize = 6;
const STRANGERS: usize = 2_000;
const TOKENS_THAT_HOLD: usize = 40;
const HELD_EACH: usize = 8;
/// What is sent of each body that does not end.
const HELD_BYTES: usize = 3 << 20;

fn seconds() -> Option<u64> {
    std::env::var("TEAMSTER_FLOOD_SECONDS").ok().and_then(|seconds| seconds.parse().ok())
}

/// What became of calls: how many of each kind.
type Tally = BTreeMap<String, usize>;

/// Writes as much as it can until it is told to stop.
async fn flood(url: String, token: String, n: usize, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::new();
    let text = "x".repeat(15_000);
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut mcp) = Mcp::connect(&url, &token, "/mcp/session/flood").await else {
            *tally.entry("not connected".into()).or_default() += 1;
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            round += 1;
            let note =
                |i: usize| json!({"content": format!("{n}/{round}/{i} {text}"), "type": "tip"});
            let notes: Vec<Value> = (0..200).map(note).collect();
            let answer = mcp.try_request("note-add", json!({"notes": notes})).await;
            let said = answer.as_ref().map_or(String::new(), |answer| format!("{answer:?}"));
            let kind = match &answer {
                Ok(_) if said.contains("you have stored") => "quota reached",
                Ok(_) if said.contains("times a second") => "too fast",
                Ok(_) if said.contains("of unfinished requests") => "too many unfinished",
                Ok(answer) if answer.json()["result"]["isError"] == false => "stored",
                Ok(_) => said.as_str(),
                Err(_) => "disconnected",
            };
            *tally.entry(kind.chars().take(120).collect()).or_default() += 1;
            if answer.is_err() {
                break;
            }
        }
    }
    tally
}

/// Sends most of a large body, and then nothing more. Returns how it was answered meanwhile.
async fn hold(url: &str, token: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.ok()?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 4000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    // A hub that reads no more must not keep us waiting.
    let body = vec![b' '; HELD_BYTES];
    let _ = tokio::time::timeout(Duration::from_secs(2), stream.write_all(&body)).await;
    Some(stream)
}

/// Calls as others do, one call after the other, and returns how long each took.
async fn work(hub: &Hub, token: &str, run: &str, stop: &AtomicBool) -> Vec<Duration> {
    let mut mcp = hub.modern(token, &format!("/mcp/session/{run}")).await;
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let n = took.len();
        let before = now();
        let (answer, is_error) = if n % 2 == 0 {
            mcp.call("task-add", json!({"tasks": [{"content": format!("work {n}")}]})).await
        } else {
            mcp.call("task-next", json!({})).await
        };
        took.push(before.elapsed());
        assert!(!is_error, "others are served: {answer}");
        // As an agent does, which thinks in between.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    took
}

fn now() -> Instant {
    Instant::now()
}

/// A coordinator that drafts coordinators, each of which does the same.
fn breeding(generations: u32) -> String {
    let below = if generations == 0 { "! say done".to_owned() } else { breeding(generations - 1) };
    let draft = json!({"role": "coordinator", "prompt": below.replace('$', "$$")});
    format!("! call draft_agent {draft}\n").repeat(6) + "! say done"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_a_crowd_and_a_breeding_agent_at_once() {
    if !has_files(5_000) {
        return;
    }
    let measured = seconds();
    // The short form reaches the quota sooner.
    let settings = if measured.is_some() { "" } else { "[quotas]\nstored_mib = 8\n" };
    let world = World::start(settings);
    let hub = &world.hub;
    let (flooder, ann) = (hub.token("flood", "full"), hub.token("ann", "full"));
    let holders: Vec<String> =
        (0..TOKENS_THAT_HOLD).map(|n| hub.token(&format!("holder-{n}"), "full")).collect();
    let before_mib = memory_kib(hub) / 1_024;
    let alone = {
        let stop = AtomicBool::new(false);
        let (took, ()) = tokio::join!(work(hub, &ann, "alone", &stop), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            stop.store(true, Ordering::Relaxed);
        });
        p99(took)
    };

    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..FLOODING_CONNECTIONS)
        .map(|n| tokio::spawn(flood(hub.url.clone(), flooder.clone(), n, stop.clone())))
        .collect();
    let flood_alone = std::env::var_os("TEAMSTER_FLOOD_ALONE").is_some();
    if !flood_alone {
        tokio::task::block_in_place(|| world.draft("coordinator", &breeding(2)));
    }
    let mut strangers = Vec::new();
    let mut peak_mib = 0;
    let mut held = Vec::new();
    let attack = async {
        for _ in 0..if flood_alone { 0 } else { STRANGERS } {
            let stranger = TcpStream::connect(hub.url.trim_start_matches("http://")).await;
            strangers.push(stranger.expect("the hub listens"));
        }
        for token in holders.iter().filter(|_| !flood_alone) {
            held.extend(join_all((0..HELD_EACH).map(|_| hold(&hub.url, token))).await);
            peak_mib = peak_mib.max(memory_kib(hub) / 1_024);
        }
        let end = now() + Duration::from_secs(measured.unwrap_or(2));
        while now() < end {
            peak_mib = peak_mib.max(memory_kib(hub) / 1_024);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (took, ()) = tokio::join!(work(hub, &ann, "beside", &stop), attack);
    let mut tally = Tally::new();
    for flood in join_all(floods).await {
        for (kind, n) in flood.expect("it ends") {
            *tally.entry(kind).or_default() += n;
        }
    }
    drop((strangers, held));
    // What was held is given back when the hub has noticed.
    tokio::time::sleep(Duration::from_secs(measured.map_or(0, |_| 2))).await;
    let n_calls = took.len();
    let p99 = p99(took);
    // An operator is served whatever quotas are reached.
    assert!(!hub.modern(&hub.operator, "/mcp").await.call("task-list", json!({})).await.1);
    let agents: Vec<Value> = tokio::task::block_in_place(|| {
        serde_json::from_str(&hub.ok(&["agents", "--all", "--json"])).expect("JSON")
    });
    println!(
        "flood, crowd and breeding agent: others' p99 {p99:?} of {n_calls} calls (alone {alone:?}); hub {before_mib} MiB \
         before, {peak_mib} MiB at most, {} MiB after; {} agents bred; the flood's calls: {tally:?}",
        memory_kib(hub) / 1_024,
        agents.len()
    );
    assert!(tally.contains_key("quota reached") || measured.is_some(), "{tally:?}");
    assert!(peak_mib < MIB_MAX, "the hub took up {peak_mib} MiB");
    assert!(agents.len() <= 101, "a tree has at most 100 below its root");
    assert!(!flood_alone || p99 < P99_MAX, "others waited {p99:?}");
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[(took.len() - 1) * 99 / 100]
}

/// Bodies are refused before they are sent: there is nothing to wait for.
#[tokio::test]
async fn a_hundred_megabytes_are_refused_by_their_length() {
    let hub = Hub::start();
    let token = hub.token("ann", "full");
    let head = |length: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: \
             application/json\r\n{length}\r\n\r\n"
        )
    };
    let mut chunk = format!("{:x}\r\n", (4 << 20) + 1).into_bytes();
    chunk.resize(chunk.len() + (4 << 20) + 1, b' ');
    for (length, body) in
        [("content-length: 100000000", Vec::new()), ("transfer-encoding: chunked", chunk)]
    {
        let mut stream = TcpStream::connect(hub.url.trim_start_matches("http://"))
            .await
            .expect("the hub listens");
        stream.write_all(head(length).as_bytes()).await.expect("it is open");
        stream.write_all(&body).await.expect("it is read");
        let mut answer = Vec::new();
        let began = now();
        while !String::from_utf8_lossy(&answer).contains("larger than 4194304 bytes") {
            let read = tokio::io::AsyncReadExt::read_buf(&mut stream, &mut answer);
            let n_read = tokio::time::timeout(crate::hub::DEADLINE, read).await;
            assert!(n_read.expect("it is answered").expect("it is open") > 0, "{answer:?}");
        }
        println!("{length}: refused after {:?}", began.elapsed());
        let status = StatusCode::PAYLOAD_TOO_LARGE.as_u16().to_string();
        assert!(String::from_utf8_lossy(&answer).starts_with(&format!("HTTP/1.1 {status}")));
    }
}
