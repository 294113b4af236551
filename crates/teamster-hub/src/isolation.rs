//! How agents are isolated on this machine, what it means where that is less than namespaces, and how to change it.

use std::path::Path;

use teamster_agents::isolation::{Failure, Isolation};
use teamster_core::agent;
use tokio::sync::watch;

/// What the hub knows about the isolation of its agents. It is found out when the hub starts, and again at each launch until
/// namespaces work.
#[derive(Debug, Clone)]
pub struct Standing(watch::Sender<Option<Found>>);

impl Default for Standing {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Standing {
    /// Notes what was found out. Says whether it is news.
    pub(crate) fn set(&self, found: Found) -> bool {
        self.0.send_if_modified(|known| {
            let is_news = known.as_ref() != Some(&found);
            *known = Some(found);
            is_news
        })
    }

    /// Returns what is known now.
    pub fn now(&self) -> Option<Found> {
        self.0.borrow().clone()
    }

    /// Waits until something is known.
    pub async fn known(&self) -> Option<Found> {
        self.0.subscribe().wait_for(Option::is_some).await.ok().and_then(|found| found.clone())
    }
}

/// What was found out by trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub isolation: Isolation,
    /// Why it is not namespaces.
    pub failure: Option<Failure>,
    /// The configuration has `isolation.require = "namespaces"`.
    pub is_required: bool,
    /// The configuration has `isolation.memory_mb`, and nothing here can limit memory.
    pub lacks_memory_limit: bool,
}

impl Found {
    /// Returns why no agent may be started, if none may.
    pub fn refused(&self) -> Option<String> {
        let failure = self.failure.as_ref().filter(|_| self.is_required)?;
        Some(format!(
            "the configuration has isolation.require = \"namespaces\", and this machine does not offer them. Cause: {failure}. {}",
            Machine::look().remedy()
        ))
    }

    /// Returns what people have to know before they start agents here.
    pub fn warnings(&self) -> Vec<String> {
        let is_root = rustix::process::geteuid().is_root();
        self.warnings_on(&Machine::look(), is_root)
    }

    fn warnings_on(&self, machine: &Machine, is_root: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(failure) = &self.failure {
            let says = match self.is_required {
                true => {
                    "no agent is started, because the configuration has isolation.require = \"namespaces\" and this machine \
                     does not offer them."
                }
                false => {
                    "agents are not isolated on this machine. They run as you and can read the hub's data, including the \
                     operator's token."
                }
            };
            warnings.push(format!("{says} Cause: {failure}. {}", machine.remedy()));
        }
        warnings.extend(is_root.then(|| ROOT.to_owned()));
        warnings.extend(self.lacks_memory_limit.then(|| NO_MEMORY_LIMIT.to_owned()));
        warnings
    }
}

/// What is said of a hub that runs as root.
pub const ROOT: &str = "the hub runs as root, and so do its agents. They can change system files and use raw devices. Run the \
                        hub as an ordinary user instead: `useradd --create-home agents`, then `su - agents`.";

/// What is said where a limit is set and does not hold.
const NO_MEMORY_LIMIT: &str = "isolation.memory_mb does not hold: the hub has no control group that limits memory. Start it with \
                               `systemd-run --user --scope -p Delegate=yes teamster up`.";

/// Returns how an incarnation is recorded that a launcher holds.
pub(crate) fn recorded(isolation: Isolation) -> agent::Isolation {
    match isolation {
        Isolation::Namespaces => agent::Isolation::Namespaces,
        Isolation::Subreaper => agent::Isolation::Subreaper,
        Isolation::Group => agent::Isolation::Group,
    }
}

/// What of a machine decides whether there are namespaces.
#[derive(Debug, Default)]
struct Machine {
    is_linux: bool,
    is_container: bool,
    /// Ubuntu 24.04 and later.
    apparmor_restricts: bool,
    none_allowed: bool,
    users_may_not: bool,
}

impl Machine {
    fn look() -> Self {
        let setting = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
            text.trim().parse::<u64>().ok()
        };
        let containers = ["/.dockerenv", "/run/.containerenv"];
        Self {
            is_linux: cfg!(target_os = "linux"),
            is_container: containers.iter().any(|file| Path::new(file).exists()),
            apparmor_restricts: setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            none_allowed: setting("user/max_user_namespaces") == Some(0),
            users_may_not: setting("kernel/unprivileged_userns_clone") == Some(0),
        }
    }

    /// Returns what to do so that there are namespaces.
    fn remedy(&self) -> String {
        if !self.is_linux {
            return "Only Linux has namespaces. Run the hub on Linux, or run only agents that you trust."
                .into();
        }
        let setting = if self.none_allowed {
            "user.max_user_namespaces=15000"
        } else if self.users_may_not {
            "kernel.unprivileged_userns_clone=1"
        } else if self.is_container {
            return "Start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                    --security-opt systempaths=unconfined`, or run only agents that you trust in it."
                .into();
        } else if self.apparmor_restricts {
            "kernel.apparmor_restrict_unprivileged_userns=0"
        } else {
            return "Allow user namespaces for the hub, or run only agents that you trust.".into();
        };
        format!(
            "Run `sudo sysctl -w {setting}` and restart the hub, or run only agents that you trust."
        )
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use teamster_agents::isolation::Step;

    use super::*;

    #[test]
    fn a_machine_without_namespaces_is_told_what_to_do() {
        let linux = || Machine { is_linux: true, ..Machine::default() };
        let failure = || Failure { step: Step::Namespaces, why: "EPERM".into() };
        let machines = [
            Machine::default(),
            linux(),
            Machine { is_container: true, ..linux() },
            Machine { apparmor_restricts: true, ..linux() },
            Machine { none_allowed: true, ..linux() },
            Machine { users_may_not: true, ..linux() },
        ];
        let found = |failure, is_required| Found {
            isolation: Isolation::Subreaper,
            failure,
            is_required,
            lacks_memory_limit: false,
        };
        let mut said: Vec<String> = machines
            .iter()
            .flat_map(|machine| found(Some(failure()), false).warnings_on(machine, false))
            .collect();
        said.extend(found(Some(failure()), true).warnings_on(&machines[1], false));
        said.extend(found(None, false).warnings_on(&machines[1], true));
        said.extend(found(None, true).warnings_on(&machines[1], false));
        expect![[r#"
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Only Linux has namespaces. Run the hub on Linux, or run only agents that you trust.
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Allow user namespaces for the hub, or run only agents that you trust.
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`, or run only agents that you trust in it.
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` and restart the hub, or run only agents that you trust.
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Run `sudo sysctl -w user.max_user_namespaces=15000` and restart the hub, or run only agents that you trust.
            agents are not isolated on this machine. They run as you and can read the hub's data, including the operator's token. Cause: making pid and mount namespaces: EPERM. Run `sudo sysctl -w kernel.unprivileged_userns_clone=1` and restart the hub, or run only agents that you trust.
            no agent is started, because the configuration has isolation.require = "namespaces" and this machine does not offer them. Cause: making pid and mount namespaces: EPERM. Allow user namespaces for the hub, or run only agents that you trust.
            the hub runs as root, and so do its agents. They can change system files and use raw devices. Run the hub as an ordinary user instead: `useradd --create-home agents`, then `su - agents`."#]].assert_eq(&said.join("\n"));
    }

    #[tokio::test]
    async fn only_what_is_new_is_said() {
        let standing = Standing::default();
        let found = Found {
            isolation: Isolation::Group,
            failure: None,
            is_required: false,
            lacks_memory_limit: false,
        };
        assert_eq!(standing.now(), None);
        assert!(standing.set(found.clone()));
        assert!(!standing.set(found.clone()));
        assert_eq!(standing.known().await, Some(found.clone()));
        assert!(standing.set(Found { is_required: true, ..found }));
    }
}
