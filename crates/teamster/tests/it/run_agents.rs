//! A spec worked off by real Claude Code and real Codex, offline: they ask a scripted model.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::driven::{CUT_OFF, Driven, story};
use crate::run_workers::{assert_numbered, last_view};
use crate::scripted_model::{Script, ScriptedModel, Step};
use crate::work::git;

const SPEC: &str = "# Two things\n\nMake a file for each of one and two.\n";
const PLAN: &str = "# Run SPEC, iteration #0: the plan";

/// How the prompt of an iteration begins.
fn begins(n: usize) -> String {
    format!("# Run SPEC, iteration #{n}\n")
}

/// How a program runs a command.
type Runs = fn(&str) -> Step;

fn with_bash(command: &str) -> Step {
    Step::call("Bash", json!({"command": command}))
}

fn with_exec(command: &str) -> Step {
    Step::call("exec_command", json!({"cmd": command}))
}

fn plan(items: &[&str]) -> Script {
    let tasks: Vec<Value> = items.iter().map(|item| json!({"content": item})).collect();
    Script::new(
        PLAN,
        [
            Step::call("task-add", json!({"tasks": tasks})),
            Step::call("iteration-summary", json!({"summary": "Planned."})),
            Step::say("That is the plan."),
        ],
    )
}

/// One iteration: an item, its file, a note for the next, and an end that comes too early but for the last.
fn iteration(n: usize, item: &str, run: Runs) -> Vec<Step> {
    let note = json!({"notes": [{"content": format!("{item} needs salt"), "type": "tip"}]});
    vec![
        Step::call("task-next", json!({"claim": true})),
        run(&format!("echo {item} > {n}.txt")),
        Step::call("note-add", note),
        Step::call("task-update", json!({"id": "${task-next.id}", "status": "completed"})),
        Step::call("iteration-summary", json!({"summary": format!("Did {item}.")})),
        Step::call("session-complete", json!({})),
        Step::say("Done."),
    ]
}

/// A repository with the spec in it.
fn project(driven: &Driven) -> PathBuf {
    let project = driven.home.path().join("work");
    git(&project, &["init", "-q", "-b", "main"]);
    std::fs::write(project.join("SPEC.md"), SPEC).expect("it can be written");
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    project
}

fn run(driven: &Driven, args: &[&str]) -> Output {
    let mut run = driven.person();
    run.args(["run", "SPEC.md", "--headless", "--json"]).args(args).output().expect("it starts")
}

/// Returns the commits of iterations, each with its subject, its mark and its files, sorted.
fn commits(project: &Path) -> Vec<String> {
    let format = "--format=%x00%s %(trailers:key=Teamster-Iteration,valueonly,separator=)";
    let log = git(project, &["log", "--no-merges", format, "--name-only"]);
    let one = |entry: &str| entry.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut commits: Vec<String> = log.split('\0').map(one).collect();
    commits.retain(|commit| commit.contains("SPEC#"));
    commits.sort();
    commits
}

/// Nothing is left but what was committed: neither files of the program's own, nor worktrees, nor branches.
fn assert_tidy(driven: &Driven, project: &Path) {
    assert_eq!(git(project, &["status", "--porcelain", "--ignored"]), "");
    assert_eq!(git(project, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(project, &["branch", "--format=%(refname:short)"]), "main");
    driven.assert_nothing_is_left();
}

fn told(driven: &Driven, model: &ScriptedModel) -> String {
    format!("{}\n{}", story(model), driven.hub.ok(&["log"]))
}

/// The hub is killed in the middle of an iteration, and in the next one a person is asked.
#[tokio::test(flavor = "multi_thread")]
async fn claude_works_a_spec_off_although_the_hub_is_killed() {
    let cut_off = [Step::call("task-next", json!({"claim": true})), Step::Hang];
    let scripts = [
        plan(&["one", "two"]),
        Script::new(CUT_OFF, iteration(1, "one", with_bash)),
        Script::new(&begins(1), cut_off),
        Script::new(&begins(2), iteration(2, "two", with_bash)),
    ];
    let model = ScriptedModel::start(scripts).await;
    let rules = "[permissions]\nask = [\"execute(*2.txt*)\"]\n";
    let Some(mut driven) = Driven::start(&["claude"], rules, &model) else { return };
    let project = project(&driven);
    let mut begun = driven.person();
    begun.args(["run", "SPEC.md", "--headless"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut begun = begun.spawn().expect("it starts");
    model.until_asked(&begins(1), 1).await;
    begun.kill().expect("it runs");
    begun.wait().expect("it ends");
    driven.crash_and_start_again();

    // Whoever watches sees that something waits for a person.
    let mut watch = driven.person();
    let watch = watch.args(["watch", "SPEC", "--json"]).stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("it starts");
    let lines = BufReader::new(watch.stdout.take().expect("stdout is piped")).lines();
    let mut questions = Vec::new();
    let mut view = Value::Null;
    for line in lines {
        view = serde_json::from_str(&line.expect("it can be read")).expect("it is JSON");
        // It was asked before, or is asked now.
        let asked = &view["event"]["question"]["asked"];
        let (id, title) = match &view["question"]["id"] {
            Value::String(id) => (id.clone(), &view["question"]["title"]),
            _ if asked.is_object() => (format!("Q-{}", asked["id"]), &asked["asked"]["title"]),
            _ => continue,
        };
        questions.push(title.as_str().unwrap_or_default().to_owned());
        driven.hub.ok(&["answer", &id, "allow"]);
    }
    assert!(watch.wait().expect("it ends").success(), "{}", told(&driven, &model));
    assert_eq!(questions, ["Bash: echo two > 2.txt"]);
    assert_eq!(view["phase"], "completed");
    assert_numbered(&view);
    assert_eq!(commits(&project), ["Did one. SPEC#1 1.txt", "Did two. SPEC#2 2.txt"]);
    // It went on in the session that it had, with the item that it had.
    let transcript = driven.transcript("worker-2");
    assert!(transcript.contains(r#""resumed":true"#), "{transcript}");
    let did = ["TAS-1 claimed", "TAS-1 claimed", "TAS-1 now completed"];
    assert_eq!(driven.did("worker-2"), did);
    for prompt in [PLAN, CUT_OFF, &begins(2)] {
        model.assert_played(prompt);
    }
    let heard = model.heard_with(&begins(2));
    assert!(
        heard.last().is_some_and(|prompt| prompt.contains("(#1) worker-2 | one needs salt")),
        "{heard:?}"
    );
    assert_tidy(&driven, &project);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_a_run_of_claude() {
    let scripts = [
        plan(&["one", "two", "three"]),
        Script::new(&begins(1), iteration(1, "one", with_bash)),
        Script::new(&begins(2), iteration(2, "two", with_bash)),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = Driven::start(&["claude"], "", &model) else { return };
    let project = project(&driven);
    // The plan is within it, the plan and an iteration are not.
    let output = run(&driven, &["--budget", "0.002"]);
    assert_eq!(output.status.code(), Some(4), "{}", told(&driven, &model));
    let view = last_view(&output);
    assert_eq!((&view["phase"], &view["iterations"]), (&json!("budget-spent"), &json!(1)));
    assert!(view["spent"]["microdollars"].as_u64() > Some(2_000), "{view}");
    assert_eq!(commits(&project), ["Did one. SPEC#1 1.txt"]);
    assert_tidy(&driven, &project);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_codex_work_a_spec_off_in_worktrees() {
    let scripts = [
        plan(&["one", "two"]),
        Script::new(&begins(1), iteration(1, "it", with_exec)),
        Script::new(&begins(2), iteration(2, "it", with_exec)),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = Driven::start(&["codex"], "", &model) else { return };
    let project = project(&driven);
    let output = run(&driven, &["--workers", "2", "--check", "test -e SPEC.md"]);
    assert!(output.status.success(), "{output:?}\n{}", told(&driven, &model));
    let view = last_view(&output);
    assert_eq!(view["phase"], "completed");
    assert_numbered(&view);
    assert_eq!(commits(&project), ["Did it. SPEC#1 1.txt", "Did it. SPEC#2 2.txt"]);
    assert_eq!(view["items"]["completed"], 2);
    assert_tidy(&driven, &project);
}
