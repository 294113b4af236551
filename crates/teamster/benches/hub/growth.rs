//! What a call costs when there is much: many tasks, and a long past. It should cost what it costs with few.

use tempfile::TempDir;

use crate::client::{Call, Client, Era};
use crate::load::{self, TURNS, median, sorted, timed};
use crate::process::Hub;
use crate::{Bench, history};

/// What all others are compared with.
const SMALL: &str = "1k";

/// A hub with so much in it.
struct Filled {
    size: &'static str,
    hub: Hub,
    _data: TempDir,
}

pub(crate) fn measure(bench: &mut Bench) {
    // Idle hubs use no processor, so all can be there at once and be measured in turn.
    let hubs = hubs(bench);
    for call in [Call::Next, Call::List, Call::Update] {
        let measured = load::run(in_turn(&hubs, call));
        for (Filled { size, .. }, (latencies_us, against_small)) in hubs.iter().zip(measured) {
            let name = format!("growth_{}_{size}", call.name());
            bench.results.add_latencies(&name, &sorted(latencies_us));
            if *size != SMALL {
                bench.results.add(&format!("{name}_vs_{SMALL}"), median(&against_small));
            }
        }
    }
}

/// Starts the hubs, the small one first.
fn hubs(bench: &Bench) -> Vec<Filled> {
    let sizes: &[(&str, u32)] = if bench.short {
        &[(SMALL, 1_000), ("100k", 100_000)]
    } else {
        &[(SMALL, 1_000), ("10k", 10_000), ("100k", 100_000)]
    };
    let directory = || tempfile::tempdir_in(&bench.directory).expect("a directory for data");
    let sized = |size, data: TempDir| Filled { size, hub: Hub::start_in(data.path()), _data: data };
    let mut hubs = Vec::new();
    for (size, n_items) in sizes {
        let data = directory();
        history::write_items(data.path(), *n_items);
        hubs.push(sized(size, data));
    }
    if !bench.short {
        let data = directory();
        history::copy(&history::long(&bench.directory), data.path());
        hubs.push(sized("history", data));
    }
    hubs
}

/// Returns for each hub how long its calls took, and how each compares with the small one's before it.
async fn in_turn(hubs: &[Filled], call: Call) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut clients = Vec::new();
    for Filled { hub, .. } in hubs {
        clients.push(Client::connect(&hub.target(), Era::Modern, call).await);
    }
    let mut measured = vec![(Vec::new(), Vec::new()); hubs.len()];
    for _ in 0..TURNS {
        let mut small_us = None;
        for (client, (latencies_us, against_small)) in clients.iter_mut().zip(&mut measured) {
            let call_us = timed(client).await;
            latencies_us.push(call_us);
            against_small.push(call_us / *small_us.get_or_insert(call_us));
        }
    }
    measured
}
