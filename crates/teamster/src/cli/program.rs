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
use crate::config;
use crate::programs::Known;

#[derive(Debug, clap::Args)]
pub(super) struct ProgramArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the programs, and where each was found
    List(ListArgs),
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

/// Programs that are started by node may take several seconds to say their version.
const VERSION_PATIENCE: Duration = Duration::from_secs(20);
/// A version is a line; what a program says beyond this is not read.
const VERSION_BYTES_MAX: u64 = 4_096;

pub(super) async fn run(ProgramArgs { verb }: ProgramArgs) -> anyhow::Result<()> {
    match verb {
        Verb::List(args) => list(args).await,
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
