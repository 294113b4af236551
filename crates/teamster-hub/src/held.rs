//! What agents are kept from, and commands of the hub's own that are kept from the same: git in a project runs whatever
//! programs the project's settings name, and those are written by whoever works there.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use teamster_agents::deputy::{self, Command, Deputy, FileTask, Hands, Output, Own};
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::{Launch, Mask};
use teamster_agents::launches::Launches;
use teamster_agents::supervisor::{self, Supervisor};

use crate::config::{self, DataFiles};
use crate::system_programs::SystemPrograms;
use crate::{secret, tasks};

/// A person has some roles, and links to some of them.
const ENTRIES_MAX: usize = 1_000;
const PATHS_MAX: usize = 64;

/// What agents, and all that may run what they wrote, are kept from.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// They do not see these: operators' tokens are in them, and logs.
    masked: Vec<Mask>,
    /// Agents work there, though it may be beside the data.
    worktrees: PathBuf,
    /// They cannot change it: the hub reads it again at once, and it says what they may.
    configuration: Option<PathBuf>,
    /// They cannot replace those that the hub runs.
    programs: SystemPrograms,
}

impl Guarded {
    /// Guards the data of a workspace, which must be there, the data of all other workspaces in `state`, and the user's
    /// configuration.
    pub fn new(
        data: &DataFiles,
        state: Option<&Path>,
        configuration: Option<&Path>,
    ) -> std::io::Result<Self> {
        let state = state.and_then(|state| Mask::of(state).ok());
        let is_inside = state.as_ref().is_some_and(|state| state.covers(data.directory()));
        let worktrees = data.worktrees("");
        if is_inside {
            // What is not there when a program starts stays hidden from it. Where we cannot make it, nobody works there.
            let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&worktrees);
        }
        let own = if is_inside { None } else { Some(Mask::of(data.directory())?) };
        Ok(Self {
            masked: state.into_iter().chain(own).collect(),
            worktrees,
            configuration: configuration.map(Path::to_owned),
            programs: SystemPrograms::find(config::search_path()),
        })
    }

    /// Keeps a launch from it.
    pub fn keep(&self, launch: &mut Launch) {
        let masked = self.masked.iter().cloned();
        launch.masked = masked.map(|mask| mask.except(&self.worktrees)).collect();
        launch.read_only = self.configuration.as_deref().map(unchangeable).unwrap_or_default();
        launch.read_only.extend(self.programs.within_reach());
    }
}

/// Returns what must not change so that nothing that is read from a directory does: itself, and files that links in it lead
/// to. One that is not there yet is made, or an agent could do so; where we cannot, nor can they.
fn unchangeable(directory: &Path) -> Vec<PathBuf> {
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let roles = directory.join("roles");
    let entries = [&directory, &roles].map(std::fs::read_dir).into_iter().flatten().flatten();
    let files = entries.flatten().map(|entry| entry.path()).take(ENTRIES_MAX);
    let files = files.filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_file());
    let elsewhere = roles.canonicalize().into_iter().chain(files);
    let mut paths = vec![directory];
    for path in elsewhere {
        let is_known =
            paths.iter().any(|known| path.starts_with(known) || known.starts_with(&path));
        if !is_known && paths.len() < PATHS_MAX {
            paths.push(path);
        }
    }
    paths
}

/// Returns what starts programs by `launcher`, and notes them where the hub looks for what an earlier one left.
pub fn supervisor(launcher: PathBuf, data: &Path) -> Supervisor {
    let spawn: supervisor::Spawn = Arc::new(|name, task| {
        tasks::spawn(name, task);
    });
    Supervisor::new(launcher, Launches::new(data.join("launches")), spawn)
}

/// Runs commands in directories where agents work.
#[derive(Debug, Clone)]
pub struct Confined {
    hands: Arc<dyn Hands>,
    programs: SystemPrograms,
}

impl Confined {
    /// Runs them with our own rights: for a person, who could do so too.
    pub fn here() -> Self {
        Self::with(Arc::new(Own))
    }

    /// Has them run by these hands, where that is what counts.
    pub fn with(hands: Arc<dyn Hands>) -> Self {
        Self { hands, programs: SystemPrograms::find(config::search_path()) }
    }

    /// Has them held as agents are, and noted where the hub looks for what an earlier one left.
    pub fn by(data: &DataFiles, guarded: Guarded) -> std::io::Result<Self> {
        Ok(Self::by_program(supervisor::own_program()?, data.directory(), guarded))
    }

    /// The same, with a program that is the launcher.
    pub fn by_program(launcher: PathBuf, data: &Path, guarded: Guarded) -> Self {
        let supervisor = supervisor(launcher, data);
        let programs = guarded.programs.clone();
        let launch = move |isolation: Isolation| {
            let id = format!("deputy-{:016x}", secret::nonce() >> 64);
            let mut launch = Launch::new(id, "", isolation);
            guarded.keep(&mut launch);
            launch
        };
        Self { hands: Arc::new(Deputy::new(supervisor, launch)), programs }
    }

    /// Returns the programs that the hub itself runs.
    pub fn programs(&self) -> &SystemPrograms {
        &self.programs
    }

    /// Returns a command of git, to be run in a directory.
    pub fn git(&self, directory: impl Into<PathBuf>) -> Command {
        Command::new(self.programs.git(), directory)
    }

    /// Runs a command to its end. If this is given up, it is killed.
    pub async fn run(&self, command: Command) -> Result<Output, deputy::Error> {
        self.hands.run(command).await
    }

    /// Handles a file at a path that others name. Returns what was read, if something was.
    pub async fn file(&self, task: FileTask) -> std::io::Result<Vec<u8>> {
        self.hands.file(task).await
    }

    /// Ends what is left of it, for a hub that ends.
    pub async fn end(&self) {
        self.hands.end().await;
    }
}
