//! `teamster program`: the agent programs that can be run here.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use teamster_agents::process;
use tokio::io::AsyncReadExt;

use super::config::SettingsArgs;
use super::{print, say};
use teamster_hub::agents::{self, Reached};
use teamster_hub::config;
use teamster_hub::programs::{Asks, Known};

#[derive(Debug, clap::Args)]
pub(super) struct ProgramArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the programs, and where each was found
    List(ListArgs),
    /// Start a program with the hub's tools, and report whether it can work
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Ask each program for its version
    #[arg(long)]
    versions: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// The program's name, as `teamster program list` shows it
    name: String,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Programs that are started by node may take several seconds to say their version.
const VERSION_PATIENCE: Duration = Duration::from_secs(20);
/// A version is a line; what a program says beyond this is not read.
const VERSION_BYTES_MAX: u64 = 4_096;

pub(super) async fn run(ProgramArgs { verb }: ProgramArgs) -> anyhow::Result<()> {
    match verb {
        Verb::List(args) => list(args).await,
        Verb::Check(args) => check(args).await,
    }
}

async fn check(args: CheckArgs) -> anyhow::Result<()> {
    let configuration = args.settings.read()?;
    let settings = &configuration.settings;
    let chosen = settings.programs.choose(Some(&args.name), &config::search_path());
    let (known, path) = chosen.map_err(anyhow::Error::msg)?;
    let checked = agents::check(known.program, path.clone(), &settings.mcp).await?;
    let has_rules = settings.permissions.hold_back()
        || configuration.roles.iter().any(|role| role.permissions.hold_back());
    let warning = known.doubt().filter(|_| has_rules);
    if args.json {
        let mut shown = serde_json::to_value(&checked)?;
        (shown["name"], shown["path"]) = (json!(known.name), json!(path));
        (shown["asks"], shown["warning"]) = (json!(known.program.asks), json!(warning));
        print(&shown.to_string())?;
        return if checked.failed.is_none() { Ok(()) } else { Err(super::Refused.into()) };
    }
    // One that does not start does not tell its version in the handshake either.
    let asked = if checked.started.is_none() { version(&path).await } else { None };
    print(&report(known, &path, asked, &checked))?;
    warning.iter().for_each(|says| say(&format!("warning: {says}")));
    match checked.failed {
        None => Ok(()),
        Some(why) => {
            let words = checked.last_words.map(|words| format!("\nits last words:\n{words}"));
            anyhow::bail!("{} cannot work: {why}{}", known.name, words.unwrap_or_default())
        }
    }
}

/// Returns what a trial showed of a program, a line for each part. `asked` is the version of one that did not start.
fn report(
    known: Known<'_>,
    path: &Path,
    asked: Option<String>,
    checked: &agents::Checked,
) -> String {
    let started = checked.started.as_ref();
    let told = started.and_then(|started| started.program.as_ref());
    let told = told.map(|program| format!("{} {}", program.name, program.version));
    let version = told.or(asked).unwrap_or_else(|| "version unknown".to_owned());
    let model = started.and_then(|started| started.model.as_ref());
    let model = model.map(|model| format!(", model {model}")).unwrap_or_default();
    let login = if started.is_some_and(|started| started.login_missing.is_some()) {
        "missing".to_owned()
    } else if checked.unset.is_empty() {
        "a key is set, or none is needed; whether it is valid shows with the first prompt"
            .to_owned()
    } else {
        format!("none of {} is set; its own login was not checked", checked.unset.join(", "))
    };
    let asks = match known.program.asks {
        Asks::Yes => "asks before it runs a command or changes a file, if a rule can deny or ask",
        Asks::OutsideSandbox => "asks only for what its own sandbox forbids",
        Asks::No => "does not ask; rules that deny or ask do not hold for it",
        Asks::Unknown => "not known to ask; try it before you rely on rules that deny or ask",
    };
    let tried = format!(
        "{} in the environment of this shell; the hub uses the one it was started in",
        path.display()
    );
    let tools = started.map(|_| match checked.tools {
        Reached::Listed => "connected to the hub's tools and listed them",
        Reached::Connected => "connected to the hub's tools",
        Reached::Nothing => "not connected yet; it connects with its first prompt, or not at all",
    });
    let sessions = started.map(|started| {
        if started.can_resume && known.program.load_session {
            "can be resumed"
        } else {
            "cannot be resumed; after a restart of the hub its agents begin anew"
        }
    });
    let lines = [
        ("tried", Some(tried.as_str())),
        ("tools", tools),
        ("login", Some(login.as_str())),
        ("asking", Some(asks)),
        ("sessions", sessions),
    ];
    let lines = lines.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let lines: String = lines.map(|(name, text)| format!("\n  {name:<9} {text}")).collect();
    let verb = if started.is_some() { "starts" } else { "does not start" };
    format!("{} {verb}: {version}{model}{lines}", known.name)
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let configuration = args.settings.read()?;
    let search_path = config::search_path();
    let programs: Vec<(Known<'_>, Option<PathBuf>)> = configuration
        .settings
        .programs
        .iter()
        .map(|known| (known, known.program.find(&search_path)))
        .collect();
    let versions = programs.iter().map(async |(_, found)| match found {
        Some(found) if args.versions => version(found).await,
        _ => None,
    });
    let versions = join_all(versions).await;
    let rows = programs.iter().zip(versions);
    if args.json {
        let rows = rows.map(|((known, found), version)| {
            json!({
                "name": known.name, "command": known.program.command, "driver": known.program.driver,
                "found": found, "version": version,
            })
        });
        return print(&json!(rows.collect::<Vec<_>>()).to_string());
    }
    let rows = rows.map(|((known, found), version)| {
        let found = match found {
            Some(found) => found.display().to_string(),
            None => format!("{} is not on your PATH", known.program.command),
        };
        let version = version.unwrap_or_default();
        let row =
            format!("{:<18} {:<6} {found:<40} {version}", known.name, known.program.driver.word());
        row.trim_end().to_owned()
    });
    print(&rows.collect::<Vec<_>>().join("\n"))
}

/// Asks a program for its version, if it answers in time.
async fn version(program: &Path) -> Option<String> {
    let ask = async {
        let mut asked = process::command(&program.to_string_lossy(), &std::env::temp_dir());
        asked.arg("--version").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut asked = asked.spawn().ok()?;
        let mut said = Vec::new();
        asked.stdout.take()?.take(VERSION_BYTES_MAX).read_to_end(&mut said).await.ok()?;
        Some(said)
    };
    let said = tokio::time::timeout(VERSION_PATIENCE, ask).await.ok()??;
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(80).collect())
}
