//! `teamster status`: how things stand.

use std::fmt::Write;

use serde_json::json;
use teamster_api::Client;
use teamster_api::agents::Isolation;
use teamster_api::calls::{Failures, Tally};
use teamster_api::hub::{RunAtAGlance, Status, ToolCalls, YakCounts};
use teamster_api::runs::ItemCounts;
use teamster_core::spending::Spent;
use teamster_hub::config::DataFiles;

use super::{budget, print, print_json, say};

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
    let status = client.show_status().await?;
    if args.json {
        return print_json(&Shown {
            status,
            running: true,
            url: &client.hub.url,
            data: data.directory().to_string_lossy(),
        });
    }
    if let Some(difference) = difference {
        say(&format!("warning: {difference}"));
    }
    if let Some(stalled) = &status.stalled {
        say(&format!("warning: {stalled}"));
    }
    print(&shown(&status, &client.hub.url, data))
}

/// The hub's answer, with what the command line adds to it.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: Status,
    running: bool,
    url: &'a str,
    data: std::borrow::Cow<'a, str>,
}

fn shown(status: &Status, url: &str, data: &DataFiles) -> String {
    let mut text = format!(
        "hub      {url} (pid {}, version {})\ndata     {}\nlog      {} events\ntokens   {} live\n",
        status.pid,
        status.version,
        data.directory().display(),
        status.events,
        status.tokens
    );
    let agents = &status.agents;
    let some = |n: usize| Some(n).filter(|n| *n > 0);
    let adopted = some(agents.adopted).map(|n| format!(", {n} adopted")).unwrap_or_default();
    let parked = some(agents.parked).map(|n| format!(" ({n} parked)")).unwrap_or_default();
    let _ = writeln!(
        text,
        "agents   {} under way, {} queued{parked}{adopted}",
        agents.active, agents.queued
    );
    if let Some(isolation) = status.isolation {
        let doctor = data.call("doctor");
        let why = match isolation {
            Isolation::Namespaces => String::new(),
            _ if status.agents_refused => {
                format!(", so agents are refused; `{doctor}` shows why")
            }
            _ => format!(" (advisory: agents can read the hub's data; `{doctor}` shows why)"),
        };
        let _ = writeln!(text, "isolation {isolation}{why}");
    }
    for waits in &agents.wait_for {
        let _ = writeln!(text, "         queued: {waits}");
    }
    let used = budget::sum(&status.used);
    if used != Spent::default() {
        let _ = writeln!(
            text,
            "used     {}, cost {}",
            used.tokens_shown(|n| n.to_string()),
            budget::cost(&used)
        );
    }
    if status.questions > 0 {
        let show = data.call("questions");
        let _ = writeln!(text, "waiting  {} question(s) for you: `{show}`", status.questions);
    }
    let YakCounts { hairy, shaving, shorn } = status.yaks;
    let yaks = [("hairy", hairy), ("shaving", shaving), ("shorn", shorn)];
    let _ = writeln!(text, "yaks     {}", counts(&yaks));
    if status.teams.known > 0 {
        let _ = writeln!(text, "teams    {}, {} awake", status.teams.known, status.teams.awake);
    }
    runs(&mut text, &status.runs, data);
    calls(&mut text, &status.calls.tools);
    text.trim_end().to_owned()
}

/// As many runs as are shown that nobody works on; `runs` has all.
const RUNS_SHOWN: usize = 10;

/// Adds the runs, those under way first.
fn runs(text: &mut String, runs: &[RunAtAGlance], data: &DataFiles) {
    // None has begun in a run that waits for its first agent.
    let iteration = |run: &RunAtAGlance| match run.iteration {
        Some(number) => format!("iteration {number}, "),
        None => String::new(),
    };
    let (open, rest): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.under_way);
    for run in open {
        let watch = data.call(&format!("watch {}", run.name));
        let _ = writeln!(
            text,
            "run      {}: {}, {}{}; `{watch}`",
            run.name,
            run.phase,
            iteration(run),
            items(&run.items)
        );
    }
    for run in rest.iter().take(RUNS_SHOWN) {
        let complete = if run.complete { ", complete" } else { "" };
        let _ = writeln!(
            text,
            "run      {}: {} ({}{} note(s){complete})",
            run.name,
            items(&run.items),
            iteration(run),
            run.notes
        );
    }
    if let Some(more @ 1..) = rest.len().checked_sub(RUNS_SHOWN) {
        let _ = writeln!(text, "         and {more} more: `{}`", data.call("runs"));
    }
}

/// As many tools as are shown to people; `--json` has all.
const TOOLS_SHOWN: usize = 5;

/// Adds what was called most since the hub started.
fn calls(text: &mut String, tools: &[ToolCalls]) {
    let mut tools: Vec<&ToolCalls> = tools.iter().collect();
    tools.sort_by_key(|tool| std::cmp::Reverse(tool.tally.calls));
    let sum = |of: fn(&Tally) -> u64| tools.iter().map(|tool| of(&tool.tally)).sum::<u64>();
    let all = Failures {
        refused: sum(|tally| tally.failures.refused),
        failed: sum(|tally| tally.failures.failed),
        abandoned: sum(|tally| tally.failures.abandoned),
    };
    let n_calls = sum(|tally| tally.calls);
    let _ = writeln!(text, "calls    {n_calls} since the hub started{}", failures(&all));
    // A time that is not known is null, as in JSON.
    let ms = |ms: Option<f64>| serde_json::Value::from(ms);
    for ToolCalls { tally, tool, .. } in tools.iter().take(TOOLS_SHOWN) {
        let _ = writeln!(
            text,
            "         {tool}: {}{}, p50 {} ms, p99 {} ms",
            tally.calls,
            failures(&tally.failures),
            ms(tally.p50_ms),
            ms(tally.p99_ms)
        );
    }
    if let Some(more @ 1..) = tools.len().checked_sub(TOOLS_SHOWN) {
        let _ = writeln!(text, "         and {more} more tool(s), with --json");
    }
}

/// Shows failures as «, 2 refused, 1 failed», leaving out what there is none of.
pub(super) fn failures(of: &Failures) -> String {
    let ways = [("refused", of.refused), ("failed", of.failed), ("abandoned", of.abandoned)];
    let some = ways.into_iter().filter(|(_, n)| *n > 0);
    some.map(|(way, n)| format!(", {n} {way}")).collect()
}

fn items(items: &ItemCounts) -> String {
    let ItemCounts { remaining, in_progress, completed, blocked, cancelled } = *items;
    counts(&[
        ("remaining", remaining),
        ("in progress", in_progress),
        ("completed", completed),
        ("blocked", blocked),
        ("cancelled", cancelled),
    ])
}

/// Shows counts as «3 remaining, 1 completed», leaving out what there is none of.
fn counts(counts: &[(&str, u32)]) -> String {
    let some = counts.iter().filter(|(_, n)| *n > 0);
    let some: Vec<String> = some.map(|(what, n)| format!("{n} {what}")).collect();
    if some.is_empty() { "none".into() } else { some.join(", ") }
}
