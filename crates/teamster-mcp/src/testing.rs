//! A hub for unit tests: the real core, without a log or a loop.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use teamster_core::grant::{Grant, Grants};
use teamster_core::key::Key;
use teamster_core::token::{self, Kind, NewToken, SecretHash, Token};
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Context, Decision, PrincipalName, Record, State, Timestamp};
use tokio::sync::Notify;

use crate::hub::{Done, Failure, Hub, Watch};

#[derive(Default)]
pub(crate) struct TestHub {
    state: Mutex<State>,
    changed: Arc<Notify>,
}

impl TestHub {
    /// Makes a token whose secret is its principal's name.
    pub(crate) fn token(&self, principal: &str, grants: &[&str]) -> Arc<Token> {
        self.token_of(Kind::Agent, principal, grants)
    }

    pub(crate) fn token_of(&self, kind: Kind, principal: &str, grants: &[&str]) -> Arc<Token> {
        let grants = grants.iter().map(|word| Grant::parse(word).unwrap());
        let new = NewToken {
            principal: PrincipalName::parse(principal).unwrap(),
            kind,
            secret: hash(principal),
            grants: Grants::new(grants),
            run: None,
            team: None,
            expires_at: None,
        };
        let create = Command::Token(token::Command::Create { new, replace: false });
        self.decide(Caller::hub(), &create, None).unwrap();
        self.state().tokens.by_secret(&hash(principal)).unwrap().clone()
    }

    fn decide(&self, caller: Caller, command: &Command, key: Option<Key>) -> Result<Done, Failure> {
        let mut state = self.state.lock().unwrap();
        let cx = Context { caller, now: Timestamp(1), random: 1, quotas: Default::default() };
        let events = match state.decide(command, key.as_ref(), &cx)? {
            Decision::Known(events) => events.to_vec(),
            Decision::New(events) => {
                let Caller { principal: by, token, .. } = cx.caller;
                let record = Record { at: cx.now, by, token, key, events: events.clone() };
                state.apply(&record);
                events
            }
        };
        self.changed.notify_waiters();
        Ok(Done { events: events.into(), state: Arc::new(state.clone()) })
    }
}

/// Stands for a real hash.
pub(crate) fn hash(secret: &str) -> SecretHash {
    let mut hash = [0; 32];
    for (i, byte) in secret.bytes().enumerate() {
        hash[i % 32] ^= byte;
    }
    SecretHash(hash)
}

impl Hub for TestHub {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn state(&self) -> Arc<State> {
        Arc::new(self.state.lock().unwrap().clone())
    }

    fn submit(
        &self,
        caller: Caller,
        command: Command,
        key: Option<Key>,
    ) -> BoxFuture<'_, Result<Done, Failure>> {
        std::future::ready(self.decide(caller, &command, key)).boxed()
    }

    fn watch(&self, _topic: &Topic) -> Watch {
        Watch::new(self.changed.clone())
    }

    fn waits(&self, _caller: &Caller) -> crate::hub::WaitGuard {
        crate::hub::WaitGuard::unnoticed()
    }

    fn ends(&self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }

    fn steps_aside(&self, _caller: &Caller) -> crate::hub::LeftDirectory {
        crate::hub::LeftDirectory::nowhere()
    }

    fn listens(&self, tell: teamster_core::ids::TellId) -> crate::hub::Listens {
        crate::hub::Listens::new(tell, |_| {})
    }

    fn directory(&self) -> String {
        "/project".into()
    }
}

impl crate::hub::Nodes for TestHub {
    fn live(&self, _agent: &teamster_core::agent::AgentId) -> BoxFuture<'_, crate::hub::Live> {
        std::future::ready(crate::hub::Live::default()).boxed()
    }

    fn records(
        &self,
        _asked: crate::hub::RecordsQuery,
    ) -> BoxFuture<'_, Result<Vec<serde_json::Value>, String>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn project_commit(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(None).boxed()
    }
}
