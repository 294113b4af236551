//! How a run ended, at a glance.

use std::fmt::Write as _;

use teamster_api::runs::{Item, ItemStatus, Run};
use teamster_core::Timestamp;
use teamster_core::spending::dollars;

use super::tells::span;
use crate::cli::run::model::Watched as _;
use crate::cli::screen::{clean_line, cut};
use crate::cli::{budget, local_time};

/// Maximum length of a blocked item, and of one that is about a refused merge, which names every file that is in the way.
const ITEM_COLUMNS: usize = 100;
const MERGE_COLUMNS: usize = 2_000;
/// As many blocked items as are shown.
const BLOCKED_MAX: usize = 20;

/// Tells what came of a run.
pub(super) fn of(run: &Run) -> String {
    let why = run.why.as_deref().map_or_else(|| run.phase.to_string(), clean_line);
    let n_done = run.n_items(&[ItemStatus::Completed]);
    let n_open = run.n_items(&[ItemStatus::Remaining, ItemStatus::InProgress]);
    let is_blocked = |item: &&Item| item.status == ItemStatus::Blocked;
    let blocked: Vec<_> = run.item_list.iter().filter(is_blocked).collect();
    let mut items = format!("{n_done} done, {n_open} open");
    if !blocked.is_empty() {
        let _ = write!(items, ", {} blocked", blocked.len());
    }
    match run.n_items(&[ItemStatus::Cancelled]) {
        0 => {}
        n => items.extend([format!(", {n} cancelled")]),
    }
    let Some(begun_at) = run.begun_at else {
        return format!("{}: {items}; nobody works it off", run.name);
    };
    let mut text = format!("{}: {why}", run.name);
    let mut row = |title: &str, what: &str| {
        let _ = write!(text, "\n  {title:<11} {what}");
    };
    let (n_failed, n_commits) = (run.failed.unwrap_or_default(), run.commits.unwrap_or_default());
    let mut iterations = run.iterations.unwrap_or_default().to_string();
    if let Some(max) = run.iterations_max {
        let _ = write!(iterations, " of {max}");
    }
    if n_failed > 0 {
        let _ = write!(iterations, ", {n_failed} failed");
    }
    row("iterations", &iterations);
    row("commits", &n_commits.to_string());
    row("items", &items);
    for item in blocked.iter().take(BLOCKED_MAX) {
        let line = format!("{} is blocked: {}", item.id, clean_line(&item.content));
        row("", &cut(&line, if item.branch.is_some() { MERGE_COLUMNS } else { ITEM_COLUMNS }));
    }
    if blocked.len() > BLOCKED_MAX {
        row("", &format!("and {} more", blocked.len() - BLOCKED_MAX));
    }
    let cost = budget::cost(&run.spent());
    row(
        "cost",
        &match run.budget_microdollars {
            Some(budget) => format!("{cost} of {}", dollars(budget)),
            None if cost == "-" => "nothing that is known".to_owned(),
            None => cost,
        },
    );
    if let Some(took_ms) = run.took_ms(Timestamp(begun_at)) {
        row("time", &span(took_ms));
    }
    if let Some(n @ 1..) = run.resumes {
        let times = if n == 1 { "once".to_owned() } else { format!("{n} times") };
        row("since", &format!("{}, resumed {times}", local_time(Timestamp(begun_at))));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;

    fn shown(view: &Value) -> String {
        of(&serde_json::from_value(view.clone()).unwrap())
    }

    #[test]
    fn what_came_of_a_run_is_told() {
        let mut view = json!({
            "name": "SPEC", "phase": "completed", "why": "it is complete", "under_way": false, "begun_at": 1_000,
            "iterations": 3, "iterations_max": 10, "budget_microdollars": 5_000_000,
            "spent": {"microdollars": 1_230_000, "n_priced": 4},
            "item_list": [
                {"id": "TAS-1", "content": "one", "status": "completed"},
                {"id": "TAS-2", "content": "two", "status": "cancelled"},
                {"id": "TAS-3", "content": format!("For the person:\n\u{1b}[31m{}", "x".repeat(200)), "status": "blocked"},
                {"id": "TAS-4", "content": "four", "status": "remaining"},
                {"id": "TAS-5", "content": format!("For the person: in the way: {}", "y ".repeat(60)), "status": "blocked",
                 "branch": "teamster/run-SPEC/iteration-3"},
            ],
            "failed": 1, "commits": 2, "worked_ms": 3_699_000,
        });
        expect![[r#"
            SPEC: it is complete
              iterations  3 of 10, 1 failed
              commits     2
              items       1 done, 1 open, 2 blocked, 1 cancelled
                          TAS-3 is blocked: For the person: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
                          TAS-5 is blocked: For the person: in the way: y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y
              cost        $1.23 of $5.00
              time        61 min 39 s"#]]
        .assert_eq(&shown(&view));
        // It counts from its first beginning on.
        (view["resumes"], view["resumed_at"]) = (json!(2), json!(2_000));
        let resumed = shown(&view);
        assert!(
            resumed.contains("since       ") && resumed.contains(", resumed 2 times"),
            "{resumed}"
        );
        // A list that nobody works off has no end, and no way to go on with it.
        view["begun_at"] = Value::Null;
        expect!["SPEC: 1 done, 1 open, 2 blocked, 1 cancelled; nobody works it off"]
            .assert_eq(&shown(&view));
    }
}
