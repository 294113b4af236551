//! Runs whose hub, or whose agents, are killed in every phase of an iteration: before and during the plan, while an agent
//! works, between its end and the commit, between the commit and its record, in a hook, in a check, in a merge.
//!
//! `TEAMSTER_RUN_CRASHES=500` plays many crashes, `TEAMSTER_CRASH_SEED=7` draws other moments, as exactly as the system
//! keeps them.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "moments are real time, a broken fixture should panic, and a harness says what it did"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::hub::DEADLINE;
use crate::in_process::Dice;
use crate::run_workers::{assert_numbered, marks};
use crate::simulation::number;
use crate::unattended::until_said;
use crate::work::Project;

/// As many crashes as `cargo test` plays, of one worker and of three.
const CRASHES: u64 = 26;
/// A run that is killed more often than this is let go on to its end.
const CRASHES_PER_RUN: u64 = 13;

const SPEC: &str = r#"Six things.
! call task-add {"tasks":[{"content":"one"},{"content":"two"},{"content":"three"},{"content":"four"},{"content":"five"},{"content":"six"}]}
! call task-update {"id":"TAS-4","depends_on":"TAS-2"}
! call iteration-summary {"summary":"planned"}
"#;

const TEMPLATE: &str = r#"
! call task-next {"claim":true}
! run sh $HOME/work.sh {{iteration}} '$last'
$PAUSE! call task-update {"id":"$last","status":"completed"}
! call iteration-summary {"summary":"did it"}
! call session-complete
"#;

/// Nobody can tell who wrote a file right before the hub was killed. One worker shares its files with the user, so it is
/// often killed later than that, and sometimes not.
const PAUSE: &str = "! sleep 600\n";

/// Does an item, if there is one, and prints its id.
const WORK: &str = r#"
item=$(echo "$2" | grep -o 'TAS-[0-9]*' | head -n 1)
test -n "$item" || { echo none; exit; }
mkdir -p items && echo "$1" >> "items/$item" && echo "$1" > "newest-$1.txt"
echo "$item"
"#;

const HOOKS: &str = r#"
[[hooks.post_iteration]]
command = ["sh", "-c", "echo >> ../hooks.txt; sleep 0.1"]
[[hooks.session_end]]
command = ["sh", "-c", "echo >> ../ends.txt; sleep 0.1"]
"#;

/// A moment at which something is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Begun,
    PlanBegun,
    Planning,
    IterationBegun,
    Claimed,
    Completed,
    AgentEnded,
    /// The commit is there, but the log does not say so.
    Committed,
    Hook,
    Check,
    IterationEnded,
    SessionEnd,
    /// Only the agent is killed.
    Agent,
}

impl Moment {
    const ALL: [Self; 13] = [
        Self::Begun,
        Self::PlanBegun,
        Self::Planning,
        Self::IterationBegun,
        Self::Claimed,
        Self::Completed,
        Self::AgentEnded,
        Self::Committed,
        Self::Hook,
        Self::Check,
        Self::IterationEnded,
        Self::Agent,
        Self::SessionEnd,
    ];

    /// Returns how the log, or a file beside the project, tells that it has come.
    fn sign(self) -> Sign {
        match self {
            Self::Begun => Sign::Said("is worked off"),
            Self::PlanBegun => Sign::Said("iteration 0 plans"),
            Self::Planning => Sign::Said("TAS-1 added"),
            Self::IterationBegun | Self::Agent => Sign::Said(" begins ("),
            Self::Claimed => Sign::Said(" claimed"),
            Self::Completed => Sign::Said(" now completed"),
            Self::AgentEnded => Sign::Said(" completed (success"),
            Self::Committed => Sign::File("project/.git/logs/HEAD"),
            Self::Hook => Sign::File("hooks.txt"),
            Self::Check => Sign::File("checks.txt"),
            Self::IterationEnded => Sign::Said(" ended"),
            Self::SessionEnd => Sign::File("ends.txt"),
        }
    }
}

enum Sign {
    Said(&'static str),
    /// The file grows.
    File(&'static str),
}

struct Life {
    project: Project,
    dice: Dice,
    n_workers: u64,
    hit: BTreeMap<Moment, u64>,
}

impl Life {
    fn begin(seed: u64, n_workers: u64) -> Self {
        let project = Project::start(HOOKS);
        let spec = project.write_aside("SPEC.md", SPEC);
        project.write_aside("work.sh", WORK);
        let home = project.world.home.path().to_string_lossy().into_owned();
        let pause = if n_workers == 1 { PAUSE } else { "" };
        let template = TEMPLATE.replace("$HOME", &home).replace("$PAUSE", pause);
        let template = project.write_aside("template.md", &template);
        let check = project.write_aside(
            "check.sh",
            "echo >> \"${0%/*}/checks.txt\"; echo $$ > left-by-the-check.txt; sleep 0.05",
        );
        let mut run = project.world.hub.command();
        run.args(["run", "--headless", "--dir"]).args([&project.path, &spec]);
        run.arg("--template").arg(template).args(["--workers", &n_workers.to_string()]);
        run.arg("--check").arg(format!("sh {}", check.display()));
        // It ends when the hub is killed, and nobody reads it.
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::spawn(move || run.wait());
        Self { project, dice: Dice(seed), n_workers, hit: BTreeMap::new() }
    }

    fn size(&self, file: &str) -> u64 {
        let path: PathBuf = self.project.world.home.path().join(file);
        std::fs::metadata(path).map_or(0, |about| about.len())
    }

    /// Waits for a moment. Says whether it came before the run was over.
    fn waits(&self, moment: Moment) -> bool {
        let hub = &self.project.world.hub;
        let over = "no longer worked on";
        match moment.sign() {
            Sign::File(file) => {
                let (size, since) = (self.size(file), Instant::now());
                let mut n_looks = 0_u32;
                while self.size(file) == size {
                    std::thread::sleep(Duration::from_millis(1));
                    n_looks += 1;
                    if n_looks.is_multiple_of(200) && hub.ok(&["log"]).contains(over) {
                        return false;
                    }
                    assert!(
                        since.elapsed() < DEADLINE,
                        "{moment:?} does not come: {}",
                        hub.ok(&["log"])
                    );
                }
                true
            }
            Sign::Said(what) => {
                let is_first =
                    matches!(moment, Moment::Begun | Moment::PlanBegun | Moment::Planning);
                let before = hub.ok(&["log"]);
                // What happens once has happened if a crash came late.
                let mut n_left = match is_first {
                    true if before.contains(what) => return true,
                    true => 1,
                    false => before.matches(what).count() + 1,
                };
                let mut follow = hub.command();
                let follow = follow.args(["log", "--follow"]).stdout(Stdio::piped());
                let mut follow = follow.spawn().expect("it starts");
                let lines = BufReader::new(follow.stdout.take().expect("stdout is piped")).lines();
                let mut came = false;
                for line in lines.map_while(Result::ok) {
                    n_left -= usize::from(line.contains(what));
                    came = n_left == 0;
                    if came || line.contains(over) {
                        break;
                    }
                }
                follow.kill().expect("it can be ended");
                follow.wait().expect("it ends");
                came
            }
        }
    }

    /// Kills something at this moment, if it comes.
    fn crash(&mut self, moment: Moment) -> bool {
        if moment == Moment::Check && self.n_workers == 1 {
            return true;
        }
        if !self.waits(moment) {
            return false;
        }
        // At once, or a little later.
        let delay_us = if self.dice.below(3) == 0 { 100_000 } else { 3_000 };
        std::thread::sleep(Duration::from_micros(self.dice.below(delay_us)));
        *self.hit.entry(moment).or_default() += 1;
        if moment == Moment::Agent {
            self.kill_an_agent();
        } else {
            self.project.world.crash_and_start_again();
        }
        true
    }

    /// Kills the process of an agent, if one has come up by now.
    fn kill_an_agent(&self) {
        // It may have ended while we look.
        let read = |file: PathBuf| {
            String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
        };
        let home = self.project.world.home.path().to_string_lossy();
        for entry in std::fs::read_dir("/proc").expect("it can be read") {
            let process = entry.expect("it can be read").path();
            let is_ours = read(process.join("cmdline")).contains("scripted-agent")
                && read(process.join("environ")).contains(&*home);
            let pid = process.file_name().and_then(|name| name.to_str()?.parse().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw).filter(|_| is_ours) {
                let _ = kill_process(pid, Signal::KILL);
                return;
            }
        }
    }

    /// Lets the run come to its end, and checks all of it.
    async fn end(&self) -> usize {
        let project = &self.project;
        until_said(&project.world, "no longer worked on");
        let hub = &project.world.hub;
        // What ends the hub again and again may be the run itself, so it is a person who goes on with it.
        if project.view("SPEC")["phase"] == "failed" {
            let output = hub.run(&["run", "--resume", "--name", "SPEC", "--headless"]);
            assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
        }
        let bearer = format!("Bearer {}", hub.operator);
        let headers = [("authorization", bearer.as_str())];
        let view = hub.http().await.send(Method::GET, "/api/runs/SPEC", &headers, "").await.json();
        let told = || format!("{view:#}\n{}", hub.ok(&["log"]));
        let is_done =
            |phase: &str| phase == "completed" || (phase == "leftovers" && self.n_workers == 1);
        assert!(view["phase"].as_str().is_some_and(is_done), "{}", told());
        assert_numbered(&view);
        let ended = view["ended"].as_array().expect("it is a list");
        // An agent that was cut off twice is not gone on with; the next iteration takes over what it left.
        let failed = ended.iter().filter(|one| !one["failed"].is_null());
        let failed: BTreeMap<String, &Value> =
            failed.map(|one| (one["number"].to_string(), &one["failed"])).collect();
        let cut_off = [
            "the hub ended while it worked",
            "its program ended in the middle of its turn",
            "it did not start: it ended before it had started",
        ];
        let is_cut_off = |why: &Value| {
            cut_off.iter().any(|words| why.as_str().is_some_and(|why| why.starts_with(words)))
        };
        assert!(failed.values().all(|why| is_cut_off(why)), "{failed:?}: {}", told());

        // No item is done twice: one agent completed it, and one iteration wrote its file.
        let mut completed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (by, what) in hub.log() {
            if let Some(item) = what.strip_suffix(" now completed") {
                completed.entry(item.to_owned()).or_default().insert(by);
            }
        }
        let item_list = view["item_list"].as_array().expect("it is a list");
        assert_eq!(completed.len(), item_list.len(), "{}", told());
        for (item, by) in &completed {
            assert_eq!(by.len(), 1, "{item} by {by:?}: {}", told());
            let path = project.path.join("items").join(item);
            let numbers = std::fs::read_to_string(&path).expect("it was written");
            let mut numbers: BTreeSet<&str> = numbers.lines().collect();
            numbers.retain(|number| !failed.contains_key(*number));
            assert!(numbers.len() <= 1, "{item} by {numbers:?}: {}", told());
        }

        // What one worker wrote right before a crash is in the files, and is named. Several have worktrees of their own.
        let unclear = project.git(&["status", "--porcelain", "-uall"]);
        let unclear: BTreeSet<&str> = unclear.lines().filter_map(|line| line.get(3..)).collect();
        let warnings = view["warnings"].to_string();
        let is_named = |file: &&str| self.n_workers == 1 && warnings.contains(*file);
        assert!(unclear.iter().all(is_named), "{unclear:?}: {}", told());
        assert_eq!(view["phase"] == "leftovers", !unclear.is_empty(), "{}", told());

        // No commit is lost or doubled: each that the log knows is there, with its mark.
        let marks = marks(project);
        assert!(marks.values().all(|n| *n == 1), "{marks:?}: {}", told());
        let committed: Vec<&Value> = ended.iter().filter(|one| !one["commit"].is_null()).collect();
        let known: BTreeSet<String> =
            committed.iter().map(|one| format!("SPEC#{}", one["number"])).collect();
        // What one of several workers left behind that failed is on a branch of its own.
        let left = marks.keys().filter(|mark| !known.contains(*mark));
        let left: Vec<&str> = left.filter_map(|mark| mark.strip_prefix("SPEC#")).collect();
        assert_eq!(known.len() + left.len(), marks.len(), "{marks:?}: {}", told());
        assert!(left.iter().all(|number| failed.contains_key(*number)), "{left:?}: {}", told());
        for one in committed {
            let commit = one["commit"].as_str().expect("it is text");
            project.git(&["merge-base", "--is-ancestor", commit, "HEAD"]);
            let file = format!("newest-{}.txt", one["number"]);
            let is = match unclear.contains(&*file) {
                true => std::fs::read_to_string(project.path.join(&file)).expect("it is there"),
                false => project.git(&["show", &format!("HEAD:{file}")]),
            };
            assert_eq!(is.trim_end(), one["number"].to_string(), "{}", told());
        }
        assert_eq!(project.git(&["worktree", "list"]).lines().count(), 1, "{}", told());
        let mut branches: BTreeSet<String> =
            left.iter().map(|number| format!("teamster/run-SPEC/cut-off-{number}")).collect();
        branches.insert("main".to_owned());
        let there = project.git(&["branch", "--format=%(refname:short)"]);
        let there: BTreeSet<String> = there.lines().map(ToOwned::to_owned).collect();
        assert_eq!(there, branches, "{}", told());
        ended.len()
    }
}

async fn check(n_workers: u64) {
    let crashes = number("TEAMSTER_RUN_CRASHES").unwrap_or(CRASHES) / 2;
    let seed = number("TEAMSTER_CRASH_SEED").unwrap_or(1);
    let (mut hit, mut n_iterations, mut n_runs) = (BTreeMap::new(), 0, 0);
    while hit.values().sum::<u64>() < crashes {
        let mut life = Life::begin(seed.wrapping_add(n_runs << 32) ^ n_workers, n_workers);
        // The first run is killed at each moment in turn, the others at moments that are drawn.
        let mut n_left = CRASHES_PER_RUN.min(crashes - hit.values().sum::<u64>());
        for n in 0.. {
            let moment = match n_runs {
                0 => Moment::ALL.get(n).copied(),
                _ => Some(Moment::ALL[life.dice.below(Moment::ALL.len() as u64) as usize]),
            };
            let Some(moment) = moment.filter(|_| n_left > 0) else { break };
            if !life.crash(moment) {
                break;
            }
            n_left -= 1;
        }
        n_iterations += life.end().await;
        n_runs += 1;
        for (moment, n) in &life.hit {
            *hit.entry(*moment).or_insert(0) += n;
        }
    }
    println!(
        "run_crash: {n_workers} workers, seed {seed}: {n_runs} runs, {n_iterations} iterations, killed at {hit:?}"
    );
    let n_hit: u64 = hit.values().sum();
    assert!(n_hit >= crashes && hit.len() >= 9, "too few crashes to say anything: {hit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_a_crash_at_every_moment() {
    check(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_survive_a_crash_at_every_moment() {
    check(3).await;
}
