//! Specs worked off in iterations, by scripted agents in real git repositories.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and git is a program"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::agents::World;
use crate::hub::DEADLINE;
use crate::unattended::{question, until_said};

/// A hub, and a project in a git repository with one commit.
pub(crate) struct Project {
    pub(crate) world: World,
    pub(crate) path: PathBuf,
}

/// What is planned: five items, of which the second waits for the fourth.
pub(crate) const SPEC: &str = r#"Build five things.

! call task-add {"tasks":[{"content":"one"},{"content":"two"},{"content":"three","priority":3},{"content":"four","priority":1},{"content":"five","priority":4}]}
! call task-update {"id":"TAS-2","depends_on":"TAS-4"}
! call task-update {"id":"TAS-3","depends_on":"TAS-2"}
! call note-add {"notes":[{"content":"remember the milk","type":"tip"}]}
! call iteration-summary {"summary":"planned five things"}
! say planned
"#;

/// What each iteration does: one item, a file of its own, and another that all of them change.
pub(crate) const TEMPLATE: &str = r#"Notes: {{notes}}
! call task-next {"claim":true}
! write files/{{iteration}}.txt $last.id $last.content
! write newest.txt {{iteration}}
! call task-update {"id":"$call1.id","status":"completed"}
! call iteration-summary {"summary":"did $call1.content\n\nand more of it"}
! call session-complete
! say done
"#;

/// Runs git in a repository, as somebody whose own configuration does not matter.
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args(args)
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

impl Project {
    pub(crate) fn start(settings: &str) -> Self {
        let world = World::start(settings);
        let path = world.home.path().join("project");
        std::fs::create_dir_all(path.join("files")).expect("it can be made");
        let project = Self { world, path };
        project.git(&["init", "-q", "-b", "main"]);
        project.write("README", "read me\n");
        project.write("files/keep", "");
        project.git(&["add", "-A"]);
        project.git(&["commit", "-q", "-m", "first"]);
        project.write_aside("SPEC.md", SPEC);
        project.write_aside("template.md", TEMPLATE);
        project
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.path, args)
    }

    /// The same, waiting for others who use the repository at this moment, as a person would.
    pub(crate) fn git_patiently(&self, args: &[&str]) {
        let since = std::time::Instant::now();
        while since.elapsed() < DEADLINE {
            let mut git = Command::new("git");
            git.current_dir(&self.path).args(["-c", "user.name=Ann"]);
            let done = git.args(["-c", "user.email=ann@example.org"]).args(args).output();
            let done = done.expect("git runs");
            let says = String::from_utf8_lossy(&done.stderr).into_owned();
            if done.status.success() {
                return;
            }
            assert!(says.contains(".lock") || says.contains("cannot lock ref"), "{args:?}: {says}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{args:?}: the repository is locked");
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join(name), text).expect("it can be written");
    }

    /// Writes a file that is not in the project.
    pub(crate) fn write_aside(&self, name: &str, text: &str) -> PathBuf {
        let path = self.world.home.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }

    pub(crate) fn aside(&self, name: &str) -> String {
        self.world.home.path().join(name).to_string_lossy().into_owned()
    }

    /// Works the spec off in the foreground.
    pub(crate) fn run(&self, more: &[&str]) -> Output {
        let (spec, template) = (self.aside("SPEC.md"), self.aside("template.md"));
        let directory = self.path.to_string_lossy();
        let mut args = vec!["run", &spec, "--headless", "--template", &template];
        if !more.contains(&"--dir") {
            args.extend(["--dir", &directory]);
        }
        args.extend(more);
        self.world.hub.run(&args)
    }

    pub(crate) fn view(&self, run: &str) -> Value {
        let runs = self.world.hub.ok(&["runs", "--json"]);
        let runs: Vec<Value> = serde_json::from_str(&runs).expect("it is JSON");
        runs.into_iter().find(|one| one["name"] == run).expect("the run is known")
    }

    /// Returns the commits, oldest first, each with the files that it changed.
    pub(crate) fn commits(&self) -> Vec<(String, Vec<String>)> {
        let log = self.git(&["log", "--reverse", "--format=%x00%s", "--name-only", "--no-renames"]);
        let commits = log.split('\0').skip(1).map(|entry| {
            let mut lines = entry.lines().filter(|line| !line.is_empty());
            let subject = lines.next().unwrap_or_default().to_owned();
            (subject, lines.map(ToOwned::to_owned).collect())
        });
        commits.collect()
    }
}

pub(crate) fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_spec_is_worked_off_item_by_item_with_a_commit_each() {
    let project = Project::start("");
    let output = project.run(&[]);
    assert!(output.status.success(), "{}", said(&output));
    let commits = project.commits();
    let subjects: Vec<&str> = commits.iter().map(|(subject, _)| subject.as_str()).collect();
    // The most urgent first, and nothing before what it waits for.
    assert_eq!(subjects, ["first", "did four", "did one", "did two", "did three", "did five"]);
    for (n, (_, files)) in commits.iter().enumerate().skip(1) {
        assert_eq!(*files, [format!("files/{n}.txt"), "newest.txt".to_owned()]);
    }
    let body = project.git(&["log", "-1", "--format=%B"]);
    let body = body.trim_end();
    assert!(
        body.starts_with("did five\n\nand more of it\n\nTAS-5: five\n\nTeamster-Seal: "),
        "{body}"
    );
    assert!(body.ends_with("\nTeamster-Iteration: SPEC#5"), "{body}");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
    let view = project.view("SPEC");
    assert_eq!((&view["phase"], &view["iterations"]), (&json!("completed"), &json!(5)), "{view}");
    let log = project.world.hub.ok(&["log"]);
    assert!(log.contains("SPEC: iteration 0: planned five things"), "{log}");
}

/// What a person had changed before is theirs, and stays so.
#[test]
fn nothing_is_committed_that_was_changed_before() {
    let project = Project::start("");
    project.write("README", "my own words\n");
    project.write("mine.txt", "mine\n");
    project.write("staged.txt", "staged\n");
    project.git(&["add", "staged.txt"]);
    let output = project.run(&["--iterations", "2"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert_eq!(project.git(&["status", "--porcelain"]), " M README\nA  staged.txt\n?? mine.txt");
    assert_eq!(project.commits().len(), 3);
    // It goes on where it was.
    let again = project.run(&["--resume"]);
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(project.commits().len(), 6);
    assert_eq!(project.git(&["status", "--porcelain"]), " M README\nA  staged.txt\n?? mine.txt");
}

#[test]
fn whoever_follows_a_run_sees_what_it_waits_for() {
    let project = Project::start("[permissions]\nask = [\"*\"]\n");
    let waits = "! limit usage limit, try again in 1 seconds\n! ask to test it\n! call task-next";
    let template = TEMPLATE.replace("! call task-next", waits);
    project.write_aside("template.md", &template);
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&["--iterations", "1"]));
        let asked = question(&project.world);
        project.world.hub.ok(&["answer", asked["id"].as_str().expect("it has one"), "allow"]);
        run.join().expect("it ends")
    });
    let said = said(&output);
    for part in
        ["scripted accepts no requests for now", "wants to: to test it", "answer Q-1 allow|deny"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_run_is_paused_told_something_and_stopped() {
    let project = Project::start("");
    let hub = &project.world.hub;
    // It does not say where messages belong; they come all the same.
    let template = TEMPLATE.replace("! call task-next", "! sleep 300\n! call task-next");
    project.write_aside("template.md", &template);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "iteration 1 begins");
        hub.ok(&["steer", "SPEC", "pause"]);
        until_said(&project.world, "iteration 1 ended");
        assert_eq!(project.view("SPEC")["phase"], "paused");
        hub.ok(&["steer", "SPEC", "tell", "mind the gap"]);
        hub.ok(&["item", "SPEC", "TAS-5", "--status", "cancelled"]);
        hub.ok(&["item", "SPEC", "TAS-1", "--content", "one and a half"]);
        hub.ok(&["steer", "SPEC", "go-on"]);
        until_said(&project.world, "iteration 2 ended");
        hub.ok(&["steer", "SPEC", "stop"]);
        let output = run.join().expect("it ends");
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    });
    let transcript = hub.ok(&["agent", "show", "worker-3", "--json"]);
    assert!(transcript.contains("> mind the gap"), "{transcript}");
    assert!(project.commits().iter().any(|(subject, _)| subject == "did one and a half"));
}
