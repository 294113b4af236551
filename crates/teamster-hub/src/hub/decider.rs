//! The loop that decides.
//!
//! It decides against a *speculative* state, which includes what is still being written, and hands batches to the log
//! one at a time; while one is being written it decides the next. When a batch is durable its state is *published* and
//! only then are its callers answered. A caller whose answer rests on something unwritten waits for that to be durable
//! too, even if it was only told «no». A batch that fails takes the speculative state with it.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use teamster_core::key::Key;
use teamster_core::record::{Body, Unreadable};
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Context, Decision, Event, Record, State, Timestamp};
use teamster_log::{AppendError, Commit, CommitId, Head, Log, Settled, Snapshot, settle};
use teamster_mcp::hub::{Done, Failure};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::fair::{Fair, WAITING_MAX};
use super::handle::Shared;
use super::pulse::{self, Ticket};
use crate::clock::Clock;
use crate::secret::Random;
use crate::tasks;

/// Everything that can wake the loop from outside. Two more come from inside: a batch that was written, and a timer.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every input is a submission; a box for each would cost more"
)]
pub enum Input {
    Submit(Submission),
    ShutDown,
}

/// A command and where its answer goes.
#[derive(Debug)]
pub struct Submission {
    pub caller: Caller,
    pub command: Command,
    pub key: Option<Key>,
    pub answer: oneshot::Sender<Result<Done, Failure>>,
    /// Counts it among those that wait, until it is answered.
    pub ticket: Ticket,
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("cannot read the log that another writer has extended")]
    Log(#[from] teamster_log::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// As many records as one batch has; more wait for the next one.
const BATCH_RECORDS_MAX: usize = 512;
/// As many bytes as one batch has, beyond its first record. A commit's body may be 8 MiB.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long timers rest after a batch was not stored.
const TIMERS_REST_MS: i64 = 1_000;
/// How long to wait before asking again what became of a batch.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
pub(super) struct Decider {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Random,
    pub(super) shared: Arc<Shared>,
    pub(super) inputs: mpsc::Receiver<Input>,
    /// The end of the log, as far as it is published.
    pub(super) head: Head,
    /// The state that includes all that was decided.
    pub(super) speculative: State,
    pub(super) snapshots: Snapshots,
    /// No timer fires before this: what could not be stored is not tried again at once.
    timers_rest_until: Timestamp,
    /// The events that the last snapshot includes.
    pub(super) in_snapshot: u64,
    /// The one that is being made.
    snapshot: Option<JoinHandle<()>>,
    queue: Fair<Submission>,
    open: Batch,
    in_flight: Option<InFlight>,
    /// The last batch could not be written.
    only_reads: bool,
    shutting_down: bool,
}

/// When snapshots are made, in events since the last one.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots {
    /// While the hub runs.
    pub every: u64,
    /// When it ends.
    pub at_end: u64,
}

impl Snapshots {
    /// Replaying 10,000 events takes about 20 ms.
    pub const USUAL: Self = Self { every: 10_000, at_end: 1_000 };
}

/// Decisions that become durable together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    size_bytes: usize,
    answers: Vec<Answer>,
}

/// What a caller will be told once what it rests on is durable.
struct Answer {
    submission: Submission,
    outcome: Result<Arc<[Event]>, Failure>,
    /// Whether the batch holds what this caller asked for, or only what its answer rests on.
    in_batch: bool,
}

/// A batch on its way into the log.
struct InFlight {
    batch: Batch,
    /// The state with the batch in it.
    after: State,
    commit: Commit,
    written: BoxFuture<'static, Written>,
}

/// What became of a batch.
enum Written {
    Stored,
    /// Surely not stored; the reason is for its callers.
    NotStored(String),
    /// Somebody else's commit is in its place.
    Overtaken,
}

impl Decider {
    pub(super) fn new(parts: super::open::Start) -> Self {
        let super::open::Start {
            log,
            clock,
            random,
            shared,
            inputs,
            head,
            state,
            snapshots,
            in_snapshot,
        } = parts;
        Self {
            log,
            clock,
            random,
            shared,
            inputs,
            head,
            speculative: state,
            snapshots,
            timers_rest_until: Timestamp(i64::MIN),
            in_snapshot,
            snapshot: None,
            queue: Fair::default(),
            open: Batch::default(),
            in_flight: None,
            only_reads: false,
            shutting_down: false,
        }
    }

    /// Runs until it is asked to shut down and has finished what it had.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        loop {
            self.decide_queued();
            self.write();
            if self.shutting_down && self.in_flight.is_none() && self.queue.is_empty() {
                return self.end().await;
            }
            // Timers belong to the loop, so they fire only where commands are decided.
            let timer = self.speculative.next_timer();
            let due = timer
                .as_ref()
                .map(|(at, _)| self.clock.sleep_until((*at).max(self.timers_rest_until)));
            tokio::select! {
                // What is durable is answered before more is taken in.
                biased;
                written = written(&mut self.in_flight) => self.finish(written).await?,
                input = self.inputs.recv(), if !self.shutting_down => self.take_in(input),
                () = async { due.unwrap_or_else(|| std::future::pending().boxed()).await } => {
                    if let Some((_, command)) = timer {
                        self.submit_by_hub(command);
                    }
                }
            }
            while let Ok(input) = self.inputs.try_recv() {
                self.take_in(Some(input));
            }
        }
    }

    fn take_in(&mut self, input: Option<Input>) {
        match input {
            Some(Input::Submit(submission)) => {
                let principal = submission.caller.principal.clone();
                if let Err(submission) = self.queue.push(&principal, submission) {
                    let why = format!(
                        "{principal} has {WAITING_MAX} calls waiting already; wait for answers, then go on"
                    );
                    let _ = submission.answer.send(Err(Failure::Unavailable(why)));
                }
            }
            Some(Input::ShutDown) | None => self.shutting_down = true,
        }
    }

    /// What a timer asks for is a command like any other; nobody waits for its answer.
    fn submit_by_hub(&mut self, command: Command) {
        let (answer, _) = oneshot::channel();
        self.take_in(Some(Input::Submit(Submission {
            caller: Caller::hub(),
            command,
            key: None,
            answer,
            ticket: self.shared.pulse.ask(),
        })));
    }

    fn decide_queued(&mut self) {
        while !self.open.is_full() {
            let Some(submission) = self.queue.pop() else { return };
            self.decide(submission);
        }
    }

    fn decide(&mut self, submission: Submission) {
        let Submission { caller, command, key, .. } = &submission;
        let cx = Context {
            caller: caller.clone(),
            now: self.clock.now(),
            random: (self.random)(),
            quotas: **self.shared.stored_limits.load(),
        };
        // Deciding changes nothing, so a bug in it is the trouble of one call and not of everybody.
        let speculative = &self.speculative;
        let decided = std::panic::catch_unwind(AssertUnwindSafe(|| {
            speculative.decide(command, key.as_ref(), &cx).map_err(Failure::Refused)
        }));
        let decided = decided.unwrap_or_else(|panic| Err(bug(pulse::message(panic.as_ref()))));
        let outcome = match decided {
            Ok(Decision::New(events)) if !events.is_empty() => {
                let (by, token, key) = (cx.caller.principal, cx.caller.token, key.clone());
                let record = Record { at: cx.now, by, token, key, events };
                self.speculative.apply(&record);
                let events = record.events.as_slice().into();
                self.open.push(record);
                self.open.answers.push(Answer { submission, outcome: Ok(events), in_batch: true });
                return;
            }
            Ok(Decision::New(_)) => Ok(Arc::default()),
            Ok(Decision::Known(events)) => Ok(events),
            Err(failure) => Err(failure),
        };
        let answer = Answer { submission, outcome, in_batch: false };
        // The decision changed nothing, but it may rest on what is not durable yet: the newest unwritten batch.
        match &mut self.in_flight {
            _ if !self.open.records.is_empty() => self.open.answers.push(answer),
            Some(in_flight) => in_flight.batch.answers.push(answer),
            None => answer.give(&self.shared.published.load_full()),
        }
    }

    /// Hands the open batch to the log, unless one is on its way already.
    fn write(&mut self) {
        if self.in_flight.is_some() || self.open.records.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.open);
        let after = self.speculative.clone();
        let n_events: u64 = batch.records.iter().map(|record| record.events.len() as u64).sum();
        let body = Body::new(after.seq() - n_events + 1, std::mem::take(&mut batch.records));
        let id = self.new_commit_id();
        let commit = self.head.next(id, body.encode());
        batch.records = body.records;
        let written = append(self.log.clone(), commit.clone()).boxed();
        self.in_flight = Some(InFlight { batch, after, commit, written });
    }

    fn new_commit_id(&mut self) -> CommitId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(self.random)().to_le_bytes());
        id[8..].copy_from_slice(&(self.random)().to_le_bytes());
        CommitId(id)
    }

    async fn finish(&mut self, (in_flight, written): (InFlight, Written)) -> Result<(), Ended> {
        let InFlight { batch, after, commit, .. } = in_flight;
        match written {
            Written::Stored => {
                if std::mem::take(&mut self.only_reads) {
                    tracing::info!("the log can be written again");
                }
                self.head = Head::of(&commit);
                self.shared.written.add(1, &batch.records, &after);
                self.publish(after, &batch.records);
                let state = self.shared.published.load_full();
                batch.answers.into_iter().for_each(|answer| answer.give(&state));
                self.snapshot_if_due();
            }
            Written::NotStored(why) => {
                self.timers_rest_until = Timestamp(self.clock.now().0 + TIMERS_REST_MS);
                // Once, not for each call: this log may be on the disk that is full.
                if !std::mem::replace(&mut self.only_reads, true) {
                    tracing::error!(commit = commit.number, why, "the hub only reads for now");
                }
                let why = format!(
                    "{why}; the hub only reads until the log can be written again, so repeat the call later"
                );
                self.start_over();
                for Answer { submission, in_batch, .. } in batch.answers.into_iter().rev() {
                    if in_batch {
                        let _ = submission.answer.send(Err(Failure::Unavailable(why.clone())));
                    } else {
                        self.put_back(submission);
                    }
                }
            }
            Written::Overtaken => {
                tracing::warn!(commit = commit.number, "another writer was faster; catching up");
                self.catch_up().await?;
                // What was decided last is put back first, so that the order stays.
                self.start_over();
                self.open = batch;
                self.start_over();
            }
        }
        Ok(())
    }

    fn publish(&mut self, state: State, records: &[Record]) {
        self.shared.published.store(Arc::new(state));
        let topics: BTreeSet<Topic> =
            records.iter().flat_map(|record| &record.events).flat_map(Event::topics).collect();
        self.shared.waiters.wake(topics.into_iter().chain([Topic::Log]));
    }

    /// Drops the speculative state and has the open batch's commands decided anew.
    fn start_over(&mut self) {
        self.speculative = State::clone(&self.shared.published.load());
        let open = std::mem::take(&mut self.open);
        for Answer { submission, .. } in open.answers.into_iter().rev() {
            self.put_back(submission);
        }
    }

    fn put_back(&mut self, submission: Submission) {
        let principal = submission.caller.principal.clone();
        self.queue.put_back(&principal, submission);
    }

    /// Reads what another writer has appended.
    async fn catch_up(&mut self) -> Result<(), Ended> {
        loop {
            let commits = self.log.read(self.head.number, 1_000).await?;
            let Some(last) = commits.last() else { return Ok(()) };
            let head = Head::of(last);
            let mut state = State::clone(&self.shared.published.load());
            let mut records = Vec::new();
            for commit in &commits {
                records.extend(Body::decode(&commit.body)?.records);
            }
            records.iter().for_each(|record| state.apply(record));
            self.head = head;
            self.publish(state, &records);
        }
    }

    fn snapshot_if_due(&mut self) {
        let state = self.shared.published.load_full();
        if state.seq() - self.in_snapshot >= self.snapshots.every {
            // If it fails, the next one comes in as many events; the log has everything meanwhile.
            self.in_snapshot = state.seq();
            let made = put_snapshot(self.log.clone(), self.head, state);
            self.snapshot = Some(tasks::spawn("make a snapshot", made));
        }
    }

    async fn end(self) -> Result<(), Ended> {
        // One that is cut off would have to be made again.
        if let Some(snapshot) = self.snapshot {
            let _ = snapshot.await;
        }
        let state = self.shared.published.load_full();
        if state.seq() - self.in_snapshot >= self.snapshots.at_end {
            put_snapshot(self.log.clone(), self.head, state).await;
        }
        Ok(())
    }
}

/// Returns what a caller is told whose call cannot even be decided.
fn bug(message: String) -> Failure {
    tracing::error!(message, "deciding a call panicked");
    Failure::Unavailable(
        "the hub failed inside; this is a bug in Teamster, its log has the details, and other calls still work".into(),
    )
}

/// Waits for the batch on its way, if there is one.
async fn written(in_flight: &mut Option<InFlight>) -> (InFlight, Written) {
    let outcome = match in_flight {
        Some(in_flight) => in_flight.written.as_mut().await,
        None => std::future::pending().await,
    };
    match in_flight.take() {
        Some(finished) => (finished, outcome),
        None => std::future::pending().await,
    }
}

/// Appends a commit and does not rest until it is certain what became of it.
async fn append(log: Arc<dyn Log>, commit: Commit) -> Written {
    // An attempt of unknown outcome may still arrive later. From then on only the commit itself in the log, or another
    // in its place, is certain; that a later attempt was refused says nothing about the earlier one.
    let mut in_doubt = false;
    loop {
        match log.append(commit.clone()).await {
            Ok(()) => return Written::Stored,
            Err(AppendError::Unknown(why)) => {
                tracing::warn!(why, "a batch's outcome is unknown");
                in_doubt = true;
            }
            // Ours may be the head we conflict with, if an earlier attempt was stored after all.
            Err(AppendError::Conflict { .. }) => {}
            Err(
                error @ (AppendError::Unavailable(_)
                | AppendError::TooLarge { .. }
                | AppendError::NotText),
            ) => {
                if !in_doubt {
                    return Written::NotStored(error.to_string());
                }
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
        match settled(log.as_ref(), &commit).await {
            Settled::Stored => return Written::Stored,
            Settled::Conflict(_) => return Written::Overtaken,
            Settled::NotStored => {}
        }
    }
}

/// Asks what became of a commit until the log can tell. Until then nobody can be answered anything that is true.
async fn settled(log: &dyn Log, commit: &Commit) -> Settled {
    loop {
        match settle(log, commit).await {
            Ok(settled) => return settled,
            Err(error) => {
                tracing::warn!(%error, "the log cannot tell what became of a batch; asking again");
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
    }
}

async fn put_snapshot(log: Arc<dyn Log>, head: Head, state: Arc<State>) {
    let bytes = tokio::task::spawn_blocking(move || state.to_snapshot()).await;
    let Ok(bytes) = bytes else { return tracing::error!("making a snapshot panicked") };
    let snapshot =
        Snapshot { number: head.number, hash: head.hash, format: SNAPSHOT_FORMAT, bytes };
    if let Err(error) = log.put_snapshot(snapshot).await {
        tracing::warn!(%error, "cannot keep a snapshot; starting will take longer");
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.records.len() >= BATCH_RECORDS_MAX || self.size_bytes >= BATCH_BYTES_MAX
    }

    fn push(&mut self, record: Record) {
        self.size_bytes += record.events.iter().map(Event::size_bytes).sum::<usize>();
        self.records.push(record);
    }
}

impl Answer {
    fn give(self, state: &Arc<State>) {
        let done = self.outcome.map(|events| Done { events, state: state.clone() });
        // Whoever asked may be gone; what was decided stays decided.
        let _ = self.submission.answer.send(done);
    }
}
