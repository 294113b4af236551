//! How much the hub takes up: memory, processor, disk, and room in a model's context.

use std::time::Duration;

use crate::Bench;
use crate::calls::connect;
use crate::client::{Call, Client, Era, tools_list_bytes};
use crate::load::{self, Limit, load};
use crate::process::{Hub, TEAMSTER, cpu_of_threads, memory_kib};

const IDLE: Duration = Duration::from_secs(10);
/// The load after which memory is measured: so many tasks by so many clients.
const LOAD_CONNECTIONS: usize = 32;
const LOAD_CALLS_EACH: usize = 625;

pub(crate) fn measure(bench: &mut Bench) {
    let hub = Hub::start(&bench.directory);
    let results = &mut bench.results;
    load::run(async {
        Client::connect(&hub.target(), Era::Modern, Call::Next).await.call().await;
        let before = cpu_of_threads(hub.pid());
        tokio::time::sleep(IDLE).await;
        // A thread that has ended meanwhile had nothing to do, and takes what it used before with it.
        let used = cpu_of_threads(hub.pid()).into_iter();
        let used =
            used.map(|(thread, used)| used - before.get(&thread).copied().unwrap_or_default());
        let cpu: Duration = used.sum();
        results.add("idle_cpu_percent", cpu.as_secs_f64() / IDLE.as_secs_f64() * 100.0);
        results.add("idle_memory_mb", megabytes(memory_kib(hub.pid())));

        let workers = hub.workers().await;
        results.add("tools_list_bytes", tools_list_bytes(&workers[0]).await as f64);
        let mut clients = connect(&workers, LOAD_CONNECTIONS, Era::Modern, Call::Add).await;
        load(&mut clients, Limit::Calls(LOAD_CALLS_EACH), hub.pid()).await;
        drop(clients);
        results.add("loaded_memory_mb", megabytes(memory_kib(hub.pid())));
    });
    let binary = std::fs::metadata(TEAMSTER).expect("the program has a file");
    results.add("binary_mb", binary.len() as f64 / 1e6);
}

fn megabytes(kib: f64) -> f64 {
    kib * 1_024.0 / 1e6
}
