//! How git is called: held as agents are, with nothing of the repository's own that starts by itself, and patiently.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use teamster_agents::deputy::{Command, How, STDOUT_BYTES_MAX};

use super::{GitError, Tree};

/// A checkout or the state of a big repository takes a while.
const PATIENCE: Duration = Duration::from_secs(300);
/// So long is waited for a lock that somebody else has, such as an editor that looks at the same files.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_LOOKS: u32 = 50;
/// As much of git's words as is passed on.
const SAYS_CHARS_MAX: usize = 1_500;

impl Tree {
    pub(super) async fn git<'a>(
        &self,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, GitError> {
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        let output = self.git_raw(None, &args).await?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    pub(super) async fn with_index<'a>(
        &self,
        index: &Path,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, GitError> {
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        let output = self.git_raw(Some(index), &args).await?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    pub(super) async fn git_raw(
        &self,
        index: Option<&Path>,
        args: &[&OsStr],
    ) -> Result<Vec<u8>, GitError> {
        self.git_fed(index, args, Vec::new()).await
    }

    /// Runs git at the root, with something to read; waits for others who hold a lock.
    pub(super) async fn git_fed(
        &self,
        index: Option<&Path>,
        args: &[&OsStr],
        input: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        let mut n_looks = 0;
        loop {
            match self.git_once(index, args, &input).await {
                Err(error) if error.is_locked() && n_looks < LOCK_LOOKS => n_looks += 1,
                done => return done,
            }
            tokio::time::sleep(LOCK_PATIENCE / LOCK_LOOKS).await;
        }
    }

    pub(super) async fn git_once(
        &self,
        index: Option<&Path>,
        args: &[&OsStr],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        // A setting comes in two words.
        let mut words = args.iter().map(|arg| arg.to_string_lossy());
        let mut verb = words.next().unwrap_or_default();
        while verb.starts_with('-') {
            let n_more = usize::from(verb == "-c");
            verb = words.by_ref().nth(n_more).unwrap_or_default();
        }
        let verb = verb.into_owned();
        let failed = |says: String| GitError::new(&verb, says);
        let command = self
            .held
            .git(&self.root)
            // No hook of the repository, and nobody is asked anything. What else it names runs held.
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            // What an agent writes is committed whatever its line endings.
            .args(["-c", "commit.gpgSign=false", "-c", "core.safecrlf=false"])
            .args(args)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "true")
            .env("LC_ALL", "C");
        let mut command = Command { input: input.to_owned(), time_limit: PATIENCE, ..command };
        if let Some(index) = index {
            command = command.env("GIT_INDEX_FILE", index);
        }
        let output = self.held.run(command).await;
        let output = output.map_err(|error| failed(format!("{:#}", anyhow::Error::from(error))))?;
        let code = match output.how {
            How::Code(0) => return Ok(output.stdout),
            How::Code(code) => Some(code),
            How::Signal(signal) => return Err(failed(format!("it was ended by signal {signal}"))),
            How::TimedOut => {
                return Err(failed(format!("it took longer than {} s", PATIENCE.as_secs())));
            }
            How::TooMuch => {
                return Err(failed(format!("it said more than {STDOUT_BYTES_MAX} bytes")));
            }
        };
        let says = in_a_line(&String::from_utf8_lossy(&output.stderr));
        Err(GitError { code, ..failed(says) })
    }
}

impl GitError {
    fn is_locked(&self) -> bool {
        self.says.contains(".lock': File exists")
    }
}

/// Returns what git says in one line, files and all: a list that shows only the first line of it would leave out which files
/// are in the way.
fn in_a_line(says: &str) -> String {
    let mut text = String::new();
    let mut was_file = false;
    for line in says.lines().filter(|line| !line.trim().is_empty()) {
        // Git sets files in by a tab.
        let is_file = line.starts_with('\t');
        text.push_str(match (text.chars().last(), was_file && is_file) {
            (None, _) => "",
            (Some(_), true) => ", ",
            (Some('.' | ':' | ';' | ','), false) => " ",
            (Some(_), false) => "; ",
        });
        text.push_str(line.trim());
        was_file = is_file;
    }
    match text.char_indices().nth(SAYS_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_is_one_line_with_all_files() {
        let says = "error: Your local changes to the following files would be overwritten by merge:\n\ta.txt\n\tb c.txt\n\
                    Please commit your changes or stash them before you merge.\nAborting\n";
        assert_eq!(
            in_a_line(says),
            "error: Your local changes to the following files would be overwritten by merge: a.txt, b c.txt; Please commit \
             your changes or stash them before you merge. Aborting"
        );
        assert_eq!(in_a_line("fatal: no\n\nhint: do\n"), "fatal: no; hint: do");
        let long = in_a_line(&"é".repeat(SAYS_CHARS_MAX + 1));
        assert_eq!(long.chars().count(), SAYS_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
