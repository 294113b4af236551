//! `teamster yak`: the backlog, for people.

mod beads;
mod directory;
mod export;
mod file;
mod import;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{connect_to_hub, print, print_json, say};
use teamster_api::paths::ListYaks;
use teamster_api::yaks::{Label, Status, Yak};
use teamster_api::{Client, ListQuery};
use teamster_hub::config::DataFiles;
use teamster_hub::project::Project;

#[derive(Debug, clap::Args)]
pub(super) struct YakArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// File a yak
    Create {
        title: String,
        /// What is wrong, and what done looks like [default: the title]
        #[arg(short, long, value_name = "TEXT")]
        description: Option<String>,
        #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "task", value_parser = ["bug", "feature", "task"])]
        kind: String,
        /// 1 critical, 2 important, 3 nice to have
        #[arg(short, long, default_value_t = 2)]
        priority: i64,
        /// The yak this is a part of
        #[arg(long, value_name = "ID")]
        parent: Option<String>,
        /// A label; repeat the flag for more
        #[arg(short, long = "label", value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// List yaks
    List {
        #[arg(short, long, default_value = "open", value_parser = ["open", "hairy", "shaving", "shearing", "shorn", "tangled", "all"])]
        status: String,
        /// Only those with this label
        #[arg(short, long)]
        label: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show all there is to know about a yak
    Show { id: String },
    /// List what can be worked on now, most urgent first
    Next {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the yaks that have a text in their title or description
    Search {
        text: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change a yak
    Update {
        id: String,
        #[arg(long)]
        title: Option<String>,
        #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = ["bug", "feature", "task"])]
        kind: Option<String>,
        #[arg(short, long)]
        priority: Option<i64>,
        #[arg(short, long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Start work on a yak
    Shave { id: String },
    /// Mark a yak as done, with the commit that did it
    Shorn {
        id: String,
        /// [default: the current commit here]
        #[arg(long)]
        commit: Option<String>,
    },
    /// Reopen a yak
    Regrow { id: String },
    /// Make a yak depend on another
    Dep {
        id: String,
        /// The yak to be shorn first
        on: String,
        /// No longer
        #[arg(long)]
        remove: bool,
    },
    /// Add labels to a yak, or remove them
    Label {
        id: String,
        labels: Vec<String>,
        #[arg(long = "remove", value_name = "LABEL")]
        remove: Vec<String>,
    },
    /// Write the backlog as Markdown files, one for each yak, as the yaks plugin keeps it
    Export {
        /// [default: .yaks]
        dir: Option<PathBuf>,
    },
    /// Take in such files: what is missing is created, what differs is updated
    Import {
        /// [default: .yaks]
        dir: Option<PathBuf>,
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Take in the issues of beads that are not in the backlog yet
    ImportBeads {
        /// [default: .beads/issues.jsonl]
        file: Option<PathBuf>,
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

pub(super) async fn run(data: &DataFiles, YakArgs { verb }: YakArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    match verb {
        Verb::Create { title, description, kind, priority, parent, labels } => {
            let description = description.unwrap_or_else(|| title.clone());
            let arguments = json!({"title": title, "yak_type": kind, "priority": priority, "description": description});
            let text = call(
                &mut client,
                "create_yak",
                with(arguments, [("parent", parent.map(Value::from))]),
            )
            .await?;
            if !labels.is_empty() {
                let id = text
                    .trim_start_matches("Yak created: ")
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                label(&mut client, &id, &labels, &[]).await?;
            }
            print(&text)
        }
        Verb::List { status, label, json } => {
            let status = if status == "shearing" { "shaving".to_owned() } else { status };
            let labelled =
                |yak: &Yak| label.as_ref().is_none_or(|label| yak.labels.contains(label));
            list(&mut client, json, |yak| labelled(yak) && is(yak, &status)).await
        }
        Verb::Next { json } => {
            list(&mut client, json, |yak| is(yak, "hairy") && !is(yak, "tangled")).await
        }
        Verb::Search { text, json } => {
            let text = text.to_lowercase();
            let found = |field: &str| field.to_lowercase().contains(&text);
            list(&mut client, json, |yak| found(&yak.title) || found(&yak.description)).await
        }
        Verb::Show { id } => print(&call(&mut client, "show_yak", json!({"yak_id": id})).await?),
        Verb::Update { id, title, kind, priority, description } => {
            let changes = [
                ("title", title.map(Value::from)),
                ("yak_type", kind.map(Value::from)),
                ("priority", priority.map(Value::from)),
                ("description", description.map(Value::from)),
            ];
            print(&call(&mut client, "update_yak", with(json!({"yak_id": id}), changes)).await?)
        }
        Verb::Shave { id } => print(&call(&mut client, "shave_yak", json!({"yak_id": id})).await?),
        Verb::Shorn { id, commit } => {
            let commit = match commit {
                Some(commit) => Some(commit),
                None => Project::new(Path::new(".")).commit().await,
            };
            let arguments = with(json!({"yak_id": id}), [("commit", commit.map(Value::from))]);
            print(&call(&mut client, "shorn_yak", arguments).await?)
        }
        Verb::Regrow { id } => {
            print(&call(&mut client, "regrow_yak", json!({"yak_id": id})).await?)
        }
        Verb::Dep { id, on, remove } => {
            let action = if remove { "remove" } else { "add" };
            let arguments = json!({"yak_id": id, "dep_action": action, "dep_id": on});
            print(&call(&mut client, "dep_yak", arguments).await?)
        }
        Verb::Label { id, labels, remove } => {
            label(&mut client, &id, &labels, &remove).await?;
            print(&call(&mut client, "show_yak", json!({"yak_id": id})).await?)
        }
        Verb::Export { dir } => export::run(&mut client, dir).await,
        Verb::Import { dir, dry_run } => import::run(&mut client, dir, dry_run).await,
        Verb::ImportBeads { file, dry_run } => beads::run(&mut client, file, dry_run).await,
    }
}

/// Calls a tool of the set; a refusal is said and ends the command.
async fn call(client: &mut Client, tool: &str, arguments: Value) -> anyhow::Result<String> {
    let (text, is_error) = client.call_tool("/mcp/yaks", tool, &arguments, None).await?;
    if is_error {
        say(&text);
        return Err(super::Refused.into());
    }
    Ok(text)
}

async fn label(
    client: &mut Client,
    id: &str,
    add: &[String],
    remove: &[String],
) -> anyhow::Result<()> {
    let plain = id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    anyhow::ensure!(
        plain && !id.is_empty(),
        "{id:?} is not a yak's id; `teamster yak list` shows them"
    );
    client.label_yak(id, &Label { add: add.to_vec(), remove: remove.to_vec() }).await?;
    Ok(())
}

/// Adds what is given to some arguments.
fn with(arguments: Value, more: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let mut all: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
    all.extend(
        more.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))),
    );
    Value::Object(all)
}

async fn list(client: &mut Client, json: bool, shown: impl Fn(&Yak) -> bool) -> anyhow::Result<()> {
    let mut yaks = client.all::<ListYaks, _>(&ListQuery::default()).await?;
    yaks.retain(shown);
    if json {
        return print_json(&yaks);
    }
    if yaks.is_empty() {
        say("no such yaks");
        return Ok(());
    }
    print(&yaks.iter().map(in_a_line).collect::<Vec<_>>().join("\n"))
}

/// Says whether a yak is in a status; tangled is what a hairy yak is while it waits for another.
fn is(yak: &Yak, status: &str) -> bool {
    match status {
        "all" => true,
        "open" => yak.status != Status::Shorn,
        "tangled" => !yak.tangled_by.is_empty(),
        status => yak.status.as_str() == status,
    }
}

fn in_a_line(yak: &Yak) -> String {
    let labels = Some(yak.labels.join(", "))
        .filter(|labels| !labels.is_empty())
        .map(|labels| format!(" [{labels}]"));
    let tangled = Some(yak.tangled_by.join(", "))
        .filter(|others| !others.is_empty())
        .map(|others| format!(" (tangled by {others})"));
    format!(
        "{:<18} {:<8} p{} {:<8} {}{}{}",
        yak.id,
        yak.status,
        yak.priority,
        yak.kind,
        yak.title,
        labels.unwrap_or_default(),
        tangled.unwrap_or_default()
    )
}
