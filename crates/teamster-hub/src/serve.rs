//! A running hub: the log, the loop, the door, and an orderly end.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::serve::ListenerExt;
use futures_util::future::OptionFuture;
use teamster_agents::supervisor::own_program;
use teamster_core::grant::{Grant, Grants};
use teamster_core::token::{self, Kind, NewToken};
use teamster_core::{Caller, Command, PrincipalName, yak};
use teamster_log::Log;
use teamster_mcp::call::PATIENCE;
use teamster_mcp::door::http as door;
use teamster_mcp::seal::Seal;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::api::{self, Api};
use crate::clock::SystemClock;
use crate::config::{self, DataFiles, write_private};
use crate::held::{self, Confined, Guarded};
use crate::hub::{self, Handle, Opened, Parts, Snapshots};
use crate::isolation::Standing;
use crate::listen::{self, Connections, Limits};
use crate::project::Project;
use crate::settings::Configuration;
use crate::telemetry::{Sources, Telemetry, Traces};
use crate::{agents, outlive, quotas, secret, tasks, work};
use teamster_api::HubFile;

/// How long connections may take to finish when the hub ends.
const DOORS_PATIENCE: Duration = Duration::from_secs(5);

/// How long agents may take to end when the hub ends: longer than the grace of any program.
const AGENTS_PATIENCE: Duration = Duration::from_secs(75);

/// What a hub is started with.
#[derive(Debug)]
pub struct Settings {
    pub data: DataFiles,
    pub project: Project,
    /// Whether the person named the project; then new yaks are called after it from now on.
    pub project_named: bool,
    pub listen: Option<SocketAddr>,
    pub configuration: Configuration,
}

/// What a ready hub tells whoever started it.
#[derive(Debug, Clone)]
pub struct Ready {
    pub file: HubFile,
    pub data: PathBuf,
}

/// Runs a hub until it is asked to stop. `ready` is called once it can be called; `progress` while it is starting.
pub async fn run(
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send + 'static,
    progress: impl FnMut(u64, u64),
    ready: impl FnOnce(&Ready),
) -> anyhow::Result<()> {
    let Settings { data, project, project_named, listen, configuration } = settings;
    outlive::prepare();
    let log: Arc<dyn Log> = teamster_log::open_at(data.log()).await?;
    let state = config::state_root().ok();
    let guarded = Guarded::new(&data, state.as_deref(), configuration.sources.user.as_deref())
        .context("the data directory cannot be hidden from agents")?;
    let held = Confined::by(&data, guarded.clone())?;
    let project = project.held_by(held.clone());
    let listener = bind(&data, listen).await?;
    let address = listener.local_addr()?;

    let clock = Arc::new(SystemClock);
    let name = project.name();
    let parts = Parts {
        log: log.clone(),
        clock: clock.clone(),
        random: secret::system_random(),
        project,
        snapshots: Snapshots::USUAL,
    };
    let Opened { handle, run } = hub::start(parts, progress).await?;
    let (loop_ended, mut loop_end) = watch::channel(None);
    tasks::spawn("decide", async move {
        let _ = loop_ended.send(Some(hub::guarded(run).await));
    });

    tasks::spawn("watch the loop", handle.watch_the_loop());

    let socket = bind_socket(&data);
    let mut file = prepare(&handle, &data, address, (&name, project_named)).await?;
    file.socket = socket.as_ref().map(|_| data.socket());
    let (stop, mut stopped) = watch::channel(false);
    let (catalogue, connections) = (teamster_mcp::tools::catalogue(), Connections::default());
    let sources = Sources {
        hub: handle.clone(),
        data: Some(data.directory().to_owned()),
        connections: connections.clone(),
        traces: traces(&configuration),
    };
    let telemetry = Arc::new(Telemetry::new(&catalogue, sources));
    let served = door::Served::new(door::Setup {
        hub: Arc::new(handle.clone()),
        catalogue,
        secrets: door::Secrets { new: secret::new_secret, hash: secret::hash },
        spawn: Arc::new(|name, task| {
            tasks::spawn(name, task);
        }),
        seal: seal(&data)?,
        observer: telemetry.clone(),
        patience: PATIENCE,
        paces: handle.paces().clone(),
    });
    quotas::apply(&handle, &configuration.settings.quotas, data.directory().to_owned());
    let live = agents::Live::default();
    let configured = Arc::new(agents::Configured::new(handle.clone(), data.clone(), configuration));
    let queue = agents::Queue::new(handle.clone(), clock.clone(), configured.clone());
    let between = Arc::new(work::Between::new(handle.clone(), clock.clone(), &data)?);
    let standing = Standing::default();
    let supervisor = Arc::new(held::supervisor(own_program()?, data.directory()));
    let runner = agents::Runner::new(agents::Setup {
        hub: handle.clone(),
        log: log.clone(),
        clock: clock.clone(),
        supervisor: supervisor.clone(),
        random: secret::system_random(),
        guarded: guarded.clone(),
        url: file.url.clone(),
        configured: configured.clone(),
        live: live.clone(),
        queue: queue.clone(),
        of_runs: between.clone(),
        standing: standing.clone(),
    })
    .await?;
    let agents_stop = runner.stopper();
    let work = work::Work::new(work::Setup {
        hub: handle.clone(),
        supervisor,
        data: data.clone(),
        guarded,
        configured: configured.clone(),
        between,
    })?;
    let work_stop = work.stopper();
    let api = api::router(Api {
        hub: handle.clone(),
        log: log.clone(),
        clock,
        stop: stop.clone(),
        live,
        queue,
        telemetry: telemetry.clone(),
        configured: configured.clone(),
        standing,
    });
    let router = door::router(served.clone(), api, address.port());
    // Without this, each answer in two pieces would wait 40 ms for the client's acknowledgement.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::warn!(%error, "cannot set TCP_NODELAY");
        }
    });
    let stop_serving = || {
        let mut closing = stopped.clone();
        async move {
            // An error means that nobody can stop us any more, so stop.
            let _ = closing.wait_for(|stop| *stop).await;
        }
    };
    let (at_port, at_socket) = Limits::of_this_process().with_socket();
    let on_socket = socket.map(|socket| {
        listen::serve(socket, router.clone(), at_socket, connections.clone(), stop_serving())
    });
    let on_tcp = listen::serve(listener, router, at_port, connections, stop_serving());
    let (door_ended, door_end) = watch::channel(false);
    tasks::spawn("serve HTTP", async move {
        tokio::join!(on_tcp, OptionFuture::from(on_socket));
        let _ = door_ended.send(true);
    });

    // Only now: agents call the hub as soon as they start.
    tasks::spawn("run agents", runner.run());
    tasks::spawn("work runs off", work.run());
    let directory = data.directory().to_owned();
    let keeps_quotas =
        quotas::run(handle.clone(), configured.clone(), directory, agents_stop.stopping());
    tasks::spawn("keep to the quotas", keeps_quotas);
    tasks::spawn("watch the configuration", configured.watch(agents_stop.stopping()));

    write_private(&data.hub(), &serde_json::to_vec_pretty(&file)?)?;
    ready(&Ready { file, data: data.directory().to_owned() });

    tokio::select! {
        () = shutdown => tracing::info!("stopping: asked by a signal"),
        _ = stopped.wait_for(|stop| *stop) => tracing::info!("stopping: asked by the operator"),
        outcome = loop_end.wait_for(Option::is_some) => {
            let why = outcome.ok().and_then(|outcome| outcome.clone()?.err());
            tracing::error!("stopping: {}", why.unwrap_or_else(|| "the loop ended".to_owned()));
        }
    }
    // Agents end while the doors still answer them. Then the doors, the loop and the log, so that every call that was let
    // in is answered.
    let ended = async { tokio::join!(work_stop.stop(), agents_stop.stop()) };
    if tokio::time::timeout(AGENTS_PATIENCE, ended).await.is_err() {
        tracing::warn!("some agents did not end in time; they are killed with the hub");
    }
    handle.end_waits();
    let _ = stop.send(true);
    served.end_streams();
    let mut door_end = door_end;
    let doors_end = async { tokio::join!(door_end.wait_for(|ended| *ended), served.lines_ended()) };
    if tokio::time::timeout(DOORS_PATIENCE, doors_end).await.is_err() {
        tracing::warn!("some connections did not end in time and were cut");
    }
    served.end_calls();
    handle.shut_down().await;
    held.end().await;
    telemetry.end().await;
    let outcome = loop_end.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
    let _ = std::fs::remove_file(data.socket());
    if let Err(error) = std::fs::remove_file(data.hub()) {
        tracing::warn!(%error, "cannot remove {}", data.hub().display());
    }
    match outcome {
        Some(Err(why)) => bail!("the hub had to stop: {why}"),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Gets ready to send spans, if a collector is configured. A hub does not need one.
fn traces(configuration: &Configuration) -> Option<Traces> {
    let made = Traces::to(configuration.settings.telemetry.otlp.as_ref()?);
    made.inspect_err(|error| tracing::warn!("no spans are sent: {error:#}")).ok()
}

/// Binds where the hub listened before, unless told otherwise; the first time, any free port.
async fn bind(data: &DataFiles, asked: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    let remembered = std::fs::read_to_string(data.address())
        .ok()
        .and_then(|text| text.trim().parse::<SocketAddr>().ok());
    let address = asked.or(remembered).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    if !address.ip().is_loopback() {
        bail!(
            "{address} is not a loopback address; this version serves only this machine, so use 127.0.0.1:{}",
            address.port()
        );
    }
    let listener = TcpListener::bind(address).await.with_context(|| {
        let other = if asked.is_none() {
            "; connected agents expect the hub there, so free it, or move with --listen 127.0.0.1:0"
        } else {
            ""
        };
        format!("cannot listen on {address}{other}")
    })?;
    write_private(&data.address(), format!("{}\n", listener.local_addr()?).as_bytes())?;
    Ok(listener)
}

/// Opens the unix socket beside the log. The hub can do without: a path may be too long for one.
fn bind_socket(data: &DataFiles) -> Option<UnixListener> {
    let path = data.socket();
    // Whoever listened here before is gone: we hold the directory's lock.
    let _ = std::fs::remove_file(&path);
    let bound = UnixListener::bind(&path).and_then(|listener| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    bound.inspect_err(|error| tracing::warn!(%error, "no unix socket at {}", path.display())).ok()
}

/// Makes sure that the operator and the default agent have tokens and that new yaks have a name.
async fn prepare(
    hub: &Handle,
    data: &DataFiles,
    address: SocketAddr,
    (project, named): (&str, bool),
) -> anyhow::Result<HubFile> {
    let version = env!("CARGO_PKG_VERSION");
    let start = teamster_core::hub::Command::Start { version: version.into() };
    hub.submit(Caller::hub(), Command::Hub(start), None).await?;
    let operator = PrincipalName::parse("operator")?;
    ensure_token(hub, &data.operator_token(), operator, Kind::OPERATOR, Grants::everything())
        .await?;
    let agent = PrincipalName::parse(token::DEFAULT_AGENT)?;
    let grants = Grants::new([Grant::Full]);
    ensure_token(hub, &data.agent_token(), agent, Kind::Agent, grants).await?;
    if named || hub.state().yaks.prefix().is_none() {
        let prefix = yak::Command::SetPrefix { prefix: project.to_owned() };
        hub.submit(Caller::hub(), Command::Yak(prefix), None).await?;
    }
    Ok(HubFile {
        url: format!("http://{address}"),
        pid: std::process::id(),
        token_file: data.operator_token(),
        version: version.into(),
        socket: None,
    })
}

/// Returns what seals with the data directory's own key, which is made the first time.
fn seal(data: &DataFiles) -> anyhow::Result<Seal> {
    let file = data.seal_key();
    let kept = std::fs::read(&file).ok().and_then(|key| key.try_into().ok());
    let key = match kept {
        Some(key) => key,
        None => {
            let key = secret::new_key()?;
            write_private(&file, &key)?;
            key
        }
    };
    Ok(Seal::new(key))
}

/// Makes a token, unless the file holds the secret of a live one. The file is written first: a token in the log that
/// nobody holds is harmless and is replaced the next time.
async fn ensure_token(
    hub: &Handle,
    file: &std::path::Path,
    principal: PrincipalName,
    kind: Kind,
    grants: Grants,
) -> anyhow::Result<()> {
    if let Ok(secret) = teamster_api::read_token(file)
        && hub.state().tokens.by_secret(&secret::hash(&secret)).is_some()
    {
        return Ok(());
    }
    let secret = secret::new_secret();
    write_private(file, format!("{secret}\n").as_bytes())?;
    let new = NewToken {
        principal,
        kind,
        secret: secret::hash(&secret),
        grants,
        run: None,
        team: None,
        expires_at: None,
    };
    hub.submit(Caller::hub(), Command::Token(token::Command::Create { new, replace: true }), None)
        .await?;
    Ok(())
}
