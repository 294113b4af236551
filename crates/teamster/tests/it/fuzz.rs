//! Everything that reads what an agent sends or what lies in a file, fed with valid inputs that were changed at random.
//! Each must answer, never panic, and leave nothing behind when it refuses.
//!
//! `TEAMSTER_FUZZ=100` plays a hundred times as many cases. A failing case says how to repeat it. The editors of
//! `teamster connect` are private and have their cases in `src/cli/connect/fuzz.rs`.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

mod both_adapters;
mod door;
mod mutate;
mod settings;
mod stored;
mod tools;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::mutate::Mutator;
use crate::disk::setting;

/// Plays so many cases, each from a seed of its own, or only the one that `TEAMSTER_FUZZ_SEED` names.
#[expect(clippy::print_stdout, reason = "every harness says what it did")]
fn play(name: &str, n_cases: u64, mut case: impl FnMut(&mut Mutator)) {
    let only = setting("TEAMSTER_FUZZ_SEED");
    let n_cases = n_cases * setting("TEAMSTER_FUZZ").unwrap_or(1);
    let seeds = only.map_or(0..n_cases, |seed| seed..seed + 1);
    println!("{name}: {} cases", seeds.end - seeds.start);
    for seed in seeds {
        let played = catch_unwind(AssertUnwindSafe(|| case(&mut Mutator(seed))));
        if played.is_err() {
            panic!(
                "repeat with: TEAMSTER_FUZZ_SEED={seed} cargo test -p teamster --test it {name}"
            );
        }
    }
}
