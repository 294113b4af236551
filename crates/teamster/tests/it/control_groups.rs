//! Control groups: a hub that has one of its own gives each agent one, which no agent can leave.
//!
//! It takes root and a mounted cgroup2; where either is missing, nothing is tried and the reason is printed.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a shell enters the group as a service manager does, and a broken fixture should panic"
)]

use std::path::{Path, PathBuf};

use crate::hub::{Hub, command, program};
use crate::optional::Optional;

/// A group that was handed over to a hub. It is removed with all below it.
struct Handed(PathBuf);

impl Handed {
    fn new() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there is a /proc");
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let group = Path::new(mount.split(' ').nth(1)?).join(format!("it-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        Some(Self(group))
    }

    fn processes(&self, group: &str) -> String {
        std::fs::read_to_string(self.0.join(group).join("cgroup.procs")).unwrap_or_default()
    }

    fn agents(&self) -> Vec<PathBuf> {
        let agents = std::fs::read_dir(self.0.join("agents")).expect("the hub made it");
        agents.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for agent in self.agents() {
            let _ = std::fs::remove_dir(agent);
        }
        for group in ["hub", "agents", ""] {
            let _ = std::fs::remove_dir(self.0.join(group));
        }
    }
}

#[tokio::test]
async fn each_agent_has_a_group_that_it_cannot_leave() {
    let handed = Handed::new();
    Optional::Groups.is_usable(handed.is_some());
    let Some(handed) = handed else { return };
    let data = tempfile::tempdir().expect("a directory");
    // A shell moves itself into the group and becomes the hub, as a service manager does.
    let mut up = command(data.path());
    up.args(["up", "--set", "program=scripted"]);
    let mut entering = std::process::Command::new("sh");
    entering.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&handed.0);
    entering.arg(program()).args(up.get_args());
    entering.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let hub = Hub::start_with(entering, data.path());
    // Launchers are there too.
    let in_hub = handed.processes("hub");
    assert!(in_hub.lines().any(|process| process == hub.pid().to_string()), "{in_hub}");
    assert_eq!(handed.processes(""), "", "a group with groups below it has no process itself");

    let group = handed.0.display();
    let script = format!(
        "! run cat /proc/self/cgroup\n! say $last\n! run echo 0 >{group}/hub/cgroup.procs || echo it cannot leave\n! say $last"
    );
    let mut draft = command(data.path());
    draft.args(["draft", "coder", &script, "--wait"]);
    let output = draft.output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("/agents/"), "{said}");
    assert!(said.contains("it cannot leave"), "{said}");
    assert_eq!(handed.agents(), Vec::<PathBuf>::new(), "the group goes with its agent");
    drop(hub);
}
