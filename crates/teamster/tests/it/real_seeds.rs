//! The seeds' tools in the hands of real Claude Code and real Codex, offline: what the hub promises of each tool holds when
//! a program calls it that does not know us.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use serde_json::json;

use crate::driven::{Driven, story};
use crate::hub::Hub;
use crate::real_agents::{self, find};
use crate::scripted_model::{Script, ScriptedModel, Step};

const TOUR: &str = "Try every tool once.";
/// A message whose answer does not come.
const HELD: &str = "! say so far\n! hang";

/// Starts a hub whose agents are played by a program, with a team that is played by the scripted agent.
fn start(program: &str, model: &ScriptedModel) -> Option<Driven> {
    let settings = format!(
        "[teams.api]\npath = \"~/api\"\nprogram = \"scripted\"\n\
         [teams.broken]\npath = \"~/gone\"\nprogram = \"scripted\"\n\
         [roles.lead]\nprogram = \"{program}\"\nprompt = \"Work.\"\ncategory = \"conversational\"\n\
         tools = [\"session\", \"agents\", \"teams\", \"yaks\"]\n\
         [roles.hand]\nprogram = \"scripted\"\nprompt = \"Work.\"\n"
    );
    let driven = Driven::start(&[program], &settings, model)?;
    std::fs::create_dir(driven.home.path().join("api")).expect("it can be made");
    Some(driven)
}

/// Returns what its tools answered to an agent, in order.
fn answers(driven: &Driven, id: &str) -> Vec<String> {
    let events = driven.events(id);
    let results = events.iter().filter(|event| event["type"] == "tool_result");
    results.map(|result| result["output"].to_string().replace("\\\"", "\"")).collect()
}

async fn check_the_tools(program: &str) {
    let tell = |timeout: u32| {
        Step::call("team_tell", json!({"toTeam": "api", "message": HELD, "timeout": timeout}))
    };
    let session = json!({"sessionId": "${team_tell.sessionId}"});
    let hand = "! say first line\n! say second line\n! hang";
    let steps = [
        (Step::call("team_wake", json!({"team": "api"})), r#""status":"awake""#),
        (Step::call("team_wake", json!({"team": "broken"})), "there is no directory"),
        (tell(2_000), r#""status":"timeout""#),
        // The same again joins the message, and an awake team is not cleared.
        (tell(1_000), r#""tellId":"TELL-1""#),
        (Step::call("team_wake", json!({"team": "api"})), "Team api is awake"),
        (Step::call("team_cache_clear", session.clone()), "1 stay"),
        (Step::call("team_cache_read", session), r#""text":"so far","partial":true"#),
        (Step::call("team_report", json!({"team": "api"})), "so far"),
        (
            Step::call("team_sleep", json!({"team": "api", "force": true})),
            "1 message that was not answered is terminated",
        ),
        (
            Step::call(
                "draft_agent",
                json!({"role": "hand", "prompt": hand, "taskSlug": "handwork"}),
            ),
            r#""agentId":"hand-"#,
        ),
        (Step::call("list_agents", json!({})), r#""role":"hand""#),
        (Step::call("get_task_context", json!({"taskSlug": "handwork"})), "second line"),
        (Step::call("kill_agent", json!({"agentId": "${draft_agent.agentId}"})), "killed"),
        (Step::call("task-add", json!({"tasks": [{"content": "sweep"}]})), "TAS-1: sweep"),
        (Step::call("task-next", json!({})), r#""status":"remaining""#),
    ];
    let (steps, expected): (Vec<Step>, Vec<&str>) = steps.into_iter().unzip();
    let end = Step::say(r#"{"status":"success","summary":"Tried."}"#);
    let model = ScriptedModel::start([Script::new(TOUR, steps.into_iter().chain([end]))]).await;
    let Some(driven) = start(program, &model) else { return };
    let output = driven.draft("lead", TOUR, &["--wait"]);
    let told = || format!("{output:?}\n{}\n{}", story(&model), driven.transcript("lead-1"));
    assert!(output.status.success(), "{}", told());
    model.assert_played(TOUR);
    let answers = answers(&driven, "lead-1");
    assert_eq!(answers.len(), expected.len(), "{}", told());
    for (says, answer) in expected.iter().zip(&answers) {
        assert!(answer.contains(says), "{says} is not in {answer}\n{}", told());
    }
    // Whoever has no `main` is not offered what writes the backlog.
    let offered = model.offered_in(TOUR);
    assert!(offered.iter().any(|tool| tool.contains("list_yaks")), "{offered:?}");
    assert!(!offered.iter().any(|tool| tool.contains("create_yak")), "{offered:?}");
    let log = driven.hub.ok(&["log"]);
    assert!(log.contains("TELL-1 was sent again") && !log.contains("TELL-2"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_calls_the_tools_of_every_seed() {
    check_the_tools("claude").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_calls_the_tools_of_every_seed() {
    check_the_tools("codex").await;
}

const WHERE: &str = "Find out which team you are.";

/// A program that was connected from a project's directory has the tools of that team, and no others' to write.
async fn check_the_connection(program: &str) {
    let Some(path) = find(program) else { return };
    let project = tempfile::tempdir().expect("a temporary directory");
    let pwd = std::fs::canonicalize(project.path()).expect("it is there");
    let script = Script::new(
        WHERE,
        [
            Step::call("team_getTeamName", json!({"pwd": pwd})),
            Step::call("team_teams", json!({})),
            Step::call("task-next", json!({})),
            Step::say("${team_getTeamName.teamName}"),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let data = project.path().join("data");
    let mut up = crate::hub::command(&data);
    up.current_dir(project.path()).arg("up");
    let hub = Hub::start_with(up, &data);
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut connect = hub.command();
    connect.current_dir(project.path()).env("HOME", home.path());
    if program == "codex" {
        real_agents::configure_codex(home.path(), &model.url);
    }
    let output = connect.args(["connect", program, "--write"]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let team = pwd.file_name().expect("it has a name").to_string_lossy().into_owned();
    let tokens = hub.ok(&["token", "list", "--json"]);
    assert!(!tokens.contains(&format!("\"name\":\"{program}\"")), "{tokens}");
    let said = match program {
        "codex" => real_agents::run_codex(&path, &home, WHERE).await,
        _ => real_agents::run_claude(&path, &home, &model.url, None, WHERE).await,
    };
    model.assert_played(WHERE);
    assert!(said.stdout.contains(&*team), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connected_claude_belongs_to_the_team_of_its_project() {
    check_the_connection("claude").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connected_codex_belongs_to_the_team_of_its_project() {
    check_the_connection("codex").await;
}
