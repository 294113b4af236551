//! Answers that nobody waits for: they are brought to the agent that asked as a message, or kept until they are read.

use std::sync::Arc;

use super::{
    Chain, Conversation, Conversations, Event, How, MESSAGE_BYTES_MAX, Partner, Progress,
    QUEUE_MAX, Tell,
};
use crate::agent::AgentId;
use crate::ids::TellId;
use crate::text;

/// As much of a message as is said again with its answer.
const ABOUT_BYTES_MAX: usize = 200;

impl Conversations {
    /// Returns the message that brings an asker the answer to one of its own, the `n`th of those that are sent at once.
    /// Of more than it can work off, it has to ask.
    pub(crate) fn delivery(&self, of: &Tell, how: &How, answer: &str, n: u32) -> Option<Event> {
        let asker = of.asker.as_ref()?;
        let conversation = self.of_agent(&asker.agent)?;
        let to = &self.by_id.get(&of.conversation)?.to;
        if of.is_delivered || conversation.queue.len() >= 2 * QUEUE_MAX {
            return None;
        }
        let about = of.message.lines().next().unwrap_or_default();
        let about = text::beginning(about, ABOUT_BYTES_MAX);
        let said = match how {
            How::Completed => format!("{to} has answered your message {} ({about}):", of.id),
            How::Terminated { why } => format!(
                "{to} has not answered your message {} ({about}): {why}. It had said:",
                of.id
            ),
            How::Cancelled => format!("your message {} to {to} ({about}) was taken back.", of.id),
        };
        let message = text::beginning(&format!("{said}\n\n{answer}"), MESSAGE_BYTES_MAX);
        Some(Event::Told {
            id: TellId(self.last_tell + 1 + n),
            conversation: conversation.id,
            message,
            chain: Chain { first: of.chain.first, length: of.chain.length + 1 },
            is_awaited: false,
            asker: None,
            answer_to: Some(of.id),
        })
    }

    /// Returns what an agent asked others in the turn that it is in, and may not have heard the answer to.
    pub(crate) fn unheard_by(&self, agent: &AgentId) -> Vec<&Arc<Tell>> {
        let Some(conversation) = self.of_agent(agent) else { return Vec::new() };
        let current = conversation.current.and_then(|tell| self.tells.get(&tell));
        let Some(Progress::Active { since }) = current.map(|tell| &tell.progress) else {
            return Vec::new();
        };
        let own = self.of_partner(&Partner::Team(conversation.to.clone())).collect::<Vec<_>>();
        let recent = own.into_iter().flat_map(|one| {
            let tells = one.tells.iter().rev().filter_map(|id| self.tells.get(id));
            tells.take_while(|tell| tell.at >= *since)
        });
        let is_its = |tell: &&Arc<Tell>| {
            tell.is_awaited && tell.asker.as_ref().is_some_and(|asker| asker.agent == *agent)
        };
        recent.filter(is_its).collect()
    }

    /// Returns how many answers in its conversations somebody has neither waited for nor read.
    pub fn n_unread(&self, partner: &Partner) -> usize {
        let own = self.of_partner(partner);
        own.map(|conversation| self.unread(conversation).count()).sum()
    }

    /// Says whether an answer was neither waited for nor read.
    pub(crate) fn is_unread(&self, tell: &Tell) -> bool {
        let read = self.by_id.get(&tell.conversation).and_then(|one| one.read);
        Some(tell.id) > read
            && tell.is_settled()
            && !tell.is_awaited
            && !tell.is_delivered
            && tell.answer_to.is_none()
    }

    pub(super) fn unread(&self, conversation: &Conversation) -> impl Iterator<Item = &Arc<Tell>> {
        let read = conversation.read;
        let late = conversation.tells.iter().rev().take_while(move |id| Some(**id) > read);
        let late = late.filter_map(|id| self.tells.get(id));
        late.filter(|tell| self.is_unread(tell))
    }
}
