//! What the hub's loop adds to the log's engine: one command at a time through the loop, in this process, against the
//! engine alone with a commit of the same body.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use teamster_core::item::{self, NewItem};
use teamster_core::{Caller, Command, RunName, run};
use teamster_hub::clock::SystemClock;
use teamster_hub::hub::{self, Handle, Opened, Parts, Snapshots};
use teamster_hub::project::Project;
use teamster_hub::{secret, tasks};
use teamster_log::memory::{Memory, Store};
use teamster_log::{CommitId, Head, Log, Options};

use crate::Bench;
use crate::client::{FIRST_NUMBER, content};
use crate::load::{TURNS, median, micros};

pub(crate) fn measure(bench: &mut Bench) {
    let directory = tempfile::tempdir_in(&bench.directory).expect("a directory for data");
    let open = |name: &str| {
        let path = directory.path().join(name);
        teamster_log::open(&path, Options::default()).expect("a new log")
    };
    compare(bench, "append_sqlite", open("loop"), open("engine"));
    let memory = || Arc::new(Memory::new(&Store::default()));
    compare(bench, "append_memory", memory(), memory());
}

fn compare(bench: &mut Bench, name: &str, of_loop: Arc<dyn Log>, alone: Arc<dyn Log>) {
    let (mut looped_us, mut alone_us, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The hub's own kind of runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let handle = start(of_loop.clone()).await;
        through_loop(&handle).await;
        let head = of_loop.head().await.expect("a head");
        let last = of_loop.read(head.number - 1, 1).await.expect("a last commit");
        let mut head = Head::EMPTY;
        for _ in 0..TURNS {
            looped_us.push(through_loop(&handle).await);
            alone_us.push(through_engine(alone.as_ref(), &mut head, &last[0].body).await);
            ratios.push(looped_us[looped_us.len() - 1] / alone_us[alone_us.len() - 1]);
        }
        handle.shut_down().await;
    });
    bench.results.add(&format!("{name}_loop_us"), median(&looped_us));
    bench.results.add(&format!("{name}_engine_us"), median(&alone_us));
    bench.results.add(&format!("{name}_loop_vs_engine"), median(&ratios));
}

async fn start(log: Arc<dyn Log>) -> Handle {
    let parts = Parts {
        log,
        clock: Arc::new(SystemClock),
        random: secret::system_random(),
        project: Project::new(Path::new("/nowhere")),
        snapshots: Snapshots::USUAL,
    };
    let Opened { handle, run } = hub::start(parts, |_, _| ()).await.expect("an empty log");
    tasks::spawn("decide", async move { run.await.expect("the log can be written") });
    handle
}

/// Adds a task, and returns how long it took until that was durable.
async fn through_loop(handle: &Handle) -> f64 {
    let content = content(FIRST_NUMBER + handle.state().seq());
    let items = vec![NewItem { content, status: None, priority: None }];
    let what = run::Command::Item(item::Command::Add(items));
    let command = Command::Run { run: RunName::default_run(), what };
    let before = Instant::now();
    handle.submit(Caller::hub(), command, None).await.expect("a task can be added");
    micros(before.elapsed())
}

/// Appends a body behind `head`, and returns how long that took.
async fn through_engine(log: &dyn Log, head: &mut Head, body: &[u8]) -> f64 {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&head.number.to_le_bytes());
    let before = Instant::now();
    let commit = head.next(CommitId(id), body.to_vec());
    *head = Head::of(&commit);
    log.append(commit).await.expect("the log can be written");
    micros(before.elapsed())
}
