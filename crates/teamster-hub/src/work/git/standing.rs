//! Where HEAD is. Only a branch keeps the commits that are made on it.

use super::{Base, GitError, Tree};

/// Where the HEAD of a working tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::work) enum Standing {
    /// On a branch, from `refs/` on, that has a commit.
    Branch { name: String, commit: String },
    /// On a branch that has no commit yet, as after `git checkout --orphan`.
    Unborn,
    /// On a commit and no branch. `during` is what git has begun and not finished there.
    Detached { during: Option<&'static str> },
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Branch { name, .. } => write!(f, "HEAD is on {}", short(name)),
            Self::Unborn => write!(f, "the current branch has no commit"),
            Self::Detached { during: Some(what) } => {
                write!(f, "HEAD is on no branch (a {what} is under way)")
            }
            Self::Detached { during: None } => write!(f, "HEAD is on no branch"),
        }
    }
}

impl Tree {
    pub(in crate::work) async fn standing(&self) -> Result<Standing, GitError> {
        match self.position().await {
            (Some(commit), Some(name)) => Ok(Standing::Branch { name, commit }),
            (Some(_), None) => {
                let index = self.index_file().await?;
                let is_there = |file: &str| index.with_file_name(file).exists();
                let during = [("rebase-merge", "rebase"), ("rebase-apply", "rebase")];
                let mut during = during.into_iter().chain([("BISECT_LOG", "bisect")]);
                let during = during.find(|(file, _)| is_there(file)).map(|(_, what)| what);
                Ok(Standing::Detached { during })
            }
            // Git fails here for any other reason than a missing commit.
            (None, _) => self.git(["symbolic-ref", "HEAD"]).await.map(|_| Standing::Unborn),
        }
    }

    /// Says whether a commit is in the history of HEAD, of the branch of a base, or of a branch below `kept`.
    pub(in crate::work) async fn is_kept(&self, commit: &str, base: &str, kept: &str) -> bool {
        if self.is_ancestor(commit, "HEAD").await {
            return true;
        }
        if let Some(branch) = Base::of(base).branch
            && self.is_ancestor(commit, branch).await
        {
            return true;
        }
        let (contains, below) = (format!("--contains={commit}"), format!("refs/heads/{kept}/"));
        let found = self.git(["for-each-ref", "--count=1", &contains, &below]).await;
        found.is_ok_and(|found| !found.is_empty())
    }
}

/// Returns a branch's name as people write it.
pub(super) fn short(name: &str) -> &str {
    name.trim_start_matches("refs/heads/")
}

/// Returns the branch of a base.
pub(in crate::work) fn branch_of(base: &str) -> Option<&str> {
    Base::of(base).branch
}

/// Returns a base of which another branch is said.
pub(in crate::work) fn on_branch(base: &str, branch: &str) -> String {
    let mut fields: Vec<&str> = base.split(':').collect();
    if let Some(field) = fields.get_mut(2) {
        *field = branch;
    }
    fields.join(":")
}
