//! Agents that try to leave what holds them: one table of attacks, as root and as an ordinary user, with namespaces and
//! without. Without them every attack gets through, which the hub calls advisory: that is the control.

#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "hubs and users are started by other programs, a broken fixture should panic, and a harness says what it did"
)]

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::hub::{Hub, program};
use crate::isolation::{can_be_tried, without_namespaces};

/// An attack, and a script that succeeds if it does. It has `$STATE`, `$HUB`, `$HOME` and `$CONFIG`.
struct Attack {
    name: &'static str,
    script: &'static str,
    /// Nobody but root could do it anyway.
    needs_root: bool,
}

const fn attack(name: &'static str, script: &'static str) -> Attack {
    Attack { name, script, needs_root: false }
}

const ATTACKS: [Attack; 12] = [
    attack("read the operator's token", "cat $STATE/default/operator.token"),
    attack("read the key of the hub's seals", "cat $STATE/default/seal.key"),
    attack("read the log", "test -s $STATE/default/log.db"),
    attack("read a token of another workspace", "cat $STATE/other/operator.token"),
    attack("connect to the operator's socket", "test -S $STATE/default/hub.sock"),
    attack(
        "move the data away and leave a decoy",
        "mv $STATE $HOME/t2 && mkdir -p $STATE && cat $HOME/t2/default/operator.token && rmdir $STATE && mv $HOME/t2 $STATE",
    ),
    attack("signal the hub", "kill -0 $HUB"),
    attack("read the hub's environment", "cat /proc/$HUB/environ"),
    attack("list the hub's open files", "ls /proc/$HUB/fd"),
    attack("change the user's configuration", "touch $CONFIG/teamster/roles.toml"),
    attack(
        "use what connects the user's programs",
        "unset TEAMSTER_LAUNCH; printf '%s\\n' \"$HELLO\" | $TEAMSTER --data $STATE/default mcp | grep serverInfo",
    ),
    Attack {
        name: "change the kernel's settings",
        script: "f=/proc/sys/kernel/core_pattern; p=$(cat $f) && echo \"$p\" >$f",
        needs_root: true,
    },
];

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Has an agent of a hub try everything, and returns what got through.
fn got_through(directory: &Path, has_namespaces: bool) -> Vec<&'static str> {
    let home = directory.join(if has_namespaces { "with" } else { "without" });
    let state = home.join(".local/state/teamster");
    for made in [state.join("other"), home.join("config/teamster")] {
        std::fs::create_dir_all(made).expect("it can be made");
    }
    std::fs::write(state.join("other/operator.token"), "another token\n").expect("room");
    let person = || {
        let mut person = match has_namespaces {
            true => Command::new(program()),
            false => without_namespaces(),
        };
        person.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &home);
        person.env("XDG_CONFIG_HOME", home.join("config")).env("TMPDIR", &home).current_dir(&home);
        person
    };
    let mut up = person();
    up.args(["up", "--set", "program=scripted"]);
    let hub = Hub::start_with(up, &state.join("default"));
    let hub_file = std::fs::read(hub.data().join("hub.json")).expect("it is there");
    let pid = serde_json::from_slice::<Value>(&hub_file).expect("it is JSON")["pid"].clone();
    let variables = format!(
        "STATE={} HUB={pid} HOME={} CONFIG={} TEAMSTER={} HELLO='{HELLO}'\n",
        state.display(),
        home.display(),
        home.join("config").display(),
        program().display(),
    );
    let mut script = format!("{variables}export STATE HUB HOME CONFIG TEAMSTER HELLO\n");
    for (n, Attack { script: attack, .. }) in ATTACKS.iter().enumerate() {
        let _ = writeln!(script, "({attack}) >/dev/null 2>&1 && echo {n}");
    }
    let (file, out) = (home.join("attack.sh"), home.join("out"));
    let _ = writeln!(script, "true");
    std::fs::write(&file, format!("{{\n{script}}} >{}\n", out.display())).expect("room");
    let run = format!("! run sh {}\n! say done", file.display());
    let drafted = person().args(["draft", "coder", &run, "--wait"]).output().expect("it starts");
    let said = std::fs::read_to_string(&out).unwrap_or_else(|_| panic!("not tried: {drafted:?}"));
    let numbers = said.lines().map(|line| line.parse::<usize>().expect("a number"));
    numbers.map(|number| ATTACKS[number].name).collect()
}

/// Tries everything as whoever runs this.
fn try_everything(directory: &Path, who: &str, is_root: bool) {
    let with = got_through(directory, true);
    assert_eq!(with, [""; 0], "{who}, with namespaces");
    let without = got_through(directory, false);
    for attack in ATTACKS.iter().filter(|attack| is_root || !attack.needs_root) {
        let verdict = if without.contains(&attack.name) { "advisory" } else { "held" };
        println!("hostile: {who}: {}: held with namespaces, {verdict} without", attack.name);
        // Root in a user namespace is not the machine's.
        assert!(attack.needs_root || verdict == "advisory", "{who}: {} is no attack", attack.name);
    }
}

#[tokio::test]
async fn an_agent_that_tries_everything_gets_nothing() {
    if !can_be_tried().await {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let is_root = rustix::process::geteuid().is_root();
    try_everything(directory.path(), "whoever runs the tests", is_root);
}

#[tokio::test]
async fn an_agent_of_an_ordinary_user_that_tries_everything_gets_nothing() {
    if !rustix::process::geteuid().is_root() || !can_be_tried().await {
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
    command.args(["--ignored", "--exact", "hostile::agents::ordinary_user", "--nocapture"]);
    command.env("TEAMSTER_BIN", path("teamster")).env("TMPDIR", directory.path());
    command.env("TEAMSTER_ORDINARY_DIR", directory.path());
    let output = command.output().expect("setpriv is part of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("hostile: an ordinary user: "), "{output:?}");
    print!("{said}");
}

const NOBODY: &str = "65534";

#[tokio::test]
#[ignore = "not a test: what an ordinary user does"]
async fn ordinary_user() {
    let Some(directory) = std::env::var_os("TEAMSTER_ORDINARY_DIR") else { return };
    assert_eq!(rustix::process::geteuid().as_raw().to_string(), NOBODY);
    try_everything(Path::new(&directory), "an ordinary user", false);
}
