//! Starting: from the program's start to its first answer.

use crate::client::{Call, Client, Era};
use crate::load;
use crate::process::Hub;
use crate::{Bench, history};

pub(crate) fn measure(bench: &mut Bench) {
    let data = tempfile::tempdir_in(&bench.directory).expect("a directory for data");
    history::copy(&history::long(&bench.directory), data.path());
    let hub = Hub::start(&bench.directory);
    bench.results.add("start_empty_ms", until_first_answer_ms(&hub));
    drop(hub);
    let hub = Hub::start_in(data.path());
    bench.results.add("start_history_ms", until_first_answer_ms(&hub));
}

fn until_first_answer_ms(hub: &Hub) -> f64 {
    load::run(async {
        Client::connect(&hub.target(), Era::Modern, Call::Next).await.call().await;
        hub.started.elapsed().as_secs_f64() * 1e3
    })
}
