//! Shows a run on the whole terminal, and does what the person asks for meanwhile.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use teamster_agents::agent::Event;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;

use super::keys::{self, Edit, Effect};
use super::model::{Model, Watched as _, Writes};
use super::{code, ended, view};
use crate::cli::flags::in_flags;
use crate::cli::records;
use crate::cli::screen::{Input, PAUSE, Screen, WAIT_MS};
use crate::cli::{Ended, say};
use teamster_api::agents::ReadTranscript;
use teamster_api::runs::{Begin, Run, ShowRun};
use teamster_api::{Client, Lost, paths};
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::DataFiles;
use teamster_hub::tasks;

/// As much as may wait for the view; whoever has more waits too.
const NEWS_MAX: usize = 8;
/// As many requests as may wait for the hub.
const ASKED_MAX: usize = 16;
/// As many records as a page of a transcript has when there may be more.
const RECORDS_PAGE: usize = 200;

/// What the view is told.
enum News {
    Run(Box<Run>),
    Records {
        agent: String,
        records: Vec<Event>,
        is_end: bool,
    },
    Done(Done),
    /// The hub is gone, and is looked for.
    Gone,
    /// The run cannot be shown any more.
    Lost(anyhow::Error),
}

/// What came of something that was asked for.
struct Done {
    says: Result<String, String>,
    /// What the person wrote for it.
    written: Option<(Writes, String)>,
}

/// Something that is asked of the hub, one after the other.
enum HubRequest {
    Edit { what: Box<Edit>, says: String, written: Option<(Writes, String)> },
    Resume,
}

/// Shows the run until the person leaves it.
pub(in crate::cli) async fn show(data: &DataFiles, name: &str) -> anyhow::Result<()> {
    let mut client = crate::cli::connect_to_hub(data).await?;
    let run = client.show_run(name, &ShowRun::default()).await?.run;
    let screen = Screen::open("use --headless")?;
    let (news, mut told) = mpsc::channel(NEWS_MAX);
    let (asked, asking) = mpsc::channel(ASKED_MAX);
    let watcher = tasks::spawn("watch a run", watch(client, run.clone(), news.clone()));
    let asker =
        tasks::spawn("steer a run", ask(data.clone(), name.to_owned(), asking, news.clone()));
    let mut model = Model::new(run, SystemClock.now());
    model.starts_hub = data.call("up -d");
    let mut shown = Shown { data: data.clone(), screen, model, news, asked, reader: None };
    let left = shown.run(&mut told).await;
    let Shown { screen, model, reader, .. } = shown;
    // What is said now is for the person's own screen.
    drop(screen);
    [Some(watcher), Some(asker), reader.map(|(_, task)| task)]
        .iter()
        .flatten()
        .for_each(JoinHandle::abort);
    match left? {
        Left::Interrupted => super::interrupt(data, name).await,
        Left::Left if !model.run.is_over() && model.is_gone => {
            let (up, watch) = (data.call("up -d"), data.call(&format!("watch {name}")));
            say(&format!(
                "the hub is gone; `{up}` starts it, {name} goes on then, and `{watch}` shows it"
            ));
            Ok(())
        }
        Left::Left if !model.run.is_over() => {
            let watch = data.call(&format!("watch {name}"));
            say(&format!("{name} goes on; `{watch}` shows it again"));
            Ok(())
        }
        // Nobody has begun to work it off.
        Left::Left if model.run.begun_at.is_none() => Ok(()),
        Left::Left => {
            let run = &model.run;
            ended(data, name, run.phase, run.why.as_deref());
            match code(run.phase) {
                0 => Ok(()),
                code => Err(Ended(code).into()),
            }
        }
    }
}

enum Left {
    Left,
    Interrupted,
}

struct Shown {
    data: DataFiles,
    screen: Screen,
    model: Model,
    news: mpsc::Sender<News>,
    asked: mpsc::Sender<HubRequest>,
    /// Whose transcript is read, and who reads it.
    reader: Option<(String, JoinHandle<()>)>,
}

impl Shown {
    async fn run(&mut self, told: &mut mpsc::Receiver<News>) -> anyhow::Result<Left> {
        // So that the time it takes goes on.
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            self.read();
            self.model.now = SystemClock.now();
            let model = &mut self.model;
            self.screen.draw(|frame| {
                model.size = (frame.area().width, frame.area().height);
                view::draw(frame, model);
            })?;
            let is_over = self.model.run.is_over();
            tokio::select! {
                news = told.recv() => {
                    let Some(news) = news else { bail!("the view has lost the hub") };
                    self.take(news)?;
                    while let Ok(news) = told.try_recv() {
                        self.take(news)?;
                    }
                }
                input = self.screen.input() => {
                    let effect = match input {
                        Input::Key(key) => keys::press(&mut self.model, key),
                        Input::Paste(text) => {
                            keys::paste(&mut self.model, &text);
                            Effect::Nothing
                        }
                        Input::Other => Effect::Nothing,
                        Input::Gone => Effect::Leave,
                    };
                    match effect {
                        Effect::Nothing => {}
                        Effect::Ask { what, says, written } => {
                            self.ask(HubRequest::Edit { what, says, written });
                        }
                        Effect::Resume => self.ask(HubRequest::Resume),
                        Effect::Leave => return Ok(Left::Left),
                        Effect::Interrupt => return Ok(Left::Interrupted),
                    }
                }
                _ = seconds.tick(), if !is_over => {}
            }
        }
    }

    fn ask(&mut self, asked: HubRequest) {
        let (asked, says) = if self.model.is_gone {
            (Some(asked), "not sent: the hub is gone")
        } else {
            let refused = self.asked.try_send(asked).err();
            (refused.map(TrySendError::into_inner), "not sent: the hub is slow; try again")
        };
        let written = match asked {
            Some(HubRequest::Edit { written, .. }) => written,
            Some(HubRequest::Resume) => None,
            None => return,
        };
        self.model.take_done(Err(says.to_owned()), written);
    }

    fn take(&mut self, news: News) -> anyhow::Result<()> {
        match news {
            News::Run(run) => {
                self.model.is_gone = false;
                self.model.take_run(*run);
            }
            News::Gone => self.model.is_gone = true,
            News::Records { agent, records, is_end } => {
                self.model.take_records(&agent, &records, is_end);
            }
            News::Done(Done { says, written }) => self.model.take_done(says, written),
            News::Lost(error) => return Err(error),
        }
        Ok(())
    }

    /// Has the transcript read that is shown, and no other.
    fn read(&mut self) {
        let wanted = self.model.wants();
        if self.reader.as_ref().map(|(agent, _)| agent.as_str()) == wanted {
            return;
        }
        if let Some((_, task)) = self.reader.take() {
            task.abort();
        }
        if let Some(agent) = wanted.map(str::to_owned) {
            let task = read(self.data.clone(), agent.clone(), self.news.clone());
            self.reader = Some((agent, tasks::spawn("read a transcript", task)));
        }
    }
}

/// Tells how the run stands whenever that changes, or that the hub is gone, until it is back.
async fn watch(mut client: Client, run: Run, news: mpsc::Sender<News>) {
    let mut next = ShowRun { after: run.seq, wait_ms: WAIT_MS };
    loop {
        let told = match client.show_run(&run.name, &next).await {
            Ok(shown) => {
                next = ShowRun { after: shown.run.seq, wait_ms: WAIT_MS };
                News::Run(Box::new(shown.run))
            }
            Err(error) if error.is::<Lost>() => News::Gone,
            Err(error) => News::Lost(error),
        };
        let (is_gone, is_lost) = (matches!(told, News::Gone), matches!(told, News::Lost(_)));
        if news.send(told).await.is_err() || is_lost {
            return;
        }
        if is_gone {
            client.connect_again().await;
            // However it stands now, it is told at once.
            next = ShowRun::default();
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Reads a transcript from its first record to its end. If it cannot be read, the rest of the run can still be seen.
async fn read(data: DataFiles, agent: String, news: mpsc::Sender<News>) {
    if let Err(error) = read_all(&data, &agent, &news).await {
        let message = format!("its transcript cannot be read: {error:#}");
        let records = vec![Event::Trouble { message }];
        let _ = news.send(News::Records { agent, records, is_end: true }).await;
    }
}

async fn read_all(data: &DataFiles, agent: &str, news: &mpsc::Sender<News>) -> anyhow::Result<()> {
    let mut client = Client::connect_patiently(data).await;
    let (mut after, mut was_end) = (0, false);
    loop {
        let asked = ReadTranscript { after, wait_ms: WAIT_MS, ..ReadTranscript::default() };
        // That the hub is gone is told by whoever watches the run; the next one is asked for what is still missing.
        let page = client.send_patiently::<paths::ReadTranscript>(agent, &asked, || ()).await?;
        after = page.last;
        // What was written last may have come after the page was read.
        let (records, is_live) = (page.records, page.live);
        let seems_end = records.is_empty() && !is_live;
        let (is_end, n_records) = (seems_end && was_end, records.len());
        was_end = seems_end;
        if n_records > 0 || is_end {
            let agent = agent.to_owned();
            let records = records.iter().filter_map(records::event).collect();
            if news.send(News::Records { agent, records, is_end }).await.is_err() || is_end {
                return Ok(());
            }
        }
        // Of one that has ended all is there.
        if n_records < RECORDS_PAGE && is_live {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks the hub for one thing after the other.
async fn ask(
    data: DataFiles,
    name: String,
    mut asking: mpsc::Receiver<HubRequest>,
    news: mpsc::Sender<News>,
) {
    while let Some(asked) = asking.recv().await {
        let (done, written) = match asked {
            HubRequest::Edit { what, says, written } => {
                (edit(&data, &name, &what).await.map(|()| says), written)
            }
            HubRequest::Resume => {
                (resume(&data, &name).await.map(|()| "it goes on".to_owned()), None)
            }
        };
        let says = done.map_err(|error| match error.downcast_ref::<Lost>() {
            // When the hub is back, what is shown tells.
            Some(lost) => format!("{lost}: it may have got this, or not"),
            None => in_flags(&error),
        });
        if news.send(News::Done(Done { says, written })).await.is_err() {
            return;
        }
    }
}

async fn edit(data: &DataFiles, name: &str, what: &Edit) -> anyhow::Result<()> {
    let mut client = Client::connect(data).await?;
    match what {
        Edit::Steer(how) => drop(client.steer_run(name, how).await?),
        Edit::Item(edit) => drop(client.edit_item(name, edit).await?),
        Edit::Note(edit) => drop(client.edit_note(name, edit).await?),
    }
    Ok(())
}

/// Goes on with a run on the terms that it had; its spec is read again.
async fn resume(data: &DataFiles, name: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(data).await?;
    let known = client.show_run(name, &ShowRun::default()).await?.run.line;
    let file = known.file.context("nobody has begun to work it off")?;
    let spec = super::reading::read(Path::new(&file), data.directory())?;
    let (name, directory) = (name.to_owned(), known.directory.unwrap_or_default());
    let begin = Begin { name, spec, file, directory, resume: true, ..Begin::default() };
    client.begin_run(&begin).await?;
    Ok(())
}
