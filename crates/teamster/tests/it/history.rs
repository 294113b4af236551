//! What clients asked for and heard, held against what the hub shows afterwards.
//!
//! Every operation is recorded when it is asked for and when it ended: answered, refused, or without an answer. Then
//! whatever was answered must be there exactly once, whatever was refused not at all, whatever stayed without an answer
//! once or not at all; operations of which one ended before the other began are in that order; what is numbered has every
//! number once; and the log, its snapshot and the hub's lists agree.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::record::Body;
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_core::{Event, RunName, State, item, iteration, note, run};
use teamster_log::{Log, verify};

use crate::hub::Hub;
use crate::lost_writes::listed;

/// One thing that a client asked for.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    /// What it writes, all of it or nothing. No other operation writes the same.
    pub(crate) texts: Vec<String>,
    pub(crate) outcome: Outcome,
    /// When it was asked for and when it had surely ended, on one clock for all clients.
    pub(crate) invoked: u64,
    pub(crate) ended: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Acknowledged, with the ids that the hub gave to what was written.
    Ok { answer: String },
    /// Refused, so nothing was written.
    Failed,
    /// No answer came.
    Unknown,
}

impl Operation {
    /// Returns the operation as one knew it before its answer came.
    pub(crate) fn without_answer(&self) -> Self {
        Self { outcome: Outcome::Unknown, ended: u64::MAX, ..self.clone() }
    }

    /// Returns the operation as one whose answer was under way, whether or not it arrived.
    pub(crate) fn answered(&self, answer: &str) -> Self {
        Self { outcome: Outcome::Ok { answer: answer.to_owned() }, ..self.clone() }
    }

    pub(crate) fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok { .. })
    }
}

/// Where all clients write down what they do.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    now: u64,
    operations: Vec<Operation>,
}

/// Names an operation in its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationId(usize);

impl History {
    /// Notes that a client is about to ask for this.
    pub(crate) fn invoke(&self, texts: Vec<String>) -> OperationId {
        let mut recorded = self.recorded();
        recorded.now += 1;
        let (invoked, outcome) = (recorded.now, Outcome::Unknown);
        recorded.operations.push(Operation { texts, outcome, invoked, ended: u64::MAX });
        OperationId(recorded.operations.len() - 1)
    }

    /// Notes how it ended. One without an answer has ended when it can no longer take effect.
    pub(crate) fn end(&self, operation: OperationId, outcome: Outcome) {
        let mut recorded = self.recorded();
        recorded.now += 1;
        let now = recorded.now;
        let operation = &mut recorded.operations[operation.0];
        (operation.outcome, operation.ended) = (outcome, now);
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.recorded().operations.clone()
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Acknowledged, but not there.
    Lost(String),
    /// There more than once.
    Twice(String),
    /// Only a part of what was to be written at once.
    Torn(String),
    /// Refused, but there.
    Refused(String),
    /// There, but nobody asked for it.
    Unasked(String),
    /// The first ended before the second was asked for, but comes after it.
    Reordered(String, String),
    /// The answer named another id than the log does.
    OtherId(String, String),
    /// A number is missing, or there twice.
    Gap(String),
    /// The log, its snapshot or a list of the hub contradict each other.
    Contradiction(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(text) => write!(f, "{text} was acknowledged and is lost"),
            Self::Twice(text) => write!(f, "{text} is there twice"),
            Self::Torn(text) => write!(f, "only a part of {text} is there"),
            Self::Refused(text) => write!(f, "{text} was refused and is there"),
            Self::Unasked(text) => write!(f, "{text} is there, but nobody asked for it"),
            Self::Reordered(first, second) => write!(f, "{second} comes before {first}"),
            Self::OtherId(text, id) => write!(f, "{text} is stored as {id}, but not answered so"),
            Self::Gap(id) => write!(f, "{id} is out of the row"),
            Self::Contradiction(what) => write!(f, "{what}"),
        }
    }
}

/// One text that the log holds, and the id that the hub gave to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) text: String,
    pub(crate) series: &'static str,
    pub(crate) number: u32,
}

impl Write {
    fn id(&self) -> String {
        format!("{}{}", self.series, self.number)
    }

    fn of(event: &Event) -> Option<Self> {
        let Event::Run { what, .. } = event else { return None };
        let (text, series, number) = match what {
            run::Event::Item(item::Event::Added { id, content, .. }) => (content, "TAS-", id.0),
            run::Event::Note(note::Event::Added { id, content, .. }) => (content, "NOT-", id.0),
            run::Event::Iteration(iteration::Event::Summarised { iteration, text, .. }) => {
                (text, "#", *iteration)
            }
            _ => return None,
        };
        Some(Self { text: text.to_string(), series, number })
    }
}

/// What a log says.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// In the order of the log.
    pub(crate) writes: Vec<Write>,
    /// Computed from every commit, without a snapshot.
    pub(crate) state: State,
    /// What is wrong with the log itself.
    pub(crate) faults: Vec<Fault>,
    /// The commits that the snapshot includes, if there is one.
    pub(crate) snapshot: Option<u64>,
}

impl Shown {
    /// Reads a whole log: its chain, its events, and whether its snapshot leads to the same state.
    pub(crate) async fn read(log: &dyn Log) -> Self {
        let mut shown = Self::default();
        if let Err(why) = shown.read_commits(log).await {
            shown.faults.push(Fault::Contradiction(why));
        }
        shown
    }

    async fn read_commits(&mut self, log: &dyn Log) -> Result<(), String> {
        let report = verify(log, None).await.map_err(|error| format!("verify: {error}"))?;
        if let Some(broken) = report.broken {
            return Err(format!("commit {} is broken: {}", broken.number, broken.why));
        }
        if let Some(damage) = report.damage {
            return Err(format!("the database is damaged: {damage}"));
        }
        let snapshot = log.snapshot(SNAPSHOT_FORMAT).await.map_err(|error| error.to_string())?;
        self.snapshot = snapshot.as_ref().map(|snapshot| snapshot.number);
        let mut after = 0;
        loop {
            let commits = log.read(after, 1_000).await.map_err(|error| error.to_string())?;
            let Some(last) = commits.last() else { break };
            after = last.number;
            for commit in &commits {
                let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
                if body.first != self.state.seq() + 1 {
                    self.faults.push(Fault::Gap(format!("event {}", body.first)));
                }
                for record in &body.records {
                    self.state.apply(record);
                    self.writes.extend(record.events.iter().filter_map(Write::of));
                }
                let contradicts = snapshot.as_ref().is_some_and(|snapshot| {
                    snapshot.number == commit.number
                        && State::from_snapshot(&snapshot.bytes).as_ref() != Some(&self.state)
                });
                if contradicts {
                    return Err(format!("the snapshot at {after} is not what the log says"));
                }
            }
        }
        Ok(())
    }

    /// Compares the log with what a running hub answers.
    pub(crate) async fn compare_with(&mut self, hub: &Hub) {
        let run = RunName::parse("default").expect("it is a name");
        let items = self.state.runs.get(&run).items.ranked_after(None);
        let replayed: Vec<_> =
            items.map(|item| (item.id.to_string(), item.content.to_string())).collect();
        if listed(hub).await != replayed {
            self.faults.push(Fault::Contradiction("the list of tasks is not the log's".into()));
        }
        if hub.n_events_in_all().await != self.state.seq() {
            self.faults.push(Fault::Contradiction("the hub counts other events".into()));
        }
    }
}

/// Returns everything that is wrong.
pub(crate) fn check(operations: &[Operation], shown: &Shown) -> Vec<Fault> {
    let mut faults = shown.faults.clone();
    let writers: HashMap<&str, usize> = operations
        .iter()
        .enumerate()
        .flat_map(|(n, operation)| operation.texts.iter().map(move |text| (text.as_str(), n)))
        .collect();
    let mut found: Vec<Vec<&Write>> = vec![Vec::new(); operations.len()];
    let mut last_number = BTreeMap::new();
    let mut newest: Option<&Operation> = None;
    for write in &shown.writes {
        let last = last_number.entry(write.series).or_insert(0);
        if write.number != *last + 1 {
            faults.push(Fault::Gap(write.id()));
        }
        *last = write.number;
        let Some(&n) = writers.get(write.text.as_str()) else {
            faults.push(Fault::Unasked(write.text.clone()));
            continue;
        };
        let operation = &operations[n];
        found[n].push(write);
        match newest {
            Some(before) if operation.ended < before.invoked => {
                faults.push(Fault::Reordered(operation.texts[0].clone(), before.texts[0].clone()))
            }
            Some(before) if before.invoked > operation.invoked => {}
            _ => newest = Some(operation),
        }
    }
    for (operation, found) in operations.iter().zip(found) {
        faults.extend(check_one(operation, &found));
    }
    faults
}

fn check_one(operation: &Operation, found: &[&Write]) -> Option<Fault> {
    let name = || operation.texts[0].clone();
    let texts: Vec<&str> = found.iter().map(|write| write.text.as_str()).collect();
    match &operation.outcome {
        Outcome::Ok { .. } if found.is_empty() => Some(Fault::Lost(name())),
        Outcome::Failed if !found.is_empty() => Some(Fault::Refused(name())),
        _ if found.is_empty() => None,
        _ if found.len() > operation.texts.len() => Some(Fault::Twice(name())),
        _ if texts != operation.texts => Some(Fault::Torn(name())),
        Outcome::Ok { answer } => {
            let words = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '#');
            let answered = |id: &String| answer.split(words).any(|word| word == id);
            let other = found.iter().map(|write| write.id()).find(|id| !answered(id));
            other.map(|id| Fault::OtherId(name(), id))
        }
        Outcome::Failed | Outcome::Unknown => None,
    }
}

/// Says what went wrong, at most a screen of it.
pub(crate) fn tell(faults: &[Fault]) -> String {
    let mut lines: Vec<String> = faults.iter().take(10).map(|fault| format!("  {fault}")).collect();
    if faults.len() > lines.len() {
        lines.push(format!("  and {} more", faults.len() - lines.len()));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients: `a` is answered, then `b` and `c` are asked for at once; `b` is answered, `c` never.
    fn operations() -> Vec<Operation> {
        let history = History::default();
        let invoke = |texts: &[&str]| history.invoke(texts.iter().map(|&t| t.into()).collect());
        let ok = |operation, ids: &str| {
            history.end(operation, Outcome::Ok { answer: format!("Added: {ids}") });
        };
        ok(invoke(&["a"]), "TAS-1");
        let (b, c) = (invoke(&["b1", "b2"]), invoke(&["c"]));
        ok(b, "TAS-2: b1, TAS-3: b2");
        history.end(c, Outcome::Unknown);
        history.end(invoke(&["refused"]), Outcome::Failed);
        ok(invoke(&["z"]), "#1");
        history.operations()
    }

    /// Checks a log that holds these texts, numbered from 1 on; `z` is a summary, the others are items.
    fn faults(texts: &[&str]) -> Vec<Fault> {
        let mut number = 0;
        let write = |text: &&str| {
            let series = if *text == "z" { "#" } else { "TAS-" };
            number += u32::from(series == "TAS-");
            let number = if series == "#" { 1 } else { number };
            Write { text: (*text).into(), series, number }
        };
        let writes = texts.iter().map(write).collect();
        check(&operations(), &Shown { writes, ..Shown::default() })
    }

    #[test]
    fn a_good_history_passes_whether_or_not_the_unanswered_call_took_effect() {
        assert_eq!(faults(&["a", "b1", "b2", "z"]), []);
        assert_eq!(faults(&["a", "b1", "b2", "c", "z"]), []);
    }

    #[test]
    fn what_is_lost_or_there_twice_or_in_part_is_found() {
        assert_eq!(faults(&["a", "b1", "b2"]), [Fault::Lost("z".into())]);
        assert_eq!(faults(&["a", "b1", "b2", "c", "c", "z"]), [Fault::Twice("c".into())]);
        assert_eq!(faults(&["a", "b1", "z"]), [Fault::Torn("b1".into())]);
        assert_eq!(faults(&["a", "b1", "b2", "refused", "z"]), [Fault::Refused("refused".into())]);
        assert_eq!(faults(&["a", "b1", "b2", "who", "z"]), [Fault::Unasked("who".into())]);
    }

    #[test]
    fn what_comes_before_something_that_had_ended_is_found() {
        let reordered = |first: &str, second: &str| Fault::Reordered(first.into(), second.into());
        assert_eq!(faults(&["a", "b1", "b2", "z", "c"]), [reordered("c", "z")]);
        assert!(faults(&["b1", "b2", "a", "z"]).contains(&reordered("a", "b1")));
    }

    #[test]
    fn ids_that_are_not_the_answered_ones_or_leave_a_gap_are_found() {
        let other = Fault::OtherId("b1".into(), "TAS-4".into());
        let swapped = faults(&["a", "c", "b1", "b2", "z"]);
        assert_eq!(swapped, [other], "c was given an id that b had been told");

        let writes = ["a", "c"].iter().zip([1, 3]);
        let write =
            |(text, number): (&&str, u32)| Write { text: (*text).into(), series: "TAS-", number };
        let shown = Shown { writes: writes.map(write).collect(), ..Shown::default() };
        assert!(check(&operations(), &shown).contains(&Fault::Gap("TAS-3".into())));
    }
}
