//! Agents that say too much: it costs the hub little memory, and nobody else waits for it.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the test binary starts itself, and a broken fixture should panic"
)]

use std::process::Command;

use teamster_agents::isolation::Isolation;
use teamster_agents::launch::How;
use teamster_agents::lines::Line;
use tokio::io::AsyncWriteExt;

use super::{World, by_itself, exited, line, next, shell};

/// More than the longest line and the copies made while a buffer grows.
const GROWTH_KIB_MAX: u64 = 64 * 1024;
/// So many times does another agent answer at least while the flood comes.
const ANSWERS_MIN: usize = 100;

/// A process of its own, so that no other test grows meanwhile.
#[test]
fn a_flood_costs_little_memory_and_others_go_on() {
    let mut command = Command::new(std::env::current_exe().expect("the tests have a file"));
    command.args(["--ignored", "--exact", "launcher::flood::hub", "--nocapture"]);
    let output = command.output().expect("the hub starts");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in said.lines().filter(|line| line.starts_with("flood:")) {
        println!("{line}");
    }
    assert!(output.status.success() && said.contains("flood: all"), "{output:?}");
}

#[tokio::test]
#[ignore = "not a test: the hub that is flooded"]
async fn hub() {
    let world = World::new();
    let before_kib = peak_kib();
    for (what, script, lines) in [
        ("1 GiB without a newline", "head -c 1073741824 /dev/zero | tr '\\0' x", 1),
        ("a line of 100 MB", "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end", 2),
        ("1 GiB on stderr", "head -c 1073741824 /dev/zero | tr '\\0' x >&2; echo end >&2", 0),
        ("a million lines", "yes | head -n 1000000", 1_000_000),
    ] {
        let mut other = world.launch(shell("exec cat", Isolation::Subreaper)).await;
        let mut flooding = world.launch(shell(script, Isolation::Subreaper)).await;
        let flood = async {
            let mut n_lines = 0;
            let mut n_too_long = 0;
            while let Some(line) = next(&mut flooding).await {
                n_lines += 1;
                n_too_long += usize::from(line == Line::TooLong);
            }
            (n_lines, n_too_long)
        };
        let mut n_answers = 0;
        let answers = async {
            loop {
                other.stdin.write_all(b"still there?\n").await.expect("it reads");
                assert_eq!(line(&mut other).await, "still there?");
                n_answers += 1;
            }
        };
        let (n_lines, n_too_long) = tokio::select! {
            flooded = flood => flooded,
            () = answers => unreachable!("answering does not end"),
        };
        assert_eq!(exited(&flooding).await, by_itself(How::Code(0)), "{what}");
        assert_eq!((n_lines, n_too_long), (lines, usize::from(matches!(lines, 1 | 2))), "{what}");
        if lines == 0 {
            assert!(
                flooding.process.stderr_tail().ends_with("xxx\nend\n".trim_start_matches("xxx\n"))
            );
        }
        assert!(n_answers >= ANSWERS_MIN, "{what}: {n_answers} answers");
        let growth_kib = peak_kib() - before_kib;
        println!("flood: {what}: {growth_kib} KiB more in all, {n_answers} answers meanwhile");
        assert!(growth_kib < GROWTH_KIB_MAX, "{what}: {growth_kib} KiB more");
        other.process.kill();
        exited(&other).await;
    }
    nobody_reads(&world).await;
    println!("flood: all");
}

/// An agent whose output nobody reads waits, and can be killed.
async fn nobody_reads(world: &World) {
    let script = "echo up >&2; yes; echo never >&2";
    let agent = world.launch(shell(script, Isolation::Subreaper)).await;
    agent.process.kill();
    assert_eq!(exited(&agent).await.how, How::Killed);
    assert!(!agent.process.stderr_tail().contains("never"));
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}
