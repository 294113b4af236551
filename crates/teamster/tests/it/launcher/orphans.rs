//! Agents that do their best to leave something behind: with every isolation that promises so, nothing is left.
//!
//! `TEAMSTER_ORPHAN_ROUNDS=1000` plays many rounds of each kind.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the test binary starts itself, and a broken fixture should panic"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::{How, Launch, Measure, Terminate};
use teamster_agents::launches::{Launches, MARK, PATIENCE};

use super::{STRONG, World, exited, line, offered, shell, short, supervisor};
use crate::hub::DEADLINE;
use crate::in_process::Dice;
use crate::simulation::number;

/// As many rounds of each kind as `cargo test` plays.
const ROUNDS: u64 = 5;

/// So many processes are there once all have said that they are up.
const N_UP: usize = 6;

/// Ignores SIGTERM, and so does all that it starts: one in its group, one in a session of its own, one that is nobody's
/// child any more, the same in a session of its own, and one that has thrown its environment away. `$0` marks them all.
const HOSTILE: &str = r#"
trap '' TERM
stay='echo up; exec sleep "$0"'
sh -c "$stay" "$0" &
setsid sh -c "$stay" "$0" &
(sh -c "$stay" "$0" &)
(setsid sh -c 'sh -c "$1" "$0" &' "$0" "$stay" &)
(env -i PATH="$PATH" setsid sh -c "$stay" "$0" &)
"#;

/// What the program itself does in the end: it stays whatever happens to its input, or crashes when told to.
const STAY: &str = r#"echo up; exec sleep "$0""#;
const CRASH: &str = "echo up; read line; kill -9 $$";
/// Or it breeds: some that start their successor and end, over and over, and others that stay. None of the former is
/// there for long enough to be looked up and killed at leisure. Both kinds are few enough not to use up the machine's
/// process numbers beside other tests.
const BREED: &str = r#"
comet='[ "$2" = 0 ] || sh -c "$1" "$0" "$1" $(($2 - 1)) &'
(setsid sh -c "$comet" "$0" "$comet" 2000 &)
(setsid sh -c "$comet" "$0" "$comet" 2000 &)
echo up
n=0
while [ $n -lt 300 ]; do (setsid sleep "$0" &); n=$((n + 1)); done
exec sleep "$0"
"#;

/// A hostile agent, and the mark by which its processes are found: an unlikely time to sleep.
fn hostile(end: &str, isolation: Isolation) -> (Launch, String) {
    let mut launch = shell(&format!("{HOSTILE}\n{end}"), isolation);
    let mark = mark_of(&launch.id);
    launch.args.push(mark.clone().into());
    (launch, mark)
}

fn mark_of(id: &str) -> String {
    format!("100000.{}", id.replace("it-", "").replace('-', "00"))
}

/// Returns the processes that have this mark in their command line or their environment.
pub(crate) fn marked(mark: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").expect("there is /proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids = pids.filter(|pid: &i32| {
        let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let has_it = |text: &[u8]| text.windows(mark.len()).any(|part| part == mark.as_bytes());
        has_it(&read("cmdline")) || has_it(&read("environ"))
    });
    pids.filter_map(Pid::from_raw).collect()
}

/// Says whether the processes of an agent that is up are seen. One that changes its program is not, for a moment.
fn are_found(mark: &str) -> bool {
    (0..100).any(|_| marked(mark).len() >= N_UP)
}

/// Waits until these have ended.
pub(crate) fn wait_for_ends(pids: &[Pid]) {
    for pid in pids {
        // What cannot be opened has ended.
        let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) else { continue };
        let deadline = Timespec::try_from(DEADLINE).expect("a deadline is a time");
        // The runtimes of other tests get signals of ended children.
        let ended =
            retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&deadline)));
        assert_eq!(ended, Ok(1), "process {pid:?} does not end");
    }
}

/// How a round ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Kill,
    KillBreeding,
    End,
    Crash,
}

/// Plays one round, and returns what is left of the agent when its end is told.
async fn left_after(manner: Manner, isolation: Isolation) -> Vec<Pid> {
    let world = World::new();
    let end = match manner {
        Manner::Kill | Manner::End => STAY,
        Manner::KillBreeding => BREED,
        Manner::Crash => CRASH,
    };
    let (launch, mark) = hostile(end, isolation);
    let mut agent = world.launch(launch).await;
    for _ in 0..N_UP {
        assert_eq!(line(&mut agent).await, "up");
    }
    assert!(are_found(&mark), "the control: they are seen while they run");
    match manner {
        Manner::Kill | Manner::KillBreeding => agent.process.kill(),
        Manner::End => agent.process.end(short(Terminate::Group)),
        Manner::Crash => {
            tokio::io::AsyncWriteExt::write_all(&mut agent.stdin, b"now\n")
                .await
                .expect("it reads");
        }
    }
    let exited = exited(&agent).await;
    let left = marked(&mark);
    let told = match manner {
        Manner::Kill | Manner::KillBreeding | Manner::End => (How::Killed, Some(Measure::Killed)),
        Manner::Crash => (How::Signal(9), None),
    };
    assert_eq!((exited.how, exited.after, exited.n_left), (told.0, told.1, 0));
    left
}

#[tokio::test]
async fn when_the_end_of_an_agent_is_told_nothing_of_it_is_left() {
    let rounds = number("TEAMSTER_ORPHAN_ROUNDS").unwrap_or(ROUNDS);
    for isolation in offered(STRONG).await {
        for manner in [Manner::Kill, Manner::KillBreeding, Manner::End, Manner::Crash] {
            for round in 1..=rounds {
                let left = left_after(manner, isolation).await;
                assert_eq!(left, [], "{isolation}, {manner:?}, round {round}");
            }
            println!("orphans: {isolation}: {rounds} x {manner:?}: none left");
        }
    }
}

/// Killing the process group is what most programs do, and it leaves what has left the group.
#[tokio::test]
async fn the_control_that_kills_a_group_leaves_some() {
    for manner in [Manner::Kill, Manner::End, Manner::Crash] {
        let left = left_after(manner, Isolation::Group).await;
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        println!("orphans: control: {} left after {manner:?}", left.len());
        assert!(left.len() >= 2, "{manner:?}: {left:?}");
        wait_for_ends(&left);
    }
}

/// A hub of its own process, with one hostile agent that is up.
struct OtherHub {
    process: Child,
    mark: String,
}

impl OtherHub {
    /// Starts one and returns when its agent is up.
    fn start(directory: &Path, isolation: Isolation) -> Self {
        let mut process = Self::begin(directory, isolation);
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut lines = stdout.lines().map(|line| line.expect("the hub speaks UTF-8"));
        let mark = lines.find_map(|line| line.strip_prefix("mark ").map(str::to_owned));
        let mark = mark.expect("the agent is up");
        assert!(are_found(&mark), "the control: they are seen while they run");
        Self { process, mark }
    }

    /// Starts one without waiting for it.
    fn begin(directory: &Path, isolation: Isolation) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("the tests have a file"));
        command.args(["--ignored", "--exact", "launcher::orphans::hub", "--nocapture"]);
        command.env("TEAMSTER_OTHER_HUB", directory).env("TEAMSTER_ISOLATION", isolation.name());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("the hub starts")
    }

    fn kill(&mut self) {
        self.process.kill().expect("the hub can be killed");
        self.process.wait().expect("the hub can be waited for");
    }
}

#[tokio::test]
#[ignore = "not a test: the hub that others kill"]
async fn hub() {
    let Some(directory) = std::env::var_os("TEAMSTER_OTHER_HUB") else { return };
    let wanted = std::env::var("TEAMSTER_ISOLATION").expect("an isolation");
    let isolation = Isolation::ALL.into_iter().find(|isolation| isolation.name() == wanted);
    let (launch, mark) = hostile(STAY, isolation.expect("an isolation"));
    let mut agent = supervisor(Path::new(&directory)).launch(launch).await.expect("it starts");
    for _ in 0..N_UP {
        assert_eq!(line(&mut agent).await, "up");
    }
    // Not `print`: the test harness would take that.
    writeln!(std::io::stdout().lock(), "mark {mark}").expect("stdout is open");
    agent.process.exited().await;
}

#[tokio::test]
async fn when_a_hub_is_killed_nothing_of_its_agents_is_left() {
    let rounds = number("TEAMSTER_ORPHAN_ROUNDS").unwrap_or(ROUNDS);
    for isolation in offered(STRONG).await {
        let directory = tempfile::tempdir().expect("a directory");
        for round in 1..=rounds {
            let mut hub = OtherHub::start(directory.path(), isolation);
            hub.kill();
            wait_for_ends(&marked(&hub.mark));
            assert_eq!(marked(&hub.mark), [], "{isolation}, round {round}");
        }
        let launches = Launches::new(directory.path().join("launches"));
        let leftovers = launches.end_leftovers(PATIENCE).expect("the notes can be read");
        assert_eq!(leftovers.len() as u64, rounds);
        for leftover in &leftovers {
            assert_eq!((leftover.n_killed, leftover.n_left), (0, 0), "{leftover:?}");
            let note = leftover.note.as_ref().expect("a note was left");
            assert_eq!((&*note.program, &*note.isolation), ("sh", isolation.name()));
            assert!(leftover.alone_at.is_some(), "{leftover:?}");
            assert!(leftover.gone_at >= leftover.alone_at, "{leftover:?}");
        }
        assert_eq!(launches.leftovers().expect("the notes can be read").len() as u64, rounds);
        launches.forget(&leftovers).expect("the notes can be removed");
        assert_eq!(launches.leftovers().expect("the notes can be read"), []);
        println!("orphans: {isolation}: {rounds} x the hub was killed: none left");
    }
}

/// A hub that dies while it starts an agent: whatever there is of the agent by then ends too.
#[tokio::test]
async fn when_a_hub_is_killed_while_it_launches_nothing_is_left() {
    let rounds = number("TEAMSTER_ORPHAN_ROUNDS").unwrap_or(ROUNDS) * 4;
    let mut dice = Dice(number("TEAMSTER_CRASH_SEED").unwrap_or(1));
    for isolation in offered(STRONG).await {
        let mut n_launched = 0;
        for round in 1..=rounds {
            let directory = tempfile::tempdir().expect("a directory");
            let mut hub = OtherHub::begin(directory.path(), isolation);
            std::thread::sleep(Duration::from_micros(dice.below(60_000)));
            hub.kill().expect("the hub can be killed");
            hub.wait().expect("the hub can be waited for");
            // Any of these is in the environment of what is being launched, or in the command lines.
            let id = format!("it-{}-0", hub.id());
            let marks = [&*directory.path().to_string_lossy(), &*id, &*mark_of(&id)];
            let left = || marks.iter().flat_map(|mark| marked(mark)).collect::<Vec<Pid>>();
            n_launched += usize::from(directory.path().join("launches").join(&id).exists());
            wait_for_ends(&left());
            assert_eq!(left(), [], "{isolation}, round {round}");
        }
        println!(
            "orphans: {isolation}: {rounds} x killed early, {n_launched} in a launch: none left"
        );
    }
}

#[test]
fn the_control_that_kills_a_hub_leaves_some() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut hub = OtherHub::start(directory.path(), Isolation::Group);
    let launcher = launcher_of(&hub.mark);
    hub.kill();
    wait_for_ends(&[launcher]);
    let left = marked(&hub.mark);
    for pid in &left {
        let _ = kill_process(*pid, Signal::KILL);
    }
    println!("orphans: control: {} left after the hub was killed", left.len());
    assert!(left.len() >= 2, "{left:?}");
    wait_for_ends(&left);
}

/// Returns the launcher of the agent with this mark: it has the same id in its environment, and it is ours.
fn launcher_of(mark: &str) -> Pid {
    let id = marked(mark).into_iter().find_map(|pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        environment.split('\0').find(|variable| variable.starts_with(MARK)).map(str::to_owned)
    });
    let launchers = marked(&id.expect("an agent has a launch")).into_iter().filter(|pid| {
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
        line.is_ok_and(|line| {
            line.starts_with(b"teamster\0launch\0") && !line.ends_with(b"\0init\0")
        })
    });
    let launchers: Vec<Pid> = launchers.collect();
    let [launcher] = launchers[..] else { panic!("launchers: {launchers:?}") };
    launcher
}

/// The launcher is no weak point where it cannot be seen; where it can, the mark in the environment is what is left.
#[tokio::test]
async fn an_agent_whose_launcher_was_killed_is_ended_by_its_mark() {
    for isolation in offered(STRONG).await {
        let world = World::new();
        let (launch, mark) = hostile(STAY, isolation);
        let mut agent = world.launch(launch).await;
        for _ in 0..N_UP {
            assert_eq!(line(&mut agent).await, "up");
        }
        kill_process(launcher_of(&mark), Signal::KILL).expect("it runs");
        let exited = exited(&agent).await;
        assert_eq!((exited.how, exited.n_left), (How::LauncherLost, 0));
        let left = marked(&mark);
        if isolation == Isolation::Namespaces {
            wait_for_ends(&left);
        } else {
            assert_eq!(left.len(), 1, "only the one without its environment got away");
            let _ = kill_process(left[0], Signal::KILL);
            wait_for_ends(&left);
        }
        assert_eq!(marked(&mark), []);
    }
}

/// A hub and its launcher killed together: the next hub finds what they left, says so, and ends it.
#[test]
fn the_next_hub_tells_and_ends_what_it_finds() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut hub = OtherHub::start(directory.path(), Isolation::Subreaper);
    let launcher = launcher_of(&hub.mark);
    kill_process(launcher, Signal::STOP).expect("it runs");
    hub.kill();
    kill_process(launcher, Signal::KILL).expect("it runs");
    wait_for_ends(&[launcher]);

    let launches = Launches::new(directory.path().join("launches"));
    let leftovers = launches.leftovers().expect("the notes can be read");
    let [leftover] = &leftovers[..] else { panic!("{leftovers:?}") };
    assert_eq!(leftover.processes.len(), N_UP - 1, "{leftover:?}");
    let ended = launches.end_leftovers(Duration::ZERO).expect("the notes can be read");
    assert_eq!((ended[0].n_killed, ended[0].n_left), (N_UP - 1, 0), "{ended:?}");
    assert_eq!(ended[0].gone_at, None, "nobody saw it");
    launches.forget(&ended).expect("the notes can be removed");
    assert_eq!(launches.leftovers().expect("the notes can be read"), []);

    let left = marked(&hub.mark);
    assert_eq!(left.len(), 1, "only the one without its environment got away");
    let _ = kill_process(left[0], Signal::KILL);
    wait_for_ends(&left);
}
