//! `teamster connect`: tells an agent program where the hub is, in that program's own words.

mod json;
pub(super) mod toml;
mod yaml;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rustix::fs::Access;
use serde_json::{Value, json};
use teamster_core::RunName;

use super::{connect_to_hub, own_team, print, say};
use crate::config::{self, DataFiles};

/// An agent program, and how it is told about a server.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    /// Where its own configuration file is: a directory of the user's and the path below that.
    directory: fn() -> anyhow::Result<PathBuf>,
    file: &'static str,
    /// Puts the server into the text of that file, which is empty where there is no file.
    edit: fn(&str, &Server) -> anyhow::Result<Edited>,
    /// The command line that does the same, if the program has one.
    command: Option<fn(&Server) -> String>,
}

/// Every program that can be connected. To add one, add it here.
static PROGRAMS: [Program; 5] = [
    Program {
        name: "claude",
        directory: config::claude_home,
        file: ".claude.json",
        edit: |file, server| {
            let entry = json!({"type": "http", "url": server.url, "headers": server.headers()});
            json::set(file, "mcpServers", SERVER, entry)
        },
        command: Some(|server| {
            let (url, header) = (&server.url, format!("Authorization: {}", server.authorization()));
            format!(
                "claude mcp add --scope user --transport http {SERVER} {url} --header \"{header}\""
            )
        }),
    },
    Program {
        name: "codex",
        directory: config::codex_home,
        file: "config.toml",
        edit: |file, server| {
            let headers =
                toml_edit::InlineTable::from_iter([("Authorization", server.authorization())]);
            let entry = [
                ("url", toml_edit::Value::from(&server.url)),
                ("http_headers", headers.into()),
                // `codex exec` has nobody to ask, and fails every call that it would ask about.
                ("default_tools_approval_mode", "approve".into()),
            ];
            toml::set(file, "mcp_servers", SERVER, toml_edit::Table::from_iter(entry))
        },
        command: None,
    },
    Program {
        name: "gemini",
        directory: config::home,
        file: ".gemini/settings.json",
        edit: |file, server| {
            // Without `trust`, a run that has nobody to ask is not offered the tools.
            let entry = json!({"httpUrl": server.url, "headers": server.headers(), "trust": true});
            json::set(file, "mcpServers", SERVER, entry)
        },
        command: None,
    },
    Program {
        name: "goose",
        directory: config::config_home,
        file: "goose/config.yaml",
        edit: |file, server| {
            let entry = [
                "enabled: true",
                "type: streamable_http",
                &format!("name: {SERVER}"),
                &format!("uri: {}", server.url),
                "headers:",
                &format!("  Authorization: {}", server.authorization()),
            ];
            yaml::set(file, "extensions", SERVER, &entry)
        },
        command: None,
    },
    Program {
        name: "opencode",
        directory: config::config_home,
        file: "opencode/opencode.json",
        edit: |file, server| {
            let new = "{\"$schema\": \"https://opencode.ai/config.json\"}\n";
            let file = if file.trim().is_empty() { new } else { file };
            let entry = json!({
                "type": "remote", "url": server.url, "enabled": true, "oauth": false, "headers": server.headers(),
            });
            json::set(file, "mcp", SERVER, entry)
        },
        command: None,
    },
];

/// What the hub is called in every program's configuration.
const SERVER: &str = "teamster";

/// The hub, as a program has to know it. It holds a secret, so it cannot be printed by accident.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) secret: String,
}

/// A file's text with the server in it.
pub(super) struct Edited {
    pub(super) text: String,
    /// Whether another entry of the same name had to go.
    pub(super) replaced: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ConnectArgs {
    /// The agent program
    #[arg(value_parser = program_parser())]
    program: &'static Program,

    /// What the agent is called [default: the program's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The only run it may use
    #[arg(long, value_parser = RunName::parse)]
    run: Option<RunName>,

    /// The team it belongs to, or `none` [default: that of the current directory]
    #[arg(long)]
    team: Option<String>,

    /// What it allows: full, read-only, main, self, metrics, a set (`session`) or a tool (`session:task-list`)
    #[arg(long, value_delimiter = ',', value_name = "GRANT", default_value = "full")]
    grant: Vec<String>,

    /// Change the program's configuration file, instead of printing what belongs there
    #[arg(long)]
    write: bool,

    /// End a live token of the same name
    #[arg(long)]
    replace: bool,
}

/// Reads the name of a program that can be connected.
pub(super) fn program_parser() -> impl TypedValueParser<Value = &'static Program> {
    PossibleValuesParser::new(PROGRAMS.iter().map(|program| program.name)).try_map(find)
}

fn find(name: String) -> anyhow::Result<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name).context("no such program")
}

pub(super) async fn run(data: &DataFiles, args: ConnectArgs) -> anyhow::Result<()> {
    let program = args.program;
    let path = (program.directory)()?.join(program.file);
    let mut client = connect_to_hub(data).await?;
    let url = match &args.run {
        Some(run) => format!("{}/mcp/session/{run}", client.hub.url),
        None => format!("{}/mcp", client.hub.url),
    };
    if args.write {
        // A token that cannot be written down would be of no use to anybody, so the file comes first.
        program.check(&path, url.clone())?;
    }

    let team = own_team::find(&mut client, args.team.as_deref()).await?;
    let asked = json!({
        "name": args.name.as_deref().unwrap_or(program.name), "grants": args.grant, "run": args.run, "team": team,
        "replace": args.replace,
    });
    let made = client.post("/api/tokens", &asked).await?;
    let secret = made["secret"].as_str().context("the hub made no secret")?.to_owned();
    let word = |name: &str| made[name].as_str().unwrap_or("?").to_owned();
    let token = format!("{} for {} ({})", word("id"), word("name"), word("grants"));
    let server = Server { url, secret };
    if let (Some(team), Some(_)) = (&team, &args.team) {
        super::token::warn_if_unknown(&mut client, team).await?;
    }
    if let (Some(team), None) = (&team, &args.team) {
        say(&format!("it belongs to the team {team}; with `--team none` it belongs to no team"));
    }
    if !args.grant.iter().any(|grant| grant == "main") && args.run.is_none() {
        let grants = word("grants");
        let grant = data.call(&format!("token grant {} --grant {grants},main", word("name")));
        say(&format!("it can read the backlog; `{grant}` lets it write there, too"));
    }
    if args.run.is_some() {
        say(
            "a token of one run is connected to that run's path, which serves the session tools only",
        );
    }

    if !args.write {
        print(&program.paste(&server)?)?;
        match program.command {
            Some(_) => say("run that line in a shell"),
            None => say(&format!("that belongs in {}", path.display())),
        }
        say(&format!("it holds the secret of {token}, which is shown only now"));
        say(
            "with --write, and --replace now that this token exists, teamster changes the file itself",
        );
        return Ok(());
    }
    match program.write(&path, &server) {
        Ok(replaced) => {
            if replaced {
                say(&format!("the server `{SERVER}` that was in {} is replaced", path.display()));
            }
            say(&format!("{} now has the server `{SERVER}`, with {token}", path.display()));
            say(&format!(
                "next: start {} anew and ask it to list the tasks of {SERVER}",
                program.name
            ));
            Ok(())
        }
        Err(error) => {
            print(&program.paste(&server)?)?;
            say(&format!("{token} was made; use it by hand, as above"));
            Err(error.context(format!("{} is left alone", path.display())))
        }
    }
}

impl Server {
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    fn headers(&self) -> Value {
        json!({"Authorization": self.authorization()})
    }
}

impl Program {
    /// Returns what a person pastes: a command line, or what the file would be with nothing else in it.
    pub(super) fn paste(&self, server: &Server) -> anyhow::Result<String> {
        match self.command {
            Some(command) => Ok(command(server)),
            None => Ok((self.edit)("", server)?.text.trim_end().to_owned()),
        }
    }

    /// Makes sure that the file can be changed; if not, the refusal shows what to put there by hand.
    fn check(&self, path: &Path, url: String) -> anyhow::Result<()> {
        let server = Server { url, secret: "TOKEN".into() };
        let Err(reason) = self.edited(path, &server) else { return Ok(()) };
        bail!(
            "{} is left alone: {reason:#}\n\n\
             no token was made; without --write this is printed with one, to be used by hand:\n\n{}",
            path.display(),
            self.paste(&server)?
        )
    }

    /// Changes the file in one step. Returns whether another entry had to go.
    fn write(&self, path: &Path, server: &Server) -> anyhow::Result<bool> {
        // Programs write their files too, so it is read again as late as possible.
        let (path, edited) = self.edited(path, server)?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        config::write_private(&path, edited.text.as_bytes())?;
        Ok(edited.replaced)
    }

    /// Returns which file to write and what, or why it cannot be.
    fn edited(&self, path: &Path, server: &Server) -> anyhow::Result<(PathBuf, Edited)> {
        let (path, file) = match fs::read_to_string(path) {
            // A link stays one: what it leads to is changed.
            Ok(file) => (fs::canonicalize(path)?, file),
            Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
                bail!("it is a link to a file that does not exist")
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), String::new()),
            Err(error) => return Err(anyhow!("it cannot be read ({error})")),
        };
        let directory = path
            .ancestors()
            .skip(1)
            .find(|directory| directory.exists())
            .context("it has no directory")?;
        rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| anyhow!("{} cannot be written to ({error})", directory.display()))?;
        let edited = (self.edit)(&file, server)?;
        Ok((path, edited))
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
