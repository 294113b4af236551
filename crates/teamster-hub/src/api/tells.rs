//! Messages to teams for people's programs: how one stands, and waiting for its answer.

use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use futures_util::future::select;
use teamster_api::paths::{CancelTell, ShowTell, TellTeam};
use teamster_api::tells::{self, CancelledTell, Told};
use teamster_api::{ApiError, Code};
use teamster_core::conversation::{self, How, NewTell, Progress, Tell};
use teamster_core::ids::{ConversationId, TellId};
use teamster_core::topic::Topic;
use teamster_core::{Command, Event, State};
use teamster_mcp::Hub as _;

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, internal};
use super::stands::stands;
use super::waiting::wait_for;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<TellTeam, _, _>(tell)
        .serve::<ShowTell, _, _>(show)
        .serve::<CancelTell, _, _>(cancel)
}

fn unknown(which: &str) -> ApiError {
    let which: String = which.chars().take(80).collect();
    let says = format!(
        "there is no message {which:?} at hand; `teamster transcript` has those of long ago"
    );
    ApiError::new(Code::NotFound, says)
}

fn find(api: &Api, which: &str) -> Result<(TellId, ConversationId), ApiError> {
    let id = TellId::parse(which).ok_or_else(|| unknown(which))?;
    let state = api.hub.state();
    let tell = state.conversations.tell(id).ok_or_else(|| unknown(which))?;
    Ok((id, tell.conversation))
}

/// Tells a team something; its answer is asked for by the id.
async fn tell(ApiRequest { by, body, .. }: ApiRequest<TellTeam>) -> Answered<TellTeam> {
    let tells::NewTell { to, from, message, wait } = body;
    let new = NewTell { to, from, message, is_awaited: wait };
    let done = by.submit(Command::Conversation(conversation::Command::Tell(new))).await?;
    let told = done.events.iter().find_map(|event| match event {
        Event::Conversation(
            conversation::Event::Told { id, conversation, .. }
            | conversation::Event::Joined { id, conversation, .. },
        ) => Some(Told { tell_id: id.to_string(), session_id: conversation.to_string() }),
        _ => None,
    });
    told.ok_or_else(|| internal("the message left no trace"))
}

/// Cancels a message that is not begun; says how it stands.
async fn cancel(
    ApiRequest { by, param: which, .. }: ApiRequest<CancelTell>,
) -> Answered<CancelTell> {
    let (tell, _) = find(&by.api, &which)?;
    let cancel = conversation::Command::Cancel { tell };
    let done = by.submit(Command::Conversation(cancel)).await?;
    let status = done.state.conversations.tell(tell).map(|tell| status(&tell.progress));
    let cancelled = !done.events.is_empty();
    Ok(CancelledTell { tell_id: tell.to_string(), cancelled, status })
}

pub(super) fn status(progress: &Progress) -> tells::Status {
    match progress {
        Progress::Queued => tells::Status::Queued,
        Progress::Active { .. } => tells::Status::Active,
        Progress::Settled { how, .. } => match how {
            How::Completed => tells::Status::Completed,
            How::Terminated { .. } => tells::Status::Terminated,
            How::Cancelled => tells::Status::Cancelled,
        },
    }
}

async fn show(
    ApiRequest { by, param: which, query, .. }: ApiRequest<ShowTell>,
) -> Answered<ShowTell> {
    let api = &by.api;
    let (id, conversation) = find(api, &which)?;
    let trees = api.hub.trees();
    let known = query.stands;
    let is_new = |state: &State| {
        let is_new = |tell: &Arc<Tell>| {
            let differs = |known: &String| *known != stands(state, trees, tell);
            tell.is_settled() || known.as_ref().is_some_and(differs)
        };
        state.conversations.tell(id).is_none_or(is_new).then_some(())
    };
    // What it waits for may be anything; its end is of its conversation.
    let topic = if known.is_some() { Topic::Log } else { Topic::Conversation(conversation) };
    let watch = api.hub.watch(&topic);
    let told = watch.until(&api.hub, is_new);
    let moved = trees.until(|| is_new(&api.hub.state()));
    wait_for(api, query.wait_ms, select(pin!(told), pin!(moved))).await;
    let state = api.hub.state();
    let tell = state.conversations.tell(id).ok_or_else(|| unknown(&which))?;
    let agent = state.conversations.get(conversation).map(|conversation| &conversation.agent);
    let (answer, reason) = match &tell.progress {
        Progress::Queued => (String::new(), None),
        Progress::Active { .. } => {
            (agent.map(|agent| api.hub.words().get(agent)).unwrap_or_default(), None)
        }
        Progress::Settled { how, answer, .. } => match how {
            How::Completed | How::Cancelled => (answer.to_string(), None),
            How::Terminated { why } => (answer.to_string(), Some(why.to_string())),
        },
    };
    Ok(tells::Tell {
        tell_id: tell.id.to_string(),
        session_id: conversation.to_string(),
        message: tell.message.to_string(),
        status: status(&tell.progress),
        stands: stands(&state, trees, tell),
        answer,
        reason,
        at: tell.at.0,
    })
}
