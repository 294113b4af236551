//! `teamster team`: adds teams to the user's configuration file and takes them out. Everything else in it stays as it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use teamster_core::TeamName;
use toml_edit::{DocumentMut, Item, RawString, Table, TomlError, value};

use super::TeamsArgs;
use crate::cli::connect::toml as toml_file;
use crate::cli::{config as settings_cli, print, say};
use teamster_api::teams::ListTeams;
use teamster_api::{Client, paths};
use teamster_hub::agents;
use teamster_hub::config::{self, DataFiles};
use teamster_hub::settings::{self, FILE_NAME, Problem, Sources};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TeamArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Add a project, so that others can talk to its agent
    Add(AddArgs),
    /// Take a team out of the configuration; what was said stays
    Remove {
        /// The team
        name: String,
    },
    /// Show the teams, as `teamster teams` does
    List(TeamsArgs),
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// What it is called
    name: String,

    /// The project's directory
    path: PathBuf,

    /// What it is for, in one line
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// The agent program that plays it
    #[arg(long, value_name = "NAME")]
    program: Option<String>,

    /// The model, in its program's words
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The role whose prompt, limits and rules it has
    #[arg(long, value_name = "NAME")]
    role: Option<String>,

    /// Its color where it is shown, such as #FF6B9D
    #[arg(long)]
    color: Option<String>,

    /// How long its agents are kept awake that have nothing to do
    #[arg(long, value_name = "MINUTES")]
    idle_minutes: Option<u32>,

    /// Give each conversation a git worktree of its own
    #[arg(long)]
    worktrees: bool,

    /// Where its agents run if not here, as `ssh` is told; the path is one of that machine
    #[arg(long, value_name = "HOST")]
    remote: Option<String>,
}

pub(in crate::cli) async fn run(data: &DataFiles, args: TeamArgs) -> anyhow::Result<()> {
    match args.verb {
        Verb::Add(args) => add(data, args).await,
        Verb::Remove { name } => remove(data, &name).await,
        Verb::List(args) => super::teams(data, args).await,
    }
}

/// The user's file, as it is and where.
struct File {
    sources: Sources,
    /// As it is called.
    path: PathBuf,
    text: String,
}

impl File {
    fn read() -> anyhow::Result<Self> {
        let project = std::env::current_dir().context("the current directory is gone")?;
        let sources = settings_cli::sources(project, Vec::new());
        let directory = sources.user.as_ref().context("HOME is not set, so there is no file")?;
        let path = directory.join(FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => {
                String::new()
            }
            Err(error) => bail!("{} is left alone: it cannot be read ({error})", path.display()),
        };
        Ok(Self { sources, path, text })
    }

    fn document(&self) -> anyhow::Result<DocumentMut> {
        // The whole error would quote the line, and that may hold somebody's secret.
        self.text.parse::<DocumentMut>().map_err(|error: TomlError| {
            let says = error.message();
            let before = error.span().and_then(|span| self.text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            anyhow!("{}{line} is left alone: it is not valid TOML ({says})", self.path.display())
        })
    }

    /// Makes sure that nothing is wrong with a text that was not wrong before, and that a team in it can be used.
    fn check(&self, text: &str, team: Option<&str>) -> anyhow::Result<()> {
        let with = |text: &str| {
            let users_text = Some(text.to_owned());
            settings::read(&Sources { users_text, ..self.sources.clone() })
        };
        let (before, after) = (with(&self.text), with(text));
        let same =
            |one: &Problem, other: &Problem| one.file == other.file && one.says == other.says;
        let is_new = |one: &&Problem| !before.problems.iter().any(|old| same(one, old));
        if let Some(problem) = after.problems.iter().find(is_new) {
            bail!("{}; {} is left alone", problem.says, self.path.display());
        }
        match team.map(|team| agents::check_team(&after, team)) {
            Some(Err(says)) => bail!("{says}; {} is left alone", self.path.display()),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Writes the file in one step, and has a running hub read it.
    async fn write(&self, data: &DataFiles, text: &str, done: &str) -> anyhow::Result<()> {
        let mut hub = Client::connect_if_running(data).await?;
        let after = match &mut hub {
            Some(hub) => settings_cli::readings(hub).await?,
            None => 0,
        };
        // A link stays one: what it leads to is changed.
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        config::replace(&path, text.as_bytes())?;
        say(&format!("{done} {}", self.path.display()));
        match &mut hub {
            Some(hub) => {
                let reading = settings_cli::read_again(hub, after).await?;
                print(&reading.says)
            }
            None => print(&format!("no hub is running; it holds from `{}` on", data.call("up"))),
        }
    }
}

async fn add(data: &DataFiles, args: AddArgs) -> anyhow::Result<()> {
    let file = File::read()?;
    let name = TeamName::parse(&args.name)?;
    let document = file.document()?;
    if document.get("teams").and_then(|teams| teams.get(name.as_str())).is_some() {
        bail!(
            "there is a team {name} already; change it in {}, or remove it first",
            file.path.display()
        );
    }
    let path = match &args.remote {
        Some(_) => args.path.to_str().map(str::to_owned),
        None => directory(&args.path)?.to_str().map(str::to_owned),
    };
    let path = path.context("the path is not text, and a configuration file is")?;
    refuse_name_of_another(data, &name, &path, args.remote.is_some()).await?;
    let mut table = Table::new();
    table.insert("path", value(path));
    for (key, given) in [
        ("description", args.description),
        ("program", args.program),
        ("model", args.model),
        ("role", args.role),
        ("color", args.color),
        ("remote", args.remote),
    ] {
        if let Some(given) = given {
            table.insert(key, value(given));
        }
    }
    if args.worktrees {
        table.insert("worktrees", value(true));
    }
    if let Some(minutes) = args.idle_minutes {
        table.insert("idle_minutes", value(i64::from(minutes)));
    }
    let edited = toml_file::set(&file.text, "teams", name.as_str(), table)
        .with_context(|| format!("{} is left alone", file.path.display()))?;
    file.check(&edited.text, Some(name.as_str()))?;
    file.write(data, &edited.text, &format!("team {name} added to")).await
}

/// Refuses a name that the running hub gave to another directory by itself: conversations and tokens belong to a name, so
/// they would move to the new team.
async fn refuse_name_of_another(
    data: &DataFiles,
    name: &TeamName,
    path: &str,
    is_remote: bool,
) -> anyhow::Result<()> {
    let Some(mut hub) = Client::connect_if_running(data).await? else { return Ok(()) };
    let teams = hub.all::<paths::ListTeams, _>(&ListTeams::default()).await?;
    let taken = teams.iter().find(|team| team.is_automatic && team.name == name.as_str());
    let Some(other) = taken.filter(|team| is_remote || team.path != path) else { return Ok(()) };
    let remove = data.call(&format!("team remove {name}"));
    bail!(
        "the name {name} belongs to the team of {}, in which a hub was started; its conversations and tokens would move to {path}\nhint: choose another name, or remove that team first with `{remove}`",
        other.path
    )
}

/// Returns a directory in full.
fn directory(path: &Path) -> anyhow::Result<PathBuf> {
    let path = match path.strip_prefix("~") {
        Ok(rest) => config::home()?.join(rest),
        Err(_) => path.to_owned(),
    };
    let found = std::fs::canonicalize(&path)
        .map_err(|_| anyhow!("there is no directory {}", path.display()))?;
    if !found.is_dir() {
        bail!("{} is not a directory", path.display());
    }
    Ok(found)
}

async fn remove(data: &DataFiles, name: &str) -> anyhow::Result<()> {
    let file = File::read()?;
    let Some(text) = without(file.document()?, name) else {
        // A directory that a hub was started in is a team without being in the file.
        let Some(mut client) = Client::connect_if_running(data).await? else {
            bail!("there is no team {name} in {}", file.path.display());
        };
        client.remove_team(name).await?;
        say(&format!("team {name} removed; `teamster up` in its directory makes it one again"));
        return Ok(());
    };
    file.check(&text, None)?;
    file.write(data, &text, &format!("team {name} removed from")).await
}

/// Returns the file without a team, and without the comment that stands right above it.
fn without(mut document: DocumentMut, name: &str) -> Option<String> {
    let removed = document.get_mut("teams")?.as_table_like_mut()?.remove(name)?;
    if let Item::Table(table) = &removed {
        // Comments are part of what follows them. Those further up were about something else.
        let prefix = table.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
        let kept = prefix.rfind("\n\n").map_or("", |end| &prefix[..=end]).to_owned();
        if !kept.trim().is_empty() {
            let position = first_position(table);
            let next = position.and_then(|position| next_position(document.as_table(), position));
            match next.and_then(|next| at_position(document.as_table_mut(), next)) {
                Some(next) => {
                    let own = next.decor().prefix().and_then(RawString::as_str);
                    let own = own.unwrap_or_default().to_owned();
                    next.decor_mut().set_prefix(format!("{kept}{own}"));
                }
                None => {
                    let own = document.trailing().as_str().unwrap_or_default().to_owned();
                    document.set_trailing(format!("{kept}{own}"));
                }
            }
        }
    }
    Some(document.to_string())
}

/// Returns where a table stands among all those that have a header, or the first in it if it has none.
fn first_position(table: &Table) -> Option<isize> {
    table.position().or_else(|| tables(table).filter_map(first_position).min())
}

/// Returns where the next table stands.
fn next_position(table: &Table, after: isize) -> Option<isize> {
    let own = table.position().filter(|position| *position > after && !table.is_implicit());
    own.into_iter().chain(tables(table).filter_map(|table| next_position(table, after))).min()
}

fn at_position(table: &mut Table, position: isize) -> Option<&mut Table> {
    if table.position() == Some(position) && !table.is_implicit() {
        return Some(table);
    }
    let tables = table.iter_mut().filter_map(|(_, item)| item.as_table_mut());
    tables.filter_map(|table| at_position(table, position)).next()
}

fn tables(table: &Table) -> impl Iterator<Item = &Table> {
    table.iter().filter_map(|(_, item)| item.as_table())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        let document = text.parse().expect("it is TOML");
        expected.assert_eq(&without(document, "api").expect("the team is in it"));
    }

    #[test]
    fn a_team_goes_and_all_else_stays() {
        check(
            "# mine\n\nprogram = \"goose\" # the best\n\n# what I work on\n\n# the API\n[teams.api] # here\npath = \"/api\"\n\n[teams.api.permissions]\nask = [\"*\"]\n\n# the web\n[teams.web]\npath = \"/web\"\n# the end\n",
            expect![[r##"
                # mine

                program = "goose" # the best

                # what I work on

                # the web
                [teams.web]
                path = "/web"
                # the end
            "##]],
        );
        check(
            "[pool]\nlive = 3\n\n# all\n\n[teams.api]\npath = \"/api\"\n",
            expect![[r#"
            [pool]
            live = 3

            # all
        "#]],
        );
        check(
            "teams.web.path = \"/web\"\nteams.api.path = \"/api\" # it\n",
            expect![[r#"
            teams.web.path = "/web"
        "#]],
        );
        check(
            "teams = { api = { path = \"/api\" }, web = { path = \"/web\" } }\n",
            expect![[r#"
            teams = { web = { path = "/web" } }
        "#]],
        );
        check(
            "[teams]\n# the API\napi = { path = \"/api\" }\n# the web\nweb = { path = \"/web\" }\n",
            expect![[r#"
            [teams]
            # the web
            web = { path = "/web" }
        "#]],
        );
    }
}
