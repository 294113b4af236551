//! What follows for messages and agents when a team is no longer there: nobody waits for an answer that cannot come.

use super::State;
use crate::agent::{self, Phase, SleepWhy};
use crate::conversation::{self, How};
use crate::{Event, TeamName, team};

impl State {
    /// Adds to the removal of a team what becomes of what it was told. Its conversations stay, and go on if it comes back.
    pub(super) fn with_removals(&self, events: Vec<team::Event>) -> Vec<Event> {
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            let follows = match &event {
                team::Event::Removed { name } => self.after_removal(name),
                team::Event::Defined { .. } => Vec::new(),
            };
            all.push(Event::Team(event));
            all.extend(follows);
        }
        all
    }

    fn after_removal(&self, team: &TeamName) -> Vec<Event> {
        let why = format!("the team {team} was removed from the configuration");
        let mut all = Vec::new();
        for conversation in self.conversations.with(team) {
            let agent = self.agents.get(conversation.agent.as_str());
            if let Some(agent) = agent.filter(|agent| agent.phase == Phase::Queued) {
                let why = SleepWhy::NotStarted { says: why.as_str().into() };
                let slept = agent::Event::Slept { id: agent.id.clone(), why };
                all.extend(self.with_endings(vec![slept]));
                continue;
            }
            // What is being answered is answered.
            all.extend(conversation.queue.iter().map(|tell| {
                Event::Conversation(conversation::Event::Settled {
                    id: *tell,
                    conversation: conversation.id,
                    how: How::Terminated { why: why.as_str().into() },
                    up_to: None,
                    answer: "".into(),
                })
            }));
        }
        all
    }
}
