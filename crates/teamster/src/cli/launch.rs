//! `teamster launch`: how the hub starts agents. The hub is on the other end of its standard input.

use anyhow::Context;
use teamster_agents::launcher::{self, Part};

#[derive(Debug, clap::Args)]
pub(super) struct LaunchArgs {
    part: Part,
}

pub(super) fn run(args: LaunchArgs) -> anyhow::Result<()> {
    launcher::run(args.part).context("this is how the hub starts agents; it is not for people")
}
