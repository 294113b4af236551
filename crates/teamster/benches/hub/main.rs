//! How fast the hub is, and how small: `cargo bench -p teamster --bench hub`.
//!
//! It measures the real program on a real disk, and in the same rounds, in turn, what it is compared with. Results are
//! medians of rounds. What a machine or a moment is good for shows in all of them, so ratios are what counts:
//! `goals.rs` has those that are to be kept. `docs/performance.md` says what the names mean.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program that starts servers, reads the time and prints; where a server fails there is nothing to measure"
)]

mod alone;
mod append;
mod calls;
mod client;
mod connection;
mod drafts;
mod echo;
mod goals;
mod growth;
mod history;
mod iterations;
mod load;
mod machine;
mod plot;
mod process;
mod report;
mod results;
mod size;
mod start;
mod sync;
mod tells;
mod transcripts;
mod waits;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::echo::Echo;
use crate::results::Results;

/// Measures the hub
#[derive(Debug, Parser)]
struct Arguments {
    /// Only what carries a ratio, in about a minute; fails if a ratio is far off its goal
    #[arg(long)]
    short: bool,

    /// Only measurements whose name begins so
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,

    /// How often everything is measured [default: 5, or 3 if short]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Puts the tables and the plot into docs/
    #[arg(long, conflicts_with_all = ["short", "only"])]
    write_docs: bool,

    /// How the bench starts what the hub is compared with
    #[arg(long, hide = true)]
    serve: Option<Echo>,

    /// What cargo passes to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What a measurement needs, and where its results go.
pub(crate) struct Bench {
    pub(crate) results: Results,
    pub(crate) short: bool,
    /// Where data and results are: on the disk that cargo builds on.
    pub(crate) directory: PathBuf,
}

/// Something that is measured by itself, once in every round.
struct Measurement {
    name: String,
    /// Whether it is part of the short form: it carries a ratio that is to be kept.
    in_short: bool,
    measure: Box<dyn Fn(&mut Bench)>,
}

fn measurements() -> Vec<Measurement> {
    let calls = calls::CONNECTIONS.into_iter().map(|n| Measurement {
        name: format!("calls_{n}"),
        in_short: n == 32,
        measure: Box::new(move |bench| calls::measure(bench, n)),
    });
    let other = |name: &str, in_short, measure: fn(&mut Bench)| Measurement {
        name: name.to_owned(),
        in_short,
        measure: Box::new(measure),
    };
    let others = [
        other("alone", true, alone::measure),
        other("growth", true, growth::measure),
        other("transcript", true, transcripts::measure),
        other("append", true, append::measure),
        other("draft", true, drafts::measure),
        other("tell", true, tells::measure),
        other("iteration", true, iterations::measure),
        other("idle_agents", false, drafts::measure_idle),
        other("wake", false, waits::measure_wake),
        other("start", false, start::measure),
        other("parked", false, waits::measure_parked),
        other("size", false, size::measure),
    ];
    calls.chain(others).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(echo) = arguments.serve {
        echo::serve(echo);
        return ExitCode::SUCCESS;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in target/");
    let directory = target.join("bench");
    std::fs::create_dir_all(&directory).expect("a directory for results");
    allow_many_files();
    let machine = machine::describe(&directory);
    let rounds = arguments.rounds.unwrap_or(if arguments.short { 3 } else { 5 });
    let mut bench = Bench { results: Results::default(), short: arguments.short, directory };
    let measurements =
        measurements().into_iter().filter(|Measurement { name, in_short, .. }| {
            let asked = arguments.only.as_ref().is_none_or(|prefix| name.starts_with(prefix));
            asked && (*in_short || !arguments.short)
        });
    let measurements: Vec<Measurement> = measurements.collect();
    for round in 1..=rounds {
        for Measurement { name, measure, .. } in &measurements {
            eprintln!("round {round} of {rounds}: {name}");
            measure(&mut bench);
        }
    }
    let Bench { results, directory, .. } = bench;
    let before = results.keep(&directory);
    let tables = report::tables(&results, &machine);
    println!("{tables}\n{}", report::changes(&results, &before));
    if arguments.write_docs {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        report::write_page(&docs.join("performance.md"), &tables);
        let svg = plot::svg(&results).expect("everything was measured");
        std::fs::write(docs.join("performance.svg"), svg).expect("the plot can be written");
    }
    let far_off = goals::far_off(&results);
    if arguments.short && !far_off.is_empty() {
        for goal in far_off {
            eprintln!("error: {} is far off its goal of {}", goal.name, goal.goal);
        }
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A thousand calls that wait are as many connections, more than some systems allow at first.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the maximum");
}
