//! Git worktrees for those who must not work in each other's files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use teamster_agents::deputy::{Command, FileTask, How};
use teamster_core::TeamName;
use teamster_core::conversation::Conversation;
use tokio::sync::Mutex;

use crate::held::Confined;

/// Held while a worktree is made: git is confused by two that are made at once.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A checkout of a big repository takes a while.
const PATIENCE: Duration = Duration::from_secs(300);
/// As much of git's words as is passed on.
const SAYS_BYTES_MAX: usize = 1_000;

/// What is said where there can be none.
pub(super) const NO_GIT: &str =
    "worktrees need a git repository; run `git init` there, or say worktrees = false";

/// Says whether a directory is in a git repository, as far as its files show.
pub(super) fn is_in_git(directory: &Path) -> bool {
    // A worktree has a file that says where the repository is.
    let has_git = |git: &Path| git.is_file() || git.join("HEAD").is_file();
    directory.ancestors().any(|directory| has_git(&directory.join(".git")))
}

/// Makes sure that there is a worktree of a repository at `path`, on a branch of its own that begins where the repository
/// is now. One that is there already is left as it is. Returns the directory in it that is the repository's own.
pub(super) async fn ensure(
    held: &Confined,
    repository: &Path,
    path: &Path,
    branch: &str,
) -> Result<PathBuf, String> {
    if !is_in_git(repository) {
        return Err(format!("{} is in no repository: {NO_GIT}", repository.display()));
    }
    let prefix = git(held, repository, &["rev-parse".as_ref(), "--show-prefix".as_ref()]).await?;
    let directory = path.join(prefix.trim());
    let _one_at_a_time = ONE_AT_A_TIME.lock().await;
    if path.join(".git").exists() {
        return Ok(directory);
    }
    let parent = path.parent().ok_or("a worktree cannot be the root directory")?;
    held.file(FileTask::make_directory(parent))
        .await
        .map_err(|error| format!("cannot make {}: {error}", parent.display()))?;
    // What was removed by hand is in git's way.
    git(held, repository, &["worktree".as_ref(), "prune".as_ref()]).await?;
    let full = format!("refs/heads/{branch}");
    let verify = ["rev-parse", "--verify", "--quiet", &full].map(AsRef::as_ref);
    let is_known = git(held, repository, &verify).await.is_ok();
    let add: [&Path; 2] = ["worktree".as_ref(), "add".as_ref()];
    let rest: Vec<&Path> = match is_known {
        true => vec![path, Path::new(branch)],
        false => vec!["-b".as_ref(), Path::new(branch), path, "HEAD".as_ref()],
    };
    git(held, repository, &[&add[..], &rest[..]].concat()).await?;
    Ok(directory)
}

/// Returns the branch of a conversation's worktree. Several hubs may have some of one repository, and one that begins
/// anew counts anew.
pub(super) fn branch(team: &TeamName, conversation: &Conversation, path: &Path) -> String {
    let is_odd = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let (team, id) = (team.as_str().replace(is_odd, "-"), conversation.id);
    let of = format!("{} {}", path.display(), conversation.opened_at.0);
    let print = of.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |print, byte| {
        (print ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("teamster/{team}/{id}-{:08x}", print >> 32)
}

async fn git(held: &Confined, repository: &Path, args: &[&Path]) -> Result<String, String> {
    let command = Command { time_limit: PATIENCE, ..held.git(repository).args(args) };
    let run = held.run(command).await;
    let output = run.map_err(|error| format!("git failed: {:#}", anyhow::Error::from(error)))?;
    match output.how {
        How::Code(0) => return Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        How::TimedOut => return Err(format!("git took longer than {} s", PATIENCE.as_secs())),
        How::Code(_) | How::Signal(_) | How::TooMuch => {}
    }
    let says = String::from_utf8_lossy(&output.stderr);
    let says: String = says.trim().chars().take(SAYS_BYTES_MAX).collect();
    Err(format!("git could not make a worktree of {}: {says}", repository.display()))
}
