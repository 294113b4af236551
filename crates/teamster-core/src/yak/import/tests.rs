use expect_test::{Expect, expect};

use super::*;
use crate::testing::{Given, new_token};
use crate::token::{self, Kind as CallerKind, NewToken};
use crate::yak::{Command, NewYak};
use crate::{Command as AnyCommand, Event as AnyEvent};

const DAY: i64 = 86_400_000;

/// A hub on which `ann` and `bob` are agents and `olga` is an operator.
fn given() -> Given {
    let mut given = Given::ann_and_bob();
    let new = NewToken { kind: CallerKind::OPERATOR, ..new_token("olga", 3) };
    given.by("hub", AnyCommand::Token(token::Command::Create { new, replace: false }));
    given
}

fn yak(id: &str, title: &str) -> Imported {
    Imported {
        id: id.into(),
        content: Some(Content {
            title: title.into(),
            kind: Kind::Task,
            priority: 2,
            description: "because".into(),
            status: Status::Hairy,
            labels: Vec::new(),
            commit: None,
        }),
        depends_on: Some(Vec::new()),
        created_at: Some(Timestamp(DAY)),
        updated_at: Some(Timestamp(2 * DAY)),
    }
}

fn on(yak: Imported, on: &[&str]) -> Imported {
    Imported { depends_on: Some(on.iter().map(|on| (*on).to_owned()).collect()), ..yak }
}

fn with(mut yak: Imported, change: impl FnOnce(&mut Content)) -> Imported {
    if let Some(content) = &mut yak.content {
        change(content);
    }
    yak
}

fn import(yaks: &[Imported]) -> Import {
    Import { yaks: yaks.to_vec(), prefix: None, only_new: false }
}

/// Imports, and makes sure that the same again changes nothing and finds the same problems.
fn take_in(given: &mut Given, import: Import) -> (Vec<String>, Vec<String>) {
    let cx = Context {
        caller: given.caller("olga"),
        now: Timestamp(9),
        random: 1,
        quotas: Default::default(),
    };
    let events = given.by("olga", AnyCommand::Yak(Command::Import(import.clone())));
    let lines = events.iter().map(|event| match event {
        AnyEvent::Yak(event) => serde_json::to_string(event).unwrap(),
        other => panic!("{other:?}"),
    });
    let again = given.state.yaks.import(&import, &cx);
    assert_eq!(again.events, [], "the same again changes nothing");
    let problems = again.problems.iter();
    let problems = problems.map(|problem| {
        let Problem { index, field, refusal } = problem;
        format!("{index} {field}: {refusal}")
    });
    let outcome = (lines.collect(), problems.collect());
    let snapshot = given.state.to_snapshot();
    assert_eq!(crate::State::from_snapshot(&snapshot).as_ref(), Some(&given.state));
    given.compacted();
    outcome
}

fn check(given: &mut Given, import: Import, expect: Expect) {
    let (events, problems) = take_in(given, import);
    let nothing = events.is_empty().then(|| "nothing".to_owned());
    let problems = problems.into_iter().map(|problem| format!("problem: {problem}"));
    let lines: Vec<String> = nothing.into_iter().chain(events).chain(problems).collect();
    expect.assert_eq(&lines.join("\n"));
}

#[test]
fn a_yak_is_taken_in_with_its_id_its_status_and_its_times() {
    let mut given = given();
    let shorn = with(yak("old-1f", "a"), |content| {
        content.status = Status::Shorn;
        content.commit = Some("1a2b3c4".into());
        content.labels = vec!["ux".into(), "cli".into(), "ux".into()];
    });
    check(
        &mut given,
        import(&[on(yak("old-2e", "b"), &["old-1f"]), shorn]),
        expect![[r#"
            {"created":{"id":"old-2e","title":"b","kind":"task","priority":2,"description":"because"}}
            {"created":{"id":"old-1f","title":"a","kind":"task","priority":2,"description":"because"}}
            {"moved":{"id":"old-1f","to":"shorn","commit":"1a2b3c4"}}
            {"labelled":{"id":"old-1f","labels":["cli","ux"]}}
            {"dependency_added":{"id":"old-2e","on":"old-1f"}}
            {"updated":{"id":"old-2e","created_at":86400000,"updated_at":172800000}}
            {"updated":{"id":"old-1f","created_at":86400000,"updated_at":172800000}}"#]],
    );
    let yak = given.state.yaks.find("old-1f").unwrap();
    assert_eq!((yak.created_at, yak.updated_at), (Timestamp(DAY), Timestamp(2 * DAY)));
    assert_eq!(yak.created_by.as_str(), "olga");
}

#[test]
fn what_differs_is_updated_and_nothing_else() {
    let mut given = given();
    take_in(&mut given, import(&[yak("a-1", "a"), yak("a-2", "b")]));
    // Files know times to the second.
    let mut same = yak("a-1", "a");
    same.updated_at = Some(Timestamp(2 * DAY + 999));
    let mut other = with(yak("a-2", "B"), |content| content.status = Status::Shaving);
    other.updated_at = Some(Timestamp(3 * DAY));
    check(
        &mut given,
        import(&[same, on(other, &["a-1"])]),
        expect![[r#"
            {"moved":{"id":"a-2","to":"shaving"}}
            {"dependency_added":{"id":"a-2","on":"a-1"}}
            {"updated":{"id":"a-2","title":"B","updated_at":259200000}}"#]],
    );
    // Who has no times means none.
    let timeless = Imported { created_at: None, updated_at: None, ..yak("a-1", "a") };
    check(&mut given, import(&[timeless]), expect!["nothing"]);
    let mut only_new = import(&[yak("a-2", "again"), yak("a-3", "c")]);
    only_new.only_new = true;
    check(
        &mut given,
        only_new,
        expect![[r#"
            {"created":{"id":"a-3","title":"c","kind":"task","priority":2,"description":"because"}}
            {"updated":{"id":"a-3","created_at":86400000,"updated_at":172800000}}"#]],
    );
}

#[test]
fn what_cannot_be_taken_in_does_not_keep_the_rest_out() {
    let mut given = given();
    let bad = [
        yak("../../etc/passwd", "a path"),
        yak("A-1", "capitals"),
        yak("a-1.0", "no child's number"),
        yak("a-1.4294967296", "a large number"),
        yak(".a", "hidden"),
        yak("", "nothing"),
        yak(&"x".repeat(200), "long"),
        yak("a-1.1.1.1.1.1.1.1.1.1", "deep"),
        yak("b-1", &"t".repeat(301)),
        with(yak("b-2", "loud"), |content| content.priority = 9),
        with(yak("b-3", "control"), |content| content.description = "\u{1b}[2J".into()),
        with(yak("b-4", "labels"), |content| {
            content.labels = (0..101).map(|n| n.to_string()).collect();
        }),
        Imported { updated_at: Some(Timestamp(i64::MAX)), ..yak("b-5", "late") },
        Imported { content: None, ..yak("b-6", "") },
        yak("good-1", "good"),
        yak("good-1", "twice"),
        with(yak("good-2", "no description"), |content| content.description.clear()),
    ];
    check(
        &mut given,
        import(&bad),
        expect![[r#"
            {"created":{"id":"good-1","title":"good","kind":"task","priority":2,"description":"because"}}
            {"created":{"id":"good-2","title":"no description","kind":"task","priority":2,"description":""}}
            {"updated":{"id":"good-1","created_at":86400000,"updated_at":172800000}}
            {"updated":{"id":"good-2","created_at":86400000,"updated_at":172800000}}
            problem: 0 id: "../../etc/passwd" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 1 id: "A-1" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 2 id: "a-1.0" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 3 id: "a-1.4294967296" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 4 id: ".a" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 5 id: "" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 6 id: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 7 id: "a-1.1.1.1.1.1.1.1.1.1" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
            problem: 8 title: title is 301 bytes long; the limit is 300, so put long text into a file and name it
            problem: 9 priority: invalid priority: 9 (must be 1, 2 or 3)
            problem: 10 description: description contains a control character (\u{1b}); only line breaks and tabs are allowed
            problem: 11 labels: there are more than 100 labels
            problem: 12 updated: times are of the years 1970 to 9999
            problem: 13 id: yak b-6 not found; list_yaks shows the ids
            problem: 15 id: good-1 is given twice; keep one"#]],
    );
}

#[test]
fn dependencies_are_as_given_but_for_circles_and_what_is_not_there() {
    let mut given = given();
    let yaks = [
        on(yak("a-1", "a"), &["a-2", "nowhere-1", "../x"]),
        on(yak("a-2", "b"), &["a-3"]),
        on(yak("a-3", "c"), &["a-1", "a-3"]),
    ];
    let (_, problems) = take_in(&mut given, import(&yaks));
    expect![[r#"
        0 depends_on: a-1 depends on nowhere-1, which is not in the backlog; that dependency is left out
        0 depends_on: a-1 depends on ../x, which is not in the backlog; that dependency is left out
        2 depends_on: a-3 cannot depend on a-1: a-1 depends on a-3 already, directly or through others
        2 depends_on: a yak cannot depend on itself"#]]
    .assert_eq(&problems.join("\n"));
    // The other way round: what goes is gone before what comes.
    check(
        &mut given,
        import(&[on(yak("a-3", "c"), &["a-2"]), on(yak("a-2", "b"), &["a-1"]), yak("a-1", "a")]),
        expect![[r#"
            {"dependency_removed":{"id":"a-2","on":"a-3"}}
            {"dependency_removed":{"id":"a-1","on":"a-2"}}
            {"dependency_added":{"id":"a-3","on":"a-2"}}
            {"dependency_added":{"id":"a-2","on":"a-1"}}
            {"updated":{"id":"a-3","updated_at":172800000}}
            {"updated":{"id":"a-2","updated_at":172800000}}
            {"updated":{"id":"a-1","updated_at":172800000}}"#]],
    );
    let links = Imported { content: None, ..on(yak("a-3", ""), &["a-1", "a-2"]) };
    check(
        &mut given,
        import(&[links]),
        expect![[r#"
            {"dependency_added":{"id":"a-3","on":"a-1"}}
            {"updated":{"id":"a-3","updated_at":172800000}}"#]],
    );
}

#[test]
fn a_child_can_come_before_its_parent_and_new_ones_are_counted_on() {
    let mut given = given();
    take_in(&mut given, import(&[yak("a-1.999999999", "last"), yak("a-1.2.7", "far below")]));
    take_in(&mut given, import(&[yak("a-1", "parent"), yak("a-1.10", "x"), yak("a-10", "y")]));
    let yaks = &given.state.yaks;
    let children: Vec<String> =
        yaks.children(yaks.find("a-1").unwrap()).map(|yak| yak.id.to_string()).collect();
    assert_eq!(children, ["a-1.10", "a-1.999999999"]);
    let created = given.by(
        "ann",
        AnyCommand::Yak(Command::Create(NewYak {
            title: "new".into(),
            kind: Kind::Bug,
            priority: Priority::IMPORTANT,
            description: "d".into(),
            parent: Some("a-1".into()),
        })),
    );
    assert!(
        matches!(&created[0], AnyEvent::Yak(Event::Created { id, .. }) if &*id.0 == "a-1.1000000000"),
        "{created:?}"
    );
}

#[test]
fn an_empty_backlog_takes_over_the_prefix() {
    let mut given = given();
    let prefixed = |yaks: &[Imported]| Import { prefix: Some("My Yaks".into()), ..import(yaks) };
    check(&mut given, prefixed(&[]), expect![[r#"{"prefix_set":{"prefix":"my-yaks"}}"#]]);
    take_in(&mut given, import(&[yak("a-1", "a")]));
    let other = Import { prefix: Some("other".into()), ..import(&[]) };
    check(&mut given, other, expect!["nothing"]);
}

#[test]
fn only_operators_import_and_not_too_much_at_once() {
    let mut given = given();
    let refused = |given: &mut Given, who: &str, import: Import| {
        given.decide(who, AnyCommand::Yak(Command::Import(import))).unwrap_err().to_string()
    };
    expect!["only an operator may import yaks"].assert_eq(&refused(
        &mut given,
        "ann",
        import(&[yak("a-1", "a")]),
    ));
    let many: Vec<_> = (0..=IMPORT_MAX).map(|n| yak(&format!("a-{n}"), "a")).collect();
    expect!["that is too much for one import; give at most 1000 yaks, or fewer large ones"]
        .assert_eq(&refused(&mut given, "olga", import(&many)));
    let large = |n| {
        with(yak(&format!("a-{n}"), "a"), |content| {
            content.description = "d".repeat(text::TEXT_BYTES_MAX);
        })
    };
    let large: Vec<_> = (0..500).map(large).collect();
    expect!["that is too much for one import; give at most 1000 yaks, or fewer large ones"]
        .assert_eq(&refused(&mut given, "olga", import(&large)));
}
