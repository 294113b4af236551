use expect_test::expect;

use super::*;
use crate::grant::{Grant, Grants};
use crate::guard::Guard;
use crate::permission::Permissions;
use crate::role::{self, Role};
use crate::testing::{Given, check};
use crate::{Command as Any, State};

const SMALL: Limits =
    Limits { depth: 2, children: 2, total: 3, turns: 4, wall_ms: 1_000_000, ..Limits::USUAL };

pub(crate) fn role(name: &str, limits: Limits) -> Role {
    Role {
        name: RoleName::parse(name).unwrap(),
        description: "".into(),
        category: "coding".into(),
        program: "goose".into(),
        model: None,
        grants: Grants::new([Grant::Full]),
        limits,
        directory: None,
        stall_ms: 300_000,
        tool_stall_ms: 3_600_000,
        prompt: "You write code.".into(),
        permissions: Permissions::default(),
        account: "goose".into(),
        max_wait_ms: 50_000,
        guard: Guard::default(),
        reach: crate::role::Reach::Own,
        is_projects: false,
    }
}

pub(crate) fn roles() -> (&'static str, Any) {
    let roles = vec![role("coder", SMALL), role("lead", Limits { depth: 1, ..SMALL })];
    ("hub", Any::Role(role::Command::Sync(roles)))
}

pub(crate) fn draft(role: &str, prompt: &str) -> Any {
    Any::Agent(Command::Draft(NewAgent {
        role: role.into(),
        prompt: prompt.into(),
        dossier: None,
        directory: None,
        default_directory: "/work".into(),
        limits: AskedLimits::default(),
    }))
}

pub(crate) fn id(name: &str) -> AgentId {
    AgentId(name.into())
}

pub(crate) fn admit(name: &str) -> Any {
    let secret =
        SecretHash([u8::try_from(name.len()).unwrap() + name.as_bytes()[name.len() - 1]; 32]);
    Any::Agent(Command::Admit { id: id(name), secret, node: crate::NodeName::only() })
}

fn end(name: &str) -> Any {
    let outcome = Outcome {
        status: Status::Success,
        summary: "did it".into(),
        changes: vec!["a.rs".into()],
        ..Outcome::failed(Ending::Completed, "")
    };
    Any::Agent(Command::End { id: id(name), incarnation: 1, outcome })
}

fn turn(name: &str) -> Any {
    Any::Agent(Command::BeginTurn { id: id(name), incarnation: 1 })
}

fn kill(which: &str) -> Any {
    Any::Agent(Command::Kill { which: which.into() })
}

/// `lead-1` was drafted by ann and runs; it has drafted `coder-2`, which runs too, and `coder-3`, which is queued.
pub(crate) fn a_team() -> Vec<(&'static str, Any)> {
    vec![
        roles(),
        ("ann", draft("lead", "Build the thing\nand more")),
        ("hub", admit("lead-1")),
        ("lead-1", draft("coder", "part one")),
        ("hub", admit("coder-2")),
        ("lead-1", draft("coder", "part two")),
    ]
}

#[test]
fn a_draft_opens_a_dossier_that_those_below_inherit() {
    check(
        vec![roles()],
        "ann",
        draft("lead", "Build the thing\nand more"),
        expect![[r#"
            {"dossier":{"opened":{"name":"build-thing-more-1","description":"Build the thing","request":"Build the thing\nand more"}}}
            {"agent":{"drafted":{"id":"lead-1","number":1,"draft":{"role":"lead","dossier":"build-thing-more-1","prompt":"Build the thing\nand more","directory":"/work","parent":null,"depth":0,"limits":{"depth":1,"children":2,"total":3,"turns":4,"wall_ms":1000000,"microdollars":null,"tokens":null},"team":null,"run":null,"within":null}}}}"#]],
    );
    check(
        a_team()[..3].to_vec(),
        "lead-1",
        draft("coder", "part"),
        expect![[
            r#"{"agent":{"drafted":{"id":"coder-2","number":2,"draft":{"role":"coder","dossier":"build-thing-more-1","prompt":"part","directory":"/work","parent":"lead-1","depth":1,"limits":{"depth":0,"children":2,"total":2,"turns":4,"wall_ms":999000,"microdollars":null,"tokens":null},"team":null,"run":null,"within":"default"}}}}"#
        ]],
    );
    check(
        vec![roles()],
        "ann",
        draft("nobody", "x"),
        expect![[r#"refused: Unknown role "nobody". Available: coder, lead"#]],
    );
    check(
        vec![roles()],
        "ann",
        draft("coder", " "),
        expect!["refused: prompt is empty; give it some text"],
    );
}

#[test]
fn an_admitted_agent_has_a_token_which_ends_with_it() {
    check(
        a_team()[..2].to_vec(),
        "hub",
        admit("lead-1"),
        expect![[r#"
            {"token":{"created":{"id":3,"token":{"principal":"lead-1","kind":"agent","secret_hash":"3737373737373737373737373737373737373737373737373737373737373737","grants":["full"],"run":"default"}}}}
            {"agent":{"admitted":{"id":"lead-1","token":3,"node":"local"}}}"#]],
    );
    check(
        a_team(),
        "hub",
        end("coder-2"),
        expect![[r#"
        {"token":{"ended":{"id":4,"principal":"coder-2","why":"revoked"}}}
        {"agent":{"ended":{"id":"coder-2","outcome":{"ending":"completed","status":"success","summary":"did it","changes":["a.rs"],"issues":[],"questions":[],"cost_microdollars":null}}}}"#]],
    );
    check(
        a_team(),
        "hub",
        end("coder-3"),
        expect!["refused: agent coder-3 is not in a state for this"],
    );
    check(
        a_team(),
        "ann",
        admit("coder-3"),
        expect!["refused: only the hub itself says how its agents are"],
    );
}

#[test]
fn limits_hold_for_a_whole_tree() {
    // At most two at once.
    check(
        a_team(),
        "lead-1",
        draft("coder", "part three"),
        expect![
            "refused: lead-1 has 2 agents under way, which is the limit; await or kill one first"
        ],
    );
    // One generation below a lead.
    check(
        a_team(),
        "coder-2",
        draft("coder", "part three"),
        expect![
            "refused: you are 1 generations deep, which is the limit; do this work yourself, or report what should be drafted"
        ],
    );
    // Three in all.
    let ended = |name| {
        (
            "hub",
            Any::Agent(Command::End {
                id: id(name),
                incarnation: 1,
                outcome: Outcome::failed(Ending::Crashed, "x"),
            }),
        )
    };
    let history = [
        a_team(),
        vec![ended("coder-2"), ("lead-1", draft("coder", "three")), ("hub", admit("coder-4"))],
        vec![ended("coder-4")],
    ];
    check(
        history.concat(),
        "lead-1",
        draft("coder", "four"),
        expect![
            "refused: 3 agents have been drafted below lead-1, which is the limit; finish with what you have"
        ],
    );
    // Four turns in all.
    let turns = vec![("hub", turn("coder-2")); 4];
    check(
        [a_team(), turns].concat(),
        "hub",
        turn("lead-1"),
        expect!["refused: the 4 turns of lead-1 are used up; finish with what you have"],
    );
}

#[test]
fn killing_ends_all_below() {
    check(
        a_team(),
        "ann",
        kill("lead-1"),
        expect![[r#"
        {"agent":{"kill_asked":{"id":"lead-1","why":"killed"}}}
        {"agent":{"kill_asked":{"id":"coder-2","why":"with_parent"}}}
        {"agent":{"ended":{"id":"coder-3","outcome":{"ending":"aborted","status":"failed","summary":"it was ended before it began","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}"#]],
    );
    check(
        a_team(),
        "lead-1",
        kill("coder-3"),
        expect![[
            r#"{"agent":{"ended":{"id":"coder-3","outcome":{"ending":"aborted","status":"failed","summary":"it was ended before it began","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}"#
        ]],
    );
    // Neither another's, nor the one above, nor oneself.
    check(
        a_team(),
        "bob",
        kill("coder-2"),
        expect![[
            r#"refused: No agent with ID "coder-2" found; list_agents shows those there are"#
        ]],
    );
    check(
        a_team(),
        "coder-2",
        kill("lead-1"),
        expect![[r#"refused: No agent with ID "lead-1" found; list_agents shows those there are"#]],
    );
    check(
        [a_team(), vec![("hub", end("coder-2"))]].concat(),
        "ann",
        kill("coder-2"),
        expect!["nothing"],
    );
}

#[test]
fn time_runs_out_for_a_whole_tree() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    let (at, _) = given.state.next_timer().unwrap();
    assert_eq!(Some(at), given.state.agents.get("lead-1").unwrap().deadline);
    let cx = Context { caller: Caller::hub(), now: at, random: 1, quotas: Default::default() };
    let events = given.state.agents.decide(&Command::Expire, &cx).unwrap();
    let shown: Vec<_> = events.iter().map(|event| event.summary().text).collect();
    expect![[r#"
        agent lead-1 ends: its time is over
        agent coder-2 ends: the one above it ends
        agent coder-3 aborted (failed): it was ended before it began"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn one_that_is_cut_off_goes_on_once() {
    let cut = |incarnation| {
        (
            "hub",
            Any::Agent(Command::Interrupt {
                id: id("coder-2"),
                incarnation,
                why: "the hub ended".into(),
                blameless: false,
            }),
        )
    };
    let (who, command) = cut(1);
    check(
        a_team(),
        who,
        command,
        expect![[r#"
            {"token":{"ended":{"id":4,"principal":"coder-2","why":"replaced"}}}
            {"agent":{"interrupted":{"id":"coder-2","why":"the hub ended","blameless":false}}}"#]],
    );
    let again = vec![cut(1), ("hub", admit("coder-2"))];
    // What the first incarnation has to say comes too late.
    check(
        [a_team(), again.clone()].concat(),
        "hub",
        end("coder-2"),
        expect!["refused: agent coder-2 is not in a state for this"],
    );
    let (who, command) = cut(2);
    check(
        [a_team(), again].concat(),
        who,
        command,
        expect![[r#"
        {"token":{"ended":{"id":5,"principal":"coder-2","why":"revoked"}}}
        {"agent":{"ended":{"id":"coder-2","outcome":{"ending":"crashed","status":"failed","summary":"the hub ended","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}"#]],
    );
}

#[test]
fn a_dossier_tells_what_came_of_it_within_bounds() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    given.by("hub", end("coder-2"));
    let context =
        |state: &State| state.dossiers.after(0).next().unwrap().context(&state.agents, &state.runs);
    expect![[r#"
        ## Task History

        ### Original Request
        > Build the thing
        > and more

        ### Previous Work

        **coder** (coder-2, success)
        Summary: did it
        Changes:
        - a.rs
    "#]]
    .assert_eq(&context(&given.state));
    given.by("hub", end("lead-1"));
    for n in 4..10 {
        given.by(
            "ann",
            Any::Agent(Command::Draft(NewAgent {
                role: "coder".into(),
                prompt: "more".into(),
                dossier: Some("build-thing-more-1".into()),
                directory: None,
                default_directory: "/work".into(),
                limits: AskedLimits::default(),
            })),
        );
        let name = format!("coder-{n}");
        given.by("hub", admit(&name));
        let outcome = Outcome::failed(Ending::Completed, "x".repeat(20_000));
        given.by("hub", Any::Agent(Command::End { id: id(&name), incarnation: 1, outcome }));
    }
    let context = context(&given.state);
    assert!(context.len() <= crate::dossier::CONTEXT_BYTES_MAX, "{}", context.len());
    assert!(context.contains("earlier results are left out"), "{context}");
    assert!(context.contains("(coder-9, failed)"), "{context}");
}

/// Of a prompt of several lines, those who came later were told the first 200 characters.
#[test]
fn a_dossier_keeps_the_whole_request_within_bounds() {
    let request = |prompt: &str| {
        let mut given = Given::ann_and_bob();
        for (who, command) in a_team() {
            given.by(who, command);
        }
        let new = NewAgent {
            role: "coder".into(),
            prompt: prompt.into(),
            dossier: Some("longer".into()),
            directory: None,
            default_directory: "/work".into(),
            limits: AskedLimits::default(),
        };
        given.by("ann", Any::Agent(Command::Draft(new)));
        let dossier = given.state.dossiers.get("longer").unwrap();
        (dossier.description.to_string(), dossier.context(&given.state.agents, &given.state.runs))
    };
    let (description, context) = request("port the list\n\n## Keep\nits order");
    assert_eq!(description, "port the list");
    assert!(context.ends_with("Original Request\n> port the list\n> \n> ## Keep\n> its order\n"));
    let long = "x".repeat(3_000);
    assert!(request(&long).1.contains(&long));
    let context = request(&"line\n".repeat(10_000)).1;
    assert!(context.len() <= crate::dossier::CONTEXT_BYTES_MAX, "{}", context.len());
    assert!(context.len() > crate::dossier::REQUEST_BYTES_MAX, "{}", context.len());
}

#[test]
fn nobody_takes_the_name_of_an_agent() {
    let new = crate::testing::new_token("coder-3", 9);
    let create = Any::Token(crate::token::Command::Create { new, replace: true });
    check(
        a_team(),
        "hub",
        create,
        expect![
            "refused: the name coder-3 belongs to the hub or its operator; choose another `name`"
        ],
    );
}

#[test]
fn roles_change_only_where_they_differ() {
    let (who, same) = roles();
    check(vec![roles()], who, same, expect!["nothing"]);
    let other = vec![role("coder", SMALL), role("tester", SMALL)];
    check(
        vec![roles()],
        who,
        Any::Role(role::Command::Sync(other)),
        expect![[r#"
            {"role":{"removed":{"name":"lead"}}}
            {"role":{"defined":{"role":{"name":"tester","description":"","category":"coding","program":"goose","model":null,"grants":["full"],"limits":{"depth":2,"children":2,"total":3,"turns":4,"wall_ms":1000000,"microdollars":null,"tokens":null},"directory":null,"stall_ms":300000,"tool_stall_ms":3600000,"prompt":"You write code.","permissions":{"deny":[],"ask":[],"allow":[],"otherwise":"allow","ask_ms":0},"account":"goose","max_wait_ms":50000,"guard":{"repeats":5,"pairs":4,"errors":8},"reach":"own","is_projects":false}}}}"#]],
    );
    let (_, sync) = roles();
    check(
        vec![],
        "ann",
        sync,
        expect![
            "refused: roles are defined by files and configuration; ask the person who runs the hub"
        ],
    );
}

/// Random numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Whatever is asked in whatever order, also late and twice: nobody overspends, nobody ends twice, and no token outlives
/// its incarnation.
#[test]
fn random_histories_keep_the_leash() {
    let (mut n_ended, mut n_refused) = (0, 0);
    for seed in 1..=60 {
        let mut dice = Dice(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut given = Given::ann_and_bob();
        let (who, sync) = roles();
        given.by(who, sync);
        let mut outcomes = std::collections::BTreeMap::new();
        for step in 0_u8..200 {
            let agents: Vec<Arc<Agent>> = given.state.agents.iter().cloned().collect();
            let any = (!agents.is_empty()).then(|| agents[dice.below(agents.len())].clone());
            let running: Vec<&str> = agents
                .iter()
                .filter(|agent| agent.token.is_some())
                .map(|agent| agent.id.as_str())
                .chain(["ann", "bob"])
                .collect();
            let caller = running[dice.below(running.len())].to_owned();
            let role = ["coder", "lead"][dice.below(2)];
            // What an earlier incarnation says comes too late, and must change nothing.
            let at = any.as_ref().map(|agent| {
                let late = u32::from(dice.below(4) == 0);
                (agent.id.clone(), agent.incarnation.saturating_sub(late))
            });
            let (who, command) = match (dice.below(11), at) {
                (0 | 1, _) | (_, None) => (caller, draft(role, "work")),
                (2 | 3, Some((id, _))) => {
                    let secret = SecretHash([step; 32]);
                    (
                        "hub".into(),
                        Any::Agent(Command::Admit { id, secret, node: crate::NodeName::only() }),
                    )
                }
                (4, Some((id, incarnation))) => {
                    ("hub".into(), Any::Agent(Command::BeginTurn { id, incarnation }))
                }
                (5, Some((id, incarnation))) => {
                    let outcome = Outcome::failed(Ending::Completed, format!("{step}"));
                    ("hub".into(), Any::Agent(Command::End { id, incarnation, outcome }))
                }
                (6, Some((id, incarnation))) => {
                    let why = "gone".to_owned();
                    (
                        "hub".into(),
                        Any::Agent(Command::Interrupt { id, incarnation, why, blameless: false }),
                    )
                }
                (7, Some((id, incarnation))) => {
                    let used = Used { input: 300, microdollars: Some(30), ..Used::default() };
                    ("hub".into(), Any::Agent(Command::Spend { id, incarnation, used }))
                }
                (8, Some((id, incarnation))) => {
                    let until = Timestamp(1_000_000 * i64::from(step));
                    let (account, why) = ("goose".into(), "limit".to_owned());
                    let park = Command::Park { id, incarnation, account, until, why };
                    ("hub".into(), Any::Agent(park))
                }
                (_, Some((id, _))) => (caller, kill(id.as_str())),
            };
            n_refused += usize::from(given.decide(&who, command).is_err());
            let state = &given.state;
            for agent in state.agents.iter() {
                let Limits { depth, children, total, turns, .. } = agent.draft.limits;
                assert!(agent.n_children <= children, "seed {seed}: {agent:?}");
                assert!(agent.n_below <= total, "seed {seed}: {agent:?}");
                assert!(agent.n_turns <= turns, "seed {seed}: {agent:?}");
                assert!(
                    agent.used.microdollars <= agent.spent.microdollars,
                    "seed {seed}: {agent:?}"
                );
                assert!(depth <= 2 && agent.draft.depth <= 2, "seed {seed}: {agent:?}");
                let token = state.tokens.by_principal(&agent.id.principal()).map(|token| token.id);
                assert_eq!(token, agent.token, "seed {seed}: {agent:?}");
                assert_eq!(
                    agent.token.is_some(),
                    matches!(agent.phase, Phase::Running | Phase::Ending)
                );
                if let Some(outcome) = &agent.outcome {
                    let first = outcomes.entry(agent.id.clone()).or_insert_with(|| outcome.clone());
                    assert_eq!(first, outcome, "seed {seed}: it ended twice");
                }
            }
        }
        n_ended += outcomes.len();
        given.compacted();
        let restored = State::from_snapshot(&given.state.to_snapshot());
        assert_eq!(restored.as_ref(), Some(&given.state));
    }
    assert!(n_ended > 500 && n_refused > 500, "{n_ended} ended, {n_refused} refused");
}

/// `coder-2` has ended, and one that it drafted has not.
fn a_grandchild() -> Vec<(&'static str, Any)> {
    let roles = vec![role("lead", SMALL), role("coder", SMALL)];
    vec![
        ("hub", Any::Role(role::Command::Sync(roles))),
        ("ann", draft("lead", "Build it")),
        ("hub", admit("lead-1")),
        ("lead-1", draft("coder", "part")),
        ("hub", admit("coder-2")),
        ("coder-2", draft("coder", "part of a part")),
        ("hub", admit("coder-3")),
        ("hub", end("coder-2")),
    ]
}

/// Nobody reads the results of those below one that does not complete its work.
#[test]
fn those_below_end_with_one_that_does_not_complete() {
    let end = |ending: Ending| {
        let outcome = Outcome { status: Status::Partial, ..Outcome::failed(ending, "so") };
        Any::Agent(Command::End { id: id("lead-1"), incarnation: 1, outcome })
    };
    for ending in [Ending::Aborted, Ending::Crashed, Ending::TimedOut, Ending::Completed] {
        let mut given = Given::ann_and_bob();
        for (who, command) in a_team() {
            given.by(who, command);
        }
        given.by("hub", end(ending));
        let phase = |id: &str| given.state.agents.get(id).map(|agent| agent.phase);
        let (running, queued) = (phase("coder-2"), phase("coder-3"));
        let expected = match ending {
            Ending::Completed => (Some(Phase::Running), Some(Phase::Queued)),
            Ending::Aborted | Ending::Crashed | Ending::TimedOut => {
                (Some(Phase::Ending), Some(Phase::Ended))
            }
        };
        assert_eq!((running, queued), expected, "{ending:?}");
    }
}

#[test]
fn killing_reaches_below_one_that_has_ended() {
    check(
        a_grandchild(),
        "ann",
        kill("lead-1"),
        expect![[r#"
        {"agent":{"kill_asked":{"id":"lead-1","why":"killed"}}}
        {"agent":{"kill_asked":{"id":"coder-3","why":"with_parent"}}}"#]],
    );
}

#[test]
fn one_that_is_being_ended_drafts_no_more() {
    let history = [a_team(), vec![("ann", kill("lead-1"))]].concat();
    check(
        history,
        "lead-1",
        draft("coder", "more"),
        expect!["refused: you are being ended; nothing more can be drafted"],
    );
}

#[test]
fn those_that_are_due_at_once_end_once() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    let cx = Context {
        caller: Caller::hub(),
        now: Timestamp(i64::MAX),
        random: 1,
        quotas: Default::default(),
    };
    let events = given.state.agents.decide(&Command::Expire, &cx).unwrap();
    let shown: Vec<_> = events.iter().map(|event| event.agent().to_string()).collect();
    assert_eq!(shown, ["lead-1", "coder-2", "coder-3"]);
}

fn spend(name: &str, microdollars: Option<u64>) -> (&'static str, Any) {
    let used = Used { input: 100, output: 20, microdollars, ..Used::default() };
    ("hub", Any::Agent(Command::Spend { id: id(name), incarnation: 1, used }))
}

/// Like `a_team`, with a dollar for all of it.
fn a_team_with_a_dollar() -> Vec<(&'static str, Any)> {
    let limits = Limits { microdollars: Some(1_000_000), ..SMALL };
    let roles = vec![role("coder", SMALL), role("lead", Limits { depth: 1, ..limits })];
    let sync = ("hub", Any::Role(role::Command::Sync(roles)));
    [vec![sync], a_team()[1..].to_vec()].concat()
}

#[test]
fn money_is_spent_by_a_whole_tree() {
    // What the one above has left is all that one below gets.
    check(
        [a_team_with_a_dollar()[..3].to_vec(), vec![spend("lead-1", Some(400_000))]].concat(),
        "lead-1",
        draft("coder", "part"),
        expect![[
            r#"{"agent":{"drafted":{"id":"coder-2","number":2,"draft":{"role":"coder","dossier":"build-thing-more-1","prompt":"part","directory":"/work","parent":"lead-1","depth":1,"limits":{"depth":0,"children":2,"total":2,"turns":4,"wall_ms":998000,"microdollars":600000,"tokens":null},"team":null,"run":null,"within":"default"}}}}"#
        ]],
    );
    let spent = [a_team_with_a_dollar(), vec![spend("coder-2", Some(1_000_001))]].concat();
    check(
        spent.clone(),
        "hub",
        turn("lead-1"),
        expect!["refused: the $1.00 of lead-1 are spent; finish with what you have"],
    );
    check(
        [spent, vec![("hub", end("coder-2"))]].concat(),
        "lead-1",
        draft("coder", "part three"),
        expect!["refused: the $1.00 of lead-1 are spent; finish with what you have"],
    );
    // What has no price is counted, but not as money.
    let mut given = Given::ann_and_bob();
    for (who, command) in [a_team_with_a_dollar(), vec![spend("coder-2", None)]].concat() {
        given.by(who, command);
    }
    let lead = given.state.agents.get("lead-1").unwrap();
    assert_eq!((lead.spent.tokens(), lead.spent.n_unpriced, lead.spent.microdollars), (120, 1, 0));
    assert_eq!((lead.used.tokens(), lead.used.n_unpriced), (0, 0));
}

#[test]
fn a_usage_limit_parks_and_the_time_does_not_count() {
    let park = |until| {
        let (account, why) = ("goose".into(), "usage limit".to_owned());
        let park = Command::Park {
            id: id("coder-2"),
            incarnation: 1,
            account,
            until: Timestamp(until),
            why,
        };
        Any::Agent(park)
    };
    check(
        a_team(),
        "hub",
        park(5_000_000),
        expect![[r#"
            {"token":{"ended":{"id":4,"principal":"coder-2","why":"replaced"}}}
            {"agent":{"parked":{"id":"coder-2","account":"goose","until":5000000,"why":"usage limit"}}}"#]],
    );
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    let deadline = |given: &Given, name| given.state.agents.get(name).unwrap().deadline.unwrap().0;
    let before = (deadline(&given, "lead-1"), deadline(&given, "coder-2"));
    let now = 1_000 * 9;
    given.by("hub", park(5_000_000));
    let after = (deadline(&given, "lead-1"), deadline(&given, "coder-2"));
    // That of those above moves at once, its own when it goes on.
    assert_eq!((after.0 - before.0, after.1 - before.1), (5_000_000 - now, 0));
    let parked = given.state.agents.get("coder-2").unwrap();
    assert_eq!(
        (parked.phase, parked.parked.as_ref().map(|at| at.until)),
        (Phase::Queued, Some(Timestamp(5_000_000)))
    );
    assert_eq!(parked.n_interruptions, 0, "it is nobody's fault");
    let account = given.state.agents.account_parked_until("goose");
    assert_eq!(account, Some(Timestamp(5_000_000)));
    // Who lets it go on earlier gives back what was not waited.
    let eve =
        crate::token::NewToken { kind: Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    given.by("hub", Any::Token(crate::token::Command::Create { new: eve, replace: false }));
    let resume = |prompt: Option<&str>| {
        Any::Agent(Command::Resume { which: "coder-2".into(), prompt: prompt.map(str::to_owned) })
    };
    let refused = given.decide("eve", resume(Some("more"))).unwrap_err().to_string();
    assert!(refused.contains("leave the prompt out"), "{refused}");
    given.by("eve", resume(None));
    assert_eq!(deadline(&given, "lead-1"), before.0 + 3_000);
    assert_eq!(given.state.agents.account_parked_until("goose"), None);
    given.by("hub", admit("coder-2"));
    // It gets the time that it waited, as far as the one above has it.
    assert_eq!(deadline(&given, "coder-2"), deadline(&given, "lead-1"));
}

#[test]
fn a_person_gives_an_agent_and_takes_it_back() {
    let eve =
        crate::token::NewToken { kind: Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    let create = Any::Token(crate::token::Command::Create { new: eve, replace: false });
    let adopt = |session: Option<&str>| {
        Any::Agent(Command::Adopt(Adoption {
            role: "lead".into(),
            directory: "/work".into(),
            session: session.map(str::to_owned),
            dossier: None,
            secret: SecretHash([77; 32]),
        }))
    };
    let resume =
        Any::Agent(Command::Resume { which: "lead-1".into(), prompt: Some("go on".into()) });
    let start = vec![roles(), ("hub", create)];
    check(
        start.clone(),
        "eve",
        adopt(Some("abc")),
        expect![[r#"
            {"token":{"created":{"id":4,"token":{"principal":"lead-1","kind":"agent","secret_hash":"4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d","grants":["full"],"run":"default"}}}}
            {"dossier":{"opened":{"name":"adopted-1","description":"(a person runs it)"}}}
            {"agent":{"adopted":{"id":"lead-1","number":1,"draft":{"role":"lead","dossier":"adopted-1","prompt":"(a person runs it)","directory":"/work","parent":null,"depth":0,"limits":{"depth":1,"children":2,"total":3,"turns":4,"wall_ms":1000000,"microdollars":null,"tokens":null},"team":null,"run":null,"within":null},"token":4,"session":"abc"}}}"#]],
    );
    check(
        start.clone(),
        "ann",
        adopt(None),
        expect!["refused: only a person can say that an agent is theirs"],
    );
    let adopted = [start.clone(), vec![("eve", adopt(Some("abc")))]].concat();
    // It drafts like any other.
    let drafted = [adopted.clone(), vec![("lead-1", draft("coder", "part"))]].concat();
    check(
        drafted,
        "eve",
        kill("lead-1"),
        expect![[r#"
            {"token":{"ended":{"id":4,"principal":"lead-1","why":"revoked"}}}
            {"agent":{"ended":{"id":"lead-1","outcome":{"ending":"aborted","status":"failed","summary":"it was let go","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}
            {"agent":{"ended":{"id":"coder-2","outcome":{"ending":"aborted","status":"failed","summary":"it was ended before it began","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}"#]],
    );
    check(
        adopted.clone(),
        "eve",
        resume.clone(),
        expect![[r#"
            {"token":{"ended":{"id":4,"principal":"lead-1","why":"replaced"}}}
            {"agent":{"resumed":{"id":"lead-1","prompt":"go on"}}}"#]],
    );
    check(
        [start, vec![("eve", adopt(None))]].concat(),
        "eve",
        resume.clone(),
        expect![
            "refused: lead-1 is neither parked nor adopted with a session that its program can go on with"
        ],
    );
    check(
        [adopted, vec![("eve", resume)]].concat(),
        "hub",
        admit("lead-1"),
        expect![[r#"
            {"token":{"created":{"id":5,"token":{"principal":"lead-1","kind":"agent","secret_hash":"3737373737373737373737373737373737373737373737373737373737373737","grants":["full"],"run":"default"}}}}
            {"agent":{"admitted":{"id":"lead-1","token":5,"node":"local"}}}"#]],
    );
}

#[test]
fn the_time_of_one_above_that_has_ended_is_still_the_time_of_those_below() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    given.by("hub", end("lead-1"));
    given.by("hub", admit("coder-3"));
    let deadline = |id: &str| given.state.agents.get(id).unwrap().deadline.unwrap();
    assert_eq!(deadline("coder-3"), deadline("lead-1"));
}

/// One of the same account that was never parked itself, and whose parked fellow was killed.
#[test]
fn an_account_can_be_let_go_on_by_any_that_waits_for_it() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    let eve =
        crate::token::NewToken { kind: Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    given.by("hub", Any::Token(crate::token::Command::Create { new: eve, replace: false }));
    let (account, why, until) = ("goose".into(), "limit".to_owned(), Timestamp(9_000_000));
    let park = Command::Park { id: id("coder-2"), incarnation: 1, account, until, why };
    given.by("hub", Any::Agent(park));
    given.by("eve", kill("coder-2"));
    let resume = Command::Resume { which: "coder-3".into(), prompt: None };
    given.by("eve", Any::Agent(resume));
    assert_eq!(given.state.agents.account_parked_until("goose"), None);
}

#[test]
fn a_hub_that_is_stopped_in_good_order_costs_nobody_its_second_chance() {
    let mut given = Given::ann_and_bob();
    for (who, command) in a_team() {
        given.by(who, command);
    }
    for incarnation in 1..5 {
        let (id, why) = (id("coder-2"), "the hub was stopped".to_owned());
        given.by("hub", Any::Agent(Command::Interrupt { id, incarnation, why, blameless: true }));
        given.by("hub", admit("coder-2"));
    }
    assert_eq!(given.state.agents.get("coder-2").unwrap().phase, Phase::Running);
}

#[test]
fn each_process_is_recorded_with_its_isolation_unless_that_is_known() {
    let begin = |incarnation, isolation| {
        let (session, program) = ("s".to_owned(), None);
        Any::Agent(Command::Begin { id: id("lead-1"), incarnation, session, program, isolation })
    };
    let cut_off = Any::Agent(Command::Interrupt {
        id: id("lead-1"),
        incarnation: 1,
        why: "the hub ended".into(),
        blameless: true,
    });
    let mut given = a_team()[..3].to_vec();
    given.push(("hub", begin(1, Some(Isolation::Namespaces))));
    check(given.clone(), "hub", begin(1, Some(Isolation::Namespaces)), expect!["nothing"]);
    given.extend([("hub", cut_off), ("hub", admit("lead-1"))]);
    check(
        given.clone(),
        "hub",
        begin(2, Some(Isolation::Subreaper)),
        expect![[r#"{"agent":{"begun":{"id":"lead-1","session":"s","isolation":"subreaper"}}}"#]],
    );
    given.push(("hub", begin(2, Some(Isolation::Subreaper))));
    let mut history = Given::ann_and_bob();
    for (who, command) in given {
        history.by(who, command);
    }
    let lead = history.state.agents.get("lead-1").unwrap();
    assert_eq!(lead.isolation, Some(Isolation::Subreaper));
    // What an older hub recorded says nothing of it.
    let old = r#"{"begun":{"id":"lead-1","session":"s"}}"#;
    let old: Event = serde_json::from_str(old).unwrap();
    assert!(matches!(old, Event::Begun { isolation: None, .. }));
}

#[test]
fn an_agent_whose_program_cannot_be_started_has_ended() {
    let (id, why) = (id("coder-2"), "no such program".to_owned());
    let failed = Any::Agent(Command::NotStarted { id: id.clone(), incarnation: 1, why });
    check(
        a_team(),
        "hub",
        failed,
        expect![[r#"
        {"token":{"ended":{"id":4,"principal":"coder-2","why":"revoked"}}}
        {"agent":{"ended":{"id":"coder-2","outcome":{"ending":"crashed","status":"failed","summary":"no such program","changes":[],"issues":[],"questions":[],"cost_microdollars":null}}}}"#]],
    );
    let lost = Any::Agent(Command::Lose { id, incarnation: 1, why: "the hub ended".into() });
    check(
        a_team(),
        "hub",
        lost,
        expect![[r#"
        {"token":{"ended":{"id":4,"principal":"coder-2","why":"replaced"}}}
        {"agent":{"interrupted":{"id":"coder-2","why":"the hub ended","blameless":false}}}"#]],
    );
}

#[test]
fn an_agent_is_of_the_node_that_admitted_it() {
    let mut given = Given::ann_and_bob();
    a_team().into_iter().for_each(|(who, command)| drop(given.by(who, command)));
    let (here, there) = (crate::NodeName::only(), crate::NodeName::parse("there").unwrap());
    let secret = SecretHash([77; 32]);
    given.by("hub", Any::Agent(Command::Admit { id: id("coder-3"), secret, node: there.clone() }));
    let on = |given: &Given, node| {
        let agents = given.state.agents.active_on(node);
        agents.map(|agent| agent.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(on(&given, &here), ["coder-2", "lead-1"]);
    assert_eq!(on(&given, &there), ["coder-3"]);
    // An older hub recorded no node, and was the only one.
    let old = r#"{"admitted":{"id":"lead-1","token":3}}"#;
    let events = vec![crate::Event::Agent(serde_json::from_str(old).unwrap())];
    let by = PrincipalName::hub();
    given.state.apply(&Record { at: Timestamp(1), by, token: None, key: None, events });
    assert_eq!(on(&given, &there), ["coder-3", "lead-1"]);
}
