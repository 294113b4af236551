//! The project directory the hub was started in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::held::Confined;

/// The directory that `teamster up` was given.
#[derive(Debug, Clone)]
pub struct Project {
    directory: PathBuf,
    held: Confined,
}

/// git answers in milliseconds; a repository on a dead network disk must not hold a call up.
const GIT_PATIENCE: Duration = Duration::from_secs(2);

impl Project {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), held: Confined::here() }
    }

    /// Has commands in it, and wherever else agents work, run by this.
    pub fn held_by(self, held: Confined) -> Self {
        Self { held, ..self }
    }

    pub fn held(&self) -> &Confined {
        &self.held
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns what the project is called: its directory's name.
    pub fn name(&self) -> String {
        self.directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Returns the short hash of the current commit, if this is a git repository with one and git is installed.
    pub async fn commit(&self) -> Option<String> {
        let git = self.held.git(&self.directory).args(["rev-parse", "--short", "HEAD"]);
        let output = tokio::time::timeout(GIT_PATIENCE, self.held.run(git)).await.ok()?.ok()?;
        let is_ok = output.is_ok();
        let hash = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (is_ok && !hash.is_empty()).then_some(hash)
    }
}
