//! How results are shown: the same tables on the terminal and in `docs/performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::goals::{GOALS, Goal};
use crate::results::Results;

/// With how many connections calls are shown; the plot has the others.
const CONNECTIONS_SHOWN: [usize; 3] = [1, 32, 256];

/// Who answers calls, and how the names of its results begin.
const ANSWERERS: [(&str, &str); 3] =
    [("bare axum echo", "axum_"), ("rmcp echo", "rmcp_"), ("**Teamster**", "")];

/// Results that are shown one by one, and what they are.
const ROWS: &[(&str, &str)] = &[
    ("alone_write_p50_us", "one write alone"),
    ("alone_sync_p50_us", "one fdatasync of as many bytes, appended on the same disk"),
    ("alone_rmcp_p50_us", "one call of the rmcp echo alone"),
    ("alone_axum_p50_us", "one call of the bare axum echo alone"),
    ("alone_write_less_rmcp_in_syncs", "the write less the rmcp echo, in fdatasyncs"),
    ("alone_write_less_axum_in_syncs", "the write less the bare axum echo, in fdatasyncs"),
    ("growth_read_1k_p50_us", "`task-next` with 1,000 live tasks"),
    ("growth_read_10k_vs_1k", "… with 10,000, against that"),
    ("growth_read_100k_vs_1k", "… with 100,000"),
    ("growth_read_history_vs_1k", "… with 100,000 and a million events of history"),
    ("growth_list_1k_p50_us", "a page of `task-list` with 1,000 live tasks"),
    ("growth_list_10k_vs_1k", "… with 10,000, against that"),
    ("growth_list_100k_vs_1k", "… with 100,000"),
    ("growth_list_history_vs_1k", "… with 100,000 and a million events of history"),
    ("growth_update_1k_p50_us", "`task-update`, a durable write, with 1,000 live tasks"),
    ("growth_update_10k_vs_1k", "… with 10,000, against that"),
    ("growth_update_100k_vs_1k", "… with 100,000"),
    ("growth_update_history_vs_1k", "… with 100,000 and a million events of history"),
    ("transcript_page_1k_p50_us", "a page of 200 records of a transcript of 1,000"),
    ("transcript_page_200k_vs_1k", "… of 200,000, against that"),
    ("transcript_page_1m_vs_1k", "… of a million"),
    ("draft_begin_ms", "from drafting a scripted agent to the first step of its turn"),
    ("draft_begin_by_hand_ms", "… the same program started by hand, with handshake and prompt"),
    ("draft_overhead_ms", "what the hub adds to that"),
    ("draft_overhead_launcher_ms", "… of it what holds its processes together"),
    ("draft_overhead_hub_ms", "… of it the hub: queue, token, log, transcript"),
    ("draft_begin_vs_by_hand", "drafted against by hand"),
    ("draft_end_by_hand_ms", "from that step to the end of the program, by hand"),
    ("draft_end_overhead_ms", "what the hub adds to that, until who waits knows the outcome"),
    ("tell_ms", "from telling a team's scripted agent something to its answer"),
    ("tell_by_hand_ms", "… the same turn by hand"),
    (
        "tell_overhead_ms",
        "what the hub adds to that: three synced commits, its transcript, two requests",
    ),
    ("iteration_hub_ms", "from the end of one iteration's agent to the start of the next one's"),
    ("iteration_commit_ms", "… with a commit, in a project of 1,000 files"),
    ("iteration_git_by_hand_ms", "`git status`, `add` and `commit` of the same by hand"),
    ("wake_p50_us", "from a write's answer to that of a call that waited for it"),
    ("wake_p99_us", "… at the 99th percentile"),
    ("wake_from_sending_p50_us", "from sending the write, with its sync"),
    ("start_empty_ms", "from the program's start to its first answer, without any data"),
    ("start_history_ms", "… with a million events and 100,000 live tasks"),
    ("append_sqlite_loop_us", "a command through the hub's loop, in one process"),
    ("append_sqlite_engine_us", "an append of the same body to SQLite alone"),
    ("append_sqlite_loop_vs_engine", "the one against the other"),
    ("append_memory_loop_us", "a command through the hub's loop, on the memory engine"),
    ("append_memory_engine_us", "an append of the same body to the memory engine alone"),
    ("idle_memory_mb", "memory of an idle hub"),
    ("loaded_memory_mb", "… after 20,000 tasks were added by 32 clients"),
    ("idle_cpu_percent", "processor time over 10 idle seconds"),
    ("parked_wait_kib", "each of 1,000 calls that wait, with its connection"),
    ("idle_agent_kib", "the hub's memory for each of 50 agents that sleep"),
    ("tools_list_bytes", "`tools/list` of a worker with the grant `full`"),
    ("binary_mb", "the program"),
];

/// Returns all tables, of what there is.
pub(crate) fn tables(results: &Results, machine: &str) -> String {
    let parts = [calls(results), rows(results), goals(results)];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    std::iter::once(format!("Measured {machine}\n")).chain(parts).collect::<Vec<_>>().join("\n")
}

fn calls(results: &Results) -> String {
    let mut table = String::new();
    for n in CONNECTIONS_SHOWN {
        for (call, called) in [("write", "durable write"), ("read", "read")] {
            for (era, during) in [("modern", "2026-07-28"), ("legacy", "2025-11-25")] {
                for (who, prefix) in ANSWERERS {
                    let name = format!("{prefix}{call}_{n}_{era}");
                    let Some(per_s) = results.get(&format!("{name}_per_s")) else { continue };
                    let of = |what: &str| results.get(&format!("{name}_{what}"));
                    let shown = |what: &str| of(what).map(number).unwrap_or_default();
                    let ratio = of("vs_rmcp").map(|ratio| format!("{ratio:.2}"));
                    let called = if prefix.is_empty() { called } else { "the same, from memory" };
                    let cells = [
                        n.to_string(),
                        format!("{who}, {called}"),
                        if prefix == "axum_" { "–".into() } else { during.into() },
                        number(per_s),
                        shown("p50_us"),
                        shown("p99_us"),
                        shown("cpu_us"),
                        ratio.unwrap_or_default(),
                    ];
                    line(&mut table, &cells);
                }
            }
        }
    }
    let heads = [
        "connections",
        "who, what",
        "era",
        "calls/s",
        "p50 µs",
        "p99 µs",
        "server CPU µs per call",
        "against rmcp",
    ];
    with_heads(&heads, table)
}

fn rows(results: &Results) -> String {
    let mut table = String::new();
    for (name, meaning) in ROWS {
        if let Some(value) = results.get(name) {
            line(&mut table, &[(*meaning).into(), with_unit(name, value), format!("`{name}`")]);
        }
    }
    with_heads(&["what", "measured", "name"], table)
}

fn goals(results: &Results) -> String {
    let mut table = String::new();
    for Goal { name, bound, goal, aim, .. } in GOALS {
        let Some(value) = results.get(name) else { continue };
        let aim = aim.map(|aim| format!(", aim {aim}")).unwrap_or_default();
        let met = if bound.holds(value, *goal) { "met" } else { "**missed**" };
        let goal = format!("{} {}{aim}", bound.sign(), with_unit(name, *goal));
        line(&mut table, &[format!("`{name}`"), with_unit(name, value), goal, met.into()]);
    }
    with_heads(&["goal for", "measured", "goal", ""], table)
}

/// Returns how each result has changed, where it was known before.
pub(crate) fn changes(results: &Results, before: &BTreeMap<String, f64>) -> String {
    let mut text = String::new();
    for (name, value) in results.iter() {
        let change = match before.get(name) {
            Some(before) if *before != 0.0 => format!("{:+.1} %", (value / before - 1.0) * 100.0),
            Some(_) | None => "new".into(),
        };
        let _ = writeln!(text, "{name:<40} {:>14} {change:>10}", with_unit(name, value));
    }
    text
}

const BEGIN: &str = "<!-- measured: written by the bench -->\n";
const END: &str = "<!-- end of what is measured -->\n";

/// Puts the tables in the place of those that a page has.
pub(crate) fn write_page(path: &Path, tables: &str) {
    let page = std::fs::read_to_string(path).expect("the page can be read");
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for tables");
    let (_, after) = rest.split_once(END).expect("the place has an end");
    let page = format!("{before}{BEGIN}\n{tables}\n{END}{after}");
    std::fs::write(path, page).expect("the page can be written");
}

fn with_heads(heads: &[&str], lines: String) -> String {
    if lines.is_empty() {
        return lines;
    }
    let mut table = String::new();
    line(&mut table, &heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
    line(&mut table, &vec!["---".to_owned(); heads.len()]);
    table + &lines
}

fn line(table: &mut String, cells: &[String]) {
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

/// A result's name ends with its unit; one without is a ratio.
fn with_unit(name: &str, value: f64) -> String {
    let units = [
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_mb", "MB"),
        ("_kib", "KiB"),
        ("_percent", "%"),
        ("_bytes", "bytes"),
        ("_per_s", "/s"),
        ("_in_syncs", "syncs"),
    ];
    match units.into_iter().find(|(suffix, _)| name.ends_with(suffix)) {
        Some((_, unit)) => format!("{} {unit}", number(value)),
        None => format!("{value:.2}×"),
    }
}

/// Shows as many digits as mean something, thousands apart.
fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let apart = |(at, digit): (usize, char)| {
        let comma = at > 0 && (digits.len() - at).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(apart).collect()
}
