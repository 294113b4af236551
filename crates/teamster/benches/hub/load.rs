//! Making load: many clients, each sending its next call when the last is answered, all on one thread.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::Client;
use crate::process;

/// How often something that is measured alone is its turn in one round. A turn is one call, and what is compared is
/// compared turn by turn: a disk has fast and slow moments, some of them caused by the call before, and over all of them a
/// median would say only of which there were more.
pub(crate) const TURNS: usize = 500;

/// When clients stop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    After(Duration),
    Calls(usize),
}

/// What a stretch of load came to.
pub(crate) struct Load {
    /// Of each call, in microseconds, shortest first.
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) calls_per_s: f64,
    /// What the server used, for each call.
    pub(crate) cpu_us: f64,
}

/// Runs something on a runtime of one thread, which leaves the rest of the machine to the servers.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Lets all clients call until the limit, each by itself. `pid` is the server's process.
pub(crate) async fn load(clients: &mut Vec<Client>, limit: Limit, pid: u32) -> Load {
    let cpu_before = process::cpu(pid);
    let started = Instant::now();
    let mut working = JoinSet::new();
    for client in clients.drain(..) {
        working.spawn(work(client, limit, started));
    }
    let mut latencies_us = Vec::new();
    while let Some(worked) = working.join_next().await {
        let (client, latencies) = worked.expect("every answer is a success");
        clients.push(client);
        latencies_us.extend(latencies);
    }
    let elapsed = started.elapsed();
    let cpu = process::cpu(pid).saturating_sub(cpu_before);
    let n_calls = latencies_us.len() as f64;
    Load {
        latencies_us: sorted(latencies_us),
        calls_per_s: n_calls / elapsed.as_secs_f64(),
        cpu_us: micros(cpu) / n_calls,
    }
}

async fn work(mut client: Client, limit: Limit, started: Instant) -> (Client, Vec<f64>) {
    let mut latencies_us = Vec::new();
    let mut sent = started;
    loop {
        let done = match limit {
            Limit::After(duration) => sent - started >= duration,
            Limit::Calls(n_calls) => latencies_us.len() >= n_calls,
        };
        if done {
            return (client, latencies_us);
        }
        client.call().await;
        let answered = Instant::now();
        latencies_us.push(micros(answered - sent));
        sent = answered;
    }
}

/// Has one client call alone, once. Returns how long that took.
pub(crate) async fn timed(client: &mut Client) -> f64 {
    let before = Instant::now();
    client.call().await;
    micros(before.elapsed())
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values.to_vec());
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn p50(sorted: &[f64]) -> f64 {
    percentile(sorted, 50)
}

pub(crate) fn p99(sorted: &[f64]) -> f64 {
    percentile(sorted, 99)
}

/// Returns the value below which so many of the sorted values are.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100]
}
