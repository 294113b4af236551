//! What becomes of a turn after a call was not permitted. Some programs end the turn then, without a word of the agent, as
//! if all were done: their agent is prompted once more, so that it continues or says why it stops.

use teamster_agents::agent::{Event, PermissionId, TurnEnd};
use teamster_core::Command;
use teamster_core::agent::{self, Ending, Status};
use teamster_core::conversation::How;
use tokio::time::Instant;

use super::{Finish, Recorded, Talk};
use crate::fence::{Author, Prompt};

/// Maximum prompts after denials in one turn. A program that ends its turn at each of them would take turns for ever.
const PROMPTS_MAX: u32 = 5;
/// What is shown of a call that was not permitted.
const WHAT_CHARS_MAX: usize = 200;

/// The denied calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// The last one, if the agent has said nothing since.
    unanswered: Option<String>,
    /// What people are asked for.
    asked: Vec<(PermissionId, String)>,
    /// The agent was prompted again, and no tool has succeeded since.
    is_prompted: bool,
    n_prompts: u32,
}

/// What follows from the end of a turn.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing was denied, or the agent has answered to it.
    Usual,
    Prompt(String),
    Fail(String),
}

impl Denials {
    /// Another task or message begins.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// People are asked for a call.
    pub(super) fn asked(&mut self, id: PermissionId, what: &str) {
        self.asked.push((id, what.to_owned()));
    }

    /// People have answered, or need not any more, which denies nothing.
    pub(super) fn decided(&mut self, id: PermissionId, is_permitted: bool) {
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == id) else { return };
        let (_, what) = self.asked.swap_remove(at);
        if !is_permitted {
            self.denied(&what);
        }
    }

    pub(super) fn denied(&mut self, what: &str) {
        self.unanswered = Some(what.chars().take(WHAT_CHARS_MAX).collect());
    }

    pub(super) fn said(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.unanswered = None;
        }
    }

    /// A tool has succeeded, so the agent has gone on.
    pub(super) fn worked(&mut self) {
        self.is_prompted = false;
    }

    fn at_end(&mut self, end: &TurnEnd) -> Next {
        let is_silent = match end {
            // Nobody here cancels a turn and then waits for its end: the program did, because of the denial.
            TurnEnd::Done | TurnEnd::Cancelled => true,
            TurnEnd::Refused
            | TurnEnd::MaxTokens
            | TurnEnd::MaxTurns
            | TurnEnd::Failed { .. }
            | TurnEnd::Gone => false,
        };
        let Some(what) = self.unanswered.take().filter(|_| is_silent) else { return Next::Usual };
        if self.is_prompted || self.n_prompts >= PROMPTS_MAX {
            return Next::Fail(what);
        }
        self.is_prompted = true;
        self.n_prompts += 1;
        Next::Prompt(what)
    }
}

impl Talk<'_> {
    /// Deals with the end of a turn that a denial ended. Returns nothing if it did not; otherwise what became of the work, if
    /// that is certain.
    pub(super) async fn ended_by_denial(&mut self, end: &TurnEnd) -> Option<Option<Finish>> {
        let (what, is_again) = match self.denials.at_end(end) {
            Next::Usual => return None,
            Next::Prompt(what) => (what, false),
            Next::Fail(what) => (what, true),
        };
        let failed = format!("its turn ended because this was not permitted: {what}");
        if is_again {
            return Some(self.failed_after_denial(end, failed).await);
        }
        if self.agent.lasts() {
            self.keep(Event::TurnEnded(end.clone())).await;
        }
        self.spend().await;
        let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        let begin = Command::Agent(agent::Command::BeginTurn { id, incarnation });
        match self.shared.record(begin).await {
            Recorded::Yes => {}
            Recorded::Refused(refusal) => {
                return Some(self.failed_after_denial(end, format!("{failed}; {refusal}")).await);
            }
            Recorded::Stopped => return Some(Some(Finish::HubStopped)),
        }
        self.spending.begin();
        self.last_words.clear();
        self.message = None;
        self.open_calls.clear();
        self.heard_at = Instant::now();
        self.progress_at = Instant::now();
        let mut prompt = Prompt::from("That was not permitted: ");
        let by = self.agent.id.principal();
        prompt.entry(Author::of(&by), &what).ours("Continue without it, or stop and say why.");
        Some(match self.send(&prompt) {
            Ok(()) => None,
            Err(refusal) => Some(Finish::Interrupted(self.last_signs(&refusal.to_string()))),
        })
    }

    async fn failed_after_denial(&mut self, end: &TurnEnd, why: String) -> Option<Finish> {
        if self.agent.lasts() {
            return self
                .settle_and_go_on(Some(end.clone()), How::Terminated { why: why.into() })
                .await;
        }
        Some(Finish::Outcome(self.outcome(Ending::Crashed, Status::Failed, &why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens in a turn, one word each; and what follows from its end.
    fn check(denials: &mut Denials, turn: &str, expected: &Next) {
        let mut end = TurnEnd::Done;
        for word in turn.split(' ').filter(|word| !word.is_empty()) {
            match word {
                "denied" => denials.denied("curl"),
                "asked" => denials.asked(PermissionId(7), "rm"),
                "no" => denials.decided(PermissionId(7), false),
                "yes" => denials.decided(PermissionId(7), true),
                "text" => denials.said("I did without."),
                "blank" => denials.said("\n"),
                "worked" => denials.worked(),
                "cancelled" => end = TurnEnd::Cancelled,
                "failed" => end = TurnEnd::Failed { message: "429".to_owned() },
                other => panic!("no such word: {other}"),
            }
        }
        assert_eq!(denials.at_end(&end), *expected, "{turn}");
    }

    #[test]
    fn a_silent_end_after_a_denial_is_not_the_end() {
        let (curl, rm) = (|| "curl".to_owned(), || "rm".to_owned());
        for (turn, expected) in [
            ("", Next::Usual),
            ("text", Next::Usual),
            ("denied", Next::Prompt(curl())),
            ("denied blank", Next::Prompt(curl())),
            ("denied worked", Next::Prompt(curl())),
            ("denied cancelled", Next::Prompt(curl())),
            ("text denied", Next::Prompt(curl())),
            ("denied text", Next::Usual),
            ("denied text cancelled", Next::Usual),
            ("denied failed", Next::Usual),
            ("asked no", Next::Prompt(rm())),
            ("asked yes", Next::Usual),
            ("cancelled", Next::Usual),
        ] {
            check(&mut Denials::default(), turn, &expected);
        }
    }

    #[test]
    fn an_agent_is_prompted_again_only_if_it_went_on_and_not_for_ever() {
        let mut denials = Denials::default();
        check(&mut denials, "denied", &Next::Prompt("curl".to_owned()));
        check(&mut denials, "denied", &Next::Fail("curl".to_owned()));
        denials.begin();
        for _ in 0..PROMPTS_MAX {
            check(&mut denials, "worked denied", &Next::Prompt("curl".to_owned()));
        }
        check(&mut denials, "worked denied", &Next::Fail("curl".to_owned()));
    }
}
