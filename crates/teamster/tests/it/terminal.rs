//! A real terminal, tmux's, for what is shown on a whole one.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and tmux is no agent"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::optional::Optional;

/// A terminal of 80 by 24 with a shell in it.
pub(crate) struct Terminal {
    home: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    pub(crate) fn open(home: &Path) -> Self {
        let terminal = Self { home: home.to_owned(), socket: home.join("tmux") };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"]);
        terminal
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = std::process::Command::new("tmux");
        tmux.arg("-S")
            .arg(&self.socket)
            .env("LC_ALL", "C.UTF-8")
            .env("PS1", "$ ")
            .env_remove("ENV");
        tmux.env("HOME", &self.home).env("NO_COLOR", "1");
        let output = tmux.args(arguments).output().expect("tmux starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    pub(crate) fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).trim_end().to_owned()
    }

    /// Waits until the screen shows something; there is nothing else that tells.
    pub(crate) fn until(&self, fits: impl Fn(&str) -> bool) -> String {
        for _ in 0..600 {
            let shown = self.shows();
            if fits(&shown) {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the screen shows:\n{}", self.shows());
    }

    /// Waits until the screen shows all of these.
    pub(crate) fn until_all(&self, wanted: &[&str]) -> String {
        self.until(|shown| wanted.iter().all(|one| shown.contains(one)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

pub(crate) fn has_tmux() -> bool {
    Optional::Tmux.is_usable(std::process::Command::new("tmux").arg("-V").output().is_ok())
}
