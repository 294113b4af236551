//! One start of an agent's program, from its launch until nothing of it is left.

mod conversing;
mod denied;
mod keeping;
mod permissions;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::agent::{Event, Refusal, ToolCall, TurnEnd};
use teamster_agents::dialogue::Dialogue;
use teamster_agents::drivers;
use teamster_agents::launch::{self, Grace};
use teamster_agents::lines::Lines;
use teamster_agents::started::{self, Process, Started};
use teamster_agents::stdin::Stdin;
use teamster_agents::transcript::Transcriber;
use teamster_core::agent::{self, Agent, AgentId, Ending, Outcome, Phase, SleepWhy, Status, Why};
use teamster_core::conversation::How;
use teamster_core::ids::QuestionId;
use teamster_core::role::Role;
use teamster_core::spending::Used;
use teamster_core::team::Team;
use teamster_core::topic::Topic;
use teamster_core::{Command, State, Timestamp, drive};
use teamster_log::TranscriptName;
use teamster_mcp::Hub as _;
use teamster_mcp::hub::WaitGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::conversing::Conversing;
use self::denied::Denials;
use self::keeping::Grown;
use super::asking::Pending;
use super::guard::{Guard, Verdict};
use super::last_words::LastWords;
use super::launching::{self, HANDSHAKE_PATIENCE, Launched, is_handed_over};
use super::spending::Spending;
use super::{Recorded, Shared, model, outcome, retention, until};
use crate::fence::{Author, Prompt};
use crate::plain::cleaned;
use crate::secret;

/// What an agent says is kept in pieces no older than this, so that whoever follows it sees it soon.
const TEXT_WAIT_MS: u64 = 300;
/// How long a program may take to give up its turn, before it is ended anyway.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for how a program ended whose output has ended.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// Stall times that a program may send lines for, without anything that its work consists of.
const STALLS_WITHOUT_WORK: u32 = 3;
/// As much of a program's last words as goes into an outcome.
const STDERR_BYTES_MAX: usize = 1_000;

/// What the runner needs to know of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Usual,
    /// Its program could not be started, or ended in the middle.
    ProgramFailed,
}

/// How one start of an agent finished.
enum Finish {
    /// It has an outcome.
    Outcome(Outcome),
    /// Its process is gone though its work is not done.
    Interrupted(String),
    /// The hub ends, and goes on with it when it starts again.
    HubStopped,
    /// The program was not able to begin.
    NotStarted(String),
    /// Its account has nothing left.
    Parked { until: Timestamp, why: String },
    /// The program was not able to go on with its session.
    NotResumed(String),
    /// One that lasts needs no process for now.
    Asleep(SleepWhy),
}

/// Runs one incarnation and has its end recorded once all of it is gone.
pub(super) async fn run(shared: &Shared, agent: &Agent, role: &Role, secret: &str) -> End {
    let (id, incarnation) = (agent.id.clone(), agent.incarnation);
    let mut session = agent.session.as_deref();
    let mut failed = End::ProgramFailed;
    let mut was_started = false;
    let came = loop {
        if !was_started && let Err(why) = settle(shared, agent).await {
            failed = End::Usual;
            break Finish::NotStarted(why);
        }
        if shared.stop.is_cancelled() {
            break Finish::HubStopped;
        }
        let came = match begin(shared, agent, role, secret, session).await {
            Ok(talk) => {
                was_started = true;
                talk.run().await
            }
            // Nothing was started, so there is no program that others have to be spared from.
            Err(why) => {
                failed = End::Usual;
                Finish::NotStarted(why)
            }
        };
        // The program may have lost it, or have been cut off before there was anything to keep.
        let Finish::NotResumed(why) = came else { break came };
        if is_handed_over(agent) {
            break Finish::NotResumed(why);
        }
        let says = format!("it begins a new session, because {why}");
        shared.tell(agent::Command::Warn { id: agent.id.clone(), says }).await;
        session = None;
    };
    shared.live.ended(&agent.id);
    shared.hub.pids().set(&agent.id, None);
    shared.hub.stderrs().ends(&agent.id);
    // What an agent has completed is committed at once.
    let is_done = matches!(&came, Finish::Outcome(outcome) if outcome.ending == Ending::Completed);
    if was_started
        && !is_done
        && let Some(left) = shared.of_runs.left(agent).await
    {
        shared.tell_hub(left).await;
    }
    let (command, end) = match came {
        Finish::Outcome(outcome) => (agent::Command::End { id, incarnation, outcome }, End::Usual),
        Finish::Interrupted(why) => {
            let blameless = false;
            (agent::Command::Interrupt { id, incarnation, why, blameless }, End::ProgramFailed)
        }
        Finish::HubStopped => {
            let (why, blameless) = ("the hub was stopped".to_owned(), true);
            (agent::Command::Interrupt { id, incarnation, why, blameless }, End::Usual)
        }
        Finish::Parked { until, why } => {
            let account = role.account.clone();
            (agent::Command::Park { id, incarnation, account, until, why }, End::Usual)
        }
        Finish::Asleep(why) => (agent::Command::Sleep { id, incarnation, why }, End::Usual),
        Finish::NotStarted(why) | Finish::NotResumed(why) => {
            (agent::Command::NotStarted { id, incarnation, why }, failed)
        }
    };
    shared.tell(command).await;
    end
}

/// Has recorded what others have changed in its files since it last had a process.
async fn settle(shared: &Shared, agent: &Agent) -> Result<(), String> {
    for command in shared.of_runs.settle(agent).await? {
        shared.tell_hub(command).await;
    }
    Ok(())
}

/// Returns what the user wrote, as a prompt.
fn users(text: &str) -> Prompt {
    let mut prompt = Prompt::default();
    prompt.users(text);
    prompt
}

fn role(role: &Role) -> Prompt {
    let mut prompt = Prompt::default();
    prompt.role(role);
    prompt
}

/// Returns the task of a drafted agent, with the name of its author if that is not the user.
fn drafted(agent: &Agent) -> Prompt {
    match Author::of(&agent.drafted_by) {
        Author::User | Author::Hub => users(&agent.draft.prompt),
        by @ Author::Other(_) => {
            let mut prompt = Prompt::from("Your task, written by ");
            prompt.known(&by).ours(":\n\n").quote(&agent.draft.prompt);
            prompt
        }
    }
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
    isolation: agent::Isolation,
    /// How its process is ended.
    grace: Grace,
    dialogue: Dialogue<Lines<started::Output>, Stdin>,
    transcript: TranscriptName,
    transcriber: Transcriber,
    /// The last record that it wrote.
    last_record: Option<u64>,
    grown: Grown,
    guard: Guard,
    /// Tool calls that have no result yet.
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
    waits: Option<WaitGuard>,
    /// Since when its silence is its own.
    heard_at: Instant,
    /// When it last did something that its work consists of.
    progress_at: Instant,
    /// Since when its program tries a request to its model again, and what it says about that.
    retries: Option<(Instant, String)>,
    /// What its program said of its account, and until when.
    limit: Option<(Timestamp, String)>,
    n_denied: u32,
    denials: Denials,
}

async fn begin<'a>(
    shared: &'a Shared,
    agent: &'a Agent,
    role: &'a Role,
    secret: &str,
    session: Option<&str>,
) -> Result<Talk<'a>, String> {
    let state = shared.hub.state();
    let team = state.team_of(agent).cloned();
    let launched = launching::launch(shared, agent, role, secret, session).await?;
    let Launched { driver, begin, started, grace, isolation } = launched;
    let Started { process, stdin, stdout } = started;
    if agent.lasts() {
        shared.hub.stderrs().begins(&agent.id, process.clone());
    }
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
        isolation,
        grace,
        dialogue,
        transcript,
        transcriber: Transcriber::new(TEXT_WAIT_MS, secret::unfinished),
        last_record: None,
        grown: Grown::default(),
        guard: Guard::new(role.guard),
        open_calls: HashSet::new(),
        last_words: LastWords::default(),
        message: None,
        spending: Spending::default(),
        conversing: Conversing::default(),
        pending: Vec::new(),
        n_taken_back: 0,
        waits: None,
        heard_at: Instant::now(),
        progress_at: Instant::now(),
        retries: None,
        limit: None,
        n_denied: 0,
        denials: Denials::default(),
    })
}

impl Talk<'_> {
    /// Talks until the work is done or cannot go on, and ends the program.
    async fn run(mut self) -> Finish {
        let came = self.talk().await;
        // One that is to go on in another process is cut off where it is: a turn that was cancelled is over.
        let at_once = at_once(self.shared, &self.agent.id);
        tokio::pin!(at_once);
        let mut is_killed = false;
        if matches!(came, Finish::Outcome(_) | Finish::Asleep(_)) {
            tokio::select! {
                biased;
                () = &mut at_once => is_killed = true,
                () = self.cancel_turn() => {}
            }
        }
        self.dialogue.close();
        match is_killed {
            true => self.process.kill(),
            false => self.process.end(self.grace),
        }
        // Until it is gone it may still write, and must not be stuck in that.
        let process = self.process.clone();
        let exited = process.exited();
        tokio::pin!(exited);
        let mut is_heard = true;
        let exited = loop {
            tokio::select! {
                biased;
                exited = &mut exited => break exited,
                () = &mut at_once, if !is_killed => {
                    is_killed = true;
                    process.kill();
                }
                event = self.dialogue.next(), if is_heard => match event {
                    Some(event) => self.keep(event).await,
                    None => is_heard = false,
                },
            }
        };
        // What it said before its end may still be in its pipe, which nobody else holds open but those that are left.
        let rest = async {
            while is_heard && let Some(event) = self.dialogue.next().await {
                self.keep(event).await;
            }
        };
        let _ = tokio::time::timeout(EXIT_WAIT, rest).await;
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
            Finish::Outcome(outcome) => {
                self.settle(How::Terminated { why: outcome.summary.clone() }).await;
            }
            Finish::Asleep(_) => {
                self.settle(How::Terminated { why: "its agent was put to sleep".into() }).await;
            }
            Finish::Interrupted(_)
            | Finish::HubStopped
            | Finish::NotStarted(_)
            | Finish::Parked { .. }
            | Finish::NotResumed(_) => {}
        }
        retention::after_turn(self.shared, &self.agent.id, &self.transcript).await;
        match came {
            // The message under way has paid for it; those behind it are answered by the next process.
            Finish::Outcome(outcome) if had_a_message => {
                let says = outcome.summary.to_string();
                self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
                Finish::Asleep(SleepWhy::Idle)
            }
            Finish::Outcome(outcome) => Finish::Outcome(Outcome { cost_microdollars, ..outcome }),
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
        self.shared.told().remove(&self.agent.id);
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

    /// Says which limit the turn under way exceeds, as far as its program reports in the middle what it uses: one of the
    /// agent's own, or that of the run that it works on together with others.
    fn is_overspent(&self) -> Option<&'static str> {
        let configuration = self.shared.configured.current();
        let prices = &configuration.settings.prices;
        let used = self.spending.so_far(self.role.model.as_deref(), prices)?;
        let state = self.shared.hub.state();
        let agent = state.agents.get(self.agent.id.as_str())?;
        let (limits, spent) = (&agent.draft.limits, &agent.spent);
        let n_tokens = used.tokens();
        if limits.tokens.is_some_and(|most| n_tokens > most.saturating_sub(spent.tokens())) {
            return Some("its token limit is reached");
        }
        let told = used.microdollars.filter(|told| *told > 0)?;
        let is_over =
            limits.microdollars.is_some_and(|most| told > most.saturating_sub(spent.microdollars));
        let of_run = self.agent.draft.run.as_ref().and_then(|name| {
            let run = state.runs.get(name);
            let left = drive::money_left(run, run.drive.as_ref()?, &state.agents)?;
            let mut told_by = self.shared.told();
            told_by.insert(self.agent.id.clone(), told);
            let all = run.iterations.open().filter_map(|open| told_by.get(&open.agent));
            Some(all.sum::<u64>() > left)
        });
        (is_over || of_run == Some(true)).then_some("its budget is spent")
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

    async fn talk(&mut self) -> Finish {
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
            let silent_at = self.silent_at(stall);
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
                    true => Finish::Asleep(SleepWhy::Asked),
                    false => Finish::Outcome(self.ended(&why)),
                },
                () = self.shared.stop.cancelled() => {
                    if self.conversing.rests.is_some() {
                        return Finish::Asleep(SleepWhy::Idle);
                    }
                    return Finish::HubStopped;
                }
                event = self.dialogue.next() => match event {
                    Some(event) => {
                        if let Some(came) = self.hear(event).await {
                            return came;
                        }
                    }
                    None => return Finish::Interrupted(self.last_signs("its program ended")),
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
                () = outdated, if rests => return Finish::Asleep(SleepWhy::Changed),
                () = told, if rests && !waits_for_tree => {
                    if let Some(came) = self.next_tell(true).await {
                        return came;
                    }
                }
                () = is_over.cancelled(), if rests => return Finish::Asleep(SleepWhy::Room),
                () = tokio::time::sleep_until(idle_at), if rests && !waits_for_tree => {
                    return Finish::Asleep(SleepWhy::Idle);
                }
                (at, word) = answered, if !asked.is_empty() => self.answered(at, word.as_deref()),
                () = tokio::time::sleep_until(silent_at),
                    if self.dialogue.in_turn() && asked.is_empty() =>
                {
                    // Not all that it says makes an event; and whoever is looked at late may have spoken.
                    if Instant::now() < self.silent_at(stall) {
                        continue;
                    }
                    // One that waits for others is silent because of them.
                    if hub.idlers().contains(&id.principal()) {
                        self.heard_at = Instant::now();
                        self.progress_at = Instant::now();
                        continue;
                    }
                    return self.stalled(stall);
                }
                () = until_ms(self.shared, due) => {
                    if let Some(record) = self.transcriber.flush() {
                        self.write(record).await;
                    }
                }
            }
        }
    }

    /// Returns when it counts as stalled. Lines that are no part of its work count for some time only: some programs send
    /// them with every request that they try again.
    fn silent_at(&self, stall: Duration) -> Instant {
        let silent_at = self.dialogue.last_activity().max(self.heard_at) + stall;
        if !self.open_calls.is_empty() {
            return silent_at;
        }
        let without_work = self.progress_at.max(self.heard_at) + stall * STALLS_WITHOUT_WORK;
        let retries = self.retries.as_ref().map(|(since, _)| *since + stall);
        retries.into_iter().fold(silent_at.min(without_work), Instant::min)
    }

    /// Ends one that does nothing any more, or parks it if that is because of a limit.
    fn stalled(&mut self, stall: Duration) -> Finish {
        let stderr = self.process.stderr_tail();
        let retried = self.retries.take().map(|(_, message)| message);
        let limit = self.open_calls.is_empty().then(|| {
            let seen = retried.as_deref().into_iter().chain([stderr.as_str()]);
            seen.filter_map(drivers::usage_limit_in).next()
        });
        if let Some(Event::UsageLimit { until_unix_s, message }) = limit.flatten() {
            let (until, why) = self.parked_until(until_unix_s, &message);
            return Finish::Parked { until, why };
        }
        let says = match retried {
            Some(message) => {
                format!("its program retried for {} s without success: {message}", stall.as_secs())
            }
            None => format!("nothing was heard of it for {} s", stall.as_secs()),
        };
        let says = self.last_signs(&says);
        Finish::Outcome(self.outcome(Ending::TimedOut, Status::Failed, &says))
    }

    /// Returns until when its account has nothing left, and why.
    fn parked_until(&self, until_unix_s: Option<u64>, message: &str) -> (Timestamp, String) {
        /// What is shown of a limit; a program's stderr may be all that is known of it.
        const WHY_BYTES_MAX: usize = 1_000;
        let now = self.shared.clock.now();
        let pool = self.shared.configured.current().settings.pool.clone();
        let park_ms = u64::from(pool.park_minutes.get()) * 60_000;
        let until = until::end(until_unix_s, message, now, park_ms, self.agent.n_parks);
        let start = message.ceil_char_boundary(message.len().saturating_sub(WHY_BYTES_MAX));
        (until, message[start..].to_owned())
    }

    /// Shows that the program tries again, once until it goes on.
    async fn retries(&mut self, message: String) {
        let is_new = self.retries.is_none();
        let (since, _) = self.retries.take().unwrap_or((Instant::now(), String::new()));
        self.retries = Some((since, message.clone()));
        if is_new {
            let says = format!("its program retries a failed model call: {message}");
            self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
        }
    }

    /// Ends what would be done by another model than the wanted one, or warns where that is not certain.
    async fn check_model(&mut self, started: &teamster_agents::agent::Started) -> Option<Finish> {
        let configuration = self.shared.configured.current();
        let program = configuration.settings.programs.find(&self.role.program).ok()?.program;
        match model::other(program, self.role.model.as_deref(), started)? {
            model::Other::Refused(says) if self.agent.lasts() => {
                Some(Finish::Asleep(SleepWhy::NotStarted { says: says.into() }))
            }
            model::Other::Refused(says) => {
                Some(Finish::Outcome(self.outcome(Ending::Crashed, Status::Failed, &says)))
            }
            model::Other::Doubtful(says) => {
                self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
                None
            }
        }
    }

    /// Warns once that the role's rules may have no effect on its program.
    async fn check_asking(&mut self) {
        let configuration = self.shared.configured.current();
        let doubt = super::doubt(&configuration.settings.programs, self.role);
        if let Some(says) = doubt.filter(|_| self.agent.incarnation == 1) {
            self.shared.tell(agent::Command::Warn { id: self.agent.id.clone(), says }).await;
        }
    }

    /// Deals with one event; returns what became of the work, if that is certain now.
    async fn hear(&mut self, event: Event) -> Option<Finish> {
        // The end of a message's turn is kept with what comes of it.
        if !(self.agent.lasts() && matches!(event, Event::TurnEnded(_))) {
            self.keep(event.clone()).await;
        }
        let is_gone = matches!(event, Event::TurnEnded(TurnEnd::Gone) | Event::NotStarted { .. });
        if is_gone {
            // How it ended is known a little later than that it did.
            let _ = tokio::time::timeout(EXIT_WAIT, self.process.exited()).await;
        }
        if is_work(&event) {
            self.progress_at = Instant::now();
            self.retries = None;
        }
        match event {
            Event::Started(started) => {
                let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
                let session = started.session.clone();
                self.shared.hub.pids().set(&id, self.process.program_pid());
                let program = Some(self.role.program.clone());
                let isolation = Some(self.isolation);
                let begin = agent::Command::Begin { id, incarnation, session, program, isolation };
                self.shared.tell(begin).await;
                if let Some(came) = self.check_model(&started).await {
                    return Some(came);
                }
                self.check_asking().await;
                if self.agent.lasts() {
                    return self.next_tell(started.resumed).await;
                }
                self.begin_turn(started.resumed).await
            }
            Event::NotStarted { message } => {
                let why = self.last_signs(&format!("it did not start: {message}"));
                Some(if self.resumes { Finish::NotResumed(why) } else { Finish::NotStarted(why) })
            }
            Event::Text(piece) => {
                // Another message is not the rest of this one.
                if self.message != piece.message && !self.last_words.is_empty() {
                    self.last_words.push_str("\n\n");
                }
                self.message = piece.message;
                self.last_words.push_str(&piece.text);
                self.denials.said(&piece.text);
                if self.agent.lasts() {
                    self.shared.hub.words().set(&self.agent.id, self.last_words.as_str());
                }
                None
            }
            // Not when its cost is told: some tell it when all is done.
            Event::ToolCall(call) => match self.is_overspent() {
                Some(says) => {
                    Some(Finish::Outcome(self.outcome(Ending::Aborted, Status::Partial, says)))
                }
                None => self.see(&call).await,
            },
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
                self.limit = Some(self.parked_until(until_unix_s, &message));
                None
            }
            Event::Retrying { message } => {
                self.retries(message).await;
                None
            }
            Event::ToolResult { id, ok, output } => {
                self.open_calls.remove(&id);
                if ok {
                    self.denials.worked();
                }
                let verdict = self.guard.ended(&id, ok, &output.text);
                self.judge(verdict).await
            }
            Event::TurnEnded(end) => match self.ended_by_denial(&end).await {
                Some(came) => came,
                None if self.agent.lasts() => self.answered_tell(end).await,
                None => Some(self.turn_ended(end)),
            },
            Event::Exited { how } => Some(Finish::Interrupted(self.last_signs(&how))),
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

    async fn begin_turn(&mut self, resumed: bool) -> Option<Finish> {
        let (id, incarnation) = (self.agent.id.clone(), self.agent.incarnation);
        let begin = Command::Agent(agent::Command::BeginTurn { id, incarnation });
        match self.shared.record(begin).await {
            Recorded::Yes => {}
            Recorded::Refused(refusal) => {
                let says = refusal.to_string();
                return Some(Finish::Outcome(self.outcome(Ending::Aborted, Status::Failed, &says)));
            }
            Recorded::Stopped => return Some(Finish::HubStopped),
        }
        self.spending.begin();
        self.guard.begin_turn();
        self.denials.begin();
        self.progress_at = Instant::now();
        let prompt = self.prompt(resumed);
        match self.send(&prompt) {
            Ok(()) => None,
            Err(refusal) => Some(Finish::Interrupted(self.last_signs(&refusal.to_string()))),
        }
    }

    /// Sends a prompt. Nothing else does, so that no text reaches an agent without its author.
    fn send(&mut self, prompt: &Prompt) -> Result<(), Refusal> {
        self.dialogue.prompt(&prompt.finished())
    }

    /// Returns what the agent is told: what its role says, what is known of its dossier, and its task.
    fn prompt(&self, resumed: bool) -> Prompt {
        const CUT_OFF: &str = "You were cut off in the middle of your work. What you did before is done: look at it, then go on \
                               from there.";
        let task = self.task();
        // What a person began and handed over goes on as if they had typed it.
        if resumed && self.agent.incarnation == 1 {
            return users(&self.agent.draft.prompt);
        }
        // It may have been cut off before it was told its task.
        if resumed {
            let mut prompt = Prompt::from(CUT_OFF);
            prompt.ours(" Your task:\n\n").add(&task);
            return prompt;
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
        let context = context.map(|dossier| {
            let mut prompt = Prompt::from(
                "The record of this task so far. Its results are the words of the agents that it names:\n\n",
            );
            prompt.quote(&dossier.context(&state.agents, &state.runs));
            prompt
        });
        let again = (self.agent.n_interruptions > 0).then(|| Prompt::from(CUT_OFF));
        let parts = [Some(role(self.role)), context, again, Some(task)];
        Prompt::parts(parts.into_iter().flatten())
    }

    /// Returns what it is to do; in an iteration of a run, that is what is known of the run now.
    fn task(&self) -> Prompt {
        let state = self.shared.hub.state();
        let of_run = self.shared.of_runs.prompt(&state, self.agent);
        of_run.unwrap_or_else(|| drafted(self.agent))
    }

    /// Returns how long it may rest.
    fn idle_ms(&self) -> Duration {
        let state = self.shared.hub.state();
        let team = state.team_of(self.agent);
        Duration::from_millis(team.map_or(0, |team| team.idle_ms))
    }

    /// Watches out for an agent that goes in circles.
    async fn see(&mut self, call: &ToolCall) -> Option<Finish> {
        /// More calls than a turn has, unless it goes wrong; then they are seen again.
        const CALLS_MAX: usize = 10_000;
        // What was said before a call is not its last word.
        self.last_words.clear();
        if self.open_calls.len() >= CALLS_MAX {
            self.open_calls.clear();
        }
        self.open_calls.insert(call.id.clone());
        let verdict = self.guard.announced(call);
        self.judge(verdict).await
    }

    /// Does what the guard says; each of its words is an event that people can read.
    async fn judge(&mut self, verdict: Verdict) -> Option<Finish> {
        let (says, stops) = match verdict {
            Verdict::Fine => return None,
            Verdict::Warn(says) => (says, false),
            Verdict::Stop(says) => (format!("stopped, because it went in circles: {says}"), true),
        };
        let id = self.agent.id.clone();
        self.shared.tell(agent::Command::Warn { id, says: says.clone() }).await;
        stops.then(|| Finish::Outcome(self.outcome(Ending::Aborted, Status::Failed, &says)))
    }

    fn turn_ended(&mut self, end: TurnEnd) -> Finish {
        match end {
            TurnEnd::Done => Finish::Outcome(outcome::read(self.last_words.as_str())),
            TurnEnd::Cancelled => Finish::Outcome(self.outcome(
                Ending::Aborted,
                Status::Partial,
                "its turn was cancelled",
            )),
            TurnEnd::Refused => Finish::Outcome(self.outcome(
                Ending::Completed,
                Status::Failed,
                "the model would not go on",
            )),
            TurnEnd::MaxTokens => Finish::Outcome(self.outcome(
                Ending::Completed,
                Status::Partial,
                "the model's output was cut off",
            )),
            TurnEnd::MaxTurns => Finish::Outcome(self.outcome(
                Ending::Completed,
                Status::Partial,
                "the program's own limit of requests was reached",
            )),
            TurnEnd::Failed { message } => {
                if let Some((until, why)) = self.limit.take() {
                    return Finish::Parked { until, why };
                }
                Finish::Outcome(self.outcome(
                    Ending::Crashed,
                    Status::Failed,
                    &self.last_signs(&message),
                ))
            }
            TurnEnd::Gone => {
                Finish::Interrupted(self.last_signs("its program ended in the middle of its turn"))
            }
        }
    }

    fn ended(&self, why: &Why) -> Outcome {
        match why {
            Why::Killed => self.outcome(Ending::Aborted, Status::Failed, "it was killed"),
            Why::WithParent => {
                self.outcome(Ending::Aborted, Status::Failed, "the one above it was ended")
            }
            Why::ToSleep | Why::ToSleepAtOnce => {
                self.outcome(Ending::Aborted, Status::Failed, "it was put to sleep")
            }
            Why::OutOfTime => self.outcome(Ending::TimedOut, Status::Failed, "its time was over"),
        }
    }

    /// Returns an outcome that is not the agent's own, with what it said last.
    fn outcome(&self, ending: Ending, status: Status, says: &str) -> Outcome {
        let summary = match self.last_words.as_str().trim() {
            "" => says.to_owned(),
            words => format!("{says}; the last it said: {words}"),
        };
        Outcome { status, ..Outcome::failed(ending, cleaned(&summary)) }
    }

    /// Adds how the program ended, if it has, and what it wrote to stderr, which often says why.
    fn last_signs(&self, says: &str) -> String {
        let says = match self.process.has_exited().map(|exited| exited.how) {
            Some(launch::How::Code(code)) => format!("{says} (exit code {code})"),
            Some(launch::How::Signal(signal)) => format!("{says} (signal {signal})"),
            Some(launch::How::Killed | launch::How::LauncherLost | launch::How::Unwatched)
            | None => says.to_owned(),
        };
        let stderr = cleaned(&self.process.stderr_tail());
        let stderr = stderr.trim();
        let start = stderr.len().saturating_sub(STDERR_BYTES_MAX);
        match &stderr[stderr.ceil_char_boundary(start)..] {
            "" => says,
            words => format!("{says}; its stderr ends with: {words}"),
        }
    }
}

/// Waits until an agent is to be ended without time for it.
async fn at_once(shared: &Shared, id: &AgentId) {
    let watch = shared.hub.watch(&Topic::Agent(id.clone()));
    let is_asked = |agent: &Agent| agent.ending_why == Some(Why::ToSleepAtOnce);
    let asked = |state: &State| {
        state.agents.get(id.as_str()).is_some_and(|agent| is_asked(agent)).then_some(())
    };
    watch.until(&shared.hub, asked).await;
}

/// Says whether an event is part of an agent's work.
fn is_work(event: &Event) -> bool {
    match event {
        Event::Text(_)
        | Event::Thought(_)
        | Event::ToolCall(_)
        | Event::ToolResult { .. }
        | Event::Plan { .. }
        | Event::PermissionAsked { .. }
        | Event::PermissionAnswered { .. }
        | Event::Prompted { .. } => true,
        Event::Started(_)
        | Event::NotStarted { .. }
        | Event::Told { .. }
        | Event::Settled { .. }
        | Event::Usage(_)
        | Event::CancelAsked
        | Event::TurnEnded(_)
        | Event::UsageLimit { .. }
        | Event::Retrying { .. }
        | Event::Trouble { .. }
        | Event::Exited { .. } => false,
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
