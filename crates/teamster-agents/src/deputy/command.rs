//! One command from its start to its end: its output is bounded, and at its time limit it is killed with its group.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::time::sleep;

use crate::launches::MARK;
use crate::process;

/// A list of half a million files.
pub const STDOUT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The first of what it says is kept, where programs say what they stumble over.
pub const STDERR_BYTES_MAX: usize = 64 * 1024;
/// As much as a command can be given to read.
pub const INPUT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// So much is read at a time.
const READ_BYTES: usize = 16 * 1024;
/// As often in a row; a pipe holds less.
const READS_MAX: usize = 64;

/// A command to be run. It gets the usual few variables of our environment, and its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub directory: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    /// What it can read on its standard input.
    #[serde(skip)]
    pub input: Vec<u8>,
    pub time_limit: Duration,
}

impl Command {
    pub fn new(program: impl Into<OsString>, directory: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            directory: directory.into(),
            environment: Vec::new(),
            input: Vec::new(),
            time_limit: Duration::from_secs(300),
        }
    }

    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// What came of a command that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub how: How,
    pub stdout: Vec<u8>,
    /// No more than [`STDERR_BYTES_MAX`] of it.
    pub stderr: Vec<u8>,
}

impl Output {
    pub fn is_ok(&self) -> bool {
        self.how == How::Code(0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Code(i32),
    Signal(i32),
    /// It took longer than it may, and was killed.
    TimedOut,
    /// It wrote more than [`STDOUT_BYTES_MAX`], and was killed.
    TooMuch,
}

/// Runs a command. If this is given up, it is killed.
pub(super) async fn run(command: Command) -> io::Result<Output> {
    let mut run = Run::start(&command)?;
    let stdin = run.child.stdin.take();
    let mut feed = pin!(async {
        if let Some(mut stdin) = stdin {
            // If it does not read all of it, it says why.
            let _ = stdin.write_all(&command.input).await;
        }
    });
    let mut late = pin!(sleep(command.time_limit));
    let (mut is_fed, mut chunk) = (false, vec![0; READ_BYTES]);
    let how = loop {
        let Run { child, stdout, stderr, .. } = &mut run;
        tokio::select! {
            status = child.wait() => break how(status?),
            () = &mut feed, if !is_fed => is_fed = true,
            _ = stdout.pipe.readable(), if stdout.is_open => stdout.take(&mut chunk),
            _ = stderr.pipe.readable(), if stderr.is_open => stderr.take(&mut chunk),
            () = &mut late => break run.kill(How::TimedOut).await,
        }
        if run.stdout.is_cut {
            break run.kill(How::TooMuch).await;
        }
    };
    // What it leaves behind may keep the pipes open; nobody waits for that.
    run.group = None;
    let Run { stdout, stderr, .. } = &mut run;
    stdout.take(&mut chunk);
    stderr.take(&mut chunk);
    let how = if stdout.is_cut { How::TooMuch } else { how };
    let (stdout, stderr) = (std::mem::take(&mut stdout.bytes), std::mem::take(&mut stderr.bytes));
    Ok(Output { how, stdout, stderr })
}

/// A command under way.
struct Run {
    child: Child,
    /// Gone once the command is reaped, when another may get its number.
    group: Option<Pid>,
    stdout: Kept,
    stderr: Kept,
}

impl Run {
    fn start(command: &Command) -> io::Result<Self> {
        let (stdout, stdout_writer) = io::pipe()?;
        let (stderr, stderr_writer) = io::pipe()?;
        let mut bare = process::bare(&command.program);
        bare.args(&command.args).current_dir(&command.directory).process_group(0);
        bare.envs(process::passed_on(&[MARK.to_owned()]));
        bare.envs(command.environment.iter().map(|(name, value)| (name, value)));
        let stdin = if command.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        bare.stdin(stdin).stdout(stdout_writer).stderr(stderr_writer);
        let mut starts = tokio::process::Command::from(bare);
        let child = starts.kill_on_drop(true).spawn()?;
        // It holds the other ends of the pipes.
        drop(starts);
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let (stdout, stderr) =
            (Kept::of(stdout, STDOUT_BYTES_MAX)?, Kept::of(stderr, STDERR_BYTES_MAX)?);
        Ok(Self { child, group, stdout, stderr })
    }

    async fn kill(&mut self, how: How) -> How {
        self.kill_group();
        let _ = self.child.wait().await;
        how
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// What is kept of an output.
struct Kept {
    pipe: Receiver,
    bytes: Vec<u8>,
    bytes_max: usize,
    is_open: bool,
    /// There was more.
    is_cut: bool,
}

impl Kept {
    fn of(pipe: io::PipeReader, bytes_max: usize) -> io::Result<Self> {
        let pipe = Receiver::from_owned_fd(pipe.into())?;
        Ok(Self { pipe, bytes: Vec::new(), bytes_max, is_open: true, is_cut: false })
    }

    /// Takes what is in the pipe, without waiting for more.
    fn take(&mut self, chunk: &mut [u8]) {
        // Not for ever, should somebody write as fast as we read.
        for _ in 0..READS_MAX {
            let n_bytes = match self.pipe.try_read(chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                read => read.unwrap_or(0),
            };
            if n_bytes == 0 {
                self.is_open = false;
                return;
            }
            let room = self.bytes_max - self.bytes.len();
            self.is_cut |= n_bytes > room;
            self.bytes.extend_from_slice(chunk.get(..n_bytes.min(room)).unwrap_or_default());
        }
    }
}

fn how(status: ExitStatus) -> How {
    use std::os::unix::process::ExitStatusExt;
    match status.code() {
        Some(code) => How::Code(code),
        None => How::Signal(status.signal().unwrap_or_default()),
    }
}
