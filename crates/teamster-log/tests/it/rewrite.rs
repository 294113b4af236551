//! Writing a log anew, and being interrupted anywhere in it.

use std::fs;
use std::path::Path;

use teamster_log::{
    Hash, Log, OpenError, Options, Rewrite, Snapshot, TranscriptName, open, open_readonly,
};
use tempfile::TempDir;

use crate::{all, append, append_all};

/// A directory with a log of three commits, a record, a blob and a snapshot.
async fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), Options::default()).unwrap();
    let commits = append_all(&*log, &["[1]", "[2]", "[3]"]).await;
    let transcript = TranscriptName::new("a").unwrap();
    log.transcripts().append(&transcript, b"old".to_vec()).await.unwrap();
    log.blobs().put(b"old".to_vec()).await.unwrap();
    let snapshot =
        Snapshot { number: 3, hash: commits[2].hash(), format: 1, bytes: b"old".to_vec() };
    log.put_snapshot(snapshot).await.unwrap();
    dir
}

async fn begin(dir: &Path) -> Rewrite {
    let rewrite = Rewrite::begin(dir, Options::default()).unwrap();
    assert_eq!(rewrite.old().head().await.unwrap().number, 3);
    append_all(rewrite.new_log(), &["[\"new\"]"]).await;
    let transcript = TranscriptName::new("a").unwrap();
    rewrite.new_log().transcripts().append(&transcript, b"new".to_vec()).await.unwrap();
    rewrite.new_log().blobs().put(b"new".to_vec()).await.unwrap();
    rewrite
}

/// Returns the bodies, the record, whether each blob is there, and whether there is a snapshot.
async fn contents(log: &dyn Log) -> (Vec<String>, String, [bool; 2], bool) {
    let bodies = all(log).await.into_iter().map(|commit| String::from_utf8(commit.body).unwrap());
    let record = log.transcripts().read(&TranscriptName::new("a").unwrap(), 0, 9).await.unwrap();
    let has = async |bytes: &[u8]| log.blobs().get(Hash::of(bytes)).await.unwrap().is_some();
    (
        bodies.collect(),
        String::from_utf8(record[0].bytes.clone()).unwrap(),
        [has(b"old").await, has(b"new").await],
        log.snapshot(1).await.unwrap().is_some(),
    )
}

async fn assert_old(dir: &Path) {
    let log = open(dir, Options::default()).unwrap();
    let bodies = ["[1]", "[2]", "[3]"].map(str::to_owned).to_vec();
    assert_eq!(contents(&*log).await, (bodies, "old".to_owned(), [true, false], true));
    append(&*log, "[4]").await;
}

async fn assert_new(dir: &Path) {
    let log = open(dir, Options::default()).unwrap();
    let bodies = vec!["[\"new\"]".to_owned()];
    assert_eq!(contents(&*log).await, (bodies, "new".to_owned(), [false, true], false));
    append(&*log, "[2]").await;
    for left in ["log.rewrite", "log.rewritten"] {
        assert!(!dir.join(left).exists(), "{left}");
    }
}

#[tokio::test]
async fn a_rewritten_log_takes_the_place_of_the_old_one() {
    let dir = directory().await;
    begin(dir.path()).await.finish().unwrap();
    assert_new(dir.path()).await;
}

#[tokio::test]
async fn a_rewrite_that_is_given_up_leaves_the_old_log() {
    let dir = directory().await;
    drop(begin(dir.path()).await);
    assert!(dir.path().join("log.rewrite").exists());
    assert_old(dir.path()).await;
    assert!(!dir.path().join("log.rewrite").exists());
}

/// Each step leaves the directory as a crash right after it would; the next who opens it does the rest.
#[tokio::test]
async fn a_rewrite_that_was_settled_is_completed_by_whoever_comes_next() {
    type Step = fn(&Path);
    let steps: [(&str, Step); 5] = [
        ("settled", |dir| {
            fs::rename(dir.join("log.rewrite"), dir.join("log.rewritten")).unwrap();
        }),
        ("stale files removed", |dir| {
            fs::remove_file(dir.join("snapshot")).unwrap();
            fs::remove_file(dir.join("acknowledged")).unwrap();
        }),
        ("database moved", |dir| {
            fs::rename(dir.join("log.rewritten/log.db"), dir.join("log.db")).unwrap();
        }),
        ("note moved", |dir| {
            fs::rename(dir.join("log.rewritten/acknowledged"), dir.join("acknowledged")).unwrap();
        }),
        ("blobs removed", |dir| fs::remove_dir_all(dir.join("blobs")).unwrap()),
    ];
    for n in 1..=steps.len() {
        let dir = directory().await;
        drop(begin(dir.path()).await);
        for (_, step) in &steps[..n] {
            step(dir.path());
        }
        eprintln!("interrupted after: {}", steps[n - 1].0);
        assert_new(dir.path()).await;
    }
}

#[tokio::test]
async fn only_a_log_can_be_rewritten_and_only_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Rewrite::begin(dir.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::NoLog { .. })));
    let dir = directory().await;
    let rewrite = begin(dir.path()).await;
    let refused = Rewrite::begin(dir.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    let log = open_readonly(dir.path()).unwrap();
    assert_eq!(log.head().await.unwrap().number, 3, "readers see the old log until it is settled");
    rewrite.finish().unwrap();
    assert_new(dir.path()).await;
}
