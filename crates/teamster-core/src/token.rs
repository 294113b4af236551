//! Tokens: who may call, as whom, for how long, and with which grants.
//!
//! A token is one incarnation of a principal. Only its hash is known here; the secret is shown once, to whoever asked
//! for it. When a token ends, the items its holder had in progress return to the list in the same commit.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::grant::Grants;
use crate::ids::TokenId;
use crate::{Context, PrincipalName, Record, RunName, Summary, TeamName, Timestamp, person};

/// More live tokens than a person's agents could need; a bound, so that no loop can fill the state.
pub const LIVE_TOKENS_MAX: usize = 10_000;

/// The principal of the token that `teamster up` prints. Only the hub itself gives it one.
pub const DEFAULT_AGENT: &str = "agent";

/// What kind of principal holds a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "StoredKind", into = "StoredKind")]
pub enum Kind {
    /// A person, at the command line or anywhere else.
    Person(person::Role),
    /// An agent, whoever started it.
    Agent,
    /// The hub itself, which needs no token.
    Hub,
}

/// The kinds as logs have them. The owner is stored by the word of the first releases: an older hub would take any other
/// person for the operator, so it must not be able to read one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredKind {
    Operator,
    Agent,
    Hub,
}

impl Kind {
    /// The person who runs the hub.
    pub const OPERATOR: Self = Self::Person(person::Role::Owner);

    /// Says whether this is a person who may operate the hub.
    pub fn is_operator(self) -> bool {
        match self {
            Self::Person(role) => role.operates(),
            Self::Agent | Self::Hub => false,
        }
    }

    /// Says whether this is the hub itself, or a person who may operate it.
    pub fn may_operate(self) -> bool {
        self == Self::Hub || self.is_operator()
    }
}

impl From<StoredKind> for Kind {
    fn from(stored: StoredKind) -> Self {
        match stored {
            StoredKind::Operator => Self::Person(person::Role::Owner),
            StoredKind::Agent => Self::Agent,
            StoredKind::Hub => Self::Hub,
        }
    }
}

impl From<Kind> for StoredKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Person(person::Role::Owner) => Self::Operator,
            Kind::Agent => Self::Agent,
            Kind::Hub => Self::Hub,
        }
    }
}

/// The SHA-256 of a token's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SecretHash(pub [u8; 32]);

/// A live token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    pub principal: PrincipalName,
    pub kind: Kind,
    pub secret: SecretHash,
    pub grants: Grants,
    /// The only run this token may use, if it is bound to one.
    pub run: Option<RunName>,
    pub team: Option<TeamName>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl Token {
    /// Says whether the token's time is over; the event that ends it may still be on its way.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What a new token shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    pub principal: PrincipalName,
    pub kind: Kind,
    #[serde(rename = "secret_hash")]
    pub secret: SecretHash,
    pub grants: Grants,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Makes a token. With `replace`, a live token of the same principal ends in the same step.
    Create { new: NewToken, replace: bool },
    /// Changes what a live token, named by its id or its principal, allows.
    Grant { which: String, grants: Grants },
    /// Ends a token, named by its id or its principal.
    Revoke { which: String },
    /// Ends every token whose time is over. The hub's timer says when to look.
    Expire,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Created { id: TokenId, token: NewToken },
    Granted { id: TokenId, principal: PrincipalName, grants: Grants },
    Ended { id: TokenId, principal: PrincipalName, why: Ending },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Revoked,
    Replaced,
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("only an operator may create or revoke tokens; ask the person who runs the hub")]
    OperatorOnly,
    #[error(
        "{principal} has a live token already ({id}); choose another `name`, or `replace` to end the old one"
    )]
    NameTaken { principal: PrincipalName, id: TokenId },
    #[error("the name {0} belongs to the hub or its operator; choose another `name`")]
    NameReserved(PrincipalName),
    #[error(
        "the name {DEFAULT_AGENT} belongs to the line that `teamster up` prints; choose another `name`"
    )]
    DefaultAgents,
    #[error("{0} is no team, but the name of the hub or its operator; choose another `team`")]
    TeamReserved(TeamName),
    #[error("a token with this secret exists already; make a new secret")]
    SecretTaken,
    #[error("no live token is called {0:?}; `teamster token list` shows them")]
    Unknown(String),
    #[error("the operator's own token stays as it is; it belongs to the data directory")]
    OperatorStays,
    #[error("the token would have expired already; give a time to come")]
    PastExpiry,
    #[error("there are {LIVE_TOKENS_MAX} live tokens; revoke some first")]
    TooMany,
    #[error("this token has ended; ask the operator for a new one (`teamster token create`)")]
    Ended,
}

/// The view of all live tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Tokens {
    last: u32,
    live: OrdMap<TokenId, Arc<Token>>,
    by_secret: OrdMap<SecretHash, TokenId>,
    by_principal: OrdMap<PrincipalName, TokenId>,
    expiring: OrdSet<(Timestamp, TokenId)>,
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    live: Vec<Arc<Token>>,
}

impl Tokens {
    pub fn get(&self, id: TokenId) -> Option<&Arc<Token>> {
        self.live.get(&id)
    }

    /// Returns the live token with this secret.
    pub fn by_secret(&self, secret: &SecretHash) -> Option<&Arc<Token>> {
        self.by_secret.get(secret).and_then(|id| self.live.get(id))
    }

    pub fn by_principal(&self, principal: &PrincipalName) -> Option<&Arc<Token>> {
        self.by_principal.get(principal).and_then(|id| self.live.get(id))
    }

    pub fn live(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.live.values()
    }

    /// Returns the id that the next token will have.
    pub fn next_id(&self) -> TokenId {
        TokenId(self.last + 1)
    }

    /// Returns when the next token expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiring.get_min().map(|(at, _)| *at)
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        if !cx.caller.kind.may_operate() {
            return Err(Refusal::OperatorOnly);
        }
        match command {
            Command::Create { new, .. }
                if new.principal.as_str() == DEFAULT_AGENT && cx.caller.kind != Kind::Hub =>
            {
                Err(Refusal::DefaultAgents)
            }
            Command::Create { new, replace } => self.create(new, *replace, cx.now),
            Command::Grant { which, grants } => {
                let token = self.agents_token(which)?;
                let event = Event::Granted {
                    id: token.id,
                    principal: token.principal.clone(),
                    grants: grants.clone(),
                };
                Ok(if token.grants == *grants { Vec::new() } else { vec![event] })
            }
            Command::Revoke { which } => {
                Ok(vec![ended(self.agents_token(which)?, Ending::Revoked)])
            }
            Command::Expire => Ok(self
                .expiring
                .range(..=(cx.now, TokenId(u32::MAX)))
                .filter_map(|(_, id)| self.live.get(id))
                .map(|token| ended(token, Ending::Expired))
                .collect()),
        }
    }

    /// Finds a token that is not the operator's, by its id or its principal.
    fn agents_token(&self, which: &str) -> Result<&Token, Refusal> {
        let by_id = TokenId::parse(which).and_then(|id| self.live.get(&id));
        let by_name =
            || PrincipalName::parse(which).ok().and_then(|principal| self.by_principal(&principal));
        match by_id.or_else(by_name) {
            None => Err(Refusal::Unknown(which.chars().take(100).collect())),
            Some(token) if matches!(token.kind, Kind::Person(_)) => Err(Refusal::OperatorStays),
            Some(token) => Ok(token),
        }
    }

    fn create(&self, new: &NewToken, replace: bool, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        if new.principal == PrincipalName::hub() {
            return Err(Refusal::NameReserved(new.principal.clone()));
        }
        // Whoever speaks for a team is called like it by those who are told.
        if let Some(team) = &new.team {
            let named = PrincipalName::parse(team.as_str()).ok();
            let is_persons = |name: &PrincipalName| {
                self.by_principal(name).is_some_and(|token| matches!(token.kind, Kind::Person(_)))
            };
            if named.is_some_and(|name| name == PrincipalName::hub() || is_persons(&name)) {
                return Err(Refusal::TeamReserved(team.clone()));
            }
        }
        if self.by_secret.contains_key(&new.secret) {
            return Err(Refusal::SecretTaken);
        }
        if new.expires_at.is_some_and(|at| at <= now) {
            return Err(Refusal::PastExpiry);
        }
        if self.live.len() >= LIVE_TOKENS_MAX {
            return Err(Refusal::TooMany);
        }
        let mut events = Vec::new();
        if let Some(old) = self.by_principal(&new.principal) {
            // The operator's token file can be lost and made again, but no agent may take the operator's name.
            if old.kind != new.kind {
                return Err(Refusal::NameReserved(new.principal.clone()));
            }
            if !replace {
                return Err(Refusal::NameTaken { principal: new.principal.clone(), id: old.id });
            }
            events.push(ended(old, Ending::Replaced));
        }
        events.push(Event::Created { id: self.next_id(), token: new.clone() });
        Ok(events)
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::Created { id, token: new } => {
                let NewToken { principal, kind, secret, grants, run, team, expires_at } =
                    new.clone();
                let created_at = record.at;
                self.insert(Arc::new(Token {
                    id: *id,
                    principal,
                    kind,
                    secret,
                    grants,
                    run,
                    team,
                    created_at,
                    expires_at,
                }));
            }
            Event::Granted { id, principal: _, grants } => {
                if let Some(token) = self.live.get(id) {
                    let token = Token { grants: grants.clone(), ..Token::clone(token) };
                    self.live.insert(*id, Arc::new(token));
                }
            }
            Event::Ended {
                id,
                principal: _,
                why: Ending::Revoked | Ending::Replaced | Ending::Expired,
            } => {
                if let Some(token) = self.live.remove(id) {
                    self.by_secret.remove(&token.secret);
                    self.by_principal.remove(&token.principal);
                    if let Some(at) = token.expires_at {
                        self.expiring.remove(&(at, *id));
                    }
                }
            }
        }
    }

    fn insert(&mut self, token: Arc<Token>) {
        self.last = self.last.max(token.id.0);
        self.by_secret.insert(token.secret, token.id);
        self.by_principal.insert(token.principal.clone(), token.id);
        if let Some(at) = token.expires_at {
            self.expiring.insert((at, token.id));
        }
        self.live.insert(token.id, token);
    }
}

fn ended(token: &Token, why: Ending) -> Event {
    Event::Ended { id: token.id, principal: token.principal.clone(), why }
}

impl Event {
    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Created { id, token } => Summary::new(
                "key",
                format!("token {id} created for {} ({})", token.principal, token.grants),
            ),
            Self::Granted { id, principal, grants } => {
                Summary::new("key", format!("token {id} of {principal} now allows {grants}"))
            }
            Self::Ended { id, principal, why } => {
                let why = match why {
                    Ending::Revoked => "revoked",
                    Ending::Replaced => "replaced",
                    Ending::Expired => "expired",
                };
                Summary::new("key", format!("token {id} of {principal} {why}"))
            }
        }
    }
}

impl From<Stored> for Tokens {
    fn from(stored: Stored) -> Self {
        let mut tokens = Self { last: stored.last, ..Self::default() };
        stored.live.into_iter().for_each(|token| tokens.insert(token));
        tokens
    }
}

impl From<Tokens> for Stored {
    fn from(tokens: Tokens) -> Self {
        Self { last: tokens.last, live: tokens.live.into_iter().map(|(_, token)| token).collect() }
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> Self {
        hash.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    }
}

impl TryFrom<String> for SecretHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a token's hash is 64 hexadecimal digits";
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(WRONG)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4) | pair[1];
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests;
