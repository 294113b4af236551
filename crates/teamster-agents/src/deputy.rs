//! A deputy: a process of ours, held by a launcher as an agent is, that runs commands for the hub. It is for commands that
//! may start programs which agents have named, such as git in a repository of theirs: those see no more than agents do. One
//! launch for each would be too dear. It also handles files at paths that others name, for the same reason.

mod command;
mod files;
mod frames;
mod inside;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

pub use self::command::{
    Command, How, INPUT_BYTES_MAX, Output, STDERR_BYTES_MAX, STDOUT_BYTES_MAX,
};
pub use self::files::FileTask;
use self::frames::{Answer, Frames, Request, Work, frame};
pub(crate) use self::inside::serve;
use crate::isolation::Isolation;
use crate::launch::{Grace, LINGER, Launch, Terminate};
use crate::started::{self, Process, Started};
use crate::stdin::Stdin;
use crate::supervisor::{self, Supervisor};
use crate::verb;

/// A deputy takes no more commands after that, and ends when it has none: so does whatever they have left behind, and the
/// next one sees what was mounted meanwhile.
const LIFE: Duration = Duration::from_secs(60);
/// More at a time would only wait for each other.
const UNDER_WAY_MAX: usize = 16;
/// A deputy that has not ended a command so long after its time limit never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// A deputy that has not handled a file by then hangs, perhaps in a file system of an agent's.
const FILE_TIME_LIMIT: Duration = Duration::from_secs(60);
/// It ends with its input; what it does then is killed with it.
const GRACE: Grace =
    Grace { after_stdin: LINGER, terminate: Terminate::Program, after_terminate: Duration::ZERO };
/// As often another deputy is asked, if one ends before it has taken a command.
const TRIES_MAX: u32 = 3;

/// Why a command was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it cannot be started: {0}")]
    NotStarted(String),
    #[error("it cannot be started, for lack of a process that runs it")]
    NoDeputy(#[source] supervisor::Error),
    #[error("it is given {0} bytes to read, more than {INPUT_BYTES_MAX}")]
    InputTooLong(usize),
    #[error("the process that ran it ended; its last words: {stderr:?}")]
    Lost { stderr: String },
}

/// Runs commands, and handles files, in directories where agents work.
pub trait Hands: fmt::Debug + Send + Sync {
    /// Runs a command to its end. If this is given up, it is killed.
    fn run(&self, command: Command) -> BoxFuture<'_, Result<Output, Error>>;

    /// Handles a file at a path that others name. Returns what was read, if something was.
    fn file(&self, task: FileTask) -> BoxFuture<'_, io::Result<Vec<u8>>>;

    /// Ends the remaining processes when the hub stops.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// Our own hands: processes with our rights, for programs other than the hub.
#[derive(Debug)]
pub struct Own;

impl Hands for Own {
    fn run(&self, command: Command) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async {
            command::run(command).await.map_err(|error| Error::NotStarted(error.to_string()))
        })
    }

    fn file(&self, task: FileTask) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(async move { files::perform(&task) })
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Has commands run, by a process that is started when it is needed.
pub struct Deputy {
    supervisor: Supervisor,
    /// Returns a launch with a new id, and with what is hidden.
    launch: Box<dyn Fn(Isolation) -> Launch + Send + Sync>,
    current: tokio::sync::Mutex<Option<Arc<Line>>>,
    /// All that may not have ended yet.
    processes: Mutex<Vec<Process>>,
    room: Semaphore,
}

impl Hands for Deputy {
    fn run(&self, command: Command) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(Self::run(self, command))
    }

    fn file(&self, task: FileTask) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(Self::file(self, task))
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::end(self))
    }
}

impl fmt::Debug for Deputy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deputy").field("supervisor", &self.supervisor).finish_non_exhaustive()
    }
}

impl Deputy {
    pub fn new(
        supervisor: Supervisor,
        launch: impl Fn(Isolation) -> Launch + Send + Sync + 'static,
    ) -> Self {
        Self {
            supervisor,
            launch: Box::new(launch),
            current: tokio::sync::Mutex::default(),
            processes: Mutex::default(),
            room: Semaphore::new(UNDER_WAY_MAX),
        }
    }

    /// Runs a command. If this is given up, it is killed.
    pub async fn run(&self, mut command: Command) -> Result<Output, Error> {
        if command.input.len() > INPUT_BYTES_MAX {
            return Err(Error::InputTooLong(command.input.len()));
        }
        let (input, time_limit) = (std::mem::take(&mut command.input), command.time_limit);
        self.have_done(Work::Command(command), input, time_limit).await
    }

    /// Handles a file. Returns what was read, if something was.
    pub async fn file(&self, task: FileTask) -> io::Result<Vec<u8>> {
        match self.have_done(Work::File(task), Vec::new(), FILE_TIME_LIMIT).await {
            Ok(output) => Ok(output.stdout),
            Err(Error::NotStarted(why)) => Err(io::Error::other(why)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    async fn have_done(
        &self,
        work: Work,
        input: Vec<u8>,
        time_limit: Duration,
    ) -> Result<Output, Error> {
        // It is never closed.
        let _room = self.room.acquire().await;
        let mut request = Request::Do { id: 0, work: Box::new(work) };
        for _ in 0..TRIES_MAX {
            let line = self.line().await?;
            if let Some(answer) = line.ask(&mut request, &input).await? {
                return line.until_answered(answer, time_limit).await;
            }
        }
        Err(Error::Lost { stderr: String::new() })
    }

    /// Ends whatever is left of it, for a hub that ends.
    pub async fn end(&self) {
        drop(self.current.lock().await.take());
        let processes = std::mem::take(&mut *lock(&self.processes));
        for process in &processes {
            process.end(GRACE);
        }
        for process in &processes {
            process.exited().await;
        }
    }

    /// Returns the one that takes commands now.
    async fn line(&self) -> Result<Arc<Line>, Error> {
        let mut current = self.current.lock().await;
        match &*current {
            Some(line) if line.takes_commands() => Ok(line.clone()),
            _ => {
                let line = Arc::new(self.start().await.map_err(Error::NoDeputy)?);
                *current = Some(line.clone());
                Ok(line)
            }
        }
    }

    async fn start(&self) -> Result<Line, supervisor::Error> {
        let id = (self.launch)(Isolation::Group).id;
        let (isolation, _) = self.supervisor.strongest(&format!("probe-{id}")).await;
        let mut launch = (self.launch)(isolation);
        launch.program = self.supervisor.launcher().into();
        launch.lingers = true;
        launch.args = [verb::VERB, verb::DEPUTY].map(Into::into).into();
        let Started { process, stdin, stdout } = self.supervisor.launch(launch).await?;
        let mut processes = lock(&self.processes);
        processes.retain(|process| process.has_exited().is_none());
        processes.push(process.clone());
        drop(processes);
        let (requests, frames) = mpsc::channel(UNDER_WAY_MAX);
        let waiting = Arc::<Waiting>::default();
        self.supervisor.spawn("ask a deputy", send(frames, stdin, waiting.clone()));
        let answers = stdout.into_output();
        self.supervisor.spawn("hear a deputy", receive(answers, waiting.clone()));
        Ok(Line { process, requests, waiting, n_asked: AtomicU64::new(0) })
    }
}

type Ended = Result<Output, String>;

/// Those who wait for an answer.
#[derive(Default)]
struct Waiting {
    senders: Mutex<Senders>,
    fewer: Notify,
}

#[derive(Default)]
struct Senders {
    by_id: HashMap<u64, oneshot::Sender<Ended>>,
    /// Nothing will be answered any more.
    is_over: bool,
}

impl Waiting {
    fn take(&self, id: u64) -> Option<oneshot::Sender<Ended>> {
        let taken = lock(&self.senders).by_id.remove(&id);
        self.fewer.notify_one();
        taken
    }

    async fn until_none(&self) {
        while !lock(&self.senders).by_id.is_empty() {
            self.fewer.notified().await;
        }
    }
}

/// A deputy that was started.
struct Line {
    process: Process,
    requests: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Waiting>,
    n_asked: AtomicU64,
}

/// An answer that is to come.
struct Awaited {
    id: u64,
    ended: oneshot::Receiver<Ended>,
    line: Arc<Line>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if self.line.waiting.take(self.id).is_some()
            && let Ok(give_up) = frame(&Request::GiveUp { id: self.id }, [&[], &[]])
        {
            // If there is no room for it, the command ends at its time limit.
            let _ = self.line.requests.try_send(give_up);
        }
    }
}

impl Line {
    fn takes_commands(&self) -> bool {
        !self.requests.is_closed() && !lock(&self.waiting.senders).is_over
    }

    /// Returns nothing if it takes no commands any more.
    async fn ask(
        self: &Arc<Self>,
        request: &mut Request,
        input: &[u8],
    ) -> Result<Option<Awaited>, Error> {
        let number = self.n_asked.fetch_add(1, Ordering::Relaxed);
        if let Request::Do { id, .. } = request {
            *id = number;
        }
        let frame = frame(request, [input, &[]]);
        let frame = frame.map_err(|error| Error::NotStarted(error.to_string()))?;
        let (sender, ended) = oneshot::channel();
        {
            let mut senders = lock(&self.waiting.senders);
            if senders.is_over {
                return Ok(None);
            }
            senders.by_id.insert(number, sender);
        }
        let awaited = Awaited { id: number, ended, line: self.clone() };
        Ok(self.requests.send(frame).await.is_ok().then_some(awaited))
    }

    async fn until_answered(
        &self,
        mut awaited: Awaited,
        time_limit: Duration,
    ) -> Result<Output, Error> {
        match timeout(time_limit.saturating_add(PATIENCE), &mut awaited.ended).await {
            Ok(Ok(Ok(output))) => Ok(output),
            Ok(Ok(Err(why))) => Err(Error::NotStarted(why)),
            Ok(Err(_)) | Err(_) => {
                // What it runs can have stopped it.
                self.process.kill();
                self.process.exited().await;
                Err(Error::Lost { stderr: self.process.stderr_tail() })
            }
        }
    }
}

/// Passes requests on for as long as a deputy lives, and lets it end when all of them are answered.
async fn send(mut frames: mpsc::Receiver<Vec<u8>>, mut stdin: Stdin, waiting: Arc<Waiting>) {
    let mut life = pin!(sleep(LIFE));
    let mut is_old = false;
    loop {
        tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => if stdin.write_all(&frame).await.is_err() { break },
                None => break,
            },
            () = &mut life, if !is_old => {
                is_old = true;
                // Those that are in it are still received.
                frames.close();
            }
        }
    }
    frames.close();
    waiting.until_none().await;
    drop(stdin);
}

/// Hands answers to those who wait for them.
async fn receive(answers: started::Output, waiting: Arc<Waiting>) {
    let mut answers = Frames::new(answers, STDOUT_BYTES_MAX + STDERR_BYTES_MAX);
    // A deputy is our own program; if it says nothing sensible, it is as good as lost.
    while let Ok(Some((Answer { id, ended }, bytes))) = answers.next().await {
        let Some(sender) = waiting.take(id) else { continue };
        // Whoever asked may have gone.
        let _ = sender.send(ended.map(|(how, n_stdout)| output(how, n_stdout, bytes)));
    }
    {
        let mut senders = lock(&waiting.senders);
        senders.is_over = true;
        senders.by_id.clear();
    }
    waiting.fewer.notify_one();
}

fn output(how: How, n_stdout: usize, mut bytes: Bytes) -> Output {
    let stdout = bytes.split_to(n_stdout.min(bytes.len())).into();
    Output { how, stdout, stderr: bytes.into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
