//! A disk that fills up, fails, or forgets: nothing acknowledged is lost, nothing false is told.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

mod errors;
mod full;
mod rot;

use std::path::Path;

use teamster_log::Options;

use crate::history::{Fault, Operation, Outcome, Shown, check};

/// Reads a number from the environment: how much to do, or which seed to play.
#[expect(clippy::disallowed_methods, reason = "budgets and seeds come from the environment")]
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a budget is a number"))
}

/// Opens the log of a hub that has ended, as the next hub would, and returns what is wrong with it.
async fn faults_after(data: &Path, operations: &[Operation]) -> Vec<Fault> {
    match teamster_log::open(data, Options::default()) {
        Ok(log) => check(operations, &Shown::read(log.as_ref()).await),
        Err(error) => vec![Fault::Contradiction(format!("the log does not open: {error}"))],
    }
}

/// Returns how many were acknowledged, how many refused, and of how many nothing was heard.
fn tally(operations: &[Operation]) -> (usize, usize, usize) {
    let count = |of: fn(&Outcome) -> bool| operations.iter().filter(|one| of(&one.outcome)).count();
    (
        count(|outcome| matches!(outcome, Outcome::Ok { .. })),
        count(|outcome| matches!(outcome, Outcome::Failed)),
        count(|outcome| matches!(outcome, Outcome::Unknown)),
    )
}

/// Returns the operations as a client would remember them that takes every answer for an acknowledgement.
fn believing_everything(operations: &[Operation]) -> Vec<Operation> {
    let mut operations = operations.to_vec();
    for operation in &mut operations {
        if operation.outcome == Outcome::Failed {
            operation.outcome = Outcome::Ok { answer: String::new() };
        }
    }
    operations
}
