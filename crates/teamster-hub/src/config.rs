//! Where things are. The only place that reads environment variables.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use teamster_agents::launches::MARK;
use teamster_log::Location;

/// The settings that a variable of the environment can change, and its name.
pub const VARIABLES: [(&str, &str); 14] = [
    ("program", "TEAMSTER_PROGRAM"),
    ("pool.running", "TEAMSTER_POOL_RUNNING"),
    ("pool.live", "TEAMSTER_POOL_LIVE"),
    ("limits.depth", "TEAMSTER_LIMITS_DEPTH"),
    ("limits.children", "TEAMSTER_LIMITS_CHILDREN"),
    ("limits.total", "TEAMSTER_LIMITS_TOTAL"),
    ("limits.turns", "TEAMSTER_LIMITS_TURNS"),
    ("limits.wall_minutes", "TEAMSTER_LIMITS_WALL_MINUTES"),
    ("limits.dollars", "TEAMSTER_LIMITS_DOLLARS"),
    ("limits.tokens", "TEAMSTER_LIMITS_TOKENS"),
    ("permissions.otherwise", "TEAMSTER_PERMISSIONS_OTHERWISE"),
    ("mcp.fullAccessCategories", "TEAMSTER_MCP_FULL_ACCESS_CATEGORIES"),
    ("mcp.streamTimeout", "TEAMSTER_MCP_STREAM_TIMEOUT"),
    ("telemetry.otlp", "TEAMSTER_TELEMETRY_OTLP"),
];

/// The variable that sets the number of the allocator's arenas.
pub const ALLOCATOR_VARIABLE: &str = "MALLOC_ARENA_MAX";

/// Says whether the environment sets up the allocator.
pub fn has_allocator_variable() -> bool {
    std::env::var_os(ALLOCATOR_VARIABLE).is_some()
}

/// Which workspace a command is about.
#[derive(Debug, Clone, clap::Args)]
pub struct Place {
    /// The workspace: one log, with its own hub
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "TEAMSTER_WORKSPACE",
        hide_env_values = true,
        default_value = "default",
        help_heading = "Workspace"
    )]
    pub workspace: String,

    /// The directory that holds the workspace's data, instead of the user's state directory
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "TEAMSTER_DATA",
        hide_env_values = true,
        help_heading = "Workspace"
    )]
    pub data: Option<PathBuf>,
}

impl Place {
    /// Returns the files of the workspace, which also know how to call this program for it.
    pub fn data_files(&self) -> anyhow::Result<DataFiles> {
        let flag = match &self.data {
            Some(data) => format!(" --data {}", data.display()),
            None if self.workspace == "default" => String::new(),
            None => format!(" --workspace {}", self.workspace),
        };
        Ok(DataFiles { log: self.location()?, flag })
    }

    /// Returns where the log is, which is in the data directory.
    fn location(&self) -> anyhow::Result<Location> {
        if let Some(data) = &self.data {
            if let Some(text) = data.to_str()
                && let Some(location) = Location::parse(text)?
            {
                return Ok(location);
            }
            let directory = std::path::absolute(data)
                .with_context(|| format!("cannot use {} as a directory", data.display()))?;
            return Ok(Location::of(&directory));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let fits = !self.workspace.is_empty()
            && self.workspace.len() <= 64
            && self.workspace.chars().all(plain);
        if !fits {
            bail!(
                "the workspace {:?} is not a valid name; use 1 to 64 letters, digits, `_` or `-`",
                self.workspace
            );
        }
        Ok(Location::of(&state_root()?.join(&self.workspace)))
    }
}

/// Returns where the user's programs keep their state.
fn state_home() -> anyhow::Result<PathBuf> {
    match variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(state) => Ok(state),
        None => Ok(home()?.join(".local").join("state")),
    }
}

/// Returns where the data of all workspaces is, but for those that have a directory of their own.
pub fn state_root() -> anyhow::Result<PathBuf> {
    Ok(state_home()?.join("teamster"))
}

/// Returns the user's home directory.
pub fn home() -> anyhow::Result<PathBuf> {
    let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.context("HOME is not set; set it, or name what is needed (--data DIR for the hub's data)")
}

/// Returns where Claude Code keeps its configuration.
pub fn claude_home() -> anyhow::Result<PathBuf> {
    variable("CLAUDE_CONFIG_DIR").map(PathBuf::from).map_or_else(home, Ok)
}

/// Returns where Codex keeps its configuration.
pub fn codex_home() -> anyhow::Result<PathBuf> {
    variable("CODEX_HOME").map(PathBuf::from).map_or_else(|| Ok(home()?.join(".codex")), Ok)
}

/// Returns where the user's programs keep their configuration.
pub fn config_home() -> anyhow::Result<PathBuf> {
    match variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(config) => Ok(config),
        None => Ok(home()?.join(".config")),
    }
}

/// Returns the settings that the environment has, by the names of its variables.
pub fn setting_variables() -> Vec<(&'static str, String)> {
    VARIABLES.iter().filter_map(|(_, name)| Some((*name, variable(name)?))).collect()
}

/// Returns the directories in which programs are looked for.
pub fn search_path() -> Vec<PathBuf> {
    variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns where scripted agents keep their sessions. It is a temporary directory that the system clears unless another
/// is named. Each user has one: nobody can write into that of another.
pub fn scripted_agent_state() -> PathBuf {
    let named = variable("TEAMSTER_SCRIPTED_STATE").map(PathBuf::from);
    named.unwrap_or_else(|| {
        let user = rustix::process::geteuid().as_raw();
        std::env::temp_dir().join(format!("teamster-scripted-{user}"))
    })
}

/// The variables by which the hub gives a bridge of an agent (`teamster mcp --bridge`) the URL and the agent's token.
pub const BRIDGE_URL: &str = "TEAMSTER_MCP_URL";
pub const BRIDGE_TOKEN: &str = "TEAMSTER_MCP_TOKEN";

/// Returns the URL and the token of a bridge.
pub fn bridge() -> anyhow::Result<(String, String)> {
    let needed =
        |name| variable(name).with_context(|| format!("{name} is not set; the hub sets it"));
    Ok((needed(BRIDGE_URL)?, needed(BRIDGE_TOKEN)?))
}

/// Returns the launch that we are a process of, if an agent of a hub started us.
pub fn own_launch() -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    variable(MARK).filter(|launch| launch.chars().all(plain))
}

/// Says whether a variable is set and not empty.
pub fn is_set(name: &str) -> bool {
    variable(name).is_some()
}

/// Returns how a person calls this program: by its name if that finds it, else by its path.
fn own_name() -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| "teamster".into());
    let found = variable("PATH").into_iter().any(|path| {
        let mut programs = std::env::split_paths(&path).map(|directory| directory.join("teamster"));
        programs.any(|program| std::fs::canonicalize(program).is_ok_and(|program| program == own))
    });
    if found { "teamster".into() } else { own.to_string_lossy().into_owned() }
}

/// Returns what to log, in the words of `tracing_subscriber`.
pub fn log_filter() -> String {
    variable("TEAMSTER_LOG").unwrap_or_else(|| "warn,rmcp=off,notify=error,teamster=info".into())
}

/// Says whether the person's terminal can show something in any place, as all do that do not say otherwise.
pub fn terminal_can_move() -> bool {
    variable("TERM").is_some_and(|terminal| terminal != "dumb")
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The files in a data directory that the shell keeps beside the log.
#[derive(Debug, Clone)]
pub struct DataFiles {
    log: Location,
    /// What a command needs so that it means this workspace.
    flag: String,
}

impl DataFiles {
    /// The files in some directory.
    pub fn of(directory: &Path) -> Self {
        let flag = format!(" --data {}", directory.display());
        Self { log: Location::of(directory), flag }
    }

    pub fn directory(&self) -> &Path {
        self.log.directory()
    }

    /// Where the log is.
    pub fn log(&self) -> &Location {
        &self.log
    }

    /// Returns the command line that does `verb` in this workspace, as a person would type it.
    pub fn call(&self, verb: &str) -> String {
        format!("{}{} {verb}", own_name(), self.flag)
    }

    /// Tells programs about the running hub.
    pub fn hub(&self) -> PathBuf {
        self.directory().join("hub.json")
    }

    /// The operator's token.
    pub fn operator_token(&self) -> PathBuf {
        self.directory().join("operator.token")
    }

    /// The token of whatever connects with the line that `up` prints.
    pub fn agent_token(&self) -> PathBuf {
        self.directory().join("agent.token")
    }

    /// The key that seals what clients carry for the hub. Without it a new one is made, and open questions are asked
    /// anew.
    pub fn seal_key(&self) -> PathBuf {
        self.directory().join("seal.key")
    }

    /// Where the hub listens, remembered so that installed configurations survive restarts.
    pub fn address(&self) -> PathBuf {
        self.directory().join("address")
    }

    /// What a hub in the background says.
    pub fn hub_log(&self) -> PathBuf {
        self.directory().join("hub.log")
    }

    /// The hub's unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join("hub.sock")
    }

    /// Where a team's conversations, or a run's workers, have their worktrees: beside the directory, whose contents agents do not see.
    pub fn worktrees(&self, of: &str) -> PathBuf {
        let mut name = self.directory().file_name().unwrap_or_default().to_owned();
        name.push("-worktrees");
        self.directory().with_file_name(name).join(of)
    }

    /// Notes of what the hub has started.
    pub fn launches(&self) -> PathBuf {
        self.directory().join("launches")
    }

    /// Which projects' hooks the user trusts. Agents do not see it.
    pub fn trust(&self) -> PathBuf {
        self.directory().join("trust")
    }

    /// Held by the hub that writes this directory.
    pub fn lock(&self) -> PathBuf {
        self.directory().join("lock")
    }
}

impl From<&DataFiles> for teamster_api::Place {
    fn from(data: &DataFiles) -> Self {
        Self { directory: data.directory().to_owned(), starts_hub: data.call("up -d") }
    }
}

/// Writes a file that only its owner may read, in one step: whoever opens it finds all of it or what was there before.
pub fn write_private(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    write(path, contents, 0o600)
}

/// Replaces a file of the user's in one step. It stays readable for whom it was; one that was not there is its owner's.
pub fn replace(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map(|file| file.permissions().mode() & 0o777);
    write(path, contents, mode.unwrap_or(0o600))
}

fn write(path: &Path, contents: &[u8], mode: u32) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let doing = || format!("cannot write {}", path.display());
    let directory = path.parent().with_context(doing)?;
    let name = path.file_name().with_context(doing)?.to_string_lossy().into_owned();
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().with_context(doing).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}
