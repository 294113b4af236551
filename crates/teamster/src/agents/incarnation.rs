//! One start of an agent's program, from its launch until nothing of it is left.

mod conversing;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::agent::{
    Begin, Event, McpServer, PermissionId, PermissionOption, Resume, ToolCall, TurnEnd,
};
use teamster_agents::dialogue::Dialogue;
use teamster_agents::drivers::{self, Preparation};
use teamster_agents::launch::{self, Grace, Launch, Private, Terminate};
use teamster_agents::lines::Lines;
use teamster_agents::stdin::Stdin;
use teamster_agents::supervisor::{Process, Started};
use teamster_agents::transcript::{Record, Transcriber};
use teamster_core::agent::{self, Agent, AgentId, Ending, Outcome, Phase, SleepWhy, Status, Why};
use teamster_core::conversation::How;
use teamster_core::ids::QuestionId;
use teamster_core::permission;
use teamster_core::question;
use teamster_core::role::Role;
use teamster_core::spending::Used;
use teamster_core::team::Team;
use teamster_core::token::Kind;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Timestamp};
use teamster_log::Conversation;
use teamster_mcp::Hub as _;
use teamster_mcp::hub::Waits;
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::conversing::Conversing;
use super::asking::{self, Pending};
use super::guard::{Guard, Verdict};
use super::last_words::LastWords;
use super::remote::{self, NotThere, Ssh};
use super::spending::Spending;
use super::{Shared, outcome, retention, until, worktree};
use crate::programs::{Driver, Ends, Program};
use crate::secret;
use crate::settings::Mcp;

/// How long a program may take until it can be prompted: the slowest known takes 24 s on a loaded machine.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(90);
/// What an agent says is kept in pieces no older than this, so that whoever follows it sees it soon.
const TEXT_WAIT_MS: u64 = 300;
/// How long a program may take to give up its turn, before it is ended anyway.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);
/// How long after SIGTERM a program is killed.
const TERMINATE_PATIENCE: Duration = Duration::from_secs(2);
/// As many questions as a program may take back before nobody is asked for it any more; they do so when a turn is
/// cancelled, or one of several calls was denied.
const TAKEN_BACK_MAX: usize = 100;
/// How long to wait for how a program ended whose output has ended.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// As much of a program's last words as goes into an outcome.
const STDERR_BYTES_MAX: usize = 1_000;

/// As many denials by rules as are told of one process.
const DENIALS_TOLD_MAX: u32 = 20;

/// What the runner needs to know of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Usual,
    /// Its program could not be started, or ended in the middle.
    ProgramFailed,
}

/// What became of the agent's work.
enum Came {
    /// It has an outcome.
    To(Outcome),
    /// Its process is gone though its work is not done.
    Off(String),
    /// The hub ends, and goes on with it when it starts again.
    Stopped,
    /// The program was not able to begin.
    ToNothing(String),
    /// Its account has nothing left.
    ToAPause { until: Timestamp, why: String },
    /// The program was not able to go on with its session.
    NotResumed(String),
    /// One that lasts needs no process for now.
    ToSleep(SleepWhy),
}

/// Runs one incarnation and has its end recorded once all of it is gone.
pub(super) async fn run(shared: &Shared, agent: &Agent, role: &Role, secret: &str) -> End {
    let (id, incarnation) = (agent.id.clone(), agent.incarnation);
    let mut session = agent.session.as_deref();
    let mut failed = End::ProgramFailed;
    let came = loop {
        let came = match begin(shared, agent, role, secret, session).await {
            Ok(talk) => talk.run().await,
            // Nothing was started, so there is no program that others have to be spared from.
            Err(why) => {
                failed = End::Usual;
                Came::ToNothing(why)
            }
        };
        // The program may have lost it, or have been cut off before there was anything to keep.
        let Came::NotResumed(why) = came else { break came };
        if is_handed_over(agent) {
            break Came::NotResumed(why);
        }
        let says = format!("it begins a new session, because {why}");
        shared.tell(agent::Command::Warn { id: agent.id.clone(), says }).await;
        session = None;
    };
    shared.live.ended(&agent.id);
    shared.hub.pids().set(&agent.id, None);
    let (command, end) = match came {
        Came::To(outcome) => (agent::Command::End { id, incarnation, outcome }, End::Usual),
        Came::Off(why) => {
            let blameless = false;
            (agent::Command::Interrupt { id, incarnation, why, blameless }, End::ProgramFailed)
        }
        Came::Stopped => {
            let (why, blameless) = ("the hub was stopped".to_owned(), true);
            (agent::Command::Interrupt { id, incarnation, why, blameless }, End::Usual)
        }
        Came::ToAPause { until, why } => {
            let account = role.account.clone();
            (agent::Command::Park { id, incarnation, account, until, why }, End::Usual)
        }
        Came::ToSleep(why) => (agent::Command::Sleep { id, incarnation, why }, End::Usual),
        Came::ToNothing(why) | Came::NotResumed(why) if agent.lasts() => {
            let why = SleepWhy::NotStarted { says: why.into() };
            (agent::Command::Sleep { id, incarnation, why }, failed)
        }
        Came::ToNothing(why) | Came::NotResumed(why) => {
            let outcome = Outcome::failed(Ending::Crashed, why);
            (agent::Command::End { id, incarnation, outcome }, failed)
        }
    };
    shared.tell(command).await;
    end
}

/// Says whether this is the hub's first start of what a person began: without that session there is nothing to go on with.
fn is_handed_over(agent: &Agent) -> bool {
    agent.incarnation == 1 && agent.session.is_some()
}

/// An agent that is being talked to.
struct Talk<'a> {
    shared: &'a Shared,
    agent: &'a Agent,
    role: &'a Role,
    /// The team that it speaks for, as it was when it was started.
    team: Option<Arc<Team>>,
    /// It is to go on with an earlier session.
    resumes: bool,
    process: Process,
    /// How its process is ended.
    grace: Grace,
    dialogue: Dialogue<Lines<Receiver>, Stdin>,
    transcript: Conversation,
    transcriber: Transcriber,
    /// The last record that it wrote.
    last_record: Option<u64>,
    guard: Guard,
    /// Tool calls that were seen; a program tells of one several times.
    calls: HashSet<String>,
    /// Those that have no result yet.
    open_calls: HashSet<String>,
    last_words: LastWords,
    /// The message that its last words are part of, if its program tells messages apart.
    message: Option<String>,
    spending: Spending,
    conversing: Conversing,
    /// Permissions that people were asked for.
    pending: Vec<Pending>,
    /// How many of them it took back.
    n_taken_back: usize,
    /// While it waits for people, it takes no room from those that work.
    waits: Option<Waits>,
    /// Since when its silence is its own.
    heard_at: Instant,
    /// What its program said of its account, and until when.
    limit: Option<(Timestamp, String)>,
    n_denied: u32,
}

/// A program that was started, and what it is told first.
struct Launched {
    driver: Box<dyn drivers::Driver>,
    begin: Begin,
    started: Started,
    grace: Grace,
}

/// Starts an agent's program on this machine.
async fn launch_here(
    shared: &Shared,
    agent: &Agent,
    role: &Role,
    secret: &str,
    session: Option<&str>,
) -> Result<Launched, String> {
    let configuration = shared.configured.current();
    let settings = &configuration.settings;
    let (known, path) =
        settings.programs.choose(Some(&role.program), shared.configured.search_path())?;
    let program = known.program.clone();
    let state = shared.hub.state();
    let team = agent.draft.team.as_ref().and_then(|team| state.teams.get(team.as_str()));
    let mut directory = PathBuf::from(&*super::workplace(&state, agent));
    if let Some(team) = team
        && let Some(root) = &team.worktrees
        && directory.starts_with(&**root)
        && let Some(conversation) = state.conversations.of_agent(&agent.id)
    {
        let branch = worktree::branch(&team.name, conversation, &directory);
        let (held, repository) = (shared.hub.held(), Path::new(&*team.directory));
        directory = worktree::ensure(held, repository, &directory, &branch).await?;
    }
    if !directory.is_dir() {
        return Err(format!("there is no directory {}", directory.display()));
    }
    let model = role.model.as_deref();
    // Other hubs have agents of the same name, and what carries the id of a launch may be ended by whoever knows it.
    let id = launch_id(agent, secret::nonce());
    let launch = Launch::new(id, path, shared.isolation().await);
    let mut launch = filled(launch, &program, model, &settings.mcp, &directory);
    shared.guarded.keep(&mut launch);
    launch.passed_on.extend(team.iter().flat_map(|team| &team.pass).map(ToString::to_string));
    let session = session.filter(|_| program.load_session);
    let begin = beginning((shared, agent, role), &shared.url, directory, secret, session);
    let mut driver = driver(&program);
    let launch = prepared(launch, driver.as_mut(), &begin);
    let started = shared.supervisor.launch(launch).await;
    let started = started.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let grace = grace(&program);
    Ok(Launched { driver, begin, started, grace })
}

/// Starts an agent's program on another machine.
async fn launch_there(
    shared: &Shared,
    agent: &Agent,
    role: &Role,
    secret: &str,
    (session, remote): (Option<&str>, &str),
) -> Result<Launched, String> {
    let ssh = Ssh::parse(remote)?;
    let configuration = shared.configured.current();
    let settings = &configuration.settings;
    let program = settings.programs.find(&role.program)?.program.clone();
    let model = role.model.as_deref();
    let session = session.filter(|_| program.load_session);
    // What the program is passed on here is this machine's; there it has what its user has there, and what its team names.
    let state = shared.hub.state();
    let team = agent.draft.team.as_ref().and_then(|team| state.teams.get(team.as_str()));
    let pass: Vec<String> =
        team.iter().flat_map(|team| &team.pass).map(ToString::to_string).collect();
    let directory = super::workplace(&state, agent);
    for _ in 0..remote::PORTS_TRIED_MAX {
        let nonce = secret::nonce();
        let port = remote::port(nonce);
        let url = format!("http://127.0.0.1:{port}");
        let id = format!("{nonce:032x}");
        let begun_in = PathBuf::from(&*directory);
        let mut begin = beginning((shared, agent, role), &url, begun_in, secret, session);
        let mut driver = driver(&program);
        let variables = program.variables(model, &settings.mcp).into_iter();
        let private = remote::private(&id);
        let mut order = remote::Order {
            ssh: &ssh,
            id,
            directory: &directory,
            program: &program.command,
            args: program.arguments(model).into_iter().map(Into::into).collect(),
            environment: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            pass: &pass,
            files: Vec::new(),
            grace: grace(&program),
        };
        order.prepare(driver.prepare(&begin, &private));
        let id = launch_id(agent, nonce);
        let launch = Launch::new(id, "ssh", shared.isolation().await);
        match remote::start(shared, agent, launch, &order, port).await {
            Ok((started, directory)) => {
                // Where it really is, which the program is told.
                begin.directory = directory;
                let grace = remote::grace(order.grace);
                return Ok(Launched { driver, begin, started, grace });
            }
            Err(NotThere::Because(why)) => return Err(why),
            Err(NotThere::PortTaken) => {}
        }
    }
    Err(remote::NO_PORT.to_owned())
}

/// Returns a name for one launch. Teams may have characters in their names that a launch may not.
fn launch_id(agent: &Agent, nonce: u128) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = agent.id.as_str().chars().map(plain).collect();
    format!("{name}-{}-{:016x}", agent.incarnation, nonce >> 64)
}

/// Returns what a program is told first.
fn beginning(
    (shared, agent, role): (&Shared, &Agent, &Role),
    url: &str,
    directory: PathBuf,
    secret: &str,
    session: Option<&str>,
) -> Begin {
    let configuration = shared.configured.current();
    let tool_timeout = configuration.settings.mcp.stream_timeout.get().into();
    Begin {
        directory,
        mcp_servers: vec![McpServer {
            name: "teamster".into(),
            url: match &agent.draft.run {
                Some(run) => format!("{url}/mcp/session/{run}"),
                None => format!("{url}/mcp"),
            },
            headers: vec![("Authorization".into(), format!("Bearer {secret}"))],
            tool_timeout: Some(Duration::from_millis(tool_timeout)),
        }],
        resume: session.map(|session| Resume {
            session: session.to_owned(),
            or_new: !is_handed_over(agent),
            spent_micros: agent.used.microdollars,
        }),
        model: role.model.as_deref().map(str::to_owned),
        nonce: secret::nonce(),
    }
}

async fn begin<'a>(
    shared: &'a Shared,
    agent: &'a Agent,
    role: &'a Role,
    secret: &str,
    session: Option<&str>,
) -> Result<Talk<'a>, String> {
    let state = shared.hub.state();
    let team = agent.draft.team.as_ref().and_then(|team| state.teams.get(team.as_str())).cloned();
    let launched = match remote::of(&state, agent) {
        None => launch_here(shared, agent, role, secret, session).await,
        Some(remote) => launch_there(shared, agent, role, secret, (session, &remote)).await,
    };
    let Launched { driver, begin, started, grace } = launched?;
    let Started { process, stdin, stdout } = started;
    let mut dialogue = Dialogue::new(driver, stdout, stdin);
    dialogue.begin(&begin, HANDSHAKE_PATIENCE).map_err(|refusal| refusal.to_string())?;
    let transcript =
        retention::transcript_of(agent.id.as_str()).map_err(|error| error.to_string())?;
    Ok(Talk {
        shared,
        agent,
        role,
        team,
        resumes: begin.resume.is_some(),
        process,
        grace,
        dialogue,
        transcript,
        transcriber: Transcriber::new(TEXT_WAIT_MS),
        last_record: None,
        guard: Guard::default(),
        calls: HashSet::new(),
        open_calls: HashSet::new(),
        last_words: LastWords::default(),
        message: None,
        spending: Spending::default(),
        conversing: Conversing::default(),
        pending: Vec::new(),
        n_taken_back: 0,
        waits: None,
        heard_at: Instant::now(),
        limit: None,
        n_denied: 0,
    })
}

impl Talk<'_> {
    /// Talks until the work is done or cannot go on, and ends the program.
    async fn run(mut self) -> Came {
        let came = self.talk().await;
        // One that is to go on in another process is cut off where it is: a turn that was cancelled is over.
        if matches!(came, Came::To(_) | Came::ToSleep(_)) {
            self.cancel_turn().await;
        }
        self.dialogue.close();
        self.process.end(self.grace);
        // Until it is gone it may still write, and must not be stuck in that.
        let process = self.process.clone();
        let exited = process.exited();
        tokio::pin!(exited);
        let exited = loop {
            tokio::select! {
                exited = &mut exited => break exited,
                event = self.dialogue.next() => match event {
                    Some(event) => self.keep(event).await,
                    None => break exited.await,
                },
            }
        };
        if exited.n_left > 0 {
            let says = format!(
                "{} of its processes belong to another user and could not be ended",
                exited.n_left
            );
            self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
        }
        if let Some(rest) = self.transcriber.flush() {
            self.write(rest).await;
        }
        let cost_microdollars = self.spend().await;
        // Whoever waits for an answer gets what was said so far.
        let had_a_message = self.conversing.tell.is_some();
        match &came {
            Came::To(outcome) => {
                self.settle(How::Terminated { why: outcome.summary.clone() }).await;
            }
            Came::ToSleep(_) => {
                self.settle(How::Terminated { why: "its agent was put to sleep".into() }).await;
            }
            Came::Off(_)
            | Came::Stopped
            | Came::ToNothing(_)
            | Came::ToAPause { .. }
            | Came::NotResumed(_) => {}
        }
        retention::after_turn(self.shared, &self.agent.id, &self.transcript).await;
        match came {
            // The message under way has paid for it; those behind it are answered by the next process.
            Came::To(outcome) if had_a_message => {
                let says = outcome.summary.to_string();
                self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
                Came::ToSleep(SleepWhy::Idle)
            }
            Came::To(outcome) => Came::To(Outcome { cost_microdollars, ..outcome }),
            other => other,
        }
    }

    /// Has recorded what the turn used. Returns what the agent has cost, if all of that is known.
    async fn spend(&mut self) -> Option<u64> {
        let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        if let Some(used) = self.take_used().await {
            let id = id.clone();
            self.shared.tell(agent::Command::Spend { id, incarnation, used }).await;
        }
        let state = self.shared.hub.state();
        let used = state.agents.get(id.as_str())?.used;
        (used.n_priced > 0 && used.n_unpriced == 0).then_some(used.microdollars)
    }

    /// Returns what the turn used, which is to be recorded.
    async fn take_used(&mut self) -> Option<Used> {
        let configuration = self.shared.configured.current();
        let prices = &configuration.settings.prices;
        let used = self.spending.take(self.role.model.as_deref(), prices)?;
        if used.microdollars.is_none() && self.agent.draft.limits.microdollars.is_some() {
            let model = used.model.as_deref().unwrap_or("its model").to_owned();
            let says = format!(
                "the price of {model} is not known, so what this turn cost is missing in the budget; say it in \
                 [prices.{model:?}] of teamster.toml"
            );
            self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
        }
        Some(used)
    }

    /// Says whether what the program tells of the turn under way is more than is left for it.
    fn is_overspent(&self) -> bool {
        let state = self.shared.hub.state();
        let agent = state.agents.get(self.agent.id.as_str());
        let left = agent.and_then(|agent| {
            Some(agent.draft.limits.microdollars?.saturating_sub(agent.spent.microdollars))
        });
        let told = self.spending.told_micros().filter(|told| *told > 0);
        left.zip(told).is_some_and(|(left, told)| told > left)
    }

    /// Asks the program to give up its turn, if it is in one, and waits for that: so it drops what it waits for, and its
    /// session ends in good order. Neither a program that does not listen nor the hub's end is waited for.
    async fn cancel_turn(&mut self) {
        if !self.dialogue.in_turn() || self.dialogue.cancel().is_err() {
            return;
        }
        let too_late = tokio::time::sleep(CANCEL_PATIENCE);
        tokio::pin!(too_late);
        while self.dialogue.in_turn() {
            tokio::select! {
                biased;
                () = &mut too_late => return,
                () = self.shared.stop.cancelled() => return,
                event = self.dialogue.next() => match event {
                    Some(event) => {
                        // What a turn has used is often told at its end.
                        if let Event::Usage(usage) = &event {
                            self.spending.hear(usage.clone());
                        }
                        self.keep(event).await;
                    }
                    None => return,
                },
            }
        }
    }

    async fn talk(&mut self) -> Came {
        let hub = self.shared.hub.clone();
        let id = self.agent.id.clone();
        let watch = hub.watch(&Topic::Agent(id.clone()));
        let told_to_end = watch.until(&hub, |state| match state.agents.get(id.as_str()) {
            Some(agent) if agent.phase == Phase::Running => None,
            Some(agent) => Some(agent.ending_why.clone().unwrap_or(Why::Killed)),
            None => Some(Why::Killed),
        });
        tokio::pin!(told_to_end);
        let process = self.process.clone();
        let exited = process.exited();
        tokio::pin!(exited);
        let mut has_exited = false;
        let answers = hub.watch(&Topic::Agent(id.clone()));
        let conversation = hub.state().conversations.of_agent(&id).map(|one| one.id);
        let topic = conversation.map_or_else(|| Topic::Agent(id.clone()), Topic::Conversation);
        let messages = hub.watch(&topic);
        let team = self.team.clone();
        let topic = team.as_ref().map(|team| Topic::Team(team.name.clone()));
        let teams = hub.watch(&topic.unwrap_or_else(|| Topic::Agent(id.clone())));
        loop {
            // A tool at work is silent for as long as it takes.
            let stall = match self.open_calls.is_empty() {
                true => Duration::from_millis(self.role.stall_ms),
                false => Duration::from_millis(self.role.tool_stall_ms.max(self.role.stall_ms)),
            };
            let silent_at = self.dialogue.last_activity().max(self.heard_at) + stall;
            let due = self.transcriber.due_ms();
            let asked: Vec<QuestionId> = self.pending.iter().map(|one| one.question).collect();
            let answered = answers.until(&hub, |state| {
                asked.iter().enumerate().find_map(|(at, id)| {
                    let question = state.questions.get(*id)?;
                    Some((at, question.answer()?.map(ToString::to_string)))
                })
            });
            let idle_ms = self.idle_ms();
            let (rests, is_over, idle_at) = match &self.conversing.rests {
                Some((rest, since)) => (true, rest.is_over.clone(), *since + idle_ms),
                None => (false, CancellationToken::new(), Instant::now()),
            };
            let claim = self.conversing.claim.as_ref().filter(|_| rests);
            let waits_for_tree = claim.is_some();
            let granted = async {
                match claim {
                    Some(claim) => claim.granted().await,
                    None => std::future::pending().await,
                }
            };
            let told = messages.until(&hub, |state| {
                let conversation = state.conversations.get(conversation?)?;
                (!conversation.queue.is_empty()).then_some(())
            });
            let outdated = teams.until(&hub, |state| {
                conversing::is_outdated(state, team.as_deref()?).then_some(())
            });
            tokio::select! {
                biased;
                why = &mut told_to_end => return match self.agent.lasts() {
                    true => Came::ToSleep(SleepWhy::Asked),
                    false => Came::To(self.ended(&why)),
                },
                () = self.shared.stop.cancelled() => {
                    if self.conversing.rests.is_some() {
                        return Came::ToSleep(SleepWhy::Idle);
                    }
                    return Came::Stopped;
                }
                event = self.dialogue.next() => match event {
                    Some(event) => {
                        if let Some(came) = self.hear(event).await {
                            return came;
                        }
                    }
                    None => return Came::Off(self.last_signs("its program ended")),
                },
                exited = &mut exited, if !has_exited => {
                    has_exited = true;
                    self.dialogue.end(&format!("{:?}", exited.how));
                }
                () = granted, if waits_for_tree => {
                    if let Some(came) = self.next_tell(true).await {
                        return came;
                    }
                }
                () = outdated, if rests => return Came::ToSleep(SleepWhy::Changed),
                () = told, if rests && !waits_for_tree => {
                    if let Some(came) = self.next_tell(true).await {
                        return came;
                    }
                }
                () = is_over.cancelled(), if rests => return Came::ToSleep(SleepWhy::Room),
                () = tokio::time::sleep_until(idle_at), if rests && !waits_for_tree => {
                    return Came::ToSleep(SleepWhy::Idle);
                }
                (at, word) = answered, if !asked.is_empty() => self.answered(at, word.as_deref()),
                () = tokio::time::sleep_until(silent_at),
                    if self.dialogue.in_turn() && asked.is_empty() =>
                {
                    // Not all that it says makes an event; and whoever is looked at late may have spoken.
                    if Instant::now() < self.dialogue.last_activity() + stall {
                        continue;
                    }
                    // One that waits for others is silent because of them.
                    if hub.idlers().contains(&id.principal()) {
                        self.heard_at = Instant::now();
                        continue;
                    }
                    let says = format!("nothing was heard of it for {} s", stall.as_secs());
                    return Came::To(self.outcome(Ending::TimedOut, Status::Failed, &says));
                }
                () = until_ms(self.shared, due) => {
                    if let Some(record) = self.transcriber.flush() {
                        self.write(record).await;
                    }
                }
            }
        }
    }

    /// Deals with one event; returns what became of the work, if that is certain now.
    async fn hear(&mut self, event: Event) -> Option<Came> {
        // The end of a message's turn is kept with what comes of it.
        if !(self.agent.lasts() && matches!(event, Event::TurnEnded(_))) {
            self.keep(event.clone()).await;
        }
        if event == Event::TurnEnded(TurnEnd::Gone) {
            // How it ended is known a little later than that it did.
            let _ = tokio::time::timeout(EXIT_WAIT, self.process.exited()).await;
        }
        match event {
            Event::Started(started) => {
                let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
                let session = started.session.clone();
                self.shared.hub.pids().set(&id, self.process.program_pid());
                self.shared.tell(agent::Command::Begin { id, incarnation, session }).await;
                if self.agent.lasts() {
                    return self.next_tell(started.resumed).await;
                }
                self.begin_turn(started.resumed).await
            }
            Event::NotStarted { message } => {
                let why = self.last_signs(&format!("it did not start: {message}"));
                Some(if self.resumes { Came::NotResumed(why) } else { Came::ToNothing(why) })
            }
            Event::Text(piece) => {
                // Another message is not the rest of this one.
                if self.message != piece.message && !self.last_words.is_empty() {
                    self.last_words.push_str("\n");
                }
                self.message = piece.message;
                self.last_words.push_str(&piece.text);
                if self.agent.lasts() {
                    self.shared.hub.words().set(&self.agent.id, self.last_words.as_str());
                }
                None
            }
            // Not when its cost is told: some tell it when all is done.
            Event::ToolCall(_) if self.is_overspent() => {
                let says = "its budget is spent";
                Some(Came::To(self.outcome(Ending::Aborted, Status::Partial, says)))
            }
            Event::ToolCall(call) => self.see(&call).await,
            Event::PermissionAsked { id, call, options } => {
                self.permission_asked(id, &call, options).await;
                None
            }
            Event::PermissionAnswered { id, option: None } => {
                self.permission_withdrawn(id).await;
                None
            }
            Event::Usage(usage) => {
                self.spending.hear(usage);
                None
            }
            Event::UsageLimit { until_unix_s, message } => {
                let now = self.shared.clock.now();
                let pool = self.shared.configured.current().settings.pool.clone();
                let park_ms = u64::from(pool.park_minutes.get()) * 60_000;
                let until = until::end(until_unix_s, &message, now, park_ms);
                self.limit = Some((until, message));
                None
            }
            Event::ToolResult { id, ok: false, output } => {
                self.open_calls.remove(&id);
                let verdict = self.guard.see_error(&output.text);
                self.judge(verdict).await
            }
            Event::TurnEnded(end) if self.agent.lasts() => self.answered_tell(end).await,
            Event::TurnEnded(end) => Some(self.turn_ended(end)),
            Event::Exited { how } => Some(Came::Off(self.last_signs(&how))),
            Event::ToolResult { id, .. } => {
                self.open_calls.remove(&id);
                None
            }
            Event::Told { .. }
            | Event::Settled { .. }
            | Event::Prompted { .. }
            | Event::Thought(_)
            | Event::Plan { .. }
            | Event::PermissionAnswered { .. }
            | Event::CancelAsked
            | Event::Trouble { .. } => None,
        }
    }

    async fn begin_turn(&mut self, resumed: bool) -> Option<Came> {
        let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        let begin = Command::Agent(agent::Command::BeginTurn { id, incarnation });
        if let Err(failure) = self.shared.hub.submit(Caller::hub(), begin, None).await {
            return Some(Came::To(self.outcome(
                Ending::Aborted,
                Status::Failed,
                &failure.to_string(),
            )));
        }
        self.spending.begin();
        let prompt = self.prompt(resumed);
        match self.dialogue.prompt(&prompt) {
            Ok(()) => None,
            Err(refusal) => Some(Came::Off(self.last_signs(&refusal.to_string()))),
        }
    }

    /// Returns what the agent is told: what its role says, what is known of its dossier, and its task.
    fn prompt(&self, resumed: bool) -> String {
        const CUT_OFF: &str = "You were cut off in the middle of your work. What you did before is done: look at it, then go on \
                               from there.";
        let task = self.task();
        // What a person began and handed over goes on as if they had typed it.
        if resumed && self.agent.incarnation == 1 {
            return self.agent.draft.prompt.to_string();
        }
        // It may have been cut off before it was told its task.
        if resumed {
            return format!("{CUT_OFF} Your task:\n\n{task}");
        }
        let state = self.shared.hub.state();
        let dossier = state.dossiers.get(self.agent.draft.dossier.as_str());
        let context = dossier.filter(|dossier| {
            let ended =
                |id: &AgentId| state.agents.get(id.as_str()).is_some_and(|agent| !agent.is_live());
            dossier.agents.iter().any(ended)
        });
        // An iteration of a run begins afresh; what it is to know is in its prompt.
        let context = context.filter(|_| self.agent.draft.run.is_none());
        let context = context.map(|dossier| dossier.context(&state.agents));
        let again = (self.agent.n_interruptions > 0).then(|| CUT_OFF.to_owned());
        let parts = [Some(self.role.prompt.to_string()), context, again, Some(task)];
        parts
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("\n\n---\n\n")
    }

    /// Returns what it is to do; in an iteration of a run, that is what is known of the run now.
    fn task(&self) -> String {
        let state = self.shared.hub.state();
        let of_run = self.agent.draft.run.as_ref().and_then(|run| {
            let open = state.runs.get(run).iterations.of(&self.agent.id.principal())?.clone();
            crate::work::prompt::of_iteration(&state, run, &open)
        });
        of_run.unwrap_or_else(|| self.agent.draft.prompt.to_string())
    }

    /// Returns how long it may rest.
    fn idle_ms(&self) -> Duration {
        let state = self.shared.hub.state();
        let team = self.agent.draft.team.as_ref().and_then(|team| state.teams.get(team.as_str()));
        Duration::from_millis(team.map_or(0, |team| team.idle_ms))
    }

    /// Watches out for an agent that goes in circles.
    async fn see(&mut self, call: &ToolCall) -> Option<Came> {
        /// More calls than a turn has, unless it goes wrong; then they are seen again.
        const CALLS_MAX: usize = 10_000;
        // What was said before a call is not its last word.
        self.last_words.clear();
        if self.calls.len() >= CALLS_MAX {
            self.calls.clear();
        }
        if !self.calls.insert(call.id.clone()) {
            return None;
        }
        if self.open_calls.len() >= CALLS_MAX {
            self.open_calls.clear();
        }
        self.open_calls.insert(call.id.clone());
        let name = call.name.as_deref().unwrap_or(&call.title);
        // Awaiting again is what await_agent asks for.
        if name.ends_with("await_agent") || call.title.contains("await_agent") {
            return None;
        }
        let input = call.input.as_ref().map(|input| input.text.as_str()).unwrap_or_default();
        let target = format!("{} {input}", call.targets.join(" "));
        let verdict = self.guard.see(name, target.trim());
        self.judge(verdict).await
    }

    /// Does what the guard says; each of its words is an event that people can read.
    async fn judge(&mut self, verdict: Verdict) -> Option<Came> {
        let (says, stops) = match verdict {
            Verdict::Fine => return None,
            Verdict::Warn(says) => (says, false),
            Verdict::Stop(says) => (format!("it is stopped, for it went in circles: {says}"), true),
        };
        let id = self.agent.id.clone();
        self.shared.tell(agent::Command::Warn { id, says: says.clone() }).await;
        stops.then(|| Came::To(self.outcome(Ending::Aborted, Status::Failed, &says)))
    }

    async fn permission_asked(
        &mut self,
        id: PermissionId,
        call: &ToolCall,
        options: Vec<PermissionOption>,
    ) {
        // Nobody is bothered with what is settled already.
        if !self.dialogue.waits_for(id) {
            return;
        }
        let verdict = match asking::verdict(self.role, call) {
            // A rule allows this call, not all that follow.
            permission::Verdict::Allow if asking::allowing(&options).is_none() => {
                permission::Verdict::Ask
            }
            verdict => verdict,
        };
        let option = match verdict {
            permission::Verdict::Allow => asking::allowing(&options),
            permission::Verdict::Deny => {
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
    fn answered(&mut self, at: usize, word: Option<&str>) {
        let pending = self.pending.remove(at);
        // It may have been withdrawn by now, which is as good as answered.
        let _ = match word.and_then(|word| pending.option(word)) {
            Some(option) => self.dialogue.answer(pending.permission, option),
            None => self.dialogue.withdraw(pending.permission),
        };
        self.no_longer_waits();
    }

    /// Takes back what people were asked, if they were.
    async fn permission_withdrawn(&mut self, id: PermissionId) {
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

    fn turn_ended(&mut self, end: TurnEnd) -> Came {
        match end {
            TurnEnd::Done => Came::To(outcome::read(self.last_words.as_str())),
            TurnEnd::Cancelled => {
                Came::To(self.outcome(Ending::Aborted, Status::Partial, "its turn was cancelled"))
            }
            TurnEnd::Refused => Came::To(self.outcome(
                Ending::Completed,
                Status::Failed,
                "the model would not go on",
            )),
            TurnEnd::MaxTokens => Came::To(self.outcome(
                Ending::Completed,
                Status::Partial,
                "the model's output was cut off",
            )),
            TurnEnd::MaxTurns => Came::To(self.outcome(
                Ending::Completed,
                Status::Partial,
                "the program's own limit of requests was reached",
            )),
            TurnEnd::Failed { message } => {
                if let Some((until, why)) = self.limit.take() {
                    return Came::ToAPause { until, why };
                }
                Came::To(self.outcome(Ending::Crashed, Status::Failed, &self.last_signs(&message)))
            }
            TurnEnd::Gone => {
                Came::Off(self.last_signs("its program ended in the middle of its turn"))
            }
        }
    }

    fn ended(&self, why: &Why) -> Outcome {
        match why {
            Why::Killed => self.outcome(Ending::Aborted, Status::Failed, "it was killed"),
            Why::WithParent => {
                self.outcome(Ending::Aborted, Status::Failed, "the one above it was ended")
            }
            Why::ToSleep => self.outcome(Ending::Aborted, Status::Failed, "it was put to sleep"),
            Why::OutOfTime => self.outcome(Ending::TimedOut, Status::Failed, "its time was over"),
        }
    }

    /// Returns an outcome that is not the agent's own, with what it said last.
    fn outcome(&self, ending: Ending, status: Status, says: &str) -> Outcome {
        let summary = match self.last_words.as_str().trim() {
            "" => says.to_owned(),
            words => format!("{says}; the last it said: {words}"),
        };
        Outcome { status, ..Outcome::failed(ending, summary) }
    }

    /// Adds how the program ended, if it has, and what it wrote to stderr, which often says why.
    fn last_signs(&self, says: &str) -> String {
        let says = match self.process.has_exited().map(|exited| exited.how) {
            Some(launch::How::Code(code)) => format!("{says} (exit code {code})"),
            Some(launch::How::Signal(signal)) => format!("{says} (signal {signal})"),
            Some(launch::How::Killed | launch::How::LauncherLost | launch::How::Unwatched)
            | None => says.to_owned(),
        };
        let stderr = self.process.stderr_tail();
        let stderr = stderr.trim();
        let start = stderr.len().saturating_sub(STDERR_BYTES_MAX);
        match &stderr[stderr.ceil_char_boundary(start)..] {
            "" => says,
            words => format!("{says}; its stderr ends with: {words}"),
        }
    }

    /// Keeps an event in the transcript.
    async fn keep(&mut self, event: Event) {
        self.keep_all([event]).await;
    }

    /// Keeps several at once, in their order.
    async fn keep_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let at_ms = u64::try_from(self.shared.clock.now().0).unwrap_or_default();
        let mut records = Vec::new();
        for event in events {
            records.extend(self.transcriber.take(at_ms, event));
        }
        self.write_all(records).await;
    }

    /// A transcript that cannot be written loses a piece; the agent's outcome is what must not be lost.
    async fn write(&mut self, record: Record) {
        self.write_all(vec![record]).await;
    }

    async fn write_all(&mut self, records: Vec<Record>) {
        let encoded = records.iter().filter_map(|record| {
            let encoded = record.encode();
            encoded.inspect_err(|error| tracing::warn!(%error, "a record cannot be written")).ok()
        });
        // Asked for in their order before the first is waited for, so that they share a sync.
        let transcripts = self.shared.log.transcripts();
        let appends = encoded.map(|bytes| transcripts.append(&self.transcript, bytes));
        for appended in futures_util::future::join_all(appends).await {
            match appended {
                Ok(number) => {
                    self.last_record = Some(number);
                    self.shared.live.grown(&self.agent.id, number);
                }
                Err(error) => {
                    tracing::warn!(agent = %self.agent.id, %error, "a piece of a transcript is lost")
                }
            }
        }
    }
}

/// Adds to a launch what a program is started with.
pub(super) fn filled(
    mut launch: Launch,
    program: &Program,
    model: Option<&str>,
    mcp: &Mcp,
    directory: &Path,
) -> Launch {
    launch.args = program.arguments(model).into_iter().map(Into::into).collect();
    launch.directory = directory.to_owned();
    launch.passed_on = program.pass.iter().map(ToString::to_string).collect();
    let variables = program.variables(model, mcp).into_iter();
    launch.environment = variables.map(|(name, value)| (name.into(), value.into())).collect();
    launch
}

/// Adds to a launch what its driver wants for it. Files of a launch are not in the data, which is hidden from it, nor in its
/// project, which is the user's.
pub(super) fn prepared(
    mut launch: Launch,
    driver: &mut dyn drivers::Driver,
    begin: &Begin,
) -> Launch {
    let directory = std::env::temp_dir().join(format!("teamster-launch-{:032x}", begin.nonce));
    let Preparation { args, environment, files } = driver.prepare(begin, &directory);
    launch.args.extend(args);
    launch.environment.extend(environment);
    launch.private = (!files.is_empty()).then_some(Private { directory, files });
    launch
}

pub(super) fn driver(program: &Program) -> Box<dyn drivers::Driver> {
    match program.driver {
        Driver::Acp => Box::new(drivers::acp::Acp::default()),
        Driver::Claude => Box::new(drivers::claude::Claude::default()),
        Driver::Codex => Box::new(drivers::codex::Codex::default()),
    }
}

/// Returns how a program is ended.
pub(super) fn grace(program: &Program) -> Grace {
    let grace = Duration::from_secs(u64::from(program.grace_s.get()));
    match program.ends {
        Ends::Stdin => Grace {
            after_stdin: grace,
            terminate: Terminate::Program,
            after_terminate: TERMINATE_PATIENCE,
        },
        Ends::Sigterm => Grace {
            after_stdin: Duration::ZERO,
            terminate: Terminate::Group,
            after_terminate: grace,
        },
    }
}

/// Waits until the clock shows a time; for ever if there is none.
async fn until_ms(shared: &Shared, at_ms: Option<u64>) {
    match at_ms {
        Some(at) => {
            let now = u64::try_from(shared.clock.now().0).unwrap_or_default();
            tokio::time::sleep_until(
                Instant::now() + Duration::from_millis(at.saturating_sub(now)),
            )
            .await;
        }
        None => std::future::pending().await,
    }
}
