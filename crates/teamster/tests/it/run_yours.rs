//! Files that a person changes while no agent of a run is alive: they are theirs, however the agent ended. And what the
//! agent had done by then is not lost.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and a person uses a shell"
)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::appearing::until_exists;
use crate::launcher::orphans::wait_for_ends;
use crate::unattended::until_said;
use crate::work::{Project, said};

/// How an iteration is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// `steer stop --now`.
    Stop,
    /// Ctrl-C of `run --headless`.
    CtrlC,
    /// Three iterations in a row fail.
    Failures,
    /// Its account has nothing left for a while.
    Parked,
    /// The hub is stopped.
    Down,
    /// The hub is killed.
    Kill,
    /// The hub is killed, and the launchers of its agents with it, as when the machine goes down.
    KillAll,
}

const SPEC: &str = "One thing, then another.\n! call task-add {\"tasks\":[{\"content\":\"one\"},{\"content\":\"two\"}]}\n";

/// The first agent that comes here changes files, and is interrupted after that.
const TEMPLATE: &str = r#"
! call task-next {"claim":true}
! run sh HOME/agent.sh {{iteration}}
! HOLD
! write files/{{iteration}}.txt done
! call task-update {"id":"$call1.id","status":"completed"}
! call iteration-summary {"summary":"did $call1.content"}
! call session-complete
"#;

const AGENT: &str = r#"
test -e "$0.done" && exit
echo agent > theirs.txt
mkdir -p new/dir && echo agent > new/dir/file.txt
echo agent >> changed.txt
echo agent >> both.txt
rm sub/removed.txt
touch "$0.done"
# If nobody sees the hub's end, only what is older than the agent's last word by some milliseconds is known to be its own.
sleep 0.1
"#;

const HOLD: &str = "test -e \"$0.go\" && exit\ntouch \"$0.waits\"\nwhile ! test -e \"$0.go\"; do sleep 0.05; done\n";

/// What the person does: a key, a note, a file that the agent had changed, one that they do not want, a commit of their own.
const PERSON: &str = r#"
set -e
echo SECRET=x > .env
echo mine >> notes.txt
echo mine >> both.txt
rm unwanted.txt
echo own > own.txt
git add own.txt
git -c user.name=Ann -c user.email=ann@example.org commit -q -m 'by the person'
"#;

fn project(how: How) -> Project {
    prepared(how, Project::start(""))
}

fn prepared(how: How, project: Project) -> Project {
    std::fs::create_dir(project.path.join("sub")).expect("it can be made");
    for file in
        ["notes.txt", "both.txt", "changed.txt", "unwanted.txt", "sub/removed.txt", "sub/keep"]
    {
        project.write(file, "as it was\n");
    }
    project.git(&["add", "-A"]);
    project.git(&["commit", "-q", "-m", "second"]);
    project.write_aside("SPEC.md", SPEC);
    project.write_aside("agent.sh", AGENT);
    project.write_aside("hold.sh", HOLD);
    let hold = match how {
        How::Failures => "! say $call7.nothing".to_owned(),
        How::Parked => "! limit usage limit, try again in 4 seconds".to_owned(),
        How::Stop | How::CtrlC | How::Down => format!("! run sh {}", project.aside("hold.sh")),
        // Longer before the end of the hub than nobody knows whose a file is.
        How::Kill | How::KillAll => format!("! sleep 700\n! run sh {}", project.aside("hold.sh")),
    };
    let home = project.world.home.path().to_string_lossy().into_owned();
    let template = TEMPLATE.replace("HOME", &home).replace("! HOLD", &hold);
    project.write_aside("template.md", &template);
    project
}

/// Waits until a file beside the project is there.
fn until_there(project: &Project, name: &str) {
    until_exists(&project.world.home.path().join(name), || project.world.hub.ok(&["log"]));
}

/// Returns the processes of a hub's agents, and their launchers.
fn processes(project: &Project) -> Vec<Pid> {
    let home = project.world.home.path().to_string_lossy().into_owned();
    let read = |path: std::path::PathBuf| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let all = std::fs::read_dir("/proc").expect("it can be read").flatten();
    let marked = all.filter(|entry| {
        let environ = read(entry.path().join("environ"));
        environ.contains("TEAMSTER_LAUNCH=worker-") && environ.contains(&home)
    });
    let pid = |entry: std::fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    marked.filter_map(pid).collect()
}

/// Begins the run, has its first iteration interrupted, does what a person does, and has it go on to its end.
fn play(how: How, person: &str) -> (Project, Output) {
    let mut project = project(how);
    let does = |project: &Project| {
        let mut shell = Command::new("sh");
        let done = shell.current_dir(&project.path).args(["-c", person]).status();
        assert!(done.expect("it starts").success());
    };
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    let mut run = project.world.hub.command();
    run.args(["run", &spec, "--headless", "--template", &template, "--dir"]).arg(&project.path);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = match how {
        How::Stop | How::CtrlC | How::Failures => {
            match how {
                How::Stop => {
                    until_there(&project, "hold.sh.waits");
                    project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
                    // Once the command is back, the agents have ended, whether or not the run's own command has noticed.
                    does(&project);
                }
                How::CtrlC => {
                    until_there(&project, "hold.sh.waits");
                    let pid = Pid::from_raw(run.id().cast_signed()).expect("it is one");
                    kill_process(pid, Signal::INT).expect("it runs");
                }
                _ => {}
            }
            let output = run.wait_with_output().expect("it ends");
            assert!(!output.status.success(), "{how:?}: {}", said(&output));
            if how != How::Stop {
                does(&project);
            }
            project.write_aside("hold.sh.go", "");
            if how == How::Failures {
                let good =
                    std::fs::read_to_string(project.aside("template.md")).expect("it is there");
                project.write_aside("template.md", &good.replace("! say $call7.nothing\n", ""));
            }
            project.run(&["--resume"])
        }
        How::Parked => {
            until_said(&project.world, "accepts no requests");
            does(&project);
            run.wait_with_output().expect("it ends")
        }
        How::Down | How::Kill | How::KillAll => {
            until_there(&project, "hold.sh.waits");
            let processes = processes(&project);
            let signal = if how == How::Down { Signal::TERM } else { Signal::KILL };
            project.world.hub.end(signal);
            if how == How::KillAll {
                for process in &processes {
                    let _ = kill_process(*process, Signal::KILL);
                }
            }
            wait_for_ends(&processes);
            does(&project);
            project.write_aside("hold.sh.go", "");
            project.world.start_again();
            run.wait_with_output().expect("it ends")
        }
    };
    (project, output)
}

const ALL: [How; 7] =
    [How::Stop, How::CtrlC, How::Failures, How::Parked, How::Down, How::Kill, How::KillAll];

#[test]
fn what_changes_while_no_agent_is_alive_is_not_committed() {
    for how in ALL {
        let (project, output) = play(how, PERSON);
        let told = || format!("{how:?}: {}\n{}", said(&output), project.world.hub.ok(&["log"]));
        // Something is left for the person: the file that both have changed.
        assert_eq!(output.status.code(), Some(7), "{}", told());
        assert_eq!(
            project.git(&["status", "--porcelain"]),
            " M both.txt\n M notes.txt\n D unwanted.txt\n?? .env",
            "{}",
            told()
        );
        let both = std::fs::read_to_string(project.path.join("both.txt")).expect("it is there");
        assert_eq!(both, "as it was\nagent\nmine\n", "{}", told());
        for (file, is) in [
            ("theirs.txt", "agent"),
            ("new/dir/file.txt", "agent"),
            ("changed.txt", "as it was\nagent"),
            ("both.txt", "as it was"),
            ("notes.txt", "as it was"),
            ("unwanted.txt", "as it was"),
        ] {
            assert_eq!(project.git(&["show", &format!("HEAD:{file}")]), is, "{file}: {}", told());
        }
        assert_eq!(project.git(&["ls-tree", "HEAD", "sub/removed.txt"]), "", "{}", told());
        // It is named.
        let log = project.world.hub.ok(&["log"]);
        let is_named = |line: &str| line.contains("warning: ") && line.contains("both.txt");
        assert!(log.lines().any(is_named), "{}", told());
        // What the person has committed is no iteration's.
        let own = project.git(&["log", "--format=%H", "--grep=by the person"]);
        assert!(!own.is_empty() && !log.contains(&own[..12]), "{}", told());
        let files = project.git(&["show", "--format=", "--name-only", &own]);
        assert_eq!(files, "own.txt", "{}", told());
    }
}

/// Right before it waits, the agent writes a file, to which later ones add a line.
const HOLD_LATE: &str = r#"
test -e "$0.go" && { echo again >> late.txt; exit; }
echo agent > late.txt
touch "$0.waits"
while ! test -e "$0.go"; do sleep 0.05; done
"#;

/// A script kills the hub and writes without a pause, while the agent still runs. What the agent wrote in the same moment
/// cannot be told from that: it stays in the files, and is named.
#[test]
fn what_a_script_writes_right_after_it_kills_the_hub_is_not_committed() {
    for round in 1..=5 {
        let mut project = project(How::Kill);
        project.write_aside("hold.sh", HOLD_LATE);
        let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
        let mut run = project.world.hub.command();
        run.args(["run", &spec, "--headless", "--template", &template, "--dir"]).arg(&project.path);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        until_there(&project, "hold.sh.waits");
        let notes = std::fs::OpenOptions::new().append(true).open(project.path.join("notes.txt"));
        let mut notes = notes.expect("it can be opened");
        kill_process(project.world.hub.hub_process, Signal::KILL).expect("it runs");
        project.write(".env", "SECRET=x\n");
        notes.write_all(b"mine\n").expect("it can be written");
        project.world.hub.end(Signal::KILL);
        project.write_aside("hold.sh.go", "");
        project.world.start_again();
        let output = run.wait_with_output().expect("it ends");
        let log = project.world.hub.ok(&["log"]);
        let told = || format!("round {round}: {}\n{log}", said(&output));
        assert_eq!(output.status.code(), Some(7), "{}", told());
        assert_eq!(
            project.git(&["status", "--porcelain"]),
            " M notes.txt\n?? .env\n?? late.txt",
            "{}",
            told()
        );
        for file in [".env", "late.txt", "notes.txt"] {
            let is_named = |line: &str| line.contains("warning: ") && line.contains(file);
            assert!(log.lines().any(is_named), "{file}: {}", told());
        }
        let late = std::fs::read_to_string(project.path.join("late.txt")).expect("it is there");
        // Both iterations that come after it add to the file, and neither commits it.
        assert_eq!(late, "agent\nagain\nagain\n", "{}", told());
        for (file, is) in [("theirs.txt", "agent"), ("changed.txt", "as it was\nagent")] {
            assert_eq!(project.git(&["show", &format!("HEAD:{file}")]), is, "{file}: {}", told());
        }
    }
}

/// Several workers do not see the files of one who worked alone, so its work waits for them on a branch; the person's own
/// changes stay where they are.
#[test]
fn what_one_worker_left_is_on_a_branch_for_several() {
    let project = project(How::Stop);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_there(&project, "hold.sh.waits");
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        run.join().expect("it ends")
    });
    let mut shell = Command::new("sh");
    let done = shell.current_dir(&project.path).args(["-c", PERSON]).status();
    assert!(done.expect("it starts").success());
    project.write_aside("hold.sh.go", "");
    let output = project.run(&["--resume", "--workers", "3"]);
    let told = || format!("{}\n{}", said(&output), project.world.hub.ok(&["log"]));
    // The file that both have changed is left to the person.
    assert_eq!(output.status.code(), Some(7), "{}", told());
    assert_eq!(
        project.git(&["status", "--porcelain"]),
        " M both.txt\n M notes.txt\n D unwanted.txt\n?? .env",
        "{}",
        told()
    );
    let branch = "teamster/run-SPEC/cut-off-1";
    assert!(
        said(&output).contains(&format!("was moved from there to the branch {branch}")),
        "{}",
        told()
    );
    assert!(project.world.hub.ok(&["note", "SPEC"]).contains(branch), "{}", told());
    let changed = project.git(&["diff", "--name-status", &format!("{branch}^"), branch]);
    let expected = "M\tchanged.txt\nA\tnew/dir/file.txt\nD\tsub/removed.txt\nA\ttheirs.txt";
    assert_eq!(changed, expected, "{}", told());
    assert!(!project.path.join("new").exists() && project.path.join("sub/removed.txt").exists());
}

/// A run that has one place for agents: while somebody else has it, an iteration that has begun waits for its agent.
#[test]
fn what_changes_before_an_agent_starts_is_not_committed() {
    let project = prepared(How::Stop, Project::start("[pool]\nrunning = 1\n"));
    let occupy = |name: &str| {
        project.write_aside(&format!("{name}.sh"), HOLD);
        project.world.draft("coder", &format!("! run sh {}", project.aside(&format!("{name}.sh"))));
        until_there(&project, &format!("{name}.sh.waits"));
    };
    let leave = |name: &str| drop(project.write_aside(&format!("{name}.sh.go"), ""));
    std::thread::scope(|scope| {
        occupy("first");
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "iteration 0 plans");
        project.write("early.txt", "mine\n");
        leave("first");
        until_there(&project, "hold.sh.waits");
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        run.join().expect("it ends")
    });
    project.write_aside("hold.sh.go", "");
    let output = std::thread::scope(|scope| {
        occupy("second");
        let run = scope.spawn(|| project.run(&["--resume"]));
        until_said(&project.world, "iteration 2 begins");
        project.write("late.txt", "mine\n");
        project.write("notes.txt", "mine\n");
        // Longer than an agent takes to start.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        leave("second");
        run.join().expect("it ends")
    });
    let told = || format!("{}\n{}", said(&output), project.world.hub.ok(&["log"]));
    assert_eq!(output.status.code(), Some(0), "{}", told());
    assert_eq!(
        project.git(&["status", "--porcelain"]),
        " M notes.txt\n?? early.txt\n?? late.txt",
        "{}",
        told()
    );
    for (file, is) in [("theirs.txt", "agent"), ("changed.txt", "as it was\nagent")] {
        assert_eq!(project.git(&["show", &format!("HEAD:{file}")]), is, "{file}: {}", told());
    }
}

/// An agent that has completed its item and is parked may be ended without another process; its work is committed then.
#[test]
fn what_changes_while_an_agent_that_is_done_is_parked_is_not_committed() {
    let project = project(How::Parked);
    let template = r#"
! call task-next {"claim":true}
! write files/{{iteration}}.txt done
! call task-update {"id":"$call1.id","status":"completed"}
! limit usage limit, try again in 60 seconds
"#;
    project.write_aside("template.md", template);
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "accepts no requests");
        project.write(".env", "SECRET=x\n");
        project.write("notes.txt", "mine\n");
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        run.join().expect("it ends")
    });
    let told = || format!("{}\n{}", said(&output), project.world.hub.ok(&["log"]));
    assert_eq!(output.status.code(), Some(5), "{}", told());
    assert_eq!(project.git(&["show", "HEAD:files/1.txt"]), "done", "{}", told());
    let status = project.git(&["status", "--porcelain"]);
    assert_eq!(status, " M notes.txt\n?? .env", "{}", told());
}

/// A file that an agent and the person have changed is left to the person, also in a run that is resumed after that.
#[test]
fn a_resumed_run_still_says_what_is_left() {
    let project = project(How::Stop);
    project.write_aside("hold.sh.go", "");
    project.write("both.txt", "as it was\nmine\n");
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let yours = project.git(&["show", "refs/teamster/run-SPEC/yours-1:both.txt"]);
    assert_eq!(yours, "as it was\nmine");
    let output = project.run(&["--resume", "--iterations", "5"]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let says = "these files are not committed, because no agent changed them alone: both.txt";
    assert!(said(&output).contains(says), "{}", said(&output));
}

/// Nobody has to resume a run to get back what its agent has overwritten.
#[test]
fn what_an_interrupted_agent_overwrites_is_kept_at_once() {
    let project = project(How::Stop);
    project.write("both.txt", "mine\n");
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_there(&project, "hold.sh.waits");
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        run.join().expect("it ends")
    });
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let yours = project.git(&["show", "refs/teamster/run-SPEC/yours-1:both.txt"]);
    assert_eq!(yours, "mine", "{}", said(&output));
    let refused = project.world.hub.fails(&["run", "forget", "SPEC"]);
    assert!(refused.contains("yours-1"), "{refused}");
}
