//! Tells an agent's changes from those of others that were made while it did not run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use teamster_core::Timestamp;
use teamster_core::iteration::Left;

use super::{
    Base, Change, Changes, FILES_MAX, GitError, Message, REPOSITORY, Tree, bytes_os, index_info,
    too_many,
};

/// An agent's changes and those of others, told apart.
#[derive(Debug)]
pub(in crate::work) struct Apart {
    /// A base that has the changes of others in it, and not the agent's.
    pub(in crate::work) base: Arc<str>,
    /// All files as they are now, in the words of a base.
    pub(in crate::work) now: Arc<str>,
    /// Files that the agent had changed and others have changed after it.
    pub(in crate::work) mixed: Vec<String>,
    /// Files of which nobody can say who changed them last.
    pub(in crate::work) unknown: Vec<String>,
    /// Files that others had changed before, and the agent has changed after them.
    pub(in crate::work) overwritten: Vec<String>,
}

/// What an agent has changed, in a commit that nothing leads to yet.
pub(in crate::work) struct Taken {
    pub(in crate::work) commit: String,
    changes: Vec<Change>,
}

/// The names under which a repository keeps files while a run needs them.
pub(in crate::work) struct Anchors<'a> {
    pub(in crate::work) base: &'a str,
    pub(in crate::work) now: &'a str,
}

impl Tree {
    /// Tells what an agent has changed since `base` from what others have changed after it had left the files. Paths that
    /// others had changed before `base` stay theirs.
    pub(in crate::work) async fn told_apart(
        &self,
        base: &str,
        left: &Left,
        anchors: &Anchors<'_>,
    ) -> Result<Apart, GitError> {
        let before = Base::of(base);
        let now = self.base(anchors.now).await?;
        let at = Base::of(&now);
        let empty = match (before.commit, at.commit) {
            (Some(_), Some(_)) => String::new(),
            _ => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let paths = |changes: Vec<Change>| -> BTreeSet<Vec<u8>> {
            changes.into_iter().map(|change| change.path).collect()
        };
        let mut theirs = paths(self.changed(before.commit.unwrap_or(&empty), before.tree).await?);
        let until = left.files.as_deref().map_or(at.tree, |left| Base::of(left).tree);
        let by_agent = paths(self.changed(before.tree, until).await?);
        let overwritten = theirs.intersection(&by_agent);
        let overwritten: Vec<String> =
            overwritten.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        // What git ignored before was there before, and nobody's work.
        let ignored = self.ignored(&before).await?;
        // Each with what it is in the last commit.
        let open = self.changed(at.tree, at.commit.unwrap_or(&empty)).await?;
        theirs.extend(open.iter().map(|one| one.path.clone()).filter(|path| ignored.has(path)));
        let name = |change: &Change| String::from_utf8_lossy(&change.path).into_owned();
        let (mut mine, mut mixed, unknown, is_merging_since);
        let all: BTreeSet<Vec<u8>> = open.iter().map(|change| change.path.clone()).collect();
        match left.files.as_deref().map(Base::of) {
            Some(left) => {
                let agents = paths(self.changed(before.tree, left.tree).await?);
                let later = paths(self.changed(left.tree, at.tree).await?);
                let is_agents = |change: &Change| {
                    agents.contains(&change.path) && !theirs.contains(&change.path)
                };
                let (both, own): (Vec<_>, Vec<_>) = open
                    .into_iter()
                    .filter(is_agents)
                    .partition(|change| later.contains(&change.path));
                mixed = both.iter().map(name).collect();
                (mine, unknown) = (own, Vec::new());
                is_merging_since = !left.is_merging;
            }
            None => {
                let since = self.changed(before.tree, at.tree).await?;
                let since = since.into_iter().filter(|change| !theirs.contains(&change.path));
                let known = self.directories(before.tree).await?;
                let (own, others): (Vec<_>, Vec<_>) =
                    since.partition(|change| self.is_from_before(change, left.at, &known));
                let (own, others) = (paths(own), paths(others));
                unknown = open.iter().filter(|one| others.contains(&one.path)).map(name).collect();
                mine = open.into_iter().filter(|one| own.contains(&one.path)).collect();
                mixed = Vec::new();
                let merge = self.merge_head_file().await?;
                is_merging_since = changed_at(&merge).is_none_or(|at| at > left.at);
            }
        }
        // Where a directory of others has the place of an agent's file, or the other way round, one cannot be put back
        // without the other's going.
        let of_agent: BTreeSet<Vec<u8>> = mine.iter().map(|change| change.path.clone()).collect();
        let others: BTreeSet<&[u8]> = all.difference(&of_agent).map(Vec::as_slice).collect();
        let in_the_way: Vec<Change> =
            mine.extract_if(.., |change| clashes(&change.path, &others)).collect();
        mixed.extend(in_the_way.iter().map(name));
        let tree = match mine.is_empty() {
            true => at.tree.to_owned(),
            false => self.tree_with(Some(at.tree), &index_info(&mine)).await?,
        };
        self.git(["update-ref", anchors.base, &tree]).await?;
        let commit = at.commit.unwrap_or_default();
        // Of a branch that was left in the middle of something it is still said that it was.
        let branch = at.branch.or(before.branch).unwrap_or_default();
        let is_theirs = at.is_merging && (before.is_merging || is_merging_since);
        let merging = if is_theirs { "merging" } else { "" };
        let ignored = ignored.with(&self.ignored(&at).await?);
        let ignored = self.keep_ignored(&ignored).await?;
        let base = format!("{commit}:{tree}:{branch}:{merging}:{ignored}").into();
        Ok(Apart { base, now, mixed, unknown, overwritten })
    }

    /// Makes a commit of what an agent has changed since `base`, if there is something. The branch and the files stay.
    pub(in crate::work) async fn taken(
        &self,
        base: &str,
        message: &Message<'_>,
    ) -> Result<Option<Taken>, GitError> {
        let Some(head) = self.head().await else { return Ok(None) };
        let Changes { changes, .. } = self.changed_since(&Base::of(base), Some(&head)).await?;
        if changes.is_empty() {
            return Ok(None);
        }
        if changes.len() > FILES_MAX {
            return Err(too_many(&changes));
        }
        let tree = self.tree_with(Some(&head), &index_info(&changes)).await?;
        let commit = self.commit_tree(&tree, &[&head], message).await?;
        Ok(Some(Taken { commit, changes }))
    }

    /// Puts files back to the last commit that are kept in another one. Where something else is in the place of one, such as
    /// a file that git ignores, nothing is changed at all.
    pub(in crate::work) async fn put_back(&self, taken: Taken) -> Result<(), GitError> {
        let in_the_way = taken.changes.iter().filter(|change| change.is_gone()).find(|change| {
            let path = self.root.join(bytes_os(&change.path));
            let mut above =
                path.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
            let is_blocked =
                above.any(|above| above.symlink_metadata().is_ok_and(|about| !about.is_dir()));
            is_blocked || path.symlink_metadata().is_ok()
        });
        if let Some(change) = in_the_way {
            let path = String::from_utf8_lossy(&change.path);
            return Err(GitError::new("checkout", format!("{path} is in the way, and is yours")));
        }
        let is_new = |change: &Change| change.was.iter().all(|digit| *digit == b'0');
        let (new, known): (Vec<Change>, Vec<Change>) = taken.changes.into_iter().partition(is_new);
        let list = |changes: &[Change]| -> Vec<u8> {
            changes.iter().flat_map(|change| [&change.path[..], b"\0"].concat()).collect()
        };
        let from = ["--pathspec-from-file=-", "--pathspec-file-nul"];
        if !new.is_empty() {
            // Git removes what it knows, with directories that are empty then.
            self.update_index(None, &index_info(&new)).await?;
            let args = ["--literal-pathspecs", "rm", "-q", "-f", from[0], from[1]].map(OsStr::new);
            self.git_fed(None, &args, list(&new)).await?;
        }
        if !known.is_empty() {
            let args = ["--literal-pathspecs", "checkout", "-q", "HEAD", from[0], from[1]];
            self.git_fed(None, &args.map(OsStr::new), list(&known)).await?;
        }
        Ok(())
    }

    /// Says whether a path was last changed up to a moment. What cannot be dated was not. `known` are directories that were
    /// there before.
    fn is_from_before(
        &self,
        change: &Change,
        moment: Timestamp,
        known: &BTreeSet<Vec<u8>>,
    ) -> bool {
        let path = self.root.join(bytes_os(&change.path));
        let is_before = |at: Option<Timestamp>| at.is_some_and(|at| at <= moment);
        let above = || path.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
        if change.is_gone() {
            // Whoever removes something changes the directory that it was in.
            let there = above().find_map(|above| above.symlink_metadata().ok());
            return is_before(there.map(|about| millis(about.mtime(), about.mtime_nsec())));
        }
        if change.mode == REPOSITORY {
            return false;
        }
        // What is in a directory that was moved here is not changed by that, but the directory is.
        let is_known = |above: &Path| {
            let within = above.strip_prefix(&self.root).unwrap_or(above);
            known.contains(within.as_os_str().as_bytes())
        };
        // One that was there before may be another by now: that it was moved changes it, and nothing in it.
        let is_same = |above: &Path| match is_known(above) {
            true => !is_moved_after(above, moment),
            false => is_before(changed_at(above)),
        };
        let mut above = above().filter(|above| **above != *self.root);
        is_before(changed_at(&path)) && above.all(is_same)
    }

    /// Returns the directories of a tree.
    async fn directories(&self, tree: &str) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let args = ["ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", tree];
        let listed = self.git_raw(None, &args.map(OsStr::new)).await?;
        Ok(listed.split(|byte| *byte == 0).map(<[u8]>::to_owned).collect())
    }
}

/// Says whether a path is above or below one of others.
fn clashes(path: &[u8], others: &BTreeSet<&[u8]>) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut above = slashes.filter_map(|at| path.get(..at));
    let inside = [path, b"/"].concat();
    let first_inside = others.range(&inside[..]..).next();
    above.any(|above| others.contains(above))
        || first_inside.is_some_and(|other| other.starts_with(&inside))
}

/// What git ignored at a moment: files, and directories as a whole.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ignored(BTreeSet<Vec<u8>>);

impl Ignored {
    pub(super) fn has(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        let mut above = ends.filter_map(|end| path.get(..end));
        self.0.contains(path) || above.any(|above| self.0.contains(above))
    }

    fn with(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }
}

impl Tree {
    /// Keeps which files git ignores now, and returns the name of that.
    pub(super) async fn ignored_now(&self) -> Result<String, GitError> {
        let args = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let listed = self.git_raw(None, &args).await?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        self.keep_ignored(&Ignored(paths.take(IGNORED_MAX).map(<[u8]>::to_owned).collect())).await
    }

    async fn keep_ignored(&self, ignored: &Ignored) -> Result<String, GitError> {
        if ignored.0.is_empty() {
            return Ok(String::new());
        }
        let list = ignored.0.iter().flat_map(|path| [path.as_slice(), b"\0"].concat()).collect();
        let args = ["hash-object", "-w", "--stdin"].map(OsStr::new);
        let name = self.git_fed(None, &args, list).await?;
        Ok(String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Returns which files git ignored at a base; of an older one that is not known.
    pub(super) async fn ignored(&self, base: &Base<'_>) -> Result<Ignored, GitError> {
        let Some(name) = base.ignored else { return Ok(Ignored::default()) };
        let args = ["cat-file", "blob", name].map(OsStr::new);
        let listed = self.git_raw(None, &args).await?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(Ignored(paths.map(<[u8]>::to_owned).collect()))
    }
}

/// More than that are no files that somebody looks after.
const IGNORED_MAX: usize = 100_000;

/// Returns when a file, or what is known of it, was last changed. Nobody can set this to another time.
fn changed_at(path: &Path) -> Option<Timestamp> {
    let about = path.symlink_metadata().ok()?;
    Some(millis(about.ctime(), about.ctime_nsec()))
}

/// Says whether a directory itself was changed after a moment, and not only what is in it.
fn is_moved_after(directory: &Path, moment: Timestamp) -> bool {
    directory.symlink_metadata().is_ok_and(|about| {
        let changed = millis(about.ctime(), about.ctime_nsec());
        let is_other = (about.ctime(), about.ctime_nsec()) != (about.mtime(), about.mtime_nsec());
        changed > moment && is_other
    })
}

/// As moments are kept.
fn millis(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000))
}
