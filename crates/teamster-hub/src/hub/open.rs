//! Starting the hub: from the newest snapshot and the commits after it to a running loop.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use teamster_core::State;
use teamster_core::record::{Body, Unreadable};
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_log::{Hash, Head, Log};
use tokio::sync::mpsc;

use super::decider::{Decider, Ended, Input, Snapshots};
use super::disk::Disk;
use super::handle::{Handle, Shared};
use super::pids::Pids;
use super::stderrs::Stderrs;
use super::waiters::Waiters;
use super::words::Words;
use super::written::Written;
use crate::clock::Clock;
use crate::project::Project;
use crate::secret::Random;
use tokio_util::sync::CancellationToken;

/// As many inputs as wait for the loop; senders wait when there are more.
const INPUTS_MAX: usize = 4_096;
/// As many commits as are read at once when starting.
const PAGE: usize = 1_000;

/// What a hub is made of.
pub struct Parts {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    pub random: Random,
    pub project: Project,
    pub snapshots: Snapshots,
}

/// What the loop starts with.
pub(super) struct Start {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Random,
    pub(super) shared: Arc<Shared>,
    pub(super) inputs: mpsc::Receiver<Input>,
    pub(super) head: Head,
    pub(super) state: State,
    pub(super) snapshots: Snapshots,
    pub(super) in_snapshot: u64,
}

/// A hub that is ready: the handle to it, and the loop to be run.
pub struct Opened {
    pub handle: Handle,
    pub run: BoxFuture<'static, Result<(), Ended>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read the log")]
    Log(#[from] teamster_log::Error),
    #[error("commit {number} cannot be used")]
    Unreadable {
        number: u64,
        #[source]
        source: Unreadable,
    },
    #[error(
        "commit {number} does not follow the one before it; `teamster log verify` shows where the log is broken"
    )]
    Broken { number: u64 },
    #[error(
        "the log ends at commit {number}, but what was read of it does not; `teamster log verify` shows where it is broken"
    )]
    OtherEnd { number: u64 },
}

/// Brings the state up to the end of the log. `progress` is told how many commits are done, of how many.
pub async fn start(parts: Parts, mut progress: impl FnMut(u64, u64)) -> Result<Opened, OpenError> {
    let Parts { log, clock, random, project, snapshots } = parts;
    let snapshot = log.snapshot(SNAPSHOT_FORMAT).await?;
    let restored = snapshot.and_then(|snapshot| {
        State::from_snapshot(&snapshot.bytes).map(|state| (state, snapshot.number, snapshot.hash))
    });
    let (mut state, mut number, mut hash) = restored.unwrap_or((State::default(), 0, Hash::ZERO));
    let in_snapshot = state.seq();
    let mut head = log.head().await?;
    while number < head.number {
        for commit in log.read(number, PAGE).await? {
            if commit.number != number + 1 || commit.prev != hash {
                return Err(OpenError::Broken { number: commit.number });
            }
            let unreadable = |source| OpenError::Unreadable { number: commit.number, source };
            let body = Body::decode(&commit.body).map_err(unreadable)?;
            body.records.iter().for_each(|record| state.apply(record));
            (number, hash) = (commit.number, commit.hash());
        }
        progress(number, head.number);
        head = log.head().await?;
    }
    if (number, hash) != (head.number, head.hash) {
        return Err(OpenError::OtherEnd { number: head.number });
    }
    let shared = Arc::new(Shared {
        published: ArcSwap::from_pointee(state.clone()),
        waiters: Waiters::default(),
        idlers: Arc::default(),
        words: Words::default(),
        trees: Arc::default(),
        ends: CancellationToken::new(),
        unheard: Arc::default(),
        pids: Pids::default(),
        stderrs: Stderrs::default(),
        written: Written::default(),
        pulse: Arc::default(),
        paces: Arc::default(),
        stored_limits: ArcSwap::default(),
        disk: Disk::default(),
    });
    let (sender, inputs) = mpsc::channel(INPUTS_MAX);
    let handle = Handle {
        shared: shared.clone(),
        inputs: sender,
        project: Arc::new(project),
        clock: clock.clone(),
        log: log.clone(),
    };
    let start = Start { log, clock, random, shared, inputs, head, state, snapshots, in_snapshot };
    Ok(Opened { handle, run: Decider::new(start).run().boxed() })
}
