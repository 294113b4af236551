//! Hubs where namespaces are missing: everybody is told, and nothing is started if they are required.

#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the hub is started by another program, and a broken fixture should panic"
)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use teamster_agents::isolation::Isolation;
use tempfile::TempDir;

use crate::hub::{Hub, command, program};
use crate::launcher::offered;

/// Takes away what namespaces need, in a user namespace of its own, and runs a program there. Nothing else changes.
const WITHOUT: &str = "echo 0 >/proc/sys/user/max_user_namespaces && \
                       exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin -- \"$@\"";

/// Prepares the program where there are no namespaces.
pub(crate) fn without_namespaces() -> Command {
    let mut without = Command::new("unshare");
    without.args(["--user", "--map-root-user", "sh", "-c", WITHOUT, "sh"]).arg(program());
    without
}

/// Prepares a command of somebody whose home this is, where there are namespaces or not.
fn person(home: &TempDir, has_namespaces: bool) -> Command {
    let data = home.path().join("data");
    let mut person = match has_namespaces {
        true => command(&data),
        false => {
            let mut without = without_namespaces();
            without.arg("--data").arg(&data);
            without
        }
    };
    person.env("HOME", home.path()).env("XDG_CONFIG_HOME", home.path().join("config"));
    person.env("TMPDIR", home.path()).current_dir(home.path());
    person
}

fn start(home: &TempDir, has_namespaces: bool, more: &[&str]) -> Hub {
    let mut up = person(home, has_namespaces);
    up.args(["up", "--set", "program=scripted"]).args(more);
    Hub::start_with(up, &home.path().join("data"))
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn agent(hub: &Hub, id: &str) -> Value {
    let all = hub.ok(&["agents", "--all", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&all).expect("it is JSON");
    all.into_iter().find(|agent| agent["id"] == id).expect("the agent is known")
}

fn identity(hub: &Hub) -> (String, String) {
    let found: Vec<Value> =
        serde_json::from_str(&hub.ok(&["doctor", "--json"])).expect("it is JSON");
    let found = found.iter().find(|found| found["about"] == "identity").expect("it is looked at");
    let word = |name: &str| found[name].as_str().expect("it is text").to_owned();
    (word("verdict"), word("says"))
}

/// Says whether a test of this makes sense on this machine.
pub(crate) async fn can_be_tried() -> bool {
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", WITHOUT, "sh", "true"])
        .status();
    !offered(&[Isolation::Namespaces]).await.is_empty() && tried.is_ok_and(|tried| tried.success())
}

#[tokio::test]
async fn how_an_agent_is_isolated_is_recorded_and_shown() {
    if !can_be_tried().await {
        return;
    }
    for (has_namespaces, isolation, verdict) in
        [(true, "namespaces", "ok"), (false, "subreaper", "advisory")]
    {
        let home = home();
        let hub = start(&home, has_namespaces, &[]);
        // The doctor is outside, where there are namespaces, and tells of the hub.
        let (found, says) = identity(&hub);
        assert_eq!(found, verdict, "{says}");
        assert!(says.contains(&format!("isolation: {isolation}")), "{says}");
        assert_eq!(says.contains("agents are not isolated"), !has_namespaces, "{says}");
        let drafted = hub.run(&["draft", "coder", "! say hello", "--wait"]);
        let said = String::from_utf8_lossy(&drafted.stderr).into_owned();
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains(&format!("isolation: {isolation}")), "{said}");
        assert_eq!(agent(&hub, "coder-1")["isolation"], isolation);
        let shown = hub.ok(&["agent", "show", "coder-1"]);
        assert!(shown.contains(isolation), "{shown}");
        assert!(hub.ok(&["agents", "--all"]).contains(isolation));
        let status = hub.ok(&["status"]);
        assert!(status.contains(&format!("isolation {isolation}")), "{status}");
        assert_eq!(status.contains("advisory"), !has_namespaces, "{status}");
        assert!(hub.ok(&["log"]).contains(&format!("isolation {isolation}")));
    }
}

#[tokio::test]
async fn up_says_that_agents_are_not_isolated_and_what_to_do() {
    if !can_be_tried().await {
        return;
    }
    for has_namespaces in [true, false] {
        let home = home();
        let mut up = person(&home, has_namespaces);
        let output = up.args(["up", "-d"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        person(&home, true).arg("down").output().expect("it starts");
        assert!(output.status.success(), "{said}");
        let warning = said.lines().find(|line| line.contains("agents are not isolated"));
        assert_eq!(warning.is_none(), has_namespaces, "{said}");
        let is_told = |warning: &str| {
            warning.contains("operator's token") && warning.contains("max_user_namespaces=15000")
        };
        assert!(warning.is_none_or(is_told), "{said}");
        // Inside, everybody is root.
        let is_root = !has_namespaces || rustix::process::geteuid().is_root();
        assert_eq!(said.contains("warning: the hub runs as root"), is_root, "{said}");
    }
}

#[tokio::test]
async fn nothing_is_started_where_namespaces_are_required_and_missing() {
    if !can_be_tried().await {
        return;
    }
    for has_namespaces in [true, false] {
        let home = home();
        let hub = start(&home, has_namespaces, &["--set", "isolation.require=namespaces"]);
        let ran = home.path().join("ran");
        let script = format!("! run touch {}\n! say done", ran.display());
        hub.run(&["draft", "coder", &script, "--wait"]);
        assert_eq!(Path::new(&ran).exists(), has_namespaces);
        let agent = agent(&hub, "coder-1");
        let outcome = agent["outcome"].to_string();
        let refusal =
            "isolation.require = \\\"namespaces\\\", and this machine does not offer them";
        assert_eq!(outcome.contains(refusal), !has_namespaces, "{outcome}");
    }
}
