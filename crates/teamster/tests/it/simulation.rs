//! The hub's loop and the core on an unreliable log, with clients that repeat themselves and crashes in between.
//!
//! Everything is drawn from a seed and time is virtual, so a seed always plays the same. Every operation is repeated
//! with its key until it is acknowledged; then whatever was acknowledged must be there, once and in order, and the state
//! must be what the log says. `TEAMSTER_SEED=7` plays one seed, `TEAMSTER_SEEDS=100000` plays many.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "seeds come from the environment, tasks live no longer than a seed, and a broken fixture should panic"
)]

mod agents;
mod conversations;
mod runner;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use teamster_core::compaction::Compaction;
use teamster_core::grant::{Grant, Grants};
use teamster_core::key::Key;
use teamster_core::record::{Body, Record};
use teamster_core::token::{self, Kind, NewToken, SecretHash};
use teamster_core::{
    Caller, Command, Event, PrincipalName, RunName, State, Timestamp, item, note, run, yak,
};
use teamster_hub::hub::Handle;
use teamster_log::memory::{Fate, Faults, Memory, Store};
use teamster_log::{CommitId, Log};
use teamster_mcp::hub::{Done, Failure};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::in_process::{self, Dice, Running, run_in_virtual_time};

/// As many seeds as `cargo test` plays.
const SEEDS: u64 = 2_000;
const CLIENTS: u64 = 3;
const OPERATIONS: u64 = 10;

#[test]
fn whatever_is_acknowledged_is_there_once_and_in_order() {
    play_all("simulation", SEEDS, |seed| play(seed, Keys::Sent));
}

/// The control: without keys a repeated call takes effect twice, and the simulation must notice.
#[test]
fn without_idempotency_the_simulation_fails() {
    let fault = first_fault(200, |seed| play(seed, Keys::Forgotten));
    assert!(
        fault.is_some_and(|(_, fault)| fault.contains("claimed")),
        "200 seeds found nothing wrong"
    );
}

#[test]
fn a_seed_always_plays_the_same() {
    assert_plays_the_same(20, |seed| {
        let world = World::new(seed, Keys::Sent);
        run_in_virtual_time(world.clone().play())?;
        Ok(world.commits().now_or_never().expect("reading memory does not wait"))
    });
}

/// When the other writer writes; ours never does.
const FOREIGN: Timestamp = Timestamp(-1);

/// Whether clients send their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Sent,
    Forgotten,
}

/// Returns the number that a variable of the environment gives, if it is set.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("it is a number"))
}

/// Plays `seeds` seeds, or as many as are asked for. Returns how many those were; nothing if one was asked for alone.
fn play_all(
    test: &str,
    seeds: u64,
    play: impl Fn(u64) -> Result<(), String> + Sync,
) -> Option<u64> {
    if let Some(seed) = number("TEAMSTER_SEED") {
        play(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        return None;
    }
    let all = number("TEAMSTER_SEEDS").unwrap_or(seeds);
    if let Some((seed, fault)) = first_fault(all, play) {
        panic!(
            "{fault}\nrepeat with: TEAMSTER_SEED={seed} cargo test -p teamster --test it {test}"
        );
    }
    Some(all)
}

/// Plays each seed twice, which must come to the same log.
fn assert_plays_the_same(
    seeds: u64,
    log_of: impl Fn(u64) -> Result<Vec<teamster_log::Commit>, String>,
) {
    for seed in 0..seeds {
        let logs =
            [(); 2].map(|()| log_of(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}")));
        assert_eq!(logs[0], logs[1], "seed {seed}");
    }
}

/// Plays the seeds below `all` on every core and returns the first that went wrong.
fn first_fault(all: u64, play: impl Fn(u64) -> Result<(), String> + Sync) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let faults = Mutex::new(BTreeMap::new());
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= all || !faults.lock().expect("no thread panics with it").is_empty() {
                        return;
                    }
                    if let Err(fault) = play(seed) {
                        faults.lock().expect("no thread panics with it").insert(seed, fault);
                    }
                }
            });
        }
    });
    faults.into_inner().expect("no thread panics with it").pop_first()
}

fn play(seed: u64, keys: Keys) -> Result<(), String> {
    run_in_virtual_time(World::new(seed, keys).play())
}

/// What one seed plays in.
#[derive(Clone)]
struct World {
    seed: u64,
    keys: Keys,
    store: Store,
    faults: Faults,
}

/// What a client asked for and was told.
#[derive(Debug)]
struct Acknowledged {
    mark: String,
    done: Done,
}

impl World {
    fn new(seed: u64, keys: Keys) -> Self {
        Self { seed, keys, store: Store::default(), faults: Faults::default() }
    }

    fn dice(&self, stream: u64) -> Dice {
        Dice(self.seed.wrapping_mul(1_000_003).wrapping_add(stream))
    }

    async fn play(self) -> Result<(), String> {
        let (hubs, _) = watch::channel(self.start_hub(0).await?);
        for client in 0..CLIENTS {
            self.create_token(&hubs, client).await;
        }
        self.draw_faults();
        let crashes = self.clone().crash_now_and_then(hubs.clone());
        let clients = (0..CLIENTS).map(|client| self.clone().operate(client, hubs.subscribe()));
        let mut told = Vec::new();
        tokio::select! {
            // Otherwise the order of polling is drawn at random.
            biased;
            all = futures_util::future::join_all(clients) => {
                for one in all {
                    told.push(one?);
                }
            }
            fault = crashes => return Err(fault),
        }
        self.check(&told, &hubs.borrow().clone()).await
    }

    async fn start_hub(&self, n: u64) -> Result<Running, String> {
        self.start_hub_at(n, Instant::now()).await
    }

    /// Opens the log as a start of the program would, and runs the loop until it is dropped. Its clock began at `epoch`.
    async fn start_hub_at(&self, n: u64, epoch: Instant) -> Result<Running, String> {
        // Snapshots are made on another thread, whose moment no seed decides: some seeds only.
        let snapshot_every = if self.seed % 10 == 9 { 5 } else { u64::MAX };
        let dice = self.dice(1_000 + n);
        let running =
            in_process::start_at(&self.store, &self.faults, dice, snapshot_every, epoch).await?;
        // Nobody is served before the hub's own first commit: nothing that an earlier hub had sent can come after it.
        let start = || Command::Hub(teamster_core::hub::Command::Start { version: n.to_string() });
        for _ in 0..100 {
            match running.handle.submit(Caller::hub(), start(), None).await {
                Ok(_) => return Ok(running),
                Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {}
                Err(Failure::Refused(refusal)) => return Err(refusal.to_string()),
            }
        }
        Err("a hub cannot start".into())
    }

    async fn create_token(&self, hubs: &watch::Sender<Running>, client: u64) {
        let new = NewToken {
            principal: name(client),
            kind: Kind::Agent,
            secret: SecretHash([u8::try_from(client).expect("few clients"); 32]),
            grants: Grants::new([Grant::Full, Grant::Main]),
            run: None,
            team: None,
            expires_at: None,
        };
        let create = Command::Token(token::Command::Create { new, replace: false });
        let handle = hubs.borrow().handle.clone();
        handle.submit(Caller::hub(), create, None).await.expect("nothing goes wrong yet");
    }

    /// From here on appends meet their fates.
    fn draw_faults(&self) {
        let mut dice = self.dice(1);
        let mut late = false;
        self.faults.set_append_latency(self.dice(2).millis(5));
        self.faults.decide(move |commit| {
            let fate = match dice.below(100) {
                // A commit that is late arrives before the next one; another writer would have seen it.
                _ if late => Fate::Stored,
                0..8 => Fate::UnknownStored,
                8..16 => Fate::UnknownNotStored,
                16..20 => Fate::UnknownLate,
                20..25 => {
                    let first = Body::decode(&commit.body).expect("our commits can be read").first;
                    let event = Event::Yak(yak::Event::PrefixSet {
                        prefix: format!("p{}", dice.below(100)).into(),
                    });
                    let by = PrincipalName::hub();
                    let record =
                        Record { at: FOREIGN, by, token: None, key: None, events: vec![event] };
                    let id = CommitId(u128::from(dice.roll()).to_le_bytes());
                    Fate::ForeignFirst { id, body: Body::new(first, vec![record]).encode() }
                }
                25..30 => Fate::Unavailable,
                _ => Fate::Stored,
            };
            late = fate == Fate::UnknownLate;
            fate
        });
    }

    /// Ends the hub as a crash would and starts another on what is stored. Returns only if that goes wrong.
    async fn crash_now_and_then(self, hubs: watch::Sender<Running>) -> String {
        let mut dice = self.dice(3);
        for n in 1.. {
            tokio::time::sleep(Duration::from_millis(5) + dice.millis(200)).await;
            hubs.borrow().crash();
            // Between the crash and the next start, what was sent last may still arrive.
            tokio::time::sleep(dice.millis(3)).await;
            match self.start_hub(n).await {
                Ok(running) => hubs.send_replace(running),
                Err(fault) => return fault,
            };
        }
        unreachable!("it crashes for ever")
    }

    /// Makes one operation after the other, each until it is acknowledged.
    async fn operate(
        self,
        client: u64,
        hubs: watch::Receiver<Running>,
    ) -> Result<Vec<Acknowledged>, String> {
        let mut dice = self.dice(10 + client);
        let mut told = Vec::new();
        for n in 0..OPERATIONS {
            let mark = format!("op-{client}-{n}");
            let command = operation(&mark, &mut dice);
            let done = self.until_acknowledged(client, &mark, &command, &hubs, &mut dice).await?;
            if !done.events.is_empty() {
                self.check_durable(&mark, &done).await?;
                told.push(Acknowledged { mark, done });
            }
            tokio::time::sleep(dice.millis(10)).await;
        }
        Ok(told)
    }

    async fn until_acknowledged(
        &self,
        client: u64,
        mark: &str,
        command: &Command,
        hubs: &watch::Receiver<Running>,
        dice: &mut Dice,
    ) -> Result<Done, String> {
        let key = (self.keys == Keys::Sent).then(|| Key::new(mark, 1).expect("a mark is a key"));
        for _ in 0..1_000 {
            let handle = hubs.borrow().handle.clone();
            let state = handle.state();
            let token = state.tokens.by_principal(&name(client)).ok_or("a token is lost")?;
            let send = || handle.submit(Caller::of(token), command.clone(), key.clone());
            // Some answers get lost: the client gives up and asks again. Some calls are sent twice at once.
            let patience =
                if dice.below(4) == 0 { dice.millis(8) } else { Duration::from_secs(60) };
            let twice = dice.below(5) == 0;
            let both = async {
                if twice {
                    let (first, second) = tokio::join!(send(), send());
                    same_answer(first, second)
                } else {
                    Ok(send().await)
                }
            };
            match tokio::time::timeout(patience, both).await {
                Ok(Ok(Ok(done))) => return Ok(done),
                Ok(Ok(Err(Failure::Refused(refusal)))) => {
                    // Only what was done before by a call whose answer was lost is refused, and only without a key.
                    match self.keys {
                        Keys::Sent => return Err(format!("{mark} was refused: {refusal}")),
                        Keys::Forgotten => {
                            return Ok(Done { events: Arc::default(), state: handle.state() });
                        }
                    }
                }
                Ok(Ok(Err(Failure::Unavailable(_) | Failure::Unknown(_)))) | Err(_) => {
                    tokio::time::sleep(dice.millis(20)).await
                }
                Ok(Err(difference)) if self.keys == Keys::Sent => {
                    return Err(format!("{mark}: {difference}"));
                }
                Ok(Err(_)) => {}
            }
        }
        Err(format!("{mark} was never acknowledged"))
    }

    async fn commits(&self) -> Vec<teamster_log::Commit> {
        let log = Memory::new(&self.store);
        let mut commits = Vec::new();
        loop {
            let page = log.read(commits.len() as u64, 1_000).await.expect("memory can be read");
            if page.is_empty() {
                return commits;
            }
            commits.extend(page);
        }
    }

    /// What is acknowledged must be stored at that moment, not a moment later.
    async fn check_durable(&self, mark: &str, done: &Done) -> Result<(), String> {
        let mut stored = false;
        for commit in self.commits().await {
            let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
            stored |= body.records.iter().any(|record| *record.events == *done.events);
        }
        if stored { Ok(()) } else { Err(format!("{mark} was acknowledged before it was stored")) }
    }

    /// Everything that must be true in the end.
    async fn check(&self, told: &[Vec<Acknowledged>], hub: &Running) -> Result<(), String> {
        let mut replayed = State::default();
        let mut records = Vec::new();
        for (i, commit) in self.commits().await.into_iter().enumerate() {
            if commit.number != i as u64 + 1 {
                return Err(format!("commit {} stands at {}", commit.number, i + 1));
            }
            let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
            // The other writer of this simulation does not know what arrived late; ours must.
            let ours = !body.records.iter().any(|record| record.at == FOREIGN);
            if ours && body.first != replayed.seq() + 1 {
                return Err(format!(
                    "commit {} says it starts at event {}",
                    commit.number, body.first
                ));
            }
            body.records.iter().for_each(|record| replayed.apply(record));
            records.extend(body.records);
        }
        if *hub.handle.state() != replayed && !self.is_behind(&hub.handle, &replayed) {
            return Err("the published state is not what the log says".into());
        }
        self.faults.decide(|_| Fate::Stored);
        let again = self.start_hub(9_999).await?;
        let mut stored = State::default();
        for commit in self.commits().await {
            let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
            body.records.iter().for_each(|record| stored.apply(record));
        }
        if *again.handle.state() != stored {
            return Err("a new start does not find what the log says".into());
        }

        if !compacted(&records, &replayed).equals_but_for_numbers(&replayed) {
            return Err("a compacted log comes to another state".into());
        }

        let mut claimed = BTreeSet::new();
        for (client, told) in told.iter().enumerate() {
            let mut last = 0;
            for Acknowledged { mark, done } in told {
                let places: Vec<usize> = (0..records.len())
                    .filter(|i| {
                        *records[*i].events == *done.events && records[*i].by == name(client as u64)
                    })
                    .collect();
                let [place] = places[..] else {
                    return Err(format!(
                        "{mark} was acknowledged and is there {} times",
                        places.len()
                    ));
                };
                if place < last {
                    return Err(format!("{mark} stands before what its client did earlier"));
                }
                last = place;
                for event in done.events.iter() {
                    if let Event::Run {
                        what: run::Event::Item(item::Event::Claimed { id }), ..
                    } = event
                        && !claimed.insert(*id)
                    {
                        return Err(format!("{id} was claimed twice"));
                    }
                }
            }
        }
        // Each claim was repeated until it was acknowledged, so nobody may hold an item without knowing it.
        let items = &replayed.runs.get(&RunName::default_run()).items;
        let in_progress = items.count(item::Status::InProgress) as usize;
        if in_progress != claimed.len() {
            return Err(format!(
                "{in_progress} items are claimed, {} claims were acknowledged",
                claimed.len()
            ));
        }
        Ok(())
    }

    /// A commit of another writer, or one that arrived late, is seen at the next append.
    fn is_behind(&self, handle: &Handle, replayed: &State) -> bool {
        handle.state().seq() < replayed.seq()
    }
}

/// What a client does: something that carries its mark, or a claim.
fn operation(mark: &str, dice: &mut Dice) -> Command {
    let in_run = |what| Command::Run { run: RunName::default_run(), what };
    match dice.below(10) {
        0..4 => {
            let new = item::NewItem { content: mark.into(), status: None, priority: None };
            in_run(run::Command::Item(item::Command::Add(vec![new])))
        }
        4..7 => in_run(run::Command::Item(item::Command::Claim)),
        7..9 => {
            let new = note::NewNote { content: mark.into(), kind: note::Kind::Tip };
            in_run(run::Command::Note(note::Command::Add(vec![new])))
        }
        _ => Command::Yak(yak::Command::Create(yak::NewYak {
            title: mark.into(),
            kind: yak::Kind::Task,
            priority: yak::Priority::IMPORTANT,
            description: mark.into(),
            parent: None,
        })),
    }
}

/// Two calls with one key must be told the same, if both are told anything; a claim that found nothing was not done.
fn same_answer(
    first: Result<Done, Failure>,
    second: Result<Done, Failure>,
) -> Result<Result<Done, Failure>, String> {
    match (first, second) {
        (Ok(first), Ok(second)) if first.events == second.events => Ok(Ok(first)),
        (Ok(first), Ok(second)) if first.events.is_empty() => Ok(Ok(second)),
        (Ok(first), Ok(second)) if second.events.is_empty() => Ok(Ok(first)),
        (Ok(first), Ok(second)) => {
            Err(format!("the same call did {:?} and {:?}", first.events, second.events))
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(Ok(one)),
        (Err(one), Err(_)) => Ok(Err(one)),
    }
}

fn name(client: u64) -> PrincipalName {
    PrincipalName::parse(&format!("client-{client}")).expect("a name")
}

/// Returns what is left of the state when the events it does not depend on are left out.
fn compacted(records: &[Record], state: &State) -> State {
    let bodies = || records.iter().map(|record| Body::new(1, vec![record.clone()]));
    let mut compaction = Compaction::new(state);
    bodies().for_each(|body| compaction.survey(&body));
    let mut left = State::default();
    for body in bodies().filter_map(|body| compaction.thin(body)) {
        body.records.iter().for_each(|record| left.apply(record));
    }
    left
}
