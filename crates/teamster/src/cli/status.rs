//! `teamster status`: how things stand.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{print, say};
use crate::client::Client;
use crate::config::DataFiles;
use teamster_core::spending::Spent;

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, args: StatusArgs) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        if args.json {
            print(&json!({"running": false, "data": data.directory()}).to_string())?;
            return Err(super::Refused.into());
        }
        print(&format!("no hub is running for {}", data.directory().display()))?;
        say(&format!("start it with `{}`", data.call("up -d")));
        return Err(super::Refused.into());
    };
    let difference = client.version_difference();
    let mut status = client.get("/api/status").await?;
    if args.json {
        status["running"] = true.into();
        status["url"] = client.hub.url.clone().into();
        status["data"] = data.directory().to_string_lossy().into();
        return print(&status.to_string());
    }
    if let Some(difference) = difference {
        say(&format!("warning: {difference}"));
    }
    print(&shown(&status, &client.hub.url, data))
}

fn shown(status: &Value, url: &str, data: &DataFiles) -> String {
    let mut text = format!(
        "hub      {url} (pid {}, version {})\ndata     {}\nlog      {} events\ntokens   {} live\n",
        status["pid"],
        status["version"].as_str().unwrap_or("?"),
        data.directory().display(),
        status["events"],
        status["tokens"]
    );
    let agents = &status["agents"];
    let some = |name: &str| agents[name].as_u64().filter(|n| *n > 0);
    let adopted = some("adopted").map(|n| format!(", {n} adopted")).unwrap_or_default();
    let parked = some("parked").map(|n| format!(" ({n} parked)")).unwrap_or_default();
    let _ = writeln!(
        text,
        "agents   {} under way, {} queued{parked}{adopted}",
        agents["active"], agents["queued"]
    );
    let used: Spent = serde_json::from_value(status["used"].clone()).unwrap_or_default();
    if used != Spent::default() {
        let _ = writeln!(
            text,
            "used     {} tokens, cost {}",
            used.tokens(),
            super::budget::cost(&used)
        );
    }
    if status["questions"].as_u64().is_some_and(|n| n > 0) {
        let show = data.call("questions");
        let _ = writeln!(text, "waiting  {} question(s) for you: `{show}`", status["questions"]);
    }
    let _ = writeln!(text, "yaks     {}", counts(&status["yaks"]));
    for run in status["runs"].as_array().into_iter().flatten() {
        let complete = if run["complete"] == true { ", complete" } else { "" };
        let _ = writeln!(
            text,
            "run      {}: {} (iteration {}, {} note(s){complete})",
            run["name"].as_str().unwrap_or("?"),
            counts(&run["items"]),
            run["iteration"],
            run["notes"]
        );
    }
    text.trim_end().to_owned()
}

/// Shows counts as «3 remaining, 1 completed», leaving out what there is none of.
fn counts(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let some: Vec<String> = counts
        .filter(|(_, n)| **n != 0)
        .map(|(what, n)| format!("{n} {}", what.replace('_', " ")))
        .collect();
    if some.is_empty() { "none".into() } else { some.join(", ") }
}
