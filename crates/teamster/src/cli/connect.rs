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
use teamster_mcp::access::parse_grants;

use super::{connect_to_hub, own_team, print, say};
use teamster_api::paths::ListTokens;
use teamster_api::tokens::{Kind, NewToken, Token};
use teamster_api::{Client, ListQuery};
use teamster_hub::config::{self, DataFiles};
use teamster_hub::programs::own_file;

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
            let entry = match server {
                Server::Command { program, args } => {
                    json!({"type": "stdio", "command": program, "args": args})
                }
                Server::Http(http) => {
                    json!({"type": "http", "url": http.url, "headers": http.headers()})
                }
            };
            json::set(file, "mcpServers", SERVER, entry)
        },
        command: Some(|server| match server {
            Server::Command { program, args } => {
                let words = [program].into_iter().chain(args).map(|word| quoted(word));
                let words = words.collect::<Vec<_>>().join(" ");
                format!("claude mcp add --scope user {SERVER} -- {words}")
            }
            Server::Http(http) => {
                let (url, header) = (&http.url, format!("Authorization: {}", http.authorization()));
                format!(
                    "claude mcp add --scope user --transport http {SERVER} {url} --header \"{header}\""
                )
            }
        }),
    },
    Program {
        name: "codex",
        directory: config::codex_home,
        file: "config.toml",
        edit: |file, server| {
            // `codex exec` has nobody to ask, and fails every call that it would ask about.
            let approve = ("default_tools_approval_mode", toml_edit::Value::from("approve"));
            match server {
                Server::Command { program, args } => {
                    let args: toml_edit::Array = args.iter().collect();
                    let entry = [("command", program.into()), ("args", args.into()), approve];
                    let (file, was_removed) = toml::without_secret(file, "mcp_servers", SERVER)?;
                    let entry = toml_edit::Table::from_iter(entry);
                    let edited = toml::set(&file, "mcp_servers", CODEX_SERVER, entry)?;
                    Ok(Edited { replaced: edited.replaced || was_removed, ..edited })
                }
                Server::Http(http) => {
                    let headers = toml_edit::InlineTable::from_iter([(
                        "Authorization",
                        http.authorization(),
                    )]);
                    let url = toml_edit::Value::from(&http.url);
                    let entry = [("url", url), ("http_headers", headers.into()), approve];
                    toml::set(file, "mcp_servers", SERVER, toml_edit::Table::from_iter(entry))
                }
            }
        },
        command: None,
    },
    Program {
        name: "gemini",
        directory: config::home,
        file: ".gemini/settings.json",
        edit: |file, server| {
            // Without `trust`, a run that has nobody to ask is not offered the tools.
            let entry = match server {
                Server::Command { program, args } => {
                    json!({"command": program, "args": args, "trust": true})
                }
                Server::Http(http) => {
                    json!({"httpUrl": http.url, "headers": http.headers(), "trust": true})
                }
            };
            json::set(file, "mcpServers", SERVER, entry)
        },
        command: None,
    },
    Program {
        name: "goose",
        directory: config::config_home,
        file: "goose/config.yaml",
        edit: |file, server| {
            let (kind, rest) = match server {
                Server::Command { program, args } => {
                    // JSON's strings are YAML's, too.
                    let args = args.iter().map(|arg| format!("  - {}", json!(arg)));
                    let head = [format!("cmd: {}", json!(program)), "args:".to_owned()];
                    ("stdio", head.into_iter().chain(args).collect::<Vec<_>>())
                }
                Server::Http(http) => {
                    let uri = format!("uri: {}", http.url);
                    let header = format!("  Authorization: {}", http.authorization());
                    ("streamable_http", vec![uri, "headers:".to_owned(), header])
                }
            };
            let head = ["enabled: true", &format!("type: {kind}"), &format!("name: {SERVER}")]
                .map(str::to_owned);
            let entry: Vec<&str> = head.iter().chain(&rest).map(String::as_str).collect();
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
            let entry = match server {
                Server::Command { program, args } => {
                    let command: Vec<&String> = [program].into_iter().chain(args).collect();
                    json!({"type": "local", "command": command, "enabled": true})
                }
                Server::Http(http) => json!({
                    "type": "remote", "url": http.url, "enabled": true, "oauth": false,
                    "headers": http.headers(),
                }),
            };
            json::set(file, "mcp", SERVER, entry)
        },
        command: None,
    },
];

/// What the hub is called in every program's configuration.
const SERVER: &str = "teamster";
/// What it is called in that of Codex as a command. Codex merges what the hub tells it of an agent's own server, an address,
/// into an entry of the same name, and refuses one with a command and an address.
const CODEX_SERVER: &str = "teamster-mcp";

/// The hub, as a program has to know it.
pub(super) enum Server {
    /// A command that the program starts, and that finds the hub and its secret by itself.
    Command {
        program: String,
        args: Vec<String>,
    },
    Http(Http),
}

/// The hub's address. It holds a secret, so it cannot be printed by accident.
pub(super) struct Http {
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
    /// [default: full; with --http session]
    #[arg(long, value_delimiter = ',', value_name = "GRANT")]
    grant: Vec<String>,

    /// Put an address and a token into the configuration, for a program that cannot start `teamster mcp`
    #[arg(long)]
    http: bool,

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

pub(super) async fn run(data: &DataFiles, mut args: ConnectArgs) -> anyhow::Result<()> {
    let program = args.program;
    let path = (program.directory)()?.join(program.file);
    if args.grant.is_empty() {
        // Whatever can read the program's file can use a token in it.
        args.grant.push(if args.http { "session" } else { "full" }.to_owned());
    }
    let grants = parse_grants(&teamster_mcp::tools::catalogue(), &args.grant)
        .map_err(|error| anyhow!(error))?;
    let mut client = connect_to_hub(data).await?;
    let team = own_team::find(&mut client, args.team.as_deref()).await?;
    let about = About { grants: grants.to_string(), team, args };
    let server = match about.args.http {
        true => http(&mut client, &about, program, &path).await?,
        false => {
            let server = about.command(data)?;
            if about.args.write {
                program.check(&path, &server)?;
            }
            server
        }
    };
    about.explain(&mut client, data).await?;
    let args = &about.args;
    if !args.write {
        print(&program.paste(&server)?)?;
        match program.command {
            Some(_) => say("run that line in a shell"),
            None => say(&format!("that belongs in {}", path.display())),
        }
        match &server {
            Server::Command { .. } => say("with --write, teamster changes the file itself"),
            Server::Http(_) => {
                say("it holds a token that is shown only now");
                say(
                    "with --write and --replace, teamster makes another one and changes the file itself",
                );
            }
        }
        return end_old_token(&mut client, data, &about, false).await;
    }
    match program.write(&path, &server) {
        Ok(replaced) => {
            if replaced {
                say(&format!("an earlier entry for Teamster in {} is replaced", path.display()));
            }
            let name = program.server_name(&server);
            let holds = match &server {
                Server::Command { .. } => "which starts `teamster mcp`; the file holds no token",
                Server::Http(_) => {
                    "with a token: whoever can read the file can use it, also agents that run as you"
                }
            };
            say(&format!("{} now has the server `{name}`, {holds}", path.display()));
            end_old_token(&mut client, data, &about, replaced).await?;
            say(&format!(
                "next: restart {} and ask it to list the tasks of {SERVER}",
                program.name
            ));
            Ok(())
        }
        Err(error) => {
            print(&program.paste(&server)?)?;
            say("use that by hand");
            Err(error.context(format!("{} is left alone", path.display())))
        }
    }
}

/// Who is connected.
struct About {
    grants: String,
    team: Option<String>,
    args: ConnectArgs,
}

impl About {
    fn name(&self) -> &str {
        self.args.name.as_deref().unwrap_or(self.args.program.name)
    }

    /// Returns the command that connects it over stdio.
    fn command(&self, data: &DataFiles) -> anyhow::Result<Server> {
        let own = own_file().context("the file of this program is gone; install it again")?;
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| {
                format!("{} is not text, and cannot be written down", path.display())
            })
        };
        let mut args = vec!["--data".to_owned(), text(data.directory())?, "mcp".to_owned()];
        let grants = Some(&self.grants).filter(|grants| *grants != "full");
        for (flag, value) in [
            ("--name", Some(self.name())),
            ("--run", self.args.run.as_ref().map(RunName::as_str)),
            ("--team", Some(self.team.as_deref().unwrap_or("none"))),
            ("--grant", grants.map(String::as_str)),
        ] {
            args.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value.to_owned()]));
        }
        Ok(Server::Command { program: text(&own)?, args })
    }

    /// Says what it may do, and how to change that.
    async fn explain(&self, client: &mut Client, data: &DataFiles) -> anyhow::Result<()> {
        let args = &self.args;
        if let (Some(team), Some(_)) = (&self.team, &args.team) {
            super::token::warn_if_unknown(client, team).await?;
        }
        if let (Some(team), None) = (&self.team, &args.team) {
            say(&format!(
                "it belongs to the team {team}; with `--team none` it belongs to no team"
            ));
        }
        let (name, grants) = (self.name(), &self.grants);
        if !args.grant.iter().any(|grant| grant == "main") && args.run.is_none() {
            let change = match args.http {
                true => data.call(&format!("token grant {name} --grant {grants},main")),
                false => {
                    let mut call = format!("connect {}", args.program.name);
                    for (flag, value) in [("name", &args.name), ("team", &args.team)] {
                        call.extend(value.iter().map(|value| format!(" --{flag} {value}")));
                    }
                    data.call(&format!("{call} --write --grant {grants},main"))
                }
            };
            say(&format!("it can read the backlog; `{change}` lets it write there, too"));
        }
        if args.run.is_some() {
            say("it is connected to the path of one run, which serves the session tools only");
        }
        Ok(())
    }
}

/// Makes a token, and returns the address with it.
async fn http(
    client: &mut Client,
    about: &About,
    program: &Program,
    path: &Path,
) -> anyhow::Result<Server> {
    let args = &about.args;
    let url = match &args.run {
        Some(run) => format!("{}/mcp/session/{run}", client.hub.url),
        None => format!("{}/mcp", client.hub.url),
    };
    if args.write {
        // A token that cannot be written down would be of no use to anybody, so the file comes first.
        program.check(path, &Server::Http(Http { url: url.clone(), secret: "TOKEN".into() }))?;
    }
    let new = NewToken {
        name: Some(about.name().into()),
        grants: args.grant.clone(),
        run: args.run.as_ref().map(ToString::to_string),
        team: about.team.clone(),
        expires_in_s: None,
        replace: args.replace,
    };
    let secret = client.create_token(&new).await?.secret;
    Ok(Server::Http(Http { url, secret }))
}

/// Ends the token of an earlier connection over HTTP, which the program no longer uses, or says how to.
async fn end_old_token(
    client: &mut Client,
    data: &DataFiles,
    about: &About,
    replaced: bool,
) -> anyhow::Result<()> {
    if about.args.http || !(replaced || about.args.replace) {
        return Ok(());
    }
    let name = about.name();
    let tokens = client.all::<ListTokens, _>(&ListQuery::default()).await?;
    let is_old = |token: &Token| token.name == name && token.kind == Kind::Agent;
    if !tokens.iter().any(is_old) {
        return Ok(());
    }
    if !about.args.replace {
        let revoke = data.call(&format!("token revoke {name}"));
        say(&format!(
            "the token of {name} is still valid; if nothing else uses it, run `{revoke}`"
        ));
        return Ok(());
    }
    client.revoke_token(name).await?;
    say(&format!("the token of {name} is revoked"));
    Ok(())
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Http {
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

    fn server_name(&self, server: &Server) -> &'static str {
        match server {
            Server::Command { .. } if self.name == "codex" => CODEX_SERVER,
            Server::Command { .. } | Server::Http(_) => SERVER,
        }
    }

    /// Makes sure that the file can be changed; if not, the refusal shows what to put there by hand.
    fn check(&self, path: &Path, server: &Server) -> anyhow::Result<()> {
        let Err(reason) = self.edited(path, server) else { return Ok(()) };
        let by_hand = match server {
            Server::Command { .. } => "put this there by hand",
            Server::Http(_) => {
                "no token was made; without --write this is printed with one, to be used by hand"
            }
        };
        bail!(
            "{} is left alone: {reason:#}\n\n{by_hand}:\n\n{}",
            path.display(),
            self.paste(server)?
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
