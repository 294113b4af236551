//! The memory engine: the suite, and that each fault does what it says.

use std::sync::Arc;
use std::time::Duration;

use teamster_log::memory::{Fate, Faults, Memory, Store};
use teamster_log::{AppendError, Hash, Head, Log, Settled, settle};

use crate::conformance::{Rig, conformance};
use crate::{all, append, id};

struct MemoryRig(Store);

impl Rig for MemoryRig {
    fn new() -> Self {
        Self(Store::default())
    }

    fn log(&self) -> Arc<dyn Log> {
        Arc::new(Memory::new(&self.0))
    }

    fn damage_blob(&self, hash: Hash) {
        self.0.damage_blob(hash);
    }
}

conformance!(MemoryRig);

fn faulty() -> (Faults, Memory) {
    let faults = Faults::default();
    let log = Memory::with_faults(&Store::default(), &faults);
    (faults, log)
}

#[tokio::test]
async fn the_store_survives_its_handle() {
    let store = Store::default();
    let commit = append(&Memory::new(&store), "[1]").await;
    assert_eq!(all(&Memory::new(&store)).await, [commit]);
}

#[tokio::test]
async fn an_unknown_outcome_settles_as_what_happened() {
    for (fate, expected) in [
        (Fate::UnknownStored, Settled::Stored),
        (Fate::UnknownNotStored, Settled::NotStored),
        (Fate::UnknownLate, Settled::NotStored),
    ] {
        let (faults, log) = faulty();
        let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
        faults.next_append(fate.clone());
        let answer = log.append(commit.clone()).await;
        assert!(matches!(answer, Err(AppendError::Unknown(_))), "{fate:?}: {answer:?}");
        assert_eq!(settle(&log, &commit).await.unwrap(), expected, "{fate:?}");
    }
}

#[tokio::test]
async fn a_late_commit_lands_before_its_repetition_and_settles_as_stored() {
    let (faults, log) = faulty();
    let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
    faults.next_append(Fate::UnknownLate);
    log.append(commit.clone()).await.unwrap_err();
    assert_eq!(
        log.append(commit.clone()).await,
        Err(AppendError::Conflict { head: Head::of(&commit) })
    );
    assert_eq!(settle(&log, &commit).await.unwrap(), Settled::Stored);
    assert_eq!(all(&log).await, [commit]);
}

#[tokio::test]
async fn a_foreign_commit_makes_a_conflict() {
    let (faults, log) = faulty();
    let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
    let theirs = Head::EMPTY.next(id(2), b"[\"theirs\"]".to_vec());
    faults.next_append(Fate::ForeignFirst { id: theirs.id, body: theirs.body.clone() });
    assert_eq!(
        log.append(commit.clone()).await,
        Err(AppendError::Conflict { head: Head::of(&theirs) })
    );
    assert_eq!(settle(&log, &commit).await.unwrap(), Settled::Conflict(Head::of(&theirs)));
    assert_eq!(all(&log).await, [theirs]);
}

#[tokio::test]
async fn an_unavailable_log_stores_nothing_and_recovers() {
    let (faults, log) = faulty();
    let commit = Head::EMPTY.next(id(1), b"[1]".to_vec());
    faults.next_append(Fate::Unavailable);
    assert!(matches!(log.append(commit.clone()).await, Err(AppendError::Unavailable(_))));
    assert_eq!(all(&log).await, []);
    log.append(commit.clone()).await.unwrap();
    assert_eq!(all(&log).await, [commit]);
}

#[tokio::test]
async fn a_simulation_decides_what_the_script_does_not() {
    let (faults, log) = faulty();
    faults.decide(
        |commit| if commit.number.is_multiple_of(2) { Fate::Unavailable } else { Fate::Stored },
    );
    faults.next_append(Fate::UnknownNotStored);
    let first = Head::EMPTY.next(id(1), b"[1]".to_vec());
    let second = Head::of(&first).next(id(2), b"[2]".to_vec());
    assert!(matches!(log.append(first.clone()).await, Err(AppendError::Unknown(_))));
    assert_eq!(log.append(first).await, Ok(()));
    assert!(matches!(log.append(second).await, Err(AppendError::Unavailable(_))));
}

#[tokio::test]
async fn the_head_fails_as_often_as_it_is_told_to() {
    let (faults, log) = faulty();
    faults.fail_heads(2);
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(log.head().await.is_ok());
    }
    assert_eq!(answers, [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn latency_is_simulated_time() {
    let (faults, log) = faulty();
    faults.set_append_latency(Duration::from_secs(5));
    faults.set_head_latency(Duration::from_secs(2));
    let start = tokio::time::Instant::now();
    append(&log, "[1]").await;
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}
