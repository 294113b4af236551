//! `teamster program`: the agent programs that can be run here.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use teamster_agents::process;
use tokio::io::AsyncReadExt;

use super::config::SettingsArgs;
use super::print;
use crate::programs::Known;
use crate::{agents, config};

#[derive(Debug, clap::Args)]
pub(super) struct ProgramArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the programs, and where each was found
    List(ListArgs),
    /// Start a program, shake hands with it, and end it
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
    let settings = args.settings.read()?.settings;
    let chosen = settings.programs.choose(Some(&args.name), &config::search_path());
    let (known, path) = chosen.map_err(anyhow::Error::msg)?;
    let outcome = agents::check(known.program, path.clone(), &settings.mcp).await?;
    if args.json {
        let (started, failed) = match &outcome {
            Ok(started) => (Some(started), None),
            Err(why) => (None, Some(why)),
        };
        print(
            &json!({"name": known.name, "path": path, "started": started, "failed": failed})
                .to_string(),
        )?;
        return if outcome.is_ok() { Ok(()) } else { Err(super::Refused.into()) };
    }
    match outcome {
        Ok(started) => {
            let itself = started.program.map_or_else(
                || "it does not say what it is".to_owned(),
                |program| format!("{} {}", program.name, program.version),
            );
            let resumes = if started.can_resume { "can" } else { "cannot" };
            let model = started.model.map(|model| format!(", model {model}")).unwrap_or_default();
            print(&format!(
                "{} works: {itself}{model}; its sessions {resumes} be resumed",
                known.name
            ))
        }
        Err(why) => anyhow::bail!("{} does not work: {why}", known.name),
    }
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
