//! What the tools need of the hub, and the one way to wait for something.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use teamster_core::agent::AgentId;
use teamster_core::ids::TellId;
use teamster_core::key::Key;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Event, Refusal, State, Timestamp};
use tokio::sync::Notify;

/// What a command came to, durable before anyone learns of it.
#[derive(Debug, Clone)]
pub struct Done {
    pub events: Arc<[Event]>,
    /// A state that includes the events.
    pub state: Arc<State>,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing was changed; the reason says whether trying again can help.
    #[error("nothing was changed: {0}")]
    Unavailable(String),
    /// It may or may not have been carried out.
    #[error("it is unknown whether anything was changed: {0}")]
    Unknown(String),
}

/// What only the node that runs an agent, or that has the project, can say. Each answer may take a while: another node may
/// have to be asked.
pub trait Nodes: Send + Sync {
    /// Returns what is known of an agent's process.
    fn live(&self, agent: &AgentId) -> BoxFuture<'_, Live>;

    /// Returns records of an agent's transcript, oldest first.
    fn records(&self, asked: RecordsQuery) -> BoxFuture<'_, Result<Vec<Value>, String>>;

    /// Returns the current commit of the project the hub was started in, if it has one.
    fn project_commit(&self) -> BoxFuture<'_, Option<String>>;
}

/// An agent's process, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// What the agent has said so far in its turn.
    pub said: String,
    pub pid: Option<u32>,
    /// The end of what its program wrote to stderr, without what would steer a terminal.
    pub stderr: String,
}

/// The hub as its doors and tools see it: the node that serves the call. What is held or notified here is in this process.
pub trait Hub: Nodes + 'static {
    /// Returns the newest state that can no longer be lost. Never waits.
    fn state(&self) -> Arc<State>;

    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Decides a command and makes what it causes durable.
    fn submit(
        &self,
        caller: Caller,
        command: Command,
        key: Option<Key>,
    ) -> BoxFuture<'_, Result<Done, Failure>>;

    /// Returns what is notified when the topic has changed. Hold it for as long as you wait.
    fn watch(&self, topic: &Topic) -> Watch;

    /// Notes that a caller does nothing but wait, for as long as what is returned is held.
    fn waits(&self, caller: &Caller) -> WaitGuard;

    /// Lets others work in the caller's directory while it waits for them.
    fn steps_aside(&self, caller: &Caller) -> LeftDirectory;

    /// Notes that a caller waits for the answer to a message. If what is returned is dropped before
    /// [`Listens::has_heard`], the answer is brought to it in another way.
    fn listens(&self, tell: TellId) -> Listens;

    /// Waits until the hub ends and nobody may wait for anything any more.
    fn ends(&self) -> BoxFuture<'_, ()>;

    /// Returns the directory of the project the hub was started in.
    fn directory(&self) -> String;
}

/// Which records are asked for: the newest of a piece of an agent's transcript.
#[derive(Debug, Clone)]
pub struct RecordsQuery {
    pub agent: AgentId,
    pub after: u64,
    /// Without it, to the end.
    pub up_to: Option<u64>,
    /// As many as are wanted at most; one is no larger than the log takes.
    pub n_records: usize,
}

/// Held for as long as somebody waits; what is in it is dropped then.
pub struct WaitGuard(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Send + Sync>>,
);

impl WaitGuard {
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// Nobody takes note.
    pub fn unnoticed() -> Self {
        Self(None)
    }
}

/// Somebody who waits and has left its directory to others.
pub struct LeftDirectory(Option<Box<dyn StepsBack>>);

/// Has the directory again, or waits for it.
pub trait StepsBack: Send {
    fn back(self: Box<Self>, at_most: Duration) -> BoxFuture<'static, ()>;
}

impl LeftDirectory {
    pub fn new(left: impl StepsBack + 'static) -> Self {
        Self(Some(Box::new(left)))
    }

    /// Nobody works where the caller does.
    pub fn nowhere() -> Self {
        Self(None)
    }

    /// Waits until nobody else works there, at most `at_most`.
    pub async fn back(self, at_most: Duration) {
        if let Some(left) = self.0 {
            left.back(at_most).await;
        }
    }
}

/// Held by whoever waits for the answer to a message.
pub struct Listens {
    tell: TellId,
    unheard: Option<Box<dyn FnOnce(TellId) + Send>>,
}

impl Listens {
    pub fn new(tell: TellId, unheard: impl FnOnce(TellId) + Send + 'static) -> Self {
        Self { tell, unheard: Some(Box::new(unheard)) }
    }

    /// The answer has come.
    pub fn has_heard(mut self) {
        self.unheard = None;
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        if let Some(unheard) = self.unheard.take() {
            unheard(self.tell);
        }
    }
}

/// A claim to be woken when a topic changes.
#[derive(Debug, Clone)]
pub struct Watch(Arc<Notify>);

impl Watch {
    pub fn new(notify: Arc<Notify>) -> Self {
        Self(notify)
    }

    /// Waits until `check` finds in the published state what it is looking for, however long that takes.
    pub async fn until<T>(&self, hub: &dyn Hub, mut check: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            // Registered before the check, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.0.notified());
            changed.as_mut().enable();
            if let Some(found) = check(&hub.state()) {
                return found;
            }
            changed.await;
        }
    }
}

/// How often a waiting call says that it is still there; the shortest patience of a known client is 60 s.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// Waits until `check` finds what it is looking for, at most `at_most`. This is the one way in which calls wait: it
/// wakes on the event, never polls, tells `progress` at intervals, and ends when its caller drops it.
pub async fn wait<T>(
    hub: &dyn Hub,
    topic: &Topic,
    at_most: Duration,
    mut progress: impl FnMut(Duration),
    check: impl FnMut(&State) -> Option<T>,
) -> Option<T> {
    let watch = hub.watch(topic);
    let mut found = std::pin::pin!(watch.until(hub, check));
    let mut waited = Duration::ZERO;
    // Looks once even when there is no time to wait.
    loop {
        let step = PROGRESS_EVERY.min(at_most - waited);
        let next = tokio::time::timeout(step, found.as_mut());
        // Whoever still waits when the hub ends is answered as if its time were over.
        match tokio::select! { biased; next = next => next, () = hub.ends() => return None } {
            Ok(found) => return Some(found),
            Err(_) => waited += step,
        }
        progress(waited);
        if waited >= at_most {
            return None;
        }
    }
}
