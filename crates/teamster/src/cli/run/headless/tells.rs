//! What is told of a run, in lines: the log's events in people's words, what its agents say and do, and what is waited for.

use std::collections::BTreeMap;

use teamster_agents::agent::Event as Talk;
use teamster_api::agents::{Agent, Phase};
use teamster_api::log::Line;
use teamster_api::questions::Question;
use teamster_api::runs::{Phase as RunPhase, Run};
use teamster_core::ids::QuestionId;
use teamster_core::{Event, Timestamp, agent, drive, item, iteration, question, run};

use super::Said;
use crate::cli::run::model::Watched as _;
use crate::cli::run::stream::Stream;
use crate::cli::screen::{clean_line, cut};
use crate::cli::{local_time, records};

/// As long as a line of an agent's is, and one of ours, which may say why something failed.
const SAID_COLUMNS: usize = 110;
const TOLD_COLUMNS: usize = 300;
/// Maximum length of a line that says why something failed: git names every file that is in the way.
const WHY_COLUMNS: usize = 2_200;
/// As much of an item, a question or a call as is in a line about it.
const ABOUT_COLUMNS: usize = 70;
/// As many iterations as are remembered by their agents; each worker has one at a time.
const PLACES_MAX: usize = 64;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) at: Timestamp,
    /// The worker that it is about, from 0.
    pub(super) worker: Option<u32>,
    pub(super) text: String,
}

/// An iteration, and its agent.
struct Place {
    iteration: u32,
    worker: u32,
    plans: bool,
    begun_at: Timestamp,
    stream: Stream,
    reading: Reading,
    start: Start,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Not,
    UnderWay,
    Done,
}

/// How far an agent is with its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Due,
    /// It waits, which was told.
    Late,
    Done,
}

pub(super) struct Tells {
    name: String,
    /// What questions are answered with.
    answer: String,
    run: Run,
    places: BTreeMap<String, Place>,
    /// The questions that are open: whose, and what answers them.
    questions: BTreeMap<QuestionId, (String, String)>,
}

/// Returns the event of a line of the log, unless a newer hub wrote it.
fn event_of(line: &Line) -> Option<Event> {
    serde_json::from_value(line.event.clone()).ok()
}

/// One line of something that others wrote.
fn short(text: &str) -> String {
    cut(&clean_line(text), ABOUT_COLUMNS)
}

fn clock(at: Timestamp) -> String {
    local_time(at).chars().skip(11).collect()
}

/// Says how long something took, roughly.
pub(super) fn span(ms: i64) -> String {
    match ms / 1_000 {
        s @ ..100 => format!("{s} s"),
        s @ 100..6_000 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3_600, s / 60 % 60),
    }
}

impl Tells {
    pub(super) fn new(name: &str, answer: &str, run: Run) -> Self {
        let mut tells = Self {
            name: name.to_owned(),
            answer: answer.to_owned(),
            run: Run::default(),
            places: BTreeMap::new(),
            questions: BTreeMap::new(),
        };
        for open in &run.open {
            let start = match open.agent_phase {
                Some(Phase::Queued) => Start::Due,
                _ => Start::Done,
            };
            let begun_at = Timestamp(run.resumed_at.or(run.begun_at).unwrap_or_default());
            let (number, worker) = (open.number, open.worker);
            tells.begins(&open.agent, Place::new(number, worker, open.plans, begun_at, start));
        }
        tells.run = run;
        tells
    }

    pub(super) fn has_workers(&self) -> bool {
        self.run.n_workers() > 1
    }

    /// Takes in how the run stands.
    pub(super) fn stands(&mut self, run: Run) {
        self.run = run;
    }

    fn begins(&mut self, agent: &str, place: Place) {
        self.places.entry(agent.to_owned()).or_insert(place);
        while self.places.len() > PLACES_MAX {
            let oldest = self.places.iter().min_by_key(|(_, place)| place.iteration);
            let Some(oldest) = oldest.map(|(agent, _)| agent.clone()) else { break };
            self.places.remove(&oldest);
        }
    }

    /// Returns the agents whose transcripts are to be read from now on.
    pub(super) fn unread(&mut self) -> Vec<String> {
        let unread = self.places.iter_mut().filter(|(_, place)| place.reading == Reading::Not);
        let unread = unread.map(|(agent, place)| {
            place.reading = Reading::UnderWay;
            agent.clone()
        });
        unread.collect()
    }

    /// Says whether there may be more of an agent.
    pub(super) fn is_read(&self, agent: &str) -> bool {
        self.places.get(agent).is_some_and(|place| place.reading == Reading::UnderWay)
    }

    /// Returns the agent whose iteration ends by this line of the log.
    pub(super) fn ends(&self, line: &Line) -> Option<String> {
        let number = match event_of(line)? {
            Event::Run {
                what: run::Event::Iteration(iteration::Event::Ended { iteration, .. }),
                ..
            } if line.run.as_ref() == Some(&self.name) => iteration,
            _ => return None,
        };
        let is_it = |(_, place): &(&String, &Place)| place.iteration == number;
        self.places.iter().find(is_it).map(|(agent, _)| agent.clone())
    }

    fn worker_of(&self, number: u32) -> Option<u32> {
        let found = self.places.values().find(|place| place.iteration == number);
        found.map(|place| place.worker)
    }

    /// Tells a line of the log, if it is about this run and people want to know it.
    pub(super) fn event(&mut self, line: &Line) -> Option<Told> {
        let is_ours = line.run.as_ref() == Some(&self.name);
        let event = event_of(line);
        let at = Timestamp(line.at);
        let (worker, text) = match &event {
            Some(Event::Run { what, .. }) if is_ours => self.of_run(line, what)?,
            Some(Event::Agent(event)) => self.of_agent(event, at)?,
            Some(Event::Question(event)) => self.of_question(line, event)?,
            // A newer hub's; its summary is for everybody.
            None if is_ours => (None, line.summary.clone()),
            Some(_) | None => return None,
        };
        let says_why = matches!(
            &event,
            Some(Event::Run {
                what: run::Event::Iteration(iteration::Event::Ended { .. })
                    | run::Event::Drive(drive::Event::Over { .. } | drive::Event::Warned { .. }),
                ..
            })
        );
        let columns = if says_why { WHY_COLUMNS } else { TOLD_COLUMNS };
        Some(Told { at, worker, text: cut(&clean_line(&text), columns) })
    }

    fn of_run(&mut self, line: &Line, event: &run::Event) -> Option<(Option<u32>, String)> {
        let place = self.places.get(line.by.as_str());
        let by = place.map(|place| place.worker);
        // What neither the hub nor an agent of the run did, somebody did.
        let somebody = match by.is_none() && line.by.as_str() != "hub" {
            true => format!(" (by {})", line.by),
            false => String::new(),
        };
        Some(match event {
            // A warning names the files if there is something to know.
            run::Event::Iteration(
                iteration::Event::Numbered { .. }
                | iteration::Event::Left { .. }
                | iteration::Event::Rebased { .. },
            ) => return None,
            run::Event::Iteration(iteration::Event::Begun {
                iteration,
                worker,
                agent,
                plans,
                ..
            }) => {
                let place = Place::new(*iteration, *worker, *plans, Timestamp(line.at), Start::Due);
                self.begins(agent.as_str(), place);
                let what = if *plans { "plans" } else { "begins" };
                let text = match self.has_workers() {
                    true => {
                        format!(
                            "iteration {iteration} {what} (worker {}, agent {agent})",
                            worker + 1
                        )
                    }
                    false => format!("iteration {iteration} {what} (agent {agent})"),
                };
                (Some(*worker), text)
            }
            run::Event::Iteration(
                iteration::Event::Summarised { iteration, .. }
                | iteration::Event::Ended { iteration, .. },
            ) => (self.worker_of(*iteration), line.summary.clone()),
            run::Event::Item(item::Event::Claimed { id }) => {
                let id = id.to_string();
                let who = match place {
                    Some(place) => format!("iteration {}", place.iteration),
                    None => line.by.to_string(),
                };
                let items = self.run.item_list.iter();
                let about = items.filter(|item| item.id == id).map(|item| short(&item.content));
                (by, format!("{id} claimed by {who}: {}", about.collect::<String>()))
            }
            run::Event::Drive(drive::Event::Begun { .. }) => (None, line.summary.clone()),
            run::Event::Item(_)
            | run::Event::Note(_)
            | run::Event::Drive(_)
            | run::Event::Completed
            | run::Event::Reopened
            | run::Event::Forgotten => (by, format!("{}{somebody}", line.summary)),
        })
    }

    fn of_agent(&mut self, event: &agent::Event, at: Timestamp) -> Option<(Option<u32>, String)> {
        let id = event.agent();
        let place = self.places.get_mut(id.as_str())?;
        let says = match event {
            agent::Event::Admitted { .. } => {
                let was = std::mem::replace(&mut place.start, Start::Done);
                (was == Start::Late).then(|| format!("{id} starts"))?
            }
            agent::Event::Parked { account, until, why, .. } => {
                place.start = Start::Late;
                let until = clock(*until);
                format!(
                    "{id} is parked until {until}: {account} accepts no requests for now: {why}"
                )
            }
            agent::Event::Unparked { account, .. } => format!("{account} accepts requests again"),
            agent::Event::Interrupted { why, .. } => {
                (place.start, place.begun_at) = (Start::Due, at);
                format!("{id} was cut off and goes on: {why}")
            }
            agent::Event::KillAsked { why: agent::Why::OutOfTime, .. } => {
                format!("{id} is ended: its time is over")
            }
            // The run is warned of it, once.
            agent::Event::Warned { .. }
            | agent::Event::Drafted { .. }
            | agent::Event::Begun { .. }
            | agent::Event::TurnBegun { .. }
            | agent::Event::Spent { .. }
            | agent::Event::Adopted { .. }
            | agent::Event::Resumed { .. }
            | agent::Event::Convened { .. }
            | agent::Event::Woken { .. }
            | agent::Event::Slept { .. }
            | agent::Event::KillAsked { .. }
            | agent::Event::Ended { .. } => return None,
        };
        Some((Some(place.worker), says))
    }

    fn of_question(
        &mut self,
        line: &Line,
        event: &question::Event,
    ) -> Option<(Option<u32>, String)> {
        let worker = self.places.get(event.agent().as_str())?.worker;
        let text = match event {
            question::Event::Asked { id, asked } => {
                let words: Vec<&str> = asked.choices.iter().map(|choice| &*choice.word).collect();
                let agent = asked.agent.as_str();
                self.asks(*id, agent, &asked.title, &words, &asked.default, asked.deadline)
            }
            question::Event::Settled { id, .. } => {
                self.questions.remove(id);
                let by = match line.by.as_str() {
                    "hub" => String::new(),
                    by => format!(" by {by}"),
                };
                format!("{}{by}", line.summary)
            }
        };
        Some((Some(worker), text))
    }

    /// Tells a question that is open, if an agent of the run asks it.
    pub(super) fn question(&mut self, question: &Question, now: Timestamp) -> Option<Told> {
        let Question { id, agent, title, choices, default, deadline, .. } = question;
        let worker = self.places.get(agent)?.worker;
        let id = QuestionId::parse(id)?;
        let words: Vec<&str> = choices.iter().map(|choice| choice.word.as_str()).collect();
        let text = self.asks(id, agent, title, &words, default, Timestamp(*deadline));
        Some(Told { at: now, worker: Some(worker), text })
    }

    fn asks(
        &mut self,
        id: QuestionId,
        agent: &str,
        title: &str,
        words: &[&str],
        default: &str,
        deadline: Timestamp,
    ) -> String {
        let answer = format!("`{} {id} {}`", self.answer, words.join("|"));
        let (title, until) = (short(title), clock(deadline));
        let text = format!(
            "? {id}: {agent} wants to: {title}; answer with {answer} until {until}, else {default}"
        );
        self.questions.insert(id, (agent.to_owned(), answer));
        text
    }

    /// Tells what an agent said and did.
    pub(super) fn said(&mut self, said: &Said) -> Vec<Told> {
        let Some(place) = self.places.get_mut(&said.agent) else { return Vec::new() };
        let worker = Some(place.worker);
        let mut told = Vec::new();
        let mut drain = |stream: &mut Stream, at: i64, everything: bool| {
            let lines = stream.drain(everything, SAID_COLUMNS).into_iter();
            // No line of ours begins like this.
            told.extend(lines.map(|line| Told {
                at: Timestamp(at),
                worker,
                text: format!("  {line}"),
            }));
        };
        let mut at = 0;
        for record in &said.records {
            at = records::at_ms(record).unwrap_or_default();
            let Some(event) = records::event(record) else { continue };
            // Questions, limits and ends are in the log.
            let is_told = matches!(
                event,
                Talk::Text(_)
                    | Talk::Thought(_)
                    | Talk::ToolCall(_)
                    | Talk::ToolResult { .. }
                    | Talk::NotStarted { .. }
                    | Talk::Told { .. }
                    | Talk::Trouble { .. }
                    | Talk::TurnEnded(_)
            );
            if is_told {
                place.stream.take(&event, &said.directory);
                drain(&mut place.stream, at, matches!(event, Talk::TurnEnded(_)));
            }
        }
        if said.is_end {
            drain(&mut place.stream, at, true);
            place.reading = Reading::Done;
        }
        told
    }

    /// Returns since when the first agent waits for its start that nobody was told of.
    pub(super) fn queued_since(&self) -> Option<Timestamp> {
        let due = self.places.values().filter(|place| place.start == Start::Due);
        due.map(|place| place.begun_at).min()
    }

    /// Tells which agents have not started yet, given all of them.
    pub(super) fn queued(&mut self, agents: &[Agent], now: Timestamp) -> Vec<Told> {
        let mut told = Vec::new();
        for (id, place) in &mut self.places {
            if place.start != Start::Due {
                continue;
            }
            let known = agents.iter().find(|agent| agent.id == *id);
            let Some(known) = known.filter(|agent| agent.phase == Phase::Queued) else {
                place.start = Start::Done;
                continue;
            };
            place.start = Start::Late;
            let why = known.waits_for.as_deref().unwrap_or("it starts in a moment");
            told.push(Told {
                at: now,
                worker: Some(place.worker),
                text: format!("{id} is queued: {why}"),
            });
        }
        told
    }

    /// Tells what is waited for when nothing has happened since some time.
    pub(super) fn quiet(&self, since: Timestamp, now: Timestamp) -> Vec<Told> {
        let long = span(now.0.saturating_sub(since.0).max(0));
        let tell = |worker, what: &str| Told {
            at: now,
            worker,
            text: cut(&format!("(nothing for {long}: {what})"), TOLD_COLUMNS),
        };
        let open = self.run.open.iter().map(|open| {
            let place = self.places.get(&open.agent);
            let call = place.and_then(|place| place.stream.calls());
            let asks = self.questions.values().find(|(agent, _)| *agent == open.agent);
            let (number, agent) = (open.number, &open.agent);
            let what = match (open.agent_phase, asks, call) {
                (Some(Phase::Queued), _, _) => format!("{agent} is queued"),
                (_, Some((_, answer)), _) => format!("{agent} waits for an answer: {answer}"),
                (Some(Phase::Running), _, Some(call)) => {
                    format!("{agent} waits for {}", short(call))
                }
                (Some(Phase::Running), _, None) if place.is_some_and(|place| place.plans) => {
                    format!("{agent} makes the plan")
                }
                (Some(Phase::Running), _, None) => match &open.item {
                    Some(item) => format!("{agent} works on {item}"),
                    None => format!("{agent} works"),
                },
                _ => format!("what iteration {number} did is checked and taken over"),
            };
            tell(Some(open.worker), &what)
        });
        let mut told: Vec<Told> = open.collect();
        if told.is_empty() {
            let what = match self.run.phase {
                RunPhase::Paused => {
                    format!("it is paused; `teamster steer {} go-on` ends that", self.name)
                }
                RunPhase::Stopping => "it is about to stop".to_owned(),
                _ => "the next iteration is about to begin".to_owned(),
            };
            told.push(tell(None, &what));
        }
        told
    }
}

impl Place {
    fn new(iteration: u32, worker: u32, plans: bool, begun_at: Timestamp, start: Start) -> Self {
        let (stream, reading) = (Stream::default(), Reading::Not);
        Self { iteration, worker, plans, begun_at, stream, reading, start }
    }
}

#[cfg(test)]
mod tests;
