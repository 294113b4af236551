//! Real Claude Code, Codex and Goose under one hub, offline: together in one team, and each of them alone with what makes
//! it responsible to let it run alone. The tests of `unattended` play the same with the scripted agent, and say more.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "when an account has something left again is said in real time, and a broken fixture should panic"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::driven::{CUT_OFF, Driven, story};
use crate::scripted_model::{Script, ScriptedModel, Step};

const PROGRAMS: [&str; 3] = ["claude", "codex", "goose"];

/// It asks before it acts, as the others do by themselves.
const GOOSE_ASKS: &str = "set.GOOSE_MODE = \"approve\"\n";

fn start(programs: &[&str], settings: &str, model: &ScriptedModel) -> Option<Driven> {
    Driven::start_with(programs, settings, GOOSE_ASKS, model)
}

fn add(content: &str) -> Step {
    Step::call("task-add", json!({"tasks": [{"content": content}]}))
}

fn success(summary: &str) -> Step {
    Step::say(&json!({"status": "success", "summary": summary}).to_string())
}

/// A step in which a program runs a command that it has to ask for.
fn run(program: &str, command: &str) -> Step {
    match program {
        "claude" => Step::call("Bash", json!({"command": command})),
        "codex" => Step::call(
            "exec_command",
            json!({
                "cmd": command, "sandbox_permissions": "require_escalated",
                "justification": "May I?",
            }),
        ),
        _ => Step::call("shell", json!({"command": command})),
    }
}

const TIDY: &str = "Tidy the drawer up.";

async fn check_that_a_person_decides(program: &str) {
    // Long, because what is decided about has to be seen to its end.
    let padding = "socks ".repeat(60);
    let denied = format!("echo {padding}denied > denied.txt");
    let allowed = format!("echo {padding}allowed > allowed.txt");
    let script = Script::new(
        TIDY,
        [
            add("sort the socks"),
            run(program, &denied),
            run(program, &allowed),
            success("Tidied up."),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let ask = "[permissions]\notherwise = \"ask\"\n";
    let Some(team) = start(&[program], ask, &model) else { return };
    assert!(team.draft("coder", TIDY, &[]).status.success());
    for (number, command, answer) in [("Q-1", &denied, "deny"), ("Q-2", &allowed, "allow")] {
        team.until_said("coder-1", &format!("{number}: coder-1 asks"));
        let open = team.hub.ok(&["questions", "--json"]);
        let open: Vec<Value> = serde_json::from_str(&open).expect("it is JSON");
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!((&open[0]["id"], &open[0]["agent"]), (&json!(number), &json!("coder-1")));
        let payload = open[0]["payload"].as_str().expect("it is text");
        assert!(payload.contains(command), "{program}: {payload}");
        assert!(team.hub.ok(&["questions"]).contains(command.as_str()), "{program}");
        assert_eq!((team.file("denied.txt"), team.file("allowed.txt")), (None, None));
        team.hub.ok(&["answer", number, answer]);
    }
    let output = team.hub.run(&["await", "coder-1"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), team.transcript("coder-1"));
    assert!(output.status.success(), "{told}");
    model.assert_played(TIDY);
    assert_eq!(team.agent("coder-1")["outcome"]["summary"], "Tidied up.", "{told}");
    assert_eq!(team.file("denied.txt"), None, "{told}");
    assert_eq!(team.file("allowed.txt"), Some(format!("{padding}allowed\n")), "{told}");
    // Our own tool was not asked about.
    assert_eq!(team.did("coder-1"), ["TAS-1 added (P2): sort the socks"]);
    let asked = team.hub.ok(&["log"]);
    assert_eq!(asked.matches("coder-1 asks").count(), 2, "{asked}");
    team.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_decides_what_claude_may_do() {
    check_that_a_person_decides("claude").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_decides_what_codex_may_do() {
    check_that_a_person_decides("codex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_decides_what_goose_may_do() {
    check_that_a_person_decides("goose").await;
}

const CHORE: &str = "Wash all the windows.";
/// Claude Code tells when a limit ends only to those who have a subscription, which is what it takes such a token for. It
/// cannot ask anybody else about it.
const SUBSCRIBED: &str = "set.CLAUDE_CODE_OAUTH_TOKEN = \"dummy\"\nset.ANTHROPIC_API_KEY = \"\"\n\
                          set.HTTPS_PROXY = \"http://127.0.0.1:9\"\nset.NO_PROXY = \"127.0.0.1\"\n";

/// Who lets an agent go on that was parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The hub does, because the time has come that the program told.
    Time,
    /// A person does, who does not wait for that time or was not told it.
    Person,
}

async fn check_that_a_limit_parks(program: &str, variables: &str, by: By) {
    let until = match by {
        By::Time => Duration::from_secs(4),
        By::Person => Duration::from_secs(3600),
    };
    let until = SystemTime::now() + until;
    let until_unix_s = until.duration_since(UNIX_EPOCH).expect("it is past 1970").as_secs();
    let scripts = [
        Script::new(CUT_OFF, [add("dry the windows"), success("The rest is washed.")]),
        Script::new(CHORE, [add("wash the last window"), Step::UsedUp { until_unix_s }]),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(team) =
        Driven::start_with(&[program], "", &format!("{GOOSE_ASKS}{variables}"), &model)
    else {
        return;
    };
    assert!(team.draft("coder", CHORE, &[]).status.success());
    team.until_said("coder-1", "agent coder-1 is parked");
    let session = team.agent("coder-1")["session"].clone();
    if by == By::Person {
        let shown = team.hub.ok(&["agents"]);
        assert!(shown.contains("parked"), "{shown}");
        team.assert_nothing_is_left();
        team.hub.ok(&["resume", "coder-1"]);
    }
    let output = team.hub.run(&["await", "coder-1"]);
    let log = team.hub.ok(&["log"]);
    let told = format!("{output:?}\n{}\n{log}\n{}", story(&model), team.transcript("coder-1"));
    assert!(output.status.success(), "{told}");
    assert!(by == By::Person || SystemTime::now() >= until, "it came too early: {told}");
    let agent = team.agent("coder-1");
    assert_eq!(agent["outcome"]["summary"], "The rest is washed.", "{told}");
    assert_eq!((&agent["session"], &agent["incarnation"]), (&session, &json!(2)), "{told}");
    assert!(team.transcript("coder-1").contains(r#""resumed":true"#), "{told}");
    let expected = ["TAS-1 added (P2): wash the last window", "TAS-2 added (P2): dry the windows"];
    assert_eq!(team.did("coder-1"), expected, "{told}");
    assert_eq!(log.matches("is parked").count(), 1, "{told}");
    team.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_parks_claude_and_it_goes_on() {
    check_that_a_limit_parks("claude", SUBSCRIBED, By::Time).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_without_an_end_parks_claude_until_a_person_says_so() {
    check_that_a_limit_parks("claude", "", By::Person).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_parks_codex_and_it_goes_on() {
    check_that_a_limit_parks("codex", "", By::Time).await;
}

/// It tries four times before it gives up, and says that in words only.
#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_parks_goose_until_a_person_says_so() {
    check_that_a_limit_parks("goose", "", By::Person).await;
}

const LEAD: &str = "Have the kitchen cleaned.";
const SWEEP: &str = "Sweep the kitchen floor.";
const MOP: &str = "Mop the kitchen floor.";

fn draft(role: &str, prompt: &str) -> Step {
    Step::call("draft_agent", json!({"role": role, "prompt": prompt}))
}

fn wait_for(id: &str) -> Step {
    Step::call("await_agent", json!({"agentId": id}))
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_leads_a_codex_and_a_goose() {
    let lead = [
        draft("codex", SWEEP),
        draft("goose", MOP),
        wait_for("codex-2"),
        wait_for("goose-3"),
        success("Both are done."),
    ];
    // The lead's comes last: whoever starts after another has ended is told what was asked of the lead.
    let scripts = [
        Script::new(SWEEP, [add("empty the dustpan"), success("Swept.")]),
        Script::new(MOP, [add("empty the bucket"), success("Mopped.")]),
        Script::new(LEAD, lead),
    ];
    let model = ScriptedModel::start(scripts).await;
    let Some(team) = start(&PROGRAMS, "", &model) else { return };
    let output = team.draft("coordinator", LEAD, &["--wait"]);
    let told = format!("{output:?}\n{}\n{}", story(&model), team.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    for prompt in [LEAD, SWEEP, MOP] {
        model.assert_played(prompt);
    }
    for (id, summary) in
        [("coordinator-1", "Both are done."), ("codex-2", "Swept."), ("goose-3", "Mopped.")]
    {
        assert_eq!(team.agent(id)["outcome"]["summary"], summary, "{told}");
    }
    // Each acted under its own name; which of them came first is theirs.
    let ends_with = |id: &str, what: &str| {
        let did = team.did(id);
        assert!(did.len() == 1 && did[0].ends_with(what), "{id}: {did:?}");
    };
    ends_with("codex-2", "added (P2): empty the dustpan");
    ends_with("goose-3", "added (P2): empty the bucket");
    // The lead was told what became of them.
    let transcript = team.transcript("coordinator-1");
    assert!(transcript.contains("Swept.") && transcript.contains("Mopped."), "{transcript}");
    team.assert_nothing_is_left();
}

async fn check_that_a_budget_holds(budget: [&str; 2], refusal: &str) {
    let lead =
        [draft("codex", SWEEP), wait_for("codex-2"), draft("codex", MOP), success("Only swept.")];
    let scripts = [Script::new(SWEEP, [success("Swept.")]), Script::new(LEAD, lead)];
    let model = ScriptedModel::start(scripts).await;
    // A request takes ten tokens each way.
    let price = "[prices.scripted]\ninput = 10_000\noutput = 10_000\n";
    let Some(team) = start(&["claude", "codex"], price, &model) else { return };
    let output = team.draft("coordinator", LEAD, &["--wait", budget[0], budget[1]]);
    let transcript = team.transcript("coordinator-1");
    let told = format!("{output:?}\n{}\n{}", story(&model), team.hub.ok(&["log"]));
    assert!(output.status.success(), "{told}");
    model.assert_played(LEAD);
    model.assert_played(SWEEP);
    assert_eq!(team.agent("coordinator-1")["outcome"]["summary"], "Only swept.", "{told}");
    let refused = transcript
        .lines()
        .any(|line| line.contains(r#""type":"tool_result""#) && line.contains(refusal));
    assert!(refused, "{transcript}");
    let tree: Value =
        serde_json::from_str(&team.hub.ok(&["budget", "coordinator-1", "--json"])).expect("JSON");
    let below = tree[0]["below"].as_array().expect("a list");
    assert_eq!(below.len(), 1, "{tree}");
    assert_eq!(below[0]["used"]["microdollars"], 200_000, "{tree}");
    // What Claude used costs what Claude says, and what is below it is part of the whole.
    assert!(tree[0]["spent"]["microdollars"].as_u64() > Some(200_000), "{tree}");
    team.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_programs_has_so_many_turns_and_no_more() {
    let refusal = "the 2 turns of coordinator-1 are used up; finish with what you have";
    check_that_a_budget_holds(["--turns", "2"], refusal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_programs_may_cost_so_much_and_no_more() {
    check_that_a_budget_holds(["--budget", "0.15"], "the $0.15 of coordinator-1 are spent").await;
}
