//! `teamster budget`: what agents have used up, and what is left, as a tree.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use teamster_api::agents::{Agent, Limits, Phase};
use teamster_api::paths::ListAgents;
use teamster_api::{ListQuery, Millis, spending};
use teamster_core::spending::{Spent, dollars};

use super::{connect_to_hub, print, print_json, say};
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
    let agents = client.all::<ListAgents, _>(&ListQuery::default()).await?;
    let by_id: BTreeMap<&str, &Agent> =
        agents.iter().map(|agent| (agent.id.as_str(), agent)).collect();
    let mut children: BTreeMap<&str, Vec<&Agent>> = BTreeMap::new();
    for agent in &agents {
        // One whose parent is no longer at hand stands at the top.
        let parent = agent.parent.as_deref().filter(|parent| by_id.contains_key(parent));
        children.entry(parent.unwrap_or_default()).or_default().push(agent);
    }
    let is_live = super::agent::is_under_way;
    let any_live = |top: &Agent| has(top, &children, &is_live);
    let tops: Vec<&Agent> = match &args.id {
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
        return print_json(&tops.iter().map(|top| tree(top, &children)).collect::<Vec<_>>());
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

fn has(
    agent: &Agent,
    children: &BTreeMap<&str, Vec<&Agent>>,
    wanted: &impl Fn(&Agent) -> bool,
) -> bool {
    let below = children.get(agent.id.as_str()).into_iter().flatten();
    wanted(agent) || below.into_iter().any(|child| has(child, children, wanted))
}

/// An agent with those below it, as JSON has it.
#[derive(serde::Serialize)]
struct Tree<'a> {
    id: &'a str,
    phase: Phase,
    used: spending::Spent,
    spent: spending::Spent,
    limits: &'a Limits,
    turns: u32,
    parked_until: Option<Millis>,
    below: Vec<Tree<'a>>,
}

fn tree<'a>(agent: &'a Agent, children: &BTreeMap<&str, Vec<&'a Agent>>) -> Tree<'a> {
    let below = children.get(agent.id.as_str()).into_iter().flatten();
    Tree {
        id: &agent.id,
        phase: agent.phase,
        used: agent.used,
        spent: agent.spent,
        limits: &agent.limits,
        turns: agent.turns,
        parked_until: agent.parked_until,
        below: below.map(|child| tree(child, children)).collect(),
    }
}

/// An agent, and those below it, further in.
fn rows(text: &mut String, agent: &Agent, children: &BTreeMap<&str, Vec<&Agent>>, depth: usize) {
    let spent = sum(&agent.spent);
    let limits = &agent.limits;
    let tokens = match (spent.is_whole(), spent.is_reported()) {
        (true, _) => spent.tokens().to_string(),
        (false, true) => format!("at least {}", spent.tokens()),
        (false, false) => "not reported".to_owned(),
    };
    let tokens = of(tokens, limits.tokens.map(|n| n.to_string()));
    let cost = of(cost(&spent), limits.microdollars.map(dollars));
    let turns = of(agent.turns.to_string(), limits.turns.map(|n| n.to_string()));
    let name = format!("{}{}", "  ".repeat(depth), agent.id);
    let phase = if agent.parked_until.is_none() { agent.phase.as_str() } else { "parked" };
    let _ = writeln!(text, "{name:<28} {phase:<9} {tokens:>16} {cost:>22} {turns:>9}");
    for child in children.get(agent.id.as_str()).into_iter().flatten() {
        rows(text, child, children, depth + 1);
    }
}

/// Returns what turns used as sums, in which tokens that were not reported are 0.
pub(super) fn sum(spent: &spending::Spent) -> Spent {
    Spent {
        input: spent.input.unwrap_or_default(),
        output: spent.output.unwrap_or_default(),
        cached_read: spent.cached_read.unwrap_or_default(),
        cached_write: spent.cached_write.unwrap_or_default(),
        microdollars: spent.microdollars,
        n_priced: spent.n_priced,
        n_unpriced: spent.n_unpriced,
        n_unreported: spent.n_unreported,
        n_partial: spent.n_partial,
        calls: spent.calls,
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
