use expect_test::expect;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;

fn top() -> Top {
    let spent = |microdollars: u64| {
        json!({
            "input": 1, "output": 1, "cached_read": 0, "cached_write": 0, "microdollars": microdollars,
            "n_priced": 1, "n_unpriced": 0,
        })
    };
    let top = json!({
        "seq": 9,
        "agents": [
            {"id": "worker-3", "phase": "running", "program": "claude", "isolation": "namespaces", "turns": 1, "used": spent(1_230_000), "doing": "* cargo test\u{1b}[2J"},
            {"id": "coder-1", "phase": "queued", "program": "goose", "turns": 0, "used": {}, "parked_until": 5},
            {"id": "worker-2", "phase": "ended", "program": "claude", "isolation": "subreaper", "turns": 3, "used": spent(20_000), "status": "success", "doing": "日本語 is done"},
        ],
        "runs": [
            {"name": "SPEC", "phase": "working", "items": {"completed": 2, "remaining": 3, "in_progress": 1, "blocked": 1}, "workers": 2, "iterations": 3, "spent": spent(1_250_000), "queued_messages": 1},
            {"name": "old", "phase": "stopped", "why": "it was stopped", "items": {"completed": 1}},
        ],
        "teams": [{"name": "api", "path": "/p", "description": "", "color": null, "conversations": [
            {"id": "CONV-1", "from": "operator", "agent": "api-1", "status": "busy", "queued": 2, "messages": 7, "last_used_at": 1},
        ]}],
        "questions": [{"id": "Q-1", "agent": "worker-3", "title": "run rm -rf /", "choices": [{"word": "allow"}, {"word": "deny"}]}],
    });
    serde_json::from_value(top).expect("it is the workspace")
}

fn shown(columns: u16, rows: u16, first: &mut usize) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("it is memory");
    terminal
        .draw(|frame| draw(frame, &top(), "teamster answer", None, first))
        .expect("it is memory");
    terminal.backend().to_string()
}

#[test]
fn the_workspace_fits_a_small_terminal() {
    expect![[r#"
        "QUESTIONS 1                                                                     "
        "Q-1 worker-3 wants to: run rm -rf /                                             "
        "  `teamster answer Q-1 allow|deny`                                              "
        "                                                                                "
        "AGENTS 2 under way                                                              "
        "id        phase    program  isolation   turns  cost   does                      "
        "worker-3  running  claude   namespaces  1      $1.23  * cargo test              "
        "coder-1   parked   goose                0      -                                "
        "worker-2  success  claude   subreaper   3      $0.02  日本語 is done            " Hidden by multi-width symbols: [(55, " "), (57, " "), (59, " ")]
        "                                                                                "
        "RUNS 2                                                                          "
        "name  phase    done  open  iterations  cost                                     "
        "SPEC  working  2     4     3           -     2 workers, 1 blocked, 1 messages q…"
        "old   stopped  1     0                 -     it was stopped                     "
        "                                                                                "
        "TEAMS 1, 1 agents awake, 2 messages wait                                        "
        "api                  busy      from operator, 2 queued                          "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        "                                                                                "
        "q leaves                                                                        "
    "#]].assert_eq(&shown(80, 24, &mut 0));
}

#[test]
fn the_workspace_on_a_large_terminal() {
    expect![[r#"
        "QUESTIONS 1                                                                                                                                                                                             "
        "Q-1 worker-3 wants to: run rm -rf /                                                                                                                                                                     "
        "  `teamster answer Q-1 allow|deny`                                                                                                                                                                      "
        "                                                                                                                                                                                                        "
        "AGENTS 2 under way                                                                                                                                                                                      "
        "id        phase    program  isolation   turns  cost   does                                                                                                                                              "
        "worker-3  running  claude   namespaces  1      $1.23  * cargo test                                                                                                                                      "
        "coder-1   parked   goose                0      -                                                                                                                                                        "
        "worker-2  success  claude   subreaper   3      $0.02  日本語 is done                                                                                                                                    " Hidden by multi-width symbols: [(55, " "), (57, " "), (59, " ")]
        "                                                                                                                                                                                                        "
        "RUNS 2                                                                                                                                                                                                  "
        "name  phase    done  open  iterations  cost                                                                                                                                                             "
        "SPEC  working  2     4     3           -     2 workers, 1 blocked, 1 messages queued                                                                                                                    "
        "old   stopped  1     0                 -     it was stopped                                                                                                                                             "
        "                                                                                                                                                                                                        "
        "TEAMS 1, 1 agents awake, 2 messages wait                                                                                                                                                                "
        "api                  busy      from operator, 2 queued                                                                                                                                                  "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "                                                                                                                                                                                                        "
        "q leaves                                                                                                                                                                                                "
    "#]].assert_eq(&shown(200, 50, &mut 0));
}

#[test]
fn every_size_can_be_drawn() {
    for columns in [1, 10, 80, 300] {
        for rows in 1..30 {
            let mut first = 99;
            shown(columns, rows, &mut first);
            assert!(first <= 18, "{first}");
        }
    }
}
