//! Real Goose, offline, started and driven by the hub: agents draft, await and kill agents.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::driven::{CUT_OFF, Driven, story};
use crate::scripted_model::{Script, ScriptedModel, Step};

const LEAD: &str = "Have the kitchen cleaned.";
const SWEEP: &str = "Sweep the kitchen floor.";
const LOOK: &str = "Find out where the mop is.";
const FOREVER: &str = "Polish the spoon for ever.";

fn team() -> [Script; 4] {
    let draft = |role: &str, prompt: &str| {
        Step::call("draft_agent", json!({"role": role, "prompt": prompt}))
    };
    let of = |tool: &str, id: &str| Step::call(tool, json!({"agentId": id}));
    [
        Script::new(
            SWEEP,
            [
                Step::call("list_tasks", json!({})),
                Step::call("task-add", json!({"tasks": [{"content": "empty the dustpan"}]})),
                Step::say(
                    r#"Swept. {"status":"partial","summary":"One corner is left.","issues":["a spider"]}"#,
                ),
            ],
        ),
        Script::new(LOOK, [Step::say("The mop is in the shed.")]),
        Script::new(FOREVER, [Step::Hang]),
        // Last, for whoever starts after another has ended is told what was asked of the lead.
        Script::new(
            LEAD,
            [
                draft("coder", SWEEP),
                draft("researcher", LOOK),
                of("await_agent", "coder-2"),
                of("await_agent", "researcher-3"),
                draft("coder", FOREVER),
                of("kill_agent", "coder-4"),
                Step::say(r#"{"status":"success","summary":"The kitchen is clean."}"#),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lead_drafts_awaits_and_kills_others() {
    let model = ScriptedModel::start(team()).await;
    let Some(driven) = Driven::start(&["goose"], "", &model) else { return };
    let output = driven.draft("coordinator", LEAD, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    model.assert_played(LEAD);
    model.assert_played(SWEEP);
    model.assert_played(LOOK);

    let outcome = |id: &str| driven.agent(id)["outcome"].clone();
    assert_eq!(outcome("coordinator-1")["summary"], "The kitchen is clean.");
    assert_eq!(outcome("coder-2")["status"], "partial");
    assert_eq!(outcome("coder-2")["issues"], json!(["a spider"]));
    assert_eq!(outcome("researcher-3")["summary"], "The mop is in the shed.");
    assert_eq!(outcome("coder-4")["ending"], "aborted");
    for id in ["coder-2", "researcher-3", "coder-4"] {
        assert_eq!(driven.agent(id)["parent"], "coordinator-1");
        assert_eq!(driven.agent(id)["dossier"], driven.agent("coordinator-1")["dossier"]);
    }
    // Each acted under its own name, and only the lead saw how to draft.
    let log = driven.hub.log();
    let added = ("coder-2".to_owned(), "TAS-1 added (P2): empty the dustpan".to_owned());
    assert!(log.contains(&added), "{log:?}");
    let offers = |prompt: &str, tool: &str| {
        model.offered_in(prompt).iter().any(|offered| offered.ends_with(tool))
    };
    assert!(offers(LEAD, "draft_agent"));
    assert!(
        offers(SWEEP, "list_tasks")
            && !offers(SWEEP, "draft_agent")
            && !offers(SWEEP, "kill_agent")
    );
    driven.assert_nothing_is_left();
    let context = driven
        .hub
        .ok(&["dossiers", driven.agent("coder-2")["dossier"].as_str().expect("it has one")]);
    assert!(context.contains("One corner is left."), "{context}");
}

/// Programs that take MCP servers only as commands get one of ours, which works where the hub's data is hidden.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_our_tools_over_stdio_calls_them_under_its_own_name() {
    let model = ScriptedModel::start([team().into_iter().next().expect("there is one")]).await;
    let over_stdio = "mcp = \"stdio\"\n";
    let Some(driven) = Driven::start_with(&["goose"], "", over_stdio, &model) else { return };
    let output = driven.draft("coder", SWEEP, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), driven.hub.ok(&["log"]));
    model.assert_played(SWEEP);
    assert_eq!(driven.did("coder-1"), ["TAS-1 added (P2): empty the dustpan"], "{told}");
    driven.assert_nothing_is_left();
}

const CHORE: &str = "Wash all the windows.";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_in_a_new_process_after_the_hub_was_killed() {
    let scripts = [
        Script::new(
            CUT_OFF,
            [Step::say(r#"{"status":"success","summary":"The rest is washed."}"#)],
        ),
        Script::new(
            CHORE,
            [
                Step::call("task-add", json!({"tasks": [{"content": "wash the last window"}]})),
                Step::Hang,
            ],
        ),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(mut driven) = Driven::start(&["goose"], "", &model) else { return };
    assert!(driven.draft("coder", CHORE, &[]).status.success());
    model.until_asked(CHORE, 1).await;
    let session = driven.agent("coder-1")["session"].clone();
    driven.crash_and_start_again();
    let output = driven.hub.run(&["await", "coder-1"]);
    assert!(output.status.success(), "{output:?}\n{}", driven.hub.ok(&["log"]));
    let agent = driven.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)));
    driven.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_killed_in_the_middle_of_a_turn_is_asked_to_give_it_up_first() {
    // Goose gives up a turn only once the model has begun to answer.
    let begun = "Rubbing. ";
    let model = ScriptedModel::start([Script::new(FOREVER, [Step::Stall(begun.into())])]).await;
    let Some(driven) = Driven::start(&["goose"], "", &model) else { return };
    assert!(driven.draft("coder", FOREVER, &[]).status.success());
    let mut follow = driven.hub.command();
    follow.args(["agent", "show", "coder-1", "--follow"]).stdout(Stdio::piped());
    let mut follow = follow.spawn().expect("it starts");
    let lines = BufReader::new(follow.stdout.take().expect("it is piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.trim() == begun.trim()));
    follow.kill().expect("it can be killed");
    follow.wait().expect("it ends");
    driven.hub.ok(&["kill", "coder-1"]);
    model.until_given_up().await;
    driven.assert_nothing_is_left();
    assert_eq!(driven.agent("coder-1")["outcome"]["ending"], "aborted");
    let records = driven.events("coder-1");
    let at = |wanted: Value| {
        let same = |record: &Value| {
            wanted.as_object().expect("it is an object").iter().all(|(k, v)| record[k] == *v)
        };
        records.iter().position(same).unwrap_or_else(|| panic!("no {wanted} in {records:?}"))
    };
    let asked = at(json!({"type": "cancel_asked"}));
    let ended = at(json!({"type": "turn_ended", "why": "cancelled"}));
    let exited = at(json!({"type": "exited"}));
    assert!(asked < ended && ended < exited, "{records:?}");
}
