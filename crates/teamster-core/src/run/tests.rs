use expect_test::expect;

use super::*;
use crate::item::Status;
use crate::testing::{add, check, in_run, set};

#[test]
fn a_run_is_complete_when_nothing_is_unfinished_and_opens_again_when_something_is() {
    let complete = || in_run(Command::Complete);
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
fn a_run_is_forgotten_unless_somebody_works_on_it_and_its_name_is_free_then() {
    let forget = || in_run(Command::Forget);
    check(vec![], "hub", forget(), expect!["nothing"]);
    let done = || vec![("ann", add(&["a", "b"])), ("ann", set("TAS-1", Status::Completed))];
    check(done(), "ann", forget(), expect!["refused: only an operator may steer a run"]);
    let mut held = done();
    held.push(("bob", set("TAS-2", Status::InProgress)));
    check(
        held,
        "hub",
        forget(),
        expect![
            "refused: run default cannot be forgotten: bob is working on TAS-2; wait, or revoke its token"
        ],
    );
    check(done(), "hub", forget(), expect![[r#"{"run":{"run":"default","what":"forgotten"}}"#]]);
    let mut again = done();
    again.extend([("hub", forget()), ("ann", add(&["c"]))]);
    check(
        again.clone(),
        "ann",
        set("TAS-1", Status::Completed),
        expect![[
            r#"{"run":{"run":"default","what":{"item":{"updated":{"id":1,"status":"completed"}}}}}"#
        ]],
    );
    again.extend([("hub", forget())]);
    check(again, "hub", forget(), expect!["nothing"]);
}
