//! Conversations under the same conditions: told, woken, put to sleep, taken back and cleared, while agents crash, stall,
//! do not start, rest and make room, say late what is over, and hubs crash in between.
//!
//! What runs the agents is a runner without processes. What it led to is judged by the log alone: a model keeps the queue
//! of every conversation anew.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use teamster_core::TeamName;
use teamster_core::agent::{self, Agent, AgentId, Phase, SleepWhy};
use teamster_core::conversation::{self, How, NewTell};
use teamster_core::ids::{ConversationId, TellId};
use teamster_core::role::{Limits, Role, RoleName};
use teamster_core::team::{self, Team};
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;
use tokio_util::sync::CancellationToken;

use super::stage::{self, Runner, Stage};
use super::*;

/// As many seeds as `cargo test` plays.
const SEEDS: u64 = 150;
const CLIENTS: u64 = 3;
const OPERATIONS: u64 = 8;
const TEAMS: [&str; 2] = ["api", "web"];
/// As many agents live at once: less than there are conversations.
const LIVE_MAX: usize = 2;
const IDLE: Duration = Duration::from_millis(60);
/// Whatever was told is settled within this time, in which hubs crash hundreds of times.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn whatever_is_told_is_settled_once_and_in_order() {
    let seen = Seen::default();
    let all =
        play_all("simulation::conversations", SEEDS, |seed| play(seed, Runner::Careful, &seen));
    let Some(all) = all else { return };
    println!("{all} seeds: {seen:?}");
    let Seen { completed, terminated, cancelled, slept } = &seen;
    for (what, n) in [("answered", completed), ("cut short", terminated), ("put to sleep", slept)] {
        assert!(n.load(Ordering::Relaxed) > all, "hardly any was {what}: {seen:?}");
    }
    assert!(cancelled.load(Ordering::Relaxed) > all / 10, "hardly any was taken back: {seen:?}");
}

/// The control: a hub that does not say at its start whom an earlier one left.
#[test]
fn a_runner_that_forgets_who_was_told_is_found_out() {
    let seen = Seen::default();
    let fault = first_fault(100, |seed| play(seed, Runner::Forgetful, &seen));
    let (_, fault) = fault.expect("100 seeds found nothing wrong");
    assert!(fault.contains("was never settled"), "{fault}");
}

#[test]
fn a_seed_of_conversations_always_plays_the_same() {
    assert_plays_the_same(5, |seed| {
        run_in_virtual_time(async {
            let teams = Teams::new(seed, Runner::Careful);
            teams.clone().play().await?;
            Ok(teams.stage.world.commits().await)
        })
    });
}

/// What happened in all seeds.
#[derive(Debug, Default)]
struct Seen {
    completed: AtomicU64,
    terminated: AtomicU64,
    cancelled: AtomicU64,
    slept: AtomicU64,
}

fn play(seed: u64, runner: Runner, seen: &Seen) -> Result<(), String> {
    run_in_virtual_time(async {
        let model = Teams::new(seed, runner).play().await?;
        for settled in model.tells.values().flatten() {
            let counter = match settled {
                How::Completed => &seen.completed,
                How::Terminated { .. } => &seen.terminated,
                How::Cancelled => &seen.cancelled,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        seen.slept.fetch_add(model.n_slept, Ordering::Relaxed);
        Ok(())
    })
}

/// What one seed plays in.
#[derive(Clone)]
struct Teams {
    stage: Stage,
    /// Who rests, longest first, and what wakes them.
    resting: Arc<Mutex<Vec<(AgentId, CancellationToken)>>>,
    /// What incarnations may still say when they are long over.
    late: Arc<Mutex<Vec<(AgentId, u32, TellId)>>>,
}

/// How an incarnation ends.
enum Finish {
    Interrupted,
    Parked,
    Asleep(SleepWhy),
}

impl Teams {
    fn new(seed: u64, runner: Runner) -> Self {
        let stage = Stage::new(seed, runner, Some(Instant::now()));
        Self { stage, resting: Arc::default(), late: Arc::default() }
    }

    async fn play(self) -> Result<Model, String> {
        let sync = Command::Team(team::Command::Sync(TEAMS.map(team).to_vec()));
        let hubs = self.stage.begin(CLIENTS, sync).await?;
        let clients = (0..CLIENTS).map(|client| self.clone().operate(client, hubs.subscribe()));
        let run = async |handle: &Handle, n| self.run(handle, n).await;
        tokio::select! {
            // Otherwise the order of polling is drawn at random.
            biased;
            all = futures_util::future::join_all(clients) => all.into_iter().collect::<Result<(), String>>()?,
            fault = self.stage.run_and_crash(hubs.clone(), 400, run) => return Err(fault),
            () = self.clone().haunt(hubs.subscribe()) => unreachable!("it goes on for ever"),
        }
        self.stage.end(&hubs).await?;
        let (model, _) = self.stage.check().await?;
        Ok(model)
    }

    /// Does what the hub's runner does.
    async fn run(&self, handle: &Handle, n: u64) {
        let mut dice = self.stage.world.dice(2_000 + n);
        self.resting.lock().expect("nobody panics with it").clear();
        if self.stage.runner == Runner::Careful {
            self.interrupt_all(handle).await;
        }
        let watch = handle.watch(&Topic::Agents);
        let mut incarnations = FuturesUnordered::new();
        loop {
            let seen = handle.state().seq();
            let mut failed = false;
            while let Some(id) = handle.state().agents.queued().next().map(|agent| agent.id.clone())
            {
                if handle.state().agents.active().count() >= LIVE_MAX {
                    let mut resting = self.resting.lock().expect("nobody panics with it");
                    if !resting.is_empty() {
                        resting.remove(0).1.cancel();
                    }
                    break;
                }
                let admitted = self.stage.admit(handle, &id, &mut dice).await;
                let Some((agent, caller)) = admitted else {
                    failed = true;
                    break;
                };
                incarnations.push(self.incarnation(handle, agent, caller, Dice(dice.roll())));
            }
            tokio::select! {
                biased;
                () = watch.until(handle, |state| (state.seq() != seen).then_some(())) => {}
                Some(()) = incarnations.next(), if !incarnations.is_empty() => {}
                // Somebody may have begun to rest, which no event tells.
                () = tokio::time::sleep(Duration::from_millis(10)), if failed || handle.state().agents.queued().next().is_some() => {}
            }
        }
    }

    /// Says of everybody that an earlier hub left that their process is gone; one that rested sleeps.
    async fn interrupt_all(&self, handle: &Handle) {
        let state = handle.state();
        for agent in state.agents.active() {
            let (id, incarnation) = (agent.id.clone(), agent.incarnation);
            let conversation = state.conversations.of_agent(&id).expect("it has one");
            let command = if conversation.current.is_some() || !conversation.queue.is_empty() {
                let why = format!("crash {incarnation}");
                agent::Command::Interrupt { id, incarnation, why, blameless: false }
            } else {
                agent::Command::Sleep { id, incarnation, why: SleepWhy::Idle }
            };
            self.stage.tell(handle, Command::Agent(command)).await;
        }
    }

    /// One start of an agent: what its program does, and what is said of its end.
    async fn incarnation(
        &self,
        handle: &Handle,
        agent: Arc<Agent>,
        caller: Caller,
        mut dice: Dice,
    ) {
        let (id, incarnation) = (agent.id.clone(), agent.incarnation);
        let watch = handle.watch(&Topic::Agent(id.clone()));
        let told_to_end = watch.until(handle, |state| {
            let agent = state.agents.get(id.as_str())?;
            (agent.phase != Phase::Running).then_some(())
        });
        let came = tokio::select! {
            biased;
            () = told_to_end => Finish::Asleep(SleepWhy::Asked),
            came = self.work(handle, &agent, &caller, &mut dice) => came,
        };
        self.resting.lock().expect("nobody panics with it").retain(|(one, _)| *one != id);
        let current = handle.state().conversations.of_agent(&id).and_then(|one| one.current);
        if let Some(tell) = current {
            self.late.lock().expect("nobody panics with it").push((id.clone(), incarnation, tell));
        }
        let (cut_off, why) = (dice.below(2) == 0, format!("it crashed {incarnation}"));
        if matches!(came, Finish::Asleep(SleepWhy::Asked)) {
            tokio::time::sleep(dice.millis(20)).await;
            // With what it had said so far, or without a word.
            if let (false, Some(tell)) = (cut_off, current) {
                let how = How::Terminated { why: "asleep".into() };
                self.settle(handle, &id, incarnation, tell, how).await;
            }
        }
        // Its account may be used up, or its program gone, just as it is asked to sleep.
        let came = match (came, dice.below(6)) {
            (Finish::Asleep(SleepWhy::Asked), 0) => Finish::Parked,
            (Finish::Asleep(SleepWhy::Asked), 1) => Finish::Interrupted,
            (came, _) => came,
        };
        let last = match came {
            Finish::Interrupted => {
                agent::Command::Interrupt { id, incarnation, why, blameless: false }
            }
            Finish::Parked => {
                // The runner of this simulation starts it again at once.
                let (account, until) = ("all".into(), Timestamp(0));
                agent::Command::Park { id, incarnation, account, until, why }
            }
            Finish::Asleep(why) => agent::Command::Sleep { id, incarnation, why },
        };
        self.stage.tell(handle, Command::Agent(last)).await;
    }

    /// Answers what there is, rests in between, and comes to an end in one way or another.
    async fn work(
        &self,
        handle: &Handle,
        agent: &Agent,
        caller: &Caller,
        dice: &mut Dice,
    ) -> Finish {
        let (id, incarnation) = (agent.id.clone(), agent.incarnation);
        tokio::time::sleep(dice.millis(20)).await;
        if dice.below(15) == 0 {
            return Finish::Asleep(SleepWhy::NotStarted { says: "no such file".into() });
        }
        let session = agent.session.as_deref().unwrap_or(id.as_str()).to_owned();
        self.stage
            .tell(
                handle,
                Command::Agent(agent::Command::Begin {
                    id: id.clone(),
                    incarnation,
                    session,
                    program: None,
                    isolation: None,
                }),
            )
            .await;
        loop {
            let begin =
                conversation::Command::Begin { agent: id.clone(), incarnation, last_record: None };
            if !self.stage.tell(handle, Command::Conversation(begin)).await {
                return Finish::Interrupted;
            }
            let state = handle.state();
            let conversation = state.conversations.of_agent(&id).expect("it has one").id;
            let Some(tell) = state.conversations.of_agent(&id).and_then(|one| one.current) else {
                let is_over = CancellationToken::new();
                let rest = (id.clone(), is_over.clone());
                self.resting.lock().expect("nobody panics with it").push(rest);
                let watch = handle.watch(&Topic::Conversation(conversation));
                let told = watch.until(handle, |state| {
                    let conversation = state.conversations.get(conversation)?;
                    (!conversation.queue.is_empty()).then_some(())
                });
                tokio::select! {
                    biased;
                    () = told => {}
                    () = is_over.cancelled() => return Finish::Asleep(SleepWhy::Room),
                    () = tokio::time::sleep(IDLE) => return Finish::Asleep(SleepWhy::Idle),
                }
                self.resting.lock().expect("nobody panics with it").retain(|(one, _)| *one != id);
                continue;
            };
            tokio::time::sleep(dice.millis(40)).await;
            match dice.below(20) {
                0..2 => return Finish::Interrupted,
                2 => return Finish::Parked,
                // Nothing was heard of it: it is settled, and those behind it go on in another process.
                3 => {
                    let how = How::Terminated { why: "nothing was heard of it".into() };
                    self.settle(handle, &id, incarnation, tell, how).await;
                    return Finish::Asleep(SleepWhy::Idle);
                }
                // It asks others before it answers, and does not wait.
                4..7 => {
                    let to = TEAMS[usize::from(dice.below(2) == 0)];
                    let asks =
                        handle.submit(caller.clone(), tell_command(to, "nested"), None).await;
                    if let Ok(done) = asks {
                        self.stage.was_told(format!("what {id} told {to}"), &done);
                    }
                    self.settle(handle, &id, incarnation, tell, How::Completed).await;
                }
                // It says so twice.
                7 => {
                    self.settle(handle, &id, incarnation, tell, How::Completed).await;
                    self.settle(
                        handle,
                        &id,
                        incarnation,
                        tell,
                        How::Terminated { why: "late".into() },
                    )
                    .await;
                }
                _ => self.settle(handle, &id, incarnation, tell, How::Completed).await,
            }
        }
    }

    async fn settle(
        &self,
        handle: &Handle,
        agent: &AgentId,
        incarnation: u32,
        tell: TellId,
        how: How,
    ) {
        self.stage.tell(handle, settlement(agent, incarnation, tell, how)).await;
    }

    /// Says, much later, what incarnations would that are over.
    async fn haunt(self, hubs: watch::Receiver<Running>) {
        let mut dice = self.stage.world.dice(4);
        loop {
            tokio::time::sleep(dice.millis(60)).await;
            let late = self.late.lock().expect("nobody panics with it").pop();
            let Some((agent, incarnation, tell)) = late else { continue };
            let handle = hubs.borrow().handle.clone();
            // It may have been heard the first time, or go on in that incarnation.
            if handle
                .state()
                .agents
                .get(agent.as_str())
                .is_some_and(|one| one.incarnation == incarnation)
            {
                continue;
            }
            let settle = settlement(&agent, incarnation, tell, How::Completed);
            if let Ok(done) = handle.submit(Caller::hub(), settle, None).await {
                self.stage.was_told("a late word".to_owned(), &done);
            }
        }
    }

    /// Tells teams something and does all else that one can, then waits until everything is settled.
    async fn operate(self, client: u64, mut hubs: watch::Receiver<Running>) -> Result<(), String> {
        let mut dice = self.stage.world.dice(10 + client);
        let mut tells: Vec<(TellId, ConversationId)> = Vec::new();
        for n in 0..OPERATIONS {
            let mark = format!("op-{client}-{n}");
            let to = TEAMS[usize::from(dice.below(2) == 0)].to_owned();
            let last = tells.last().copied();
            let command = match (dice.below(12), last) {
                (0, _) => conversation::Command::Wake { to, from: None, clear: dice.below(2) == 0 },
                (1, _) => conversation::Command::Sleep {
                    to,
                    from: None,
                    all: false,
                    at_once: dice.below(2) == 0,
                },
                (2..4, Some((tell, _))) => conversation::Command::Cancel { tell },
                (4, Some((_, conversation))) => conversation::Command::Clear { conversation },
                (5, Some((_, conversation))) => conversation::Command::Read { conversation },
                _ => {
                    let (message, is_awaited) = (mark.clone(), dice.below(2) == 0);
                    conversation::Command::Tell(NewTell { to, from: None, message, is_awaited })
                }
            };
            let command = Command::Conversation(command);
            let done = self
                .stage
                .world
                .until_acknowledged(client, &mark, &command, &hubs, &mut dice)
                .await?;
            tells.extend(done.events.iter().find_map(|event| match event {
                Event::Conversation(
                    conversation::Event::Told { id, conversation, .. }
                    | conversation::Event::Joined { id, conversation, .. },
                ) => Some((*id, *conversation)),
                _ => None,
            }));
            self.stage.was_told(mark, &done);
            // Some come all at once, so that there are queues.
            if dice.below(2) == 0 {
                tokio::time::sleep(dice.millis(80)).await;
            }
        }
        let give_up_at = Instant::now() + PATIENCE;
        for (tell, conversation) in tells {
            loop {
                let handle = hubs.borrow_and_update().handle.clone();
                let watch = handle.watch(&Topic::Conversation(conversation));
                let settled = watch.until(&handle, |state| {
                    state.conversations.tell(tell)?.is_settled().then_some(())
                });
                tokio::select! {
                    biased;
                    () = settled => break,
                    _ = hubs.changed() => {}
                    () = tokio::time::sleep_until(give_up_at) => {
                        return Err(format!("{tell} was never settled"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What the log says of conversations, kept in another way than the core does.
#[derive(Debug, Default)]
struct Model {
    conversations: BTreeMap<ConversationId, Known>,
    /// How each message was settled, if it was.
    tells: BTreeMap<TellId, Option<How>>,
    n_slept: u64,
}

#[derive(Debug)]
struct Known {
    agent: AgentId,
    queue: VecDeque<TellId>,
    current: Option<TellId>,
}

impl Model {
    fn take_event(&mut self, event: &Event, before: &State) -> Result<(), String> {
        if let Event::Agent(agent::Event::Slept { .. }) = event {
            self.n_slept += 1;
        }
        let Event::Conversation(event) = event else { return Ok(()) };
        if let conversation::Event::Opened { id, agent, .. } = event {
            let known = Known { agent: agent.clone(), queue: VecDeque::new(), current: None };
            return match self.conversations.insert(*id, known) {
                Some(_) => Err(format!("{id} was opened twice")),
                None => Ok(()),
            };
        }
        let id = event.conversation();
        let known =
            self.conversations.get_mut(&id).ok_or_else(|| format!("{id} was never opened"))?;
        match event {
            conversation::Event::Opened { .. }
            | conversation::Event::Cleared { .. }
            | conversation::Event::Left { .. }
            | conversation::Event::Joined { .. }
            | conversation::Event::Read { .. } => {}
            conversation::Event::Told { id, .. } => {
                known.queue.push_back(*id);
                if self.tells.insert(*id, None).is_some() {
                    return Err(format!("{id} was told twice"));
                }
            }
            conversation::Event::Begun { id, .. } => {
                if known.current.is_some() || known.queue.front() != Some(id) {
                    return Err(format!("{id} was not the next: {known:?}"));
                }
                known.current = known.queue.pop_front();
            }
            conversation::Event::Settled { id, how, answer, .. } => {
                let settled =
                    self.tells.get_mut(id).ok_or_else(|| format!("{id} was never told"))?;
                if let Some(settled) = settled {
                    return Err(format!("{id} was settled by {settled:?} before {how:?}"));
                }
                let (is_current, is_queued) =
                    (known.current == Some(*id), known.queue.contains(id));
                let fits = match how {
                    How::Completed => is_current,
                    How::Cancelled => is_queued,
                    How::Terminated { .. } => is_current || is_queued,
                };
                if !fits {
                    return Err(format!("{id} was {how:?}: {known:?}"));
                }
                // What is said in an answer says in this simulation in which start of the agent.
                let of = answer.rsplit(' ').next().and_then(|of| of.parse::<u32>().ok());
                let now = before.agents.get(known.agent.as_str()).map(|agent| agent.incarnation);
                if of.is_some() && of != now {
                    return Err(format!("{id} was settled by start {of:?} in start {now:?}"));
                }
                *settled = Some(how.clone());
                known.current = known.current.filter(|current| current != id);
                known.queue.retain(|queued| queued != id);
            }
        }
        Ok(())
    }
}

impl stage::Model for Model {
    fn take(&mut self, record: &Record, before: &State) -> Result<(), String> {
        record.events.iter().try_for_each(|event| self.take_event(event, before))
    }

    /// The core must say the same; and nobody sleeps who has something to do.
    fn compare(&self, state: &State) -> Result<(), String> {
        for (id, known) in &self.conversations {
            let conversation =
                state.conversations.get(*id).ok_or_else(|| format!("{id} is lost"))?;
            let agent = state.agents.get(known.agent.as_str());
            let agent = agent.ok_or_else(|| format!("{} is lost", known.agent))?;
            if !conversation.queue.iter().eq(&known.queue) || conversation.current != known.current
            {
                return Err(format!("{id} is {known:?} and not {conversation:?}"));
            }
            let has_work = known.current.is_some() || !known.queue.is_empty();
            match agent.phase {
                Phase::Asleep if has_work => return Err(format!("{} sleeps: {known:?}", agent.id)),
                Phase::Ended => return Err(format!("{} has ended: {known:?}", agent.id)),
                _ => {}
            }
        }
        for (id, settled) in &self.tells {
            let tell = state.conversations.tell(*id).ok_or_else(|| format!("{id} is lost"))?;
            if tell.is_settled() != settled.is_some() {
                return Err(format!("{id} is {settled:?} and not {:?}", tell.progress));
            }
        }
        let n_live = state.agents.active().count();
        if n_live > LIVE_MAX {
            return Err(format!("{n_live} live at once"));
        }
        Ok(())
    }
}

fn team(name: &str) -> Team {
    let name = TeamName::parse(name).expect("a name");
    let behaviour =
        Role { name: RoleName::of_team(&name), limits: Limits::USUAL, ..agents::role("coder") };
    Team {
        is_implicit: false,
        directory: format!("/projects/{name}").into(),
        description: "".into(),
        color: None,
        idle_ms: 60,
        remote: None,
        worktrees: None,
        pass: Vec::new(),
        behaviour: Arc::new(behaviour),
        name,
    }
}

/// What a start of an agent says of a message; the answer says in which start.
fn settlement(agent: &AgentId, incarnation: u32, tell: TellId, how: How) -> Command {
    Command::Conversation(conversation::Command::Settle {
        agent: agent.clone(),
        incarnation,
        tell,
        how,
        answer: format!("{tell} {incarnation}"),
        last_record: None,
        used: None,
    })
}

fn tell_command(to: &str, message: &str) -> Command {
    let (to, message) = (to.to_owned(), message.to_owned());
    let new = NewTell { to, from: None, message, is_awaited: true };
    Command::Conversation(conversation::Command::Tell(new))
}
