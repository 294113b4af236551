//! People: draft agents, kill some, answer some questions, and remember what they were told.

use teamster_core::agent::{self, AgentId, AskedLimits, NewAgent, Outcome};
use teamster_core::ids::QuestionId;
use teamster_core::topic::Topic;
use teamster_core::{PrincipalName, question};
use teamster_mcp::Hub as _;

use super::runs::RunWanted;
use super::*;

const ERRANDS: u64 = 5;
/// Longer than any answer takes, so that some questions expire.
const NEVER: Duration = Duration::from_secs(7 * 60 * 60);

/// What people want and know, whichever hub runs.
pub(super) struct People {
    pub(super) errands: Vec<Errand>,
    pub(super) run: RunWanted,
    /// The answers that they were told are stored.
    pub(super) answered: Mutex<BTreeMap<QuestionId, String>>,
}

/// One agent that somebody wants.
pub(super) struct Errand {
    key: String,
    role: &'static str,
    begins_after: Duration,
    killed_after: Option<Duration>,
    known: Mutex<Known>,
}

/// What they were told of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) id: Option<AgentId>,
    pub(super) is_killed: bool,
    pub(super) outcome: Option<Outcome>,
}

impl Errand {
    pub(super) fn known(&self) -> Known {
        self.known.lock().expect("nobody panics with it").clone()
    }

    fn learn(&self, learn: impl FnOnce(&mut Known)) {
        learn(&mut self.known.lock().expect("nobody panics with it"));
    }

    async fn run(&self, handle: &Handle, mut dice: Dice) -> Result<(), String> {
        tokio::time::sleep(self.begins_after).await;
        let id = match self.known().id {
            Some(id) => id,
            None => {
                let key = Key::new(&self.key, 1).expect("it is a key");
                let draft = draft(self.role, &self.key, handle.directory());
                let done = until_told(handle, &draft, Some(key), &mut dice).await?;
                let id = drafted(&done).ok_or("a draft caused no agent")?;
                self.learn(|known| known.id = Some(id.clone()));
                id
            }
        };
        let kill = async {
            let Some(after) = self.killed_after.filter(|_| !self.known().is_killed) else {
                return std::future::pending().await;
            };
            tokio::time::sleep(after).await;
            let which = id.as_str().to_owned();
            let kill = Command::Agent(agent::Command::Kill { which });
            let told = until_told(handle, &kill, None, &mut dice).await;
            self.learn(|known| known.is_killed = told.is_ok());
            match told {
                Ok(_) => std::future::pending().await,
                Err(fault) => fault,
            }
        };
        let watch = handle.watch(&Topic::Agent(id.clone()));
        let ended = watch.until(handle, |state| {
            let agent = state.agents.get(id.as_str());
            agent.map_or(Some(None), |agent| agent.outcome.clone().map(Some))
        });
        let outcome = tokio::select! {
            biased;
            outcome = ended => outcome.ok_or_else(|| format!("{id} is not there any more"))?,
            fault = kill => return Err(fault),
        };
        match self.known().outcome {
            Some(known) if known != outcome => {
                Err(format!("{id} ended twice: {known:?}, {outcome:?}"))
            }
            _ => {
                self.learn(|known| known.outcome = Some(outcome));
                Ok(())
            }
        }
    }
}

impl People {
    pub(super) fn new(mut dice: Dice) -> Self {
        let errand = |n| Errand {
            key: format!("errand-{n}"),
            role: ["hand", "hand", "lead", "lead", "brief"]
                [usize::try_from(dice.below(5)).expect("few")],
            begins_after: dice.millis(6_000),
            killed_after: (dice.below(5) == 0).then(|| dice.millis(20_000)),
            known: Mutex::default(),
        };
        let errands = (0..ERRANDS).map(errand).collect();
        Self { errands, run: RunWanted::drawn(&mut dice), answered: Mutex::default() }
    }

    /// Does what is still to be done; returns when all that they want has ended.
    pub(super) async fn act(&self, handle: &Handle, mut dice: Dice) -> Result<(), String> {
        let answers = self.answer_questions(handle, Dice(dice.roll()));
        let errands = self.errands.iter().map(|errand| errand.run(handle, Dice(dice.roll())));
        let errands = futures_util::future::try_join_all(errands);
        let run = self.run.have_done(handle, Dice(dice.roll()));
        tokio::select! {
            biased;
            all = async { tokio::try_join!(biased; errands, run) } => all.map(drop),
            fault = answers => Err(fault),
        }
    }

    async fn answer_questions(&self, handle: &Handle, mut dice: Dice) -> String {
        let watch = handle.watch(&Topic::Questions);
        let mut last = None;
        loop {
            let next = watch
                .until(handle, |state| {
                    let mut open = state.questions.open().map(|question| question.id);
                    open.find(|id| last.is_none_or(|last| *id > last))
                })
                .await;
            last = Some(next);
            let word = match dice.below(8) {
                0 => None,
                1..4 => Some("deny"),
                _ => Some("allow"),
            };
            tokio::time::sleep(dice.millis(3_000)).await;
            let Some(word) = word else { continue };
            let (which, word) = (next.to_string(), word.to_owned());
            let answer = question::Command::Answer { which, word: word.clone(), note: None };
            match handle.submit(operator(handle), Command::Question(answer), None).await {
                Ok(_) => {
                    self.answered.lock().expect("nobody panics").insert(next, word);
                }
                // Its agent may be gone.
                Err(Failure::Refused(_) | Failure::Unavailable(_) | Failure::Unknown(_)) => {}
            }
        }
    }
}

/// Asks for something until the answer comes. Some answers are not waited for.
pub(super) async fn until_told(
    handle: &Handle,
    command: &Command,
    key: Option<Key>,
    dice: &mut Dice,
) -> Result<Done, String> {
    loop {
        let patience = if dice.below(4) == 0 { dice.millis(8) } else { NEVER };
        let told = handle.submit(operator(handle), command.clone(), key.clone());
        match tokio::time::timeout(patience, told).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(Failure::Refused(refusal))) => return Err(format!("{command:?}: {refusal}")),
            Ok(Err(Failure::Unavailable(_) | Failure::Unknown(_))) | Err(_) => {
                tokio::time::sleep(dice.millis(50)).await;
            }
        }
    }
}

fn operator(handle: &Handle) -> Caller {
    let state = handle.state();
    Caller::of(state.tokens.by_principal(&name()).expect("the operator has a token"))
}

fn name() -> PrincipalName {
    PrincipalName::parse("operator").expect("a name")
}

pub(super) fn has_token(handle: &Handle) -> bool {
    handle.state().tokens.by_principal(&name()).is_some()
}

pub(super) fn operators_token() -> Command {
    let new = NewToken {
        principal: name(),
        kind: Kind::OPERATOR,
        secret: SecretHash([1; 32]),
        grants: Grants::everything(),
        run: None,
        team: None,
        expires_at: None,
    };
    Command::Token(token::Command::Create { new, replace: true })
}

pub(super) fn draft(role: &str, task: &str, directory: String) -> Command {
    Command::Agent(agent::Command::Draft(NewAgent {
        role: role.into(),
        prompt: task.into(),
        dossier: None,
        directory: None,
        default_directory: directory,
        limits: AskedLimits::default(),
    }))
}

pub(super) fn drafted(done: &Done) -> Option<AgentId> {
    done.events.iter().find_map(|event| match event {
        Event::Agent(agent::Event::Drafted { id, .. }) => Some(id.clone()),
        _ => None,
    })
}
