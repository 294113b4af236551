//! The state that the log computes, and the one place where commands are decided and records applied.

mod removal;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Agents};
use crate::client_session::ClientSessions;
use crate::conversation::{self, Conversations, Partner};
use crate::dossier::{self, Dossiers};
use crate::drive;
use crate::errand::{self, Errands};
use crate::grant::Grants;
use crate::hub::Starts;
use crate::ids::TokenId;
use crate::key::{Key, Keys};
use crate::obligation::Obligations;
use crate::question::{self, Questions};
use crate::role::{Role, Roles};
use crate::run::Runs;
use crate::team::{Team, Teams};
use crate::token::{self, Kind, Tokens};
use crate::yak::{self, Yaks};
use crate::{
    Command, Event, PrincipalName, Record, Refusal, RunName, TeamName, Timestamp, item, iteration,
    run,
};

/// The version of the snapshot's form: the layout of [`State`]. Another version's snapshot is ignored and the log
/// replayed. A test fails when the layout changes and this does not.
pub const SNAPSHOT_FORMAT: u32 = 8;

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
    pub roles: Roles,
    pub dossiers: Dossiers,
    pub agents: Agents,
    pub questions: Questions,
    pub teams: Teams,
    pub conversations: Conversations,
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
            Command::Agent(agent::Command::Admit { id, secret }) => self.admit(id, *secret, cx)?,
            Command::Agent(agent::Command::Resume { which, prompt }) => {
                let agent = self.agents.get(which);
                let role = agent.and_then(|agent| self.behaviour(agent));
                let account = role.map(|role| &role.account);
                let events = self.agents.resume(which, prompt.as_deref(), account, cx)?;
                self.with_endings(events)
            }
            Command::Agent(command @ agent::Command::Warn { .. }) => self
                .agents
                .decide(command, cx)?
                .into_iter()
                .map(|event| self.of_run(event))
                .collect(),
            Command::Agent(command) => self.with_endings(self.agents.decide(command, cx)?),
        };
        Ok(Decision::New(self.with_deliveries(events, cx)))
    }

    /// Makes a warning of a run of that of an agent that works it off: there people look. What one of its agents has said
    /// already is said of the agent alone.
    fn of_run(&self, event: agent::Event) -> Event {
        if let agent::Event::Warned { id, says } = &event
            && let Some(run) =
                self.agents.get(id.as_str()).and_then(|agent| agent.draft.run.clone())
            && let Some(drive) = &self.runs.get(&run).drive
            && !drive.warnings.iter().any(|one| one.says.ends_with(&format!(": {says}")))
        {
            let warned = drive::warned(&format!("{id}: {says}"));
            return Event::Run { run, what: run::Event::Drive(warned) };
        }
        Event::Agent(event)
    }

    /// Adds to the answers that nobody waits for the messages that bring them to the agents that asked, and wakes those.
    fn with_deliveries(&self, mut events: Vec<Event>, cx: &Context) -> Vec<Event> {
        let mut n = 0;
        let mut more = Vec::new();
        // Whoever is cut off in its turn may not have heard what it waited for, answered or not.
        let cut_off = events.iter().filter_map(|event| match event {
            Event::Agent(
                agent::Event::Interrupted { id, .. }
                | agent::Event::Parked { id, .. }
                | agent::Event::Slept { id, why: agent::SleepWhy::Failed { .. } },
            ) => Some(id),
            _ => None,
        });
        let unheard: Vec<Event> = cut_off
            .flat_map(|id| self.conversations.unheard_by(id))
            .map(|tell| {
                let (id, conversation) = (tell.id, tell.conversation);
                Event::Conversation(conversation::Event::Left { id, conversation })
            })
            .collect();
        events.extend(unheard);
        for event in &events {
            let Event::Conversation(event) = event else { continue };
            let found = match event {
                conversation::Event::Settled { id, how, answer, .. } => {
                    self.conversations.tell(*id).map(|tell| (tell, how, answer))
                }
                // It was settled before anybody noticed.
                conversation::Event::Left { id, .. } => {
                    self.conversations.tell(*id).and_then(|tell| match &tell.progress {
                        conversation::Progress::Settled { how, answer, .. } => {
                            Some((tell, how, answer))
                        }
                        conversation::Progress::Queued | conversation::Progress::Active { .. } => {
                            None
                        }
                    })
                }
                conversation::Event::Opened { .. }
                | conversation::Event::Told { .. }
                | conversation::Event::Read { .. }
                | conversation::Event::Begun { .. }
                | conversation::Event::Cleared { .. } => None,
            };
            let Some((tell, how, answer)) = found else { continue };
            let Some(asker) = &tell.asker else { continue };
            let waits = tell.is_awaited
                && !matches!(event, conversation::Event::Left { .. })
                && self.agents.is_at(&asker.agent, asker.incarnation);
            let by_itself = *how == conversation::How::Cancelled
                && cx.caller.principal == asker.agent.principal();
            let team = self.conversations.of_agent(&asker.agent).map(|one| &one.to);
            let is_there = team.is_some_and(|team| self.teams.get(team.as_str()).is_some());
            if waits || by_itself || !is_there {
                continue;
            }
            if let Some(told) = self.conversations.delivery(tell, how, answer, n) {
                n += 1;
                more.push(Event::Conversation(told));
                // Whoever goes to sleep with this is awake in the state that we look at.
                let mut sleeps = self.agents.wake(&asker.agent).is_some();
                for event in events.iter().chain(&more) {
                    match event {
                        Event::Agent(agent::Event::Slept { id, .. }) if *id == asker.agent => {
                            sleeps = true;
                        }
                        Event::Agent(agent::Event::Woken { id }) if *id == asker.agent => {
                            sleeps = false;
                        }
                        _ => {}
                    }
                }
                let woken = agent::Event::Woken { id: asker.agent.clone() };
                more.extend(sleeps.then_some(Event::Agent(woken)));
            }
        }
        events.append(&mut more);
        events
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
        let drafted = self.agents.draft(new, &self.roles, new_dossier, is_taken, cx)?;
        let agent::Event::Drafted { draft, .. } = &drafted else { return Ok(Vec::new()) };
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
        let created = self.new_token(id, role, (None, None), adoption.secret, cx)?;
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

    /// Makes an item of a yak, which is being worked on from then on.
    fn add_yak(&self, name: &RunName, yak: &str, cx: &Context) -> Result<Vec<Event>, Refusal> {
        if cx.caller.kind == Kind::Agent {
            return Err(Refusal::Run(drive::Refusal::OperatorsOnly.into()));
        }
        let yak = self.yaks.find(yak)?;
        let content = match &*yak.description {
            "" => yak.title.to_string(),
            description => format!("{}\n\n{description}", yak.title),
        };
        let new = item::NewItem { content, status: None, priority: None };
        let add = run::Command::Item(item::Command::Add(vec![new]));
        let mut events = self.runs.decide(name, &add, cx)?;
        let linked = events.iter().find_map(|event| match event {
            run::Event::Item(item::Event::Added { id, .. }) => {
                Some(item::Event::Linked { id: *id, yak: yak.id.clone() })
            }
            _ => None,
        });
        events.extend(linked.map(run::Event::Item));
        let (yak, to) = (yak.id.to_string(), yak::Status::Shaving);
        let moved = self.yaks.decide(&yak::Command::Move { yak, to, commit: None }, cx)?;
        let events = events.into_iter().map(|what| Event::Run { run: name.clone(), what });
        Ok(events.chain(moved.into_iter().map(Event::Yak)).collect())
    }

    /// Returns what shears the yaks that items are about which are done.
    fn shorn(
        &self,
        name: &RunName,
        items: impl Iterator<Item = crate::ids::ItemId>,
        commit: Option<&str>,
        cx: &Context,
    ) -> Vec<Event> {
        let run = self.runs.get(name);
        let yaks = items.filter_map(|item| run.items.get(item)?.yak.as_ref());
        let moves = yaks.filter_map(|yak| {
            let (yak, to, commit) =
                (yak.to_string(), yak::Status::Shorn, commit.map(str::to_owned));
            self.yaks.decide(&yak::Command::Move { yak, to, commit }, cx).ok()
        });
        moves.flatten().map(Event::Yak).collect()
    }

    /// Decides how a run is worked off; its agents are drafted and ended with it.
    fn drive(
        &self,
        name: &RunName,
        command: &drive::Command,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        let run = self.runs.get(name);
        let of_run = |what| Event::Run { run: name.clone(), what };
        let of_hub = |refusal: drive::Refusal| Refusal::Run(refusal.into());
        match command {
            drive::Command::BeginIteration { worker, plans, base, directory, hooks } => {
                if cx.caller.kind != Kind::Hub {
                    return Err(of_hub(drive::Refusal::HubOnly));
                }
                let wanted = drive::Next::Begin { plans: *plans };
                let (Some(drive), true) =
                    (&run.drive, drive::next(run, &self.agents, *worker) == wanted)
                else {
                    return Err(of_hub(drive::Refusal::OutOfStep));
                };
                let is_taken = |name: &PrincipalName| self.tokens.by_principal(name).is_some();
                let number = run.iterations.current();
                let prompt = format!("iteration {number} of run {name}").into();
                let left = drive::money_left(run, drive, &self.agents);
                let (terms, directory) = (&drive.terms, directory.clone());
                let drafted = self.agents.engage(name, terms, directory, prompt, left, is_taken);
                let begun = iteration::Event::Begun {
                    iteration: number,
                    worker: *worker,
                    agent: drafted.agent().clone(),
                    plans: *plans,
                    base: base.clone(),
                    hooks: crate::text::beginning(hooks, drive::HOOKS_BYTES_MAX),
                };
                let dossier = crate::DossierName::new(format!("run-{name}"));
                let opened = self.dossiers.open(&dossier, &format!("run {name}"));
                let events = opened.map(Event::Dossier).into_iter();
                let events = events.chain([Event::Agent(drafted)]);
                Ok(events.chain([of_run(run::Event::Iteration(begun))]).collect())
            }
            drive::Command::EndIteration { iteration, commit, problem } => {
                if cx.caller.kind != Kind::Hub {
                    return Err(of_hub(drive::Refusal::HubOnly));
                }
                let open = run.iterations.open().find(|open| open.number == *iteration);
                let open = open.ok_or_else(|| of_hub(drive::Refusal::OutOfStep))?;
                let agent = self.agents.get(open.agent.as_str());
                if agent.is_some_and(|agent| agent.is_live()) {
                    return Err(of_hub(drive::Refusal::OutOfStep));
                }
                let agent = agent.map(|agent| &**agent);
                let end = drive::end(run, open, agent, commit.clone(), problem.as_deref());
                let end = Arc::new(end);
                let ended = iteration::Event::Ended { iteration: *iteration, end };
                let done = open.touched.iter().copied().filter(|item| {
                    run.items.get(*item).is_some_and(|item| item.status == item::Status::Completed)
                });
                let short = commit.as_deref().map(|commit| &commit[..commit.len().min(12)]);
                let shorn = self.shorn(name, done, short, cx);
                let ended = of_run(run::Event::Iteration(ended));
                Ok([ended].into_iter().chain(shorn).collect())
            }
            // Something may have been said since it was asked for the reason.
            drive::Command::End { why }
                if cx.caller.kind == Kind::Hub && !drive::may_end(run, &self.agents, why) =>
            {
                Err(of_hub(drive::Refusal::OutOfStep))
            }
            drive::Command::Begin { .. }
            | drive::Command::Tell { .. }
            | drive::Command::Pause
            | drive::Command::GoOn
            | drive::Command::Stop { .. }
            | drive::Command::Warn { .. }
            | drive::Command::End { .. } => {
                let what = run::Command::Drive(command.clone());
                let events = self.runs.decide(name, &what, cx)?;
                let mut events: Vec<Event> = events.into_iter().map(of_run).collect();
                if let drive::Command::Stop { now: true } = command {
                    let ends =
                        run.iterations.open().flat_map(|open| self.agents.end_now(&open.agent));
                    events.extend(self.with_endings(ends.collect()));
                }
                Ok(events)
            }
        }
    }

    /// Decides what is said between a partner and a team; agents are opened, woken and put to sleep with it.
    fn converse(
        &self,
        command: &conversation::Command,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        match command {
            conversation::Command::Tell(new) => {
                let from = self.partner(new.from.as_deref(), &cx.caller)?;
                let team = self.team(&new.to)?;
                let (id, agent, mut events) = self.open(&from, team)?;
                let asker = self.agents.of_caller(&cx.caller).map(|agent| conversation::Asker {
                    agent: agent.id.clone(),
                    incarnation: agent.incarnation,
                });
                // What a team's agent drafted tells on behalf of what it is about.
                let cause = self.agents.of_caller(&cx.caller).and_then(|agent| {
                    let own = self.conversations.cause_of(&agent.id);
                    own.or_else(|| self.conversations.cause_of(&agent.root))
                });
                let told = self.conversations.tell_event(new, id, &team.name, cx, asker, cause)?;
                events.push(Event::Conversation(told));
                events.extend(self.wake(&agent));
                Ok(events)
            }
            conversation::Command::Wake { to, from, clear } => {
                let from = self.partner(from.as_deref(), &cx.caller)?;
                let team = self.team(to)?;
                let (id, agent, mut events) = self.open(&from, team)?;
                if *clear && let Some(conversation) = self.conversations.get(id) {
                    let up_to = conversation.tells.back().copied();
                    let cleared = conversation::Event::Cleared { conversation: id, up_to };
                    let is_new = conversation.cleared != up_to;
                    events.extend(is_new.then_some(Event::Conversation(cleared)));
                }
                events.extend(self.wake(&agent));
                Ok(events)
            }
            conversation::Command::Sleep { to, from, all } => {
                if *all && cx.caller.kind == Kind::Agent {
                    return Err(conversation::Refusal::OperatorsOnly.into());
                }
                let from = self.partner(from.as_deref(), &cx.caller)?;
                let team = self.team(to)?;
                let own = self.conversations.of_pair(&from, &team.name);
                let agents: Vec<agent::AgentId> = match all {
                    true => {
                        self.conversations.with(&team.name).map(|one| one.agent.clone()).collect()
                    }
                    false => own.map(|one| one.agent.clone()).into_iter().collect(),
                };
                let events = agents.iter().flat_map(|agent| self.agents.put_to_sleep(agent));
                Ok(self.with_endings(events.collect()))
            }
            conversation::Command::Leave { .. } if cx.caller.kind != Kind::Hub => {
                Err(conversation::Refusal::HubOnly.into())
            }
            conversation::Command::Begin { agent, incarnation, .. }
            | conversation::Command::Settle { agent, incarnation, .. } => {
                if cx.caller.kind != Kind::Hub {
                    return Err(conversation::Refusal::HubOnly.into());
                }
                if !self.agents.is_at(agent, *incarnation) {
                    return Err(conversation::Refusal::OutOfStep(agent.clone()).into());
                }
                let events = self.conversations.decide(command, cx)?;
                let events = events.into_iter().map(Event::Conversation);
                let (id, incarnation) = (agent.clone(), *incarnation);
                // A message is a turn: what it uses is recorded with what comes of it.
                if let conversation::Command::Settle { used, .. } = command {
                    let spend =
                        used.clone().map(|used| agent::Command::Spend { id, incarnation, used });
                    let spent = spend.and_then(|spend| self.agents.decide(&spend, cx).ok());
                    let spent = spent.into_iter().flatten().map(Event::Agent);
                    return Ok(spent.chain(events).collect());
                }
                let mut events: Vec<Event> = events.collect();
                let conversation = self.conversations.of_agent(&id);
                let tell = conversation.and_then(|one| one.current.or(one.queue.front().copied()));
                let Some((conversation, tell)) = conversation.zip(tell) else { return Ok(events) };
                match self.agents.decide(&agent::Command::BeginTurn { id, incarnation }, cx) {
                    Ok(begun) => events.extend(begun.into_iter().map(Event::Agent)),
                    // It has none left.
                    Err(refusal) => {
                        events.push(Event::Conversation(conversation::Event::Settled {
                            id: tell,
                            conversation: conversation.id,
                            how: conversation::How::Terminated { why: refusal.to_string().into() },
                            answer: "".into(),
                            up_to: None,
                        }))
                    }
                }
                Ok(events)
            }
            conversation::Command::Cancel { .. }
            | conversation::Command::Leave { .. }
            | conversation::Command::Read { .. }
            | conversation::Command::Clear { .. } => {
                let events = self.conversations.decide(command, cx)?;
                Ok(events.into_iter().map(Event::Conversation).collect())
            }
        }
    }

    /// Returns who tells. An operator may speak for any team, others only for themselves.
    pub fn partner(
        &self,
        given: Option<&str>,
        caller: &crate::Caller,
    ) -> Result<Partner, conversation::Refusal> {
        let own = Partner::of(caller);
        let Some(given) = given.filter(|given| *given != own.as_str()) else { return Ok(own) };
        if caller.kind == Kind::Agent {
            let (own, given) = (own.to_string(), given.chars().take(100).collect());
            return Err(conversation::Refusal::NotYou { own, given });
        }
        Ok(Partner::Team(self.team(given)?.name.clone()))
    }

    /// Returns the team that somebody means.
    pub fn team(&self, name: &str) -> Result<&Arc<Team>, conversation::Refusal> {
        /// As many as are told to whoever names another.
        const KNOWN_MAX: usize = 15;
        let name = conversation::team_name(name)?;
        self.teams.get(name.as_str()).ok_or_else(|| {
            let known: Vec<&str> =
                self.teams.iter().take(KNOWN_MAX).map(|team| team.name.as_str()).collect();
            let known = match known.len() {
                0 => "none".to_owned(),
                KNOWN_MAX => format!("{}, …; team_teams lists all", known.join(", ")),
                _ => known.join(", "),
            };
            conversation::Refusal::UnknownTeam { team: name.to_string(), known }
        })
    }

    /// Returns the conversation with a team and its agent; what opens it, if it is new.
    fn open(
        &self,
        from: &Partner,
        team: &Team,
    ) -> Result<(crate::ids::ConversationId, agent::AgentId, Vec<Event>), conversation::Refusal>
    {
        if let Some(known) = self.conversations.of_pair(from, &team.name) {
            return Ok((known.id, known.agent.clone(), Vec::new()));
        }
        if team.behaviour.program.is_empty() {
            return Err(conversation::Refusal::NoProgram(team.name.clone()));
        }
        if self.conversations.is_full() {
            return Err(conversation::Refusal::TooMany);
        }
        let is_taken = |name: &PrincipalName| self.tokens.by_principal(name).is_some();
        let id = self.conversations.next_id();
        let directory = match &team.worktrees {
            Some(root) => format!("{root}/{id}").into(),
            None => team.directory.clone(),
        };
        let convened = self.agents.convene(team, directory, is_taken);
        let agent = convened.agent().clone();
        let opened = conversation::Event::Opened {
            id,
            from: from.clone(),
            to: team.name.clone(),
            agent: agent.clone(),
        };
        Ok((id, agent, vec![Event::Agent(convened), Event::Conversation(opened)]))
    }

    /// Has the agent of a conversation started, if it is not; one that is about to be opened sleeps.
    fn wake(&self, agent: &agent::AgentId) -> Option<Event> {
        match self.agents.get(agent.as_str()) {
            Some(_) => self.agents.wake(agent).map(Event::Agent),
            None => Some(Event::Agent(agent::Event::Woken { id: agent.clone() })),
        }
    }

    /// Gives an agent the token of its next incarnation. What it may do is what its role says now.
    fn admit(
        &self,
        id: &agent::AgentId,
        secret: token::SecretHash,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if cx.caller.kind != Kind::Hub {
            return Err(agent::Refusal::HubOnly.into());
        }
        let agent = self.agents.admissible(id)?;
        let role = self.behaviour(agent).cloned();
        let of = (agent.draft.team.clone(), agent.draft.run.clone());
        let created = self.new_token(id, role.as_deref(), of, secret, cx)?;
        let admitted = agent::Event::Admitted { id: id.clone(), token: self.tokens.next_id() };
        Ok(created.into_iter().map(Event::Token).chain([Event::Agent(admitted)]).collect())
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

    /// Returns what follows for the messages of one that has gone to sleep: nobody waits for an answer that cannot come, and
    /// what can still be answered wakes it again.
    fn after_sleep(&self, id: &agent::AgentId, why: &agent::SleepWhy) -> Vec<Event> {
        let Some(conversation) = self.conversations.of_agent(id) else { return Vec::new() };
        let (says, with_queue) = match why {
            agent::SleepWhy::Idle | agent::SleepWhy::Room | agent::SleepWhy::Changed => {
                ("its agent went to sleep", false)
            }
            agent::SleepWhy::Asked => ("its agent was put to sleep", true),
            agent::SleepWhy::Failed { says } => (&**says, false),
            agent::SleepWhy::NotStarted { says } => (&**says, true),
        };
        // A failure costs one message, the one under way or the next, so that it does not come again and again.
        let fails = matches!(why, agent::SleepWhy::Failed { .. }) && conversation.current.is_none();
        let n_queued = match (with_queue, fails) {
            (true, _) => conversation.queue.len(),
            (false, true) => 1,
            (false, false) => 0,
        };
        let queued = conversation.queue.iter().take(n_queued).copied();
        let over: Vec<crate::ids::TellId> =
            conversation.current.into_iter().chain(queued).collect();
        let goes_on = conversation.queue.iter().any(|tell| !over.contains(tell));
        let settled = over.into_iter().map(|tell| {
            Event::Conversation(conversation::Event::Settled {
                id: tell,
                conversation: conversation.id,
                how: conversation::How::Terminated {
                    why: crate::text::beginning(
                        &crate::text::plain(says),
                        conversation::WHY_BYTES_MAX,
                    ),
                },
                answer: "".into(),
                up_to: None,
            })
        });
        let woken = goes_on.then(|| Event::Agent(agent::Event::Woken { id: id.clone() }));
        settled.chain(woken).collect()
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
