//! A program that writes commits, transcripts, blobs and snapshots straight into a log, and says on its stdout what was
//! acknowledged. The test binary runs itself as this program under strace, because only here can the database be opened
//! in ways that lose data, and because the hub does not write all of these yet.

#![expect(
    clippy::disallowed_methods,
    reason = "settings come from the environment, and the test binary starts itself"
)]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use futures_util::future::join_all;
use teamster_log::{
    CommitId, Error, Hash, Head, Log, Options, Snapshot, Synchronous, TranscriptName, verify,
};

use crate::history::Fault;
use crate::in_process::Dice;

/// So many commits in each run; the rest is in proportion.
const COMMITS: u64 = 120;
const CONVERSATIONS: u64 = 3;
const RECORDS: u64 = 60;
const BLOBS: u64 = 25;
/// A snapshot is made after so many commits.
const SNAPSHOT_EVERY: u64 = 10;
/// Any number will do: nobody reads these snapshots but the check.
const SNAPSHOT_FORMAT: u32 = 7;

/// How a run of the writer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Orderly,
    /// In the middle of what it does.
    Crash,
}

/// Something that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Commit(u64),
    Record { conversation: u64, number: u64 },
    Blob(u64),
    Snapshot(u64),
}

impl Promise {
    fn say(self) {
        let line = match self {
            Self::Commit(number) => format!("promise commit 0 {number}\n"),
            Self::Record { conversation, number } => {
                format!("promise record {conversation} {number}\n")
            }
            Self::Blob(number) => format!("promise blob 0 {number}\n"),
            Self::Snapshot(number) => format!("promise snapshot 0 {number}\n"),
        };
        // Not `print`: the test harness would take that.
        std::io::stdout().lock().write_all(line.as_bytes()).expect("stdout is open");
    }

    /// Reads what [`Promise::say`] said.
    pub(crate) fn heard(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.strip_prefix("promise ")?.split_whitespace();
        let (kind, conversation) = (words.next()?, words.next()?.parse().ok()?);
        let number = words.next()?.parse().ok()?;
        match kind {
            "commit" => Some(Self::Commit(number)),
            "record" => Some(Self::Record { conversation, number }),
            "blob" => Some(Self::Blob(number)),
            "snapshot" => Some(Self::Snapshot(number)),
            _ => None,
        }
    }
}

/// Returns the command that writes into `dir`.
pub(crate) fn command(dir: &Path, synchronous: Synchronous, ending: Ending) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the tests have a file"));
    command.args(["--ignored", "--exact", "power_loss::writer::write"]);
    command.env("TEAMSTER_WRITER_DIR", dir);
    command.env("TEAMSTER_WRITER_SYNCHRONOUS", format!("{synchronous:?}"));
    command.env("TEAMSTER_WRITER_ENDING", format!("{ending:?}"));
    command
}

#[test]
#[ignore = "not a test: the program that power_loss runs under strace"]
fn write() {
    let setting = |name: &str| std::env::var(name).unwrap_or_default();
    let dir = setting("TEAMSTER_WRITER_DIR");
    if dir.is_empty() {
        return;
    }
    let synchronous = match &*setting("TEAMSTER_WRITER_SYNCHRONOUS") {
        "Full" => Synchronous::Full,
        "Normal" => Synchronous::Normal,
        "Off" => Synchronous::Off,
        other => panic!("{other:?} is no way to open a database"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime").block_on(async {
        let options = Options { synchronous, ..Options::default() };
        let log = teamster_log::open(Path::new(&dir), options).expect("the log opens");
        let rest = async { tokio::join!(records(&*log), blobs(&*log)) };
        if setting("TEAMSTER_WRITER_ENDING") == "Orderly" {
            tokio::join!(commits(&*log), rest);
        } else {
            tokio::select! { () = commits(&*log) => {}, _ = rest => {} }
            std::process::abort();
        }
    });
}

async fn commits(log: &dyn Log) {
    let mut head = log.head().await.expect("the log can be read");
    for _ in 0..COMMITS {
        let number = head.number + 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        let commit = head.next(CommitId(id), text(number, 2_000));
        head = Head::of(&commit);
        log.append(commit).await.expect("the commit is stored");
        Promise::Commit(number).say();
        if number.is_multiple_of(SNAPSHOT_EVERY) {
            let (hash, format, bytes) = (head.hash, SNAPSHOT_FORMAT, text(number, 40_000));
            let snapshot = Snapshot { number, hash, format, bytes };
            log.put_snapshot(snapshot).await.expect("the snapshot is stored");
            Promise::Snapshot(number).say();
        }
    }
}

async fn records(log: &dyn Log) {
    join_all((0..CONVERSATIONS).map(async |conversation| {
        let mut number = count(log, conversation).await.expect("the log can be read");
        for _ in 0..RECORDS {
            number += 1;
            let record = text(conversation << 32 | number, 9_000);
            let stored = log.transcripts().append(&name(conversation), record).await;
            assert_eq!(stored.expect("the record is stored"), number);
            Promise::Record { conversation, number }.say();
        }
    }))
    .await;
}

async fn count(log: &dyn Log, conversation: u64) -> Result<u64, Error> {
    let mut number = 0;
    loop {
        let page = log.transcripts().read(&name(conversation), number, 1_000).await?;
        match page.last() {
            Some(last) => number = last.number,
            None => return Ok(number),
        }
    }
}

async fn blobs(log: &dyn Log) {
    // Two runs write the same blobs, so that one that is there is written again.
    for number in 0..BLOBS {
        log.blobs().put(blob(number)).await.expect("the blob is stored");
        Promise::Blob(number).say();
    }
}

fn name(conversation: u64) -> TranscriptName {
    TranscriptName::new(format!("writer.c{conversation}")).expect("it is a name")
}

/// Returns a text that only this seed has, at most so long.
fn text(seed: u64, max_bytes: u64) -> Vec<u8> {
    let length = 1 + Dice(seed).below(max_bytes) as usize;
    let mut text = format!("{seed:x} ").repeat(length).into_bytes();
    text.truncate(length);
    text
}

fn blob(number: u64) -> Vec<u8> {
    text(number << 48, 20_000)
}

/// Opens what is left of a log and returns what is wrong with it, given what had been promised.
pub(crate) async fn check(dir: &Path, promises: &[Promise]) -> Vec<Fault> {
    let log = match teamster_log::open(dir, Options::default()) {
        Ok(log) => log,
        Err(error) => return vec![super::cannot_open(&error)],
    };
    let mut faults = Vec::new();
    if let Err(why) = check_kept(&*log, dir, promises, &mut faults).await {
        faults.push(Fault::Contradiction(why));
    }
    faults
}

async fn check_kept(
    log: &dyn Log,
    dir: &Path,
    promises: &[Promise],
    faults: &mut Vec<Fault>,
) -> Result<(), String> {
    let told = |error: Error| format!("{error}: {:?}", std::error::Error::source(&error));
    let report = verify(log, None).await.map_err(told)?;
    if report.broken.is_some() || report.damage.is_some() {
        return Err(format!("the log is broken: {report:?}"));
    }
    let n_commits = report.sound.number;
    let mut after = 0;
    while after < n_commits {
        for commit in log.read(after, 1_000).await.map_err(told)? {
            after = commit.number;
            if commit.body != text(after, 2_000) {
                return Err(format!("commit {after} is another"));
            }
        }
    }
    let mut n_records = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let mut number = 0;
        loop {
            let page = log.transcripts().read(&name(conversation), number, 1_000).await;
            let page = page.map_err(told)?;
            if page.is_empty() {
                break;
            }
            for record in page {
                number = record.number;
                if record.bytes != text(conversation << 32 | number, 9_000) {
                    return Err(format!("record {number} of {conversation} is another"));
                }
            }
        }
        n_records.push(number);
    }
    let snapshot = log.snapshot(SNAPSHOT_FORMAT).await.map_err(told)?;
    let in_snapshot = snapshot.as_ref().map_or(0, |snapshot| snapshot.number);
    if snapshot.is_some_and(|snapshot| snapshot.bytes != text(snapshot.number, 40_000)) {
        return Err(format!("the snapshot at {in_snapshot} is another"));
    }
    if in_snapshot == 0 && dir.join("snapshot").exists() {
        return Err("the snapshot is of no use".into());
    }
    for promise in promises {
        let kept = match *promise {
            Promise::Commit(number) => number <= n_commits,
            Promise::Record { conversation, number } => number <= n_records[conversation as usize],
            Promise::Blob(number) => {
                let bytes = blob(number);
                log.blobs().get(Hash::of(&bytes)).await.map_err(told)? == Some(bytes)
            }
            Promise::Snapshot(number) => number <= in_snapshot,
        };
        if !kept {
            faults.push(Fault::Lost(format!("{promise:?}")));
        }
    }
    check_blob_files(&dir.join("blobs"))
}

/// A file with a blob's name has its bytes, promised or not: whoever finds it must be able to trust it.
fn check_blob_files(blobs: &Path) -> Result<(), String> {
    for shelf in std::fs::read_dir(blobs).map_err(|error| error.to_string())?.flatten() {
        for blob in std::fs::read_dir(shelf.path()).map_err(|error| error.to_string())?.flatten() {
            let name = [shelf.file_name(), blob.file_name()].map(|name| name.display().to_string());
            let bytes = std::fs::read(blob.path()).map_err(|error| error.to_string())?;
            if Hash::of(&bytes).to_string() != name.concat() {
                return Err(format!("blob {} has other bytes", name.concat()));
            }
        }
    }
    Ok(())
}
