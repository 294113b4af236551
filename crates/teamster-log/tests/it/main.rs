//! The engines as the hub sees them: through the trait, and through what they leave on disk.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, which clippy does not recognise as tests"
)]

mod conformance;
mod memory;
mod rewrite;
mod sqlite;
mod verify;

use teamster_log::{Commit, CommitId, Head, Log};

/// An id that tests can tell apart.
fn id(n: u8) -> CommitId {
    CommitId([n; 16])
}

/// Appends a commit with this body and returns it.
async fn append(log: &dyn Log, body: &str) -> Commit {
    let head = log.head().await.unwrap();
    let commit = head.next(id(u8::try_from(head.number % 251).unwrap() + 1), body.into());
    log.append(commit.clone()).await.unwrap();
    commit
}

async fn append_all(log: &dyn Log, bodies: &[&str]) -> Vec<Commit> {
    let mut commits = Vec::new();
    for body in bodies {
        commits.push(append(log, body).await);
    }
    commits
}

/// Returns every commit of a log.
async fn all(log: &dyn Log) -> Vec<Commit> {
    let mut commits = Vec::new();
    loop {
        let page = log.read(commits.len() as u64, 7).await.unwrap();
        if page.is_empty() {
            return commits;
        }
        commits.extend(page);
    }
}

/// A commit that extends `head` and is not like those of [`append`].
fn foreign(head: &Head, body: &str) -> Commit {
    head.next(id(255), body.into())
}
