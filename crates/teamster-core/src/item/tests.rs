use expect_test::expect;

use super::*;
use crate::testing::{Given, add, add_one, check, depend, in_run, item, set};
use crate::{RunName, iteration, run};

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

/// Given an item for a branch that an agent says to have merged so often.
fn merge_item(n_returns: u32) -> Vec<(&'static str, crate::Command)> {
    let new = NewItem { content: "bring it in".into(), status: None, priority: None };
    let add = Command::AddMerge { new, branch: "b".into(), commit: "c".into() };
    let mut history = vec![("hub", item(add))];
    for _ in 0..n_returns {
        history.push(("ann", set("TAS-1", Status::Completed)));
        history.push(("hub", item(Command::Return { item: ItemId(1) })));
    }
    history
}

#[test]
fn an_item_comes_back_until_its_branch_is_merged_and_then_waits_for_a_person() {
    let back = || item(Command::Return { item: ItemId(1) });
    let mut history = merge_item(0);
    check(history.clone(), "hub", back(), expect!["nothing"]);
    history.push(("ann", set("TAS-1", Status::Completed)));
    check(
        history.clone(),
        "ann",
        back(),
        expect!["refused: only the hub itself says how its runs are"],
    );
    check(
        history.clone(),
        "hub",
        back(),
        expect![[r#"{"run":{"run":"default","what":{"item":{"returned":{"id":1}}}}}"#]],
    );
    history.push(("ann", in_run(run::Command::Complete)));
    check(
        history,
        "hub",
        back(),
        expect![[r#"
            {"run":{"run":"default","what":"reopened"}}
            {"run":{"run":"default","what":{"item":{"returned":{"id":1}}}}}"#]],
    );
    let mut history = merge_item(RETURNS_MAX);
    history.push(("ann", set("TAS-1", Status::Completed)));
    check(
        history,
        "hub",
        back(),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"updated":{"id":1,"status":"blocked"}}}}}"#
        ]],
    );
}

#[test]
fn what_no_branch_belongs_to_does_not_come_back() {
    let history = vec![("ann", add(&["a"])), ("ann", set("TAS-1", Status::Completed))];
    check(history, "hub", item(Command::Return { item: ItemId(1) }), expect!["nothing"]);
}
