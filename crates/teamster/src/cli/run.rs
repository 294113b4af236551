//! `teamster run`, `runs`, `steer`, `item`, `note` and `template`: a spec worked off in iterations, watched and steered.

mod editor;
mod forget;
pub(super) mod headless;
mod keys;
mod list;
mod model;
mod reading;
pub(super) mod show;
mod stream;
mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use teamster_api::paths::ListRuns;
use teamster_api::runs::{self, Begin, BegunRun, EditItem, EditNote, Phase, ShowRun, ShownRun};
use teamster_api::{Client, ListQuery};

use self::headless::{Follow, OnSignal};
pub(super) use self::model::Watched;
use super::screen::clean;
use super::{connect_to_hub, fitted, print, print_json, say, up};
use teamster_hub::config::{self, DataFiles};
use teamster_hub::work::prompt;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RunArgs {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// The spec, a file; to go on with a run, it may be left out
    spec: Option<PathBuf>,

    /// What the run is called [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Go on with a run that was stopped, on the same terms unless others are given
    #[arg(long)]
    resume: bool,

    /// Do not show it on the whole terminal, but line by line
    #[arg(long)]
    headless: bool,

    /// The program that works on it [default: that of the role]
    #[arg(long, value_name = "PROGRAM")]
    program: Option<String>,

    /// The model, in the program's words
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// The role whose rules, limits and prompt its agents have
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,

    /// End after so many iterations, the plan not counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,

    /// So many work on different items at once, each in a git worktree of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: Option<u32>,

    /// End when so many dollars are spent
    #[arg(long, value_name = "DOLLARS")]
    budget: Option<f64>,

    /// Do not commit what an iteration has changed
    #[arg(long)]
    no_commit: bool,

    /// What must succeed before the work of one of several workers is taken over, e.g. "cargo test"; no shell reads it
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,

    /// A file with another prompt; `teamster template` prints the usual one
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,

    /// A file with another prompt for the plan; `teamster template --plan` prints the usual one
    #[arg(long, value_name = "FILE")]
    plan_template: Option<PathBuf>,

    /// What else its agents are told
    #[arg(long, value_name = "TEXT")]
    extra: Option<String>,

    /// The project's directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print JSON, one event per line; without the terminal's whole view
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Forget a run: remove its state, branches, refs and worktrees
    Forget(forget::ForgetArgs),
}

/// The exit code of a command that is called in a wrong way.
const USAGE: u8 = 2;

/// Returns what a run is called whose spec is in this file.
fn named_after(spec: &Path) -> String {
    let stem = spec.file_stem().unwrap_or_default().to_string_lossy();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = stem.chars().map(|c| if fits(c) { c } else { '-' }).take(64).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}

pub(super) fn run(data: &DataFiles, args: RunArgs) -> anyhow::Result<()> {
    if let Some(Verb::Forget(args)) = args.verb {
        return super::wait_for(forget::run(data, args));
    }
    if args.spec.is_none() && args.name.is_none() {
        let hint = match args.resume {
            true => {
                "error: --resume needs a run; repeat the command with --name NAME, or with its spec"
            }
            false => {
                "error: a spec is missing; name a file, or a run to resume: --resume --name NAME"
            }
        };
        say(&format!("{hint}\nhint: `{}` lists the runs", data.call("runs")));
        return Err(super::Ended(USAGE).into());
    }
    if super::wait_for(Client::connect_if_running(data))?.is_none() {
        say("no hub is running; starting one in the background");
        up::start_in_background(data)?;
    }
    super::wait_for(begin(data, args))
}

async fn begin(data: &DataFiles, args: RunArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let (name, begun) = start(data, &mut client, &args).await?;
    for says in [&begun.uncommitted, &begun.spec_changed].into_iter().flatten() {
        say(says);
    }
    if !args.headless && !args.json && has_whole_terminal() {
        drop(client);
        return show::show(data, &name).await;
    }
    let on_signal = OnSignal::Stop;
    let follow = Follow { name: &name, json: args.json, after: begun.commit, on_signal };
    follow.run(data, &mut client).await
}

/// Says whether a person sees and types, on a terminal that can show something in any place.
pub(super) fn has_whole_terminal() -> bool {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    is_terminal && config::terminal_can_move()
}

/// Has the hub begin, and returns the run's name and how it stands.
async fn start(
    data: &DataFiles,
    client: &mut Client,
    args: &RunArgs,
) -> anyhow::Result<(String, BegunRun)> {
    let read = |path: &Path| reading::read(path, data.directory());
    let name = match (&args.name, &args.spec) {
        (Some(name), _) => name.clone(),
        (None, Some(spec)) => named_after(spec),
        (None, None) => bail!("name the spec, or the run to go on with: --resume --name NAME"),
    };
    let known = match args.resume {
        true => client.show_run(&name, &ShowRun::default()).await?,
        false => ShownRun::default(),
    };
    let ShownRun { run: known, commit } = known;
    if args.resume && known.line.under_way {
        // After a stop of the hub it goes on by itself.
        say(&format!("{name} is under way"));
        return Ok((name, BegunRun { run: known, commit, ..BegunRun::default() }));
    }
    let (known_file, known_directory) = (known.line.file, known.line.directory);
    if let (None, Some(spec), Some(file), Some(directory)) =
        (&args.dir, &args.spec, &known_file, &known_directory)
    {
        let is_here = std::env::current_dir().is_ok_and(|here| here == Path::new(directory));
        if !is_here && std::path::absolute(spec)? != Path::new(file) {
            bail!(
                "the run {name} is of {file} and works in {directory}; go on with it there or with --dir, or give this one \
                 another name with --name"
            );
        }
    }
    let (spec, file) = match (&args.spec, known_file) {
        (Some(spec), _) => (read(spec)?, std::path::absolute(spec)?.to_string_lossy().into_owned()),
        (None, Some(file)) => (read(Path::new(&file))?, file),
        (None, None) => bail!("name the spec, a file"),
    };
    let directory = match (&args.dir, known_directory) {
        (Some(directory), _) => std::fs::canonicalize(directory)
            .with_context(|| format!("there is no directory {}", directory.display()))?,
        (None, Some(known)) => PathBuf::from(known),
        (None, None) => {
            std::env::current_dir().context("the current directory is gone; name one with --dir")?
        }
    };
    let template = args.template.as_deref().map(&read).transpose()?;
    let plan_template = args.plan_template.as_deref().map(&read).transpose()?;
    let microdollars = args.budget.map(|dollars| {
        if !dollars.is_finite() || dollars < 1e-6 {
            bail!("--budget is a number of dollars, at least 0.000001");
        }
        Ok((dollars * 1e6).round() as u64)
    });
    let check = args.check.as_deref().map(|check| {
        shlex::split(check).with_context(|| format!("a quote is not closed in --check {check:?}"))
    });
    let check = check.transpose()?;
    let directory = directory.to_str().context("the directory's name is not UTF-8")?;
    let begin = Begin {
        name: name.clone(),
        spec,
        file,
        directory: directory.to_owned(),
        resume: args.resume,
        program: args.program.clone(),
        model: args.model.clone(),
        role: args.role.clone(),
        iterations: args.iterations,
        workers: args.workers,
        microdollars: microdollars.transpose()?,
        commits: args.no_commit.then_some(false),
        check,
        template,
        plan_template,
        extra: args.extra.clone(),
    };
    let begun = client.begin_run(&begin).await?;
    Ok((name, begun))
}

/// How a run ended, for scripts.
fn code(phase: Phase) -> u8 {
    match phase {
        Phase::Completed => 0,
        Phase::Leftovers => 7,
        Phase::IterationsUsed => 3,
        Phase::BudgetSpent => 4,
        Phase::Stopped => 5,
        Phase::Idle => 6,
        Phase::Failed
        | Phase::Open
        | Phase::Complete
        | Phase::Working
        | Phase::Paused
        | Phase::Stopping => 1,
    }
}

/// Says how a run ended, and how to go on with it.
fn ended(data: &DataFiles, name: &str, phase: Phase, why: Option<&str>) {
    say(&format!("{name}: {}", clean(why.unwrap_or(phase.as_str()))));
    if let Some(says) = goes_on(data, name, phase) {
        say(&says);
    }
}

/// Says how to go on with a run that is over, if there is something left to do.
fn goes_on(data: &DataFiles, name: &str, phase: Phase) -> Option<String> {
    let again = data.call(&format!("run --resume --name {name}"));
    match phase {
        Phase::Completed => None,
        Phase::BudgetSpent => Some(format!("`{again} --budget DOLLARS` goes on with it")),
        Phase::Leftovers => Some(format!("bring in what is left; `{again}` then looks once more")),
        _ => Some(format!("`{again}` goes on with it")),
    }
}

/// How long a stopped run may take to end its agents before we say that it still does.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the agents of a stopped run have ended and their files are recorded. Files that you change earlier count as
/// an agent's.
async fn until_stopped(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let stopped = async {
        let mut after = 0;
        loop {
            let shown = client.show_run(name, &ShowRun { after, wait_ms: 10_000 }).await?;
            if shown.run.is_over() {
                return anyhow::Ok(());
            }
            after = shown.run.seq;
        }
    };
    match tokio::time::timeout(STOP_PATIENCE, stopped).await {
        Ok(stopped) => stopped,
        Err(_) => bail!(
            "the agents of {name} have not ended after {} s; files that you change now count as theirs",
            STOP_PATIENCE.as_secs()
        ),
    }
}

/// Has the hub stop a run at once, for somebody who leaves it.
async fn interrupt(data: &DataFiles, name: &str) -> anyhow::Result<()> {
    let again = data.call(&format!("run --resume --name {name}"));
    // Its agents have ended with the hub, but it goes on when there is another.
    let Some(mut client) = Client::connect_if_running(data).await? else {
        let (up, stop) = (data.call("up -d"), data.call(&format!("steer {name} stop")));
        say(&format!(
            "the hub is gone; {name} goes on when it runs again (`{up}`), unless `{stop}` ends it then"
        ));
        return Err(super::Ended(130).into());
    };
    client.steer_run(name, &runs::Steer::Stop { now: true }).await?;
    until_stopped(&mut client, name).await?;
    say(&format!("stopped; `{again}` goes on"));
    Err(super::Ended(130).into())
}

#[derive(Debug, clap::Args)]
pub(super) struct RunsArgs {
    /// Words that belong to `run`
    #[arg(hide = true)]
    words: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn list(data: &DataFiles, args: RunsArgs) -> anyhow::Result<()> {
    if !args.words.is_empty() {
        let call = data.call(&format!("run {}", args.words.join(" ")));
        say(&format!("error: `runs` only lists the runs\nhint: did you mean `{call}`?"));
        return Err(super::Ended(USAGE).into());
    }
    let mut client = connect_to_hub(data).await?;
    let runs = client.all::<ListRuns, _>(&ListQuery::default()).await?;
    if args.json {
        return print_json(&runs);
    }
    if runs.is_empty() {
        say(&format!("there are no runs; `{}` begins one", data.call("run SPEC.md")));
    }
    if runs.is_empty() { Ok(()) } else { print(&fitted(&list::runs(&runs))) }
}

#[derive(Debug, clap::Args)]
pub(super) struct SteerArgs {
    /// The run
    run: String,

    #[command(subcommand)]
    how: Steer,
}

#[derive(Debug, clap::Subcommand)]
enum Steer {
    /// Tell the next iteration something
    Tell { message: String },
    /// Begin nothing new until `go-on`
    Pause,
    /// Go on after a pause
    GoOn,
    /// Stop after what is under way, or at once
    Stop {
        /// End its agents now; what they had begun is gone on with by `run --resume`
        #[arg(long)]
        now: bool,
    },
}

pub(super) async fn steer(data: &DataFiles, args: SteerArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let (asked, says) = match args.how {
        Steer::Tell { message } => {
            (runs::Steer::Tell { text: message }, "the next iteration is told")
        }
        Steer::Pause => (runs::Steer::Pause, "pauses after what is under way"),
        Steer::GoOn => (runs::Steer::GoOn, "goes on"),
        Steer::Stop { now } => {
            let says = if now { "stops" } else { "stops after what is under way" };
            (runs::Steer::Stop { now }, says)
        }
    };
    let is_stop_now = asked == runs::Steer::Stop { now: true };
    let run = client.steer_run(&args.run, &asked).await?;
    print(&format!("{}: {says}", args.run))?;
    if run.under_way && is_stop_now {
        until_stopped(&mut client, &args.run).await?;
    }
    if !run.under_way {
        let again = data.call(&format!("run --resume --name {}", args.run));
        say(&format!("nobody works on it now; `{again}` goes on with it"));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(super) struct ItemArgs {
    /// The run; alone, its items are listed
    run: String,

    /// The item, such as TAS-3, to be shown or changed; without it, a new one
    item: Option<String>,

    /// What it says
    #[arg(long, value_name = "TEXT")]
    content: Option<String>,

    /// remaining, in_progress, completed, blocked or cancelled
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// 0 (critical) to 4 (backlog)
    #[arg(long, value_name = "N")]
    priority: Option<i64>,

    /// Another item that must be done first
    #[arg(long, value_name = "ITEM")]
    depends_on: Option<String>,

    /// Make an item of this yak, which is shorn when the item is completed
    #[arg(long, value_name = "YAK", conflicts_with_all = ["item", "content", "status", "priority", "depends_on"])]
    yak: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn item(data: &DataFiles, args: ItemArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let says = [&args.content, &args.status, &args.depends_on, &args.yak];
    let changes = args.priority.is_some() || says.into_iter().any(Option::is_some);
    let view = if changes {
        let edit = EditItem {
            item: args.item.clone(),
            content: args.content,
            status: args.status,
            priority: args.priority,
            depends_on: args.depends_on,
            yak: args.yak,
        };
        client.edit_item(&args.run, &edit).await?
    } else {
        client.show_run(&args.run, &ShowRun::default()).await?.run
    };
    match args.item.filter(|_| !changes) {
        Some(id) => {
            let found = view.item_list.iter().find(|item| item.id.eq_ignore_ascii_case(&id));
            one(found, &id, "item", args.json, list::item)
        }
        None => listed(&view.item_list, "items", args.json, list::items),
    }
}

/// Prints a list of something of a run.
fn listed<T: Serialize>(
    all: &[T],
    what: &str,
    as_json: bool,
    shown: impl Fn(&[T]) -> String,
) -> anyhow::Result<()> {
    match all {
        all if as_json => print_json(&all),
        [] => {
            say(&format!("there are no {what} yet"));
            Ok(())
        }
        all => print(&fitted(&shown(all))),
    }
}

/// Prints one of them, whole.
fn one<T: Serialize>(
    found: Option<&T>,
    id: &str,
    what: &str,
    as_json: bool,
    shown: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    match found {
        Some(found) if as_json => print_json(found),
        Some(found) => print(&shown(found)),
        None => bail!("there is no {what} {id:?}; without it, they are listed"),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct NoteArgs {
    /// The run; alone, its notes are listed
    run: String,

    /// The note, such as NOT-3, to be shown, changed or removed; without it, a new one
    note: Option<String>,

    /// What it says
    #[arg(long, value_name = "TEXT")]
    content: Option<String>,

    /// learning, stuck, tip or decision
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// Remove it
    #[arg(long)]
    remove: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn note(data: &DataFiles, args: NoteArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let changes = args.content.is_some() || args.kind.is_some() || args.remove;
    let view = if changes {
        let edit = EditNote {
            note: args.note.clone(),
            content: args.content,
            kind: args.kind,
            remove: args.remove,
        };
        client.edit_note(&args.run, &edit).await?
    } else {
        client.show_run(&args.run, &ShowRun::default()).await?.run
    };
    match args.note.filter(|_| !changes) {
        Some(id) => {
            let found = view.notes.iter().find(|note| note.id.eq_ignore_ascii_case(&id));
            one(found, &id, "note", args.json, list::note)
        }
        None => listed(&view.notes, "notes", args.json, list::notes),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct TemplateArgs {
    /// Print that of the iteration that makes the plan
    #[arg(long)]
    plan: bool,
}

pub(super) fn template(args: &TemplateArgs) -> anyhow::Result<()> {
    let template = if args.plan { prompt::PLAN } else { prompt::TEMPLATE };
    print(template.trim_end())
}
