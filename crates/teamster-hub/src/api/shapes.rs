//! Values that several nouns have, in the form that the API gives them.

use std::sync::Arc;

use teamster_agents::isolation::Isolation;
use teamster_api::runs::ItemCounts;
use teamster_api::{agents, spending};
use teamster_core::agent::{self, Ending, Outcome, Phase, Status};
use teamster_core::item::{self, Items};
use teamster_core::spending::Spent;

/// Shows what turns used: tokens that no program reported are nothing, not 0.
pub(super) fn spent(spent: &Spent) -> spending::Spent {
    let tokens = |n: u64| spent.is_reported().then_some(n);
    spending::Spent {
        input: tokens(spent.input),
        output: tokens(spent.output),
        cached_read: tokens(spent.cached_read),
        cached_write: tokens(spent.cached_write),
        microdollars: spent.microdollars,
        n_priced: spent.n_priced,
        n_unpriced: spent.n_unpriced,
        n_unreported: spent.n_unreported,
        n_partial: spent.n_partial,
        calls: spent.calls,
    }
}

pub(super) fn phase(phase: Phase) -> agents::Phase {
    match phase {
        Phase::Queued => agents::Phase::Queued,
        Phase::Running => agents::Phase::Running,
        Phase::Adopted => agents::Phase::Adopted,
        Phase::Asleep => agents::Phase::Asleep,
        Phase::Ending => agents::Phase::Ending,
        Phase::Ended => agents::Phase::Ended,
    }
}

pub(super) fn verdict(status: Status) -> agents::Verdict {
    match status {
        Status::Success => agents::Verdict::Success,
        Status::Partial => agents::Verdict::Partial,
        Status::Failed => agents::Verdict::Failed,
        Status::Blocked => agents::Verdict::Blocked,
    }
}

pub(super) fn outcome(outcome: &Outcome) -> agents::Outcome {
    agents::Outcome {
        ending: match outcome.ending {
            Ending::Completed => agents::Ending::Completed,
            Ending::Aborted => agents::Ending::Aborted,
            Ending::Crashed => agents::Ending::Crashed,
            Ending::TimedOut => agents::Ending::TimedOut,
        },
        status: verdict(outcome.status),
        summary: outcome.summary.to_string(),
        changes: texts(&outcome.changes),
        issues: texts(&outcome.issues),
        questions: texts(&outcome.questions),
        cost_microdollars: outcome.cost_microdollars,
    }
}

/// How an agent was isolated.
pub(super) fn isolation(isolation: agent::Isolation) -> agents::Isolation {
    match isolation {
        agent::Isolation::Namespaces => agents::Isolation::Namespaces,
        agent::Isolation::Subreaper => agents::Isolation::Subreaper,
        agent::Isolation::Group => agents::Isolation::Group,
        agent::Isolation::Remote => agents::Isolation::Remote,
    }
}

/// How the next agent is isolated.
pub(super) fn isolation_here(isolation: Isolation) -> agents::Isolation {
    self::isolation(crate::isolation::recorded(isolation))
}

pub(super) fn item_counts(items: &Items) -> ItemCounts {
    ItemCounts {
        remaining: items.count(item::Status::Remaining),
        in_progress: items.count(item::Status::InProgress),
        completed: items.count(item::Status::Completed),
        blocked: items.count(item::Status::Blocked),
        cancelled: items.count(item::Status::Cancelled),
    }
}

pub(super) fn texts(all: &[Arc<str>]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

pub(super) fn text(one: Option<&Arc<str>>) -> Option<String> {
    one.map(ToString::to_string)
}
