//! `teamster tell`, `cancel`, `wake`, `sleep`, `team` and `teams`: other projects' agents for people.

mod edit;
mod table;
mod tell;

use anyhow::bail;
use serde_json::{Value, json};

use super::agent::in_our_words;
use super::{connect_to_hub, print, print_json, say};
use teamster_api::Client;
use teamster_api::tells::{CancelledTell, Status};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct WakeArgs {
    /// The team
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    team: Option<String>,

    /// All teams
    #[arg(long)]
    all: bool,

    /// The team to speak for [default: yourself]
    #[arg(long, value_name = "TEAM")]
    from: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct SleepArgs {
    /// The team
    team: String,

    /// The team to speak for [default: yourself]
    #[arg(long, value_name = "TEAM")]
    from: Option<String>,

    /// All of its agents, whoever talks to them
    #[arg(long)]
    all: bool,

    /// Kill the process at once instead of asking it to end
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) use self::edit::{TeamArgs, run as team};
pub(super) use self::tell::{TellArgs, run as tell};

#[derive(Debug, clap::Args)]
pub(super) struct TeamsArgs {
    /// Print the table once, also on a terminal
    #[arg(long)]
    once: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct CancelArgs {
    /// The message, such as TELL-3
    message: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn cancel(data: &DataFiles, args: CancelArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let answer = client.cancel_tell(&args.message).await?;
    let CancelledTell { tell_id: id, cancelled: is_cancelled, status } = &answer;
    if args.json {
        print_json(&answer)?;
    } else if *is_cancelled {
        print(&format!("{id} is taken back"))?;
    } else {
        say(&match status {
            Some(Status::Active) => format!(
                "{id} is being answered already; `{}` ends its agent's turn",
                data.call("sleep TEAM")
            ),
            Some(Status::Cancelled) => format!("{id} was taken back already"),
            Some(Status::Terminated) => format!("{id} was terminated already"),
            Some(Status::Queued | Status::Completed) | None => {
                format!("{id} was answered already")
            }
        });
    }
    if *is_cancelled { Ok(()) } else { Err(super::Refused.into()) }
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

async fn call(client: &mut Client, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
    let (text, failed) = client.call_tool("/mcp/teams", tool, arguments, None).await?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({"message": text}));
    if failed {
        bail!("{}", hinted(answer["message"].as_str().unwrap_or("the hub refused")));
    }
    Ok(answer)
}

/// Says what was refused in words for people, and how there can be a team that is unknown.
fn hinted(message: &str) -> String {
    let message = in_our_words(message);
    if !message.starts_with("Unknown team: ") {
        return message;
    }
    let name = message.trim_start_matches("Unknown team: ").split(". Known").next();
    let name = name.filter(|name| !name.contains(char::is_whitespace)).unwrap_or("NAME").to_owned();
    format!("{message}; add it with `teamster team add {name} PATH`")
}

pub(super) async fn wake(data: &DataFiles, args: WakeArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    if args.all {
        let answer = call(&mut client, "team_wake_all", &json!({"fromTeam": args.from})).await?;
        if args.json {
            print(&answer.to_string())?;
        }
        for one in answer["results"].as_array().into_iter().flatten().filter(|_| !args.json) {
            match one["error"].as_str() {
                Some(error) => say(&format!("{}: {error}", word(one, "team"))),
                None => print(word(one, "message"))?,
            }
        }
        return if answer["failureCount"] == 0 { Ok(()) } else { Err(super::Refused.into()) };
    }
    let arguments = json!({"team": args.team, "fromTeam": args.from, "clearCache": false});
    let answer = call(&mut client, "team_wake", &arguments).await?;
    if args.json { print(&answer.to_string()) } else { print(word(&answer, "message")) }
}

pub(super) async fn sleep(data: &DataFiles, args: SleepArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let arguments =
        json!({"team": args.team, "fromTeam": args.from, "force": args.force, "all": args.all});
    let answer = call(&mut client, "team_sleep", &arguments).await?;
    if args.json {
        return print(&answer.to_string());
    }
    let message = word(&answer, "message");
    if args.all {
        return print(message);
    }
    // A tool's sentence is for agents, who know of no conversation but their own.
    let team = word(&answer, "team");
    let own = match &args.from {
        Some(from) => format!("{from}'s conversation with {team}"),
        None => format!("your conversation with {team}"),
    };
    print(&message.replacen(&format!("Team {team}"), &own, 1))?;
    let awake = table::awake_in(&mut client, team).await?;
    if !awake.is_empty() {
        let all = data.call(&format!("sleep {team} --all"));
        say(&format!("{team} is awake for {}; `{all}` ends these, too", awake.join(", ")));
    }
    Ok(())
}

pub(super) async fn teams(data: &DataFiles, args: TeamsArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    if args.json {
        let details = json!({"includeProcessDetails": true});
        let mut answer = call(&mut client, "team_teams", &details).await?;
        table::add_conversations(&mut client, &mut answer).await?;
        return print(&answer.to_string());
    }
    if args.once || !super::run::has_whole_terminal() {
        return table::print_once(&mut client).await;
    }
    table::show(&mut client).await
}
