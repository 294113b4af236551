//! Transcripts of conversations: complete whatever is restarted, followed, cut at a time, as a document, kept for as long as
//! is wanted, and opened in a terminal.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::World;
use crate::hub::Mcp;
use crate::unattended::until_said;

/// A hub with one team.
struct Team {
    world: World,
    path: TempDir,
}

impl Team {
    fn start(more: &str) -> Self {
        let path = tempfile::tempdir().expect("a directory");
        let settings = format!("{more}\n[teams.api]\npath = {:?}\n", path.path());
        Self { world: World::start(&settings), path }
    }

    fn tell(&self, message: &str) -> String {
        self.world.hub.ok(&["tell", "api", message])
    }

    fn transcript(&self, more: &[&str]) -> String {
        self.world.hub.ok(&[&["transcript", "operator", "api"], more].concat())
    }

    fn records(&self, more: &[&str]) -> Vec<Value> {
        let text = self.transcript(&[&["--json"], more].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
    }

    /// Returns a client that is a person's.
    async fn operator(&self) -> Mcp {
        let token = std::fs::read_to_string(self.world.hub.data().join("operator.token"));
        self.world.hub.modern(token.expect("it is there").trim(), "/mcp/teams").await
    }
}

async fn call(client: &mut Mcp, tool: &str, arguments: Value) -> Value {
    let (text, failed) = client.call(tool, arguments).await;
    assert!(!failed, "{text}");
    serde_json::from_str(&text).expect("the answer is JSON")
}

/// Returns the messages that a transcript tells of.
fn told(records: &[Value]) -> Vec<&str> {
    let told = records.iter().filter(|record| record["type"] == "told" && record["again"] != true);
    told.filter_map(|record| record["text"].as_str()).collect()
}

#[test]
fn a_transcript_is_complete_whatever_was_restarted() {
    let mut team = Team::start("");
    assert_eq!(team.tell("! think about it\n! say one"), "one");
    team.world.hub.ok(&["sleep", "api"]);
    assert_eq!(team.tell("! say two"), "two");
    team.world.hub.ok(&["tell", "api", "! say three\n! sleep 700\n! say and four", "--no-wait"]);
    until_said(&team.world, "TELL-3 is being answered");
    team.world.crash_and_start_again();
    until_said(&team.world, "TELL-3 answered");
    assert_eq!(team.tell("! say five\n```"), "five");

    let records = team.records(&[]);
    let messages = ["! think about it\n! say one", "! say two"];
    let later = ["! say three\n! sleep 700\n! say and four", "! say five\n```"];
    assert_eq!(told(&records), [messages, later].concat());
    let settled = records.iter().filter(|record| record["type"] == "settled");
    assert!(settled.clone().all(|record| record["completed"] == true));
    assert_eq!(settled.count(), 4);
    let starts = records.iter().filter(|record| record["type"] == "started");
    let resumed: Vec<_> = starts.map(|record| record["resumed"] == true).collect();
    assert_eq!(resumed, [false, true, true]);
    let again = records.iter().filter(|record| record["again"] == true).count();
    assert_eq!(again, 1, "one message was cut off");

    // The same by its name, and of a time.
    assert_eq!(team.transcript(&[]), team.world.hub.ok(&["transcript", "CONV-1"]));
    assert_eq!(team.records(&["--since", "1h"]), records);
    let last = records.iter().rfind(|record| record["type"] == "told").expect("one");
    let at = last["at_ms"].as_i64().expect("a time");
    let at = jiff::Timestamp::from_millisecond(at).expect("a time").to_string();
    assert_eq!(told(&team.records(&["--since", &at])), ["! say five\n```"]);
    assert!(team.records(&["--since", "2999-01-01T00:00:00Z"]).is_empty());

    let shown = team.transcript(&[]);
    let ends = shown.lines().filter(|line| line.starts_with("· TELL-")).collect::<Vec<_>>();
    let expected = ["TELL-1", "TELL-2", "TELL-3", "TELL-4"].map(|id| format!("· {id} completed"));
    assert_eq!(ends, expected, "{shown}");
    for refused in [vec!["transcript", "api", "operator"], vec!["transcript", "CONV-9"]] {
        assert!(!team.world.hub.run(&refused).status.success());
    }
}

#[test]
fn a_document_can_be_pasted() {
    let team = Team::start("");
    team.tell("Look.\n```\n! call team_getTeamName {\"pwd\":\"/nowhere\"}\n! say It is\n! say ```not closed");
    team.world.hub.ok(&["tell", "api", "! hang", "--no-wait"]);
    until_said(&team.world, "TELL-2 is being answered");
    team.world.hub.ok(&["sleep", "api"]);
    let text = team.transcript(&["--markdown"]);
    let times = |line: &str| match line.split_once(" · 2") {
        Some((head, _)) => format!("{head} · <time>"),
        None => match line.split_once("session `") {
            Some((head, _)) => format!("{head}session <session>"),
            None => line.to_owned(),
        },
    };
    let text = text.lines().map(times).collect::<Vec<_>>().join("\n");
    expect![[r##"
        # operator → api (CONV-1)

        - began session <session>

        ## TELL-1 · <time>

        **operator:**

        > Look.
        > ```
        > ! call team_getTeamName {"pwd":"/nowhere"}
        > ! say It is
        > ! say ```not closed

        - tool: ` team_getTeamName ` ` {"pwd":"/nowhere"} `
        - result: ` {"found":false} `

        **api:**

        > It is

        **api:**

        > ```not closed

        *completed*

        ## TELL-2 · <time>

        **operator:**

        > ! hang

        *terminated:* ` its agent was put to sleep `"##]]
    .assert_eq(&text);
}

#[test]
fn who_follows_sees_the_next_message_also_after_a_sleep_and_from_the_next_hub() {
    let mut team = Team::start("");
    team.tell("! say first");
    let follow = ["transcript", "operator", "api", "--follow"];
    let mut follow =
        team.world.hub.command().args(follow).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(follow.stdout.take().expect("stdout is piped")).lines();
    let mut until = |wanted: &str| {
        let mut lines = lines.by_ref().map(|line| line.expect("it can be read"));
        assert!(lines.any(|line| line == wanted), "{wanted}");
    };
    until("· TELL-1 completed");
    team.tell("! say second");
    until("· TELL-2 completed");
    team.world.hub.ok(&["sleep", "api"]);
    team.tell("! say third");
    until("  third");
    until("· TELL-3 completed");
    team.world.crash_and_start_again();
    team.tell("! say fourth");
    until("  fourth");
    until("· TELL-4 completed");
    follow.kill().expect("it can be ended");
    follow.wait().expect("it ends");
}

#[test]
fn what_was_never_begun_is_there_too() {
    let team = Team::start("");
    team.world.hub.ok(&["tell", "api", "! hang", "--no-wait"]);
    team.world.hub.ok(&["tell", "api", "too late", "--no-wait"]);
    until_said(&team.world, "TELL-1 is being answered");
    let text = team.transcript(&[]);
    assert!(text.ends_with("too late\n· TELL-2 queued"), "{text}");
    team.world.hub.ok(&["sleep", "api"]);
    let text = team.transcript(&[]);
    assert!(text.contains("· TELL-1 terminated: its agent was put to sleep"), "{text}");
    assert!(text.contains("too late\n· TELL-2 terminated: its agent was put to sleep"), "{text}");
}

#[tokio::test]
async fn older_messages_than_those_at_hand_are_there() {
    let team = Team::start("");
    let mut person = team.operator().await;
    let mut session = Value::Null;
    for n in 0..205 {
        let tell =
            json!({"toTeam": "api", "message": format!("! say answer {n}"), "timeout": 60_000});
        let told = call(&mut person, "team_tell", tell).await;
        assert_eq!(told["response"], format!("answer {n}"));
        session = told["sessionId"].clone();
    }
    let records = team.records(&[]);
    let expected: Vec<String> = (0..205).map(|n| format!("! say answer {n}")).collect();
    assert_eq!(told(&records), expected);
    // The tool shows those at hand, page by page.
    let mut n_entries = 0;
    let mut cursor = Value::Null;
    loop {
        let read = json!({"sessionId": session, "cursor": cursor, "includeMessages": false});
        let page = call(&mut person, "team_cache_read", read).await;
        n_entries += page["entries"].as_array().expect("entries").len();
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(n_entries, 200);
}

#[tokio::test]
async fn protocol_messages_are_those_of_their_message() {
    let team = Team::start("");
    let mut person = team.operator().await;
    let script = "! think hm\n! call team_getTeamName {\"pwd\":\"/x\"}\n! say done";
    team.tell(script);
    team.world.hub.ok(&["sleep", "api"]);
    team.tell("! say again");
    let report = call(&mut person, "team_report", json!({"team": "api"})).await;
    let pid = report["pid"].as_u64().expect("its process is known");
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert!(String::from_utf8_lossy(&command).contains("scripted-agent"));
    let awake = call(&mut person, "team_isAwake", json!({})).await;
    assert!(awake["teams"].as_array().expect("teams").iter().any(|team| team["pid"] == pid));
    let teams = call(&mut person, "team_teams", json!({"includeProcessDetails": true})).await;
    assert!(
        teams["teams"].as_array().expect("teams").iter().any(|team| team["process"]["pid"] == pid)
    );

    let session = report["sessionId"].clone();
    let read = json!({"sessionId": session, "includeProtocolMessages": true, "messageCount": 100});
    let cache = call(&mut person, "team_cache_read", read).await;
    let kinds = |entry: &Value| -> Vec<String> {
        let messages = entry["messages"].as_array().expect("messages").iter();
        messages.map(|message| message["type"].as_str().expect("a type").to_owned()).collect()
    };
    let entries = cache["entries"].as_array().expect("entries");
    let of: Vec<_> = entries.iter().map(|entry| entry["type"].as_str().expect("a type")).collect();
    assert_eq!(of, ["SPAWN", "TELL", "SPAWN", "TELL"], "{cache}");
    assert_eq!(kinds(&entries[0]), ["started"]);
    let expected = [
        "user",
        "told",
        "prompted",
        "thought",
        "tool_call",
        "tool_result",
        "text",
        // As it is told in the turn, and the whole at its end.
        "usage",
        "usage",
        "turn_ended",
        "settled",
        "assistant",
        "result",
    ];
    assert_eq!(kinds(&entries[1]), expected);
    assert_eq!(entries[1]["messageCount"], 13);
    assert!(entries[1]["messages"][2]["data"]["text"].as_str().is_some(), "{cache}");
    assert_eq!(kinds(&entries[2]), ["exited", "started"], "{cache}");

    // Fewer are the newest; none are none, in both formats.
    let read = json!({"sessionId": session, "includeProtocolMessages": true, "messageCount": 3});
    let cache = call(&mut person, "team_cache_read", read).await;
    assert_eq!(kinds(&cache["entries"][1]), ["settled", "assistant", "result"], "{cache}");
    let read = json!({"sessionId": session, "includeProtocolMessages": true, "format": "text"});
    let cache = call(&mut person, "team_cache_read", read).await;
    let text = cache["text"].as_str().expect("text");
    assert!(text.contains(" api tool_call: {") && text.contains("api (completed): done"), "{text}");
    let read = json!({"sessionId": session, "includeMessages": false, "format": "text"});
    let cache = call(&mut person, "team_cache_read", read).await;
    let text = cache["text"].as_str().expect("text");
    assert!(text.lines().all(|line| line.ends_with(" completed")) && !text.contains("again"));
    person.call("team_sleep", json!({"team": "api"})).await;
    let report = call(&mut person, "team_report", json!({"team": "api"})).await;
    assert_eq!(report["pid"], Value::Null);
}

#[tokio::test]
async fn a_page_of_the_cache_is_bounded() {
    let team = Team::start("");
    let mut person = team.operator().await;
    let mut session = Value::Null;
    for n in 0..6 {
        let message = format!("! say {n}\n{}", "\"é".repeat(25_000));
        let tell = json!({"toTeam": "api", "message": message, "timeout": 60_000});
        session = call(&mut person, "team_tell", tell).await["sessionId"].clone();
    }
    for format in ["json", "text"] {
        let mut cursor = Value::Null;
        let mut sizes = Vec::new();
        loop {
            let read = json!({
                "sessionId": session, "cursor": cursor, "format": format, "includeProtocolMessages": true,
                "messageCount": 50,
            });
            let page = call(&mut person, "team_cache_read", read).await;
            sizes.push(page.to_string().len());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert!(sizes.len() > 2 && sizes.iter().all(|size| *size < 300_000), "{sizes:?}");
    }
    let read = json!({"sessionId": session, "cursor": "soon"});
    let (answer, failed) = person.call("team_cache_read", read).await;
    assert!(failed && answer.contains("unknown cursor"), "{answer}");
}

#[tokio::test]
async fn old_records_are_removed_as_configured() {
    let mut team = Team::start("[transcripts]\nkeep_records = 20\n");
    for n in 0..6 {
        team.tell(&format!("! say {n}"));
    }
    // What is being answered is kept, however much it is.
    let step = |n| format!("! say x\n! call team_getTeamName {{\"pwd\":\"/{n}\"}}\n");
    let steps = (0..20).map(step).collect::<String>();
    assert!(team.tell(&format!("{steps}! say end")).ends_with("end"));
    team.tell("! say last");
    // Whoever sleeps has done everything.
    team.world.hub.ok(&["sleep", "api"]);
    let records = team.records(&[]);
    assert_eq!(records[0]["type"], "forgotten", "{records:?}");
    assert_eq!(records.len(), 21);
    assert!(team.transcript(&[]).starts_with("(what was before "));
    team.world.hub.ok(&["log", "verify"]);
    // Numbers go on, also in a copy and in another hub.
    let copy = team.path.path().join("copy");
    team.world.hub.ok(&["backup", &copy.to_string_lossy()]);
    team.world.crash_and_start_again();
    assert_eq!(team.tell("! say on"), "on");
    team.world.hub.ok(&["sleep", "api"]);
    let up_to = |records: &[Value]| records[0]["up_to"].as_u64().expect("a number");
    assert!(up_to(&team.records(&[])) > up_to(&records));
    let copied = teamster_log::open_readonly(&copy).expect("a log");
    let name = teamster_log::TranscriptName::new("agent.api-1").expect("a name");
    let extent = copied.transcripts().extent(&name).await.expect("it can be read");
    assert_eq!((extent.forgotten, extent.n_records()), (up_to(&records), 20));
}

#[test]
fn a_session_is_opened_in_a_terminal() {
    let team = Team::start("");
    let refused = team.world.hub.fails(&["fork", "operator", "api"]);
    assert!(refused.contains("operator has told api nothing yet"), "{refused}");
    team.tell("! say hi");
    let refused = team.world.hub.fails(&["fork", "operator", "api"]);
    assert!(refused.contains("scripted has no command that opens a session"), "{refused}");
    drop(team);

    let opens = "[programs.scripted]\nopens = [\"/bin/sh\", \"-c\", \"pwd; echo $0\", \"it's {session}\"]\n";
    let team = Team::start(opens);
    team.tell("! say hi");
    let run = |more: &[&str]| {
        let mut fork = team.world.hub.command();
        let config = team.world.home.path().join("config");
        fork.env("XDG_CONFIG_HOME", config).args(["fork", "CONV-1"]).args(more);
        let output = fork.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let session = team.world.agent("api-1")["session"].as_str().expect("a session").to_owned();
    let path = team.path.path().display();
    let printed = run(&[]);
    assert_eq!(printed, format!(r"cd {path} && /bin/sh -c 'pwd; echo $0' 'it'\''s {session}'"));
    assert_eq!(run(&["--run"]), format!("{path}\nit's {session}"));
}
