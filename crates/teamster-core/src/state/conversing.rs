//! What is said between partners and teams: with it agents are opened, woken and put to sleep, and answers delivered.

use std::sync::Arc;

use super::{Context, State};
use crate::conversation::{self, Partner, Tell};
use crate::team::Team;
use crate::token::Kind;
use crate::{Event, PrincipalName, Refusal, agent};

impl State {
    /// Adds to the answers that nobody waits for the messages that bring them to the agents that asked, and wakes those.
    pub(super) fn with_deliveries(&self, mut events: Vec<Event>, cx: &Context) -> Vec<Event> {
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
                | conversation::Event::Joined { .. }
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

    /// Decides what is said between a partner and a team; agents are opened, woken and put to sleep with it.
    pub(super) fn converse(
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
                if let Some(tell) = self.conversations.same(new, id, cx) {
                    return Ok(vec![Event::Conversation(conversation::Event::Joined {
                        id: tell.id,
                        conversation: id,
                        is_awaited: tell.is_awaited || new.is_awaited,
                        asker: asker.or_else(|| tell.asker.clone()),
                    })]);
                }
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
                let woken = self.wake(&agent);
                // Of a team that is awake, somebody may be about to read.
                if *clear
                    && woken.is_some()
                    && let Some(conversation) = self.conversations.get(id)
                {
                    let is_read = |tell: &Tell| !self.conversations.is_unread(tell);
                    let cleared = self.conversations.clear(conversation, is_read);
                    events.extend(cleared.map(Event::Conversation));
                }
                events.extend(woken);
                Ok(events)
            }
            conversation::Command::Sleep { to, from, all, at_once } => {
                if *all && !cx.caller.kind.may_operate() {
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
                let events =
                    agents.iter().flat_map(|agent| self.agents.put_to_sleep(agent, *at_once));
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
        if !caller.kind.may_operate() {
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
    pub(super) fn open(
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
    pub(super) fn wake(&self, agent: &agent::AgentId) -> Option<Event> {
        match self.agents.get(agent.as_str()) {
            Some(_) => self.agents.wake(agent).map(Event::Agent),
            None => Some(Event::Agent(agent::Event::Woken { id: agent.clone() })),
        }
    }

    /// Returns what follows for the messages of one that has gone to sleep: nobody waits for an answer that cannot come, and
    /// what can still be answered wakes it again.
    pub(super) fn after_sleep(&self, id: &agent::AgentId, why: &agent::SleepWhy) -> Vec<Event> {
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
}
