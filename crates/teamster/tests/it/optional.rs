//! What some tests need and not every machine has. Where it is missing a test is skipped and says so; a variable of the
//! environment makes that a failure, so that the checks skip nothing in silence.

#![expect(clippy::disallowed_methods, reason = "what is required is the tester's to say")]

use std::io::Write as _;

/// Something that a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optional<'a> {
    /// A coding agent.
    Agent(&'a str),
    Strace,
    Tmux,
    Sshd,
    Promtool,
    Namespaces,
    /// The right to mount a small file system.
    Mounts,
    /// A control group that may be handed over to a hub.
    Groups,
    /// Leave for thousands of open files.
    OpenFiles,
}

impl Optional<'_> {
    /// Says whether a test can use it. If it was not found, that is said, and is a failure where it is required.
    pub(crate) fn is_usable(self, found: bool) -> bool {
        if !found {
            let (variable, lacks) = (self.variable(), self.lacks());
            let given = std::env::var(variable).ok();
            assert!(!self.is_required(given.as_deref()), "{lacks}, and {variable} requires it");
            // Past the capture of test output: a skip that nobody sees would pass for a success.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {lacks}");
        }
        found
    }

    /// The variable that makes its lack a failure: of agents it lists the names, of all else it is set or not.
    fn variable(self) -> &'static str {
        match self {
            Self::Agent(_) => "TEAMSTER_REQUIRE_AGENTS",
            Self::Strace => "TEAMSTER_REQUIRE_STRACE",
            Self::Tmux => "TEAMSTER_REQUIRE_TMUX",
            Self::Sshd => "TEAMSTER_REQUIRE_SSHD",
            Self::Promtool => "TEAMSTER_REQUIRE_PROMTOOL",
            Self::Namespaces => "TEAMSTER_REQUIRE_NAMESPACES",
            Self::Mounts => "TEAMSTER_REQUIRE_MOUNTS",
            Self::Groups => "TEAMSTER_REQUIRE_GROUPS",
            Self::OpenFiles => "TEAMSTER_REQUIRE_OPEN_FILES",
        }
    }

    fn is_required(self, given: Option<&str>) -> bool {
        match self {
            Self::Agent(name) => given.is_some_and(|all| all.split(',').any(|one| one == name)),
            Self::Strace
            | Self::Tmux
            | Self::Sshd
            | Self::Promtool
            | Self::Namespaces
            | Self::Mounts
            | Self::Groups
            | Self::OpenFiles => given.is_some(),
        }
    }

    fn lacks(self) -> String {
        match self {
            Self::Agent(name) => {
                return format!("{name} is not installed; .ci/install-agents installs it");
            }
            Self::Strace => "strace is not installed, or may not trace here",
            Self::Tmux => "tmux is not installed",
            Self::Sshd => "OpenSSH's sshd is not installed",
            Self::Promtool => "promtool is not installed; the package prometheus has it",
            Self::Namespaces => "this machine lets nobody make namespaces",
            Self::Mounts => "no file system can be mounted here; it takes root",
            Self::Groups => "there is no cgroup2 here that we may write",
            Self::OpenFiles => "this system allows too few open files",
        }
        .to_owned()
    }
}

#[test]
fn what_is_required_may_not_be_missing() {
    for (what, given, is_required) in [
        (Optional::Strace, None, false),
        (Optional::Strace, Some("1"), true),
        (Optional::Promtool, Some("1"), true),
        (Optional::Agent("goose"), None, false),
        (Optional::Agent("goose"), Some("claude,goose"), true),
        (Optional::Agent("codex"), Some("claude,goose"), false),
    ] {
        assert_eq!(what.is_required(given), is_required, "{what:?}, {given:?}");
    }
}
