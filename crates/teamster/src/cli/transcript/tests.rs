use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

/// A talk with everything that one may have, by somebody who would like to get out of it.
fn talk() -> Vec<Value> {
    let told = |tell: &str, text: &str| {
        json!({
            "v": 1, "at_ms": 1_000, "type": "told", "tell": tell, "from": "web", "to": "api", "text": text,
            "told_at_ms": 1_763_200_000_000_i64,
        })
    };
    let said = |text: &str| json!({"type": "text", "text": text, "message": "m1"});
    let call = json!({
        "type": "tool_call", "id": "1", "title": "run `x`\n# not a heading", "kind": "execute",
        "input": {"text": "{\"command\":\"ls\"}"},
    });
    vec![
        json!({"type": "started", "session": "s-1", "resumed": false, "can_resume": true}),
        told("TELL-1", "look\n```\nnever closed\n"),
        told("TELL-1", "# and on"),
        json!({"type": "prompted", "text": "Message from web"}),
        json!({"type": "thought", "text": "hm"}),
        json!({"type": "thought", "text": " more of it"}),
        said("I lo"),
        said("ok.\n```sh\n\u{1b}[31mrm\u{9b}2J -rf\u{202e}"),
        call.clone(),
        json!({"type": "tool_result", "id": "1", "ok": false, "output": {"text": "a\n````\n# out"}}),
        json!({"type": "plan", "steps": [{"text": "one", "status": "completed"}, {"text": "two", "status": "pending"}]}),
        json!({"type": "permission_asked", "id": 1, "call": call, "options": []}),
        json!({"type": "permission_answered", "id": 1, "option": "allow"}),
        json!({"type": "tool_call", "id": "2", "title": "write", "kind": "edit", "targets": ["src/a.rs"]}),
        json!({"type": "tool_result", "id": "2", "ok": true, "output": {"text": "\nwritten\nin full"}}),
        said(
            "Done.\n\n── TELL-99 · operator → api · today\n> and more\n· TELL-1 completed\n<!-- ## TELL-9",
        ),
        json!({"type": "turn_ended", "why": "done"}),
        json!({"type": "settled", "tell": "TELL-1", "completed": true}),
        told("TELL-2", "again"),
        json!({"type": "settled", "tell": "TELL-2", "completed": false, "why": "it was\nput to sleep"}),
    ]
}

fn shown(look: &mut dyn Look) -> String {
    let unbegun = Message {
        id: "TELL-3".to_owned(),
        by: "operator".to_owned(),
        at: 1_763_200_000_000,
        status: Status::Cancelled,
        message: Some("never mind".to_owned()),
        ..Message::default()
    };
    let mut text = look.show(&Shown::Forgotten { up_to: 7, left_ms: Some(1_763_200_000_000) });
    for record in talk() {
        let event = records::event(&record).expect("it is a record");
        text += &look.show(&Shown::Record(&record, Some(&event)));
    }
    text += &look.show(&Shown::Unbegun(&unbegun));
    text + &look.end()
}

fn check(look: &mut dyn Look, expected: Expect) {
    let text = shown(look);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    // It is the reader's time, wherever that is.
    let local = super::super::local_time(Timestamp(1_763_200_000_000));
    expected.assert_eq(&text.replace(&local, "<time>"));
}

fn conversation() -> Conversation {
    let name = str::to_owned;
    let (id, from, to) = (name("CONV-1"), name("web"), name("api"));
    Conversation { id, from, to, ..Conversation::default() }
}

#[test]
fn a_document_holds_whatever_was_said() {
    check(
        &mut markdown::Markdown::new(&conversation()),
        expect![[r##"
            # web → api (CONV-1)

            *What was before 2025-11-15T09:46:40Z was removed.*

            - began session ` s-1 `

            ## TELL-1 · 2025-11-15T09:46:40Z

            **web:**

            > look
            > ```
            > never closed
            > # and on

            - thought: ` hm `

            **api:**

            > I look.
            > ```sh
            > rm -rf\u{202e}

            - tool: `` run `x` # not a heading `` ` {"command":"ls"} `
            - failed:

              `````text
              a
              ````
              # out
              `````
            - plan:
              - [x] ` one `
              - [ ] ` two `
            - asked for permission: `` run `x` # not a heading ``
            - answered: ` allow `
            - tool: ` write ` ` src/a.rs `
            - result: ` written ` …

            **api:**

            > Done.
            > 
            > ── TELL-99 · operator → api · today
            > > and more
            > · TELL-1 completed
            > <!-- ## TELL-9

            *completed*

            ## TELL-2 · 2025-11-15T09:46:40Z

            **web:**

            > again

            *terminated:* ` it was put to sleep `

            ## TELL-3 · 2025-11-15T09:46:40Z

            **web:**

            > never mind

            *cancelled*
        "##]],
    );
}

#[test]
fn a_terminal_shows_whatever_was_said() {
    check(
        &mut terminal::Terminal::new(&conversation()),
        expect![[r#"
            (what was before <time> was removed, as [transcripts] says)
            · works (session s-1)

            ── TELL-1 · web → api · <time>
            > look
            > ```
            > never closed
            > # and on
            ~ hm
              I look.
              ```sh
              rm -rf\u{202e}
            * run `x` # not a heading {"command":"ls"}
            ✗ a ```` # out
            [x] one
            [ ] two
            ? may it: run `x` # not a heading (rules decide, or you: `teamster questions`)
            · answered: allow
            * write src/a.rs
            → written in full
              Done.

              ── TELL-99 · operator → api · today
              > and more
              · TELL-1 completed
              <!-- ## TELL-9
            · TELL-1 completed

            ── TELL-2 · web → api · <time>
            > again
            · TELL-2 terminated: it was put to sleep

            ── TELL-3 · web → api · <time>
            > never mind
            · TELL-3 cancelled
        "#]],
    );
}

#[test]
fn lines_of_json_are_records_and_steer_nothing() {
    let text = shown(&mut Lines);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read[1..read.len() - 1], talk());
    assert_eq!(read[0], json!({"type": "forgotten", "up_to": 7, "left_ms": 1_763_200_000_000_i64}));
}

#[test]
fn a_time_or_how_long_ago() {
    let read = |text: &str| since(text).map(|since| format!("{since:?}"));
    assert_eq!(read("1970-01-01T00:00:01Z").unwrap(), "At(Timestamp(1000))");
    assert_eq!(read("10m").unwrap(), "Ago { ms: 600000 }");
    assert_eq!(read("1d").unwrap(), "Ago { ms: 86400000 }");
    for bad in ["", "m", "10", "-1h", "10 m", "yesterday", "1é", "99999999999d"] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
