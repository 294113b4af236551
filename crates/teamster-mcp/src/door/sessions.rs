//! Sessions of the older protocol era: whose they are, and how to bring one back.
//!
//! rmcp ends a session that was idle for some minutes and would then make its client start over; and it does not ask
//! who uses a session. Here each session belongs to the principal and the path that opened it, and is kept until it is
//! closed or pushed out, so that an idle one is restored when its owner comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};
use teamster_core::PrincipalName;

/// As many sessions as are remembered; beyond that the oldest are forgotten, and their clients start over.
const SESSIONS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<String, Session>,
    oldest_first: VecDeque<String>,
}

#[derive(Debug, Default)]
struct Session {
    owner: Option<(PrincipalName, String)>,
    state: Option<SessionState>,
}

impl Sessions {
    /// Says whether the session `id` belongs to this principal at this path.
    pub(super) fn belongs(&self, id: &str, principal: &PrincipalName, path: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = known.by_id.get(id).and_then(|session| session.owner.as_ref());
        owner.is_some_and(|(owner, at)| owner == principal && at == path)
    }

    /// Records whose the session is.
    pub(super) fn bind(&self, id: &str, principal: &PrincipalName, path: &str) {
        self.with(id, |session| session.owner = Some((principal.clone(), path.to_owned())));
    }

    fn with(&self, id: &str, change: impl FnOnce(&mut Session)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.by_id.contains_key(id) {
            known.oldest_first.push_back(id.to_owned());
            if known.oldest_first.len() > SESSIONS_MAX
                && let Some(oldest) = known.oldest_first.pop_front()
            {
                known.by_id.remove(&oldest);
            }
        }
        change(known.by_id.entry(id.to_owned()).or_default());
    }
}

#[async_trait::async_trait]
impl SessionStore for Sessions {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.by_id.get(id).and_then(|session| session.state.clone()))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.with(id, |session| session.state = Some(state.clone()));
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_id.remove(id).is_some() {
            known.oldest_first.retain(|known| known != id);
        }
        Ok(())
    }
}
