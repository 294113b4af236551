use expect_test::expect;

use super::*;
use crate::testing::{add, check, in_run, item};
use crate::{item, run};

#[test]
fn a_summary_ends_its_iteration_and_names_what_was_worked_on() {
    let summary =
        |text: &str| in_run(run::Command::Iteration(Command::Summarise { text: text.into() }));
    check(
        vec![
            ("ann", add(&["a", "b"])),
            ("ann", summary("planned")),
            ("bob", item(item::Command::Claim)),
        ],
        "bob",
        summary("took a"),
        expect![[
            r#"{"run":{"run":"default","what":{"iteration":{"summarised":{"iteration":2,"text":"took a","items_worked":[1]}}}}}"#
        ]],
    );
    // What is still under way was worked on too, though nobody touched it since.
    check(
        vec![
            ("ann", add(&["a", "b"])),
            ("bob", item(item::Command::Claim)),
            ("bob", summary("half of a")),
        ],
        "bob",
        summary("more of a"),
        expect![[
            r#"{"run":{"run":"default","what":{"iteration":{"summarised":{"iteration":2,"text":"more of a","items_worked":[1]}}}}}"#
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
