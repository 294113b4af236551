//! Agents on other machines: the system's `ssh` runs a script there (`remote.sh`), which runs the program and ends it
//! with the connection. The hub's tools come back to it through a port that `ssh` forwards.
//!
//! Nothing of a launch is in a command line, here or there: all of it goes over the connection, and only once the other
//! side has said that it is our script that listens.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::drivers::Preparation;
use teamster_agents::launch::{Grace, Launch, PrivateFile, Terminate};
use teamster_agents::lines::{Line, Lines};
use teamster_agents::process;
use teamster_agents::started::{Output, Process, Started};
use teamster_core::State;
use teamster_core::agent::{Agent, Phase};
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;
use tokio::io::AsyncWriteExt;

use super::Shared;
use crate::ssh::Ssh;

/// What runs the program there.
const SCRIPT: &str = include_str!("remote.sh");

/// What the shell there is told, whatever it is: quoted so that fish and csh understand the same. It says that it is
/// there, takes in the script as one line, and runs it.
const BOOTSTRAP: &str = "exec /bin/sh -c 'echo teamster-remote 1; IFS= read -r teamster && eval \"$(printf %b \"$teamster\")\"'";

const HELLO: &str = "teamster-remote 1";
const AT: &str = "teamster-remote at ";
const NO: &str = "teamster-remote no ";

/// How long it may take until the program runs there: `ssh` gives up connecting before.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long `ssh` may take to end once its output has.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How much longer than the program `ssh` may take to end.
const SSH_PATIENCE: Duration = Duration::from_secs(5);
/// As many lines as a shell's own files may print before our script speaks.
const NOISE_LINES_MAX: usize = 200;
/// As many ports are tried there; one that is taken is rare.
pub(super) const PORTS_TRIED_MAX: usize = 5;
/// Ports there, below those that systems give out by themselves.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// As much of what `ssh` says as goes into an answer.
const STDERR_BYTES_MAX: usize = 1_000;
/// What we want of `ssh`, before what the user wants: no questions, no shared connection, which would outlive us, and
/// an end when the other side is gone.
const OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "ExitOnForwardFailure=yes",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "ControlPath=none",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
];
/// Variables of the hub that `ssh` itself needs to prove who we are.
const SSH_VARIABLES: [&str; 2] = ["SSH_AUTH_SOCK", "KRB5CCNAME"];

/// Returns what `ssh` is started with.
fn arguments(ssh: &Ssh, port: u16, hub: &str) -> Vec<OsString> {
    let ours = ["-T", "-a", "-x"].map(str::to_owned).into_iter();
    let ours = ours.chain(OPTIONS.iter().flat_map(|option| ["-o".into(), (*option).into()]));
    let forward = ["-R".to_owned(), format!("127.0.0.1:{port}:{hub}")];
    let theirs = ssh.options.iter().cloned();
    let last = ["--".to_owned(), ssh.host.clone(), BOOTSTRAP.to_owned()];
    ours.chain(forward).chain(theirs).chain(last).map(Into::into).collect()
}

/// Returns where an agent runs, if not here: where the team is that it speaks for, or that whoever drafted it speaks for.
pub(crate) fn of(state: &State, agent: &Agent) -> Option<Arc<str>> {
    let above = |agent: &&Arc<Agent>| state.agents.get(agent.draft.parent.as_ref()?.as_str());
    let parent = agent.draft.parent.as_ref().and_then(|id| state.agents.get(id.as_str()));
    let parents = std::iter::successors(parent, above).map(|agent| &**agent);
    let mut teams = std::iter::once(agent).chain(parents).filter_map(|one| one.draft.team.as_ref());
    state.teams.get(teams.next()?.as_str())?.remote.clone()
}

/// What to run there.
pub(super) struct Order<'a> {
    pub(super) ssh: &'a Ssh,
    /// Names the launch there: letters and digits.
    pub(super) id: String,
    pub(super) directory: &'a str,
    pub(super) program: &'a str,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Variables of the hub's own whose values are sent, too.
    pub(super) pass: &'a [String],
    pub(super) files: Vec<PrivateFile>,
    /// How the program is ended there when the connection ends.
    pub(super) grace: Grace,
}

impl Order<'_> {
    /// Adds what a driver wants.
    pub(super) fn prepare(&mut self, preparation: Preparation) {
        let Preparation { args, environment, files } = preparation;
        self.args.extend(args);
        self.environment.extend(environment);
        self.files.extend(files);
    }

    /// Returns what is sent when the other side has said that it is there.
    fn text(&self) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let mut line = |key: &str, value: &[u8]| -> Result<(), String> {
            if value.contains(&0) {
                return Err("what it is started with has a NUL, which cannot be sent".to_owned());
            }
            text.extend_from_slice(key.as_bytes());
            for byte in value {
                match byte {
                    b'\\' => text.extend_from_slice(b"\\\\"),
                    b'\n' => text.extend_from_slice(b"\\n"),
                    byte => text.push(*byte),
                }
            }
            text.push(b'\n');
            Ok(())
        };
        line("", SCRIPT.as_bytes())?;
        line("", self.id.as_bytes())?;
        line("", self.grace.after_stdin.as_secs().to_string().as_bytes())?;
        line("", self.grace.after_terminate.as_secs().to_string().as_bytes())?;
        line("d ", self.directory.as_bytes())?;
        for (name, value) in process::named(self.pass).iter().chain(&self.environment) {
            let both = [name.as_os_str(), OsStr::new("="), value.as_os_str()].map(OsStr::as_bytes);
            line("e ", &both.concat())?;
        }
        for PrivateFile { name, contents } in &self.files {
            line("n ", name.as_bytes())?;
            line("f ", contents.as_bytes())?;
        }
        line("p ", self.program.as_bytes())?;
        for argument in &self.args {
            line("a ", argument.as_bytes())?;
        }
        line(".", b"")?;
        Ok(text)
    }
}

/// Returns where the files of a launch are there.
pub(super) fn private(id: &str) -> PathBuf {
    Path::new("/tmp").join(format!("teamster-launch-{id}"))
}

/// Returns how `ssh` is ended: the program there first.
pub(super) fn grace(there: Grace) -> Grace {
    Grace {
        after_stdin: there.after_stdin + there.after_terminate + SSH_PATIENCE,
        terminate: Terminate::Program,
        after_terminate: Duration::from_secs(2),
    }
}

pub(super) const NO_PORT: &str = "several ports could not be forwarded there, by which its agent would find the hub; its sshd \
                                  has to allow that (AllowTcpForwarding)";

/// Why nothing runs there.
pub(super) enum NotThere {
    PortTaken,
    Because(String),
}

/// A port there, of our own choosing since nobody can ask for one before there is a connection.
pub(super) fn port(random: u128) -> u16 {
    let n_ports = u128::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(random % n_ports).unwrap_or_default()
}

/// Starts the program there; returns it with the directory that it runs in. `launch` is what holds `ssh` here.
pub(super) async fn start(
    shared: &Shared,
    agent: &Agent,
    mut launch: Launch,
    order: &Order<'_>,
    port: u16,
) -> Result<(Started, PathBuf), NotThere> {
    let text = order.text().map_err(NotThere::Because)?;
    let hub = shared.url.strip_prefix("http://").unwrap_or(&shared.url);
    launch.args = arguments(order.ssh, port, hub);
    launch.passed_on = SSH_VARIABLES.map(str::to_owned).to_vec();
    shared.guarded.keep(&mut launch);
    let started = shared.supervisor.launch(launch).await;
    let mut started =
        started.map_err(|error| NotThere::Because(format!("{:#}", anyhow::Error::from(error))))?;
    let process = started.process.clone();
    let hub = shared.hub.clone();
    let watch = hub.watch(&Topic::Agent(agent.id.clone()));
    let told_to_end = watch.until(&hub, |state| {
        let agent = state.agents.get(agent.id.as_str());
        agent.is_none_or(|agent| agent.phase != Phase::Running).then_some(())
    });
    let said = tokio::select! {
        said = introduced(&mut started, &text) => said,
        () = tokio::time::sleep(PATIENCE) => Err(Silence::TooLong),
        () = told_to_end => Err(Silence::NotWanted),
        () = shared.stop.cancelled() => Err(Silence::NotWanted),
    };
    match said {
        Ok(directory) => Ok((started, directory)),
        Err(silence) => Err(because(order.ssh, &process, silence, port).await),
    }
}

/// Why the other side did not say that the program runs.
enum Silence {
    /// It said why not.
    No(String),
    /// The connection ended.
    Ended,
    /// It is not our script that speaks there.
    Strange(String),
    TooLong,
    NotWanted,
}

/// Waits for the script, tells it what to run, and returns where that runs.
async fn introduced(started: &mut Started, order: &[u8]) -> Result<PathBuf, Silence> {
    let mut said = String::new();
    for _ in 0..NOISE_LINES_MAX {
        said = next(&mut started.stdout).await?;
        if said == HELLO {
            break;
        }
    }
    if said != HELLO {
        return Err(Silence::Strange(said));
    }
    started.stdin.write_all(order).await.map_err(|_| Silence::Ended)?;
    let said = next(&mut started.stdout).await?;
    match (said.strip_prefix(AT), said.strip_prefix(NO)) {
        (Some(directory), _) => Ok(directory.into()),
        (None, Some(why)) => Err(Silence::No(why.to_owned())),
        (None, None) => Err(Silence::Strange(said)),
    }
}

async fn next(lines: &mut Lines<Output>) -> Result<String, Silence> {
    match lines.next().await {
        Ok(Some(Line::Whole(line))) => Ok(String::from_utf8_lossy(&line).into_owned()),
        Ok(Some(Line::TooLong)) => Err(Silence::Strange("a line without an end".to_owned())),
        Ok(Some(Line::Unfinished(_)) | None) | Err(_) => Err(Silence::Ended),
    }
}

/// Ends `ssh`, and says why there is nothing to talk to, with what helps.
async fn because(ssh: &Ssh, process: &Process, silence: Silence, port: u16) -> NotThere {
    if !matches!(silence, Silence::Ended | Silence::No(_))
        || tokio::time::timeout(END_PATIENCE, process.exited()).await.is_err()
    {
        process.kill();
    }
    process.exited().await;
    let stderr = process.stderr_tail();
    let stderr = stderr.trim();
    let host = &ssh.host;
    let start = stderr.ceil_char_boundary(stderr.len().saturating_sub(STDERR_BYTES_MAX));
    let words: Cow<'_, str> = match &stderr[start..] {
        "" => "ssh ended without a word".into(),
        words => format!("ssh says: {words}").into(),
    };
    NotThere::Because(match silence {
        Silence::No(why) => format!("on {host}: {why}"),
        Silence::NotWanted => format!("it was ended before it was connected to {host}"),
        Silence::Strange(said) => {
            let said: String = said.chars().take(200).collect();
            format!(
                "{host} has no shell that runs our commands, it says {said:?}; try `{}`",
                ssh.shown()
            )
        }
        Silence::TooLong => {
            format!("{host} did not answer within {PATIENCE:?}; try `{}`; {words}", ssh.shown())
        }
        Silence::Ended if stderr.contains(&format!("forwarding failed for listen port {port}")) => {
            return NotThere::PortTaken;
        }
        Silence::Ended => {
            format!("{host} cannot be reached: {words}; {}", hint(stderr, &ssh.shown()))
        }
    })
}

/// Returns what to do about what `ssh` said.
fn hint(stderr: &str, shown: &str) -> String {
    if stderr.contains("Host key verification failed") {
        format!("its host key is not known here, or has changed: run `{shown}` by hand and look")
    } else if stderr.contains("Permission denied") {
        format!(
            "it has to let us in without a question, by a key or an agent (SSH_AUTH_SOCK where the hub was started): \
             try `{shown}`"
        )
    } else {
        format!("try `{shown}`")
    }
}

#[cfg(test)]
mod tests;
