//! Programs started by the real launcher: what they get, how they end, and what is told about them.
//!
//! Where the machine does not offer namespaces, what needs them is left out and the reason is printed;
//! `TEAMSTER_REQUIRE_NAMESPACES=1` makes that a failure.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tasks live no longer than their test, a broken fixture should panic, and a harness says what it did"
)]

mod flood;
mod inside;
#[cfg(target_os = "linux")]
pub(crate) mod orphans;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use teamster_agents::isolation::{Failure, Isolation, Probe, Step};
use teamster_agents::launch::{Exited, Grace, How, Launch, Mask, Measure, Terminate};
use teamster_agents::launches::Launches;
use teamster_agents::lines::Line;
use teamster_agents::started::Started;
use teamster_agents::supervisor::{Error, Supervisor};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::sync::OnceCell;

use crate::hub::{DEADLINE, program};
use crate::optional::Optional;

/// Those that hold their processes.
const STRONG: &[Isolation] = &[Isolation::Namespaces, Isolation::Subreaper];
const ALL: &[Isolation] = &Isolation::ALL;

/// Returns those that this machine offers.
pub(crate) async fn offered(wanted: &[Isolation]) -> Vec<Isolation> {
    static PROBE: OnceCell<Probe> = OnceCell::const_new();
    let probe = PROBE.get_or_init(async || World::new().supervisor.probe("offered").await).await;
    let mut wanted = wanted.to_vec();
    if let Err(failure) = &probe.namespaces {
        println!("launcher: not tried with namespaces: {failure}");
        Optional::Namespaces.is_usable(false);
        wanted.retain(|isolation| *isolation != Isolation::Namespaces);
    }
    wanted
}

/// A place for notes, and a supervisor that keeps them there.
pub(crate) struct World {
    directory: TempDir,
    supervisor: Supervisor,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let supervisor = supervisor(directory.path());
        Self { directory, supervisor }
    }

    fn launches(&self) -> PathBuf {
        self.directory.path().join("launches")
    }

    fn n_notes(&self) -> usize {
        std::fs::read_dir(self.launches()).map_or(0, Iterator::count)
    }

    pub(crate) async fn launch(&self, launch: Launch) -> Started {
        self.supervisor.launch(launch).await.unwrap_or_else(|error| panic!("{error}: {error:?}"))
    }
}

fn supervisor(directory: &Path) -> Supervisor {
    let launches = Launches::new(directory.join("launches"));
    let spawn = |_name, task| drop(tokio::spawn(task));
    Supervisor::new(program(), launches, Arc::new(spawn))
}

/// Returns a launch of a shell that runs this script, with a name that no other has.
fn shell(script: &str, isolation: Isolation) -> Launch {
    static N_LAUNCHES: AtomicU64 = AtomicU64::new(0);
    let n = N_LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let mut launch = Launch::new(format!("it-{}-{n}", std::process::id()), "sh", isolation);
    launch.args = ["-c", script].map(Into::into).into();
    launch
}

/// Grace for a program that will use it up.
pub(crate) fn short(terminate: Terminate) -> Grace {
    let short = Duration::from_millis(5);
    Grace { after_stdin: short, terminate, after_terminate: short }
}

/// Grace for a program that will not.
pub(crate) fn long(terminate: Terminate) -> Grace {
    Grace { after_stdin: DEADLINE, terminate, after_terminate: DEADLINE }
}

async fn exited(started: &Started) -> Exited {
    let exited = tokio::time::timeout(DEADLINE, started.process.exited()).await;
    exited.expect("it ends in time")
}

async fn line(started: &mut Started) -> String {
    match next(started).await {
        Some(Line::Whole(line)) => String::from_utf8(line.to_vec()).expect("it speaks UTF-8"),
        other => panic!("{other:?} instead of a line; stderr: {}", started.process.stderr_tail()),
    }
}

async fn next(started: &mut Started) -> Option<Line> {
    let next = tokio::time::timeout(DEADLINE, started.stdout.next()).await;
    next.expect("it speaks in time").expect("its output can be read")
}

/// Returns all that it says until its output ends.
async fn rest(started: &mut Started) -> String {
    let mut said = String::new();
    while let Some(next) = next(started).await {
        let Line::Whole(line) = next else { panic!("{next:?} instead of a line") };
        said.push_str(std::str::from_utf8(&line).expect("it speaks UTF-8"));
        said.push('\n');
    }
    said
}

fn by_itself(how: How) -> Exited {
    Exited { how, after: None, n_left: 0 }
}

#[tokio::test]
async fn a_program_is_spoken_to_and_ends_when_its_input_does() {
    for isolation in offered(ALL).await {
        let world = World::new();
        let mut cat = world.launch(shell("exec cat", isolation)).await;
        assert_eq!(world.n_notes(), 1);
        cat.stdin.write_all(b"hello\nworld\n").await.expect("it reads");
        assert_eq!(line(&mut cat).await, "hello");
        assert_eq!(line(&mut cat).await, "world");
        assert_eq!(cat.process.has_exited(), None);
        cat.process.end(long(Terminate::Program));
        let ended = Exited { how: How::Code(0), after: Some(Measure::StdinClosed), n_left: 0 };
        assert_eq!(exited(&cat).await, ended, "{isolation}");
        assert_eq!(next(&mut cat).await, None);
        assert!(cat.stdin.write_all(b"more").await.is_err());
        assert_eq!(world.n_notes(), 0);
    }
}

#[tokio::test]
async fn how_a_program_ends_is_told() {
    for isolation in offered(ALL).await {
        let world = World::new();
        for (script, how) in [
            ("exit 0", How::Code(0)),
            ("exit 7", How::Code(7)),
            ("kill -9 $$", How::Signal(9)),
            ("kill -15 $$", How::Signal(15)),
        ] {
            let program = world.launch(shell(script, isolation)).await;
            assert_eq!(exited(&program).await, by_itself(how), "{isolation}, {script}");
        }
    }
}

#[tokio::test]
async fn a_program_that_ends_at_once_was_started() {
    for isolation in offered(ALL).await {
        let world = World::new();
        for _ in 0..20 {
            let launch = Launch { program: "true".into(), ..shell("", isolation) };
            let program = world.launch(launch).await;
            assert_eq!(exited(&program).await, by_itself(How::Code(0)), "{isolation}");
        }
    }
}

#[tokio::test]
async fn what_was_said_before_the_end_is_not_lost() {
    for isolation in offered(ALL).await {
        let world = World::new();
        let script = "echo one; printf two; echo oh dear >&2; exit 3";
        let mut program = world.launch(shell(script, isolation)).await;
        assert_eq!(exited(&program).await, by_itself(How::Code(3)));
        assert_eq!(line(&mut program).await, "one");
        let Some(Line::Unfinished(cut_off)) = next(&mut program).await else { panic!("nothing") };
        assert_eq!(cut_off.as_ref(), b"two");
        assert_eq!(next(&mut program).await, None);
        assert_eq!(program.process.stderr_tail(), "oh dear\n");
    }
}

/// Some programs only wrap another, and end when that one does.
#[tokio::test]
async fn sigterm_goes_to_the_program_or_to_its_group() {
    for isolation in offered(ALL).await {
        let world = World::new();
        // The inner one says it, because the outer one does not even hear the signal.
        let script = "trap '' TERM; (trap 'echo inner; exit 4' TERM; echo up; while :; do sleep 0.01; done); exit $?";
        for (terminate, how, after, said) in [
            (Terminate::Program, How::Killed, Measure::Killed, ""),
            (Terminate::Group, How::Code(4), Measure::Terminated, "inner\n"),
        ] {
            let mut program = world.launch(shell(script, isolation)).await;
            assert_eq!(line(&mut program).await, "up");
            let mut grace = short(terminate);
            if terminate == Terminate::Group {
                grace.after_terminate = DEADLINE;
            }
            program.process.end(grace);
            let ended = Exited { how, after: Some(after), n_left: 0 };
            assert_eq!(exited(&program).await, ended, "{isolation}, {terminate:?}");
            assert_eq!(rest(&mut program).await, said, "{isolation}, {terminate:?}");
        }
    }
}

#[tokio::test]
async fn killing_is_at_once_even_after_a_long_grace_was_given() {
    for isolation in offered(ALL).await {
        let world = World::new();
        let program = world.launch(shell("trap '' TERM; exec sleep 1000", isolation)).await;
        program.process.end(long(Terminate::Program));
        program.process.kill();
        program.process.kill();
        let ended = Exited { how: How::Killed, after: Some(Measure::Killed), n_left: 0 };
        assert_eq!(exited(&program).await, ended, "{isolation}");
    }
}

/// A machine may lack namespaces for a moment, for instance because an agent has taken all processes.
#[tokio::test]
async fn a_moment_without_namespaces_weakens_nothing_that_is_started_later() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    let path = |name: &str| world.directory.path().join(name);
    let script = format!(
        "#!/bin/sh\ntest -e {} && exit 1\nexec {} \"$@\"\n",
        path("lacking").display(),
        program().display()
    );
    std::fs::write(path("launcher"), script).expect("room");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(path("launcher"), mode).expect("it is ours");
    let spawn = |_name, task| drop(tokio::spawn(task));
    let launches = Launches::new(path("launches"));
    let supervisor = Supervisor::new(path("launcher"), launches, Arc::new(spawn));
    std::fs::write(path("lacking"), "").expect("room");
    let (first, why) = supervisor.strongest("first").await;
    assert!(first != Isolation::Namespaces && why.is_some(), "{first} {why:?}");
    std::fs::remove_file(path("lacking")).expect("it is ours");
    assert_eq!(supervisor.strongest("second").await, (Isolation::Namespaces, None));
    // From now on a launch fails rather than being held by less.
    std::fs::write(path("lacking"), "").expect("room");
    assert_eq!(supervisor.strongest("third").await, (Isolation::Namespaces, None));
    assert!(supervisor.launch(shell("true", Isolation::Namespaces)).await.is_err());
}

#[tokio::test]
async fn what_cannot_be_started_leaves_nothing() {
    let world = World::new();
    for isolation in offered(ALL).await {
        let launch = shell("", isolation);
        let no_program = Launch { program: "/no/such/program".into(), ..launch.clone() };
        let no_directory = Launch { directory: "/no/such/directory".into(), ..launch.clone() };
        let hidden = world.directory.path().join("hidden");
        std::fs::create_dir(&hidden).expect("it can be made");
        let mask = Mask::of(&hidden).expect("it is there");
        std::fs::remove_dir(&hidden).expect("it is ours");
        let no_mask = Launch { masked: vec![mask], ..launch };
        let gone = format!("{}: No such file or directory (os error 2)", hidden.display());
        for (launch, step, why) in [
            (no_program, Step::Program, "/no/such/program: No such file or directory (os error 2)"),
            (no_directory, Step::Directory, "there is no directory /no/such/directory"),
            (no_mask, Step::Masks, &*gone),
        ] {
            if step == Step::Masks && !isolation.masks() {
                continue;
            }
            let Err(Error::Failed(failure)) = world.supervisor.launch(launch).await else {
                panic!("{isolation}: {step} did not fail")
            };
            assert_eq!(failure, Failure { step, why: why.into() }, "{isolation}");
            assert_eq!(world.n_notes(), 0);
        }
    }
}

#[tokio::test]
async fn two_launches_have_two_names() {
    let world = World::new();
    let launch = shell("exec cat", Isolation::Subreaper);
    let first = world.launch(launch.clone()).await;
    let second = world.supervisor.launch(launch.clone()).await;
    assert!(matches!(second, Err(Error::Note { .. })), "{second:?}");
    let improper = Launch { id: "../elsewhere".into(), ..launch };
    let improper = world.supervisor.launch(improper).await;
    assert!(matches!(improper, Err(Error::Note { .. })), "{improper:?}");
    first.process.kill();
    assert_eq!(exited(&first).await.how, How::Killed);
}

#[tokio::test]
async fn a_probe_tells_what_this_machine_offers() {
    let world = World::new();
    let probe = world.supervisor.probe("probe").await;
    for (what, why_not) in probe.facts() {
        println!("launcher: {what}: {}", why_not.map_or("yes".into(), |why| format!("no: {why}")));
    }
    assert_eq!(probe.subreaper, Ok(()));
    assert_eq!(probe.namespaces.is_ok(), probe.best() == Isolation::Namespaces);
    assert_eq!(world.n_notes(), 0);
}
