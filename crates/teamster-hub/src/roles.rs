//! Roles: how a drafted agent behaves. A role is a file whose front matter says what it is and whose text is its prompt,
//! or a table of the configuration with the same fields. A file says all of a role; a table changes single fields.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::programs::Programs;
use crate::reading::{self, GrantWord, Layer, Line, Name, Node, Origin, Problem, Value};
use crate::sections::{Categories, Guard, Limits, Mcp, Permissions};

/// What is built in.
const BUILT_IN: [(&str, &str); 4] = [
    ("coder", include_str!("../roles/coder.md")),
    ("coordinator", include_str!("../roles/coordinator.md")),
    ("researcher", include_str!("../roles/researcher.md")),
    ("reviewer", include_str!("../roles/reviewer.md")),
];

/// Where roles are, in the user's configuration directory.
const USERS_DIRECTORY: &str = "roles";
/// And in a project, where a directory `roles` may well be something else's.
const PROJECTS_DIRECTORY: &str = ".teamster/roles";

/// What a role that names no category is.
const DEFAULT_CATEGORY: &str = "coding";

/// What every role may use that does not say it otherwise: the shared list, and the backlog to read.
const DEFAULT_SETS: [&str; 2] = ["session", "yaks"];
/// What a role has of the agents set if its category has full access, and if not.
const FULL_ACCESS: [&str; 1] = ["agents"];
const LOOKING_ONLY: [&str; 3] =
    ["agents:list_agents", "agents:list_tasks", "agents:get_task_context"];
/// A token always has a base, and `full` is what it has if none is named. A role that names none gets this one.
const LEAST: &str = "agents:list_agents";

/// Tables of a role that a project's file does not change.
const USERS_OWN: [&str; 2] = ["permissions", "guard"];

/// What a role's file or table can say.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleFields {
    /// Its name, which is its file's name
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// What it is for, in one line
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
    /// Its category, `coding` if it names none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Name>,
    /// The program that plays it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Name>,
    /// The model, in its program's words
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Line>,
    /// All that it may use, instead of what its category gives
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<GrantWord>>,
    /// Limits of its own, with the keys of `limits`; what it does not name is as there
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Rules of its own for what its program asks permission for, with the keys of `permissions`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// When its agents are stopped for going in circles, with the keys of `guard`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// Which runs and tasks it reaches: `own`, or `workspace` for all
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// The directory it works in, relative to the project's
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Line>,
    /// What it is told; in a role's file, the text after the front matter
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// Which runs and dossiers the agents of a role reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Reach {
    /// Their own run, or the shared list, and the tasks of their own tree.
    #[default]
    Own,
    /// All runs and tasks.
    Workspace,
}

/// How a drafted agent behaves.
#[derive(Debug, Clone)]
pub struct Role {
    pub name: Name,
    pub description: String,
    pub category: Name,
    /// How long it may show nothing before it counts as stalled.
    pub stall_s: u32,
    /// The same while one of its tools is at work.
    pub tool_stall_s: u32,
    /// The program that plays it, if it or the user names one.
    pub program: Option<Name>,
    pub model: Option<String>,
    /// What it says it may use.
    pub tools: Option<Vec<GrantWord>>,
    /// Whether its category may draft, await and kill agents.
    pub has_full_access: bool,
    pub limits: Limits,
    pub permissions: Permissions,
    pub guard: Guard,
    pub reach: Reach,
    pub cwd: Option<PathBuf>,
    pub prompt: String,
    /// Who wrote its prompt.
    pub prompt_from: Layer,
    /// Where it was last defined or changed.
    pub from: Origin,
}

impl Role {
    /// Returns what it may use, in the words of `--grant`. Whether such sets and tools exist is the catalogue's to say.
    pub fn grants(&self) -> Vec<String> {
        let Some(tools) = &self.tools else {
            let agents: &[&str] = if self.has_full_access { &FULL_ACCESS } else { &LOOKING_ONLY };
            return DEFAULT_SETS.iter().chain(agents).map(|word| (*word).to_owned()).collect();
        };
        let mut words: Vec<String> = tools.iter().map(ToString::to_string).collect();
        if words.iter().all(|word| is_on_top(word)) {
            words.push(LEAST.to_owned());
        }
        words
    }

    /// Returns the directory it works in.
    pub fn directory(&self, project: &Path) -> PathBuf {
        match &self.cwd {
            Some(cwd) => project.join(cwd),
            None => project.to_owned(),
        }
    }
}

/// What no base includes, and no project may grant.
fn is_on_top(word: &str) -> bool {
    matches!(word, "main" | "self" | "metrics")
}

/// The roles there are, by name.
#[derive(Debug, Clone, Default)]
pub struct Roles(BTreeMap<Name, Role>);

impl Roles {
    pub fn iter(&self) -> impl Iterator<Item = &Role> {
        self.0.values()
    }

    /// Returns the role of a name, or a sentence that says which there are.
    pub fn find(&self, name: &str) -> Result<&Role, String> {
        self.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(Name::as_str).collect();
            format!("Unknown role {name:?}. Available: {}", names.join(", "))
        })
    }
}

/// What one layer says of roles: the files of a directory, and a table of its configuration.
pub(crate) struct Said<'a> {
    pub(crate) layer: Layer,
    pub(crate) directory: Option<&'a Path>,
    pub(crate) file: &'a Node,
}

/// What holds for every role that says nothing else.
#[derive(Clone, Copy)]
pub(crate) struct General<'a> {
    pub(crate) program: Option<&'a Name>,
    pub(crate) programs: &'a Programs,
    pub(crate) categories: &'a Categories,
    pub(crate) mcp: &'a Mcp,
    pub(crate) limits: &'a Limits,
    pub(crate) permissions: &'a Permissions,
    pub(crate) guard: &'a Guard,
}

/// A role as far as it is known.
struct Draft {
    fields: Node,
    /// Where the project had its say in it.
    projects: Option<Origin>,
    /// What it was before that, and what else its user says.
    users: Option<Node>,
}

/// Lays what all layers say over one another.
pub(crate) fn read(
    said: &[Said<'_>],
    general: General<'_>,
    users_limits: &Limits,
    problems: &mut Vec<Problem>,
) -> Roles {
    let mut drafts: BTreeMap<Name, Draft> = BTreeMap::new();
    for (name, text) in BUILT_IN {
        let at = Origin::new(Layer::BuiltIn, &format!("{name}.md"));
        if let Some(fields) = role_file(name, text, &at, problems) {
            drafts.insert(Name::known(name), Draft { fields, projects: None, users: None });
        }
    }
    for said in said {
        lay_files(said, &mut drafts, problems);
        lay_table(said, &mut drafts, problems);
    }
    let roles = drafts.into_iter().filter_map(|(name, mut draft)| {
        let mut fields = Node::table(draft.fields.at.clone());
        let limits = serde_json::to_value(general.limits).unwrap_or_default();
        fields.insert("limits", Node::of(&draft.fields.at, limits));
        let tables = [
            ("permissions", serde_json::to_value(general.permissions).unwrap_or_default()),
            ("guard", serde_json::to_value(general.guard).unwrap_or_default()),
        ];
        for (key, value) in &tables {
            fields.insert(key, Node::of(&draft.fields.at, value.clone()));
        }
        let is_projects = |node: &Node| node.at.layer == Layer::Project;
        let says = |key: &str| {
            draft.fields.member(key).is_some_and(|said| {
                is_projects(said) || said.members().any(|(_, rule)| is_projects(rule))
            })
        };
        let says = USERS_OWN.map(|key| (key, says(key)));
        fields.merge(draft.fields);
        if let Some(at) = draft.projects.take() {
            let mut own = Node::table(at.clone());
            for (key, value) in tables {
                own.insert(key, Node::of(&at, value));
            }
            draft.users.into_iter().for_each(|users| own.merge(users));
            let users = Users { general, limits: users_limits, own: &own, says };
            keep_to_projects(&name, &mut fields, &at, &users, problems);
        }
        let role = role(name.clone(), fields, general, problems)?;
        Some((name, role))
    });
    Roles(roles.collect())
}

/// Puts the role files of a directory in the place of what was known by their names.
fn lay_files(said: &Said<'_>, drafts: &mut BTreeMap<Name, Draft>, problems: &mut Vec<Problem>) {
    let Some(directory) = said.directory else { return };
    let is_project = said.layer == Layer::Project;
    let below = if is_project { PROJECTS_DIRECTORY } else { USERS_DIRECTORY };
    for path in reading::markdown_files(&directory.join(below)) {
        let at = Origin::new(said.layer, &path.to_string_lossy());
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let Some(name) = Name::parse(&stem) else {
            let says = "a role's file is named after it, with at most 64 lower-case letters, digits and dashes";
            problems.push(Problem::new(&at, says));
            continue;
        };
        let text = match reading::read_text(&path, is_project.then_some(directory)) {
            Ok(text) => text.unwrap_or_default(),
            Err(says) => {
                problems.push(Problem::new(&at, says));
                String::new()
            }
        };
        let projects = is_project.then(|| at.line(1));
        match role_file(&stem, &text, &at, problems) {
            Some(fields) => {
                let before = drafts.remove(&name).map(|draft| draft.users.unwrap_or(draft.fields));
                let users = before.filter(|_| is_project);
                drafts.insert(name, Draft { fields, projects, users });
            }
            // A role that was to be another is not used as what it was.
            None => drop(drafts.remove(&name)),
        }
    }
}

/// Lays the `roles` of a configuration file over what is known.
fn lay_table(said: &Said<'_>, drafts: &mut BTreeMap<Name, Draft>, problems: &mut Vec<Problem>) {
    let tables = said.file.member("roles").into_iter().flat_map(Node::members);
    for (key, table) in tables {
        let Some(name) = Name::parse(key) else { continue };
        let mut table = table.clone();
        check_name(key, &mut table, problems);
        let projects = (said.layer == Layer::Project).then(|| table.at.clone());
        match drafts.get_mut(&name) {
            Some(draft) => {
                match (&projects, &mut draft.users) {
                    (Some(_), users @ None) => *users = Some(draft.fields.clone()),
                    (None, Some(users)) => users.merge(table.clone()),
                    (Some(_), Some(_)) | (None, None) => {}
                }
                draft.fields.at = table.at.clone();
                draft.fields.merge(table);
                draft.projects = projects.or(draft.projects.take());
            }
            None => drop(drafts.insert(name, Draft { fields: table, projects, users: None })),
        }
    }
}

/// Reads a role's file: front matter between two lines `---`, then the prompt.
fn role_file(stem: &str, text: &str, at: &Origin, problems: &mut Vec<Problem>) -> Option<Node> {
    let left_out = |line: usize, says: &str| {
        Problem::fatal(&at.line(line), format!("{says}; the role {stem} is left out"))
    };
    let Some((front, prompt)) = split(text) else {
        let says = "a role's file starts with front matter between two lines `---`";
        problems.push(left_out(1, says));
        return None;
    };
    let mut fields = match reading::read_yaml(front, 2, at) {
        Ok(fields) if matches!(fields.value, Value::Table(_)) => fields,
        Ok(fields) => {
            problems
                .push(left_out(fields.at.line.unwrap_or(1), "front matter has lines `key: value`"));
            return None;
        }
        Err(problem) => {
            problems.push(left_out(problem.line.unwrap_or(1), &problem.says));
            return None;
        }
    };
    fields.at = at.line(1);
    let _: RoleFields = reading::sound(&mut fields, problems);
    check_name(stem, &mut fields, problems);
    if let Some(second) = fields.take("prompt") {
        problems
            .push(Problem::new(&second.at, "prompt: the prompt is what follows the front matter"));
    }
    let first_line = front.lines().count() + 3;
    fields.insert("prompt", Node::leaf(at.line(first_line), prompt.trim()));
    Some(fields)
}

/// Parts the front matter from the text that follows it.
pub fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches('\u{feff}');
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut start = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..start], &rest[start + line.len()..]));
        }
        start += line.len();
    }
    None
}

/// Takes the name out of the fields; it is known already.
fn check_name(name: &str, fields: &mut Node, problems: &mut Vec<Problem>) {
    if let Some(said) = fields.take("name").filter(|said| said.json() != name) {
        let says = format!("name: {} is not used; the role is called {name}", said.json());
        problems.push(Problem::new(&said.at, says));
    }
}

/// What the user allows, beside what the project says.
struct Users<'a> {
    general: General<'a>,
    limits: &'a Limits,
    /// What the role would be without the project, as far as that is said.
    own: &'a Node,
    /// Whether the project sets a table that is its user's.
    says: [(&'static str, bool); 2],
}

impl Users<'_> {
    /// Says whether a project's role of this category may have what `word` allows.
    fn let_projects_have(&self, category: &str, word: &str) -> bool {
        let full_access = &self.general.mcp.full_access_categories;
        let may_draft = full_access.iter().any(|full| full.as_str() == category);
        match word.split_once(':').map_or(word, |(set, _)| set) {
            "main" | "self" | "metrics" => false,
            "full" | "agents" => may_draft || LOOKING_ONLY.contains(&word),
            _ => true,
        }
    }
}

/// Takes out of a role what a project cannot give: a role that is partly a project's is one of the project's.
fn keep_to_projects(
    name: &Name,
    fields: &mut Node,
    at: &Origin,
    users: &Users<'_>,
    problems: &mut Vec<Problem>,
) {
    let category = fields.member("category").map(Node::json);
    let category =
        category.as_ref().and_then(|category| category.as_str()).unwrap_or(DEFAULT_CATEGORY);
    let mut tell = |node: &Node, says: String| {
        // What the user said is not wrong; that the project changes the role is why it does not hold.
        let at = if node.at.layer == Layer::Project { &node.at } else { at };
        problems.push(Problem::new(at, format!("roles.{name}.{says}")));
    };
    if let Some(Node { value: Value::List(words), .. }) = fields.member_mut("tools") {
        words.retain(|node| {
            let word = node.json();
            let may = users.let_projects_have(category, word.as_str().unwrap_or_default());
            if !may {
                tell(node, format!("tools: this role of a project may not have {word}"));
            }
            may
        });
    }
    let mut most = serde_json::to_value(users.limits).unwrap_or_default();
    let own = users.own.member("limits").map(Node::json).unwrap_or_default();
    for (key, own) in own.as_object().into_iter().flatten() {
        let is_less =
            most[key].as_f64().is_none_or(|most| own.as_f64().is_some_and(|own| own < most));
        if is_less {
            most[key] = own.clone();
        }
    }
    if let Some(Node { value: Value::Table(limits), at }) = fields.member_mut("limits") {
        // What the user limits and the project does not mention is limited as well.
        for (key, most) in most.as_object().into_iter().flatten() {
            let limit = limits.entry(key.clone());
            let limit = limit.or_insert_with(|| Node::of(at, most.clone()));
            if most.as_f64().is_some_and(|most| limit.json().as_f64() > Some(most)) {
                tell(
                    limit,
                    format!("limits.{key}: a role of a project may not have more than {most}"),
                );
                limit.value = Value::Leaf(most.clone());
            }
        }
    }
    if let Some(reach) = fields.member("reach").filter(|reach| reach.json() != "own").cloned() {
        tell(&reach, "reach: a role of a project reaches its own runs and tasks only".into());
        fields.take("reach");
    }
    // What a project would allow its own agents is for the user to say.
    for (key, projects) in users.says {
        let Some(own) = users.own.member(key) else { continue };
        if projects && let Some(said) = fields.member(key) {
            tell(&said.clone(), format!("{key}: only your own configuration sets this"));
        }
        fields.insert(key, own.clone());
    }
    let leads_out = |cwd: &Node| {
        let cwd = cwd.json();
        let mut steps = Path::new(cwd.as_str().unwrap_or_default()).components();
        !steps.all(|step| matches!(step, Component::Normal(_) | Component::CurDir))
    };
    if let Some(cwd) = fields.member("cwd").filter(|cwd| leads_out(cwd)).cloned() {
        tell(&cwd, "cwd: a role of a project works in the project".into());
        fields.take("cwd");
    }
}

/// Makes a role of its fields, if it has what a role needs.
fn role(
    name: Name,
    mut fields: Node,
    general: General<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Role> {
    let at = |key: &str| fields.member(key).map_or(&fields.at, |node| &node.at).clone();
    let (category_at, program_at, prompt_at) = (at("category"), at("program"), at("prompt"));
    let from = fields.at.clone();
    let fields: RoleFields = reading::sound(&mut fields, problems);

    let prompt = fields.prompt.filter(|prompt| !prompt.trim().is_empty());
    let Some(prompt) = prompt else {
        problems
            .push(Problem::new(&prompt_at, format!("roles.{name}: has no prompt and is left out")));
        return None;
    };
    let Categories(categories) = general.categories;
    let category = fields.category.filter(|category| {
        let is_known = categories.contains_key(category);
        if !is_known {
            let known: Vec<&str> = categories.keys().map(Name::as_str).collect();
            let says = format!(
                "roles.{name}.category: there is no category {category}, so it is {DEFAULT_CATEGORY}; there are {}",
                known.join(", ")
            );
            problems.push(Problem::new(&category_at, says));
        }
        is_known
    });
    let category = category.unwrap_or_else(|| Name::known(DEFAULT_CATEGORY));
    if let Some(Err(says)) =
        fields.program.as_ref().map(|name| general.programs.find(name.as_str()))
    {
        problems.push(Problem::new(&program_at, format!("roles.{name}.program: {says}")));
    }
    Some(Role {
        description: fields.description.map(|line| line.to_string()).unwrap_or_default(),
        stall_s: categories.get(&category).cloned().unwrap_or_default().stall_s.get(),
        tool_stall_s: categories.get(&category).cloned().unwrap_or_default().tool_stall_s.get(),
        has_full_access: general.mcp.full_access_categories.contains(&category),
        category,
        program: fields.program.or_else(|| general.program.cloned()),
        model: fields.model.map(|model| model.to_string()),
        tools: fields.tools,
        limits: fields.limits.unwrap_or_else(|| general.limits.clone()),
        permissions: fields.permissions.unwrap_or_else(|| general.permissions.clone()),
        guard: fields.guard.unwrap_or_else(|| general.guard.clone()),
        reach: fields.reach.unwrap_or_default(),
        cwd: fields.cwd.map(|cwd| PathBuf::from(cwd.as_str())),
        prompt,
        prompt_from: prompt_at.layer,
        from,
        name,
    })
}

#[cfg(test)]
mod tests;
