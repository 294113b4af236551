//! One write alone, against the least that it can cost: one sync of the same bytes on the same disk, and an echo.

use std::path::Path;

use crate::Bench;
use crate::client::{Call, Client, Era};
use crate::echo::Echo;
use crate::load::{self, TURNS, median, sorted, timed};
use crate::process::{Hub, Server};
use crate::sync::SyncedFile;

pub(crate) fn measure(bench: &mut Bench) {
    let hub = Hub::start(&bench.directory);
    let rmcp = Server::echo(Echo::Rmcp);
    let axum = Server::echo(Echo::Axum);
    let names = ["alone_write", "alone_sync", "alone_rmcp", "alone_axum"];
    let mut latencies_us: [Vec<f64>; 4] = Default::default();
    let (mut over_rmcp, mut over_axum) = (Vec::new(), Vec::new());
    load::run(async {
        let mut writer = Client::connect(&hub.target(), Era::Modern, Call::Add).await;
        let mut on_rmcp = Client::connect(&rmcp.target(), Era::Modern, Call::Add).await;
        let mut on_axum = Client::connect(&axum.target(), Era::Modern, Call::Add).await;
        writer.call().await;
        let size_bytes = last_commit_bytes(hub.data()).await;
        bench.results.add("alone_sync_bytes", size_bytes as f64);
        let mut file = SyncedFile::new(&bench.directory, size_bytes);
        for _ in 0..TURNS {
            let (write, sync) = (timed(&mut writer).await, file.append());
            let (echo, bare) = (timed(&mut on_rmcp).await, timed(&mut on_axum).await);
            over_rmcp.push((write - echo) / sync);
            over_axum.push((write - bare) / sync);
            for (all, one) in latencies_us.iter_mut().zip([write, sync, echo, bare]) {
                all.push(one);
            }
        }
    });
    for (name, latencies_us) in names.into_iter().zip(latencies_us) {
        bench.results.add_latencies(name, &sorted(latencies_us));
    }
    bench.results.add("alone_write_less_rmcp_in_syncs", median(&over_rmcp));
    bench.results.add("alone_write_less_axum_in_syncs", median(&over_axum));
}

/// Returns how large the last commit of a hub is.
async fn last_commit_bytes(data: &Path) -> usize {
    let log = teamster_log::open_readonly(data).expect("the hub's log can be read");
    let head = log.head().await.expect("it has a head");
    let last = log.read(head.number - 1, 1).await.expect("it has a last commit");
    last[0].body.len()
}
