//! Many clients, slow clients, silent clients and clients that should be gone: the hub goes on answering the others.
//! Nothing is timed; what is counted is answers, connections and memory.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tasks live no longer than their test, and a broken fixture should panic"
)]

mod agents;
mod crowds;
mod half_open;
mod programs;
mod quotas;
mod waits;

use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use teamster_api::hub::Status;

use crate::hub::{Http, Hub};
use crate::optional::Optional;

/// Lets the test itself hold as many connections as the system allows, and says whether it allows this many open files.
fn has_files(n_open: u64) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the maximum");
    Optional::OpenFiles.is_usable(maximum.is_none_or(|most| most >= n_open))
}

/// Returns how much memory the hub takes up.
fn memory_kib(hub: &Hub) -> u64 {
    let pid = hub.hub_process.as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the hub runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

async fn status(hub: &Hub, http: &mut Http) -> Status {
    let bearer = format!("Bearer {}", hub.operator);
    http.send(Method::GET, "/api/status", &[("authorization", &bearer)], "").await.read()
}

/// Asks until so many wait. There is nothing to be woken by: who waits makes no event.
async fn until_waiting(hub: &Hub, http: &mut Http, n: u64) {
    for _ in 0..100_000 {
        if status(hub, http).await.waiting as u64 == n {
            return;
        }
    }
    panic!("{} wait, not {n}", status(hub, http).await.waiting);
}
