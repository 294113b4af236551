//! Versions of files that an agent and the user have both changed. Each is a commit under a name of its own, whose message
//! lists these files, so that it can be seen later whether they are still left to the user.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use super::{Base, GitError, Tree, index_info};

/// Maximum versions of one kind and iteration.
const VERSIONS_MAX: u32 = 100;

impl Tree {
    /// Keeps how files were at a base, under `name` or, if that has another version, under one that begins so. Returns the
    /// name.
    pub(in crate::work) async fn keep_files(
        &self,
        name: &str,
        base: &str,
        files: &[String],
    ) -> Result<String, GitError> {
        let base = Base::of(base);
        let mut staged = self.about(&base).await?.staged;
        staged.retain(|change| !change.is_gone());
        // Of what is only staged, that is the version that is somebody's work.
        let tree = match staged.is_empty() {
            true => base.tree.to_owned(),
            false => self.tree_with(Some(base.tree), &index_info(&staged)).await?,
        };
        let listed = serde_json::to_string(files)
            .map_err(|error| GitError::new("commit-tree", error.to_string()))?;
        let mut kept = name.to_owned();
        for n in 2..=VERSIONS_MAX {
            match self.version(&kept).await {
                None => {
                    let text = format!("files that no agent changed alone\n\n{listed}\n");
                    let parents: Vec<&str> = base.commit.into_iter().collect();
                    let commit = self.commit_text(&tree, &parents, text).await?;
                    self.git(["update-ref", &kept, &commit]).await?;
                    return Ok(kept);
                }
                Some(known) if known.tree == tree && known.listed == listed => return Ok(kept),
                Some(_) => kept = format!("{name}-{n}"),
            }
        }
        Err(GitError::new("update-ref", format!("there are too many versions under {name}")))
    }

    /// Returns the files of these versions that are not as committed now.
    pub(in crate::work) async fn uncommitted_of(
        &self,
        names: &[String],
    ) -> Result<Vec<String>, GitError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let head = match self.head().await {
            Some(head) => head,
            None => self.git(["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        let dirty = self.changed(&head, &self.snapshot().await?).await?;
        let dirty = dirty.iter().map(|change| String::from_utf8_lossy(&change.path).into_owned());
        let dirty: BTreeSet<String> = dirty.collect();
        let mut found = BTreeSet::new();
        for name in names {
            let version = self.version(name).await.unwrap_or_default();
            match serde_json::from_str::<Vec<String>>(&version.listed) {
                Ok(files) => found.extend(files.into_iter().filter(|file| dirty.contains(file))),
                // An older program did not say which.
                Err(_) => found.extend(dirty.iter().cloned()),
            }
        }
        Ok(found.into_iter().collect())
    }

    async fn version(&self, name: &str) -> Option<Version> {
        self.git(["rev-parse", "--verify", "--quiet", name]).await.ok()?;
        let args = ["log", "-1", "--no-show-signature", "--format=%T%n%b", name, "--"];
        let shown = self.git_raw(None, &args.map(OsStr::new)).await.unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown);
        let (tree, listed) = shown.split_once('\n').unwrap_or_default();
        Some(Version { tree: tree.to_owned(), listed: listed.trim().to_owned() })
    }
}

#[derive(Default)]
struct Version {
    tree: String,
    /// As JSON; nothing if it was made by an older program.
    listed: String,
}
