//! Roles: how a drafted agent behaves. They come from files and configuration, and enter the log when they change, so
//! that what was decided by them can be decided again.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::grant::Grants;
use crate::guard::Guard;
use crate::permission::Permissions;
use crate::{Context, Summary};

/// More roles than a person could keep apart.
pub const ROLES_MAX: usize = 1_000;

/// The name of a role: lower-case letters and digits, and `-` between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleName(Arc<str>);

/// Why a text is not the name of a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "role {0:?} is not a valid name; use 1 to 64 lower-case letters, digits and `-`, not at the ends"
)]
pub struct BadRoleName(String);

impl RoleName {
    pub fn parse(given: &str) -> Result<Self, BadRoleName> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let fits = (1..=64).contains(&given.len())
            && given.bytes().all(plain)
            && !given.starts_with('-')
            && !given.ends_with('-');
        if fits {
            Ok(Self(given.into()))
        } else {
            Err(BadRoleName(given.chars().take(80).collect()))
        }
    }

    /// The name of what a team's agents play; a team's name need not be a role's. Transcripts are named after it, with dots
    /// between the parts.
    pub fn of_team(team: &crate::TeamName) -> Self {
        let name = team.as_str().replace('@', "-");
        match name.trim_matches('.') {
            "" => Self("team".into()),
            name => Self(name.into()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an agent and all that it drafts may use up together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How many generations of agents may stand below it.
    pub depth: u32,
    /// How many agents it may have under way at once.
    pub children: u32,
    /// How many agents may be drafted below it in all.
    pub total: u32,
    /// How many turns it and those below it may have in all.
    pub turns: u32,
    /// How long it and those below it may take, from its start.
    pub wall_ms: u64,
    /// How many millionths of a dollar it and those below it may spend; as many as they like if none. The turns under way
    /// when it is spent are not cut short.
    #[serde(default)]
    pub microdollars: Option<u64>,
    /// How many tokens it and those below it may use, cached ones included; likewise.
    #[serde(default)]
    pub tokens: Option<u64>,
}

impl Limits {
    pub const USUAL: Self = Self {
        depth: 3,
        children: 8,
        total: 100,
        turns: 200,
        wall_ms: 4 * 60 * 60 * 1_000,
        microdollars: None,
        tokens: None,
    };

    /// Returns the smaller of each.
    pub fn within(self, other: Self) -> Self {
        Self {
            depth: self.depth.min(other.depth),
            children: self.children.min(other.children),
            total: self.total.min(other.total),
            turns: self.turns.min(other.turns),
            wall_ms: self.wall_ms.min(other.wall_ms),
            microdollars: smaller(self.microdollars, other.microdollars),
            tokens: smaller(self.tokens, other.tokens),
        }
    }
}

/// None is as many as one likes.
fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Which runs and dossiers the agents of a role reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// One run, the shared list `default` if it works on no other, and the dossiers of their own tree.
    #[default]
    Own,
    /// Every run and every dossier.
    Workspace,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: RoleName,
    pub description: Arc<str>,
    /// Such as `coding`, `conversational` or `research`.
    pub category: Arc<str>,
    /// The agent program that plays it; empty if none is installed.
    pub program: Arc<str>,
    pub model: Option<Arc<str>>,
    /// What its agents' tokens allow.
    pub grants: Grants,
    pub limits: Limits,
    /// Where its agents work, unless whoever drafts them says otherwise.
    pub directory: Option<Arc<str>>,
    /// How long an agent may be silent in a turn.
    pub stall_ms: u64,
    /// How long it may be silent while one of its tools is at work.
    #[serde(default = "usual_tool_stall_ms")]
    pub tool_stall_ms: u64,
    /// What its agents are told before their task.
    pub prompt: Arc<str>,
    /// What its agents' programs may do without asking a person.
    #[serde(default)]
    pub permissions: Permissions,
    /// Whose usage limit its program shares: agents of one account are parked together.
    #[serde(default)]
    pub account: Arc<str>,
    /// How long its program waits for the answer to a tool call.
    #[serde(default = "usual_wait_ms")]
    pub max_wait_ms: u64,
    /// When its agents count as going in circles.
    #[serde(default)]
    pub guard: Guard,
    #[serde(default)]
    pub reach: Reach,
    /// Its prompt is in a file of the project.
    #[serde(default)]
    pub is_projects: bool,
}

fn usual_tool_stall_ms() -> u64 {
    60 * 60 * 1_000
}

/// Less than the shortest patience of a known program.
fn usual_wait_ms() -> u64 {
    50_000
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Says which roles there are now.
    Sync(Vec<Role>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Defined { role: Arc<Role> },
    Removed { name: RoleName },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("roles are defined by files and configuration; ask the person who runs the hub")]
    HubOnly,
    #[error("there are {0} roles; at most {ROLES_MAX} are used")]
    TooMany(usize),
}

/// The view of all roles.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Arc<Role>>", into = "Vec<Arc<Role>>")]
pub struct Roles {
    by_name: OrdMap<RoleName, Arc<Role>>,
}

impl Roles {
    pub fn get(&self, name: &str) -> Option<&Arc<Role>> {
        self.by_name.get(&RoleName(name.into()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.by_name.values()
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        let Command::Sync(roles) = command;
        if !cx.caller.kind.may_operate() {
            return Err(Refusal::HubOnly);
        }
        if roles.len() > ROLES_MAX {
            return Err(Refusal::TooMany(roles.len()));
        }
        let gone = self.by_name.keys().filter(|name| roles.iter().all(|role| role.name != **name));
        let removed = gone.map(|name| Event::Removed { name: name.clone() });
        let is_new = |role: &&Role| self.by_name.get(&role.name).is_none_or(|old| **old != **role);
        let defined =
            roles.iter().filter(is_new).map(|role| Event::Defined { role: Arc::new(role.clone()) });
        Ok(removed.chain(defined).collect())
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Defined { role } => {
                self.by_name.insert(role.name.clone(), role.clone());
            }
            Event::Removed { name } => {
                self.by_name.remove(name);
            }
        }
    }
}

impl Event {
    pub(crate) fn fate(&self) -> Fate {
        let name = match self {
            Self::Defined { role } => &role.name,
            Self::Removed { name } => name,
        };
        Fate::KeptIfLast(vec![format!("role {name}")])
    }

    pub(crate) fn summary(&self) -> Summary {
        let text = match self {
            Self::Defined { role } => {
                let program = if role.program.is_empty() { "no program" } else { &role.program };
                format!("role {} defined ({}, {program})", role.name, role.category)
            }
            Self::Removed { name } => format!("role {name} removed"),
        };
        Summary::new("edit", text)
    }
}

impl From<Vec<Arc<Role>>> for Roles {
    fn from(roles: Vec<Arc<Role>>) -> Self {
        Self { by_name: roles.into_iter().map(|role| (role.name.clone(), role)).collect() }
    }
}

impl From<Roles> for Vec<Arc<Role>> {
    fn from(roles: Roles) -> Self {
        roles.by_name.into_iter().map(|(_, role)| role).collect()
    }
}
