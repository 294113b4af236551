//! Real Goose, offline, under permission rules: it asks because rules can hold it back, and the rules hold.

use serde_json::{Value, json};

use crate::driven::{Driven, story};
use crate::scripted_model::{Script, ScriptedModel, Step};
use crate::unattended::first_line;

const CHORE: &str = "Fetch the milk with a command.";

fn chore() -> [Script; 1] {
    let shell = json!({"command": "echo curl >> ran"});
    let add = json!({"tasks": [{"content": "wash the jug"}]});
    [Script::new(
        CHORE,
        [
            Step::call("shell", shell),
            Step::call("task-add", add),
            Step::say("That is all I could do."),
        ],
    )]
}

#[tokio::test(flavor = "multi_thread")]
async fn deny_rules_hold_for_a_program_that_calls_a_command_something_else() {
    for rule in ["execute", "execute(*curl*)", "shell"] {
        let model = ScriptedModel::start(chore()).await;
        let settings = format!("[permissions]\ndeny = [{rule:?}]\n");
        let Some(driven) = Driven::start(&["goose"], &settings, &model) else { return };
        let output = driven.draft("coder", CHORE, &["--wait"]);
        let told = format!("{rule}: {output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
        assert_eq!(driven.file("ran"), None, "{told}");
        assert!(told.contains("its rules deny: shell"), "{told}");
        // What is ours is never held back.
        assert_eq!(driven.did("coder-1"), ["TAS-1 added (P2): wash the jug"], "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ask_rules_make_a_question_and_its_answer_holds() {
    for (answer, expected) in [("deny", None), ("allow", Some("curl\n"))] {
        let model = ScriptedModel::start(chore()).await;
        let settings = "[permissions]\nask = [\"execute\"]\n";
        let Some(driven) = Driven::start(&["goose"], settings, &model) else { return };
        assert!(driven.draft("coder", CHORE, &[]).status.success());
        let line = first_line(&driven.hub, &["questions", "--follow", "--json"], |_| true);
        let question: Value = serde_json::from_str(&line).expect("it is a question");
        assert!(
            question["title"].as_str().is_some_and(|title| title.contains("echo curl")),
            "{line}"
        );
        driven.hub.ok(&["answer", question["id"].as_str().expect("it has an id"), answer]);
        driven.hub.run(&["await", "coder-1"]);
        assert_eq!(driven.file("ran").as_deref(), expected, "{}", driven.hub.ok(&["log"]));
        assert_eq!(driven.did("coder-1"), ["TAS-1 added (P2): wash the jug"]);
    }
}
