use std::sync::Arc;

use super::*;
use crate::agent::tests::role;
use crate::drive::tests::{World, request, resume};
use crate::drive::{Command, Why};
use crate::role::Limits;
use crate::run;
use crate::spending::Spent;
use crate::{Command as Any, RunName};

/// A request that names nothing but the spec.
fn bare() -> Request {
    Request { behaviour: None, workers: None, commits: None, ..request(1) }
}

/// A run that ended after `n_iterations` and after it had cost `microdollars`, on these terms.
fn ended(request: Request, n_iterations: u32, microdollars: u64) -> Run {
    let mut world = World::begin(request);
    world.plan();
    world.drive("hub", Command::End { why: Why::Failed { says: "so".into() } }).unwrap();
    let mut run = world.run().clone();
    let drive = run.drive.as_mut().unwrap();
    drive.n_iterations = n_iterations;
    drive.spent = Spent { microdollars, ..Spent::default() };
    run
}

fn resumed(run: &Run, request: Request) -> Result<Terms, Refusal> {
    Request { resumes: true, ..request }.terms(run)
}

#[test]
fn a_resumed_run_keeps_the_terms_that_the_request_does_not_name() {
    let first = Request {
        check: Some(vec!["make".into()]),
        template: Some("t".into()),
        plan_template: Some("p".into()),
        extra: Some("e".into()),
        ..request(3)
    };
    let run = ended(first.clone(), 0, 0);
    let before = first.terms(&Run::default()).unwrap();
    assert_eq!(resumed(&run, bare()), Ok(before.clone()));
    let other = Request {
        workers: Some(1),
        commits: Some(false),
        check: Some(Vec::new()),
        template: Some("T".into()),
        extra: Some("".into()),
        directory: "/elsewhere".into(),
        ..bare()
    };
    let wanted = Terms {
        workers: 1,
        commits: false,
        check: Vec::new(),
        template: Some("T".into()),
        extra: "".into(),
        directory: "/elsewhere".into(),
        repository: None,
        ..before
    };
    assert_eq!(resumed(&run, other), Ok(wanted));
    // A run that begins has no earlier terms, whatever was there.
    let new = Request { behaviour: request(1).behaviour, ..bare() }.terms(&run).unwrap();
    assert_eq!((new.workers, new.commits, new.template, &*new.extra), (1, true, None, ""));
}

#[test]
fn a_resumed_run_has_the_iterations_and_the_money_that_are_left() {
    #[rustfmt::skip]
    let rows = [
        // limit, used, requested, left
        (Some(5), 2, None,    Some(3)),
        // A person who resumes a run without iterations left wants more of them.
        (Some(5), 5, None,    None),
        (Some(5), 6, None,    None),
        (Some(5), 2, Some(9), Some(9)),
        (None,    2, None,    None),
    ];
    for (limit, used, asked, left) in rows {
        let run = ended(Request { iterations: limit, ..request(1) }, used, 0);
        let terms = resumed(&run, Request { iterations: asked, ..bare() }).unwrap();
        assert_eq!(terms.iterations, left, "{limit:?} {used} {asked:?}");
    }
    #[rustfmt::skip]
    let rows = [
        (Some(50), 20, None,     Ok(Some(30))),
        (Some(50), 50, None,     Err(Refusal::BudgetSpent)),
        (Some(50), 60, None,     Err(Refusal::BudgetSpent)),
        (Some(50), 60, Some(70), Ok(Some(70))),
        (None,     60, None,     Ok(None)),
    ];
    for (budget, spent, asked, left) in rows {
        let run = ended(Request { microdollars: budget, ..request(1) }, 0, spent);
        let terms = resumed(&run, Request { microdollars: asked, ..bare() });
        assert_eq!(terms.map(|terms| terms.microdollars), left, "{budget:?} {spent} {asked:?}");
    }
}

#[test]
fn limits_are_shown_from_the_first_beginning_on() {
    let mut world =
        World::begin(Request { iterations: Some(1), microdollars: Some(50), ..request(1) });
    world.plan();
    world.work(0, "TAS-1");
    world.drive("hub", Command::End { why: Why::IterationsUsed }).unwrap();
    let more = Request { iterations: Some(4), ..bare() };
    world.drive("eve", resume(more)).unwrap();
    let drive = world.run().drive.as_ref().unwrap();
    assert_eq!((drive.terms.iterations, drive.iterations_max()), (Some(4), Some(5)));
    assert_eq!((drive.terms.microdollars, drive.budget()), (Some(50), Some(50)));
}

#[test]
fn terms_that_cannot_be_kept_are_refused() {
    let repository = |has_commit, is_on_branch| {
        Some(Repository { root: "/project".into(), has_commit, is_on_branch })
    };
    let check = |words: &[&str]| Some(words.iter().map(|word| Arc::from(*word)).collect());
    let long: Arc<str> = "x".repeat(TEMPLATE_BYTES_MAX + 1).into();
    let nobody = Arc::new(Role { program: "".into(), ..role("coder", Limits::USUAL) });
    #[rustfmt::skip]
    let rows = [
        (Request { workers: Some(0), ..request(1) },                            Some(Refusal::Workers)),
        (Request { workers: Some(17), ..request(1) },                           Some(Refusal::Workers)),
        (Request { repository: None, ..request(1) },                            None),
        (Request { repository: None, ..request(2) },                            Some(Refusal::NoRepository)),
        (Request { repository: repository(false, true), ..request(2) },         Some(Refusal::NoRepository)),
        (Request { repository: repository(true, false), ..request(2) },         Some(Refusal::NoBranch)),
        (Request { repository: repository(true, false), ..request(1) },         None),
        (Request { commits: Some(false), ..request(2) },                        Some(Refusal::NoRepository)),
        (Request { behaviour: None, ..request(1) },                             Some(Refusal::NoProgram)),
        (Request { behaviour: Some(nobody), ..request(1) },                     Some(Refusal::NoProgram)),
        (Request { template: Some(" \n".into()), ..request(1) },                Some(Refusal::EmptyTemplate)),
        (Request { plan_template: Some("".into()), ..request(1) },              Some(Refusal::EmptyTemplate)),
        (Request { extra: Some("".into()), ..request(1) },                      None),
        (Request { extra: Some(long.clone()), ..request(1) },                   Some(Refusal::TooLong)),
        (Request { plan_template: Some(long), ..request(1) },                   Some(Refusal::TooLong)),
        (Request { check: check(&["x"; CHECK_BYTES_MAX]), ..request(1) },       None),
        (Request { check: check(&["x"; CHECK_BYTES_MAX + 1]), ..request(1) },   Some(Refusal::TooLong)),
        (Request { check: check(&["a\0b"]), ..request(1) },                     Some(Refusal::TooLong)),
        (Request { check: check(&["make", "&&", "true"]), ..request(1) },       Some(Refusal::ShellWord("&&".into()))),
        (Request { check: check(&["sh", "-c", "a && b"]), ..request(1) },       None),
    ];
    for (request, refusal) in rows {
        assert_eq!(request.terms(&Run::default()).err(), refusal, "{request:?}");
    }
}

#[test]
fn the_default_run_is_no_persons_run() {
    let mut world = World::begin(request(1));
    let what = run::Command::Drive(Command::Begin(Request { commits: Some(false), ..request(1) }));
    let refused = world.given.decide("eve", Any::Run { run: RunName::default_run(), what });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("the run `default` is the list"), "{refused}");
}

#[test]
fn two_runs_do_not_commit_in_one_repository() {
    #[rustfmt::skip]
    let rows = [
        // directory, root of the other's repository; directory and root of ours; refused
        ("/p/a", Some("/p"), "/p/b", Some("/p"),   true),
        // A repository within another is its own.
        ("/p/a", Some("/p"), "/p/b", Some("/p/b"), false),
        // An older hub recorded no root.
        ("/p/a", None,       "/p/b", Some("/p"),   true),
        ("/p/a", None,       "/p/b", Some("/p/b"), false),
        ("/p/a", Some("/p"), "/q",   None,         false),
    ];
    for (directory, root, our_directory, our_root, is_refused) in rows {
        let at = |directory: &str, root: Option<&str>| {
            let root = root.map(|root| Repository {
                root: root.into(),
                has_commit: true,
                is_on_branch: true,
            });
            Request { directory: directory.into(), repository: root, ..request(1) }
        };
        let mut world = World::begin(at(directory, root));
        let what = run::Command::Drive(Command::Begin(at(our_directory, our_root)));
        let run = RunName::parse("other").unwrap();
        let outcome = world.given.decide("eve", Any::Run { run, what });
        assert_eq!(
            outcome.is_err(),
            is_refused,
            "{directory} {root:?} {our_directory} {our_root:?}"
        );
    }
}

#[test]
fn a_person_who_names_part_of_the_agents_keeps_the_rest() {
    let named = |role: &str, program: &str, model: &str| {
        let [role, program, model] =
            [role, program, model].map(|text| (!text.is_empty()).then(|| text.to_owned()));
        WantedAgents { role, program, model }
    };
    let mut before = role("reviewer", Limits::USUAL);
    (before.program, before.model) = ("goose".into(), Some("m1".into()));
    #[rustfmt::skip]
    let rows = [
        (named("", "", "m2"),      named("reviewer", "goose", "m2")),
        (named("", "claude", ""),  named("reviewer", "claude", "")),
        (named("", "goose", ""),   named("reviewer", "goose", "m1")),
        (named("coder", "", ""),   named("coder", "", "")),
    ];
    for (wanted, expected) in rows {
        assert_eq!(wanted.clone().or_as_before(Some(&before)), expected, "{wanted:?}");
        assert_eq!(wanted.clone().or_as_before(None), wanted);
    }
    let unnamed = role(WantedAgents::NO_ROLE, Limits::USUAL);
    assert_eq!(named("", "", "m2").or_as_before(Some(&unnamed)).role, None);
}
