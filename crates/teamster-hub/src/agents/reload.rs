//! The configuration in use, and reading it again: what is new holds for agents and turns that begin from now on.

mod files;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamster_core::hub::Reading;
use teamster_core::team::Team;
use teamster_core::{Caller, Command, hub, role, team};
use teamster_mcp::Hub as _;
use teamster_mcp::hub::Failure;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;

use self::files::Files;
use super::{TRY_AGAIN_AFTER, teams};
use crate::config::{self, DataFiles};
use crate::hub::Handle;
use crate::reading;
use crate::settings::{self, Configuration, FILE_NAME, Problem};

/// Files are read when nothing has happened to them for so long: a program that saves several, or one in pieces, is let
/// finish.
const QUIET: Duration = Duration::from_millis(300);
/// The same if a file is gone or empty that said something: some editors begin so.
const QUIET_IF_GONE: Duration = Duration::from_secs(2);
/// They are read after so long even if they change all the time.
const QUIET_AT_MOST: Duration = Duration::from_secs(10);

/// The configuration in use.
pub struct Configured {
    hub: Handle,
    data: DataFiles,
    /// Where programs are found.
    search_path: Vec<PathBuf>,
    current: watch::Sender<Arc<Configuration>>,
    /// Held while it is read, so that one reading is over before the next begins.
    told: Mutex<Told>,
}

/// What people know of it.
#[derive(Default)]
struct Told {
    problems: BTreeSet<String>,
    n_readings: u64,
    last: Option<Reading>,
}

/// What a configuration comes to.
struct Meant {
    roles: Vec<role::Role>,
    teams: Vec<Team>,
    /// What cannot be used of it.
    unusable: Vec<String>,
}

impl Configured {
    pub fn new(hub: Handle, data: DataFiles, configuration: Configuration) -> Self {
        Self {
            hub,
            data,
            search_path: config::search_path(),
            current: watch::Sender::new(Arc::new(configuration)),
            told: Mutex::default(),
        }
    }

    /// Returns what is in use now.
    pub fn current(&self) -> Arc<Configuration> {
        self.current.borrow().clone()
    }

    /// Returns what shows that another one is in use.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Configuration>> {
        self.current.subscribe()
    }

    pub(crate) fn data(&self) -> &DataFiles {
        &self.data
    }

    pub(crate) fn search_path(&self) -> &[PathBuf] {
        &self.search_path
    }

    /// Has the core know the roles and teams that the hub starts with. What is wrong with them was told to whoever started it.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        let configuration = self.current();
        let meant = self.meant(&configuration);
        for unusable in &meant.unusable {
            tracing::warn!("{unusable}");
        }
        self.told.lock().await.problems = known(&problems(&configuration, &meant.unusable));
        self.sync(meant).await
    }

    /// Reads everything again, with the flags and the environment that the hub was started with, and uses what is new. Says
    /// so in the log if there is something to say.
    pub async fn read_again(&self) -> Result<Reading, Failure> {
        let mut told = self.told.lock().await;
        let before = self.current();
        let sources = before.sources.clone();
        let read = tokio::task::spawn_blocking(move || settings::read(&sources)).await;
        let after = read.map_err(|_| Failure::Unavailable("the files could not be read".into()))?;
        let (is_used, changes, problems) = match lost(&before, &after) {
            lost if !lost.is_empty() => (false, Vec::new(), lost),
            _ => {
                let (changes, meant) = (settings::changes(&before, &after), self.meant(&after));
                let problems = problems(&after, &meant.unusable);
                // First what agents are started with, then what may start them.
                self.current.send_replace(Arc::new(after));
                match self.sync(meant).await {
                    Ok(()) => (true, changes, problems),
                    Err(failure) => {
                        self.current.send_replace(before);
                        let Failure::Refused(refusal) = failure else { return Err(failure) };
                        (false, Vec::new(), vec![refusal.to_string()])
                    }
                }
            }
        };
        let reading = Reading::new(is_used, &changes, &problems);
        let now_known = known(&problems);
        if !changes.is_empty() || told.problems != now_known {
            let configure = hub::Command::Configure { reading: reading.clone() };
            self.hub.submit(Caller::hub(), Command::Hub(configure), None).await?;
            told.problems = now_known;
            told.n_readings += 1;
            told.last = Some(reading.clone());
        }
        Ok(reading)
    }

    /// Returns how many readings there was something to say of, and the last of them.
    pub async fn told(&self) -> (u64, Option<Reading>) {
        let told = self.told.lock().await;
        (told.n_readings, told.last.clone())
    }

    async fn sync(&self, Meant { roles, teams, .. }: Meant) -> Result<(), Failure> {
        let roles = Command::Role(role::Command::Sync(roles));
        self.hub.submit(Caller::hub(), roles, None).await?;
        let teams = Command::Team(team::Command::Sync(teams));
        self.hub.submit(Caller::hub(), teams, None).await?;
        Ok(())
    }

    fn meant(&self, configuration: &Configuration) -> Meant {
        let mut unusable = Vec::new();
        let roles = super::roles(configuration, &self.search_path, &mut unusable);
        let project = self.hub.directory();
        let project = Path::new(&project);
        let known = &self.hub.state().teams;
        let teams = teams::read(
            configuration,
            &self.search_path,
            &self.data,
            project,
            known,
            &mut unusable,
        );
        Meant { roles, teams, unusable }
    }

    /// Reads the files again whenever they change, until the hub ends.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let sources = self.current().sources.clone();
        let mut files = match Files::new(&sources, changed.clone()) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, "changes of the configuration are not noticed; tell the hub with `teamster config reload`");
                return;
            }
        };
        // They may have changed since the hub read them.
        changed.notify_one();
        loop {
            tokio::select! {
                () = changed.notified() => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = self.settled(&changed) => {}
                () = stop.cancelled() => return,
            }
            // Before they are read, so that nothing in between is missed.
            files.arm(&sources);
            if let Err(failure) = self.read_again().await {
                tracing::warn!(%failure, "the configuration could not be read again");
                tokio::select! {
                    () = tokio::time::sleep(TRY_AGAIN_AFTER) => changed.notify_one(),
                    () = stop.cancelled() => return,
                }
            }
        }
    }

    /// Waits until nothing happens to the files any more.
    async fn settled(&self, changed: &Notify) {
        let settled = async {
            loop {
                let quiet = if self.has_lost_a_file() { QUIET_IF_GONE } else { QUIET };
                if tokio::time::timeout(quiet, changed.notified()).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(QUIET_AT_MOST, settled).await;
    }

    fn has_lost_a_file(&self) -> bool {
        let current = self.current();
        let directories = [&current.sources.user, &current.sources.project];
        directories.into_iter().flatten().map(|directory| directory.join(FILE_NAME)).any(|file| {
            let is_empty = std::fs::metadata(&file).map_or(true, |file| file.len() == 0);
            is_empty && current.uses(&file)
        })
    }
}

/// Returns what is wrong with files that could be read before and cannot now: somebody is in the middle of changing them.
fn lost(before: &Configuration, after: &Configuration) -> Vec<String> {
    let was = |file: &str| before.problems.iter().any(|old| old.is_fatal && *old.file == *file);
    let lost = after.problems.iter().filter(|problem| problem.is_fatal && !was(&problem.file));
    lost.map(shown).collect()
}

fn problems(configuration: &Configuration, unusable: &[String]) -> Vec<String> {
    configuration.problems.iter().map(shown).chain(unusable.iter().cloned()).collect()
}

/// Shows a problem. What is said of a program's environment repeats what was given, which may be secret.
fn shown(problem: &Problem) -> String {
    let (key, _) = problem.says.split_once(": ").unwrap_or((&problem.says, ""));
    if key.starts_with("programs.") && key.contains(".set") {
        return Problem { says: format!("{key}: is not used"), ..problem.clone() }.to_string();
    }
    problem.to_string()
}

/// Problems are the same wherever they have moved to in their file.
fn known(problems: &[String]) -> BTreeSet<String> {
    problems.iter().map(|problem| reading::without_line(problem)).collect()
}
