//! `teamster budget`: what agents have used up, and what is left, as a tree.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use serde_json::{Value, json};
use teamster_core::spending::{Spent, dollars};

use super::{connect_to_hub, print, say};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct BudgetArgs {
    /// The agent at the top; without one, all trees that are under way
    id: Option<String>,

    /// Also trees that have ended
    #[arg(short, long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, args: BudgetArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let agents = client.get("/api/agents").await?;
    let agents = agents.as_array().context("the hub's answer is no list")?;
    let by_id: BTreeMap<&str, &Value> =
        agents.iter().map(|agent| (word(agent, "id"), agent)).collect();
    let mut children: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for agent in agents {
        // One whose parent is no longer at hand stands at the top.
        let parent = agent["parent"].as_str().filter(|parent| by_id.contains_key(parent));
        children.entry(parent.unwrap_or_default()).or_default().push(agent);
    }
    let is_live = super::agent::is_under_way;
    let any_live = |top: &Value| has(top, &children, &is_live);
    let tops: Vec<&Value> = match &args.id {
        Some(id) => {
            let found = by_id.get(id.as_str()).copied();
            vec![found.with_context(|| {
                format!("there is no agent {id:?}; `teamster agents --all` shows those there are")
            })?]
        }
        None => {
            let tops = children.get("").into_iter().flatten().copied();
            tops.filter(|top| args.all || any_live(top)).collect()
        }
    };
    if args.json {
        let tree: Vec<Value> = tops.iter().map(|top| as_json(top, &children)).collect();
        return print(&json!(tree).to_string());
    }
    if tops.is_empty() {
        say("no agent is under way; `teamster budget --all` shows those that have ended");
        return Ok(());
    }
    let mut text =
        format!("{:<28} {:<9} {:>16} {:>22} {:>9}\n", "agent", "phase", "tokens", "cost", "turns");
    for top in tops {
        rows(&mut text, top, &children, 0);
    }
    print(text.trim_end())
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn has(
    agent: &Value,
    children: &BTreeMap<&str, Vec<&Value>>,
    wanted: &impl Fn(&Value) -> bool,
) -> bool {
    let below = children.get(word(agent, "id")).into_iter().flatten();
    wanted(agent) || below.into_iter().any(|child| has(child, children, wanted))
}

fn as_json(agent: &Value, children: &BTreeMap<&str, Vec<&Value>>) -> Value {
    let below = children.get(word(agent, "id")).into_iter().flatten();
    let below: Vec<Value> = below.map(|child| as_json(child, children)).collect();
    json!({
        "id": agent["id"], "phase": agent["phase"], "used": agent["used"], "spent": agent["spent"],
        "limits": agent["limits"], "turns": agent["turns"], "parked_until": agent["parked_until"], "below": below,
    })
}

/// An agent, and those below it, further in.
fn rows(text: &mut String, agent: &Value, children: &BTreeMap<&str, Vec<&Value>>, depth: usize) {
    let spent: Spent = serde_json::from_value(agent["spent"].clone()).unwrap_or_default();
    let limits = &agent["limits"];
    let tokens = match (spent.is_whole(), spent.is_reported()) {
        (true, _) => spent.tokens().to_string(),
        (false, true) => format!("at least {}", spent.tokens()),
        (false, false) => "not reported".to_owned(),
    };
    let tokens = of(tokens, limits["tokens"].as_u64().map(|n| n.to_string()));
    let cost = of(cost(&spent), limits["microdollars"].as_u64().map(dollars));
    let turns = of(agent["turns"].to_string(), limits["turns"].as_u64().map(|n| n.to_string()));
    let name = format!("{}{}", "  ".repeat(depth), word(agent, "id"));
    let phase = if agent["parked_until"].is_null() { word(agent, "phase") } else { "parked" };
    let _ = writeln!(text, "{name:<28} {phase:<9} {tokens:>16} {cost:>22} {turns:>9}");
    for child in children.get(word(agent, "id")).into_iter().flatten() {
        rows(text, child, children, depth + 1);
    }
}

fn of(used: String, limit: Option<String>) -> String {
    match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => used,
    }
}

/// What is not known is said to be unknown, never nothing.
pub(super) fn cost(spent: &Spent) -> String {
    match (spent.n_priced, spent.n_unpriced) {
        (0, 0) => "-".to_owned(),
        (0, _) => "unknown".to_owned(),
        (_, 0) => dollars(spent.microdollars),
        (_, _) => format!("{} + unknown", dollars(spent.microdollars)),
    }
}
