//! Which projects' hooks the user has trusted: a file for each project in the hub's data directory, which agents do not
//! see. Trust is bound to what the hooks are and to where the project is; whatever changes either ends it.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use teamster_core::Timestamp;

use super::{Event, Hook, HookFields};
use crate::config::{self, DataFiles};

/// Says what the bytes of a digest mean. Another meaning has another name.
const SCHEME: &[u8] = b"teamster hooks 1";
/// As many projects as are listed.
const LISTED_MAX: usize = 1_000;
/// A note is a path and a digest.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// A project whose hooks were trusted as they were then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// The project's directory, for people; what counts is in the digest.
    pub project: String,
    pub digest: String,
    pub at: Timestamp,
}

/// How hooks stand with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    Trusted,
    /// Others were trusted here.
    Changed,
    Unknown,
}

/// What the user of a workspace has trusted.
#[derive(Debug, Clone)]
pub struct Trust {
    data: DataFiles,
}

impl Trust {
    pub fn of(data: &DataFiles) -> Self {
        Self { data: data.clone() }
    }

    /// Says whether these hooks of the project may run. What cannot be read is not trusted.
    pub fn stand(&self, project: &Path, hooks: &HookFields) -> Stand {
        let Ok(project) = std::fs::canonicalize(project) else { return Stand::Unknown };
        match read(&self.note(&project)) {
            Some(trusted) if trusted.digest == digest(&project, hooks) => Stand::Trusted,
            Some(_) => Stand::Changed,
            None => Stand::Unknown,
        }
    }

    /// Trusts these hooks of the project, and no others of it.
    pub fn add(&self, project: &Path, hooks: &HookFields, at: Timestamp) -> anyhow::Result<()> {
        let project = std::fs::canonicalize(project)
            .with_context(|| format!("cannot find {}", project.display()))?;
        let (note, directory) = (self.note(&project), self.data.trust());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let digest = digest(&project, hooks);
        let trusted = Trusted { project: project.to_string_lossy().into_owned(), digest, at };
        config::write_private(&note, &serde_json::to_vec(&trusted)?)
    }

    /// Trusts nothing of the project any more. Says whether anything was trusted.
    pub fn remove(&self, project: &Path) -> anyhow::Result<bool> {
        // One that is gone has no other name than the one it is given.
        let project = match std::fs::canonicalize(project) {
            Ok(project) => project,
            Err(_) => std::path::absolute(project)?,
        };
        let note = self.note(&project);
        match std::fs::remove_file(&note) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            removed => {
                removed.with_context(|| format!("cannot remove {}", note.display()))?;
                Ok(true)
            }
        }
    }

    /// Returns what is trusted, in the order of the directories.
    pub fn list(&self) -> Vec<Trusted> {
        let entries = std::fs::read_dir(self.data.trust()).into_iter().flatten().flatten();
        let notes = entries.map(|entry| entry.path());
        let notes = notes.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        let mut all: Vec<Trusted> = notes.take(LISTED_MAX).filter_map(|path| read(&path)).collect();
        all.sort_by(|one, other| one.project.cmp(&other.project));
        all
    }

    fn note(&self, project: &Path) -> PathBuf {
        let name = hex(&Sha256::digest(project.as_os_str().as_bytes()));
        self.data.trust().join(format!("{name}.json"))
    }
}

fn read(note: &Path) -> Option<Trusted> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(note).ok()?;
    file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns what names these hooks of this project and no others. Each part has its length before it, so that no two
/// mean the same bytes.
fn digest(project: &Path, hooks: &HookFields) -> String {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    part(SCHEME);
    part(project.as_os_str().as_bytes());
    for event in Event::ALL {
        let hooks = hooks.at(event);
        part(event.name().as_bytes());
        part(&(hooks.len() as u64).to_le_bytes());
        for hook in hooks {
            let Hook { command, timeout_s, pipe_output } = hook;
            part(&timeout_s.get().to_le_bytes());
            part(&[u8::from(*pipe_output)]);
            part(&(command.words().len() as u64).to_le_bytes());
            command.words().iter().for_each(|word| part(word.as_bytes()));
        }
    }
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
