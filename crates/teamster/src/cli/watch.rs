//! `teamster watch`: a run that somebody has begun, watched and steered.

use super::run::headless::{Follow, OnSignal, is_over};
use super::run::{has_whole_terminal, show};
use super::{connect_to_hub, say};
use teamster_api::in_path;
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
    let view = client.get(&format!("/api/runs/{}", in_path(&args.run))).await?;
    if !args.json && !is_over(&view) {
        let count = |status: &str| view["items"][status].as_u64().unwrap_or_default();
        let n_open = count("remaining") + count("in_progress");
        let phase = view["phase"].as_str().unwrap_or_default();
        say(&format!("{}: {phase}, {} done, {n_open} open", args.run, count("completed")));
    }
    let after = view["commit"].as_u64().unwrap_or_default();
    let follow = Follow { name: &args.run, json: args.json, after, on_signal: OnSignal::Leave };
    if is_over(&view) {
        return follow.end(data, &view);
    }
    follow.run(data, &mut client).await
}
