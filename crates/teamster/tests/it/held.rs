//! What the hub runs itself where agents work: it is held as they are, and so is all that their files make it start.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::expect;
use teamster_agents::deputy::{Command, Error, FileTask, How, Output, STDOUT_BYTES_MAX};
use teamster_agents::isolation::Isolation;
use teamster_hub::config::DataFiles;
use teamster_hub::held::{Confined, Guarded};
use tempfile::TempDir;

use crate::appearing::until_exists;
use crate::hub::program;
use crate::launcher::offered;
use crate::unattended::until_said;
use crate::work::{Project, TEMPLATE, said};

struct World {
    place: TempDir,
    held: Confined,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        std::fs::create_dir(&data).expect("it can be made");
        let config = place.path().join("config/teamster");
        let guarded = Guarded::new(&DataFiles::of(&data), None, Some(&config));
        let held = Confined::by_program(program(), &data, guarded.expect("the data is there"));
        Self { place, held }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn shell(&self, script: &str) -> Command {
        let command = Command::new("sh", self.place.path()).args(["-c", script]);
        Command { time_limit: Duration::from_secs(60), ..command }
    }

    async fn run(&self, script: &str) -> Output {
        self.held.run(self.shell(script)).await.expect("it runs")
    }

    fn n_notes(&self) -> usize {
        std::fs::read_dir(self.path("data/launches")).map_or(0, Iterator::count)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is UTF-8")
}

#[tokio::test]
async fn commands_are_run_as_they_are_given() {
    let world = World::new();
    let mut command = world.shell("cat; echo \"$0 $ONE\" >&2; pwd; exit 7").args(["a \"'\n b"]);
    command = command.env("ONE", "two\nthree");
    command.input = (0..=255).cycle().take(3_000_000).collect();
    let output = world.held.run(command.clone()).await.expect("it runs");
    let mut expected = command.input;
    expected.extend(format!("{}\n", world.place.path().display()).into_bytes());
    assert!(output.stdout == expected);
    assert_eq!((output.how, text(&output.stderr)), (How::Code(7), "a \"'\n b two\nthree\n"));
    assert_eq!(world.run("kill -9 $$").await.how, How::Signal(9));
    // Like hooks, it has a few variables, and none of ours; nor has it files that are open here.
    let variables = world.run("env; ls /proc/self/fd").await;
    assert!(!text(&variables.stdout).contains("CARGO"), "{variables:?}");
    assert!(text(&variables.stdout).ends_with("\n0\n1\n2\n3\n"), "{variables:?}");
    for (program, directory) in [("no-such-program", "/"), ("sh", "/no/such/directory")] {
        let error =
            world.held.run(Command::new(program, directory)).await.expect_err("there is none");
        assert!(matches!(&error, Error::NotStarted(why) if why.contains("No such")), "{error:?}");
    }
    assert_eq!(world.n_notes(), 1, "one process runs them all");
    world.held.end().await;
    assert_eq!(world.n_notes(), 0);
}

#[tokio::test]
async fn many_commands_are_run_at_once_and_each_is_answered() {
    let world = World::new();
    let each = (0..100).map(|n| {
        let world = &world;
        async move {
            let output = world.run(&format!("sleep 0.0{}; echo {n}", 9 - n % 10)).await;
            assert_eq!(text(&output.stdout), format!("{n}\n"));
        }
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_command_has_its_bounds() {
    let world = World::new();
    // All of its group ends at its time, and what leaves it behind does not keep it waiting.
    let slow = Command {
        time_limit: Duration::from_millis(100),
        ..world.shell("sleep 1000 & echo begun; wait")
    };
    let output = world.held.run(slow).await.expect("it runs");
    assert_eq!((output.how, text(&output.stdout)), (How::TimedOut, "begun\n"));
    let left = world.run("setsid sleep 1000 & echo done").await;
    assert_eq!((left.how, text(&left.stdout)), (How::Code(0), "done\n"));
    let flood = world.run("yes").await;
    assert_eq!((flood.how, flood.stdout.len()), (How::TooMuch, STDOUT_BYTES_MAX));
    let loud = world.run("yes no | head -c 1000000 >&2").await;
    assert!(loud.is_ok() && loud.stderr.starts_with(b"no\n"), "{:?}", loud.how);
    // Nobody waits for one that was given up.
    let given_up = world.run("echo $$ >pid; exec sleep 1000");
    assert!(tokio::time::timeout(Duration::from_millis(300), given_up).await.is_err());
    let gone = "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo gone";
    assert_eq!(text(&world.run(gone).await.stdout), "gone\n");
}

#[tokio::test]
async fn one_that_is_killed_is_started_again() {
    let world = World::new();
    let first = world.run("echo $PPID").await;
    let lost = world.held.run(world.shell("kill -9 $PPID; exec sleep 1000")).await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    let second = world.run("echo again").await;
    assert_eq!((first.is_ok(), text(&second.stdout)), (true, "again\n"));
    assert_eq!(world.n_notes(), 1);
    // While nobody asked for anything, too.
    world.run("(sleep 0.1; kill -9 $PPID) >/dev/null 2>&1 &").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(text(&world.run("echo again").await.stdout), "again\n");
}

#[tokio::test]
async fn commands_see_nothing_of_the_hubs_data_and_cannot_speak_in_its_place() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    std::fs::write(world.path("data/operator.token"), "the token\n").expect("it can be written");
    let look = "cat data/operator.token; ls -A data; for file in 0 1; do echo x >/proc/$PPID/fd/$file && echo wrote; done";
    let seen = world.run(look).await;
    assert_eq!(text(&seen.stdout), "", "{seen:?}");
}

/// Git names files that the hub copies and reads, and an agent can have it name any.
#[tokio::test]
async fn files_that_git_names_are_handled_as_agents_see_them() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    let (token, copy) = (world.path("data/operator.token"), world.path("copy"));
    std::fs::write(&token, "the token\n").expect("it can be written");
    std::os::unix::fs::symlink(world.path("data"), world.path("git")).expect("a link");
    let tries = || {
        [token.clone(), world.path("git/operator.token")].into_iter().flat_map(|from| {
            let aside = world.path("aside");
            [
                FileTask::copy(&from, &copy),
                FileTask::read(&from, 100),
                FileTask::rename(&from, &aside),
                FileTask::remove(&from),
            ]
        })
    };
    for task in tries() {
        let done = world.held.file(task.clone()).await;
        assert!(done.is_err(), "{task:?}: {done:?}");
    }
    assert!(token.exists() && !copy.exists());
    let all = FileTask::remove_all(&world.path("data/launches"));
    let _ = world.held.file(all).await;
    assert!(world.path("data/launches").exists());
    // The control: with the hub's own rights each of them does what it says.
    let first = tries().next().expect("there are some");
    Confined::here().file(first).await.expect("nothing is hidden from it");
    assert_eq!(std::fs::read_to_string(&copy).expect("it was copied"), "the token\n");
}

/// A run's worktrees are where agents write, so a link can lead from there to what only the hub may remove.
#[tokio::test]
async fn forgetting_a_run_removes_nothing_that_a_link_leads_to() {
    let project = Project::start("");
    let output = project.run(&["--iterations", "1"]);
    assert!(project.commits().len() > 1, "{}", said(&output));
    let data = project.world.hub.data();
    let kept = data.join("kept");
    std::fs::create_dir(&kept).expect("it can be made");
    let name = format!("{}-worktrees", data.file_name().expect("a name").to_string_lossy());
    let worktrees = data.with_file_name(name);
    std::fs::create_dir_all(&worktrees).expect("it can be made");
    let link = worktrees.join("run-SPEC");
    std::os::unix::fs::symlink(data, link).expect("a link");
    project.world.hub.ok(&["run", "forget", "SPEC", "--force"]);
    assert!(kept.exists());
}

/// An agent can put a program called git where it is found first.
#[tokio::test]
async fn another_git_in_the_way_of_the_hubs_is_not_run() {
    let mut project = Project::start("");
    let (bin, ran) = (project.aside("bin"), project.aside("ran"));
    std::fs::create_dir(&bin).expect("it can be made");
    let git = project.write_aside("bin/git", &format!("#!/bin/sh\necho >{ran}\nexit 1\n"));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&git, executable).expect("they can be set");
    let path = format!("{bin}:/usr/local/bin:/usr/bin:/bin");
    project.world.start_again_with_path(Path::new(&path));
    let output = project.run(&["--iterations", "1"]);
    assert!(!Path::new(&ran).exists(), "{}", said(&output));
    assert!(project.commits().len() > 1, "{}", said(&output));
    // The control: by its name it is found first.
    let by_name = Command::new("sh", &project.path).args(["-c", "git status"]).env("PATH", path);
    Confined::here().run(by_name).await.expect("it runs");
    assert!(Path::new(&ran).exists());
}

/// An agent cannot read the hub's data, and neither can what it has git start.
#[tokio::test]
async fn what_git_starts_in_a_run_sees_no_more_than_agents_do() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let project = Project::start("");
    project.git(&["config", "filter.mine.clean", "sh ./clean.sh"]);
    project.git(&["config", "merge.mine.driver", "sh ./clean.sh"]);
    project.write(".gitattributes", "files/* filter=mine\nnewest.txt merge=mine\n");
    project.git(&["add", "-A"]);
    project.git(&["commit", "-q", "-m", "attributes"]);
    let (data, out) = (project.world.hub.data().display().to_string(), project.aside("out"));
    // What an agent writes there, whoever told git to run it.
    let script =
        format!("(ls -A {data}; cat {data}/operator.token; echo ran) >>{out} 2>/dev/null; cat");
    let spy = project.write_aside("spy.sh", &script);
    let template = TEMPLATE
        .replace("! write newest", &format!("! run cp {} clean.sh\n! write newest", spy.display()));
    project.write_aside("template.md", &template);
    let output = project.run(&["--iterations", "2"]);
    let seen = std::fs::read_to_string(Path::new(&out)).unwrap_or_default();
    assert!(seen.contains("ran\n"), "the filter was not run: {}", said(&output));
    assert_eq!(seen.replace("ran\n", ""), "", "{}", said(&output));
    assert!(project.commits().iter().any(|(_, files)| files.contains(&"files/1.txt".to_owned())));
}

/// Does its best to change the configuration of the user, whose home is `.`.
const LOOSEN: &str = r#"
try() { if "$@" 2>/dev/null; then echo "can: $*"; else echo "cannot: $*"; fi; }
try cp evil config/teamster/teamster.toml
try cp evil config/teamster/roles/coder.md
try cp evil config/teamster/new.toml
try cp evil dotfiles/prices.toml
try rm -f config/teamster/teamster.toml
try rm -f dotfiles/prices.toml
try mv config/teamster config/other
try mv config other
try mv dotfiles other
try mount -o remount,rw config/teamster
umount -l config/teamster 2>/dev/null
try cp evil config/teamster/teamster.toml
unshare -rm sh -c 'umount -l config/teamster; mount -o remount,rw,bind config/teamster; cp evil config/teamster/teamster.toml' 2>/dev/null
try cp evil config/other.toml
cat config/teamster/teamster.toml
"#;

/// The hub reads it again at once, and it says what agents may.
#[tokio::test]
async fn the_users_configuration_cannot_be_changed() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    for directory in ["config/teamster/roles", "dotfiles"] {
        std::fs::create_dir_all(world.path(directory)).expect("it can be made");
    }
    for file in
        ["config/teamster/teamster.toml", "config/teamster/roles/coder.md", "dotfiles/prices.toml"]
    {
        std::fs::write(world.path(file), "mine\n").expect("it can be written");
    }
    let link = world.path("config/teamster/prices.toml");
    std::os::unix::fs::symlink(world.path("dotfiles/prices.toml"), link).expect("it can be made");
    std::fs::write(world.path("evil"), "theirs\n").expect("it can be written");
    let tried = world.run(LOOSEN).await;
    expect![[r#"
        cannot: cp evil config/teamster/teamster.toml
        cannot: cp evil config/teamster/roles/coder.md
        cannot: cp evil config/teamster/new.toml
        cannot: cp evil dotfiles/prices.toml
        cannot: rm -f config/teamster/teamster.toml
        cannot: rm -f dotfiles/prices.toml
        cannot: mv config/teamster config/other
        cannot: mv config other
        cannot: mv dotfiles other
        cannot: mount -o remount,rw config/teamster
        cannot: cp evil config/teamster/teamster.toml
        can: cp evil config/other.toml
        mine
    "#]]
    .assert_eq(text(&tried.stdout));
    let mine = std::fs::read_to_string(world.path("config/teamster/teamster.toml"));
    assert_eq!(mine.expect("it is there"), "mine\n");
}

/// One that is not there yet cannot be made by them either.
#[tokio::test]
async fn agents_and_hooks_of_a_run_cannot_change_the_users_configuration() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let project = Project::start("");
    let config = project.aside("config/teamster");
    let set =
        format!("[[hooks.pre_iteration]]\ncommand = [\"touch\", \"{}\"]\n", project.aside("ran"));
    let evil = project.write_aside("evil.toml", &set);
    let before = std::fs::read_to_string(format!("{config}/teamster.toml")).unwrap_or_default();
    let script = format!(
        "cp {} {config}/teamster.toml || true; mkdir -p {config}/roles && cp {0} {config}/roles/coder.md || true",
        evil.display()
    );
    let script = project.write_aside("script.sh", &script);
    let run = format!("! run sh {}\n! write newest", script.display());
    project.write_aside("template.md", &TEMPLATE.replace("! write newest", &run));
    let output =
        project.run(&["--iterations", "2", "--check", &format!("sh {}", script.display())]);
    let after = std::fs::read_to_string(format!("{config}/teamster.toml")).unwrap_or_default();
    assert_eq!(after, before, "{}", said(&output));
    assert!(!Path::new(&config).join("roles/coder.md").exists());
    assert!(!Path::new(&project.aside("ran")).exists());
    assert!(project.commits().len() > 1, "{}", said(&output));
}

/// What git had started is no agent, and is found like one.
#[cfg(target_os = "linux")]
#[test]
fn of_a_command_under_way_nothing_is_left_when_the_hub_is_killed() {
    use crate::launcher::orphans::marked;

    let mut project = Project::start("");
    let (up, mark) = (project.aside("up"), format!("100000.7{}", std::process::id()));
    let slow = format!("sh -c 'test -e {up} || {{ echo >{up}; sleep {mark}; }}; cat'");
    project.write(".gitattributes", "files/* filter=slow\n");
    project.git(&["add", ".gitattributes"]);
    project.git(&["commit", "-q", "-m", "attributes"]);
    project.git(&["config", "filter.slow.clean", &slow]);
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    let directory = project.path.to_string_lossy();
    let args = ["run", &spec, "--headless", "--template", &template, "--dir", &directory];
    let mut run = project.world.hub.command();
    run.args(args).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut run = run.spawn().expect("it starts");
    until_exists(Path::new(&up), || project.world.hub.ok(&["log"]));
    assert!(!marked(&mark).is_empty(), "the control: the filter is seen while it runs");
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    project.world.crash_and_start_again();
    let left = marked(&mark);
    assert!(left.is_empty(), "{left:?}");
    // The run goes on by itself.
    until_said(&project.world, "iteration 2 ended");
}
