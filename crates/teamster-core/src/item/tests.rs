use expect_test::expect;

use super::*;
use crate::testing::{Given, check, new_token};
use crate::{Command as AnyCommand, RunName, iteration, note, run, token};

fn item(command: Command) -> AnyCommand {
    in_run(run::Command::Item(command))
}

fn in_run(what: run::Command) -> AnyCommand {
    AnyCommand::Run { run: RunName::default_run(), what }
}

fn add(contents: &[&str]) -> AnyCommand {
    let new = |content: &&str| NewItem { content: (*content).into(), status: None, priority: None };
    item(Command::Add(contents.iter().map(new).collect()))
}

fn add_one(content: &str, status: Option<Status>, priority: Option<i64>) -> AnyCommand {
    let priority = priority.map(|n| Priority::new(n).unwrap());
    item(Command::Add(vec![NewItem { content: content.into(), status, priority }]))
}

fn set(id: &str, status: Status) -> AnyCommand {
    item(Command::Update {
        item: id.into(),
        status: Some(status),
        priority: None,
        depends_on: None,
    })
}

fn depend(id: &str, on: &str) -> AnyCommand {
    item(Command::Update {
        item: id.into(),
        status: None,
        priority: None,
        depends_on: Some(on.into()),
    })
}

#[test]
fn items_are_counted_and_priority_zero_is_kept() {
    check(
        vec![("ann", add(&["write docs"]))],
        "bob",
        add_one("ship it", None, Some(0)),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"added":{"id":2,"content":"ship it","status":"remaining","priority":0}}}}}"#
        ]],
    );
}

#[test]
fn the_same_content_again_names_the_item_that_has_it() {
    check(
        vec![("ann", add(&["a", "Write docs"]))],
        "bob",
        add(&["new", "  write DOCS "]),
        expect![[
            r#"refused: task already exists with ID TAS-2: "Write docs"; update that one instead"#
        ]],
    );
}

#[test]
fn a_batch_is_added_whole_or_not_at_all() {
    check(
        vec![],
        "ann",
        add(&["a", "b", "A"]),
        expect![[
            r#"refused: duplicate task in batch: "A"; nothing was added, so remove one and call again"#
        ]],
    );
    check(
        vec![],
        "ann",
        add(&["a", " "]),
        expect!["refused: tasks[1].content is empty; give it some text"],
    );
    check(
        vec![],
        "ann",
        add(&["a", "b\0c"]),
        expect![[
            r#"refused: tasks[1].content contains a control character (\u{0}); only line breaks and tabs are allowed"#
        ]],
    );
    check(
        vec![],
        "ann",
        add(&[]),
        expect!["refused: no tasks given; pass at least one in 'tasks'"],
    );
    check(
        vec![],
        "ann",
        add(&["x".repeat(20_000).as_str()]),
        expect![
            "refused: tasks[0].content is 20000 bytes long; the limit is 16384, so put long text into a file and name it"
        ],
    );
}

#[test]
fn a_worker_has_one_item_in_progress_per_iteration() {
    let history =
        || vec![("ann", add(&["a", "b", "c"])), ("ann", set("TAS-1", Status::InProgress))];
    let summary = || {
        in_run(run::Command::Iteration(iteration::Command::Summarise { text: "half done".into() }))
    };
    check(
        history(),
        "ann",
        set("TAS-2", Status::InProgress),
        expect![
            "refused: you have TAS-1 in progress already; finish it, or set it to blocked or remaining, before you start another"
        ],
    );
    check(
        history(),
        "bob",
        set("TAS-2", Status::InProgress),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"updated":{"id":2,"status":"in_progress"}}}}}"#
        ]],
    );
    let next_iteration = history().into_iter().chain([("ann", summary())]).collect();
    check(
        next_iteration,
        "ann",
        set("TAS-2", Status::InProgress),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"updated":{"id":2,"status":"in_progress"}}}}}"#
        ]],
    );
}

#[test]
fn each_claim_gets_the_most_urgent_item_that_waits_for_nothing() {
    let mut given = Given::ann_and_bob();
    given.by("ann", add(&["low", "needs low", "other"]));
    given.by(
        "ann",
        item(Command::Update {
            item: "TAS-2".into(),
            status: None,
            priority: Some(Priority(0)),
            depends_on: Some("TAS-1".into()),
        }),
    );
    let claimed = |given: &mut Given, who| {
        given.by(who, item(Command::Claim)).first().map(|event| event.summary().text)
    };
    assert_eq!(claimed(&mut given, "ann").as_deref(), Some("TAS-1 claimed"));
    assert_eq!(claimed(&mut given, "ann").as_deref(), Some("TAS-3 claimed"));
    assert_eq!(claimed(&mut given, "bob"), None);
    given.by("bob", set("TAS-1", Status::Cancelled));
    assert_eq!(claimed(&mut given, "bob").as_deref(), Some("TAS-2 claimed"));
}

#[test]
fn a_dependency_blocks_until_it_is_completed_or_cancelled() {
    let next = |status| {
        let mut given = Given::ann_and_bob();
        given.by("ann", add(&["a", "b"]));
        given.by("ann", depend("TAS-1", "TAS-2"));
        given.by("ann", set("TAS-2", status));
        let run = given.state.runs.get(&RunName::default_run()).clone();
        run.items.next_ready().map(|item| item.id.to_string())
    };
    assert_eq!(next(Status::Completed).as_deref(), Some("TAS-1"));
    assert_eq!(next(Status::Cancelled).as_deref(), Some("TAS-1"));
    assert_eq!(next(Status::Blocked), None);
    assert_eq!(next(Status::InProgress), None);
}

#[test]
fn dependencies_form_no_circle() {
    let history = || {
        vec![
            ("ann", add(&["a", "b", "c"])),
            ("ann", depend("TAS-1", "TAS-2")),
            ("ann", depend("TAS-2", "TAS-3")),
        ]
    };
    check(
        history(),
        "ann",
        depend("TAS-3", "TAS-1"),
        expect![
            "refused: TAS-3 cannot depend on TAS-1: TAS-1 depends on TAS-3 already, directly or through others"
        ],
    );
    check(
        history(),
        "ann",
        depend("TAS-3", "tas-3"),
        expect!["refused: task cannot depend on itself"],
    );
    check(
        history(),
        "ann",
        depend("TAS-3", "TAS-9"),
        expect!["refused: task not found: TAS-9; task-list shows the ids"],
    );
}

#[test]
fn an_update_needs_an_item_and_something_to_change() {
    let nothing = |id: &str| {
        item(Command::Update {
            item: id.into(),
            status: None,
            priority: None,
            depends_on: Some("".into()),
        })
    };
    check(
        vec![("ann", add(&["a"]))],
        "ann",
        nothing("TAS-1"),
        expect![
            "refused: no valid update parameters provided; give status, priority or depends_on"
        ],
    );
    check(
        vec![("ann", add(&["a"]))],
        "ann",
        set("TAS", Status::Blocked),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"updated":{"id":1,"status":"blocked"}}}}}"#
        ]],
    );
    check(
        vec![("ann", add(&["a", "b"]))],
        "ann",
        set("TAS", Status::Blocked),
        expect![
            "refused: ambiguous task ID prefix: TAS (matches TAS-1, TAS-2 and more); give the whole id"
        ],
    );
    check(
        vec![("ann", add(&["a"]))],
        "ann",
        set("T", Status::Blocked),
        expect!["refused: task not found: T; task-list shows the ids"],
    );
}

#[test]
fn what_a_holder_had_in_progress_returns_when_its_token_ends() {
    check(
        vec![
            ("ann", add(&["a", "b", "c"])),
            ("bob", item(Command::Claim)),
            ("bob", item(Command::Claim)),
            ("bob", set("TAS-1", Status::Completed)),
        ],
        "hub",
        AnyCommand::Token(token::Command::Revoke { which: "bob".into() }),
        expect![[r#"
            {"run":{"run":"default","what":{"item":{"released":{"id":2}}}}}
            {"token":{"ended":{"id":2,"principal":"bob","why":"revoked"}}}"#]],
    );
}

#[test]
fn a_token_that_ended_decides_nothing() {
    let mut given = Given::ann_and_bob();
    let bob = given.caller("bob");
    given.by("hub", AnyCommand::Token(token::Command::Revoke { which: "TOK-2".into() }));
    let cx = Context { caller: bob, now: crate::Timestamp(9), random: 1 };
    let refused = given.state.decide(&add(&["a"]), None, &cx).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this token has ended; ask the operator for a new one (`teamster token create`)"
    );
}

#[test]
fn tokens_are_made_by_operators_and_expire_by_themselves() {
    let create = |name: &str| {
        AnyCommand::Token(token::Command::Create { new: new_token(name, 9), replace: false })
    };
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
            "refused: bob has a live token already (TOK-2); choose another --name, or --replace to end the old one"
        ],
    );
    check(
        vec![],
        "hub",
        create("hub"),
        expect!["refused: the name hub is the hub's own; choose another --name"],
    );
    let short =
        token::NewToken { expires_at: Some(crate::Timestamp(4_000)), ..new_token("eve", 9) };
    let short = || AnyCommand::Token(token::Command::Create { new: short.clone(), replace: false });
    check(
        vec![("hub", short())],
        "hub",
        AnyCommand::Token(token::Command::Expire),
        expect![[r#"{"token":{"ended":{"id":3,"principal":"eve","why":"expired"}}}"#]],
    );
    check(vec![], "hub", AnyCommand::Token(token::Command::Expire), expect!["nothing"]);
}

#[test]
fn a_run_is_complete_when_nothing_is_unfinished_and_opens_again_when_something_is() {
    let complete = || in_run(run::Command::Complete);
    check(vec![], "ann", complete(), expect![[r#"{"run":{"run":"default","what":"completed"}}"#]]);
    check(
        vec![("ann", add(&["a", "b"])), ("ann", set("TAS-1", Status::Blocked))],
        "ann",
        complete(),
        expect![
            "refused: cannot complete session: 1 task(s) not in terminal state (TAS-2); complete, block or cancel them first"
        ],
    );
    check(vec![("ann", complete())], "bob", complete(), expect!["nothing"]);
    check(
        vec![("ann", complete())],
        "bob",
        add(&["a"]),
        expect![[r#"
            {"run":{"run":"default","what":"reopened"}}
            {"run":{"run":"default","what":{"item":{"added":{"id":1,"content":"a","status":"remaining","priority":2}}}}}"#]],
    );
}

#[test]
fn a_summary_ends_its_iteration_and_names_what_was_worked_on() {
    let summary = |text: &str| {
        in_run(run::Command::Iteration(iteration::Command::Summarise { text: text.into() }))
    };
    check(
        vec![("ann", add(&["a", "b"])), ("ann", summary("planned")), ("bob", item(Command::Claim))],
        "bob",
        summary("took a"),
        expect![[
            r#"{"run":{"run":"default","what":{"iteration":{"summarised":{"iteration":2,"text":"took a","items_worked":[1]}}}}}"#
        ]],
    );
    check(
        vec![("ann", summary("x"))],
        "ann",
        summary("x "),
        expect![
            "refused: Iteration #1 already has a summary recorded, and nothing has happened since; go on with task-next"
        ],
    );
    check(vec![], "ann", summary(" "), expect!["refused: summary is empty; give it some text"]);
}

#[test]
fn a_note_again_names_the_note_that_is_there() {
    let tip = |text: &str| {
        in_run(run::Command::Note(note::Command::Add(vec![note::NewNote {
            content: text.into(),
            kind: note::Kind::Tip,
        }])))
    };
    check(
        vec![("ann", tip("use make"))],
        "bob",
        tip("use make"),
        expect!["refused: note already exists with ID NOT-1 (tip); nothing was added"],
    );
    check(
        vec![("ann", tip("use make"))],
        "bob",
        tip("Use make"),
        expect![[
            r#"{"run":{"run":"default","what":{"note":{"added":{"id":2,"kind":"tip","content":"Use make"}}}}}"#
        ]],
    );
}
