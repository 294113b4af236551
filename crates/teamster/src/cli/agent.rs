//! `teamster draft`, `await`, `kill`, `agents`, `agent show` and `dossiers`: agents for people.

pub(super) mod render;

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{connect_to_hub, dim, fitted, print, print_json, records, say};
use teamster_agents::agent::Event;
use teamster_api::agents::{
    Agent, Draft, DraftLimits, Ending, Isolation, Outcome, Phase, ReadTranscript, Verdict,
};
use teamster_api::paths::ListAgents;
use teamster_api::{Client, ListQuery};
use teamster_hub::api::ENDED_PAGE;
use teamster_hub::config::DataFiles;
use teamster_hub::settings::Money;

#[derive(Debug, clap::Args)]
pub(super) struct DraftArgs {
    /// The role that the agent plays; `teamster roles` lists them
    role: String,

    /// Its task; `-` reads it from stdin
    prompt: String,

    /// The dossier it belongs to; what its earlier agents found is told to the new one
    #[arg(long, value_name = "SLUG")]
    dossier: Option<String>,

    /// Where it works [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// What it and all that it drafts may cost, in dollars [default: as its role says]
    #[arg(long, value_name = "DOLLARS", value_parser = money)]
    budget: Option<Money>,

    /// How many tokens they may use
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,

    /// How many turns they may have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,

    /// How many minutes they may take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,

    /// Show what it does, and wait until it has ended
    #[arg(short, long)]
    wait: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct OneArgs {
    /// The agent's id, such as coder-3
    id: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AgentsArgs {
    /// Also those that have ended
    #[arg(short, long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    verb: AgentVerb,
}

#[derive(Debug, clap::Subcommand)]
enum AgentVerb {
    /// Show an agent: its task, what it did, and what came of it
    Show {
        /// The agent's id, such as coder-3
        id: String,
        /// Go on as it works
        #[arg(short, long)]
        follow: bool,
        /// Print what it was told to do and nothing else, whole
        #[arg(long, conflicts_with_all = ["follow", "json"])]
        prompt: bool,
        /// Print JSON, a line for each record
        #[arg(long)]
        json: bool,
    },
    /// An id where a verb belongs
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Debug, clap::Args)]
pub(super) struct DossiersArgs {
    /// Show what came of one of them
    slug: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long one request waits for something to happen.
const WAIT_MS: u64 = 45_000;

pub(super) async fn draft(data: &DataFiles, args: DraftArgs) -> anyhow::Result<()> {
    let directory = directory(args.dir.as_deref())?;
    let mut prompt = args.prompt;
    if prompt == "-" {
        prompt.clear();
        std::io::stdin().read_to_string(&mut prompt).context("cannot read the task from stdin")?;
    }
    let mut client = connect_to_hub(data).await?;
    let wall_ms = args.minutes.map(|minutes| u64::from(minutes) * 60_000);
    let limits = DraftLimits {
        turns: args.turns,
        wall_ms,
        microdollars: args.budget.map(Money::micros),
        tokens: args.tokens,
    };
    let (role, dossier) = (args.role, args.dossier);
    let draft = Draft { role, prompt, dossier, directory: Some(directory), limits };
    let drafted = client.draft_agent(&draft).await?;
    if let Some(says) = &drafted.warning {
        say(&format!("warning: {says}"));
    }
    let Agent { id, dossier, isolation, .. } = &drafted.agent;
    if !args.wait {
        if args.json {
            return print_json(&drafted);
        }
        print(id)?;
        say(&format!("it belongs to the dossier {dossier}{}", isolated(*isolation)));
        say(&format!("follow it with `{}`", data.call(&format!("agent show {id} --follow"))));
        return Ok(());
    }
    if args.json {
        // The first of many lines: whoever reads them knows at once whom they are about.
        print_json(&drafted)?;
    } else {
        say(&format!("{id} is drafted for {dossier}{}", isolated(*isolation)));
    }
    follow(&mut client, id, true, args.json).await?;
    finish(&mut client, id, args.json).await
}

fn isolated(isolation: Option<Isolation>) -> String {
    isolation.map(|one| format!("; isolation: {}", render::isolation(one))).unwrap_or_default()
}

/// Returns a directory as the hub has to know it.
pub(super) fn directory(given: Option<&std::path::Path>) -> anyhow::Result<String> {
    let directory = match given {
        Some(dir) => std::fs::canonicalize(dir)
            .with_context(|| format!("there is no directory {}", dir.display()))?,
        None => {
            std::env::current_dir().context("the current directory is gone; name one with --dir")?
        }
    };
    let text = directory.to_str().with_context(|| {
        format!("{} has a name that is not text; name another with --dir", directory.display())
    })?;
    Ok(text.to_owned())
}

fn money(text: &str) -> anyhow::Result<Money> {
    let dollars = text.trim().trim_start_matches('$').parse().ok();
    dollars.and_then(Money::from_dollars).context("write an amount of dollars, such as 2.50")
}

/// Shows what came of an agent; fails if it did.
async fn finish(client: &mut Client, id: &str, as_json: bool) -> anyhow::Result<()> {
    let details = client.show_agent(id).await?;
    if as_json {
        print_json(&details)?;
    } else {
        print(&render::outcome(&details.agent))?;
    }
    let is_good =
        |outcome: Outcome| outcome.ending == Ending::Completed && outcome.status != Verdict::Failed;
    if details.agent.outcome.is_some_and(is_good) { Ok(()) } else { Err(super::Refused.into()) }
}

pub(super) async fn wait(data: &DataFiles, args: OneArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    loop {
        let answer = call(&mut client, "await_agent", &args.id).await?;
        if answer["status"] != "running" {
            return finish(&mut client, &args.id, args.json).await;
        }
        say(&format!("{} still works", args.id));
    }
}

pub(super) async fn kill(data: &DataFiles, args: OneArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    loop {
        let answer = call(&mut client, "kill_agent", &args.id).await?;
        if answer["success"] == true {
            if args.json {
                return print(&answer.to_string());
            }
            say(answer["message"].as_str().unwrap_or("it is gone"));
            return Ok(());
        }
        say(answer["message"].as_str().unwrap_or("it is being ended"));
    }
}

async fn call(client: &mut Client, tool: &str, id: &str) -> anyhow::Result<Value> {
    let (text, failed) =
        client.call_tool("/mcp/agents", tool, &json!({"agentId": id}), None).await?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({"message": text}));
    if failed {
        bail!("{}", in_our_words(answer["message"].as_str().unwrap_or("the hub refused")));
    }
    Ok(answer)
}

/// A tool's sentence names tools; people have verbs.
pub(super) fn in_our_words(message: &str) -> String {
    let words = [
        ("list_agents", "`teamster agents --all`"),
        ("list_tasks", "`teamster dossiers`"),
        ("team_teams", "`teamster teams`"),
    ];
    words.iter().fold(message.to_owned(), |text, (tool, verb)| text.replace(tool, verb))
}

/// Those that sleep or have ended do nothing.
pub(super) fn is_under_way(agent: &Agent) -> bool {
    !matches!(agent.phase, Phase::Ended | Phase::Asleep)
}

pub(super) async fn list(data: &DataFiles, args: AgentsArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let agents = client.all::<ListAgents, _>(&ListQuery::default()).await?;
    let wanted: Vec<&Agent> =
        agents.iter().filter(|agent| args.all || is_under_way(agent)).collect();
    if args.json {
        print_json(&wanted)?;
    } else if !wanted.is_empty() {
        print(fitted(&render::table(&wanted)).trim_end())?;
    } else if args.all {
        say("there are no agents yet; `teamster draft` starts one");
    } else {
        say("no agent is under way; `teamster agents --all` shows those that sleep or have ended");
    }
    let n_ended = wanted.iter().filter(|agent| agent.phase == Phase::Ended).count();
    if args.all && n_ended >= ENDED_PAGE {
        say(&format!(
            "of those that have ended, the newest {ENDED_PAGE} are shown; `{}` tells of all",
            data.call("log")
        ));
    }
    Ok(())
}

pub(super) async fn agent(data: &DataFiles, args: AgentArgs) -> anyhow::Result<()> {
    let (id, go_on, json) = match args.verb {
        AgentVerb::Show { id, prompt: true, .. } => {
            return prompts(&mut connect_to_hub(data).await?, &id).await;
        }
        AgentVerb::Show { id, follow, json, prompt: false } => (id, follow, json),
        AgentVerb::Other(words) => {
            let id = words.first().map_or("ID", String::as_str);
            bail!(
                "{id:?} is no verb; to look at an agent, `{}`",
                data.call(&format!("agent show {id}"))
            );
        }
    };
    let mut client = connect_to_hub(data).await?;
    if !json {
        let details = client.show_agent(&id).await?;
        print(render::head(&details).trim_end())?;
    }
    follow(&mut client, &id, go_on, json).await?;
    if json {
        return Ok(());
    }
    let agent = client.show_agent(&id).await?.agent;
    if agent.outcome.is_none() { Ok(()) } else { print(&render::outcome(&agent)) }
}

/// Prints what an agent was told to do: what its program was given, or if that was not yet or is forgotten, its task.
async fn prompts(client: &mut Client, id: &str) -> anyhow::Result<()> {
    let mut given: Vec<String> = Vec::new();
    // Prompts that follow each other are one.
    let (mut after, mut goes_on) = (0, false);
    loop {
        let asked = ReadTranscript { after, ..ReadTranscript::default() };
        let page = client.read_transcript(id, &asked).await?;
        for record in &page.records {
            let text = match records::event(record) {
                Some(Event::Prompted { text }) => Some(text),
                _ => None,
            };
            goes_on &= text.is_some();
            match (text, given.last_mut().filter(|_| goes_on)) {
                (Some(more), Some(last)) => last.push_str(&more),
                (Some(text), None) => {
                    given.push(text);
                    goes_on = true;
                }
                (None, _) => {}
            }
        }
        if page.last == after {
            break;
        }
        after = page.last;
    }
    if given.is_empty() {
        given.push(client.show_agent(id).await?.prompt);
    }
    print(render::plain(&given.join("\n\n")).trim_end())
}

/// Prints the transcript, and goes on until the agent has ended if so told. Then it also says what a queued agent waits
/// for, since such an agent adds nothing to its transcript.
async fn follow(client: &mut Client, id: &str, go_on: bool, as_json: bool) -> anyhow::Result<()> {
    let mut after = 0;
    let mut caught_up = false;
    let mut said = None;
    loop {
        let wait_ms = if caught_up { WAIT_MS } else { 0 };
        let asked = ReadTranscript { after, wait_ms, ..ReadTranscript::default() };
        let page = client.read_transcript(id, &asked).await?;
        let forgotten = page.forgotten;
        if forgotten > after && !as_json {
            print(&dim(&format!("(the records up to {forgotten} were removed)")))?;
        }
        for record in &page.records {
            if as_json {
                print(&record.to_string())?;
            } else if let Some(text) = records::event(record).as_ref().and_then(render::record) {
                print(&text)?;
            }
        }
        if page.last == after {
            if !go_on || !page.live {
                return Ok(());
            }
            let waits_for = client.show_agent(id).await?.agent.waits_for;
            if let Some(why) = waits_for.as_ref().filter(|_| waits_for != said) {
                say(&render::line(&format!("{id} waits: {why}")));
            }
            said = waits_for;
            caught_up = true;
        }
        after = page.last;
    }
}

pub(super) async fn dossiers(data: &DataFiles, args: DossiersArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    if let Some(slug) = args.slug {
        let arguments = json!({"taskSlug": slug});
        let (text, failed) =
            client.call_tool("/mcp/agents", "get_task_context", &arguments, None).await?;
        let answer: Value = serde_json::from_str(&text)?;
        if failed {
            bail!("{}", in_our_words(answer["message"].as_str().unwrap_or("the hub refused")));
        }
        return if args.json {
            print(&text)
        } else {
            print(answer["context"].as_str().unwrap_or_default().trim_end())
        };
    }
    let mut cursor = None;
    let mut text = String::new();
    let mut all = Vec::new();
    loop {
        let arguments = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
        let (page, _) = client.call_tool("/mcp/agents", "list_tasks", &arguments, None).await?;
        let page: Value = serde_json::from_str(&page)?;
        for task in page["tasks"].as_array().into_iter().flatten() {
            let word = |name: &str| task[name].as_str().unwrap_or_default().to_owned();
            let _ = writeln!(
                text,
                "{:<36} {:>3} agent(s)  {}",
                word("slug"),
                task["dispatchCount"],
                word("description")
            );
            all.push(task.clone());
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if args.json {
        return print(&json!(all).to_string());
    }
    if all.is_empty() {
        say("there are no dossiers yet; `teamster draft` opens one");
        return Ok(());
    }
    print(fitted(&text).trim_end())
}
