//! The stream of events: complete, resumable, and bounded.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::ops::RangeInclusive;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use teamster_api::events::{Event, Events, Missed, PATH, Reached};
use teamster_api::{Client, Lost, Place};

use crate::hub::{Hub, feed};

/// Long enough for a machine at many times its load.
const PATIENCE: Duration = Duration::from_secs(60);

async fn follow(hub: &Hub, after: u64) -> Events {
    let place = Place { directory: hub.data().to_owned(), starts_hub: String::new() };
    let client = Client::connect(place).await.expect("it runs");
    client.follow(after).await.expect("it is served")
}

/// Has so many commits written, each with a note of so many bytes.
fn write(hub: &Hub, n_commits: usize, n_bytes: usize) {
    let note = |n: usize| {
        let content = format!("{n_bytes} {n} {}", "x".repeat(n_bytes));
        json!({"notes": [{"content": content, "type": "tip"}]}).to_string() + "\n"
    };
    let mut notes = hub.command();
    notes.args(["tool", "note-add", "--json", "-"]);
    let fed = feed(notes, &(0..n_commits).map(note).collect::<String>());
    assert!(fed.status.success(), "{:?}", String::from_utf8_lossy(&fed.stderr));
}

async fn next(events: &mut Events) -> Event {
    let next = tokio::time::timeout(PATIENCE, events.next()).await.expect("it comes in time");
    next.expect("it can be read").expect("the stream goes on")
}

/// Reads until everything is there. Returns the numbers of the commits that were sent, and of those that were left out.
async fn until_current(events: &mut Events) -> (Vec<u64>, Vec<RangeInclusive<u64>>) {
    let (mut sent, mut missed) = (Vec::new(), Vec::new());
    loop {
        match next(events).await {
            Event::Log(page) => {
                assert!(page.lines.iter().all(|line| line.commit == page.last), "{page:?}");
                sent.push(page.last);
            }
            Event::Missed(Missed { after, up_to }) => missed.push(after + 1..=up_to),
            Event::Current(Reached { last }) => {
                let newest = missed.iter().map(|range| *range.end()).chain(sent.clone()).max();
                assert!(newest.is_none_or(|newest| newest == last), "{newest:?}, {last}");
                return (sent, missed);
            }
            Event::Transcript(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_the_whole_log_and_then_what_happens_also_over_a_restart() {
    let mut hub = Hub::start();
    write(&hub, 250, 10);
    let mut events = follow(&hub, 0).await;
    let (sent, missed) = until_current(&mut events).await;
    let last = *sent.last().expect("there is a log");
    assert!(last > 250, "{last}");
    assert_eq!((sent, missed), ((1..=last).collect(), Vec::new()));

    write(&hub, 2, 11);
    let (mut sent, _) = until_current(&mut events).await;
    if sent.len() == 1 {
        sent.extend(until_current(&mut events).await.0);
    }
    assert_eq!(sent, [last + 1, last + 2]);

    // Whoever continues gets what it has not, and no more.
    let (sent, _) = until_current(&mut follow(&hub, last).await).await;
    assert_eq!(sent, [last + 1, last + 2]);
    // A log that was restored has fewer commits than its reader knows; all of it may be new to the reader.
    let (sent, missed) = until_current(&mut follow(&hub, last + 1_000).await).await;
    assert_eq!((sent, missed), (Vec::new(), vec![1..=last + 2]));
    hub.crash_and_start_again();
    let over = tokio::time::timeout(PATIENCE, events.next()).await.expect("it ends in time");
    assert!(over.is_err_and(|error| error.is::<Lost>()), "it was cut off");
    let (sent, _) = until_current(&mut follow(&hub, last + 2).await).await;
    assert_eq!(sent.first(), Some(&(last + 3)), "the next hub's first commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_too_slow_is_told_what_it_missed() {
    let hub = Hub::start();
    let mut events = follow(&hub, 0).await;
    let (sent, _) = until_current(&mut events).await;
    let first = sent.last().expect("there is a log") + 1;
    // More than fits between the two.
    write(&hub, 3_000, 1_000);
    let (mut sent, mut missed) = (Vec::new(), Vec::new());
    while sent.last().max(missed.last().map(RangeInclusive::end)) < Some(&(first + 2_999)) {
        let (more, left_out) = until_current(&mut events).await;
        sent.extend(more);
        missed.extend(left_out);
    }
    assert!(!missed.is_empty(), "{} were sent", sent.len());
    let mut all: Vec<u64> = sent.into_iter().chain(missed.into_iter().flatten()).collect();
    all.sort_unstable();
    assert_eq!(all, (first..=first + 2_999).collect::<Vec<_>>(), "each was sent or named, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_follow_and_only_from_where_a_commit_can_be() {
    let hub = Hub::start();
    let agent = hub.token("ann", "full");
    for (token, last_id, status) in [
        (&*agent, "0", StatusCode::FORBIDDEN),
        (&*hub.operator, "x", StatusCode::UNPROCESSABLE_ENTITY),
        ("nobody", "0", StatusCode::UNAUTHORIZED),
    ] {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("last-event-id", last_id)];
        let answer = hub.http().await.send(Method::GET, PATH, &headers, "").await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}
