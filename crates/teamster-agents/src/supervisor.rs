//! The hub's side of launchers: starts them, watches what they tell, and asks agents to end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::{Sleep, sleep, timeout};

use crate::isolation::{Failure, Isolation, Probe, Step};
use crate::launch::{Exited, How, Launch, Mask, Measure, Terminate};
use crate::launches::{self, Launches, Leftover, MARK, NOTE, Note};
use crate::lines::{Line, Lines};
use crate::process;
use crate::started::{Running, Started, Wanted};
pub use crate::supervise::Error;
use crate::supervise::{START_PATIENCE, Supervise};
use crate::verb;
use crate::wire::{self, Order, Report, Request, Status};

/// Starts a background task with a name; the hub brings the way.
pub type Spawn = Arc<dyn Fn(&'static str, BoxFuture<'static, ()>) + Send + Sync>;

/// A launcher's report is a few words, but for the reason of a failure.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// So much of stderr is read at a time.
const STDERR_READ_BYTES: usize = 4 * 1024;

/// Starts agents.
#[derive(Clone)]
pub struct Supervisor {
    launcher: PathBuf,
    launches: Launches,
    spawn: Spawn,
    /// Namespaces have worked here.
    has_namespaces: Arc<AtomicBool>,
}

/// Returns our own program, to be a launcher: on Linux the very file that runs, even if another has taken its place.
pub fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

impl Supervisor {
    /// `launcher` is a program with the verb [`verb::VERB`], usually [`own_program`].
    pub fn new(launcher: impl Into<PathBuf>, launches: Launches, spawn: Spawn) -> Self {
        Self { launcher: launcher.into(), launches, spawn, has_namespaces: Arc::default() }
    }

    pub(crate) fn launcher(&self) -> &Path {
        &self.launcher
    }

    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        (self.spawn)(name, Box::pin(task));
    }

    /// Finds out by trying what this machine offers.
    pub async fn probe(&self, id: &str) -> Probe {
        Probe {
            namespaces: self.try_out(id, Isolation::Namespaces).await,
            subreaper: self.try_out(id, Isolation::Subreaper).await,
        }
    }

    /// Returns the strongest isolation that works now, and why it is not namespaces. Once namespaces have worked, nothing
    /// weaker is used any more: where they fail for a moment, perhaps because an agent has taken all processes, a launch
    /// fails, and can be repeated. Until then each call tries anew.
    pub async fn strongest(&self, id: &str) -> (Isolation, Option<Failure>) {
        if self.has_namespaces.load(Ordering::Relaxed) {
            return (Isolation::Namespaces, None);
        }
        let namespaces = self.try_out(id, Isolation::Namespaces).await;
        if namespaces.is_ok() {
            self.has_namespaces.store(true, Ordering::Relaxed);
            return (Isolation::Namespaces, None);
        }
        let subreaper = self.try_out(id, Isolation::Subreaper).await;
        let probe = Probe { namespaces, subreaper };
        (probe.best(), probe.namespaces.err())
    }

    async fn try_out(&self, id: &str, isolation: Isolation) -> Result<(), Failure> {
        let id = format!("{id}-{isolation}");
        let mut launch = Launch::new(id, &self.launcher, isolation);
        launch.args.push("--version".into());
        // The program is not in it.
        let masked = self.launches.make().and_then(|()| Mask::of(self.launches.directory()));
        launch.masked.push(masked.map_err(Failure::at(Step::Masks))?);
        let started = self.launch(launch).await.map_err(|error| match error {
            Error::Failed(failure) => failure,
            error => Failure { step: Step::Init, why: with_sources(&error) },
        })?;
        match started.process.exited().await.how {
            How::Code(0) => Ok(()),
            how => Err(Failure { step: Step::Program, why: format!("it ended by {how:?}") }),
        }
    }

    /// Starts a program. If this is given up in the middle, nothing of it is left either.
    pub async fn launch(&self, launch: Launch) -> Result<Started, Error> {
        let id = launch.id.clone();
        let noted = |source| Error::Note { id: id.clone(), source };
        let note = Note {
            program: launch.program.to_string_lossy().into_owned(),
            isolation: launch.isolation.to_string(),
            private: launch.private.as_ref().map(|private| private.directory.clone()),
        };
        self.launches.begin(&id, &note).map_err(noted)?;
        let launched = match timeout(START_PATIENCE, self.start(launch)).await {
            Ok(launched) => launched,
            Err(_) => Err(Error::Late),
        };
        if launched.is_err() {
            self.launches.end(&id).map_err(noted)?;
        }
        launched
    }

    async fn start(&self, launch: Launch) -> Result<Started, Error> {
        let (control, theirs) = UnixStream::pair().map_err(Error::Launcher)?;
        let (stdin_reader, stdin) = io::pipe().map_err(Error::Launcher)?;
        let (stdout, stdout_writer) = io::pipe().map_err(Error::Launcher)?;
        let (stderr, stderr_writer) = io::pipe().map_err(Error::Launcher)?;
        let mut command = self.command(&launch);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(stderr_writer);
        let child = command.spawn().map_err(Error::Launcher)?;
        // The command holds the launcher's ends of socket and pipe.
        drop(command);
        wire::hand_over(&control, stdin_reader.as_fd(), stdout_writer.as_fd())
            .map_err(Error::Launcher)?;
        drop((stdin_reader, stdout_writer));

        let stdin = Sender::from_owned_fd(stdin.into()).map_err(Error::Launcher)?;
        let stdout = Receiver::from_owned_fd(stdout.into()).map_err(Error::Launcher)?;
        let stderr = Receiver::from_owned_fd(stderr.into()).map_err(Error::Launcher)?;
        control.set_nonblocking(true).map_err(Error::Launcher)?;
        let control = tokio::net::UnixStream::from_std(control).map_err(Error::Launcher)?;
        let (reports, requests) = control.into_split();

        let (started, running) = Started::new(&launch, child.id(), stdin, stdout);
        let mut watched = Watched {
            id: launch.id.clone(),
            child,
            reports: Lines::new(reports, REPORT_BYTES_MAX),
            requests: Some(requests),
            stderr: Some(stderr),
            running,
            status: None,
            measure: None,
        };
        watched.order(launch).await?;
        let launches = self.launches.clone();
        let watch = async move {
            let exited = watched.until_exited().await;
            remove_group(&watched.id);
            // A note that cannot be removed is found by the next hub, which finds no process with it.
            let _ = launches.end(&watched.id);
            watched.running.end(exited);
        };
        (self.spawn)("watch an agent's process", Box::pin(watch));
        Ok(started)
    }

    fn command(&self, launch: &Launch) -> Command {
        let mut command = process::bare(&self.launcher);
        std::os::unix::process::CommandExt::arg0(&mut command, "teamster");
        command.args([verb::VERB, launch.isolation.name()]);
        command.args(launch.lingers.then_some(verb::LINGERS));
        command.current_dir("/").env(MARK, &launch.id);
        // For the launcher alone: what it starts has another environment.
        command.envs(self.launches.note(&launch.id).ok().map(|note| (NOTE, note)));
        // Not killed on drop: it sees the end of our side, and has its work to do then.
        command.into()
    }
}

/// Removes the control group of a launch of which nothing is left.
fn remove_group(id: &str) {
    #[cfg(target_os = "linux")]
    crate::cgroup::Group::of(id).inspect(crate::cgroup::Group::remove);
    #[cfg(not(target_os = "linux"))]
    let _ = id;
}

impl Supervise for Supervisor {
    fn strongest<'a>(&'a self, id: &'a str) -> BoxFuture<'a, (Isolation, Option<Failure>)> {
        Box::pin(Self::strongest(self, id))
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<Started, Error>> {
        Box::pin(Self::launch(self, launch))
    }

    fn end_leftovers(&self) -> io::Result<Vec<Leftover>> {
        self.launches.end_leftovers(launches::PATIENCE)
    }

    fn forget(&self, leftovers: &[Leftover]) -> io::Result<()> {
        self.launches.forget(leftovers)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("launcher", &self.launcher).finish_non_exhaustive()
    }
}

/// What the task that watches a launcher has.
struct Watched {
    id: String,
    child: Child,
    reports: Lines<OwnedReadHalf>,
    /// Dropping it tells the launcher to kill everything.
    requests: Option<OwnedWriteHalf>,
    stderr: Option<Receiver>,
    running: Running,
    status: Option<Status>,
    measure: Option<Measure>,
}

impl Watched {
    /// Tells the launcher what to start, and waits until it has.
    async fn order(&mut self, launch: Launch) -> Result<(), Error> {
        let mut environment = process::passed_on(&launch.passed_on);
        environment.extend(launch.environment);
        environment.push((MARK.into(), launch.id.into()));
        let order = wire::line(&Order {
            program: launch.program,
            args: launch.args,
            directory: launch.directory.into(),
            environment,
            masked: launch.masked,
            read_only: launch.read_only.into_iter().map(Into::into).collect(),
            private: launch.private.map(|private| (private.directory.into(), private.files)),
            memory_max: launch.memory_max,
            joins_stderr: launch.joins_stderr,
        });
        if let Some(requests) = &mut self.requests {
            // A launcher that does not take it has ended, and its report says why.
            let _ = requests.write_all(&order.map_err(Error::Launcher)?).await;
        }
        let failure = match read_report(self.reports.next().await) {
            Some(Report::Started) => return Ok(()),
            Some(Report::NotStarted(failure)) => Some(failure),
            Some(Report::Ended(_) | Report::Gone { .. }) | None => None,
        };
        self.requests = None;
        let _ = self.child.wait().await;
        self.take_last_words();
        Err(match failure {
            Some(failure) => Error::Failed(failure),
            None => Error::Silent { stderr: self.running.stderr_tail() },
        })
    }

    async fn until_exited(&mut self) -> Exited {
        let mut chunk = [0; STDERR_READ_BYTES];
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        let mut can_be_asked = true;
        loop {
            tokio::select! {
                biased;
                report = self.reports.next() => match read_report(report) {
                    Some(Report::Ended(status)) => self.status = Some(status),
                    Some(Report::Gone { n_left }) => return self.gone(n_left).await,
                    Some(Report::Started | Report::NotStarted(_)) | None => return self.lost().await,
                },
                asked = self.running.asked(), if can_be_asked => match asked {
                    Some(wanted) => patience = self.take_next_measure(wanted).await,
                    // When nobody is left who could ask, what was asked for still holds.
                    None => can_be_asked = false,
                },
                () = wait_for(&mut patience), if patience.is_some() => {
                    patience = self.take_next_measure(self.running.wanted()).await;
                }
                read = read_from(&mut self.stderr, &mut chunk), if self.stderr.is_some() => {
                    match read {
                        Ok(n_bytes @ 1..) => {
                            self.running.says(chunk.get(..n_bytes).unwrap_or_default());
                        }
                        Ok(0) | Err(_) => self.stderr = None,
                    }
                }
            }
        }
    }

    /// Does the next thing to end the program, and returns how long to wait before the one after it.
    async fn take_next_measure(&mut self, wanted: Wanted) -> Option<Pin<Box<Sleep>>> {
        let (measure, patience) = match (wanted, self.measure) {
            (Wanted::Alive, _) => return None,
            (Wanted::Ended(grace), None) => {
                self.running.close_stdin();
                (Measure::StdinClosed, Some(grace.after_stdin))
            }
            (Wanted::Ended(grace), Some(Measure::StdinClosed)) => {
                self.terminate(grace.terminate).await;
                (Measure::Terminated, Some(grace.after_terminate))
            }
            (Wanted::Ended(_), Some(Measure::Terminated | Measure::Killed))
            | (Wanted::Killed, _) => {
                self.requests = None;
                (Measure::Killed, None)
            }
        };
        self.measure = Some(measure);
        patience.map(|patience| Box::pin(sleep(patience)))
    }

    async fn terminate(&mut self, whom: Terminate) {
        let request = match whom {
            Terminate::Program => Request::TerminateProgram,
            Terminate::Group => Request::TerminateGroup,
        };
        if let (Some(requests), Ok(line)) = (&mut self.requests, wire::line(&request)) {
            // A launcher that does not take it has ended. A line fits into the socket, so this does not wait.
            let _ = requests.write_all(&line).await;
        }
    }

    async fn gone(&mut self, n_left: usize) -> Exited {
        let _ = self.child.wait().await;
        self.take_last_words();
        let how = match self.status {
            Some(Status::Code(code)) => How::Code(code),
            Some(Status::Signal(_)) if self.measure == Some(Measure::Killed) => How::Killed,
            Some(Status::Signal(signal)) => How::Signal(signal),
            None => How::Killed,
        };
        self.exited(how, n_left)
    }

    /// Ends what a launcher left that was killed.
    async fn lost(&mut self) -> Exited {
        self.requests = None;
        let _ = self.child.wait().await;
        let id = self.id.clone();
        let ended = tokio::task::spawn_blocking(move || launches::end_marked(&id)).await;
        self.take_last_words();
        self.exited(How::LauncherLost, ended.map_or(0, |(_n_killed, n_left)| n_left))
    }

    fn exited(&self, how: How, n_left: usize) -> Exited {
        self.running.close_stdin();
        Exited { how, after: self.measure, n_left }
    }

    /// Takes what is left in the pipe of stderr, without waiting for its end, which a process that got away can delay.
    fn take_last_words(&mut self) {
        let mut chunk = [0; STDERR_READ_BYTES];
        let Some(stderr) = self.stderr.take() else { return };
        while let Ok(n_bytes @ 1..) = stderr.try_read(&mut chunk) {
            self.running.says(chunk.get(..n_bytes).unwrap_or_default());
        }
    }
}

fn read_report(line: io::Result<Option<Line>>) -> Option<Report> {
    match line {
        Ok(Some(Line::Whole(line))) => serde_json::from_slice(&line).ok(),
        // It is our own program; if it says nothing sensible, it is as good as lost.
        Ok(Some(Line::TooLong | Line::Unfinished(_)) | None) | Err(_) => None,
    }
}

async fn wait_for(patience: &mut Option<Pin<Box<Sleep>>>) {
    if let Some(patience) = patience {
        patience.await;
    }
}

async fn read_from(stderr: &mut Option<Receiver>, chunk: &mut [u8]) -> io::Result<usize> {
    match stderr {
        Some(stderr) => stderr.read(chunk).await,
        None => std::future::pending().await,
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
