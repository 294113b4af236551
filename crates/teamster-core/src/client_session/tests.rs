use expect_test::expect;

use super::*;
use crate::Command as AnyCommand;
use crate::testing::{Given, check};
use crate::token;

fn open(id: &str) -> AnyCommand {
    AnyCommand::ClientSession(Command::Open {
        id: id.into(),
        path: "/mcp".into(),
        introduction: "{}".into(),
    })
}

fn close(id: &str) -> AnyCommand {
    AnyCommand::ClientSession(Command::Close { id: id.into() })
}

#[test]
fn a_session_is_closed_by_its_owner_only() {
    check(
        vec![],
        "ann",
        open("s1"),
        expect![[r#"{"client_session":{"opened":{"id":"s1","path":"/mcp","introduction":"{}"}}}"#]],
    );
    check(
        vec![("ann", open("s1"))],
        "bob",
        open("s1"),
        expect!["refused: the session id is taken; initialize again"],
    );
    check(vec![("ann", open("s1"))], "bob", close("s1"), expect!["nothing"]);
    check(
        vec![("ann", open("s1"))],
        "ann",
        close("s1"),
        expect![[r#"{"client_session":{"closed":{"id":"s1"}}}"#]],
    );
}

#[test]
fn sessions_are_bounded_and_end_with_their_principal() {
    let mut given = Given::ann_and_bob();
    for n in 0..=SESSIONS_MAX {
        given.by("ann", open(&format!("s{n}")));
    }
    given.by("bob", open("bobs"));
    let known = |given: &Given, id: &str| given.state.client_sessions.get(id).is_some();
    assert_eq!(
        [known(&given, "s0"), known(&given, "s1"), known(&given, "bobs")],
        [false, true, true]
    );
    given.by("hub", AnyCommand::Token(token::Command::Revoke { which: "ann".into() }));
    assert_eq!([known(&given, "s1"), known(&given, "bobs")], [false, true]);
}
