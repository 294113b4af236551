use std::fmt::Write as _;

use crate::agent::tests::role as plain;
use crate::agent::{AskedLimits, Command as Agent, NewAgent};
use crate::role::{self, Limits, Reach, Role};
use crate::testing::{Given, new_token};
use crate::token::{self, Kind, SecretHash};
use crate::{Command, Event, RunName};

fn draft(role: &str, dossier: Option<&str>) -> Command {
    Command::Agent(Agent::Draft(NewAgent {
        role: role.into(),
        prompt: "look around".into(),
        dossier: dossier.map(str::to_owned),
        directory: None,
        default_directory: "/work".into(),
        limits: AskedLimits::default(),
    }))
}

fn token(name: &str, n: u8, kind: Kind, run: Option<&str>) -> Command {
    let run = run.map(|run| RunName::parse(run).unwrap());
    let new = token::NewToken { kind, run, ..new_token(name, n) };
    Command::Token(token::Command::Create { new, replace: false })
}

/// Drafts an agent and gives it a token; returns its id.
fn started(given: &mut Given, by: &str, role: &str, dossier: Option<&str>) -> String {
    let events = given.by(by, draft(role, dossier));
    let id = events.iter().find_map(|event| match event {
        Event::Agent(crate::agent::Event::Drafted { id, .. }) => Some(id.clone()),
        _ => None,
    });
    let id = id.unwrap();
    let secret = SecretHash([u8::try_from(given.records.len()).unwrap() + 100; 32]);
    given.by(
        "hub",
        Command::Agent(Agent::Admit { id: id.clone(), secret, node: crate::NodeName::only() }),
    );
    id.to_string()
}

/// An operator (`eve`), a client of the workspace (`ann`), one that is bound to the run `alpha` (`amy`), and agents: two
/// that the operator drafted, a child of the first, one whose role reaches the workspace with its child, and one that the
/// bound client drafted in that role.
fn a_workspace() -> Given {
    let mut given = Given::ann_and_bob();
    given.by("hub", token("eve", 11, Kind::OPERATOR, None));
    given.by("hub", token("amy", 12, Kind::Agent, Some("alpha")));
    let wide = Role { reach: Reach::Workspace, ..plain("wide", Limits::USUAL) };
    let roles = vec![plain("coder", Limits::USUAL), wide];
    given.by("hub", Command::Role(role::Command::Sync(roles)));
    for (by, role, dossier, id) in [
        ("eve", "coder", Some("one"), "coder-1"),
        ("eve", "coder", Some("two"), "coder-2"),
        ("coder-1", "wide", None, "wide-3"),
        ("eve", "wide", Some("three"), "wide-4"),
        ("wide-4", "coder", Some("four"), "coder-5"),
        ("amy", "wide", Some("five"), "wide-6"),
    ] {
        assert_eq!(started(&mut given, by, role, dossier), id);
    }
    given
}

#[test]
fn every_principal_reaches_what_it_was_given_and_no_more() {
    let given = a_workspace();
    let mut found = String::new();
    for who in ["eve", "ann", "amy", "coder-1", "coder-2", "wide-3", "wide-4", "coder-5", "wide-6"]
    {
        let caller = given.caller(who);
        let token = given.state.tokens.get(caller.token.unwrap()).unwrap();
        let runs = ["default", "alpha", "beta"]
            .into_iter()
            .filter(|run| given.state.check_run(token, &RunName::parse(run).unwrap()).is_ok());
        let own = given.state.own_dossiers(&caller);
        let dossiers = given.state.dossiers.after(0).map(|dossier| dossier.name.clone());
        let dossiers: Vec<String> = dossiers
            .filter(|name| own.as_ref().is_none_or(|own| own.contains(name)))
            .map(|name| name.to_string())
            .collect();
        let runs: Vec<&str> = runs.collect();
        let (runs, dossiers) = (runs.join(" "), dossiers.join(" "));
        let _ = writeln!(found, "{who}: runs {runs}; dossiers {dossiers}");
    }
    expect_test::expect![[r#"
        eve: runs default alpha beta; dossiers one two three four five
        ann: runs default alpha beta; dossiers one two three four five
        amy: runs alpha; dossiers five
        coder-1: runs default; dossiers one
        coder-2: runs default; dossiers two
        wide-3: runs default; dossiers one
        wide-4: runs default alpha beta; dossiers one two three four five
        coder-5: runs default; dossiers three four
        wide-6: runs alpha; dossiers five
    "#]]
    .assert_eq(&found);
}

/// Otherwise an agent would read another's dossier through one that it drafts into it.
#[test]
fn nobody_drafts_into_a_dossier_that_is_not_theirs() {
    let mut given = a_workspace();
    for (who, dossier, is_allowed) in [
        ("coder-1", "one", true),
        ("coder-1", "new", true),
        ("coder-1", "two", false),
        ("coder-2", "one", false),
        ("coder-2", "new", false),
        // A run opens its own with its first agent.
        ("coder-1", "run-beta", false),
        ("amy", "two", false),
        ("wide-6", "two", false),
        ("wide-4", "two", true),
        ("ann", "two", true),
        ("eve", "two", true),
    ] {
        let drafted = given.decide(who, draft("coder", Some(dossier)));
        assert_eq!(drafted.is_ok(), is_allowed, "{who} into {dossier}: {drafted:?}");
    }
}

/// The binding is in the event, so that a log says what a token reached; those of older hubs had none.
#[test]
fn a_token_is_bound_when_it_is_created() {
    let mut given = a_workspace();
    given.by("eve", draft("coder", None));
    let id = crate::agent::AgentId::new(&role::RoleName::parse("coder").unwrap(), 7);
    let secret = SecretHash([250; 32]);
    let events =
        given.by("hub", Command::Agent(Agent::Admit { id, secret, node: crate::NodeName::only() }));
    let Event::Token(token::Event::Created { token, .. }) = &events[0] else { panic!() };
    assert_eq!(token.run, Some(RunName::default_run()));
    let old = r#"{"role":"coder","dossier":"d","prompt":"p","directory":"/","parent":null,"depth":0,
        "limits":{"depth":1,"children":2,"total":3,"turns":4,"wall_ms":1}}"#;
    let old: crate::agent::Draft = serde_json::from_str(old).unwrap();
    assert_eq!(old.within, None);
}
