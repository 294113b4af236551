//! `teamster trust` and `untrust`: which projects' hooks may run.

use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::{Refused, config, local_time, print, say};
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::DataFiles;
use teamster_hub::settings::{self, FILE_NAME};
use teamster_hub::work::hooks::{Stand, Trust, payload, plain, word};

#[derive(Debug, clap::Args)]
pub(super) struct TrustArgs {
    /// The project directory [default: the current one]
    dir: Option<PathBuf>,

    /// Do not ask
    #[arg(long, conflicts_with_all = ["list", "remove"])]
    yes: bool,

    /// List the projects whose hooks are trusted
    #[arg(long, conflicts_with_all = ["dir", "remove"])]
    list: bool,

    /// Trust the project's hooks no longer, as `untrust` does
    #[arg(long)]
    remove: bool,

    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct UntrustArgs {
    /// The project directory [default: the current one]
    dir: Option<PathBuf>,
}

/// Nobody's answer is longer.
const ANSWER_BYTES_MAX: u64 = 1_024;

pub(super) fn trust(data: &DataFiles, args: TrustArgs) -> anyhow::Result<()> {
    let trust = Trust::of(data);
    match args {
        TrustArgs { list: true, json, .. } => list(&trust, json),
        TrustArgs { remove: true, dir, .. } => remove(&trust, dir),
        TrustArgs { dir, yes, .. } => add(data, &trust, dir, yes),
    }
}

pub(super) fn untrust(data: &DataFiles, UntrustArgs { dir }: UntrustArgs) -> anyhow::Result<()> {
    remove(&Trust::of(data), dir)
}

fn add(data: &DataFiles, trust: &Trust, dir: Option<PathBuf>, yes: bool) -> anyhow::Result<()> {
    let dir = directory(dir)?;
    let project = std::fs::canonicalize(&dir)
        .with_context(|| format!("cannot find the project {}", dir.display()))?;
    let file = plain(&project.join(FILE_NAME).to_string_lossy());
    let configuration = config::read(project.clone(), Vec::new());
    let hooks = &configuration.projects_hooks;
    if hooks.is_empty() {
        say(&format!("there are no hooks in {}; there is nothing to trust", file));
        return Ok(());
    }
    print(payload(hooks).trim_end())?;
    match trust.stand(&project, hooks) {
        Stand::Trusted => {
            say(&format!("these hooks of {} are trusted already", file));
            return Ok(());
        }
        Stand::Changed => {
            say(&format!("the hooks of {} have changed since you trusted them", file));
        }
        Stand::Unknown => {}
    }
    if !yes && !agreed(data, &project, &file)? {
        say("nothing was trusted");
        return Err(Refused.into());
    }
    trust.add(&project, hooks, SystemClock.now())?;
    say(&format!("trusted: runs in {} run these hooks until they change", path(&project)));
    Ok(())
}

/// Asks the person.
fn agreed(data: &DataFiles, project: &Path, file: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        let verb = data.call(&format!("trust --yes {}", word(&project.to_string_lossy())));
        say(&format!("there is no terminal to ask on; if you have read them, `{verb}`"));
        return Ok(false);
    }
    say(&format!("Run these commands of {} in runs, on this machine and as you? [y/N]", file));
    let mut answer = String::new();
    std::io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn remove(trust: &Trust, dir: Option<PathBuf>) -> anyhow::Result<()> {
    let dir = directory(dir)?;
    let was = trust.remove(&dir)?;
    let shown = path(&std::fs::canonicalize(&dir).unwrap_or(dir));
    say(&match was {
        true => format!("the hooks of {shown} are trusted no longer"),
        false => format!("no hooks of {shown} were trusted"),
    });
    Ok(())
}

fn list(trust: &Trust, json: bool) -> anyhow::Result<()> {
    let all = trust.list();
    if json {
        return print(&json!(all).to_string());
    }
    if all.is_empty() {
        say("no project's hooks are trusted");
        return Ok(());
    }
    // What is listed may have changed, which ends the trust; only reading the project tells.
    let rows = all.iter().map(|trusted| {
        let project = Path::new(&trusted.project);
        let configuration = settings::read(&config::sources(project.to_owned(), Vec::new()));
        let holds = match trust.stand(project, &configuration.projects_hooks) {
            Stand::Trusted => "",
            Stand::Changed | Stand::Unknown => "  (has changed since and is not run)",
        };
        let at = local_time(trusted.at);
        format!("{at}  {}{holds}", plain(&trusted.project))
    });
    print(&rows.collect::<Vec<_>>().join("\n"))
}

/// Shows a path whose names may be somebody else's.
fn path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

fn directory(dir: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match dir {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => std::env::current_dir().context("the current directory is gone; name one"),
    }
}
