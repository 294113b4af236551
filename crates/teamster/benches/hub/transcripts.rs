//! A page of a transcript, as those who follow or look back ask for it. It should cost what it costs in a short one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::future::try_join_all;
use serde_json::json;
use teamster_agents::agent::{Clipped, Event, Piece, Shown, ToolCall, ToolKind};
use teamster_agents::transcript::Record;
use teamster_log::{Options, TranscriptName};

use crate::Bench;
use crate::connection::Connection;
use crate::load::{self, TURNS, median, micros, sorted};
use crate::process::Hub;

/// The short one, and the names of its agent and that of the long one.
const SMALL_RECORDS: u64 = 1_000;
const AGENTS: [&str; 2] = ["coder-1", "coder-2"];
/// As many records as the hub puts into a page.
const PAGE: u64 = 200;
/// As many as are written together.
const BATCH: u64 = 500;
/// Changes when what is written here does.
const VERSION: u32 = 1;

pub(crate) fn measure(bench: &mut Bench) {
    let (size, n_records) = if bench.short { ("200k", 200_000) } else { ("1m", 1_000_000) };
    let hub = Hub::start_in(&filled(&bench.directory, size, n_records));
    let (small_us, large_us) = load::run(in_turn(&hub, n_records));
    let ratios: Vec<f64> = large_us.iter().zip(&small_us).map(|(one, other)| one / other).collect();
    bench.results.add_latencies("transcript_page_1k", &sorted(small_us));
    bench.results.add_latencies(&format!("transcript_page_{size}"), &sorted(large_us));
    bench.results.add(&format!("transcript_page_{size}_vs_1k"), median(&ratios));
    hub.end();
}

/// Returns how long pages took that are anywhere in the short transcript, and in the long one.
async fn in_turn(hub: &Hub, n_records: u64) -> (Vec<f64>, Vec<f64>) {
    let mut connection = Connection::open(hub.server.address).await;
    let mut all = [Vec::new(), Vec::new()];
    let mut random = 1_u64;
    for _ in 0..TURNS {
        for ((agent, n_records), times) in
            AGENTS.into_iter().zip([SMALL_RECORDS, n_records]).zip(&mut all)
        {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let after = (random >> 33) % (n_records - PAGE);
            let path = format!("/api/agents/{agent}/transcript?after={after}");
            let request = hub.operators("GET", &path, "");
            let now = Instant::now();
            let answer = connection.exchange(&request).await;
            times.push(micros(now.elapsed()));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    let path = format!("/api/agents/{}/transcript?after={}", AGENTS[1], n_records - PAGE);
    let page = connection.exchange(&hub.operators("GET", &path, "")).await.json();
    assert_eq!(page["last"], n_records, "all are there");
    let [small, large] = all;
    (small, large)
}

/// Returns a data directory with two agents and their transcripts. It is made once and kept.
fn filled(bench_directory: &Path, size: &str, n_records: u64) -> PathBuf {
    let directory = bench_directory.join(format!("transcripts-{size}"));
    let made_as = bench_directory.join(format!("transcripts-{size}.made-as"));
    let wanted = format!("{VERSION} {n_records}");
    if std::fs::read_to_string(&made_as).ok().as_ref() != Some(&wanted) {
        eprintln!("writing a transcript of {n_records} records …");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory for data");
        let hub = Hub::start_in(&directory);
        load::run(adopt(&hub, &directory));
        hub.end();
        load::run(write(&directory, n_records));
        std::fs::write(&made_as, wanted).expect("a note of how it was made");
    }
    directory
}

/// Has the hub know agents that it does not start.
async fn adopt(hub: &Hub, directory: &Path) {
    let mut connection = Connection::open(hub.server.address).await;
    for expected in AGENTS {
        let asked = json!({"role": "coder", "directory": directory});
        let request = hub.operators("POST", "/api/agents/adopt", &asked.to_string());
        let answer = connection.exchange(&request).await.json();
        assert_eq!(answer["agent"]["id"], expected, "{answer}");
    }
}

async fn write(directory: &Path, n_records: u64) {
    let log = teamster_log::open(directory, Options::default()).expect("the hub's log");
    for (agent, n_records) in AGENTS.into_iter().zip([SMALL_RECORDS, n_records]) {
        let name = TranscriptName::new(format!("agent.{agent}")).expect("a name");
        let mut first = 0;
        while first < n_records {
            let last = n_records.min(first + BATCH);
            let append = |n| log.transcripts().append(&name, record(n));
            try_join_all((first..last).map(append)).await.expect("records can be written");
            first = last;
        }
    }
}

/// Returns what agents do all day: they say something and call a tool.
fn record(n: u64) -> Vec<u8> {
    let event = if n.is_multiple_of(2) {
        let text = format!("Now I look at file number {n}, and then I go on to the next one.");
        Event::Text(Piece { text, message: None })
    } else {
        let input = Clipped::new(format!("{{\"path\":\"src/file{n}.rs\",\"limit\":200}}"), 1_000);
        let (id, title) = (format!("call-{n}"), format!("read src/file{n}.rs"));
        let (name, kind, targets) = (None, ToolKind::Read, Vec::new());
        Event::ToolCall(ToolCall {
            id,
            title,
            name,
            kind,
            input: Some(input),
            targets,
            shown: Shown::default(),
        })
    };
    Record::new(n, event).encode().expect("a record")
}
