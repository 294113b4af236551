//! Lists: the runs, and the items and notes of one.

use teamster_api::Millis;
use teamster_api::runs::{Item, ListedRun, Note, RunLine};
use teamster_core::Timestamp;

use crate::cli::screen::{clean, clean_line, cut, fill, width};
use crate::cli::{budget, local_time};

/// As much of a text as is in a line of a list; on a terminal less, if it is narrow.
const TEXT_COLUMNS: usize = 160;

/// Puts cells below each other; the last column is as long as it is.
fn table(rows: &[Vec<String>]) -> String {
    let n_columns = rows.first().map_or(0, Vec::len);
    let widest = |n: usize| rows.iter().map(|row| width(&row[n])).max().unwrap_or_default();
    let widths: Vec<usize> = (0..n_columns).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| fill(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn heading<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).to_vec()
}

fn time(at: Option<Millis>) -> String {
    // Seconds are for those who look at one of them.
    let at = at.map(|at| local_time(Timestamp(at)));
    at.map(|at| at.chars().take(16).collect()).unwrap_or_default()
}

/// The runs, in the order in which the hub tells them.
pub(super) fn runs(runs: &[ListedRun]) -> String {
    let mut rows = vec![heading([
        "name",
        "phase",
        "done",
        "open",
        "blocked",
        "iterations",
        "cost",
        "begun",
        "ended",
        "spec",
    ])];
    rows.extend(runs.iter().map(|run| {
        let ListedRun { line, ended_at } = run;
        let items = &line.items;
        let blocked = Some(items.blocked).filter(|n| *n > 0).map(|n| n.to_string());
        let spent = line.spent_now.or(line.spent);
        vec![
            line.name.clone(),
            line.phase.to_string(),
            items.completed.to_string(),
            (items.remaining + items.in_progress).to_string(),
            blocked.unwrap_or_default(),
            iterations(line),
            spent.map(|spent| budget::cost(&budget::sum(&spent))).unwrap_or_default(),
            time(line.begun_at),
            time(*ended_at),
            clean_line(line.file.as_deref().unwrap_or_default()),
        ]
    }));
    table(&rows)
}

/// How many it has had, and in how many goes.
fn iterations(run: &RunLine) -> String {
    match (run.iterations, run.resumes) {
        (Some(n), Some(resumes @ 1..)) => format!("{n} (resumed {resumes}x)"),
        (Some(n), Some(0) | None) => n.to_string(),
        (None, _) => String::new(),
    }
}

/// The items of a run, the most urgent first.
pub(super) fn items(items: &[Item]) -> String {
    let mut rows = vec![heading(["status", "", "id", "after", "by", "item"])];
    rows.extend(items.iter().map(|item| {
        vec![
            item.status.to_string(),
            format!("P{}", item.priority),
            item.id.clone(),
            item.depends_on.join(" "),
            item.holder.clone().unwrap_or_default(),
            cut(&clean_line(&item.content), TEXT_COLUMNS),
        ]
    }));
    table(&rows)
}

/// One item, whole.
pub(super) fn item(item: &Item) -> String {
    let mut head = format!("{}  {}, P{}", item.id, item.status, item.priority);
    let after = item.depends_on.join(", ");
    let holder = item.holder.as_deref().unwrap_or_default();
    for (what, who) in [("after", after.as_str()), ("held by", holder)] {
        if !who.is_empty() {
            head = format!("{head}, {what} {who}");
        }
    }
    head = format!("{head}, of iteration {}", item.iteration);
    format!("{head}\n{}", clean(&item.content).trim_end())
}

/// The notes of a run, oldest first.
pub(super) fn notes(notes: &[Note]) -> String {
    let mut rows = vec![heading(["id", "type", "iteration", "by", "note"])];
    rows.extend(notes.iter().map(|note| {
        vec![
            note.id.clone(),
            note.kind.to_string(),
            note.iteration.to_string(),
            note.by.clone(),
            cut(&clean_line(&note.content), TEXT_COLUMNS),
        ]
    }));
    table(&rows)
}

/// One note, whole.
pub(super) fn note(note: &Note) -> String {
    let head = format!("{}  {}, by {}", note.id, note.kind, note.by);
    format!("{head}\n{}", clean(&note.content).trim_end())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn item_of(item: serde_json::Value) -> Item {
        serde_json::from_value(item).unwrap()
    }

    fn run_of(run: serde_json::Value) -> ListedRun {
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn items_and_notes_stand_below_each_other() {
        let one = item_of(json!({
            "id": "TAS-4", "content": "write\n  the \u{1b}[31mmanual", "status": "in_progress", "priority": 1,
            "depends_on": ["TAS-1", "TAS-12"], "holder": "worker-2", "iteration": 0,
        }));
        let two = item_of(
            json!({"id": "TAS-12", "content": "日本語 too", "status": "remaining", "priority": 2, "depends_on": []}),
        );
        expect![[r#"
            status           id      after         by        item
            in_progress  P1  TAS-4   TAS-1 TAS-12  worker-2  write the manual
            remaining    P2  TAS-12                          日本語 too"#]]
        .assert_eq(&items(&[one.clone(), two]));
        expect![[r#"
            TAS-4  in_progress, P1, after TAS-1, TAS-12, held by worker-2, of iteration 0
            write
              the manual"#]]
        .assert_eq(&item(&one));
        let tip = json!({"id": "NOT-1", "type": "tip", "content": "a\nb", "iteration": 3, "by": "worker-2"});
        let tip: Note = serde_json::from_value(tip).unwrap();
        expect![[r#"
            id     type  iteration  by        note
            NOT-1  tip   3          worker-2  a b"#]]
        .assert_eq(&notes(std::slice::from_ref(&tip)));
        expect![[r#"
            NOT-1  tip, by worker-2
            a
            b"#]]
        .assert_eq(&note(&tip));
    }

    #[test]
    fn runs_have_a_heading_and_their_cost() {
        let one = run_of(json!({
            "name": "SPEC", "phase": "working", "items": {"completed": 2, "cancelled": 1, "remaining": 3, "blocked": 1},
            "iterations": 4, "resumes": 2, "spent": {"microdollars": 1_500_000, "n_priced": 3}, "file": "/p/SPEC.md",
        }));
        let two = run_of(json!({"name": "default", "phase": "open", "items": {"remaining": 1}}));
        expect![[r#"
            name     phase    done  open  blocked  iterations      cost   begun  ended  spec
            SPEC     working  2     3     1        4 (resumed 2x)  $1.50                /p/SPEC.md
            default  open     0     1"#]]
        .assert_eq(&runs(&[one, two]));
    }
}
