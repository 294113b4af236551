//! A run line by line, for logs and pipes: what happens in it and what its agents say and do, until it is over.

mod summary;
mod tells;

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use teamster_core::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::tells::{Tells, Told};
use super::model::Watched as _;
use super::{code, goes_on};
use crate::cli::{Ended, is_broken_pipe, local_time, print, print_json, say};
use teamster_api::agents::{ReadTranscript, Transcript};
use teamster_api::log::{Line, ReadLog};
use teamster_api::paths::{self, ListAgents};
use teamster_api::questions::{ListQuestions, Question};
use teamster_api::runs::{ShowRun, ShownRun, Steer};
use teamster_api::{Client, Endpoint, ListQuery, Lost, Nothing};
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::DataFiles;
use teamster_hub::tasks;

/// One request waits no longer than the hub lets it.
const WAIT_MS: u64 = 40_000;
/// However much an agent says, it is asked for no more often.
const PAUSE: Duration = Duration::from_millis(200);
/// As many records as a page of a transcript has when there may be more.
const RECORDS_PAGE: usize = 200;
/// As many pages of transcripts as may wait to be printed; who reads more waits, too.
const SAID_MAX: usize = 8;
/// When nothing has happened for so long, what is waited for is told.
const QUIET_MS: i64 = 60_000;
/// An agent that is to start and has not by then is told to wait.
const QUEUED_MS: i64 = 3_000;
/// How an iteration ended is told after what its agent said last, if that comes in time.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(2);
/// Nobody may see what is printed, so a hub is not waited for forever.
const GONE_MAX: Duration = Duration::from_secs(30);
/// The exit code of whoever has waited for it in vain.
const GONE: u8 = 8;
/// Whoever stops us kills us soon if we do not go.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// What a signal to us means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum OnSignal {
    /// It is ours: it stops, and costs nothing any more.
    Stop,
    /// We only look on.
    Leave,
}

/// Prints what happens in a run until it is over.
pub(in crate::cli) struct Follow<'a> {
    pub(in crate::cli) name: &'a str,
    pub(in crate::cli) json: bool,
    /// The last commit of the log before it began.
    pub(in crate::cli) after: u64,
    pub(in crate::cli) on_signal: OnSignal,
}

/// What the log says, and how the run stands after it.
struct News {
    lines: Vec<Line>,
    view: ShownRun,
}

/// What an agent said.
struct Said {
    agent: String,
    directory: String,
    records: Vec<Value>,
    is_end: bool,
}

impl Follow<'_> {
    pub(in crate::cli) async fn run(
        &self,
        data: &DataFiles,
        client: &mut Client,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let mut following = std::pin::pin!(self.to_its_end(data, client));
        let code = tokio::select! {
            followed = &mut following => match followed {
                // Nobody reads it any more, as after a signal.
                Err(error) if is_broken_pipe(&error) && self.on_signal == OnSignal::Stop => {
                    self.stop(data).await?;
                    return Err(Ended(141).into());
                }
                followed => return self.end(data, &followed?),
            },
            code = signals.next() => code,
        };
        if self.on_signal == OnSignal::Leave {
            let watch = data.call(&format!("watch {}", self.name));
            say(&format!("{} goes on; `{watch}` shows it again", self.name));
            return Err(Ended(code).into());
        }
        let stopping = async {
            if self.stop(data).await? {
                // How it ends is printed as well.
                if let Ok(view) = tokio::time::timeout(STOP_WAIT, &mut following).await {
                    let _ = self.end(data, &view?);
                    return Ok(());
                }
                let again = data.call(&format!("run --resume --name {}", self.name));
                say(&format!("stopped; `{again}` goes on"));
            }
            anyhow::Ok(())
        };
        tokio::select! {
            stopped = stopping => stopped?,
            // Who says it twice does not want to wait.
            _ = signals.next() => {}
        }
        Err(Ended(code).into())
    }

    /// Has the hub stop the run at once; returns whether there is one.
    async fn stop(&self, data: &DataFiles) -> anyhow::Result<bool> {
        // Its agents have ended with the hub, but it goes on when there is another.
        let Some(mut client) = Client::connect_if_running(data).await? else {
            let name = self.name;
            let (up, stop) = (data.call("up -d"), data.call(&format!("steer {name} stop")));
            say(&format!(
                "the hub is gone; {name} goes on when it runs again (`{up}`), unless `{stop}` ends it then"
            ));
            return Ok(false);
        };
        client.steer_run(self.name, &Steer::Stop { now: true }).await?;
        Ok(true)
    }

    /// Prints what happens until the run is over, and returns how it stands then.
    async fn to_its_end(&self, data: &DataFiles, client: &mut Client) -> anyhow::Result<ShownRun> {
        let run = client.show_run(self.name, &ShowRun::default()).await?.run;
        let (begun_at, resumed_at) = (run.line.begun_at, run.line.resumed_at);
        let mut tells = Tells::new(self.name, &data.call("answer"), run);
        let since_ms = match self.on_signal {
            // What was said before it was resumed was shown then.
            OnSignal::Stop => resumed_at.or(begun_at),
            OnSignal::Leave => Some(SystemClock.now().0),
        };
        let mut printer = Printer::new(self.json, &tells);
        if self.on_signal == OnSignal::Leave {
            let open = ListQuestions::default();
            for question in &client.all::<paths::ListQuestions, _>(&open).await? {
                if let Some(told) = tells.question(question, SystemClock.now()) {
                    printer.also(question, &told)?;
                }
            }
        }
        let (news, mut log) = mpsc::channel(1);
        let reads = read_log(data.clone(), self.name.to_owned(), self.after, news);
        let _log = Aborted(vec![tasks::spawn("follow the log", reads)]);
        let (words, mut said) = mpsc::channel(SAID_MAX);
        let mut readers = Aborted(Vec::new());
        let mut read_more = |tells: &mut Tells| {
            for agent in tells.unread() {
                if !self.json {
                    readers.0.retain(|task| !task.is_finished());
                    let reads = read_agent(data.clone(), agent, since_ms, words.clone());
                    readers.0.push(tasks::spawn("read a transcript", reads));
                }
            }
        };
        loop {
            read_more(&mut tells);
            let quiet_at = Timestamp(printer.last.0.saturating_add(QUIET_MS));
            let queued_at = tells.queued_since().map(|at| at.0.saturating_add(QUEUED_MS));
            let queued_at = queued_at.map_or(quiet_at, |at| quiet_at.min(Timestamp(at)));
            tokio::select! {
                biased;
                Some(said) = said.recv() => printer.all(tells.said(&said))?,
                news = log.recv() => {
                    let News { lines, view } = news.context("the log is not read any more")??;
                    tells.stands(view.run.clone());
                    for line in &lines {
                        if let Some(agent) = tells.ends(line).filter(|_| !self.json) {
                            // It may have begun just now.
                            read_more(&mut tells);
                            last_words(&agent, &mut tells, &mut said, &mut printer).await?;
                        }
                        let told = tells.event(line);
                        printer.line(line, line.run.as_deref() == Some(self.name), told)?;
                    }
                    if view.run.is_over() {
                        return Ok(view);
                    }
                }
                () = SystemClock.sleep_until(queued_at), if !self.json => {
                    let now = SystemClock.now();
                    if now >= quiet_at {
                        let since = printer.happened;
                        printer.all(tells.quiet(since, now))?;
                        (printer.last, printer.happened) = (now, since);
                    } else {
                        // Whoever reads the log tells that the hub is gone.
                        let agents = client.all::<ListAgents, _>(&ListQuery::default()).await;
                        printer.all(tells.queued(&agents.unwrap_or_default(), now))?;
                    }
                }
            }
        }
    }

    /// Prints how it ended; fails with the code that tells it.
    pub(in crate::cli) fn end(&self, data: &DataFiles, view: &ShownRun) -> anyhow::Result<()> {
        let run = &view.run;
        if self.json {
            print_json(view)?;
        } else {
            print(&summary::of(run))?;
        }
        // Nobody works off a list that agents and people only share.
        if run.begun_at.is_none() {
            return Ok(());
        }
        if let Some(says) = goes_on(data, self.name, run.phase).filter(|_| !self.json) {
            say(&says);
        }
        match code(run.phase) {
            0 => Ok(()),
            code => Err(Ended(code).into()),
        }
    }
}

/// Prints what an agent said before its iteration ended.
async fn last_words(
    agent: &str,
    tells: &mut Tells,
    said: &mut mpsc::Receiver<Said>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let all = async {
        while tells.is_read(agent) {
            let Some(said) = said.recv().await else { break };
            printer.all(tells.said(&said))?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LAST_WORDS_WAIT, all).await.unwrap_or(Ok(()))
}

/// Tasks that end with whoever started them.
struct Aborted(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The signals that ask us to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and returns the exit code that scripts know it by.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hang_up.recv() => 129,
        }
    }
}

/// Puts lines under each other: a time, who it is about where several work, and what is told.
struct Printer {
    json: bool,
    has_workers: bool,
    /// The time of the last line. None shows an earlier one, though a transcript is read a little later than the log.
    last: Timestamp,
    /// When something was told last that had happened.
    happened: Timestamp,
    day: String,
}

impl Printer {
    fn new(json: bool, tells: &Tells) -> Self {
        let now = SystemClock.now();
        let day = local_time(now).chars().take(10).collect();
        Self { json, has_workers: tells.has_workers(), last: now, happened: now, day }
    }

    /// Prints something that has happened; `is_whole` says that programs see it in any case.
    fn line(&mut self, line: &Line, is_whole: bool, told: Option<Told>) -> anyhow::Result<()> {
        match (self.json, told) {
            (true, told) if is_whole || told.is_some() => print_json(line),
            (true, _) | (false, None) => Ok(()),
            (false, Some(told)) => self.tell(&told),
        }
    }

    fn also(&mut self, question: &Question, told: &Told) -> anyhow::Result<()> {
        if self.json { print_json(&json!({"question": question})) } else { self.tell(told) }
    }

    fn all(&mut self, told: Vec<Told>) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        told.iter().try_for_each(|told| self.tell(told))
    }

    fn tell(&mut self, told: &Told) -> anyhow::Result<()> {
        self.last = self.last.max(told.at);
        self.happened = self.last;
        let at = local_time(self.last);
        let (day, time) = at.split_once(' ').unwrap_or(("", &at));
        if day != self.day {
            print(day)?;
            self.day = day.to_owned();
        }
        let worker = match (self.has_workers, told.worker) {
            (false, _) => String::new(),
            (true, None) => "    ".to_owned(),
            (true, Some(worker)) => format!("{:<4}", format!("w{}", worker + 1)),
        };
        print(&format!("{time}  {worker}{}", told.text))
    }
}

/// Tells what the log says about everything from a commit on, and how the run stands then.
async fn read_log(
    data: DataFiles,
    name: String,
    after: u64,
    news: mpsc::Sender<anyhow::Result<News>>,
) {
    let mut last = after;
    let mut client = match Client::connect(&data).await {
        Ok(client) => client,
        Err(error) => return drop(news.send(Err(error)).await),
    };
    loop {
        let next = async {
            let asked = ReadLog { after: last, limit: None, wait_ms: WAIT_MS };
            let page = get::<paths::ReadLog>(&data, &name, &mut client, "", &asked).await?;
            let mut lines = page.lines;
            let is_more = page.last != last;
            last = page.last;
            let now = ShowRun::default();
            let view = get::<paths::ShowRun>(&data, &name, &mut client, &name, &now).await?;
            while view.run.is_over() {
                let asked = ReadLog { after: last, ..ReadLog::default() };
                let page = get::<paths::ReadLog>(&data, &name, &mut client, "", &asked).await?;
                if page.lines.is_empty() {
                    break;
                }
                lines.extend(page.lines);
                last = page.last;
            }
            anyhow::Ok((News { lines, view }, is_more))
        };
        let next = next.await;
        // A hub that ends answers at once.
        let waits = next.as_ref().is_ok_and(|(_, is_more)| !is_more);
        let is_last = next.as_ref().map_or(true, |(news, _)| news.view.run.is_over());
        if news.send(next.map(|(news, _)| news)).await.is_err() || is_last {
            return;
        }
        if waits {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Reads something of the hub, or of the next one, from where the last one was left.
async fn get<E: Endpoint<Body = Nothing>>(
    data: &DataFiles,
    name: &str,
    client: &mut Client,
    param: &str,
    query: &E::Query,
) -> anyhow::Result<E::Answer> {
    loop {
        let error = match client.send::<E>(param, query, &Nothing {}).await {
            Err(error) if error.is::<Lost>() => error,
            answer => return answer,
        };
        // A connection can end without the hub.
        if let Ok(Some(again)) = Client::connect_if_running(data).await {
            *client = again;
            continue;
        }
        let up = data.call("up -d");
        say(&format!("the hub is gone; `{up}` starts it, and {name} goes on then"));
        if tokio::time::timeout(GONE_MAX, client.connect_again()).await.is_err() {
            return Err(error.context(Ended(GONE)));
        }
        say("the hub is back");
    }
}

/// Reads an agent's transcript to its end, from one hub to the next.
async fn read_agent(
    data: DataFiles,
    agent: String,
    since_ms: Option<i64>,
    words: mpsc::Sender<Said>,
) {
    let Ok(mut client) = Client::connect(&data).await else { return };
    let known = client.send_patiently::<paths::ShowAgent>(&agent, &Nothing {}, || {}).await;
    let directory = known.map(|known| known.agent.directory).unwrap_or_default();
    let (mut after, mut was_end) = (0, false);
    loop {
        let asked = ReadTranscript { after, limit: None, wait_ms: WAIT_MS, since_ms };
        // One that cannot be read is left out; how its iteration ends is told all the same.
        let page = client.send_patiently::<paths::ReadTranscript>(&agent, &asked, || {}).await;
        let unread = |_| Transcript { last: after, ..Transcript::default() };
        let Transcript { records, last, live, .. } = page.unwrap_or_else(unread);
        after = last;
        // What was written last may have come after the page was read.
        let seems_end = records.is_empty() && !live;
        let (is_end, n_records) = (seems_end && was_end, records.len());
        was_end = seems_end;
        if n_records > 0 || is_end {
            let (agent, directory) = (agent.clone(), directory.clone());
            let said = Said { agent, directory, records, is_end };
            if words.send(said).await.is_err() || is_end {
                return;
            }
        }
        if n_records < RECORDS_PAGE && !seems_end {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
