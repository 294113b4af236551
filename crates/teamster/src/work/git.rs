//! What an iteration changed, as a commit: exactly the files that differ from how they were before it, and nothing that a
//! person had changed by then. The person's own index and branch stay theirs: only what is committed is refreshed in it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::process;

/// A checkout or the state of a big repository takes a while.
const PATIENCE: Duration = Duration::from_secs(300);
/// As much of git's words as is passed on.
const SAYS_CHARS_MAX: usize = 1_000;
/// As many commits as are looked at for one that was made before a crash.
const LOOKED_AT: &str = "-500";
const TRAILER: &str = "Teamster-Iteration";

/// A working tree of a git repository.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    directory: PathBuf,
}

/// Why git did not do it, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("git {verb}: {says}")]
pub(super) struct GitError {
    verb: String,
    says: String,
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

impl Tree {
    /// Returns the working tree that a directory is in, if it is in one.
    pub(super) async fn at(directory: &Path) -> Option<Self> {
        let tree = Self { directory: directory.to_owned() };
        let inside = tree.git(["rev-parse", "--is-inside-work-tree"]).await.ok()?;
        (inside == "true").then_some(tree)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the commit that the tree is at, if it has one.
    pub(super) async fn head(&self) -> Option<String> {
        self.git(["rev-parse", "--verify", "--quiet", "HEAD"]).await.ok()
    }

    /// Returns a name for all files as they are now, but for those that are ignored.
    pub(super) async fn snapshot(&self) -> Result<Arc<str>, GitError> {
        let index = self.scratch_index().await?;
        let tree = async {
            self.with_index(&index, ["add", "-A", "--", ":/"]).await?;
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
        if let Some(known) = self.find(message.mark).await? {
            return Ok(Some(known));
        }
        let head = self.head().await;
        let empty = || async { self.git(["hash-object", "-t", "tree", "/dev/null"]).await };
        let before = match self.base_commit(base).await {
            Some(before) => before,
            None => empty().await?,
        };
        let now = self.snapshot().await?;
        let base_tree = base_tree(base);
        let dirty: BTreeSet<OsString> =
            self.changed(&before, base_tree).await?.into_iter().collect();
        let changed = self.changed(base_tree, &now).await?;
        let mine: Vec<OsString> =
            changed.into_iter().filter(|path| !dirty.contains(path)).collect();
        // Its agent may have committed some of it itself.
        let head_tree = match &head {
            Some(head) => head.clone(),
            None => empty().await?,
        };
        let open: BTreeSet<OsString> = self.changed(&head_tree, &now).await?.into_iter().collect();
        let mine: Vec<OsString> = mine.into_iter().filter(|path| open.contains(path)).collect();
        if mine.is_empty() {
            return Ok(None);
        }
        let commit = self.commit_paths(head.as_deref(), &now, &mine, message).await?;
        Ok(Some(commit))
    }

    /// Makes a commit on top of `head` in which `paths` are as in the tree `now`.
    async fn commit_paths(
        &self,
        head: Option<&str>,
        now: &str,
        paths: &[OsString],
        message: &Message<'_>,
    ) -> Result<String, GitError> {
        let index = self.scratch_index().await?;
        let made = async {
            match head {
                Some(head) => self.with_index(&index, ["read-tree", head]).await?,
                None => self.with_index(&index, ["read-tree", "--empty"]).await?,
            };
            for some in paths.chunks(200) {
                // Those that are in the tree are taken from it, the others are gone.
                let mut list: Vec<&OsStr> = vec![
                    "ls-tree".as_ref(),
                    "-z".as_ref(),
                    "--full-tree".as_ref(),
                    now.as_ref(),
                    "--".as_ref(),
                ];
                list.extend(some.iter().map(OsString::as_os_str));
                let listed = self.git_raw(None, &list).await?;
                let mut info = Vec::new();
                let mut present = BTreeSet::new();
                for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
                    let tab = entry.iter().position(|byte| *byte == b'\t').unwrap_or(0);
                    let (about, path) = (&entry[..tab], &entry[tab + 1..]);
                    let words: Vec<&[u8]> = about.split(|byte| *byte == b' ').collect();
                    let [mode, _kind, object] = words[..] else { continue };
                    let place = [mode, b",", object, b",", path].concat();
                    info.push(bytes_os(&place));
                    present.insert(bytes_os(path));
                }
                let mut update: Vec<&OsStr> = vec!["update-index".as_ref(), "--add".as_ref()];
                for place in &info {
                    update.extend(["--cacheinfo".as_ref(), place.as_os_str()]);
                }
                let gone = some.iter().filter(|path| !present.contains(*path));
                let gone: Vec<&OsStr> = gone.map(OsString::as_os_str).collect();
                if !info.is_empty() {
                    self.git_raw(Some(&index), &update).await?;
                }
                if !gone.is_empty() {
                    let mut remove: Vec<&OsStr> =
                        vec!["update-index".as_ref(), "--force-remove".as_ref(), "--".as_ref()];
                    remove.extend(gone);
                    self.git_raw(Some(&index), &remove).await?;
                }
            }
            self.with_index(&index, ["write-tree"]).await
        };
        let tree = made.await;
        let _ = std::fs::remove_file(&index);
        let tree = tree?;
        let text = format!(
            "{}\n\n{}\n\n{TRAILER}: {}\n",
            message.subject,
            message.body.trim(),
            message.mark
        );
        let text = text.replace("\n\n\n\n", "\n\n");
        let mut args: Vec<String> = self.identity().await;
        args.extend(["commit-tree".to_owned(), tree, "-m".to_owned(), text]);
        if let Some(head) = head {
            args.extend(["-p".to_owned(), head.to_owned()]);
        }
        let commit = self.git(args.iter().map(String::as_str)).await?;
        let old = head.map_or_else(|| "0".repeat(commit.len()), str::to_owned);
        // Not if somebody has committed something meanwhile.
        self.git(["update-ref", "-m", message.subject, "HEAD", &commit, &old]).await?;
        for some in paths.chunks(200) {
            let mut reset: Vec<&OsStr> = vec!["reset".as_ref(), "-q".as_ref(), "--".as_ref()];
            reset.extend(some.iter().map(OsString::as_os_str));
            self.git_raw(None, &reset).await?;
        }
        Ok(commit)
    }

    /// Returns the commit of an iteration, if it was made.
    pub(super) async fn find(&self, mark: &str) -> Result<Option<String>, GitError> {
        if self.head().await.is_none() {
            return Ok(None);
        }
        let wanted = format!("{TRAILER}: {mark}");
        let found = self
            .git(["log", LOOKED_AT, "--format=%H%x00%B%x01", "--fixed-strings", "--grep", &wanted])
            .await?;
        // A longer number has the shorter one as its beginning.
        let mut commits = found.split('\u{1}').filter_map(|entry| entry.trim().split_once('\0'));
        let found = commits.find(|(_, text)| text.lines().any(|line| line == wanted));
        Ok(found.map(|(hash, _)| hash.to_owned()))
    }

    /// Returns which base a snapshot is to be written down as: the commit and the files.
    pub(super) async fn base(&self) -> Result<Arc<str>, GitError> {
        let (head, tree) = (self.head().await.unwrap_or_default(), self.snapshot().await?);
        Ok(format!("{head}:{tree}").into())
    }

    async fn base_commit(&self, base: &str) -> Option<String> {
        let (head, _) = base.split_once(':')?;
        (!head.is_empty()).then(|| head.to_owned())
    }

    /// Returns the paths that differ between two trees.
    async fn changed(&self, one: &str, other: &str) -> Result<Vec<OsString>, GitError> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", one, other];
        let listed = self.git_raw(None, &args.map(OsStr::new)).await?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(bytes_os).collect())
    }

    /// Brings another commit into this tree, which is clean; if that conflicts, the tree is as before.
    pub(super) async fn merge(&self, other: &str) -> Result<Merged, GitError> {
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
        let tree = Self { directory: path.to_owned() };
        if path.join(".git").exists() {
            return Ok(tree);
        }
        if let Some(parent) = path.parent() {
            let says = |error: std::io::Error| GitError {
                verb: "worktree".into(),
                says: error.to_string(),
            };
            std::fs::create_dir_all(parent).map_err(says)?;
        }
        self.git(["worktree", "prune"]).await?;
        let path = path.to_string_lossy();
        self.git(["worktree", "add", "--force", "-B", branch, &path, "HEAD"]).await?;
        Ok(tree)
    }

    /// Removes a worktree and its branch. What is not committed or not merged stays.
    pub(super) async fn remove_worktree(&self, path: &Path, branch: &str) -> Result<(), GitError> {
        let path = path.to_string_lossy();
        self.git(["worktree", "remove", &path]).await?;
        self.git(["branch", "-d", branch]).await.map(drop)
    }

    /// Gives a commit a name of its own, so that it is not lost.
    pub(super) async fn keep(&self, branch: &str, commit: &str) -> Result<(), GitError> {
        self.git(["branch", "--force", branch, commit]).await.map(drop)
    }

    /// Puts this tree, in which only agents work, to a commit.
    pub(super) async fn reset_to(&self, commit: &str) -> Result<(), GitError> {
        self.git(["reset", "-q", "--hard", commit]).await?;
        self.git(["clean", "-qfd"]).await.map(drop)
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
        let real = self.git(["rev-parse", "--git-path", "index"]).await?;
        let real = self.directory.join(real);
        let name = format!("teamster-index-{:032x}", crate::secret::nonce());
        let scratch = real.with_file_name(name);
        // A repository without a commit has none. What changed in the same moment in which the index was written is known
        // by the index being no newer than the file, so the copy must not be.
        if std::fs::copy(&real, &scratch).is_ok() {
            let aged = std::fs::metadata(&real).and_then(|about| about.modified()).and_then(|at| {
                std::fs::File::options().write(true).open(&scratch)?.set_modified(at)
            });
            if aged.is_err() {
                // Without its times, git reads every file.
                let _ = std::fs::remove_file(&scratch);
            }
        }
        Ok(scratch)
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
        let verb = args.iter().find(|arg| !arg.to_string_lossy().starts_with('-'));
        let verb = verb.map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
        let failed = |says: String| GitError { verb: verb.clone(), says };
        let mut command = process::command("git", &self.directory);
        // No hook of the repository, and nobody is asked anything.
        command.args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]).args(args);
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true").env("LC_ALL", "C");
        if let Some(index) = index {
            command.env("GIT_INDEX_FILE", index);
        }
        let output = match tokio::time::timeout(PATIENCE, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(failed(format!("it cannot be started: {error}"))),
            Err(_) => return Err(failed(format!("it took longer than {} s", PATIENCE.as_secs()))),
        };
        if output.status.success() {
            return Ok(output.stdout);
        }
        let says = String::from_utf8_lossy(&output.stderr);
        Err(failed(says.trim().chars().take(SAYS_CHARS_MAX).collect()))
    }
}

fn base_tree(base: &str) -> &str {
    base.split_once(':').map_or(base, |(_, tree)| tree)
}

fn bytes_os(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}
