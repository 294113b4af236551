//! The `session` set: the items, notes and iterations of a run. The run is named by the door's path.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use teamster_core::ids::{ItemId, NoteId};
use teamster_core::item::{self, Item, NewItem, Priority, Rank, Status};
use teamster_core::note::{self, NewNote};
use teamster_core::{Command, Event, iteration, run};

use super::whole;
use crate::Set;
use crate::answer::{Reply, ToolError};
use crate::call::Call;
use crate::catalogue::Needs;
use crate::catalogue::Tool;
use crate::hub::Done;
use crate::paging::{Page, indented};

/// Submits a command to the run that the call is in.
async fn submit(cx: &Call<'_>, what: run::Command) -> Result<Done, ToolError> {
    cx.submit(Command::Run { run: cx.scope.run.clone(), what }).await
}

/// Returns what happened in the run, for a reply.
fn in_run(done: &Done) -> impl Iterator<Item = &run::Event> {
    done.events.iter().filter_map(|event| match event {
        Event::Run { what, .. } => Some(what),
        _ => None,
    })
}

fn unknown_cursor(cursor: &str) -> ToolError {
    let cursor: String = cursor.chars().take(80).collect();
    ToolError::new(format!(
        "unknown cursor {cursor:?}; pass the one that the last page ended with, or none"
    ))
}

/// An empty text means the same as none.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

pub(crate) struct TaskAdd;

/// Add tasks to the shared list, all or none. A task that is there already is refused with its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskAddArgs {
    tasks: Vec<NewTask>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"content\": \"write the docs\"}")]
pub(crate) struct NewTask {
    content: String,
    /// Default remaining.
    #[schemars(extend("enum" = ["remaining", "in_progress", "completed", "blocked", "cancelled"]))]
    status: Option<String>,
    /// 0 critical, 1 high, 2 medium (default), 3 low, 4 backlog.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = 0, max = 4))]
    priority: Option<i64>,
}

impl Tool for TaskAdd {
    const SET: Set = Set::Session;
    const NAME: &'static str = "task-add";
    const NEEDS: Needs = Needs::Write;
    type Args = TaskAddArgs;

    async fn call(cx: &Call<'_>, TaskAddArgs { tasks }: TaskAddArgs) -> Result<Reply, ToolError> {
        let new = |(i, task): (usize, NewTask)| -> Result<NewItem, ToolError> {
            let wrong = |field| move |why| ToolError::new(format!("tasks[{i}].{field}: {why}"));
            let status = given(task.status.as_deref()).map(Status::parse).transpose();
            let priority = task.priority.map(Priority::new).transpose();
            Ok(NewItem {
                content: task.content,
                status: status.map_err(wrong("status"))?,
                priority: priority.map_err(wrong("priority"))?,
            })
        };
        let items = tasks.into_iter().enumerate().map(new).collect::<Result<_, _>>()?;
        let done = submit(cx, run::Command::Item(item::Command::Add(items))).await?;
        let added: Vec<String> = in_run(&done)
            .filter_map(|event| match event {
                run::Event::Item(item::Event::Added { id, content, .. }) => {
                    Some(format!("\n  {id}: {}", indented(&item::shortened(content))))
                }
                _ => None,
            })
            .collect();
        Ok(Reply::Text(format!("Added {} task(s):{}", added.len(), added.concat())))
    }
}

pub(crate) struct TaskUpdate;

/// Update a task's status, priority or dependencies. What is left out stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskUpdateArgs {
    /// E.g. TAS-3.
    id: String,
    #[schemars(extend("enum" = ["remaining", "in_progress", "completed", "blocked", "cancelled"]))]
    status: Option<String>,
    /// 0 critical to 4 backlog.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = 0, max = 4))]
    priority: Option<i64>,
    /// Id of a task that must be completed or cancelled first.
    depends_on: Option<String>,
}

impl Tool for TaskUpdate {
    const SET: Set = Set::Session;
    const NAME: &'static str = "task-update";
    const NEEDS: Needs = Needs::Write;
    type Args = TaskUpdateArgs;

    async fn call(cx: &Call<'_>, args: TaskUpdateArgs) -> Result<Reply, ToolError> {
        let status = given(args.status.as_deref())
            .map(Status::parse)
            .transpose()
            .map_err(run::Refusal::from)?;
        let priority = args.priority.map(Priority::new).transpose().map_err(run::Refusal::from)?;
        let (item, depends_on) = (args.id.clone(), args.depends_on.clone());
        let update = item::Command::Update { item, status, priority, depends_on };
        let done = submit(cx, run::Command::Item(update)).await?;
        // What was so already left no trace, and is so all the same.
        let items = &done.state.runs.get(&cx.scope.run).items;
        let id = |given: &str| items.find(given.trim()).map(|item| item.id);
        let depends_on = given(args.depends_on.as_deref()).map(id).transpose();
        let changes = [
            status.map(|status| format!("status={status}")),
            priority.map(|priority| format!("priority={}", priority.number())),
            depends_on.map_err(run::Refusal::from)?.map(|on| format!("depends_on={on}")),
        ];
        let changes: Vec<String> = changes.into_iter().flatten().collect();
        let id = id(&args.id).map_err(run::Refusal::from)?;
        Ok(Reply::Text(format!("Updated task {id}: {}", changes.join(", "))))
    }
}

pub(crate) struct TaskList;

/// List all tasks, grouped by status.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskListArgs {
    /// Where the last page ended.
    cursor: Option<String>,
}

impl Tool for TaskList {
    const SET: Set = Set::Session;
    const NAME: &'static str = "task-list";
    const NEEDS: Needs = Needs::Read;
    type Args = TaskListArgs;

    async fn call(
        cx: &Call<'_>,
        TaskListArgs { cursor }: TaskListArgs,
    ) -> Result<Reply, ToolError> {
        let after = given(cursor.as_deref()).map(rank_of).transpose()?;
        let state = cx.state();
        let items = &state.runs.get(&cx.scope.run).items;
        let mut page = Page::new();
        let mut last: Option<&Item> = None;
        for item in items.ranked_after(after) {
            let mut line = format!("  [{}] {}", item.id, indented(&item.content));
            if last.is_none_or(|last| last.status != item.status) {
                line = format!("{}\n{line}", heading(item.status));
            }
            if !page.line(&line) {
                return Ok(Reply::Text(page.end(last.map(|last| cursor_of(last.rank())))));
            }
            last = Some(item);
        }
        let text = page.end(None);
        Ok(Reply::Text(if text.is_empty() { "No tasks".into() } else { text }))
    }
}

fn heading(status: Status) -> &'static str {
    match status {
        Status::Remaining => "Remaining:",
        Status::InProgress => "In progress:",
        Status::Completed => "Completed:",
        Status::Blocked => "Blocked:",
        Status::Cancelled => "Cancelled:",
    }
}

fn cursor_of((status, priority, id): Rank) -> String {
    format!("{status}.{}.{id}", priority.number())
}

fn rank_of(cursor: &str) -> Result<Rank, ToolError> {
    let rank = || {
        let mut parts = cursor.split('.');
        let (status, priority, id) = (parts.next()?, parts.next()?, parts.next()?);
        let priority = Priority::new(priority.parse().ok()?).ok()?;
        Some((Status::parse(status).ok()?, priority, ItemId::parse(id)?))
            .filter(|_| parts.next().is_none())
    };
    rank().ok_or_else(|| unknown_cursor(cursor))
}

pub(crate) struct TaskNext;

/// Get the most urgent task that waits for nothing. With claim it becomes yours, and no other worker gets it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskNextArgs {
    /// Take it: it is in_progress for you at once.
    claim: Option<bool>,
}

impl Tool for TaskNext {
    const SET: Set = Set::Session;
    const NAME: &'static str = "task-next";
    const NEEDS: Needs = Needs::Write;
    const NEEDS_AT_LEAST: Needs = Needs::Read;
    type Args = TaskNextArgs;

    fn needs(arguments: &Map<String, Value>) -> Needs {
        match arguments.get("claim") {
            None | Some(Value::Null | Value::Bool(false)) => Needs::Read,
            Some(_) => Needs::Write,
        }
    }

    async fn call(cx: &Call<'_>, TaskNextArgs { claim }: TaskNextArgs) -> Result<Reply, ToolError> {
        let found = if claim.unwrap_or(false) {
            let done = submit(cx, run::Command::Item(item::Command::Claim)).await?;
            let claimed = in_run(&done).find_map(|event| match event {
                run::Event::Item(item::Event::Claimed { id }) => Some(*id),
                _ => None,
            });
            // A repeated call may find its item moved on; what it got is still that item, in progress.
            let items = &done.state.runs.get(&cx.scope.run).items;
            claimed.and_then(|id| items.get(id)).map(|item| as_json(item, Status::InProgress))
        } else {
            cx.state()
                .runs
                .get(&cx.scope.run)
                .items
                .next_ready()
                .map(|item| as_json(item, item.status))
        };
        Ok(Reply::Text(found.unwrap_or_else(|| "No ready tasks".into())))
    }
}

fn as_json(item: &Item, status: Status) -> String {
    let priority = item.priority.number();
    json!({"id": item.id.to_string(), "content": *item.content, "priority": priority, "status": status.as_str()}).to_string()
}

pub(crate) struct NoteAdd;

/// Keep what others should know later: a learning, where you are stuck, a tip or a decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteAddArgs {
    notes: Vec<NewNoteArgs>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"content\": \"use make\", \"type\": \"tip\"}"
)]
pub(crate) struct NewNoteArgs {
    content: String,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["learning", "stuck", "tip", "decision"]))]
    kind: String,
}

impl Tool for NoteAdd {
    const SET: Set = Set::Session;
    const NAME: &'static str = "note-add";
    const NEEDS: Needs = Needs::Write;
    type Args = NoteAddArgs;

    async fn call(cx: &Call<'_>, NoteAddArgs { notes }: NoteAddArgs) -> Result<Reply, ToolError> {
        let new = |(i, note): (usize, NewNoteArgs)| -> Result<NewNote, ToolError> {
            let kind = note::Kind::parse(note.kind.trim());
            let kind = kind.map_err(|why| ToolError::new(format!("notes[{i}].type: {why}")))?;
            Ok(NewNote { content: note.content, kind })
        };
        let notes = notes.into_iter().enumerate().map(new).collect::<Result<_, _>>()?;
        let done = submit(cx, run::Command::Note(note::Command::Add(notes))).await?;
        let added: Vec<String> = in_run(&done)
            .filter_map(|event| match event {
                run::Event::Note(note::Event::Added { id, kind, .. }) => {
                    Some(format!("{id} ({kind})"))
                }
                _ => None,
            })
            .collect();
        Ok(Reply::Text(format!("Added {} note(s): {}", added.len(), added.join(", "))))
    }
}

pub(crate) struct NoteList;

/// List notes, oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteListArgs {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["learning", "stuck", "tip", "decision"]))]
    kind: Option<String>,
    /// Where the last page ended.
    cursor: Option<String>,
}

impl Tool for NoteList {
    const SET: Set = Set::Session;
    const NAME: &'static str = "note-list";
    const NEEDS: Needs = Needs::Read;
    type Args = NoteListArgs;

    async fn call(
        cx: &Call<'_>,
        NoteListArgs { kind, cursor }: NoteListArgs,
    ) -> Result<Reply, ToolError> {
        let kind = given(kind.as_deref())
            .map(note::Kind::parse)
            .transpose()
            .map_err(run::Refusal::from)?;
        let after = match given(cursor.as_deref()) {
            Some(cursor) => NoteId::parse(cursor).ok_or_else(|| unknown_cursor(cursor))?,
            None => NoteId(0),
        };
        let state = cx.state();
        let mut page = Page::new();
        let mut last = None;
        for note in state.runs.get(&cx.scope.run).notes.after(after, kind) {
            if !page.line(&format!(
                "[{}] (#{}) {}",
                note.kind,
                note.iteration,
                indented(&note.content)
            )) {
                return Ok(Reply::Text(page.end(last.map(|id: NoteId| id.to_string()))));
            }
            last = Some(note.id);
        }
        let text = page.end(None);
        Ok(Reply::Text(match (text.is_empty(), kind) {
            (false, _) => text,
            (true, None) => "No notes".into(),
            (true, Some(kind)) => format!("No notes with type '{kind}'"),
        }))
    }
}

pub(crate) struct IterationSummary;

/// Record what this iteration did, for those who go on. It ends the iteration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IterationSummaryArgs {
    summary: String,
}

impl Tool for IterationSummary {
    const SET: Set = Set::Session;
    const NAME: &'static str = "iteration-summary";
    const NEEDS: Needs = Needs::Write;
    type Args = IterationSummaryArgs;

    async fn call(
        cx: &Call<'_>,
        IterationSummaryArgs { summary }: IterationSummaryArgs,
    ) -> Result<Reply, ToolError> {
        let done =
            submit(cx, run::Command::Iteration(iteration::Command::Summarise { text: summary }))
                .await?;
        let number = in_run(&done).find_map(|event| match event {
            run::Event::Iteration(iteration::Event::Summarised { iteration, .. }) => {
                Some(*iteration)
            }
            _ => None,
        });
        let number = number.ok_or_else(|| ToolError::new("the summary left no trace"))?;
        Ok(Reply::Text(format!("Summary recorded for iteration #{number}")))
    }
}

pub(crate) struct SessionComplete;

/// Mark the session complete, once every task is completed, blocked or cancelled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionCompleteArgs {}

impl Tool for SessionComplete {
    const SET: Set = Set::Session;
    const NAME: &'static str = "session-complete";
    const NEEDS: Needs = Needs::Write;
    type Args = SessionCompleteArgs;

    async fn call(
        cx: &Call<'_>,
        SessionCompleteArgs {}: SessionCompleteArgs,
    ) -> Result<Reply, ToolError> {
        submit(cx, run::Command::Complete).await?;
        Ok(Reply::Text("Session marked complete".into()))
    }
}
