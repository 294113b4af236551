//! Lists: the runs, and the items and notes of one.

use serde_json::Value;
use teamster_core::Timestamp;
use teamster_core::spending::Spent;

use crate::cli::screen::{clean, clean_line, cut, fill, width};
use crate::cli::{budget, local_time};

/// As much of a text as is in a line of a list; on a terminal less, if it is narrow.
const TEXT_COLUMNS: usize = 160;

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

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

fn time(at: &Value) -> String {
    // Seconds are for those who look at one of them.
    let at = at.as_i64().map(|at| local_time(Timestamp(at)));
    at.map(|at| at.chars().take(16).collect()).unwrap_or_default()
}

/// The runs, in the order in which the hub tells them.
pub(super) fn runs(runs: &[Value]) -> String {
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
        let count = |status: &str| run["items"][status].as_u64().unwrap_or_default();
        let blocked = Some(count("blocked")).filter(|n| *n > 0).map(|n| n.to_string());
        let spent = [&run["spent_now"], &run["spent"]].into_iter().find(|spent| !spent.is_null());
        let spent: Option<Spent> =
            spent.and_then(|spent| serde_json::from_value(spent.clone()).ok());
        vec![
            word(run, "name").to_owned(),
            word(run, "phase").to_owned(),
            count("completed").to_string(),
            (count("remaining") + count("in_progress")).to_string(),
            blocked.unwrap_or_default(),
            iterations(run),
            spent.map(|spent| budget::cost(&spent)).unwrap_or_default(),
            time(&run["begun_at"]),
            time(&run["ended_at"]),
            clean_line(word(run, "file")),
        ]
    }));
    table(&rows)
}

/// How many it has had, and in how many goes.
fn iterations(run: &Value) -> String {
    match (run["iterations"].as_u64(), run["resumes"].as_u64()) {
        (Some(n), Some(resumes @ 1..)) => format!("{n} (resumed {resumes}x)"),
        (Some(n), Some(0) | None) => n.to_string(),
        (None, _) => String::new(),
    }
}

/// The items of a run, the most urgent first.
pub(super) fn items(items: &[Value]) -> String {
    let mut rows = vec![heading(["status", "", "id", "after", "by", "item"])];
    rows.extend(items.iter().map(|item| {
        let after = item["depends_on"].as_array().into_iter().flatten().filter_map(Value::as_str);
        vec![
            word(item, "status").to_owned(),
            format!("P{}", item["priority"]),
            word(item, "id").to_owned(),
            after.collect::<Vec<_>>().join(" "),
            word(item, "holder").to_owned(),
            cut(&clean_line(word(item, "content")), TEXT_COLUMNS),
        ]
    }));
    table(&rows)
}

/// One item, whole.
pub(super) fn item(item: &Value) -> String {
    let after = item["depends_on"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let after = after.collect::<Vec<_>>().join(", ");
    let mut head = format!("{}  {}, P{}", word(item, "id"), word(item, "status"), item["priority"]);
    for (what, who) in [("after", after.as_str()), ("held by", word(item, "holder"))] {
        if !who.is_empty() {
            head = format!("{head}, {what} {who}");
        }
    }
    if let Some(iteration) = item["iteration"].as_u64() {
        head = format!("{head}, of iteration {iteration}");
    }
    format!("{head}\n{}", clean(word(item, "content")).trim_end())
}

/// The notes of a run, oldest first.
pub(super) fn notes(notes: &[Value]) -> String {
    let mut rows = vec![heading(["id", "type", "iteration", "by", "note"])];
    rows.extend(notes.iter().map(|note| {
        vec![
            word(note, "id").to_owned(),
            word(note, "type").to_owned(),
            note["iteration"].as_u64().map(|n| n.to_string()).unwrap_or_default(),
            word(note, "by").to_owned(),
            cut(&clean_line(word(note, "content")), TEXT_COLUMNS),
        ]
    }));
    table(&rows)
}

/// One note, whole.
pub(super) fn note(note: &Value) -> String {
    let head = format!("{}  {}, by {}", word(note, "id"), word(note, "type"), word(note, "by"));
    format!("{head}\n{}", clean(word(note, "content")).trim_end())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn items_and_notes_stand_below_each_other() {
        let one = json!({
            "id": "TAS-4", "content": "write\n  the \u{1b}[31mmanual", "status": "in_progress", "priority": 1,
            "depends_on": ["TAS-1", "TAS-12"], "holder": "worker-2", "iteration": 0,
        });
        let two = json!({"id": "TAS-12", "content": "日本語 too", "status": "remaining", "priority": 2, "depends_on": []});
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
        let one = json!({
            "name": "SPEC", "phase": "working", "items": {"completed": 2, "cancelled": 1, "remaining": 3, "blocked": 1},
            "iterations": 4, "resumes": 2, "spent": Spent { microdollars: 1_500_000, n_priced: 3, ..Spent::default() }, "file": "/p/SPEC.md",
        });
        let two = json!({"name": "default", "phase": "open", "items": {"remaining": 1}});
        expect![[r#"
            name     phase    done  open  blocked  iterations      cost   begun  ended  spec
            SPEC     working  2     3     1        4 (resumed 2x)  $1.50                /p/SPEC.md
            default  open     0     1"#]]
        .assert_eq(&runs(&[one, two]));
    }
}
