//! A call, as a door hands it over and as a tool sees it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use teamster_core::agent::AgentId;
use teamster_core::grant::{Grant, Grants};
use teamster_core::ids::TellId;
use teamster_core::key::Key;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, State, Timestamp};

use crate::answer::ToolError;
use crate::ask::{Answers, Client};
use crate::hub::{self, Done, Hub, Listens};
use crate::progress::{Progress, Step};
use crate::scope::Scope;
use crate::set::Set;
use crate::trace::Trace;

/// How long a call waits for its answer before it becomes an errand: less than the shortest patience of a known client.
pub const PATIENCE: Duration = Duration::from_secs(50);

/// How long a call may take, beyond its own wait, until nobody else works in its caller's directory.
const BACK_PATIENCE: Duration = Duration::from_secs(5);

/// So much sooner than the door a call gives up waiting for a client that cannot be given a task.
const BEFORE_THE_DOOR: Duration = Duration::from_secs(5);

/// A call under way, as a tool sees it. Who calls comes from the credential, never from an argument.
pub struct Call<'a> {
    pub(crate) hub: &'a dyn Hub,
    pub(crate) caller: Caller,
    pub(crate) grants: &'a Grants,
    pub(crate) key: Option<Key>,
    pub(crate) request: &'a Request,
    pub(crate) scope: &'a Scope,
}

impl Call<'_> {
    /// Returns the newest state that can no longer be lost.
    pub fn state(&self) -> Arc<State> {
        self.hub.state()
    }

    /// Decides a command and makes what it causes durable.
    pub async fn submit(&self, command: Command) -> Result<Done, ToolError> {
        Ok(self.hub.submit(self.caller.clone(), command, self.key.clone()).await?)
    }

    /// The same for one of several commands of a call: each is recognised by itself when the call is repeated.
    pub(crate) async fn submit_nth(&self, n: usize, command: Command) -> Result<Done, ToolError> {
        let key = self.key.as_ref().map(|key| match n {
            0 => key.clone(),
            n => Key { key: format!("{}#{n}", key.key).into(), ..key.clone() },
        });
        Ok(self.hub.submit(self.caller.clone(), command, key).await?)
    }

    pub(crate) async fn project_commit(&self) -> Option<String> {
        self.hub.project_commit().await
    }

    /// Returns the directory of the hub's project.
    pub fn directory(&self) -> String {
        self.hub.directory()
    }

    /// Returns who calls.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.hub.now()
    }

    /// Returns what the node of an agent knows of its process.
    pub(crate) async fn live(&self, agent: &AgentId) -> hub::Live {
        self.hub.live(agent).await
    }

    /// Says whether the caller has a whole tool set.
    pub(crate) fn has_all(&self, set: Set) -> bool {
        [Grant::Full, Grant::Set(set.name().into())].iter().any(|grant| self.grants.has(grant))
    }

    /// Returns records of an agent's transcript, oldest first.
    pub(crate) async fn records(&self, asked: hub::RecordsQuery) -> Result<Vec<Value>, ToolError> {
        self.hub.records(asked).await.map_err(ToolError::new)
    }

    /// Returns how long a call may wait so that the answer is its own and not the door's.
    pub(crate) fn inline_wait(&self) -> Duration {
        self.patience().saturating_sub(BEFORE_THE_DOOR)
    }

    /// Returns how long the caller waits for an answer.
    pub(crate) fn patience(&self) -> Duration {
        patience(&self.hub.state(), &self.caller, PATIENCE)
    }

    /// Returns what the caller's client can do.
    pub fn client(&self) -> Client {
        self.request.client
    }

    /// Returns what was answered to the questions that the tool asked before.
    pub fn answers(&self) -> &Answers {
        &self.request.answers
    }

    /// Says how far the call is.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<String>) {
        self.request.progress.say(Step { done, total, message });
    }

    /// Waits until `check` finds what it is looking for, at most `at_most`, and says meanwhile that it waits. Only
    /// tools that [`crate::catalogue::Tool::WAITS`] may.
    pub async fn wait<T>(
        &self,
        topic: &Topic,
        at_most: Duration,
        check: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let _waits = self.hub.waits(&self.caller);
        let aside = self.hub.steps_aside(&self.caller);
        let began = self.now();
        let progress = |waited| self.request.progress.waited(waited);
        let found = hub::wait(self.hub, topic, at_most, progress, check).await;
        let waited = u64::try_from(self.now().0 - began.0).unwrap_or_default();
        let left = at_most.saturating_sub(Duration::from_millis(waited));
        aside.back(left.max(BACK_PATIENCE)).await;
        found
    }

    /// Notes that the caller waits for the answer to a message.
    pub(crate) fn listens(&self, tell: TellId) -> Listens {
        self.hub.listens(tell)
    }
}

/// A tool call as a door hands it over.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub name: String,
    pub arguments: Map<String, Value>,
    /// What the caller sent so that it may send the call again.
    pub key: Option<String>,
    /// What the caller answered to what the tool asked before.
    pub answers: Answers,
    pub client: Client,
    pub progress: Progress,
    /// The trace that the caller said the call belongs to.
    pub trace: Trace,
}

/// Returns how long whoever calls waits for an answer: what is known of its program, or else the usual.
pub(crate) fn patience(state: &State, caller: &Caller, usual: Duration) -> Duration {
    state.patience_ms(caller).map_or(usual, Duration::from_millis)
}
