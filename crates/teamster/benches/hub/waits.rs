//! Calls that wait: how soon one is woken, and what a thousand take up. What waits is a reader of the log, as
//! `teamster log --follow` is.

use std::time::Instant;

use futures_util::future::join_all;

use crate::Bench;
use crate::client::{Call, Client, Era};
use crate::connection::Connection;
use crate::load::{self, micros, sorted};
use crate::process::{Hub, memory_kib};

/// How often somebody is woken in one round.
const WAKES: usize = 100;
const PARKED: u64 = 1_000;

/// Measures from the write's answer to the waiter's, and from the write's sending, which includes its sync.
pub(crate) fn measure_wake(bench: &mut Bench) {
    let hub = Hub::start(&bench.directory);
    let (after_answer_us, after_sending_us) = load::run(wakes(&hub));
    bench.results.add_latencies("wake", &sorted(after_answer_us));
    bench.results.add_latencies("wake_from_sending", &sorted(after_sending_us));
}

async fn wakes(hub: &Hub) -> (Vec<f64>, Vec<f64>) {
    let mut writer = Client::connect(&hub.target(), Era::Modern, Call::Add).await;
    let mut waiter = Connection::open(hub.server.address).await;
    let mut asker = Connection::open(hub.server.address).await;
    let mut head = head(hub, &mut waiter).await;
    let (mut after_answer_us, mut after_sending_us) = (Vec::new(), Vec::new());
    for _ in 0..WAKES {
        let request = wait_request(hub, head);
        let waiting = async {
            let answer = waiter.exchange(&request).await;
            let woken = Instant::now();
            (woken, answer.json()["last"].as_u64().expect("a log has an end"))
        };
        let writing = async {
            until_waiting(hub, &mut asker, 1).await;
            let sent = Instant::now();
            writer.call().await;
            (sent, Instant::now())
        };
        let ((woken, last), (sent, answered)) = tokio::join!(waiting, writing);
        assert!(last > head, "who waits is woken by a commit");
        head = last;
        // The waiter may well be answered first.
        after_answer_us.push(micros(woken.saturating_duration_since(answered)));
        after_sending_us.push(micros(woken - sent));
    }
    (after_answer_us, after_sending_us)
}

/// Measures by how much an idle hub grows when so many wait, with their connections.
pub(crate) fn measure_parked(bench: &mut Bench) {
    let hub = Hub::start(&bench.directory);
    let grown_kib = load::run(async {
        let mut writer = Client::connect(&hub.target(), Era::Modern, Call::Add).await;
        let mut asker = Connection::open(hub.server.address).await;
        let request = wait_request(&hub, head(&hub, &mut asker).await);
        let before_kib = memory_kib(hub.pid());
        let parked = join_all((0..PARKED).map(|_| async {
            let mut connection = Connection::open(hub.server.address).await;
            assert_eq!(connection.exchange(&request).await.status, 200);
        }));
        let event = async {
            until_waiting(&hub, &mut asker, PARKED).await;
            let grown_kib = memory_kib(hub.pid()) - before_kib;
            writer.call().await;
            grown_kib
        };
        tokio::join!(parked, event).1
    });
    bench.results.add("parked_wait_kib", grown_kib / PARKED as f64);
}

fn wait_request(hub: &Hub, after: u64) -> Vec<u8> {
    hub.operators("GET", &format!("/api/log?after={after}&wait_ms=50000"), "")
}

/// Returns the number of the last commit of a hub that has few.
async fn head(hub: &Hub, connection: &mut Connection) -> u64 {
    let answer = connection.exchange(&wait_request(hub, 0)).await;
    answer.json()["last"].as_u64().expect("a log has an end")
}

/// Asks until so many wait. There is nothing to be woken by: who waits makes no event.
async fn until_waiting(hub: &Hub, connection: &mut Connection, n: u64) {
    let request = hub.operators("GET", "/api/status", "");
    while connection.exchange(&request).await.json()["waiting"] != n {}
}
