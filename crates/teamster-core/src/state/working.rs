//! How runs are worked off: their iterations with the agents that do them, and yaks that are items of them.

use std::sync::Arc;

use super::{Context, State};
use crate::token::Kind;
use crate::{Event, PrincipalName, Refusal, RunName, agent, drive, item, iteration, run, yak};

impl State {
    /// Makes an item of a yak, which is being worked on from then on.
    pub(super) fn add_yak(
        &self,
        name: &RunName,
        yak: &str,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if !cx.caller.kind.may_operate() {
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
    pub(super) fn shorn(
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
    pub(super) fn drive(
        &self,
        name: &RunName,
        command: &drive::Command,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        let run = self.runs.get(name);
        let of_run = |what| Event::Run { run: name.clone(), what };
        let of_hub = |refusal: drive::Refusal| Refusal::Run(refusal.into());
        match command {
            drive::Command::BeginIteration { worker, plans, base, left, directory, hooks } => {
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
                let money = drive::money_left(run, drive, &self.agents);
                let (terms, directory) = (&drive.terms, directory.clone());
                let drafted = self.agents.engage(name, terms, directory, prompt, money, is_taken);
                let begun = iteration::Event::Begun {
                    iteration: number,
                    worker: *worker,
                    agent: drafted.agent().clone(),
                    plans: *plans,
                    base: base.clone(),
                    left: left.clone(),
                    hooks: crate::text::beginning(hooks, drive::HOOKS_BYTES_MAX),
                };
                let dossier = crate::DossierName::new(format!("run-{name}"));
                let request = format!("run {name}\n\n{}", drive.terms.spec);
                let opened = self.dossiers.open(&dossier, &request);
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
            drive::Command::Leave { iteration, left } => {
                self.open_to_hub(name, *iteration, cx)?;
                let left = iteration::Event::Left { iteration: *iteration, left: left.clone() };
                Ok(vec![of_run(run::Event::Iteration(left))])
            }
            drive::Command::Rebase { iteration, base, left } => {
                self.open_to_hub(name, *iteration, cx)?;
                let (iteration, base, left) = (*iteration, base.clone(), left.clone());
                let rebased = iteration::Event::Rebased { iteration, base, left };
                Ok(vec![of_run(run::Event::Iteration(rebased))])
            }
            // Something may have been said since it was asked for the reason.
            drive::Command::End { why }
                if cx.caller.kind == Kind::Hub && !drive::may_end(run, &self.agents, why) =>
            {
                Err(of_hub(drive::Refusal::OutOfStep))
            }
            drive::Command::Begin(_)
            | drive::Command::Tell { .. }
            | drive::Command::Pause
            | drive::Command::GoOn
            | drive::Command::Stop { .. }
            | drive::Command::SetAside
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

    /// Checks that it is the hub that says something of an iteration, and that this has not ended.
    fn open_to_hub(&self, name: &RunName, iteration: u32, cx: &Context) -> Result<(), Refusal> {
        let mut open = self.runs.get(name).iterations.open();
        let refusal = match open.any(|open| open.number == iteration && open.base.is_some()) {
            _ if cx.caller.kind != Kind::Hub => drive::Refusal::HubOnly,
            true => return Ok(()),
            false => drive::Refusal::OutOfStep,
        };
        Err(Refusal::Run(refusal.into()))
    }

    /// Makes a warning of a run of that of an agent that works it off: there people look. What one of its agents has said
    /// already is said of the agent alone.
    pub(super) fn of_run(&self, event: agent::Event) -> Event {
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
}
