//! The SQLite engine: the suite, its files, and what it does when the database fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use rusqlite::{Connection, OpenFlags};
use teamster_log::sqlite::Sqlite;
use teamster_log::{
    AppendError, Error, Hash, Head, Location, Log, OpenError, Options, Settled, Snapshot,
    TranscriptName, open, open_at, open_readonly, settle, verify,
};
use tempfile::TempDir;
use tokio::task::coop::unconstrained;

use crate::conformance::{Rig, conformance};
use crate::{all, append, append_all, id};

struct SqliteRig {
    log: Arc<dyn Log>,
    dir: TempDir,
}

impl Rig for SqliteRig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { log: open(dir.path(), Options::default()).unwrap(), dir }
    }

    fn log(&self) -> Arc<dyn Log> {
        self.log.clone()
    }

    fn damage_blob(&self, hash: Hash) {
        let name = hash.to_string();
        fs::write(self.dir.path().join("blobs").join(&name[..2]).join(&name[2..]), "damaged")
            .unwrap();
    }
}

conformance!(SqliteRig);

/// A connection beside the engine's own, as a person with sqlite3 has.
fn connect(dir: &Path) -> Connection {
    Connection::open_with_flags(dir.join("log.db"), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
}

pub(crate) fn execute(dir: &Path, sql: &str) {
    connect(dir).execute_batch(sql).unwrap();
}

/// Makes every COMMIT of a transaction that writes to `table` fail, until [`MEND`].
fn break_commit(dir: &Path, table: &str, operation: &str) {
    execute(
        dir,
        &format!(
            "CREATE TABLE IF NOT EXISTS fault (n INTEGER REFERENCES repairs_of_nobody DEFERRABLE INITIALLY DEFERRED);
             CREATE TABLE IF NOT EXISTS repairs_of_nobody (n INTEGER PRIMARY KEY);
             CREATE TRIGGER fault_{table} AFTER {operation} ON {table} BEGIN INSERT INTO fault VALUES (1); END;"
        ),
    );
}

const MEND: &str = "DROP TRIGGER IF EXISTS fault_commits; DROP TRIGGER IF EXISTS fault_repairs;";

fn refusal<T>(opened: Result<T, OpenError>) -> String {
    opened.err().expect("it was opened").to_string()
}

#[tokio::test]
async fn a_log_survives_being_closed() {
    let dir = tempfile::tempdir().unwrap();
    let transcript = TranscriptName::new("a.b").unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    let commits = append_all(&*log, &["[1]", "[2]"]).await;
    let blob = log.blobs().put(b"abc".to_vec()).await.unwrap();
    log.transcripts().append(&transcript, b"hello".to_vec()).await.unwrap();
    let snapshot =
        Snapshot { number: 2, hash: commits[1].hash(), format: 3, bytes: b"state".to_vec() };
    log.put_snapshot(snapshot.clone()).await.unwrap();
    drop(log);

    let log = open(dir.path(), Options::default()).unwrap();
    assert_eq!(all(&*log).await, commits);
    assert_eq!(log.head().await.unwrap(), Head::of(&commits[1]));
    assert_eq!(log.blobs().get(blob).await.unwrap(), Some(b"abc".to_vec()));
    assert_eq!(log.transcripts().append(&transcript, b"again".to_vec()).await.unwrap(), 2);
    assert_eq!(log.snapshot(3).await.unwrap(), Some(snapshot));
    append(&*log, "[3]").await;
    assert_eq!(verify(&*log, Some(Head::of(&commits[1]))).await.unwrap().broken, None);
}

#[tokio::test]
async fn what_is_queued_when_the_log_is_closed_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
    let log = Sqlite::open(dir.path()).unwrap();
    let stranger = connect(dir.path());
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    {
        let mut appending = log.append(commit.clone());
        assert!((&mut appending).now_or_never().is_none(), "the stranger's lock is in its way");
    }
    drop(stranger);
    drop(log);
    assert_eq!(all(&Sqlite::open(dir.path()).unwrap()).await, [commit]);
}

#[tokio::test]
async fn a_second_hub_is_refused_and_told_who_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    assert_eq!(
        refusal(open(dir.path(), Options::default())),
        format!(
            "the data directory {} is in use by process {}; look at it with `teamster status`, \
             or choose another with --data",
            dir.path().display(),
            std::process::id()
        )
    );
    drop(log);
    open(dir.path(), Options::default()).unwrap();
}

#[tokio::test]
async fn the_directory_says_which_engine_it_uses() {
    let dir = tempfile::tempdir().unwrap();
    let engine = dir.path().join("engine");
    drop(open(dir.path(), Options::default()).unwrap());
    assert_eq!(fs::read_to_string(&engine).unwrap(), "sqlite 1\n");
    let shown = dir.path().display();
    for (line, expected) in [
        (
            "abacus 1\n",
            format!(
                "{shown} says that its engine is \"abacus 1\", which this version of teamster does not know \
                 (it knows sqlite); use the version that made it"
            ),
        ),
        (
            "sqlite 2\n",
            format!(
                "{shown}/engine has format 2, and this version of teamster knows formats up to 1; use a newer version"
            ),
        ),
        (
            "",
            format!(
                "{shown} says that its engine is \"\", which this version of teamster does not know \
                 (it knows sqlite); use the version that made it"
            ),
        ),
    ] {
        fs::write(&engine, line).unwrap();
        assert_eq!(refusal(open(dir.path(), Options::default())), expected);
        assert_eq!(refusal(open_readonly(dir.path())), expected);
    }
}

#[tokio::test]
async fn newer_tables_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), Options::default()).unwrap());
    execute(dir.path(), "PRAGMA user_version = 3");
    let expected = format!(
        "{}/log.db has format 3, and this version of teamster knows formats up to 2; use a newer version",
        dir.path().display()
    );
    assert_eq!(refusal(open(dir.path(), Options::default())), expected);
    assert_eq!(refusal(open_readonly(dir.path())), expected);
}

/// A program that knows nothing of forgotten records would take them for damage, so it is to refuse the database.
#[tokio::test]
async fn forgetting_makes_the_tables_newer_and_damage_is_still_found() {
    let dir = tempfile::tempdir().unwrap();
    let transcript = TranscriptName::new("a.b").unwrap();
    let version = || -> u32 {
        let database = connect(dir.path());
        database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    };
    let log = open(dir.path(), Options::default()).unwrap();
    for text in ["1", "2", "3", "4"] {
        log.transcripts().append(&transcript, text.into()).await.unwrap();
    }
    assert_eq!(version(), 1);
    log.transcripts().forget(&transcript, 2).await.unwrap();
    drop(log);
    assert_eq!(version(), 2);
    let read = async || {
        let log = open_readonly(dir.path()).unwrap();
        let page = log.transcripts().read(&transcript, 0, 9).await;
        page.map(|page| page.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read().await, Ok(2));
    // What is missing without having been forgotten is noticed as before.
    let damaged = |number: u32| {
        Err(format!(
            "record {number} of the transcript a.b is damaged or missing; restore it from a backup"
        ))
    };
    execute(dir.path(), "DELETE FROM transcripts WHERE number = 3");
    assert_eq!(read().await, damaged(3));
    execute(dir.path(), "UPDATE transcripts SET record = x'00' WHERE number = 0");
    assert_eq!(read().await, damaged(0));
}

#[tokio::test]
async fn only_the_user_can_read_what_is_stored() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let log = open(&dir, Options::default()).unwrap();
    let commit = append(&*log, "[1]").await;
    log.blobs().put(b"abc".to_vec()).await.unwrap();
    let snapshot = Snapshot { number: 1, hash: commit.hash(), format: 1, bytes: Vec::new() };
    log.put_snapshot(snapshot).await.unwrap();

    let mut found = Vec::new();
    let mut directories = vec![dir];
    while let Some(directory) = directories.pop() {
        found.push((
            fs::metadata(&directory).unwrap().permissions().mode() & 0o777,
            directory.clone(),
        ));
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push((fs::metadata(&path).unwrap().permissions().mode() & 0o777, path));
            }
        }
    }
    let n_files = found.iter().filter(|(_, path)| path.is_file()).count();
    assert_eq!(
        n_files, 8,
        "lock, engine, log.db, log.db-wal, log.db-shm, acknowledged, snapshot and a blob: {found:?}"
    );
    for (mode, path) in found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{} has mode {mode:o}", path.display());
    }
}

#[tokio::test]
async fn a_log_can_be_read_while_a_hub_uses_it_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let hub = open(dir.path(), Options::default()).unwrap();
    let commits = append_all(&*hub, &["[1]", "[2]"]).await;
    let log = open_readonly(dir.path()).unwrap();
    assert_eq!(all(&*log).await, commits);
    let later = append(&*hub, "[3]").await;
    assert_eq!(log.head().await.unwrap(), Head::of(&later));
    drop((hub, log));

    let log = open_readonly(dir.path()).unwrap();
    let tail = log.tail(1).map(Result::unwrap).collect::<Vec<_>>().await;
    assert_eq!(tail, [commits[1].clone(), later], "it ends when it has caught up");
    let commit = log.head().await.unwrap().next(id(1), Vec::new());
    let why = "the log was opened read-only";
    assert_eq!(log.append(commit).await, Err(AppendError::Unavailable(why.to_owned())));
    let refused = log.blobs().put(Vec::new()).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("nothing was written: {why}"));
}

#[tokio::test]
async fn reading_needs_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let expected = format!(
        "there is no log in {}; name a data directory with --data, or start a hub to make one",
        dir.path().display()
    );
    assert_eq!(refusal(open_readonly(dir.path())), expected);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "looking leaves nothing behind");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("log.db"),
        "this is not a database, and it is longer than a header would be ".repeat(9),
    )
    .unwrap();
    let shown = dir.path().join("log.db");
    assert_eq!(
        refusal(open(dir.path(), Options::default())),
        format!("cannot open the log {}", shown.display())
    );
}

#[tokio::test]
async fn a_damaged_snapshot_is_ignored_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    let commits = append_all(&*log, &["[1]", "[2]"]).await;
    let snapshot = |number: usize| Snapshot {
        number: number as u64,
        hash: commits[number - 1].hash(),
        format: 1,
        bytes: b"state".to_vec(),
    };
    let path = dir.path().join("snapshot");
    log.put_snapshot(snapshot(2)).await.unwrap();
    let sound = fs::read(&path).unwrap();
    for n in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[n] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(log.snapshot(1).await.unwrap(), None, "byte {n} is damaged");
        fs::write(&path, &sound[..n]).unwrap();
        assert_eq!(log.snapshot(1).await.unwrap(), None, "only {n} bytes are left");
    }
    log.put_snapshot(snapshot(1)).await.unwrap();
    assert_eq!(log.snapshot(1).await.unwrap(), Some(snapshot(1)), "a damaged one is not newer");
}

#[tokio::test]
async fn unfinished_files_are_removed_when_the_log_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), Options::default()).unwrap());
    let unfinished = dir.path().join("log.unfinished").join("1-1");
    fs::write(&unfinished, "half a bl").unwrap();
    drop(open(dir.path(), Options::default()).unwrap());
    assert!(!unfinished.exists());
}

#[tokio::test]
async fn appends_that_queue_up_share_a_transaction() {
    const N: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let log = Sqlite::open(dir.path()).unwrap();
    let transcript = TranscriptName::new("a.b").unwrap();
    let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
    // While a stranger holds the lock everything queues up behind the first append.
    let stranger = connect(dir.path());
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut recording = (1..=N)
        .map(|n| unconstrained(log.transcripts().append(&transcript, n.to_string().into_bytes())))
        .collect::<Vec<_>>();
    for record in &mut recording {
        assert!(record.now_or_never().is_none());
    }
    let mut committing = unconstrained(log.append(commit.clone()));
    assert!((&mut committing).now_or_never().is_none());
    drop(stranger);

    let (numbers, committed) = tokio::join!(join_all(recording), committing);
    assert_eq!(
        numbers.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        (1..=N).collect::<Vec<_>>()
    );
    assert_eq!(committed, Ok(()));
    // One for what was there when the writer woke, one for the rest; a busy machine may wake it once more between.
    assert!(log.n_transactions() <= 5, "{} transactions", log.n_transactions());
}

#[tokio::test]
async fn a_failing_statement_stores_nothing_and_the_log_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let log = Sqlite::open(dir.path()).unwrap();
    let first = append(&log, "[1]").await;
    execute(
        dir.path(),
        "CREATE TRIGGER fault_commits BEFORE INSERT ON commits BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END",
    );
    let second = Head::of(&first).next(id(2), b"[2]".to_vec());
    assert_eq!(
        log.append(second.clone()).await,
        Err(AppendError::Unavailable("the disk is full".to_owned()))
    );
    assert_eq!(log.head().await.unwrap(), Head::of(&first));
    execute(dir.path(), MEND);
    assert_eq!(log.append(second.clone()).await, Ok(()));
    assert_eq!(all(&log).await, [first, second]);
}

#[tokio::test]
async fn a_failing_commit_that_can_be_settled_is_answered_truthfully() {
    let dir = tempfile::tempdir().unwrap();
    let log = Sqlite::open(dir.path()).unwrap();
    let first = append(&log, "[1]").await;
    break_commit(dir.path(), "commits", "INSERT");
    let second = Head::of(&first).next(id(2), b"[2]".to_vec());
    let refused = Err(AppendError::Unavailable("FOREIGN KEY constraint failed".to_owned()));
    assert_eq!(log.append(second.clone()).await, refused);
    assert_eq!(settle(&log, &second).await.unwrap(), Settled::NotStored);
    execute(dir.path(), MEND);
    assert_eq!(log.append(second.clone()).await, Ok(()));
    assert_eq!(all(&log).await, [first, second]);
}

#[tokio::test]
async fn a_failing_commit_that_cannot_be_settled_is_unknown_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let log = Sqlite::open(dir.path()).unwrap();
    let first = append(&log, "[1]").await;
    break_commit(dir.path(), "commits", "INSERT");
    break_commit(dir.path(), "repairs", "UPDATE");
    let second = Head::of(&first).next(id(2), b"[2]".to_vec());
    let answer = log.append(second.clone()).await;
    assert!(matches!(answer, Err(AppendError::Unknown(_))), "{answer:?}");
    // In doubt, nobody is told a head, and nothing more is written.
    let error = settle(&log, &second).await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    let answer = log.append(second.clone()).await;
    assert!(matches!(answer, Err(AppendError::Unavailable(_))), "{answer:?}");

    execute(dir.path(), MEND);
    assert_eq!(settle(&log, &second).await.unwrap(), Settled::NotStored);
    assert_eq!(log.append(second.clone()).await, Ok(()));
    assert_eq!(all(&log).await, [first, second]);
}

/// SQLite itself would take the damage for the end of what was written, and open the log without a word.
#[tokio::test]
async fn a_log_whose_end_is_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    append_all(&*log, &["[1]", "[2]", "[3]"]).await;
    let killed = tempfile::tempdir().unwrap();
    for name in ["engine", "log.db", "log.db-wal", "acknowledged"] {
        fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
    }
    let wal = killed.path().join("log.db-wal");
    let sound = fs::read(&wal).unwrap();
    let mut damaged = sound.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&wal, &damaged).unwrap();

    let shown = killed.path().display();
    assert_eq!(
        refusal(open(killed.path(), Options::default())),
        format!(
            "the log in {shown} has lost its end: commit 3 was acknowledged, but the log ends at commit 2; restore it from \
             a backup, or, to go on with what is left, remove {shown}/acknowledged"
        )
    );
    let looked_at = verify(&*open_readonly(killed.path()).unwrap(), None).await.unwrap_err();
    assert_eq!(looked_at.to_string(), "cannot find the end of the log");
    assert_eq!(fs::read(&wal).unwrap(), damaged, "what is left is left alone");
    fs::write(&wal, &sound).unwrap();
    assert_eq!(all(&*open(killed.path(), Options::default()).unwrap()).await.len(), 3);
}

#[tokio::test]
async fn a_log_that_was_closed_is_all_in_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    append(&*log, "[1]").await;
    assert_eq!(all(&*log).await.len(), 1);
    drop(log);
    assert!(!dir.path().join("log.db-wal").exists());
}

#[tokio::test]
async fn a_record_that_is_not_what_was_stored_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    let transcript = TranscriptName::new("a.b").unwrap();
    for text in ["one", "two", "three"] {
        log.transcripts().append(&transcript, text.into()).await.unwrap();
    }
    for harm in [
        "UPDATE transcripts SET record = zeroblob(11) WHERE number = 2",
        "UPDATE transcripts SET record = (SELECT record FROM transcripts WHERE number = 1) WHERE number = 2",
        "DELETE FROM transcripts WHERE number = 2",
    ] {
        execute(dir.path(), harm);
        let sound = log.transcripts().read(&transcript, 0, 10).await.unwrap();
        assert_eq!(sound.len(), 1, "what is before the damage is delivered");
        let refused = log.transcripts().read(&transcript, 1, 10).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "record 2 of the transcript a.b is damaged or missing; restore it from a backup"
        );
    }
}

#[tokio::test]
async fn a_location_names_the_engine_or_takes_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?network=accept", dir.path().display());
    let location = Location::parse(&url).unwrap().expect("it is a URL");
    let made = open_at(&location).await.unwrap();
    let commits = append_all(&*made, &["[1]"]).await;
    drop(made);
    let opened = open_at(&Location::of(dir.path())).await.unwrap();
    assert_eq!(all(&*opened).await, commits);
    let refused = refusal(open_at(&location).await);
    assert!(refused.contains("is in use by process"), "{refused}");
}
