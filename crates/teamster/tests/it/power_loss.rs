//! What is left when the power fails: the hub's own system calls are recorded, and for many moments in between, a directory
//! is made that holds what was synced and any part of what was not. Whatever the hub had told anyone must be in it.
//!
//! `TEAMSTER_POWER_STATES=20000` tries many, `TEAMSTER_POWER_SEED=7` draws others, `TEAMSTER_POWER_KEEP=1` keeps those in
//! which something is wrong (the record is another each time, so a seed alone does not bring them back), `TEAMSTER_BIN`
//! names another build of the program. Needs strace, and says so where there is none; `TEAMSTER_REQUIRE_STRACE=1` makes
//! that a failure.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a broken fixture should panic, and a harness says what it did"
)]

mod disk;
pub(crate) mod trace;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::process::Signal;
use teamster_core::record::Body;
use teamster_hub::secret;
use teamster_log::{CommitId, Options, Synchronous};
use tempfile::TempDir;

use self::disk::{Before, Disk, Syncs};
use self::trace::Trace;
use self::writer::{Ending, Promise};
use crate::history::{Fault, Operation, Outcome, Shown, check, tell};
use crate::hub::{Hub, command, ended};
use crate::in_process::Dice;
use crate::load::{Clients, Habit};
use crate::optional::Optional;
use crate::simulation::number;

/// As many states as `cargo test` tries of each program, and of each control.
const STATES: u64 = 400;
const CONTROL_STATES: u64 = 60;
/// So many of the states are recovered from under strace, to let the power fail again.
const SECOND_FAILURES: u64 = 3;
/// One state in so many is also opened by the program itself.
const OPENED_BY_THE_HUB: u64 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_hub_has_told_anyone_survives_a_loss_of_power() {
    if !can_trace() {
        return;
    }
    let recorded = record_hub().await;
    let found = try_states("the hub", &recorded, Syncs::Honoured, number_of_states());
    assert_eq!(found.faults, None, "{found:?}");

    // The control: the same record on a disk that only says it has synced.
    let found = try_states("the hub without syncs", &recorded, Syncs::Ignored, CONTROL_STATES);
    assert!(found.n_lossy > 0, "a disk that ignores syncs must lose something: {found:?}");
}

#[test]
fn commits_transcripts_blobs_and_snapshots_survive_a_loss_of_power() {
    if !can_trace() {
        return;
    }
    let recorded = record_writer(Synchronous::Full);
    let found = try_states("the log", &recorded, Syncs::Honoured, number_of_states());
    assert_eq!(found.faults, None, "{found:?}");
    // The power fails again while, and after, the next start makes do with what the first failure has left.
    for seed in 0..SECOND_FAILURES {
        let again = record_recovery(&recorded, seed);
        let n_states = number_of_states() / SECOND_FAILURES;
        let found = try_states("the log, again", &again, Syncs::Honoured, n_states);
        assert_eq!(found.faults, None, "after seed {seed}: {found:?}");
    }
}

/// The controls: a database that waits for the disk less often loses what it has acknowledged.
#[test]
fn the_controls_that_do_not_wait_for_the_disk_report_losses() {
    if !can_trace() {
        return;
    }
    for synchronous in [Synchronous::Normal, Synchronous::Off] {
        let recorded = record_writer(synchronous);
        let name = format!("the log with synchronous={synchronous:?}");
        let found = try_states(&name, &recorded, Syncs::Honoured, CONTROL_STATES);
        assert!(found.n_lossy > 0, "{name} must lose something: {found:?}");
    }
}

/// What programs did to a directory, and what they promised when.
struct Recorded {
    trace: Trace,
    root: TempDir,
    data: PathBuf,
    /// What was on the disk before.
    before: Before,
    /// Directories that were there before, made but not synced.
    made: Vec<PathBuf>,
    promises: Promises,
}

enum Promises {
    Hub {
        operations: Vec<Operation>,
        /// From which moment on others may have heard of an operation, and in which words.
        told: HashMap<String, (usize, String)>,
        ready: usize,
    },
    Writer(Vec<(usize, Promise)>),
}

/// Records a hub under sixteen clients: ended in order, started again, killed, and started again.
async fn record_hub() -> Recorded {
    let root = tempfile::tempdir().expect("a directory");
    // Somebody else made the data directory, as a person or `up --detach` does, and did not sync it.
    let made = vec![root.path().join("somewhere"), root.path().join("somewhere/data")];
    let data = made[1].clone();
    std::fs::create_dir_all(&data).expect("it can be made");
    let mut trace = Trace::default();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let start = || {
        let mut up = command(&data);
        up.arg("up");
        Hub::start_with(trace::traced(&up, file.path()), &data)
    };
    let mut read_trace = || trace.add(file.path(), disk::read_all(root.path()));

    let mut hub = start();
    let mut clients = Clients::new(&hub, Dice(1), Habit::Good);
    // Enough for the snapshot that an orderly end makes.
    let worked = clients.work(&hub.url, 45).await;
    hub.end(Signal::TERM);
    read_trace();

    for _ in 0..2 {
        hub = start();
        clients.work_until_killed(&mut hub, KILL_AFTER).await;
        read_trace();
    }

    hub = start();
    clients.repeat_unheard(&hub.url).await;
    clients.work(&hub.url, 3).await;
    hub.end(Signal::TERM);
    read_trace();

    let operations = clients.history.operations();
    let (told, ready) = find_told(&trace, root.path());
    let unheard = operations.iter().filter(|one| one.is_ok() && !told.contains_key(id_of(one)));
    assert_eq!(unheard.count(), 0, "every acknowledgement that a client saw is in the record");
    println!(
        "power: recorded {} calls of the hub, {} operations, {} of them acknowledged ({} before its first end)",
        trace.calls.len(),
        operations.len(),
        told.len(),
        worked.n_acknowledged
    );
    assert!(data.join("snapshot").exists(), "the record has a snapshot in it");
    let promises = Promises::Hub { operations, told, ready };
    let recorded = Recorded { trace, root, data, before: Before::new(), made, promises };
    recorded.assert_complete(500);
    recorded
}

/// Long enough that the hub is in the middle of its work.
const KILL_AFTER: std::time::Duration = std::time::Duration::from_millis(60);

/// Returns when the hub first spoke of each operation, and when it first said that it is ready.
fn find_told(trace: &Trace, root: &Path) -> (HashMap<String, (usize, String)>, usize) {
    let mut told = HashMap::new();
    let mut ready = usize::MAX;
    for (at, words) in trace.told(root) {
        if words.starts_with(b"teamster is up") {
            ready = ready.min(at);
        }
        let Ok(words) = std::str::from_utf8(words) else { continue };
        if words.contains("\"isError\":true") {
            continue;
        }
        for (place, _) in words.match_indices("op-") {
            if let Some(id) = words.get(place..place + ID_LENGTH) {
                told.entry(id.to_owned()).or_insert_with(|| (at, words.to_owned()));
            }
        }
    }
    (told, ready)
}

/// The length of `op-03-000017`.
const ID_LENGTH: usize = 12;

fn id_of(operation: &Operation) -> &str {
    &operation.texts[0][..ID_LENGTH]
}

/// Records the writer twice: killed in the middle, then ended in order.
fn record_writer(synchronous: Synchronous) -> Recorded {
    let root = tempfile::tempdir().expect("a directory");
    let data = root.path().join("some/where/data");
    let mut trace = Trace::default();
    for ending in [Ending::Crash, Ending::Orderly] {
        run_writer(&mut trace, (root.path(), &data), synchronous, ending);
    }
    let promises = find_promises(&trace, root.path());
    println!(
        "power: recorded {} calls of the writer with synchronous={synchronous:?}, {} acknowledgements",
        trace.calls.len(),
        promises.len()
    );
    let promises = Promises::Writer(promises);
    let recorded =
        Recorded { trace, root, data, before: Before::new(), made: Vec::new(), promises };
    recorded.assert_complete(300);
    recorded
}

/// Lets the power fail once, and records the writer going on with what is left.
fn record_recovery(first: &Recorded, seed: u64) -> Recorded {
    let root = tempfile::tempdir().expect("a directory");
    let mut dice = Dice(seed);
    // In the later half, so that there is something to recover.
    let n_moments = first.trace.moments.len() as u64;
    let cut = (n_moments / 2 + dice.below(n_moments / 2)) as usize;
    let mut disk = first.disk(Syncs::Honoured);
    (0..cut).for_each(|at| disk.play(at));
    disk.fail_power(&mut dice, root.path()).expect("the state can be written");
    let before = disk::read_all(root.path());

    let data = root.path().join(first.relative_data());
    let mut trace = Trace::default();
    run_writer(&mut trace, (root.path(), &data), Synchronous::Full, Ending::Orderly);
    let Promises::Writer(promised) = &first.promises else { panic!("the writer was recorded") };
    let promised = promised.iter().filter(|(at, _)| *at < cut).map(|(_, promise)| (0, *promise));
    let promises = promised.chain(find_promises(&trace, root.path())).collect();
    let promises = Promises::Writer(promises);
    Recorded { trace, root, data, before, made: Vec::new(), promises }
}

fn run_writer(
    trace: &mut Trace,
    (root, data): (&Path, &Path),
    synchronous: Synchronous,
    ending: Ending,
) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut command = trace::traced(&writer::command(data, synchronous, ending), file.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut process = command.spawn().expect("the writer starts");
    let mut stdout = process.stdout.take().expect("stdout is piped");
    std::io::copy(&mut stdout, &mut std::io::sink()).expect("it can be read");
    let status = ended(process);
    assert_eq!(status.success(), ending == Ending::Orderly, "the writer ended with {status}");
    trace.add(file.path(), disk::read_all(root));
}

fn find_promises(trace: &Trace, root: &Path) -> Vec<(usize, Promise)> {
    let told = trace.told(root).flat_map(|(at, words)| {
        let heard = words.split(|&byte| byte == b'\n').filter_map(Promise::heard);
        heard.map(move |promise| (at, promise))
    });
    told.collect()
}

impl Recorded {
    /// A record in which nothing was seen would lose nothing: the first harness of this kind reported just that.
    fn assert_complete(&self, min_promises: usize) {
        let n_promises = match &self.promises {
            Promises::Hub { told, .. } => told.len(),
            Promises::Writer(promises) => promises.len(),
        };
        assert!(n_promises >= min_promises, "only {n_promises} acknowledgements were recorded");
        let writes = |name: &str| {
            let to = |call: &&trace::Call| {
                call.name == "pwrite64" && call.file(0).1.ends_with(name.as_bytes())
            };
            self.trace.calls.iter().filter(to).count()
        };
        let (wal, database) = (writes("log.db-wal"), writes("log.db"));
        assert!(wal > 100 && database > 10, "{wal} writes ahead and {database} to the database");
    }

    fn disk(&self, syncs: Syncs) -> Disk<'_> {
        Disk::new(&self.trace, self.root.path(), &self.before, &self.made, syncs)
    }

    fn relative_data(&self) -> &Path {
        self.data.strip_prefix(self.root.path()).expect("the data is in the root")
    }

    /// Returns what is wrong with what is left in `dir` of the data, if the power failed before moment `cut`.
    async fn check(&self, dir: &Path, cut: usize, opener: Opener) -> Vec<Fault> {
        match &self.promises {
            Promises::Writer(promises) => {
                let before = promises.iter().filter(|(at, _)| *at < cut);
                writer::check(dir, &before.map(|(_, promise)| *promise).collect::<Vec<_>>()).await
            }
            Promises::Hub { operations, told, ready } => {
                let as_told = |operation: &Operation| match told.get(id_of(operation)) {
                    _ if operation.outcome == Outcome::Failed => operation.clone(),
                    Some((at, words)) if *at < cut => operation.answered(words),
                    _ => operation.without_answer(),
                };
                let operations: Vec<_> = operations.iter().map(as_told).collect();
                let mut faults = check_hub(dir, &operations, *ready < cut).await;
                if opener == Opener::Hub && faults.is_empty() {
                    faults = check_by_hub(dir, &operations).await;
                }
                faults
            }
        }
    }
}

async fn check_hub(dir: &Path, operations: &[Operation], is_ready: bool) -> Vec<Fault> {
    let log = match teamster_log::open(dir, Options::default()) {
        Ok(log) => log,
        Err(error) => return vec![cannot_open(&error)],
    };
    let shown = Shown::read(&*log).await;
    let mut faults = check(operations, &shown);
    if shown.snapshot.is_none() && dir.join("snapshot").exists() {
        faults.push(Fault::Contradiction("the snapshot is of no use".into()));
    }
    for file in ["operator.token", "agent.token"].iter().filter(|_| is_ready) {
        let token = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        if shown.state.tokens.by_secret(&secret::hash(token.trim())).is_none() {
            faults.push(Fault::Lost(format!("{file} or its token")));
        }
    }
    // What is left is not only readable: the next hub can go on with it.
    let body = Body::new(shown.state.seq() + 1, Vec::new());
    let goes_on = match log.head().await {
        Ok(head) => {
            let next = log.append(head.next(CommitId([7; 16]), body.encode())).await;
            next.map(|_| ()).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = goes_on {
        faults.push(Fault::Contradiction(format!("the log does not go on: {error}")));
    }
    faults
}

/// Has the program itself start on what is left.
async fn check_by_hub(dir: &Path, operations: &[Operation]) -> Vec<Fault> {
    // Another hub may listen there by now.
    let _ = std::fs::remove_file(dir.join("address"));
    let mut up = command(dir);
    up.arg("up");
    let hub = match Hub::try_start_with(up, dir) {
        Ok(hub) => hub,
        Err(status) => {
            return vec![Fault::Contradiction(format!("the hub does not start: {status}"))];
        }
    };
    let log = teamster_log::open_readonly(dir).expect("a running hub has a log");
    let mut shown = Shown::read(&*log).await;
    shown.compare_with(&hub).await;
    check(operations, &shown)
}

fn cannot_open(error: &teamster_log::OpenError) -> Fault {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let what = format!("the log does not open: {error} {source}");
    match error {
        teamster_log::OpenError::Lost { .. } => Fault::Lost(what),
        _ => Fault::Contradiction(what),
    }
}

/// Who opens what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// The log's own code, in this process.
    Log,
    /// After that, the program.
    Hub,
}

/// What trying many states came to.
#[derive(Debug, Default)]
struct Found {
    n_states: u64,
    /// States in which something that had been promised is gone.
    n_lossy: u64,
    /// States in which something is there that contradicts itself, or cannot be read.
    n_corrupt: u64,
    /// States in which something in the database was not synced.
    n_unsynced: u64,
    /// The first state in which something was wrong: seed, moment, faults.
    faults: Option<(u64, usize, String)>,
}

/// Lets the power fail at so many moments and looks at what is left each time.
fn try_states(name: &str, recorded: &Recorded, syncs: Syncs, n_states: u64) -> Found {
    let first_seed = number("TEAMSTER_POWER_SEED").unwrap_or(1) << 32;
    let unsynced = recorded.unsynced_moments(syncs);
    // In the order of time, so that the record is played once.
    let mut cuts: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for seed in (first_seed..).take(n_states as usize) {
        cuts.entry(recorded.draw_cut(seed, &unsynced)).or_default().push(seed);
    }
    let cuts: Vec<_> = cuts.into_iter().collect();
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for thread in 0..n_threads {
            let (found, cuts) = (&found, &cuts);
            scope.spawn(move || {
                let mut disk = recorded.disk(syncs);
                let mut played = 0;
                for (cut, seeds) in cuts.iter().skip(thread).step_by(n_threads) {
                    (played..*cut).for_each(|at| disk.play(at));
                    played = *cut;
                    for &seed in seeds {
                        let faults = recorded.try_state(&disk, *cut, seed);
                        let mut found = found.lock().expect("no thread panics with it");
                        found.add(seed, *cut, has_unsynced(&disk), &faults);
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics with it");
    println!(
        "power: {name}: {} states at {} moments, {} of them with something unsynced in the database; {} lost something, {} are corrupt",
        found.n_states,
        cuts.len(),
        found.n_unsynced,
        found.n_lossy,
        found.n_corrupt
    );
    assert_eq!(found.n_states, n_states);
    assert!(found.n_unsynced * 4 > n_states, "there was hardly anything to lose: {found:?}");
    found
}

impl Recorded {
    /// Any moment; the next one just after something was promised, where a loss would show first; or the next one with
    /// something unsynced in the database, where there is something to lose. A quick disk has few of those.
    fn draw_cut(&self, seed: u64, unsynced: &[usize]) -> usize {
        let mut dice = Dice(seed);
        let any = dice.below(self.trace.moments.len() as u64 + 1) as usize;
        let later = match dice.below(3) {
            0 => None,
            1 => self.trace.told(self.root.path()).map(|(at, _)| at + 1).find(|at| *at >= any),
            _ => unsynced.iter().copied().find(|at| *at >= any),
        };
        later.unwrap_or(any)
    }

    /// Returns the moments before which something in the database was not synced.
    fn unsynced_moments(&self, syncs: Syncs) -> Vec<usize> {
        let mut disk = self.disk(syncs);
        let mut moments = Vec::new();
        for at in 0..self.trace.moments.len() {
            disk.play(at);
            if has_unsynced(&disk) {
                moments.push(at + 1);
            }
        }
        moments
    }

    fn try_state(&self, disk: &Disk<'_>, cut: usize, seed: u64) -> Vec<Fault> {
        let memory = Path::new("/dev/shm");
        let left = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let left = left.expect("a directory");
        disk.fail_power(&mut Dice(seed), left.path()).expect("the state can be written");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let by_hub = seed.is_multiple_of(OPENED_BY_THE_HUB);
        let opener = if by_hub { Opener::Hub } else { Opener::Log };
        let data = left.path().join(self.relative_data());
        let faults = runtime.block_on(self.check(&data, cut, opener));
        if !faults.is_empty() && number("TEAMSTER_POWER_KEEP").is_some() {
            println!("power: seed {seed} at {cut}: {}\n{}", left.keep().display(), tell(&faults));
        }
        faults
    }
}

fn has_unsynced(disk: &Disk<'_>) -> bool {
    ["log.db-wal", "log.db"].iter().any(|name| disk.is_unsynced(name))
}

impl Found {
    fn add(&mut self, seed: u64, cut: usize, unsynced: bool, faults: &[Fault]) {
        let lost = |fault: &Fault| matches!(fault, Fault::Lost(_));
        self.n_states += 1;
        self.n_unsynced += u64::from(unsynced);
        self.n_lossy += u64::from(faults.iter().any(lost));
        self.n_corrupt += u64::from(faults.iter().any(|fault| !lost(fault)));
        if !faults.is_empty() && self.faults.is_none() {
            self.faults = Some((seed, cut, tell(faults)));
        }
    }
}

fn can_trace() -> bool {
    Optional::Strace.is_usable(trace::is_possible())
}

fn number_of_states() -> u64 {
    number("TEAMSTER_POWER_STATES").unwrap_or(STATES)
}
