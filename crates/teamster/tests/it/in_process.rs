//! A hub inside the test: the real loop and core on the memory engine, in virtual time.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tasks live no longer than their test, and a broken fixture should panic"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use teamster_core::Timestamp;
use teamster_hub::clock::Clock;
use teamster_hub::hub::{self, Handle, Opened, Parts, Snapshots};
use teamster_hub::project::Project;
use teamster_hub::secret::Random;
use teamster_log::memory::{Faults, Memory, Store};

/// Virtual time: as many milliseconds as the runtime says have passed.
pub(crate) struct VirtualClock(tokio::time::Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.0.elapsed().as_millis()).expect("a test is short"))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let at = self.0 + Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
        Box::pin(tokio::time::sleep_until(at))
    }
}

/// Runs a test in virtual time: where nothing can happen, the clock jumps to when something will.
pub(crate) fn run_in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(test)
}

/// SplitMix64: small, and every seed gives another sequence.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    pub(crate) fn millis(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.below(below))
    }
}

/// A hub that ends when nobody holds it any more, without a word, as in a crash.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) handle: Handle,
    task: Arc<AbortOnDrop>,
}

impl Running {
    /// Ends the hub at once.
    pub(crate) fn crash(&self) {
        self.task.0.abort();
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens the log as a start of the program would, and runs the loop.
pub(crate) async fn start(
    store: &Store,
    faults: &Faults,
    dice: Dice,
    snapshot_every: u64,
) -> Result<Running, String> {
    start_at(store, faults, dice, snapshot_every, tokio::time::Instant::now()).await
}

/// Opens the log; the loop is the test's to run.
pub(crate) async fn open(
    store: &Store,
    faults: &Faults,
    random: Random,
) -> Result<Opened, hub::OpenError> {
    let epoch = tokio::time::Instant::now();
    hub::start(parts(store, faults, random, u64::MAX, epoch), |_, _| ()).await
}

fn parts(
    store: &Store,
    faults: &Faults,
    random: Random,
    snapshot_every: u64,
    epoch: tokio::time::Instant,
) -> Parts {
    Parts {
        log: Arc::new(Memory::with_faults(store, faults)),
        clock: Arc::new(VirtualClock(epoch)),
        random,
        project: Project::new(Path::new("/nowhere")),
        snapshots: Snapshots { every: snapshot_every, at_end: u64::MAX },
    }
}

/// The same with a clock that began at `epoch`, perhaps for an earlier hub.
pub(crate) async fn start_at(
    store: &Store,
    faults: &Faults,
    mut dice: Dice,
    snapshot_every: u64,
    epoch: tokio::time::Instant,
) -> Result<Running, String> {
    let parts = parts(store, faults, Box::new(move || dice.roll()), snapshot_every, epoch);
    let opened = hub::start(parts, |_, _| ()).await;
    let Opened { handle, run } = opened.map_err(|error| format!("cannot start: {error}"))?;
    let task = tokio::spawn(async move {
        if let Err(error) = run.await {
            panic!("the loop failed: {error}");
        }
    });
    Ok(Running { handle, task: Arc::new(AbortOnDrop(task.abort_handle())) })
}
