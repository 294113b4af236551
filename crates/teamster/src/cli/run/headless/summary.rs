//! How a run ended, at a glance.

use std::fmt::Write as _;

use serde_json::Value;
use teamster_core::Timestamp;
use teamster_core::spending::dollars;

use super::tells::span;
use crate::cli::run::model::Run;
use crate::cli::screen::{clean_line, cut};
use crate::cli::{budget, local_time};

/// Maximum length of a blocked item; of one that is about a refused merge, which names every file that is in the way; and of
/// a sentence about what is left.
const ITEM_COLUMNS: usize = 100;
const MERGE_COLUMNS: usize = 2_000;
const LEFT_COLUMNS: usize = 400;
/// As many blocked items as are shown.
const BLOCKED_MAX: usize = 20;

/// Tells what came of a run.
pub(super) fn of(run: &Run, view: &Value) -> String {
    let why = run.why.as_deref().map_or_else(|| run.phase.clone(), clean_line);
    let n_done = run.n_items(&["completed"]);
    let n_open = run.n_items(&["remaining", "in_progress"]);
    let blocked: Vec<_> = run.item_list.iter().filter(|item| item.status == "blocked").collect();
    let mut items = format!("{n_done} done, {n_open} open");
    if !blocked.is_empty() {
        let _ = write!(items, ", {} blocked", blocked.len());
    }
    match run.n_items(&["cancelled"]) {
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
    let left = view["left"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (n, left) in left.enumerate() {
        row(if n == 0 { "left" } else { "" }, &cut(&clean_line(left), LEFT_COLUMNS));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;
    use teamster_core::spending::Spent;

    use super::*;

    fn shown(view: &Value) -> String {
        of(&serde_json::from_value(view.clone()).unwrap(), view)
    }

    #[test]
    fn what_came_of_a_run_is_told_with_what_is_left() {
        let mut view = json!({
            "name": "SPEC", "phase": "completed", "why": "it is complete", "under_way": false, "begun_at": 1_000,
            "iterations": 3, "iterations_max": 10, "budget_microdollars": 5_000_000,
            "spent": Spent { microdollars: 1_230_000, n_priced: 4, ..Spent::default() },
            "item_list": [
                {"id": "TAS-1", "content": "one", "status": "completed"},
                {"id": "TAS-2", "content": "two", "status": "cancelled"},
                {"id": "TAS-3", "content": format!("For the person:\n\u{1b}[31m{}", "x".repeat(200)), "status": "blocked"},
                {"id": "TAS-4", "content": "four", "status": "remaining"},
                {"id": "TAS-5", "content": format!("For the person: in the way: {}", "y ".repeat(60)), "status": "blocked",
                 "branch": "teamster/run-SPEC/iteration-3"},
            ],
            "failed": 1, "commits": 2, "worked_ms": 3_699_000,
            "left": ["the branch teamster/run-SPEC/iteration-3 is not on main", "README has changes that nobody committed"],
        });
        expect![[r#"
            SPEC: it is complete
              iterations  3 of 10, 1 failed
              commits     2
              items       1 done, 1 open, 2 blocked, 1 cancelled
                          TAS-3 is blocked: For the person: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
                          TAS-5 is blocked: For the person: in the way: y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y
              cost        $1.23 of $5.00
              time        61 min 39 s
              left        the branch teamster/run-SPEC/iteration-3 is not on main
                          README has changes that nobody committed"#]]
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
