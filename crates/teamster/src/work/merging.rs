//! Several workers, each in a worktree of its own: what one has done is taken over by itself, after the project's check
//! has passed. What cannot be taken over becomes an item, with a branch that keeps it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use teamster_agents::process;
use teamster_core::drive::Drive;
use teamster_core::item::{self, NewItem, Priority};
use teamster_core::iteration::Open;
use teamster_core::run;

use super::Course;
use super::git::{GitError, Merged, Tree};

/// How long a check may take.
const CHECK_PATIENCE: Duration = Duration::from_secs(30 * 60);
/// As much of what a check says as is kept, from its end.
const CHECK_BYTES_MAX: usize = 4_000;
/// The person may commit something while we merge; so often it is tried again.
const TRIES_MAX: u32 = 5;

impl Course<'_> {
    fn worktree_path(&self, worker: u32) -> PathBuf {
        let root = self.shared.data.worktrees(&format!("run-{}", self.name));
        root.join(format!("worker-{worker}"))
    }

    fn branch(&self, worker: u32) -> String {
        format!("teamster/run-{}/worker-{worker}", self.name)
    }

    pub(super) async fn worktree_of(&self, main: &Tree, worker: u32) -> Result<Tree, GitError> {
        main.worktree(&self.worktree_path(worker), &self.branch(worker)).await
    }

    /// Returns a worker's worktree, which is as the project is now, unless the worker goes on with something.
    pub(super) async fn worktree(
        &self,
        main: &Tree,
        drive: &Drive,
        worker: u32,
    ) -> Result<Tree, GitError> {
        let tree = self.worktree_of(main, worker).await?;
        if !drive.carried.contains_key(&worker)
            && let Some(head) = main.head().await
        {
            tree.reset_to(&head).await?;
        }
        Ok(tree)
    }

    /// Takes over what a worker has committed in its worktree. Returns the commit by which it came into the project.
    pub(super) async fn take_over(
        &self,
        main: &Tree,
        tree: &Tree,
        drive: &Drive,
        open: &Open,
        commit: &str,
    ) -> Result<Option<String>, GitError> {
        for _ in 0..TRIES_MAX {
            let Some(head) = main.head().await else { return Ok(None) };
            if !tree.is_ancestor(&head, "HEAD").await
                && let Merged::Conflicts(files) = tree.merge(&head).await?
            {
                let files = files.join(", ");
                let why = format!("conflicts with what others did meanwhile in {files}");
                return self.left_over(main, tree, open, commit, &why).await;
            }
            if let Err(says) = self.check(tree, drive).await {
                return self.left_over(main, tree, open, commit, &says).await;
            }
            let Some(merged) = tree.head().await else { return Ok(None) };
            match main.fast_forward(&merged).await {
                Ok(()) => return Ok(Some(merged)),
                // Somebody has committed something meanwhile.
                Err(_) if main.head().await.as_deref() != Some(&*head) => {}
                Err(error) => {
                    let why =
                        format!("could not be taken over into the project's directory: {error}");
                    return self.left_over(main, tree, open, commit, &why).await;
                }
            }
        }
        let why = "could not be taken over, because the project changed all the time";
        self.left_over(main, tree, open, commit, why).await
    }

    /// Keeps work that could not be taken over on a branch, and makes an item of it.
    async fn left_over(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
        why: &str,
    ) -> Result<Option<String>, GitError> {
        let branch = format!("teamster/run-{}/iteration-{}", self.name, open.number);
        main.keep(&branch, commit).await?;
        let about = open.item.map(|item| format!(" ({item})")).unwrap_or_default();
        let content = format!(
            "Bring in the work of iteration {}{about}: it is on the branch {branch} and {why}. Merge that branch \
             (`git merge {branch}`), put right what is in the way, check it, and leave the result in the files.",
            open.number
        );
        let priority = Priority::new(1).ok();
        let new = NewItem { content, status: None, priority };
        self.submit(run::Command::Item(item::Command::Add(vec![new]))).await;
        if let Some(head) = main.head().await {
            tree.reset_to(&head).await?;
        }
        Ok(None)
    }

    /// Runs the project's check; says what it said if it fails.
    async fn check(&self, tree: &Tree, drive: &Drive) -> Result<(), String> {
        let Some((program, args)) = drive.terms.check.split_first() else { return Ok(()) };
        let shown = drive.terms.check.join(" ");
        let args = args.iter().map(|arg| &**arg);
        let run = process::command(program, tree.directory()).args(args).output();
        let output = tokio::select! {
            output = tokio::time::timeout(CHECK_PATIENCE, run) => output,
            () = self.shared.stop.cancelled() => return Err("was not checked to the end".to_owned()),
        };
        let output = match output {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => {
                return Err(format!("its check `{shown}` cannot be started: {error}"));
            }
            Err(_) => return Err(format!("its check `{shown}` took too long")),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let from = said.ceil_char_boundary(said.len().saturating_sub(CHECK_BYTES_MAX));
        let end = said[from..].replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "");
        Err(format!(
            "its check `{shown}` fails ({}); it said at the end:\n\n{}\n",
            output.status,
            end.trim()
        ))
    }

    /// Removes the worktrees of a run that is over. One in which something is left stays.
    pub(super) async fn clear_up(&self, drive: &Drive) {
        let Some(main) = Tree::at(Path::new(&*drive.terms.directory)).await else { return };
        for worker in 0..drive.terms.workers {
            let path = self.worktree_path(worker);
            if drive.carried.contains_key(&worker) || !path.exists() {
                continue;
            }
            if let Err(error) = main.remove_worktree(&path, &self.branch(worker)).await {
                tracing::warn!(run = self.name.as_str(), %error, "a worktree stays");
            }
        }
    }
}
