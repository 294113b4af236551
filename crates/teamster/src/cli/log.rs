//! `teamster log`: what has happened, and whether the log is whole.

use std::io::Write;

use anyhow::{Context, bail};
use serde_json::json;
use teamster_log::{CommitId, Hash, Head};

use super::{dim, local_time, print, say};
use crate::api::{Line, lines};
use crate::client::Client;
use crate::config::DataFiles;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct LogArgs {
    /// Go on as events happen
    #[arg(short, long)]
    follow: bool,

    /// Print JSON, a line for each event
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check every commit against the hash chain
    Verify {
        /// A head that an earlier check printed: the log must still contain it
        #[arg(long, value_name = "NUMBER:HASH")]
        against: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// How long one request waits for something to happen.
const WAIT_MS: u64 = 45_000;

pub(super) async fn run(data: &DataFiles, args: LogArgs) -> anyhow::Result<()> {
    match args.verb {
        Some(Verb::Verify { against, json }) => verify(data, against.as_deref(), json).await,
        None => show(data, args.follow, args.json).await,
    }
}

async fn show(data: &DataFiles, follow: bool, json: bool) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        if follow {
            bail!(
                "no hub is running for {}, so nothing will happen; start it with `teamster up -d`",
                data.directory().display()
            );
        }
        return show_stored(data, json).await;
    };
    let mut after = 0;
    loop {
        // The first requests catch up; only at the end is there something to wait for.
        let page = client
            .get(&format!("/api/log?after={after}&wait_ms={}", if follow { WAIT_MS } else { 0 }))
            .await?;
        let last = page["last"].as_u64().context("the hub's answer has no end")?;
        let lines: Vec<Line> = serde_json::from_value(page["lines"].clone())?;
        print_lines(&lines, json)?;
        if last == after && !follow {
            return Ok(());
        }
        after = last;
    }
}

/// Reads the log of a hub that is not running.
async fn show_stored(data: &DataFiles, json: bool) -> anyhow::Result<()> {
    let log = teamster_log::open_readonly(data.directory())?;
    let mut after = 0;
    loop {
        let commits = log.read(after, 1_000).await?;
        let Some(last) = commits.last() else { return Ok(()) };
        after = last.number;
        for commit in &commits {
            print_lines(&lines(commit)?, json)?;
        }
    }
}

fn print_lines(lines: &[Line], json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for line in lines {
        if json {
            serde_json::to_writer(&mut stdout, line).map_err(std::io::Error::from)?;
            stdout.write_all(b"\n")?;
        } else {
            let run = line.run.as_ref().map(|run| format!("{run}: ")).unwrap_or_default();
            let before = dim(&format!("{:>6}  {}", line.seq, local_time(line.at)));
            writeln!(stdout, "{before}  {:<12} {run}{}", line.by.as_str(), line.summary)?;
        }
    }
    stdout.flush()?;
    Ok(())
}

async fn verify(data: &DataFiles, against: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let expected = against.map(read_head).transpose()?;
    let log = teamster_log::open_readonly(data.directory())?;
    let report = teamster_log::verify(log.as_ref(), expected).await?;
    let head = format!("{}:{}", report.sound.number, report.sound.hash);
    if as_json {
        let broken = report
            .broken
            .as_ref()
            .map(|broken| json!({"commit": broken.number, "why": broken.why}));
        print(
            &json!({"commits": report.sound.number, "head": head, "broken": broken, "damage": report.damage})
                .to_string(),
        )?;
    } else if report.broken.is_none() && report.damage.is_none() {
        print(&head)?;
        say(&format!(
            "all {} commits are whole; keep the line above to check against it later",
            report.sound.number
        ));
    }
    if let (None, Some(damage)) = (&report.broken, &report.damage) {
        if as_json {
            return Err(super::Refused.into());
        }
        bail!(
            "all {} commits are whole, but the database is damaged: {damage}",
            report.sound.number
        );
    }
    match report.broken {
        Some(broken) if !as_json => {
            bail!(
                "commit {} is broken: {}; the {} before it are whole",
                broken.number,
                broken.why,
                report.sound.number
            )
        }
        Some(_) => Err(super::Refused.into()),
        None => Ok(()),
    }
}

fn read_head(text: &str) -> anyhow::Result<Head> {
    let parts = text
        .trim()
        .split_once(':')
        .and_then(|(number, hash)| Some((number.parse().ok()?, hash.parse().ok()?)));
    let (number, hash): (u64, Hash) = parts.with_context(|| {
        format!("{text:?} is not a head; `teamster log verify` prints one: NUMBER:HASH")
    })?;
    // The id is part of what is hashed, so the hash says enough.
    Ok(Head { number, id: None::<CommitId>, hash })
}
