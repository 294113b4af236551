//! What an iteration changed, as a commit: exactly the files that differ from how they were before it, and nothing that a
//! person had changed by then. The person's own index and branch stay theirs: only what is committed is refreshed in it.

mod programs;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::deputy::{Command, How, STDOUT_BYTES_MAX};

pub(super) use self::programs::Programs;
use crate::held::Held;

/// A checkout or the state of a big repository takes a while.
const PATIENCE: Duration = Duration::from_secs(300);
/// So long is waited for a lock that somebody else has, such as an editor that looks at the same files.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_LOOKS: u32 = 50;
/// As much of git's words as is passed on.
const SAYS_CHARS_MAX: usize = 1_000;
/// Somebody else may commit something at the same time; so often it is tried again.
const TRIES_MAX: u32 = 5;
/// More files than that are no work of an iteration, but something that nobody has told git to ignore.
const FILES_MAX: usize = 20_000;
const TRAILER: &str = "Teamster-Iteration";
/// The mode of an entry that is another repository.
const REPOSITORY: &[u8] = b"160000";

/// A working tree of a git repository, and a directory in it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: PathBuf,
    within: PathBuf,
    held: Held,
    /// The branch of a tree in which only agents work.
    ours: Option<String>,
    /// Where its index is, if that is known.
    index: Option<PathBuf>,
}

/// Why git did not do it, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("git {verb}: {says}")]
pub(super) struct GitError {
    verb: String,
    says: String,
    code: Option<i32>,
}

impl GitError {
    pub(super) fn new(verb: &str, says: impl Into<String>) -> Self {
        Self { verb: verb.to_owned(), says: says.into(), code: None }
    }

    /// Of a repository that was there when the iteration began.
    pub(super) fn gone(directory: &Path) -> Self {
        let at = directory.display();
        Self::new(
            "rev-parse",
            format!("the repository of {at} is gone; bring it back, then resume"),
        )
    }
}

/// What is to be committed, and how it is found again.
pub(super) struct Message<'a> {
    pub(super) subject: &'a str,
    pub(super) body: &'a str,
    /// `<run>#<iteration>`; no two commits have the same.
    pub(super) mark: &'a str,
}

/// What came of taking one tree's work over into another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    Yes,
    /// These files are in the way.
    Conflicts(Vec<String>),
}

/// What is to be committed.
struct Changes {
    changes: Vec<Change>,
    /// The tree with all of them, if that is how all files are.
    whole: Option<Arc<str>>,
}

/// A path that differs between two trees, and what it is in the other one.
struct Change {
    was: Vec<u8>,
    mode: Vec<u8>,
    object: Vec<u8>,
    path: Vec<u8>,
}

impl Change {
    fn is_gone(&self) -> bool {
        self.mode.iter().all(|digit| *digit == b'0')
    }
}

impl Tree {
    /// Returns the working tree that a directory is in, if it is in one. That git does not answer for a repository is
    /// another thing than that there is none.
    pub(super) async fn at(held: &Held, directory: &Path) -> Result<Option<Self>, GitError> {
        let odd = |says: String| GitError::new("rev-parse", says);
        let is_gone = |error| odd(format!("{} cannot be found: {error}", directory.display()));
        let directory = std::fs::canonicalize(directory).map_err(is_gone)?;
        let (root, within) = (directory.clone(), PathBuf::new());
        let here = Self { root, within, held: held.clone(), ours: None, index: None };
        let ask = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index"];
        let answer = match here.git_raw(None, &ask.map(OsStr::new)).await {
            Ok(answer) => answer,
            Err(error) if directory.ancestors().any(has_repository) => return Err(error),
            Err(_) => return Ok(None),
        };
        let answer = answer.strip_suffix(b"\n").unwrap_or(&answer);
        let mut lines = answer.split(|byte| *byte == b'\n');
        let (root, index) = match (lines.next(), lines.next(), lines.next()) {
            (Some(root), Some(index), None) => (root.to_owned(), Some(bytes_os(index).into())),
            // There is a newline in one of the names.
            _ => {
                let ask = ["rev-parse", "--show-toplevel"].map(OsStr::new);
                let mut root = here.git_raw(None, &ask).await?;
                root.truncate(root.len().saturating_sub(1));
                (root, None)
            }
        };
        let root = PathBuf::from(bytes_os(&root));
        let Ok(within) = directory.strip_prefix(&root) else {
            let (directory, root) = (directory.display(), root.display());
            return Err(odd(format!(
                "the files of its repository are in {root}, not in {directory}"
            )));
        };
        let within = within.to_owned();
        Ok(Some(Self { root, within, index, ..here }))
    }

    /// Returns the directory that is meant, which may be inside of the tree.
    pub(super) fn directory(&self) -> PathBuf {
        self.root.join(&self.within)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the commit that the tree is at, if it has one.
    pub(super) async fn head(&self) -> Option<String> {
        self.git(["rev-parse", "--verify", "--quiet", "HEAD"]).await.ok()
    }

    /// Returns the commit that the tree is at and the branch that it is on, as far as it has them.
    async fn position(&self) -> (Option<String>, Option<String>) {
        let answer = self.git(["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"]).await;
        let answer = answer.unwrap_or_default();
        let mut lines = answer.lines().map(str::to_owned);
        (lines.next(), lines.next().filter(|name| name.starts_with("refs/heads/")))
    }

    /// Returns a name for all files as they are now, but for those that are ignored or cannot be read.
    pub(super) async fn snapshot(&self) -> Result<Arc<str>, GitError> {
        let index = self.scratch_index().await?;
        let tree = async {
            match self
                .with_index(&index, ["add", "-A", "--sparse", "--ignore-errors", "--", ":/"])
                .await
            {
                // Of what could not be added there is nothing to commit either.
                Err(error) if error.code == Some(1) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            self.with_index(&index, ["write-tree"]).await
        };
        let tree = tree.await;
        let _ = std::fs::remove_file(&index);
        Ok(tree?.into())
    }

    /// Commits what differs from `base`, but for files that differed from the last commit already then. Returns the commit,
    /// also one that was made before; none if nothing has changed.
    pub(super) async fn commit(
        &self,
        base: &str,
        message: &Message<'_>,
    ) -> Result<Option<String>, GitError> {
        self.commit_all(base, message, FILES_MAX).await
    }

    /// The same, if it is no more than so many files.
    pub(super) async fn commit_all(
        &self,
        base: &str,
        message: &Message<'_>,
        files_max: usize,
    ) -> Result<Option<String>, GitError> {
        let base = Base::of(base);
        let mut moved = None;
        for _ in 0..TRIES_MAX {
            let (head, branch) = self.position().await;
            if let Some(known) = self.find_from(head.as_deref(), base.commit, message.mark).await? {
                return Ok(Some(known));
            }
            let mine = self.changed_since(&base, head.as_deref()).await?;
            if mine.changes.is_empty() {
                return Ok(None);
            }
            if mine.changes.len() > files_max {
                return Err(too_many(&mine.changes));
            }
            if let (Some(was), None, None) = (base.branch, branch, &self.ours) {
                let was = was.trim_start_matches("refs/heads/");
                let says = format!(
                    "HEAD was on {was} and is on no branch any more, perhaps in the middle of a rebase or bisect, so that \
                     a commit would soon be lost; end that, or `git switch {was}`, then resume"
                );
                return Err(GitError::new("commit", says));
            }
            let merged = match self.ours.is_some() || !base.is_merging {
                true => self.merge_head().await,
                // What a person merges is theirs.
                false => None,
            };
            match self.commit_changes(head.as_deref(), merged, &mine, message).await {
                Ok(commit) => return Ok(Some(commit)),
                // Somebody has committed something meanwhile.
                Err(error) if self.head().await != head => moved = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(moved.unwrap_or_else(|| GitError::new("commit", "the branch moved all the time")))
    }

    /// Returns what is not committed, but for files that were not as committed at `base` already.
    async fn changed_since(
        &self,
        base: &Base<'_>,
        head: Option<&str>,
    ) -> Result<Changes, GitError> {
        let empty = match (base.commit, head) {
            (Some(_), Some(_)) => String::new(),
            _ => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let now = self.snapshot().await?;
        let dirty = self.changed(base.commit.unwrap_or(&empty), base.tree).await?.into_iter();
        let dirty: BTreeSet<Vec<u8>> = dirty.map(|change| change.path).collect();
        // Its agent may have committed some of it itself, and may have changed its mind after that.
        let mut open = self.changed(head.unwrap_or(&empty), &now).await?;
        let n_open = open.len();
        open.retain(|change| !dirty.contains(&change.path));
        let is_new_repository =
            |change: &Change| change.mode == REPOSITORY && change.was != REPOSITORY;
        if open.iter().any(is_new_repository) {
            // Without a word about where it comes from, nobody else could get it.
            let known = self.submodules(&now).await;
            open.retain(|change| !is_new_repository(change) || known.contains(&change.path));
        }
        let whole = (open.len() == n_open).then_some(now);
        Ok(Changes { changes: open, whole })
    }

    /// Returns the paths of the submodules that a tree declares.
    async fn submodules(&self, tree: &str) -> BTreeSet<Vec<u8>> {
        let blob = format!("{tree}:.gitmodules");
        let args = ["config", "-z", "--blob", &blob, "--get-regexp", r"\.path$"].map(OsStr::new);
        let listed = self.git_raw(None, &args).await.unwrap_or_default();
        let entries = listed.split(|byte| *byte == 0);
        let path = |entry: &[u8]| {
            let end = entry.iter().position(|byte| *byte == b'\n')?;
            entry.get(end + 1..).map(<[u8]>::to_owned)
        };
        entries.filter_map(path).collect()
    }

    /// Makes a commit on top of `head` with these changes.
    async fn commit_changes(
        &self,
        head: Option<&str>,
        merged: Option<String>,
        mine: &Changes,
        message: &Message<'_>,
    ) -> Result<String, GitError> {
        let info = index_info(&mine.changes);
        let tree = match &mine.whole {
            Some(whole) => whole.to_string(),
            None => self.tree_with(head, &info).await?,
        };
        let mut text = format!("{}\n\n", message.subject);
        if !message.body.trim().is_empty() {
            text.extend([message.body.trim(), "\n\n"]);
        }
        text.extend([TRAILER, ": ", message.mark, "\n"]);
        let mut args: Vec<&OsStr> = vec!["commit-tree".as_ref(), tree.as_ref()];
        for parent in head.into_iter().chain(merged.as_deref()) {
            args.extend(["-p".as_ref(), OsStr::new(parent)]);
        }
        let commit = match self.git_fed(None, &args, text.clone().into_bytes()).await {
            Ok(commit) => commit,
            // Most often because nobody has said who commits here.
            Err(error) => {
                let identity = self.identity().await;
                if identity.is_empty() {
                    return Err(error);
                }
                let args: Vec<&OsStr> = identity.iter().map(OsStr::new).chain(args).collect();
                self.git_fed(None, &args, text.into_bytes()).await?
            }
        };
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        // The person's index first: a commit that is there is never looked after again.
        self.update_index(None, &info).await?;
        let old = head.map_or_else(|| "0".repeat(commit.len()), str::to_owned);
        // Not if somebody has committed something meanwhile.
        self.git(["update-ref", "-m", message.subject, "HEAD", &commit, &old]).await?;
        if merged.is_some() {
            // What was settled as it is in the last commit is no change, but still open in the index.
            let open = ["diff", "--name-only", "--diff-filter=U", "-z"].map(OsStr::new);
            let open = self.git_raw(None, &open).await?;
            if !open.is_empty() {
                let from = ["--pathspec-from-file=-", "--pathspec-file-nul"];
                let args = ["--literal-pathspecs", "reset", "-q", from[0], from[1]].map(OsStr::new);
                self.git_fed(None, &args, open).await?;
            }
            self.git(["merge", "--quit"]).await?;
        }
        Ok(commit)
    }

    /// Returns the tree of a commit with these changes.
    async fn tree_with(&self, head: Option<&str>, info: &[u8]) -> Result<String, GitError> {
        let index = self.scratch_index().await?;
        let made = async {
            match head {
                Some(head) => self.with_index(&index, ["read-tree", head]).await?,
                None => self.with_index(&index, ["read-tree", "--empty"]).await?,
            };
            self.update_index(Some(&index), info).await?;
            self.with_index(&index, ["write-tree"]).await
        };
        let tree = made.await;
        let _ = std::fs::remove_file(&index);
        tree
    }

    async fn merge_head(&self) -> Option<String> {
        if self.index.is_some() && !self.merge_head_file().await.ok()?.exists() {
            return None;
        }
        self.git(["rev-parse", "--verify", "--quiet", "MERGE_HEAD"]).await.ok()
    }

    async fn update_index(&self, index: Option<&Path>, info: &[u8]) -> Result<(), GitError> {
        let args = ["update-index", "--replace", "-z", "--index-info"].map(OsStr::new);
        self.git_fed(index, &args, info.to_owned()).await.map(drop)
    }

    /// Returns the commit of an iteration, if it was made after `base`.
    pub(super) async fn find(&self, base: &str, mark: &str) -> Result<Option<String>, GitError> {
        let head = self.head().await;
        self.find_from(head.as_deref(), Base::of(base).commit, mark).await
    }

    async fn find_from(
        &self,
        head: Option<&str>,
        base: Option<&str>,
        mark: &str,
    ) -> Result<Option<String>, GitError> {
        if head.is_none() || head == base {
            return Ok(None);
        }
        // Another run may have had the same name long ago.
        let range = base.map_or_else(|| "HEAD".into(), |base| format!("{base}..HEAD"));
        let format = format!("--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)");
        let found = self.git(["log", &format, &range, "--"]).await?;
        let found = found.lines().filter_map(|line| line.split_once(' '));
        let found = found.into_iter().find(|(_, marks)| marks.split(' ').any(|one| one == mark));
        Ok(found.map(|(hash, _)| hash.to_owned()))
    }

    /// Returns what is to be written down of how everything is before an iteration. The files have a name in the repository
    /// from then on, or `git gc` could take them away.
    pub(super) async fn base(&self, anchor: &str, programs: &str) -> Result<Arc<str>, GitError> {
        let (head, branch) = self.position().await;
        let tree = self.snapshot().await?;
        self.git(["update-ref", anchor, &tree]).await?;
        let merging = match self.ours.is_none() && self.merge_head_file().await?.exists() {
            true => "merging",
            false => "",
        };
        let (head, branch) = (head.unwrap_or_default(), branch.unwrap_or_default());
        Ok(format!("{head}:{tree}:{programs}:{branch}:{merging}").into())
    }

    /// Returns the base that a commit is.
    pub(super) async fn committed(&self, commit: &str) -> Result<String, GitError> {
        let tree = self.git(["rev-parse", &format!("{commit}^{{tree}}")]).await?;
        Ok(format!("{commit}:{tree}"))
    }

    async fn merge_head_file(&self) -> Result<PathBuf, GitError> {
        Ok(self.index_file().await?.with_file_name("MERGE_HEAD"))
    }

    /// Forgets the names of how files were.
    pub(super) async fn forget(&self, anchors: &[String]) -> Result<(), GitError> {
        let lines: String = anchors.iter().map(|anchor| format!("delete {anchor}\n")).collect();
        let args = ["update-ref", "--stdin"].map(OsStr::new);
        self.git_fed(None, &args, lines.into_bytes()).await.map(drop)
    }

    /// Returns what differs between two trees.
    async fn changed(&self, one: &str, other: &str) -> Result<Vec<Change>, GitError> {
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", one, other];
        let listed = self.git_raw(None, &args.map(OsStr::new)).await?;
        let mut fields = listed.split(|byte| *byte == 0);
        let mut changes = Vec::new();
        while let (Some(about), Some(path)) = (fields.next(), fields.next()) {
            // `:100644 100644 <object> <object> M`
            let words: Vec<&[u8]> = about.split(|byte| *byte == b' ').collect();
            let [was, mode, _, object, _] = words[..] else {
                return Err(GitError::new("diff-tree", "an answer that cannot be understood"));
            };
            let was = was.strip_prefix(b":").unwrap_or(was).to_owned();
            let (mode, object, path) = (mode.to_owned(), object.to_owned(), path.to_owned());
            changes.push(Change { was, mode, object, path });
        }
        Ok(changes)
    }

    /// Brings another commit into this tree, which is clean; if that conflicts, the tree is as before.
    pub(super) async fn merge(&self, other: &str) -> Result<Merged, GitError> {
        if self.merge_head().await.is_some() {
            // One was cut off.
            let _ = self.git(["merge", "--abort"]).await;
        }
        let mut args = self.identity().await;
        args.extend(["merge", "--no-edit", "--no-verify", other].map(str::to_owned));
        let merged = self.git(args.iter().map(String::as_str)).await;
        let Err(error) = merged else { return Ok(Merged::Yes) };
        let listed = self.git(["diff", "--name-only", "--diff-filter=U"]).await?;
        let files: Vec<String> = listed.lines().map(str::to_owned).collect();
        let _ = self.git(["merge", "--abort"]).await;
        if files.is_empty() { Err(error) } else { Ok(Merged::Conflicts(files)) }
    }

    /// Moves this tree's branch ahead to a commit that follows it; local changes stay.
    pub(super) async fn fast_forward(&self, to: &str) -> Result<(), GitError> {
        self.git(["merge", "--ff-only", "--no-verify", to]).await.map(drop)
    }

    pub(super) async fn is_ancestor(&self, one: &str, of: &str) -> bool {
        self.git(["merge-base", "--is-ancestor", one, of]).await.is_ok()
    }

    /// Makes a worktree of this repository on a branch, or takes the one that is there.
    pub(super) async fn worktree(&self, path: &Path, branch: &str) -> Result<Self, GitError> {
        let (root, ours) = (path.to_owned(), Some(branch.to_owned()));
        let tree = Self { root, ours, index: None, ..self.clone() };
        let made = |error: std::io::Error| GitError::new("worktree", error.to_string());
        if !path.join(".git").exists() {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(made)?;
            }
            self.git(["worktree", "prune"]).await?;
            let path = path.to_string_lossy();
            self.git(["worktree", "add", "--force", "-B", branch, &path, "HEAD"]).await?;
        }
        // What is not in the last commit is not there either.
        std::fs::create_dir_all(tree.directory()).map_err(made)?;
        Ok(tree)
    }

    /// Removes a worktree, unless there is something in it that is not committed. Its branch stays.
    pub(super) async fn remove_worktree(&self, path: &Path) -> Result<(), GitError> {
        let path = path.to_string_lossy();
        self.git(["worktree", "remove", &path]).await.map(drop)
    }

    /// Removes the branches below `prefix` whose commits are in this tree's branch, and which no worktree is on.
    pub(super) async fn forget_merged(&self, prefix: &str) -> Result<(), GitError> {
        let below = format!("refs/heads/{prefix}/");
        let format = "--format=%(refname:short) %(worktreepath)";
        let args = ["for-each-ref", "--merged=HEAD", format, &below].map(OsStr::new);
        let merged = self.git_raw(None, &args).await?;
        for line in String::from_utf8_lossy(&merged).lines() {
            if let Some((branch, "")) = line.split_once(' ') {
                self.git(["branch", "-d", branch]).await?;
            }
        }
        Ok(())
    }

    /// Returns the commit that the tree is at, if it is another one than before.
    pub(super) async fn moved_since(&self, base: &str) -> Option<String> {
        let head = self.head().await?;
        let before = Base::of(base).commit?;
        (head != before && self.is_ancestor(before, &head).await).then_some(head)
    }

    /// Gives a commit a name of its own, so that it is not lost.
    pub(super) async fn keep(&self, branch: &str, commit: &str) -> Result<(), GitError> {
        self.git(["branch", "--force", branch, commit]).await.map(drop)
    }

    /// Puts this tree, in which only agents work, to a commit. Its agent may have left it on a branch that is a person's,
    /// which stays as it is, or in the middle of something.
    pub(super) async fn reset_to(&self, commit: &str) -> Result<(), GitError> {
        let Some(ours) = &self.ours else {
            return Err(GitError::new("checkout", "these files are a person's"));
        };
        self.git(["checkout", "-q", "--force", "-B", ours, commit]).await?;
        let git = self.index_file().await?;
        let is_under_way = |what: &str| git.with_file_name(what).exists();
        if is_under_way("rebase-merge") || is_under_way("rebase-apply") {
            self.git(["rebase", "--quit"]).await?;
        }
        self.git(["clean", "-qfd"]).await.map(drop)
    }

    /// Brings a tree of ours back to its own branch, with all that is in it.
    pub(super) async fn return_to_branch(&self) -> Result<(), GitError> {
        match (&self.ours, self.position().await.1) {
            (Some(ours), on) if on.as_deref() != Some(&*format!("refs/heads/{ours}")) => {
                self.git(["checkout", "-q", "-B", ours]).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Says whether there is nothing in the files that is not committed.
    pub(super) async fn is_clean(&self) -> Result<bool, GitError> {
        Ok(self.git(["status", "--porcelain"]).await?.is_empty())
    }

    /// Returns what says who commits, where the person has not.
    async fn identity(&self) -> Vec<String> {
        if self.git(["var", "GIT_COMMITTER_IDENT"]).await.is_ok() {
            return Vec::new();
        }
        ["-c", "user.name=teamster", "-c", "user.email=teamster@localhost"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Returns a copy of the index that can be changed; its times spare git from reading every file again.
    async fn scratch_index(&self) -> Result<PathBuf, GitError> {
        let real = self.index_file().await?;
        let name = format!("teamster-index-{:032x}", crate::secret::nonce());
        let scratch = real.with_file_name(name);
        // A repository without a commit has none. What changed in the same moment in which the index was written is known
        // by the index being no newer than the file, so the copy must not be.
        if copy_plain(&real, &scratch).is_err() {
            // Without its times, git reads every file.
            let _ = std::fs::remove_file(&scratch);
        }
        Ok(scratch)
    }

    async fn index_file(&self) -> Result<PathBuf, GitError> {
        Ok(match &self.index {
            Some(index) => index.clone(),
            None => self.root.join(self.git(["rev-parse", "--git-path", "index"]).await?),
        })
    }

    async fn git<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<String, GitError> {
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        let output = self.git_raw(None, &args).await?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    async fn with_index<'a>(
        &self,
        index: &Path,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, GitError> {
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        let output = self.git_raw(Some(index), &args).await?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    async fn git_raw(&self, index: Option<&Path>, args: &[&OsStr]) -> Result<Vec<u8>, GitError> {
        self.git_fed(index, args, Vec::new()).await
    }

    /// Runs git at the root, with something to read; waits for others who hold a lock.
    async fn git_fed(
        &self,
        index: Option<&Path>,
        args: &[&OsStr],
        input: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        let mut n_looks = 0;
        loop {
            match self.git_once(index, args, &input).await {
                Err(error) if error.is_locked() && n_looks < LOCK_LOOKS => n_looks += 1,
                done => return done,
            }
            tokio::time::sleep(LOCK_PATIENCE / LOCK_LOOKS).await;
        }
    }

    async fn git_once(
        &self,
        index: Option<&Path>,
        args: &[&OsStr],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let verb = args.iter().find(|arg| !arg.to_string_lossy().starts_with('-'));
        let verb = verb.map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
        let failed = |says: String| GitError::new(&verb, says);
        let command = Command::new("git", &self.root)
            // No hook of the repository, and nobody is asked anything. What else it names runs held.
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            // What an agent writes is committed whatever its line endings.
            .args(["-c", "commit.gpgSign=false", "-c", "core.safecrlf=false"])
            .args(args)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "true")
            .env("LC_ALL", "C");
        let mut command = Command { input: input.to_owned(), time_limit: PATIENCE, ..command };
        if let Some(index) = index {
            command = command.env("GIT_INDEX_FILE", index);
        }
        let output = self.held.run(command).await;
        let output = output.map_err(|error| failed(format!("{:#}", anyhow::Error::from(error))))?;
        let code = match output.how {
            How::Code(0) => return Ok(output.stdout),
            How::Code(code) => Some(code),
            How::Signal(signal) => return Err(failed(format!("it was ended by signal {signal}"))),
            How::TimedOut => {
                return Err(failed(format!("it took longer than {} s", PATIENCE.as_secs())));
            }
            How::TooMuch => {
                return Err(failed(format!("it said more than {STDOUT_BYTES_MAX} bytes")));
            }
        };
        let says = String::from_utf8_lossy(&output.stderr);
        let says = says.trim().chars().take(SAYS_CHARS_MAX).collect();
        Err(GitError { code, ..failed(says) })
    }
}

impl GitError {
    fn is_locked(&self) -> bool {
        self.says.contains(".lock': File exists")
    }
}

/// Copies a file, with its time. Not what a link leads to: an agent could have made one to where only the hub can read.
fn copy_plain(from: &Path, to: &Path) -> std::io::Result<()> {
    let no_link = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let no_link = no_link.bits().cast_signed();
    let mut from = std::fs::File::options().read(true).custom_flags(no_link).open(from)?;
    let about = from.metadata()?;
    if !about.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut to = std::fs::File::options().write(true).create_new(true).open(to)?;
    std::io::copy(&mut from, &mut to)?;
    to.set_modified(about.modified()?)
}

/// Says whether there is something that is or was a repository. A directory of its name alone is nothing to git either.
fn has_repository(directory: &Path) -> bool {
    let git = directory.join(".git");
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let has_part = ["HEAD", "config", "objects"].iter().any(|part| is_there(&git.join(part)));
    has_part || (is_there(&git) && !git.is_dir())
}

/// Returns changes in the words of `update-index --index-info`. What is gone comes first: a directory may have taken its
/// place.
fn index_info(changes: &[Change]) -> Vec<u8> {
    let (gone, there): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| change.is_gone());
    let mut info = Vec::new();
    for change in gone.into_iter().chain(there) {
        for part in [&change.mode[..], b" ", &change.object, b"\t", &change.path, b"\0"] {
            info.extend_from_slice(part);
        }
    }
    info
}

/// How everything was before an iteration, as it is written down. An older program wrote less.
struct Base<'a> {
    commit: Option<&'a str>,
    /// All files.
    tree: &'a str,
    programs: Option<&'a str>,
    branch: Option<&'a str>,
    /// Somebody was merging.
    is_merging: bool,
}

impl<'a> Base<'a> {
    fn of(base: &'a str) -> Self {
        let mut fields = base.split(':');
        let mut field = || fields.next();
        let (commit, tree, programs) = (field(), field(), field());
        let (branch, merging) = (field(), field());
        let is_said = |field: &&str| !field.is_empty();
        Self {
            commit: commit.filter(is_said),
            tree: tree.unwrap_or_default(),
            programs: programs.filter(is_said),
            branch: branch.filter(is_said),
            is_merging: merging.is_none_or(|merging| is_said(&merging)),
        }
    }
}

/// Returns why so much is not committed, with where most of it is.
fn too_many(changes: &[Change]) -> GitError {
    let mut counts = std::collections::BTreeMap::<&[u8], usize>::new();
    for change in changes {
        let first = change.path.split(|byte| *byte == b'/').next().unwrap_or_default();
        *counts.entry(first).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let (most, count) = most.unwrap_or_default();
    let says = format!(
        "{} files differ, {count} of them in {}; more than {FILES_MAX} are not committed at once: have git ignore what is \
         not to be committed, or commit it yourself, then resume",
        changes.len(),
        String::from_utf8_lossy(most)
    );
    GitError::new("commit", says)
}

fn bytes_os(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests;
