use expect_test::expect;

use super::*;
use crate::agent::tests::{id, role};
use crate::role::{Limits, RoleName};
use crate::team::{self, Team};
use crate::testing::{Given, check};
use crate::token::{self, NewToken, SecretHash};
use crate::{Command as Any, agent};

pub(crate) fn team(name: &str) -> Team {
    let name = TeamName::parse(name).unwrap();
    let behaviour = Role { name: RoleName::of_team(&name), ..role("x", Limits::USUAL) };
    Team {
        is_implicit: false,
        directory: format!("/projects/{name}").into(),
        description: "".into(),
        color: None,
        idle_ms: 1_000,
        remote: None,
        worktrees: None,
        pass: Vec::new(),
        behaviour: Arc::new(behaviour),
        name,
    }
}

use crate::role::Role;

fn teams() -> (&'static str, Any) {
    let teams = ["api", "web", "ops"].map(team).to_vec();
    ("hub", Any::Team(team::Command::Sync(teams)))
}

/// `eve` is a person, `wendy` an agent of the team `web`.
fn people() -> Vec<(&'static str, Any)> {
    let eve = NewToken { kind: token::Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    let wendy = NewToken {
        team: Some(TeamName::parse("web").unwrap()),
        ..crate::testing::new_token("wendy", 98)
    };
    let create = |new| ("hub", Any::Token(token::Command::Create { new, replace: false }));
    vec![teams(), create(eve), create(wendy)]
}

fn tell(to: &str, message: &str) -> Any {
    let new = NewTell { to: to.into(), from: None, message: message.into(), is_awaited: true };
    Any::Conversation(Command::Tell(new))
}

fn admit(name: &str, n: u8) -> (&'static str, Any) {
    (
        "hub",
        Any::Agent(agent::Command::Admit {
            id: id(name),
            secret: SecretHash([n; 32]),
            node: crate::NodeName::only(),
        }),
    )
}

fn begin(name: &str, incarnation: u32) -> (&'static str, Any) {
    (
        "hub",
        Any::Conversation(Command::Begin { agent: id(name), incarnation, last_record: Some(7) }),
    )
}

fn settle(name: &str, incarnation: u32, tell: u32) -> (&'static str, Any) {
    let (tell, how) = (TellId(tell), How::Completed);
    let (answer, last_record) = ("fine".into(), Some(12));
    let settle = Command::Settle {
        agent: id(name),
        incarnation,
        tell,
        how,
        answer,
        last_record,
        used: None,
    };
    ("hub", Any::Conversation(settle))
}

/// `wendy` has told `api` two things; the first is being answered by `api-1`.
fn a_talk() -> Vec<(&'static str, Any)> {
    let told = vec![("wendy", tell("api", "status?")), ("wendy", tell("api", "and now?"))];
    [people(), told, vec![admit("api-1", 50), begin("api-1", 1)]].concat()
}

#[test]
fn the_first_message_opens_a_conversation_and_wakes_its_agent() {
    check(
        people(),
        "wendy",
        tell("api", "status?"),
        expect![[r#"
            {"agent":{"convened":{"id":"api-1","number":1,"draft":{"role":"api","dossier":"conversations","prompt":"","directory":"/projects/api","parent":null,"depth":0,"limits":{"depth":3,"children":8,"total":100,"turns":4294967295,"wall_ms":18446744073709551615,"microdollars":null,"tokens":null},"team":"api","run":null,"within":null}}}}
            {"conversation":{"opened":{"id":1,"from":{"team":"web"},"to":"api","agent":"api-1"}}}
            {"conversation":{"told":{"id":1,"conversation":1,"message":"status?","chain":{"first":1,"length":0},"is_awaited":true,"asker":null,"answer_to":null}}}
            {"agent":{"woken":{"id":"api-1"}}}"#]],
    );
    check(
        [people(), vec![("wendy", tell("api", "status?"))]].concat(),
        "wendy",
        tell("api", "more"),
        expect![[
            r#"{"conversation":{"told":{"id":2,"conversation":1,"message":"more","chain":{"first":2,"length":0},"is_awaited":true,"asker":null,"answer_to":null}}}"#
        ]],
    );
    // The agent that answers speaks for its team.
    check(
        [people(), vec![("wendy", tell("api", "status?"))]].concat(),
        "hub",
        admit("api-1", 50).1,
        expect![[r#"
            {"token":{"created":{"id":5,"token":{"principal":"api-1","kind":"agent","secret_hash":"3232323232323232323232323232323232323232323232323232323232323232","grants":["full"],"run":"default","team":"api"}}}}
            {"agent":{"admitted":{"id":"api-1","token":5,"node":"local"}}}"#]],
    );
}

/// Reads what one message knows of its records.
fn records(given: Vec<(&'static str, Any)>, tell: u32) -> (Option<u64>, Option<u64>) {
    let mut all = Given::ann_and_bob();
    for (by, command) in given {
        all.by(by, command);
    }
    let Records { after, up_to } = all.state.conversations.tell(TellId(tell)).unwrap().records;
    (after, up_to)
}

#[test]
fn a_message_knows_its_piece_of_the_transcript() {
    assert_eq!(records(a_talk(), 1), (Some(7), None));
    assert_eq!(records(a_talk(), 2), (None, None));
    assert_eq!(records([a_talk(), vec![settle("api-1", 1, 1)]].concat(), 1), (Some(7), Some(12)));
    // What earlier versions wrote says nothing of it.
    let old = r#"{"settled":{"id":1,"conversation":1,"how":"completed","answer":"fine"}}"#;
    let old: Event = serde_json::from_str(old).unwrap();
    assert!(matches!(old, Event::Settled { up_to: None, .. }));
}

#[test]
fn messages_are_answered_in_order() {
    check(
        a_talk(),
        "hub",
        settle("api-1", 1, 1).1,
        expect![[
            r#"{"conversation":{"settled":{"id":1,"conversation":1,"how":"completed","answer":"fine","up_to":12}}}"#
        ]],
    );
    // Not what is not being answered, not by an earlier process.
    check(
        a_talk(),
        "hub",
        settle("api-1", 1, 2).1,
        expect!["refused: agent api-1 is not in a state for this"],
    );
    check(
        a_talk(),
        "hub",
        settle("api-1", 0, 1).1,
        expect!["refused: agent api-1 is not in a state for this"],
    );
    let answered = [a_talk(), vec![settle("api-1", 1, 1)]].concat();
    check(
        answered.clone(),
        "hub",
        begin("api-1", 1).1,
        expect![[r#"
            {"conversation":{"begun":{"id":2,"conversation":1,"after":7}}}
            {"agent":{"turn_begun":{"id":"api-1"}}}"#]],
    );
    let all = [answered, vec![begin("api-1", 1), settle("api-1", 1, 2)]].concat();
    check(all, "hub", begin("api-1", 1).1, expect!["nothing"]);
    let cancel = Any::Conversation(Command::Cancel { tell: TellId(2) });
    check(
        a_talk(),
        "wendy",
        cancel.clone(),
        expect![[
            r#"{"conversation":{"settled":{"id":2,"conversation":1,"how":"cancelled","answer":""}}}"#
        ]],
    );
    check(
        a_talk(),
        "ann",
        cancel,
        expect!["refused: there is no such message, or it is not yours to take back"],
    );
}

#[test]
fn a_team_that_is_removed_leaves_nobody_waiting() {
    let without = || {
        let teams = ["web", "ops"].map(team).to_vec();
        ("hub", Any::Team(team::Command::Sync(teams)))
    };
    // What is being answered is answered.
    check(
        a_talk(),
        "hub",
        without().1,
        expect![[r#"
        {"team":{"removed":{"name":"api"}}}
        {"conversation":{"settled":{"id":2,"conversation":1,"how":{"terminated":{"why":"the team api was removed from the configuration"}},"answer":""}}}"#]],
    );
    let gone = [a_talk(), vec![without()]].concat();
    check(
        gone.clone(),
        "hub",
        settle("api-1", 1, 1).1,
        expect![[
            r#"{"conversation":{"settled":{"id":1,"conversation":1,"how":"completed","answer":"fine","up_to":12}}}"#
        ]],
    );
    check(
        gone.clone(),
        "wendy",
        tell("api", "hello?"),
        expect!["refused: Unknown team: api. Known teams: ops, web"],
    );
    // One that was not started yet never is.
    let queued = [people(), vec![("wendy", tell("api", "status?"))]].concat();
    check(
        queued.clone(),
        "hub",
        without().1,
        expect![[r#"
        {"team":{"removed":{"name":"api"}}}
        {"agent":{"slept":{"id":"api-1","why":{"not_started":{"says":"the team api was removed from the configuration"}}}}}
        {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"the team api was removed from the configuration"}},"answer":""}}}"#]],
    );
    // A team that comes back goes on.
    let back = [queued, vec![without(), teams()]].concat();
    check(
        back,
        "wendy",
        tell("api", "again"),
        expect![[r#"
            {"conversation":{"told":{"id":2,"conversation":1,"message":"again","chain":{"first":2,"length":0},"is_awaited":true,"asker":null,"answer_to":null}}}
            {"agent":{"woken":{"id":"api-1"}}}"#]],
    );
}

#[test]
fn nobody_waits_for_an_answer_that_cannot_come() {
    let sleep = |why| Any::Agent(agent::Command::Sleep { id: id("api-1"), incarnation: 1, why });
    use agent::SleepWhy;
    check(
        a_talk(),
        "hub",
        sleep(SleepWhy::Asked),
        expect![[r#"
        {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
        {"agent":{"slept":{"id":"api-1","why":"asked"}}}
        {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"its agent was put to sleep"}},"answer":""}}}
        {"conversation":{"settled":{"id":2,"conversation":1,"how":{"terminated":{"why":"its agent was put to sleep"}},"answer":""}}}"#]],
    );
    check(
        a_talk(),
        "hub",
        sleep(SleepWhy::NotStarted { says: "no such file".into() }),
        expect![[r#"
            {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
            {"agent":{"slept":{"id":"api-1","why":{"not_started":{"says":"no such file"}}}}}
            {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"no such file"}},"answer":""}}}
            {"conversation":{"settled":{"id":2,"conversation":1,"how":{"terminated":{"why":"no such file"}},"answer":""}}}"#]],
    );
    // What was not begun is begun by the next process.
    check(
        a_talk(),
        "hub",
        sleep(SleepWhy::Failed { says: "it crashed".into() }),
        expect![[r#"
        {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
        {"agent":{"slept":{"id":"api-1","why":{"failed":{"says":"it crashed"}}}}}
        {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"it crashed"}},"answer":""}}}
        {"agent":{"woken":{"id":"api-1"}}}"#]],
    );
    // One that is cut off once goes on with what it had begun.
    let cut = |incarnation| {
        let (id, why) = (id("api-1"), "the hub ended".to_owned());
        ("hub", Any::Agent(agent::Command::Interrupt { id, incarnation, why, blameless: false }))
    };
    check(
        a_talk(),
        "hub",
        cut(1).1,
        expect![[r#"
            {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
            {"agent":{"interrupted":{"id":"api-1","why":"the hub ended","blameless":false}}}"#]],
    );
    let again = [a_talk(), vec![cut(1), admit("api-1", 51)]].concat();
    check(
        again.clone(),
        "hub",
        begin("api-1", 2).1,
        expect![[r#"{"agent":{"turn_begun":{"id":"api-1"}}}"#]],
    );
    check(
        again,
        "hub",
        cut(2).1,
        expect![[r#"
        {"token":{"ended":{"id":6,"principal":"api-1","why":"replaced"}}}
        {"agent":{"slept":{"id":"api-1","why":{"failed":{"says":"the hub ended"}}}}}
        {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"the hub ended"}},"answer":""}}}
        {"agent":{"woken":{"id":"api-1"}}}"#]],
    );
}

#[test]
fn everybody_speaks_for_itself() {
    let as_api = |from: Option<&str>| {
        let new = NewTell {
            to: "ops".into(),
            from: from.map(str::to_owned),
            message: "hi".into(),
            is_awaited: true,
        };
        Any::Conversation(Command::Tell(new))
    };
    check(
        people(),
        "wendy",
        as_api(Some("api")),
        expect![[r#"refused: you are web; fromTeam must be left out or say so, not "api""#]],
    );
    check(
        people(),
        "ann",
        as_api(Some("api")),
        expect![[r#"refused: you are ann; fromTeam must be left out or say so, not "api""#]],
    );
    let mut given = Given::ann_and_bob();
    for (who, command) in people() {
        given.by(who, command);
    }
    for (who, from, partner) in [
        ("wendy", Some("web"), Partner::Team(TeamName::parse("web").unwrap())),
        ("eve", Some("api"), Partner::Team(TeamName::parse("api").unwrap())),
        ("eve", None, Partner::Principal(PrincipalName::parse("eve").unwrap())),
    ] {
        given.by(who, as_api(from));
        let ops = TeamName::parse("ops").unwrap();
        assert!(given.state.conversations.of_pair(&partner, &ops).is_some(), "{partner}");
    }
    // Only those of the two partners know of it.
    let web = given.state.conversations.iter().next().unwrap().id;
    for (who, knows) in [("wendy", true), ("eve", true), ("ann", false)] {
        let caller = given.caller(who);
        assert_eq!(given.state.conversations.visible(web, &caller).is_ok(), knows, "{who}");
    }
}

#[test]
fn wrong_messages_are_refused_by_name() {
    for (to, message, name) in [
        ("", "hi", "ValidationError"),
        ("../api", "hi", "ValidationError"),
        ("a\\b", "hi", "ValidationError"),
        (&"x".repeat(101), "hi", "ValidationError"),
        ("apï", "hi", "ValidationError"),
        ("nobody", "hi", "TeamNotFoundError"),
        ("api", "  ", "ValidationError"),
        ("api", "a\0b", "ValidationError"),
        ("api", &"x".repeat(MESSAGE_BYTES_MAX + 1), "ValidationError"),
    ] {
        let mut given = Given::ann_and_bob();
        for (who, command) in people() {
            given.by(who, command);
        }
        let refusal = given.decide("wendy", tell(to, message)).unwrap_err();
        assert_eq!(refusal.name(), name, "{to:?}: {refusal}");
    }
}

#[test]
fn chains_end() {
    // Two agents that always answer by telling each other.
    let mut given = Given::ann_and_bob();
    for (who, command) in people() {
        given.by(who, command);
    }
    given.by("eve", tell("api", "start"));
    let mut speaker = "api-1".to_owned();
    let mut refused = None;
    for n in 0_u8..20 {
        let secret = SecretHash([100 + n; 32]);
        let agent = given.state.agents.get(&speaker).unwrap().clone();
        if agent.token.is_none() {
            given.by(
                "hub",
                Any::Agent(agent::Command::Admit {
                    id: agent.id.clone(),
                    secret,
                    node: crate::NodeName::only(),
                }),
            );
        }
        let incarnation = given.state.agents.get(&speaker).unwrap().incarnation;
        let begin = Command::Begin { agent: agent.id.clone(), incarnation, last_record: None };
        given.by("hub", Any::Conversation(begin));
        let to = if agent.draft.team.as_ref().unwrap().as_str() == "api" { "web" } else { "api" };
        match given.decide(&speaker, tell(to, "thank you")) {
            Ok(_) => {
                let from = Partner::Team(agent.draft.team.clone().unwrap());
                let to = TeamName::parse(to).unwrap();
                let next = given.state.conversations.of_pair(&from, &to).unwrap().agent.clone();
                // Each waits for the other, so each message meets an agent that is busy with the one before.
                let conversation = given.state.conversations.of_agent(&next).unwrap();
                if let Some(current) = conversation.current {
                    let incarnation = given.state.agents.get(next.as_str()).unwrap().incarnation;
                    let (agent, how) = (next.clone(), How::Completed);
                    let answer = "ok".to_owned();
                    let tell = current;
                    let settle = Command::Settle {
                        agent,
                        incarnation,
                        tell,
                        how,
                        answer,
                        last_record: None,
                        used: None,
                    };
                    given.by("hub", Any::Conversation(settle));
                }
                speaker = next.to_string();
            }
            Err(refusal) => {
                refused = Some((n, refusal.to_string()));
                break;
            }
        }
    }
    expect![[r#"Some((13, "this message would be number 9 of a chain in which each was caused by the one before; finish with what you know instead of telling somebody again"))"#]].assert_eq(&format!("{refused:?}"));
}

/// Whatever goes wrong again and again, each time costs a message: nothing is begun for ever.
#[test]
fn a_failure_before_a_message_was_begun_costs_one() {
    let told = vec![("wendy", tell("api", "one")), ("wendy", tell("api", "two"))];
    let failed = agent::SleepWhy::Failed { says: "broken".into() };
    let sleep = agent::Command::Sleep { id: id("api-1"), incarnation: 1, why: failed };
    let mut given = Given::ann_and_bob();
    for (who, command) in [people(), told, vec![admit("api-1", 50)]].concat() {
        given.by(who, command);
    }
    given.by("hub", Any::Agent(sleep));
    let conversation = given.state.conversations.iter().next().unwrap();
    assert_eq!(conversation.queue.iter().copied().collect::<Vec<_>>(), [TellId(2)]);
    assert!(given.state.conversations.tell(TellId(1)).unwrap().is_settled());
}

/// `eve` has told `web` something, and `web-1`, which answers it, has asked `api` two things without waiting, and a third
/// that it waits for.
fn an_asker() -> Given {
    let mut given = Given::ann_and_bob();
    for (who, command) in people() {
        given.by(who, command);
    }
    given.by("eve", tell("web", "find out"));
    for (who, command) in [admit("web-1", 50), begin("web-1", 1)] {
        given.by(who, command);
    }
    for (message, is_awaited) in [("one?", false), ("two?", false), ("three?", true)] {
        let (to, message) = ("api".to_owned(), message.to_owned());
        let new = NewTell { to, from: None, message, is_awaited };
        given.by("web-1", Any::Conversation(Command::Tell(new)));
    }
    for (who, command) in [admit("api-2", 51), begin("api-2", 1)] {
        given.by(who, command);
    }
    given
}

/// Returns the messages that wait for `web-1`.
fn delivered(given: &Given) -> Vec<String> {
    let web = given.state.conversations.of_agent(&id("web-1")).unwrap();
    let tells = web.queue.iter().map(|tell| given.state.conversations.tell(*tell).unwrap());
    tells.map(|tell| tell.message.replace('\n', "/")).collect()
}

#[test]
fn an_answer_that_nobody_waits_for_is_sent_to_the_agent_that_asked() {
    let mut given = an_asker();
    let (who, settled) = settle("api-2", 1, 2);
    given.by(who, settled);
    expect![[r#"["api has answered your message TELL-2 (one?)://fine"]"#]]
        .assert_eq(&format!("{:?}", delivered(&given)));
    // What is waited for goes to whoever waits.
    for (who, command) in
        [begin("api-2", 1), settle("api-2", 1, 3), begin("api-2", 1), settle("api-2", 1, 4)]
    {
        given.by(who, command);
    }
    assert_eq!(delivered(&given).len(), 2);
    // Unless it was not waited for to the end.
    let leave = Any::Conversation(Command::Leave { tell: TellId(4) });
    given.by("hub", leave.clone());
    assert_eq!(delivered(&given).len(), 3);
    assert_eq!(given.by("hub", leave), []);
    // It is read with its own message, and so is not unread.
    let web = Partner::Team(TeamName::parse("web").unwrap());
    assert_eq!(given.state.conversations.n_unread(&web), 0);
    given.compacted();
}

#[test]
fn an_asker_that_was_cut_off_is_sent_the_answer() {
    let mut given = an_asker();
    let (id, why) = (id("web-1"), "the hub ended".to_owned());
    let interrupt = agent::Command::Interrupt { id, incarnation: 1, why, blameless: true };
    given.by("hub", Any::Agent(interrupt));
    for tell in 2..=4 {
        let (who, command) = settle("api-2", 1, tell);
        given.by(who, command);
        given.by("hub", begin("api-2", 1).1);
    }
    assert_eq!(delivered(&given).len(), 3);
}

#[test]
fn answers_that_nobody_waited_for_are_unread_until_they_are_read() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_talk() {
        given.by(who, command);
    }
    let web = Partner::Team(TeamName::parse("web").unwrap());
    given.by("hub", Any::Conversation(Command::Leave { tell: TellId(1) }));
    assert_eq!(given.state.conversations.n_unread(&web), 0);
    given.by("hub", settle("api-1", 1, 1).1);
    assert_eq!(given.state.conversations.n_unread(&web), 1);
    let read = Any::Conversation(Command::Read { conversation: ConversationId(1) });
    given.by("eve", read.clone());
    assert_eq!(given.state.conversations.n_unread(&web), 1, "an operator is not the one who asked");
    given.by("wendy", read.clone());
    assert_eq!(given.state.conversations.n_unread(&web), 0);
    assert_eq!(given.by("wendy", read), []);
}

#[test]
fn a_conversation_keeps_only_so_much_text_at_hand() {
    let mut given = Given::ann_and_bob();
    for (who, command) in people() {
        given.by(who, command);
    }
    given.by("wendy", tell("api", "first"));
    given.by("hub", admit("api-1", 50).1);
    let long = "x".repeat(MESSAGE_BYTES_MAX);
    for n in 1..=30 {
        given.by("hub", begin("api-1", 1).1);
        given.by("hub", settle("api-1", 1, n).1);
        given.by(
            "eve",
            Any::Conversation(Command::Tell(NewTell {
                to: "api".into(),
                from: Some("web".into()),
                message: long.clone(),
                is_awaited: false,
            })),
        );
    }
    let conversation = given.state.conversations.iter().next().unwrap();
    assert_eq!((conversation.tells.len(), conversation.n_tells), (10, 31));
    assert!(given.state.conversations.tell(TellId(1)).is_none());
}

/// A session that is known says nothing of the process that is to go on with it.
#[test]
fn one_that_wakes_up_is_ready_when_its_program_says_so() {
    let ready = |incarnation| {
        let (id, session) = (id("api-1"), "s".to_owned());
        (
            "hub",
            Any::Agent(agent::Command::Begin {
                id,
                incarnation,
                session,
                program: None,
                isolation: None,
            }),
        )
    };
    let slept =
        agent::Command::Sleep { id: id("api-1"), incarnation: 1, why: agent::SleepWhy::Idle };
    let mut given = Given::ann_and_bob();
    let is_ready = |given: &Given| given.state.agents.get("api-1").unwrap().is_ready();
    for (who, command) in
        [people(), vec![("wendy", tell("api", "one")), admit("api-1", 50)]].concat()
    {
        given.by(who, command);
    }
    assert!(!is_ready(&given));
    given.by("hub", ready(1).1);
    assert!(is_ready(&given));
    for (who, command) in
        [("hub", Any::Agent(slept)), ("wendy", tell("api", "two")), admit("api-1", 51)]
    {
        given.by(who, command);
    }
    assert!(!is_ready(&given));
    given.by("hub", ready(2).1);
    assert!(is_ready(&given));
}

/// Otherwise those who talk to it afterwards would wait for ever.
#[test]
fn one_that_is_put_to_sleep_when_its_account_is_used_up_has_not_ended() {
    let sleep = Command::Sleep { to: "api".into(), from: None, all: false, at_once: false };
    let park = agent::Command::Park {
        id: id("api-1"),
        incarnation: 1,
        account: "all".into(),
        until: Timestamp(i64::MAX),
        why: "nothing is left".into(),
    };
    check(
        [a_talk(), vec![("wendy", Any::Conversation(sleep))]].concat(),
        "hub",
        Any::Agent(park),
        expect![[r#"
            {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
            {"agent":{"slept":{"id":"api-1","why":"asked"}}}
            {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"its agent was put to sleep"}},"answer":""}}}
            {"conversation":{"settled":{"id":2,"conversation":1,"how":{"terminated":{"why":"its agent was put to sleep"}},"answer":""}}}"#]],
    );
}

/// Whoever was cut off may have been about to hear it.
#[test]
fn an_answer_that_came_just_before_its_asker_was_cut_off_is_sent_to_it() {
    let mut given = an_asker();
    for tell in 2..=4 {
        let (who, command) = settle("api-2", 1, tell);
        given.by(who, command);
        given.by("hub", begin("api-2", 1).1);
    }
    assert_eq!(delivered(&given).len(), 2);
    let (asker, why) = (id("web-1"), "the hub ended".to_owned());
    let cut = |incarnation| {
        let (id, why) = (asker.clone(), why.clone());
        Any::Agent(agent::Command::Interrupt { id, incarnation, why, blameless: true })
    };
    given.by("hub", cut(1));
    assert_eq!(delivered(&given).len(), 3);
    // Not once more.
    given.by("hub", admit("web-1", 60).1);
    given.by("hub", cut(2));
    assert_eq!(delivered(&given).len(), 3);
}

/// What happens between two turns, or is done by those whom an agent has drafted, has the same cause.
#[test]
fn a_chain_goes_on_after_a_turn() {
    let mut given = an_asker();
    given.by("hub", settle("web-1", 1, 1).1);
    given.by("web-1", tell("ops", "and you?"));
    let last = given.state.conversations.tell(TellId(5)).unwrap();
    assert_eq!((last.chain.first, last.chain.length), (TellId(1), 1));
}

#[test]
fn why_there_is_no_answer_steers_no_terminal() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_talk() {
        given.by(who, command);
    }
    let why = "failed \u{1b}]0;pwn\u{7}\u{202e}x".into();
    let (agent, tell, answer) = (id("api-1"), TellId(1), "\u{1b}[2Jfine".to_owned());
    let (how, used) = (How::Terminated { why }, None);
    let settle =
        Command::Settle { agent, incarnation: 1, tell, how, answer, last_record: None, used };
    given.by("hub", Any::Conversation(settle));
    let tell = given.state.conversations.tell(TellId(1)).unwrap();
    let Progress::Settled { how: How::Terminated { why }, answer, .. } = &tell.progress else {
        panic!("{tell:?}")
    };
    assert_eq!((&**why, &**answer), ("failed \\u{202e}x", "fine"));
}

fn ready(name: &str, incarnation: u32) -> (&'static str, Any) {
    let begin = agent::Command::Begin {
        id: id(name),
        incarnation,
        session: "s".into(),
        program: None,
        isolation: None,
    };
    ("hub", Any::Agent(begin))
}

fn cleared(given: &Given) -> Option<u32> {
    given.state.conversations.get(ConversationId(1)).unwrap().cleared.map(|tell| tell.0)
}

/// Answers to open messages were hidden from those who read them later.
#[test]
fn nothing_is_cleared_past_a_message_that_is_not_settled() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_talk() {
        given.by(who, command);
    }
    let clear = || Any::Conversation(Command::Clear { conversation: ConversationId(1) });
    // The first is being answered.
    given.by("wendy", clear());
    assert_eq!(cleared(&given), None);
    given.by("hub", settle("api-1", 1, 1).1);
    given.by("wendy", clear());
    assert_eq!(cleared(&given), Some(1));
    // The second waits behind it, and a third that was taken back stands behind that.
    given.by("wendy", tell("api", "third"));
    given.by("wendy", Any::Conversation(Command::Cancel { tell: TellId(3) }));
    given.by("wendy", clear());
    assert_eq!(cleared(&given), Some(1));
    given.by("hub", begin("api-1", 1).1);
    given.by("hub", settle("api-1", 1, 2).1);
    given.by("wendy", clear());
    assert_eq!(cleared(&given), Some(3));
}

#[test]
fn waking_clears_only_what_was_read_and_only_if_the_team_sleeps() {
    let wake = || Any::Conversation(Command::Wake { to: "api".into(), from: None, clear: true });
    let sleep = |incarnation| {
        let why = agent::SleepWhy::Idle;
        Any::Agent(agent::Command::Sleep { id: id("api-1"), incarnation, why })
    };
    let mut given = Given::ann_and_bob();
    for (who, command) in a_talk() {
        given.by(who, command);
    }
    given.by("hub", ready("api-1", 1).1);
    given.by("hub", settle("api-1", 1, 1).1);
    given.by("wendy", wake());
    assert_eq!(cleared(&given), None, "it is awake");
    // The answer to the second comes after its asker has stopped waiting.
    given.by("hub", begin("api-1", 1).1);
    given.by("hub", Any::Conversation(Command::Leave { tell: TellId(2) }));
    given.by("hub", settle("api-1", 1, 2).1);
    given.by("hub", sleep(1));
    given.by("wendy", wake());
    assert_eq!(cleared(&given), Some(1), "the second answer was not read");
    given.by("hub", admit("api-1", 51).1);
    given.by("hub", sleep(2));
    given.by("wendy", Any::Conversation(Command::Read { conversation: ConversationId(1) }));
    given.by("wendy", wake());
    assert_eq!(cleared(&given), Some(2));
}

/// A client that had given up waiting and asked again told the team twice.
#[test]
fn the_same_words_join_the_message_that_is_under_way() {
    check(
        a_talk(),
        "wendy",
        tell("api", " and now? "),
        expect![[
            r#"{"conversation":{"joined":{"id":2,"conversation":1,"is_awaited":true,"asker":null}}}"#
        ]],
    );
    let others = [("wendy", "other words"), ("eve", "and now?")];
    for (who, words) in others {
        let mut given = Given::ann_and_bob();
        for (who, command) in a_talk() {
            given.by(who, command);
        }
        given.by(who, tell("api", words));
        assert!(given.state.conversations.tell(TellId(3)).is_some(), "{who}: {words}");
    }
}

#[test]
fn an_answer_that_came_too_late_is_there_for_whoever_asks_the_same_again() {
    let left = || Any::Conversation(Command::Leave { tell: TellId(1) });
    let is_new = |commands: Vec<(&'static str, Any)>| {
        let mut given = Given::ann_and_bob();
        for (who, command) in [a_talk(), commands, vec![("wendy", tell("api", "status?"))]].concat()
        {
            given.by(who, command);
        }
        let first = given.state.conversations.tell(TellId(1)).unwrap();
        let is_new = given.state.conversations.tell(TellId(3)).is_some();
        assert!(is_new || (first.is_awaited && !first.is_left));
        is_new
    };
    let settled = || settle("api-1", 1, 1);
    let read = || Any::Conversation(Command::Read { conversation: ConversationId(1) });
    assert!(!is_new(vec![("hub", left())]), "it is under way");
    assert!(!is_new(vec![("hub", left()), settled()]), "nobody has heard the answer");
    assert!(is_new(vec![settled()]), "its asker has heard the answer");
    assert!(is_new(vec![("hub", left()), settled(), ("wendy", read())]), "it was read");
    let sleep = Command::Sleep { to: "api".into(), from: None, all: false, at_once: false };
    let ended =
        agent::Command::Sleep { id: id("api-1"), incarnation: 1, why: agent::SleepWhy::Asked };
    let terminated =
        vec![("hub", left()), ("wendy", Any::Conversation(sleep)), ("hub", Any::Agent(ended))];
    assert!(is_new(terminated), "there is no answer");
}

/// `force` did not end a process that took its time.
#[test]
fn what_is_put_to_sleep_at_once_has_no_more_time_to_end() {
    let sleep = |all, at_once| {
        Any::Conversation(Command::Sleep { to: "api".into(), from: None, all, at_once })
    };
    let asked = || expect![[r#"{"agent":{"kill_asked":{"id":"api-1","why":"to_sleep_at_once"}}}"#]];
    check(a_talk(), "wendy", sleep(false, true), asked());
    let ending = [a_talk(), vec![("wendy", sleep(false, false))]].concat();
    check(ending.clone(), "wendy", sleep(false, true), asked());
    check(ending, "wendy", sleep(false, false), expect!["nothing"]);
    let at_once = [a_talk(), vec![("wendy", sleep(false, true))]].concat();
    check(at_once, "wendy", sleep(false, true), expect!["nothing"]);
    // Not those that others talk to.
    check(a_talk(), "ann", sleep(false, true), expect!["nothing"]);
    check(
        a_talk(),
        "wendy",
        sleep(true, true),
        expect!["refused: only an operator may do this for the conversations of others"],
    );
}

#[test]
fn why_a_process_failed_is_known_until_another_is_ready() {
    let says: Arc<str> = "it did not start: no \u{1b}[1mkey".into();
    let why = agent::SleepWhy::NotStarted { says };
    let failed = agent::Command::Sleep { id: id("api-1"), incarnation: 1, why };
    let mut given = Given::ann_and_bob();
    for (who, command) in [a_talk(), vec![("hub", Any::Agent(failed))]].concat() {
        given.by(who, command);
    }
    let failure = |given: &Given| given.state.agents.get("api-1").unwrap().failure.clone();
    assert_eq!(failure(&given).as_deref(), Some("it did not start: no key"));
    for (who, command) in [("wendy", tell("api", "again?")), admit("api-1", 51), ready("api-1", 2)]
    {
        given.by(who, command);
    }
    assert_eq!(failure(&given), None);
}

/// An agent that only rested when its hub ended has nothing to start again for.
#[test]
fn an_agent_that_is_lost_with_its_hub_starts_again_only_if_it_has_work() {
    let lose = |incarnation| {
        let why = "the hub ended".to_owned();
        Any::Agent(agent::Command::Lose { id: id("api-1"), incarnation, why })
    };
    check(
        a_talk(),
        "hub",
        lose(1),
        expect![[r#"
            {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
            {"agent":{"interrupted":{"id":"api-1","why":"the hub ended","blameless":false}}}"#]],
    );
    let told = vec![("wendy", tell("api", "status?")), admit("api-1", 50), begin("api-1", 1)];
    let rests = [people(), told, vec![settle("api-1", 1, 1)]].concat();
    check(
        rests.clone(),
        "hub",
        lose(1),
        expect![[r#"
            {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
            {"agent":{"slept":{"id":"api-1","why":"idle"}}}"#]],
    );
    check(rests, "hub", lose(2), expect!["refused: agent api-1 is not in a state for this"]);
}

#[test]
fn an_agent_that_lasts_sleeps_if_its_program_cannot_be_started() {
    let (id, why) = (id("api-1"), "no such program".to_owned());
    let failed = agent::Command::NotStarted { id, incarnation: 1, why };
    check(
        a_talk(),
        "hub",
        Any::Agent(failed),
        expect![[r#"
        {"token":{"ended":{"id":5,"principal":"api-1","why":"replaced"}}}
        {"agent":{"slept":{"id":"api-1","why":{"not_started":{"says":"no such program"}}}}}
        {"conversation":{"settled":{"id":1,"conversation":1,"how":{"terminated":{"why":"no such program"}},"answer":""}}}
        {"conversation":{"settled":{"id":2,"conversation":1,"how":{"terminated":{"why":"no such program"}},"answer":""}}}"#]],
    );
}
