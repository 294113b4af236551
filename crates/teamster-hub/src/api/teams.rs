//! Teams for people's programs: who talks to them and how that stands, and waiting until something happens.

use std::sync::Arc;

use axum::Router;
use teamster_api::paths::{ListTeams, RemoveTeam};
use teamster_api::teams::{self, Doing, Talk};
use teamster_core::Command;
use teamster_core::agent::Phase;
use teamster_core::conversation::Conversation;
use teamster_core::team;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, page};
use super::stands::holds_up;
use super::waiting::wait_for_event;
use crate::{agents, config};

pub(super) fn routes() -> Router<Api> {
    Router::new().serve::<ListTeams, _, _>(list).serve::<RemoveTeam, _, _>(remove)
}

/// Removes a team that is one only because a hub was started in its directory. Others are removed from the configuration.
async fn remove(
    ApiRequest { by, param: name, .. }: ApiRequest<RemoveTeam>,
) -> Answered<RemoveTeam> {
    let hub_directory = by.api.hub.directory().into();
    let remove = team::Command::Remove { name: name.clone(), hub_directory };
    by.submit(Command::Team(remove)).await?;
    Ok(teams::RemovedTeam { name, removed: true })
}

async fn list(ApiRequest { by, query, .. }: ApiRequest<ListTeams>) -> Answered<ListTeams> {
    let api = &by.api;
    wait_for_event(api, query.wait_ms, &Topic::Log, query.after).await;
    let state = api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    page(state.seq(), all(api, &state).into_iter(), |team| team.name.clone(), |team| team, which)
}

/// Returns all teams, with who talks to them.
pub(super) fn all(api: &Api, state: &teamster_core::State) -> Vec<teams::Team> {
    let talk = |conversation: &Arc<Conversation>| {
        let agent = state.agents.get(conversation.agent.as_str());
        let status = match agent.map(|agent| (agent.phase, &agent.session)) {
            Some((Phase::Running | Phase::Ending, Some(_))) if conversation.current.is_some() => {
                Doing::Busy
            }
            Some((Phase::Running | Phase::Ending, Some(_))) => Doing::Awake,
            Some((Phase::Running | Phase::Ending | Phase::Queued | Phase::Adopted, _)) => {
                Doing::Starting
            }
            Some((Phase::Asleep | Phase::Ended, _)) | None => Doing::Asleep,
        };
        let has_work = conversation.has_work();
        let is_begun = conversation.current.is_some();
        let holds_up = |agent| holds_up(state, api.hub.trees(), agent, is_begun);
        Talk {
            holds_up: agent.filter(|_| has_work).and_then(holds_up),
            id: conversation.id.to_string(),
            from: conversation.from.to_string(),
            agent: conversation.agent.to_string(),
            status,
            queued: conversation.queue.len(),
            messages: conversation.n_tells,
            last_used_at: conversation.last_used_at.0,
        }
    };
    let configuration = api.configured.current();
    let search_path = config::search_path();
    state
        .teams
        .iter()
        .map(|team| teams::Team {
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
