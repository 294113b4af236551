//! Verifying logs that somebody harmed behind the engine's back; with the SQLite engine, since its file can be edited.

use teamster_log::sqlite::Sqlite;
use teamster_log::{Commit, Head, verify};

use crate::append_all;
use crate::sqlite::execute;

/// Harms a log of five commits with `sql`, verifies it against the export that `exported` makes of them, and expects
/// `expected` as the first broken commit. In its text `#` stands for any hash.
async fn check(
    sql: &str,
    exported: impl FnOnce(&[Commit]) -> Option<Head>,
    expected: Option<(u64, &str)>,
) {
    let dir = tempfile::tempdir().unwrap();
    let log = Sqlite::open(dir.path()).unwrap();
    let commits = append_all(&log, &["[1]", "[2]", "[3]", "[4]", "[5]"]).await;
    execute(dir.path(), sql);
    let report = verify(&log, exported(&commits)).await.unwrap();
    let broken = report.broken.map(|broken| (broken.number, without_hashes(&broken.why)));
    assert_eq!(broken, expected.map(|(number, why)| (number, why.to_owned())), "after {sql}");
    let n_sound = expected.map_or(5, |(number, _)| usize::try_from(number).unwrap() - 1);
    assert_eq!(
        report.sound,
        commits[..n_sound].last().map_or(Head::EMPTY, Head::of),
        "after {sql}"
    );
}

fn without_hashes(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_ascii_hexdigit());
    words
        .map(|word| if word.len() >= 64 { format!("#{}", &word[64..]) } else { word.to_owned() })
        .collect()
}

#[tokio::test]
async fn rot_is_found_with_the_number_of_the_commit() {
    let recorded = "its hash is #, but # was recorded";
    check("UPDATE commits SET body = '[7]' WHERE number = 1", |_| None, Some((1, recorded))).await;
    check("UPDATE commits SET body = '[7]' WHERE number = 3", |_| None, Some((3, recorded))).await;
    check(
        "UPDATE commits SET body = CAST(x'5bff5d' AS TEXT) WHERE number = 3",
        |_| None,
        Some((3, recorded)),
    )
    .await;
    check("UPDATE commits SET id = zeroblob(16) WHERE number = 4", |_| None, Some((4, recorded)))
        .await;
    check("UPDATE commits SET hash = zeroblob(32) WHERE number = 2", |_| None, Some((2, recorded)))
        .await;
    check("UPDATE commits SET body = '[7]' WHERE number = 5", |_| None, Some((5, recorded))).await;
    let no_hash = "its recorded hash is not a hash";
    check("UPDATE commits SET hash = x'00' WHERE number = 2", |_| None, Some((2, no_hash))).await;
}

#[tokio::test]
async fn a_missing_commit_is_found() {
    let missing = |next: u64| format!("it is missing, though commit {next} exists");
    check("DELETE FROM commits WHERE number = 1", |_| None, Some((1, &missing(2)))).await;
    check("DELETE FROM commits WHERE number IN (2, 3)", |_| None, Some((2, &missing(4)))).await;
}

#[tokio::test]
async fn a_truncated_log_is_found_against_an_exported_head() {
    check(
        "DELETE FROM commits WHERE number > 3",
        |commits| commits.last().map(Head::of),
        Some((
            4,
            "it is missing: the log ends at commit 3, but it had 5 when its head was exported",
        )),
    )
    .await;
}

#[tokio::test]
async fn a_rewritten_log_is_found_against_an_exported_head() {
    let elsewhere = |commits: &[Commit]| {
        Some(Head::of(&Commit { body: b"[7]".to_vec(), ..commits[3].clone() }))
    };
    check("SELECT 1", elsewhere, Some((4, "its hash is #, but the exported head records #"))).await;
}

#[tokio::test]
async fn a_log_that_grew_since_its_head_was_exported_is_sound() {
    check("SELECT 1", |commits| commits.get(2).map(Head::of), None).await;
}
