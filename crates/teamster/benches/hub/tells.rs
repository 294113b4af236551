//! Teams: what the hub adds to a turn of an agent that is awake, from telling it something to its answer.

use std::time::Instant;

use serde_json::json;

use crate::Bench;
use crate::connection::Connection;
use crate::drafts::{Place, millis};
use crate::load;

/// How many turns are measured each way in one round.
const TURNS: usize = 50;
const MESSAGE: &str = "! say well";

pub(crate) fn measure(bench: &mut Bench) {
    let place = Place::new(&bench.directory);
    let project = place.path().join("project");
    std::fs::create_dir_all(&project).expect("a directory for a team");
    let team = format!("teams.bench.path={}", project.display());
    let hub = place.hub(&bench.directory, &[team]);
    let results = &mut bench.results;
    load::run(async {
        let mut connection = Connection::open(hub.server.address).await;
        let mut talk = place.talk(&hub).await;
        for n in 0..=TURNS {
            let asked = Instant::now();
            talk.turn(MESSAGE).await;
            let by_hand_ms = millis(asked);
            let asked = Instant::now();
            let body = json!({"to": "bench", "message": MESSAGE, "wait": true}).to_string();
            let told =
                connection.exchange(&hub.operators("POST", "/api/tells", &body)).await.json();
            let id =
                told["tellId"].as_str().unwrap_or_else(|| panic!("not told: {told}")).to_owned();
            let path = format!("/api/tells/{id}?wait_ms=50000");
            let answer = connection.exchange(&hub.operators("GET", &path, "")).await.json();
            assert_eq!(answer["answer"], "well", "{answer}");
            let told_ms = millis(asked);
            // The first wakes it up.
            if n > 0 {
                results.add("tell_ms", told_ms);
                results.add("tell_by_hand_ms", by_hand_ms);
                results.add("tell_overhead_ms", told_ms - by_hand_ms);
            }
        }
    });
}
