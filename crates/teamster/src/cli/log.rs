//! `teamster log`: what has happened, whether the log is whole, and the two ways to change what it says.

mod compact;
mod redact;
mod rewrite;

use std::collections::VecDeque;
use std::io::Write;

use anyhow::{Context, bail};
use serde_json::json;
use teamster_core::{Event, Timestamp, hub};
use teamster_log::{CommitId, Hash, Head, Log};

use super::{dim, local_time, print, say};
use teamster_api::Client;
use teamster_api::events::{self, Missed};
use teamster_api::log::{Line, ReadLog};
use teamster_hub::api::lines;
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct LogArgs {
    /// Go on as events happen
    #[arg(short, long)]
    follow: bool,

    /// Only the last N events of those there are
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,

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
    /// Take a text, given on stdin, out of the log, as for a leaked secret; the hub must be stopped
    Redact,
    /// Leave out the events that nothing depends on any more; the hub must be stopped
    Compact(compact::CompactArgs),
}

pub(super) async fn run(data: &DataFiles, args: LogArgs) -> anyhow::Result<()> {
    match args.verb {
        Some(Verb::Verify { against, json }) => verify(data, against.as_deref(), json).await,
        Some(Verb::Redact) => redact::run(data).await,
        Some(Verb::Compact(args)) => compact::run(data, args).await,
        None => show(data, &args).await,
    }
}

async fn show(data: &DataFiles, args: &LogArgs) -> anyhow::Result<()> {
    let mut printer = Printer { json: args.json, last: args.last, held: VecDeque::new() };
    let Some(mut client) = Client::connect_if_running(data).await? else {
        if args.follow {
            bail!(
                "no hub is running for {}, so nothing will happen; start it with `{}`",
                data.directory().display(),
                data.call("up -d")
            );
        }
        return show_stored(data, printer).await;
    };
    let mut stream = client.follow(0).await?;
    let mut caught_up = false;
    loop {
        match stream.next().await {
            Ok(Some(events::Event::Log(page))) => printer.take(page.lines)?,
            Ok(Some(events::Event::Current(_))) if !args.follow => return printer.release(),
            Ok(Some(events::Event::Current(_))) => {
                caught_up = true;
                printer.release()?;
            }
            Ok(Some(events::Event::Missed(missed))) => {
                printer.take(left_out(&mut client, missed).await?)?
            }
            Ok(Some(events::Event::Transcript(_))) => {}
            Ok(None) | Err(_) if caught_up => {
                say("the hub has stopped");
                return Ok(());
            }
            Ok(None) => bail!("the hub stopped before the end of its log"),
            Err(error) => return Err(error),
        }
    }
}

/// Reads what the stream left out because we printed too slowly.
async fn left_out(client: &mut Client, missed: Missed) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut after = missed.after;
    while after < missed.up_to {
        let page = client.read_log(&ReadLog { after, limit: None, wait_ms: 0 }).await?;
        if page.last == after {
            break;
        }
        after = page.last;
        lines.extend(page.lines.into_iter().filter(|line| line.commit <= missed.up_to));
    }
    Ok(lines)
}

/// Reads the log of a hub that is not running.
async fn show_stored(data: &DataFiles, mut printer: Printer) -> anyhow::Result<()> {
    let log = teamster_log::open_readonly(data.directory())?;
    let mut after = 0;
    loop {
        let commits = log.read(after, 1_000).await?;
        let Some(last) = commits.last() else { return printer.release() };
        after = last.number;
        for commit in &commits {
            printer.take(lines(commit)?)?;
        }
    }
}

/// Prints lines, or holds back the last few until it is known which those are.
struct Printer {
    json: bool,
    last: Option<usize>,
    held: VecDeque<Line>,
}

impl Printer {
    fn take(&mut self, lines: Vec<Line>) -> anyhow::Result<()> {
        let Some(last) = self.last else { return self.print(&lines) };
        self.held.extend(lines);
        self.held.drain(..self.held.len().saturating_sub(last));
        Ok(())
    }

    /// Prints what was held back, and whatever comes from now on at once.
    fn release(&mut self) -> anyhow::Result<()> {
        self.last = None;
        let held: Vec<Line> = std::mem::take(&mut self.held).into();
        self.print(&held)
    }

    fn print(&self, lines: &[Line]) -> anyhow::Result<()> {
        let mut stdout = std::io::stdout().lock();
        for line in lines {
            if self.json {
                serde_json::to_writer(&mut stdout, line).map_err(std::io::Error::from)?;
                stdout.write_all(b"\n")?;
            } else {
                let run = line.run.as_ref().map(|run| format!("{run}: ")).unwrap_or_default();
                let before = dim(&format!("{:>6}  {}", line.seq, local_time(Timestamp(line.at))));
                writeln!(stdout, "{before}  {:<12} {run}{}", line.by, line.summary)?;
            }
        }
        stdout.flush()?;
        Ok(())
    }
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
            if let Some(expected) = expected
                && let Some(done) = rewritten_since(log.as_ref(), expected).await?
            {
                bail!(
                    "that head is from before the log was written anew ({done}); keep a newer one"
                );
            }
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

/// Returns what was done to the log on purpose after it had the head `expected`, if anything was.
async fn rewritten_since(log: &dyn Log, expected: Head) -> anyhow::Result<Option<String>> {
    let mut last = None;
    rewrite::replay(log, |body| {
        for event in body.records.iter().flat_map(|record| &record.events) {
            if let Event::Hub(hub::Event::Rewritten { before, .. }) = event
                && read_head(before).is_ok_and(|before| before.number >= expected.number)
            {
                last = Some(event.summary().text);
            }
        }
    })
    .await?;
    Ok(last)
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
