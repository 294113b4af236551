//! Takes secrets out of what the hub records about an agent. Programs word part of it.

use std::sync::Arc;

use teamster_core::agent::{Command, Outcome, SleepWhy};

use crate::secret::redacted;

/// Returns a command without the secrets of tokens in its texts.
pub(super) fn without_secrets(command: Command) -> Command {
    match command {
        Command::Warn { id, says } => Command::Warn { id, says: redacted(&says) },
        Command::Park { id, incarnation, account, until, why } => {
            Command::Park { id, incarnation, account, until, why: redacted(&why) }
        }
        Command::Interrupt { id, incarnation, why, blameless } => {
            Command::Interrupt { id, incarnation, why: redacted(&why), blameless }
        }
        Command::Sleep { id, incarnation, why } => {
            Command::Sleep { id, incarnation, why: asleep(why) }
        }
        Command::NotStarted { id, incarnation, why } => {
            Command::NotStarted { id, incarnation, why: redacted(&why) }
        }
        Command::Lose { id, incarnation, why } => {
            Command::Lose { id, incarnation, why: redacted(&why) }
        }
        Command::End { id, incarnation, outcome } => {
            Command::End { id, incarnation, outcome: ended(outcome) }
        }
        // These have no words of a program.
        Command::Draft(_)
        | Command::Kill { .. }
        | Command::Adopt(_)
        | Command::Resume { .. }
        | Command::Admit { .. }
        | Command::Begin { .. }
        | Command::BeginTurn { .. }
        | Command::Spend { .. }
        | Command::Expire => command,
    }
}

fn asleep(why: SleepWhy) -> SleepWhy {
    match why {
        SleepWhy::Failed { says } => SleepWhy::Failed { says: text(&says) },
        SleepWhy::NotStarted { says } => SleepWhy::NotStarted { says: text(&says) },
        SleepWhy::Idle | SleepWhy::Room | SleepWhy::Asked | SleepWhy::Changed => why,
    }
}

fn ended(outcome: Outcome) -> Outcome {
    let all = |texts: Vec<Arc<str>>| texts.iter().map(|one| text(one)).collect();
    let Outcome { ending, status, summary, changes, issues, questions, cost_microdollars } =
        outcome;
    let summary = text(&summary);
    let (changes, issues, questions) = (all(changes), all(issues), all(questions));
    Outcome { ending, status, summary, changes, issues, questions, cost_microdollars }
}

fn text(text: &str) -> Arc<str> {
    redacted(text).into()
}

#[cfg(test)]
mod tests {
    use teamster_core::Timestamp;
    use teamster_core::agent::{AgentId, Ending};
    use teamster_core::role::RoleName;

    use super::*;
    use crate::secret::new_secret;

    #[test]
    fn nothing_that_is_recorded_has_a_secret() {
        let secret = new_secret();
        let says = format!("it printed {secret}");
        let (id, incarnation) = (AgentId::new(&RoleName::parse("coder").unwrap(), 1), 1);
        let outcome = Outcome {
            changes: vec![says.as_str().into()],
            issues: vec![says.as_str().into()],
            questions: vec![says.as_str().into()],
            ..Outcome::failed(Ending::Crashed, says.as_str())
        };
        let (account, until) = ("claude".into(), Timestamp(1));
        let why = says.clone();
        for command in [
            Command::Warn { id: id.clone(), says: says.clone() },
            Command::Park { id: id.clone(), incarnation, account, until, why: why.clone() },
            Command::Interrupt { id: id.clone(), incarnation, why: why.clone(), blameless: false },
            Command::NotStarted { id: id.clone(), incarnation, why: why.clone() },
            Command::Lose { id: id.clone(), incarnation, why },
            Command::Sleep {
                id: id.clone(),
                incarnation,
                why: SleepWhy::Failed { says: says.as_str().into() },
            },
            Command::Sleep {
                id: id.clone(),
                incarnation,
                why: SleepWhy::NotStarted { says: says.as_str().into() },
            },
            Command::End { id, incarnation, outcome },
        ] {
            let shown = format!("{:?}", without_secrets(command));
            assert!(!shown.contains(&secret) && shown.contains("it printed tmst_("), "{shown}");
        }
    }
}
