//! `teamster transcript`: what was said in a conversation, and what its agent did meanwhile, from the first record on.

mod markdown;
mod terminal;

use std::fmt::Write as _;

use serde_json::{Value, json};
use teamster_core::Timestamp;
use teamster_core::ids::TellId;

use super::{connect_to_hub, put, records, say};
use teamster_agents::agent::Event;
use teamster_api::agents::ReadTranscript;
use teamster_api::conversations::{Conversation, FindConversation, Message};
use teamster_api::tells::{ShowTell, Status};
use teamster_api::{Client, paths};
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct TranscriptArgs {
    #[command(flatten)]
    which: Which,

    /// Go on until interrupted, also while the agent sleeps
    #[arg(long, short)]
    follow: bool,

    /// Leave out what is from before: a time as 2026-11-15T12:00:00Z, or how long ago, as 10m, 2h or 1d
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,

    /// Print one JSON record per line
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print a document, for an issue or a wiki
    #[arg(long)]
    markdown: bool,
}

/// Names a conversation.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The conversation, such as CONV-1, or who told
    from: String,

    /// The team that was told
    to: Option<String>,
}

impl Which {
    pub(super) async fn find(&self, client: &mut Client) -> anyhow::Result<Conversation> {
        match &self.to {
            None => client.show_conversation(&self.from).await,
            Some(to) => {
                let pair = FindConversation { from: self.from.clone(), to: to.clone() };
                client.find_conversation(&pair).await
            }
        }
    }
}

/// One request waits no longer than the hub lets it.
const WAIT_MS: u64 = 40_000;

/// From when on.
#[derive(Debug, Clone, Copy)]
enum Since {
    At(Timestamp),
    Ago { ms: i64 },
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Since::At(Timestamp(at.as_millisecond())));
    }
    let unit_ms = match text.chars().last() {
        Some('s') => 1_000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        Some('w') => 7 * 86_400_000,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|text| text.parse::<u32>().ok());
    match number.and_then(|n| i64::from(n).checked_mul(unit_ms)).filter(|_| unit_ms > 0) {
        Some(ms) => Ok(Since::Ago { ms }),
        None => {
            Err("write a time as 2026-11-15T12:00:00Z, or how long ago, as 10m, 2h or 1d".into())
        }
    }
}

/// Something of a conversation, in the order in which it happened.
enum Shown<'a> {
    /// A record as it is stored, and what it tells, unless a newer hub wrote it.
    Record(&'a Value, Option<&'a Event>),
    /// A message that its agent never began with.
    Unbegun(&'a Message),
    /// What came of a message, where the transcript does not say so.
    Came { tell: &'a str, status: Status, reason: &'a str },
    /// Records up to this number were removed; the first that is left is from this time, in milliseconds since 1970.
    Forgotten { up_to: u64, left_ms: Option<i64> },
}

/// A way to show a conversation, piece by piece. What it returns is printed as it is.
trait Look {
    fn show(&mut self, shown: &Shown<'_>) -> String;

    /// Returns what is left to print.
    fn end(&mut self) -> String;
}

/// Each piece as a line of JSON.
struct Lines;

impl Look for Lines {
    fn show(&mut self, shown: &Shown<'_>) -> String {
        let value = match shown {
            Shown::Record(record, _) => (*record).clone(),
            Shown::Unbegun(tell) => json!({"type": "message", "tell": tell}),
            Shown::Came { tell, status, reason } => {
                json!({"type": "came", "tell": tell, "status": status, "reason": reason})
            }
            Shown::Forgotten { up_to, left_ms } => {
                json!({"type": "forgotten", "up_to": up_to, "left_ms": left_ms})
            }
        };
        escaped(&value.to_string()) + "\n"
    }

    fn end(&mut self) -> String {
        String::new()
    }
}

/// JSON need not escape these, but a terminal may obey them.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

pub(super) async fn run(data: &DataFiles, args: TranscriptArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let conversation = args.which.find(&mut client).await?;
    let since_ms = args.since.map(|since| match since {
        Since::At(at) => at.0,
        Since::Ago { ms } => SystemClock.now().0.saturating_sub(ms),
    });
    let mut look: Box<dyn Look> = match (args.json, args.markdown) {
        (true, _) => Box::new(Lines),
        (false, true) => Box::new(markdown::Markdown::new(&conversation)),
        (false, false) => Box::new(terminal::Terminal::new(&conversation)),
    };
    let talk = Talk { client, conversation, look: &mut *look, since_ms, open: None };
    talk.show(args.follow).await
}

fn say_lost() {
    say("the hub is gone; when it runs again, this goes on");
}

/// A conversation that is being shown. Of what was shown it keeps nothing but the message under way.
struct Talk<'a> {
    client: Client,
    conversation: Conversation,
    look: &'a mut dyn Look,
    since_ms: Option<i64>,
    /// The message that the last records were about, if it was not said what came of it.
    open: Option<String>,
}

impl Talk<'_> {
    async fn show(mut self, follow: bool) -> anyhow::Result<()> {
        let agent = self.conversation.agent.clone();
        let mut unbegun = self.unbegun();
        let (mut after, mut is_first, mut caught_up) = (0, true, false);
        loop {
            let wait_ms = if caught_up { WAIT_MS } else { 0 };
            let since_ms = self.since_ms.filter(|_| is_first);
            let asked = ReadTranscript { after, limit: None, wait_ms, since_ms };
            let page = match follow {
                true => {
                    let read = self
                        .client
                        .send_patiently::<paths::ReadTranscript>(&agent, &asked, say_lost);
                    read.await?
                }
                false => self.client.read_transcript(&agent, &asked).await?,
            };
            let forgotten = page.forgotten;
            if forgotten > after && self.since_ms.is_none() {
                let left_ms = page.records.first().and_then(records::at_ms);
                put(&self.look.show(&Shown::Forgotten { up_to: forgotten, left_ms }))?;
            }
            for record in &page.records {
                let event = records::event(record);
                if let Some(Event::Told { tell, .. }) = &event {
                    let before = number(tell);
                    while unbegun.last().is_some_and(|tell| number(&tell.id) < before) {
                        self.print_unbegun(unbegun.pop())?;
                    }
                }
                self.show_record(record, event.as_ref()).await?;
            }
            let is_end = page.last == after || (is_first && page.records.is_empty());
            (after, is_first) = (page.last, false);
            if !is_end {
                continue;
            }
            while let Some(tell) = unbegun.pop() {
                self.print_unbegun(Some(tell))?;
            }
            if !follow || !page.live {
                break;
            }
            caught_up = true;
        }
        self.close_open().await?;
        put(&self.look.end())
    }

    async fn show_record(&mut self, record: &Value, event: Option<&Event>) -> anyhow::Result<()> {
        match event {
            Some(Event::Told { tell, .. }) if Some(tell) != self.open.as_ref() => {
                self.close_open().await?;
                self.open = Some(tell.clone());
            }
            Some(Event::Settled { tell, .. }) if Some(tell) == self.open.as_ref() => {
                self.open = None;
            }
            _ => {}
        }
        put(&self.look.show(&Shown::Record(record, event)))
    }

    /// Says what came of the last message, if its records did not: its agent was cut off and did not go on.
    async fn close_open(&mut self) -> anyhow::Result<()> {
        let Some(tell) = self.open.take() else { return Ok(()) };
        // One that is too long ago is not at hand any more.
        let Ok(known) = self.client.show_tell(&tell, &ShowTell::default()).await else {
            return Ok(());
        };
        let (status, reason) = (known.status, known.reason.as_deref().unwrap_or_default());
        if status == Status::Active {
            return Ok(());
        }
        put(&self.look.show(&Shown::Came { tell: &tell, status, reason }))
    }

    /// Returns the messages that were never begun, newest first.
    fn unbegun(&self) -> Vec<Message> {
        let is_shown =
            |tell: &&Message| !tell.begun && self.since_ms.is_none_or(|since| tell.at >= since);
        self.conversation.tells.iter().filter(is_shown).rev().cloned().collect()
    }

    fn print_unbegun(&mut self, tell: Option<Message>) -> anyhow::Result<()> {
        match tell {
            Some(tell) => put(&self.look.show(&Shown::Unbegun(&tell))),
            None => Ok(()),
        }
    }
}

/// Returns the number of a message, which are in the order in which they were sent.
fn number(id: &str) -> Option<u32> {
    TellId::parse(id).map(|id| id.0)
}

#[cfg(test)]
mod tests;
