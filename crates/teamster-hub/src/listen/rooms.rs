//! Who has a place: a few strangers for a short time, and those who have shown a valid token.
//!
//! Anybody on this machine can connect to the port. A connection is a stranger's until its first request with a valid
//! token. Strangers have few places, and the oldest one loses its place to the next who comes. So no crowd of them keeps
//! anybody out, and a connection that knows a token never loses its place to one that does not.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use teamster_core::PrincipalName;
use teamster_core::token::{Kind, Token};
use teamster_mcp::door::http::{Guest, Newcomer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Connections, Limits, Open};

/// Maximum connections of one agent that are safe from strangers. Agent programs open two or three.
const EACH_AGENT_MAX: usize = 512;

/// A stranger keeps its place for at least this long, so that its first request is read. Whoever comes meanwhile waits.
const GRACE: Duration = Duration::from_millis(100);

/// How long a new connection waits for the place of the one that was ended for it.
const HAND_OVER: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Rooms {
    places: Arc<Semaphore>,
    strangers_max: usize,
    known_max: usize,
    strangers_patience: Duration,
    taken: Arc<Mutex<Taken>>,
    /// Notified when there are fewer strangers.
    fewer: Arc<Notify>,
    open: Connections,
}

#[derive(Default)]
struct Taken {
    n_came: u64,
    /// By when they came, oldest first.
    strangers: BTreeMap<u64, Stranger>,
    n_known: usize,
    n_by_agent: HashMap<PrincipalName, usize>,
}

struct Stranger {
    came_at: Instant,
    ended: CancellationToken,
}

/// Whom a connection belongs to.
#[derive(Debug, Clone, Default)]
enum Whose {
    #[default]
    Nobodys,
    Operators,
    Agents(PrincipalName),
}

/// A connection's place, for as long as anybody holds this.
pub(super) struct Place {
    rooms: Rooms,
    number: u64,
    ended: CancellationToken,
    has_token: AtomicBool,
    whose: Mutex<Whose>,
    _permit: OwnedSemaphorePermit,
    _open: Open,
}

impl Rooms {
    pub(super) fn new(limits: Limits, open: Connections) -> Self {
        let Limits { connections, strangers, strangers_patience, .. } = limits;
        let strangers_max = strangers.clamp(1, connections.max(1));
        Self {
            places: Arc::new(Semaphore::new(connections)),
            strangers_max,
            known_max: connections - strangers_max.min(connections),
            strangers_patience,
            taken: Arc::default(),
            fewer: Arc::default(),
            open,
        }
    }

    /// Gives a new connection a place, if need be that of the oldest stranger.
    pub(super) async fn enter(&self) -> Option<Arc<Place>> {
        let ended = CancellationToken::new();
        let (number, had_oldest) = loop {
            let fewer = self.fewer.notified();
            match self.come(&ended) {
                Ok(came) => break came,
                Err(until) => tokio::select! {
                    () = fewer => {}
                    () = tokio::time::sleep_until(until) => {}
                },
            }
        };
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            // The one that was ended has not let go yet.
            Err(_) if had_oldest => {
                let permit = self.places.clone().acquire_owned();
                tokio::time::timeout(HAND_OVER, permit).await.ok().and_then(Result::ok)
            }
            Err(_) => None,
        };
        let Some(permit) = permit else {
            self.taken().strangers.remove(&number);
            return None;
        };
        Some(Arc::new(Place {
            rooms: self.clone(),
            number,
            ended,
            has_token: AtomicBool::new(false),
            whose: Mutex::default(),
            _permit: permit,
            _open: self.open.open(),
        }))
    }

    /// Counts one more stranger. Returns its number, and whether another one was ended for it; or until when none of
    /// those there are has to make room.
    fn come(&self, ended: &CancellationToken) -> Result<(u64, bool), Instant> {
        let came_at = Instant::now();
        let mut taken = self.taken();
        let is_full = taken.strangers.len() >= self.strangers_max;
        if is_full && let Some(oldest) = taken.strangers.first_entry() {
            let until = oldest.get().came_at + GRACE;
            if came_at < until {
                return Err(until);
            }
            oldest.remove().ended.cancel();
        }
        taken.n_came += 1;
        let number = taken.n_came;
        taken.strangers.insert(number, Stranger { came_at, ended: ended.clone() });
        Ok((number, is_full))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until the connection has to end: it was the oldest stranger when another came, or it showed no token in
    /// time.
    pub(super) async fn is_lost(&self) {
        tokio::select! {
            () = self.ended.cancelled() => return,
            () = tokio::time::sleep(self.rooms.strangers_patience) => {}
        }
        if self.has_token.load(Ordering::Relaxed) {
            self.ended.cancelled().await;
        }
    }

    pub(super) fn as_newcomer(self: &Arc<Self>) -> Newcomer {
        Newcomer(self.clone())
    }

    fn whose(&self) -> MutexGuard<'_, Whose> {
        self.whose.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest for Place {
    /// Moves the connection among those who are known, if there is room; otherwise it is served as it is.
    fn has_shown(&self, token: &Token) {
        if self.has_token.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut taken = self.rooms.taken();
        let n_of_agent = taken.n_by_agent.get(&token.principal).copied().unwrap_or_default();
        let is_agent = token.kind == Kind::Agent;
        if taken.n_known >= self.rooms.known_max || (is_agent && n_of_agent >= EACH_AGENT_MAX) {
            return;
        }
        if taken.strangers.remove(&self.number).is_none() {
            return;
        }
        self.rooms.fewer.notify_one();
        taken.n_known += 1;
        *self.whose() = if is_agent {
            taken.n_by_agent.insert(token.principal.clone(), n_of_agent + 1);
            Whose::Agents(token.principal.clone())
        } else {
            Whose::Operators
        };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.rooms.taken();
        let whose = std::mem::take(&mut *self.whose());
        match whose {
            Whose::Nobodys => {
                taken.strangers.remove(&self.number);
                self.rooms.fewer.notify_one();
            }
            Whose::Operators => taken.n_known -= 1,
            Whose::Agents(agent) => {
                taken.n_known -= 1;
                match taken.n_by_agent.get_mut(&agent) {
                    Some(n) if *n > 1 => *n -= 1,
                    Some(_) | None => drop(taken.n_by_agent.remove(&agent)),
                }
            }
        }
    }
}
