//! What a session remembers, also in the next process: in a file of its own, written anew with every step.

use std::collections::VecDeque;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::mcp::Server;
use super::script::{self, Line, Results};
use teamster_hub::secret::system_random;

/// What a session's name begins with.
const PREFIX: &str = "scripted-";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    /// What is still to be played. The first line may have been begun already.
    pub(super) rest: VecDeque<Line>,
    /// All of the script that it is the rest of.
    #[serde(default)]
    script: Vec<String>,
    pub(super) results: Results,
    /// Counts what was played, which gives messages and tool calls their names.
    pub(super) n_steps: u64,
    pub(super) cost_dollars: f64,
    #[serde(skip)]
    pub(super) directory: PathBuf,
    #[serde(skip)]
    pub(super) server: Option<Server>,
    #[serde(skip)]
    file: PathBuf,
}

impl Session {
    pub(super) fn new(state: &Path, directory: PathBuf, server: Option<Server>) -> Self {
        let id = format!("{PREFIX}{:016x}", system_random()());
        let file = file(state, &id);
        Self { id, file, directory, server, ..Self::default() }
    }

    /// Goes on with a session of another process.
    pub(super) fn load(
        state: &Path,
        id: &str,
        directory: PathBuf,
        server: Option<Server>,
    ) -> anyhow::Result<Self> {
        // It becomes part of a path.
        let number = id.strip_prefix(PREFIX).unwrap_or_default();
        if number.is_empty() || !number.chars().all(|c| c.is_ascii_hexdigit()) {
            bail!("there is no session {id:?}");
        }
        let file = file(state, id);
        let kept = fs::read(&file).with_context(|| format!("there is no session {id:?}"))?;
        let kept: Self = serde_json::from_slice(&kept)
            .with_context(|| format!("{} is not what a session writes", file.display()))?;
        Ok(Self { file, directory, server, ..kept })
    }

    /// Takes a prompt in: its script, or what is left of one that was cut off, or a script of our own.
    pub(super) fn begin(&mut self, prompt: &str) -> anyhow::Result<()> {
        let lines = script::find(prompt)?;
        let texts = |lines: &VecDeque<Line>| -> Vec<String> {
            lines.iter().map(|line| line.text().to_owned()).collect()
        };
        // Whoever was cut off is told its task again, and goes on with what is left of it.
        let is_same = !self.rest.is_empty() && texts(&lines) == self.script;
        if !lines.is_empty() && !is_same {
            self.script = texts(&lines);
            self.rest = lines;
        } else if self.rest.is_empty() {
            self.rest = script::friendly(prompt, self.server.is_some());
        }
        self.save()
    }

    /// Writes it down, so that a process which is killed at any time leaves the old or the new.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let write = || {
            let directory = self.file.parent().unwrap_or(Path::new("."));
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            // Where all can write, somebody may have made it before us, to read or change what is in it.
            if fs::symlink_metadata(directory)?.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other("its directory belongs to another user"));
            }
            let temporary = self.file.with_extension("new");
            fs::write(&temporary, serde_json::to_vec(self)?)?;
            fs::rename(temporary, &self.file)
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }
}

fn file(state: &Path, id: &str) -> PathBuf {
    state.join(format!("{id}.json"))
}
