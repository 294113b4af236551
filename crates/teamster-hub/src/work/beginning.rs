//! How an iteration begins: where its worker works, how the files are there, and what its agent finds in them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use teamster_core::Timestamp;
use teamster_core::drive::{self, Carried, Drive};
use teamster_core::iteration::Left;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::between::Place;
use super::branch::{self, Waited};
use super::git::{self, Standing, Tree};
use super::hooks::{Event, Values};
use super::{RunDriver, TRY_AGAIN_AFTER};
use crate::agents;

/// After an iteration that failed, the next waits at least so long, twice as long after each more.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// So often it is tried to look at the files before an iteration.
const PREPARES_MAX: u32 = 3;

/// Where a worker works, and how the files are there before it does.
struct Prepared {
    directory: PathBuf,
    /// Nothing is committed without one.
    base: Option<Arc<str>>,
    /// What its agent finds there, if work of an earlier one, or of hooks, is in it.
    left: Option<Left>,
}

/// Returns how the files are before an agent has a process.
fn left_before(files: Arc<str>) -> Left {
    Left { incarnation: 0, files: Some(files), at: Timestamp(0) }
}

impl RunDriver<'_> {
    /// Begins the next iteration of a worker.
    pub(super) async fn begin(&self, worker: u32, plans: bool) {
        let hub = &self.shared.hub;
        let Some(drive) = self.drive(&hub.state()) else { return };
        let n_failures = drive.n_failures.div_ceil(drive.terms.workers.max(1));
        if n_failures > 0 && !self.waited(n_failures).await {
            return;
        }
        if !self.can_begin(&drive).await {
            return;
        }
        let mut prepared = self.prepared(&drive, worker).await;
        for _ in 1..PREPARES_MAX {
            if prepared.is_ok() {
                break;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                () = self.shared.stop.cancelled() => return,
            }
            prepared = self.prepared(&drive, worker).await;
        }
        let Prepared { directory, base, mut left } = match prepared {
            Ok(prepared) => prepared,
            Err(problem) => {
                let says = format!("the files could not be looked at: {problem}").into();
                return self.end(drive::Why::Failed { says }).await;
            }
        };
        // One after the other, so that hooks know its number.
        let _one_at_a_time = self.begins.lock().await;
        if !plans {
            let number = hub.state().runs.get(self.name).iterations.current();
            let values = Values { iteration: Some(number.into()), ..Values::default() };
            let has_run = self.hook(Event::PreIteration, &drive.terms, values).await;
            if has_run && base.is_some() && drive.terms.workers == 1 {
                // What these write is part of the iteration; what others write after them is not.
                left = self.left_by_hooks(&drive, worker).await.or(left);
            }
        }
        let directory = directory.to_string_lossy().as_ref().into();
        let said = || self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let told = std::mem::take(&mut *said());
        let hooks = told.join("\n\n");
        let begin = drive::Command::BeginIteration { worker, plans, base, left, directory, hooks };
        if !self.tell(begin).await {
            // Whoever comes next is told.
            said().splice(0..0, told);
        }
    }

    /// Says whether an iteration can begin where the user's HEAD is, after waiting for that; ends the run if it took too long.
    async fn can_begin(&self, drive: &Drive) -> bool {
        // What a failed iteration left is committed only on its own branch, and the next agent may go back there.
        let is_carried = drive.terms.workers == 1 && !drive.carried.is_empty();
        if !drive.terms.commits || is_carried {
            return true;
        }
        // Whoever looks at the files next says what is wrong with the repository.
        let Ok(main) = self.main_tree(drive).await else { return true };
        match self.until_on_branch(&main, drive, branch::Why::Begin).await {
            Ok(Waited::On(_)) | Err(_) => true,
            Ok(Waited::Stopped(_)) => false,
            Ok(Waited::Never(standing)) => {
                let says = branch::refused(&standing).to_string().into();
                self.end(drive::Why::Failed { says }).await;
                false
            }
        }
    }

    /// Returns where a worker works, and how the files are there before it does, if they are to be committed.
    async fn prepared(&self, drive: &Drive, worker: u32) -> Result<Prepared, git::GitError> {
        let main = Path::new(&*drive.terms.directory);
        match if drive.terms.commits { Tree::at(self.shared.hub.held(), main).await? } else { None }
        {
            Some(tree) => self.prepare(&tree, drive, worker).await,
            None if drive.terms.commits && self.known_base(drive).is_some() => {
                Err(git::GitError::gone(main))
            }
            None => Ok(Prepared { directory: main.to_owned(), base: None, left: None }),
        }
    }

    /// Waits a while after a failure. Says whether nothing has happened meanwhile.
    async fn waited(&self, n_failures: u32) -> bool {
        let hub = &self.shared.hub;
        let pause = AFTER_FAILURE * 2_u32.pow(n_failures.min(6) - 1);
        let watch = hub.watch(&Topic::Run(self.name.clone()));
        let seen = self.drive(&hub.state());
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => true,
            () = watch.until(hub, |state| (self.drive(state) != seen).then_some(())) => false,
            () = self.shared.stop.cancelled() => false,
        }
    }

    /// Returns where a worker works, and how the files are there before it does.
    async fn prepare(
        &self,
        main: &Tree,
        drive: &Drive,
        worker: u32,
    ) -> Result<Prepared, git::GitError> {
        let tree = match drive.terms.workers {
            1 => main.clone(),
            _ => {
                let _one_at_a_time = agents::ONE_WORKTREE_AT_A_TIME.lock().await;
                self.worktree(main, worker).await?
            }
        };
        let (base, left) = match drive.carried.get(&worker) {
            Some(carried) if drive.terms.workers == 1 => {
                let iteration = self.shared.hub.state().runs.get(self.name).iterations.current();
                let (base, now) = self.base_after(&tree, carried, iteration).await?;
                (base, Some(left_before(now)))
            }
            Some(_) | None => (tree.base(&self.anchor(&format!("before-{worker}"))).await?, None),
        };
        // A worktree is on no branch; its work goes to the user's.
        let base = match (drive.terms.workers, main.standing().await?) {
            (2.., Standing::Branch { name, .. }) => git::on_branch(&base, &name).into(),
            (2.., standing @ (Standing::Unborn | Standing::Detached { .. })) => {
                return Err(branch::refused(&standing));
            }
            (_, _) => base,
        };
        Ok(Prepared { directory: tree.directory(), base: Some(base), left })
    }

    /// Returns how the files are after the hooks of an iteration that is about to begin.
    async fn left_by_hooks(&self, drive: &Drive, worker: u32) -> Option<Left> {
        let files = async {
            let main = self.main_tree(drive).await?;
            main.base(&self.anchor(&format!("after-{worker}"))).await
        };
        let files = files.await.inspect_err(|error| {
            tracing::warn!(run = self.name.as_str(), %error, "the files cannot be looked at");
        });
        files.ok().map(left_before)
    }

    /// Returns the base of what goes on with the files of an iteration that was not committed, and how the files are now: what
    /// others have changed in them since its agent ended is not to be committed.
    pub(super) async fn base_after(
        &self,
        tree: &Tree,
        carried: &Carried,
        iteration: u32,
    ) -> Result<(Arc<str>, Arc<str>), git::GitError> {
        // An older hub did not say when it ended.
        let unknown = Left { incarnation: 0, files: None, at: Timestamp(0) };
        let left = carried.left.as_ref().unwrap_or(&unknown);
        let place = Place { run: self.name, worker: 0, iteration };
        let (apart, says) = place.told_apart(tree, &carried.base, left).await?;
        for says in says {
            self.warn_once(says).await;
        }
        Ok((apart.base, apart.now))
    }

    /// Returns how everything was before one of the iterations since a person had the run begin or go on.
    fn known_base(&self, drive: &Drive) -> Option<Arc<str>> {
        let state = self.shared.hub.state();
        let iterations = &state.runs.get(self.name).iterations;
        let ended = iterations.ended().next_back().map(|ended| &ended.open);
        let known = iterations.open().chain(ended).filter(|open| open.begun_at >= drive.begun_at);
        known.filter_map(|open| open.base.clone()).next()
    }
}
