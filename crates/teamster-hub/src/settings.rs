//! What people configure: the user's `teamster.toml` and a project's own, roles, and what the environment and flags say
//! over them. A bad file stops nothing: what is sound is used, and the rest is a list of problems.

mod changes;
mod docs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::config::VARIABLES;
use crate::hook_settings::{self, HookFields};
use crate::prices::{self, Prices};
use crate::programs::{self, Programs};
use crate::reading::{self, read_text, sound};
use crate::roles::{self, RoleFields, Roles};

pub use crate::reading::*;
pub use crate::sections::*;
pub use changes::changes;
pub use docs::configuration_markdown;

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
    let roles = roles::read(&said, general(&settings), &users_own.limits, &mut problems);
    problems.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    let sources = sources.clone();
    Configuration { settings, roles, projects_hooks, problems, sources, tree, apart }
}

fn general(settings: &Settings) -> roles::General<'_> {
    roles::General {
        program: settings.program.as_ref(),
        programs: &settings.programs,
        categories: &settings.categories,
        mcp: &settings.mcp,
        limits: &settings.limits,
        permissions: &settings.permissions,
        guard: &settings.guard,
    }
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
    let Some(mut tree) = reading::read_toml(&text, &at, problems) else { return empty };
    if layer == Layer::Project {
        keep_to_projects(&mut tree, problems);
    }
    checked(tree, problems)
}

/// Takes out what is no setting, and hooks that say nothing.
fn checked(mut tree: Node, problems: &mut Vec<Problem>) -> Node {
    hook_settings::tidy(&mut tree, problems);
    let _: Settings = sound(&mut tree, problems);
    hook_settings::leave_out_incomplete(&mut tree, problems);
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
            tree.place(&path, reading::read_toml_value(text, &at));
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
                tree.place(&path, reading::read_toml_value(text.trim(), &at));
            }
            None => problems.push(Problem::new(&at, "write KEY=VALUE, e.g. limits.depth=2")),
        }
    }
    checked(tree, problems)
}

#[cfg(test)]
pub(crate) mod tests;
