//! What every engine must do. A new engine implements [`Rig`] and adds `conformance!(ItsRig);` to its own tests.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use teamster_log::memory::{Memory, Store};
use teamster_log::{
    AppendError, Commit, CommitId, Edit, EditError, Error, Extent, Hash, Head, Log, MAX_BODY_BYTES,
    MAX_PAGE_BYTES, MAX_RECORD_BYTES, Record, Settled, Snapshot, TranscriptName, Verbatim, copy,
    settle, verify,
};

use crate::{all, append, append_all, foreign, id};

/// An engine with an empty log, and a way to harm it.
pub(crate) trait Rig {
    fn new() -> Self;
    fn log(&self) -> Arc<dyn Log>;
    fn damage_blob(&self, hash: Hash);
}

/// Runs the whole suite for one engine.
macro_rules! conformance {
    ($rig:ty) => {
        $crate::conformance::suite! {
            $rig:
            an_empty_log_has_no_commits
            appended_commits_are_read_back_in_order
            the_head_is_the_last_commit
            a_commit_with_a_wrong_number_is_a_conflict
            a_commit_with_a_wrong_prev_is_a_conflict
            a_commit_appended_twice_is_a_conflict_with_itself
            a_commit_that_is_too_large_is_refused
            a_commit_of_the_largest_size_is_stored
            a_body_may_be_any_text_and_nothing_else
            a_page_is_bounded_by_its_limit_and_its_bytes
            commits_queued_together_are_each_checked_against_the_head_as_it_is_then
            a_tail_catches_up_and_goes_on_without_gaps
            a_tail_wakes_on_an_append
            racing_appenders_never_lose_or_repeat_a_commit
            settling_finds_what_became_of_a_commit
            the_newest_snapshot_wins
            a_snapshot_of_another_format_is_not_offered
            a_snapshot_of_another_history_is_not_offered
            transcripts_keep_their_order_and_are_separate
            a_transcript_is_read_by_page
            a_record_that_is_too_large_is_refused
            forgotten_records_are_gone_and_their_numbers_with_them
            a_copy_of_what_is_left_keeps_its_numbers
            blobs_are_found_by_their_hash
            a_damaged_blob_is_reported_and_mended_by_storing_it_again
            a_sound_log_verifies
            conversations_and_blobs_are_listed_by_page
            a_copy_has_everything_and_the_same_hashes
            a_copy_may_be_edited
            nothing_is_copied_into_a_log_that_has_something
        }
    };
}

macro_rules! suite {
    ($rig:ty: $($test:ident)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                $crate::conformance::$test(&<$rig as $crate::conformance::Rig>::new()).await;
            }
        )*
    };
}

pub(crate) use {conformance, suite};

pub(crate) async fn an_empty_log_has_no_commits(rig: &impl Rig) {
    let log = rig.log();
    assert_eq!(log.head().await.unwrap(), Head::EMPTY);
    assert_eq!(log.read(0, 10).await.unwrap(), []);
    assert_eq!(log.read(7, 10).await.unwrap(), []);
    assert_eq!(log.snapshot(1).await.unwrap(), None);
}

pub(crate) async fn appended_commits_are_read_back_in_order(rig: &impl Rig) {
    let log = rig.log();
    let commits = append_all(&*log, &["[1]", "[2]", "[3]"]).await;
    assert_eq!(commits.iter().map(|commit| commit.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(log.read(0, 10).await.unwrap(), commits);
    assert_eq!(log.read(1, 10).await.unwrap(), commits[1..]);
    assert_eq!(log.read(2, 1).await.unwrap(), commits[2..]);
    assert_eq!(log.read(3, 10).await.unwrap(), []);
    assert_eq!(log.read(u64::MAX, 10).await.unwrap(), []);
}

pub(crate) async fn the_head_is_the_last_commit(rig: &impl Rig) {
    let log = rig.log();
    for body in ["[1]", "[2]"] {
        let commit = append(&*log, body).await;
        assert_eq!(log.head().await.unwrap(), Head::of(&commit));
    }
}

pub(crate) async fn a_commit_with_a_wrong_number_is_a_conflict(rig: &impl Rig) {
    let log = rig.log();
    append_all(&*log, &["[1]", "[2]"]).await;
    let head = log.head().await.unwrap();
    for number in [0, 1, 2, 4, u64::MAX] {
        let commit = Commit { number, ..foreign(&head, "[]") };
        assert_eq!(
            log.append(commit).await,
            Err(AppendError::Conflict { head }),
            "number {number}"
        );
    }
    assert_eq!(log.head().await.unwrap(), head);
}

pub(crate) async fn a_commit_with_a_wrong_prev_is_a_conflict(rig: &impl Rig) {
    let log = rig.log();
    let first = Commit { prev: Hash([1; 32]), ..foreign(&Head::EMPTY, "[]") };
    assert_eq!(log.append(first).await, Err(AppendError::Conflict { head: Head::EMPTY }));
    append(&*log, "[1]").await;
    let head = log.head().await.unwrap();
    let second = Commit { prev: Hash::ZERO, ..foreign(&head, "[]") };
    assert_eq!(log.append(second).await, Err(AppendError::Conflict { head }));
    assert_eq!(log.head().await.unwrap(), head);
}

pub(crate) async fn a_commit_appended_twice_is_a_conflict_with_itself(rig: &impl Rig) {
    let log = rig.log();
    let commit = append(&*log, "[1]").await;
    assert_eq!(
        log.append(commit.clone()).await,
        Err(AppendError::Conflict { head: Head::of(&commit) })
    );
    assert_eq!(all(&*log).await, [commit]);
}

pub(crate) async fn a_commit_that_is_too_large_is_refused(rig: &impl Rig) {
    let log = rig.log();
    let commit = Head::EMPTY.next(id(1), vec![b' '; MAX_BODY_BYTES + 1]);
    assert_eq!(log.append(commit).await, Err(AppendError::TooLarge { max_bytes: MAX_BODY_BYTES }));
    assert_eq!(log.head().await.unwrap(), Head::EMPTY);
}

pub(crate) async fn a_commit_of_the_largest_size_is_stored(rig: &impl Rig) {
    let log = rig.log();
    let commit = Head::EMPTY.next(id(1), vec![b' '; MAX_BODY_BYTES]);
    log.append(commit.clone()).await.unwrap();
    assert!(all(&*log).await == [commit], "the body changed");
}

pub(crate) async fn a_body_may_be_any_text_and_nothing_else(rig: &impl Rig) {
    let log = rig.log();
    let commits = append_all(
        &*log,
        &["", "𝄞 für Ёлка \u{202e}\u{feff}", "a\0b\0", "line\r\nline\n", "'\";--"],
    )
    .await;
    assert_eq!(all(&*log).await, commits);
    let head = log.head().await.unwrap();
    let commit = head.next(id(9), vec![b'"', 0xff, b'"']);
    assert_eq!(log.append(commit).await, Err(AppendError::NotText));
    assert_eq!(log.head().await.unwrap(), head);
}

pub(crate) async fn a_page_is_bounded_by_its_limit_and_its_bytes(rig: &impl Rig) {
    let log = rig.log();
    let third = "x".repeat(MAX_PAGE_BYTES / 3);
    let whole = "y".repeat(MAX_PAGE_BYTES + 1);
    append_all(&*log, &["a", &third, &third, &third, &whole, "b", "c"]).await;
    let mut pages = Vec::new();
    let mut after = 0;
    loop {
        let page = log.read(after, 2 + pages.len()).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.number;
        pages.push(page.iter().map(|commit| commit.number).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec![1, 2], vec![3, 4], vec![5], vec![6, 7]]);
    assert_eq!(log.read(0, 0).await.unwrap(), []);
}

pub(crate) async fn commits_queued_together_are_each_checked_against_the_head_as_it_is_then(
    rig: &impl Rig,
) {
    let log = rig.log();
    let first = Head::EMPTY.next(id(1), b"[1]".to_vec());
    let rival = Head::EMPTY.next(id(2), b"[2]".to_vec());
    let second = Head::of(&first).next(id(3), b"[3]".to_vec());
    let answers =
        join_all([&first, &rival, &second].map(|commit| log.append(commit.clone()))).await;
    assert_eq!(answers, [Ok(()), Err(AppendError::Conflict { head: Head::of(&first) }), Ok(())]);
    assert_eq!(all(&*log).await, [first, second]);
}

pub(crate) async fn a_tail_catches_up_and_goes_on_without_gaps(rig: &impl Rig) {
    const N: usize = 300;
    let log = rig.log();
    append_all(&*log, &["early"; 50]).await;
    let appending = async {
        for n in 50..N {
            append(&*log, &n.to_string()).await;
        }
    };
    // One from the beginning, one from the middle of what is there, one from what is not there yet.
    let tailing = join_all([0, 30, 60].map(|after| {
        let expected = N - usize::try_from(after).unwrap();
        log.tail(after).map(Result::unwrap).take(expected).collect::<Vec<_>>()
    }));
    let (tails, ()) = tokio::join!(tailing, appending);
    let commits = all(&*log).await;
    assert_eq!(commits.len(), N);
    for (tail, after) in tails.iter().zip([0, 30, 60]) {
        assert_eq!(tail, &commits[after..], "the tail after {after}");
    }
}

pub(crate) async fn a_tail_wakes_on_an_append(rig: &impl Rig) {
    let log = rig.log();
    let mut tail = log.tail(0);
    for body in ["[1]", "[2]"] {
        let (seen, commit) = tokio::join!(tail.next(), append(&*log, body));
        assert_eq!(seen.unwrap().unwrap(), commit);
    }
    assert!(tail.next().now_or_never().is_none(), "there is nothing more");
}

pub(crate) async fn racing_appenders_never_lose_or_repeat_a_commit(rig: &impl Rig) {
    let log = rig.log();
    let appenders = (0..8_u8).map(|appender| {
        let log = log.clone();
        async move {
            for n in 0..20_u8 {
                let mut head = log.head().await.unwrap();
                let mut id = [appender; 16];
                id[0] = n;
                while let Err(error) =
                    log.append(head.next(CommitId(id), vec![b'0' + appender])).await
                {
                    let AppendError::Conflict { head: now } = error else { panic!("{error}") };
                    head = now;
                }
            }
        }
    });
    join_all(appenders).await;
    let commits = all(&*log).await;
    for appender in 0..8_u8 {
        let theirs = commits.iter().filter(|commit| commit.body == [b'0' + appender]);
        assert_eq!(
            theirs.map(|commit| commit.id.0[0]).collect::<Vec<_>>(),
            (0..20).collect::<Vec<_>>()
        );
    }
    assert_eq!(verify(&*log, None).await.unwrap().broken, None);
}

pub(crate) async fn settling_finds_what_became_of_a_commit(rig: &impl Rig) {
    let log = rig.log();
    append(&*log, "[1]").await;
    let head = log.head().await.unwrap();
    let ours = head.next(id(7), b"[\"ours\"]".to_vec());
    let theirs = foreign(&head, "[\"theirs\"]");
    assert_eq!(settle(&*log, &ours).await.unwrap(), Settled::NotStored);
    log.append(ours.clone()).await.unwrap();
    assert_eq!(settle(&*log, &ours).await.unwrap(), Settled::Stored);
    assert_eq!(settle(&*log, &theirs).await.unwrap(), Settled::Conflict(Head::of(&ours)));
    let later = append(&*log, "[3]").await;
    assert_eq!(settle(&*log, &ours).await.unwrap(), Settled::Stored, "although it was extended");
    assert_eq!(settle(&*log, &theirs).await.unwrap(), Settled::Conflict(Head::of(&later)));
}

fn snapshot(commit: &Commit, format: u32) -> Snapshot {
    let bytes = format!("state after {}", commit.number).into_bytes();
    Snapshot { number: commit.number, hash: commit.hash(), format, bytes }
}

pub(crate) async fn the_newest_snapshot_wins(rig: &impl Rig) {
    let log = rig.log();
    let commits = append_all(&*log, &["[1]", "[2]", "[3]"]).await;
    for (put, expected) in [(1, 1), (2, 2), (0, 2)] {
        log.put_snapshot(snapshot(&commits[put], 1)).await.unwrap();
        assert_eq!(log.snapshot(1).await.unwrap(), Some(snapshot(&commits[expected], 1)));
    }
}

pub(crate) async fn a_snapshot_of_another_format_is_not_offered(rig: &impl Rig) {
    let log = rig.log();
    let commits = append_all(&*log, &["[1]", "[2]"]).await;
    log.put_snapshot(snapshot(&commits[1], 1)).await.unwrap();
    assert_eq!(log.snapshot(2).await.unwrap(), None);
    // An older one replaces it all the same: whoever offers it could not use the other.
    log.put_snapshot(snapshot(&commits[0], 2)).await.unwrap();
    assert_eq!(log.snapshot(2).await.unwrap(), Some(snapshot(&commits[0], 2)));
    assert_eq!(log.snapshot(1).await.unwrap(), None);
}

pub(crate) async fn a_snapshot_of_another_history_is_not_offered(rig: &impl Rig) {
    let log = rig.log();
    let commit = append(&*log, "[1]").await;
    let elsewhere = Snapshot { hash: Hash([1; 32]), ..snapshot(&commit, 1) };
    let ahead = Snapshot { number: 2, ..snapshot(&commit, 1) };
    for other in [elsewhere, ahead] {
        log.put_snapshot(other).await.unwrap();
        assert_eq!(log.snapshot(1).await.unwrap(), None);
    }
}

pub(crate) async fn transcripts_keep_their_order_and_are_separate(rig: &impl Rig) {
    let log = rig.log();
    let transcripts = log.transcripts();
    let [one, other, none] = ["a.b", "b.a", "c"].map(|name| TranscriptName::new(name).unwrap());
    let mut numbers = Vec::new();
    for (transcript, text) in [(&one, "hello"), (&other, "hi"), (&one, "\0\u{fe}"), (&one, "")] {
        numbers.push(transcripts.append(transcript, text.into()).await.unwrap());
    }
    assert_eq!(numbers, [1, 1, 2, 3]);
    let record = |number, text: &str| Record { number, bytes: text.into() };
    assert_eq!(
        transcripts.read(&one, 0, 10).await.unwrap(),
        [record(1, "hello"), record(2, "\0\u{fe}"), record(3, "")]
    );
    assert_eq!(transcripts.read(&other, 0, 10).await.unwrap(), [record(1, "hi")]);
    assert_eq!(transcripts.read(&none, 0, 10).await.unwrap(), []);
    assert_eq!(log.head().await.unwrap(), Head::EMPTY, "records are not commits");
}

pub(crate) async fn a_transcript_is_read_by_page(rig: &impl Rig) {
    let log = rig.log();
    let transcripts = log.transcripts();
    let transcript = TranscriptName::new("a.b").unwrap();
    let large = vec![0; MAX_RECORD_BYTES];
    for n in 0..10_u8 {
        let bytes = if n < 5 { large.clone() } else { vec![n] };
        transcripts.append(&transcript, bytes).await.unwrap();
    }
    let mut pages = Vec::new();
    for (after, limit) in [(0, 100), (4, 3), (7, 100), (10, 100), (u64::MAX, 1), (0, 0)] {
        let page = transcripts.read(&transcript, after, limit).await.unwrap();
        pages.push(page.iter().map(|record| record.number).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec![1, 2, 3, 4], vec![5, 6, 7], vec![8, 9, 10], vec![], vec![], vec![]]);
}

pub(crate) async fn a_record_that_is_too_large_is_refused(rig: &impl Rig) {
    let log = rig.log();
    let transcript = TranscriptName::new("a.b").unwrap();
    let refusal =
        log.transcripts().append(&transcript, vec![0; MAX_RECORD_BYTES + 1]).await.unwrap_err();
    assert_eq!(refusal.to_string(), "a transcript record holds at most 1048576 bytes");
    assert_eq!(log.transcripts().read(&transcript, 0, 1).await.unwrap(), []);
}

pub(crate) async fn forgotten_records_are_gone_and_their_numbers_with_them(rig: &impl Rig) {
    let log = rig.log();
    let transcripts = log.transcripts();
    let [one, other] = ["a.b", "a.b.c"].map(|name| TranscriptName::new(name).unwrap());
    assert_eq!(transcripts.extent(&one).await.unwrap(), Extent::default());
    // More than go at once.
    let all = (0..4_500).map(|n: u32| transcripts.append(&one, n.to_string().into_bytes()));
    assert!(join_all(all).await.iter().all(Result::is_ok));
    transcripts.append(&other, b"hi".to_vec()).await.unwrap();
    for (up_to, forgotten) in [(0, 0), (1, 1), (4_400, 4_400), (3, 4_400)] {
        transcripts.forget(&one, up_to).await.unwrap();
        assert_eq!(transcripts.extent(&one).await.unwrap(), Extent { forgotten, last: 4_500 });
    }
    let numbers = async |log: &dyn Log, after| {
        let page = log.transcripts().read(&one, after, 1_000).await.unwrap();
        let number =
            |record: &Record| (record.number, String::from_utf8_lossy(&record.bytes).len());
        (page.first().map(number), page.len())
    };
    for after in [0, 17, 4_400] {
        assert_eq!(numbers(&*log, after).await, (Some((4_401, 4)), 100), "after {after}");
    }
    assert_eq!(numbers(&*log, 4_499).await, (Some((4_500, 4)), 1));
    // All of them, and what comes then goes on counting, also for whoever opens the log again.
    transcripts.forget(&one, 4_500).await.unwrap();
    assert_eq!(numbers(&*log, 0).await, (None, 0));
    drop(log);
    let log = rig.log();
    let transcripts = log.transcripts();
    assert_eq!(transcripts.append(&one, b"later".to_vec()).await.unwrap(), 4_501);
    assert_eq!(numbers(&*log, 0).await, (Some((4_501, 5)), 1));
    assert_eq!(transcripts.read(&other, 0, 9).await.unwrap().len(), 1);
    assert_eq!(transcripts.names(None, 9).await.unwrap(), [one.clone(), other]);
    assert_eq!(verify(&*log, None).await.unwrap().damage, None);
}

pub(crate) async fn a_copy_of_what_is_left_keeps_its_numbers(rig: &impl Rig) {
    let log = rig.log();
    let [some, none] = ["some", "none"].map(|name| TranscriptName::new(name).unwrap());
    for transcript in [&some, &none] {
        for text in ["1", "2", "3"] {
            log.transcripts().append(transcript, text.into()).await.unwrap();
        }
    }
    log.transcripts().forget(&some, 2).await.unwrap();
    log.transcripts().forget(&none, 3).await.unwrap();
    let other = Memory::new(&Store::default());
    copy(&*log, &other, &mut Verbatim, &mut |_, _| {}).await.unwrap();
    let back = Memory::new(&Store::default());
    copy(&other, &back, &mut Verbatim, &mut |_, _| {}).await.unwrap();
    for copied in [&other, &back] {
        let extents = (
            copied.transcripts().extent(&some).await.unwrap(),
            copied.transcripts().extent(&none).await.unwrap(),
        );
        let left = Extent { forgotten: 2, last: 3 };
        assert_eq!(extents, (left, Extent { forgotten: 3, last: 3 }));
        let records = copied.transcripts().read(&some, 0, 9).await.unwrap();
        assert_eq!(records, [Record { number: 3, bytes: b"3".to_vec() }]);
    }
}

pub(crate) async fn blobs_are_found_by_their_hash(rig: &impl Rig) {
    let log = rig.log();
    for bytes in [b"".to_vec(), b"abc".to_vec(), vec![0xff; 100_000]] {
        let hash = Hash::of(&bytes);
        assert_eq!(log.blobs().get(hash).await.unwrap(), None);
        for _ in 0..2 {
            assert_eq!(log.blobs().put(bytes.clone()).await.unwrap(), hash);
            assert_eq!(log.blobs().get(hash).await.unwrap().as_ref(), Some(&bytes));
        }
    }
}

pub(crate) async fn a_damaged_blob_is_reported_and_mended_by_storing_it_again(rig: &impl Rig) {
    let log = rig.log();
    let hash = log.blobs().put(b"abc".to_vec()).await.unwrap();
    rig.damage_blob(hash);
    let error = log.blobs().get(hash).await.unwrap_err();
    assert!(matches!(error, Error::DamagedBlob(damaged) if damaged == hash), "{error}");
    log.blobs().put(b"abc".to_vec()).await.unwrap();
    assert_eq!(log.blobs().get(hash).await.unwrap(), Some(b"abc".to_vec()));
}

pub(crate) async fn a_sound_log_verifies(rig: &impl Rig) {
    let log = rig.log();
    let commits = append_all(&*log, &["[1]", "[2]", "[3]"]).await;
    let head = Head::of(&commits[2]);
    for exported in [None, Some(Head::EMPTY), Some(Head::of(&commits[0])), Some(head)] {
        let report = verify(&*log, exported).await.unwrap();
        assert_eq!((report.sound, report.broken), (head, None), "against {exported:?}");
    }
}

pub(crate) async fn conversations_and_blobs_are_listed_by_page(rig: &impl Rig) {
    let log = rig.log();
    let transcripts = ["a", "a.b", "b.a", "c"].map(|name| TranscriptName::new(name).unwrap());
    let mut names = Vec::new();
    for transcript in transcripts.iter().rev().chain(&transcripts) {
        log.transcripts().append(transcript, b"hi".to_vec()).await.unwrap();
        names.push(log.blobs().put(transcript.as_str().into()).await.unwrap());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4);
    for limit in 1..6 {
        let mut listed = Vec::new();
        while let page = log.transcripts().names(listed.last(), limit).await.unwrap()
            && !page.is_empty()
        {
            assert!(page.len() <= limit);
            listed.extend(page);
        }
        assert_eq!(listed, transcripts);
        let mut listed = Vec::new();
        while let page = log.blobs().names(listed.last().copied(), limit).await.unwrap()
            && !page.is_empty()
        {
            assert!(page.len() <= limit);
            listed.extend(page);
        }
        assert_eq!(listed, names);
    }
}

/// Fills a log with a bit of everything; more commits than one page has.
async fn fill(log: &dyn Log) -> Hash {
    for n in 0..1_203_u32 {
        append(log, &format!("[{n}]")).await;
    }
    for (name, text) in [("a.b", "one"), ("a.b", "two"), ("b", "three")] {
        let transcript = TranscriptName::new(name).unwrap();
        log.transcripts().append(&transcript, text.into()).await.unwrap();
    }
    log.blobs().put(b"keep".to_vec()).await.unwrap();
    log.blobs().put(b"secret".to_vec()).await.unwrap()
}

async fn records(log: &dyn Log, name: &str) -> Vec<String> {
    let transcript = TranscriptName::new(name).unwrap();
    let records = log.transcripts().read(&transcript, 0, 100).await.unwrap();
    records.into_iter().map(|record| String::from_utf8(record.bytes).unwrap()).collect()
}

pub(crate) async fn a_copy_has_everything_and_the_same_hashes(rig: &impl Rig) {
    let log = rig.log();
    let blob = fill(&*log).await;
    let into = Memory::new(&Store::default());
    let mut heard = Vec::new();
    let mut hear = |done, all| heard.push((done, all));
    let head = copy(&*log, &into, &mut Verbatim, &mut hear).await.unwrap();
    assert_eq!(head, log.head().await.unwrap());
    assert_eq!(into.head().await.unwrap(), head);
    assert_eq!(all(&into).await, all(&*log).await);
    assert_eq!(records(&into, "a.b").await, ["one", "two"]);
    assert_eq!(records(&into, "b").await, ["three"]);
    assert_eq!(into.blobs().get(blob).await.unwrap(), Some(b"secret".to_vec()));
    assert_eq!(heard.last(), Some(&(1_203, 1_203)));
}

pub(crate) async fn a_copy_may_be_edited(rig: &impl Rig) {
    /// Keeps the commits whose number ends in 7, and nothing that is secret.
    struct Sevens;
    impl Edit for Sevens {
        fn body(&mut self, commit: Commit) -> Result<Option<Vec<u8>>, EditError> {
            Ok(Some(commit.body).filter(|_| commit.number % 10 == 7))
        }
        fn record(&mut self, bytes: Vec<u8>) -> Vec<u8> {
            bytes.to_ascii_uppercase()
        }
        fn keeps_blob(&mut self, bytes: &[u8]) -> bool {
            bytes != b"secret"
        }
    }
    let source = Memory::new(&Store::default());
    let blob = fill(&source).await;
    let log = rig.log();
    let head = copy(&source, &*log, &mut Sevens, &mut |_, _| ()).await.unwrap();
    assert_eq!((head.number, log.head().await.unwrap()), (120, head));
    assert_eq!(all(&*log).await[1].body, b"[16]");
    assert_eq!(records(&*log, "a.b").await, ["ONE", "TWO"]);
    assert_eq!(log.blobs().get(blob).await.unwrap(), None);
    assert_eq!(log.blobs().names(None, 9).await.unwrap(), [Hash::of(b"keep")]);
    assert_eq!(verify(&*log, None).await.unwrap().broken, None);
}

pub(crate) async fn nothing_is_copied_into_a_log_that_has_something(rig: &impl Rig) {
    let log = rig.log();
    append(&*log, "[1]").await;
    let into = Memory::new(&Store::default());
    let other = append(&into, "[2]").await;
    let error = copy(&*log, &into, &mut Verbatim, &mut |_, _| ()).await.unwrap_err();
    assert_eq!(error.to_string(), "nothing was written: the log to copy into is not empty");
    assert_eq!(all(&into).await, [other]);
}
