//! The state that the log computes, and the one place where commands are decided and records applied.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::client_session::ClientSessions;
use crate::errand::{self, Errands};
use crate::grant::Grants;
use crate::hub::Starts;
use crate::ids::TokenId;
use crate::key::{Key, Keys};
use crate::obligation::Obligations;
use crate::run::Runs;
use crate::token::{self, Kind, Tokens};
use crate::yak::Yaks;
use crate::{
    Command, Event, PrincipalName, Record, Refusal, RunName, TeamName, Timestamp, item, run,
};

/// The version of the snapshot's form: the layout of [`State`]. Another version's snapshot is ignored and the log
/// replayed. A test fails when the layout changes and this does not.
pub const SNAPSHOT_FORMAT: u32 = 2;

/// Who calls. Made from a credential, never from an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub principal: PrincipalName,
    pub kind: Kind,
    /// The token, which is the principal's incarnation; only the hub itself has none.
    pub token: Option<TokenId>,
    pub team: Option<TeamName>,
}

impl Caller {
    /// The hub, acting by itself.
    pub fn hub() -> Self {
        Self { principal: PrincipalName::hub(), kind: Kind::Hub, token: None, team: None }
    }

    pub fn of(token: &token::Token) -> Self {
        Self {
            principal: token.principal.clone(),
            kind: token.kind,
            token: Some(token.id),
            team: token.team.clone(),
        }
    }
}

/// What a decision may depend on besides the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub caller: Caller,
    pub now: Timestamp,
    pub random: u64,
}

/// What a command comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// These events, which may be none.
    New(Vec<Event>),
    /// The call was made before with the same key; this is what it caused then.
    Known(Arc<[Event]>),
}

/// All that the log says. Cloning it is cheap: its maps share what has not changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    seq: u64,
    pub hub: Starts,
    pub client_sessions: ClientSessions,
    pub tokens: Tokens,
    pub runs: Runs,
    pub yaks: Yaks,
    pub errands: Errands,
    keys: Keys,
    pub obligations: Obligations,
}

impl State {
    /// Returns the sequence number of the last event applied.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns what `command` comes to, or why it is refused. Changes nothing.
    pub fn decide(
        &self,
        command: &Command,
        key: Option<&Key>,
        cx: &Context,
    ) -> Result<Decision, Refusal> {
        // A token can end between the door and here; after that it decides nothing any more.
        let alive = |token| self.tokens.get(token).is_some_and(|token| !token.is_over(cx.now));
        if cx.caller.token.is_some_and(|token| !alive(token)) {
            return Err(token::Refusal::Ended.into());
        }
        if let Some(key) = key
            && let Some(events) = self.keys.recall(&cx.caller.principal, key)?
        {
            return Ok(Decision::Known(events));
        }
        let events = match command {
            Command::ClientSession(command) => {
                let events = self.client_sessions.decide(command, cx)?;
                events.into_iter().map(Event::ClientSession).collect()
            }
            Command::Hub(command) => {
                self.hub.decide(command, cx)?.into_iter().map(Event::Hub).collect()
            }
            Command::Token(command) => self.with_releases(self.tokens.decide(command, cx)?),
            Command::Run { run, what } => {
                let events = self.runs.decide(run, what, cx)?;
                events.into_iter().map(|what| Event::Run { run: run.clone(), what }).collect()
            }
            Command::Yak(command) => {
                self.yaks.decide(command, cx)?.into_iter().map(Event::Yak).collect()
            }
            Command::Errand(command) => {
                self.errands.decide(command, cx)?.into_iter().map(Event::Errand).collect()
            }
        };
        Ok(Decision::New(events))
    }

    /// Adds to the end of a token the release of what its holder had in progress, and the end of its errands.
    fn with_releases(&self, events: Vec<token::Event>) -> Vec<Event> {
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            if let token::Event::Ended { id, principal, why } = &event {
                all.extend(self.runs.held_by(*id).map(|(run, item)| Event::Run {
                    run: run.clone(),
                    what: run::Event::Item(item::Event::Released { id: item }),
                }));
                // A replaced token's principal lives on, and so do its errands.
                if *why != token::Ending::Replaced {
                    all.extend(self.errands.open_of(principal).map(|id| {
                        let outcome = errand::Outcome::Cancelled;
                        Event::Errand(errand::Event::Ended { id, outcome })
                    }));
                }
            }
            all.push(Event::Token(event));
        }
        all
    }

    /// Folds one record in. Never fails: whatever is in the log has happened.
    pub fn apply(&mut self, record: &Record) {
        for event in &record.events {
            match event {
                Event::ClientSession(event) => self.client_sessions.apply(event, record),
                Event::Hub(event) => self.hub.apply(event, record),
                Event::Token(event) => {
                    self.tokens.apply(event, record);
                    if let token::Event::Ended { principal, why, .. } = event {
                        // A replaced token's principal lives on, and so do its keys and its errands' results.
                        if *why != token::Ending::Replaced {
                            self.keys.forget(principal);
                            self.client_sessions.forget(principal);
                            self.errands.forget(principal);
                        }
                    }
                }
                Event::Run { run, what } => self.runs.apply(run, what, record),
                Event::Yak(event) => self.yaks.apply(event, record),
                Event::Errand(event) => self.errands.apply(event, record),
            }
        }
        self.keys.apply(record, |key| self.errands.needs_key(&record.by, key));
        self.seq += record.events.len() as u64;
    }

    /// Returns when the hub has something to do by itself, and what.
    pub fn next_timer(&self) -> Option<(Timestamp, Command)> {
        let tokens = self.tokens.next_expiry();
        let errands = self.errands.next_expiry();
        [
            tokens.map(|at| (at, Command::Token(token::Command::Expire))),
            errands.map(|at| (at, Command::Errand(errand::Command::Expire))),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    /// Returns the run, if this token may use it, or the sentence that refuses it.
    pub fn check_run(&self, token: &token::Token, run: &RunName) -> Result<(), String> {
        match &token.run {
            Some(bound) if bound != run => Err(format!(
                "this token belongs to the run {bound}; use the path /mcp/session/{bound}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bytes of a snapshot, which [`State::from_snapshot`] reads.
    pub fn to_snapshot(&self) -> Vec<u8> {
        postcard::to_stdvec(self)
            .unwrap_or_else(|error| unreachable!("the state always has a postcard form: {error}"))
    }

    pub fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// Says whether a call with this key would be recognised as made before.
    pub(crate) fn remembers(&self, principal: &PrincipalName, key: &Key) -> bool {
        matches!(self.keys.recall(principal, key), Ok(Some(_)))
    }

    /// Says whether two states differ in nothing but the numbers of their events.
    pub fn equals_but_for_numbers(&self, other: &Self) -> bool {
        Self { seq: other.seq, ..self.clone() } == *other
    }

    /// Returns the grants of a caller as they are now.
    pub fn grants(&self, caller: &Caller) -> Grants {
        match caller.token {
            None => Grants::everything(),
            Some(token) => {
                self.tokens.get(token).map(|token| token.grants.clone()).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
