//! The hub's own runner and run driver, with everything around them played: `agents/` and `work/` as they are in the program, on an
//! unreliable log, with programs that are scripted, die, hang, ask and spend, and with hubs that crash or stop in between.
//!
//! Programs speak the protocol that real ones do, over pipes in memory ([`program`]), on a machine that knows which of them
//! run ([`machine`]). A crash drops the hub's whole runtime, so each of its tasks ends at the await where it is. The next
//! hub has only the log, and the machine's list of programs that nobody saw end.

mod ground;
mod hands;
mod judge;
mod machine;
mod people;
mod program;
mod runs;

use std::sync::atomic::AtomicI64;

use teamster_hub::agents::{self, Configured, Live, Queue, Runner};
use teamster_hub::clock::Clock;
use teamster_hub::held::Confined;
use teamster_hub::hub::{self, Opened, Parts, Snapshots};
use teamster_hub::isolation::Standing;
use teamster_hub::project::Project;
use teamster_hub::work::{self, Between, Work};
use tokio::sync::Notify;

use self::ground::Ground;
use self::hands::Played;
use self::judge::Seen;
use self::machine::Machine;
use self::people::People;
use super::*;

/// Seeds that `cargo test` plays.
const SEEDS: u64 = 1_000;
/// Hubs of one seed that crash or are stopped; the one after them runs to the end.
const CRASHES_MAX: u64 = 3;
/// A hub that stops has this long for its agents, as in the program.
const STOP_PATIENCE: Duration = Duration::from_secs(75);
/// Virtual time in which everything that people asked for must have ended.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// When a seed begins: programs report until when a limit holds as a date.
const EPOCH_MS: i64 = 1_800_000_000_000;

#[test]
fn the_runner_keeps_what_the_log_says_and_what_the_machine_does_the_same() {
    let (ground, seen) = (Ground::new(), Seen::default());
    let all = play_all("simulation::runner", SEEDS, |seed| {
        World::new(&ground, seed).play().map(|ended| seen.add(&ended))
    });
    let Some(all) = all else { return };
    println!("{all} seeds: {seen:?}");
    seen.check(all);
}

#[test]
fn a_seed_of_the_runner_always_plays_the_same() {
    let ground = Ground::new();
    assert_plays_the_same(10, |seed| {
        let world = World::new(&ground, seed);
        world.play()?;
        Ok(world.commits())
    });
}

/// One seed.
struct World<'a> {
    ground: &'a Ground,
    seed: u64,
    store: Store,
    machine: Arc<Machine>,
    people: People,
    now_ms: AtomicI64,
}

/// How a hub ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Crashed,
    Stopped,
    /// There is nothing left to do.
    Done,
}

/// When a hub crashes.
struct Crash {
    after: Option<Duration>,
    /// The append at which it does.
    at_append: Option<u64>,
    /// How often every task may go on before it does, once the moment has come.
    n_rounds: u64,
    now: Arc<Notify>,
}

/// The time of a seed, which goes on from one hub to the next.
struct SeedsClock {
    began_ms: i64,
    since: Instant,
}

impl Clock for SeedsClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.since.elapsed().as_millis()).expect("a seed is short");
        Timestamp(self.began_ms + elapsed)
    }

    fn sleep_until(&self, at: Timestamp) -> futures_util::future::BoxFuture<'static, ()> {
        let after = u64::try_from(at.0 - self.began_ms).unwrap_or(0);
        Box::pin(tokio::time::sleep_until(self.since + Duration::from_millis(after)))
    }
}

impl<'a> World<'a> {
    fn new(ground: &'a Ground, seed: u64) -> Self {
        Self {
            ground,
            seed,
            store: Store::default(),
            machine: Arc::new(Machine::new(seed)),
            people: People::new(dice(seed, 1)),
            now_ms: AtomicI64::new(EPOCH_MS),
        }
    }

    /// Plays one hub after the other, each in a runtime of its own, and judges what came of it.
    fn play(&self) -> Result<judge::Ended, String> {
        for n in 0.. {
            let end = run_in_virtual_time(async {
                let since = Instant::now();
                let began_ms = self.now_ms.load(Ordering::Relaxed);
                let clock = Arc::new(SeedsClock { began_ms, since });
                let end = self.hub(n, clock.clone()).await;
                self.now_ms.store(clock.now().0, Ordering::Relaxed);
                end
            })?;
            // Its runtime is gone now, and with it all that it ran.
            self.machine.hub_is_gone(Timestamp(self.now_ms.load(Ordering::Relaxed)));
            if end == End::Done {
                break;
            }
            let pause = dice(self.seed, 20 + n).below(5_000);
            self.now_ms.fetch_add(i64::try_from(pause).expect("short"), Ordering::Relaxed);
        }
        judge::judge(&self.commits(), &self.machine, &self.people)
    }

    fn commits(&self) -> Vec<teamster_log::Commit> {
        let log = Memory::new(&self.store);
        let mut commits = Vec::new();
        loop {
            let page = log.read(commits.len() as u64, 1_000).now_or_never();
            let page = page.expect("reading memory does not wait").expect("memory can be read");
            if page.is_empty() {
                return commits;
            }
            commits.extend(page);
        }
    }

    /// Starts a hub as the program does, and lets it live for as long as the seed says.
    async fn hub(&self, n: u64, clock: Arc<SeedsClock>) -> Result<End, String> {
        let mut fate = dice(self.seed, 100 + n);
        let crash = Crash::drawn(n, &mut fate);
        let stops_after = (n < CRASHES_MAX && crash.is_none()).then(|| fate.millis(40_000));
        let log: Arc<dyn Log> =
            Arc::new(Memory::with_faults(&self.store, &self.faults(n, crash.as_ref())));
        let mut random = dice(self.seed, 200 + n);
        let parts = Parts {
            log: log.clone(),
            clock: clock.clone(),
            random: Box::new(move || random.roll()),
            project: Project::new(self.ground.project())
                .held_by(Confined::with(Arc::new(Played::new(dice(self.seed, 700 + n))))),
            snapshots: Snapshots { every: u64::MAX, at_end: u64::MAX },
        };
        let opened = hub::start(parts, |_, _| ()).await;
        let Opened { handle, run } = opened.map_err(|error| format!("cannot start: {error}"))?;
        let decides = async {
            match tokio::spawn(run).await {
                Ok(Ok(())) => std::future::pending().await,
                Ok(Err(error)) => format!("the loop failed: {error}"),
                Err(panic) => format!("the loop panicked: {panic}"),
            }
        };
        self.machine.hub_starts(&handle);
        tokio::select! {
            // Otherwise the order of polling is drawn at random.
            biased;
            fault = self.machine.faulted() => Err(fault),
            fault = decides => Err(fault),
            () = Crash::comes(crash.as_ref()) => Ok(End::Crashed),
            end = self.live(n, &handle, log, clock, stops_after) => end,
        }
    }

    /// What goes wrong with the log from now on. The machine sees each commit before it can be stored.
    fn faults(&self, n: u64, crash: Option<&Crash>) -> Faults {
        let faults = Faults::default();
        let mut dice = dice(self.seed, 300 + n);
        faults.set_append_latency(dice.millis(5));
        let machine = self.machine.clone();
        let crash = crash.and_then(|crash| Some((crash.at_append?, crash.now.clone())));
        let (mut n_appends, mut late) = (0, false);
        faults.decide(move |commit| {
            machine.sees(commit);
            n_appends += 1;
            if let Some((at, now)) = &crash
                && *at == n_appends
            {
                now.notify_one();
            }
            let fate = match dice.below(100) {
                // A commit that is late arrives before the next one.
                _ if late => Fate::Stored,
                0..4 => Fate::UnknownStored,
                4..8 => Fate::UnknownNotStored,
                8..10 => Fate::UnknownLate,
                10..13 => Fate::Unavailable,
                _ => Fate::Stored,
            };
            late = fate == Fate::UnknownLate;
            fate
        });
        faults
    }

    async fn live(
        &self,
        n: u64,
        handle: &Handle,
        log: Arc<dyn Log>,
        clock: Arc<SeedsClock>,
        stops_after: Option<Duration>,
    ) -> Result<End, String> {
        let start = Command::Hub(teamster_core::hub::Command::Start { version: n.to_string() });
        until_stored(handle, &start).await?;
        if !people::has_token(handle) {
            until_stored(handle, &people::operators_token()).await?;
        }
        let (ground, data) = (self.ground, self.ground.data());
        let configuration = ground.configuration.clone();
        let configured = Arc::new(Configured::new(handle.clone(), data.clone(), configuration));
        let queue = Queue::new(handle.clone(), clock.clone(), configured.clone());
        let of_runs = Between::new(handle.clone(), clock.clone(), data);
        let of_runs = Arc::new(of_runs.map_err(|error| error.to_string())?);
        let supervisor = Arc::new(machine::OnMachine(self.machine.clone()));
        let mut random = dice(self.seed, 400 + n);
        let runner = Runner::new(agents::Setup {
            hub: handle.clone(),
            log,
            clock: clock.clone(),
            supervisor: supervisor.clone(),
            random: Box::new(move || random.roll()),
            guarded: ground.guarded.clone(),
            url: "http://127.0.0.1:1".into(),
            configured: configured.clone(),
            live: Live::default(),
            queue,
            of_runs: of_runs.clone(),
            standing: Standing::default(),
        });
        // A hub that cannot write its log does not start.
        let Ok(runner) = runner.await else { return Ok(End::Crashed) };
        let work = Work::new(work::Setup {
            hub: handle.clone(),
            supervisor,
            data: data.clone(),
            guarded: ground.guarded.clone(),
            configured,
            between: of_runs,
        });
        let work = work.map_err(|error| error.to_string())?;
        let (agents_stop, work_stop) = (runner.stopper(), work.stopper());
        tokio::spawn(runner.run());
        tokio::spawn(work.run());
        let all_done = async {
            self.people.act(handle, dice(self.seed, 500 + n)).await?;
            let watch = teamster_mcp::Hub::watch(handle, &teamster_core::topic::Topic::Agents);
            let is_quiet = |state: &State| {
                let agents = &state.agents;
                (agents.queued().next().is_none() && agents.active().next().is_none()).then_some(())
            };
            watch.until(handle, is_quiet).await;
            Ok(End::Done)
        };
        let end = tokio::select! {
            biased;
            done = tokio::time::timeout(PATIENCE, all_done) => {
                done.map_err(|_| format!("not all has ended: {}", judge::living(&handle.state())))?
            }
            () = after(stops_after) => Ok(End::Stopped),
        };
        let stop = async { tokio::join!(biased; work_stop.stop(), agents_stop.stop()) };
        if tokio::time::timeout(STOP_PATIENCE, stop).await.is_err() {
            return Err("the hub did not end its agents in time".into());
        }
        self.machine.check_idle()?;
        end
    }
}

impl Crash {
    fn drawn(n: u64, dice: &mut Dice) -> Option<Self> {
        let (after, at_append) = match dice.below(8) {
            _ if n >= CRASHES_MAX => return None,
            0 => return None,
            1..4 => (None, Some(1 + dice.below(40))),
            4..6 => (Some(dice.millis(2_000)), None),
            _ => (Some(dice.millis(60_000)), None),
        };
        Some(Self { after, at_append, n_rounds: dice.below(12), now: Arc::default() })
    }

    /// Waits until it comes; for ever if none does.
    async fn comes(crash: Option<&Self>) {
        let Some(Self { after: sleeps, n_rounds, now, .. }) = crash else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            () = now.notified() => {}
            () = after(*sleeps) => {}
        }
        for _ in 0..*n_rounds {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits so long; for ever without a time.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Has the hub itself record something.
async fn until_stored(handle: &Handle, command: &Command) -> Result<(), String> {
    loop {
        match handle.submit(Caller::hub(), command.clone(), None).await {
            Ok(_) => return Ok(()),
            Err(Failure::Refused(refusal)) => return Err(refusal.to_string()),
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Returns one of the sequences of a seed.
fn dice(seed: u64, stream: u64) -> Dice {
    Dice(seed.wrapping_mul(1_000_003).wrapping_add(stream).wrapping_mul(0x9e37_79b9))
}
