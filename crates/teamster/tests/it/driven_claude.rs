//! Real Claude Code, offline, started and driven by the hub.

use rustix::process::Signal;
use serde_json::json;

use crate::driven::{CUT_OFF, Driven, story};
use crate::scripted_model::{Script, ScriptedModel, Step};

/// Whom an agent can draft that waits.
const WAITER: &str = "[roles.waiter]\nprogram = \"scripted\"\nprompt = \"Wait.\"\n";

const CLEAN: &str = "Clean the kitchen.";

#[tokio::test(flavor = "multi_thread")]
async fn claude_works_with_our_tools_and_asks_before_it_acts() {
    let outcome = r#"{"status":"success","summary":"The kitchen is clean."}"#;
    let script = Script::new(
        CLEAN,
        [
            Step::call("task-add", json!({"tasks": [{"content": "empty the dustpan"}]})),
            Step::call("Bash", json!({"command": "echo clean > kitchen.txt"})),
            Step::say(outcome),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let Some(driven) = Driven::start(&["claude"], WAITER, &model) else { return };
    let output = driven.draft("coder", CLEAN, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    model.assert_played(CLEAN);
    // It was offered our tools at once, and acted under its own name.
    assert!(model.offered_in(CLEAN).contains(&"mcp__teamster__task-add".to_owned()), "{told}");
    let added = ("coder-1".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(driven.hub.log().contains(&added), "{told}");
    assert_eq!(driven.file("kitchen.txt").as_deref(), Some("clean\n"));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The kitchen is clean.");
    assert!(agent["outcome"]["cost_microdollars"].as_u64() > Some(0), "{agent}");
    let transcript = driven.transcript("coder-1");
    for part in
        [r#""permission_asked""#, r#""option":"allow""#, r#""tokens":{"input":30,"output":30"#]
    {
        assert!(transcript.contains(part), "{part}: {transcript}");
    }
    assert!(!transcript.contains(r#""trouble""#), "{transcript}");
    driven.assert_nothing_is_left();
}

const FOREVER: &str = "Polish the spoon for ever.";

#[tokio::test(flavor = "multi_thread")]
async fn claude_is_ended_in_the_middle_of_its_turn() {
    let model = ScriptedModel::start([Script::new(FOREVER, [Step::Hang])]).await;
    let Some(driven) = Driven::start(&["claude"], WAITER, &model) else { return };
    assert!(driven.draft("coder", FOREVER, &[]).status.success());
    model.until_asked(FOREVER, 0).await;
    // Everyone can read command lines; and where it is hidden, nobody but Claude can read the file.
    let lines = driven.processes();
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("tmst_")), "{lines:?}");
    assert_eq!(driven.private().len(), 1);
    driven.hub.ok(&["kill", "coder-1"]);
    driven.hub.run(&["await", "coder-1"]);
    assert_eq!(driven.agent("coder-1")["outcome"]["ending"], "aborted");
    // It was asked to give up its turn, and did.
    let transcript = driven.transcript("coder-1");
    let place = |text: &str| transcript.find(text).unwrap_or_else(|| panic!("{transcript}"));
    let asked = place(r#""type":"cancel_asked""#);
    assert!(asked < place(r#""type":"turn_ended","why":"cancelled""#), "{transcript}");
    driven.assert_nothing_is_left();
}

const CHORE: &str = "Wash all the windows.";

fn chore() -> [Script; 2] {
    let washed = r#"{"status":"success","summary":"The rest is washed."}"#;
    let add = Step::call("task-add", json!({"tasks": [{"content": "wash the last window"}]}));
    [Script::new(CUT_OFF, [Step::say(washed)]), Script::new(CHORE, [add, Step::Hang])]
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let model = ScriptedModel::start(chore()).await;
    let Some(mut driven) = Driven::start(&["claude"], "", &model) else { return };
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.hub.end(Signal::KILL);
    driven.start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    let transcript = driven.transcript("coder-1");
    assert!(transcript.contains(r#""resumed":true"#), "{transcript}");
    driven.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_claude_has_lost_becomes_a_new_one() {
    let model = ScriptedModel::start(chore()).await;
    let Some(mut driven) = Driven::start(&["claude"], "", &model) else { return };
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.hub.end(Signal::KILL);
    // Claude writes there for as long as it lives.
    driven.until_no_process_is_left();
    match std::fs::remove_dir_all(driven.home.path().join(".claude/projects")) {
        // A session that Claude has not written yet is lost as well.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.expect("it can be removed"),
    }
    driven.start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    let log = driven.hub.ok(&["log"]);
    assert!(output.status.success(), "{output:?}\n{log}");
    assert!(log.contains("it begins a new session"), "{log}");
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_ne!(agent["session"], session);
    driven.assert_nothing_is_left();
}

const LEAD: &str = "Have somebody wait.";
const INNER: &str = "Look for the kettle.";

/// Claude would have its own sub-agents work in the background, and end its turn before they are done.
#[tokio::test(flavor = "multi_thread")]
async fn claude_waits_for_its_own_sub_agents_and_for_those_it_drafts() {
    let waits = "! sleep 1000\n! outcome {\"status\":\"success\",\"summary\":\"Waited.\"}";
    let look = json!({"description": "look", "prompt": INNER, "subagent_type": "general-purpose"});
    let scripts = [
        Script::new(INNER, [Step::say(r#"{"status":"failed","summary":"There is no kettle."}"#)]),
        Script::new(
            LEAD,
            [
                Step::call("Agent", look),
                Step::call("draft_agent", json!({"role": "waiter", "prompt": waits})),
                Step::call("await_agent", json!({"agentId": "waiter-2"})),
                Step::say(r#"{"status":"success","summary":"Somebody waited."}"#),
            ],
        ),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(driven) = Driven::start(&["claude"], WAITER, &model) else { return };
    let output = driven.draft("coordinator", LEAD, &["--wait"]);
    let transcript = driven.transcript("coordinator-1");
    assert!(output.status.success(), "{output:?}\n{}\n{transcript}", story(&model));
    model.assert_played(INNER);
    model.assert_played(LEAD);
    assert_eq!(driven.agent("waiter-2")["outcome"]["summary"], "Waited.");
    assert_eq!(driven.agent("coordinator-1")["outcome"]["summary"], "Somebody waited.");
    // What the sub-agent said is a result, not the agent's word.
    let said = transcript.lines().filter(|line| line.contains("There is no kettle."));
    assert!(said.into_iter().all(|line| line.contains(r#""type":"tool_result""#)), "{transcript}");
    driven.assert_nothing_is_left();
}
