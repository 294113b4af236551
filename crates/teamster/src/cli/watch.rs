//! `teamster watch`: a run that somebody has begun, watched and steered.

use super::run::headless::{Follow, OnSignal};
use super::run::{Watched as _, has_whole_terminal, show};
use super::{connect_to_hub, say};
use teamster_api::runs::{RunLine, ShowRun};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The run; `teamster runs` lists them
    run: String,

    /// Do not show it on the whole terminal, but line by line
    #[arg(long)]
    headless: bool,

    /// Print JSON, one event per line; without the terminal's whole view
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, args: WatchArgs) -> anyhow::Result<()> {
    if !args.headless && !args.json && has_whole_terminal() {
        return show::show(data, &args.run).await;
    }
    let mut client = connect_to_hub(data).await?;
    let view = client.show_run(&args.run, &ShowRun::default()).await?;
    if !args.json && !view.run.is_over() {
        let RunLine { phase, items, .. } = &view.run.line;
        let n_open = items.remaining + items.in_progress;
        say(&format!("{}: {phase}, {} done, {n_open} open", args.run, items.completed));
    }
    let after = view.commit;
    let follow = Follow { name: &args.run, json: args.json, after, on_signal: OnSignal::Leave };
    if view.run.is_over() {
        return follow.end(data, &view);
    }
    follow.run(data, &mut client).await
}
