//! Conversations for people's programs: who talks to whom, and what became of what was told.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::conversation::{Conversation, How, Partner, Progress, Tell};
use teamster_core::ids::ConversationId;
use teamster_core::{PrincipalName, State as Everything, TeamName};

use super::{Answer, Api, InPath, Problem};

/// As much as is shown of a message that was never begun; those that were are in the transcript, whole.
const MESSAGE_CHARS_MAX: usize = 4_000;

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/conversations", get(find)).route("/api/conversations/{id}", get(show))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    from: String,
    to: String,
}

async fn find(State(api): State<Api>, asked: Result<Query<Pair>, QueryRejection>) -> Answer {
    let Query(Pair { from, to }) = asked?;
    let state = api.hub.state();
    // A team and a person may have the same name.
    let partners = [
        TeamName::parse(&from).ok().map(Partner::Team),
        PrincipalName::parse(&from).ok().map(Partner::Principal),
    ];
    let found = TeamName::parse(&to).ok().and_then(|to| {
        let mut known = partners.iter().flatten();
        known.find_map(|from| state.conversations.of_pair(from, &to))
    });
    match found {
        Some(conversation) => Ok(Json(shown(&state, conversation))),
        None => {
            let (from, to) = (short(&from), short(&to));
            Err(Problem(StatusCode::NOT_FOUND, format!("{from} has told {to} nothing yet")))
        }
    }
}

async fn show(State(api): State<Api>, id: InPath) -> Answer {
    let Path(which) = id?;
    let state = api.hub.state();
    let found = ConversationId::parse(&which).and_then(|id| state.conversations.get(id));
    match found {
        Some(conversation) => Ok(Json(shown(&state, conversation))),
        None => {
            let message = format!("there is no conversation {:?}", short(&which));
            Err(Problem(StatusCode::NOT_FOUND, message))
        }
    }
}

fn short(name: &str) -> String {
    name.chars().take(80).collect()
}

fn shown(state: &Everything, conversation: &Conversation) -> Value {
    let agent = state.agents.get(conversation.agent.as_str());
    let behaviour = agent.and_then(|agent| state.behaviour(agent));
    let tells = conversation.tells.iter().filter_map(|id| state.conversations.tell(*id));
    json!({
        "id": conversation.id.to_string(), "from": conversation.from.as_str(), "to": conversation.to.as_str(),
        "agent": conversation.agent.as_str(), "program": behaviour.map(|behaviour| &*behaviour.program),
        "session": agent.map(|agent| &agent.session), "directory": agent.map(|agent| &agent.draft.directory),
        "remote": state.teams.get(conversation.to.as_str()).and_then(|team| team.remote.as_deref()),
        "tells": tells.map(|tell| told(tell)).collect::<Vec<_>>(),
    })
}

fn told(tell: &Tell) -> Value {
    let (status, reason) = match &tell.progress {
        Progress::Queued => ("queued", None),
        Progress::Active { .. } => ("active", None),
        Progress::Settled { how, .. } => match how {
            How::Completed => ("completed", None),
            How::Terminated { why } => ("terminated", Some(why)),
            How::Cancelled => ("cancelled", None),
        },
    };
    let begun = tell.records.after.is_some();
    let message =
        (!begun).then(|| tell.message.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
    json!({
        "id": tell.id.to_string(), "at": tell.at, "by": tell.by, "status": status, "reason": reason, "begun": begun,
        "message": message,
    })
}
