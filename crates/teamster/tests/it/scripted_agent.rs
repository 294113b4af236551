//! The scripted agent, over real pipes and with the hub's own driver: every step that a script can have.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::fmt::Write;
use std::net::TcpListener;
use std::path::Path;

use expect_test::{Expect, expect};
use serde_json::json;
use teamster_agents::agent::{
    Begin, Event, McpServer, PermissionId, Resume, Tokens, Usage, clipped,
};
use teamster_agents::dialogue::{Dialogue, Said, Source};
use teamster_agents::drivers::acp::Acp;
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::{Exited, How, Launch, Measure, Terminate};
use teamster_agents::lines::{Line, Lines};
use teamster_agents::started::{self, Process, Started};
use teamster_agents::stdin::Stdin;
use tempfile::TempDir;

use crate::hub::{DEADLINE, Hub, program};
#[cfg(target_os = "linux")]
use crate::launcher::orphans::marked;
use crate::launcher::{World, long, short};

/// Lines of more bytes are thrown away by whoever reads here.
const LINE_BYTES_MAX: usize = 64 * 1024;

struct Output(Lines<started::Output>);

impl Source for Output {
    async fn next(&mut self) -> std::io::Result<Option<Said>> {
        Ok(self.0.next().await?.map(|line| match line {
            Line::Whole(line) => Said::Line(line),
            Line::TooLong => Said::TooLong,
            Line::Unfinished(rest) => Said::CutOff(rest),
        }))
    }
}

/// A scripted agent that can be prompted.
struct Agent {
    process: Process,
    dialogue: Dialogue<Output, Stdin>,
    session: String,
    _world: World,
}

impl Agent {
    /// Starts one that works, and keeps its session, in this directory.
    async fn start(directory: &Path) -> Self {
        Self::begin(begin(directory)).await
    }

    async fn begin(begin: Begin) -> Self {
        let world = World::new();
        let isolation =
            if cfg!(target_os = "linux") { Isolation::Subreaper } else { Isolation::Group };
        let mut launch = Launch::new("scripted", program(), isolation);
        launch.args.push("scripted-agent".into());
        let state = begin.directory.join("state");
        launch.environment.push(("TEAMSTER_SCRIPTED_STATE".into(), state.into()));
        launch.line_bytes_max = LINE_BYTES_MAX;
        let Started { process, stdin, stdout } = world.launch(launch).await;
        let mut dialogue = Dialogue::new(Box::new(Acp::default()), Output(stdout), stdin);
        dialogue.begin(&begin, DEADLINE).expect("it is new");
        let mut agent = Self { process, dialogue, session: String::new(), _world: world };
        match agent.next().await {
            Event::Started(started) => {
                assert!(started.can_resume);
                assert_eq!(started.resumed, begin.resume.is_some());
                agent.session = started.session;
            }
            other => panic!("{other:?} instead of a start"),
        }
        agent
    }

    async fn next(&mut self) -> Event {
        let event = tokio::time::timeout(DEADLINE, self.dialogue.next()).await;
        event.expect("something happens in time").expect("it is not over")
    }

    fn prompt(&mut self, prompt: &str) {
        self.dialogue.prompt(prompt).expect("it listens");
    }

    /// Waits for an event.
    async fn until(&mut self, wanted: impl Fn(&Event) -> bool) {
        while !wanted(&self.next().await) {}
    }

    /// Plays a script and returns what is heard until the turn ends.
    async fn play(&mut self, prompt: &str) -> String {
        self.prompt(prompt);
        self.heard().await
    }

    async fn heard(&mut self) -> String {
        let mut heard = String::new();
        loop {
            let event = self.next().await;
            let is_end = matches!(event, Event::TurnEnded(_));
            if let Some(line) = show(event) {
                let _ = writeln!(heard, "{line}");
            }
            if is_end {
                return heard;
            }
        }
    }

    async fn exited(&self) -> Exited {
        let exited = tokio::time::timeout(DEADLINE, self.process.exited()).await;
        exited.expect("it ends in time")
    }
}

fn server(url: &str, token: &str) -> McpServer {
    let bearer = ("Authorization".to_owned(), format!("Bearer {token}"));
    McpServer {
        name: "teamster".to_owned(),
        url: format!("{url}/mcp"),
        headers: vec![bearer],
        tool_timeout: None,
        bridge: None,
    }
}

fn begin(directory: &Path) -> Begin {
    Begin { directory: directory.to_owned(), ..Begin::default() }
}

fn show(event: Event) -> Option<String> {
    let shown = match event {
        Event::Prompted { .. } => return None,
        Event::Text(piece) => format!("says {}", clipped(piece.text, 300)),
        Event::Thought(piece) => format!("thinks {}", piece.text),
        Event::ToolCall(call) => {
            let input = call.input.map(|input| input.text).unwrap_or_default();
            let targets = call.targets.iter().map(|target| Path::new(target).file_name());
            let targets: Vec<_> = targets.flatten().collect();
            format!("calls {} {} {:?} {input} {targets:?}", call.id, call.title, call.kind)
        }
        Event::ToolResult { id, ok, output } => format!("result of {id}: {ok} {}", output.text),
        Event::Usage(Usage { tokens, context, cost, .. }) => {
            let tokens = tokens.map(|Tokens { input, output, .. }| (input, output));
            let cost = cost.map(|cost| cost.micros);
            // What every turn says that uses nothing.
            let is_nothing = tokens.unwrap_or_default() == (0, 0);
            if is_nothing && matches!((context, cost), (_, Some(0)) | (None, None)) {
                return None;
            }
            format!("used {tokens:?} {:?} {cost:?}", context.map(|context| context.used))
        }
        Event::PermissionAsked { id, call, options } => {
            let options: Vec<_> = options.iter().map(|option| option.id.as_str()).collect();
            format!("asks {id}: {} {options:?}", call.title)
        }
        Event::PermissionAnswered { id, option } => format!("answered {id}: {option:?}"),
        Event::Trouble { message } => format!("trouble: {}", clipped(message, 120)),
        Event::TurnEnded(end) => format!("ends: {end:?}"),
        other => format!("{other:?}"),
    };
    Some(shown)
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn check(prompt: &str, expect: Expect) {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    expect.assert_eq(&agent.play(prompt).await);
    agent.process.end(long(Terminate::Program));
    let ended = Exited { how: How::Code(0), after: Some(Measure::StdinClosed), n_left: 0 };
    assert_eq!(agent.exited().await, ended);
}

#[tokio::test]
async fn it_says_thinks_writes_and_reports() {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    let script = "Ignored.\n! think hm\n! say hello, $$last and $5\n! write a.txt some text\n! write no/where x\n\
                  ! usage 10 2 0.25\n! usage 5 1 0.5\n! sleep 1\n! garbage\n\
                  ! outcome {\"status\":\"success\",\"summary\":\"done\"}";
    expect![[r#"
        thinks hm
        says hello, $last and $5
        calls call-3 write Edit  ["a.txt"]
        result of call-3: true written
        calls call-4 write Edit  ["where"]
        result of call-4: false No such file or directory (os error 2)
        used None Some(12) Some(250000)
        used None Some(6) Some(750000)
        trouble: not a message (EOF while parsing a value at line 1 column 26): {"jsonrpc":"2.0","method":
        says {"status":"success","summary":"done"}
        used Some((15, 3)) None None
        ends: Done
    "#]].assert_eq(&agent.play(script).await);
    let written = std::fs::read_to_string(directory.path().join("a.txt"));
    assert_eq!(written.expect("it was written"), "some text\n");
    expect![[r#"
        used None Some(2) Some(1000000)
        used Some((1, 1)) None None
        ends: Done
    "#]]
    .assert_eq(&agent.play("! usage 1 1 0.25").await);
}

#[tokio::test]
async fn a_prompt_without_a_script_is_answered_kindly() {
    check("\nFix the $bug.\nAll of it.", expect![[r#"
        thinks There is no script in this prompt.
        says I have no model. With one, I would do this: Fix the $bug.
        says {"status":"success","summary":"As a scripted agent I only said what I would do: Fix the $bug."}
        ends: Done
    "#]]).await;
}

#[tokio::test]
async fn a_wrong_script_is_not_begun_and_a_step_that_fails_ends_it() {
    check("! say first\n! dance", expect![[r#"
        ends: Failed { message: "line 2, `! dance`: there is no such step; there are say, think, call, outcome, write, run, ask, need, usage, sleep, hang, flood, long-line, garbage, ignore-sigterm, fork, crash, exit and limit" }
    "#]]).await;
    check(
        "! call task-list",
        expect![[r#"
        ends: Failed { message: "line 1, `! call task-list`: the session has no MCP server" }
    "#]],
    )
    .await;
    check(
        "! say $last",
        expect![[r#"
            ends: Failed { message: "line 1, `! say $last`: $last stands for nothing: there were 0 calls so far" }
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_floods_is_thrown_away_and_the_turn_goes_on() {
    check("! flood 1000000\n! say still here\n! long-line 1000000\n! long-line 301", expect![[r#"
        trouble: a line that was too long was thrown away
        says still here
        trouble: a line that was too long was thrown away
        says xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        ends: Done
    "#]])
        .await;
}

#[tokio::test]
async fn permission_is_asked_for() {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    for option in ["allow", "reject"] {
        agent.prompt("! ask May I?\n! say so");
        agent.until(|event| matches!(event, Event::PermissionAsked { .. })).await;
        let id = PermissionId(if option == "allow" { 1 } else { 2 });
        agent.dialogue.answer(id, option).expect("it was asked");
        let heard = agent.heard().await;
        assert!(heard.contains(&format!("says permission: {option}\nsays so\n")), "{heard}");
    }
}

#[tokio::test]
async fn a_turn_is_cancelled_wherever_it_is() {
    let directory = directory();
    // It is connected to, and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let url = format!("http://{}", mute.local_addr().expect("it has an address"));
    let mcp_servers = vec![server(&url, "token")];
    let mut agent = Agent::begin(Begin { mcp_servers, ..begin(directory.path()) }).await;
    for step in ["sleep 100000000", "hang", "ask May I?", "call tool", "flood 100000000000"] {
        agent.prompt(&format!("! say here\n! {step}\n! say too late"));
        agent.until(|event| matches!(event, Event::Text(_))).await;
        agent.dialogue.cancel().expect("it listens");
        let heard = agent.heard().await;
        assert!(heard.ends_with("ends: Cancelled\n"), "{step}: {heard}");
        assert!(!heard.contains("too late"), "{step}: {heard}");
        let next = agent.play("! say next").await;
        assert_eq!(next, "says next\nends: Done\n", "after {step}");
    }
}

#[tokio::test]
async fn it_ends_as_it_is_told() {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    expect![[r#"
        says bye
        ends: Gone
    "#]]
    .assert_eq(&agent.play("! say bye\n! exit 3").await);
    assert_eq!(agent.exited().await.how, How::Code(3));

    let mut agent = Agent::start(directory.path()).await;
    expect![[r#"
        calls call-1 crash Other  []
        ends: Gone
    "#]]
    .assert_eq(&agent.play("! crash").await);
    assert_eq!(agent.exited().await.how, How::Signal(9));
}

#[tokio::test]
async fn it_can_be_made_to_stay_and_to_leave_others_behind() {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    let seconds = format!("98765.{}", std::process::id());
    let heard = agent.play(&format!("! ignore-sigterm\n! fork {seconds}\n! say here")).await;
    assert_eq!(heard, "says here\nends: Done\n");
    #[cfg(target_os = "linux")]
    assert!((0..100).any(|_| marked(&seconds).len() >= 4), "they are left");
    agent.process.end(short(Terminate::Program));
    let ended = Exited { how: How::Killed, after: Some(Measure::Killed), n_left: 0 };
    assert_eq!(agent.exited().await, ended);
    #[cfg(target_os = "linux")]
    assert_eq!(marked(&seconds), []);
}

#[tokio::test]
async fn another_process_goes_on_with_a_session_that_was_cut_off() {
    let directory = directory();
    let mut agent = Agent::start(directory.path()).await;
    let heard = agent.play("! usage 1 1 0.5\n! crash\n! say after\n! usage 1 1 0.5").await;
    assert!(heard.ends_with("ends: Gone\n"), "{heard}");
    let resume = Resume { session: agent.session.clone(), ..Resume::default() };
    let begin = Begin { resume: Some(resume), ..begin(directory.path()) };
    let mut again = Agent::begin(begin.clone()).await;
    expect![[r#"
        says after
        used None Some(2) Some(1000000)
        used Some((1, 1)) None None
        ends: Done
    "#]]
    .assert_eq(&again.play("Go on.").await);

    let is_asked = |event: &Event| matches!(event, Event::PermissionAsked { .. });
    again.prompt("! ask May I?\n! say after");
    again.until(is_asked).await;
    again.process.kill();
    again.exited().await;
    let mut again = Agent::begin(begin).await;
    again.prompt("Go on.");
    again.until(is_asked).await;
    again.dialogue.answer(PermissionId(1), "allow").expect("it was asked");
    let heard = again.heard().await;
    assert!(heard.ends_with("says after\nends: Done\n"), "{heard}");
}

#[tokio::test]
async fn it_calls_the_tools_of_a_real_hub_under_its_own_name() {
    let hub = Hub::start();
    let token = hub.token("actor", "full");
    let directory = directory();
    let begin = begin(directory.path());
    let mcp_servers = vec![server(&hub.url, &token)];
    let mut agent = Agent::begin(Begin { mcp_servers, ..begin }).await;
    let add = json!({"tasks": [{"content": "sweep"}]});
    let script = format!(
        "! call task-add {add}\n! call task-next\n! say first: $call1; last: $last\n! call no-such-tool\n! say $last"
    );
    expect![[r#"
        calls call-1 task-add Other {"tasks":[{"content":"sweep"}]} []
        result of call-1: true Added 1 task(s):
          TAS-1: sweep
        calls call-2 task-next Other {} []
        result of call-2: true {"id":"TAS-1","content":"sweep","priority":2,"status":"remaining"}
        says first: Added 1 task(s):
          TAS-1: sweep; last: {"id":"TAS-1","content":"sweep","priority":2,"status":"remaining"}
        calls call-4 no-such-tool Other {} []
        result of call-4: false unknown tool "no-such-tool"; tools/list shows the tools there are
        says unknown tool "no-such-tool"; tools/list shows the tools there are
        ends: Done
    "#]]
    .assert_eq(&agent.play(&script).await);
    let friendly = agent.play("Sweep.").await;
    assert!(friendly.contains("calls call-8 task-list"), "{friendly}");
    assert_eq!(hub.log(), [("actor".to_owned(), "TAS-1 added (P2): sweep".to_owned())]);

    hub.ok(&["token", "revoke", "actor"]);
    let refused = agent.play("! call task-list").await;
    assert!(refused.contains("401"), "{refused}");
}

#[test]
fn the_page_tells_of_every_step_that_the_source_does() {
    let source = include_str!("../../src/scripted_agent.rs");
    let page = include_str!("../../../../docs/scripted-agent.md");
    let steps = source.lines().filter_map(|line| line.strip_prefix("//! ! "));
    let words: Vec<&str> = steps.filter_map(|step| step.split(' ').next()).collect();
    assert!(words.len() > 10, "{words:?}");
    for word in words {
        let told = page.lines().filter_map(|line| line.strip_prefix("| `! "));
        let told = told.filter_map(|line| line.split([' ', '`']).next());
        assert!(told.into_iter().any(|told| told == word), "{word} is not on the page");
    }
}

/// In `/tmp`, the directory of one user is nobody else's, and one that somebody else has made is not used.
#[test]
fn sessions_of_two_users_do_not_collide() {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(directory.path(), mode(0o1777)).expect("it is ours");
    let play = |mut agent: std::process::Command| {
        use std::io::{BufRead as _, Write as _};
        agent.arg("scripted-agent").env("TMPDIR", directory.path());
        agent.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut agent = agent.spawn().expect("it starts");
        let mut stdin = agent.stdin.take().expect("it is piped");
        let stdout = agent.stdout.take().expect("it is piped");
        let mut lines = std::io::BufReader::new(stdout).lines();
        let mut ask = |id: u64, method: &str, params: serde_json::Value| {
            let asked = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            writeln!(stdin, "{asked}").expect("it reads");
            let answers = lines.by_ref().map(|line| line.expect("it answers"));
            let mut answers = answers.map(|line| -> serde_json::Value {
                serde_json::from_str(&line).expect("it is JSON")
            });
            answers.find(|answer| answer["id"] == id).expect("it answers")
        };
        ask(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let made = ask(2, "session/new", json!({"cwd": "/", "mcpServers": []}));
        let prompt = json!([{"type": "text", "text": "! say hello"}]);
        let session = &made["result"]["sessionId"];
        let answer = match session.as_str() {
            Some(_) => ask(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})),
            None => made,
        };
        drop(stdin);
        agent.wait().expect("it ends");
        answer
    };
    let data = directory.path();
    for agent in [crate::hub::command(data), crate::hub::ordinary(data)] {
        let answer = play(agent);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    // Only root can give a directory away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let own = directory.path().join("teamster-scripted-0");
    std::os::unix::fs::chown(&own, Some(65_534), None).expect("it is ours");
    let answer = play(crate::hub::command(data));
    assert!(answer.to_string().contains("belongs to another user"), "{answer}");
}

/// Clients try methods that not every agent has; only this code tells them so.
#[test]
fn a_method_that_it_does_not_have_is_not_found() {
    use std::io::{BufRead as _, Write as _};
    let directory = tempfile::tempdir().expect("a directory");
    let mut agent = crate::hub::command(directory.path())
        .arg("scripted-agent")
        .env("TEAMSTER_SCRIPTED_STATE", directory.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = agent.stdin.take().expect("it is piped");
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":7,"method":"session/set_model","params":{{}}}}"#)
        .expect("it reads");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(agent.stdout.take().expect("it is piped"));
    stdout.read_line(&mut line).expect("it answers");
    let answer: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32601)), "{answer}");
    drop(stdin);
    assert!(agent.wait().expect("it ends").success());
}
