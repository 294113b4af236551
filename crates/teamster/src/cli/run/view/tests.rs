use expect_test::{Expect, expect};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};
use teamster_core::Timestamp;

use super::super::editor::Editor;
use super::*;
use crate::cli::records;
use teamster_agents::agent::{Event, Piece};
use teamster_api::runs::Run;

fn spent(microdollars: u64) -> Value {
    json!({
        "input": 41_000, "output": 4_200, "cached_read": 0, "cached_write": 0, "microdollars": microdollars,
        "n_priced": 2, "n_unpriced": 0,
    })
}

fn run() -> Value {
    let item = |id: &str, status: &str, priority: u64, content: &str| json!({"id": id, "status": status, "priority": priority, "content": content, "depends_on": []});
    let mut items = vec![
        item("TAS-4", "completed", 1, "four"),
        item("TAS-1", "in_progress", 2, "one, with words that go on and on beyond any side bar"),
        item("TAS-2", "remaining", 2, "二番目の項目 is wide"),
        item("TAS-3", "blocked", 3, "three\u{1b}[2J"),
        item("TAS-5", "cancelled", 4, "five"),
    ];
    items[2]["depends_on"] = json!(["TAS-1"]);
    json!({
        "name": "SPEC", "phase": "working", "under_way": true, "directory": "/home/ann/project", "workers": 2, "program": "claude", "model": "opus",
        "iteration": 3, "iterations": 1, "iterations_max": 9, "begun_at": 1_000, "spent": spent(120_000), "budget_microdollars": 5_000_000,
        "item_list": items,
        "notes": [
            {"id": "NOT-1", "type": "tip", "content": "remember the milk", "iteration": 0},
            {"id": "NOT-2", "type": "stuck", "content": "the tests need a terminal\nand time", "iteration": 1},
        ],
        "open": [
            {"number": 2, "worker": 0, "agent": "worker-3", "plans": false, "item": "TAS-1", "agent_phase": "running", "spent": spent(30_000)},
            {"number": 3, "worker": 1, "agent": "worker-4", "plans": false, "item": null, "agent_phase": "queued"},
        ],
        "ended": [
            {"number": 1, "worker": 0, "agent": "worker-2", "item": "TAS-4", "ended_at": 60_000, "commit": "0123456789abcdef", "summary": "did four\n\nand more"},
            {"number": 0, "worker": 0, "agent": "worker-1", "plans": true, "ended_at": 30_000, "failed": "its agent is gone"},
        ],
        "messages": [{"number": 1, "text": "mind the gap"}], "seq": 7,
    })
}

fn model_of(run: Value) -> Model {
    let run: Run = serde_json::from_value(run).expect("it is a run");
    let mut model = Model::new(run, Timestamp(3_725_000 + 1_000));
    let records = [
        json!({"type": "started", "session": "s", "resumed": false, "can_resume": true, "model": "a-model"}),
        json!({"type": "prompted", "text": "one\ntwo"}),
        json!({"type": "thought", "text": "First I look at what is there.\nThen I think about it for rather a long time.", "message": "a"}),
        json!({"type": "text", "text": "I begin with the first thing, which is 一 of several, and say so in a text that is longer than a line.", "message": "b"}),
        json!({"type": "tool_call", "id": "1", "title": "Edit", "kind": "edit", "input": {"text": "{\"file_path\":\"/home/ann/project/src/a.rs\",\"old_string\":\"a\",\"new_string\":\"b\\nc\"}"}}),
        json!({"type": "tool_result", "id": "1", "ok": true, "output": {"text": "ok"}}),
        json!({"type": "tool_call", "id": "2", "title": "cargo test", "kind": "execute"}),
    ];
    model.take_records("worker-3", &records.map(|record| event(&record)), false);
    model
}

fn event(record: &Value) -> Event {
    records::event(record).expect("it is a record")
}

fn shown(model: &mut Model, columns: u16, rows: u16) -> String {
    model.size = (columns, rows);
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("it is memory");
    terminal.draw(|frame| draw(frame, model)).expect("it is memory");
    terminal.backend().to_string()
}

fn check(model: &mut Model, columns: u16, rows: u16, wanted: &Expect) {
    wanted.assert_eq(&shown(model, columns, rows));
}

#[test]
fn a_run_under_way_fits_a_small_terminal() {
    check(
        &mut model_of(run()),
        80,
        24,
        &expect![[r#"
            "SPEC · working · iteration 3 (1 of 9) · 1:02:05    $0.15 of $5.00 · 90.4k tokens"
            "▸1 #2 works · TAS-1 one, with words that go on and…│─ Items: 2 open, 1 done, … ─"
            " 2 #3 is queued · chooses an item                  │▸~ P2 TAS-1 one, with words…"
            "━ worker 1 of 2 · iteration 2 · worker-3 · TAS-1… ━│ · P2 TAS-2 二番目の項目 is…" Hidden by multi-width symbols: [(65, " "), (67, " "), (69, " "), (71, " "), (73, " "), (75, " ")]
            "── iteration 2 · worker-3 · TAS-1 one, with words …│ ! P3 TAS-3 three           "
            "· started, a-model                                 │ ✓ P1 TAS-4 four            "
            "> was given its task (2 lines)                     │ - P4 TAS-5 five            "
            "~ First I look at what is there. Then I think abou…│─ Iterations: 2 ────────────"
            "I begin with the first thing, which is 一 of       │ 1 TAS-4 0123456 did four   " Hidden by multi-width symbols: [(40, " ")]
            "several, and say so in a text that is longer than a│ 0 plan - ✗ its agent is go…"
            "line.                                              │─ Notes: 2 ─────────────────"
            "✓ src/a.rs +2 -1 → ok                              │ stuck: the tests need a te…"
            "* cargo test                                       │ tip: remember the milk     "
            "                                                   │─ Messages queued: 1 ───────"
            "                                                   │ > mind the gap             "
            "                                                   │                            "
            "                                                   │                            "
            "                                                   │                            "
            "                                                   │                            "
            "                                                   │                            "
            "                                                   │                            "
            "                                                   │                            "
            "                                                                                "
            "p:pause m:message s:stop S:now a:add e:edit c:cancel n:note ?:help q:leave      "
        "#]],
    );
}

#[test]
fn a_run_under_way_uses_a_large_terminal() {
    let mut model = model_of(run());
    model.unfolded = true;
    check(
        &mut model,
        200,
        50,
        &expect![[r#"
            "SPEC · working · iteration 3 (1 of 9) · 1:02:05                                                                                                            claude · opus · $0.15 of $5.00 · 90.4k tokens"
            "▸1 #2 works · TAS-1 one, with words that go on and on beyond any side bar                                                      │─ Items: 2 open, 1 done, 1 blocked, 1 cancelled ────────────────────────"
            " 2 #3 is queued · chooses an item                                                                                              │▸~ P2 TAS-1 one, with words that go on and on beyond any side bar       "
            "━ worker 1 of 2 · iteration 2 · worker-3 · TAS-1 one, with words that go on and on beyond any side bar ━━━━━━━━━━━━━━━━━━━━━━━━│ · P2 TAS-2 二番目の項目 is wide (after TAS-1)                          " Hidden by multi-width symbols: [(141, " "), (143, " "), (145, " "), (147, " "), (149, " "), (151, " ")]
            "── iteration 2 · worker-3 · TAS-1 one, with words that go on and on beyond any side bar                                        │ ! P3 TAS-3 three                                                       "
            "· started, a-model                                                                                                             │ ✓ P1 TAS-4 four                                                        "
            "> was given its task (2 lines)                                                                                                 │ - P4 TAS-5 five                                                        "
            "~ First I look at what is there.                                                                                               │─ Iterations: 2 ────────────────────────────────────────────────────────"
            "~ Then I think about it for rather a long time.                                                                                │ 1 TAS-4 0123456 did four                                               "
            "I begin with the first thing, which is 一 of several, and say so in a text that is longer than a line.                         │ 0 plan - ✗ its agent is gone                                           " Hidden by multi-width symbols: [(40, " ")]
            "✓ src/a.rs +2 -1 → ok                                                                                                          │─ Notes: 2 ─────────────────────────────────────────────────────────────"
            "* cargo test                                                                                                                   │ stuck: the tests need a terminal and time                              "
            "                                                                                                                               │ tip: remember the milk                                                 "
            "                                                                                                                               │─ Messages queued: 1 ───────────────────────────────────────────────────"
            "                                                                                                                               │ > mind the gap                                                         "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                               │                                                                        "
            "                                                                                                                                                                                                        "
            "p:pause m:message s:stop S:now a:add e:edit c:cancel n:note Tab:pane l:thinking w 1-9:worker ?:help q:leave                                                                                             "
        "#]],
    );
}

#[test]
fn where_it_is_narrow_the_side_bar_is_below() {
    check(
        &mut model_of(run()),
        40,
        16,
        &expect![[r#"
            "SPEC · working · iterati… $0.15 of $5.00"
            "▸1 #2 works · TAS-1 one, with words tha…"
            " 2 #3 is queued · chooses an item       "
            "━ worker 1 of 2 · iteration 2 · worke… ━"
            "I begin with the first thing, which is  "
            "一 of several, and say so in a text that" Hidden by multi-width symbols: [(1, " ")]
            "is longer than a line.                  "
            "✓ src/a.rs +2 -1 → ok                   "
            "* cargo test                            "
            "─ Items: 2 open, 1 done, 1 blocked, 1… ─"
            "▸~ P2 TAS-1 one, with words that go on …"
            " · P2 TAS-2 二番目の項目 is wide (after…" Hidden by multi-width symbols: [(13, " "), (15, " "), (17, " "), (19, " "), (21, " "), (23, " ")]
            " ! P3 TAS-3 three                       "
            " ✓ P1 TAS-4 four                        "
            "                                        "
            "p:pause m:message s:stop ?:help q:leave "
        "#]],
    );
}

#[test]
fn a_run_that_is_over_says_why() {
    let mut over = run();
    for (name, value) in [
        ("phase", json!("failed")),
        ("why", json!("it failed: its agent is gone")),
        ("under_way", json!(false)),
        ("open", json!([])),
        ("messages", Value::Null),
    ] {
        over[name] = value;
    }
    let mut model = model_of(over);
    model.focus = Pane::Items;
    check(
        &mut model,
        80,
        16,
        &expect![[r#"
            "SPEC · over: it failed: its agent is gone · itera… $0.12 of $5.00 · 45.2k tokens"
            "─ worker 1 of 2 · idle ────────────────────────────│━ Items: 2 open, 1 done, … ━"
            "── iteration 1 · worker-2 · TAS-4 four             │▸~ P2 TAS-1 one, with words…"
            "                                                   │ · P2 TAS-2 二番目の項目 is…" Hidden by multi-width symbols: [(65, " "), (67, " "), (69, " "), (71, " "), (73, " "), (75, " ")]
            "                                                   │ ! P3 TAS-3 three           "
            "                                                   │ ✓ P1 TAS-4 four            "
            "                                                   │ - P4 TAS-5 five            "
            "                                                   │─ Iterations: 2 ────────────"
            "                                                   │ 1 TAS-4 0123456 did four   "
            "                                                   │ 0 plan - ✗ its agent is go…"
            "                                                   │─ Notes: 2 ─────────────────"
            "                                                   │ stuck: the tests need a te…"
            "                                                   │ tip: remember the milk     "
            "                                                   │                            "
            "                                                                                "
            "r:go on m:message a:add e:edit c:cancel n:note Tab:pane ?:help q:leave          "
        "#]],
    );
}

#[test]
fn what_is_written_and_read_is_shown() {
    let mut model = model_of(run());
    model.mode = Mode::Writing(Writes::Message, Editor::with("mind the 日本語"));
    let lines = shown(&mut model, 80, 24);
    let last: Vec<&str> = lines.lines().rev().take(2).collect();
    expect![[r#"
        "for the next iteration: mind the 日本語                                         " Hidden by multi-width symbols: [(34, " "), (36, " "), (38, " ")]
        "Enter:send Esc:cancel                                                           ""#]].assert_eq(&format!("{}\n{}", last[1], last[0]));
    model.focus = Pane::Notes;
    let (title, text) = model.whole().expect("there is a note");
    model.mode = Mode::Reading { title, text, first: 0 };
    check(
        &mut model,
        80,
        10,
        &expect![[r#"
        "SPEC · working · iteration 3 (1 of 9) · 1:02:05    $0.15 of $5.00 · 90.4k tokens"
        "┌ NOT-2 · stuck · iteration 1 ─────────────────────────────────────────────────┐"
        "│ the tests need a terminal                                                    │"
        "│ and time                                                                     │"
        "└──────────────────────────────────────────────────────────────────────────────┘"
        "line.                                              │ 1 TAS-4 0123456 did four   "
        "✓ src/a.rs +2 -1 → ok                              │ 0 plan - ✗ its agent is go…"
        "* cargo test                                       │━ Notes: 2 ━━━━━━━━━━━━━━━━━"
        "                                                                                "
        "↑↓:scroll Esc:close                                                             "
    "#]],
    );
    model.mode = Mode::Help;
    check(
        &mut model,
        80,
        24,
        &expect![[r#"
            "SPEC · working · iteration 3 (1 of 9) · 1:02:05    $0.15 of $5.00 · 90.4k tokens"
            "┌ Keys ────────────────────────────────────────────────────────────────────────┐"
            "│ p        pause after what is under way; go on                                │"
            "│ m        write a message for the next iteration                              │"
            "│ s        stop after what is under way                                        │"
            "│ S        stop now: its agents are ended                                      │"
            "│ r        go on with a run that is over                                       │"
            "│                                                                              │"
            "│ a        add an item                                                         │"
            "│ e        edit the item that is marked                                        │"
            "│ c        cancel it; once more takes that back                                │"
            "│ n        add a note                                                          │"
            "│                                                                              │"
            "│ Tab ←→   another pane                                                        │"
            "│ ↑↓ j k   scroll, choose; PgUp PgDn Home End                                  │"
            "│ Enter    read what is chosen, whole                                          │"
            "│ 1-9 w    the worker whose stream is shown; the next one                      │"
            "│ l        show thinking whole, or one line of it                              │"
            "│                                                                              │"
            "│ q        leave; the run goes on                                              │"
            "│ Ctrl-C   stop now, and leave                                                 │"
            "└──────────────────────────────────────────────────────────────────────────────┘"
            "                                                                                "
            "any:close                                                                       "
        "#]],
    );
}

/// Nothing may be drawn outside of the terminal, whatever its size.
#[test]
fn every_size_can_be_drawn() {
    let mut model = model_of(run());
    for mode in 0..4 {
        for columns in [1, 2, 3, 10, 29, 65, 66, 67, 80, 300] {
            for rows in 1..30 {
                model.mode = match mode {
                    0 => Mode::Normal,
                    1 => Mode::Help,
                    2 => Mode::Writing(Writes::Note, Editor::with("日本語")),
                    _ => Mode::Reading {
                        title: "title".into(),
                        text: "a text ".repeat(50),
                        first: 2,
                    },
                };
                let text = shown(&mut model, columns, rows);
                assert_eq!(text.lines().count(), usize::from(rows));
                scrolled(&model, -3);
            }
        }
    }
}

#[test]
fn scrolling_back_stays_where_it_is_while_more_comes() {
    let mut model = model_of(run());
    shown(&mut model, 80, 24);
    let more = |model: &mut Model, from: usize| {
        let text = |n: usize| {
            Event::Text(Piece { text: format!("line {n}"), message: Some(n.to_string()) })
        };
        let records: Vec<Event> = (from..from + 100).map(text).collect();
        model.take_records("worker-3", &records, false);
    };
    more(&mut model, 0);
    model.top = scrolled(&model, -10);
    let before = shown(&mut model, 80, 24);
    assert!(before.contains("line 72 ") && before.contains("line 89 "), "{before}");
    more(&mut model, 100);
    assert_eq!(shown(&mut model, 80, 24), before);
    model.top = scrolled(&model, 200);
    assert!(model.top.is_none());
    assert!(shown(&mut model, 80, 24).contains("line 199 "));
    model.top = scrolled(&model, isize::MIN);
    assert!(shown(&mut model, 80, 24).contains("── iteration 2 · worker-3"));
}

/// An agent is shown to its end before the next one of its worker, and none in between is left out.
#[test]
fn iterations_are_shown_one_after_the_other() {
    let mut model = model_of(run());
    assert_eq!(model.wants(), Some("worker-3"));
    let mut later = run();
    later["open"] = json!([{"number": 6, "worker": 0, "agent": "worker-7"}]);
    later["ended"] = json!([
        {"number": 5, "worker": 0, "agent": "worker-6"}, {"number": 4, "worker": 1, "agent": "worker-5"},
        {"number": 2, "worker": 0, "agent": "worker-3"},
    ]);
    model.take_run(serde_json::from_value(later).expect("it is a run"));
    assert_eq!(model.wants(), Some("worker-3"));
    for agent in ["worker-6", "worker-7"] {
        let now = model.wants().expect("somebody's is read").to_owned();
        model.take_records(&now, &[], true);
        assert_eq!(model.wants(), Some(agent));
    }
    model.take_records("worker-7", &[], true);
    assert_eq!(model.wants(), None);
    model.choose_worker(1);
    assert_eq!(model.wants(), Some("worker-5"));
    model.choose_worker(8);
    assert_eq!(model.worker, 1);
}

#[test]
fn a_hub_that_is_gone_is_told_and_what_is_written_stays() {
    let mut model = model_of(run());
    model.is_gone = true;
    let lines = |model: &mut Model| {
        let shown = shown(model, 80, 24);
        let lines: Vec<&str> = shown.lines().collect();
        format!("{}\n{}\n{}", lines[0], lines[22], lines[23])
    };
    expect![[r#"
        "SPEC · the hub is gone; trying again · iteration … $0.15 of $5.00 · 90.4k tokens"
        "`teamster up -d` starts the hub                                                 "
        "p:pause m:message s:stop S:now a:add e:edit c:cancel n:note ?:help q:leave      ""#]]
    .assert_eq(&lines(&mut model));
    let written = || Some((Writes::Message, "mind the gap".to_owned()));
    model.take_done(Err("not sent: the hub is gone".to_owned()), written());
    expect![[r#"
        "SPEC · the hub is gone; trying again · iteration … $0.15 of $5.00 · 90.4k tokens"
        "for the next iteration: mind the gap                                            "
        "Enter:send Esc:cancel  not sent: the hub is gone                                ""#]]
    .assert_eq(&lines(&mut model));
    // Who writes something else by then is not disturbed, and what was sent is not sent again.
    model.mode = Mode::Writing(Writes::Note, Editor::with("a note"));
    model.take_done(Err("no".to_owned()), written());
    assert!(matches!(&model.mode, Mode::Writing(Writes::Note, _)));
    model.mode = Mode::Normal;
    model.take_done(Ok("sent".to_owned()), written());
    assert!(matches!(model.mode, Mode::Normal));
}

/// With more workers than rows, the one whose stream is shown is among those that are.
#[test]
fn a_worker_that_waits_says_why() {
    let mut waits = run();
    waits["workers"] = json!(12);
    waits["waiting"] = (2..12)
        .map(|worker| json!({"worker": worker, "why": "waits: the run is paused"}))
        .collect();
    let mut model = model_of(waits);
    model.choose_worker(11);
    let shown = shown(&mut model, 80, 24);
    assert!(shown.contains("▸12 waits: the run is paused"), "{shown}");
    assert!(shown.contains("━ worker 12 of 12 · waits: the run is paused"), "{shown}");
    assert!(!shown.contains("works · TAS-1"), "{shown}");
    model.choose_worker(0);
    let shown = self::shown(&mut model, 80, 24);
    assert!(shown.contains("▸1 #2 works · TAS-1") && shown.contains(" 3 waits:"), "{shown}");
}

#[test]
fn warnings_are_in_every_stream_once_and_whole() {
    let warn = |numbers: &[u32]| {
        let mut run = run();
        let one = |n: &u32| json!({"number": n, "says": format!("the hook {n} failed with exit code 1, {}", "so it is said".repeat(4)), "at": 0});
        run["warnings"] = numbers.iter().map(one).collect();
        run["open"][1]["held_up"] = json!("waits: the pool is full");
        run
    };
    let mut model = model_of(warn(&[4]));
    model.take_run(serde_json::from_value(warn(&[4, 5])).expect("it is a run"));
    let is_shown = |model: &mut Model| {
        let shown = shown(model, 80, 24);
        for n in [4, 5] {
            assert_eq!(shown.matches(&format!("! the hook {n} failed")).count(), 1, "{shown}");
        }
    };
    is_shown(&mut model);
    model.choose_worker(1);
    is_shown(&mut model);
    let shown = shown(&mut model, 200, 50);
    assert!(shown.contains("waits: the pool is full"), "{shown}");
}
