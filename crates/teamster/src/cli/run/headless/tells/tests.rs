use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn run(workers: u32) -> Run {
    let run = json!({
        "name": "SPEC", "phase": "working", "under_way": true, "workers": workers, "begun_at": 0,
        "item_list": [{"id": "TAS-4", "content": "four\nand more", "status": "remaining"}],
    });
    serde_json::from_value(run).unwrap()
}

fn line(by: &str, summary: &str, run: Option<&str>, event: &Value) -> Line {
    Line {
        seq: 1,
        commit: 1,
        at: 1_000,
        by: by.to_owned(),
        summary: summary.to_owned(),
        run: run.map(str::to_owned),
        event: event.clone(),
    }
}

fn of_run(by: &str, summary: &str, what: &Value) -> Line {
    line(by, summary, Some("SPEC"), &json!({"run": {"run": "SPEC", "what": what}}))
}

fn begun(iteration: u32, worker: u32, agent: &str) -> Line {
    let begun = json!({
        "iteration": iteration, "worker": worker, "agent": agent, "plans": false, "base": null, "hooks": "",
    });
    of_run("hub", "it begins", &json!({"iteration": {"begun": begun}}))
}

fn shown(told: &[Told]) -> String {
    let line = |told: &Told| match told.worker {
        Some(worker) => format!("[{}] {}", worker + 1, told.text),
        None => format!("[ ] {}", told.text),
    };
    told.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(tells: &mut Tells, lines: &[Line], expected: &Expect) {
    let told: Vec<Told> = lines.iter().filter_map(|line| tells.event(line)).collect();
    expected.assert_eq(&shown(&told));
}

fn asked(agent: &str) -> Line {
    let asked = json!({
        "agent": agent, "incarnation": 1, "title": "run cargo test\u{1b}[2J", "payload": "cargo test",
        "choices": [{"word": "allow", "label": "yes"}, {"word": "deny", "label": "no"}],
        "default": "deny", "deadline": 60_000,
    });
    line(agent, "Q-1: asks", None, &json!({"question": {"asked": {"id": 1, "asked": asked}}}))
}

#[test]
fn what_is_told_says_whose_it_is_and_leaves_out_what_nobody_needs() {
    let mut tells = Tells::new("SPEC", "teamster answer", run(2));
    let claimed = json!({"item": {"claimed": {"id": 4}}});
    let updated = json!({"item": {"updated": {"id": 4, "status": "completed"}}});
    let ended = json!({"ended": {"iteration": 3, "end": {"commit": null, "failed": null, "is_idle": false, "item": null, "spent": teamster_core::spending::Spent::default()}}});
    check(
        &mut tells,
        &[
            of_run(
                "hub",
                "the next iteration is number 0",
                &json!({"iteration": {"numbered": {"next": 0}}}),
            ),
            begun(3, 1, "worker-7"),
            of_run("worker-7", "TAS-4 claimed", &claimed),
            of_run("worker-7", "TAS-4 now completed", &updated),
            of_run("ann", "TAS-4 now completed", &updated),
            of_run("ann", "TAS-4 claimed", &claimed),
            line(
                "ann",
                "TAS-4 claimed",
                Some("other"),
                &json!({"run": {"run": "other", "what": claimed}}),
            ),
            of_run("hub", "iteration 3 ended", &json!({"iteration": ended})),
            of_run("hub", "something\u{1b}[2J new", &json!({"unheard_of": 1})),
            line("hub", "something else", None, &json!({"unheard_of": 1})),
        ],
        &expect![[r#"
            [2] iteration 3 begins (worker 2, agent worker-7)
            [2] TAS-4 claimed by iteration 3: four and more
            [2] TAS-4 now completed
            [ ] TAS-4 now completed (by ann)
            [ ] TAS-4 claimed by ann: four and more
            [2] iteration 3 ended
            [ ] something new"#]],
    );
}

#[test]
fn agents_that_wait_and_ask_are_told_of_if_they_are_of_this_run() {
    let mut tells = Tells::new("SPEC", "teamster answer", run(1));
    let parked = json!({"parked": {"id": "worker-2", "account": "claude", "until": 60_000, "why": "5-hour limit"}});
    let admitted = json!({"admitted": {"id": "worker-2", "token": 7}});
    let settled = json!({"settled": {"id": 1, "agent": "worker-2", "how": {"answered": {"word": "allow", "note": null}}}});
    let agent = |event: &Value| line("hub", "an agent", None, &json!({"agent": event}));
    let mut lines = vec![
        begun(1, 0, "worker-2"),
        agent(&admitted),
        asked("worker-2"),
        asked("coder-9"),
        line(
            "operator",
            "Q-1 of worker-2: answered \"allow\"",
            None,
            &json!({"question": settled}),
        ),
        agent(&parked),
        agent(&admitted),
    ];
    let hour = clock(Timestamp(60_000));
    let expected = [
        "[1] iteration 1 begins (agent worker-2)".to_owned(),
        format!(
            "[1] ? Q-1: worker-2 wants to: run cargo test; answer with `teamster answer Q-1 allow|deny` until {hour}, else deny"
        ),
        "[1] Q-1 of worker-2: answered \"allow\" by operator".to_owned(),
        format!(
            "[1] worker-2 is parked until {hour}: claude accepts no requests for now: 5-hour limit"
        ),
        "[1] worker-2 starts".to_owned(),
    ];
    let told: Vec<Told> = lines.drain(..).filter_map(|line| tells.event(&line)).collect();
    assert_eq!(shown(&told), expected.join("\n"));
}

#[test]
fn what_an_agent_says_and_does_is_a_line_each() {
    let mut tells = Tells::new("SPEC", "teamster answer", run(1));
    tells.event(&begun(1, 0, "worker-2"));
    assert_eq!((tells.unread(), tells.unread()), (vec!["worker-2".to_owned()], vec![]));
    let mut said = |records: &[Value], is_end: bool| {
        let (agent, directory) = ("worker-2".to_owned(), "/project".to_owned());
        shown(&tells.said(&Said { agent, directory, records: records.to_vec(), is_end }))
    };
    let first = [
        json!({"type": "prompted", "text": "all of it"}),
        json!({"type": "thought", "text": "hm", "message": "a"}),
        json!({"type": "text", "text": "\n I be", "message": "b"}),
    ];
    expect![""].assert_eq(&said(&first, false));
    let second = [
        json!({"type": "text", "text": "gin.\u{1b}[2J\nThen more.", "message": "b"}),
        json!({"type": "tool_call", "id": "1", "title": "cargo test", "kind": "execute"}),
        json!({"type": "tool_call", "id": "2", "title": "ls", "kind": "execute"}),
        json!({"type": "tool_result", "id": "2", "ok": true, "output": {"text": format!("a\nb{}", "c".repeat(500))}}),
        json!({"type": "permission_asked", "call": {"title": "rm"}}),
    ];
    expect![[r#"
        [1]   I begin.
        [1]   ✓ ls → a bccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc…"#]]
    .assert_eq(&said(&second, false));
    let last = [
        json!({"type": "tool_result", "id": "1", "ok": false, "output": {"text": "1 failed"}}),
        json!({"type": "tool_call", "id": "3", "title": "wait", "kind": "other"}),
        json!({"type": "text", "text": "I give up.", "message": "c"}),
    ];
    expect![[r#"
        [1]   ✗ cargo test → 1 failed
        [1]   * wait
        [1]   I give up."#]]
    .assert_eq(&said(&last, true));
    assert!(!tells.is_read("worker-2"));
}

#[test]
fn silence_is_explained() {
    let mut tells = Tells::new("SPEC", "teamster answer", run(3));
    for (n, agent) in ["worker-1", "worker-2", "worker-3"].into_iter().enumerate() {
        tells.event(&begun(n as u32, n as u32, agent));
    }
    tells.event(&asked("worker-2"));
    let call = json!({"type": "tool_call", "id": "1", "title": "cargo test", "kind": "execute"});
    let (agent, directory) = ("worker-1".to_owned(), String::new());
    tells.said(&Said { agent, directory, records: vec![call], is_end: false });
    let mut run = run(3);
    let open = json!([
        {"number": 0, "worker": 0, "agent": "worker-1", "agent_phase": "running"},
        {"number": 1, "worker": 1, "agent": "worker-2", "agent_phase": "running"},
        {"number": 2, "worker": 2, "agent": "worker-3", "agent_phase": "running", "item": "TAS-4"},
        {"number": 3, "worker": 3, "agent": "worker-4", "agent_phase": "queued"},
        {"number": 4, "worker": 4, "agent": "worker-5", "agent_phase": "ended"},
    ]);
    run.open = serde_json::from_value(open).unwrap();
    tells.stands(run.clone());
    expect![[r#"
        [1] (nothing for 60 s: worker-1 waits for cargo test)
        [2] (nothing for 60 s: worker-2 waits for an answer: `teamster answer Q-1 allow|deny`)
        [3] (nothing for 60 s: worker-3 works on TAS-4)
        [4] (nothing for 60 s: worker-4 is queued)
        [5] (nothing for 60 s: what iteration 4 did is checked and taken over)"#]]
    .assert_eq(&shown(&tells.quiet(Timestamp(1_000), Timestamp(61_000))));
    run.open.clear();
    run.line.phase = RunPhase::Paused;
    tells.stands(run);
    expect!["[ ] (nothing for 3 min 20 s: it is paused; `teamster steer SPEC go-on` ends that)"]
        .assert_eq(&shown(&tells.quiet(Timestamp(0), Timestamp(200_000))));
}

#[test]
fn an_agent_that_does_not_start_is_told_of_once() {
    let mut tells = Tells::new("SPEC", "teamster answer", run(1));
    assert_eq!(tells.queued_since(), None);
    tells.event(&begun(1, 0, "worker-2"));
    assert_eq!(tells.queued_since(), Some(Timestamp(1_000)));
    let agents = json!([{"id": "coder-1"}, {"id": "worker-2", "phase": "queued", "waits_for": "the pool is full"}]);
    let agents: Vec<Agent> = serde_json::from_value(agents).unwrap();
    expect!["[1] worker-2 is queued: the pool is full"]
        .assert_eq(&shown(&tells.queued(&agents, Timestamp(4_000))));
    assert_eq!((tells.queued_since(), tells.queued(&agents, Timestamp(5_000))), (None, vec![]));
}
