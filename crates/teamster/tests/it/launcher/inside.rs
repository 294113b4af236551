//! What an agent sees from inside: its own processes, the environment it was given, and nothing of the hub's.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the test binary starts itself, and a broken fixture should panic"
)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect;
use rustix::io::{FdFlags, fcntl_setfd};
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::{How, Launch, Mask, Private, PrivateFile};
use teamster_agents::supervisor::Error;

use super::{ALL, STRONG, World, by_itself, exited, line, offered, rest, shell, supervisor};
use crate::hub::program;

/// Looks at the hub and its data in `$DATA`.
const CURIOUS: &str = r#"
try() { if "$@" >/dev/null 2>&1; then echo "can: $*"; else echo "cannot: $*"; fi; }
cd /
try cat "$DATA/token"
try ls -A "$DATA/launches"
try touch "$DATA/new"
echo "in the data directory: $(ls -A "$DATA" | wc -l)"
try kill -0 "$HUB"
try test -e "/proc/$HUB"
try ls "/proc/1/cwd/"
try cat /proc/1/environ
try cat "$PRIVATE/file"
"#;

/// Tries to get at them by all that a shell offers. Only for where it cannot.
const HOSTILE: &str = r#"
umount "$DATA" 2>/dev/null
try cat "$DATA/token"
umount -l "$DATA" 2>/dev/null
try cat "$DATA/token"
unshare -rm sh -c 'umount "$DATA"; cat "$DATA/token"' >"$OUT/1" 2>/dev/null
unshare -rm sh -c 'mount -t proc proc /proc; cat "/proc/$HUB/root/$DATA/token"' >"$OUT/2" 2>/dev/null
nsenter -t 1 -m cat "$DATA/token" >"$OUT/3" 2>/dev/null
mkdir "$OUT/bound" && mount --bind "$DATA/.." "$OUT/bound" 2>/dev/null
cat "$OUT/bound/data/token" >"$OUT/4" 2>/dev/null
cat "$OUT"/[0-9] | sort | uniq
try touch "$CONFIG/new"
unshare -rm sh -c 'umount -l "$CONFIG"; mount -o remount,bind,rw "$CONFIG"; touch "$CONFIG/new"' 2>/dev/null
try mv "$CONFIG/.." "$OUT/moved"
try cat "$CONFIG/file"
try cat "$CONFIG/new"
kill -9 1; kill -STOP 1
setsid true
echo "still here, as $(id -u), which owns $(stat -c %u "$OUT/1")"
echo "first process: $(tr '\0' ' ' </proc/1/cmdline)"
"#;

/// Lets an agent look around, and returns what it saw.
async fn look_around(directory: &Path, script: &str, isolation: Isolation) -> String {
    let (data, out) = (directory.join("data"), directory.join("out"));
    std::fs::create_dir_all(data.join("launches")).expect("a directory");
    std::fs::create_dir_all(&out).expect("a directory");
    std::fs::write(data.join("token"), "the operator's token\n").expect("a token");
    let mut launch = shell(script, isolation);
    launch.masked.push(Mask::of(&data).expect("it is there"));
    let config = directory.join("home/config");
    std::fs::create_dir_all(&config).expect("a directory");
    std::fs::write(config.join("file"), "the person's\n").expect("a file");
    launch.read_only.push(config.clone());
    let private = directory.join("private");
    launch.private = Some(private_file(&private));
    launch.environment = vec![
        ("PRIVATE".into(), private.into()),
        ("DATA".into(), data.into()),
        ("CONFIG".into(), config.into()),
        ("OUT".into(), out.into()),
        ("HUB".into(), std::process::id().to_string().into()),
    ];
    let mut agent = supervisor(directory).launch(launch).await.expect("it starts");
    let said = rest(&mut agent).await;
    assert_eq!(exited(&agent).await, by_itself(How::Code(0)));
    let said = said.replace(&*directory.to_string_lossy(), "<dir>");
    said.replace(&std::process::id().to_string(), "<hub>")
}

fn private_file(directory: &Path) -> Private {
    let file = PrivateFile { name: "file".to_owned(), contents: "a token\n".to_owned() };
    Private { directory: directory.to_owned(), files: vec![file] }
}

/// The agents of a hub are the same user, and are not to find each other's tokens.
#[tokio::test]
async fn private_files_are_those_of_one_launch() {
    for isolation in offered(ALL).await {
        let world = World::new();
        let directory = world.directory.path().join("private");
        let file = directory.join("file");
        let mut launch = shell(
            "stat -c %a \"$1\" \"$1/file\" | tr '\\n' ' '; cat \"$1/file\"; exec cat",
            isolation,
        );
        launch.args.extend(["sh".into(), directory.clone().into()]);
        launch.private = Some(private_file(&directory));
        let mut agent = world.launch(launch.clone()).await;
        assert_eq!(line(&mut agent).await, "700 600 a token", "{isolation}");
        assert_eq!(file.exists(), !isolation.masks(), "{isolation}");
        // What is there already could be anybody's, and stays.
        let second = Launch { id: format!("{}-2", launch.id), ..launch.clone() };
        let second = world.supervisor.launch(second).await;
        assert!(matches!(second, Err(Error::Note { .. })), "{isolation}: {second:?}");
        assert!(directory.exists() && world.n_notes() == 1, "{isolation}");
        agent.process.kill();
        exited(&agent).await;
        assert!(!directory.exists() && world.n_notes() == 0, "{isolation}");
        // Nothing is left of one that was never started.
        let no_program = Launch { program: "/no/such/program".into(), ..launch };
        let failed = world.supervisor.launch(no_program).await;
        assert!(matches!(failed, Err(Error::Failed(_))), "{isolation}: {failed:?}");
        assert!(!directory.exists() && world.n_notes() == 0, "{isolation}");
    }
}

async fn assert_sees_nothing(directory: &Path) {
    let said = look_around(directory, &format!("{CURIOUS}{HOSTILE}"), Isolation::Namespaces).await;
    let user = rustix::process::geteuid().as_raw();
    let said = said.replace(&format!("as {user}, which owns {user}"), "as the hub's user");
    expect![[r#"
        cannot: cat <dir>/data/token
        cannot: ls -A <dir>/data/launches
        cannot: touch <dir>/data/new
        in the data directory: 0
        cannot: kill -0 <hub>
        cannot: test -e /proc/<hub>
        cannot: ls /proc/1/cwd/
        cannot: cat /proc/1/environ
        can: cat <dir>/private/file
        cannot: cat <dir>/data/token
        cannot: cat <dir>/data/token
        cannot: touch <dir>/home/config/new
        cannot: mv <dir>/home/config/.. <dir>/out/moved
        can: cat <dir>/home/config/file
        cannot: cat <dir>/home/config/new
        still here, as the hub's user
        first process: teamster launch init 
    "#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn an_agent_in_namespaces_sees_nothing_of_the_hub() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    assert_sees_nothing(directory.path()).await;
}

/// Without namespaces the same agent finds what it looks for.
#[tokio::test]
async fn the_control_without_namespaces_sees_the_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = look_around(directory.path(), CURIOUS, Isolation::Subreaper).await;
    assert!(said.starts_with("can: cat <dir>/data/token\n"), "{said}");
    assert!(said.contains("\ncan: kill -0 <hub>\n"), "{said}");
}

/// Tries to move the data of the hub out from under its mask, so that the next start of the agent masks a decoy.
const MOVING: &str = r#"
try() { if "$@" >/dev/null 2>&1; then echo "can: $*"; else echo "cannot: $*"; fi; }
cd "$HOME"
try mkdir -p .local/state/teamster/default/decoy
try rmdir .local/state/teamster/default
try ls .local/state/teamster/other
try cat .local/state/teamster/other/token
try touch .local/state/teamster/default-worktrees/run/work
echo "in the state directory: $(ls -A .local/state/teamster)"
try mv .local/state/teamster .t2
try mv .local/state .t2
try mv .local .t2
try mv ../home ../t2
"#;

/// Launches a shell that is kept from all of the user's workspaces, as the hub's agents are.
async fn move_around(home: &Path, isolation: Isolation) -> Result<String, Error> {
    let state = home.join(".local/state/teamster");
    let mut launch = shell(MOVING, isolation);
    let mask = Mask::of(&state).expect("it is there");
    launch.masked.push(mask.except(&state.join("default-worktrees")));
    launch.environment = vec![("HOME".into(), home.into())];
    let mut agent = supervisor(home.parent().expect("it has one")).launch(launch).await?;
    Ok(rest(&mut agent).await)
}

fn make_home(directory: &Path) -> PathBuf {
    let home = directory.join("home");
    let state = home.join(".local/state/teamster");
    for name in ["default", "other", "default-worktrees/run"] {
        std::fs::create_dir_all(state.join(name)).expect("it can be made");
    }
    for name in ["default", "other"] {
        std::fs::write(state.join(name).join("token"), "an operator's token\n").expect("room");
    }
    home
}

async fn assert_moves_nothing(directory: &Path) {
    let home = make_home(directory);
    let said = move_around(&home, Isolation::Namespaces).await.expect("it starts");
    expect![[r#"
        cannot: mkdir -p .local/state/teamster/default/decoy
        cannot: rmdir .local/state/teamster/default
        cannot: ls .local/state/teamster/other
        cannot: cat .local/state/teamster/other/token
        can: touch .local/state/teamster/default-worktrees/run/work
        in the state directory: default-worktrees
        cannot: mv .local/state/teamster .t2
        cannot: mv .local/state .t2
        cannot: mv .local .t2
        cannot: mv ../home ../t2
    "#]]
    .assert_eq(&said);
    for name in ["default", "other"] {
        assert!(home.join(".local/state/teamster").join(name).join("token").exists(), "{name}");
    }
}

#[tokio::test]
async fn an_agent_cannot_move_the_hubs_data_away() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    assert_moves_nothing(directory.path()).await;
}

/// Where nothing is mounted, the same agent moves it away and leaves a decoy.
#[tokio::test]
async fn the_control_without_namespaces_moves_the_data_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = make_home(directory.path());
    let said = move_around(&home, Isolation::Subreaper).await.expect("it starts");
    assert!(said.contains("\ncan: mv .local/state/teamster .t2\n"), "{said}");
    let moved = directory.path().join("t2/.t2/default/token");
    assert!(moved.exists(), "{said}");
}

/// Whoever moved it: behind the mask must be what the hub opened, or the agent would find it elsewhere.
#[tokio::test]
async fn nothing_is_started_where_another_directory_has_the_place_of_the_hubs() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    let path = |name: &str| world.directory.path().join(name);
    std::fs::create_dir(path("data")).expect("it can be made");
    let mask = Mask::of(&path("data")).expect("it is there");
    let launch = || Launch { masked: vec![mask.clone()], ..shell("true", Isolation::Namespaces) };
    assert_eq!(exited(&world.launch(launch()).await).await, by_itself(How::Code(0)));
    std::fs::rename(path("data"), path("moved")).expect("it is ours");
    std::fs::create_dir(path("data")).expect("it can be made");
    let decoy = world.supervisor.launch(launch()).await.expect_err("it is another").to_string();
    assert!(decoy.contains("another directory has taken the place of the hub's"), "{decoy}");
    std::fs::remove_dir(path("data")).expect("it is ours");
    std::os::unix::fs::symlink(path("moved"), path("data")).expect("it can be made");
    let link = world.supervisor.launch(launch()).await.expect_err("it is a link").to_string();
    assert!(link.contains("symbolic links"), "{link}");
}

/// Root could have the kernel start a program outside of all namespaces: the pattern for core dumps may name one. It is
/// written back as it is.
#[tokio::test]
async fn an_agent_of_root_cannot_change_the_kernels_settings() {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    let script =
        format!("p=$(cat {PATTERN}) && echo read && echo \"$p\" >{PATTERN} && echo written");
    let is_writable = rustix::fs::access(PATTERN, rustix::fs::Access::WRITE_OK).is_ok();
    for isolation in offered(STRONG).await {
        let world = World::new();
        let mut agent = world.launch(shell(&script, isolation)).await;
        let said = rest(&mut agent).await;
        let expected = match isolation.masks() || !is_writable {
            true => "read\n",
            false => "read\nwritten\n",
        };
        assert_eq!(said, expected, "{isolation}");
    }
}

/// Most people are not root; then it takes a user namespace, in which they remain who they are.
#[tokio::test]
async fn an_agent_of_an_ordinary_user_sees_nothing_of_the_hub() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || offered(&[Isolation::Namespaces]).await.is_empty() {
        // Who is not root has seen it in the test above.
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).expect("it is ours");
    // Where the programs are built may be closed to others.
    std::fs::copy(std::env::current_exe().expect("the tests have a file"), path("it"))
        .expect("room");
    std::fs::copy(program(), path("teamster")).expect("room");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(path("it"));
    command.args(["--ignored", "--exact", "launcher::inside::ordinary_user", "--nocapture"]);
    command.env("TEAMSTER_BIN", path("teamster")).env("TMPDIR", directory.path());
    command.env("TEAMSTER_ORDINARY_DIR", directory.path());
    let output = command.output().expect("setpriv is part of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("inside: an ordinary user"), "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

const NOBODY: &str = "65534";

#[tokio::test]
#[ignore = "not a test: what an ordinary user does"]
async fn ordinary_user() {
    let Some(directory) = std::env::var_os("TEAMSTER_ORDINARY_DIR") else { return };
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(user.to_string(), NOBODY);
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        println!("inside: an ordinary user has no namespaces here");
    } else {
        assert_sees_nothing(Path::new(&directory)).await;
        assert_moves_nothing(Path::new(&directory)).await;
        let mut agent = World::new().launch(shell(PROCESSES, Isolation::Namespaces)).await;
        assert!(rest(&mut agent).await.contains(" 4096 "));
        println!("inside: an ordinary user was tried");
    }
}

#[tokio::test]
async fn an_agent_gets_the_environment_and_the_files_it_should() {
    // Cargo sets it, and nobody asked for it to be passed on.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let world = World::new();
    // A file that the hub was started with, or that somebody forgot to mark.
    let stranger = std::fs::File::open("/dev/null").expect("it is there");
    fcntl_setfd(&stranger, FdFlags::empty()).expect("it is ours");
    for isolation in offered(ALL).await {
        let script = "env | grep -v '^PWD=' | cut -d= -f1 | sort | tr '\\n' ' '; echo; \
                      echo \"$GIVEN $TEAMSTER_LAUNCH $(pwd)\"; \
                      exec ls /proc/self/fd";
        let mut launch = shell(script, isolation);
        launch.directory = "/usr".into();
        launch.passed_on.push("CARGO_PKG_VERSION".into());
        launch.environment.push(("GIVEN".into(), "a secret".into()));
        launch.environment.push(("HOME".into(), "/nowhere".into()));
        launch.environment.push(("LANG".into(), "C".into()));
        let id = launch.id.clone();
        let mut agent = world.launch(launch).await;
        let names = line(&mut agent).await;
        // These are passed on where they are set, which is not so everywhere.
        let usual = |name: &str| {
            ["TMPDIR", "USER"].contains(&name)
                || name.starts_with("XDG_")
                || name.starts_with("SSL_CERT_")
        };
        let names: Vec<&str> = names.split_whitespace().filter(|name| !usual(name)).collect();
        let expected = ["CARGO_PKG_VERSION", "GIVEN", "HOME", "LANG", "PATH", "TEAMSTER_LAUNCH"];
        assert_eq!(names, expected, "{isolation}");
        assert_eq!(line(&mut agent).await, format!("a secret {id} /usr"));
        // The fourth is the directory that is being read.
        assert_eq!(rest(&mut agent).await, "0\n1\n2\n3\n", "{isolation}");
        assert_eq!(exited(&agent).await.how, How::Code(0));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn agents_die_before_the_hub_when_memory_runs_out() {
    let world = World::new();
    for isolation in offered(ALL).await {
        let mut agent = world.launch(shell("cat /proc/self/oom_score_adj", isolation)).await;
        assert_eq!(rest(&mut agent).await, "500\n", "{isolation}");
    }
}

#[tokio::test]
async fn an_agent_cannot_change_the_control_groups() {
    let script = "for group in /sys/fs/cgroup /sys/fs/cgroup/*/; do \
                    mkdir $group/it-was-here 2>/dev/null && rmdir $group/it-was-here && echo made one; \
                  done; echo tried";
    let world = World::new();
    let is_root = rustix::process::geteuid().is_root();
    for isolation in offered(STRONG).await {
        let mut agent = world.launch(shell(script, isolation)).await;
        let said = rest(&mut agent).await;
        match isolation.masks() {
            true => assert_eq!(said, "tried\n"),
            // The control, where there are groups to be made by us.
            false if is_root && Path::new("/sys/fs/cgroup/unified").is_dir() => {
                assert!(said.starts_with("made one\n"), "{said}");
            }
            false => {}
        }
    }
}

#[tokio::test]
async fn an_agent_may_have_so_many_processes_and_leaves_no_core() {
    // What limits root is the namespace's own only in newer kernels.
    let script = format!("ulimit -c; {PROCESSES}; echo \" $(cat /proc/sys/kernel/pid_max) \"");
    let world = World::new();
    let highest = std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("there is a /proc");
    for isolation in offered(STRONG).await {
        let mut agent = world.launch(shell(&script, isolation)).await;
        let said = rest(&mut agent).await;
        let mut said = said.lines();
        assert_eq!(said.next(), Some("0"), "{isolation}");
        if isolation.masks() {
            let limits: Vec<&str> = said.collect();
            assert!(
                limits.iter().any(|line| line.contains(" 4096 ")) || is_older_root(),
                "{isolation}: {limits:?}"
            );
        }
    }
    let after = std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("there is a /proc");
    assert_eq!(after, highest, "the machine's own setting stays as it is");
}

/// Prints how many processes its user may have.
const PROCESSES: &str = "grep 'Max processes' /proc/self/limits";

fn is_older_root() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("there is a /proc");
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0_u32));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    rustix::process::geteuid().is_root() && version < (6, 14)
}

/// Arguments can be read by everyone on the machine.
#[tokio::test]
async fn a_launcher_shows_nothing_of_what_it_launches() {
    let world = World::new();
    for isolation in offered(ALL).await {
        let mut launch = shell("echo up; exec cat", isolation);
        launch.environment.push(("GIVEN".into(), "a secret".into()));
        let id = launch.id.clone();
        let mut agent = world.launch(launch).await;
        assert_eq!(line(&mut agent).await, "up");
        let launcher = agent.process.launcher_pid().expect("it runs");
        let read =
            |file| std::fs::read_to_string(format!("/proc/{launcher}/{file}")).expect("ours");
        assert_eq!(read("cmdline"), format!("teamster\0launch\0{isolation}\0"));
        let note = world.launches().join(&id);
        let expected = format!("TEAMSTER_LAUNCH={id}\0TEAMSTER_LAUNCH_NOTE={}\0", note.display());
        assert_eq!(read("environ"), expected);
        agent.process.kill();
        exited(&agent).await;
    }
}
