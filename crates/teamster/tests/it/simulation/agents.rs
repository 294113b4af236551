//! Agents under the same conditions: drafted, admitted, in turns, cut off, killed, ended late and twice, while the log is
//! unreliable and hubs crash in between.
//!
//! What runs them is a runner without processes that does what the hub's own does. What it led to is judged by the log
//! alone: a model counts anew what every agent and all below it used up, and which tokens live.

use teamster_core::agent::{self, Agent, AgentId, Ending, INTERRUPTIONS_MAX, NewAgent, Outcome};
use teamster_core::ids::TokenId;
use teamster_core::role::{self, Limits, Role, RoleName};
use teamster_core::spending::Used;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::stage::{self, Runner, Stage};
use super::*;

/// As many seeds as `cargo test` plays.
const SEEDS: u64 = 120;
const CLIENTS: u64 = 2;
const DRAFTS: u64 = 4;
/// As many agents run at once.
const RUNNING_MAX: usize = 4;
/// Small, so that all of them are reached.
const LIMITS: Limits = Limits {
    depth: 2,
    children: 2,
    total: 3,
    turns: 4,
    wall_ms: 400,
    microdollars: Some(600),
    tokens: None,
};
/// A client kills what takes longer, and does not understand if that does not end it.
const KILLED_AFTER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn agents_keep_to_their_leash_and_nobody_who_waits_for_one_is_forgotten() {
    let seen = Seen::default();
    let all = play_all("simulation::agents", SEEDS, |seed| play(seed, Runner::Careful, &seen));
    let Some(all) = all else { return };
    println!("{all} seeds: {seen:?}");
    let Seen { ended, interrupted, killed, refused } = &seen;
    for (what, n) in [("ended", ended), ("cut off", interrupted), ("killed", killed)] {
        assert!(n.load(Ordering::Relaxed) > all, "hardly any agent was {what}: {seen:?}");
    }
    assert!(refused.load(Ordering::Relaxed) > all, "limits were hardly reached: {seen:?}");
}

/// The control: a hub that does not say at its start whom an earlier one left.
#[test]
fn a_runner_that_forgets_whom_it_left_is_found_out() {
    let seen = Seen::default();
    let fault = first_fault(100, |seed| play(seed, Runner::Forgetful, &seen));
    let (_, fault) = fault.expect("100 seeds found nothing wrong");
    assert!(fault.contains("nobody heard of its end"), "{fault}");
}

#[test]
fn a_seed_of_agents_always_plays_the_same() {
    assert_plays_the_same(5, |seed| {
        run_in_virtual_time(async {
            let team = Team::new(seed, Runner::Careful);
            team.clone().play().await?;
            Ok(team.stage.world.commits().await)
        })
    });
}

/// What happened in all seeds.
#[derive(Debug, Default)]
struct Seen {
    ended: AtomicU64,
    interrupted: AtomicU64,
    killed: AtomicU64,
    refused: AtomicU64,
}

fn play(seed: u64, runner: Runner, seen: &Seen) -> Result<(), String> {
    run_in_virtual_time(async {
        let team = Team::new(seed, runner);
        let model = team.clone().play().await?;
        seen.refused.fetch_add(team.n_refused.load(Ordering::Relaxed), Ordering::Relaxed);
        for known in model.agents.values() {
            seen.ended.fetch_add(u64::from(!known.is_live), Ordering::Relaxed);
            seen.interrupted.fetch_add(u64::from(known.n_interruptions), Ordering::Relaxed);
            seen.killed.fetch_add(u64::from(known.is_killed), Ordering::Relaxed);
        }
        Ok(())
    })
}

/// What one seed plays in.
#[derive(Clone)]
struct Team {
    stage: Stage,
    /// What incarnations may still say or do when they are long over.
    late: Arc<Mutex<Vec<Late>>>,
    n_refused: Arc<AtomicU64>,
}

/// An incarnation and what it was allowed as.
#[derive(Debug, Clone)]
struct Late {
    id: AgentId,
    incarnation: u32,
    caller: Caller,
}

/// How an incarnation ends.
enum Came {
    Done,
    Crashed,
    /// Its account has nothing left for now.
    Parked,
    /// Its end is told more than once, and not the same each time.
    Twice,
    ToldToEnd,
}

impl Team {
    fn new(seed: u64, runner: Runner) -> Self {
        // In some seeds the clock starts anew with every hub.
        let epoch = (seed % 7 != 3).then(Instant::now);
        let stage = Stage::new(seed, runner, epoch);
        Self { stage, late: Arc::default(), n_refused: Arc::default() }
    }

    async fn play(self) -> Result<Model, String> {
        let sync = Command::Role(role::Command::Sync(vec![role("coder"), role("lead")]));
        let hubs = self.stage.begin(CLIENTS, sync).await?;
        let clients = (0..CLIENTS).map(|client| self.clone().operate(client, hubs.subscribe()));
        let run = async |handle: &Handle, n| self.run(handle, n).await;
        let mut outcomes = Vec::new();
        tokio::select! {
            // Otherwise the order of polling is drawn at random.
            biased;
            all = futures_util::future::join_all(clients) => {
                for one in all {
                    outcomes.extend(one?);
                }
            }
            fault = self.stage.run_and_crash(hubs.clone(), 300, run) => return Err(fault),
            () = self.clone().haunt(hubs.subscribe()) => unreachable!("it goes on for ever"),
        }
        self.stage.end(&hubs).await?;
        self.check(&outcomes).await
    }

    /// Does what the hub's runner does.
    async fn run(&self, handle: &Handle, n: u64) {
        let mut dice = self.stage.world.dice(2_000 + n);
        if self.stage.runner == Runner::Careful {
            self.interrupt_all(handle).await;
        }
        let watch = handle.watch(&Topic::Agents);
        let mut incarnations = FuturesUnordered::new();
        loop {
            let seen = handle.state().seq();
            let mut failed = false;
            while handle.state().agents.active().count() < RUNNING_MAX {
                let next = handle.state().agents.queued().next().map(|agent| agent.id.clone());
                let Some(id) = next else { break };
                let admitted = self.stage.admit(handle, &id, &mut dice).await;
                let Some((agent, caller)) = admitted else {
                    failed = true;
                    break;
                };
                if dice.below(3) == 0 {
                    let (id, incarnation) = (agent.id.clone(), agent.incarnation);
                    let late = Late { id, incarnation, caller: caller.clone() };
                    self.late.lock().expect("nobody panics with it").push(late);
                }
                incarnations.push(self.incarnation(handle, agent, caller, Dice(dice.roll())));
            }
            tokio::select! {
                biased;
                () = watch.until(handle, |state| (state.seq() != seen).then_some(())) => {}
                Some(()) = incarnations.next(), if !incarnations.is_empty() => {}
                () = tokio::time::sleep(Duration::from_millis(10)), if failed => {}
            }
        }
    }

    async fn interrupt_all(&self, handle: &Handle) {
        let state = handle.state();
        for agent in state.agents.active() {
            let (id, incarnation, why) =
                (agent.id.clone(), agent.incarnation, format!("crash {}", agent.incarnation));
            self.tell(handle, agent::Command::Interrupt { id, incarnation, why, blameless: false })
                .await;
        }
    }

    /// One start of an agent: what its program does, and what is said of its end.
    async fn incarnation(&self, handle: &Handle, agent: Arc<Agent>, caller: Caller, dice: Dice) {
        let mut dice = dice;
        let (id, incarnation) = (agent.id.clone(), agent.incarnation);
        let watch = handle.watch(&Topic::Agent(id.clone()));
        let told_to_end = watch.until(handle, |state| {
            let agent = state.agents.get(id.as_str())?;
            (agent.phase != agent::Phase::Running).then_some(())
        });
        let came = tokio::select! {
            biased;
            () = told_to_end => Came::ToldToEnd,
            came = self.work(handle, &agent, &caller, &mut dice) => came,
        };
        let end = |says: &str| {
            let outcome = Outcome::failed(Ending::Completed, format!("{says} {incarnation}"));
            agent::Command::End { id: id.clone(), incarnation, outcome }
        };
        let cut_off = || {
            let (id, why) = (id.clone(), format!("it crashed {incarnation}"));
            agent::Command::Interrupt { id, incarnation, why, blameless: false }
        };
        let last = match came {
            Came::Done => vec![end("done")],
            Came::Crashed => vec![cut_off()],
            Came::Parked => {
                let (id, account, why) = (id.clone(), "all".into(), format!("limit {incarnation}"));
                // The runner of this simulation starts it again at once.
                let until = Timestamp(0);
                vec![agent::Command::Park { id, incarnation, account, until, why }, cut_off()]
            }
            Came::Twice => vec![end("done"), end("done again"), cut_off()],
            Came::ToldToEnd => {
                tokio::time::sleep(dice.millis(20)).await;
                vec![end("told to end")]
            }
        };
        for command in last {
            self.tell(handle, command).await;
        }
    }

    /// Has turns, drafts others and waits for some, then ends in one way or another, or never.
    async fn work(&self, handle: &Handle, agent: &Agent, caller: &Caller, dice: &mut Dice) -> Came {
        let (id, incarnation) = (agent.id.clone(), agent.incarnation);
        let session = format!("{id} in {incarnation}");
        let begin = agent::Command::Begin {
            id: id.clone(),
            incarnation,
            session,
            program: None,
            isolation: None,
        };
        self.tell(handle, begin).await;
        for turn in 0..=dice.below(3) {
            let begin = agent::Command::BeginTurn { id: id.clone(), incarnation };
            match handle.submit(Caller::hub(), Command::Agent(begin), None).await {
                Ok(done) => self.stage.was_told(format!("turn of {id}"), &done),
                Err(failure) => {
                    self.count_refusal(&failure);
                    return Came::Done;
                }
            }
            tokio::time::sleep(dice.millis(30)).await;
            let used = Used { microdollars: Some(dice.below(300)), ..Used::default() };
            self.tell(handle, agent::Command::Spend { id: id.clone(), incarnation, used }).await;
            for child in 0..dice.below(3) {
                let key = format!("{id}-{incarnation}-{turn}-{child}");
                let drafted = self.draft(handle, caller, &key, dice).await;
                if let Some(child) = drafted.filter(|_| dice.below(3) == 0) {
                    let watch = handle.watch(&Topic::Agent(child.clone()));
                    let ended = |state: &State| {
                        state.agents.get(child.as_str())?.outcome.as_ref().map(|_| ())
                    };
                    watch.until(handle, ended).await;
                }
            }
        }
        match dice.below(20) {
            0..9 => Came::Done,
            9..13 => Came::Crashed,
            13..15 => Came::Twice,
            15 => Came::Parked,
            _ => std::future::pending().await,
        }
    }

    /// Has something recorded about an agent, as the runner does. What comes too late is left out.
    async fn tell(&self, handle: &Handle, command: agent::Command) {
        self.stage.tell(handle, Command::Agent(command)).await;
    }

    /// Drafts an agent until that is acknowledged or refused. Some calls are repeated although they were answered.
    async fn draft(
        &self,
        handle: &Handle,
        caller: &Caller,
        key: &str,
        dice: &mut Dice,
    ) -> Option<AgentId> {
        let role = ["coder", "lead"][usize::from(dice.below(2) == 0)];
        let mut again = dice.below(4) == 0;
        loop {
            let idempotent = Key::new(key, 1).expect("it is a key");
            match handle.submit(caller.clone(), draft(role, key), Some(idempotent)).await {
                Ok(_) if again => again = false,
                Ok(done) => {
                    self.stage.was_told(key.to_owned(), &done);
                    return done.events.iter().find_map(|event| match event {
                        Event::Agent(agent::Event::Drafted { id, .. }) => Some(id.clone()),
                        _ => None,
                    });
                }
                Err(failure @ Failure::Refused(_)) => {
                    self.count_refusal(&failure);
                    return None;
                }
                Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                    tokio::time::sleep(dice.millis(20)).await;
                }
            }
        }
    }

    /// Says and does, much later, what incarnations would that are over.
    async fn haunt(self, hubs: watch::Receiver<Running>) {
        let mut dice = self.stage.world.dice(4);
        loop {
            tokio::time::sleep(dice.millis(60)).await;
            let late = {
                let mut late = self.late.lock().expect("nobody panics with it");
                if late.is_empty() {
                    continue;
                }
                let at = usize::try_from(dice.below(late.len() as u64)).expect("few are late");
                late.swap_remove(at)
            };
            let Late { id, incarnation, caller } = late;
            let handle = hubs.borrow().handle.clone();
            let (caller, command) = if dice.below(2) == 0 {
                let outcome = Outcome::failed(Ending::Crashed, format!("late {incarnation}"));
                (Caller::hub(), Command::Agent(agent::Command::End { id, incarnation, outcome }))
            } else {
                (caller, draft("coder", "late"))
            };
            if let Ok(done) = handle.submit(caller, command, None).await {
                self.stage.was_told("a late word".to_owned(), &done);
            }
        }
    }

    /// Drafts agents, kills some, and waits for the ends of all. Returns how each ended.
    async fn operate(
        self,
        client: u64,
        mut hubs: watch::Receiver<Running>,
    ) -> Result<Vec<(AgentId, Outcome)>, String> {
        let mut dice = self.stage.world.dice(10 + client);
        let mut drafted = Vec::new();
        for n in 0..DRAFTS {
            let key = format!("draft-{client}-{n}");
            // A hub that crashed answers nothing any more.
            let id = loop {
                let hub = hubs.borrow_and_update().handle.clone();
                let caller = self.caller(&hub, client)?;
                tokio::select! {
                    biased;
                    id = self.draft(&hub, &caller, &key, &mut dice) => break id,
                    _ = hubs.changed() => {}
                }
            };
            if let Some(id) = id {
                if dice.below(4) == 0 {
                    tokio::time::sleep(dice.millis(100)).await;
                    self.kill(&hubs, client, &id).await?;
                }
                drafted.push(id);
            }
            tokio::time::sleep(dice.millis(80)).await;
        }
        let mut outcomes = Vec::new();
        for id in drafted {
            let outcome =
                tokio::time::timeout(PATIENCE, self.outcome(&mut hubs, client, &id)).await;
            let outcome = outcome.map_err(|_| format!("{id}: nobody heard of its end"))??;
            outcomes.push((id, outcome));
        }
        Ok(outcomes)
    }

    fn caller(&self, handle: &Handle, client: u64) -> Result<Caller, String> {
        let state = handle.state();
        let token = state.tokens.by_principal(&name(client)).ok_or("a token is lost")?;
        Ok(Caller::of(token))
    }

    async fn outcome(
        &self,
        hubs: &mut watch::Receiver<Running>,
        client: u64,
        id: &AgentId,
    ) -> Result<Outcome, String> {
        let kill_at = Instant::now() + KILLED_AFTER;
        let mut is_killed = false;
        loop {
            let handle = hubs.borrow_and_update().handle.clone();
            let watch = handle.watch(&Topic::Agent(id.clone()));
            let ended = |state: &State| state.agents.get(id.as_str())?.outcome.clone();
            tokio::select! {
                biased;
                outcome = watch.until(&handle, ended) => return Ok(outcome),
                _ = hubs.changed() => {}
                () = tokio::time::sleep_until(kill_at), if !is_killed => {
                    is_killed = self.kill(hubs, client, id).await?;
                }
            }
        }
    }

    /// Asks for an agent's end; says whether that was heard.
    async fn kill(
        &self,
        hubs: &watch::Receiver<Running>,
        client: u64,
        id: &AgentId,
    ) -> Result<bool, String> {
        let handle = hubs.borrow().handle.clone();
        let caller = self.caller(&handle, client)?;
        let kill = Command::Agent(agent::Command::Kill { which: id.as_str().to_owned() });
        let patience = Duration::from_secs(1);
        match tokio::time::timeout(patience, handle.submit(caller, kill, None)).await {
            Ok(Ok(done)) => {
                self.stage.was_told(format!("end of {id}"), &done);
                Ok(true)
            }
            Ok(Err(Failure::Refused(refusal))) => Err(format!("{id} was lost: {refusal}")),
            Ok(Err(Failure::Unavailable(_) | Failure::Unknown(_))) | Err(_) => Ok(false),
        }
    }

    fn count_refusal(&self, failure: &Failure) {
        if let Failure::Refused(_) = failure {
            self.n_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything that must be true of agents in the end.
    async fn check(&self, outcomes: &[(AgentId, Outcome)]) -> Result<Model, String> {
        let (model, state) = self.stage.check::<Model>().await?;
        for (id, outcome) in outcomes {
            let known = state.agents.get(id.as_str()).and_then(|agent| agent.outcome.as_ref());
            if known != Some(outcome) {
                return Err(format!("{id} was told to have ended with {outcome:?}, not {known:?}"));
            }
        }
        // The next hub knows of everybody who lives: they are queued, or are told to have been cut off.
        let hub = self.stage.start_hub(10_000).await?;
        let queued: Vec<AgentId> =
            hub.handle.state().agents.queued().map(|agent| agent.id.clone()).collect();
        if self.stage.runner == Runner::Careful {
            self.interrupt_all(&hub.handle).await;
        }
        let state = hub.handle.state();
        if let Some(left) = state.agents.active().next() {
            return Err(format!("{}: nobody heard of its end", left.id));
        }
        // Meanwhile the time of one above it may have run out.
        let has_ended = |id: &AgentId| {
            state.agents.get(id.as_str()).is_some_and(|agent| agent.outcome.is_some())
        };
        let still = |id: &AgentId| state.agents.queued().any(|agent| agent.id == *id);
        if let Some(lost) = queued.iter().find(|id| !still(id) && !has_ended(id)) {
            return Err(format!("{lost} was queued and is lost"));
        }
        Ok(model)
    }
}

/// What the log says of agents and tokens, counted in another way than the core does.
#[derive(Debug, Default)]
pub(super) struct Model {
    agents: BTreeMap<AgentId, Known>,
    tokens: BTreeSet<TokenId>,
}

#[derive(Debug)]
struct Known {
    parent: Option<AgentId>,
    limits: Limits,
    is_live: bool,
    is_killed: bool,
    token: Option<TokenId>,
    deadline: Option<Timestamp>,
    /// Since when it waits to be started again, which does not count.
    queued_at: Option<Timestamp>,
    n_admissions: u32,
    n_turns: u32,
    n_interruptions: u32,
    microdollars: u64,
}

impl stage::Model for Model {
    fn take(&mut self, record: &Record, _before: &State) -> Result<(), String> {
        if let Some(token) = record.token.filter(|token| !self.tokens.contains(token)) {
            return Err(format!("{} did something with {token}, which had ended", record.by));
        }
        for event in &record.events {
            match event {
                Event::Token(token::Event::Created { id, .. }) => drop(self.tokens.insert(*id)),
                Event::Token(token::Event::Ended { id, .. }) => drop(self.tokens.remove(id)),
                Event::Agent(event) => self.take_event(event, record)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The core must say the same.
    fn compare(&self, state: &State) -> Result<(), String> {
        for (id, known) in &self.agents {
            let agent = state.agents.get(id.as_str()).ok_or_else(|| format!("{id} is lost"))?;
            let token = state.tokens.by_principal(&id.principal()).map(|token| token.id);
            if agent.is_live() != known.is_live
                || agent.token != known.token
                || token != known.token
            {
                return Err(format!("{id} is {known:?} and not {agent:?} with {token:?}"));
            }
        }
        Ok(())
    }
}

impl Model {
    fn take_event(&mut self, event: &agent::Event, record: &Record) -> Result<(), String> {
        let id = event.agent();
        if let agent::Event::Drafted { draft, .. } = event {
            let parent = draft.parent.clone();
            if let Some(parent) = &parent {
                let token = self.agents.get(parent).and_then(|parent| parent.token);
                if token.is_none() || token != record.token {
                    return Err(format!("{id} was drafted by {parent}, which was over"));
                }
            }
            let known = Known {
                parent,
                limits: draft.limits,
                is_live: true,
                is_killed: false,
                token: None,
                deadline: None,
                queued_at: None,
                n_admissions: 0,
                n_turns: 0,
                n_interruptions: 0,
                microdollars: 0,
            };
            if self.agents.insert(id.clone(), known).is_some() {
                return Err(format!("{id} was drafted twice"));
            }
            return self.check_leash(id);
        }
        let known = self.agents.get_mut(id).ok_or_else(|| format!("{id} was never drafted"))?;
        if !known.is_live {
            return match event {
                agent::Event::Warned { .. } => Ok(()),
                other => Err(format!("{id} had ended before {other:?}")),
            };
        }
        // What is said of an end says in this simulation of which incarnation.
        let says = match event {
            agent::Event::Interrupted { why, .. } | agent::Event::Parked { why, .. } => Some(why),
            agent::Event::Ended { outcome, .. } => Some(&outcome.summary),
            _ => None,
        };
        let of = says.and_then(|says| says.rsplit(' ').next()?.parse::<u32>().ok());
        if of.is_some_and(|of| of != known.n_admissions) {
            return Err(format!("{event:?} was about an earlier start of it"));
        }
        let queued = || Err(format!("{id} was in the queue at {event:?}"));
        match event {
            agent::Event::Drafted { .. }
            | agent::Event::Unparked { .. }
            | agent::Event::Warned { .. } => Ok(()),
            agent::Event::Admitted { token, .. } => {
                if known.token.is_some() || !self.tokens.contains(token) {
                    return Err(format!(
                        "{id} was admitted with {token} and had {:?}",
                        known.token
                    ));
                }
                known.token = Some(*token);
                known.n_admissions += 1;
                let wall_ms = i64::try_from(known.limits.wall_ms).expect("a short time");
                let waited = known.queued_at.take().map_or(0, |since| record.at.0 - since.0);
                let deadline = known.deadline.map_or(record.at.0 + wall_ms, |at| at.0 + waited);
                known.deadline = Some(Timestamp(deadline));
                Ok(())
            }
            agent::Event::Begun { .. } if known.token.is_none() => queued(),
            agent::Event::Begun { .. } => Ok(()),
            agent::Event::TurnBegun { .. } if known.token.is_none() => queued(),
            agent::Event::TurnBegun { .. } => {
                known.n_turns += 1;
                let over = |known: &Known| known.deadline.is_some_and(|at| at <= record.at);
                if let Some(above) = self.with_above(id).find(|above| over(&self.agents[*above])) {
                    return Err(format!("{id} began a turn when the time of {above} was over"));
                }
                self.check_money(id)?;
                self.check_leash(id)
            }
            agent::Event::Spent { .. } if known.token.is_none() => queued(),
            agent::Event::Spent { used, .. } => {
                known.microdollars += used.microdollars.unwrap_or_default();
                Ok(())
            }
            agent::Event::Parked { .. } => {
                known.queued_at = Some(record.at);
                match known.token.take() {
                    None => queued(),
                    Some(token) => self.check_dead(id, token),
                }
            }
            agent::Event::Adopted { .. }
            | agent::Event::Resumed { .. }
            | agent::Event::Convened { .. }
            | agent::Event::Woken { .. }
            | agent::Event::Slept { .. } => Err(format!("nobody asked for {event:?}")),
            agent::Event::KillAsked { .. } if known.token.is_none() => queued(),
            agent::Event::KillAsked { .. } => {
                known.is_killed = true;
                Ok(())
            }
            agent::Event::Interrupted { blameless, .. } => {
                known.n_interruptions += u32::from(!blameless);
                known.queued_at = Some(record.at);
                if known.n_interruptions > INTERRUPTIONS_MAX {
                    return Err(format!("{id} was started again too often"));
                }
                match known.token.take() {
                    None => queued(),
                    Some(token) => self.check_dead(id, token),
                }
            }
            agent::Event::Ended { .. } => {
                known.is_live = false;
                known.token.take().map_or(Ok(()), |token| self.check_dead(id, token))
            }
        }
    }

    fn check_dead(&self, id: &AgentId, token: TokenId) -> Result<(), String> {
        if self.tokens.contains(&token) {
            return Err(format!("{id} is over and its token {token} is not"));
        }
        Ok(())
    }

    /// Returns an agent and all above it, nearest first.
    fn with_above<'a>(&'a self, id: &'a AgentId) -> impl Iterator<Item = &'a AgentId> {
        std::iter::successors(Some(id), |id| self.agents[*id].parent.as_ref())
    }

    /// Checks that whoever begins a turn had money left, together with all that it is below.
    fn check_money(&self, id: &AgentId) -> Result<(), String> {
        for above in self.with_above(id) {
            let spent: u64 = self.below(above).map(|id| self.agents[id].microdollars).sum();
            if self.agents[above].limits.microdollars.is_some_and(|limit| spent >= limit) {
                return Err(format!("{id} began a turn though {above} had spent {spent}"));
            }
        }
        Ok(())
    }

    /// Returns an agent and all below it.
    fn below<'a>(&'a self, above: &'a AgentId) -> impl Iterator<Item = &'a AgentId> {
        let is_below = move |id: &&AgentId| self.with_above(id).any(|other| other == above);
        self.agents.keys().filter(is_below)
    }

    /// Checks that neither an agent nor any above it has used up more than it may.
    fn check_leash(&self, id: &AgentId) -> Result<(), String> {
        for (n_below, above) in self.with_above(id).enumerate() {
            let Limits { depth, children, total, turns, .. } = self.agents[above].limits;
            let below = || self.below(above);
            let is_child = |known: &&Known| known.is_live && known.parent.as_ref() == Some(above);
            let used = [
                ("generations", n_below, depth),
                ("agents at once", self.agents.values().filter(is_child).count(), children),
                ("agents in all", below().count() - 1, total),
                ("turns", below().map(|id| self.agents[id].n_turns as usize).sum(), turns),
            ];
            if let Some((what, n, _)) = used.iter().find(|(_, n, limit)| n > &(*limit as usize)) {
                return Err(format!("{above} has used {n} {what}"));
            }
        }
        Ok(())
    }
}

pub(super) fn role(name: &str) -> Role {
    Role {
        name: RoleName::parse(name).expect("a name"),
        description: "".into(),
        category: "coding".into(),
        program: "scripted".into(),
        model: None,
        grants: Grants::new([Grant::Full]),
        limits: if name == "lead" { LIMITS } else { Limits { depth: 1, ..LIMITS } },
        directory: None,
        stall_ms: 300_000,
        tool_stall_ms: 300_000,
        prompt: "".into(),
        permissions: teamster_core::permission::Permissions::default(),
        account: "all".into(),
        max_wait_ms: 50_000,
        guard: teamster_core::guard::Guard::default(),
        reach: teamster_core::role::Reach::Own,
        is_projects: false,
    }
}

fn draft(role: &str, prompt: &str) -> Command {
    Command::Agent(agent::Command::Draft(NewAgent {
        role: role.into(),
        prompt: prompt.into(),
        dossier: None,
        directory: None,
        default_directory: "/nowhere".into(),
        limits: agent::AskedLimits::default(),
    }))
}
