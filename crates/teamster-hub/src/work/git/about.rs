//! What is known of a moment beside the files themselves: which files git ignored, which directories there were, and what
//! was staged and nowhere else. It is one blob, under a name of its own, or `git gc` could take it away.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Base, Change, GitError, Tree, bytes_os, index_info};

/// Maximum ignored files and directories that are listed. Above it, new files are not committed once it changes what git
/// ignores.
pub(super) const IGNORED_MAX: usize = if cfg!(test) { 50 } else { 100_000 };

/// What is known of a moment beside its files.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub(super) ignored: Ignored,
    /// Directories with their inodes, as far as they are on the same device as the root.
    pub(super) directories: BTreeMap<Vec<u8>, u64>,
    /// Files that differ from the last commit in the index alone, each with what it is there.
    pub(super) staged: Vec<Change>,
}

/// What git ignored at a moment: files, and directories as a whole.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ignored {
    paths: BTreeSet<Vec<u8>>,
    /// There were more. It is the digest of the rules that no commit has.
    rules: Option<Vec<u8>>,
}

impl Ignored {
    pub(super) fn has(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        let mut above = ends.filter_map(|end| path.get(..end));
        self.paths.contains(path) || above.any(|above| self.paths.contains(above))
    }

    /// Returns what either has; of two that are not whole, the rules of the older one.
    pub(super) fn with(&self, other: &Self) -> Self {
        let paths = self.paths.union(&other.paths).cloned().collect();
        Self { paths, rules: self.rules.clone().or_else(|| other.rules.clone()) }
    }
}

impl About {
    /// Returns it as records that end with a zero byte; the first byte of each says what it is.
    fn written(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut record = |kind: u8, parts: &[&[u8]]| {
            text.push(kind);
            text.extend(parts.concat());
            text.push(0);
        };
        for path in &self.ignored.paths {
            record(b'i', &[path]);
        }
        if let Some(rules) = &self.ignored.rules {
            record(b'r', &[rules]);
        }
        for (path, inode) in &self.directories {
            record(b'd', &[inode.to_string().as_bytes(), b" ", path]);
        }
        for Change { was, mode, object, path } in &self.staged {
            record(b's', &[was, b" ", mode, b" ", object, b" ", path]);
        }
        text
    }

    fn read(text: &[u8]) -> Self {
        let mut about = Self::default();
        for record in text.split(|byte| *byte == 0) {
            let Some((kind, record)) = record.split_first() else { continue };
            match kind {
                b'i' => drop(about.ignored.paths.insert(record.to_owned())),
                b'r' => about.ignored.rules = Some(record.to_owned()),
                b'd' => {
                    let mut words = record.splitn(2, |byte| *byte == b' ');
                    let inode = words.next().and_then(|word| str::from_utf8(word).ok());
                    let inode = inode.and_then(|word| word.parse().ok());
                    if let (Some(inode), Some(path)) = (inode, words.next()) {
                        about.directories.insert(path.to_owned(), inode);
                    }
                }
                b's' => {
                    let words: Vec<&[u8]> = record.splitn(4, |byte| *byte == b' ').collect();
                    if let [was, mode, object, path] = words[..] {
                        let (was, mode) = (was.to_owned(), mode.to_owned());
                        let (object, path) = (object.to_owned(), path.to_owned());
                        about.staged.push(Change { was, mode, object, path });
                    }
                }
                // Of a later program.
                _ => {}
            }
        }
        about
    }
}

impl Tree {
    /// Returns what is known of this moment beside the files, of which `tree` is a snapshot.
    pub(super) async fn about_now(
        &self,
        head: Option<&str>,
        tree: &str,
    ) -> Result<About, GitError> {
        let ignored = self.ignored_now().await?;
        let directories = self.directories(tree).await?;
        let staged = self.staged(head, tree).await?;
        Ok(About { ignored, directories, staged })
    }

    /// Keeps something of this kind, and returns its name. `anchor` is the name of the files that it is about.
    pub(super) async fn keep_about(&self, about: &About, anchor: &str) -> Result<String, GitError> {
        if *about == About::default() {
            return Ok(String::new());
        }
        let args = ["hash-object", "-w", "--stdin"].map(OsStr::new);
        let name = self.git_fed(None, &args, about.written()).await?;
        let name = String::from_utf8_lossy(&name).trim().to_owned();
        self.git(["update-ref", &beside(anchor), &name]).await?;
        if !about.staged.is_empty() {
            // An agent may stage something else in their place.
            let tree = self.tree_with(None, &index_info(&about.staged)).await?;
            self.git(["update-ref", &staged_beside(anchor), &tree]).await?;
        }
        Ok(name)
    }

    /// Returns what is known of a base beside its files. An older program knew less.
    pub(super) async fn about(&self, base: &Base<'_>) -> Result<About, GitError> {
        let read = async |name: &str| {
            let args = ["cat-file", "blob", name].map(OsStr::new);
            self.git_raw(None, &args).await
        };
        Ok(match (base.about, base.ignored) {
            (Some(name), _) => About::read(&read(name).await?),
            (None, Some(name)) => {
                let listed = read(name).await?;
                let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
                let paths = paths.map(<[u8]>::to_owned).collect();
                About { ignored: Ignored { paths, rules: None }, ..About::default() }
            }
            (None, None) => About::default(),
        })
    }

    async fn ignored_now(&self) -> Result<Ignored, GitError> {
        // A directory is listed only if a rule names it: one that happens to hold nothing else may get files of an agent.
        let args = ["--no-optional-locks", "status", "--porcelain", "-z", "--ignored=matching"];
        let flags = ["--untracked-files=normal", "--ignore-submodules=all", "--no-renames"];
        let args: Vec<&OsStr> = args.iter().chain(&flags).map(OsStr::new).collect();
        let listed = self.git_raw(None, &args).await?;
        let paths = listed.split(|byte| *byte == 0).filter_map(|line| line.strip_prefix(b"!! "));
        let is_more = paths.clone().nth(IGNORED_MAX).is_some();
        let paths = paths.take(IGNORED_MAX).map(<[u8]>::to_owned).collect();
        let rules = if is_more { Some(self.rules().await) } else { None };
        Ok(Ignored { paths, rules })
    }

    /// Returns a digest of what the repository ignores without a commit that says so.
    async fn rules(&self) -> Vec<u8> {
        let Some(common) = &self.common else { return Vec::new() };
        let exclude = common.join("info/exclude");
        let args = ["hash-object".as_ref(), "--no-filters".as_ref(), exclude.as_os_str()];
        // There need not be such a file.
        self.git_raw(None, &args).await.unwrap_or_default()
    }

    /// Says whether git may have ignored files at a base that it does not ignore now, and that are on no list.
    pub(super) async fn is_unclear(
        &self,
        ignored: &Ignored,
        base: &Base<'_>,
        now: &str,
    ) -> Result<bool, GitError> {
        let Some(rules) = &ignored.rules else { return Ok(false) };
        let is_rule =
            |change: &Change| change.path == b".gitignore" || change.path.ends_with(b"/.gitignore");
        let changed = self.changed(base.tree, now).await?;
        Ok(changed.iter().any(is_rule) || self.rules().await != *rules)
    }

    /// Returns the directories of a tree that are there, with their inodes.
    async fn directories(&self, tree: &str) -> Result<BTreeMap<Vec<u8>, u64>, GitError> {
        let Ok(root) = self.root.symlink_metadata() else { return Ok(BTreeMap::new()) };
        let args = ["ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", tree];
        let listed = self.git_raw(None, &args.map(OsStr::new)).await?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let with_inode = |path: &[u8]| {
            Some((path.to_owned(), inode(&self.root.join(bytes_os(path)), root.dev())?))
        };
        Ok(paths.filter_map(with_inode).collect())
    }

    /// Returns what the index has that neither the last commit nor the files have.
    async fn staged(&self, head: Option<&str>, tree: &str) -> Result<Vec<Change>, GitError> {
        let empty = match head {
            Some(_) => String::new(),
            None => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let head = head.unwrap_or(&empty);
        // What a merge has left open is nothing that somebody has staged.
        let flags = ["--cached", "-z", "--raw", "--no-renames", "--no-abbrev", "--diff-filter=u"];
        let args = ["diff-index"].into_iter().chain(flags).chain([head]).map(OsStr::new);
        let args: Vec<&OsStr> = args.collect();
        let mut staged = super::parsed(&self.git_raw(None, &args).await?)?;
        if staged.is_empty() {
            return Ok(staged);
        }
        let dirty: BTreeSet<Vec<u8>> =
            self.changed(head, tree).await?.into_iter().map(|change| change.path).collect();
        staged.retain(|change| !dirty.contains(&change.path));
        Ok(staged)
    }
}

/// Returns a directory's inode, if it is one and on this device.
pub(super) fn inode(path: &Path, device: u64) -> Option<u64> {
    let about = path.symlink_metadata().ok()?;
    (about.is_dir() && about.dev() == device).then(|| about.ino())
}

/// Returns the name for what is known beside the files of a name.
fn beside(anchor: &str) -> String {
    format!("{anchor}-about")
}

fn staged_beside(anchor: &str) -> String {
    format!("{anchor}-staged")
}

/// Returns all names that come with the name of files.
pub(in crate::work) fn anchored(anchor: &str) -> [String; 3] {
    [anchor.to_owned(), beside(anchor), staged_beside(anchor)]
}
