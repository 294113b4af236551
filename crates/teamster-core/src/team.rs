//! Teams: project directories that others can talk to. They come from configuration, and enter the log when they change.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::role::Role;
use crate::{Context, Summary, TeamName};

/// More teams than a person could keep apart.
pub const TEAMS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    pub name: TeamName,
    /// Where its agents work; absolute.
    pub directory: Arc<str>,
    pub description: Arc<str>,
    /// For those who show it, such as `#FF6B9D`.
    pub color: Option<Arc<str>>,
    /// How long its agents' processes are kept that have nothing to do.
    pub idle_ms: u64,
    /// Where its agents run, if not here: what `ssh` is told.
    pub remote: Option<Arc<str>>,
    /// Where each of its conversations has a git worktree of its own, if they do not share its directory.
    #[serde(default)]
    pub worktrees: Option<Arc<str>>,
    /// Variables of the hub's own environment that its agents get beside those of their program.
    #[serde(default)]
    pub pass: Vec<Arc<str>>,
    /// How its agents behave.
    pub behaviour: Arc<Role>,
    /// Nobody has described it: a hub was started in its directory.
    #[serde(default)]
    pub is_implicit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Says which teams there are now.
    Sync(Vec<Team>),
    /// Removes a team that exists only because a hub was started in its directory, unless this hub was.
    Remove { name: String, hub_directory: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Defined { team: Arc<Team> },
    Removed { name: TeamName },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("teams are defined by configuration; ask the person who runs the hub")]
    HubOnly,
    #[error("there are {0} teams; at most {TEAMS_MAX} are used")]
    TooMany(usize),
    #[error("there is no team {0} of a directory that a hub was started in")]
    NotImplicit(String),
    #[error("{0} is the directory of this hub; start the hub in another one first")]
    HubsOwn(TeamName),
}

/// The view of all teams.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Arc<Team>>", into = "Vec<Arc<Team>>")]
pub struct Teams {
    by_name: OrdMap<TeamName, Arc<Team>>,
}

impl Teams {
    pub fn get(&self, name: &str) -> Option<&Arc<Team>> {
        self.by_name.get(&TeamName::parse(name).ok()?)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Team>> {
        self.by_name.values()
    }

    /// Returns the team whose directory a path is in; of several, the one that is nearest to it.
    pub fn at(&self, path: &str) -> Option<&Arc<Team>> {
        let path = path.trim_end_matches('/');
        let is_in = |team: &&Arc<Team>| {
            let directory = team.directory.trim_end_matches('/');
            let rest = path.strip_prefix(directory);
            team.remote.is_none()
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.iter().filter(is_in).max_by_key(|team| team.directory.trim_end_matches('/').len())
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        if !cx.caller.kind.may_operate() {
            return Err(Refusal::HubOnly);
        }
        let teams = match command {
            Command::Sync(teams) => teams,
            Command::Remove { name, hub_directory } => return self.remove(name, hub_directory),
        };
        if teams.len() > TEAMS_MAX {
            return Err(Refusal::TooMany(teams.len()));
        }
        let gone = self.by_name.keys().filter(|name| teams.iter().all(|team| team.name != **name));
        let removed = gone.map(|name| Event::Removed { name: name.clone() });
        let is_new = |team: &&Team| self.by_name.get(&team.name).is_none_or(|old| **old != **team);
        let defined = teams.iter().filter(is_new);
        let defined = defined.map(|team| Event::Defined { team: Arc::new(team.clone()) });
        Ok(removed.chain(defined).collect())
    }

    fn remove(&self, name: &str, hub_directory: &str) -> Result<Vec<Event>, Refusal> {
        let team = self.get(name).filter(|team| team.is_implicit);
        let team = team.ok_or_else(|| Refusal::NotImplicit(name.chars().take(100).collect()))?;
        match *team.directory == *hub_directory {
            true => Err(Refusal::HubsOwn(team.name.clone())),
            false => Ok(vec![Event::Removed { name: team.name.clone() }]),
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Defined { team } => {
                self.by_name.insert(team.name.clone(), team.clone());
            }
            Event::Removed { name } => {
                self.by_name.remove(name);
            }
        }
    }
}

impl Event {
    pub(crate) fn name(&self) -> &TeamName {
        match self {
            Self::Defined { team } => &team.name,
            Self::Removed { name } => name,
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Defined { team } => team.description.len() + team.behaviour.prompt.len(),
            Self::Removed { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        Fate::KeptIfLast(vec![format!("team {}", self.name())])
    }

    pub(crate) fn summary(&self) -> Summary {
        let text = match self {
            Self::Defined { team } => {
                let program = &team.behaviour.program;
                let program = if program.is_empty() { "no program" } else { program };
                let at = team.remote.as_ref().map(|remote| format!(" over {remote}"));
                let at = at.unwrap_or_default();
                format!("team {} defined ({program} in {}{at})", team.name, team.directory)
            }
            Self::Removed { name } => format!("team {name} removed"),
        };
        Summary::new("edit", text)
    }
}

impl From<Vec<Arc<Team>>> for Teams {
    fn from(teams: Vec<Arc<Team>>) -> Self {
        Self { by_name: teams.into_iter().map(|team| (team.name.clone(), team)).collect() }
    }
}

impl From<Teams> for Vec<Arc<Team>> {
    fn from(teams: Teams) -> Self {
        teams.by_name.into_iter().map(|(_, team)| team).collect()
    }
}

#[cfg(test)]
mod tests;
