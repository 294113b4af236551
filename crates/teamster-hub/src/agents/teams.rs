//! The configured teams as the core knows them, and the project that the hub was started in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use teamster_core::TeamName;
use teamster_core::role::RoleName;
use teamster_core::team::{Team, Teams};
use teamster_mcp::access::parse_grants;

use super::worktree::{NO_GIT, is_in_git};
use crate::config::{self, DataFiles};
use crate::settings::{Configuration, TeamFields};

const IDLE_MINUTES_USUAL: u32 = 60;
/// What a team's agents may use that does not say it otherwise: the shared list, the backlog to read, and other teams.
const DEFAULT_GRANTS: [&str; 4] = ["session", "teams", "agents:list_agents", "yaks"];
/// What agents of a team are told that has no role.
const PROMPT: &str = "You look after the project in this directory, and answer what other teams and people tell you about \
                      it. Look before you answer; change files only if you are asked to. If you need something from \
                      another project, `team_teams` shows which there are and `team_tell` asks them. Answer briefly: your \
                      last words are sent back.";
/// Which role's limits and rules a team has that names none.
const DEFAULT_ROLE: &str = "coder";

/// Maximum number of teams of directories in which earlier hubs were started.
const EARLIER_MAX: usize = 100;

/// Returns the teams there are. One that cannot be used is left out and told. `known` are those that the core knows: of
/// directories in which hubs were started before, it alone does.
pub(super) fn read(
    configuration: &Configuration,
    search_path: &[PathBuf],
    data: &DataFiles,
    project: &Path,
    known: &Teams,
    unusable: &mut Vec<String>,
) -> Vec<Team> {
    let mut teams = Vec::new();
    for (name, fields) in &configuration.settings.teams {
        match team(name.as_str(), fields, configuration, search_path, data) {
            Ok(team) => teams.push(team),
            Err(error) => unusable.push(format!("teams.{} is not usable: {error}", name.as_str())),
        }
    }
    // The directory that the hub was started in is one, unless somebody has described it, and so are those in which it was
    // started before: others may be in the middle of talking to them. One that is gone is none.
    let here = project.to_string_lossy();
    let earlier = known.iter().filter(|team| team.is_implicit && *team.directory != *here);
    let earlier = earlier.filter(|team| Path::new(&*team.directory).is_dir()).take(EARLIER_MAX);
    let earlier: Vec<(String, String)> =
        earlier.map(|team| (team.name.to_string(), team.directory.to_string())).collect();
    let own = known.iter().find(|team| team.is_implicit && *team.directory == *here);
    let own = own.map_or_else(|| normalised(project), |team| team.name.to_string());
    for (wanted, path) in earlier.into_iter().chain([(own, here.clone().into_owned())]) {
        let is_known = teams.iter().any(|team| team.remote.is_none() && *team.directory == *path);
        if is_known || wanted.is_empty() {
            continue;
        }
        let is_taken = |name: &str| teams.iter().any(|team| team.name.as_str() == name);
        let others = (2..).map(|n| format!("{wanted}-{n}"));
        let mut names = std::iter::once(wanted.clone()).chain(others);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        // Of a directory that is new nothing moves.
        let had =
            known.get(&wanted).is_some_and(|team| team.is_implicit && *team.directory == *path);
        if name != wanted && had {
            unusable.push(format!(
                "teams.{wanted} has the name that the team of {path} had: messages, conversations and tokens of {wanted} now \
                 belong to the new team, and {path} is the team {name}; rename teams.{wanted} if you do not want that"
            ));
        } else if name != wanted {
            tracing::warn!(
                "the directory {path} is the team {name}, because {wanted} is another; describe it to name it"
            );
        }
        let fields = TeamFields { path, ..TeamFields::default() };
        let team = team(&name, &fields, configuration, search_path, data);
        teams.extend(team.map(|team| Team { is_implicit: true, ..team }));
    }
    teams
}

/// Returns why a team cannot be used, if it cannot.
pub fn check(configuration: &Configuration, name: &str) -> Result<(), String> {
    let mut teams = configuration.settings.teams.iter();
    let found = teams.find(|(known, _)| known.as_str() == name);
    let (_, fields) = found.ok_or_else(|| format!("there is no team {name}"))?;
    if let Some(program) = &fields.program {
        configuration.settings.programs.find(program.as_str())?;
    }
    // Where its worktrees would be does not matter here.
    let data = DataFiles::of(Path::new("/"));
    team(name, fields, configuration, &config::search_path(), &data).map(drop)
}

/// Returns how many teams are configured, and what is wrong with them.
pub fn check_all(configuration: &Configuration) -> (usize, Vec<String>) {
    let search_path = config::search_path();
    let data = DataFiles::of(Path::new("/"));
    let wrong = configuration.settings.teams.iter().filter_map(|(name, fields)| {
        let why = match team(name.as_str(), fields, configuration, &search_path, &data) {
            Ok(team) => problem(configuration, &search_path, &team)?,
            Err(why) => why,
        };
        Some(format!("{}: {why}", name.as_str()))
    });
    (configuration.settings.teams.len(), wrong.collect())
}

/// Returns why a team cannot work now, as far as can be seen from here.
pub fn problem(
    configuration: &Configuration,
    search_path: &[PathBuf],
    team: &Team,
) -> Option<String> {
    if team.remote.is_some() {
        return None;
    }
    let directory = Path::new(&*team.directory);
    if !directory.is_dir() {
        return Some(format!("{} is not there, or is no directory", team.directory));
    }
    let wanted = Some(&*team.behaviour.program).filter(|program| !program.is_empty());
    if let Err(why) = configuration.settings.programs.choose(wanted, search_path) {
        return Some(why);
    }
    (team.worktrees.is_some() && !is_in_git(directory)).then(|| NO_GIT.to_owned())
}

/// Returns what a directory is called, as a team.
fn normalised(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.' | '-');
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    name.replace("..", "-").chars().take(100).collect()
}

fn team(
    name: &str,
    fields: &TeamFields,
    configuration: &Configuration,
    search_path: &[PathBuf],
    data: &DataFiles,
) -> Result<Team, String> {
    let name = TeamName::parse(name).map_err(|error| error.to_string())?;
    if matches!(name.as_str(), "operator" | "hub") {
        return Err("the name belongs to the hub or its operator".to_owned());
    }
    let directory = match &fields.remote {
        None => directory_here(&fields.path)?,
        Some(_) => directory_there(&fields.path)?,
    };
    let base = fields.role.as_ref().map_or(DEFAULT_ROLE, |role| role.as_str());
    let mut role = configuration.roles.find(base)?.clone();
    if let Some(program) = &fields.program {
        role.program = Some(program.clone());
    }
    if let Some(model) = &fields.model {
        role.model = Some(model.to_string());
    }
    if let Some(permissions) = &fields.permissions {
        role.permissions = permissions.clone();
    }
    let catalogue = teamster_mcp::tools::catalogue();
    let mut behaviour = super::convert(&role, configuration, search_path, &catalogue)?;
    behaviour.name = RoleName::of_team(&name);
    behaviour.directory = None;
    if fields.role.is_none() {
        behaviour.prompt = PROMPT.into();
        behaviour.is_projects = false;
    }
    let grants: Vec<String> = match &fields.tools {
        Some(tools) => tools.iter().map(ToString::to_string).collect(),
        None => DEFAULT_GRANTS.iter().map(|word| (*word).to_owned()).collect(),
    };
    behaviour.grants = parse_grants(&catalogue, &grants)?;
    if fields.worktrees && fields.remote.is_some() {
        return Err("worktrees are made on this machine only; leave them out, or remote".to_owned());
    }
    let idle_minutes = fields.idle_minutes.map_or(IDLE_MINUTES_USUAL, |minutes| minutes.get());
    Ok(Team {
        directory: directory.as_str().into(),
        description: fields
            .description
            .as_ref()
            .map(|line| line.as_str())
            .unwrap_or_default()
            .into(),
        color: fields.color.as_ref().map(|color| color.as_str().into()),
        idle_ms: u64::from(idle_minutes) * 60_000,
        remote: fields.remote.as_ref().map(|remote| remote.as_str().into()),
        worktrees: fields
            .worktrees
            .then(|| data.worktrees(&format!("team-{name}")).to_string_lossy().into()),
        pass: fields.pass.iter().map(|variable| variable.as_str().into()).collect(),
        behaviour: Arc::new(behaviour),
        is_implicit: false,
        name,
    })
}

const NOT_ABSOLUTE: &str = "its path is not absolute; write it in full, or as ~/…";

const NO_PATH: &str = "it has no path; add path = \"~/…\"";

fn directory_here(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err(NO_PATH.to_owned());
    }
    let path = match path.strip_prefix("~/") {
        Some(rest) => config::home().map_err(|error| error.to_string())?.join(rest),
        None => PathBuf::from(path),
    };
    if !path.is_absolute() {
        return Err(NOT_ABSOLUTE.to_owned());
    }
    // What is named by a link is known by what it leads to, as programs tell where they are.
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    Ok(path.to_str().ok_or("its path is not text")?.to_owned())
}

/// On another machine nothing is known of it until somebody is there; `~` is the home there.
fn directory_there(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err(NO_PATH.to_owned());
    }
    if !(path.starts_with('/') || path == "~" || path.starts_with("~/")) {
        return Err(NOT_ABSOLUTE.to_owned());
    }
    if path.chars().any(char::is_control) || path.len() > 4_096 {
        return Err("its path has control characters or is too long".to_owned());
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_called_what_a_team_can_be_called() {
        for (path, name) in
            [("/home/ann/my app", "my-app"), ("/x/größe", "gr--e"), ("/x/a..b", "a-b"), ("/", "")]
        {
            assert_eq!(normalised(Path::new(path)), name);
        }
    }
}
