//! `teamster up`: start the hub, here or in the background.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{print, say};
use teamster_api::Client;
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::{self, DataFiles};
use teamster_hub::programs::own_file;
use teamster_hub::project::Project;
use teamster_hub::serve::{self, Ready, Settings};

#[derive(Debug, clap::Args)]
pub(super) struct UpArgs {
    /// Run in the background; its messages go to <data>/hub.log
    #[arg(short, long)]
    detach: bool,

    /// The project directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Where to listen; the port is remembered [default: a free port on 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,

    /// Change a setting for this hub, e.g. program=scripted; repeat the flag for more
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Show three scripted agents at work, in a hub of their own that ends with them
    #[arg(long, conflicts_with_all = ["detach", "listen"])]
    demo: bool,

    /// How `--detach` starts the hub itself
    #[arg(long, hide = true)]
    in_background: bool,
}

/// What the hub in the background says to whoever started it, once it is ready.
const READY: &str = "ready";

pub(super) fn run(data: DataFiles, args: UpArgs) -> anyhow::Result<()> {
    if args.demo {
        return demonstrate();
    }
    if !args.detach {
        super::allocator::start_anew();
    }
    let directory = match &args.dir {
        Some(dir) => std::fs::canonicalize(dir)
            .with_context(|| format!("there is no directory {}", dir.display()))?,
        None => {
            std::env::current_dir().context("the current directory is gone; name one with --dir")?
        }
    };
    if !directory.is_dir() {
        bail!(
            "{} is not a directory; name the project's directory with --dir",
            directory.display()
        );
    }
    if let Some(client) = super::wait_for(Client::connect_if_running(&data))? {
        let running = format!(
            "a hub is running for {} already: {}, pid {}",
            data.directory().display(),
            client.hub.url,
            client.hub.pid
        );
        if args.detach {
            say(&running);
            return Ok(());
        }
        bail!("{running}; see `{}`, or stop it with `{}`", data.call("status"), data.call("down"));
    }
    let configuration = super::config::read(directory.clone(), args.set.clone());
    // What a file says wrong is left out; whoever types something wrong is there to mend it.
    if configuration.problems.iter().any(|problem| problem.file.starts_with("--set ")) {
        bail!("nothing was started; mend what --set says");
    }
    if args.detach {
        return detach(&data, &directory, args.dir.is_some(), args.listen, &args.set);
    }
    let settings = Settings {
        data: data.clone(),
        project: Project::new(directory),
        project_named: args.dir.is_some(),
        listen: args.listen,
        configuration,
    };
    if args.in_background {
        // From now on the terminal that started us may close.
        let _ = rustix::process::setsid();
    }
    tracing_subscriber::fmt()
        .with_writer(|| Unfailing(std::io::stderr()))
        .log_internal_errors(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_env_filter(config::log_filter())
        .init();
    let ready = move |ready: &Ready| {
        let told = if args.in_background { print(READY) } else { print(&banner(ready, &data)) };
        if let Err(error) = told {
            tracing::debug!(%error, "nobody reads that the hub is ready");
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up =
            if hang_up_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let shutdown = async move {
            let hung_up = async {
                match &mut hang_up {
                    Some(hang_up) => hang_up.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hung_up => {}
            }
        };
        serve::run(settings, shutdown, progress(), ready).await
    })
}

/// Runs a hub in a directory of its own, until the demonstration is over.
fn demonstrate() -> anyhow::Result<()> {
    let directory = std::env::temp_dir().join(format!("teamster-demo-{}", std::process::id()));
    make_private_directory(&directory)?;
    let data = DataFiles::of(&directory.join("data"));
    let flags = super::demo::settings(&directory);
    let settings = Settings {
        data: data.clone(),
        project: Project::new(&directory),
        project_named: false,
        listen: None,
        configuration: super::config::read(directory.clone(), flags),
    };
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let interrupted = CancellationToken::new();
    let outcome = runtime.block_on(async {
        let interrupt = interrupted.clone();
        let shutdown = async move {
            // Without it, Ctrl-C ends us all the same, only less tidily.
            let _ = tokio::signal::ctrl_c().await;
            interrupt.cancel();
        };
        let hub = serve::run(
            settings,
            shutdown,
            |_, _| (),
            |_| {
                let _ = ready.send(());
            },
        );
        let played = async {
            match is_ready.await {
                Ok(()) => super::demo::play(&data).await,
                // The hub did not start, and says why.
                Err(_) => Ok(()),
            }
        };
        let (hub, played) = tokio::join!(hub, played);
        if interrupted.is_cancelled() {
            say("stopped; its data is gone");
            return hub;
        }
        hub.and(played)
    });
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

/// A writer for messages: where they cannot be written, the hub goes on without them.
struct Unfailing(std::io::Stderr);

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Says whether whoever started us wants us to outlive the terminal, as `nohup` does.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Says how far starting has come, if it takes longer than a second.
fn progress() -> impl FnMut(u64, u64) {
    let mut said_at = SystemClock.now();
    move |done, all| {
        let now = SystemClock.now();
        if now.0 - said_at.0 >= 1_000 {
            said_at = now;
            say(&format!("reading the log: {done} of {all} commits"));
        }
    }
}

fn banner(ready: &Ready, data: &DataFiles) -> String {
    let connect = data.call("connect claude --write");
    let program = own_file().unwrap_or_else(|| "teamster".into());
    let (program, directory) = (program.to_string_lossy(), data.directory().to_string_lossy());
    let server = json!({"command": program, "args": ["--data", directory, "mcp"]});
    let server = json!({"mcpServers": {"teamster": server}});
    format!(
        "teamster is up: {}\n\
         data:           {}\n\n\
         Connect an agent (claude, codex, gemini, opencode, goose), each under its own name:\n  \
         {connect}\n\n\
         Or put this into any MCP client's configuration:\n  \
         {server}\n\n\
         Stop with Ctrl-C.",
        ready.file.url,
        ready.data.display()
    )
}

/// How long the hub may take to say that it is ready before we say what we are waiting for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts the hub in the background, in the current directory, as `teamster up -d` does.
pub(super) fn start_in_background(data: &DataFiles) -> anyhow::Result<()> {
    detach(data, &std::env::current_dir()?, false, None, &[])
}

/// Starts the hub in the background and returns when it is ready, or says why it is not.
fn detach(
    data: &DataFiles,
    directory: &std::path::Path,
    project_named: bool,
    listen: Option<SocketAddr>,
    set: &[String],
) -> anyhow::Result<()> {
    make_private_directory(data.directory())?;
    let log_path = data.hub_log();
    let log =
        open_log(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let mut command = background_command(directory)?;
    command.arg("--data").arg(data.directory()).args(["up", "--in-background"]);
    for setting in set {
        command.arg("--set").arg(setting);
    }
    if project_named {
        command.arg("--dir").arg(directory);
    }
    if let Some(listen) = listen {
        command.args(["--listen", &listen.to_string()]);
    }
    let start = log.metadata()?.len();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start the hub")?;
    let stdout = child.stdout.take().context("the hub has no stdout")?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // An empty line is the end: the hub ended before it was ready.
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = tell.send(line);
    });
    let line = told.recv_timeout(PATIENCE).or_else(|_| {
        say("waiting for the hub to read its log …");
        told.recv()
    })?;
    if line.trim() == READY {
        let hub =
            teamster_api::HubFile::read(data)?.context("the hub is ready but left no hub.json")?;
        say(&format!(
            "teamster is up: {} (pid {}, messages in {})",
            hub.url,
            hub.pid,
            log_path.display()
        ));
        if let Err(error) = super::wait_for(warn(data)) {
            say(&format!("it is not known how agents are isolated: {error:#}"));
        }
        let connect = data.call("connect claude --write");
        say(&format!("connect an agent with `{connect}` (or codex, gemini, opencode, goose)"));
        return Ok(());
    }
    let _ = child.wait();
    let said = std::fs::read(&log_path).unwrap_or_default();
    let said = said.get(usize::try_from(start).unwrap_or(0)..).unwrap_or_default();
    let said = String::from_utf8_lossy(said);
    bail!("the hub did not start: {}", said.trim().trim_start_matches("error: "))
}

/// Says what people have to know about the isolation of agents. A hub in the foreground says it itself.
async fn warn(data: &DataFiles) -> anyhow::Result<()> {
    let found = Client::connect(data).await?.show_isolation().await?;
    found.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    Ok(())
}

fn make_private_directory(directory: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("cannot make {}", directory.display()))
}

fn open_log(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the hub is ourselves: same environment, and it outlives us"
)]
fn background_command(directory: &std::path::Path) -> anyhow::Result<std::process::Command> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.current_dir(directory);
    super::allocator::set(&mut command);
    Ok(command)
}
