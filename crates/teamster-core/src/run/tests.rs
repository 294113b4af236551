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
