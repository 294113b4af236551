//! Forgetting a run: what it left in its repository is removed, unless somebody's work would be lost with it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use teamster_agents::deputy::FileTask;
use teamster_core::RunName;
use teamster_core::run::Run;

use super::git::{GitError, Locking, Tree};
use super::{anchors, kept, worktrees};
use crate::config::DataFiles;
use crate::held::Confined;

/// Whoever worked on the run may still be clearing up; so often, and so long each time, that is waited for.
const LOOKS_MAX: u32 = 50;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What was removed of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Removed {
    pub(crate) branches: Vec<String>,
    pub(crate) refs: Vec<String>,
    pub(crate) worktrees: Vec<PathBuf>,
    /// What could not be removed, and why.
    pub(crate) kept: Vec<String>,
}

/// Why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(
        "forgetting {run} would lose work that is not on your branch: {}; merge it (`git merge BRANCH`), or repeat the command \
         with --force", .work.join(", ")
    )]
    Unmerged { run: RunName, work: Vec<String> },
    #[error(
        "cannot look at the repository of the run: {0}; repair it, or repeat the command with --force"
    )]
    Git(String),
}

/// Removes what a run that nobody works on has left in its repository and beside it. `force` removes unmerged work, too.
pub(crate) async fn forget(
    held: &Confined,
    data: &DataFiles,
    name: &RunName,
    run: &Run,
    force: bool,
) -> Result<Removed, Problem> {
    let Some(drive) = &run.drive else { return Ok(Removed::default()) };
    let directory = Path::new(&*drive.terms.directory);
    let main = match Tree::at(held, directory).await {
        Ok(main) => main,
        Err(error) if force || !directory.exists() => {
            let kept = vec![format!("the repository of {} ({error})", directory.display())];
            return Ok(Removed { kept, ..Removed::default() });
        }
        Err(error) => return Err(Problem::Git(error.to_string())),
    };
    // Where there is no repository, nothing was kept in one.
    let Some(main) = main else { return Ok(Removed::default()) };
    let _lock = lock(&main).await;
    let trees = worktrees_in(held, &worktrees(data, name)).await;
    let git = |error: GitError| Problem::Git(error.to_string());
    if !force {
        let work = unmerged(&main, name, &trees).await.map_err(git)?;
        if !work.is_empty() {
            return Err(Problem::Unmerged { run: name.clone(), work });
        }
    }
    remove((held, &main), data, name, trees).await.map_err(git)
}

async fn lock(main: &Tree) -> Option<Locking> {
    for _ in 0..LOOKS_MAX {
        match main.lock() {
            Locking::Taken => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
            lock @ (Locking::Locked(_) | Locking::Impossible) => return Some(lock),
        }
    }
    // Another run works there, which has names of its own.
    None
}

/// Returns the worktrees of a run. Agents can put a link in their place, to what only the hub may remove.
async fn worktrees_in(held: &Confined, root: &Path) -> Vec<PathBuf> {
    let names = held.file(FileTask::list(root)).await.unwrap_or_default();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut found: Vec<PathBuf> = names.map(|name| root.join(OsStr::from_bytes(name))).collect();
    found.sort_unstable();
    found
}

/// Returns what would be lost.
async fn unmerged(main: &Tree, name: &RunName, trees: &[PathBuf]) -> Result<Vec<String>, GitError> {
    let mut work = main.unmerged(&kept(name)).await?;
    // How files were that a person had changed and an agent has changed further.
    let theirs = main.names(&format!("{}yours-*", anchors(name))).await?;
    work.extend(theirs.into_iter().map(|theirs| format!("{theirs} (your own version of files)")));
    let left = main.names(&format!("{}left-*", anchors(name))).await?;
    work.extend(
        left.into_iter().map(|left| format!("{left} (files that an agent and you changed)")),
    );
    for tree in trees {
        if main.has_changes(tree).await {
            work.push(format!("{} (uncommitted files)", tree.display()));
        }
    }
    Ok(work)
}

async fn remove(
    (held, main): (&Confined, &Tree),
    data: &DataFiles,
    name: &RunName,
    trees: Vec<PathBuf>,
) -> Result<Removed, GitError> {
    let mut removed = Removed::default();
    for tree in trees {
        // What git does not know as a worktree was moved out of the way once.
        let done = match main.remove_worktree_and_all(&tree).await {
            Ok(()) => Ok(()),
            Err(_) => held.file(FileTask::remove_all(&tree)).await.map(drop),
        };
        match done {
            Ok(()) => removed.worktrees.push(tree),
            Err(error) => removed.kept.push(format!("{} ({error})", tree.display())),
        }
    }
    let _ = held.file(FileTask::remove_directory(&worktrees(data, name))).await;
    let (branches, in_use) = main.remove_branches(&kept(name)).await?;
    removed.branches = branches;
    let in_use = in_use.into_iter().map(|branch| format!("{branch} (a worktree is on it)"));
    removed.kept.extend(in_use);
    let refs = main.names(&anchors(name)).await?;
    main.forget(&refs).await?;
    removed.refs = refs;
    Ok(removed)
}
