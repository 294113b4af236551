//! A spec worked off by real Goose, offline: it asks a scripted model.

use serde_json::{Value, json};

use crate::driven::{Driven, story};
use crate::scripted_model::{Script, ScriptedModel, Step};
use crate::work::git;

const SPEC: &str = "# Five things\n\nMake a file for each of one, two, three, four and five.\n";
/// The order in which they are done: the most urgent first, but nothing before what it waits for.
const ORDER: [&str; 5] = ["four", "one", "two", "three", "five"];

/// How the prompt of an iteration begins.
fn begins(n: usize) -> String {
    format!("# Run SPEC, iteration #{n}\n")
}

fn plan() -> Script {
    let tasks = json!([
        {"content": "one"}, {"content": "two"}, {"content": "three", "priority": 3},
        {"content": "four", "priority": 1}, {"content": "five", "priority": 4},
    ]);
    let depends =
        |id: &str, on: &str| Step::call("task-update", json!({"id": id, "depends_on": on}));
    Script::new(
        "# Run SPEC, iteration #0: the plan",
        [
            Step::call("task-add", json!({"tasks": tasks})),
            depends("TAS-2", "TAS-4"),
            depends("TAS-3", "TAS-2"),
            Step::call("iteration-summary", json!({"summary": "Planned five things."})),
            Step::say("That is the plan."),
        ],
    )
}

/// One iteration: an item, its file, a note for the next, and an end that comes too early but for the last.
fn iteration(n: usize, item: &str) -> Script {
    let write = format!("mkdir -p files && echo {item} > files/{n}.txt && echo {n} > newest.txt");
    let note = json!({"notes": [{"content": format!("{item} needs salt"), "type": "tip"}]});
    Script::new(
        &begins(n),
        [
            Step::call("task-next", json!({"claim": true})),
            Step::call("shell", json!({"command": write})),
            Step::call("note-add", note),
            Step::call("task-update", json!({"id": "${task-next.id}", "status": "completed"})),
            Step::call("iteration-summary", json!({"summary": format!("Did {item}.")})),
            Step::call("session-complete", json!({})),
            Step::say("Done."),
        ],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn goose_works_a_spec_off_with_a_commit_for_each_item() {
    let iterations = (1..).zip(ORDER).map(|(n, item)| iteration(n, item));
    let model = ScriptedModel::start(std::iter::once(plan()).chain(iterations)).await;
    let Some(driven) = Driven::start(&["goose"], "", &model) else { return };
    let project = driven.home.path().join("work");
    git(&project, &["init", "-q", "-b", "main"]);
    for (name, text) in [("SPEC.md", SPEC), ("README", "read me\n"), (".gitignore", "*.log\n")] {
        std::fs::write(project.join(name), text).expect("it can be written");
    }
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    std::fs::write(project.join("README"), "being written by the person\n").expect("ok");

    let args = ["run", "SPEC.md", "--headless", "--program", "goose", "--json"];
    let output = driven.person().args(args).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let told = || format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    assert!(output.status.success(), "{}", told());
    let view: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no view: {}", told()));

    // In the right order, one commit for each, of exactly what was changed.
    let log = git(&project, &["log", "--reverse", "--format=%x00%s", "--name-only"]);
    let commits: Vec<Vec<&str>> = log
        .split('\0')
        .skip(2)
        .map(|entry| entry.lines().filter(|line| !line.is_empty()).collect())
        .collect();
    let expected: Vec<Vec<String>> = (1..)
        .zip(ORDER)
        .map(|(n, item)| {
            vec![format!("Did {item}."), format!("files/{n}.txt"), "newest.txt".into()]
        })
        .collect();
    assert_eq!(commits, expected, "{}", told());
    assert_eq!(git(&project, &["status", "--porcelain"]), " M README");
    let ended = view["ended"].as_array().expect("it is a list");
    let summaries: Vec<&str> =
        ended.iter().rev().filter_map(|one| one["summary"].as_str()).collect();
    let expected =
        ["Planned five things.", "Did four.", "Did one.", "Did two.", "Did three.", "Did five."];
    assert_eq!(summaries, expected, "{}", told());
    let hashes: Vec<&str> =
        ended.iter().rev().skip(1).filter_map(|one| one["commit"].as_str()).collect();
    let in_git = git(&project, &["log", "--reverse", "--format=%H"]);
    assert_eq!(hashes, in_git.lines().skip(1).collect::<Vec<_>>());

    // Each was told what those before it left, and nothing of what comes.
    for (n, item) in (1..).zip(ORDER) {
        let heard = model.heard_with(&begins(n));
        let prompt = heard.last().expect("it was heard");
        assert!(prompt.contains(SPEC.trim_end()), "{prompt}");
        for (before, earlier) in (1..).zip(ORDER).take(n - 1) {
            let worker = format!("worker-{}", before + 1);
            let note = format!("- [tip] (#{before}) {worker} | {earlier} needs salt");
            assert!(prompt.contains(&note), "{note}: {prompt}");
            assert!(prompt.contains(&format!("- #{before} {worker} | Did {earlier}.")), "{prompt}");
        }
        assert!(!prompt.contains(&format!("{item} needs salt")), "{prompt}");
        assert!(prompt.contains(&format!("Remaining ({}):", 6 - n)), "{prompt}");
        // It is a fresh mind: nothing else was said to it.
        assert_eq!(heard.iter().filter(|text| text.contains("# Run SPEC")).count(), 1);
        model.assert_played(&begins(n));
        let refused = format!("cannot complete session: {} task(s) not in terminal state", 5 - n);
        let transcript = driven.transcript(&format!("worker-{}", n + 1));
        assert_eq!(transcript.contains(&refused), n < 5, "{transcript}");
    }
    assert_eq!((&view["phase"], &view["iterations"]), (&json!("completed"), &json!(5)));
    driven.assert_nothing_is_left();
}
