//! The files of a run between two processes of its agents. Only while an agent runs are changes its own: whatever changes
//! before it starts, or after it has ended, is the user's and is not committed. One worker shares its files with the user;
//! several have worktrees of their own, so nothing has to be told apart there.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use teamster_core::agent::Agent;
use teamster_core::drive::{self, Drive, Terms};
use teamster_core::iteration::{Left, Open};
use teamster_core::{Command, RunName, State, Timestamp, run};

use super::git::{self, Anchors, Apart, GitError, Tree};
use super::prompt;
use crate::agents::OfRuns;
use crate::clock::Clock;
use crate::config::DataFiles;
use crate::fence::Prompt;
use crate::hub::Handle;

/// Tells what agents of runs change from what others change.
pub struct Between {
    hub: Handle,
    clock: Arc<dyn Clock>,
    seals: Seals,
}

/// Length of a seal: more than anybody could guess, and short enough for a commit message.
const SEAL_BYTES: usize = 10;

/// Makes what the hub knows its own commits by: an HMAC with the key of the data directory.
#[derive(Clone)]
pub(super) struct Seals(Hmac<Sha256>);

impl Seals {
    pub(super) fn read(data: &DataFiles) -> anyhow::Result<Self> {
        let key = std::fs::read(data.seal_key()).context("there is no key to seal with")?;
        Ok(Self(Hmac::new_from_slice(&key)?))
    }

    /// Returns what the hub knows the commit of an iteration by.
    pub(super) fn seal(&self, run: &RunName, open: &Open, base: &str) -> String {
        let mut seal = self.0.clone();
        for part in [&*mark(run, open), git::files_of(base)] {
            seal.update(&(part.len() as u64).to_be_bytes());
            seal.update(part.as_bytes());
        }
        let seal = seal.finalize().into_bytes();
        seal.iter().take(SEAL_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns what people know the commit of an iteration by.
pub(super) fn mark(run: &RunName, open: &Open) -> String {
    format!("{run}#{}", open.number)
}

/// Returns the name under which a repository keeps something for a run.
pub(super) fn anchor(run: &RunName, what: &str) -> String {
    format!("refs/teamster/run-{run}/{what}")
}

impl Between {
    /// After the hub's key was made.
    pub fn new(hub: Handle, clock: Arc<dyn Clock>, data: &DataFiles) -> anyhow::Result<Self> {
        Ok(Self { hub, clock, seals: Seals::read(data)? })
    }

    /// Tells apart what was changed while an agent had no process. Returns what has to be recorded before it gets one, or
    /// before what it did is committed.
    pub(crate) async fn settle(&self, agent: &Agent) -> Result<Vec<Command>, GitError> {
        let state = self.hub.state();
        let Some((name, drive, open)) = shared(&state, agent) else { return Ok(Vec::new()) };
        let Some(base) = &open.base else { return Ok(Vec::new()) };
        let now = self.clock.now();
        let tree = self.tree(&drive.terms).await?;
        // Its commit may be there, and only not be recorded.
        if tree.find(base, &self.seals.seal(name, open, base)).await?.is_some() {
            return Ok(Vec::new());
        }
        let place = Place { run: name, worker: open.worker, iteration: open.number };
        let (apart, says) = place.told_apart(&tree, base, &open.left_by(agent)).await?;
        let mut commands = Vec::new();
        if apart.base != *base {
            let left = Left { incarnation: agent.ready_in, files: Some(apart.now), at: now };
            let (iteration, base) = (open.number, apart.base);
            commands.push(command(name, drive::Command::Rebase { iteration, base, left }));
        }
        let is_known = |says: &String| drive.warnings.iter().any(|one| *one.says == **says);
        let says = says.into_iter().filter(|says| !is_known(says));
        commands.extend(says.map(|says| command(name, drive::Command::Warn { says })));
        Ok(commands)
    }

    async fn tree(&self, terms: &Terms) -> Result<Tree, GitError> {
        let directory = Path::new(&*terms.directory);
        let tree = Tree::at(self.hub.held(), directory).await?;
        tree.ok_or_else(|| GitError::gone(directory))
    }
}

#[async_trait]
impl OfRuns for Between {
    fn prompt(&self, state: &State, agent: &Agent) -> Option<Prompt> {
        let run = agent.draft.run.as_ref()?;
        let open = state.runs.get(run).iterations.of(&agent.id.principal())?;
        prompt::of_iteration(state, run, open)
    }

    async fn left(&self, agent: &Agent) -> Option<Command> {
        let at = self.clock.now();
        let state = self.hub.state();
        let (name, drive, open) = shared(&state, agent)?;
        let anchor = anchor(name, &format!("after-{}", open.worker));
        let files = match self.tree(&drive.terms).await {
            Ok(tree) => tree.base(&anchor).await,
            Err(error) => Err(error),
        };
        // Then the times of the files have to say it.
        let files = files.inspect_err(
            |error| tracing::warn!(agent = %agent.id, %error, "the files cannot be looked at"),
        );
        let left = Left { incarnation: agent.incarnation, files: files.ok(), at };
        Some(command(name, drive::Command::Leave { iteration: open.number, left }))
    }

    fn lost(&self, agent: &Agent, at: Timestamp) -> Option<Command> {
        let state = self.hub.state();
        let (name, _, open) = shared(&state, agent)?;
        // It was told nothing, so it did nothing.
        if agent.ready_in != agent.incarnation {
            return None;
        }
        let left = Left { incarnation: agent.incarnation, files: None, at };
        Some(command(name, drive::Command::Leave { iteration: open.number, left }))
    }

    async fn settle(&self, agent: &Agent) -> Result<Vec<Command>, String> {
        let settled = Self::settle(self, agent).await;
        settled.map_err(|error| format!("its files could not be looked at: {error}"))
    }
}

/// Returns the iteration that an agent is in, if its files are also the user's.
fn shared<'a>(state: &'a State, agent: &'a Agent) -> Option<(&'a RunName, &'a Drive, &'a Open)> {
    let name = agent.draft.run.as_ref()?;
    let run = state.runs.get(name);
    let drive = run.drive.as_ref()?;
    let open = run.iterations.of(&agent.id.principal())?;
    let is_shared = drive.terms.workers == 1 && drive.terms.commits && open.base.is_some();
    is_shared.then_some((name, drive, &**open))
}

fn command(run: &RunName, what: drive::Command) -> Command {
    Command::Run { run: run.clone(), what: run::Command::Drive(what) }
}

/// Where something was left, and which iteration goes on with it.
pub(super) struct Place<'a> {
    pub(super) run: &'a RunName,
    pub(super) worker: u32,
    pub(super) iteration: u32,
}

impl Place<'_> {
    /// Tells apart what an agent left and what others changed since. Returns beside it what the user has to know.
    pub(super) async fn told_apart(
        &self,
        tree: &Tree,
        base: &str,
        left: &Left,
    ) -> Result<(Apart, Vec<String>), GitError> {
        let name = |what: &str| anchor(self.run, &format!("{what}-{}", self.worker));
        let anchors = Anchors { base: &name("before"), now: &name("after") };
        let apart = tree.told_apart(base, left, &anchors).await?;
        let mut says = Vec::new();
        if let Some(first) = apart.overwritten.first() {
            let name = yours_name(self.run, self.iteration);
            let name = tree.keep_files(&name, base, &apart.overwritten).await?;
            // Without a record of the agent's end, the newest edit can be the user's own.
            let who = match left.files {
                Some(_) => "an interrupted agent changed files that you had changed before",
                None => {
                    "an interrupted agent, or you, changed files that you had changed before the iteration"
                }
            };
            says.push(format!(
                "{who}: {}. They are not committed. To see your version from before the iteration, run `git show {name}:{first}`",
                git::some_of(&apart.overwritten)
            ));
        }
        let name = left_name(self.run, self.iteration);
        if let (Some(first), Some(files)) = (apart.mixed.first(), &left.files) {
            let kept = tree.keep_files(&name, files, &apart.mixed).await?;
            says.push(format!(
                "you changed files that an interrupted agent had changed: {}. They are not committed. To see the agent's \
                 version, run `git show {kept}:{first}`",
                git::some_of(&apart.mixed)
            ));
        }
        if !apart.unknown.is_empty() {
            tree.keep_files(&name, &apart.now, &apart.unknown).await?;
            says.push(format!(
                "these files changed when an agent was interrupted or later, or it is not known when: {}. They can be yours or \
                 the agent's, so they are not committed. Commit them yourself if you want to keep them",
                git::some_of(&apart.unknown)
            ));
        }
        Ok((apart, says))
    }
}

/// Returns the name under which files are kept as the user had them before an agent changed them.
pub(super) fn yours_name(run: &RunName, iteration: u32) -> String {
    anchor(run, &format!("yours-{iteration}"))
}

/// Returns the name under which files are kept that an agent and the user have changed.
pub(super) fn left_name(run: &RunName, iteration: u32) -> String {
    anchor(run, &format!("left-{iteration}"))
}
