//! The only place that starts processes.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

/// What a process that we start finds in its environment; nothing else is passed on unless it is asked for. Where programs
/// keep their configuration, and whom they trust, are among it.
const PASSED_ON: [&str; 11] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Prepares a process in `directory`: no shell, no standard input, an environment of a few known variables, killed when
/// nobody waits for it any more.
#[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
pub fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(passed_on(&[]));
    command
}

/// Returns those of our own variables that are passed on: the usual ones and `more`.
pub(crate) fn passed_on(more: &[String]) -> Vec<(OsString, OsString)> {
    let names = PASSED_ON.into_iter().chain(more.iter().map(String::as_str));
    names.filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect()
}

/// Returns those of our own variables that have these names.
pub fn named(names: &[String]) -> Vec<(OsString, OsString)> {
    names.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect()
}

/// Prepares a program that takes our place: on our terminal, with our environment.
#[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
pub fn in_our_place(program: impl AsRef<OsStr>, directory: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.current_dir(directory);
    command
}

/// Prepares a process with an empty environment whose standard streams the caller sets, for the launcher, which lives
/// before any runtime.
#[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
pub(crate) fn bare(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear();
    command
}
