use expect_test::expect;

use super::*;
use crate::Command as AnyCommand;
use crate::testing::{Given, check};

fn create(title: &str, parent: Option<&str>) -> AnyCommand {
    AnyCommand::Yak(Command::Create(NewYak {
        title: title.into(),
        kind: Kind::Task,
        priority: Priority::IMPORTANT,
        description: "because".into(),
        parent: parent.map(Into::into),
    }))
}

fn prefix() -> (&'static str, AnyCommand) {
    ("hub", AnyCommand::Yak(Command::SetPrefix { prefix: "My Project.rs".into() }))
}

fn depend(yak: &str, on: &str) -> AnyCommand {
    AnyCommand::Yak(Command::AddDependency { yak: yak.into(), on: on.into() })
}

fn shear(yak: &str, commit: Option<&str>) -> AnyCommand {
    AnyCommand::Yak(Command::Move {
        yak: yak.into(),
        to: Status::Shorn,
        commit: commit.map(Into::into),
    })
}

const A: &str = "my-project-rs-838a";
const B: &str = "my-project-rs-5653";

#[test]
fn ids_carry_the_project_and_children_their_parent() {
    check(
        vec![prefix()],
        "ann",
        create("a", None),
        expect![[
            r#"{"yak":{"created":{"id":"my-project-rs-838a","title":"a","kind":"task","priority":2,"description":"because"}}}"#
        ]],
    );
    check(
        vec![prefix(), ("ann", create("a", None))],
        "ann",
        create("b", None),
        expect![[
            r#"{"yak":{"created":{"id":"my-project-rs-5653","title":"b","kind":"task","priority":2,"description":"because"}}}"#
        ]],
    );
    let child = |title| ("ann", create(title, Some(A)));
    check(
        vec![prefix(), ("ann", create("a", None)), child("b")],
        "ann",
        child("c").1,
        expect![[
            r#"{"yak":{"created":{"id":"my-project-rs-838a.2","title":"c","kind":"task","priority":2,"description":"because"}}}"#
        ]],
    );
    let grandchild = || create("d", Some("MY-PROJECT-RS-838A.1"));
    check(
        vec![prefix(), ("ann", create("a", None)), child("b")],
        "ann",
        grandchild(),
        expect![[
            r#"{"yak":{"created":{"id":"my-project-rs-838a.1.1","title":"d","kind":"task","priority":2,"description":"because"}}}"#
        ]],
    );
    check(
        vec![prefix()],
        "ann",
        create("b", Some("nowhere")),
        expect!["refused: yak nowhere not found; list_yaks shows the ids"],
    );
}

#[test]
fn the_same_title_again_names_the_yak_that_has_it_until_that_is_shorn() {
    let history = || vec![prefix(), ("ann", create("Fix it", None))];
    check(
        history(),
        "bob",
        create("fix IT", None),
        expect![
            "refused: yak my-project-rs-838a has this title already and is not shorn; update that one instead"
        ],
    );
    let shorn = history().into_iter().chain([("ann", shear(A, None))]).collect();
    check(
        shorn,
        "bob",
        create("fix IT", None),
        expect![[
            r#"{"yak":{"created":{"id":"my-project-rs-4d48","title":"fix IT","kind":"task","priority":2,"description":"because"}}}"#
        ]],
    );
}

#[test]
fn dependencies_form_no_circle() {
    let history = || {
        vec![
            prefix(),
            ("ann", create("a", None)),
            ("ann", create("b", None)),
            ("ann", depend(A, B)),
        ]
    };
    check(history(), "ann", depend(A, A), expect!["refused: a yak cannot depend on itself"]);
    check(
        history(),
        "ann",
        depend(B, A),
        expect![
            "refused: my-project-rs-5653 cannot depend on my-project-rs-838a: my-project-rs-838a depends on my-project-rs-5653 already, directly or through others"
        ],
    );
    check(history(), "ann", depend(A, B), expect!["nothing"]);
}

#[test]
fn a_hairy_yak_is_tangled_until_what_it_depends_on_is_shorn() {
    let mut given = Given::ann_and_bob();
    for (who, command) in
        [prefix(), ("ann", create("a", None)), ("ann", create("b", None)), ("ann", depend(A, B))]
    {
        given.by(who, command);
    }
    let tangled_by = |given: &Given| {
        let yaks = &given.state.yaks;
        yaks.tangled_by(yaks.find(A).unwrap()).map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(tangled_by(&given), [B]);
    assert_eq!(
        given.state.yaks.blocked_by(&YakId(B.into())).map(ToString::to_string).collect::<Vec<_>>(),
        [A]
    );
    given.by("ann", shear(B, None));
    assert_eq!(tangled_by(&given), Vec::<String>::new());
}

#[test]
fn shearing_records_the_commit_and_again_changes_nothing() {
    let history = || vec![prefix(), ("ann", create("a", None))];
    check(
        history(),
        "bob",
        shear(A, Some("1a2b3c4")),
        expect![[
            r#"{"yak":{"moved":{"id":"my-project-rs-838a","to":"shorn","commit":"1a2b3c4"}}}"#
        ]],
    );
    let shorn = || history().into_iter().chain([("ann", shear(A, Some("1a2b3c4")))]).collect();
    check(shorn(), "bob", shear(A, None), expect!["nothing"]);
    check(
        shorn(),
        "bob",
        shear("nothing", None),
        expect!["refused: yak nothing not found; list_yaks shows the ids"],
    );
}

#[test]
fn labels_are_a_set() {
    let label = |add: &[&str], remove: &[&str]| {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        AnyCommand::Yak(Command::Label { yak: A.into(), add: words(add), remove: words(remove) })
    };
    let history =
        || vec![prefix(), ("ann", create("a", None)), ("ann", label(&["ux", "cli"], &[]))];
    check(
        history(),
        "ann",
        label(&["cli", "docs"], &["ux"]),
        expect![[r#"{"yak":{"labelled":{"id":"my-project-rs-838a","labels":["cli","docs"]}}}"#]],
    );
    check(history(), "ann", label(&["cli"], &["web"]), expect!["nothing"]);
    check(
        history(),
        "ann",
        label(&["a\nb"], &[]),
        expect!["refused: label has a line break or tab in it; give it as one line"],
    );
}
