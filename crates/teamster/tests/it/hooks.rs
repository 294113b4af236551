//! Hooks as real processes: what they get, how they end, and what is kept of what they say.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use expect_test::{Expect, expect};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use teamster_agents::isolation::Isolation;
use teamster_core::Timestamp;
use teamster_hub::config::DataFiles;
use teamster_hub::held::{self, Guarded};
use teamster_hub::settings::{self, Configuration, Sources};
use teamster_hub::work::hooks::{Event, Hooks, How, Outcome, Ran, Starter, Trust, Values};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use crate::hub::{DEADLINE, program};
use crate::launcher::offered;

/// A user, a project, a hub's data, and what starts hooks.
struct World {
    place: TempDir,
    starter: Starter,
    stop: CancellationToken,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        for name in ["user", "project", "data"] {
            std::fs::create_dir(place.path().join(name)).expect("a directory can be made");
        }
        let data = place.path().join("data");
        let guarded = Guarded::new(&DataFiles::of(&data), None, None);
        let supervisor = Arc::new(held::supervisor(program(), &data));
        let starter = Starter::new(supervisor, guarded.expect("the data is there"));
        Self { place, starter, stop: CancellationToken::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file can be written");
    }

    fn configuration(&self) -> Configuration {
        let (user, project) = (Some(self.path("user")), Some(self.path("project")));
        let configuration = settings::read(&Sources { user, project, ..Sources::default() });
        assert_eq!(configuration.problems, []);
        configuration
    }

    fn trust(&self) -> Trust {
        Trust::of(&DataFiles::of(&self.path("data")))
    }

    fn hooks(&self) -> Hooks {
        Hooks::of(&self.configuration(), &self.path("project"), &self.trust())
    }

    async fn run_with(&self, values: &Values) -> Outcome {
        let (hooks, project) = (self.hooks(), self.path("project"));
        let run = hooks.run(Event::SessionStart, values, &project, &self.starter, &self.stop);
        tokio::time::timeout(DEADLINE, run).await.expect("it ends in time")
    }

    async fn run(&self) -> Outcome {
        self.run_with(&Values::default()).await
    }

    /// Runs a command of the user's, and returns what came of it.
    async fn command(&self, words: &[&str], timeout_s: u32) -> Ran {
        self.write("user/teamster.toml", &hook(words, timeout_s));
        let mut outcome = self.run().await;
        assert_eq!(outcome.ran.len(), 1);
        outcome.ran.remove(0)
    }

    /// Makes a pipe with a name in the project. Its end shows that all who could write to it are gone.
    fn pipe(&self) -> BufReader<pipe::Receiver> {
        let path = self.path("project/pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let receiver = pipe::OpenOptions::new().open_receiver(&path).expect("it can be opened");
        BufReader::new(receiver)
    }
}

fn hook(words: &[&str], timeout_s: u32) -> String {
    let command = serde_json::to_string(words).expect("text is JSON");
    format!("[[hooks.session_start]]\ncommand = {command}\ntimeout_s = {timeout_s}\n")
}

fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[tokio::test]
async fn values_arrive_as_data() {
    let world = World::new();
    world.write("user/teamster.toml", &hook(&shell("env -0 > variables; cat; pwd -P"), 30));
    let evil =
        "'; touch pwned; $(touch pwned) `touch pwned`\n\"ä\" \\ ${HOME} %s {{x}} -rf\t| & > pwned";
    let values = Values {
        run: "night-shift".into(),
        iteration: Some(3),
        item_id: "TAS-2".into(),
        item_content: format!("{evil}\0{evil}"),
        error: "ä".repeat(100_000),
        spec: "/specs/it's a spec.md".into(),
        commit: String::new(),
        why: "idle",
    };
    let outcome = world.run_with(&values).await;
    let project = std::fs::canonicalize(world.path("project")).expect("it is there");
    let [ran] = &*outcome.ran else { panic!("{outcome:?}") };
    assert_eq!((&ran.how, &*ran.output), (&How::Ok, &*project.to_string_lossy()));

    let variables = std::fs::read(world.path("project/variables")).expect("the hook wrote it");
    let variables = String::from_utf8(variables).expect("it is UTF-8");
    let variables: BTreeMap<&str, &str> =
        variables.split_terminator('\0').filter_map(|pair| pair.split_once('=')).collect();
    assert_eq!(variables["TEAMSTER_ITEM_CONTENT"], format!("{evil}{evil}"));
    assert_eq!(variables["TEAMSTER_ERROR"], "ä".repeat(51_200));
    let others: Vec<String> = variables
        .iter()
        .filter(|(name, _)| name.starts_with("TEAMSTER_"))
        .filter(|(name, _)| !["TEAMSTER_ITEM_CONTENT", "TEAMSTER_ERROR"].contains(name))
        .map(|(name, value)| {
            format!("{name}={}", if *name == "TEAMSTER_LAUNCH" { "…" } else { value })
        })
        .collect();
    expect![[r#"
        TEAMSTER_COMMIT=
        TEAMSTER_EVENT=session_start
        TEAMSTER_ITEM_ID=TAS-2
        TEAMSTER_ITERATION=3
        TEAMSTER_LAUNCH=…
        TEAMSTER_RUN=night-shift
        TEAMSTER_SPEC=/specs/it's a spec.md
        TEAMSTER_WHY=idle"#]]
    .assert_eq(&others.join("\n"));
    let mut left: Vec<_> = std::fs::read_dir(world.path("project"))
        .expect("it is there")
        .map(|entry| entry.expect("it is there").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["variables"]);
}

async fn check(words: &[&str], expected: Expect) {
    let world = World::new();
    let ran = world.command(words, 30).await;
    let place = format!("{}/", world.place.path().display());
    let shown = format!("{:?}\n{}", ran.how, ran.output);
    expected.assert_eq(&shown.replace(&place, ""));
}

#[tokio::test]
async fn how_a_hook_ended_is_told() {
    check(&["true"], expect!["Ok\n"]).await;
    check(
        &shell("echo 'it''s \"broken\"'; exit 7"),
        expect![[r#"
        Failed(7)
        its "broken""#]],
    )
    .await;
    check(&shell("kill -9 $$"), expect!["Signal(9)\n"]).await;
    check(
        &["no-such-program", "x"],
        expect![[r#"
        NotStarted("no-such-program: No such file or directory (os error 2)")
    "#]],
    )
    .await;
    check(
        &["./no-such-file"],
        expect![[r#"
        NotStarted("project/./no-such-file: No such file or directory (os error 2)")
    "#]],
    )
    .await;
    check(
        &["/etc/passwd"],
        expect![[r#"
        NotStarted("/etc/passwd: Permission denied (os error 13)")
    "#]],
    )
    .await;
    // No shell reads the words.
    check(
        &["printf", "%s\n", "$HOME; *", "a b", ""],
        expect![[r#"
        Ok
        $HOME; *
        a b"#]],
    )
    .await;
}

#[tokio::test]
async fn stdout_and_stderr_are_kept_in_order_and_plain() {
    check(
        &shell(r"echo one; echo two >&2; printf '\033[31mthree\033[0m\r\n\0\007'; printf 'four \303\244 \377\n' >&2"),
        expect![[r#"
            Ok
            one
            two
            three
            four ä �"#]],
    )
    .await;
}

#[tokio::test]
async fn of_a_flood_the_end_is_kept() {
    let world = World::new();
    let script = "head -c 20000000 /dev/zero | tr '\\0' x; printf '\\nthe end\\n'; exit 1";
    let ran = world.command(&shell(script), 60).await;
    assert_eq!((ran.how, ran.n_bytes, ran.is_cut), (How::Failed(1), 20_000_009, true));
    assert!(ran.output.len() <= 16 * 1024 && ran.output.ends_with("xxx\nthe end"));
    // One that never stops is stopped.
    let ran = world.command(&["yes"], 1).await;
    assert_eq!((ran.how, ran.is_cut), (How::TimedOut, true));
    assert!(ran.output.len() <= 16 * 1024);
}

/// A child in the same group that does not mind SIGTERM, and a grandchild in a session of its own.
const FAMILY: &str = "exec 3> pipe
setsid sh -c 'trap \"\" TERM; echo grandchild >&3; while :; do sleep 1; done' &
sh -c 'trap \"\" TERM; echo child >&3; while :; do sleep 1; done' &
echo started
wait";

/// Reads until both are up.
async fn up(pipe: &mut BufReader<pipe::Receiver>) {
    let mut lines = pipe.lines();
    let mut said = Vec::new();
    for _ in 0..2 {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await;
        said.push(line.expect("it comes in time").expect("it can be read"));
    }
    said.sort();
    assert_eq!(said, [Some("child".to_owned()), Some("grandchild".to_owned())]);
}

/// Reads until nobody is left who could write.
async fn gone(pipe: &mut BufReader<pipe::Receiver>) {
    let mut rest = String::new();
    let read = tokio::time::timeout(DEADLINE, pipe.read_to_string(&mut rest)).await;
    read.expect("all are gone in time").expect("it can be read");
    assert_eq!(rest, "");
}

#[tokio::test]
async fn a_hook_ends_with_all_that_it_started_when_its_time_is_over() {
    let world = World::new();
    let mut pipe = world.pipe();
    let both_were_up = async {
        up(&mut pipe).await;
        pipe
    };
    let words = shell(FAMILY);
    let (ran, mut pipe) = tokio::join!(world.command(&words, 5), both_were_up);
    assert_eq!((ran.how, &*ran.output), (How::TimedOut, "started"));
    gone(&mut pipe).await;
}

#[tokio::test]
async fn a_hook_ends_with_all_that_it_started_when_it_ends_itself() {
    let world = World::new();
    let mut pipe = world.pipe();
    let script = FAMILY.replace("wait", "until [ -e go ]; do sleep 0.01; done");
    let ended = async {
        up(&mut pipe).await;
        world.write("project/go", "");
        pipe
    };
    let words = shell(&script);
    let (ran, mut pipe) = tokio::join!(world.command(&words, 60), ended);
    assert_eq!((ran.how, &*ran.output), (How::Ok, "started"));
    gone(&mut pipe).await;
}

#[tokio::test]
async fn what_is_stopped_ends_and_nothing_more_is_started() {
    let world = World::new();
    let mut pipe = world.pipe();
    let two = hook(&shell(FAMILY), 3_600) + &hook(&["touch", "second"], 30);
    world.write("user/teamster.toml", &two);
    let stopped = async {
        up(&mut pipe).await;
        world.stop.cancel();
    };
    let (outcome, ()) = tokio::join!(world.run(), stopped);
    let how: Vec<&How> = outcome.ran.iter().map(|ran| &ran.how).collect();
    assert_eq!(how, [&How::Stopped]);
    gone(&mut pipe).await;
    assert!(!world.path("project/second").exists());
    assert_eq!(world.run().await, Outcome::default());
}

#[tokio::test]
async fn a_hook_that_nobody_waits_for_any_more_ends() {
    let world = World::new();
    let mut pipe = world.pipe();
    world.write("user/teamster.toml", &hook(&shell(FAMILY), 3_600));
    tokio::select! {
        outcome = world.run() => panic!("{outcome:?}"),
        () = up(&mut pipe) => {}
    }
    gone(&mut pipe).await;
}

#[tokio::test]
async fn hooks_run_in_order_and_a_failure_stops_none() {
    let world = World::new();
    let user = hook(&shell("echo 1 >> order; exit 1"), 30)
        + &hook(&["no-such-program"], 30)
        + &hook(&shell("echo 2 >> order"), 30);
    world.write("user/teamster.toml", &user);
    world.write("project/teamster.toml", &hook(&shell("echo 3 >> order"), 30));
    let configuration = world.configuration();
    let hooks = &configuration.projects_hooks;
    world.trust().add(&world.path("project"), hooks, Timestamp(1)).expect("it can be trusted");
    let outcome = world.run().await;
    let failed: Vec<bool> = outcome.ran.iter().map(|ran| ran.how != How::Ok).collect();
    assert_eq!(failed, [true, true, false, false]);
    assert_eq!(read(&world.path("project/order")), "1\n2\n3\n");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it can be read")
}

#[tokio::test]
async fn an_untrusted_project_runs_nothing() {
    let world = World::new();
    let (file, ran) = ("project/teamster.toml", world.path("project/ran"));
    world.write(file, &hook(&["touch", "ran"], 30));
    assert_eq!(world.run().await, Outcome::default());
    assert!(!ran.exists() && world.hooks().withheld().is_some());

    let trusted = world.configuration().projects_hooks;
    world.trust().add(&world.path("project"), &trusted, Timestamp(1)).expect("it can be trusted");
    assert_eq!(world.run().await.ran.len(), 1);
    assert!(ran.exists() && world.hooks().withheld().is_none());

    // Whatever else the file says, the trust is in the hooks; any other hook ends it.
    world.write(file, &format!("{}[limits]\nturns = 5\n", hook(&["touch", "ran"], 30)));
    assert_eq!(world.run().await.ran.len(), 1);
    world.write(file, &hook(&["touch", "ran", "evil"], 30));
    assert_eq!(world.run().await, Outcome::default());
    assert!(!world.path("project/evil").exists());
}

#[tokio::test]
async fn a_hook_does_not_see_the_hubs_data() {
    if offered(&[Isolation::Namespaces]).await.is_empty() {
        return;
    }
    let world = World::new();
    world.write("data/secret", "tmst_x");
    let ran = world.command(&shell("ls ../data; cat ../data/secret"), 30).await;
    assert_eq!(ran.how, How::Failed(1));
    assert!(!ran.output.contains("tmst_x") && !ran.output.contains("launches"), "{ran:?}");
}

#[tokio::test]
async fn a_directory_that_is_gone_is_told() {
    let world = World::new();
    world.write("user/teamster.toml", &hook(&["true"], 30));
    let nowhere = world.path("nowhere");
    let (hooks, values) = (world.hooks(), Values::default());
    let run = hooks.run(Event::SessionStart, &values, &nowhere, &world.starter, &world.stop);
    let outcome = tokio::time::timeout(DEADLINE, run).await.expect("it ends");
    assert!(matches!(&*outcome.ran, [Ran { how: How::NotStarted(_), .. }]), "{outcome:?}");
}
