//! Runs agents: gives them room in the order of drafting, starts their programs, and records what becomes of them.
//!
//! The state says which agents there should be; the runner makes it so. What it holds besides, it can lose: after a crash
//! the next hub finds in the state which agents were cut off, and goes on with them.

mod asking;
mod check;
mod cutoff;
mod failing;
mod guard;
mod incarnation;
mod interrupted;
mod last_words;
mod launching;
mod live;
mod missing;
mod model;
mod of_runs;
mod outcome;
mod queue;
mod redacting;
mod reload;
pub(crate) mod remote;
mod resting;
pub(crate) mod retention;
mod spending;
mod teams;
mod until;
mod worktree;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use teamster_agents::isolation::Isolation;
use teamster_agents::launches::Leftover;
use teamster_agents::supervise::Supervise;
use teamster_core::agent::{self, Agent, AgentId, Next};
use teamster_core::conversation;
use teamster_core::drive::WantedAgents;
use teamster_core::permission::{self, Pattern};
use teamster_core::role::{self, RoleName};
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, NodeName, Refusal, State, Timestamp};
use teamster_log::Log;
use teamster_mcp::Hub as _;
use teamster_mcp::access::parse_grants;
use teamster_mcp::catalogue::Catalogue;
use teamster_mcp::hub::Failure;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::check::{Checked, Reached, check, probe};
use self::cutoff::Seen;
pub use self::live::Live;
pub use self::of_runs::OfRuns;
pub use self::queue::{Queue, WaitsFor};
pub use self::reload::Configured;
use self::resting::Resting;
pub use self::teams::{check as check_team, check_all as check_teams, problem as team_problem};
pub(crate) use self::worktree::ONE_AT_A_TIME as ONE_WORKTREE_AT_A_TIME;
use crate::clock::Clock;
use crate::held::Guarded;
use crate::hub::{Handle, Tree};
use crate::isolation::{Found, Standing};
use crate::programs::{Program, Programs};
use crate::secret::Secrets;
use crate::settings::{self, Configuration, Money, Required};
use crate::{outlive, secret, tasks};

/// How long a command is waited for that could not be stored, before it is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Of a longer wait people are told.
const WAIT_TOLD_MS: i64 = 10_000;

/// What agents are run with.
pub struct Setup {
    pub hub: Handle,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// What runs their programs.
    pub supervisor: Arc<dyn Supervise>,
    /// What their tokens are made of.
    pub random: secret::Random,
    pub guarded: Guarded,
    /// Where agents find the hub.
    pub url: String,
    pub configured: Arc<Configured>,
    pub live: Live,
    pub queue: Queue,
    pub of_runs: Arc<dyn OfRuns>,
    /// Where it is said how agents are isolated.
    pub standing: Standing,
}

/// What every incarnation shares.
struct Shared {
    hub: Handle,
    /// Whose processes these are.
    node: NodeName,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    url: String,
    guarded: Guarded,
    configured: Arc<Configured>,
    supervisor: Arc<dyn Supervise>,
    secrets: Secrets,
    standing: Standing,
    live: Live,
    of_runs: Arc<dyn OfRuns>,
    resting: Arc<Resting>,
    /// What agents of runs told of the cost of turns that are under way.
    told: Mutex<BTreeMap<AgentId, u64>>,
    /// Ends what agents do when the hub ends.
    stop: CancellationToken,
}

/// What became of a command of the runner.
enum Recorded {
    Yes,
    Refused(Refusal),
    /// The hub ends, and the log cannot be written.
    Stopped,
}

pub struct Runner {
    shared: Arc<Shared>,
    incarnations: TaskTracker,
    queue: Queue,
    /// Queued agents of which people were told what they wait for.
    told: HashSet<AgentId>,
}

impl Runner {
    pub async fn new(setup: Setup) -> anyhow::Result<Self> {
        let Setup { hub, log, clock, supervisor, random, guarded, url, configured, .. } = setup;
        let Setup { live, queue, of_runs, standing, .. } = setup;
        let leftovers = supervisor.end_leftovers()?;
        for left in &leftovers {
            let Leftover { id, n_killed, n_left, .. } = left;
            tracing::warn!(id, n_killed, n_left, "found what an earlier hub had started");
        }
        configured.begin().await?;
        let shared = Arc::new(Shared {
            hub,
            node: NodeName::only(),
            log,
            clock,
            url,
            guarded,
            configured,
            supervisor,
            secrets: Secrets::new(random),
            standing,
            live,
            of_runs,
            resting: queue.resting.clone(),
            told: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let runner = Self { shared, incarnations: TaskTracker::new(), queue, told: HashSet::new() };
        runner.note_ends(&leftovers).await;
        runner.interrupt_all("the hub ended while it worked").await;
        // Only now: what they tell is in the log.
        runner.shared.supervisor.forget(&leftovers)?;
        Ok(runner)
    }

    /// Returns what ends all agents, and waits until they have.
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.shared.stop.clone(), incarnations: self.incarnations.clone() }
    }

    /// Runs until the hub ends.
    pub async fn run(mut self) {
        let hub = self.shared.hub.clone();
        tasks::spawn("bring late answers", bring_answers(self.shared.clone()));
        let shared = self.shared.clone();
        // Not only when the first one is started: people want to know before.
        tasks::spawn("find out how agents are isolated", async move {
            let _ = shared.isolation().await;
        });
        let watch = hub.watch(&Topic::Agents);
        let (stop, failing) = (self.shared.stop.clone(), self.queue.failing.clone());
        let mut configured = self.shared.configured.changes();
        let shared = self.shared.clone();
        tasks::spawn("remove old transcripts", async move { retention::run(&shared).await });
        loop {
            // Noted before we look, so that nothing in between is missed.
            let seen = hub.state().seq();
            let wait = self.admit().await;
            self.tell_waits().await;
            tokio::select! {
                // A seed of the simulation must always play the same.
                biased;
                () = stop.cancelled() => return,
                () = watch.until(&hub, |state| (state.seq() != seen).then_some(())) => {}
                () = hub.idlers().more() => {}
                () = self.shared.resting.more() => {}
                () = hub.trees().freed() => {}
                () = failing.changed() => {}
                // There may be room for more.
                _ = configured.changed() => {}
                () = async { match wait {
                    Some(at) => self.shared.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }} => {}
            }
        }
    }

    /// Starts as many queued agents as there is room for. Returns when to look again, if a program is to be spared.
    async fn admit(&self) -> Option<Timestamp> {
        let now = self.shared.clock.now();
        loop {
            let look_again = self.queue.look_again(now);
            let state = self.shared.hub.state();
            if self.shared.stop.is_cancelled() {
                return look_again;
            }
            let next = match self.queue.next(&state, true, now) {
                // The one that rests longest makes room before all others.
                Next::MakeRoom if self.shared.resting.make_room() => return look_again,
                Next::MakeRoom => self.queue.next(&state, false, now),
                next @ (Next::Start(_) | Next::Nothing) => next,
            };
            let Next::Start(id) = next else { return look_again };
            if !self.start(&id).await {
                // Nothing tells us when the log can be written again.
                let soon = Timestamp(now.0.saturating_add(TRY_AGAIN_AFTER.as_millis() as i64));
                return Some(look_again.map_or(soon, |at| at.min(soon)));
            }
        }
    }

    /// Tells people of queued agents that wait long for their program or their account; of each once.
    async fn tell_waits(&mut self) {
        let (state, now) = (self.shared.hub.state(), self.shared.clock.now());
        self.told.retain(|id| {
            state.agents.get(id.as_str()).is_some_and(|agent| agent.phase == agent::Phase::Queued)
        });
        // Of one that is parked itself it was told.
        for agent in state.agents.queued().filter(|agent| agent.parked.is_none()) {
            let Some(waits) = self.queue.spared(&state, agent, now) else { continue };
            let is_long = waits.until().is_some_and(|until| until.0 - now.0 > WAIT_TOLD_MS);
            let is_missing = matches!(waits, WaitsFor::Missing { .. });
            if (is_long || is_missing) && self.told.insert(agent.id.clone()) {
                let id = agent.id.clone();
                let says = match is_missing {
                    true => format!("waits: {waits}"),
                    false => format!("waits: {waits}; `teamster resume {id}` lets it try at once"),
                };
                self.shared.tell(agent::Command::Warn { id, says }).await;
            }
        }
    }

    /// Gives an agent its token and starts its program.
    async fn start(&self, id: &AgentId) -> bool {
        let secret = self.shared.secrets.secret();
        let node = self.shared.node.clone();
        let admit = agent::Command::Admit { id: id.clone(), secret: secret::hash(&secret), node };
        let done = match self.shared.hub.submit(Caller::hub(), Command::Agent(admit), None).await {
            Ok(done) => done,
            Err(error) => {
                tracing::warn!(agent = %id, %error, "an agent could not be admitted");
                // Somebody may have ended it meanwhile, or the log cannot be written.
                return false;
            }
        };
        let Some(agent) = done.state.agents.get(id.as_str()).cloned() else { return true };
        let Some(role) = done.state.behaviour(&agent).cloned() else {
            let why = format!("the role or team {} is gone", agent.role);
            let (id, incarnation) = (agent.id.clone(), agent.incarnation);
            let command = agent::Command::NotStarted { id, incarnation, why };
            self.shared.tell(command).await;
            return true;
        };
        let (shared, failing) = (self.shared.clone(), self.queue.failing.clone());
        let program = fails_as(&done.state, &agent, &role);
        let task = self.incarnations.track_future(async move {
            if incarnation::run(&shared, &agent, &role, &secret).await
                == incarnation::End::ProgramFailed
            {
                failing.note(&program, shared.clock.now());
            }
        });
        tasks::spawn("run an agent", task);
        true
    }

    /// Has recorded up to when changes are those of agents of runs that an earlier hub left.
    async fn note_ends(&self, leftovers: &[Leftover]) {
        let state = self.shared.hub.state();
        for agent in
            state.agents.active_on(&self.shared.node).filter(|agent| agent.draft.run.is_some())
        {
            let launched = leftovers.iter().filter(|one| launching::is_launch_of(&one.id, agent));
            let seen = match cutoff::end_of_hub(launched) {
                Some(at) => Seen::EndOfHub(at),
                None => Seen::Word(retention::last_heard(&*self.shared.log, &agent.id).await),
            };
            let at = cutoff::cutoff(seen, self.shared.clock.now());
            if let Some(command) = self.shared.of_runs.lost(agent, at) {
                self.shared.tell_hub(command).await;
            }
        }
    }

    /// Says of every agent that an earlier hub left on this node that its process is gone.
    async fn interrupt_all(&self, why: &str) {
        let state = self.shared.hub.state();
        for agent in state.agents.active_on(&self.shared.node) {
            let (id, incarnation) = (agent.id.clone(), agent.incarnation);
            // What a turn used that was interrupted with the hub is known as far as it was reported; it was not nothing.
            if agent.has_open_turn {
                let configuration = self.shared.configured.current();
                let prices = &configuration.settings.prices;
                let role = state.behaviour(agent);
                let model = role.as_ref().and_then(|role| role.model.as_deref());
                let log = self.shared.log.as_ref();
                let (id, used) = (id.clone(), interrupted::used(log, agent, model, prices).await);
                self.shared.tell(agent::Command::Spend { id, incarnation, used }).await;
            }
            let command = agent::Command::Lose { id, incarnation, why: why.to_owned() };
            self.shared.tell(command).await;
        }
    }
}

/// Ends all agents when the hub ends.
pub struct Stopper {
    stop: CancellationToken,
    incarnations: TaskTracker,
}

impl Stopper {
    /// Returns what is cancelled when the hub begins to end.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Returns when no process of an agent is left.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.incarnations.close();
        self.incarnations.wait().await;
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, BTreeMap<AgentId, u64>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has something recorded about an agent; tries until the log can be written. What comes too late is left out.
    async fn tell(&self, command: agent::Command) {
        self.tell_hub(Command::Agent(redacting::without_secrets(command))).await;
    }

    async fn tell_hub(&self, command: Command) {
        self.record(command).await;
    }

    /// Records something that may be refused; tries until the log can be written.
    async fn record(&self, command: Command) -> Recorded {
        loop {
            match self.hub.submit(Caller::hub(), command.clone(), None).await {
                Ok(_) => return Recorded::Yes,
                Err(Failure::Refused(refusal)) => return Recorded::Refused(refusal),
                Err(Failure::Unavailable(why) | Failure::Unknown(why)) => {
                    tracing::warn!(why, "what became of an agent could not be recorded");
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                        () = self.stop.cancelled() => return Recorded::Stopped,
                    }
                }
            }
        }
    }

    /// Returns what an agent's processes are held by, or why none may be started.
    async fn isolation(&self) -> Result<Isolation, String> {
        let (best, lacking) =
            self.supervisor.strongest(&format!("probe-{:x}", self.secrets.nonce())).await;
        let wanted = self.configured.current().settings.isolation.clone();
        let is_required = wanted.require == Some(Required::Namespaces);
        let lacks_memory_limit = wanted.memory_mb.is_some() && !outlive::limits_memory();
        let found = Found { isolation: best, failure: lacking, is_required, lacks_memory_limit };
        let refused = found.refused();
        // Said once, not for each agent.
        if self.standing.set(found.clone()) {
            found.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        refused.map_or(Ok(best), Err)
    }
}

/// Has recorded which answers are no longer waited for, so that they are brought to those who asked.
async fn bring_answers(shared: Arc<Shared>) {
    loop {
        let tells = tokio::select! {
            biased;
            tells = shared.hub.unheard().take() => tells,
            () = shared.stop.cancelled() => return,
        };
        for tell in tells {
            let leave = conversation::Command::Leave { tell };
            shared.tell_hub(Command::Conversation(leave)).await;
        }
    }
}

/// Returns the directory that an agent works in: that of its team as it is now, or its own.
fn workplace(state: &State, agent: &Agent) -> Arc<str> {
    let team = state.team_of(agent);
    let own = &agent.draft.directory;
    let has_worktree = |root: &Arc<str>| Path::new(&**own).starts_with(&**root);
    match team {
        Some(team) if !team.worktrees.as_ref().is_some_and(has_worktree) => team.directory.clone(),
        Some(_) | None => own.clone(),
    }
}

/// Returns where an agent that speaks for a team works.
pub(crate) fn tree(state: &State, agent: &Agent) -> Option<Tree> {
    agent.draft.team.as_ref()?;
    Some(Tree { machine: remote::of(state, agent), directory: workplace(state, agent) })
}

/// Returns the name under which failures of an agent's program count.
fn fails_as(state: &State, agent: &Agent, role: &role::Role) -> Arc<str> {
    match remote::of(state, agent) {
        None => role.program.clone(),
        Some(remote) => format!("{} over {remote}", role.program).into(),
    }
}

/// Returns how those behave who work a run off.
pub(crate) fn worker(configured: &Configured, wanted: &WantedAgents) -> Result<role::Role, String> {
    const DEFAULT_ROLE: &str = "coder";
    let configuration = configured.current();
    let name = wanted.role.as_deref().unwrap_or(DEFAULT_ROLE);
    let mut role = configuration.roles.find(name)?.clone();
    if let Some(program) = &wanted.program {
        let known =
            configuration.settings.programs.choose(Some(program), configured.search_path())?;
        role.program = Some(known.0.name.clone());
    }
    if let Some(model) = &wanted.model {
        role.model = Some(model.clone());
    }
    let catalogue = teamster_mcp::tools::catalogue();
    let mut behaviour = convert(&role, &configuration, configured.search_path(), &catalogue)?;
    // What they are to do is in the run's own prompt, unless the person wants a role.
    if wanted.role.is_none() {
        behaviour.name =
            RoleName::parse(WantedAgents::NO_ROLE).map_err(|error| error.to_string())?;
        behaviour.prompt = "".into();
    }
    behaviour.directory = None;
    let grants = ["session".to_owned()];
    behaviour.grants = parse_grants(&catalogue, &grants)?;
    Ok(behaviour)
}

/// Returns why a role's rules may have no effect on its program, if it has rules and that is so.
pub(crate) fn doubt(programs: &Programs, role: &role::Role) -> Option<String> {
    let known = programs.find(&role.program).ok().filter(|_| role.permissions.hold_back())?;
    known.doubt()
}

/// Returns the rules as the core knows them.
fn permissions(rules: &settings::Permissions) -> permission::Permissions {
    let patterns = |rules: &[settings::Rule]| {
        rules.iter().filter_map(|rule| Pattern::parse(rule.as_str()).ok()).collect()
    };
    permission::Permissions {
        deny: patterns(&rules.deny),
        ask: patterns(&rules.ask),
        allow: patterns(&rules.allow),
        otherwise: match rules.otherwise {
            settings::Verdict::Allow => permission::Verdict::Allow,
            settings::Verdict::Ask => permission::Verdict::Ask,
            settings::Verdict::Deny => permission::Verdict::Deny,
        },
        ask_ms: u64::from(rules.ask_minutes.get()) * 60_000,
    }
}

/// Returns a configured role as the core knows it.
fn convert(
    role: &crate::roles::Role,
    configuration: &Configuration,
    search_path: &[PathBuf],
    catalogue: &Catalogue,
) -> Result<role::Role, String> {
    let programs = &configuration.settings.programs;
    let wanted = role.program.as_ref().or(configuration.settings.program.as_ref());
    // One that is not installed keeps its name; whoever drafts it is told. On another machine it may be there.
    let wanted_name = wanted.map(|name| name.as_str());
    let chosen = programs.choose(wanted_name, search_path).map(|(known, _)| known);
    let (program, account, max_wait_s) =
        match chosen.or_else(|why| wanted_name.map_or(Err(why), |name| programs.find(name))) {
            Ok(known) => {
                let account = known.program.account.as_ref().unwrap_or(known.name);
                let max_wait_s = known.program.max_wait_s.get();
                (known.name.as_str().to_owned(), account.as_str().into(), max_wait_s)
            }
            Err(_) => {
                let wanted = wanted.map(|name| name.as_str()).unwrap_or_default();
                (wanted.to_owned(), wanted.into(), Program::default().max_wait_s.get())
            }
        };
    let limits = &role.limits;
    let max_wait_ms = u64::from(max_wait_s) * 1_000;
    Ok(role::Role {
        name: RoleName::parse(role.name.as_str()).map_err(|error| error.to_string())?,
        description: role.description.as_str().into(),
        category: role.category.as_str().into(),
        program: program.into(),
        model: role.model.as_deref().map(Into::into),
        grants: parse_grants(catalogue, &role.grants())?,
        limits: role::Limits {
            depth: limits.depth.get(),
            children: limits.children.get(),
            total: limits.total.get(),
            turns: limits.turns.get(),
            wall_ms: u64::from(limits.wall_minutes.get()) * 60_000,
            microdollars: limits.dollars.map(Money::micros),
            tokens: limits.tokens.map(|tokens| u64::from(tokens.get())),
        },
        directory: role.cwd.as_ref().map(|cwd| cwd.to_string_lossy().as_ref().into()),
        stall_ms: u64::from(role.stall_s) * 1_000,
        tool_stall_ms: u64::from(role.tool_stall_s) * 1_000,
        prompt: role.prompt.as_str().into(),
        permissions: permissions(&role.permissions),
        account,
        max_wait_ms,
        guard: teamster_core::guard::Guard {
            repeats: role.guard.repeats.get(),
            pairs: role.guard.pairs.get(),
            errors: role.guard.errors.get(),
        },
        reach: match role.reach {
            crate::roles::Reach::Own => role::Reach::Own,
            crate::roles::Reach::Workspace => role::Reach::Workspace,
        },
        is_projects: role.prompt_from == settings::Layer::Project,
    })
}

/// Returns the configured roles as the core knows them. One that cannot be used is left out and told.
fn roles(
    configuration: &Configuration,
    search_path: &[PathBuf],
    unusable: &mut Vec<String>,
) -> Vec<role::Role> {
    let catalogue = teamster_mcp::tools::catalogue();
    let usable = configuration.roles.iter().filter_map(|role| {
        convert(role, configuration, search_path, &catalogue)
            .map_err(|error| unusable.push(format!("roles.{} is not usable: {error}", role.name)))
            .ok()
    });
    usable.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use teamster_core::grant::Grants;
    use teamster_core::role::{Limits, Role, RoleName};

    /// A role of which nothing matters.
    pub(crate) fn role() -> Role {
        Role {
            name: RoleName::parse("coder").unwrap(),
            description: "".into(),
            category: "coding".into(),
            program: "scripted".into(),
            model: None,
            grants: Grants::default(),
            limits: Limits::USUAL,
            directory: None,
            stall_ms: 1_000,
            tool_stall_ms: 1_000,
            prompt: "".into(),
            permissions: super::permission::Permissions::default(),
            account: "".into(),
            max_wait_ms: 50_000,
            guard: teamster_core::guard::Guard::default(),
            reach: teamster_core::role::Reach::Own,
            is_projects: false,
        }
    }
}
