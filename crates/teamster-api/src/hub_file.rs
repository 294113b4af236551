//! The hub file: how programs find the hub of a data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How often to look for a change within a moment.
pub(crate) const LOOK_SOON: Duration = Duration::from_millis(20);

/// A data directory, as its programs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub directory: PathBuf,
    /// The command line that starts a hub there.
    pub starts_hub: String,
}

impl Place {
    /// The file that tells programs about the running hub.
    pub fn hub_file(&self) -> PathBuf {
        self.directory.join("hub.json")
    }

    /// The file that the hub locks for as long as it lives.
    pub fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Returns the process that holds the directory, if one does.
    pub(crate) fn holder(&self) -> Option<u32> {
        let mut file = std::fs::File::open(self.lock()).ok()?;
        match file.try_lock_shared() {
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut pid = String::new();
                std::io::Read::read_to_string(&mut file, &mut pid).ok()?;
                Some(pid.trim().parse().unwrap_or(0))
            }
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => None,
        }
    }
}

/// What `<data>/hub.json` says about the running hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubFile {
    pub url: String,
    pub pid: u32,
    pub token_file: PathBuf,
    pub version: String,
    /// The unix socket that serves the same as the URL, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

impl HubFile {
    /// Reads the file, if there is one.
    pub fn read(place: impl Into<Place>) -> anyhow::Result<Option<Self>> {
        let path = place.into().hub_file();
        match std::fs::read(&path) {
            Ok(bytes) => {
                let file = serde_json::from_slice(&bytes);
                file.map(Some).with_context(|| {
                    format!("{} is not what a hub writes; remove it", path.display())
                })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Waits until the hub of this data directory has ended. It holds its lock for as long as it lives.
pub async fn wait_until_gone(place: impl Into<Place>) -> anyhow::Result<()> {
    let file = match std::fs::File::open(place.into().lock()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file.context("cannot tell whether the hub is gone")?,
    };
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            // A thread that waits for the lock could not be given up.
            Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(LOOK_SOON).await,
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).context("cannot tell whether the hub is gone");
            }
        }
    }
}

/// Reads a token's secret from its file.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let secret = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(secret.trim().to_owned())
}
