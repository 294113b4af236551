//! What everything outside the loop holds of the hub.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use serde_json::Value;
use teamster_core::agent::{self, AgentId};
use teamster_core::ids::TellId;
use teamster_core::key::Key;
use teamster_core::token::Kind;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, State, Timestamp, quota};
use teamster_log::{Log, TranscriptName};
use teamster_mcp::Hub;
use teamster_mcp::hub::{
    Done, Failure, LeftDirectory, Listens, Live, Nodes, RecordsQuery, StepsBack, WaitGuard, Watch,
};
use teamster_mcp::pace::{self, Paces};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::decider::{Input, Submission};
use super::disk::Disk;
use super::idlers::WaitingCallers;
use super::pids::Pids;
use super::pulse::Pulse;
use super::stderrs::Stderrs;
use super::trees::{Left, Trees};
use super::unheard::UnreadAnswers;
use super::waiters::Waiters;
use super::words::Words;
use super::written::Written;
use crate::clock::Clock;
use crate::held::Confined;
use crate::project::Project;

/// A cheap-to-clone way to read the published state and to submit commands.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) project: Arc<Project>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Arc<dyn Log>,
}

/// What the loop publishes.
pub(super) struct Shared {
    pub(super) published: ArcSwap<State>,
    pub(super) waiters: Waiters,
    pub(super) idlers: Arc<WaitingCallers>,
    pub(super) words: Words,
    pub(super) trees: Arc<Trees>,
    pub(super) ends: CancellationToken,
    pub(super) unheard: Arc<UnreadAnswers>,
    pub(super) pids: Pids,
    pub(super) stderrs: Stderrs,
    pub(super) written: Written,
    pub(super) pulse: Arc<Pulse>,
    pub(super) paces: Arc<Paces>,
    pub(super) stored_limits: ArcSwap<quota::Limits>,
    pub(super) disk: Disk,
}

impl Handle {
    /// Returns what runs commands where agents work.
    pub fn held(&self) -> &Confined {
        self.project.held()
    }

    /// Returns the newest state that can no longer be lost. Never waits, never locks.
    pub fn state(&self) -> Arc<State> {
        self.shared.published.load_full()
    }

    /// Decides a command and makes what it causes durable. Once this is called the command may be carried out even if
    /// nobody waits for the answer any more.
    pub async fn submit(
        &self,
        caller: Caller,
        command: Command,
        key: Option<Key>,
    ) -> Result<Done, Failure> {
        // What the hub itself has to say is said when the loop answers again; others are told at once.
        if caller.kind != Kind::Hub
            && let Some(says) = self.shared.pulse.says()
        {
            return Err(Failure::Unavailable(format!("{says}; repeat the call later")));
        }
        if !caller.kind.may_operate() {
            self.let_in(&caller).await?;
        }
        let (answer, answered) = oneshot::channel();
        let ticket = self.shared.pulse.ask();
        let submission = Submission { caller, command, key, answer, ticket };
        let stopped = || {
            Failure::Unavailable("the hub is stopping; start it again and repeat the call".into())
        };
        self.inputs.send(Input::Submit(submission)).await.map_err(|_| stopped())?;
        // The loop ended with the call in it: it may or may not have been carried out.
        let unknown = || {
            Failure::Unknown("the hub stopped before it could answer; start it again and look, or repeat the call with its key".into())
        };
        answered.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Lets an agent's command wait for its turn, or refuses it: the agent is too fast, or the disk nearly full.
    async fn let_in(&self, caller: &Caller) -> Result<(), Failure> {
        if let Some(why) = self.shared.disk.refuses_agents() {
            return Err(Failure::Unavailable(why));
        }
        let owner = self.shared.published.load().owner(&caller.principal);
        let wait =
            self.shared.paces.write(&owner, self.clock.now()).map_err(Failure::Unavailable)?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Sets how much agents may store and how fast they may write, from now on.
    pub fn limit(&self, stored: quota::Limits, paces: pace::Limits) {
        self.shared.stored_limits.store(Arc::new(stored));
        self.shared.paces.limit(paces);
    }

    /// Returns how fast everybody may be.
    pub fn paces(&self) -> &Arc<Paces> {
        &self.shared.paces
    }

    /// Returns how much room the disk has.
    pub fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// Asks the loop to finish what it has and end.
    pub async fn shut_down(&self) {
        // If the loop has ended already, there is nothing left to ask for.
        let _ = self.inputs.send(Input::ShutDown).await;
    }

    /// Returns how many calls and streams wait for something to happen.
    pub fn n_waiting(&self) -> usize {
        self.shared.waiters.n_waiting()
    }

    /// Returns what agents have said so far in their turns.
    pub fn words(&self) -> &Words {
        &self.shared.words
    }

    /// Returns the processes of agents.
    pub fn pids(&self) -> &Pids {
        &self.shared.pids
    }

    /// Returns what the programs of teams' agents write to stderr.
    pub fn stderrs(&self) -> &Stderrs {
        &self.shared.stderrs
    }

    /// Returns who does nothing but wait.
    pub fn idlers(&self) -> &Arc<WaitingCallers> {
        &self.shared.idlers
    }

    /// Has all calls answered that wait for something.
    pub fn end_waits(&self) {
        self.shared.ends.cancel();
    }

    /// Returns who works in which directory.
    pub fn trees(&self) -> &Arc<Trees> {
        &self.shared.trees
    }

    /// Returns the messages whose answers are no longer waited for.
    pub fn unheard(&self) -> &UnreadAnswers {
        &self.shared.unheard
    }

    /// Returns what was made durable since the hub started.
    pub fn written(&self) -> &Written {
        &self.shared.written
    }

    /// Notices when the loop does not answer any more. Whoever runs the hub has this run beside it.
    pub fn watch_the_loop(&self) -> impl Future<Output = ()> + Send + 'static {
        self.shared.pulse.clone().watch()
    }

    /// Returns whether the loop answers.
    pub fn pulse(&self) -> &Pulse {
        &self.shared.pulse
    }

    /// Returns how often somebody who waited was woken.
    pub fn n_wakes(&self) -> usize {
        self.shared.waiters.n_wakes()
    }
}

/// Returns the newest records of a piece of a transcript.
async fn records(log: Arc<dyn Log>, asked: RecordsQuery) -> Result<Vec<Value>, String> {
    let RecordsQuery { agent, after, up_to, n_records } = asked;
    let name = format!("agent.{agent}");
    let transcript = TranscriptName::new(name).map_err(|error| error.to_string())?;
    let failed = |error: teamster_log::Error| error.to_string();
    let extent = log.transcripts().extent(&transcript).await.map_err(failed)?;
    let up_to = up_to.unwrap_or(extent.last).min(extent.last);
    let mut after = after.max(extent.forgotten).max(up_to.saturating_sub(n_records as u64));
    let mut found = Vec::new();
    while after < up_to {
        let page = log.transcripts().read(&transcript, after, n_records).await.map_err(failed)?;
        let Some(last) = page.last() else { break };
        after = last.number;
        let asked = page.iter().filter(|record| record.number <= up_to);
        found.extend(asked.map(|record| serde_json::from_slice(&record.bytes).unwrap_or_default()));
    }
    Ok(found)
}

impl Hub for Handle {
    fn state(&self) -> Arc<State> {
        Self::state(self)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn submit(
        &self,
        caller: Caller,
        command: Command,
        key: Option<Key>,
    ) -> BoxFuture<'_, Result<Done, Failure>> {
        Box::pin(Self::submit(self, caller, command, key))
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.shared.waiters.watch(topic)
    }

    fn waits(&self, caller: &Caller) -> WaitGuard {
        WaitGuard::new(self.shared.idlers.clone().enter(&caller.principal))
    }

    fn ends(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.ends.cancelled())
    }

    fn steps_aside(&self, caller: &Caller) -> LeftDirectory {
        let state = Self::state(self);
        let agent = state.agents.of_caller(caller);
        let left = agent.and_then(|agent| self.shared.trees.leave(&agent.id));
        left.map_or_else(LeftDirectory::nowhere, |left| {
            LeftDirectory::new(Gone { hub: self.clone(), left })
        })
    }

    fn listens(&self, tell: TellId) -> Listens {
        let listener = self.shared.unheard.clone().listener(tell);
        Listens::new(tell, move |_| listener.gives_up())
    }

    fn directory(&self) -> String {
        self.project.directory().to_string_lossy().into_owned()
    }
}

impl Nodes for Handle {
    fn live(&self, agent: &AgentId) -> BoxFuture<'_, Live> {
        let Shared { words, pids, stderrs, .. } = &*self.shared;
        let live =
            Live { said: words.get(agent), pid: pids.get(agent), stderr: stderrs.get(agent) };
        Box::pin(std::future::ready(live))
    }

    fn records(&self, asked: RecordsQuery) -> BoxFuture<'_, Result<Vec<Value>, String>> {
        Box::pin(records(self.log.clone(), asked))
    }

    fn project_commit(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.project.commit())
    }
}

/// An agent that waits for others.
struct Gone {
    hub: Handle,
    left: Left,
}

impl StepsBack for Gone {
    fn back(mut self: Box<Self>, at_most: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if tokio::time::timeout(at_most, self.left.back()).await.is_ok() {
                return;
            }
            // Its client would give up, and go on anyway.
            let Some(holder) = self.left.holder() else { return };
            let says = format!("it goes on while {holder} still works in its directory");
            let warn = agent::Command::Warn { id: self.left.agent().clone(), says };
            let _ = self.hub.submit(Caller::hub(), Command::Agent(warn), None).await;
        })
    }
}
