//! The hub killed at random moments under sixteen clients, and several hubs started at once on one data directory.
//!
//! SIGKILL leaves the page cache intact, so this says nothing about durability (see `power_loss.rs`). It does say that
//! nobody is answered before the commit, that whatever state a hub dies in, the next one starts from it, and that a
//! repeated call takes effect once. `TEAMSTER_CRASH_ROUNDS=2000` plays many crashes and `TEAMSTER_CRASH_RACES=500` runs
//! many races; `TEAMSTER_CRASH_SEED=7` draws other moments, as exactly as the system keeps them; `TEAMSTER_BIN` names
//! another build of the program.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "moments are real time, a broken fixture should panic, and a harness says what it did"
)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::history::{Fault, Shown, check, tell};
use crate::hub::{Hub, command, ended};
use crate::in_process::Dice;
use crate::load::{Clients, Habit, Worked};
use crate::simulation::number;

/// As many crashes as `cargo test` plays.
const ROUNDS: u64 = 120;
/// As many races as `cargo test` runs.
const RACES: u64 = 20;
/// A control ends with its first fault, which takes some ten crashes, and more on a busy machine.
const CONTROL_ROUNDS: u64 = 500;
/// So many crashes happen to one data directory before the next is begun.
const ROUNDS_PER_LIFE: u64 = 30;
/// So many calls does each client make before the orderly end.
const CALLS_BEFORE_END: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_survives_a_crash_exactly_once() {
    let rounds = number("TEAMSTER_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("TEAMSTER_CRASH_SEED").unwrap_or(1);
    let mut tally = Tally::default();
    for life in 0.. {
        let left = rounds - tally.n_crashes;
        if left == 0 {
            break;
        }
        let mut world = World::new(seed.wrapping_add(life << 32), Habit::Good);
        let faults = world.live(left.min(ROUNDS_PER_LIFE), &mut tally).await;
        assert!(
            faults.is_empty(),
            "seed {seed}, life {life}, after {} crashes:\n{}\nthe data is in {}",
            tally.n_crashes,
            tell(&faults),
            world.keep().display()
        );
    }
    println!("crash: seed {seed}: {tally}");
    assert_eq!(tally.n_crashes, rounds);
    assert!(tally.n_acknowledged >= rounds, "too few acknowledgements to say anything: {tally}");
    assert!(tally.n_hit >= rounds / 2, "too few crashes met a call in flight: {tally}");
}

/// A client that takes sending for an acknowledgement sees losses; so the crashes do meet unwritten calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_that_trusts_sending_reports_losses() {
    let is_lost = |fault: &Fault| matches!(fault, Fault::Lost(_));
    assert_control_fails("trusting clients", Habit::TrustsSending, is_lost).await;
}

/// Without keys a repeated call takes effect twice; so the crashes do meet written calls that were not answered yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_that_forgets_keys_reports_doubles() {
    let is_double = |fault: &Fault| matches!(fault, Fault::Twice(_));
    assert_control_fails("forgetful clients", Habit::ForgetsKeys, is_double).await;
}

async fn assert_control_fails(name: &str, habit: Habit, expected: fn(&Fault) -> bool) {
    let mut tally = Tally::default();
    let mut world = World::new(1, habit);
    let faults =
        world.live_until(CONTROL_ROUNDS, &mut tally, |faults| faults.iter().any(expected)).await;
    println!("crash: control of {name}: {tally}, {} faults:\n{}", faults.len(), tell(&faults));
    assert!(faults.iter().any(expected), "the control found nothing in {tally}");
}

/// The end of a log that somebody cut off is a loss, although what is left of it is sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_that_drops_a_commit_reports_it() {
    let mut world = World::new(1, Habit::Good);
    let (hub, _) = world.start().await;
    let mut clients = Clients::new(&hub, Dice(1), Habit::Good);
    clients.work(&hub.url, 5).await;
    drop(hub);
    let database = rusqlite::Connection::open(world.data().join("log.db")).expect("the log opens");
    let last = "DELETE FROM commits WHERE number = (SELECT max(number) FROM commits)";
    assert_eq!(database.execute(last, []).expect("the log is writable"), 1);
    drop(database);
    // The log's own memory of its end, which is another control, would refuse to start.
    std::fs::remove_file(world.data().join("acknowledged")).expect("the note is there");
    let (_hub, shown) = world.start().await;
    let faults = check(&clients.history.operations(), &shown);
    println!("crash: control without its last commit: {} faults:\n{}", faults.len(), tell(&faults));
    assert!(faults.iter().any(|fault| matches!(fault, Fault::Lost(_))), "{faults:?}");
}

/// What a run has seen.
#[derive(Debug, Default)]
struct Tally {
    n_crashes: u64,
    /// Crashes that left a call without an answer.
    n_hit: u64,
    /// Starts that were killed before the hub was ready.
    n_killed_starting: u64,
    n_acknowledged: u64,
    n_unheard: u64,
    n_snapshots: u64,
    slowest_start: Duration,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} crashes, {} with calls in flight, {} more while starting; {} calls acknowledged, {} not answered; \
             {} checks with a snapshot; the slowest start took {:?}",
            self.n_crashes,
            self.n_hit,
            self.n_killed_starting,
            self.n_acknowledged,
            self.n_unheard,
            self.n_snapshots,
            self.slowest_start
        )
    }
}

/// A data directory and what happens to it.
struct World {
    directory: TempDir,
    dice: Dice,
    habit: Habit,
}

impl World {
    fn new(seed: u64, habit: Habit) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), dice: Dice(seed), habit }
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// Leaves the data for whoever looks into a fault.
    fn keep(&mut self) -> &Path {
        self.directory.disable_cleanup(true);
        self.directory.path()
    }

    /// Crashes the hub so many times and returns what is wrong after one of them.
    async fn live(&mut self, rounds: u64, tally: &mut Tally) -> Vec<Fault> {
        self.live_until(rounds, tally, |faults| !faults.is_empty()).await
    }

    async fn live_until(
        &mut self,
        rounds: u64,
        tally: &mut Tally,
        enough: impl Fn(&[Fault]) -> bool,
    ) -> Vec<Fault> {
        let (mut hub, _) = self.start().await;
        let mut clients = Clients::new(&hub, self.dice.clone(), self.habit);
        for _ in 0..rounds {
            let Worked { n_acknowledged, n_unheard } = self.crash(&mut hub, &mut clients).await;
            tally.n_crashes += 1;
            tally.n_hit += u64::from(n_unheard > 0);
            tally.n_acknowledged += n_acknowledged as u64;
            tally.n_unheard += n_unheard as u64;
            if self.dice.below(4) == 0 {
                self.kill_while_starting();
                tally.n_killed_starting += 1;
            }
            let started = Instant::now();
            let faults;
            (hub, faults) = self.start_and_check(&clients, tally).await;
            tally.slowest_start = tally.slowest_start.max(started.elapsed());
            if enough(&faults) {
                return faults;
            }
        }
        clients.repeat_unheard(&hub.url).await;
        // Enough for the snapshot that an orderly end makes, from which the next start goes on.
        clients.work(&hub.url, CALLS_BEFORE_END).await;
        assert!(hub.end(Signal::TERM).success(), "the hub ends when asked to");
        let faults;
        (hub, faults) = self.start_and_check(&clients, tally).await;
        let report = hub.ok(&["log", "verify", "--json"]);
        let report: Value = serde_json::from_str(&report).expect("a report is JSON");
        assert_eq!(report["broken"], Value::Null, "{report}");
        faults
    }

    /// Kills the hub shortly after the clients have begun.
    async fn crash(&mut self, hub: &mut Hub, clients: &mut Clients) -> Worked {
        // Mostly when the first calls are on their way, sometimes in the middle of the work.
        let delay_us = if self.dice.below(4) == 0 { 150_000 } else { 15_000 };
        let delay = Duration::from_micros(self.dice.below(delay_us));
        clients.work_until_killed(hub, delay).await
    }

    fn kill_while_starting(&mut self) {
        let mut process = up(&self.data());
        std::thread::sleep(Duration::from_micros(self.dice.below(40_000)));
        process.kill().expect("it can be killed");
        process.wait().expect("it can be waited for");
    }

    async fn start(&mut self) -> (Hub, Shown) {
        let data = self.data();
        let hub = tokio::task::block_in_place(|| Hub::start_in(&data));
        let log = teamster_log::open_readonly(&data).expect("a running hub has a log");
        let mut shown = Shown::read(log.as_ref()).await;
        shown.compare_with(&hub).await;
        (hub, shown)
    }

    async fn start_and_check(&mut self, clients: &Clients, tally: &mut Tally) -> (Hub, Vec<Fault>) {
        let (hub, shown) = self.start().await;
        tally.n_snapshots += u64::from(shown.snapshot.is_some());
        (hub, check(&clients.history.operations(), &shown))
    }
}

/// Starts a hub without waiting for it.
fn up(data: &Path) -> Child {
    let mut command = command(data);
    command.arg("up").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Several hubs are started at once, the winner is killed, and so on: there is one each time, and the others say why not.
#[tokio::test]
async fn of_hubs_that_race_for_one_data_directory_one_wins_and_the_others_say_why() {
    let races = number("TEAMSTER_CRASH_RACES").unwrap_or(RACES);
    let mut dice = Dice(number("TEAMSTER_CRASH_SEED").unwrap_or(1));
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let mut n_losers = 0;
    for race in 1..=races {
        let hubs: Vec<Child> = (0..2 + dice.below(3)).map(|_| up(&data)).collect();
        let mut winners = Vec::new();
        for mut hub in hubs {
            let mut line = String::new();
            let stdout = BufReader::new(hub.stdout.as_mut().expect("stdout is piped"));
            // A hub that is not to be says so and ends, which ends its stdout too.
            stdout.take(1_000).read_line(&mut line).expect("the hub speaks UTF-8");
            if line.starts_with("teamster is up: ") {
                winners.push(hub);
            } else {
                assert_refused(hub, &data);
                n_losers += 1;
            }
        }
        let [winner] = &mut winners[..] else { panic!("race {race}: {} hubs run", winners.len()) };
        let file = std::fs::read(data.join("hub.json")).expect("a ready hub leaves hub.json");
        let file: Value = serde_json::from_slice(&file).expect("hub.json is JSON");
        assert_eq!(file["pid"], winner.id(), "race {race}: hub.json is the winner's");
        winner.kill().expect("the hub can be killed");
        winner.wait().expect("the hub can be waited for");

        let log = teamster_log::open_readonly(&data).expect("there is a log");
        let shown = Shown::read(log.as_ref()).await;
        assert_eq!(shown.faults, [], "race {race}");
        assert_eq!(shown.state.hub.n_starts, race, "only winners write");
    }
    println!("crash: {races} races, each with one winner; {n_losers} hubs refused to start");
    assert!(n_losers >= races);
}

/// A killed hub leaves `hub.json` behind. Who else listens at its address by now is not it, and must not see its token.
#[tokio::test]
async fn a_stranger_at_a_killed_hubs_address_is_not_taken_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let mut hub = Hub::start_in(&data);
    hub.end(Signal::KILL);
    let address = hub.url.trim_start_matches("http://");
    let _stranger = std::net::TcpListener::bind(address).expect("the hub is gone");
    let mut up = command(&data);
    up.args(["up", "--listen", "127.0.0.1:0"]);
    let again = Hub::start_with(up, &data);
    assert_ne!(again.url, hub.url);
}

fn assert_refused(mut hub: Child, data: &Path) {
    let mut said = String::new();
    let stderr = hub.stderr.take().expect("stderr is piped");
    BufReader::new(stderr).read_to_string(&mut said).expect("the hub speaks UTF-8");
    let status = ended(hub);
    assert!(!status.success(), "a hub that does not run must not end well: {said}");
    // Which of these it says depends on how far the winner had come.
    let clear =
        ["is in use by", "a hub is running for", "holds"].iter().any(|words| said.contains(words));
    assert!(clear && said.contains(&*data.to_string_lossy()), "the loser said {said:?}");
}
