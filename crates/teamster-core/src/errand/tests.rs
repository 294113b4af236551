use expect_test::expect;

use super::*;
use crate::testing::{Given, check};
use crate::{Command as AnyCommand, Event as AnyEvent, State, token};

fn place() -> Place {
    Place { set: None, run: RunName::default_run() }
}

fn texts(texts: &[(&str, &str)]) -> Texts {
    texts.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
}

fn new(key: &str) -> NewErrand {
    NewErrand {
        tool: "await".into(),
        place: place(),
        arguments: "{}".into(),
        key: Key::new(key, 1).unwrap(),
        awaited: Awaited::ById,
        can: Arc::new([]),
        given: Texts::new(),
    }
}

fn begin(key: &str) -> AnyCommand {
    AnyCommand::Errand(Command::Begin(new(key)))
}

fn ask(asks: &[(&str, &str)]) -> AnyCommand {
    AnyCommand::Errand(Command::Ask { id: ErrandId(1), asks: texts(asks) })
}

fn give(which: &str, answers: &[(&str, &str)]) -> AnyCommand {
    let answers = texts(answers);
    AnyCommand::Errand(Command::Give { which: which.into(), place: place(), answers })
}

fn cancel(which: &str) -> AnyCommand {
    AnyCommand::Errand(Command::Cancel { which: which.into(), place: place() })
}

fn end(outcome: Outcome) -> AnyCommand {
    AnyCommand::Errand(Command::End { id: ErrandId(1), outcome })
}

fn answered(answer: &str) -> AnyCommand {
    end(Outcome::Answered(answer.into()))
}

#[test]
fn a_call_that_goes_on_is_written_down_with_all_it_takes_to_call_again() {
    let new = NewErrand {
        place: Place { set: Some("session".into()), ..place() },
        can: Arc::new(["elicitation".into()]),
        given: texts(&[("name", "\"x\"")]),
        awaited: Awaited::ByRepeating,
        ..new("k")
    };
    check(
        vec![],
        "ann",
        AnyCommand::Errand(Command::Begin(new)),
        expect![[
            r#"{"errand":{"begun":{"id":1,"errand":{"tool":"await","place":{"set":"session","run":"default"},"arguments":"{}","key":{"key":"k","call":1},"awaited":"by_repeating","can":["elicitation"],"given":{"name":"\"x\""}}}}}"#
        ]],
    );
}

#[test]
fn the_same_key_is_the_same_errand() {
    check(vec![("ann", begin("k"))], "ann", begin("k"), expect!["nothing"]);
    let other = NewErrand { key: Key::new("k", 2).unwrap(), ..new("k") };
    check(
        vec![("ann", begin("k"))],
        "ann",
        AnyCommand::Errand(Command::Begin(other)),
        expect![[
            r#"refused: the key "k" was used for another call; use a new key for each new call"#
        ]],
    );
    // Another principal's key of the same name is another key.
    let mut given = Given::ann_and_bob();
    given.by("ann", begin("k"));
    assert_eq!(given.by("bob", begin("k")).len(), 1);
}

#[test]
fn another_s_errand_is_answered_like_one_that_never_was() {
    let other_place = Place { set: Some("yaks".into()), ..place() };
    let elsewhere =
        AnyCommand::Errand(Command::Cancel { which: "ERRAND-1".into(), place: other_place });
    for (who, command) in
        [("bob", cancel("ERRAND-1")), ("bob", give("ERRAND-1", &[("a", "1")])), ("ann", elsewhere)]
    {
        check(
            vec![("ann", begin("k")), ("hub", ask(&[("a", "{}")]))],
            who,
            command,
            expect![[
                r#"refused: no call of yours is known here as "ERRAND-1"; it may have been forgotten, so make the call again"#
            ]],
        );
    }
    check(
        vec![("ann", begin("k"))],
        "ann",
        cancel("ERRAND-2"),
        expect![[
            r#"refused: no call of yours is known here as "ERRAND-2"; it may have been forgotten, so make the call again"#
        ]],
    );
}

#[test]
fn questions_are_answered_one_by_one_and_strangers_ignored() {
    let history = || vec![("ann", begin("k")), ("hub", ask(&[("a", "{}"), ("b", "{}")]))];
    check(
        history(),
        "ann",
        give("ERRAND-1", &[("a", "1"), ("z", "9")]),
        expect![[r#"{"errand":{"given":{"id":1,"answers":{"a":"1"}}}}"#]],
    );
    check(history(), "ann", give("ERRAND-1", &[("z", "9")]), expect!["nothing"]);

    let mut given = Given::ann_and_bob();
    history().into_iter().for_each(|(who, command)| {
        given.by(who, command);
    });
    given.by("ann", give("ERRAND-1", &[("a", "1")]));
    let errand = given.state.errands.get(ErrandId(1)).unwrap().clone();
    assert_eq!((&errand.asked, &errand.given), (&texts(&[("b", "{}")]), &texts(&[("a", "1")])));
    assert!(errand.is_open() && !errand.is_ready());
    given.by("ann", give("ERRAND-1", &[("b", "2")]));
    assert!(given.state.errands.get(ErrandId(1)).unwrap().is_ready());
    check(
        vec![
            ("ann", begin("k")),
            ("hub", ask(&[("a", "{}")])),
            ("ann", give("errand-1", &[("a", "1")])),
        ],
        "hub",
        ask(&[("a", "{}")]),
        expect![[
            r#"refused: the tool asks again for "a", which was answered; this is a fault of the tool's"#
        ]],
    );
}

#[test]
fn only_the_hub_speaks_for_a_tool() {
    for command in [ask(&[("a", "{}")]), answered("{}")] {
        check(
            vec![("ann", begin("k"))],
            "ann",
            command,
            expect!["refused: only the hub itself asks and answers for a tool"],
        );
    }
}

#[test]
fn what_has_ended_stays_as_it_is() {
    check(
        vec![("ann", begin("k"))],
        "hub",
        answered("{}"),
        expect![[r#"{"errand":{"ended":{"id":1,"outcome":{"answered":"{}"}}}}"#]],
    );
    let ended = || vec![("ann", begin("k")), ("ann", cancel("ERRAND-1"))];
    check(ended(), "hub", answered("{}"), expect!["nothing"]);
    check(ended(), "ann", cancel("ERRAND-1"), expect!["nothing"]);
    check(ended(), "ann", give("ERRAND-1", &[("a", "1")]), expect!["nothing"]);
    check(ended(), "hub", ask(&[("a", "{}")]), expect!["nothing"]);
}

#[test]
fn a_repeated_call_finds_its_errand_until_the_result_was_handed_over() {
    let mut given = Given::ann_and_bob();
    let repeatable = NewErrand { awaited: Awaited::ByRepeating, ..new("k") };
    given.by("ann", AnyCommand::Errand(Command::Begin(repeatable)));
    let ann = PrincipalName::parse("ann").unwrap();
    let found = |state: &State| state.errands.repeated(&ann, &place(), 1).map(|errand| errand.id);
    assert_eq!(found(&given.state), Some(ErrandId(1)));
    let collect = || AnyCommand::Errand(Command::Collect { id: ErrandId(1) });
    assert_eq!(given.by("ann", collect()), [], "there is no result yet");
    given.by("hub", answered("{}"));
    assert_eq!(found(&given.state), Some(ErrandId(1)));
    assert_eq!(given.by("bob", collect()), []);
    assert_eq!(given.by("ann", collect()).len(), 1);
    assert_eq!(found(&given.state), None);
}

#[test]
fn the_end_of_a_token_ends_its_principal_s_errands() {
    let revoke = || AnyCommand::Token(token::Command::Revoke { which: "ann".into() });
    check(
        vec![("ann", begin("k")), ("bob", begin("k"))],
        "hub",
        revoke(),
        expect![[r#"
            {"errand":{"ended":{"id":1,"outcome":"cancelled"}}}
            {"token":{"ended":{"id":1,"principal":"ann","why":"revoked"}}}"#]],
    );
    let mut given = Given::ann_and_bob();
    given.by("ann", begin("k"));
    given.by("bob", begin("k"));
    given.by("hub", revoke());
    assert!(given.state.errands.get(ErrandId(1)).is_none(), "the name may get another holder");
    assert!(given.state.errands.get(ErrandId(2)).is_some());
    let replace =
        token::Command::Create { new: crate::testing::new_token("bob", 9), replace: true };
    given.by("hub", AnyCommand::Token(replace));
    assert!(given.state.errands.get(ErrandId(2)).unwrap().is_open());
}

#[test]
fn errands_are_forgotten_when_their_time_is_over() {
    let mut given = Given::ann_and_bob();
    given.by("ann", begin("k"));
    let begun_at = given.state.errands.get(ErrandId(1)).unwrap().begun_at;
    let (at, command) = given.state.next_timer().unwrap();
    assert_eq!((at.0 - begun_at.0, &command), (KEPT_MS, &AnyCommand::Errand(Command::Expire)));
    assert_eq!(given.by("hub", command.clone()), []);
    let cx =
        Context { caller: crate::Caller::hub(), now: at, random: 1, quotas: Default::default() };
    let crate::Decision::New(events) = given.state.decide(&command, None, &cx).unwrap() else {
        panic!("there is no key")
    };
    assert_eq!(events, [AnyEvent::Errand(Event::Expired { id: ErrandId(1) })]);
    given.state.apply(&Record { at, by: PrincipalName::hub(), token: None, key: None, events });
    assert_eq!(given.state.next_timer(), None);
    assert_eq!(given.state.errands.held.len(), 0);
    assert_eq!(given.state.errands.by_key.len(), 0);
}

#[test]
fn one_principal_s_errands_are_bounded() {
    let mut given = Given::ann_and_bob();
    for n in 0..OPEN_MAX {
        given.by("ann", begin(&format!("k{n}")));
    }
    let refused = given.decide("ann", begin("more")).unwrap_err().to_string();
    expect!["you have 64 calls under way; wait for some of them, or cancel them, first"]
        .assert_eq(&refused);
    assert!(given.decide("bob", begin("more")).is_ok());
    given.by("ann", cancel("ERRAND-1"));
    assert!(given.decide("ann", begin("more")).is_ok());

    let large = NewErrand { arguments: "x".repeat(GIVEN_BYTES_MAX + 1).into(), ..new("large") };
    let refused = given.decide("bob", AnyCommand::Errand(Command::Begin(large))).unwrap_err();
    expect!["the call has 262145 bytes of arguments and answers, which is more than the 262144 that are kept of a long call; put long text into a file and name it"]
        .assert_eq(&refused.to_string());
    let refused = given.decide("hub", answered(&"x".repeat(RESULT_BYTES_MAX + 1))).unwrap_err();
    expect![
        "the result has 262145 bytes, which is more than the 262144 that are kept of a long call"
    ]
    .assert_eq(&refused.to_string());
}

#[test]
fn results_that_are_kept_are_bounded_and_none_is_forgotten_early() {
    let mut given = Given::ann_and_bob();
    let result: Arc<str> = "x".repeat(RESULT_BYTES_MAX).into();
    let mut n_kept = 0;
    while given.decide("ann", begin(&format!("k{n_kept}"))).is_ok() {
        n_kept += 1;
        let outcome = Outcome::Answered(result.clone());
        given.by("hub", AnyCommand::Errand(Command::End { id: ErrandId(n_kept), outcome }));
    }
    assert_eq!(n_kept as usize, KEPT_BYTES_MAX / RESULT_BYTES_MAX);
    assert!(given.state.errands.get(ErrandId(1)).is_some());
    let refused = given.decide("ann", begin("more")).unwrap_err().to_string();
    expect![
        "too many results of your calls are kept; the oldest is forgotten 24 hours after its call"
    ]
    .assert_eq(&refused);
}
