//! `teamster doctor`: what holds on this machine, what is only advisory, and what is wrong.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::print;
use teamster_api::teams::{ListTeams, Team};
use teamster_api::{Client, paths};
use teamster_hub::config::DataFiles;
use teamster_hub::isolation::ROOT;
use teamster_hub::programs::Known;
use teamster_hub::settings::{self, Configuration};
use teamster_hub::{agents, clock, config};

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one check found.
struct Finding {
    about: &'static str,
    verdict: Verdict,
    says: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is as the documents promise.
    Holds,
    /// It works, but rests on everybody's good behaviour.
    Advisory,
    /// Something must be done.
    Wrong,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Advisory => "advisory",
            Self::Wrong => "wrong",
        }
    }
}

use Verdict::{Advisory, Holds, Wrong};

/// Less than this, and the log may soon be unable to grow.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// A disk that claims to be faster than this has not written anything.
const SYNC_AT_LEAST: Duration = Duration::from_micros(20);
/// As many files as a hub with a few hundred connections needs.
const OPEN_FILES_MIN: u64 = 1_024;

pub(super) async fn run(data: &DataFiles, args: DoctorArgs) -> anyhow::Result<()> {
    let here = settings_here();
    let findings = [
        hub(data).await,
        directory(data),
        file_system(data),
        free_space(data),
        durability(data),
        one_writer(data),
        log(data).await,
        identity(data).await,
        user(),
        open_files(),
        programs(&here),
        configuration(&here),
        teams(data, &here).await,
    ];
    if args.json {
        let findings = findings
            .iter()
            .map(|found| json!({"about": found.about, "verdict": found.verdict.word(), "says": found.says}));
        print(&json!(findings.collect::<Vec<_>>()).to_string())?;
    } else {
        for Finding { about, verdict, says } in &findings {
            print(&format!("{:<9} {about}: {says}", verdict.word()))?;
        }
    }
    if findings.iter().any(|found| found.verdict == Wrong) {
        return Err(super::Refused.into());
    }
    Ok(())
}

fn finding(about: &'static str, verdict: Verdict, says: impl Into<String>) -> Finding {
    Finding { about, verdict, says: says.into() }
}

async fn hub(data: &DataFiles) -> Finding {
    let about = "hub";
    match Client::connect_if_running(data).await {
        Ok(Some(mut client)) => {
            let status = client.show_status().await.unwrap_or_default();
            match (client.version_difference(), status.stalled) {
                (_, Some(stalled)) => finding(about, Wrong, stalled),
                (Some(difference), None) => finding(about, Wrong, difference),
                (None, None) => finding(
                    about,
                    Holds,
                    format!("process {} serves {}", client.hub.pid, client.hub.url),
                ),
            }
        }
        Ok(None) => {
            finding(about, Holds, format!("none is running; `{}` starts one", data.call("up -d")))
        }
        Err(error) => finding(about, Wrong, format!("{error:#}")),
    }
}

fn directory(data: &DataFiles) -> Finding {
    let about = "data directory";
    let path = data.directory();
    let Ok(metadata) = fs::metadata(path) else {
        return finding(about, Holds, format!("{} is not there yet", path.display()));
    };
    let mode = metadata.permissions().mode() & 0o777;
    let owner = metadata.uid() == rustix::process::geteuid().as_raw();
    match (owner, mode & 0o077) {
        (true, 0) => finding(about, Holds, format!("{} is yours alone", path.display())),
        (true, _) => finding(
            about,
            Wrong,
            format!("others can enter {0} (mode {mode:o}); run `chmod 700 {0}`", path.display()),
        ),
        (false, _) => finding(about, Wrong, format!("{} belongs to somebody else", path.display())),
    }
}

/// Returns the data directory, or the nearest directory above it if it is not there yet.
fn nearest(data: &DataFiles) -> PathBuf {
    data.directory().ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn file_system(data: &DataFiles) -> Finding {
    let about = "file system";
    match teamster_log::file_system(&nearest(data)) {
        Ok(found) if found.is_network => finding(
            about,
            Wrong,
            format!(
                "{} is a network file system, where a log can be lost; choose a local directory with --data",
                found.name
            ),
        ),
        Ok(found) if found.is_in_memory => finding(
            about,
            Advisory,
            format!("{}: what is in it is gone when the machine restarts", found.name),
        ),
        Ok(found) => finding(about, Holds, format!("{}, local", found.name)),
        Err(error) => finding(about, Advisory, format!("unknown: {error}")),
    }
}

fn free_space(data: &DataFiles) -> Finding {
    let about = "free space";
    match rustix::fs::statvfs(nearest(data)) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let says = format!("{} MB", free >> 20);
            if free >= FREE_BYTES_MIN {
                finding(about, Holds, says)
            } else {
                finding(
                    about,
                    Wrong,
                    format!("{says} are left; the hub only reads when there is no room"),
                )
            }
        }
        Err(error) => finding(about, Advisory, format!("unknown: {error}")),
    }
}

fn durability(data: &DataFiles) -> Finding {
    let about = "durability";
    let took = match sync_time(&nearest(data)) {
        Ok(took) => took,
        Err(error) => {
            return finding(about, Wrong, format!("cannot write and sync there: {error}"));
        }
    };
    let says = format!("the disk syncs in {:.2} ms", took.as_secs_f64() * 1e3);
    if took < SYNC_AT_LEAST {
        finding(
            about,
            Advisory,
            format!(
                "{says}, which is too fast to be true; after a power failure the newest facts may be gone"
            ),
        )
    } else if cfg!(target_os = "linux") {
        finding(about, Holds, format!("{says}; what is acknowledged is synced"))
    } else {
        finding(about, Advisory, format!("{says}; only tested on Linux"))
    }
}

/// Returns the median of a few syncs of one page.
fn sync_time(directory: &Path) -> std::io::Result<Duration> {
    let path = directory.join(format!(".teamster-doctor.{}", std::process::id()));
    let measure = || {
        let mut file = File::create_new(&path)?;
        let mut times = [Duration::ZERO; 9];
        for time in &mut times {
            file.write_all(&[0; 4096])?;
            let (synced, took) = clock::time(|| file.sync_data());
            synced?;
            *time = took;
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    };
    let measured = measure();
    let _ = fs::remove_file(&path);
    measured
}

/// Tries what keeps a second hub out.
fn one_writer(data: &DataFiles) -> Finding {
    let about = "one hub per directory";
    let path = nearest(data).join(format!(".teamster-doctor-lock.{}", std::process::id()));
    let try_twice = || {
        let (first, second) = (File::create_new(&path)?, File::open(&path)?);
        first.lock()?;
        Ok::<bool, std::io::Error>(second.try_lock().is_err())
    };
    let tried = try_twice();
    let _ = fs::remove_file(&path);
    match tried {
        Ok(true) => finding(about, Holds, "file locks work here"),
        Ok(false) => {
            finding(about, Wrong, "file locks do not work here: two hubs could write one log")
        }
        Err(error) => finding(about, Wrong, format!("file locks cannot be tried: {error}")),
    }
}

async fn log(data: &DataFiles) -> Finding {
    let about = "log";
    let log = match teamster_log::open_readonly(data.directory()) {
        Err(teamster_log::OpenError::NoLog { .. }) => {
            return finding(about, Holds, "there is none yet");
        }
        Err(error) => return finding(about, Wrong, error.to_string()),
        Ok(log) => log,
    };
    match log.head().await {
        Ok(head) => finding(
            about,
            Holds,
            format!("{} commits; `{}` checks them all", head.number, data.call("log verify")),
        ),
        Err(error) => finding(about, Wrong, format!("{:#}", anyhow::Error::from(error))),
    }
}

async fn identity(data: &DataFiles) -> Finding {
    let about = "identity";
    let own = format!(
        "agents that you start yourself run as you, and can read the operator's token in {}",
        data.directory().display()
    );
    // A hub that runs was perhaps started by somebody, or somewhere, that may do less or more than we.
    match of_hub(data).await {
        Ok(Some((true, says))) => return finding(about, Holds, format!("{says}; {own}")),
        Ok(Some((false, says))) => return finding(about, Advisory, format!("{says}; {own}")),
        Ok(None) => {}
        Err(error) => return finding(about, Advisory, format!("unknown: {error:#}; {own}")),
    }
    let probe = match agents::probe().await {
        Ok(probe) => probe,
        Err(error) => return finding(about, Advisory, format!("unknown: {error:#}; {own}")),
    };
    let lacking: Vec<String> = probe
        .facts()
        .into_iter()
        .filter_map(|(what, why_not)| why_not.map(|why| format!("not here: {what} ({why})")))
        .collect();
    if lacking.is_empty() {
        finding(
            about,
            Holds,
            format!("agents that the hub starts see neither its data nor its processes; {own}"),
        )
    } else {
        finding(about, Advisory, format!("{}; {own}", lacking.join("; ")))
    }
}

/// Returns whether the agents of the running hub are isolated, in its own words, if one runs.
async fn of_hub(data: &DataFiles) -> anyhow::Result<Option<(bool, String)>> {
    let Some(mut client) = Client::connect_if_running(data).await? else { return Ok(None) };
    let found = client.show_isolation().await?;
    let isolation = found.isolation;
    if found.failure.is_none() {
        let says = format!(
            "the running hub's agents see neither its data nor its processes (isolation: {isolation})"
        );
        return Ok(Some((true, says)));
    }
    let warning = found.warnings.first().map_or("agents are not isolated", String::as_str);
    Ok(Some((false, format!("of the running hub: {warning} (isolation: {isolation})"))))
}

/// Whose rights agents have.
fn user() -> Finding {
    match rustix::process::geteuid().is_root() {
        true => finding("user", Advisory, ROOT),
        false => finding("user", Holds, "an ordinary user"),
    }
}

fn open_files() -> Finding {
    let about = "open files";
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => finding(
            about,
            Advisory,
            format!("at most {limit}; raise it (`ulimit -n {OPEN_FILES_MIN}`) for many agents"),
        ),
        Some(limit) => finding(about, Holds, format!("at most {limit}")),
        None => finding(about, Holds, "as many as the system has"),
    }
}

/// Reads the settings of the current directory. Its problems are a finding, so nothing prints them before.
fn settings_here() -> Configuration {
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    settings::read(&super::config::sources(directory, Vec::new()))
}

fn configuration(here: &Configuration) -> Finding {
    let about = "configuration";
    let problems: Vec<String> = here.problems.iter().map(ToString::to_string).collect();
    match problems.as_slice() {
        [] => finding(about, Holds, "no problems"),
        [only] => finding(about, Advisory, only),
        all => finding(about, Advisory, format!("{} problems: {}", all.len(), all.join("; "))),
    }
}

/// Reports the teams of the running hub: its flags and its PATH count, not those of this shell.
async fn teams(data: &DataFiles, here: &Configuration) -> Finding {
    let about = "teams";
    let (n_teams, wrong, whose) = match teams_of_hub(data).await {
        Some(teams) => {
            let wrong = teams.iter().filter_map(|team| {
                team.problem.as_ref().map(|problem| format!("{}: {problem}", team.name))
            });
            (teams.len(), wrong.collect(), "in the running hub")
        }
        None => {
            let (n_teams, wrong) = agents::check_teams(here);
            (n_teams, wrong, "configured")
        }
    };
    if wrong.is_empty() {
        finding(about, Holds, format!("{n_teams} {whose}"))
    } else {
        finding(about, Advisory, wrong.join("; "))
    }
}

/// Returns the teams of the running hub, if there is one that answers; another finding reports one that does not.
async fn teams_of_hub(data: &DataFiles) -> Option<Vec<Team>> {
    let mut client = Client::connect_if_running(data).await.ok()??;
    client.all::<paths::ListTeams, _>(&ListTeams::default()).await.ok()
}

/// What `draft` can start. What connects by itself is a person's own affair.
fn programs(here: &Configuration) -> Finding {
    let about = "programs";
    let settings = &here.settings;
    let search_path = config::search_path();
    // The scripted agent is ours and always there, but does nobody's work.
    let real = settings.programs.iter().filter(|known| known.name.as_str() != "scripted");
    let (there, missing): (Vec<_>, Vec<_>) =
        real.partition(|known| known.program.find(&search_path).is_some());
    let list = |known: Vec<Known<'_>>| {
        let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let verdict = if there.is_empty() { Advisory } else { Holds };
    finding(
        about,
        verdict,
        format!("to draft agents with: {}; not installed: {}", list(there), list(missing)),
    )
}
