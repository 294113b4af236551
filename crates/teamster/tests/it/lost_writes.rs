//! What other task tools get wrong: writes from several processes at once, and what is left after a crash.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::hub::{Hub, feed};

/// Runs `n` processes of the program at once, each making one call for each of its lines, and returns their answers.
fn at_once(hub: &Hub, tool: &[&str], inputs: Vec<String>) -> Vec<Value> {
    let clients = inputs.into_iter().map(|input| {
        let mut command = hub.command();
        command.arg("tool").args(tool).args(["--json", "-"]);
        std::thread::spawn(move || feed(command, &input))
    });
    let clients: Vec<_> = clients.collect();
    let outputs = clients.into_iter().map(|client| client.join().expect("a client ends"));
    outputs
        .flat_map(|output| {
            let lines = String::from_utf8(output.stdout).expect("answers are UTF-8");
            lines
                .lines()
                .map(|line| serde_json::from_str(line).expect("an answer is JSON"))
                .collect::<Vec<Value>>()
        })
        .collect()
}

/// Returns every item's id and content, by reading the list page by page.
pub(crate) async fn listed(hub: &Hub) -> Vec<(String, String)> {
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let (page, is_error) = mcp.call("task-list", json!({"cursor": cursor})).await;
        assert!(!is_error, "{page}");
        let lines = page.lines().filter_map(|line| line.strip_prefix("  [")?.split_once("] "));
        items.extend(lines.map(|(id, content)| (id.to_owned(), content.to_owned())));
        match page
            .lines()
            .last()
            .and_then(|line| line.strip_prefix("More: call again with cursor \""))
        {
            Some(rest) => cursor = rest.trim_end_matches("\".").to_owned(),
            None => return items,
        }
    }
}

#[tokio::test]
async fn four_processes_add_a_thousand_items_and_a_thousand_are_there() {
    let mut hub = Hub::start();
    let inputs = (0..4).map(|client| {
        let line =
            |n| json!({"tasks": [{"content": format!("item {n} of client {client}")}]}).to_string();
        (0..250).map(line).collect::<Vec<_>>().join("\n")
    });
    let answers = at_once(&hub, &["task-add"], inputs.collect());
    let acknowledged: BTreeSet<String> = answers
        .iter()
        .map(|answer| {
            assert_eq!(answer["isError"], false, "{answer}");
            let text = answer["text"].as_str().expect("an answer has text");
            let (id, content) =
                text.lines().nth(1).and_then(|line| line.trim().split_once(": ")).expect("an id");
            format!("{id} {content}")
        })
        .collect();
    assert_eq!(acknowledged.len(), 1_000);

    // The process dies without warning; the next one finds all of it.
    hub.crash_and_start_again();
    let stored: Vec<(String, String)> = listed(&hub).await;
    let ids: BTreeSet<&String> = stored.iter().map(|(id, _)| id).collect();
    assert_eq!((stored.len(), ids.len()), (1_000, 1_000));
    let stored: BTreeSet<String> =
        stored.iter().map(|(id, content)| format!("{id} {content}")).collect();
    assert_eq!(stored, acknowledged);
    let verified: Value =
        serde_json::from_str(&hub.ok(&["log", "verify", "--json"])).expect("a report is JSON");
    assert_eq!(verified["broken"], Value::Null);
}

#[tokio::test]
async fn eight_workers_claim_two_hundred_items_and_each_is_handed_out_once() {
    let hub = Hub::start();
    let tasks: Vec<Value> = (0..200).map(|n| json!({"content": format!("item {n}")})).collect();
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    let (text, is_error) = mcp.call("task-add", json!({"tasks": tasks})).await;
    assert!(!is_error, "{text}");

    // Thirty claims each: forty more than there are items, so that the end of the list is raced for too.
    let claims = vec![json!({"claim": true}).to_string(); 30].join("\n");
    let answers = at_once(&hub, &["task-next"], vec![claims; 8]);
    let handed_out: Vec<String> = answers
        .iter()
        .filter_map(|answer| match answer["text"].as_str().expect("an answer has text") {
            "No ready tasks" => None,
            item => Some(
                serde_json::from_str::<Value>(item).expect("an item is JSON")["id"].to_string(),
            ),
        })
        .collect();
    assert_eq!(handed_out.len(), 200);
    assert_eq!(handed_out.iter().collect::<BTreeSet<_>>().len(), 200);
}

#[tokio::test]
async fn what_a_revoked_worker_had_claimed_is_handed_out_again_after_a_crash() {
    let mut hub = Hub::start();
    let worker = hub.token("worker", "full");
    hub.ok(&["tool", "task-add", "--tasks", "only one"]);
    let (claimed, _) =
        hub.modern(&worker, "/mcp").await.call("task-next", json!({"claim": true})).await;
    assert!(claimed.contains("TAS-1"), "{claimed}");
    assert_eq!(hub.ok(&["tool", "task-next", "--claim"]), "No ready tasks");
    hub.ok(&["token", "revoke", "worker"]);
    hub.crash_and_start_again();
    assert!(hub.ok(&["tool", "task-next", "--claim"]).contains("TAS-1"));
}
