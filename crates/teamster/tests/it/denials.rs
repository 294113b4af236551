//! Permission rules where nobody looks on: in runs, in teams, and with programs that do not ask. Played by the scripted
//! agent; drafts are in `unattended.rs`, real programs in `driven_rules.rs`.

use crate::agents::World;
use crate::teams::Teams;
use crate::work::{Project, TEMPLATE, said};

const DENY: &str = "[permissions]\ndeny = [\"execute(*curl*)\"]\n";
const DENIED: &str = "! need execute curl example.org\n";
const NOT_PERMITTED: &str =
    "its turn ended because this was not permitted: execute curl example.org";

/// The program ends its turn at the denial, as if all were done; the iteration goes on after one more prompt.
#[test]
fn an_iteration_goes_on_after_a_denial() {
    let project = Project::start(DENY);
    let claim = "! call task-next {\"claim\":true}\n";
    project.write_aside("template.md", &TEMPLATE.replace(claim, &format!("{claim}{DENIED}")));
    let output = project.run(&["--iterations", "1"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "the iterations are used up: {said}");
    let subjects: Vec<String> = project.commits().into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(subjects, ["first", "did four"], "{said}");
    let transcript = project.world.hub.ok(&["agent", "show", "worker-2", "--json"]);
    assert_eq!(transcript.matches("That was not permitted: ").count(), 1);
}

/// An iteration that ends at a denial is none that succeeded, and a run does not go on like that for ever.
#[test]
fn a_run_whose_iterations_end_at_denials_fails() {
    let project = Project::start(DENY);
    let claim = "! call task-next {\"claim\":true}\n";
    let twice = TEMPLATE.replace(claim, &format!("{claim}{DENIED}{DENIED}"));
    project.write_aside("template.md", &twice);
    let output = project.run(&[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(NOT_PERMITTED), "{said}");
    assert_eq!(project.commits().len(), 1, "{said}");
    // What it had claimed is free again.
    let items = project.world.hub.ok(&["item", "SPEC"]);
    assert!(!items.contains("in progress") && !items.contains("completed"), "{items}");
}

#[test]
fn a_team_answers_after_a_denial_or_says_what_was_denied() {
    let teams = Teams::start(DENY);
    let answer = teams.tell("api", &format!("{DENIED}! say I did without."));
    assert_eq!(answer, "I did without.");
    let refused = teams.world.hub.fails(&["tell", "api", &format!("{DENIED}{DENIED}! say never")]);
    assert!(refused.contains(NOT_PERMITTED), "{refused}");
    // The conversation is as good as before.
    assert_eq!(teams.tell("api", "! say fine"), "fine");
}

/// Rules decide about requests; a program that does not ask does what it wants, and the user must know.
#[test]
fn a_draft_begins_with_a_warning_if_its_program_may_not_ask() {
    for (asks, rules, warns) in [
        ("no", DENY, true),
        ("unknown", DENY, true),
        ("outside-sandbox", DENY, true),
        ("yes", DENY, false),
        ("no", "", false),
    ] {
        let world = World::start(&format!("{rules}[programs.scripted]\nasks = {asks:?}\n"));
        let output = world.hub.run(&["draft", "coder", "! say done"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let warning = said.lines().find(|line| line.starts_with("warning: "));
        assert_eq!(warning.is_some_and(|line| line.contains("scripted")), warns, "{asks}: {said}");
        // It is in the log, too, for those who were not there.
        world.ended("coder-1");
        let log = world.hub.ok(&["log"]);
        let told = warning.map(|line| line.trim_start_matches("warning: ")).unwrap_or("warning");
        assert_eq!(log.contains(told), warns, "{asks}: {log}");
    }
}
