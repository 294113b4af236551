//! Runs in all kinds of places, with agents of all kinds of habits; what becomes of files is in `work/git/tests.rs`.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and a shell mends what was broken"
)]

use std::path::Path;

use serde_json::json;

use crate::run_workers::{assert_numbered, last_view, marks};
use crate::unattended::until_said;
use crate::work::{Project, TEMPLATE, said};

/// A plan of two items.
const TWO: &str =
    "Two things.\n! call task-add {\"tasks\":[{\"content\":\"one\"},{\"content\":\"two\"}]}\n";

fn two() -> Project {
    let project = Project::start("");
    project.write_aside("SPEC.md", TWO);
    project
}

fn directory(project: &Project, name: &str) -> String {
    let path = project.world.home.path().join(name);
    std::fs::create_dir_all(path.join("files")).expect("it can be made");
    path.to_string_lossy().into_owned()
}

#[test]
fn without_a_repository_files_are_just_written() {
    let project = two();
    let elsewhere = directory(&project, "no repository");
    let output = project.run(&["--json", "--dir", &elsewhere]);
    assert!(output.status.success(), "{}", said(&output));
    let view = last_view(&output);
    assert_numbered(&view);
    assert!(view["ended"].as_array().expect("a list").iter().all(|one| one["commit"].is_null()));
    assert!(Path::new(&elsewhere).join("files/2.txt").exists());
    let says = format!("{elsewhere} is in no git repository, so nothing is committed");
    assert!(said(&output).contains(&says), "{}", said(&output));
    assert!(!Path::new(&elsewhere).join(".git").exists());
    assert_eq!(project.commits().len(), 1);
}

#[test]
fn a_spec_of_any_name_may_be_in_the_repository_itself() {
    let project = two();
    std::fs::rename(project.aside("SPEC.md"), project.path.join("my späc (1).v2.md")).expect("ok");
    let spec = project.path.join("my späc (1).v2.md");
    let template = project.aside("template.md");
    let args = ["run", &*spec.to_string_lossy(), "--headless", "--template", &template];
    let output = project.world.hub.command().args(args).current_dir(&project.path).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(project.git(&["status", "--porcelain", "-z"]), "?? my späc (1).v2.md\0");
    assert_eq!(
        marks(&project).into_keys().collect::<Vec<_>>(),
        ["my-sp-c--1--v2#1", "my-sp-c--1--v2#2"]
    );
    // A name that says nothing is none.
    for name in ["-.md", "...", "--"] {
        let path = project.write_aside(name, "x");
        let path = path.to_string_lossy();
        let output = project.world.hub.run(&["run", &path, "--headless", "--template", &template]);
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
    }
}

#[test]
fn in_a_directory_of_a_repository_agents_work_there() {
    let project = two();
    let sub = directory(&project, "project/sub");
    project.write("mine.txt", "mine\n");
    let template = TEMPLATE.replace("! write newest.txt", "! write ../newest.txt");
    project.write_aside("template.md", &template);
    let output = project.run(&["--dir", &sub]);
    assert!(output.status.success(), "{}", said(&output));
    let files: Vec<_> = project.commits().into_iter().skip(1).map(|(_, files)| files).collect();
    assert_eq!(files, [["newest.txt", "sub/files/1.txt"], ["newest.txt", "sub/files/2.txt"]]);
    assert_eq!(project.git(&["status", "--porcelain"]), "?? mine.txt");
    // Several workers have the same directory in their worktrees.
    let output = project.run(&["--dir", &sub, "--workers", "2", "--name", "again"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        project
            .git(&["log", "--format=", "--name-only", "-2", "--no-merges", "--", "sub"])
            .lines()
            .count(),
        2
    );
    assert_eq!(project.git(&["status", "--porcelain"]), "?? mine.txt");
}

#[test]
fn what_an_agent_commits_itself_is_its_iterations_commit() {
    let project = two();
    let by_itself = "git add -A && git -c user.name=x -c user.email=x@y commit -q -m mine";
    let template =
        TEMPLATE.replace("! call iteration", &format!("! run {by_itself}\n! call iteration"));
    project.write_aside("template.md", &template);
    let output = project.run(&["--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let head = project.git(&["rev-parse", "HEAD"]);
    assert_eq!(last_view(&output)["ended"][0]["commit"], json!(head));
    assert_eq!(project.git(&["log", "--format=%s"]), "mine\nmine\nfirst");
}

#[test]
fn two_runs_that_commit_do_not_share_a_repository() {
    let project = two();
    let sub = directory(&project, "project/sub");
    project.write_aside(
        "template.md",
        &TEMPLATE.replace("! call task-next", "! sleep 700\n! call task-next"),
    );
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "iteration 1 begins");
        for more in [&["--name", "other"][..], &["--name", "other", "--dir", &sub]] {
            let output = project.run(more);
            assert_eq!(output.status.code(), Some(1));
            let says =
                "run SPEC is working in this directory, and both would commit the same files";
            assert!(said(&output).contains(says), "{}", said(&output));
        }
        let output = project.run(&[]);
        assert!(said(&output).contains("being worked off already"), "{}", said(&output));
        let template = project.write_aside("other.md", "! call task-next {\"claim\":true}\n! call task-update {\"id\":\"$last.id\",\"status\":\"completed\"}\n! call session-complete\n");
        let (template, spec) = (template.to_string_lossy(), project.aside("SPEC.md"));
        let dir = project.path.to_string_lossy();
        let other = [
            "run",
            &*spec,
            "--headless",
            "--name",
            "other",
            "--no-commit",
            "--dir",
            &dir,
            "--template",
            &template,
        ];
        let output = project.world.hub.run(&other);
        assert!(output.status.success(), "{}", said(&output));
        assert!(run.join().expect("it ends").status.success());
    });
    assert_eq!(project.commits().len(), 3);
}

#[test]
fn a_run_ends_when_its_budget_is_spent() {
    let project = two();
    // The agent that goes over the budget does nothing more until it is ended.
    project.write_aside("hold.sh", "test \"$1\" = 1 -o -e \"$0.go\" || sleep 60\n");
    let hold = format!("! run sh {} {{{{iteration}}}}\n", project.aside("hold.sh"));
    let holds =
        TEMPLATE.replace("$last", "$call1").replace("! write files", &(hold + "! write files"));
    project.write_aside("template.md", &format!("! usage 100 10 0.30\n{holds}"));
    let output = project.run(&["--budget", "0.35", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert_eq!(project.commits().len(), 2, "{}", said(&output));
    project.write_aside("hold.sh.go", "");
    let output = project.run(&["--resume", "--budget", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(project.commits().len(), 3);
}

/// To take an item again and again, and to do nothing about it, is no progress.
#[test]
fn a_run_in_which_nothing_happens_ends() {
    let claims = "! call task-next {\"claim\":true}\n! say too hard\n";
    for template in ["! say nothing to do\n", claims] {
        let project = two();
        project.write_aside("template.md", template);
        let output = project.run(&["--json"]);
        assert_eq!(output.status.code(), Some(6), "{}", said(&output));
        let view = last_view(&output);
        assert_eq!(view["iterations"], 3, "{view:#}");
        assert_eq!(view["items"]["remaining"], 2, "{view:#}");
    }
}

/// Whoever goes on with a run need not say again how it is done.
#[test]
fn a_run_goes_on_as_it_was_and_elsewhere_if_told() {
    let project = two();
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let output = project.world.hub.run(&["run", "--resume", "--name", "SPEC", "--headless"]);
    assert!(output.status.success(), "{}", said(&output));
    let subjects: Vec<String> = project.commits().into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(subjects, ["first", "did one", "did two"]);
}

/// What one iteration left behind that failed is the next one's, where it is, and nothing of it makes files of a person
/// somebody else's.
#[test]
fn what_a_failed_iteration_left_is_gone_on_with_only_in_its_place() {
    let project = two();
    let fails = "! call task-next {\"claim\":true}\n! write half.txt half\n! say $call7.nothing\n";
    project.write_aside("template.md", fails);
    let output = project.run(&["--workers", "2"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    project.write("mine.txt", "mine\n");
    project.write("README", "mine, too\n");
    project.write_aside("template.md", TEMPLATE);
    let output = project.run(&["--resume", "--workers", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(project.git(&["status", "--porcelain"]), " M README\n?? mine.txt");
    let subjects: Vec<String> = project.commits().into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(subjects, ["first", "did one", "did two"]);
}

#[test]
fn a_failed_iterations_files_come_with_the_next_ones() {
    let project = two();
    let fails = "! call task-next {\"claim\":true}\n! write half.txt half\n! say $call7.nothing\n";
    project.write_aside("template.md", fails);
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("it failed: "), "{}", said(&output));
    assert_eq!(project.commits().len(), 1);
    project.write_aside("template.md", TEMPLATE);
    let output = project.run(&["--resume"]);
    assert!(output.status.success(), "{}", said(&output));
    let files: Vec<_> = project.commits().into_iter().map(|(_, files)| files).collect();
    assert!(files[1].contains(&"half.txt".to_owned()), "{files:?}");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
}

/// Nobody finds out the next morning that nothing was committed.
#[test]
fn where_git_does_not_answer_a_run_is_refused_or_fails() {
    let mut project = two();
    let nothing = directory(&project, "nothing");
    project.world.start_again_with_path(Path::new(&nothing));
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for says in ["it cannot be started", "install git", "--no-commit"] {
        assert!(said(&output).contains(says), "{}", said(&output));
    }
    let elsewhere = directory(&project, "no repository");
    let output = project.run(&["--dir", &elsewhere, "--name", "elsewhere"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("is in no git repository"), "{}", said(&output));
    let output = project.run(&["--no-commit", "--name", "uncommitted"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains("repository"), "{}", said(&output));
    assert_eq!(project.commits().len(), 1);
}

/// What brings in what is left on a branch, and does nothing about other items but to write a file.
const BRINGS: &str = r#"
! call task-next {"claim":true}
! write files/{{iteration}}.txt $last.content
! run git -c user.name=a -c user.email=a@b merge -q -X ours $(grep -o 'teamster/run-[^ ]*' files/{{iteration}}.txt | head -n 1)
! call task-update {"id":"$call1.id","status":"completed"}
! call iteration-summary {"summary":"did $call1.id"}
! call session-complete
"#;

/// What the last iteration could not commit is not forgotten because all is done.
#[test]
fn a_run_is_not_complete_before_all_is_committed() {
    let project = two();
    // Whatever holds it for longer than it is waited for.
    let harm = "! call session-complete\n! run test {{iteration}} = 1 || touch .git/index.lock";
    project.write_aside("template.md", &TEMPLATE.replace("! call session-complete", harm));
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(said(&output).contains("not all of it is committed"), "{}", said(&output));
    assert_eq!(project.commits().len(), 2);
    std::fs::remove_file(project.path.join(".git/index.lock")).expect("it is there");
    let output = project.world.hub.run(&["run", "--resume", "--name", "SPEC", "--headless"]);
    assert!(output.status.success(), "{}", said(&output));
    let commits = project.commits();
    assert_eq!(commits[2], ("did two".into(), vec!["files/2.txt".into(), "newest.txt".into()]));
    assert_eq!(project.git(&["for-each-ref", "refs/teamster"]), "");
    // What a person changes after that is theirs.
    project.write("README", "mine\n");
    project.world.hub.ok(&["item", "SPEC", "--content", "three"]);
    project.write_aside("template.md", TEMPLATE);
    let output = project.run(&["--resume"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(project.git(&["status", "--porcelain"]), " M README");
}

/// What an agent does to the repository fails its iteration, with git's words, and what it changed is not lost.
#[test]
fn a_repository_that_breaks_or_goes_ends_the_run_and_it_is_gone_on_with_after_that() {
    for (breaks, mends, says) in [
        ("mv .git ../aside", "mv ../aside .git", "is gone; bring it back"),
        ("mv .git/HEAD ../aside", "mv ../aside .git/HEAD", "not a git repository"),
    ] {
        for workers in ["1", "2"] {
            let project = two();
            let path = project.path.to_string_lossy().into_owned();
            let harm = format!("! run cd {path}; {breaks}");
            let breaking = TEMPLATE.replace("! call session-complete", &harm);
            project.write_aside("template.md", &breaking);
            let output = project.run(&["--workers", workers, "--json"]);
            let all = said(&output);
            assert_eq!(output.status.code(), Some(1), "{breaks}, {workers}: {all}");
            assert!(all.contains(says), "{breaks}, {workers}: {all}");
            let mut mend = std::process::Command::new("sh");
            mend.current_dir(&project.path).args(["-c", mends]);
            assert!(mend.status().expect("it starts").success());
            assert_eq!(project.commits().len(), 1);
            project.write_aside("template.md", BRINGS);
            let output = project.run(&["--resume", "--workers", workers]);
            assert!(output.status.success(), "{breaks}, {workers}: {}", said(&output));
            let files = project.git(&["log", "--format=", "--name-only"]);
            assert!(files.contains("files/1.txt"), "{breaks}, {workers}: {files}{}", said(&output));
            assert_eq!(project.git(&["status", "--porcelain"]), "", "{breaks}, {workers}");
            let refs = project.git(&["for-each-ref", "--format=%(refname)", "refs/teamster"]);
            assert_eq!(refs, "", "{breaks}, {workers}");
        }
    }
}

/// With several workers, what one is just writing may be taken by another's collection, of which git itself warns.
#[test]
fn a_garbage_collection_in_the_middle_of_an_iteration_loses_nothing() {
    let project = two();
    project.write("mine.txt", "mine\n");
    let collects = "! run git gc -q --prune=now\n! call iteration";
    project.write_aside("template.md", &TEMPLATE.replace("! call iteration", collects));
    let output = project.run(&[]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(marks(&project).len(), 2, "{}", said(&output));
    assert_eq!(project.git(&["status", "--porcelain"]), "?? mine.txt");
    assert_eq!(project.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
}

#[test]
fn the_plan_has_a_template_of_its_own() {
    let project = two();
    let hub = &project.world.hub;
    let usual = hub.ok(&["template", "--plan"]);
    assert!(usual.contains("the plan") && usual.contains("{{spec}}"), "{usual}");
    assert_ne!(usual, hub.ok(&["template"]));
    let plan = "{{ spec }}\n{{speck}}\n! call note-add {\"notes\":[{\"content\":\"by my own plan\",\"type\":\"tip\"}]}\n";
    project.write_aside("plan.md", plan);
    let (plan, template) = (project.aside("plan.md"), project.aside("template.md"));
    let more = ["--plan-template", &plan, "--iterations", "1", "--model", "foo", "--check", "true"];
    let output = project.run(&more);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let shown = said(&output);
    assert!(shown.contains("by my own plan"), "{shown}");
    // What the person may not have meant is told.
    for says in [
        "warning: the plan's template has {{speck}}, which stays as it is; filled in are session, iteration, spec, ",
        "warning: the template has no {{spec}}, so agents are not told the spec\n",
        "warning: the check is not run, because one works alone; ",
        "its model cannot be chosen, so it works with its own instead of \"foo\"\n",
    ] {
        assert_eq!(shown.matches(says).count(), 1, "{says}\n{shown}");
    }
    // It stays when the run is gone on with, and is not asked for again.
    let again = said(&project.run(&["--resume"]));
    assert!(again.contains("the plan's template has {{speck}}"), "{again}");
    for empty in [&plan, &template] {
        std::fs::write(empty, " \n").expect("it can be written");
    }
    let refused = said(&project.run(&["--name", "other"]));
    assert!(refused.contains("the template is empty; `teamster template` prints"), "{refused}");
}

/// Nobody finds out by chance that they are on another branch, or that a repository is missing in the commit.
#[test]
fn what_an_agent_does_to_the_repository_is_told() {
    let project = two();
    let does = "! run git checkout -q -b feature; git init -q lib && cd lib && echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -q -m x\n! call iteration";
    project.write_aside("template.md", &TEMPLATE.replacen("! call iteration", does, 1));
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let all = said(&output);
    assert!(all.contains("the branch changed from main to feature during iteration 1"), "{all}");
    assert!(all.contains("run `git switch main`"), "{all}");
    assert!(all.contains("iteration 1 created a git repository in lib. "), "{all}");
    assert_eq!(project.git(&["log", "-1", "--format=%s", "feature"]), "did one");
    assert_eq!(project.git(&["log", "-1", "--format=%s", "main"]), "first");
}
