use super::*;
use crate::agent::tests::a_team;
use crate::item::Status;
use crate::testing::{Given, add, new_token, set};
use crate::token::{self, NewToken};
use crate::{Command, Refusal as Any, run};

fn given() -> Given {
    let mut given = Given::ann_and_bob();
    let olga = NewToken { kind: crate::token::Kind::OPERATOR, ..new_token("olga", 3) };
    given.by("hub", Command::Token(token::Command::Create { new: olga, replace: false }));
    given
}

fn refused(outcome: Result<Vec<Event>, Any>) -> String {
    outcome.expect_err("it is refused").to_string()
}

#[test]
fn an_agent_that_has_stored_all_it_may_can_only_change_what_there_is() {
    let mut given = given();
    given.limits = Limits { owner_bytes: Some(1 << 20), run_bytes: None };
    let text = "x".repeat(15_000);
    let n_added = (0..).find(|n| given.decide("ann", add(&[&format!("{n} {text}")])).is_err());
    assert!(n_added.is_some_and(|n| (60..70).contains(&n)), "a MiB has room for {n_added:?}");
    assert_eq!(
        refused(given.decide("ann", add(&[&text]))),
        "you have stored 0.9 of 1 MiB, together with the agents of your tree; put long texts into files, or ask the \
         operator to raise quotas.stored_mib"
    );
    // What there is can be finished, for some time.
    given.by("ann", set("TAS-1", Status::Completed));
    let n_changed = (0..100_000).find(|n| {
        let status = if n % 2 == 0 { Status::Remaining } else { Status::Completed };
        given.decide("ann", set("TAS-2", status)).is_err()
    });
    assert!(n_changed.is_some_and(|n| n > 100), "{n_changed:?}");
    // The controls: others, and operators without a bound.
    given.by("bob", add(&[&text]));
    for n in 0..100 {
        given.by("olga", add(&[&format!("olga {n} {text}")]));
    }
    let snapshot = crate::State::from_snapshot(&given.state.to_snapshot());
    assert_eq!(snapshot.as_ref(), Some(&given.state));
    // What a compaction leaves out is stored no more.
    let ann = PrincipalName::parse("ann").unwrap();
    let before = given.state.stored.by_owner(&ann);
    let mut compacted = crate::State::default();
    given.compacted().iter().for_each(|record| compacted.apply(record));
    assert!(compacted.stored.by_owner(&ann) < before);
}

#[test]
fn a_tree_of_agents_has_room_in_common() {
    let mut given = given();
    a_team().into_iter().for_each(|(who, command)| drop(given.by(who, command)));
    given.limits = Limits { owner_bytes: Some(40_000), run_bytes: None };
    let text = "x".repeat(12_000);
    given.by("lead-1", add(&[&format!("1 {text}")]));
    given.by("coder-2", add(&[&format!("2 {text}")]));
    given.by("lead-1", add(&[&format!("3 {text}")]));
    assert!(refused(given.decide("coder-2", add(&[&text]))).starts_with("you have stored 0 of 0"));
    // Who drafted the tree has its own.
    given.by("ann", add(&[&format!("4 {text}")]));
}

#[test]
fn a_run_has_room_for_all_of_its_agents_and_forgetting_it_gives_it_back() {
    let mut given = given();
    given.limits = Limits { owner_bytes: None, run_bytes: Some(40_000) };
    let in_run = |run: &str, text: &str| {
        let Command::Run { what, .. } = add(&[text]) else { panic!("it is of a run") };
        Command::Run { run: RunName::parse(run).unwrap(), what }
    };
    let text = "x".repeat(12_000);
    given.by("ann", in_run("one", &format!("1 {text}")));
    given.by("bob", in_run("one", &format!("2 {text}")));
    given.by("ann", in_run("one", &format!("3 {text}")));
    let says = refused(given.decide("bob", in_run("one", &text)));
    assert!(says.starts_with("the run one holds 0 of 0"), "{says}");
    given.by("bob", in_run("two", &format!("4 {text}")));
    let one = RunName::parse("one").unwrap();
    given.by("olga", Command::Run { run: one.clone(), what: run::Command::Forget });
    assert_eq!(given.state.stored.in_run(&one), 0);
    given.by("bob", in_run("one", &text));
}

#[test]
fn somebody_who_is_gone_is_not_counted_any_more() {
    let mut given = given();
    given.by("ann", add(&["x"]));
    let ann = PrincipalName::parse("ann").unwrap();
    assert!(given.state.stored.by_owner(&ann) > 0);
    given.by("olga", Command::Token(token::Command::Revoke { which: "ann".into() }));
    assert_eq!(given.state.stored.by_owner(&ann), 0);
}
