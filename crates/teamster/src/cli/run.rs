//! `teamster run`, `runs`, `steer`, `item`, `note` and `template`: a spec worked off in iterations, watched and steered.

mod editor;
mod keys;
mod model;
pub(super) mod show;
mod stream;
mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{connect_to_hub, dim, print, put, say, up};
use crate::client::{Client, in_path};
use crate::config::DataFiles;
use crate::work::prompt;

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
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

/// More than a spec may be.
const SPEC_BYTES_MAX: u64 = 1 << 20;

fn read(path: &Path) -> anyhow::Result<String> {
    let about =
        std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !about.is_file() || about.len() > SPEC_BYTES_MAX {
        bail!("{} is not a text that could be a spec", path.display());
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns what a run is called whose spec is in this file.
fn named_after(spec: &Path) -> String {
    let stem = spec.file_stem().unwrap_or_default().to_string_lossy();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = stem.chars().map(|c| if fits(c) { c } else { '-' }).take(64).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}

pub(super) fn run(data: &DataFiles, args: RunArgs) -> anyhow::Result<()> {
    if super::wait_for(Client::connect_if_running(data))?.is_none() {
        say("no hub is running; starting one in the background");
        up::start_in_background(data)?;
    }
    super::wait_for(begin(data, args))
}

async fn begin(data: &DataFiles, args: RunArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let (name, begun) = start(&mut client, &args).await?;
    if !args.headless && !args.json && has_whole_terminal() {
        drop(client);
        return show::show(data, &name).await;
    }
    let after = begun["commit"].as_u64().unwrap_or_default();
    let follow = Follow { name: &name, json: args.json, after };
    follow.run(data, &mut client).await
}

/// Says whether a person sees and types.
pub(super) fn has_whole_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Has the hub begin, and returns the run's name and how it stands.
async fn start(client: &mut Client, args: &RunArgs) -> anyhow::Result<(String, Value)> {
    let name = match (&args.name, &args.spec) {
        (Some(name), _) => name.clone(),
        (None, Some(spec)) => named_after(spec),
        (None, None) => bail!("name the spec, or the run to go on with: --resume --name NAME"),
    };
    let known = match args.resume {
        true => client.get(&format!("/api/runs/{}", in_path(&name))).await?,
        false => Value::Null,
    };
    let (spec, file) = match (&args.spec, known["file"].as_str()) {
        (Some(spec), _) => (read(spec)?, std::path::absolute(spec)?.to_string_lossy().into_owned()),
        (None, Some(file)) => (read(Path::new(file))?, file.to_owned()),
        (None, None) => bail!("name the spec, a file"),
    };
    let directory = match (&args.dir, known["directory"].as_str()) {
        (Some(directory), _) => std::fs::canonicalize(directory)
            .with_context(|| format!("there is no directory {}", directory.display()))?,
        (None, Some(known)) => PathBuf::from(known),
        (None, None) => {
            std::env::current_dir().context("the current directory is gone; name one with --dir")?
        }
    };
    let template = args.template.as_deref().map(read).transpose()?;
    let plan_template = args.plan_template.as_deref().map(read).transpose()?;
    let microdollars = args.budget.map(|dollars| {
        if !dollars.is_finite() || dollars <= 0.0 {
            bail!("--budget is a number of dollars above 0");
        }
        Ok((dollars * 1e6).round() as u64)
    });
    let check = args.check.as_deref().map(|check| check.split_whitespace().collect::<Vec<_>>());
    let directory = directory.to_str().context("the directory's name is not UTF-8")?;
    let asked = json!({
        "name": name, "spec": spec, "file": file, "directory": directory, "resume": args.resume,
        "program": args.program, "model": args.model, "role": args.role, "iterations": args.iterations,
        "workers": args.workers, "microdollars": microdollars.transpose()?, "commits": args.no_commit.then_some(false),
        "check": check, "template": template, "plan_template": plan_template, "extra": args.extra,
    });
    let begun = client.post("/api/runs", &asked).await?;
    Ok((name, begun))
}

/// How a run ended, for scripts.
fn code(phase: &str) -> u8 {
    match phase {
        "completed" => 0,
        "iterations-used" => 3,
        "budget-spent" => 4,
        "stopped" => 5,
        "idle" => 6,
        _ => 1,
    }
}

/// Says how a run ended, and how to go on with it.
fn ended(data: &DataFiles, name: &str, phase: &str, why: Option<&str>) {
    say(&format!("{name}: {}", why.unwrap_or(phase)));
    if phase != "completed" {
        let again = data.call(&format!("run --resume --name {name}"));
        say(&format!("`{again}` goes on with it"));
    }
}

/// Prints what happens in a run until it is over.
pub(super) struct Follow<'a> {
    pub(super) name: &'a str,
    pub(super) json: bool,
    /// The last commit of the log before it began.
    pub(super) after: u64,
}

impl Follow<'_> {
    pub(super) async fn run(&self, data: &DataFiles, client: &mut Client) -> anyhow::Result<()> {
        let path = format!("/api/runs/{}", in_path(self.name));
        let mut last = self.after;
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let request = format!("/api/log?after={last}&wait_ms=40000");
            let page = tokio::select! {
                page = client.get(&request) => page?,
                _ = &mut interrupted => {
                    let mut client = connect_to_hub(data).await?;
                    let stop = json!({"do": "stop", "now": true});
                    client.post(&format!("{path}/steer"), &stop).await?;
                    let again = data.call(&format!("run --resume --name {}", self.name));
                    say(&format!("stopped; `{again}` goes on"));
                    return Err(super::Ended(130).into());
                }
            };
            for line in page["lines"].as_array().into_iter().flatten() {
                if line["run"] == self.name {
                    self.show(line)?;
                }
            }
            last = page["last"].as_u64().unwrap_or(last);
            let view = client.get(&path).await?;
            let is_over =
                view["under_way"] == false && view["open"].as_array().is_none_or(Vec::is_empty);
            if is_over {
                return self.end(data, client, last, &view).await;
            }
        }
    }

    /// Prints the rest, and how it ended.
    pub(super) async fn end(
        &self,
        data: &DataFiles,
        client: &mut Client,
        last: u64,
        view: &Value,
    ) -> anyhow::Result<()> {
        let page = client.get(&format!("/api/log?after={last}")).await?;
        for line in page["lines"].as_array().into_iter().flatten() {
            if line["run"] == self.name {
                self.show(line)?;
            }
        }
        let phase = view["phase"].as_str().unwrap_or_default();
        if self.json {
            print(&view.to_string())?;
        } else {
            ended(data, self.name, phase, view["why"].as_str());
        }
        match code(phase) {
            0 => Ok(()),
            code => Err(super::Ended(code).into()),
        }
    }

    fn show(&self, line: &Value) -> anyhow::Result<()> {
        if self.json {
            return print(&line.to_string());
        }
        print(line["summary"].as_str().unwrap_or_default())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct RunsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn list(data: &DataFiles, args: RunsArgs) -> anyhow::Result<()> {
    let runs = connect_to_hub(data).await?.get("/api/runs").await?;
    if args.json {
        return print(&runs.to_string());
    }
    let runs = runs.as_array().cloned().unwrap_or_default();
    if runs.is_empty() {
        say(&format!("there are no runs; `{}` begins one", data.call("run SPEC.md")));
    }
    for run in runs {
        let word = |name: &str| run[name].as_str().unwrap_or_default().to_owned();
        let count = |status: &str| run["items"][status].as_u64().unwrap_or_default();
        let n_open = count("remaining") + count("in_progress");
        let n_done = count("completed") + count("cancelled");
        let blocked = match count("blocked") {
            0 => String::new(),
            n => format!(", {n} blocked"),
        };
        print(&format!(
            "{:<24} {:<16} {n_done} done, {n_open} open{blocked}  {}",
            word("name"),
            word("phase"),
            dim(&word("file"))
        ))?;
    }
    Ok(())
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
            (json!({"do": "tell", "text": message}), "the next iteration is told")
        }
        Steer::Pause => (json!({"do": "pause"}), "pauses after what is under way"),
        Steer::GoOn => (json!({"do": "go-on"}), "goes on"),
        Steer::Stop { now: false } => {
            (json!({"do": "stop", "now": false}), "stops after what is under way")
        }
        Steer::Stop { now: true } => (json!({"do": "stop", "now": true}), "stops"),
    };
    client.post(&format!("/api/runs/{}/steer", in_path(&args.run)), &asked).await?;
    print(&format!("{}: {says}", args.run))
}

#[derive(Debug, clap::Args)]
pub(super) struct ItemArgs {
    /// The run
    run: String,

    /// The item, such as TAS-3; without it, a new one
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
}

pub(super) async fn item(data: &DataFiles, args: ItemArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let asked = json!({
        "item": args.item, "content": args.content, "status": args.status, "priority": args.priority,
        "depends_on": args.depends_on, "yak": args.yak,
    });
    let view = client.post(&format!("/api/runs/{}/items", in_path(&args.run)), &asked).await?;
    for item in view["item_list"].as_array().into_iter().flatten() {
        let word = |name: &str| item[name].as_str().unwrap_or_default();
        put(&format!(
            "[P{}] {} {:<12} {}\n",
            item["priority"],
            word("id"),
            word("status"),
            word("content")
        ))?;
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(super) struct NoteArgs {
    /// The run
    run: String,

    /// The note, such as NOT-3; without it, a new one
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
}

pub(super) async fn note(data: &DataFiles, args: NoteArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let asked = json!({
        "note": args.note, "content": args.content, "type": args.kind, "remove": args.remove,
    });
    let view = client.post(&format!("/api/runs/{}/notes", in_path(&args.run)), &asked).await?;
    for note in view["notes"].as_array().into_iter().flatten() {
        let word = |name: &str| note[name].as_str().unwrap_or_default();
        put(&format!("{} [{}] {}\n", word("id"), word("type"), word("content")))?;
    }
    Ok(())
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
