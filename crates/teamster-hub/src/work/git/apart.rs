//! Tells an agent's changes from those of others that were made while it did not run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use teamster_core::Timestamp;
use teamster_core::iteration::Left;

use super::about::{About, inode};
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
        if left.files.as_deref() == Some(&*now) {
            // Nobody has changed anything since.
            let (mixed, unknown, overwritten) = Default::default();
            return Ok(Apart { base: base.into(), now, mixed, unknown, overwritten });
        }
        let at = Base::of(&now);
        let empty = match (before.commit, at.commit) {
            (Some(_), Some(_)) => String::new(),
            _ => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let paths = |changes: Vec<Change>| -> BTreeSet<Vec<u8>> {
            changes.into_iter().map(|change| change.path).collect()
        };
        let mut theirs = paths(self.changed(before.commit.unwrap_or(&empty), before.tree).await?);
        theirs.extend(self.withdrawn(&before, left, &at, &empty).await?);
        let was = self.about(&before).await?;
        theirs.extend(paths(was.staged.clone()));
        let until = left.files.as_deref().map_or(at.tree, |left| Base::of(left).tree);
        let by_agent = paths(self.changed(before.tree, until).await?);
        let overwritten = theirs.intersection(&by_agent);
        let overwritten: Vec<String> =
            overwritten.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        // What git ignored before was there before, and nobody's work.
        let ignored = was.ignored;
        // Each with what it is in the last commit.
        let open = self.changed(at.tree, at.commit.unwrap_or(&empty)).await?;
        theirs.extend(open.iter().map(|one| one.path.clone()).filter(|path| ignored.has(path)));
        let mut unclear = Vec::new();
        if self.is_unclear(&ignored, &before, at.tree).await? {
            let new = self.changed(before.tree, at.tree).await?.into_iter().filter(Change::is_new);
            let new: BTreeSet<Vec<u8>> = new.map(|change| change.path).collect();
            let is_new = |change: &&Change| new.contains(&change.path);
            unclear = open.iter().filter(is_new).map(Change::name).collect();
            theirs.extend(new);
        }
        let (mut mine, mut mixed, mut unknown, is_merging_since);
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
                mixed = both.iter().map(Change::name).collect();
                (mine, unknown) = (own, unclear);
                is_merging_since = !left.is_merging;
            }
            None => {
                let since = self.changed(before.tree, at.tree).await?;
                let since = since.into_iter().filter(|change| !theirs.contains(&change.path));
                let (own, others): (Vec<_>, Vec<_>) = since
                    .partition(|change| self.is_from_before(change, left.at, &was.directories));
                let (own, others) = (paths(own), paths(others));
                let is_others = |one: &&Change| others.contains(&one.path);
                unknown = open.iter().filter(is_others).map(Change::name).collect();
                unknown.extend(unclear);
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
        let in_the_way = in_the_way.iter().map(Change::name);
        match left.files {
            Some(_) => mixed.extend(in_the_way),
            None => unknown.extend(in_the_way),
        }
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
        let is = self.about(&at).await?;
        let is = About { ignored: ignored.with(&is.ignored), ..is };
        let about = self.keep_about(&is, anchors.base).await?;
        let base = format!("{commit}:{tree}:{branch}:{merging}::{about}").into();
        Ok(Apart { base, now, mixed, unknown, overwritten })
    }

    /// Returns the files of commits that others have taken back since, as by `git reset HEAD~1`: what was in these commits is
    /// in the files still, and is no work of the agent's.
    async fn withdrawn(
        &self,
        before: &Base<'_>,
        left: &Left,
        at: &Base<'_>,
        empty: &str,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let Some(was) = before.commit else { return Ok(Vec::new()) };
        let is_in = async |commit: Option<&str>| match commit {
            Some(commit) => self.is_ancestor(was, commit).await,
            None => false,
        };
        let by_agent = match left.files.as_deref().map(Base::of) {
            Some(left) => !is_in(left.commit).await,
            None => false,
        };
        if by_agent || is_in(at.commit).await {
            return Ok(Vec::new());
        }
        let changed = self.changed(at.commit.unwrap_or(empty), was).await?;
        Ok(changed.into_iter().map(|change| change.path).collect())
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
        let (new, known): (Vec<Change>, Vec<Change>) =
            taken.changes.into_iter().partition(Change::is_new);
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
    /// there when the agent began, with their inodes.
    fn is_from_before(
        &self,
        change: &Change,
        moment: Timestamp,
        known: &BTreeMap<Vec<u8>, u64>,
    ) -> bool {
        if change.mode == REPOSITORY {
            return false;
        }
        let is_before = |path: &Path| changed_at(path).is_some_and(|at| at <= moment);
        let device = self.root.symlink_metadata().ok().map(|root| root.dev());
        let path = self.root.join(bytes_os(&change.path));
        // Whoever moves a directory changes the directory and nothing in it. One that is another than before, or was not
        // there, has to be old itself.
        let is_same = |above: &Path| {
            let within = above.strip_prefix(&self.root).unwrap_or(above);
            let was = known.get(within.as_os_str().as_bytes()).copied();
            let is = device.and_then(|device| inode(above, device));
            was.is_some() && was == is
        };
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
        let is_there = |above: &&Path| above.symlink_metadata().is_ok();
        let mut above = above.skip_while(|above| change.is_gone() && !is_there(above));
        // Whoever removes something changes the directory that it was in.
        let dated = if change.is_gone() { above.next() } else { Some(&*path) };
        dated.is_some_and(is_before)
            && above.filter(|above| **above != *self.root).all(|one| is_same(one) || is_before(one))
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

/// Returns when a file, or what is known of it, was last changed. Nobody can set this to another time.
fn changed_at(path: &Path) -> Option<Timestamp> {
    let about = path.symlink_metadata().ok()?;
    Some(millis(about.ctime(), about.ctime_nsec()))
}

/// As moments are kept.
fn millis(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000))
}
