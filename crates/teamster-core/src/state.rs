//! The state that the log computes, and the one place where commands are decided and records applied.

mod conversing;
mod reaching;
mod removal;
mod working;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Agents};
use crate::client_session::ClientSessions;
use crate::conversation::{self, Conversations};
use crate::dossier::{self, Dossiers};
use crate::errand::{self, Errands};
use crate::grant::Grants;
use crate::hub::Starts;
use crate::ids::TokenId;
use crate::key::{Key, Keys};
use crate::question::{self, Questions};
use crate::quota;
use crate::role::{Role, Roles};
use crate::run::Runs;
use crate::team::{Team, Teams};
use crate::token::{self, Kind, Tokens};
use crate::yak::Yaks;
use crate::{
    Command, Event, NodeName, PrincipalName, Record, Refusal, RunName, TeamName, Timestamp, item,
    run,
};

/// The version of the snapshot's form: the layout of [`State`]. Another version's snapshot is ignored and the log
/// replayed. A test fails when the layout changes and this does not.
pub const SNAPSHOT_FORMAT: u32 = 19;

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
    pub quotas: quota::Limits,
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
    pub roles: Roles,
    pub dossiers: Dossiers,
    pub agents: Agents,
    pub questions: Questions,
    pub teams: Teams,
    pub conversations: Conversations,
    keys: Keys,
    pub stored: quota::Stored,
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
            Command::Token(command) => {
                self.check_name(command)?;
                self.with_releases(self.tokens.decide(command, cx)?)
            }
            Command::Run { run, what: run::Command::Drive(command) } => {
                self.drive(run, command, cx)?
            }
            Command::Run { run, what: run::Command::Item(item::Command::AddYak { yak }) } => {
                self.add_yak(run, yak, cx)?
            }
            Command::Run { run, what } => {
                let events = self.runs.decide(run, what, cx)?;
                // What is completed in an iteration is shorn with its commit.
                let is_apart = self.runs.get(run).iterations.of(&cx.caller.principal).is_none();
                let completed = events.iter().filter_map(|event| match event {
                    run::Event::Item(item::Event::Updated {
                        id,
                        status: Some(item::Status::Completed),
                        ..
                    }) if is_apart => Some(*id),
                    _ => None,
                });
                let shorn = self.shorn(run, completed, None, cx);
                let events = events.into_iter().map(|what| Event::Run { run: run.clone(), what });
                events.chain(shorn).collect()
            }
            Command::Yak(command) => {
                self.yaks.decide(command, cx)?.into_iter().map(Event::Yak).collect()
            }
            Command::Errand(command) => {
                self.errands.decide(command, cx)?.into_iter().map(Event::Errand).collect()
            }
            Command::Role(command) => {
                self.roles.decide(command, cx)?.into_iter().map(Event::Role).collect()
            }
            Command::Question(command) => {
                self.questions.decide(command, cx)?.into_iter().map(Event::Question).collect()
            }
            Command::Team(command) => self.with_removals(self.teams.decide(command, cx)?),
            Command::Conversation(command) => self.converse(command, cx)?,
            Command::Agent(agent::Command::Draft(new)) => self.draft(new, cx)?,
            Command::Agent(agent::Command::Adopt(adoption)) => self.adopt(adoption, cx)?,
            Command::Agent(agent::Command::Admit { id, secret, node }) => {
                self.admit(id, *secret, node, cx)?
            }
            Command::Agent(agent::Command::Resume { which, prompt }) => {
                let agent = self.agents.get(which);
                let role = agent.and_then(|agent| self.behaviour(agent));
                let account = role.map(|role| &role.account);
                let events = self.agents.resume(which, prompt.as_deref(), account, cx)?;
                self.with_endings(events)
            }
            Command::Agent(agent::Command::Lose { id, incarnation, why }) => {
                self.with_endings(self.lose(id, *incarnation, why, cx)?)
            }
            Command::Agent(command @ agent::Command::Warn { .. }) => self
                .agents
                .decide(command, cx)?
                .into_iter()
                .map(|event| self.of_run(event))
                .collect(),
            Command::Agent(command) => self.with_endings(self.agents.decide(command, cx)?),
        };
        let events = self.with_deliveries(events, cx);
        let owner = self.owner(&cx.caller.principal);
        self.stored.check(&owner, &events, cx.quotas, cx)?;
        Ok(Decision::New(events))
    }

    /// Refuses to give somebody the name of an agent that has not ended.
    fn check_name(&self, command: &token::Command) -> Result<(), token::Refusal> {
        match command {
            token::Command::Create { new, .. }
                if self.agents.get(new.principal.as_str()).is_some_and(|agent| agent.is_live()) =>
            {
                Err(token::Refusal::NameReserved(new.principal.clone()))
            }
            token::Command::Create { .. }
            | token::Command::Grant { .. }
            | token::Command::Revoke { .. }
            | token::Command::Expire => Ok(()),
        }
    }

    fn draft(&self, new: &agent::NewAgent, cx: &Context) -> Result<Vec<Event>, agent::Refusal> {
        let new_dossier = |prompt: &str| Ok(self.dossiers.new_name(prompt));
        let is_taken = |name: &PrincipalName| self.tokens.by_principal(name).is_some();
        let within = self.bound_run(&cx.caller).cloned();
        let drafted = self.agents.draft(new, &self.roles, new_dossier, is_taken, within, cx)?;
        let agent::Event::Drafted { draft, .. } = &drafted else { return Ok(Vec::new()) };
        self.check_dossier(&cx.caller, &draft.dossier)?;
        let opened = self.dossiers.open(&draft.dossier, &draft.prompt);
        if opened.is_some() && self.dossiers.len() >= dossier::DOSSIERS_MAX {
            return Err(agent::Refusal::TooManyDossiers);
        }
        Ok(opened.map(Event::Dossier).into_iter().chain([Event::Agent(drafted)]).collect())
    }

    /// Takes in an agent that a person runs, with a token of its own.
    fn adopt(&self, adoption: &agent::Adoption, cx: &Context) -> Result<Vec<Event>, Refusal> {
        let new_dossier = |prompt: &str| Ok(self.dossiers.new_name(prompt));
        let is_taken = |name: &PrincipalName| self.tokens.by_principal(name).is_some();
        let token = self.tokens.next_id();
        let adopted = self.agents.adopt(adoption, &self.roles, new_dossier, is_taken, token, cx)?;
        let agent::Event::Adopted { id, draft, .. } = &adopted else { return Ok(Vec::new()) };
        let opened = self.dossiers.open(&draft.dossier, &draft.prompt);
        if opened.is_some() && self.dossiers.len() >= dossier::DOSSIERS_MAX {
            return Err(agent::Refusal::TooManyDossiers.into());
        }
        let role = self.roles.get(draft.role.as_str()).map(|role| &**role);
        let run = reaching::run_of(draft, role);
        let created = self.new_token(id, role, (None, run), adoption.secret, cx)?;
        let events = created.into_iter().map(Event::Token);
        Ok(events.chain(opened.map(Event::Dossier)).chain([Event::Agent(adopted)]).collect())
    }

    fn new_token(
        &self,
        id: &agent::AgentId,
        role: Option<&Role>,
        (team, run): (Option<TeamName>, Option<RunName>),
        secret: token::SecretHash,
        cx: &Context,
    ) -> Result<Vec<token::Event>, Refusal> {
        let grants = role.map(|role| role.grants.clone());
        let new = token::NewToken {
            principal: id.principal(),
            kind: Kind::Agent,
            secret,
            grants: grants.unwrap_or_default(),
            run,
            team,
            expires_at: None,
        };
        Ok(self.tokens.decide(&token::Command::Create { new, replace: false }, cx)?)
    }

    /// Returns the team that an agent speaks for, if it does and there is one.
    pub fn team_of(&self, agent: &agent::Agent) -> Option<&Arc<Team>> {
        self.teams.get(agent.draft.team.as_ref()?.as_str())
    }

    /// Returns how an agent behaves: as its role says, or its team.
    pub fn behaviour(&self, agent: &agent::Agent) -> Option<&Arc<Role>> {
        match &agent.draft.team {
            Some(team) => self.teams.get(team.as_str()).map(|team| &team.behaviour),
            None => match &agent.draft.run {
                Some(run) => self.runs.get(run).drive.as_ref().map(|drive| &drive.terms.behaviour),
                None => self.roles.get(agent.role.as_str()),
            },
        }
    }

    /// Gives an agent the token of its next incarnation. What it may do is what its role says now.
    fn admit(
        &self,
        id: &agent::AgentId,
        secret: token::SecretHash,
        node: &NodeName,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if cx.caller.kind != Kind::Hub {
            return Err(agent::Refusal::HubOnly.into());
        }
        let agent = self.agents.admissible(id)?;
        let role = self.behaviour(agent).cloned();
        let of = (agent.draft.team.clone(), reaching::run_of(&agent.draft, role.as_deref()));
        let created = self.new_token(id, role.as_deref(), of, secret, cx)?;
        let (id, token, node) = (id.clone(), self.tokens.next_id(), Some(node.clone()));
        let admitted = agent::Event::Admitted { id, token, node };
        Ok(created.into_iter().map(Event::Token).chain([Event::Agent(admitted)]).collect())
    }

    /// Has an agent start again whose process ended with its hub. One that only rested goes on resting, without a process.
    fn lose(
        &self,
        id: &agent::AgentId,
        incarnation: u32,
        why: &str,
        cx: &Context,
    ) -> Result<Vec<agent::Event>, agent::Refusal> {
        let (id, conversation) = (id.clone(), self.conversations.of_agent(id));
        let command = match conversation.is_none_or(|conversation| conversation.has_work()) {
            true => {
                let (why, blameless) = (why.to_owned(), false);
                agent::Command::Interrupt { id, incarnation, why, blameless }
            }
            false => agent::Command::Sleep { id, incarnation, why: agent::SleepWhy::Idle },
        };
        self.agents.decide(&command, cx)
    }

    /// Adds to the end of an incarnation the end of its token, and of what rests on that.
    fn with_endings(&self, events: Vec<agent::Event>) -> Vec<Event> {
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            let why = match &event {
                // It will have another token, and be the same principal.
                agent::Event::Interrupted { .. }
                | agent::Event::Parked { .. }
                | agent::Event::Slept { .. }
                | agent::Event::Resumed { .. } => Some(token::Ending::Replaced),
                agent::Event::Ended { .. } => Some(token::Ending::Revoked),
                agent::Event::Drafted { .. }
                | agent::Event::Admitted { .. }
                | agent::Event::Begun { .. }
                | agent::Event::TurnBegun { .. }
                | agent::Event::Spent { .. }
                | agent::Event::Adopted { .. }
                | agent::Event::Unparked { .. }
                | agent::Event::Convened { .. }
                | agent::Event::Woken { .. }
                | agent::Event::KillAsked { .. }
                | agent::Event::Warned { .. } => None,
            };
            if why.is_some() {
                all.extend(self.questions.withdraw_of(event.agent()).map(Event::Question));
            }
            let token = self.agents.get(event.agent().as_str()).and_then(|agent| agent.token);
            let token = token.and_then(|token| self.tokens.get(token));
            if let (Some(why), Some(token)) = (why, token) {
                let (id, principal) = (token.id, token.principal.clone());
                all.extend(self.with_releases(vec![token::Event::Ended { id, principal, why }]));
            }
            all.push(Event::Agent(event.clone()));
            if let agent::Event::Slept { id, why } = &event {
                all.extend(self.after_sleep(id, why));
            }
        }
        all
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
        let owner = self.owner(&record.by);
        let mut gone = Vec::new();
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
                            gone.push(self.owner(principal));
                        }
                    }
                }
                Event::Run { run, what } => self.runs.apply(run, what, record),
                Event::Yak(event) => self.yaks.apply(event, record),
                Event::Errand(event) => self.errands.apply(event, record),
                Event::Role(event) => self.roles.apply(event),
                Event::Dossier(event) => self.dossiers.apply(event, record),
                Event::Question(event) => self.questions.apply(event, record),
                Event::Team(event) => self.teams.apply(event),
                Event::Conversation(event) => {
                    self.conversations.apply(event, record);
                    if let conversation::Event::Settled { conversation, .. } = event
                        && let Some(conversation) = self.conversations.get(*conversation)
                    {
                        self.agents.recover(&conversation.agent);
                    }
                }
                Event::Agent(event) => {
                    self.agents.apply(event, record);
                    if let agent::Event::Drafted { id, draft, .. }
                    | agent::Event::Adopted { id, draft, .. } = event
                    {
                        self.dossiers.add(&draft.dossier, id);
                    }
                }
            }
        }
        self.keys.apply(record, |key| self.errands.needs_key(&record.by, key));
        self.stored.apply(&owner, record);
        for owner in gone {
            let root = self.agents.get(owner.as_str());
            if root.is_none_or(|root| self.agents.is_over_with_below(&root.id)) {
                self.stored.forget(&owner);
            }
        }
        self.seq += record.events.len() as u64;
    }

    /// Returns when the hub has something to do by itself, and what.
    pub fn next_timer(&self) -> Option<(Timestamp, Command)> {
        let tokens = self.tokens.next_expiry();
        let errands = self.errands.next_expiry();
        let agents = self.agents.next_deadline();
        let questions = self.questions.next_deadline();
        [
            tokens.map(|at| (at, Command::Token(token::Command::Expire))),
            errands.map(|at| (at, Command::Errand(errand::Command::Expire))),
            agents.map(|at| (at, Command::Agent(agent::Command::Expire))),
            questions.map(|at| (at, Command::Question(question::Command::Expire))),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    /// Returns how long whoever calls waits for an answer, in ms, if that is known: one of our own agents.
    pub fn patience_ms(&self, caller: &Caller) -> Option<u64> {
        let agent = self.agents.of_caller(caller)?;
        // A person may run an adopted one in any program.
        let is_ours = agent.phase != agent::Phase::Adopted;
        let role = self.behaviour(agent).filter(|_| is_ours);
        role.map(|role| role.max_wait_ms)
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
    pub fn remembers(&self, principal: &PrincipalName, key: &Key) -> bool {
        matches!(self.keys.recall(principal, key), Ok(Some(_)))
    }

    /// Returns whom a principal's quotas are counted for: the agent at the top of its tree, or itself.
    pub fn owner(&self, principal: &PrincipalName) -> PrincipalName {
        match self.agents.get(principal.as_str()) {
            Some(agent) => agent.root.principal(),
            None => principal.clone(),
        }
    }

    /// Says whether two states differ in nothing but the numbers and the size of their events.
    pub fn equals_but_for_numbers(&self, other: &Self) -> bool {
        Self { seq: other.seq, stored: other.stored.clone(), ..self.clone() } == *other
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
