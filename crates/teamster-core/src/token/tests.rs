use expect_test::expect;

use super::*;
use crate::Command as AnyCommand;
use crate::item::{self, Status};
use crate::testing::{Given, add, check, item, new_token, set};

#[test]
fn a_token_that_ended_decides_nothing() {
    let mut given = Given::ann_and_bob();
    let bob = given.caller("bob");
    given.by("hub", AnyCommand::Token(Command::Revoke { which: "TOK-2".into() }));
    let cx =
        Context { caller: bob, now: crate::Timestamp(9), random: 1, quotas: Default::default() };
    let refused = given.state.decide(&add(&["a"]), None, &cx).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this token has ended; ask the operator for a new one (`teamster token create`)"
    );
}

#[test]
fn tokens_are_made_by_operators_and_expire_by_themselves() {
    let create =
        |name: &str| AnyCommand::Token(Command::Create { new: new_token(name, 9), replace: false });
    check(
        vec![],
        "ann",
        create("eve"),
        expect![
            "refused: only an operator may create or revoke tokens; ask the person who runs the hub"
        ],
    );
    check(
        vec![],
        "hub",
        create("bob"),
        expect![
            "refused: bob has a live token already (TOK-2); choose another `name`, or `replace` to end the old one"
        ],
    );
    check(
        vec![],
        "hub",
        create("hub"),
        expect!["refused: the name hub belongs to the hub or its operator; choose another `name`"],
    );
    let short = NewToken { expires_at: Some(crate::Timestamp(4_000)), ..new_token("eve", 9) };
    let short = || AnyCommand::Token(Command::Create { new: short.clone(), replace: false });
    check(
        vec![("hub", short())],
        "hub",
        AnyCommand::Token(Command::Expire),
        expect![[r#"{"token":{"ended":{"id":3,"principal":"eve","why":"expired"}}}"#]],
    );
    check(vec![], "hub", AnyCommand::Token(Command::Expire), expect!["nothing"]);
}

#[test]
fn what_a_holder_had_in_progress_returns_when_its_token_ends() {
    check(
        vec![
            ("ann", add(&["a", "b", "c"])),
            ("bob", item(item::Command::Claim)),
            ("bob", item(item::Command::Claim)),
            ("bob", set("TAS-1", Status::Completed)),
        ],
        "hub",
        AnyCommand::Token(Command::Revoke { which: "bob".into() }),
        expect![[r#"
            {"run":{"run":"default","what":{"item":{"released":{"id":2}}}}}
            {"token":{"ended":{"id":2,"principal":"bob","why":"revoked"}}}"#]],
    );
}

#[test]
fn the_default_agents_name_is_given_by_the_hub_alone() {
    let eve = NewToken { kind: Kind::OPERATOR, ..new_token("eve", 99) };
    let given =
        || vec![("hub", AnyCommand::Token(Command::Create { new: eve.clone(), replace: false }))];
    let create =
        || AnyCommand::Token(Command::Create { new: new_token(DEFAULT_AGENT, 9), replace: true });
    check(
        given(),
        "eve",
        create(),
        expect![
            "refused: the name agent belongs to the line that `teamster up` prints; choose another `name`"
        ],
    );
    let mut given = given();
    given.push(("hub", create()));
    check(
        given,
        "hub",
        AnyCommand::Token(Command::Revoke { which: "agent".into() }),
        expect![[r#"{"token":{"ended":{"id":4,"principal":"agent","why":"revoked"}}}"#]],
    );
}

/// An older hub reads what a newer one stores of the operator, and the other way round.
#[test]
fn the_owner_is_stored_by_the_word_of_the_first_releases() {
    let kinds = [Kind::OPERATOR, Kind::Agent, Kind::Hub];
    let stored = serde_json::to_string(&kinds).unwrap();
    assert_eq!(stored, r#"["operator","agent","hub"]"#);
    assert_eq!(serde_json::from_str::<[Kind; 3]>(&stored).unwrap(), kinds);
    let may = |kind: Kind| (kind.is_operator(), kind.may_operate());
    assert_eq!(kinds.map(may), [(true, true), (false, false), (false, true)]);
}
