//! What an iteration changed, as a commit: exactly the files that differ from how they were before it, and nothing that a
//! person had changed by then. The person's own index and branch stay theirs: only what is committed is refreshed in it.

mod about;
mod apart;
mod calling;
mod kept;
mod lock;
mod standing;
mod worktrees;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use teamster_agents::deputy::FileTask;

pub(super) use self::about::anchored;
pub(super) use self::apart::{Anchors, Apart};
use crate::held::Confined;

pub(super) use lock::{Lock, Locking};
pub(super) use standing::{Standing, branch_of, on_branch};

/// Somebody else may commit something at the same time; so often it is tried again.
const TRIES_MAX: u32 = 5;
/// More files than that are no work of an iteration, but something that nobody has told git to ignore.
const FILES_MAX: usize = 20_000;
const TRAILER: &str = "Teamster-Iteration";
const SEAL: &str = "Teamster-Seal";
/// As much of a file as is looked through for the marks of a merge.
const MARKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The mode of an entry that is another repository.
const REPOSITORY: &[u8] = b"160000";

/// A working tree of a git repository, and a directory in it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: PathBuf,
    within: PathBuf,
    held: Confined,
    /// Only agents work in it.
    is_ours: bool,
    /// Where its index is, if that is known.
    index: Option<PathBuf>,
    /// Where its repository is, if that is known.
    common: Option<PathBuf>,
}

/// Why git did not do it, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("git {verb}: {says}")]
pub(crate) struct GitError {
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
    /// `<run>#<iteration>`, for people.
    pub(super) mark: &'a str,
    /// By this it is found again. Nobody but the hub can know it before, so what agents write is never taken for it.
    pub(super) seal: &'a str,
}

/// What an agent has left in a tree of ours.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) commit: String,
    /// Files in which a merge has left its marks.
    pub(super) unsettled: Vec<String>,
}

/// What came of taking one tree's work over into another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    Yes,
    /// These files are in the way.
    Conflicts(Vec<String>),
}

/// What is not committed though it was changed, and that its user has to know of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Repositories within, of which nobody has said where they come from.
    pub(super) repositories: Vec<String>,
    /// New files that git may have ignored before.
    pub(super) unclear: Vec<String>,
}

/// What is to be committed.
struct Changes {
    changes: Vec<Change>,
    left_out: LeftOut,
    /// The tree with all of them, if that is how all files are.
    whole: Option<Arc<str>>,
}

/// A path that differs between two trees, and what it is in the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    fn is_new(&self) -> bool {
        self.was.iter().all(|digit| *digit == b'0')
    }

    /// Returns the path as people read it.
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

impl Tree {
    /// Returns the working tree that a directory is in, if it is in one. That git does not answer for a repository is
    /// another thing than that there is none.
    pub(super) async fn at(held: &Confined, directory: &Path) -> Result<Option<Self>, GitError> {
        let odd = |says: String| GitError::new("rev-parse", says);
        let is_gone = |error| odd(format!("{} cannot be found: {error}", directory.display()));
        let directory = std::fs::canonicalize(directory).map_err(is_gone)?;
        let (root, within) = (directory.clone(), PathBuf::new());
        let held = held.clone();
        let here = Self { root, within, held, is_ours: false, index: None, common: None };
        let ask = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"];
        let ask: Vec<&str> = ask.into_iter().chain(["--git-path", "index"]).collect();
        let ask: Vec<&OsStr> = ask.into_iter().map(OsStr::new).collect();
        let answer = match here.git_raw(None, &ask).await {
            Ok(answer) => answer,
            Err(error) if directory.ancestors().any(has_repository) => return Err(error),
            Err(_) => return Ok(None),
        };
        let answer = answer.strip_suffix(b"\n").unwrap_or(&answer);
        let mut lines = answer.split(|byte| *byte == b'\n');
        let path = |line: &[u8]| -> Option<PathBuf> { Some(bytes_os(line).into()) };
        let next = (lines.next(), lines.next(), lines.next(), lines.next());
        let (root, common, index) = match next {
            (Some(root), Some(common), Some(index), None) => {
                (root.to_owned(), path(common), path(index))
            }
            // There is a newline in one of the names.
            _ => {
                let line = async |what: &str| {
                    let ask = ["rev-parse", "--path-format=absolute", what].map(OsStr::new);
                    let mut line = here.git_raw(None, &ask).await?;
                    line.truncate(line.len().saturating_sub(1));
                    Ok(line)
                };
                (line("--show-toplevel").await?, path(&line("--git-common-dir").await?), None)
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
        Ok(Some(Self { root, within, index, common, ..here }))
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
        let _ = self.held.file(FileTask::remove(&index)).await;
        Ok(tree?.into())
    }

    /// Commits what differs from `base`, but for files that differed from the last commit already then. Returns the commit,
    /// also one that was made before; none if nothing has changed. Beside it is what is not in it.
    pub(super) async fn commit_since(
        &self,
        base: &str,
        message: &Message<'_>,
    ) -> Result<(Option<String>, LeftOut), GitError> {
        let base = Base::of(base);
        let mut moved = None;
        for _ in 0..TRIES_MAX {
            let (head, branch) = self.position().await;
            if let Some(known) = self.find_from(head.as_deref(), base.commit, message.seal).await? {
                return Ok((Some(known), LeftOut::default()));
            }
            let mine = self.changed_since(&base, head.as_deref()).await?;
            let lost_branch = base.branch.filter(|_| branch.is_none());
            // Its agent may have committed all of it itself, where no branch leads to.
            let is_kept = match (lost_branch, head.as_deref()) {
                (Some(was), Some(head)) => self.is_ancestor(head, was).await,
                (None, _) | (_, None) => true,
            };
            if mine.changes.is_empty() && is_kept {
                return Ok((None, mine.left_out));
            }
            if mine.changes.len() > FILES_MAX {
                return Err(too_many(&mine.changes));
            }
            if let Some(was) = lost_branch {
                let was = standing::short(was);
                let says = format!(
                    "HEAD was on {was} and is on no branch any more, perhaps in the middle of a rebase or bisect, so that \
                     a commit would soon be lost; end that, or `git switch {was}`, then resume"
                );
                return Err(GitError::new("commit", says));
            }
            let is_mine = |path: &String| {
                mine.changes.iter().any(|change| String::from_utf8_lossy(&change.path) == **path)
            };
            let unsettled: Vec<String> =
                self.unsettled().await?.into_iter().filter(is_mine).collect();
            if !unsettled.is_empty() {
                let says = format!(
                    "somebody has left the marks of conflicts in {}; put them right, or give up what is under way there, then \
                     resume",
                    some_of(&unsettled)
                );
                return Err(GitError::new("commit", says));
            }
            let merged = match base.is_merging {
                false => self.merge_head().await,
                // What a person merges is theirs.
                true => None,
            };
            match self.commit_changes(head.as_deref(), merged, &mine, message).await {
                Ok(commit) => return Ok((Some(commit), mine.left_out)),
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
        let dirty = self.changed(base.commit.unwrap_or(&empty), base.tree).await?;
        // Without their `.git`, the files of such a repository would look new.
        let repositories = dirty.iter().filter(|change| change.mode == REPOSITORY);
        let repositories: Vec<Vec<u8>> =
            repositories.map(|change| [&change.path[..], b"/"].concat()).collect();
        let mut dirty: BTreeSet<Vec<u8>> = dirty.into_iter().map(|change| change.path).collect();
        let about::About { ignored, staged, .. } = self.about(base).await?;
        // To commit such a file would replace what is staged.
        dirty.extend(staged.into_iter().map(|change| change.path));
        // Its agent may have committed some of it itself, and may have changed its mind after that.
        let mut open = self.changed(head.unwrap_or(&empty), &now).await?;
        let n_open = open.len();
        // An agent may have changed what is ignored; what was there before is not its work.
        open.retain(|change| !dirty.contains(&change.path) && !ignored.has(&change.path));
        let is_within =
            |change: &Change| repositories.iter().any(|above| change.path.starts_with(above));
        open.retain(|change| !is_within(change));
        // A file that is as it was differs because a commit was taken back, or because git was told to forget the file.
        let since = self.changed(base.tree, &now).await?.into_iter().map(|change| change.path);
        let since: BTreeSet<Vec<u8>> = since.collect();
        let is_continued = match (base.commit, head) {
            (Some(commit), Some(head)) => self.is_ancestor(commit, head).await,
            (None, _) => true,
            (Some(_), None) => false,
        };
        open.retain(|change| since.contains(&change.path) || (is_continued && !change.is_new()));
        let is_new_repository =
            |change: &Change| change.mode == REPOSITORY && change.was != REPOSITORY;
        let mut left_out = LeftOut::default();
        if self.is_unclear(&ignored, base, &now).await? {
            let new = self.changed(base.tree, &now).await?.into_iter().filter(Change::is_new);
            let new: BTreeSet<Vec<u8>> = new.map(|change| change.path).collect();
            let out = open.extract_if(.., |change| new.contains(&change.path));
            left_out.unclear = out.map(|change| change.name()).collect();
        }
        if open.iter().any(is_new_repository) {
            // Without a word about where it comes from, nobody else could get it.
            let known = self.submodules(&now).await;
            let is_left_out =
                |change: &mut Change| is_new_repository(change) && !known.contains(&change.path);
            let out = open.extract_if(.., is_left_out);
            left_out.repositories = out.map(|one| one.name()).collect();
        }
        let whole = (open.len() == n_open).then_some(now);
        Ok(Changes { changes: open, left_out, whole })
    }

    /// Returns the files that a person had changed before `base`, and which somebody has changed further since.
    pub(super) async fn overwritten(&self, base: &str) -> Result<Vec<String>, GitError> {
        let base = Base::of(base);
        let empty = match base.commit {
            Some(_) => String::new(),
            None => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let commit = base.commit.unwrap_or(&empty);
        let paths = |changes: Vec<Change>| -> BTreeSet<Vec<u8>> {
            changes.into_iter().map(|change| change.path).collect()
        };
        let mut theirs = paths(self.changed(commit, base.tree).await?);
        theirs.extend(paths(self.about(&base).await?.staged));
        if theirs.is_empty() {
            return Ok(Vec::new());
        }
        let since = paths(self.changed(base.tree, &self.snapshot().await?).await?);
        let both = theirs.intersection(&since);
        Ok(both.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }

    /// Returns the names that fit a pattern.
    pub(super) async fn names(&self, pattern: &str) -> Result<Vec<String>, GitError> {
        let listed = self.git(["for-each-ref", "--format=%(refname)", pattern]).await?;
        Ok(listed.lines().map(str::to_owned).collect())
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

    /// Makes a commit that nothing leads to yet.
    async fn commit_tree(
        &self,
        tree: &str,
        parents: &[&str],
        message: &Message<'_>,
    ) -> Result<String, GitError> {
        let mut text = format!("{}\n\n", message.subject);
        if !message.body.trim().is_empty() {
            text.extend([message.body.trim(), "\n\n"]);
        }
        text.extend([SEAL, ": ", message.seal, "\n", TRAILER, ": ", message.mark, "\n"]);
        self.commit_text(tree, parents, text).await
    }

    async fn commit_text(
        &self,
        tree: &str,
        parents: &[&str],
        text: String,
    ) -> Result<String, GitError> {
        let mut args: Vec<&OsStr> = vec!["commit-tree".as_ref(), tree.as_ref()];
        for parent in parents {
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
        Ok(String::from_utf8_lossy(&commit).trim().to_owned())
    }

    /// Makes a commit on top of `head` with these changes, and moves the branch to it.
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
        let parents: Vec<&str> = head.into_iter().chain(merged.as_deref()).collect();
        let commit = self.commit_tree(&tree, &parents, message).await?;
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
        let _ = self.held.file(FileTask::remove(&index)).await;
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
    pub(super) async fn find(&self, base: &str, seal: &str) -> Result<Option<String>, GitError> {
        let head = self.head().await;
        self.find_from(head.as_deref(), Base::of(base).commit, seal).await
    }

    async fn find_from(
        &self,
        head: Option<&str>,
        base: Option<&str>,
        seal: &str,
    ) -> Result<Option<String>, GitError> {
        if head.is_none() || head == base {
            return Ok(None);
        }
        let range = base.map_or_else(|| "HEAD".into(), |base| format!("{base}..HEAD"));
        let found = self.sealed(&["--no-show-signature", &range]).await?;
        Ok(found
            .into_iter()
            .find(|(_, seals)| seals.split(' ').any(|one| one == seal))
            .map(|of| of.0))
    }

    /// Returns commits with their seals.
    async fn sealed(&self, which: &[&str]) -> Result<Vec<(String, String)>, GitError> {
        let format = format!("--format=%H %(trailers:key={SEAL},valueonly,separator=%x20)");
        let args = ["log", &format].into_iter().chain(which.iter().copied()).chain(["--"]);
        let listed = self.git(args).await?;
        let pairs = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.map(|(hash, seals)| (hash.to_owned(), seals.to_owned())).collect())
    }

    /// Returns the files in which something that is under way (a merge, a rebase) has left the marks of conflicts.
    async fn unsettled(&self) -> Result<Vec<String>, GitError> {
        let args = ["diff", "--name-only", "--diff-filter=U", "-z"].map(OsStr::new);
        let open = self.git_raw(None, &args).await?;
        let open = open.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let mut marked = Vec::new();
        for path in open {
            let file = FileTask::read(&self.root.join(bytes_os(path)), MARKED_BYTES_MAX);
            if self.held.file(file).await.is_ok_and(|text| has_marks(&text)) {
                marked.push(String::from_utf8_lossy(path).into_owned());
            }
        }
        Ok(marked)
    }

    /// Returns what is to be written down of how everything is before an iteration. The files have a name in the repository
    /// from then on, or `git gc` could take them away.
    pub(super) async fn base(&self, anchor: &str) -> Result<Arc<str>, GitError> {
        let (head, branch) = self.position().await;
        let tree = self.snapshot().await?;
        self.git(["update-ref", anchor, &tree]).await?;
        let merging = match !self.is_ours && self.merge_head_file().await?.exists() {
            true => "merging",
            false => "",
        };
        // Where only agents work, nothing is anybody's.
        let about = match self.is_ours {
            true => String::new(),
            false => {
                let about = self.about_now(head.as_deref(), &tree).await?;
                self.keep_about(&about, anchor).await?
            }
        };
        let (head, branch) = (head.unwrap_or_default(), branch.unwrap_or_default());
        Ok(format!("{head}:{tree}:{branch}:{merging}::{about}").into())
    }

    /// Returns the base of what begins at a commit.
    pub(super) async fn base_of(&self, commit: &str) -> Result<String, GitError> {
        let tree = self.git(["rev-parse", &format!("{commit}^{{tree}}")]).await?;
        Ok(format!("{commit}:{tree}::"))
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
        parsed(&listed)
    }

    /// Returns the commit that the tree is at, if it is another one than before.
    pub(super) async fn moved_since(&self, base: &str) -> Option<String> {
        let head = self.head().await?;
        let before = Base::of(base).commit?;
        (head != before && self.is_ancestor(before, &head).await).then_some(head)
    }

    /// Returns the branch that the tree was on at `base` and the one that it is on now, if these are two.
    pub(super) async fn switched_since(&self, base: &str) -> Option<(String, String)> {
        let short = |name: &str| standing::short(name).to_owned();
        let (was, is) = (short(Base::of(base).branch?), short(&self.position().await.1?));
        (was != is).then_some((was, is))
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
        // Git names it, so the hub does not open it itself: git could have been told the place of the operator's token.
        if self.held.file(FileTask::copy(&real, &scratch)).await.is_err() {
            // Without its times, git reads every file.
            let _ = self.held.file(FileTask::remove(&scratch)).await;
        }
        Ok(scratch)
    }

    async fn index_file(&self) -> Result<PathBuf, GitError> {
        Ok(match &self.index {
            Some(index) => index.clone(),
            None => self.root.join(self.git(["rev-parse", "--git-path", "index"]).await?),
        })
    }
}

/// Reads what git says of paths that differ.
fn parsed(listed: &[u8]) -> Result<Vec<Change>, GitError> {
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
    branch: Option<&'a str>,
    /// Somebody was merging.
    is_merging: bool,
    /// The name of the list of what git ignored, as an older program wrote it.
    ignored: Option<&'a str>,
    /// The name of what else is known.
    about: Option<&'a str>,
}

impl<'a> Base<'a> {
    fn of(base: &'a str) -> Self {
        let mut fields = base.split(':');
        let mut field = || fields.next();
        let (commit, tree, branch, merging) = (field(), field(), field(), field());
        let (ignored, about) = (field(), field());
        let is_said = |field: &&str| !field.is_empty();
        Self {
            commit: commit.filter(is_said),
            tree: tree.unwrap_or_default(),
            branch: branch.filter(is_said),
            is_merging: merging.is_none_or(|merging| is_said(&merging)),
            ignored: ignored.filter(is_said),
            about: about.filter(is_said),
        }
    }
}

/// Returns what of a base says how the files were.
pub(super) fn files_of(base: &str) -> &str {
    let end = base.match_indices(':').nth(1).map_or(base.len(), |(at, _)| at);
    base.get(..end).unwrap_or(base)
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

/// Names some of many files.
pub(super) fn some_of(files: &[String]) -> String {
    const NAMED: usize = 20;
    let named = files.iter().take(NAMED).map(|file| file.chars().take(200).collect::<String>());
    let mut named: Vec<String> = named.collect();
    if files.len() > NAMED {
        named.push(format!("and {} more", files.len() - NAMED));
    }
    named.join(", ")
}

/// Says whether a merge has left its marks in a text.
fn has_marks(text: &[u8]) -> bool {
    let begins = |mark: &[u8]| text.split(|byte| *byte == b'\n').any(|line| line.starts_with(mark));
    begins(b"<<<<<<< ") && begins(b">>>>>>> ")
}

fn bytes_os(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests;
