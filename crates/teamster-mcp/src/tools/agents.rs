//! The `agents` set: draft, await and kill agents, and see what became of them. Answers are JSON.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::agent::{self, Agent, AgentId, AskedLimits, NewAgent};
use teamster_core::dossier::Dossier;
use teamster_core::topic::Topic;
use teamster_core::{Command, Event};

use super::iso;
use crate::Set;
use crate::answer::{Reply, ToolError};
use crate::call::Call;
use crate::catalogue::Needs;
use crate::catalogue::Tool;

/// As many entries as one page of a list has.
const PAGE: usize = 100;
/// How long a call waits that has become a task: until the agent ends, whose time is limited by itself.
const TASK_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a call may wait.
fn patience(cx: &Call<'_>) -> Duration {
    if cx.client().tasks { TASK_WAIT } else { cx.inline_wait() }
}

/// Waits until an agent has ended, at most `at_most`, and returns it as it is then.
async fn wait_for_end(cx: &Call<'_>, id: &AgentId, at_most: Duration) -> Option<Value> {
    cx.wait(&Topic::Agent(id.clone()), at_most, |state| match state.agents.get(id.as_str()) {
        Some(agent) if agent.is_live() => None,
        Some(agent) => Some(ended(agent)),
        // So long ago that it is no longer at hand.
        None => Some(json!({"status": "forgotten", "agentId": id.as_str()})),
    })
    .await
}

/// Tells what came of an agent.
fn ended(agent: &Agent) -> Value {
    let Some(outcome) = &agent.outcome else { return json!({"status": "running"}) };
    let cost = outcome.cost_microdollars.map(|cost| cost as f64 / 1e6);
    json!({
        "status": outcome.ending.as_str(),
        "result": {
            "status": outcome.status.as_str(), "summary": outcome.summary, "changes": outcome.changes,
            "issues": outcome.issues, "questions": outcome.questions,
        },
        "cost": cost,
        "duration_ms": agent.duration_ms(),
    })
}

/// Reads where a page begins.
fn start_of(cursor: Option<&str>) -> Result<usize, ToolError> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(0) };
    let unknown = || {
        let cursor: String = cursor.chars().take(80).collect();
        ToolError::named(
            "ValidationError",
            format!("unknown cursor {cursor:?}; pass the nextCursor of the last page, or none"),
        )
    };
    cursor.parse().map_err(|_| unknown())
}

/// Returns one page of a list, with where the next begins if there is one.
fn page(name: &str, start: usize, mut entries: impl Iterator<Item = Value>) -> Reply {
    let page: Vec<Value> = entries.by_ref().take(PAGE).collect();
    let next = start + page.len();
    let mut json = json!({name: page});
    if entries.next().is_some() {
        json["nextCursor"] = next.to_string().into();
    }
    Reply::Json(json)
}

pub(crate) struct DraftAgent;

/// Start another agent on a task of its own; returns at once with its agentId. Wait for its result with await_agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DraftAgentArgs {
    /// The role it plays, e.g. `coder`.
    role: String,
    /// All it needs to know; it sees neither your conversation nor your prompt.
    prompt: String,
    /// Groups agents that work on one thing; default: yours.
    task_slug: Option<String>,
}

impl Tool for DraftAgent {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "draft_agent";
    const NEEDS: Needs = Needs::Write;
    type Args = DraftAgentArgs;

    async fn call(cx: &Call<'_>, args: DraftAgentArgs) -> Result<Reply, ToolError> {
        let new = NewAgent {
            role: args.role.trim().to_owned(),
            prompt: args.prompt,
            dossier: args.task_slug.filter(|slug| !slug.trim().is_empty()),
            directory: None,
            default_directory: cx.directory(),
            limits: AskedLimits::default(),
        };
        let done = cx.submit(Command::Agent(agent::Command::Draft(new))).await?;
        let drafted = done.events.iter().find_map(|event| match event {
            Event::Agent(agent::Event::Drafted { id, draft, .. }) => Some(json!({
                "agentId": id.as_str(), "role": draft.role.as_str(), "taskSlug": draft.dossier.as_str(),
            })),
            _ => None,
        });
        drafted.map(Reply::Json).ok_or_else(|| ToolError::new("the draft left no trace"))
    }
}

pub(crate) struct AwaitAgent;

/// Wait until an agent has ended and get its result. If it answers status "running", call it again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AwaitAgentArgs {
    agent_id: String,
}

impl Tool for AwaitAgent {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "await_agent";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = AwaitAgentArgs;

    async fn call(cx: &Call<'_>, args: AwaitAgentArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let agent = state.agents.visible(args.agent_id.trim(), cx.caller())?;
        if let Some(team) = &agent.draft.team {
            let says = format!(
                "Agent \"{}\" speaks for the team {team} and has no end; team_report shows what it said, and kill_agent or \
                 team_sleep ends its process",
                agent.id
            );
            return Err(ToolError::named("NoEnd", says));
        }
        let id = agent.id.clone();
        let ended = wait_for_end(cx, &id, patience(cx)).await;
        Ok(Reply::Json(
            ended.unwrap_or_else(|| json!({"status": "running", "agentId": id.as_str()})),
        ))
    }
}

pub(crate) struct KillAgent;

/// End an agent that you drafted, and all that it drafted. Succeeds when its processes are gone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct KillAgentArgs {
    agent_id: String,
}

impl Tool for KillAgent {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "kill_agent";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = KillAgentArgs;

    async fn call(cx: &Call<'_>, args: KillAgentArgs) -> Result<Reply, ToolError> {
        let which = args.agent_id.trim();
        let done = cx.submit(Command::Agent(agent::Command::Kill { which: which.into() })).await?;
        let agent = done.state.agents.visible(which, cx.caller())?;
        // By what the call caused, so that the same call again, with its key, gets the same answer.
        let had_ended = done.events.is_empty() && done.state.agents.is_over_with_below(&agent.id);
        let (id, lasts) = (agent.id.clone(), agent.lasts());
        // Of any agent: those below it end, too.
        let gone = cx
            .wait(&Topic::Agents, patience(cx), |state| {
                state.agents.is_over_with_below(&id).then_some(())
            })
            .await
            .is_some();
        let message = match (had_ended, gone) {
            (true, _) if lasts => format!("Agent \"{id}\" sleeps already"),
            (false, true) if lasts => {
                format!(
                    "Agent \"{id}\" was put to sleep; it speaks for a team, and the next message wakes it"
                )
            }
            (true, _) => format!("Agent \"{id}\" had ended already"),
            (false, true) => format!("Agent \"{id}\" killed"),
            (false, false) => {
                format!("Agent \"{id}\" is being ended; call kill_agent again to wait for it")
            }
        };
        Ok(Reply::Json(json!({"success": gone, "message": message})))
    }
}

pub(crate) struct ListAgents;

/// List the agents that are under way or queued. If you may draft agents, those of others are listed too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAgentsArgs {
    /// The nextCursor of the last page.
    cursor: Option<String>,
}

impl Tool for ListAgents {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "list_agents";
    const NEEDS: Needs = Needs::Read;
    type Args = ListAgentsArgs;

    async fn call(cx: &Call<'_>, args: ListAgentsArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let start = start_of(args.cursor.as_deref())?;
        let live = state.agents.active().chain(state.agents.adopted()).chain(state.agents.queued());
        let is_own = |agent: &Agent| state.agents.is_visible(agent, cx.caller());
        let sees_all = cx.has_all(Set::Agents);
        let listed = live.filter(|agent| sees_all || is_own(agent));
        let entries = listed.skip(start).map(|agent| {
            let mut shown = json!({
                "id": agent.id.as_str(), "role": agent.role.as_str(), "taskSlug": agent.draft.dossier.as_str(),
                "status": agent.phase.as_str(),
            });
            if is_own(agent) {
                shown["startedAt"] = agent.started_at.map(iso).into();
            }
            shown
        });
        Ok(page("agents", start, entries))
    }
}

pub(crate) struct ListTasks;

/// List the tasks that agents were drafted for, oldest first. If you may draft agents, those of others are listed too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListTasksArgs {
    /// The nextCursor of the last page.
    cursor: Option<String>,
}

impl Tool for ListTasks {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "list_tasks";
    const NEEDS: Needs = Needs::Read;
    type Args = ListTasksArgs;

    async fn call(cx: &Call<'_>, args: ListTasksArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let start = start_of(args.cursor.as_deref())?;
        let own = state.own_dossiers(cx.caller()).filter(|_| !cx.has_all(Set::Agents));
        let is_listed =
            |dossier: &&Arc<Dossier>| own.as_ref().is_none_or(|own| own.contains(&dossier.name));
        let entries = state.dossiers.after(0).filter(is_listed).skip(start).map(|dossier| {
            json!({
                "slug": dossier.name.as_str(), "created": iso(dossier.opened_at),
                "description": dossier.description, "dispatchCount": dossier.agents.len(),
            })
        });
        Ok(page("tasks", start, entries))
    }
}

pub(crate) struct GetTaskContext;

/// Read what was asked in a task of yours and what its agents found.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct GetTaskContextArgs {
    task_slug: String,
}

impl Tool for GetTaskContext {
    const SET: Set = Set::Agents;
    const NAME: &'static str = "get_task_context";
    const NEEDS: Needs = Needs::Read;
    type Args = GetTaskContextArgs;

    async fn call(cx: &Call<'_>, args: GetTaskContextArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let slug = args.task_slug.trim();
        let own = state.own_dossiers(cx.caller());
        let is_own = |dossier: &Dossier| own.as_ref().is_none_or(|own| own.contains(&dossier.name));
        let dossier = state.dossiers.get(slug);
        if let Some(dossier) = dossier
            && !is_own(dossier)
            && cx.has_all(Set::Agents)
        {
            let says = format!(
                "Task \"{slug}\" is not yours; you reach the tasks of your own tree. The person who drafts you can \
                 name the task, or give your role `reach: workspace`"
            );
            return Err(ToolError::named("Forbidden", says));
        }
        // To all others, what they may not see is answered like what never was.
        let dossier = dossier.filter(|dossier| is_own(dossier)).ok_or_else(|| {
            let slug: String = slug.chars().take(80).collect();
            ToolError::named(
                "UnknownTask",
                format!("Task \"{slug}\" not found; list_tasks shows those there are"),
            )
        })?;
        Ok(Reply::Json(json!({"context": dossier.context(&state.agents, &state.runs)})))
    }
}
