//! The launch of an agent's program, here or on another machine: what it is started with, and what it is told first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use teamster_agents::agent::{Begin, Bridge, McpServer, Resume, Transport};
use teamster_agents::drivers::{self, Preparation};
use teamster_agents::launch::{Grace, Launch, Private, Terminate};
use teamster_agents::started::Started;
use teamster_core::agent::{Agent, Isolation};
use teamster_core::role::Role;

use super::missing::missing;
use super::remote::{self, NotThere};
use super::{Shared, worktree};
use crate::config::{self, BRIDGE_TOKEN, BRIDGE_URL};
use crate::isolation;
use crate::programs::{self, Driver, Ends, Program};
use crate::settings::Mcp;
use crate::ssh::Ssh;

/// How long a program may take until it can be prompted: the slowest known takes 24 s on a loaded machine.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(90);
/// How long after SIGTERM a program is killed.
const TERMINATE_PATIENCE: Duration = Duration::from_secs(2);

/// A program that was started, and what it is told first.
pub(super) struct Launched {
    pub(super) driver: Box<dyn drivers::Driver>,
    pub(super) begin: Begin,
    pub(super) started: Started,
    pub(super) grace: Grace,
    pub(super) isolation: Isolation,
}

/// Starts an agent's program where it belongs.
pub(super) async fn launch(
    shared: &Shared,
    agent: &Agent,
    role: &Role,
    secret: &str,
    session: Option<&str>,
) -> Result<Launched, String> {
    match remote::of(&shared.hub.state(), agent) {
        None => launch_here(shared, agent, role, secret, session).await,
        Some(remote) => launch_there(shared, agent, role, secret, (session, &remote)).await,
    }
}

/// Starts an agent's program on this machine.
async fn launch_here(
    shared: &Shared,
    agent: &Agent,
    role: &Role,
    secret: &str,
    session: Option<&str>,
) -> Result<Launched, String> {
    let configuration = shared.configured.current();
    let settings = &configuration.settings;
    let search_path = shared.configured.search_path();
    if let Some(missing) = missing(&configuration, search_path, agent, role) {
        return Err(missing);
    }
    let wanted = Some(&*role.program).filter(|program| !program.is_empty());
    let (known, path) = settings.programs.choose(wanted, search_path)?;
    let program = known.program.clone();
    let state = shared.hub.state();
    let team = state.team_of(agent);
    let mut directory = PathBuf::from(&*super::workplace(&state, agent));
    if let Some(team) = team
        && let Some(root) = &team.worktrees
        && directory.starts_with(&**root)
        && let Some(conversation) = state.conversations.of_agent(&agent.id)
    {
        let branch = worktree::branch(&team.name, conversation, &directory);
        let (held, repository) = (shared.hub.held(), Path::new(&*team.directory));
        directory = worktree::ensure(held, repository, &directory, &branch).await?;
    }
    if !directory.is_dir() {
        return Err(format!("there is no directory {}", directory.display()));
    }
    let model = role.model.as_deref();
    // Other hubs have agents of the same name, and what carries the id of a launch may be ended by whoever knows it.
    let id = launch_id(agent, shared.secrets.nonce());
    let launch = Launch::new(id, path, shared.isolation().await?);
    let mut launch = filled(launch, &program, model, &settings.mcp, &directory);
    if role.permissions.hold_back() {
        let asking = program.asking().into_iter();
        launch.environment.extend(asking.map(|(name, value)| (name.into(), value.into())));
    }
    shared.guarded.keep(&mut launch);
    launch.memory_max = settings.isolation.memory_bytes();
    launch.passed_on.extend(team.iter().flat_map(|team| &team.pass).map(ToString::to_string));
    let session = session.filter(|_| program.load_session);
    let mut begin = beginning((shared, agent, role), &shared.url, directory, secret, session);
    offer(&mut begin, &program, &launch);
    let mut driver = driver(&program);
    let launch = prepared(launch, driver.as_mut(), &begin);
    let started = shared.supervisor.launch(launch).await;
    let started = started.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let grace = grace(&program);
    let isolation = isolation::recorded(started.process.isolation());
    Ok(Launched { driver, begin, started, grace, isolation })
}

/// Starts an agent's program on another machine.
async fn launch_there(
    shared: &Shared,
    agent: &Agent,
    role: &Role,
    secret: &str,
    (session, remote): (Option<&str>, &str),
) -> Result<Launched, String> {
    let ssh = Ssh::parse(remote)?;
    let configuration = shared.configured.current();
    let settings = &configuration.settings;
    let program = settings.programs.find(&role.program)?.program.clone();
    let model = role.model.as_deref();
    let session = session.filter(|_| program.load_session);
    // What the program is passed on here is this machine's; there it has what its user has there, and what its team names.
    let state = shared.hub.state();
    let team = state.team_of(agent);
    let pass: Vec<String> =
        team.iter().flat_map(|team| &team.pass).map(ToString::to_string).collect();
    let directory = super::workplace(&state, agent);
    for _ in 0..remote::PORTS_TRIED_MAX {
        let nonce = shared.secrets.nonce();
        let port = remote::port(nonce);
        let url = format!("http://127.0.0.1:{port}");
        let id = format!("{nonce:032x}");
        let begun_in = PathBuf::from(&*directory);
        let mut begin = beginning((shared, agent, role), &url, begun_in, secret, session);
        begin.transport = transport(&program);
        let mut driver = driver(&program);
        let mut variables = program.variables(model, &settings.mcp);
        if role.permissions.hold_back() {
            variables.extend(program.asking());
        }
        let variables = variables.into_iter();
        let private = remote::private(&id);
        let mut order = remote::Order {
            ssh: &ssh,
            id,
            directory: &directory,
            program: &program.command,
            args: program.arguments(model).into_iter().map(Into::into).collect(),
            environment: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            pass: &pass,
            files: Vec::new(),
            grace: grace(&program),
        };
        order.prepare(driver.prepare(&begin, &private));
        let id = launch_id(agent, nonce);
        let launch = Launch::new(id, shared.hub.held().programs().ssh(), shared.isolation().await?);
        match remote::start(shared, agent, launch, &order, port).await {
            Ok((started, directory)) => {
                // Where it really is, which the program is told.
                begin.directory = directory;
                let grace = remote::grace(order.grace);
                let isolation = Isolation::Remote;
                return Ok(Launched { driver, begin, started, grace, isolation });
            }
            Err(NotThere::Because(why)) => return Err(why),
            Err(NotThere::PortTaken) => {}
        }
    }
    Err(remote::NO_PORT.to_owned())
}

/// Returns a name for one launch.
fn launch_id(agent: &Agent, nonce: u128) -> String {
    format!("{}{:016x}", launch_prefix(agent), nonce >> 64)
}

/// Says whether a launch was of this incarnation of an agent.
pub(super) fn is_launch_of(id: &str, agent: &Agent) -> bool {
    id.strip_prefix(&launch_prefix(agent)).is_some_and(|rest| !rest.contains('-'))
}

/// Teams may have characters in their names that a launch may not.
fn launch_prefix(agent: &Agent) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = agent.id.as_str().chars().map(plain).collect();
    format!("{name}-{}-", agent.incarnation)
}

/// Returns what a program is told first.
fn beginning(
    (shared, agent, role): (&Shared, &Agent, &Role),
    url: &str,
    directory: PathBuf,
    secret: &str,
    session: Option<&str>,
) -> Begin {
    let configuration = shared.configured.current();
    let tool_timeout = configuration.settings.mcp.stream_timeout.get().into();
    let program = configuration.settings.programs.find(&role.program).ok();
    let reports = program.map(|known| known.program.usage.reports()).unwrap_or_default();
    Begin {
        directory,
        mcp_servers: vec![McpServer {
            name: "teamster".into(),
            url: match &agent.draft.run {
                // Some programs append the last part to a URL that does not end in it.
                Some(run) => format!("{url}/mcp/session/{run}/mcp"),
                None => format!("{url}/mcp"),
            },
            headers: vec![("Authorization".into(), format!("Bearer {secret}"))],
            tool_timeout: Some(Duration::from_millis(tool_timeout)),
            bridge: None,
        }],
        resume: session.map(|session| Resume {
            session: session.to_owned(),
            or_new: !is_handed_over(agent),
            spent_micros: agent.used.microdollars,
        }),
        model: role.model.as_deref().map(str::to_owned),
        nonce: shared.secrets.nonce(),
        asks: role.permissions.hold_back(),
        reports,
        cannot_resume: program.is_some_and(|known| !known.program.load_session),
        ..Begin::default()
    }
}

/// Adds what depends on the program and on this machine: how it takes the hub's tools, and how it can log in.
pub(super) fn offer(begin: &mut Begin, program: &Program, launch: &Launch) {
    begin.transport = transport(program);
    let passed_on = launch.passed_on.iter().filter(|name| config::is_set(name)).cloned();
    let set = launch.environment.iter().map(|(name, _)| name.to_string_lossy().into_owned());
    begin.variables = passed_on.chain(set).collect();
    let logins = program.authenticate.iter();
    let logins =
        logins.filter(|(name, _)| begin.variables.iter().any(|set| *set == name.to_string()));
    begin.logins = logins.map(|(_, method)| method.clone()).collect();
    let Some(command) = programs::own_file() else { return };
    for server in &mut begin.mcp_servers {
        server.bridge = bridge(command.clone(), server);
    }
}

fn transport(program: &Program) -> Transport {
    match program.mcp {
        programs::Transport::Auto => Transport::Auto,
        programs::Transport::Http => Transport::Http,
        programs::Transport::Stdio => Transport::Stdio,
    }
}

/// Returns the command that serves an agent the same over stdio, with the agent's own token in its environment.
fn bridge(command: PathBuf, server: &McpServer) -> Option<Bridge> {
    let token = server.headers.iter().find_map(|(_, value)| value.strip_prefix("Bearer "))?;
    let environment = [(BRIDGE_URL, server.url.as_str()), (BRIDGE_TOKEN, token)];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(Bridge {
        command,
        args: vec!["mcp".to_owned(), "--bridge".to_owned()],
        environment: environment.into(),
    })
}

/// Says whether this is the hub's first start of what a person began: without that session there is nothing to go on with.
pub(super) fn is_handed_over(agent: &Agent) -> bool {
    agent.incarnation == 1 && agent.session.is_some()
}

/// Adds to a launch what a program is started with.
pub(super) fn filled(
    mut launch: Launch,
    program: &Program,
    model: Option<&str>,
    mcp: &Mcp,
    directory: &Path,
) -> Launch {
    launch.args = program.arguments(model).into_iter().map(Into::into).collect();
    launch.directory = directory.to_owned();
    launch.passed_on = program.pass.iter().map(ToString::to_string).collect();
    let variables = program.variables(model, mcp).into_iter();
    launch.environment = variables.map(|(name, value)| (name.into(), value.into())).collect();
    launch
}

/// Adds to a launch what its driver wants for it. Files of a launch are not in the data, which is hidden from it, nor in its
/// project, which is the user's.
pub(super) fn prepared(
    mut launch: Launch,
    driver: &mut dyn drivers::Driver,
    begin: &Begin,
) -> Launch {
    let directory = std::env::temp_dir().join(format!("teamster-launch-{:032x}", begin.nonce));
    let Preparation { args, environment, files } = driver.prepare(begin, &directory);
    launch.args.extend(args);
    launch.environment.extend(environment);
    launch.private = (!files.is_empty()).then_some(Private { directory, files });
    launch
}

pub(super) fn driver(program: &Program) -> Box<dyn drivers::Driver> {
    match program.driver {
        Driver::Acp => Box::new(drivers::acp::Acp::default()),
        Driver::Claude => Box::new(drivers::claude::Claude::default()),
        Driver::Codex => Box::new(drivers::codex::Codex::default()),
    }
}

/// Returns how a program is ended.
pub(super) fn grace(program: &Program) -> Grace {
    let grace = Duration::from_secs(u64::from(program.grace_s.get()));
    match program.ends {
        Ends::Stdin => Grace {
            after_stdin: grace,
            terminate: Terminate::Program,
            after_terminate: TERMINATE_PATIENCE,
        },
        Ends::Sigterm => Grace {
            after_stdin: Duration::ZERO,
            terminate: Terminate::Group,
            after_terminate: grace,
        },
    }
}
