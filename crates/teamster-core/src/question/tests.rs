use expect_test::expect;

use super::*;
use crate::agent::tests::{a_team, id};
use crate::testing::{Given, check};
use crate::token::{self, NewToken};
use crate::{Caller, Command as Any};

pub(crate) fn ask(agent: &str, title: &str) -> Any {
    let choice = |word: &str, label: &str| Choice { word: word.into(), label: label.into() };
    Any::Question(Command::Ask(NewQuestion {
        agent: id(agent),
        incarnation: 1,
        title: title.into(),
        payload: r#"{"command":"cargo test"}"#.into(),
        choices: vec![choice("allow", "Allow once"), choice("deny", "Deny")],
        default: "deny".into(),
        deadline: Timestamp(1_000_000),
    }))
}

fn answer(which: &str, word: &str) -> Any {
    Any::Question(Command::Answer { which: which.into(), word: word.into(), note: None })
}

/// `coder-2` waits for an answer, and a person called `eve` is there to give one.
fn a_question() -> Vec<(&'static str, Any)> {
    let eve = NewToken { kind: Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    let create = Any::Token(token::Command::Create { new: eve, replace: false });
    [vec![("hub", create)], a_team(), vec![("hub", ask("coder-2", "run cargo test"))]].concat()
}

#[test]
fn a_person_answers_and_the_first_answer_holds() {
    check(
        a_question(),
        "eve",
        answer("q-1", "Allow"),
        expect![[
            r#"{"question":{"settled":{"id":1,"agent":"coder-2","how":{"answered":{"word":"allow","note":null}}}}}"#
        ]],
    );
    check(
        [a_question(), vec![("eve", answer("1", "deny"))]].concat(),
        "eve",
        answer("Q-1", "allow"),
        expect![[r#"refused: Q-1 was settled already: answered "deny" by eve"#]],
    );
    check(
        a_question(),
        "eve",
        answer("Q-1", "perhaps"),
        expect![[r#"refused: "perhaps" is no answer to Q-1; choose one of allow, deny"#]],
    );
    check(
        a_question(),
        "eve",
        answer("Q-7", "allow"),
        expect![[
            r#"refused: there is no question "Q-7"; `teamster questions` shows those that are open"#
        ]],
    );
}

#[test]
fn no_agent_answers() {
    for who in ["coder-2", "lead-1", "ann"] {
        check(
            a_question(),
            who,
            answer("Q-1", "allow"),
            expect!["refused: questions are answered by people; an agent cannot answer them"],
        );
    }
    check(
        a_question(),
        "coder-2",
        ask("coder-2", "more"),
        expect!["refused: only the hub itself asks for its agents"],
    );
}

#[test]
fn what_nobody_answers_in_time_has_the_default() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_question() {
        given.by(who, command);
    }
    let (at, command) = given.state.next_timer().unwrap();
    assert_eq!((at, &command), (Timestamp(1_000_000), &Any::Question(Command::Expire)));
    let cx = Context { caller: Caller::hub(), now: at, random: 1, quotas: Default::default() };
    let events = given.state.questions.decide(&Command::Expire, &cx).unwrap();
    let record =
        Record { at, by: PrincipalName::hub(), token: None, key: None, events: Vec::new() };
    events.iter().for_each(|event| given.state.questions.apply(event, &record));
    let question = given.state.questions.get(QuestionId(1)).unwrap();
    assert_eq!(question.answer(), Some(Some(&"deny".into())));
    assert_eq!((given.state.questions.n_open(), given.state.questions.next_deadline()), (0, None));
}

#[test]
fn questions_end_with_whoever_asked() {
    let interrupt = crate::agent::Command::Interrupt {
        id: id("coder-2"),
        incarnation: 1,
        why: "the hub ended".into(),
        blameless: false,
    };
    check(
        a_question(),
        "hub",
        Any::Agent(interrupt),
        expect![[r#"
            {"question":{"settled":{"id":1,"agent":"coder-2","how":"withdrawn"}}}
            {"token":{"ended":{"id":5,"principal":"coder-2","why":"replaced"}}}
            {"agent":{"interrupted":{"id":"coder-2","why":"the hub ended","blameless":false}}}"#]],
    );
}
