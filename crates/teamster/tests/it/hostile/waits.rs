//! A thousand calls that wait for the same thing: answered by it, or gone with their callers.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::json;
use teamster_api::log::LogPage;

use super::{has_files, memory_kib, status, until_waiting};
use crate::hub::{Answer, Hub};

const WAITS: u64 = 1_000;
/// What one wait may cost, with its connection.
const KIB_PER_WAIT: u64 = 50;

/// Connects and waits for the log to grow beyond `head`.
async fn wait(hub: &Hub, head: u64) -> Answer {
    let bearer = format!("Bearer {}", hub.operator);
    let path = format!("/api/log?after={head}&wait_ms=50000");
    hub.http().await.send(Method::GET, &path, &[("authorization", &bearer)], "").await
}

async fn head(hub: &Hub) -> u64 {
    wait(hub, 0).await.read::<LogPage>().last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waits_are_cheap_and_all_are_answered() {
    if !has_files(2 * WAITS) {
        return;
    }
    let hub = Hub::start();
    let mut http = hub.http().await;
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    let add = |text: String| json!({"tasks": [{"content": text}]});
    mcp.call("task-add", add("first".into())).await;
    // A round before it counts: allocators and runtimes grow once.
    for (round, counts) in [(0, false), (1, true), (2, true)] {
        let before = memory_kib(&hub);
        let head = head(&hub).await;
        let event = async {
            until_waiting(&hub, &mut http, WAITS).await;
            let each = memory_kib(&hub).saturating_sub(before) * 1_024 / WAITS;
            mcp.call("task-add", add(format!("round {round}"))).await;
            each
        };
        let (answers, bytes_each) =
            tokio::join!(join_all((0..WAITS).map(|_| wait(&hub, head))), event);
        let answered = answers.iter().filter(|answer| {
            let lines = &answer.json()["lines"];
            answer.status == StatusCode::OK && lines.to_string().contains(&format!("round {round}"))
        });
        assert_eq!(answered.count() as u64, WAITS);
        println!("round {round}: {WAITS} waits, {bytes_each} bytes each, answered by one event");
        assert!(!counts || bytes_each <= KIB_PER_WAIT * 1_024, "{bytes_each} bytes for each wait");
        until_waiting(&hub, &mut http, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_end_with_their_callers() {
    if !has_files(2 * WAITS) {
        return;
    }
    let hub = Hub::start();
    let mut http = hub.http().await;
    let head = head(&hub).await;
    let mut kib = Vec::new();
    for round in 0..6 {
        let waits = join_all((0..WAITS).map(|_| wait(&hub, head)));
        tokio::select! {
            answers = waits => panic!("{} were answered, but nothing happened", answers.len()),
            () = until_waiting(&hub, &mut http, WAITS) => {}
        }
        // Dropping them closed their connections.
        until_waiting(&hub, &mut http, 0).await;
        let now = memory_kib(&hub);
        println!("round {round}: {WAITS} callers went away, nobody waits, {now} KiB");
        kib.push(now);
    }
    // Allocators settle in the first rounds, and take more at once now and then; what callers that are gone leave behind
    // would show in every round.
    let grown = kib[2..].windows(2).map(|round| round[1].saturating_sub(round[0])).min();
    let kept = grown.unwrap_or_default() * 1_024 / WAITS;
    assert!(kept <= 4 * 1_024, "{kept} bytes are kept of each caller that is gone: {kib:?}");
    assert_eq!(status(&hub, &mut http).await.waiting, 0);
}
