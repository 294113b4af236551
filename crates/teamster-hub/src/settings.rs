//! What people configure: the user's `teamster.toml` and a project's own, roles, and what the environment and flags say
//! over them. A bad file stops nothing: what is sound is used, and the rest is a list of problems.

mod changes;
mod check;
mod docs;
mod files;
mod problem;
mod toml;
mod tree;
mod words;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::prices::{self, Prices};
use crate::programs::{self, Programs};
use crate::roles::{self, RoleFields, Roles};
use crate::work::hooks::{self, HookFields};

pub use changes::changes;
pub(crate) use check::sound;
pub use docs::configuration_markdown;
pub(crate) use files::{markdown_files, read_text};
pub use problem::Problem;
pub(crate) use problem::without_line;
pub(crate) use toml::read as read_toml;
pub use tree::{Layer, Origin};
pub use tree::{Node, Value};
pub use words::{CollectorUrl, GrantWord, Line, Money, Name, Remote, Rule, Variable, Whole};
pub(crate) use yaml::read as read_yaml;
pub use yaml::read_as_text as read_yaml_as_text;

/// The name of the configuration file, the user's and a project's.
pub const FILE_NAME: &str = "teamster.toml";

/// Everything that can be configured. A project's file may define roles, lower limits, and hooks that run once its user
/// trusts them; the rest is its user's.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The program of roles that name none; without it, the first that is found on the PATH
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Name>,
    /// How many agents there may be
    pub pool: Pool,
    /// How far one drafted agent may go, with all that it drafts
    pub limits: Limits,
    /// What agents' programs may do without asking a person
    pub permissions: Permissions,
    /// When an agent is stopped for going in circles
    pub guard: Guard,
    /// What must hold agents' processes
    pub isolation: Isolation,
    /// What agents find at the hub
    pub mcp: Mcp,
    /// How long the talks with agents are kept
    pub transcripts: Transcripts,
    /// How much agents may store, and how fast they may write; operators have no quotas
    pub quotas: Quotas,
    /// Who is told how the hub works
    pub telemetry: Telemetry,
    /// Kinds of roles
    pub categories: Categories,
    /// Agent programs, beside those that are built in
    pub programs: Programs,
    /// What models cost, in dollars per million tokens, beside those that are built in
    pub prices: Prices,
    /// Projects whose agents others can talk to
    pub teams: BTreeMap<Line, TeamFields>,
    /// Roles, or changes to single fields of roles that have a file or are built in
    pub roles: BTreeMap<Name, RoleFields>,
    /// Commands that runs start at certain moments
    pub hooks: HookFields,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Agents at work at a time; more wait in order, and one that waits for others does not count
    pub running: Whole<1, 1_000>,
    /// Agents' processes at a time, at work or waiting
    pub live: Whole<1, 10_000>,
    /// How long agents wait whose account has nothing left, if their program does not tell until when
    pub park_minutes: Whole<1, 10_080>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            running: const { Whole::new(8) },
            live: const { Whole::new(16) },
            park_minutes: const { Whole::new(30) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How deep agents may draft agents; 0 drafts none
    pub depth: Whole<0, 16>,
    /// Children of one agent at a time
    pub children: Whole<0, 1_000>,
    /// All agents that one draft may lead to
    pub total: Whole<0, 1_000_000>,
    /// Prompts that one agent may be given
    pub turns: Whole<1, 100_000>,
    /// How long one agent may take
    pub wall_minutes: Whole<1, 43_200>,
    /// What one drafted agent and all below it may cost; the turns under way when it is spent are not cut short
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars: Option<Money>,
    /// How many tokens they may use, cached ones included; likewise
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Whole<1, 4_000_000_000>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: const { Whole::new(3) },
            children: const { Whole::new(8) },
            total: const { Whole::new(100) },
            turns: const { Whole::new(200) },
            wall_minutes: const { Whole::new(240) },
            dollars: None,
            tokens: None,
        }
    }
}

/// Rules for what a program asks permission for. `deny` goes before `ask`, that before `allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// What is denied: tools or their kinds (read, edit, delete, move, search, execute, fetch), with `*` for anything, and in parentheses what they are about
    pub deny: Vec<Rule>,
    /// What a person is asked
    pub ask: Vec<Rule>,
    /// What is allowed
    pub allow: Vec<Rule>,
    /// What becomes of the rest
    pub otherwise: Verdict,
    /// How long a person is waited for; then it is denied
    pub ask_minutes: Whole<1, 10_080>,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
            otherwise: Verdict::Allow,
            ask_minutes: const { Whole::new(60) },
        }
    }
}

impl Permissions {
    /// Returns whether a request can be denied or become a question.
    pub fn hold_back(&self) -> bool {
        !self.deny.is_empty() || !self.ask.is_empty() || self.otherwise != Verdict::Allow
    }
}

/// How often an agent may do the same before it is stopped. A call is compared with its tool and its whole input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// The same call this often in a row stops the agent; 0 turns this off, 1 counts as 2
    pub repeats: Whole<0, 1_000>,
    /// Two calls that alternate this often stop the agent; 0 turns this off, 1 counts as 2
    pub pairs: Whole<0, 1_000>,
    /// The same error this often stops the agent; 0 turns this off
    pub errors: Whole<0, 1_000>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            repeats: const { Whole::new(5) },
            pairs: const { Whole::new(4) },
            errors: const { Whole::new(8) },
        }
    }
}

/// What becomes of a request for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Verdict {
    /// The agent goes on.
    Allow,
    /// A person decides.
    Ask,
    /// The agent is told no.
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Mcp {
    /// Categories whose roles may draft, await and kill agents; all others may only look
    pub full_access_categories: Vec<Name>,
    /// How long an agent program should keep a call's stream open, in ms, where it has such a setting
    pub stream_timeout: Whole<1_000, 86_400_000>,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            full_access_categories: vec![Name::known("conversational")],
            stream_timeout: const { Whole::new(600_000) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Transcripts {
    /// Records older than this are removed, once a day; 0 keeps them
    pub keep_days: Whole<0, 36_500>,
    /// Maximum records of each agent; the oldest are removed, but not those of a message that is being answered; 0 keeps all
    pub keep_records: Whole<0, 4_000_000_000>,
    /// Maximum MiB that one process of an agent adds; then its oldest records are removed; 0 keeps all
    pub keep_mib: Whole<0, 1_000_000>,
}

impl Default for Transcripts {
    fn default() -> Self {
        Self {
            keep_days: const { Whole::new(180) },
            keep_records: const { Whole::new(100_000) },
            keep_mib: const { Whole::new(128) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Maximum MiB that one agent and all agents of its tree store in the log; 0 is no limit
    pub stored_mib: Whole<0, 1_000_000>,
    /// Maximum MiB that all agents together store in one run; 0 is no limit
    pub run_stored_mib: Whole<0, 1_000_000>,
    /// Writes per second of one agent and all agents of its tree; faster ones are slowed down, then refused; 0 is no limit
    pub writes_per_s: Whole<0, 1_000_000>,
    /// Writes that may come at once before `writes_per_s` counts
    pub writes_at_once: Whole<1, 1_000_000>,
    /// MiB per second of large requests of one agent and all agents of its tree; more is read slowly; 0 is no limit
    pub received_mib_per_s: Whole<0, 1_000_000>,
    /// MiB of the disk that are kept for operators, at most a twentieth of it; below, agents' writes are refused
    pub disk_reserve_mib: Whole<0, 1_000_000>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            stored_mib: const { Whole::new(64) },
            run_stored_mib: const { Whole::new(256) },
            writes_per_s: const { Whole::new(200) },
            writes_at_once: const { Whole::new(4_000) },
            received_mib_per_s: const { Whole::new(2) },
            disk_reserve_mib: const { Whole::new(512) },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    /// `namespaces` refuses agents on a machine without namespaces; without it, agents start with the best isolation that
    /// the machine has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<Required>,
    /// Maximum memory of one agent with everything that it starts, in MiB; it needs a control group of the hub's own
    /// (docs/security.md), and `teamster up` warns where there is none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Whole<64, 16_000_000>>,
}

impl Isolation {
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.memory_mb.map(|mb| u64::from(mb.get()) << 20)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Required {
    Namespaces,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// A collector that is sent a span for each tool call over OTLP/HTTP, e.g. http://127.0.0.1:4318; without it, none is made
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<CollectorUrl>,
}

/// A project whose agents others can talk to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamFields {
    /// Its directory, absolute or below the home directory as `~/…`
    pub path: String,
    /// Where its agents run, if not here: what `ssh` is told, such as `ssh -p 2222 ann@box`; its path is one there
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// What it is for, in one line
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
    /// The program that plays it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Name>,
    /// The model, in its program's words
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Line>,
    /// The role whose prompt, limits and rules it has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Name>,
    /// Its color where it is shown, such as `#FF6B9D`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<Line>,
    /// How long its agents are kept awake that have nothing to do, 60 if not said
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minutes: Option<Whole<1, 10_080>>,
    /// Rules of its own for what its program asks permission for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Whether each of its conversations has a git worktree of its own; else they share its directory, one at a time
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub worktrees: bool,
    /// Variables of the hub's environment that its agents get beside those of their program
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<Variable>,
    /// All that its agents may use
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<GrantWord>>,
}

/// The kinds of roles, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Categories(pub BTreeMap<Name, Category>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Category {
    /// How long an agent may show nothing before it counts as stalled
    pub stall_s: Whole<1, 86_400>,
    /// How long it may show nothing while one of its tools is at work
    pub tool_stall_s: Whole<1, 86_400>,
}

/// A build or a run of tests takes its time.
const TOOL_STALL: Whole<1, 86_400> = Whole::new(3_600);

impl Default for Category {
    fn default() -> Self {
        Self { stall_s: const { Whole::new(300) }, tool_stall_s: TOOL_STALL }
    }
}

impl Default for Categories {
    fn default() -> Self {
        let stalls = [
            ("coding", const { Whole::new(300) }),
            ("conversational", const { Whole::new(180) }),
            ("research", const { Whole::new(420) }),
        ];
        let known =
            |(name, stall_s)| (Name::known(name), Category { stall_s, tool_stall_s: TOOL_STALL });
        Self(stalls.into_iter().map(known).collect())
    }
}

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

/// What a project's file may say; everything else would be granting itself something.
const PROJECTS: [&str; 3] = ["roles", "limits", "hooks"];

/// Where settings come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The directory of the user's `teamster.toml` and `roles/`.
    pub user: Option<PathBuf>,
    /// The directory of the project's `teamster.toml` and `.teamster/roles/`.
    pub project: Option<PathBuf>,
    /// Variables of the environment (see [`VARIABLES`]) with their values.
    pub environment: Vec<(&'static str, String)>,
    /// What `--set` was given: `limits.depth=2`.
    pub flags: Vec<String>,
    /// What the user's file would say, to see what would come of it.
    pub users_text: Option<String>,
}

/// What all sources come to.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub settings: Settings,
    pub roles: Roles,
    /// The hooks of the project's file, which its user may not have trusted. Those of `settings` are the user's own.
    pub projects_hooks: HookFields,
    pub problems: Vec<Problem>,
    /// What it was read from.
    pub sources: Sources,
    tree: Node,
    /// What the project's file says that is kept apart.
    apart: Node,
}

/// One effective value and where it comes from.
#[derive(Debug, Clone)]
pub struct Shown {
    pub key: String,
    pub value: Json,
    pub from: Origin,
}

/// Reads all sources. Never fails: what is wrong with them is in `problems`.
pub fn read(sources: &Sources) -> Configuration {
    let mut problems = Vec::new();
    let user = sources.user.as_deref();
    let project = sources.project.as_deref().filter(|project| Some(*project) != user);
    let user_file = file(Layer::User, user, sources.users_text.as_deref(), &mut problems);
    let mut project_file = file(Layer::Project, project, None, &mut problems);
    let environment = variables(&sources.environment, &mut problems);
    let flags = flags(&sources.flags, &mut problems);

    let built_in = Origin::new(Layer::BuiltIn, "");
    let mut base =
        Node::of(&built_in, serde_json::to_value(Settings::default()).unwrap_or_default());
    base.merge(programs::built_in(&mut problems));
    base.merge(prices::built_in(&mut problems));
    base.merge(user_file.clone());
    let over_all = |mut tree: Node| {
        tree.merge(environment.clone());
        tree.merge(flags.clone());
        tree
    };
    let users_own: Settings = sound(&mut over_all(base.clone()), &mut Vec::new());
    at_most(&mut project_file, &users_own.limits, &mut problems);
    let mut apart = Node::table(project_file.at.clone());
    if let Some(hooks) = project_file.take("hooks") {
        apart.insert("hooks", hooks);
    }
    let projects_hooks = sound::<Settings>(&mut apart, &mut problems).hooks;
    base.merge(project_file.clone());
    let mut tree = over_all(base);
    programs::leave_out_incomplete(&mut tree, &mut problems);
    let settings: Settings = sound(&mut tree, &mut problems);
    if let Some(Err(says)) =
        settings.program.as_ref().map(|name| settings.programs.find(name.as_str()))
        && let Some(node) = tree.member("program")
    {
        problems.push(Problem::new(&node.at, format!("program: {says}")));
    }

    let said = [
        roles::Said { layer: Layer::User, directory: user, file: &user_file },
        roles::Said { layer: Layer::Project, directory: project, file: &project_file },
        roles::Said { layer: Layer::Flag, directory: None, file: &flags },
    ];
    let roles = roles::read(&said, &settings, &users_own.limits, &mut problems);
    problems.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    let sources = sources.clone();
    Configuration { settings, roles, projects_hooks, problems, sources, tree, apart }
}

impl Configuration {
    /// Returns every effective value in the order of its key, and the project's hooks, trusted or not. What the user sets for a program's environment may be
    /// secret and is left out.
    pub fn values(&self) -> Vec<Shown> {
        let leaves = self.leaves();
        let shown = leaves.into_iter().map(|(key, node)| {
            let may_be_secret = node.at.layer != Layer::BuiltIn
                && key.starts_with("programs.")
                && key.contains(".set.");
            let value = if may_be_secret { "(not shown)".into() } else { node.json() };
            Shown { key, value, from: node.at.clone() }
        });
        shown.collect()
    }

    /// Says whether anything of a file is in use.
    pub fn uses(&self, file: &Path) -> bool {
        self.leaves().iter().any(|(_, node)| Path::new(&*node.at.source) == file)
    }

    /// Returns what is not a table, in the order of the keys. A key that the project's hooks have in common with the
    /// user's is there twice, since both hold.
    fn leaves(&self) -> Vec<(String, &Node)> {
        let mut leaves = Vec::new();
        self.tree.leaves("", &mut leaves);
        self.apart.leaves("", &mut leaves);
        leaves.sort_by(|(one, _), (other, _)| one.split('.').cmp(other.split('.')));
        leaves
    }
}

/// Returns the JSON schema of the configuration file.
pub fn schema() -> Json {
    schemars::schema_for!(Settings).to_value()
}

/// Reads the configuration file of a directory; where there is none, it says nothing.
fn file(
    layer: Layer,
    directory: Option<&Path>,
    instead: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Node {
    let path = directory.map(|directory| directory.join(FILE_NAME)).unwrap_or_default();
    let at = Origin::new(layer, &path.to_string_lossy());
    let empty = Node::table(at.line(1));
    let Some(directory) = directory else { return empty };
    let within = (layer == Layer::Project).then_some(directory);
    let read = match instead {
        Some(text) => Ok(Some(text.to_owned())),
        None => read_text(&path, within),
    };
    let text = match read {
        Ok(Some(text)) => text,
        Ok(None) => return empty,
        Err(says) => {
            problems.push(Problem::fatal(&at, says));
            return empty;
        }
    };
    let Some(mut tree) = toml::read(&text, &at, problems) else { return empty };
    if layer == Layer::Project {
        keep_to_projects(&mut tree, problems);
    }
    checked(tree, problems)
}

/// Takes out what is no setting, and hooks that say nothing.
fn checked(mut tree: Node, problems: &mut Vec<Problem>) -> Node {
    hooks::tidy(&mut tree, problems);
    let _: Settings = sound(&mut tree, problems);
    hooks::leave_out_incomplete(&mut tree, problems);
    tree
}

/// Takes out of a project's file what is not its to say.
fn keep_to_projects(tree: &mut Node, problems: &mut Vec<Problem>) {
    let others = tree.members().map(|(key, _)| key.clone());
    let others: Vec<String> = others.filter(|key| !PROJECTS.contains(&key.as_str())).collect();
    for key in others {
        if let Some(taken) = tree.take(&key) {
            let says =
                format!("{key}: a project's file may only have `roles`, `limits` and `hooks`");
            problems.push(Problem::new(&taken.at, says));
        }
    }
}

/// Takes limits out of a project's file that are above the user's own.
fn at_most(project: &mut Node, limits: &Limits, problems: &mut Vec<Problem>) {
    let users = serde_json::to_value(limits).unwrap_or_default();
    let Some(said) = project.member_mut("limits") else { return };
    let too_much = said.members().filter_map(|(key, node)| {
        let users = users[key].as_f64()?;
        (node.json().as_f64()? > users).then(|| {
            let says = format!("limits.{key}: a project may not allow more than its user, {users}");
            (key.clone(), Problem::new(&node.at, says))
        })
    });
    for (key, problem) in too_much.collect::<Vec<_>>() {
        said.take(&key);
        problems.push(problem);
    }
}

fn variables(given: &[(&'static str, String)], problems: &mut Vec<Problem>) -> Node {
    let mut tree = Node::table(Origin::new(Layer::Environment, "the environment"));
    for (key, variable) in VARIABLES {
        if let Some((_, text)) = given.iter().find(|(name, _)| *name == variable) {
            let at = Origin::new(Layer::Environment, variable);
            let path: Vec<&str> = key.split('.').collect();
            tree.place(&path, toml::read_value(text, &at));
        }
    }
    let _: Settings = sound(&mut tree, problems);
    tree
}

fn flags(given: &[String], problems: &mut Vec<Problem>) -> Node {
    let mut tree = Node::table(Origin::new(Layer::Flag, "--set"));
    for flag in given {
        let at = Origin::new(Layer::Flag, &format!("--set {flag}"));
        match flag.split_once('=') {
            Some((key, text)) => {
                let path: Vec<&str> = key.trim().split('.').collect();
                tree.place(&path, toml::read_value(text.trim(), &at));
            }
            None => problems.push(Problem::new(&at, "write KEY=VALUE, e.g. limits.depth=2")),
        }
    }
    checked(tree, problems)
}

#[cfg(test)]
pub(crate) mod tests;
