//! The `yaks` set: the backlog. Everybody may read it; writing it needs the `main` grant.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Deserialize;
use teamster_core::yak::{
    Command as YakCommand, Event as YakEvent, Kind, NewYak, Priority, Rank, Status, Yak, Yaks,
};
use teamster_core::{Command, Event, Timestamp};

use super::whole;
use crate::Set;
use crate::answer::{Reply, ToolError};
use crate::call::Call;
use crate::catalogue::Needs;
use crate::catalogue::Tool;
use crate::hub::Done;
use crate::paging::Page;

async fn submit(cx: &Call<'_>, command: YakCommand) -> Result<Done, ToolError> {
    cx.submit(Command::Yak(command)).await
}

/// Says what failed, as these tools do: `Failed to create yak: …`.
fn failed(doing: &str) -> impl Fn(ToolError) -> ToolError + '_ {
    move |error| ToolError { says: format!("Failed to {doing}: {}", error.says), ..error }
}

pub(crate) struct CreateYak;

/// File an improvement into the backlog. First look for it with list_yaks, propose it to the user, and create it only after they agreed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateYakArgs {
    title: String,
    #[schemars(extend("enum" = ["bug", "feature", "task"]))]
    yak_type: String,
    /// 1 critical, 2 important (default), 3 nice to have.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = 1, max = 3))]
    priority: Option<i64>,
    /// What is wrong, and what done looks like.
    description: String,
    /// Id of the yak this is a part of.
    parent: Option<String>,
}

impl Tool for CreateYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "create_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> = Some("Only the main group can create yaks.");
    type Args = CreateYakArgs;

    async fn call(cx: &Call<'_>, args: CreateYakArgs) -> Result<Reply, ToolError> {
        let create = async {
            let new = NewYak {
                title: args.title,
                kind: Kind::parse(&args.yak_type)?,
                priority: args.priority.map_or(Ok(Priority::IMPORTANT), Priority::new)?,
                description: args.description,
                parent: args.parent.filter(|parent| !parent.trim().is_empty()),
            };
            submit(cx, YakCommand::Create(new)).await
        };
        let done = create.await.map_err(failed("create yak"))?;
        let created = done.events.iter().find_map(|event| match event {
            Event::Yak(YakEvent::Created { id, title, .. }) => {
                Some(format!("Yak created: {id} - \"{title}\""))
            }
            _ => None,
        });
        created.map(Reply::Text).ok_or_else(|| ToolError::new("The yak left no trace."))
    }
}

pub(crate) struct ListYaks;

/// List the backlog: hairy is not started, shaving under way, shorn done.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListYaksArgs {
    /// Default hairy.
    #[schemars(extend("enum" = ["hairy", "shaving", "shearing", "shorn", "all"]))]
    status: Option<String>,
    /// Where the last page ended.
    cursor: Option<String>,
}

impl Tool for ListYaks {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "list_yaks";
    const NEEDS: Needs = Needs::Token;
    type Args = ListYaksArgs;

    async fn call(
        cx: &Call<'_>,
        ListYaksArgs { status, cursor }: ListYaksArgs,
    ) -> Result<Reply, ToolError> {
        let word =
            status.as_deref().map(str::trim).filter(|word| !word.is_empty()).unwrap_or("hairy");
        let status = if word == "all" { None } else { Some(listed_status(word)?) };
        let word = status.map_or("all", Status::as_str);
        let cursor = cursor.as_deref().map(str::trim).filter(|cursor| !cursor.is_empty());
        let after = cursor.map(rank_of).transpose()?;
        let state = cx.state();
        let mut page = Page::new();
        let mut last: Option<&Yak> = None;
        for yak in state.yaks.ranked_after(after, status) {
            if last.is_none() {
                page.heading(&format!("Yaks ({word}):"));
            }
            if !page.line(&in_a_line(yak, &state.yaks)) {
                return Ok(Reply::Text(page.end(last.map(|last| cursor_of(last.rank())))));
            }
            last = Some(yak);
        }
        let none = if status.is_none() {
            "No yaks found.".into()
        } else {
            format!("No {word} yaks found.")
        };
        Ok(Reply::Text(if last.is_none() { none } else { page.end(None) }))
    }
}

fn listed_status(word: &str) -> Result<Status, ToolError> {
    let shown: String = word.chars().take(80).collect();
    Status::parse(word).map_err(|_| {
        ToolError::new(format!("invalid status {shown:?} (must be hairy, shaving, shorn or all)"))
    })
}

fn in_a_line(yak: &Yak, yaks: &Yaks) -> String {
    let Yak { id, title, kind, priority, status, .. } = yak;
    let tangled = yaks.tangled_by(yak).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let tangled = if tangled.is_empty() { tangled } else { format!(" (tangled by {tangled})") };
    format!("- [{id}] {title} ({kind}, p{}) - {status}{tangled}", priority.number())
}

fn cursor_of((status, priority, number): Rank) -> String {
    format!("{status}.{}.{number}", priority.number())
}

fn rank_of(cursor: &str) -> Result<Rank, ToolError> {
    let rank = || {
        let mut parts = cursor.split('.');
        let (status, priority, number) = (parts.next()?, parts.next()?, parts.next()?);
        let priority = Priority::new(priority.parse().ok()?).ok()?;
        Some((Status::parse(status).ok()?, priority, number.parse().ok()?))
            .filter(|_| parts.next().is_none())
    };
    rank().ok_or_else(|| {
        let cursor: String = cursor.chars().take(80).collect();
        ToolError::new(format!(
            "unknown cursor {cursor:?}; pass the one that the last page ended with, or none"
        ))
    })
}

pub(crate) struct ShowYak;

/// Show all there is to know about a yak.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowYakArgs {
    yak_id: String,
}

impl Tool for ShowYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "show_yak";
    const NEEDS: Needs = Needs::Token;
    type Args = ShowYakArgs;

    async fn call(cx: &Call<'_>, ShowYakArgs { yak_id }: ShowYakArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        Ok(Reply::Text(in_full(state.yaks.find(&yak_id)?, &state.yaks)))
    }
}

fn in_full(yak: &Yak, yaks: &Yaks) -> String {
    let named = |ids: Vec<&Yak>| {
        ids.into_iter()
            .map(|yak| format!("\n  - [{}] {} ({})", yak.id, yak.title, yak.status))
            .collect::<String>()
    };
    let mut text = format!("[{}] {}\n", yak.id, yak.title);
    let tangled = if yaks.tangled_by(yak).next().is_some() { " (tangled)" } else { "" };
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {value}");
    };
    line("Status", &format!("{}{tangled}", yak.status));
    line("Type", yak.kind.as_str());
    line("Priority", &yak.priority.number().to_string());
    line("Created", &format!("{} by {}", when(yak.created_at), yak.created_by));
    line("Updated", &when(yak.updated_at));
    if let Some(commit) = &yak.commit {
        line("Commit", commit);
    }
    if !yak.labels.is_empty() {
        line("Labels", &yak.labels.join(", "));
    }
    if let Some(parent) = yak.id.parent() {
        line("Parent", &parent.to_string());
    }
    let links = [
        ("Children", named(yaks.children(yak).map(AsRef::as_ref).collect())),
        (
            "Depends on",
            named(yak.depends_on.iter().filter_map(|id| yaks.get(id)).map(AsRef::as_ref).collect()),
        ),
        (
            "Blocks",
            named(
                yaks.blocked_by(&yak.id).filter_map(|id| yaks.get(id)).map(AsRef::as_ref).collect(),
            ),
        ),
    ];
    for (name, yaks) in links {
        if !yaks.is_empty() {
            let _ = writeln!(text, "{name}:{yaks}");
        }
    }
    let _ = write!(text, "\n{}", yak.description);
    text
}

fn when(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0)
        .map_or_else(|_| at.0.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

pub(crate) struct UpdateYak;

/// Change a yak's title, type, priority or description.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateYakArgs {
    yak_id: String,
    title: Option<String>,
    #[schemars(extend("enum" = ["bug", "feature", "task"]))]
    yak_type: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = 1, max = 3))]
    priority: Option<i64>,
    description: Option<String>,
}

impl Tool for UpdateYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "update_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> = Some("Only the main group can update yaks.");
    type Args = UpdateYakArgs;

    async fn call(cx: &Call<'_>, args: UpdateYakArgs) -> Result<Reply, ToolError> {
        let id = args.yak_id.trim().to_ascii_lowercase();
        let update = async {
            let kind = args.yak_type.as_deref().map(Kind::parse).transpose()?;
            let priority = args.priority.map(Priority::new).transpose()?;
            let (title, description) = (args.title, args.description);
            submit(cx, YakCommand::Update { yak: args.yak_id, title, kind, priority, description })
                .await
        };
        update.await.map_err(failed("update yak"))?;
        Ok(Reply::Text(format!("Yak {id} updated successfully.")))
    }
}

pub(crate) struct ShaveYak;

/// Start work on a yak.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShaveYakArgs {
    yak_id: String,
}

impl Tool for ShaveYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "shave_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> = Some("Only the main group can shave yaks.");
    type Args = ShaveYakArgs;

    async fn call(
        cx: &Call<'_>,
        ShaveYakArgs { yak_id }: ShaveYakArgs,
    ) -> Result<Reply, ToolError> {
        let move_it = YakCommand::Move { yak: yak_id.clone(), to: Status::Shaving, commit: None };
        let done = submit(cx, move_it).await.map_err(failed("shave yak"))?;
        Ok(moved(
            &yak_id,
            &done,
            "Started shaving yak {} (now shaving).",
            "Yak {} is being shaved already.",
        ))
    }
}

pub(crate) struct ShornYak;

/// Mark a yak as done. The project's current commit is recorded unless you name another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShornYakArgs {
    yak_id: String,
    commit: Option<String>,
}

impl Tool for ShornYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "shorn_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> = Some("Only the main group can mark yaks as shorn.");
    type Args = ShornYakArgs;

    async fn call(
        cx: &Call<'_>,
        ShornYakArgs { yak_id, commit }: ShornYakArgs,
    ) -> Result<Reply, ToolError> {
        let shorn_already =
            cx.state().yaks.find(&yak_id).is_ok_and(|yak| yak.status == Status::Shorn);
        let commit = match commit.filter(|commit| !commit.trim().is_empty()) {
            Some(commit) => Some(commit),
            None if shorn_already => None,
            None => cx.project_commit().await,
        };
        let move_it = YakCommand::Move { yak: yak_id.clone(), to: Status::Shorn, commit };
        let done = submit(cx, move_it).await.map_err(failed("mark yak as shorn"))?;
        Ok(moved(&yak_id, &done, "Yak {} marked as shorn (completed).", "Yak {} is shorn already."))
    }
}

pub(crate) struct RegrowYak;

/// Reopen a yak.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegrowYakArgs {
    yak_id: String,
}

impl Tool for RegrowYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "regrow_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> = Some("Only the main group can regrow yaks.");
    type Args = RegrowYakArgs;

    async fn call(
        cx: &Call<'_>,
        RegrowYakArgs { yak_id }: RegrowYakArgs,
    ) -> Result<Reply, ToolError> {
        let move_it = YakCommand::Move { yak: yak_id.clone(), to: Status::Hairy, commit: None };
        let done = submit(cx, move_it).await.map_err(failed("regrow yak"))?;
        Ok(moved(&yak_id, &done, "Yak {} regrown (reopened as hairy).", "Yak {} is hairy already."))
    }
}

/// Says that a yak moved, or that it was there already.
fn moved(yak_id: &str, done: &Done, moved: &str, already: &str) -> Reply {
    let text = if done.events.is_empty() { already } else { moved };
    Reply::Text(text.replace("{}", &yak_id.trim().to_ascii_lowercase()))
}

pub(crate) struct DepYak;

/// Make a yak depend on another, or no longer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepYakArgs {
    yak_id: String,
    #[schemars(extend("enum" = ["add", "remove"]))]
    dep_action: String,
    /// The yak to be shorn first.
    dep_id: String,
}

impl Tool for DepYak {
    const SET: Set = Set::Yaks;
    const NAME: &'static str = "dep_yak";
    const NEEDS: Needs = Needs::Main;
    const NOT_GRANTED: Option<&str> =
        Some("Only the main group can change the dependencies of yaks.");
    type Args = DepYakArgs;

    async fn call(cx: &Call<'_>, args: DepYakArgs) -> Result<Reply, ToolError> {
        let DepYakArgs { yak_id: yak, dep_action, dep_id: on } = args;
        let (id, on_id) = (yak.trim().to_ascii_lowercase(), on.trim().to_ascii_lowercase());
        let (command, text) = match dep_action.as_str() {
            "add" => (
                YakCommand::AddDependency { yak, on },
                format!("Dependency {on_id} added to {id}."),
            ),
            "remove" => (
                YakCommand::RemoveDependency { yak, on },
                format!("Dependency {on_id} removed from {id}."),
            ),
            other => {
                let other: String = other.chars().take(80).collect();
                return Err(ToolError::new(format!(
                    "invalid dep_action {other:?} (must be add or remove)"
                )));
            }
        };
        submit(cx, command).await.map_err(failed("change the dependency"))?;
        Ok(Reply::Text(text))
    }
}
