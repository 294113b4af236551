//! `teamster fork`: a conversation's session, opened in its program's own terminal.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use anyhow::{Context, bail};
use teamster_api::conversations::Conversation;

use super::transcript::Which;
use super::{config, connect_to_hub, print, wait_for};
use teamster_hub::config::{self as places, DataFiles};

#[derive(Debug, clap::Args)]
pub(super) struct ForkArgs {
    #[command(flatten)]
    which: Which,

    /// Run the command instead of printing it
    #[arg(long)]
    run: bool,
}

pub(super) fn run(data: &DataFiles, args: ForkArgs) -> anyhow::Result<()> {
    let conversation = wait_for(async {
        let mut client = connect_to_hub(data).await?;
        args.which.find(&mut client).await
    })?;
    let Conversation { to, program, session, directory, remote, .. } = &conversation;
    if let Some(remote) = remote {
        bail!("{to} runs on another machine ({remote}); open its session there");
    }
    let directory = directory.as_deref().context("the hub does not know its directory")?;
    let Some(session) = session.as_deref() else {
        bail!("{to} has no session yet; tell it something first");
    };
    // Programs name their sessions themselves; one that looks like something else would be taken for it.
    if session.starts_with('-') || session.chars().any(char::is_control) {
        bail!("{session:?} is no session that can be named on a command line");
    }
    let program = program.as_deref().context("the hub does not know its program")?;
    let configuration = config::read(directory.into(), Vec::new());
    let programs = &configuration.settings.programs;
    let known = programs.find(program).map_err(anyhow::Error::msg)?.program;
    let Some(command) = known.opening(session) else {
        bail!(
            "{program} has no command that opens a session in a terminal; if it does, say so in [programs.{program}] of \
             teamster.toml: opens = [\"{{command}}\", \"--resume\", \"{{session}}\"]"
        );
    };
    let Some((first, rest)) = command.split_first() else { bail!("its command is empty") };
    if !args.run {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        return print(&format!("cd {} && {}", quoted(directory), words.join(" ")));
    }
    let is_own = *first == known.command;
    let found = is_own.then(|| known.find(&places::search_path())).flatten();
    let file = found.unwrap_or_else(|| first.into());
    // Returns only if it could not.
    let error =
        teamster_agents::process::in_our_place(&file, Path::new(directory)).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {} in {directory}", file.display()))
}

/// Writes a word so that a shell reads it as it is.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_what_was_meant() {
        for (word, expected) in [
            ("--resume", "--resume"),
            ("/a b/it's", r"'/a b/it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("", "''"),
            ("~", "'~'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
