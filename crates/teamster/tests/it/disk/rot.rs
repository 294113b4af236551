//! Rot: single bits of a data directory flip, and nobody may be told something else than what was stored.
//!
//! A flip is *detected* if the log is not opened, the hub does not start, or a read or `verify` says what is wrong; it is
//! *harmless* if everything still reads as it was written. Anything else is silent. `TEAMSTER_FLIPS=20000` flips many,
//! `TEAMSTER_SEED=7` others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_core::{Caller, Command, RunName, State, item, note, run};
use teamster_hub::clock::SystemClock;
use teamster_hub::hub::{self, Opened, Parts, Snapshots};
use teamster_hub::project::Project;
use teamster_log::{Commit, Hash, Log, Options, Record, Snapshot, TranscriptName};
use tempfile::TempDir;

use super::setting;
use crate::in_process::Dice;

/// As many bits as `cargo test` flips, in each of the two directories.
const FLIPS: u64 = 250;

/// Everything that somebody could be told about a data directory.
#[derive(Debug, Clone, PartialEq)]
struct Contents {
    state: State,
    commits: Vec<Commit>,
    records: Vec<Record>,
    blobs: Vec<Option<Vec<u8>>>,
}

/// How a flip showed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    NotOpened,
    HubDidNotStart,
    ReadFailed,
    VerifyReported,
    /// The snapshot is ignored, which costs a replay and nothing else.
    SnapshotIgnored,
    Harmless,
    Silent(String),
}

/// A directory with something in every file, and what is in it.
struct Original {
    directory: TempDir,
    contents: Contents,
    blobs: Vec<Hash>,
}

/// How the hub that wrote the directory ended.
#[derive(Debug, Clone, Copy)]
enum Ended {
    /// Everything is in log.db.
    Orderly,
    /// What was written last is in log.db-wal only.
    Killed,
}

fn conversation() -> TranscriptName {
    TranscriptName::new("ann.bob").expect("a name")
}

/// Memory, where there is such a place: the disk is not what is tested here.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary directory")
}

async fn start_hub(log: &Arc<dyn Log>) -> Result<Opened, hub::OpenError> {
    let mut dice = Dice(1);
    let parts = Parts {
        log: log.clone(),
        clock: Arc::new(SystemClock),
        random: Box::new(move || dice.roll()),
        project: Project::new(Path::new("/nowhere")),
        snapshots: Snapshots { every: u64::MAX, at_end: u64::MAX },
    };
    hub::start(parts, |_, _| ()).await
}

/// Has a hub write a number of commits, some of them larger than a page.
async fn write(log: &Arc<dyn Log>, part: &str) -> State {
    let Opened { handle, run } = start_hub(log).await.expect("the hub starts");
    let submit = async {
        let in_run = |what| Command::Run { run: RunName::default_run(), what };
        for n in 0..40 {
            let content = format!("{part} {n} {}", "x".repeat(if n % 10 == 9 { 9_000 } else { n }));
            let what = if n % 3 == 0 {
                let new = note::NewNote { content, kind: note::Kind::Tip };
                run::Command::Note(note::Command::Add(vec![new]))
            } else {
                let new = item::NewItem { content, status: None, priority: None };
                run::Command::Item(item::Command::Add(vec![new]))
            };
            handle.submit(Caller::hub(), in_run(what), None).await.expect("it is stored");
        }
        let state = State::clone(&handle.state());
        handle.shut_down().await;
        state
    };
    let (ended, state) = tokio::join!(run, submit);
    ended.expect("the loop ends well");
    state
}

impl Original {
    async fn make(ended: Ended) -> Self {
        let live = scratch();
        let open = || teamster_log::open(live.path(), Options::default()).expect("it opens");
        let log = open();
        let state = write(&log, "first").await;
        let head = log.head().await.expect("a head");
        let bytes = state.to_snapshot();
        let snapshot =
            Snapshot { number: head.number, hash: head.hash, format: SNAPSHOT_FORMAT, bytes };
        log.put_snapshot(snapshot).await.expect("it is kept");
        drop(log);

        let log = open();
        let mut blobs = Vec::new();
        for n in 0..30_u8 {
            let record = vec![n; usize::from(n) * 40];
            log.transcripts().append(&conversation(), record).await.expect("it is stored");
            if n % 10 == 0 {
                blobs.push(log.blobs().put(vec![n; 1_000]).await.expect("it is stored"));
            }
        }
        write(&log, "second").await;
        let contents = read(&log, &blobs).await.expect("nothing is wrong");
        let directory = scratch();
        match ended {
            Ended::Orderly => {
                drop(log);
                copy(live.path(), directory.path());
            }
            Ended::Killed => copy(live.path(), directory.path()),
        }
        Self { directory, contents, blobs }
    }

    /// Returns the files that the log keeps, with their sizes.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let all = walk(self.directory.path(), Path::new(""));
        let kept =
            all.into_iter().filter(|(path, n_bytes)| *n_bytes > 0 && path != Path::new("lock"));
        kept.collect()
    }

    /// Looks at a copy in which one bit is flipped.
    async fn flipped(&self, path: &Path, byte: u64, bit: u32) -> Shown {
        let copied = self.copy_with_flip(path, byte, bit);
        let log = match teamster_log::open(copied.path(), Options::default()) {
            Ok(log) => log,
            Err(_) => return Shown::NotOpened,
        };
        let contents = match read(&log, &self.blobs).await {
            Ok(contents) => contents,
            Err(shown) => return shown,
        };
        let verified = teamster_log::verify(log.as_ref(), None).await;
        let sound = verified.is_ok_and(|found| found.broken.is_none() && found.damage.is_none());
        // A transcript's end may be missing until somebody verifies; commits and what the hub makes of them may not.
        let told_true = Contents { records: self.contents.records.clone(), ..contents.clone() };
        if !sound && told_true == self.contents {
            return Shown::VerifyReported;
        }
        if contents == self.contents {
            let kept = log.snapshot(SNAPSHOT_FORMAT).await.expect("it was read before");
            return if kept.is_some() { Shown::Harmless } else { Shown::SnapshotIgnored };
        }
        Shown::Silent(difference(&contents, &self.contents))
    }

    fn copy_with_flip(&self, path: &Path, byte: u64, bit: u32) -> TempDir {
        let copied = scratch();
        copy(self.directory.path(), copied.path());
        flip(&copied.path().join(path), byte, bit);
        copied
    }
}

/// Reads everything, as the hub does when it starts and as people do who look into the log.
async fn read(log: &Arc<dyn Log>, blobs: &[Hash]) -> Result<Contents, Shown> {
    let Opened { handle, .. } = start_hub(log).await.map_err(|_| Shown::HubDidNotStart)?;
    let state = State::clone(&handle.state());
    let mut commits = Vec::new();
    loop {
        let after = commits.last().map_or(0, |commit: &Commit| commit.number);
        match log.read(after, 1_000).await.map_err(|_| Shown::ReadFailed)? {
            page if page.is_empty() => break,
            page => commits.extend(page),
        }
    }
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(0, |record| record.number);
        let page = log.transcripts().read(&conversation(), after, 1_000).await;
        match page.map_err(|_| Shown::ReadFailed)? {
            page if page.is_empty() => break,
            page => records.extend(page),
        }
    }
    let mut kept = Vec::new();
    for blob in blobs {
        kept.push(log.blobs().get(*blob).await.map_err(|_| Shown::ReadFailed)?);
    }
    Ok(Contents { state, commits, records, blobs: kept })
}

fn difference(now: &Contents, then: &Contents) -> String {
    let mut different = Vec::new();
    if now.state != then.state {
        different.push("the hub's state".to_owned());
    }
    if now.commits != then.commits {
        different.push(format!("commits ({} of {})", now.commits.len(), then.commits.len()));
    }
    if now.records != then.records {
        different.push(format!("records ({} of {})", now.records.len(), then.records.len()));
    }
    if now.blobs != then.blobs {
        different.push("blobs".to_owned());
    }
    different.join(", ")
}

fn flip(path: &Path, byte: u64, bit: u32) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    bytes[usize::try_from(byte).expect("it fits")] ^= 1 << bit;
    std::fs::write(path, bytes).expect("the file can be written");
}

/// Returns the files below a directory and their sizes, in order.
fn walk(root: &Path, below: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join(below)).expect("a directory") {
        let entry = entry.expect("it is listed");
        let path = below.join(entry.file_name());
        let metadata = entry.metadata().expect("it is there");
        if metadata.is_dir() {
            files.extend(walk(root, &path));
        } else {
            files.push((path, metadata.len()));
        }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for (path, _) in walk(from, Path::new("")) {
        let target = to.join(&path);
        std::fs::create_dir_all(target.parent().expect("it has one")).expect("a directory");
        std::fs::copy(from.join(&path), target).expect("it is copied");
    }
}

/// Draws a file, a byte and a bit. Each file is as likely as another, so that small ones are hit too.
fn draw(dice: &mut Dice, files: &[(PathBuf, u64)]) -> (PathBuf, u64, u32) {
    let n_files = u64::try_from(files.len()).expect("it fits");
    let (path, n_bytes) = &files[usize::try_from(dice.below(n_files)).expect("it fits")];
    (path.clone(), dice.below(*n_bytes), u32::try_from(dice.below(8)).expect("it fits"))
}

#[tokio::test]
async fn no_flipped_bit_is_silent() {
    let n_flips = setting("TEAMSTER_FLIPS").unwrap_or(FLIPS);
    let seed = setting("TEAMSTER_SEED").unwrap_or(1);
    let mut table: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut silent = Vec::new();
    for ended in [Ended::Orderly, Ended::Killed] {
        let original = Original::make(ended).await;
        let files = original.files();
        let mut dice = Dice(seed);
        for _ in 0..n_flips {
            let (path, byte, bit) = draw(&mut dice, &files);
            let shown = original.flipped(&path, byte, bit).await;
            let place = path.components().next().expect("a path").as_os_str().to_string_lossy();
            let word = match &shown {
                Shown::Silent(what) => {
                    silent.push(format!(
                        "{ended:?}: bit {bit} of byte {byte} of {}: {what}",
                        path.display()
                    ));
                    "Silent".to_owned()
                }
                shown => format!("{shown:?}"),
            };
            *table.entry((format!("{ended:?} {place}"), word)).or_default() += 1;
        }
    }
    println!("{n_flips} flips in each of two directories, seed {seed}:");
    for ((place, shown), n) in &table {
        println!("{n:>7}  {place:<24} {shown}");
    }
    let detected: u64 =
        table.iter().filter(|((_, shown), _)| shown != "Harmless").map(|(_, n)| n).sum();
    assert!(detected > n_flips / 4, "hardly anything was hit: {table:?}");
    assert!(
        silent.is_empty(),
        "{} flips were silent; repeat with TEAMSTER_SEED={seed} TEAMSTER_FLIPS={n_flips} cargo test -p teamster --test it \
         no_flipped_bit_is_silent:\n{}",
        silent.len(),
        silent[..silent.len().min(20)].join("\n")
    );
}

/// The control: whoever reads the table as it is, without hashes, is told what was never written.
#[tokio::test]
async fn without_the_hashes_flips_are_silent() {
    let original = Original::make(Ended::Orderly).await;
    let bodies = |directory: &Path| -> rusqlite::Result<Vec<Vec<u8>>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(directory.join("log.db"), flags)?;
        let mut statement =
            connection.prepare("SELECT CAST(body AS BLOB) FROM commits ORDER BY number")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let truth = bodies(original.directory.path()).expect("nothing is wrong");
    let log = (
        PathBuf::from("log.db"),
        original
            .files()
            .into_iter()
            .find(|(path, _)| path == Path::new("log.db"))
            .expect("there is a log")
            .1,
    );
    let mut dice = Dice(1);
    let mut n_silent = 0;
    for _ in 0..100 {
        let (path, byte, bit) = draw(&mut dice, std::slice::from_ref(&log));
        let copied = original.copy_with_flip(&path, byte, bit);
        n_silent += u32::from(bodies(copied.path()).is_ok_and(|read| read != truth));
    }
    println!("without the hashes {n_silent} of 100 flips in log.db were silent");
    assert!(n_silent > 10, "only {n_silent} of 100 flips reached a reader who does not check");
}
