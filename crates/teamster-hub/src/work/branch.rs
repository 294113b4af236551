//! A run commits onto a branch. While the user's HEAD is on none (a bisect, a rebase, `git checkout --detach`), or on one
//! without a commit, the run waits: nobody would find a commit that is made there.

use std::time::Duration;

use teamster_core::drive::{Drive, Phase};

use super::git::{self, GitError, Standing, Tree};
use super::{RunDriver, TRY_AGAIN_AFTER};

/// How long a run waits for its user to be on a branch again. A bisect or a rebase by hand takes minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a branch is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A new iteration, which a pause prevents.
    Begin,
    /// The work of one that has ended.
    Merge,
}

/// What came of waiting for a branch.
pub(super) enum Waited {
    /// HEAD is where commits can be made.
    On(Standing),
    /// The run or the hub is to stop, or the run is paused.
    Stopped(Standing),
    /// It took too long.
    Never(Standing),
}

impl Waited {
    /// Returns where HEAD is, or why nothing can be committed there.
    pub(super) fn standing(self) -> Result<Standing, GitError> {
        match self {
            Self::On(standing) => Ok(standing),
            Self::Stopped(standing) | Self::Never(standing) => Err(refused(&standing)),
        }
    }
}

pub(super) fn refused(standing: &Standing) -> GitError {
    GitError::new("merge", format!("{standing}; run `git switch BRANCH`, then resume"))
}

impl RunDriver<'_> {
    /// Waits until commits can be made where HEAD is.
    pub(super) async fn until_on_branch(
        &self,
        main: &Tree,
        drive: &Drive,
        why: Why,
    ) -> Result<Waited, GitError> {
        let since = tokio::time::Instant::now();
        loop {
            let standing = main.standing().await?;
            if self.can_commit(drive, &standing) {
                if matches!(standing, Standing::Detached { .. }) {
                    let says = "HEAD is on no branch, so no branch has the commits of this run. To keep them, run \
                                `git switch -c NAME`";
                    self.warn_once(says.to_owned()).await;
                }
                return Ok(Waited::On(standing));
            }
            let phase = self.drive(&self.shared.hub.state()).map(|drive| drive.phase);
            let goes_on = match phase {
                Some(Phase::Working) => true,
                Some(Phase::Paused) => why == Why::Merge,
                Some(Phase::Stopping | Phase::Over(_)) | None => false,
            };
            if self.shared.stop.is_cancelled() || !goes_on {
                return Ok(Waited::Stopped(standing));
            }
            if since.elapsed() >= PATIENCE {
                return Ok(Waited::Never(standing));
            }
            self.warn_once(format!(
                "the run waits for a branch: {standing}. Run `git switch BRANCH` to continue it; after {} minutes it ends",
                PATIENCE.as_secs() / 60
            ))
            .await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                () = self.shared.stop.cancelled() => {}
            }
        }
    }

    fn can_commit(&self, drive: &Drive, standing: &Standing) -> bool {
        let is_alone = drive.terms.workers == 1;
        match standing {
            Standing::Branch { .. } => true,
            // The first commit may be one of ours.
            Standing::Unborn => is_alone && !self.was_on_branch(drive),
            Standing::Detached { during: Some(_) } => false,
            // Where a run began on no branch, as on a build server, it stays there.
            Standing::Detached { during: None } => is_alone && !self.was_on_branch(drive),
        }
    }

    /// Says whether HEAD was on a branch in an iteration since a person had the run begin or resume.
    fn was_on_branch(&self, drive: &Drive) -> bool {
        let state = self.shared.hub.state();
        let iterations = &state.runs.get(self.name).iterations;
        let ended = iterations.ended().map(|ended| &ended.open);
        let mut known = iterations.open().chain(ended).filter(|o| o.begun_at >= drive.begun_at);
        known.any(|open| open.base.as_deref().and_then(git::branch_of).is_some())
    }
}
