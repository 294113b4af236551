use expect_test::{Expect, expect};

use super::*;
use crate::agent::*;

/// As large as a record of the log may be.
const LOG_RECORD_BYTES_MAX: usize = 1 << 20;

fn text(text: &str) -> Event {
    Event::Text(Piece { text: text.to_owned(), message: None })
}

fn of(message: &str, text: &str) -> Event {
    Event::Text(Piece { text: text.to_owned(), message: Some(message.to_owned()) })
}

fn call(id: &str, input: &str) -> Event {
    Event::ToolCall(ToolCall {
        id: id.to_owned(),
        title: "read".to_owned(),
        name: None,
        kind: ToolKind::Read,
        input: Some(Clipped::new(input.to_owned(), PAYLOAD_BYTES_MAX)),
        targets: Vec::new(),
        shown: Shown::default(),
    })
}

fn stored(record: &Record) -> String {
    String::from_utf8(record.encode().unwrap()).unwrap()
}

fn check(events: &[(u64, Event)], expected: Expect) {
    let mut transcriber = Transcriber::new(1_000, |_| 0);
    let mut records = Vec::new();
    for (at_ms, event) in events {
        records.extend(transcriber.take(*at_ms, event.clone()));
    }
    let mut lines: Vec<String> = records.iter().map(stored).collect();
    if let Some(due_ms) = transcriber.due_ms() {
        lines.push(format!("due at {due_ms}:"));
    }
    lines.extend(transcriber.flush().iter().map(stored));
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn text_is_one_record_until_something_else_happens() {
    check(
        &[
            (1, text("one ")),
            (2, text("two")),
            (3, Event::CancelAsked),
            (4, text("three")),
            (5, Event::Thought(Piece { text: "hm".to_owned(), message: None })),
        ],
        expect![[r#"
            {"v":1,"at_ms":1,"type":"text","text":"one two"}
            {"v":1,"at_ms":3,"type":"cancel_asked"}
            {"v":1,"at_ms":4,"type":"text","text":"three"}
            due at 1005:
            {"v":1,"at_ms":5,"type":"thought","text":"hm"}"#]],
    );
}

#[test]
fn another_message_is_another_record() {
    check(
        &[(1, of("a", "one ")), (2, of("a", "two")), (3, of("b", "three"))],
        expect![[r#"
            {"v":1,"at_ms":1,"type":"text","text":"one two","message":"a"}
            due at 1003:
            {"v":1,"at_ms":3,"type":"text","text":"three","message":"b"}"#]],
    );
}

#[test]
fn text_waits_only_so_long_for_more() {
    check(
        &[(1, text("one ")), (1_000, text("two ")), (1_001, text("three ")), (1_002, text("four"))],
        expect![[r#"
            {"v":1,"at_ms":1,"type":"text","text":"one two three "}
            due at 2002:
            {"v":1,"at_ms":1002,"type":"text","text":"four"}"#]],
    );
}

#[test]
fn of_a_call_that_is_told_in_pieces_the_last_one_is_kept() {
    check(
        &[(1, call("a", "{}")), (2, call("a", "{\"path\":1}")), (3, call("b", "{}"))],
        expect![[r#"
            {"v":1,"at_ms":1,"type":"tool_call","id":"a","title":"read","kind":"read","input":{"text":"{\"path\":1}"}}
            due at 1003:
            {"v":1,"at_ms":3,"type":"tool_call","id":"b","title":"read","kind":"read","input":{"text":"{}"}}"#]],
    );
}

#[test]
fn long_text_becomes_records_that_the_log_takes() {
    let long = "\u{1}ü".repeat(RECORD_TEXT_BYTES_MAX);
    let told = Event::Told {
        tell: "TELL-1".into(),
        from: "web".into(),
        to: "api".into(),
        text: long.clone(),
        told_at_ms: 0,
        again: false,
    };
    for event in [text(&long), Event::Prompted { text: long.clone() }, told] {
        let mut transcriber = Transcriber::new(1_000, |_| 0);
        let mut records = transcriber.take(0, event);
        records.extend(transcriber.flush());
        let mut joined = String::new();
        for record in &records {
            assert!(record.encode().unwrap().len() < LOG_RECORD_BYTES_MAX);
            match &record.event {
                Event::Text(Piece { text, .. })
                | Event::Told { text, .. }
                | Event::Prompted { text } => joined += text,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(records.len(), 4);
        assert!(joined == long);
    }
}

#[test]
fn the_largest_of_every_kind_is_a_record_that_the_log_takes() {
    let worst = |n_bytes: usize| "\u{1}".repeat(n_bytes);
    let label = || worst(LABEL_BYTES_MAX);
    let payload = || Clipped { text: worst(PAYLOAD_BYTES_MAX), cut_bytes: 1 };
    let call = ToolCall {
        id: worst(ID_BYTES_MAX),
        title: label(),
        name: Some(label()),
        kind: ToolKind::Other,
        input: Some(payload()),
        targets: vec![label(); TARGETS_MAX],
        shown: Shown { texts: vec![worst(PAYLOAD_BYTES_MAX)], cut_bytes: 1 },
    };
    let option =
        PermissionOption { id: worst(ID_BYTES_MAX), name: label(), kind: PermissionKind::Other };
    let started = Started {
        session: worst(ID_BYTES_MAX),
        program: Some(Program { name: label(), version: label() }),
        model: Some(worst(ID_BYTES_MAX)),
        models: vec![worst(ID_BYTES_MAX); MODELS_MAX],
        ..Started::default()
    };
    let step = Step { text: label(), status: StepStatus::Pending };
    for event in [
        Event::Started(started),
        Event::PermissionAsked {
            id: PermissionId(1),
            call: call.clone(),
            options: vec![option; OPTIONS_MAX],
        },
        Event::ToolCall(call),
        Event::ToolResult { id: worst(ID_BYTES_MAX), ok: true, output: payload() },
        Event::Plan { steps: vec![step; STEPS_MAX] },
        Event::Trouble { message: worst(MESSAGE_BYTES_MAX) },
    ] {
        assert!(Record::new(0, event).encode().unwrap().len() < LOG_RECORD_BYTES_MAX);
    }
}

/// Every kind of record as it was first stored. They must be read forever: add lines, change none.
const STORED: &str = r#"
{"v":1,"at_ms":1,"type":"started","session":"s","resumed":false,"can_resume":true,"program":{"name":"goose","version":"1"},"model":"m","models":["m"]}
{"v":1,"at_ms":2,"type":"not_started","message":"no key"}
{"v":1,"at_ms":3,"type":"prompted","text":"hello"}
{"v":1,"at_ms":4,"type":"text","text":"hello","message":"m"}
{"v":1,"at_ms":5,"type":"thought","text":"hm"}
{"v":1,"at_ms":6,"type":"tool_call","id":"c","title":"Read","name":"read","kind":"read","input":{"text":"{}","cut_bytes":7},"targets":["a.rs:1"]}
{"v":1,"at_ms":7,"type":"tool_result","id":"c","ok":true,"output":{"text":"done"}}
{"v":1,"at_ms":8,"type":"plan","steps":[{"text":"read","status":"in_progress"}]}
{"v":1,"at_ms":9,"type":"usage","tokens":{"input":1,"output":2,"cached_read":3,"cached_write":4},"context":{"used":5,"size":6},"cost":{"micros":7,"currency":"USD"}}
{"v":1,"at_ms":10,"type":"permission_asked","id":1,"call":{"id":"c","title":"Read","kind":"other"},"options":[{"id":"y","name":"Yes","kind":"allow_once"}]}
{"v":1,"at_ms":11,"type":"permission_answered","id":1,"option":"y"}
{"v":1,"at_ms":12,"type":"cancel_asked"}
{"v":1,"at_ms":13,"type":"turn_ended","why":"done"}
{"v":1,"at_ms":14,"type":"turn_ended","why":"failed","message":"no"}
{"v":1,"at_ms":15,"type":"usage_limit","until_unix_s":1794706740,"message":"no more"}
{"v":1,"at_ms":16,"type":"trouble","message":"what?"}
{"v":1,"at_ms":17,"type":"exited","how":"its output ended"}
{"v":1,"at_ms":18,"type":"told","tell":"TELL-1","from":"web","to":"api","text":"hello","told_at_ms":17}
{"v":1,"at_ms":19,"type":"told","tell":"TELL-1","from":"web","to":"api","text":"hello","told_at_ms":17,"again":true}
{"v":1,"at_ms":20,"type":"settled","tell":"TELL-1","completed":true}
{"v":1,"at_ms":21,"type":"settled","tell":"TELL-1","completed":false,"why":"it was put to sleep"}
{"v":1,"at_ms":22,"type":"permission_asked","id":2,"call":{"id":"c","title":"ls","kind":"execute","shown":{"texts":["in /w"],"cut_bytes":3}},"options":[]}
"#;

#[test]
fn what_was_stored_is_read_as_it_was_meant() {
    for line in STORED.trim().lines() {
        let record = Record::decode(line.as_bytes()).unwrap();
        assert_eq!(stored(&record), line);
    }
}

#[test]
fn a_record_of_a_newer_program_is_refused_as_such() {
    let newer = Record::decode(br#"{"v":2,"at":"noon","hologram":[]}"#).unwrap_err();
    let expected = "the record is of version 2; this program reads up to 1";
    assert_eq!(newer.to_string(), expected);
    assert!(matches!(Record::decode(b"{}"), Err(Unreadable::Damaged(_))));
}

/// A word that has to stay in one record: a number sign and what follows it.
fn unfinished(text: &str) -> usize {
    text.rfind('#').map_or(0, |at| text.len() - at)
}

#[test]
fn what_has_to_stay_in_one_record_does() {
    let mut transcriber = Transcriber::new(1_000, unfinished);
    assert_eq!(transcriber.take(0, text("it is #12")), []);
    // It waits longer for its end, but not for ever.
    assert_eq!(transcriber.due_ms(), Some(2_000));
    assert_eq!(transcriber.take(1_500, text("34")), []);
    assert_eq!(transcriber.take(2_000, text("56")), [Record::new(0, text("it is #123456"))]);
    // A text that is too long is cut before it.
    let long = "a".repeat(RECORD_TEXT_BYTES_MAX - 2);
    let records = transcriber.take(3_000, text(&format!("{long}#1234")));
    assert_eq!(records, [Record::new(3_000, text(&long))]);
    assert_eq!(transcriber.flush(), Some(Record::new(3_000, text("#1234"))));
}
