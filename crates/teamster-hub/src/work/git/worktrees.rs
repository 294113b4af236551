//! Trees of ours, in which only agents work: made, gathered, merged, and put back. Nothing here moves a branch of a person
//! but ahead, nor trusts what an agent did with commits and branches.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use teamster_agents::deputy::FileTask;

use super::{Base, FILES_MAX, Gathered, GitError, Merged, Message, Tree, index_info, too_many};

impl Tree {
    /// Makes a commit of all that was changed in this tree, in which only agents work, since `base`. Whatever its agent did
    /// with commits and branches, it follows that of `base`, and those of `kept` branches that it has merged. It is noted
    /// under `name`, so that it is made once. None if nothing was changed. Beside it are repositories within, which are not
    /// in it.
    pub(in crate::work) async fn gather(
        &self,
        base: &str,
        message: &Message<'_>,
        name: &str,
        kept: &str,
    ) -> Result<(Option<Gathered>, Vec<String>), GitError> {
        let base = Base::of(base);
        let unsettled = self.unsettled().await?;
        if let Ok(found) = self.sealed(&["--no-walk", "--no-show-signature", name]).await
            && let Some((commit, _)) = found.into_iter().find(|(_, seal)| seal == message.seal)
        {
            return Ok((Some(Gathered { commit, unsettled }), Vec::new()));
        }
        let Some(from) = base.commit else {
            return Err(GitError::new("commit-tree", "it had no commit to begin with"));
        };
        let mine = self.changed_since(&base, Some(from)).await?;
        let merged = self.merged(from, kept).await?;
        if mine.changes.is_empty() && merged.is_empty() {
            return Ok((None, mine.left_out.repositories));
        }
        if mine.changes.len() > FILES_MAX {
            return Err(too_many(&mine.changes));
        }
        let tree = match &mine.whole {
            Some(whole) => whole.to_string(),
            None => self.tree_with(Some(from), &index_info(&mine.changes)).await?,
        };
        let parents: Vec<&str> =
            [from].into_iter().chain(merged.iter().map(String::as_str)).collect();
        let commit = self.commit_tree(&tree, &parents, message).await?;
        self.git(["update-ref", name, &commit]).await?;
        Ok((Some(Gathered { commit, unsettled }), mine.left_out.repositories))
    }

    /// Returns the commits of branches below `kept` that were merged here since a commit.
    async fn merged(&self, since: &str, kept: &str) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        let below = format!("refs/heads/{kept}/");
        for at in ["HEAD", "MERGE_HEAD"] {
            let (merged, not) = (format!("--merged={at}"), format!("--no-merged={since}"));
            let args = ["for-each-ref", &merged, &not, "--format=%(objectname)", &below];
            // Nothing may be being merged.
            let listed = self.git(args).await.unwrap_or_default();
            found.extend(listed.lines().map(str::to_owned));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Brings another commit into this tree, which is clean; if that conflicts, the tree is as before.
    pub(in crate::work) async fn merge(&self, other: &str, says: &str) -> Result<Merged, GitError> {
        let flags = ["--ff", "--no-verify", "--no-autostash", "--no-verify-signatures", "-m", says];
        self.brought_in("merge", &flags, other).await
    }

    /// Makes the changes of one commit to this tree, which is clean; if that conflicts, the tree is as before.
    pub(in crate::work) async fn pick(&self, commit: &str) -> Result<Merged, GitError> {
        let parents = self.git(["rev-list", "--parents", "--max-count=1", commit]).await?;
        let flags: &[&str] = match parents.split(' ').count() {
            ..3 => &["--allow-empty", "--no-gpg-sign"],
            _ => &["--allow-empty", "--no-gpg-sign", "--mainline=1"],
        };
        self.brought_in("cherry-pick", flags, commit).await
    }

    async fn brought_in(
        &self,
        verb: &str,
        flags: &[&str],
        commit: &str,
    ) -> Result<Merged, GitError> {
        let mut args = self.identity().await;
        let rest = [verb].into_iter().chain(flags.iter().copied()).chain([commit]);
        args.extend(rest.map(str::to_owned));
        let Err(error) = self.git(args.iter().map(String::as_str)).await else {
            return Ok(Merged::Yes);
        };
        let listed = self.git(["diff", "--name-only", "--diff-filter=U"]).await?;
        let files: Vec<String> = listed.lines().map(str::to_owned).collect();
        let _ = self.git([verb, "--abort"]).await;
        if files.is_empty() { Err(error) } else { Ok(Merged::Conflicts(files)) }
    }

    /// Moves this tree's branch ahead to a commit that follows it; local changes stay, and so do files that are ignored.
    pub(in crate::work) async fn fast_forward(&self, to: &str) -> Result<(), GitError> {
        let flags =
            ["--no-verify", "--no-autostash", "--no-overwrite-ignore", "--no-verify-signatures"];
        let args = ["merge", "--ff-only"].into_iter().chain(flags).chain([to]);
        self.git(args).await.map(drop)
    }

    /// Says whether what an iteration began with is still in a commit's history.
    pub(in crate::work) async fn is_based_on(&self, commit: &str, base: Option<&str>) -> bool {
        match base.and_then(|base| Base::of(base).commit) {
            Some(from) => self.is_ancestor(from, commit).await,
            None => true,
        }
    }

    pub(in crate::work) async fn is_ancestor(&self, one: &str, of: &str) -> bool {
        self.git(["merge-base", "--is-ancestor", one, of]).await.is_ok()
    }

    /// Says whether this tree's branch has the work of a commit: the commit is in its history, a merge of it would change
    /// nothing (a squash), or each commit on the way to it was picked.
    pub(in crate::work) async fn has_work_of(&self, commit: &str) -> bool {
        if self.is_ancestor(commit, "HEAD").await {
            return true;
        }
        // Conflicts are an exit code of their own; git before 2.38 cannot do it at all.
        let merged =
            self.git(["merge-tree", "--write-tree", "--no-messages", "HEAD", commit]).await;
        let now = self.git(["rev-parse", "--verify", "--quiet", "HEAD^{tree}"]).await;
        if matches!((merged, now), (Ok(merged), Ok(now)) if merged == now) {
            return true;
        }
        // `git cherry` leaves out merges, which may bring in more than their parents.
        let merges = format!("HEAD..{commit}");
        let merges = self.git(["rev-list", "--merges", "--max-count=1", &merges]).await;
        let picked = self.git(["cherry", "HEAD", commit]).await;
        match (merges, picked) {
            (Ok(merges), Ok(picked)) => {
                merges.is_empty()
                    && !picked.is_empty()
                    && picked.lines().all(|line| line.starts_with('-'))
            }
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Makes a worktree of this repository on no branch, or takes the one that is there. Nobody is at work in it. What is
    /// there and is none, or not one of this repository, is moved out of the way; where to is returned.
    pub(in crate::work) async fn worktree(
        &self,
        path: &Path,
    ) -> Result<(Self, Option<PathBuf>), GitError> {
        let root = path.to_owned();
        let tree = Self { root, is_ours: true, index: None, ..self.clone() };
        let made = |error: std::io::Error| GitError::new("worktree", error.to_string());
        let mut moved = None;
        if path.exists() && !tree.is_of(self).await {
            let aside = path.with_extension(format!("{:08x}", crate::secret::nonce() >> 96));
            self.held.file(FileTask::rename(path, &aside)).await.map_err(made)?;
            moved = Some(aside);
        }
        if !path.exists() {
            if let Some(parent) = path.parent() {
                self.held.file(FileTask::make_directory(parent)).await.map_err(made)?;
            }
            self.git(["worktree", "prune"]).await?;
            let path = path.to_string_lossy();
            self.git(["worktree", "add", "--force", "--detach", &path, "HEAD"]).await?;
        }
        // Whoever held it has ended.
        let lock = tree.index_file().await?.with_file_name("index.lock");
        let _ = self.held.file(FileTask::remove(&lock)).await;
        // What is not in the last commit is not there either.
        self.held.file(FileTask::make_directory(&tree.directory())).await.map_err(made)?;
        Ok((tree, moved))
    }

    /// Says whether this is a worktree of the same repository.
    async fn is_of(&self, main: &Self) -> bool {
        let ask = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"];
        let (Ok(answer), Some(common)) = (self.git(ask).await, &main.common) else { return false };
        let same = |one: &Path, other: &Path| matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other);
        let Some((root, theirs)) = answer.split_once('\n') else { return false };
        same(Path::new(root), &self.root) && same(Path::new(theirs), common)
    }

    /// Removes a worktree, unless there is something in it that is not committed. Its branch stays.
    pub(in crate::work) async fn remove_worktree(&self, path: &Path) -> Result<(), GitError> {
        let path = path.to_string_lossy();
        self.git(["worktree", "remove", &path]).await.map(drop)
    }

    /// Returns the branches below `prefix`.
    pub(in crate::work) async fn branches(&self, prefix: &str) -> Result<Vec<String>, GitError> {
        let names = self.names(&format!("refs/heads/{prefix}/")).await?;
        let short = |name: &String| name.trim_start_matches("refs/heads/").to_owned();
        Ok(names.iter().map(short).collect())
    }

    /// Removes the branches below `prefix` whose work is in this tree's branch, and which no worktree is on.
    pub(in crate::work) async fn forget_merged(&self, prefix: &str) -> Result<(), GitError> {
        for Branch { name, commit, is_in_use } in self.branches_with_commits(prefix).await? {
            if !is_in_use && self.has_work_of(&commit).await {
                self.git(["update-ref", "-d", &name, &commit]).await?;
            }
        }
        Ok(())
    }

    /// Returns the branches below `prefix` whose work is not in this tree's branch.
    pub(in crate::work) async fn unmerged(&self, prefix: &str) -> Result<Vec<String>, GitError> {
        let mut unmerged = Vec::new();
        for branch in self.branches_with_commits(prefix).await? {
            if !self.has_work_of(&branch.commit).await {
                unmerged.push(branch.short().to_owned());
            }
        }
        Ok(unmerged)
    }

    /// Removes the branches below `prefix`. Returns their names, and those of branches that a worktree is on, which stay.
    pub(in crate::work) async fn remove_branches(
        &self,
        prefix: &str,
    ) -> Result<(Vec<String>, Vec<String>), GitError> {
        let (mut removed, mut in_use) = (Vec::new(), Vec::new());
        for branch in self.branches_with_commits(prefix).await? {
            if branch.is_in_use {
                in_use.push(branch.short().to_owned());
                continue;
            }
            self.git(["update-ref", "-d", &branch.name, &branch.commit]).await?;
            removed.push(branch.short().to_owned());
        }
        Ok((removed, in_use))
    }

    async fn branches_with_commits(&self, prefix: &str) -> Result<Vec<Branch>, GitError> {
        let below = format!("refs/heads/{prefix}/");
        let format = "--format=%(objectname) %(refname) %(worktreepath)";
        let listed = self.git_raw(None, &["for-each-ref", format, &below].map(OsStr::new)).await?;
        let listed = String::from_utf8_lossy(&listed);
        let branch = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let (commit, name) = (words.next()?, words.next()?);
            let is_in_use = words.next().is_some_and(|tree| !tree.is_empty());
            Some(Branch { name, commit, is_in_use })
        };
        Ok(listed.lines().filter_map(branch).collect())
    }

    /// Says whether there are files in a worktree that are not committed; of what is no worktree, whether there are any.
    pub(in crate::work) async fn has_changes(&self, path: &Path) -> bool {
        let root = path.to_owned();
        let tree = Self { root, is_ours: true, index: None, ..self.clone() };
        match tree.is_of(self).await {
            true => !tree.is_clean().await.unwrap_or(false),
            false => {
                let listed = self.held.file(FileTask::list(path)).await;
                listed.is_ok_and(|names| !names.is_empty())
            }
        }
    }

    /// Removes a worktree with all that is in it.
    pub(in crate::work) async fn remove_worktree_and_all(
        &self,
        path: &Path,
    ) -> Result<(), GitError> {
        let path = path.to_string_lossy();
        self.git(["worktree", "remove", "--force", &path]).await.map(drop)
    }

    /// Gives a commit a branch of its own, so that it is not lost, and returns its name. Another commit may have it already.
    pub(in crate::work) async fn keep(
        &self,
        branch: &str,
        commit: &str,
    ) -> Result<String, GitError> {
        let mut name = branch.to_owned();
        for n in 2.. {
            let at = format!("refs/heads/{name}");
            let known = self.git(["rev-parse", "--verify", "--quiet", &at]).await.ok();
            match known {
                Some(known) if known == commit => break,
                Some(_) => name = format!("{branch}-{n}"),
                None => {
                    self.git(["update-ref", &at, commit, &"0".repeat(commit.len())]).await?;
                    break;
                }
            }
        }
        Ok(name)
    }

    /// Puts this tree, in which only agents work, to a commit. Its agent may have left it on a branch that is a person's,
    /// which stays as it is, or in the middle of something.
    pub(in crate::work) async fn reset_to(&self, commit: &str) -> Result<(), GitError> {
        if !self.is_ours {
            return Err(GitError::new("checkout", "these files are a person's"));
        }
        self.git(["checkout", "-q", "--force", "--detach", commit]).await?;
        let git = self.index_file().await?;
        let is_under_way = |what: &str| git.with_file_name(what).exists();
        if is_under_way("rebase-merge") || is_under_way("rebase-apply") {
            self.git(["rebase", "--quit"]).await?;
        }
        self.git(["clean", "-qfd"]).await.map(drop)
    }

    /// Says whether there is nothing in the files that is not committed.
    pub(in crate::work) async fn is_clean(&self) -> Result<bool, GitError> {
        Ok(self.git(["status", "--porcelain"]).await?.is_empty())
    }
}

/// A branch, with the commit that it is at.
struct Branch {
    /// From `refs/` on.
    name: String,
    commit: String,
    /// A worktree is on it.
    is_in_use: bool,
}

impl Branch {
    fn short(&self) -> &str {
        self.name.trim_start_matches("refs/heads/")
    }
}
