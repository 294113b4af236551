//! The other doors: the unix socket, and stdio through `teamster mcp`.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use http::Method;
use serde_json::{Value, json};
use teamster_api::hub::Status;

use crate::hub::{Http, Hub, LEGACY, MODERN, command, feed};

/// A client that talks to `teamster mcp` as an agent program does.
struct Client {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    revision: &'static str,
}

impl Client {
    fn start(hub: &Hub, arguments: &[&str], revision: &'static str) -> Self {
        let mut process = hub.command();
        process.arg("mcp").args(arguments);
        Self::talk_to(process, revision)
    }

    /// Starts what an agent's program starts that takes MCP servers only as commands.
    fn bridge(hub: &Hub, token: &str, path: &str, revision: &'static str) -> Self {
        Self::talk_to(bridge(&format!("{}{path}", hub.url), token), revision)
    }

    fn talk_to(mut process: Command, revision: &'static str) -> Self {
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("it starts");
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut client = Self { process, stdin, stdout, revision };
        if revision == MODERN {
            let found = client.request("server/discover", json!({}));
            assert_eq!(found["result"]["resultType"], "complete", "{found}");
        } else {
            let info = json!({"name": "test", "version": "1"});
            let hello =
                json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info});
            let found = client.request("initialize", hello);
            assert_eq!(found["result"]["serverInfo"]["name"], "teamster", "{found}");
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("the client is open");
        writeln!(stdin, "{message}").expect("the message is read");
    }

    fn request(&mut self, method: &str, mut params: Value) -> Value {
        if self.revision == MODERN {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.send(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer is UTF-8");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn call(&mut self, name: &str, arguments: Value) -> String {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
    }

    /// Ends as a client does: it closes stdin.
    fn end(mut self) {
        drop(self.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("the rest is UTF-8");
        assert_eq!(rest, "");
        assert!(self.process.wait().expect("it ends").success());
    }
}

/// Has neither a home nor a data directory: a program may give its servers what it likes.
fn bridge(url: &str, token: &str) -> Command {
    let mut bridge = command(Path::new("/"));
    bridge.args(["mcp", "--bridge"]).env_clear();
    bridge.env("TEAMSTER_MCP_URL", url).env("TEAMSTER_MCP_TOKEN", token);
    bridge
}

/// Waits until the log says something, which it must in the end.
fn wait_for_log(hub: &Hub, what: &str) {
    let mut follow = hub.command();
    let mut follow =
        follow.args(["log", "--follow"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(follow.stdout.take().expect("stdout is piped")).lines();
    let found = lines.map_while(Result::ok).any(|line| line.contains(what));
    follow.kill().expect("it can be killed");
    follow.wait().expect("it ends");
    assert!(found, "the log never said {what:?}");
}

/// A client belongs to the team of the directory that it is started in, and has that set of tools by default.
#[test]
fn a_client_belongs_to_the_team_of_its_directory() {
    let teams = crate::teams::Teams::start("");
    let hub = &teams.world.hub;
    let start = |directory: &str, arguments: &[&str]| {
        let mut process = hub.command();
        process.current_dir(directory).arg("mcp").args(arguments);
        Client::talk_to(process, MODERN)
    };
    let (api, inside) = (teams.path("api"), teams.path("web/src"));
    for (directory, arguments, team) in [
        (&*api, &[][..], Some("api")),
        (&inside, &[], Some("web")),
        (&inside, &["--team", "ops"], Some("ops")),
        (&inside, &["--team", "none"], None),
        ("/", &[], None),
    ] {
        let mut client = start(directory, arguments);
        let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
        let has = |name: &str| {
            tools.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name))
        };
        assert_eq!(has("team_getTeamName"), team.is_some(), "{directory}: {tools}");
        assert!(has("list_yaks") && !has("create_yak"), "{tools}");
        if let Some(team) = team {
            let found = client.call("team_getTeamName", json!({"pwd": directory}));
            assert!(found.contains(r#""found":true"#), "{found}");
            let report = client.call("team_report", json!({"team": "api", "fromTeam": team}));
            assert!(report.contains(r#""hasSession":false"#), "{report}");
        }
        client.end();
    }
    // `connect` makes a token that belongs to the same team, where it is told to.
    let connect = |directory: &str, arguments: &[&str]| {
        let mut connect = hub.command();
        connect.current_dir(directory).env("HOME", teams.home.path());
        connect.args(["connect", "codex", "--http", "--replace"]).args(arguments);
        let output = connect.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let tokens = hub.ok(&["token", "list", "--json"]);
        let tokens: Vec<Value> = serde_json::from_str(&tokens).expect("it is JSON");
        let token =
            tokens.into_iter().find(|token| token["name"] == "codex").expect("it is listed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (token["team"].clone(), token["grants"].clone(), said)
    };
    let (team, grants, said) = connect(&inside, &[]);
    assert_eq!((team, grants), (json!("web"), json!("session")));
    assert!(said.contains("it belongs to the team web; with `--team none`"), "{said}");
    assert!(said.contains("token grant codex --grant session,main` lets it write there"), "{said}");
    let (team, grants, said) = connect(&api, &["--team", "none", "--grant", "full,main"]);
    assert_eq!((team, grants), (Value::Null, json!("full,main")));
    assert!(!said.contains("belongs to the team") && !said.contains("backlog"), "{said}");
}

#[test]
fn both_eras_work_over_stdio_under_a_name_of_their_own() {
    let hub = Hub::start();
    for (n, revision) in [MODERN, LEGACY[0], LEGACY[1]].into_iter().enumerate() {
        let name = format!("client-{n}");
        let mut client = Client::start(&hub, &["--name", &name, "--team", "none"], revision);
        let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
        assert_eq!(tools.as_array().map(Vec::len), Some(16), "{tools}");
        assert_eq!(
            client.call("task-add", json!({"tasks": [{"content": name}]})),
            format!("Added 1 task(s):\n  TAS-{}: {name}", n + 1)
        );
        client.end();
    }
    let by = hub.log().into_iter().map(|(by, what)| format!("{by}: {what}"));
    assert_eq!(
        by.collect::<Vec<_>>(),
        [0, 1, 2].map(|n| format!("client-{n}: TAS-{} added (P2): client-{n}", n + 1))
    );
}

#[test]
fn a_bridge_is_the_agent_whose_token_it_has_and_ends_with_it() {
    let hub = Hub::start();
    let token = hub.ok(&["token", "create", "ann", "--run", "alpha"]);
    for (n, revision) in [MODERN, LEGACY[0]].into_iter().enumerate() {
        let mut client = Client::bridge(&hub, &token, "/mcp/session/alpha/mcp", revision);
        let added = client.call("task-add", json!({"tasks": [{"content": revision}]}));
        assert_eq!(added, format!("Added 1 task(s):\n  TAS-{}: {revision}", n + 1));
        client.end();
    }
    let by: BTreeSet<String> = hub.log().into_iter().map(|(by, _)| by).collect();
    assert_eq!(by, BTreeSet::from(["ann".to_owned()]));

    // The token does not end with the connection, but the connection with the token.
    let mut client = Client::bridge(&hub, &token, "/mcp/session/alpha/mcp", MODERN);
    hub.ok(&["token", "revoke", "ann"]);
    let mut rest = String::new();
    client.stdout.read_to_string(&mut rest).expect("it ends");
    assert!(client.process.wait().expect("it ends").success());
    let refused = |token: &str, path: &str| {
        let output = feed(bridge(&format!("{}{path}", hub.url), token), "");
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&token, "/mcp").contains("a valid token is needed"));
    let other = hub.ok(&["token", "create", "bob", "--run", "alpha"]);
    assert!(refused(&other, "/mcp/session/beta/mcp").contains("belongs to the run alpha"));
    // Without a token of its own it does not take the operator's, although it could find it.
    let mut bare = hub.command();
    bare.args(["mcp", "--bridge"]);
    let output = feed(bare, "");
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("TEAMSTER_MCP_URL is not set"));
}

#[test]
fn a_connection_takes_its_token_with_it_also_when_it_is_killed() {
    let hub = Hub::start();
    hub.ok(&["tool", "task-add", "--tasks", "a"]);
    let mut client = Client::start(&hub, &["--name", "short"], MODERN);
    assert!(client.call("task-next", json!({"claim": true})).contains("TAS-1"));
    assert_eq!(hub.ok(&["tool", "task-next", "--claim"]), "No ready tasks");
    client.process.kill().expect("it can be killed");
    client.process.wait().expect("it ends");
    wait_for_log(&hub, "of short revoked");
    assert!(hub.ok(&["tool", "task-next", "--claim"]).contains("TAS-1"));
}

#[test]
fn two_of_one_name_are_two_principals() {
    let hub = Hub::start();
    let mut one = Client::start(&hub, &["--name", "twin"], MODERN);
    let mut two = Client::start(&hub, &["--name", "twin"], MODERN);
    one.call("task-add", json!({"tasks": [{"content": "one"}]}));
    two.call("task-add", json!({"tasks": [{"content": "two"}]}));
    let by: BTreeSet<String> = hub.log().into_iter().map(|(by, _)| by).collect();
    assert_eq!(by.len(), 2, "{by:?}");
}

#[test]
fn a_run_and_grants_hold_over_stdio() {
    let hub = Hub::start();
    let mut client = Client::start(&hub, &["--run", "alpha", "--grant", "read-only"], MODERN);
    assert_eq!(client.call("task-list", json!({})), "No tasks");
    assert!(
        client
            .call("task-add", json!({"tasks": [{"content": "x"}]}))
            .starts_with("error: task-add is not granted")
    );
    let output = feed(
        {
            let mut command = hub.command();
            command.args(["mcp", "--grant", "everything"]);
            command
        },
        "",
    );
    assert!(!output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "error: grant everything names no tool set or tool; the sets are session, agents, teams, yaks"
    );
}

#[test]
fn only_an_operator_opens_a_connection_for_another() {
    let hub = Hub::start();
    let token = hub.token("ann", "full,main,self");
    let mut stream = UnixStream::connect(hub.data().join("hub.sock")).expect("the socket is there");
    write!(
        stream,
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: upgrade\r\nupgrade: mcp\r\n\
         teamster-as: {{\"name\":\"operator2\",\"grants\":[\"full\"]}}\r\n\r\n"
    )
    .expect("it is read");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    assert_eq!(line.trim(), "HTTP/1.1 403 Forbidden");
}

#[test]
fn without_a_hub_one_is_started() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    });
    let mut mcp = command(&data);
    mcp.arg("mcp");
    let output = feed(mcp, &format!("{hello}\n"));
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"teamster\""), "{output:?}");
    let mut down = command(&data);
    assert!(down.arg("down").status().expect("it starts").success());
}

#[test]
fn four_processes_over_stdio_lose_nothing() {
    let hub = Hub::start();
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let mut client_process = Client::start(
                &hub,
                &["--name", &format!("c{client}")],
                if client % 2 == 0 { MODERN } else { LEGACY[0] },
            );
            std::thread::spawn(move || {
                let answers: Vec<String> = (0..250)
                    .map(|n| {
                        client_process.call(
                            "task-add",
                            json!({"tasks": [{"content": format!("{client}-{n}")}]}),
                        )
                    })
                    .collect();
                client_process.end();
                answers
            })
        })
        .collect();
    let acknowledged: BTreeSet<String> =
        clients.into_iter().flat_map(|client| client.join().expect("a client ends")).collect();
    assert_eq!(acknowledged.len(), 1_000);
    let stored: BTreeSet<String> = hub.log().into_iter().map(|(_, what)| what).collect();
    assert_eq!(stored.len(), 1_000);
}

#[tokio::test]
async fn the_socket_serves_what_the_url_serves() {
    let hub = Hub::start();
    let socket = hub.data().join("hub.sock");
    let mut http = Http::over_socket(&socket).await;
    let bearer = format!("Bearer {}", hub.operator);
    let answer = http.send(Method::GET, "/api/status", &[("authorization", &bearer)], "").await;
    assert_eq!(answer.read::<Status>().version, env!("CARGO_PKG_VERSION"));
    let mut http = Http::over_socket(&socket).await;
    assert_eq!(http.send(Method::GET, "/api/status", &[], "").await.status, 401);
    let mut http = Http::over_socket(&socket).await;
    let evil = [("authorization", bearer.as_str()), ("origin", "http://evil.example")];
    assert_eq!(http.send(Method::GET, "/api/status", &evil, "").await.status, 403);
}

#[tokio::test]
async fn a_session_of_the_older_era_survives_a_restart_and_is_still_its_owners() {
    let mut hub = Hub::start();
    let (ann, bob) = (hub.token("ann", "full"), hub.token("bob", "full"));
    let mut mcp = hub.legacy(&ann, "/mcp", LEGACY[1]).await;
    mcp.call("task-add", json!({"tasks": [{"content": "before"}]})).await;
    let session = mcp.session.clone();
    hub.crash_and_start_again();

    let mut again = hub.reconnect(&ann, "/mcp", LEGACY[1], session.clone()).await;
    assert_eq!(again.call("task-list", json!({})).await.0, "Remaining:\n  [TAS-1] before");
    let mut stolen = hub.reconnect(&bob, "/mcp", LEGACY[1], session.clone()).await;
    assert_eq!(stolen.request("tools/list", json!({})).await.status, 404);
    let mut elsewhere = hub.reconnect(&ann, "/mcp/session", LEGACY[1], session.clone()).await;
    assert_eq!(elsewhere.request("tools/list", json!({})).await.status, 404);

    // What its client has closed stays closed.
    let bearer = format!("Bearer {ann}");
    let id = session.expect("the older era has sessions");
    let close = [("authorization", bearer.as_str()), ("mcp-session-id", &id)];
    let closed = hub.http().await.send(Method::DELETE, "/mcp", &close, "").await;
    assert!(closed.status.is_success(), "{closed:?}");
    hub.crash_and_start_again();
    let mut gone = hub.reconnect(&ann, "/mcp", LEGACY[1], Some(id)).await;
    assert_eq!(gone.request("tools/list", json!({})).await.status, 404);
}
