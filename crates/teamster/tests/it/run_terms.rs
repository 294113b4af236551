//! What a run may be told when it is begun, gone on with and steered, and what it must not make of that.

use std::path::Path;

use serde_json::Value;

use crate::appearing::until_exists;
use crate::run_workers::last_view;
use crate::unattended::until_said;
use crate::work::{Project, TEMPLATE, said};

#[test]
fn what_was_spent_stays_spent() {
    let project = Project::start("");
    project.write_aside("template.md", &format!("! usage 100 10 0.30\n{TEMPLATE}"));
    let output = project.run(&["--budget", "0.5", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let first = last_view(&output);
    assert_eq!((&first["resumes"], &first["resumed_at"]), (&0.into(), &Value::Null));
    let output = project.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("give it more with --budget"), "{}", said(&output));
    // What is left of it is the budget of the rest.
    let output = project.run(&["--resume", "--budget", "0.7", "--iterations", "1", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let output = project.run(&["--resume", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let view = last_view(&output);
    // All of it is counted from the first beginning on, and so are the limits.
    assert_eq!(view["budget_microdollars"], 1_300_000, "{view:#}");
    assert_eq!(view["spent"]["microdollars"], 1_500_000, "{view:#}");
    assert_eq!(view["since_resumed"]["spent"]["microdollars"], 600_000, "{view:#}");
    // An agent that was ended for its budget may have finished its item before.
    assert!(view["commits"].as_u64() >= Some(3), "{view:#}");
    assert_eq!(view["iterations"], 5, "{view:#}");
    assert_eq!((&view["begun_at"], &view["resumes"]), (&first["begun_at"], &2.into()));
    assert!(view["worked_ms"].as_u64() > first["worked_ms"].as_u64(), "{view:#}");
    let runs: Value =
        serde_json::from_str(&project.world.hub.ok(&["runs", "--json"])).expect("it is a list");
    assert_eq!((&runs[0]["iterations"], &runs[0]["spent"]), (&view["iterations"], &view["spent"]));
    assert!(project.world.hub.ok(&["runs"]).contains("5 (resumed 2x)"));
    let status: Value =
        serde_json::from_str(&project.world.hub.ok(&["status", "--json"])).expect("it is one");
    let named = status["runs"].as_array().into_iter().flatten().find(|run| run["name"] == "SPEC");
    assert_eq!(named.map(|run| &run["iteration"]), Some(&view["iteration"]), "{status:#}");
    assert_eq!(view["iteration"], 5);
}

/// Two projects have a file of the same name; neither is worked on in place of the other.
#[test]
fn a_run_of_another_project_is_not_gone_on_with_by_mistake() {
    let project = Project::start("");
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let elsewhere = project.world.home.path().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("it can be made");
    std::fs::write(elsewhere.join("SPEC.md"), "other\n").expect("it can be written");
    let run = |more: &[&str]| {
        let mut run = project.world.hub.command();
        run.current_dir(&elsewhere).args(["run", "SPEC.md", "--headless"]).args(more);
        run.output().expect("it runs")
    };
    let output = run(&[]);
    assert!(said(&output).contains(&project.aside("SPEC.md")), "{}", said(&output));
    let output = run(&["--resume"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(&*project.path.to_string_lossy()), "{}", said(&output));
    assert_eq!(project.commits().len(), 2);
}

#[test]
fn whoever_goes_on_says_only_what_is_to_be_different() {
    let project = Project::start("");
    let output = project.run(&["--iterations", "1", "--role", "reviewer", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let program = last_view(&output)["program"].clone();
    let output = project.run(&["--resume", "--model", "other", "--iterations", "1", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let view = last_view(&output);
    assert_eq!((&view["program"], &view["model"]), (&program, &Value::from("other")), "{view:#}");
    let agents = project.world.hub.ok(&["agents", "--all"]);
    assert!(agents.contains("reviewer-3"), "{agents}");
}

/// A check that nothing can pass ends the run, and what was done is kept.
#[test]
fn a_check_that_always_fails_ends_the_run() {
    let project = Project::start("");
    for (check, says) in [
        ("no-such-program at all", "not on the PATH of the hub"),
        ("cargo test && true", "no shell reads the check"),
        ("sh -c 'exit", "a quote is not closed"),
    ] {
        let output = project.run(&["--workers", "2", "--check", check]);
        assert_eq!(output.status.code(), Some(1), "{check}: {}", said(&output));
        assert!(said(&output).contains(says), "{check}: {}", said(&output));
    }
    let output =
        project.run(&["--workers", "2", "--check", "sh -c 'echo \"so it is\"; exit 9'", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let view = last_view(&output);
    assert!(view["why"].as_str().is_some_and(|why| why.contains("so it is")), "{view:#}");
    assert_eq!(view["iterations"], 6, "{view:#}");
    assert_eq!(project.commits().len(), 1);
    let branches = project.git(&["branch", "--list", "teamster/*", "--format=%(refname:short)"]);
    assert_eq!(branches.lines().count(), 6, "{branches}");
}

#[test]
fn a_check_is_cut_short_by_who_stops_the_run_at_once() {
    let project = Project::start("");
    let began = project.aside("began");
    let check = format!("sh -c 'touch {began}; sleep 1000'");
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&["--workers", "2", "--check", &check, "--json"]));
        until_exists(Path::new(&began), || project.world.hub.ok(&["log"]));
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        let output = run.join().expect("it ends");
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    });
    // What it had done is not lost.
    let branches = project.git(&["branch", "--list", "teamster/*/iteration-*"]);
    assert!(!branches.is_empty());
}

#[test]
fn items_and_notes_are_changed_as_a_whole_or_not_at_all() {
    let project = Project::start("");
    let hub = &project.world.hub;
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    hub.ok(&["item", "SPEC", "--content", "six", "--depends-on", "TAS-5"]);
    let item = |id: &str| -> Value {
        serde_json::from_str(&hub.ok(&["item", "SPEC", id, "--json"])).expect("it is JSON")
    };
    assert_eq!(item("TAS-6")["depends_on"], serde_json::json!(["TAS-5"]));
    let refused = hub.run(&["item", "SPEC", "TAS-1", "--content", "new", "--depends-on", "TAS-77"]);
    assert!(!refused.status.success());
    assert_eq!(item("TAS-1")["content"], "one");
    hub.ok(&["note", "SPEC", "NOT-1", "--content", "sour milk", "--type", "decision"]);
    let note: Value =
        serde_json::from_str(&hub.ok(&["note", "SPEC", "NOT-1", "--json"])).expect("it is JSON");
    assert_eq!((&note["content"], &note["type"]), (&"sour milk".into(), &"decision".into()));
    for args in [
        &["item", "SPCE", "--content", "x"][..],
        &["note", "SPCE", "--content", "x"],
        &["steer", "SPCE", "pause"],
    ] {
        let refused = hub.run(args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        assert!(said(&refused).contains("there is no run SPCE"), "{}", said(&refused));
    }
}

/// Each would commit what the other's agents write.
#[test]
fn another_hub_is_waited_for() {
    let project = Project::start("");
    let waits = "! run until test -e ../go; do sleep 0.05; done\n! call session-complete";
    project.write_aside("template.md", &TEMPLATE.replace("! call session-complete", waits));
    let other = crate::agents::World::start("");
    project.write_aside("other.md", &TEMPLATE.replace(".txt", ".other"));
    let (spec, template) = (project.aside("SPEC.md"), project.aside("other.md"));
    let directory = project.path.to_string_lossy().into_owned();
    let args = ["run", &spec, "--headless", "--template", &template, "--dir", &directory];
    std::thread::scope(|scope| {
        let first = scope.spawn(|| project.run(&["--iterations", "1"]));
        until_said(&project.world, "iteration 1 begins");
        let second = scope.spawn(|| {
            other.hub.run(&[&args[..], &["--iterations", "1", "--name", "other"]].concat())
        });
        until_said(&other, "another hub works a run off in this repository");
        project.write_aside("go", "");
        for output in [first.join().expect("it ends"), second.join().expect("it ends")] {
            assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        }
    });
    let commits = project.commits();
    let log = || format!("{}\n{}", project.world.hub.ok(&["log"]), other.hub.ok(&["log"]));
    assert_eq!(commits.len(), 3, "{commits:?}: {}", log());
    assert_eq!(commits[1].1, ["files/1.txt", "newest.txt"]);
    assert_eq!(commits[2].1, ["files/1.other", "newest.other"]);
}

/// What one has told of its cost counts for the others, though its turn is not over.
#[test]
fn several_workers_have_one_budget() {
    let project = Project::start("");
    let bit = "! usage 10 10 0.1\n! call task-list\n! sleep 100\n";
    let bits = bit.repeat(9);
    project.write_aside("template.md", &format!("{bits}{}", TEMPLATE.replace("$call1", "$call10")));
    let plan = "! call task-add {\"tasks\":[{\"content\":\"one\"},{\"content\":\"two\"},{\"content\":\"three\"}]}\n";
    project.write_aside("SPEC.md", plan);
    let output = project.run(&["--workers", "3", "--budget", "1", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let view = last_view(&output);
    let spent = view["spent"]["microdollars"].as_u64().expect("it is a number");
    // Each may have told a bit more before it was stopped.
    assert!((1_000_000..=1_500_000).contains(&spent), "{view:#}");
}

/// What a person had written is not lost because an agent writes the same file.
#[test]
fn an_agent_that_overwrites_a_persons_changes_is_told_of() {
    let project = Project::start("");
    project.write("README", "precious\n");
    project.write_aside("template.md", &TEMPLATE.replace("newest.txt", "README"));
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let told = said(&output);
    let name = told.split("`git show ").nth(1).and_then(|rest| rest.split('`').next());
    assert_eq!(project.git(&["show", name.expect("it is told")]), "precious");
    assert_eq!(project.git(&["status", "--porcelain"]), " M README");
    // The person has seen to it.
    project.git(&["commit", "-q", "-a", "-m", "mine"]);
    let output = project.run(&["--resume"]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Who reads no more wants no more; nobody pays for what nobody sees.
#[test]
fn a_run_that_nobody_reads_is_stopped() {
    let project = Project::start("");
    project.write_aside("template.md", &format!("! sleep 300\n{TEMPLATE}"));
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    let mut run = project.world.hub.command();
    run.args(["run", &spec, "--headless", "--template", &template, "--dir"]).arg(&project.path);
    let mut run = run.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    drop(run.stdout.take());
    assert_eq!(run.wait().expect("it ends").code(), Some(141));
    until_said(&project.world, "no longer worked on: it was stopped");
}

#[test]
fn a_forgotten_run_leaves_nothing_and_its_name_is_free() {
    let project = Project::start("");
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let forget = || -> Value {
        let printed = project.world.hub.ok(&["run", "forget", "SPEC", "--json"]);
        serde_json::from_str(&printed).expect("it is JSON")
    };
    assert_eq!(forget()["forgotten"], true);
    assert_eq!(forget()["forgotten"], false, "it is answered");
    assert!(!project.world.hub.ok(&["runs"]).contains("SPEC"));
    assert_eq!(project.git(&["for-each-ref", "refs/teamster", "refs/heads/teamster"]), "");
    assert!(!project.path.join(".git/teamster.lock").exists());
    // What it did stays, and the log keeps its history.
    assert_eq!(project.commits().len(), 2);
    assert!(project.world.hub.ok(&["log"]).contains("SPEC: run forgotten"));
    let output = project.run(&["--iterations", "1", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let view = last_view(&output);
    assert_eq!((&view["iterations"], &view["resumes"]), (&1.into(), &0.into()), "{view:#}");
}

/// An agent that is stopped leaves names in the repository only as long as somebody could go on.
#[test]
fn a_run_under_way_is_not_forgotten() {
    let project = Project::start("");
    project.write_aside("template.md", "! call task-next {\"claim\":true}\n! hang\n");
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "TAS-4 claimed");
        let refused = project.world.hub.fails(&["run", "forget", "SPEC", "--force"]);
        assert!(refused.contains("steer SPEC stop"), "{refused}");
        project.world.hub.ok(&["steer", "SPEC", "stop", "--now"]);
        assert_eq!(run.join().expect("it ends").status.code(), Some(5));
    });
    let forgot = project.world.hub.ok(&["run", "forget", "SPEC"]);
    assert!(forgot.starts_with("forgot SPEC"), "{forgot}");
    assert_eq!(project.git(&["for-each-ref", "refs/teamster", "refs/heads/teamster"]), "");
}

#[test]
fn a_run_that_is_not_named_is_asked_for() {
    let project = Project::start("");
    for (args, says) in [
        (&["run", "--resume"][..], "--resume needs a run"),
        (&["run"], "a spec is missing"),
        (&["runs", "forget", "SPEC"], "run forget SPEC`?"),
    ] {
        let output = project.world.hub.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

/// A person who began an item by hand is not in their own way.
#[test]
fn what_a_person_holds_in_a_run_is_forgotten_with_it() {
    let project = Project::start("");
    project.world.hub.ok(&["item", "default", "--content", "by hand"]);
    project.world.hub.ok(&["item", "default", "TAS-1", "--status", "in_progress"]);
    let forgot = project.world.hub.ok(&["run", "forget", "default"]);
    assert!(forgot.starts_with("forgot default"), "{forgot}");
}

/// The hub asks the core before it removes anything of a run.
#[tokio::test]
async fn a_run_that_another_works_on_keeps_all_that_it_left() {
    let project = Project::start("");
    let output = project.run(&["--workers", "2", "--check", "false"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let hub = &project.world.hub;
    let mut bob = hub.modern(&hub.token("bob", "full"), "/mcp/session/SPEC").await;
    let (claimed, failed) = bob.call("task-next", serde_json::json!({"claim": true})).await;
    assert!(!failed, "{claimed}");
    let left = || project.git(&["for-each-ref", "refs/teamster", "refs/heads/teamster"]);
    let before = left();
    assert!(!before.is_empty());
    let refused = hub.fails(&["run", "forget", "SPEC", "--force"]);
    assert!(refused.contains("bob is working on TAS-"), "{refused}");
    assert_eq!(left(), before);
}
