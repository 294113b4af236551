//! Teams for people's programs: who talks to them and how that stands, and waiting until something happens.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use teamster_core::agent::Phase;
use teamster_core::conversation::Conversation;
use teamster_core::team;
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Command, Timestamp};
use teamster_mcp::Hub as _;

use crate::agents;
use crate::config;

use super::stands::holds_up;
use super::waiting::wait_for_event;
use super::{Answer, Api, InPath, Query, submit};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/teams", get(list)).route("/api/teams/{name}/remove", post(remove))
}

/// Removes a team that is one only because a hub was started in its directory. Others are removed from the configuration.
async fn remove(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    name: InPath,
) -> Answer {
    let Path(name) = name?;
    let hub_directory = api.hub.directory().into();
    let remove = team::Command::Remove { name: name.clone(), hub_directory };
    submit(&api, &token, Command::Team(remove)).await?;
    Ok(Json(json!({"name": name, "removed": true})))
}

/// A team as `teamster teams` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub name: String,
    pub path: String,
    pub description: String,
    pub color: Option<String>,
    /// Why it cannot work, as far as can be seen from here.
    #[serde(default)]
    pub problem: Option<String>,
    /// Nobody has described it: a hub was started in its directory.
    #[serde(default)]
    pub is_automatic: bool,
    pub conversations: Vec<Talk>,
}

/// One of its conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talk {
    pub id: String,
    pub from: String,
    pub agent: String,
    /// `busy`, `awake`, `starting` or `asleep`.
    pub status: String,
    pub queued: usize,
    pub messages: u32,
    pub last_used_at: Timestamp,
    /// What keeps its agent from going on, if it has something to do.
    #[serde(default)]
    pub holds_up: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The last event that the caller has seen the effect of.
    #[serde(default)]
    after: u64,
    /// How long to wait if there is none after it.
    #[serde(default)]
    wait_ms: u64,
}

async fn list(State(api): State<Api>, asked: Result<Query<ListQuery>, QueryRejection>) -> Answer {
    let Query(ListQuery { after, wait_ms }) = asked?;
    wait_for_event(&api, wait_ms, &Topic::Log, after).await;
    let state = api.hub.state();
    Ok(Json(json!({"seq": state.seq(), "teams": all(&api, &state)})))
}

/// Returns all teams, with who talks to them.
pub(super) fn all(api: &Api, state: &teamster_core::State) -> Vec<Shown> {
    let talk = |conversation: &Arc<Conversation>| {
        let agent = state.agents.get(conversation.agent.as_str());
        let status = match agent.map(|agent| (agent.phase, &agent.session)) {
            Some((Phase::Running | Phase::Ending, Some(_))) if conversation.current.is_some() => {
                "busy"
            }
            Some((Phase::Running | Phase::Ending, Some(_))) => "awake",
            Some((Phase::Running | Phase::Ending | Phase::Queued | Phase::Adopted, _)) => {
                "starting"
            }
            Some((Phase::Asleep | Phase::Ended, _)) | None => "asleep",
        };
        let has_work = conversation.has_work();
        let is_begun = conversation.current.is_some();
        let holds_up = |agent| holds_up(state, api.hub.trees(), agent, is_begun);
        Talk {
            holds_up: agent.filter(|_| has_work).and_then(holds_up),
            id: conversation.id.to_string(),
            from: conversation.from.to_string(),
            agent: conversation.agent.to_string(),
            status: status.to_owned(),
            queued: conversation.queue.len(),
            messages: conversation.n_tells,
            last_used_at: conversation.last_used_at,
        }
    };
    let configuration = api.configured.current();
    let search_path = config::search_path();
    state
        .teams
        .iter()
        .map(|team| Shown {
            name: team.name.to_string(),
            path: match &team.remote {
                Some(remote) => format!("{remote}:{}", team.directory),
                None => team.directory.to_string(),
            },
            description: team.description.to_string(),
            color: team.color.as_ref().map(ToString::to_string),
            problem: agents::team_problem(&configuration, &search_path, team),
            is_automatic: team.is_implicit,
            conversations: state.conversations.with(&team.name).map(talk).collect(),
        })
        .collect()
}
