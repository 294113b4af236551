//! Calls by so many clients at once, in both eras, against the echoes in the same round.

use std::time::Duration;

use crate::Bench;
use crate::client::{Call, Client, Era, Target};
use crate::echo::Echo;
use crate::load::{self, Limit, Load, load};
use crate::process::{Hub, Server};

/// With how many clients at once; a curve of these is drawn.
pub(crate) const CONNECTIONS: [usize; 7] = [1, 4, 16, 32, 64, 128, 256];
/// With how many the older era is measured too.
const BOTH_ERAS: [usize; 3] = [1, 32, 256];

/// How long a server is warmed up before it counts: connections, allocators, runtimes.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long each server is measured before it is another's turn, and how often it is its turn in one round.
const WINDOW: Duration = Duration::from_millis(250);
const WINDOWS: usize = 3;

/// Measures with `n_connections` clients. Every round has new servers, so that none bears what an earlier one left.
pub(crate) fn measure(bench: &mut Bench, n_connections: usize) {
    let legacy = BOTH_ERAS.contains(&n_connections) && !bench.short;
    let eras: &[Era] = if legacy { &[Era::Modern, Era::Legacy] } else { &[Era::Modern] };
    let hub = Hub::start(&bench.directory);
    let rmcp = Server::echo(Echo::Rmcp);
    let axum = Server::echo(Echo::Axum);
    load::run(async {
        let workers = hub.workers().await;
        let servers =
            [(&hub.server, workers), (&rmcp, vec![rmcp.target()]), (&axum, vec![axum.target()])];
        for era in eras {
            // The write comes first: the read needs something to read.
            for call in [Call::Add, Call::Next] {
                // The bare echo knows no eras, so once is enough.
                let servers = if *era == Era::Modern { &servers[..] } else { &servers[..2] };
                let name = format!("{}_{n_connections}_{}", call.name(), era.name());
                for loads in in_turn(servers, n_connections, *era, call).await {
                    record(bench, &name, &loads);
                }
            }
        }
    });
}

/// Loads each server with one kind of call, one after the other. Returns what that came to, each time it was their turn.
async fn in_turn(
    servers: &[(&Server, Vec<Target>)],
    n_connections: usize,
    era: Era,
    call: Call,
) -> Vec<Vec<Load>> {
    let mut clients = Vec::new();
    for (server, targets) in servers {
        let mut on_server = connect(targets, n_connections, era, call).await;
        load(&mut on_server, Limit::After(WARM_UP), server.pid()).await;
        clients.push((server.pid(), on_server));
    }
    let mut turns = Vec::new();
    for _ in 0..WINDOWS {
        let mut loads = Vec::new();
        for (pid, on_server) in &mut clients {
            loads.push(load(on_server, Limit::After(WINDOW), *pid).await);
        }
        turns.push(loads);
    }
    turns
}

fn record(bench: &mut Bench, name: &str, loads: &[Load]) {
    let ours = &loads[0];
    bench.results.add_load(name, ours);
    for (echo, load) in [Echo::Rmcp, Echo::Axum].into_iter().zip(&loads[1..]) {
        let echo = echo.name();
        bench.results.add_load(&format!("{echo}_{name}"), load);
        bench.results.add(&format!("{name}_vs_{echo}"), ours.calls_per_s / load.calls_per_s);
    }
}

/// Connects clients, which share the targets' tokens evenly.
pub(crate) async fn connect(
    targets: &[Target],
    n_connections: usize,
    era: Era,
    call: Call,
) -> Vec<Client> {
    let mut clients = Vec::new();
    for target in targets.iter().cycle().take(n_connections) {
        clients.push(Client::connect(target, era, call).await);
    }
    clients
}
