use std::fmt::Write as _;

use expect_test::{expect, expect_file};
use serde_json::Value;

use super::*;
use crate::record::{Body, Unreadable};
use crate::testing::Given;
use crate::{errand, item, iteration, note, run, yak};

fn add(content: &str) -> Command {
    let new = item::NewItem { content: content.into(), status: None, priority: None };
    Command::Run {
        run: RunName::default_run(),
        what: run::Command::Item(item::Command::Add(vec![new])),
    }
}

#[test]
fn the_same_key_gets_the_first_answer_and_another_call_is_refused() {
    let mut given = Given::ann_and_bob();
    let cx = |given: &Given, who| Context {
        caller: given.caller(who),
        now: Timestamp(5),
        random: 1,
        quotas: Default::default(),
    };
    let key = Key::new("k1", 42).unwrap();
    let Decision::New(events) =
        given.state.decide(&add("a"), Some(&key), &cx(&given, "ann")).unwrap()
    else {
        panic!("a new key is decided")
    };
    let caller = given.caller("ann");
    let record = Record {
        at: Timestamp(5),
        by: caller.principal,
        token: caller.token,
        key: Some(key.clone()),
        events,
    };
    given.state.apply(&record);

    let again = given.state.decide(&add("a"), Some(&key), &cx(&given, "ann")).unwrap();
    assert_eq!(again, Decision::Known(record.events.clone().into()));
    let restored = State::from_snapshot(&given.state.to_snapshot()).unwrap();
    assert_eq!(restored.decide(&add("a"), Some(&key), &cx(&given, "ann")).unwrap(), again);

    let other_call = Key::new("k1", 43).unwrap();
    let refused = given.state.decide(&add("b"), Some(&other_call), &cx(&given, "ann")).unwrap_err();
    expect![[r#"the key "k1" was used for another call; use a new key for each new call"#]]
        .assert_eq(&refused.to_string());
    // Another principal's key of the same name is another key.
    assert!(matches!(
        given.state.decide(&add("b"), Some(&other_call), &cx(&given, "bob")),
        Ok(Decision::New(_))
    ));
}

#[test]
fn keys_are_forgotten_beyond_the_window() {
    let mut given = Given::ann_and_bob();
    let caller = given.caller("ann");
    let cx = Context {
        caller: caller.clone(),
        now: Timestamp(5),
        random: 1,
        quotas: Default::default(),
    };
    for n in 0..=crate::key::KEYS_MAX {
        let key = Key::new(&format!("k{n}"), 1).unwrap();
        let Ok(Decision::New(events)) =
            given.state.decide(&add(&format!("item {n}")), Some(&key), &cx)
        else {
            panic!("key {n} is new")
        };
        let (by, token) = (caller.principal.clone(), caller.token);
        given.state.apply(&Record { at: cx.now, by, token, key: Some(key), events });
    }
    let recall = |n: usize| {
        given.state.decide(&add("new"), Some(&Key::new(&format!("k{n}"), 1).unwrap()), &cx)
    };
    assert!(matches!(recall(0), Ok(Decision::New(_))));
    assert!(matches!(recall(1), Ok(Decision::Known(_))));
    assert!(matches!(recall(crate::key::KEYS_MAX), Ok(Decision::Known(_))));
}

#[test]
fn the_key_of_an_open_errand_is_not_forgotten() {
    let mut given = Given::ann_and_bob();
    let caller = given.caller("ann");
    let cx = Context {
        caller: caller.clone(),
        now: Timestamp(5),
        random: 1,
        quotas: Default::default(),
    };
    given.by("ann", begin_errand("needed"));
    let keys = ["needed".to_owned(), "not".to_owned()].into_iter();
    for key in keys.chain((1..=crate::key::KEYS_MAX).map(|n| format!("k{n}"))) {
        let (by, token) = (caller.principal.clone(), caller.token);
        let events = vec![Event::Hub(crate::hub::Event::Started { version: "x".into() })];
        let key = Some(Key::new(&key, 1).unwrap());
        given.state.apply(&Record { at: cx.now, by, token, key, events });
    }
    let recall = |key: &str| given.state.decide(&add("new"), Some(&Key::new(key, 1).unwrap()), &cx);
    assert!(matches!(recall("needed"), Ok(Decision::Known(_))));
    assert!(matches!(recall("not"), Ok(Decision::New(_))));
    assert!(matches!(recall("k1"), Ok(Decision::New(_))));
    assert!(matches!(recall("k2"), Ok(Decision::Known(_))));
}

fn begin_errand(key: &str) -> Command {
    Command::Errand(errand::Command::Begin(errand::NewErrand {
        tool: "f".into(),
        place: errand::Place { set: None, run: RunName::default_run() },
        arguments: "{}".into(),
        key: Key::new(key, 1).unwrap(),
        awaited: errand::Awaited::ByRepeating,
        can: Arc::new(["h".into()]),
        given: errand::Texts::from([("i".into(), "j".into())]),
    }))
}

/// A bit of everything, so that a change of the snapshot's layout shows.
pub(crate) fn a_bit_of_everything() -> Given {
    let mut given = Given::ann_and_bob();
    let in_run = |what| Command::Run { run: RunName::default_run(), what };
    given.by("ann", add("a"));
    given.by("bob", in_run(run::Command::Item(item::Command::Claim)));
    let note = note::NewNote { content: "b".into(), kind: note::Kind::Stuck };
    given.by("bob", in_run(run::Command::Note(note::Command::Add(vec![note]))));
    given.by(
        "bob",
        in_run(run::Command::Iteration(iteration::Command::Summarise { text: "c".into() })),
    );
    given.by(
        "ann",
        Command::Yak(yak::Command::Create(yak::NewYak {
            title: "d".into(),
            kind: yak::Kind::Bug,
            priority: yak::Priority::IMPORTANT,
            description: "e".into(),
            parent: None,
        })),
    );
    given.by("bob", begin_errand("g"));
    given
}

#[test]
fn a_changed_snapshot_layout_needs_a_new_format_number() {
    let bytes = a_bit_of_everything().state.to_snapshot();
    let print = crate::text::fingerprint(bytes.iter().copied());
    // If this changes, raise SNAPSHOT_FORMAT: an old snapshot must be ignored, not misread.
    expect!["format 19: 349 bytes, 9bab806bd5c56798"]
        .assert_eq(&format!("format {SNAPSHOT_FORMAT}: {} bytes, {print:016x}", bytes.len()));
}

#[test]
fn logs_of_every_release_replay() {
    for (release, log) in [("0.1.0", include_str!("../../tests/golden/0.1.0.jsonl"))] {
        let mut state = State::default();
        for line in log.lines() {
            for record in Body::decode(line.as_bytes()).unwrap().records {
                state.apply(&record);
            }
        }
        let golden = format!("../../tests/golden/{release}.state");
        expect_file![golden].assert_debug_eq(&state);
    }
}

/// A later version may say more.
fn says_all_of(is: &Value, was: &Value) -> bool {
    match (is, was) {
        (Value::Object(is), Value::Object(was)) => was.iter().all(|(name, was)| {
            is.get(name).is_some_and(|is| says_all_of(is, was)) || was.is_null()
        }),
        (Value::Array(is), Value::Array(was)) => {
            is.len() == was.len() && is.iter().zip(was).all(|(is, was)| says_all_of(is, was))
        }
        (is, was) => is == was,
    }
}

/// What was stored is still read in whole, means the same, and can be applied. A line without anything in it begins
/// another log.
#[test]
fn logs_of_agents_teams_and_runs_replay() {
    let logs = include_str!("../../tests/golden/0.1.0-agents.jsonl");
    let mut shown = String::new();
    for log in logs.split("\n\n") {
        let mut state = State::default();
        for line in log.lines() {
            let body = Body::decode(line.as_bytes()).unwrap();
            let (was, is): (Value, Value) = (
                serde_json::from_str(line).unwrap(),
                serde_json::from_slice(&body.encode()).unwrap(),
            );
            assert!(says_all_of(&is, &was), "{was:#}\n{is:#}");
            for record in &body.records {
                state.apply(record);
                for event in &record.events {
                    writeln!(shown, "{}: {}", record.by, event.summary().text).unwrap();
                }
            }
        }
        writeln!(shown).unwrap();
    }
    expect_file!["../../tests/golden/0.1.0-agents.txt"].assert_eq(&shown);
}

#[test]
fn a_log_from_a_newer_version_is_refused() {
    let newer = Body::decode(br#"{"format":2,"first":1,"records":[{"whatever":1}]}"#).unwrap_err();
    assert!(matches!(newer, Unreadable::Newer(2)), "{newer}");
    let unknown = Body::decode(
        br#"{"format":1,"first":1,"records":[{"at":1,"by":"ann","events":[{"cow":{}}]}]}"#,
    );
    let sentence = unknown.unwrap_err().to_string();
    assert!(
        sentence.contains("unknown variant `cow`") && sentence.contains("newer version"),
        "{sentence}"
    );
}
