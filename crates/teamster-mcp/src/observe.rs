//! Who is told of every tool call: which tool, by whom, what came of it, and how long it took.
//!
//! A call is told once, when it is over, also if it was refused before the tool saw it or its caller went away. What is
//! made of it is the observer's business; this crate knows no telemetry.

use std::time::Duration;

use teamster_core::token::Token;

use crate::answer::{Fault, Outcome};
use crate::catalogue::Entry;
use crate::trace::Trace;

/// Hears of calls; the hub brings one, and the clock by which they are timed.
pub trait Observer: Send + Sync + 'static {
    /// Returns the time in nanoseconds since some moment that stays the same.
    fn clock_ns(&self) -> u64;

    /// Hears of a call that is over. It is called in the course of that call, so it must not wait.
    fn called(&self, call: &Observed<'_>);
}

/// A call that is over.
pub struct Observed<'a> {
    /// The tool, or none if there is none of the name that was called.
    pub entry: Option<&'a Entry>,
    pub token: &'a Token,
    pub trace: &'a Trace,
    pub how: How,
    pub took: Duration,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With an answer, or with a question.
    Ok,
    /// With words that say why not (`isError`).
    Refused,
    /// With a protocol error, or because the tool broke.
    Failed,
    /// Not at all: its caller went away, or the hub ended.
    Abandoned,
}

impl How {
    pub const ALL: [Self; 4] = [Self::Ok, Self::Refused, Self::Failed, Self::Abandoned];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    fn of(outcome: &Result<Outcome, Fault>) -> Self {
        match outcome {
            Ok(Outcome::Answer(answer)) if answer.is_bug => Self::Failed,
            Ok(Outcome::Answer(answer)) if answer.is_error => Self::Refused,
            Ok(Outcome::Answer(_) | Outcome::Ask(_)) => Self::Ok,
            Err(_) => Self::Failed,
        }
    }
}

/// Tells nobody, for doors that need no telemetry.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Observer for Nobody {
    fn clock_ns(&self) -> u64 {
        0
    }

    fn called(&self, _call: &Observed<'_>) {}
}

/// A call under way. It is told when this is dropped, as abandoned unless it was said how it ended.
pub(crate) struct Watched<'a> {
    observer: &'a dyn Observer,
    entry: Option<&'a Entry>,
    token: &'a Token,
    trace: &'a Trace,
    began_ns: u64,
    how: How,
}

impl<'a> Watched<'a> {
    pub(crate) fn begin(
        observer: &'a dyn Observer,
        entry: Option<&'a Entry>,
        token: &'a Token,
        trace: &'a Trace,
    ) -> Self {
        let began_ns = observer.clock_ns();
        Self { observer, entry, token, trace, began_ns, how: How::Abandoned }
    }

    pub(crate) fn ends(mut self, how: How) {
        self.how = how;
    }

    pub(crate) fn ends_with(self, outcome: &Result<Outcome, Fault>) {
        self.ends(How::of(outcome));
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let Self { observer, entry, token, trace, began_ns, how } = *self;
        let took = Duration::from_nanos(observer.clock_ns().saturating_sub(began_ns));
        observer.called(&Observed { entry, token, trace, how, took });
    }
}
