//! `teamster tell`, `cancel`, `wake`, `sleep`, `team` and `teams`: other projects' agents for people.

mod edit;
mod table;

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{connect_to_hub, print, say};
use crate::client::Client;
use crate::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct TellArgs {
    /// The team
    team: String,

    /// What to tell it; `-` reads it from stdin
    message: String,

    /// The team to speak for [default: yourself]
    #[arg(long, value_name = "TEAM")]
    from: Option<String>,

    /// Do not wait for the answer
    #[arg(long)]
    no_wait: bool,

    /// How long to wait for the answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    timeout: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct WakeArgs {
    /// The team
    team: String,

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

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) use self::edit::{TeamArgs, run as team};

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
    let path = format!("/api/tells/{}/cancel", crate::client::in_path(&args.message));
    let answer = client.post(&path, &json!({})).await?;
    if args.json {
        print(&answer.to_string())?;
    } else if answer["cancelled"] == true {
        print(&format!("{} is taken back", args.message))?;
    } else {
        bail!(
            "{} was begun already; `{}` ends its agent's turn",
            args.message,
            data.call("sleep TEAM")
        );
    }
    Ok(())
}

/// One request waits no longer than the hub lets it.
const WAIT_MS: u64 = 40_000;

pub(super) async fn tell(data: &DataFiles, args: TellArgs) -> anyhow::Result<()> {
    let mut message = args.message;
    if message == "-" {
        message.clear();
        std::io::stdin()
            .read_to_string(&mut message)
            .context("cannot read the message from stdin")?;
    }
    let mut client = connect_to_hub(data).await?;
    // The message is sent once; its answer is waited for by reading it again, however long that takes.
    let asked =
        json!({"to": args.team, "message": message, "from": args.from, "wait": !args.no_wait});
    let told = client.post("/api/tells", &asked).await?;
    let (session, tell) = (word(&told, "sessionId"), word(&told, "tellId"));
    if args.no_wait {
        if args.json {
            return print(&told.to_string());
        }
        print(tell)?;
        say(&format!("its answer will be in `{}`", data.call(&format!("transcript {session}"))));
        return Ok(());
    }
    let mut left_ms = u64::from(args.timeout) * 1_000;
    loop {
        let wait_ms = left_ms.min(WAIT_MS);
        let path = format!("/api/tells/{tell}?wait_ms={wait_ms}");
        let answer = client.get(&path).await?;
        left_ms -= wait_ms;
        if answer["status"] == "queued" || answer["status"] == "active" {
            if left_ms > 0 {
                say(&format!("{} still works on it", args.team));
                continue;
            }
            if args.json {
                print(&answer.to_string())?;
            } else {
                print(word(&answer, "answer"))?;
                say(&format!(
                    "that is what it has said so far; the rest will be in `{}`",
                    data.call(&format!("transcript {session}"))
                ));
            }
            return Err(super::Refused.into());
        }
        if args.json {
            print(&answer.to_string())?;
        } else if !word(&answer, "answer").is_empty() {
            print(word(&answer, "answer"))?;
        }
        if answer["status"] == "completed" {
            return Ok(());
        }
        say(&format!("{}: {}", word(&answer, "status"), word(&answer, "reason")));
        return Err(super::Refused.into());
    }
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

async fn call(client: &mut Client, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
    let (text, failed) = client.call_tool("/mcp/teams", tool, arguments, None).await?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({"message": text}));
    if failed {
        bail!("{}", answer["message"].as_str().unwrap_or("the hub refused"));
    }
    Ok(answer)
}

pub(super) async fn wake(data: &DataFiles, args: WakeArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let arguments = json!({"team": args.team, "fromTeam": args.from, "clearCache": false});
    let answer = call(&mut client, "team_wake", &arguments).await?;
    if args.json { print(&answer.to_string()) } else { print(word(&answer, "message")) }
}

pub(super) async fn sleep(data: &DataFiles, args: SleepArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let arguments = json!({"team": args.team, "fromTeam": args.from, "force": args.all});
    let answer = call(&mut client, "team_sleep", &arguments).await?;
    if args.json { print(&answer.to_string()) } else { print(word(&answer, "message")) }
}

pub(super) async fn teams(data: &DataFiles, args: TeamsArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    if args.json {
        let details = json!({"includeProcessDetails": true});
        return print(&call(&mut client, "team_teams", &details).await?.to_string());
    }
    if args.once || !std::io::stdout().is_terminal() {
        return table::print_once(&mut client).await;
    }
    table::show(&mut client).await
}
