//! Sessions of the older protocol era: whose they are, and how to bring one back.
//!
//! rmcp keeps sessions in memory, ends one that was idle for some minutes, and does not ask who uses it. What is needed
//! to bring a session back is in the log instead: whose it is, where it was opened, and how its client introduced
//! itself. So sessions outlive idleness and restarts, and another's session is like one that never was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};
use teamster_core::client_session::Command as SessionCommand;
use teamster_core::token::Token;
use teamster_core::{Caller, Command};

use crate::hub::{Failure, Hub};

pub(super) struct Sessions {
    hub: Arc<dyn Hub>,
    /// How clients introduced themselves whose `initialize` is being answered.
    opening: Mutex<HashMap<String, String>>,
}

impl Sessions {
    pub(super) fn new(hub: Arc<dyn Hub>) -> Self {
        Self { hub, opening: Mutex::default() }
    }

    /// Says whether the session `id` belongs to the token's principal at this path.
    pub(super) fn belongs(&self, id: &str, token: &Token, path: &str) -> bool {
        let state = self.hub.state();
        state
            .client_sessions
            .get(id)
            .is_some_and(|session| session.principal == token.principal && *session.path == *path)
    }

    /// Keeps a session that was just opened.
    pub(super) async fn open(&self, id: &str, token: &Token, path: &str) -> Result<(), Failure> {
        let introduction = self.opening().remove(id).unwrap_or_default();
        let (id, path) = (id.to_owned(), path.to_owned());
        self.submit(token, SessionCommand::Open { id, path, introduction }).await
    }

    /// Forgets a session that its client has closed.
    pub(super) async fn close(&self, id: &str, token: &Token) -> Result<(), Failure> {
        self.submit(token, SessionCommand::Close { id: id.to_owned() }).await
    }

    async fn submit(&self, token: &Token, command: SessionCommand) -> Result<(), Failure> {
        self.hub.submit(Caller::of(token), Command::ClientSession(command), None).await.map(|_| ())
    }

    fn opening(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl SessionStore for Sessions {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let state = self.hub.state();
        let Some(session) = state.client_sessions.get(id) else { return Ok(None) };
        Ok(Some(serde_json::from_str(&session.introduction)?))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.opening().insert(id.to_owned(), serde_json::to_string(state)?);
        Ok(())
    }

    /// The door knows who closes a session and does it.
    async fn delete(&self, _id: &str) -> Result<(), SessionStoreError> {
        Ok(())
    }
}
