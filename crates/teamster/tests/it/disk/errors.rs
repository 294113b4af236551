//! Every write and sync of the log fails once, in turn, or a few times in a row: strace makes the system call return an
//! error instead of doing it. `TEAMSTER_FAULT_SECONDS=600` tries them all, `TEAMSTER_SEED=7` begins with others.

#![expect(
    clippy::disallowed_methods,
    reason = "strace is a program, and a budget in seconds needs a clock"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{believing_everything, faults_after, setting, tally};
use crate::history::{Fault, History, Outcome, tell};
use crate::hub::{Hub, Mcp, command, program};
use crate::in_process::Dice;
use crate::optional::Optional;
use crate::power_loss::trace;

/// As long as `cargo test` tries.
const SECONDS: u64 = 20;
/// The system calls by which SQLite, snapshots and blobs reach the disk.
const CALLS: [&str; 5] = ["pwrite64", "fdatasync", "fsync", "ftruncate", "rename"];
const ERRORS: [&str; 2] = ["EIO", "ENOSPC"];
/// A fault that lasts: as many calls in a row as fail then.
const IN_A_ROW: u32 = 8;

/// Which call fails, how, and when: the n-th of each thread, or some from there on.
#[derive(Debug, Clone, Copy)]
struct Injection {
    call: &'static str,
    error: &'static str,
    first: u32,
    last: u32,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:error={}:when={}..{}", self.call, self.error, self.first, self.last)
    }
}

/// What happened in one life of a hub.
#[derive(Debug, Default)]
struct Life {
    n_injected: usize,
    n_acknowledged: usize,
    n_refused: usize,
    /// What it said, where it did not start.
    refusal: Option<String>,
    faults: Vec<Fault>,
    /// Whether the checker would have noticed a false acknowledgement.
    control_noticed: bool,
}

/// Returns the command that starts a hub under strace; its trace goes to `trace`.
fn traced(data: &Path, trace: &Path, injection: Option<Injection>) -> Command {
    let plain = command(data);
    let mut strace = Command::new("strace");
    strace.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.current_dir(std::env::temp_dir()).stdin(std::process::Stdio::null());
    strace.args(["-f", "-qq", "--seccomp-bpf", "-e"]).arg(format!("trace={}", CALLS.join(",")));
    if let Some(injection) = injection {
        strace.arg("-e").arg(format!("inject={injection}"));
    }
    strace.arg("-o").arg(trace).arg(program()).arg("up");
    strace
}

/// Three clients make a few calls each; then one repeats a last call until it is acknowledged.
async fn work(hub: &Hub, history: &History) {
    let clients = (0..3).map(|client| async move {
        let mut mcp = Mcp::connect(&hub.url, &hub.operator, "/mcp").await.expect("it listens");
        for n in 0..4 {
            call(&mut mcp, history, format!("{client}/{n}{}", "x".repeat(n * 700))).await;
        }
    });
    futures_util::future::join_all(clients).await;
    let mut mcp = Mcp::connect(&hub.url, &hub.operator, "/mcp").await.expect("it listens");
    for attempt in 0.. {
        assert!(attempt < 50, "writing does not resume");
        if call(&mut mcp, history, format!("last {attempt}")).await {
            return;
        }
    }
}

async fn call(mcp: &mut Mcp, history: &History, text: String) -> bool {
    let operation = history.invoke(vec![text.clone()]);
    let arguments = json!({"tasks": [{"content": text}]});
    match mcp.try_call(&text, "task-add", arguments).await {
        Ok((answer, false)) => history.end(operation, Outcome::Ok { answer }),
        Ok((answer, true)) => {
            assert!(answer.starts_with("error: nothing was changed: "), "{answer}");
            history.end(operation, Outcome::Failed);
            return false;
        }
        Err(error) => panic!("the hub went away: {error}"),
    }
    true
}

async fn live(injection: Option<Injection>) -> (Life, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, trace) = (directory.path().join("data"), directory.path().join("trace"));
    let stderr = tempfile::NamedTempFile::new().expect("a file");
    let mut command = traced(&data, &trace, injection);
    command.stderr(stderr.reopen().expect("it is open"));
    let started = tokio::task::block_in_place(|| Hub::try_start_with(command, &data));
    let history = History::default();
    let mut life = Life::default();
    match started {
        Ok(mut hub) => {
            work(&hub, &history).await;
            let status = tokio::task::block_in_place(|| hub.end(Signal::TERM));
            assert!(status.success(), "{injection:?}: the hub did not end well");
        }
        Err(_) => {
            let said = std::fs::read_to_string(stderr.path()).expect("it speaks UTF-8");
            let sentence = said.lines().rev().find(|line| line.starts_with("error: "));
            let sentence = sentence.unwrap_or_else(|| panic!("{injection:?}: it said {said:?}"));
            life.refusal = Some(sentence.to_owned());
        }
    }
    let operations = history.operations();
    (life.n_acknowledged, life.n_refused, _) = tally(&operations);
    life.faults = faults_after(&data, &operations).await;
    if life.n_refused > 0 {
        let faults = faults_after(&data, &believing_everything(&operations)).await;
        life.control_noticed = faults.iter().any(|fault| matches!(fault, Fault::Lost(_)));
    }
    let trace = std::fs::read_to_string(&trace).expect("strace leaves a trace");
    life.n_injected = trace.matches("(INJECTED)").count();
    (life, trace)
}

/// Returns how often each call is made by one thread, at most: as many places there are for a fault.
fn places(trace: &str) -> BTreeMap<&'static str, u32> {
    let mut counts: BTreeMap<(&str, &'static str), u32> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let call = CALLS.into_iter().find(|call| {
            rest.trim_start().strip_prefix(call).is_some_and(|rest| rest.starts_with('('))
        });
        if let Some(call) = call {
            *counts.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in counts {
        let most = most.entry(call).or_insert(0);
        *most = count.max(*most);
    }
    most
}

fn injections(places: &BTreeMap<&'static str, u32>, dice: &mut Dice) -> Vec<Injection> {
    let mut all = Vec::new();
    for (&call, &n) in places {
        for error in ERRORS {
            for first in 1..=n {
                all.extend([first, first + IN_A_ROW - 1].map(|last| Injection {
                    call,
                    error,
                    first,
                    last,
                }));
            }
        }
    }
    for i in (1..all.len()).rev() {
        let other = usize::try_from(dice.below(i as u64 + 1)).expect("it fits");
        all.swap(i, other);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_failing_write_or_sync_makes_a_false_acknowledgement() {
    if !Optional::Strace.is_usable(trace::is_possible()) {
        return;
    }
    let seconds = setting("TEAMSTER_FAULT_SECONDS").unwrap_or(SECONDS);
    let seed = setting("TEAMSTER_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (sound, trace) = live(None).await;
    assert!(sound.faults.is_empty() && sound.n_refused == 0, "without faults: {sound:?}");
    let places = places(&trace);
    let all = injections(&places, &mut Dice(seed));

    let (mut n_lives, mut n_injected, mut n_acknowledged, mut n_refused, mut n_control) =
        (0, 0, 0, 0, 0);
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    for &injection in &all {
        if Instant::now() > end {
            break;
        }
        let (life, _) = live(Some(injection)).await;
        assert!(
            life.faults.is_empty(),
            "{injection}:\n{}\nrepeat with: TEAMSTER_SEED={seed} TEAMSTER_FAULT_SECONDS={seconds} cargo test -p teamster \
             --test it no_failing_write",
            tell(&life.faults)
        );
        n_lives += usize::from(life.n_injected > 0);
        n_injected += life.n_injected;
        n_acknowledged += life.n_acknowledged;
        n_refused += life.n_refused;
        n_control += usize::from(life.control_noticed);
        if let Some(refusal) = life.refusal {
            *refusals
                .entry(refusal.split('/').next().unwrap_or_default().to_owned())
                .or_default() += 1;
        }
    }
    println!(
        "failing disk: {n_lives} of {} faults tried (at {places:?}), {n_injected} calls failed; {n_acknowledged} acknowledged, \
         {n_refused} refused, none falsely; a false one would have shown in {n_control} lives; hubs that did not start \
         said: {refusals:#?}",
        all.len()
    );
    assert!(n_lives >= 5 && n_injected >= n_lives, "too few faults to say anything");
    assert!(n_acknowledged > n_lives, "too few acknowledgements to say anything");
    assert!(n_refused > 0 && n_control > 0, "no fault reached a call");
}
