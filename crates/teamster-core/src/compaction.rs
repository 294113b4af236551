//! Compaction: leaving out the events that the state no longer depends on.
//!
//! What is kept is kept as it was written: who did it, when, and in which words. Replaying what is left gives the same
//! state, apart from the numbers of the events; whoever compacts a log makes sure of that before it counts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::record::Body;
use crate::{Event, PrincipalName, Record, State};

/// What becomes of an event when a log is compacted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    /// It concerns something that is gone.
    Dropped,
    /// It is kept unless all of these, places in the state that it fills, were filled again later.
    KeptIfLast(Vec<String>),
}

/// Knows of a whole log which events are needed. Show it all of the log first, then have it thinned.
pub struct Compaction<'a> {
    /// The state at the end of the log.
    state: &'a State,
    n_surveyed: u64,
    n_thinned: u64,
    n_kept: u64,
    /// The event that filled each place last.
    filled: HashMap<String, u64>,
    /// The event that ends the last record with each key.
    keys: HashMap<(PrincipalName, Arc<str>), u64>,
}

impl<'a> Compaction<'a> {
    pub fn new(state: &'a State) -> Self {
        Self {
            state,
            n_surveyed: 0,
            n_thinned: 0,
            n_kept: 0,
            filled: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// Looks at the next commit.
    pub fn survey(&mut self, body: &Body) {
        for record in &body.records {
            for event in &record.events {
                self.n_surveyed += 1;
                if let Fate::KeptIfLast(places) = event.fate(self.state) {
                    for place in places {
                        self.filled.insert(place, self.n_surveyed);
                    }
                }
            }
            if let Some(key) = &record.key {
                self.keys.insert((record.by.clone(), key.key.clone()), self.n_surveyed);
            }
        }
    }

    /// Returns what is left of the next commit, if anything is. To be called with what was surveyed, in the same order.
    pub fn thin(&mut self, body: Body) -> Option<Body> {
        let first = self.n_kept + 1;
        let records: Vec<Record> =
            body.records.into_iter().filter_map(|record| self.thin_record(record)).collect();
        (!records.is_empty()).then(|| Body::new(first, records))
    }

    fn thin_record(&mut self, mut record: Record) -> Option<Record> {
        let before = self.n_thinned;
        self.n_thinned += record.events.len() as u64;
        let is_remembered = record.key.as_ref().is_some_and(|key| {
            self.state.remembers(&record.by, key)
                && self.keys.get(&(record.by.clone(), key.key.clone())) == Some(&self.n_thinned)
        });
        // The answer to a repeated call is made of all that the first one caused.
        if !is_remembered {
            record.key = None;
            let mut number = before;
            record.events.retain(|event| {
                number += 1;
                match event.fate(self.state) {
                    Fate::Kept => true,
                    Fate::Dropped => false,
                    Fate::KeptIfLast(places) => {
                        places.iter().any(|place| self.filled.get(place) == Some(&number))
                    }
                }
            });
        }
        self.n_kept += record.events.len() as u64;
        (!record.events.is_empty()).then_some(record)
    }

    /// Returns how many events were left out and how many there were.
    pub fn n_dropped(&self) -> (u64, u64) {
        (self.n_thinned - self.n_kept, self.n_thinned)
    }
}

impl Event {
    fn fate(&self, state: &State) -> Fate {
        match self {
            Self::ClientSession(event) => event.fate(&state.client_sessions),
            // Who had access when is what a log is asked for longest; that a log was rewritten must stay in it.
            Self::Hub(_) | Self::Token(_) => Fate::Kept,
            Self::Run { run, what } => match what.fate(state.runs.get(run)) {
                Fate::KeptIfLast(places) => {
                    Fate::KeptIfLast(places.iter().map(|place| format!("{run} {place}")).collect())
                }
                fate @ (Fate::Kept | Fate::Dropped) => fate,
            },
            Self::Yak(event) => event.fate(),
            Self::Errand(event) => state.errands.fate(event),
            Self::Role(event) => event.fate(),
            Self::Dossier(event) => event.fate(),
            Self::Agent(event) => event.fate(),
            Self::Question(event) => event.fate(),
            Self::Team(event) => event.fate(),
            Self::Conversation(event) => event.fate(),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::item::Status;
    use crate::state::tests::a_bit_of_everything;
    use crate::testing::set;

    /// That what is left comes to the same state is checked after every history of the core's tests, here as there.
    #[test]
    fn what_was_overwritten_is_left_out_and_nothing_else() {
        let mut given = a_bit_of_everything();
        for status in [Status::Completed, Status::Remaining, Status::InProgress, Status::Blocked] {
            given.by("ann", set("TAS-1", status));
        }
        let left = given.compacted();
        let events = left.iter().flat_map(|record| &record.events);
        let shown: Vec<_> = events.map(|event| event.summary().text).collect();
        expect![[r#"
            token TOK-1 created for ann (full)
            token TOK-2 created for bob (full)
            TAS-1 added (P2): a
            NOT-1 (stuck): b
            iteration 1: c
            yak yak-6869 created (bug, p2): d
            f goes on as ERRAND-1
            TAS-1 now blocked"#]]
        .assert_eq(&shown.join("\n"));
    }
}
