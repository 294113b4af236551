//! Iterations of a run: what the hub does between the end of one agent and the start of the next, and how much of it is
//! git's.
//!
//! The agents are scripted and do next to nothing. The log says when each ended and when the next was started; the run
//! without a repository is the hub alone, the one with a commit each has git in it. What git takes by itself for the same
//! files is measured in the same repository, as a person would commit them.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Bench;
use crate::connection::Connection;
use crate::load;
use crate::process::Hub;

/// How many iterations each run has in one round.
const ITERATIONS: usize = 20;
/// How many files the project has.
const FILES: usize = 1_000;

const SPEC: &str = "! call task-add {\"tasks\":[{\"content\":\"one of many\"}]}";
const TEMPLATE: &str = "! call note-add {\"notes\":[{\"content\":\"n {{iteration}}\",\"type\":\"tip\"}]}\n\
    ! call task-add {\"tasks\":[{\"content\":\"more {{iteration}}\"}]}\n! write changed.txt {{iteration}}";

pub(crate) fn measure(bench: &mut Bench) {
    let hub = Hub::start_with(&bench.directory, &["--set".into(), "program=scripted".into()], &[]);
    let place = tempfile::tempdir_in(&bench.directory).expect("a directory for projects");
    // The bench's own directory may be in a repository.
    let (plain, repository) = (place.path().join("plain"), place.path().join("repository"));
    for directory in [&plain, &repository] {
        std::fs::create_dir(directory).expect("it can be made");
        for n in 0..FILES {
            std::fs::write(directory.join(format!("{n}.txt")), "x\n").expect("it can be written");
        }
    }
    git(&repository, &["init", "-q", "-b", "main"]);
    git(&repository, &["add", "-A"]);
    git(&repository, &["commit", "-q", "-m", "first"]);
    let (without, with) = load::run(async {
        let mut connection = Connection::open(hub.server.address).await;
        let without = worked_off(&hub, &mut connection, "plain", &plain, false).await;
        (without, worked_off(&hub, &mut connection, "commits", &repository, true).await)
    });
    for ms in without {
        bench.results.add("iteration_hub_ms", ms);
    }
    for ms in with {
        bench.results.add("iteration_commit_ms", ms);
    }
    for n in 0..ITERATIONS {
        std::fs::write(repository.join("changed.txt"), format!("by hand {n}\n"))
            .expect("it can be");
        let began = Instant::now();
        git(&repository, &["status", "--porcelain"]);
        git(&repository, &["add", "-A"]);
        git(&repository, &["commit", "-q", "-m", "by hand"]);
        bench.results.add("iteration_git_by_hand_ms", began.elapsed().as_secs_f64() * 1e3);
    }
}

/// Works a run off, and returns how long it took from the end of each agent to the start of the next.
async fn worked_off(
    hub: &Hub,
    connection: &mut Connection,
    name: &str,
    directory: &Path,
    commits: bool,
) -> Vec<f64> {
    let asked = json!({
        "name": name, "spec": SPEC, "file": "SPEC.md", "directory": directory, "template": TEMPLATE,
        "iterations": ITERATIONS, "commits": commits,
    });
    let begun = connection.exchange(&hub.operators("POST", "/api/runs", &asked.to_string())).await;
    let begun = begun.json();
    let mut last = begun["commit"].as_u64().unwrap_or_else(|| panic!("not begun: {begun}"));
    let mut lines: Vec<Value> = Vec::new();
    let is_over = |line: &Value| text(line).starts_with("no longer worked on");
    while !lines.last().is_some_and(is_over) {
        let path = format!("/api/log?after={last}&wait_ms=40000");
        let page = connection.exchange(&hub.operators("GET", &path, "")).await.json();
        last = page["last"].as_u64().unwrap_or_else(|| panic!("no page: {page}"));
        lines.extend(page["lines"].as_array().into_iter().flatten().cloned());
    }
    assert_eq!(text(&lines[lines.len() - 1]), "no longer worked on: its iterations are used up");
    let at = |line: &Value| line["at"].as_f64().unwrap_or_else(|| panic!("no time: {line}"));
    let is_agents = |line: &&Value, what: &str| {
        text(line).starts_with("agent worker-") && text(line).contains(what)
    };
    let ends = lines.iter().filter(|line| is_agents(line, " completed (")).map(at);
    let starts = lines.iter().filter(|line| is_agents(line, " starts")).skip(1).map(at);
    // The first comes after the plan, for which nothing is committed.
    let took: Vec<f64> = ends.zip(starts).skip(1).map(|(end, start)| start - end).collect();
    assert_eq!(took.len(), ITERATIONS - 1, "an iteration is missing");
    took
}

fn text(line: &Value) -> &str {
    line["summary"].as_str().unwrap_or_default()
}

fn git(directory: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]).args(args);
    let output = git.output().expect("git runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
