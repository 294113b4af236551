//! Conversations for people's programs: who talks to whom, and what became of what was told.

use axum::Router;
use teamster_api::paths::{FindConversation, ShowConversation};
use teamster_api::{ApiError, Code, conversations};
use teamster_core::conversation::{Conversation, How, Partner, Progress, Tell};
use teamster_core::ids::ConversationId;
use teamster_core::{PrincipalName, State as Everything, TeamName};

use super::serving::{Answered, ApiRequest, Serve as _};
use super::tells::status;
use super::{Api, shapes};

/// As many conversations as are named to somebody who looks for another.
const CONVERSATIONS_SAID: usize = 10;
/// As much as is shown of a message that was never begun; those that were are in the transcript, whole.
const MESSAGE_CHARS_MAX: usize = 4_000;

pub(super) fn routes() -> Router<Api> {
    Router::new().serve::<FindConversation, _, _>(find).serve::<ShowConversation, _, _>(show)
}

async fn find(
    ApiRequest { by, query, .. }: ApiRequest<FindConversation>,
) -> Answered<FindConversation> {
    let conversations::FindConversation { from, to } = query;
    let state = by.api.hub.state();
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
        Some(conversation) => Ok(shown(&state, conversation)),
        None => Err(ApiError::new(Code::NotFound, no_talk(&state, &from, &to))),
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

async fn show(
    ApiRequest { by, param: which, .. }: ApiRequest<ShowConversation>,
) -> Answered<ShowConversation> {
    let state = by.api.hub.state();
    let found = ConversationId::parse(&which).and_then(|id| state.conversations.get(id));
    match found {
        Some(conversation) => Ok(shown(&state, conversation)),
        None => {
            let which = short(&which);
            let message = format!(
                "there is no conversation {which:?}; `teamster teams` shows those there are, and two names find one"
            );
            Err(ApiError::new(Code::NotFound, message))
        }
    }
}

fn short(name: &str) -> String {
    name.chars().take(80).collect()
}

fn shown(state: &Everything, conversation: &Conversation) -> conversations::Conversation {
    let agent = state.agents.get(conversation.agent.as_str());
    let behaviour = agent.and_then(|agent| state.behaviour(agent));
    let team = state.teams.get(conversation.to.as_str());
    let tells = conversation.tells.iter().filter_map(|id| state.conversations.tell(*id));
    conversations::Conversation {
        id: conversation.id.to_string(),
        from: conversation.from.to_string(),
        to: conversation.to.to_string(),
        agent: conversation.agent.to_string(),
        program: behaviour.map(|behaviour| behaviour.program.to_string()),
        session: agent.and_then(|agent| shapes::text(agent.session.as_ref())),
        directory: agent.map(|agent| agent.draft.directory.to_string()),
        remote: team.and_then(|team| shapes::text(team.remote.as_ref())),
        tells: tells.map(|tell| told(tell)).collect(),
    }
}

fn told(tell: &Tell) -> conversations::Message {
    let reason = match &tell.progress {
        Progress::Settled { how: How::Terminated { why }, .. } => Some(why.to_string()),
        Progress::Settled { .. } | Progress::Queued | Progress::Active { .. } => None,
    };
    let begun = tell.records.after.is_some();
    let message = || tell.message.chars().take(MESSAGE_CHARS_MAX).collect();
    conversations::Message {
        id: tell.id.to_string(),
        at: tell.at.0,
        by: tell.by.to_string(),
        status: status(&tell.progress),
        reason,
        begun,
        message: (!begun).then(message),
    }
}
