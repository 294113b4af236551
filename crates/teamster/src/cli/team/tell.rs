//! `teamster tell`: a message to a team, and its answer. The message is sent once and kept by the hub; the answer is waited
//! for by reading how the message stands, from the next hub if this one goes away.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use teamster_core::conversation::{MESSAGE_BYTES_MAX, Refusal};
use tokio::time::Instant;

use super::hinted;
use crate::cli::{Refused, connect_to_hub, print, print_json, say};
use teamster_api::tells::{NewTell, ShowTell, Status, Tell};
use teamster_api::{Client, Lost};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TellArgs {
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

/// One request waits no longer than the hub lets it; and so often somebody is told how it stands who sees no terminal.
const WAIT: Duration = Duration::from_secs(40);

pub(in crate::cli) async fn run(data: &DataFiles, args: TellArgs) -> anyhow::Result<()> {
    let mut message = args.message;
    if message == "-" {
        message.clear();
        std::io::stdin()
            .read_to_string(&mut message)
            .context("cannot read the message from stdin")?;
    }
    // One that is far too long would be cut off on its way.
    if message.len() > MESSAGE_BYTES_MAX {
        bail!(Refusal::MessageTooLong);
    }
    let mut client = connect_to_hub(data).await?;
    let new = NewTell { to: args.team, from: args.from, message, wait: !args.no_wait };
    let told = client.tell_team(&new).await;
    let told = told.map_err(|error| anyhow!("{}", hinted(&format!("{error:#}"))))?;
    let (session, tell) = (told.session_id.as_str(), told.tell_id.as_str());
    let later = data.call(&format!("transcript {session}"));
    if args.no_wait {
        if args.json {
            return print_json(&told);
        }
        print(tell)?;
        say(&format!("its answer will be in `{later}`"));
        return Ok(());
    }
    let waiting = Waiting { tell, stands: String::new(), is_there: true };
    let timeout = Duration::from_secs(args.timeout.into());
    let (waiting, answer) = tokio::select! {
        waited = waiting.wait(&mut client, Instant::now() + timeout) => waited?,
        _ = tokio::signal::ctrl_c() => {
            let cancel = data.call(&format!("cancel {tell}"));
            say(&format!(
                "{tell} is kept all the same: its answer will be in `{later}`; `{cancel}` takes it back if it is not begun"
            ));
            return Err(Refused.into());
        }
    };
    match &answer {
        Some(known) if args.json => print_json(known)?,
        None if args.json => print(&json!({"tellId": tell, "status": "queued"}).to_string())?,
        Some(known) if !known.answer.is_empty() => print(&known.answer)?,
        Some(_) | None => {}
    }
    let Tell { status, reason, answer, .. } = answer.unwrap_or_default();
    match status {
        Status::Completed => return Ok(()),
        Status::Terminated => {
            say(&format!("{tell} was terminated: {}", reason.unwrap_or_default()));
        }
        Status::Cancelled => say(&format!("{tell} was taken back")),
        _ if !waiting.is_there => say(&format!(
            "{tell} is kept and goes on when the hub runs again (`{}`); then its answer will be in `{later}`",
            data.call("up -d")
        )),
        Status::Active if !answer.is_empty() => {
            say(&format!("that is what it has said so far; the rest will be in `{later}`"));
        }
        Status::Active => say(&format!(
            "{tell} {}, and nothing was said so far; the answer will be in `{later}`",
            waiting.stands
        )),
        Status::Queued => say(&format!(
            "{tell} {}; its answer will be in `{later}`; `{}` takes it back",
            waiting.stands,
            data.call(&format!("cancel {tell}"))
        )),
    }
    Err(Refused.into())
}

/// A message whose answer is waited for.
struct Waiting<'a> {
    tell: &'a str,
    /// How it stands, as the person was told.
    stands: String,
    /// The hub is.
    is_there: bool,
}

impl Waiting<'_> {
    /// Waits until the message is settled or the time is over; returns how it stands then, as far as that is known.
    async fn wait(
        mut self,
        client: &mut Client,
        until: Instant,
    ) -> anyhow::Result<(Self, Option<Tell>)> {
        let mut known = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait_ms = u64::try_from(left.min(WAIT).as_millis()).unwrap_or_default();
            let asked = ShowTell { wait_ms, stands: Some(self.stands.clone()) };
            let now = match client.show_tell(self.tell, &asked).await {
                Err(error) if error.is::<Lost>() => {
                    let tell = self.tell;
                    say(&format!(
                        "the hub is gone; {tell} is kept, and this waits until it runs again"
                    ));
                    let again = client.connect_again();
                    self.is_there = tokio::time::timeout_at(until, again).await.is_ok();
                    if !self.is_there {
                        return Ok((self, known));
                    }
                    continue;
                }
                answer => answer?,
            };
            let is_settled = !matches!(now.status, Status::Queued | Status::Active);
            if is_settled || until <= Instant::now() {
                return Ok((self, Some(now)));
            }
            self.tell_how_it_stands(&now.stands);
            known = Some(now);
        }
    }

    /// On a terminal every change is told; where there is none, only what lasts.
    fn tell_how_it_stands(&mut self, stands: &str) {
        if std::io::stderr().is_terminal() || self.stands == stands {
            say(&format!("{} {stands}", self.tell));
        }
        stands.clone_into(&mut self.stands);
    }
}
