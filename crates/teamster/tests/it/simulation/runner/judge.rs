//! What must be true of a seed when it is over, by its log alone and by what people and programs know.

use teamster_core::agent::{self, AgentId, Ending, Status};
use teamster_core::ids::QuestionId;
use teamster_core::question;

use super::super::agents::Model;
use super::super::stage::Model as _;
use super::*;

/// What a seed came to.
#[derive(Debug, Default)]
pub(super) struct Ended {
    agents: u64,
    completed: u64,
    interrupted: u64,
    parked: u64,
    killed: u64,
    answered: u64,
    resumed: u64,
    left: u64,
    iterations: u64,
    items: u64,
}

/// What all seeds came to.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Ended>);

impl Seen {
    pub(super) fn add(&self, one: &Ended) {
        let mut all = self.0.lock().expect("nobody panics with it");
        all.agents += one.agents;
        all.completed += one.completed;
        all.interrupted += one.interrupted;
        all.parked += one.parked;
        all.killed += one.killed;
        all.answered += one.answered;
        all.resumed += one.resumed;
        all.left += one.left;
        all.iterations += one.iterations;
        all.items += one.items;
    }

    /// A simulation in which little happens proves little.
    pub(super) fn check(&self, seeds: u64) {
        let all = self.0.lock().expect("nobody panics with it");
        let Ended { agents, completed, interrupted, parked, killed, answered, resumed, .. } = *all;
        let Ended { left, iterations, items, .. } = *all;
        for (what, n, at_least) in [
            ("drafted", agents, 5 * seeds),
            ("completed", completed, seeds),
            ("interrupted", interrupted, seeds),
            ("parked", parked, seeds / 5),
            ("killed as a process", killed, seeds / 5),
            ("answered", answered, seeds / 2),
            ("resumed", resumed, seeds / 2),
            ("left by a crash", left, seeds / 2),
            ("in an iteration", iterations, 2 * seeds),
            ("able to complete an item", items, seeds / 2),
        ] {
            assert!(n >= at_least, "hardly any agent was {what}: {all:?}");
        }
    }
}

/// Returns who has not ended.
pub(super) fn living(state: &State) -> String {
    let living = state.agents.queued().chain(state.agents.active());
    let living = living.map(|agent| format!("{} is {:?}", agent.id, agent.phase));
    living.collect::<Vec<_>>().join(", ")
}

pub(super) fn judge(
    commits: &[teamster_log::Commit],
    machine: &Machine,
    people: &People,
) -> Result<Ended, String> {
    let (mut model, mut state, mut ended) = (Model::default(), State::default(), Ended::default());
    let mut settled: BTreeMap<QuestionId, question::How> = BTreeMap::new();
    let mut n_starts: BTreeMap<AgentId, u32> = BTreeMap::new();
    let mut runs = runs::Model::default();
    for commit in commits {
        let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
        for record in body.records {
            model.take(&record, &state)?;
            runs.take(&record, &state)?;
            state.apply(&record);
            model.compare(&state)?;
            for event in &record.events {
                if let Event::Question(question::Event::Settled { id, how, .. }) = event
                    && settled.insert(*id, how.clone()).is_some()
                {
                    return Err(format!("{id} was settled twice"));
                }
                if let Event::Agent(event) = event {
                    ended.count(event);
                    if let agent::Event::Admitted { id, .. } = event {
                        *n_starts.entry(id.clone()).or_default() += 1;
                    }
                }
            }
        }
    }
    for (id, word) in people.answered.lock().expect("nobody panics with it").iter() {
        let how = settled.get(id);
        if !matches!(how, Some(question::How::Answered { word: known, .. }) if **known == **word) {
            return Err(format!("{id} was answered {word}, and the log says {how:?}"));
        }
    }
    for errand in &people.errands {
        let known = errand.known();
        let id = known.id.ok_or("a draft was never acknowledged")?;
        let outcome = state.agents.get(id.as_str()).and_then(|agent| agent.outcome.clone());
        if known.outcome.is_none() || known.outcome != outcome {
            let told = known.outcome;
            return Err(format!("{id} was told to have ended with {told:?}, not {outcome:?}"));
        }
    }
    people.run.check(&state)?;
    ended.iterations = runs.n_iterations();
    ended.items = runs.n_completed();
    let ledger = machine.ledger(|ledger| ledger.clone());
    for agent in n_starts.keys().filter_map(|id| state.agents.get(id.as_str())) {
        let id = &agent.id;
        let Some(outcome) = &agent.outcome else { return Err(format!("{id} has not ended")) };
        if outcome.summary.contains("nothing was changed") {
            return Err(format!("{id} ended because the log could not be written: {outcome:?}"));
        }
        let is_done = outcome.ending == Ending::Completed && outcome.status == Status::Success;
        let said = ledger.said.get(id.as_str());
        if is_done && said.map(String::as_str) != Some(&*outcome.summary) {
            return Err(format!("{id} said {said:?}, and ended with {outcome:?}"));
        }
        let own = ledger.sessions.values().filter(|(of, _)| of == id.as_str());
        let told: u64 = own.map(|(_, cost)| cost).sum();
        let known = agent.used.microdollars;
        let is_exact = outcome.ending == Ending::Completed && n_starts[id] == 1;
        if known > told || (is_exact && known != told) {
            return Err(format!("{id} cost {told}, and the log says {known}"));
        }
    }
    ended.answered = ledger.n_answered;
    ended.resumed = ledger.n_resumed;
    ended.killed = ledger.n_killed;
    ended.left = ledger.n_left;
    Ok(ended)
}

impl Ended {
    fn count(&mut self, event: &agent::Event) {
        match event {
            agent::Event::Drafted { .. } => self.agents += 1,
            agent::Event::Interrupted { .. } => self.interrupted += 1,
            agent::Event::Parked { .. } => self.parked += 1,
            agent::Event::Ended { outcome, .. } if outcome.ending == Ending::Completed => {
                self.completed += 1;
            }
            _ => {}
        }
    }
}
