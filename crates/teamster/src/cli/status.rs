//! `teamster status`: how things stand.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{print, say};
use teamster_api::Client;
use teamster_core::spending::Spent;
use teamster_hub::config::DataFiles;

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
    if let Some(stalled) = status["stalled"].as_str() {
        say(&format!("warning: {stalled}"));
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
    if let Some(isolation) = status["isolation"].as_str() {
        let doctor = data.call("doctor");
        let is_refused = status["agents_refused"] == true;
        let why = match isolation {
            "namespaces" => String::new(),
            _ if is_refused => format!(", so agents are refused; `{doctor}` shows why"),
            _ => format!(" (advisory: agents can read the hub's data; `{doctor}` shows why)"),
        };
        let _ = writeln!(text, "isolation {isolation}{why}");
    }
    for waits in agents["wait_for"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "         queued: {}", waits.as_str().unwrap_or_default());
    }
    let used: Spent = serde_json::from_value(status["used"].clone()).unwrap_or_default();
    if used != Spent::default() {
        let _ = writeln!(
            text,
            "used     {}, cost {}",
            used.tokens_shown(|n| n.to_string()),
            super::budget::cost(&used)
        );
    }
    if status["questions"].as_u64().is_some_and(|n| n > 0) {
        let show = data.call("questions");
        let _ = writeln!(text, "waiting  {} question(s) for you: `{show}`", status["questions"]);
    }
    let _ = writeln!(text, "yaks     {}", counts(&status["yaks"]));
    let (n_teams, n_awake) = (&status["teams"]["known"], &status["teams"]["awake"]);
    if n_teams.as_u64().is_some_and(|n| n > 0) {
        let _ = writeln!(text, "teams    {n_teams}, {n_awake} awake");
    }
    runs(&mut text, status, data);
    calls(&mut text, &status["calls"]);
    text.trim_end().to_owned()
}

/// As many runs as are shown that nobody works on; `runs` has all.
const RUNS_SHOWN: usize = 10;

/// Adds the runs, those under way first.
fn runs(text: &mut String, status: &Value, data: &DataFiles) {
    let all = || status["runs"].as_array().into_iter().flatten();
    let name = |run: &Value| run["name"].as_str().unwrap_or("?").to_owned();
    // None has begun in a run that waits for its first agent.
    let iteration = |run: &Value| match run["iteration"].as_u64() {
        Some(number) => format!("iteration {number}, "),
        None => String::new(),
    };
    for run in all().filter(|run| run["under_way"] == true) {
        let (name, phase) = (name(run), run["phase"].as_str().unwrap_or("?"));
        let watch = data.call(&format!("watch {name}"));
        let _ = writeln!(
            text,
            "run      {name}: {phase}, {}{}; `{watch}`",
            iteration(run),
            counts(&run["items"])
        );
    }
    let rest: Vec<&Value> = all().filter(|run| run["under_way"] != true).collect();
    for run in rest.iter().take(RUNS_SHOWN) {
        let complete = if run["complete"] == true { ", complete" } else { "" };
        let _ = writeln!(
            text,
            "run      {}: {} ({}{} note(s){complete})",
            name(run),
            counts(&run["items"]),
            iteration(run),
            run["notes"]
        );
    }
    if let Some(more @ 1..) = rest.len().checked_sub(RUNS_SHOWN) {
        let _ = writeln!(text, "         and {more} more: `{}`", data.call("runs"));
    }
}

/// As many tools as are shown to people; `--json` has all.
const TOOLS_SHOWN: usize = 5;

/// Adds what was called most since the hub started.
fn calls(text: &mut String, calls: &Value) {
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or_default();
    let mut tools: Vec<&Value> = calls["tools"].as_array().into_iter().flatten().collect();
    tools.sort_by_key(|tool| std::cmp::Reverse(number(tool, "calls")));
    let sum = |name: &str| tools.iter().map(|tool| number(tool, name)).sum::<u64>();
    let failures = failures(&json!({
        "refused": sum("refused"), "failed": sum("failed"), "abandoned": sum("abandoned"),
    }));
    let _ = writeln!(text, "calls    {} since the hub started{failures}", sum("calls"));
    for tool in tools.iter().take(TOOLS_SHOWN) {
        let name = tool["tool"].as_str().unwrap_or("?");
        let _ = writeln!(
            text,
            "         {name}: {}{}, p50 {} ms, p99 {} ms",
            tool["calls"],
            self::failures(tool),
            tool["p50_ms"],
            tool["p99_ms"]
        );
    }
    if let Some(more @ 1..) = tools.len().checked_sub(TOOLS_SHOWN) {
        let _ = writeln!(text, "         and {more} more tool(s), with --json");
    }
}

/// Shows failures as «, 2 refused, 1 failed», leaving out what there is none of.
pub(super) fn failures(of: &Value) -> String {
    let ways = ["refused", "failed", "abandoned"].into_iter();
    let some = ways.filter_map(|way| of[way].as_u64().filter(|n| *n > 0).map(|n| (way, n)));
    some.map(|(way, n)| format!(", {n} {way}")).collect()
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
