//! The permissions that an agent's program asks for: rules decide, or people are asked, and it may take them back.

use teamster_agents::agent::{PermissionId, PermissionOption, ToolCall};
use teamster_core::token::Kind;
use teamster_core::{Caller, Command, agent, permission, question};
use teamster_mcp::Hub as _;
use tokio::time::Instant;

use super::Talk;
use crate::agents::asking;

/// As many questions as a program may take back before nobody is asked for it any more; they do so when a turn is
/// cancelled, or one of several calls was denied.
const TAKEN_BACK_MAX: usize = 100;
/// As many denials by rules as are told of one process.
const DENIALS_TOLD_MAX: u32 = 20;

impl Talk<'_> {
    pub(super) async fn permission_asked(
        &mut self,
        id: PermissionId,
        call: &ToolCall,
        options: Vec<PermissionOption>,
    ) {
        // Nobody is bothered with what is settled already.
        if !self.dialogue.waits_for(id) {
            return;
        }
        let configuration = self.shared.configured.current();
        let programs = &configuration.settings.programs;
        let verdict = match asking::verdict(self.role, call, programs) {
            // A rule allows this call, not all that follow.
            permission::Verdict::Allow if asking::allowing(&options).is_none() => {
                permission::Verdict::Ask
            }
            verdict => verdict,
        };
        let option = match verdict {
            permission::Verdict::Allow => asking::allowing(&options),
            permission::Verdict::Deny => {
                self.denials.denied(&call.title);
                // A program that does not take no for an answer is told of only so often.
                self.n_denied += 1;
                if self.n_denied <= DENIALS_TOLD_MAX {
                    let title: String = call.title.chars().take(200).collect();
                    let says = format!("its rules deny: {title}");
                    let id = self.agent.id.clone();
                    self.shared.tell(agent::Command::Warn { id, says }).await;
                }
                asking::denying(&options)
            }
            // A program that takes back whatever it asks would keep people and the log busy with nothing.
            permission::Verdict::Ask if self.n_taken_back >= TAKEN_BACK_MAX => None,
            permission::Verdict::Ask => {
                let of = (self.agent, self.role);
                match asking::ask(self.shared, of, id, call, options).await {
                    Some(pending) => {
                        self.denials.asked(id, &call.title);
                        self.pending.push(pending);
                        let caller = Caller {
                            principal: self.agent.id.principal(),
                            kind: Kind::Agent,
                            token: self.agent.token,
                            team: None,
                        };
                        self.waits.get_or_insert_with(|| self.shared.hub.waits(&caller));
                    }
                    None => drop(self.dialogue.withdraw(id)),
                }
                return;
            }
        };
        // It may have been withdrawn by now, which is as good as answered.
        let _ = match option {
            Some(option) => self.dialogue.answer(id, option),
            None => self.dialogue.withdraw(id),
        };
    }

    /// Tells the program what a person said; without a word when nobody needs to say anything any more.
    pub(super) fn answered(&mut self, at: usize, word: Option<&str>) {
        let pending = self.pending.remove(at);
        self.denials.decided(pending.permission, word.is_some_and(asking::is_permitting));
        // It may have been withdrawn by now, which is as good as answered.
        let _ = match word.and_then(|word| pending.option(word)) {
            Some(option) => self.dialogue.answer(pending.permission, option),
            None => self.dialogue.withdraw(pending.permission),
        };
        self.no_longer_waits();
    }

    /// Takes back what people were asked, if they were.
    pub(super) async fn permission_withdrawn(&mut self, id: PermissionId) {
        self.denials.decided(id, true);
        let Some(at) = self.pending.iter().position(|one| one.permission == id) else { return };
        let withdraw = question::Command::Withdraw { id: self.pending.remove(at).question };
        self.n_taken_back += 1;
        if self.n_taken_back == TAKEN_BACK_MAX {
            let says = format!(
                "it took back {TAKEN_BACK_MAX} questions; what else it asks is denied without asking anybody"
            );
            self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
        }
        if let Err(error) =
            self.shared.hub.submit(Caller::hub(), Command::Question(withdraw), None).await
        {
            tracing::warn!(%error, "a question could not be taken back");
        }
        self.no_longer_waits();
    }

    fn no_longer_waits(&mut self) {
        self.heard_at = Instant::now();
        if self.pending.is_empty() {
            self.waits = None;
        }
    }
}
