//! `teamster launch`: how the hub starts agents. The hub is on the other end of its standard input.

use anyhow::Context;
use teamster_agents::launcher::{self, Part};

#[derive(Debug, clap::Args)]
pub(super) struct LaunchArgs {
    part: Part,

    /// Let the program finish, for a moment, when the hub is gone
    #[arg(long)]
    lingers: bool,
}

pub(super) fn run(args: LaunchArgs) -> anyhow::Result<()> {
    launcher::run(args.part, args.lingers)
        .context("this is how the hub starts agents; it is not for people")
}
