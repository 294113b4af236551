//! What agents are kept from, and commands of the hub's own that are kept from the same: git in a project runs whatever
//! programs the project's settings name, and those are written by whoever works there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use teamster_agents::deputy::{self, Command, Deputy, Output};
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::Launch;
use teamster_agents::launches::Launches;
use teamster_agents::supervisor::{self, Supervisor};

use crate::config::DataFiles;
use crate::{secret, tasks};

/// What agents, and all that may run what they wrote, are kept from.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// They do not see it: the operator's token is in it, and the log.
    data: PathBuf,
}

impl Guarded {
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    /// Keeps a launch from it.
    pub fn keep(&self, launch: &mut Launch) {
        launch.masked = vec![self.data.clone()];
    }
}

/// Runs commands in directories where agents work.
#[derive(Debug, Clone)]
pub struct Held(Option<Arc<Deputy>>);

impl Held {
    /// Runs them with our own rights: for a person, who could do so too.
    pub fn here() -> Self {
        Self(None)
    }

    /// Has them held as agents are, and noted where the hub looks for what an earlier one left.
    pub fn by(data: &DataFiles, guarded: Guarded) -> std::io::Result<Self> {
        Ok(Self::by_program(supervisor::own_program()?, data.directory(), guarded))
    }

    /// The same, with a program that is the launcher.
    pub fn by_program(launcher: PathBuf, data: &Path, guarded: Guarded) -> Self {
        let spawn: supervisor::Spawn = Arc::new(|name, task| {
            tasks::spawn(name, task);
        });
        let supervisor = Supervisor::new(launcher, Launches::new(data.join("launches")), spawn);
        let launch = move |isolation: Isolation| {
            let id = format!("deputy-{:016x}", secret::nonce() >> 64);
            let mut launch = Launch::new(id, "", isolation);
            guarded.keep(&mut launch);
            launch
        };
        Self(Some(Arc::new(Deputy::new(supervisor, launch))))
    }

    /// Runs a command to its end. If this is given up, it is killed.
    pub async fn run(&self, command: Command) -> Result<Output, deputy::Error> {
        match &self.0 {
            Some(deputy) => deputy.run(command).await,
            None => deputy::run_here(command).await,
        }
    }

    /// Ends what is left of it, for a hub that ends.
    pub async fn end(&self) {
        if let Some(deputy) = &self.0 {
            deputy.end().await;
        }
    }
}
