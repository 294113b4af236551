//! The `teams` set: tell another project's agent something, and see what became of it. Answers are JSON.

mod cache;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::agent::{Agent, Phase};
use teamster_core::conversation::{self, Conversation, How, NewTell, Partner, Progress, Tell};
use teamster_core::ids::{ConversationId, TellId};
use teamster_core::team::Team;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Event, State};

use super::iso;
use crate::Set;
use crate::answer::{Reply, ToolError};
use crate::call::Call;
use crate::catalogue::Needs;
use crate::catalogue::Tool;

const TIMEOUT_MS_USUAL: u64 = 30_000;
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
/// How long a wake-up is waited for: the slowest known program takes 24 s on a loaded machine.
const WAKE_WAIT: Duration = Duration::from_secs(90);
const MESSAGES_USUAL: u64 = 10;
const MESSAGES: std::ops::RangeInclusive<u64> = 1..=100;
/// As many messages as `team_report` shows.
const REPORT_MESSAGES: usize = 20;

fn invalid(field: &'static str, says: impl Into<String>) -> ToolError {
    ToolError::named("ValidationError", says.into()).on(field)
}

fn now_ms(cx: &Call<'_>) -> i64 {
    cx.now().0
}

fn agent_of<'a>(
    state: &'a State,
    conversation: &Conversation,
) -> Option<&'a std::sync::Arc<Agent>> {
    state.agents.get(conversation.agent.as_str())
}

/// Adds the process of a conversation's agent, if it is known.
async fn add_pid(cx: &Call<'_>, shown: &mut Value, conversation: &Conversation) {
    if let Some(pid) = cx.live(&conversation.agent).await.pid {
        shown["pid"] = pid.into();
    }
}

/// Busy is awake; being started is not yet.
fn is_awake(state: &State, conversation: &Conversation) -> bool {
    agent_of(state, conversation).is_some_and(|agent| agent.is_ready())
}

fn find<'a>(
    state: &'a State,
    field: &'static str,
    name: &str,
) -> Result<&'a std::sync::Arc<Team>, ToolError> {
    state.team(name).map_err(|refusal| ToolError::from(refusal).on(field))
}

/// Returns whom the caller speaks for.
fn speaker(cx: &Call<'_>, state: &State, from: Option<&str>) -> Result<Partner, ToolError> {
    state.partner(from, cx.caller()).map_err(|refusal| ToolError::from(refusal).on("fromTeam"))
}

/// Says which argument a refusal is about: the team, whom the caller says it is, or else the rest.
fn blamed(
    cx: &Call<'_>,
    error: ToolError,
    (field, team): (&'static str, &str),
    from: Option<&str>,
    rest: Option<&'static str>,
) -> ToolError {
    let state = cx.state();
    let field = if speaker(cx, &state, from).is_err() {
        Some("fromTeam")
    } else if find(&state, field, team).is_err() {
        Some(field)
    } else {
        rest.filter(|_| error.name == "ValidationError")
    };
    ToolError { field, ..error }
}

/// Returns a conversation by the id that callers have.
fn session<'a>(
    cx: &Call<'_>,
    state: &'a State,
    id: &str,
) -> Result<&'a std::sync::Arc<Conversation>, ToolError> {
    let id = ConversationId::parse(id.trim()).ok_or_else(|| {
        invalid(
            "sessionId",
            "sessionId is not one that team_tell, team_wake or team_report gave you",
        )
    })?;
    let visible = state.conversations.visible(id, cx.caller());
    visible.map_err(|refusal| invalid("sessionId", refusal.to_string()))
}

fn progress_word(tell: &Tell) -> &'static str {
    match &tell.progress {
        Progress::Queued => "queued",
        Progress::Active { .. } => "active",
        Progress::Settled { how: How::Completed, .. } => "completed",
        Progress::Settled { how: How::Terminated { .. }, .. } => "terminated",
        Progress::Settled { how: How::Cancelled, .. } => "cancelled",
    }
}

/// Returns the messages of a conversation that were not cleared, oldest first.
fn tells<'a>(
    state: &'a State,
    conversation: &'a Conversation,
) -> impl Iterator<Item = &'a std::sync::Arc<Tell>> {
    let shown = conversation.tells.iter().filter(|id| Some(**id) > conversation.cleared);
    shown.filter_map(|id| state.conversations.tell(*id))
}

pub(crate) struct TeamTell;

/// Tell another project's agent something and get its answer. Without waitForResponse, or after the timeout, read the
/// answer later with team_cache_read and the sessionId. On status "working", make the same call again to go on waiting.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamTellArgs {
    to_team: String,
    message: String,
    /// Your own team, if you say it.
    from_team: Option<String>,
    /// Default true.
    wait_for_response: Option<bool>,
    /// How long to wait, 1000 to 3600000 ms; default 30000.
    timeout: Option<i64>,
}

impl Tool for TeamTell {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_tell";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = TeamTellArgs;

    async fn call(cx: &Call<'_>, args: TeamTellArgs) -> Result<Reply, ToolError> {
        let timeout = match args.timeout.map(u64::try_from) {
            None => TIMEOUT_MS_USUAL,
            Some(Ok(ms)) if TIMEOUT_MS.contains(&ms) => ms,
            Some(_) => return Err(invalid("timeout", "Timeout must be between 1s and 1hr")),
        };
        let waits = args.wait_for_response.unwrap_or(true);
        let began = now_ms(cx);
        let (to, from) = (args.to_team.clone(), args.from_team.clone());
        let new = NewTell {
            to: args.to_team,
            from: args.from_team,
            message: args.message,
            is_awaited: waits,
        };
        let done = cx.submit(Command::Conversation(conversation::Command::Tell(new))).await;
        let done = done.map_err(|error| {
            blamed(cx, error, ("toTeam", &to), from.as_deref(), Some("message"))
        })?;
        let told = done.events.iter().find_map(|event| match event {
            Event::Conversation(
                conversation::Event::Told { id, conversation, .. }
                | conversation::Event::Joined { id, conversation, .. },
            ) => Some((*id, *conversation)),
            _ => None,
        });
        let (tell, id) = told.ok_or_else(|| ToolError::new("the message left no trace"))?;
        let conversation = done.state.conversations.get(id).cloned();
        let conversation =
            conversation.ok_or_else(|| ToolError::new("the conversation left no trace"))?;
        let message = done.state.conversations.tell(tell).map(|tell| tell.message.clone());
        let mut answer = json!({
            "from": conversation.from.as_str(), "to": conversation.to.as_str(), "message": message,
            "sessionId": id.to_string(), "tellId": tell.to_string(), "async": !waits,
        });
        if waits && waits_for(&done.state, cx.caller(), &conversation, tell) {
            answer["status"] = "busy".into();
            answer["note"] = "What this team is busy with waits for you, so you cannot wait for it: finish first. Your message is \
                              queued, and the answer will be sent to you as a message."
                .into();
            // Nobody waits for it.
            drop(cx.listens(tell));
        } else if waits {
            let timeout = Duration::from_millis(timeout);
            let at_most = if cx.client().tasks { timeout } else { timeout.min(cx.inline_wait()) };
            let listens = cx.listens(tell);
            let settled = settled(cx, id, tell, at_most).await;
            if settled.is_some() {
                listens.has_heard();
            }
            answer["duration"] = (now_ms(cx) - began).into();
            match settled {
                Some(Progress::Settled { how: How::Completed, answer: text, .. }) => {
                    answer["response"] = (&*text).into();
                }
                Some(Progress::Settled { how: How::Terminated { why }, answer: text, .. }) => {
                    answer["status"] = "terminated".into();
                    answer["response"] = (&*text).into();
                    answer["reason"] = (&*why).into();
                }
                Some(Progress::Settled { how: How::Cancelled, .. }) => {
                    answer["status"] = "cancelled".into();
                    answer["reason"] = "the message was taken back before it was begun".into();
                }
                _ => {
                    // The client may wait less long than the caller wants to.
                    let is_cut = at_most < timeout;
                    answer["status"] = if is_cut { "working" } else { "timeout" }.into();
                    answer["response"] = cx.live(&conversation.agent).await.said.into();
                    answer["note"] = match (is_cut, is_told(cx, &done.state)) {
                        (true, true) => "Still working on it. Make the same call again to go on waiting, or end your turn: then the answer will be sent to you as a message.",
                        (true, false) => "Still working on it. Make the same call again to go on waiting: the message is not sent twice. Or read the answer later with team_cache_read and this sessionId.",
                        (false, true) => "Still working on it. The answer will be sent to you as a message; end your turn if you need it to go on.",
                        (false, false) => "Still working on it. Read the answer later with team_cache_read and this sessionId.",
                    }
                    .into();
                }
            }
        }
        answer["timestamp"] = now_ms(cx).into();
        Ok(Reply::Json(answer))
    }
}

/// Says whether the caller is an agent that can be told an answer later.
fn is_told(cx: &Call<'_>, state: &State) -> bool {
    state.agents.of_caller(cx.caller()).is_some_and(|agent| agent.lasts())
}

/// Says whether what stands before a message waits for the very agent that sent it, itself or through others.
fn waits_for(state: &State, caller: &Caller, conversation: &Conversation, tell: TellId) -> bool {
    let agent = state.agents.get(caller.principal.as_str());
    let Some(own) = agent.and_then(|agent| state.conversations.of_agent(&agent.id)) else {
        return false;
    };
    if conversation.current.is_none_or(|current| current == tell) {
        return false;
    }
    let (mut seen, mut next) = (BTreeSet::new(), vec![conversation]);
    while let Some(conversation) = next.pop() {
        if conversation.id == own.id {
            return true;
        }
        if conversation.current.is_none() || !seen.insert(conversation.id) {
            continue;
        }
        // Whoever answers there may have told others something and not heard of it.
        let (team, who) = (Partner::Team(conversation.to.clone()), conversation.agent.principal());
        let told = |id: &TellId| {
            state.conversations.tell(*id).is_some_and(|tell| tell.by == who && tell.is_awaited)
        };
        let theirs = state.conversations.of_partner(&team);
        let open = theirs.filter(|one| one.current.iter().chain(&one.queue).any(told));
        next.extend(open.map(|one| &**one));
    }
    false
}

/// Waits until a message is settled.
async fn settled(
    cx: &Call<'_>,
    conversation: ConversationId,
    tell: TellId,
    at_most: Duration,
) -> Option<Progress> {
    cx.wait(&Topic::Conversation(conversation), at_most, |state| {
        match state.conversations.tell(tell) {
            Some(tell) if tell.is_settled() => Some(tell.progress.clone()),
            Some(_) => None,
            // So long ago that it is no longer at hand.
            None => Some(Progress::Settled {
                how: How::Cancelled,
                answer: "".into(),
                at: teamster_core::Timestamp(0),
            }),
        }
    })
    .await
}

pub(crate) struct TeamIsAwake;

/// Check whether a team's agent is awake; without a team, all of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamIsAwakeArgs {
    team: Option<String>,
    /// Counts of what waits; default true.
    include_notifications: Option<bool>,
}

impl Tool for TeamIsAwake {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_isAwake";
    const NEEDS: Needs = Needs::Read;
    type Args = TeamIsAwakeArgs;

    async fn call(cx: &Call<'_>, args: TeamIsAwakeArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        // The caller's own conversation, or any if it has none.
        let own = Partner::of(cx.caller());
        let awake = |team: &Team| match state.conversations.of_pair(&own, &team.name) {
            Some(own) => is_awake(&state, own).then(|| own.clone()),
            None => state
                .conversations
                .with(&team.name)
                .find(|conversation| is_awake(&state, conversation))
                .cloned(),
        };
        let mut answer = match &args.team {
            Some(name) => {
                let team = find(&state, "team", name)?;
                let conversation = awake(team);
                let mut shown =
                    json!({"team": team.name.as_str(), "awake": conversation.is_some()});
                if let Some(conversation) = conversation {
                    add_pid(cx, &mut shown, &conversation).await;
                }
                shown
            }
            None => {
                let mut teams: Vec<Value> = Vec::new();
                for team in state.teams.iter() {
                    let conversation = awake(team);
                    let mut shown =
                        json!({"name": team.name.as_str(), "awake": conversation.is_some()});
                    if let Some(conversation) = conversation {
                        shown["sessionId"] = conversation.id.to_string().into();
                        add_pid(cx, &mut shown, &conversation).await;
                    }
                    teams.push(shown);
                }
                let any = teams.iter().any(|team| team["awake"] == true);
                json!({"awake": any, "teams": teams})
            }
        };
        if args.include_notifications.unwrap_or(true) {
            let queued: usize =
                state.conversations.of_partner(&own).map(|one| one.queue.len()).sum();
            answer["notifications"] = json!({
                "queuedMessages": queued, "openQuestions": state.questions.n_open(),
                "unreadAnswers": state.conversations.n_unread(&own),
            });
        }
        answer["timestamp"] = now_ms(cx).into();
        Ok(Reply::Json(answer))
    }
}

pub(crate) struct TeamWake;

/// Start a team's agent, so that it answers sooner.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamWakeArgs {
    team: String,
    /// Your own team, if you say it.
    from_team: Option<String>,
    /// If it sleeps, begin what team_cache_read shows anew; default true.
    clear_cache: Option<bool>,
}

impl Tool for TeamWake {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_wake";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = TeamWakeArgs;

    async fn call(cx: &Call<'_>, args: TeamWakeArgs) -> Result<Reply, ToolError> {
        let clear = args.clear_cache.unwrap_or(true);
        Ok(Reply::Json(wake(cx, 0, &args.team, args.from_team, clear).await?))
    }
}

/// Has a team's agent started, and waits until it is awake or cannot be.
async fn wake(
    cx: &Call<'_>,
    n: usize,
    team: &str,
    from: Option<String>,
    clear: bool,
) -> Result<Value, ToolError> {
    let began = now_ms(cx);
    let state = cx.state();
    let pair = |state: &State| {
        let team = find(state, "team", team)?.name.clone();
        let partner = speaker(cx, state, from.as_deref())?;
        Ok::<_, ToolError>(state.conversations.of_pair(&partner, &team).cloned())
    };
    let was_awake = matches!(pair(&state), Ok(Some(one)) if is_awake(&state, &one));
    let command = conversation::Command::Wake { to: team.to_owned(), from: from.clone(), clear };
    let done = cx.submit_nth(n, Command::Conversation(command)).await;
    let done = done.map_err(|error| blamed(cx, error, ("team", team), from.as_deref(), None))?;
    let conversation = pair(&done.state)?;
    let conversation =
        conversation.ok_or_else(|| ToolError::new("the conversation left no trace"))?;
    let topic = Topic::Agent(conversation.agent.clone());
    let at_most = WAKE_WAIT.min(cx.inline_wait());
    let came = cx
        .wait(&topic, at_most, |state| {
            let agent = agent_of(state, &conversation)?;
            match agent.phase {
                Phase::Running if agent.is_ready() => Some(true),
                Phase::Asleep | Phase::Ended => Some(false),
                Phase::Queued | Phase::Running | Phase::Adopted | Phase::Ending => None,
            }
        })
        .await;
    let name = &conversation.to;
    let failure = failure(&cx.state(), &conversation);
    let status = match came {
        Some(true) => "awake",
        Some(false) => {
            let why = failure.unwrap_or_else(|| "it was put to sleep meanwhile".to_owned());
            let says = format!("team {name} did not wake up: {why}");
            return Err(ToolError::named("ProcessError", says));
        }
        None => "waking",
    };
    let message = match (status, was_awake) {
        ("awake", true) => format!("Team {name} is awake"),
        ("awake", false) => format!("Team {name} has woken up"),
        _ => {
            let why = failure.map(|why| format!("; its last start failed: {why}"));
            let why = why.unwrap_or_default();
            format!("Team {name} is waking up; call team_wake again to wait for it{why}")
        }
    };
    let now = now_ms(cx);
    let mut woken = json!({
        "team": name.as_str(), "status": status, "sessionId": conversation.id.to_string(), "message": message,
        "duration": now - began, "timestamp": now,
    });
    add_pid(cx, &mut woken, &conversation).await;
    Ok(woken)
}

/// Returns why the last process of a conversation's agent failed, if none is ready since.
fn failure(state: &State, conversation: &Conversation) -> Option<String> {
    agent_of(state, conversation)?.failure.as_ref().map(ToString::to_string)
}

pub(crate) struct TeamSleep;

/// End the process of the agent that you talk to in a team; its session stays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamSleepArgs {
    team: String,
    /// Your own team, if you say it.
    from_team: Option<String>,
    /// Kill it at once; default false: it is asked to end first.
    force: Option<bool>,
    /// Also those that others talk to; only operators.
    all: Option<bool>,
}

impl Tool for TeamSleep {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_sleep";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = TeamSleepArgs;

    async fn call(cx: &Call<'_>, args: TeamSleepArgs) -> Result<Reply, ToolError> {
        let began = now_ms(cx);
        let (all, at_once) = (args.all.unwrap_or(false), args.force.unwrap_or(false));
        let (team, from) = (args.team, args.from_team);
        let (to, speaks_for) = (team.clone(), from.clone());
        let command = conversation::Command::Sleep { to, from: speaks_for, all, at_once };
        let done = cx.submit(Command::Conversation(command)).await;
        let done =
            done.map_err(|error| blamed(cx, error, ("team", &team), from.as_deref(), None))?;
        let team = find(&done.state, "team", &team)?.name.clone();
        let slept: Vec<_> = done
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Agent(event) => Some(event.agent().clone()),
                _ => None,
            })
            .collect();
        let open = |id: &teamster_core::agent::AgentId| {
            let conversation = done.state.conversations.of_agent(id);
            conversation.map_or(0, |one| one.queue.len() + usize::from(one.current.is_some()))
        };
        // One that had not started sleeps at once, and what it was told is settled with that.
        let settled = |event: &&Event| {
            matches!(event, Event::Conversation(conversation::Event::Settled { .. }))
        };
        let n_terminated =
            slept.iter().map(open).sum::<usize>() + done.events.iter().filter(settled).count();
        let gone = cx
            .wait(&Topic::Agents, cx.inline_wait(), |state| {
                // Those that it drafted do not sleep, but end.
                let sleeps = |id: &teamster_core::agent::AgentId| {
                    let agent = state.agents.get(id.as_str());
                    agent.is_none_or(|agent| matches!(agent.phase, Phase::Asleep | Phase::Ended))
                };
                slept.iter().all(sleeps).then_some(())
            })
            .await
            .is_some();
        let (status, message) = match (slept.is_empty(), gone) {
            (true, _) => ("already_asleep", format!("Team {team} is already asleep")),
            (false, true) => ("asleep", format!("Team {team} has been put to sleep")),
            (false, false) => ("asleep", format!("Team {team} is going to sleep")),
        };
        let message = match n_terminated {
            0 => message,
            1 => format!("{message}; 1 message that was not answered is terminated"),
            n => format!("{message}; {n} messages that were not answered are terminated"),
        };
        let now = now_ms(cx);
        Ok(Reply::Json(json!({
            "team": team.as_str(), "status": status, "message": message, "terminated": n_terminated,
            "duration": now - began, "timestamp": now,
        })))
    }
}

pub(crate) struct TeamWakeAll;

/// Start the agents of all other teams, one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamWakeAllArgs {
    /// Your own team, if you say it.
    from_team: Option<String>,
    /// All at once, as far as the pool has room; default false.
    parallel: Option<bool>,
}

impl Tool for TeamWakeAll {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_wake_all";
    const NEEDS: Needs = Needs::Write;
    const WAITS: bool = true;
    type Args = TeamWakeAllArgs;

    async fn call(cx: &Call<'_>, args: TeamWakeAllArgs) -> Result<Reply, ToolError> {
        let began = now_ms(cx);
        let state = cx.state();
        let from = args.from_team;
        let partner = speaker(cx, &state, from.as_deref())?;
        let is_self = |team: &Team| partner == Partner::Team(team.name.clone());
        let names: Vec<String> = state
            .teams
            .iter()
            .filter(|team| !is_self(team))
            .map(|team| team.name.to_string())
            .collect();
        let one = async |(n, name): (usize, &String)| match wake(cx, n, name, from.clone(), false)
            .await
        {
            Ok(woken) => json!({
                "team": name, "success": true, "status": woken["status"], "message": woken["message"],
            }),
            Err(error) => {
                json!({"team": name, "success": false, "status": "waking", "error": error.says})
            }
        };
        let results: Vec<Value> = if args.parallel.unwrap_or(false) {
            futures_util::future::join_all(names.iter().enumerate().map(one)).await
        } else {
            let mut results = Vec::new();
            for name in names.iter().enumerate() {
                results.push(one(name).await);
            }
            results
        };
        let n_good = results.iter().filter(|result| result["success"] == true).count();
        let now = now_ms(cx);
        Ok(Reply::Json(json!({
            "totalTeams": results.len(), "successCount": n_good, "failureCount": results.len() - n_good,
            "results": results, "duration": now - began, "timestamp": now,
        })))
    }
}

pub(crate) struct TeamReport;

/// See how your conversation with a team stands: what was said, what waits, what is being said, and what its program
/// wrote to stderr.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamReportArgs {
    team: String,
    /// Your own team, if you say it.
    from_team: Option<String>,
}

impl Tool for TeamReport {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_report";
    const NEEDS: Needs = Needs::Read;
    type Args = TeamReportArgs;

    async fn call(cx: &Call<'_>, args: TeamReportArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let team = find(&state, "team", &args.team)?;
        let partner = speaker(cx, &state, args.from_team.as_deref())?;
        let conversation = state.conversations.of_pair(&partner, &team.name);
        let Some(conversation) = conversation else {
            return Ok(Reply::Json(json!({
                "team": team.name.as_str(), "hasSession": false, "hasProcess": false, "output": "",
                "timestamp": now_ms(cx),
            })));
        };
        let phase = agent_of(&state, conversation).map_or("ended", |agent| agent.phase.as_str());
        let all: Vec<_> = tells(&state, conversation).collect();
        let shown = &all[all.len().saturating_sub(REPORT_MESSAGES)..];
        let mut output = String::new();
        for tell in shown {
            let _ = writeln!(output, "> {}", tell.message);
            if let Progress::Settled { answer, how, .. } = &tell.progress {
                let _ = writeln!(output, "{answer}");
                if let How::Terminated { why } = how {
                    let _ = writeln!(output, "(terminated: {why})");
                }
            }
        }
        let live = cx.live(&conversation.agent).await;
        if conversation.current.is_some() {
            output.push_str(&live.said);
        }
        let mut report = json!({
            "team": team.name.as_str(), "sessionId": conversation.id.to_string(), "hasSession": true,
            "hasProcess": is_awake(&state, conversation), "processState": phase, "agentId": conversation.agent.as_str(),
            "queued": conversation.queue.len(), "output": output, "timestamp": now_ms(cx),
        });
        if let Some(pid) = live.pid {
            report["pid"] = pid.into();
        }
        if !live.stderr.is_empty() {
            report["stderr"] = live.stderr.into();
        }
        if let Some(failure) = failure(&state, conversation) {
            report["failure"] = failure.into();
        }
        Ok(Reply::Json(report))
    }
}

pub(crate) struct TeamCacheRead;

/// Read what was said in a conversation, newest last.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamCacheReadArgs {
    session_id: String,
    /// Default true.
    include_messages: Option<bool>,
    /// Messages of each entry, 1 to 100; default 10.
    message_count: Option<i64>,
    /// `json` or `text`; default json.
    format: Option<String>,
    /// Also what the agent did and when it started; default false.
    include_protocol_messages: Option<bool>,
    /// The nextCursor of the last page.
    cursor: Option<String>,
}

impl Tool for TeamCacheRead {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_cache_read";
    const NEEDS: Needs = Needs::Read;
    type Args = TeamCacheReadArgs;

    async fn call(cx: &Call<'_>, args: TeamCacheReadArgs) -> Result<Reply, ToolError> {
        let count = match args.message_count.map(u64::try_from) {
            None => MESSAGES_USUAL,
            Some(Ok(count)) if MESSAGES.contains(&count) => count,
            Some(_) => {
                return Err(invalid("messageCount", "messageCount must be between 1 and 100"));
            }
        };
        let as_text = match args.format.as_deref() {
            None | Some("json") => false,
            Some("text") => true,
            Some(_) => return Err(invalid("format", "format is json or text")),
        };
        let after = match args.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
            None => None,
            Some(cursor) => Some(TellId::parse(cursor).ok_or_else(|| {
                invalid("cursor", "unknown cursor; pass the nextCursor of the last page, or none")
            })?),
        };
        let state = cx.state();
        let conversation = session(cx, &state, &args.session_id)?;
        let all: Vec<_> = tells(&state, conversation).collect();
        let wanted = cache::Wanted {
            messages: args.include_messages.unwrap_or(true),
            protocol: args.include_protocol_messages.unwrap_or(false),
            n_messages: usize::try_from(count).unwrap_or(usize::MAX),
            as_text,
        };
        let (entries, next) = cache::page(cx, &state, conversation, &all, after, wanted).await?;
        let of =
            |words: &[&str]| entries.iter().filter(|entry| words.contains(&entry.status)).count();
        let mut answer = json!({
            "sessionId": conversation.id.to_string(),
            "stats": {
                "totalEntries": entries.len(), "activeEntries": of(&["queued", "active"]),
                "completedEntries": of(&["completed"]),
            },
        });
        if as_text {
            let text = entries.iter().filter_map(|entry| entry.shown.as_str()).collect::<String>();
            answer["text"] = text.into();
        } else {
            answer["entries"] = entries.into_iter().map(|entry| entry.shown).collect();
        }
        if state.conversations.n_unread(&conversation.from) > 0 {
            let read = conversation::Command::Read { conversation: conversation.id };
            cx.submit(Command::Conversation(read)).await?;
        }
        if let Some(next) = next {
            answer["nextCursor"] = next.to_string().into();
        }
        Ok(Reply::Json(answer))
    }
}

pub(crate) struct TeamCacheClear;

/// Begin what team_cache_read shows of a conversation anew. Messages that are not answered, and the transcript, stay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamCacheClearArgs {
    session_id: String,
    /// Your own team, if you say it.
    from_team: Option<String>,
}

impl Tool for TeamCacheClear {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_cache_clear";
    const NEEDS: Needs = Needs::Write;
    type Args = TeamCacheClearArgs;

    async fn call(cx: &Call<'_>, args: TeamCacheClearArgs) -> Result<Reply, ToolError> {
        speaker(cx, &cx.state(), args.from_team.as_deref())?;
        let id = session(cx, &cx.state(), &args.session_id)?.id;
        let command = conversation::Command::Clear { conversation: id };
        let done = cx.submit(Command::Conversation(command)).await?;
        let conversation = done.state.conversations.get(id);
        let n_left = conversation.map_or(0, |one| tells(&done.state, one).count());
        let message = match n_left {
            0 => "Cache cleared successfully".to_owned(),
            n => format!("Cache cleared up to the first message that is not answered; {n} stay"),
        };
        Ok(Reply::Json(json!({
            "success": true, "sessionId": id.to_string(), "message": message,
            "timestamp": now_ms(cx),
        })))
    }
}

pub(crate) struct TeamGetTeamName;

/// Find out which team a directory belongs to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TeamGetTeamNameArgs {
    /// An absolute path, such as your current directory.
    pwd: String,
}

impl Tool for TeamGetTeamName {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_getTeamName";
    const NEEDS: Needs = Needs::Read;
    type Args = TeamGetTeamNameArgs;

    async fn call(cx: &Call<'_>, args: TeamGetTeamNameArgs) -> Result<Reply, ToolError> {
        let is_path = args.pwd.starts_with('/') && !args.pwd.contains(char::is_control);
        if !is_path || args.pwd.len() > 4_096 {
            return Err(invalid("pwd", "pwd must be an absolute path"));
        }
        let state = cx.state();
        Ok(Reply::Json(match state.teams.at(&args.pwd) {
            Some(team) => {
                json!({"found": true, "teamName": team.name.as_str(), "path": team.directory})
            }
            None => json!({"found": false}),
        }))
    }
}

pub(crate) struct TeamTeams;

/// List the teams that you can tell something.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TeamTeamsArgs {
    /// Default false.
    include_process_details: Option<bool>,
}

impl Tool for TeamTeams {
    const SET: Set = Set::Teams;
    const NAME: &'static str = "team_teams";
    const NEEDS: Needs = Needs::Read;
    type Args = TeamTeamsArgs;

    async fn call(cx: &Call<'_>, args: TeamTeamsArgs) -> Result<Reply, ToolError> {
        let state = cx.state();
        let details = args.include_process_details.unwrap_or(false);
        let mut teams: Vec<Value> = Vec::new();
        for team in state.teams.iter() {
            let awake = state
                .conversations
                .with(&team.name)
                .find(|conversation| is_awake(&state, conversation));
            let skips =
                team.behaviour.permissions.otherwise == teamster_core::permission::Verdict::Allow;
            let mut config = json!({
                "path": team.directory, "description": team.description, "idleTimeout": team.idle_ms,
                "skipPermissions": skips,
            });
            if let Some(color) = &team.color {
                config["color"] = (&**color).into();
            }
            if let Some(remote) = &team.remote {
                config["remote"] = (&**remote).into();
            }
            let mut shown = json!({
                "name": team.name.as_str(), "status": if awake.is_some() { "awake" } else { "asleep" },
                "config": config,
            });
            if let (true, Some(conversation)) = (details, awake) {
                shown["process"] = json!({
                    "agentId": conversation.agent.as_str(), "sessionId": conversation.id.to_string(),
                    "messageCount": conversation.n_tells, "lastActivity": conversation.last_used_at.0,
                });
                add_pid(cx, &mut shown["process"], conversation).await;
            }
            teams.push(shown);
        }
        let n_awake = teams.iter().filter(|team| team["status"] == "awake").count();
        Ok(Reply::Json(json!({
            "totalTeams": teams.len(), "awakeTeams": n_awake, "asleepTeams": teams.len() - n_awake, "teams": teams,
            "timestamp": now_ms(cx),
        })))
    }
}
