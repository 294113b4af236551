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

use super::tells::progress_word;
use super::{Answer, Api, InPath, Problem};

/// As many conversations as are named to somebody who looks for another.
const CONVERSATIONS_SAID: usize = 10;
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
        None => Err(Problem(StatusCode::NOT_FOUND, no_talk(&state, &from, &to))),
    }
}

/// Says why two have no conversation, and which there are.
fn no_talk(state: &Everything, from: &str, to: &str) -> String {
    let (who, whom) = (short(from), short(to));
    if let Some(id) = ConversationId::parse(from) {
        return format!("{id} is a conversation already; leave {whom} out");
    }
    let is_known = |name: &str| {
        state.teams.get(name).is_some()
            || state
                .conversations
                .iter()
                .any(|one| one.from.as_str() == name || one.to.as_str() == name)
    };
    let has_token = state.tokens.live().any(|token| token.principal.as_str() == from);
    let says = match (has_token || is_known(from), is_known(to)) {
        (true, true) => format!("{who} has told {whom} nothing yet"),
        (true, false) => format!("there is no team {whom:?}"),
        (false, _) => format!("nobody is called {who:?}"),
    };
    let there: Vec<String> = state
        .conversations
        .iter()
        .take(CONVERSATIONS_SAID)
        .map(|one| format!("{} ({} {})", one.id, one.from, one.to))
        .collect();
    match (there.len(), state.conversations.iter().count()) {
        (0, _) => format!("{says}; there are no conversations yet"),
        (n, all) if n == all => format!("{says}; there are {}", there.join(", ")),
        (_, _) => format!("{says}; there are {}, …; `teamster teams` shows all", there.join(", ")),
    }
}

async fn show(State(api): State<Api>, id: InPath) -> Answer {
    let Path(which) = id?;
    let state = api.hub.state();
    let found = ConversationId::parse(&which).and_then(|id| state.conversations.get(id));
    match found {
        Some(conversation) => Ok(Json(shown(&state, conversation))),
        None => {
            let which = short(&which);
            let message = format!(
                "there is no conversation {which:?}; `teamster teams` shows those there are, and two names find one"
            );
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
    let status = progress_word(&tell.progress);
    let reason = match &tell.progress {
        Progress::Settled { how: How::Terminated { why }, .. } => Some(why),
        Progress::Settled { .. } | Progress::Queued | Progress::Active { .. } => None,
    };
    let begun = tell.records.after.is_some();
    let message =
        (!begun).then(|| tell.message.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
    json!({
        "id": tell.id.to_string(), "at": tell.at, "by": tell.by, "status": status, "reason": reason, "begun": begun,
        "message": message,
    })
}
