//! What a message to a team waits for, in words for people.

use std::sync::Arc;

use teamster_core::State;
use teamster_core::agent::Agent;
use teamster_core::conversation::{How, Progress, Tell};

use crate::agents;
use crate::hub::Trees;

/// Says how a message stands.
pub(super) fn stands(state: &State, trees: &Trees, tell: &Tell) -> String {
    let conversation = state.conversations.get(tell.conversation);
    let agent = conversation.and_then(|one| state.agents.get(one.agent.as_str()));
    let (Some(conversation), Some(agent)) = (conversation, agent) else { return String::new() };
    let is_begun = match &tell.progress {
        Progress::Settled { how, .. } => return settled(how).to_owned(),
        Progress::Active { .. } => true,
        Progress::Queued => false,
    };
    let in_queue = conversation.queue.iter().take_while(|id| **id != tell.id).count();
    let before = in_queue + usize::from(conversation.current.is_some());
    match if is_begun { 0 } else { before } {
        0 => {}
        1 => return "waits until another message is answered".to_owned(),
        n => return format!("waits until {n} other messages are answered"),
    }
    holds_up(state, trees, agent, is_begun).unwrap_or_else(|| {
        let word = if is_begun { "is being answered" } else { "waits until its agent is started" };
        word.to_owned()
    })
}

fn settled(how: &How) -> &'static str {
    match how {
        How::Completed => "was answered",
        How::Terminated { .. } => "was terminated",
        How::Cancelled => "was taken back",
    }
}

/// Says what keeps a conversation's agent from going on, if something does.
pub(super) fn holds_up(
    state: &State,
    trees: &Trees,
    agent: &Arc<Agent>,
    is_begun: bool,
) -> Option<String> {
    if let Some(question) = state.questions.open_of(&agent.id).next() {
        let id = question.id;
        return Some(format!("waits for your answer to {id} (`teamster questions` shows it)"));
    }
    if let Some(parked) = &agent.parked {
        let until = jiff::Timestamp::from_millisecond(parked.until.0).ok()?;
        return Some(format!("its agent is parked until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ")));
    }
    // Whoever has begun has its directory, or leaves it to others while it waits for them.
    let tree = agents::tree(state, agent).filter(|_| !is_begun)?;
    match trees.worker(&tree) {
        Some(worker) if worker != agent.id => {
            Some(format!("waits for {}, in which {worker} works", tree.directory))
        }
        Some(_) | None => None,
    }
}
