//! The servers that are measured, each a process of its own, so that what it uses can be told from what the load uses.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::client::Target;
use crate::connection::{Connection, request};
use crate::echo::Echo;

pub(crate) const TEAMSTER: &str = env!("CARGO_BIN_EXE_teamster");

/// Clients of a hub share so many tokens: a principal has a limit of sessions and of waiting calls, and is served in turn.
const TOKENS: usize = 8;

/// A server that ends when nobody holds it any more.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// An echo ends when this is closed, so that none is left behind by a bench that was killed.
    _lifeline: Option<ChildStdin>,
}

impl Server {
    /// Starts an echo: this very program with another argument.
    pub(crate) fn echo(echo: Echo) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.args(["--serve", echo.name()]).stdin(Stdio::piped());
        Self::start(command, "")
    }

    /// Starts a server that says where it listens in its first line, behind `before`.
    fn start(mut command: Command, before: &str) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the server speaks UTF-8");
        let address = line.trim().strip_prefix(before).and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("the server said {line:?}"));
        // What else it prints is read too, so that it never waits for us.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        let lifeline = process.stdin.take();
        Self { process, address, _lifeline: lifeline }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns where clients of an echo connect; it asks for no token.
    pub(crate) fn target(&self) -> Target {
        Target { address: self.address, token: "nobody".into(), path: "/mcp".into() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A real hub on a data directory.
pub(crate) struct Hub {
    pub(crate) server: Server,
    pub(crate) started: Instant,
    pub(crate) operator: String,
    /// Of the agent that every hub has.
    pub(crate) agent: String,
    data: PathBuf,
    _directory: Option<TempDir>,
}

impl Hub {
    /// Starts a hub on an empty data directory below `directory`.
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[], &[])
    }

    /// The same, with more arguments and variables.
    pub(crate) fn start_with(
        directory: &Path,
        arguments: &[String],
        variables: &[(&str, &Path)],
    ) -> Self {
        let data = tempfile::tempdir_in(directory).expect("a directory for data");
        let mut hub = Self::start_on(data.path(), arguments, variables);
        hub._directory = Some(data);
        hub
    }

    /// Starts a hub on this data directory and returns when it says that it is ready.
    pub(crate) fn start_in(data: &Path) -> Self {
        Self::start_on(data, &[], &[])
    }

    fn start_on(data: &Path, arguments: &[String], variables: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(TEAMSTER);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TZ", "UTC")
            .env("TEAMSTER_LOG", "warn");
        command.arg("--data").arg(data).args(["up", "--listen", "127.0.0.1:0"]);
        // What is measured is the hub, not the quotas of its agents.
        for quota in ["stored_mib", "run_stored_mib", "writes_per_s", "received_mib_per_s"] {
            command.arg("--set").arg(format!("quotas.{quota}=0"));
        }
        command.args(["--set", "transcripts.keep_records=0", "--set", "transcripts.keep_days=0"]);
        command.args(arguments).envs(variables.iter().copied());
        command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
        let started = Instant::now();
        let server = Server::start(command, "teamster is up: http://");
        let token = |name: &str| {
            let token = std::fs::read_to_string(data.join(name)).expect("a hub leaves tokens");
            token.trim().to_owned()
        };
        let (operator, agent) = (token("operator.token"), token("agent.token"));
        Self { server, started, operator, agent, data: data.to_owned(), _directory: None }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Returns where the agent that every hub has connects.
    pub(crate) fn target(&self) -> Target {
        Target { address: self.server.address, token: self.agent.clone(), path: "/mcp".into() }
    }

    /// Makes tokens of workers, and returns where they connect.
    pub(crate) async fn workers(&self) -> Vec<Target> {
        let mut connection = Connection::open(self.server.address).await;
        let mut workers = Vec::new();
        for number in 0..TOKENS {
            let asked = json!({"name": format!("worker-{number}"), "grants": ["full"]});
            let asked = self.operators("POST", "/api/tokens", &asked.to_string());
            let made = connection.exchange(&asked).await.json();
            let token = made["secret"].as_str().unwrap_or_else(|| panic!("no token: {made}"));
            workers.push(Target { token: token.into(), ..self.target() });
        }
        workers
    }

    /// Returns a request with the operator's token.
    pub(crate) fn operators(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.operator);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        request(method, self.server.address, path, &headers, body)
    }

    /// Asks the hub to end, and waits until it has.
    pub(crate) fn end(mut self) {
        let pid = Pid::from_child(&self.server.process);
        kill_process(pid, Signal::TERM).expect("the hub runs until it is told to end");
        let status = self.server.process.wait().expect("the hub can be waited for");
        assert!(status.success(), "the hub ended with {status}");
    }
}

/// What the system counts a process's time in.
const TICK: Duration = Duration::from_millis(10);

/// Returns the processor time that a process has used.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = read_proc(pid, "stat");
    // The program's name is in brackets and may hold anything; user and system time are the 12th and 13th field after it.
    let fields =
        stat.rsplit_once(") ").expect("a process has a name").1.split(' ').skip(11).take(2);
    let ticks: u32 = fields.map(|ticks| ticks.parse::<u32>().expect("a number")).sum();
    TICK * ticks
}

/// Returns the processor time that each thread of a process has used, which is more exact than [`cpu`].
pub(crate) fn cpu_of_threads(pid: u32) -> HashMap<OsString, Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let used = threads.filter_map(|thread| {
        let thread = thread.ok()?;
        let statistics = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let used_ns = statistics.split(' ').next()?.parse().ok()?;
        Some((thread.file_name(), Duration::from_nanos(used_ns)))
    });
    used.collect()
}

/// Returns the memory that a process takes up.
pub(crate) fn memory_kib(pid: u32) -> f64 {
    let status = read_proc(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn read_proc(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process runs")
}
