//! The turns of an agent that speaks for a team: one for each message of its conversation, in order. In between it rests.

use teamster_agents::agent::{Event, TurnEnd};
use teamster_core::agent::SleepWhy;
use teamster_core::conversation::{self, Conversation, How, Partner, Tell};
use teamster_core::ids::TellId;
use teamster_core::team::Team;
use teamster_core::{Caller, Command, State};
use tokio::time::Instant;

use super::{Finish, Talk, role};
use crate::agents::{self, resting::Rest, retention};
use crate::fence::{Author, Prompt};
use crate::hub::Claim;
use crate::plain::cleaned;

/// What an agent that lasts is in the middle of.
#[derive(Default)]
pub(super) struct Conversing {
    /// The message that it answers.
    pub(super) tell: Option<TellId>,
    /// It has nothing to do, since then; or it waits for its directory.
    pub(super) rests: Option<(Rest, Instant)>,
    /// What it has to do is in a directory that others may work in.
    pub(super) claim: Option<Claim>,
    /// Its program knows who it is.
    knows_its_role: bool,
}

/// Says whether a team is gone, or another than the one that an agent was started for.
pub(super) fn is_outdated(state: &State, started_for: &Team) -> bool {
    let Some(now) = state.teams.get(started_for.name.as_str()) else { return true };
    // How a team is shown, who has named it, and how long its agents rest, does not concern their processes.
    let shown_alike = Team {
        description: started_for.description.clone(),
        color: started_for.color.clone(),
        idle_ms: started_for.idle_ms,
        is_implicit: started_for.is_implicit,
        ..Team::clone(now)
    };
    shown_alike != *started_for
}

/// Returns a message as an agent reads it: the user's as it is, others' quoted.
fn told(conversation: &Conversation, tell: &Tell) -> Prompt {
    let mut prompt = Prompt::default();
    // Anybody may be called like a team.
    let from = |prompt: &mut Prompt| match &conversation.from {
        Partner::Team(team) => drop(prompt.ours("team ").known(team)),
        Partner::Principal(name) => drop(prompt.known(name).ours(", who is of no team")),
    };
    if tell.answer_to.is_some() {
        prompt.ours("A late answer (").known(&tell.id);
        prompt.ours("). Go on with what you needed it for; your last words are kept for ");
        from(&mut prompt);
        prompt.ours(".\n\n").quote(&tell.message);
        return prompt;
    }
    prompt.ours("Message from ");
    from(&mut prompt);
    prompt.ours(" (").known(&tell.id).ours("). Your last words are sent back as the answer.\n\n");
    // The user may speak for any team.
    match Author::of(&tell.by) {
        Author::User => prompt.users(&tell.message),
        Author::Hub | Author::Other(_) => prompt.quote(&tell.message),
    };
    prompt
}

impl Talk<'_> {
    /// Begins with the next message, or rests.
    pub(super) async fn next_tell(&mut self, resumed: bool) -> Option<Finish> {
        self.conversing.rests = None;
        // What is not begun yet is begun with what holds now; what was begun is gone on with.
        let state = self.shared.hub.state();
        let is_between =
            state.conversations.of_agent(&self.agent.id).is_some_and(|one| one.current.is_none());
        if is_between && self.team.as_ref().is_some_and(|team| is_outdated(&state, team)) {
            return Some(Finish::Asleep(SleepWhy::Changed));
        }
        self.conversing.knows_its_role |= resumed;
        if !self.has_a_place() {
            let rest = self.shared.resting.enter(&self.agent.id);
            self.conversing.rests = Some((rest, Instant::now()));
            return None;
        }
        let (agent, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        let last_record = self.last_record;
        let begin = conversation::Command::Begin { agent, incarnation, last_record };
        let begun = self.shared.hub.submit(Caller::hub(), Command::Conversation(begin), None).await;
        let done = match begun {
            Ok(done) => done,
            Err(failure) => return Some(Finish::Interrupted(failure.to_string())),
        };
        let conversation = done.state.conversations.of_agent(&self.agent.id)?;
        let is_refused = done.events.iter().any(|event| {
            matches!(event, teamster_core::Event::Conversation(conversation::Event::Settled { .. }))
        });
        if is_refused {
            return Some(Finish::Asleep(SleepWhy::Idle));
        }
        let Some(tell) = conversation.current else {
            self.conversing.claim = None;
            let rest = self.shared.resting.enter(&self.agent.id);
            self.conversing.rests = Some((rest, Instant::now()));
            return None;
        };
        self.conversing.tell = Some(tell);
        // What was begun before this process is gone on with.
        let is_again = !done.events.iter().any(|event| {
            matches!(event, teamster_core::Event::Conversation(conversation::Event::Begun { .. }))
        });
        let prompt = self.message(&done.state, conversation, tell, is_again)?;
        self.last_words.clear();
        self.message = None;
        self.spending.begin();
        self.guard.begin_turn();
        self.denials.begin();
        self.progress_at = Instant::now();
        // While it rested, it had nothing to say.
        self.heard_at = Instant::now();
        let prompted = self.send(&prompt);
        // While it begins. What it is told stands before what it says, for that is not heard before this.
        self.keep_told(&done.state, conversation, tell, is_again).await;
        match prompted {
            Ok(()) => None,
            Err(refusal) => Some(Finish::Interrupted(self.last_signs(&refusal.to_string()))),
        }
    }

    /// Says whether it can work where its conversation is about; if not, it is in line for it as soon as there is something
    /// to do.
    fn has_a_place(&mut self) -> bool {
        let state = self.shared.hub.state();
        let conversation = state.conversations.of_agent(&self.agent.id);
        let has_work = conversation.is_some_and(|conversation| conversation.has_work());
        let Some(tree) = agents::tree(&state, self.agent).filter(|_| has_work) else { return true };
        let trees = self.shared.hub.trees();
        let claim = self.conversing.claim.get_or_insert_with(|| trees.claim(&self.agent.id, tree));
        claim.is_granted()
    }

    /// Notes in the transcript which message what follows is about.
    async fn keep_told(
        &mut self,
        state: &State,
        conversation: &Conversation,
        tell: TellId,
        again: bool,
    ) {
        let Some(tell) = state.conversations.tell(tell) else { return };
        self.keep(Event::Told {
            tell: tell.id.to_string(),
            from: conversation.from.to_string(),
            to: conversation.to.to_string(),
            text: tell.message.to_string(),
            told_at_ms: u64::try_from(tell.at.0).unwrap_or_default(),
            again,
        })
        .await;
    }

    /// Returns what the agent is told.
    fn message(
        &mut self,
        state: &State,
        conversation: &Conversation,
        tell: TellId,
        is_again: bool,
    ) -> Option<Prompt> {
        let tell = state.conversations.tell(tell)?;
        let knows_its_role = std::mem::replace(&mut self.conversing.knows_its_role, true);
        let role = (!knows_its_role).then(|| role(self.role));
        let again = is_again.then(|| {
            Prompt::from(
                "You were cut off while you answered this message. What you did before is done: look at it, then go on from there.",
            )
        });
        let parts = [role, again, Some(told(conversation, tell))];
        Some(Prompt::parts(parts.into_iter().flatten()))
    }

    /// Deals with the end of a turn, and goes on with the next message.
    pub(super) async fn answered_tell(&mut self, end: TurnEnd) -> Option<Finish> {
        let why = match end.clone() {
            TurnEnd::Done | TurnEnd::MaxTokens | TurnEnd::MaxTurns => None,
            TurnEnd::Cancelled => Some("its turn was cancelled".to_owned()),
            TurnEnd::Refused => Some("the model would not go on".to_owned()),
            TurnEnd::Failed { message } => {
                if let Some((until, why)) = self.limit.take() {
                    self.keep(Event::TurnEnded(end)).await;
                    return Some(Finish::Parked { until, why });
                }
                Some(message)
            }
            TurnEnd::Gone => {
                self.keep(Event::TurnEnded(end)).await;
                return Some(Finish::Interrupted(
                    self.last_signs("its program ended in the middle of its turn"),
                ));
            }
        };
        let how = why.map_or(How::Completed, |why| How::Terminated { why: why.into() });
        self.settle_and_go_on(Some(end), how).await
    }

    /// Says what came of the message, and begins with the next one.
    pub(super) async fn settle_and_go_on(
        &mut self,
        end: Option<TurnEnd>,
        how: How,
    ) -> Option<Finish> {
        self.settle_after(end.map(Event::TurnEnded), how).await;
        retention::after_turn(self.shared, &self.agent.id, &self.transcript).await;
        // Others come first who have waited for the directory.
        self.conversing.claim = None;
        self.next_tell(true).await
    }

    /// Says what came of the message under way, with what was said so far.
    pub(super) async fn settle(&mut self, how: How) {
        self.settle_after(None, how).await;
    }

    /// The same, with the last event of its turn, so that both are kept at once.
    async fn settle_after(&mut self, last: Option<Event>, how: How) {
        let Some(tell) = self.conversing.tell.take() else {
            if let Some(last) = last {
                self.keep(last).await;
            }
            return;
        };
        let (agent, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        let session = self.shared.hub.state().conversations.of_agent(&agent).map(|one| one.id);
        let answer = cleaned(&self.last_words.whole(|n_cut| {
            let session = session.map(|id| id.to_string()).unwrap_or_default();
            format!("[{n_cut} bytes before this are only in the transcript of {session}]\n")
        }));
        let why = match &how {
            How::Terminated { why } => Some(why.to_string()),
            How::Completed | How::Cancelled => None,
        };
        let completed = how == How::Completed;
        let settled = Event::Settled { tell: tell.to_string(), completed, why };
        self.keep_all(last.into_iter().chain([settled])).await;
        let (last_record, used) = (self.last_record, self.take_used().await);
        let settle = conversation::Command::Settle {
            agent,
            incarnation,
            tell,
            how,
            answer,
            last_record,
            used,
        };
        self.shared.tell_hub(Command::Conversation(settle)).await;
        self.shared.hub.words().set(&self.agent.id, "");
    }
}
