//! The only place that starts processes.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

/// What a process that we start finds in its environment; nothing else is passed on.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// Prepares a process in `directory`: no shell, no standard input, an environment of a few known variables, killed when
/// nobody waits for it any more.
#[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
pub fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).env_clear();
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}
