use expect_test::expect;

use super::*;
use crate::run;
use crate::testing::{check, in_run};

#[test]
fn a_note_again_names_the_note_that_is_there() {
    let tip = |text: &str| {
        in_run(run::Command::Note(Command::Add(vec![NewNote {
            content: text.into(),
            kind: Kind::Tip,
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
