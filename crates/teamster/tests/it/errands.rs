//! Calls that outlive their request, over a real loop, log and door: they survive a hub that dies, are polled, answered
//! and cancelled, and belong to whoever made them. The tools are fixtures; those of the product do not wait yet.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tasks live no longer than their test, and a broken fixture should panic"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use expect_test::expect;
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::errand::{OPEN_MAX, RESULT_BYTES_MAX};
use teamster_core::grant::{Grant, Grants};
use teamster_core::ids::ErrandId;
use teamster_core::token::{self, Kind, NewToken};
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, PrincipalName, RunName, State, item, note, run};
use teamster_hub::clock::SystemClock;
use teamster_hub::hub::{self, Handle, Opened, Parts, Snapshots};
use teamster_hub::project::Project;
use teamster_hub::secret;
use teamster_mcp::answer::{Reply, ToolError};
use teamster_mcp::ask::Ask;
use teamster_mcp::call::Call;
use teamster_mcp::catalogue::Needs;
use teamster_mcp::catalogue::{Entry, Tool};
use teamster_mcp::door::http::{Secrets, Served, Setup, router};
use teamster_mcp::seal::{KEY_BYTES, Seal};
use teamster_mcp::{Catalogue, Hub as _, Set};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::hub::{DEADLINE, MODERN};

struct WaitForItem;

/// Leaves a note that it waits, and waits until there is an item.
#[derive(Debug, Deserialize, JsonSchema)]
struct WaitForItemArgs {
    content: String,
}

impl Tool for WaitForItem {
    const SET: Set = Set::Session;
    const NAME: &'static str = "wait-for-item";
    const NEEDS: Needs = Needs::Token;
    const WAITS: bool = true;
    type Args = WaitForItemArgs;

    async fn call(cx: &Call<'_>, args: WaitForItemArgs) -> Result<Reply, ToolError> {
        let WaitForItemArgs { content } = args;
        let who = &cx.caller().principal;
        let new =
            note::NewNote { content: format!("{who} waits for {content}"), kind: note::Kind::Tip };
        cx.submit(in_run(run::Command::Note(note::Command::Add(vec![new])))).await?;
        let topic = Topic::Run(RunName::default_run());
        let found = cx.wait(&topic, Duration::MAX, |state| find_item(state, &content)).await;
        Ok(Reply::Json(json!({"found": found})))
    }
}

struct AskTwice;

/// Asks for a name and, when it has it, for a color.
#[derive(Debug, Deserialize, JsonSchema)]
struct AskTwiceArgs {}

impl Tool for AskTwice {
    const SET: Set = Set::Session;
    const NAME: &'static str = "ask-twice";
    const NEEDS: Needs = Needs::Token;
    const WAITS: bool = true;
    type Args = AskTwiceArgs;

    async fn call(cx: &Call<'_>, _args: AskTwiceArgs) -> Result<Reply, ToolError> {
        let ask = |name| {
            Ok(Reply::Ask(vec![Ask::form(name, "?", &json!({"type": "object", "properties": {}}))]))
        };
        // Past the door's patience, however fast the machine is.
        cx.wait(&Topic::Log, Duration::MAX, is_errand(Self::NAME)).await;
        match (cx.answers().form("name"), cx.answers().form("color")) {
            (None, _) => ask("name"),
            (Some(_), None) => ask("color"),
            (Some(one), Some(two)) => Ok(Reply::Text(format!("{one:?} {two:?}"))),
        }
    }
}

struct SayMuch;

/// Says more than can be kept, and too late.
#[derive(Debug, Deserialize, JsonSchema)]
struct SayMuchArgs {}

impl Tool for SayMuch {
    const SET: Set = Set::Session;
    const NAME: &'static str = "say-much";
    const NEEDS: Needs = Needs::Token;
    const WAITS: bool = true;
    type Args = SayMuchArgs;

    async fn call(cx: &Call<'_>, _args: SayMuchArgs) -> Result<Reply, ToolError> {
        cx.wait(&Topic::Log, Duration::MAX, is_errand(Self::NAME)).await;
        Ok(Reply::Text("x".repeat(RESULT_BYTES_MAX)))
    }
}

struct NoteThenAsk;

/// Leaves a note, and asks then.
#[derive(Debug, Deserialize, JsonSchema)]
struct NoteThenAskArgs {}

impl Tool for NoteThenAsk {
    const SET: Set = Set::Session;
    const NAME: &'static str = "note-then-ask";
    const NEEDS: Needs = Needs::Token;
    const WAITS: bool = true;
    type Args = NoteThenAskArgs;

    async fn call(cx: &Call<'_>, _args: NoteThenAskArgs) -> Result<Reply, ToolError> {
        let new = note::NewNote { content: "I asked".into(), kind: note::Kind::Tip };
        cx.submit(in_run(run::Command::Note(note::Command::Add(vec![new])))).await?;
        let ask = Ask::form("name", "?", &json!({"type": "object", "properties": {}}));
        match cx.answers().form("name") {
            None => Ok(Reply::Ask(vec![ask])),
            Some(form) => Ok(Reply::Text(format!("Hello, {}!", form["name"]))),
        }
    }
}

struct AskAtOnce;

/// Asks before the caller's patience ends.
#[derive(Debug, Deserialize, JsonSchema)]
struct AskAtOnceArgs {}

impl Tool for AskAtOnce {
    const SET: Set = Set::Session;
    const NAME: &'static str = "ask-at-once";
    const NEEDS: Needs = Needs::Token;
    type Args = AskAtOnceArgs;

    async fn call(cx: &Call<'_>, _args: AskAtOnceArgs) -> Result<Reply, ToolError> {
        let ask = Ask::form("name", "?", &json!({"type": "object", "properties": {}}));
        match cx.answers().form("name") {
            None => Ok(Reply::Ask(vec![ask])),
            Some(form) => Ok(Reply::Text(format!("Hello, {}!", form["name"]))),
        }
    }
}

fn in_run(what: run::Command) -> Command {
    Command::Run { run: RunName::default_run(), what }
}

/// Says whether a call of this tool has become an errand.
fn is_errand(tool: &str) -> impl Fn(&State) -> Option<()> {
    move |state| state.errands.open().any(|errand| &*errand.call.tool == tool).then_some(())
}

fn find_item(state: &State, content: &str) -> Option<String> {
    let run = state.runs.get(&RunName::default_run());
    run.items
        .ranked_after(None)
        .find(|item| &*item.content == content)
        .map(|item| item.id.to_string())
}

/// A hub with its door, in the test's own process.
struct Door {
    hub: Handle,
    router: Router,
    served: Arc<Served>,
    deciding: JoinHandle<()>,
}

impl Door {
    /// Starts a hub on this data directory, as the program does; here every call that waits becomes an errand.
    async fn open(data: &Path) -> Self {
        Self::open_with(data, Duration::ZERO).await
    }

    async fn open_with(data: &Path, patience: Duration) -> Self {
        let log = teamster_log::open(data, teamster_log::Options::default()).expect("a log");
        let parts = Parts {
            log,
            clock: Arc::new(SystemClock),
            random: secret::system_random(),
            project: Project::new("/nowhere"),
            snapshots: Snapshots::USUAL,
        };
        let Opened { handle: hub, run } = hub::start(parts, |_, _| ()).await.expect("a hub");
        let deciding = tokio::spawn(async move { run.await.expect("the log holds") });
        let start = teamster_core::hub::Command::Start { version: "test".into() };
        hub.submit(Caller::hub(), Command::Hub(start), None).await.expect("a start");
        for name in ["ann", "bob"] {
            ensure_token(&hub, name).await;
        }
        let served = Served::new(Setup {
            hub: Arc::new(hub.clone()),
            catalogue: Catalogue::of(vec![
                Entry::of::<WaitForItem>(),
                Entry::of::<AskTwice>(),
                Entry::of::<AskAtOnce>(),
                Entry::of::<SayMuch>(),
                Entry::of::<NoteThenAsk>(),
            ]),
            secrets: Secrets { new: secret::new_secret, hash: secret::hash },
            spawn: Arc::new(|_, task| {
                tokio::spawn(task);
            }),
            seal: Seal::new([7; KEY_BYTES]),
            observer: Arc::new(teamster_mcp::observe::Nobody),
            patience,
            paces: Arc::default(),
        });
        let router = router(served.clone(), Router::new(), 1);
        Self { hub, router, served, deciding }
    }

    /// Ends the hub without a word to anybody, as in a crash.
    async fn crash(self) {
        self.deciding.abort();
        self.served.end_streams();
        let _ = self.deciding.await;
    }

    async fn crash_and_open(self, data: &Path) -> Self {
        self.crash().await;
        Self::open(data).await
    }

    async fn ask(&self, who: &str, client: &Value, method: &str, params: Value) -> Value {
        self.ask_at("/mcp", who, client, method, params).await
    }

    async fn ask_at(
        &self,
        path: &str,
        who: &str,
        client: &Value,
        method: &str,
        mut params: Value,
    ) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": client,
            "teamster/key": params["key"],
        });
        if params["key"].is_null() {
            params["_meta"].as_object_mut().expect("an object").remove("teamster/key");
        }
        let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default();
        let request = http::Request::post(path)
            .header("host", "127.0.0.1:1")
            .header("authorization", format!("Bearer {who}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", method)
            .header("mcp-name", name);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = request.body(Body::from(body.to_string())).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let answer: Value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&body)));
        if answer["error"].is_null() { answer["result"].clone() } else { answer["error"].clone() }
    }

    /// Calls a tool for a client that knows tasks, and returns the task's id.
    async fn task(&self, who: &str, tool: &str, arguments: Value) -> String {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.ask(who, &knows_tasks(), "tools/call", params).await;
        assert_eq!(answer["resultType"], "task", "{answer}");
        answer["taskId"].as_str().expect("a task has an id").to_owned()
    }

    async fn get(&self, who: &str, task: &str) -> Value {
        self.ask(who, &knows_tasks(), "tasks/get", json!({"taskId": task})).await
    }

    /// Waits until a task neither works nor is about to.
    async fn settled(&self, who: &str, task: &str) -> Value {
        let id = ErrandId::parse(task).expect("an id");
        let watch = self.hub.watch(&Topic::Errand(id));
        let settled = watch.until(&self.hub, |state| {
            state.errands.get(id).is_none_or(|errand| !errand.is_ready()).then_some(())
        });
        tokio::time::timeout(DEADLINE, settled).await.expect("a task settles");
        self.get(who, task).await
    }

    async fn add_item(&self, content: &str) {
        let new = item::NewItem { content: content.into(), status: None, priority: None };
        let add = in_run(run::Command::Item(item::Command::Add(vec![new])));
        self.hub.submit(Caller::hub(), add, None).await.expect("a new item");
    }

    fn n_notes(&self) -> usize {
        self.hub.state().runs.get(&RunName::default_run()).notes.len()
    }
}

/// Makes a token whose secret is its principal's name, unless it lives.
async fn ensure_token(hub: &Handle, name: &str) {
    if hub.state().tokens.by_secret(&secret::hash(name)).is_some() {
        return;
    }
    let new = NewToken {
        principal: PrincipalName::parse(name).expect("a name"),
        kind: Kind::Agent,
        secret: secret::hash(name),
        grants: Grants::new([Grant::Full]),
        run: None,
        team: None,
        expires_at: None,
    };
    let create = Command::Token(token::Command::Create { new, replace: false });
    hub.submit(Caller::hub(), create, None).await.expect("a token");
}

fn knows_tasks() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn knows_nothing() -> Value {
    json!({})
}

fn form(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[tokio::test]
async fn a_task_goes_on_in_the_next_hub_and_does_nothing_twice() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let task = door.task("ann", "wait-for-item", json!({"content": "x"})).await;
    let before = door.get("ann", &task).await;
    assert_eq!(before["status"], "working", "{before}");

    let door = door.crash_and_open(data.path()).await;
    assert_eq!(door.get("ann", &task).await, before);
    let door = door.crash_and_open(data.path()).await;
    door.add_item("x").await;
    let after = door.settled("ann", &task).await;
    assert_eq!(after["status"], "completed", "{after}");
    assert_eq!(after["createdAt"], before["createdAt"]);
    expect![[r#"{"content":[{"type":"text","text":"{\"found\":\"TAS-1\"}"}],"structuredContent":{"found":"TAS-1"},"isError":false}"#]]
        .assert_eq(&after["result"].to_string());
    assert_eq!(door.n_notes(), 1, "three hubs called the tool, and it left one note");

    let door = door.crash_and_open(data.path()).await;
    assert_eq!(door.get("ann", &task).await, after, "the result is kept");
}

#[tokio::test]
async fn a_task_s_questions_and_answers_survive() {
    let data = tempfile::tempdir().expect("a directory");
    let mut door = Door::open(data.path()).await;
    let task = door.task("ann", "ask-twice", json!({})).await;
    let answers =
        [("name", form(json!({"name": "Ann"}))), ("color", form(json!({"color": "red"})))];
    for (name, answer) in answers {
        let asking = door.settled("ann", &task).await;
        assert_eq!(asking["status"], "input_required", "{asking}");
        assert_eq!(asking["inputRequests"][name]["method"], "elicitation/create", "{asking}");
        door = door.crash_and_open(data.path()).await;
        assert_eq!(door.get("ann", &task).await, asking);
        let give = json!({"taskId": task, "inputResponses": {name: answer, "other": {}}});
        let acknowledged = door.ask("ann", &knows_tasks(), "tasks/update", give).await;
        assert_eq!(acknowledged, json!({"resultType": "complete"}));
        door = door.crash_and_open(data.path()).await;
    }
    let done = door.settled("ann", &task).await;
    assert_eq!(done["status"], "completed", "{done}");
    expect![[r#"{"name": String("Ann")} {"color": String("red")}"#]]
        .assert_eq(done["result"]["content"][0]["text"].as_str().expect("a text"));
}

#[tokio::test]
async fn a_cancelled_task_stays_cancelled() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let task = door.task("ann", "wait-for-item", json!({"content": "x"})).await;
    for _ in 0..2 {
        let cancel = json!({"taskId": task});
        let acknowledged = door.ask("ann", &knows_tasks(), "tasks/cancel", cancel).await;
        assert_eq!(acknowledged, json!({"resultType": "complete"}));
    }
    let cancelled = door.get("ann", &task).await;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let door = door.crash_and_open(data.path()).await;
    door.add_item("x").await;
    assert_eq!(door.get("ann", &task).await, cancelled);
}

#[tokio::test]
async fn a_task_belongs_to_its_principal_and_path() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let task = door.task("ann", "ask-twice", json!({})).await;
    let asking = door.settled("ann", &task).await;
    let of = |task: &str| {
        [
            ("tasks/get", json!({"taskId": task})),
            ("tasks/update", json!({"taskId": task, "inputResponses": {"name": form(json!({}))}})),
            ("tasks/cancel", json!({"taskId": task})),
        ]
    };
    let mut answers = Vec::new();
    for ((method, foreign), (_, unknown)) in of(&task).into_iter().zip(of("ERRAND-999")) {
        answers.push(door.ask("bob", &knows_tasks(), method, foreign.clone()).await);
        answers.push(door.ask_at("/mcp/session", "ann", &knows_tasks(), method, foreign).await);
        answers.push(door.ask("ann", &knows_tasks(), method, unknown).await);
    }
    for answer in answers {
        let said = answer.to_string().replace("ERRAND-999", &task);
        assert_eq!(
            said,
            r#"{"code":-32602,"message":"no call of yours is known here as \"ERRAND-1\"; it may have been forgotten, so make the call again"}"#
        );
    }
    assert_eq!(door.get("ann", &task).await, asking, "nobody else could do anything to it");

    let revoke = Command::Token(token::Command::Revoke { which: "ann".into() });
    door.hub.submit(Caller::hub(), revoke, None).await.expect("ann's token ends");
    assert_eq!(door.hub.state().errands.open().count(), 0);
    ensure_token(&door.hub, "ann").await;
    assert_eq!(door.get("ann", &task).await["code"], -32602, "another ann is somebody else");
}

#[tokio::test]
async fn a_client_without_tasks_calls_again_and_gets_the_result_once() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let params = json!({"name": "wait-for-item", "arguments": {"content": "x"}});
    let call = async |door: &Door, who: &str| {
        let answer = door.ask(who, &knows_nothing(), "tools/call", params.clone()).await;
        let text = answer["content"][0]["text"].as_str().expect("a text").to_owned();
        (text, answer["isError"].as_bool())
    };
    let (still, _) = call(&door, "ann").await;
    expect!["Still working on it (ERRAND-1). Call wait-for-item again with the same arguments to go on waiting; the result is kept."]
        .assert_eq(&still);
    assert_eq!(call(&door, "ann").await.0, still);
    let door = door.crash_and_open(data.path()).await;
    assert_eq!(call(&door, "ann").await.0, still);
    assert!(call(&door, "bob").await.0.contains("(ERRAND-2)"), "bob's call is another");

    door.add_item("x").await;
    door.settled("ann", "ERRAND-1").await;
    let door = door.crash_and_open(data.path()).await;
    let result = (r#"{"found":"TAS-1"}"#.to_owned(), Some(false));
    assert_eq!(call(&door, "ann").await, result);
    // It was handed over, so this is a new call, which finds that its note is there already, sooner or later.
    assert_ne!(call(&door, "ann").await, result);
}

#[tokio::test]
async fn a_client_without_tasks_is_asked_when_it_calls_again() {
    let data = tempfile::tempdir().expect("a directory");
    let mut door = Door::open(data.path()).await;
    let client = json!({"elicitation": {}});
    let call = async |door: &Door, more: Value| {
        let mut params = json!({"name": "ask-twice", "arguments": {}});
        for (name, value) in more.as_object().expect("an object") {
            params[name] = value.clone();
        }
        door.ask("ann", &client, "tools/call", params).await
    };
    let still = call(&door, json!({})).await;
    let still = still["content"][0]["text"].as_str().expect("a text");
    assert!(still.starts_with("Still working on it (ERRAND-1)"), "{still}");
    let mut answered = Value::Null;
    let answers =
        [("name", form(json!({"name": "Ann"}))), ("color", form(json!({"color": "red"})))];
    for (name, answer) in answers {
        door.settled("ann", "ERRAND-1").await;
        let asked = call(&door, json!({})).await;
        assert_eq!(asked["inputRequests"][name]["method"], "elicitation/create", "{asked}");
        door = door.crash_and_open(data.path()).await;
        let state = &asked["requestState"];
        let given = json!({"requestState": state, "inputResponses": {name: answer}});
        answered = call(&door, given).await;
    }
    // Where the machine is quick, the last answer's own call has the result already, and it is handed over once.
    if answered["content"][0]["text"].as_str().is_some_and(|text| text.starts_with("Still")) {
        door.settled("ann", "ERRAND-1").await;
        answered = call(&door, json!({})).await;
    }
    assert_eq!(
        answered["content"][0]["text"],
        r#"{"name": String("Ann")} {"color": String("red")}"#
    );
}

#[tokio::test]
async fn what_cannot_be_kept_fails_the_task_and_says_so() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let task = door.task("ann", "say-much", json!({})).await;
    let failed = door.settled("ann", &task).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    expect![[r#"{"code":-32603,"message":"the result has 262199 bytes, which is more than the 262144 that are kept of a long call"}"#]].assert_eq(&failed["error"].to_string());
}

#[tokio::test]
async fn one_principal_s_calls_under_way_are_bounded() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    for n in 0..OPEN_MAX {
        door.task("ann", "wait-for-item", json!({"content": format!("x{n}")})).await;
    }
    let n_notes = door.n_notes();
    let params = json!({"name": "wait-for-item", "arguments": {"content": "more"}});
    let refused = door.ask("ann", &knows_tasks(), "tools/call", params).await;
    expect![[r#"[{"type":"text","text":"error: you have 64 calls under way; wait for some of them, or cancel them, first"}]"#]].assert_eq(&refused["content"].to_string());
    assert_eq!(door.n_notes(), n_notes, "the tool was not called at all");
    door.task("bob", "wait-for-item", json!({"content": "more"})).await;
}

#[tokio::test]
async fn the_same_key_is_the_same_task() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let call = async |door: &Door, content: &str| {
        let arguments = json!({"content": content});
        let params = json!({"name": "wait-for-item", "arguments": arguments, "key": "k1"});
        door.ask_at("/mcp", "ann", &knows_tasks(), "tools/call", params).await
    };
    let first = call(&door, "x").await;
    assert_eq!(first["taskId"], "ERRAND-1", "{first}");
    let door = door.crash_and_open(data.path()).await;
    assert_eq!(call(&door, "x").await, first);
    let other = call(&door, "y").await;
    expect![[r#"error: the key "k1" was used for another call; use a new key for each new call"#]]
        .assert_eq(other["content"][0]["text"].as_str().expect("a text"));
}

#[tokio::test]
async fn what_a_client_carries_opens_for_its_own_call_in_the_next_hub_too() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open(data.path()).await;
    let call = async |door: &Door, who: &str, state: Option<&str>| {
        let mut params = json!({"name": "ask-at-once", "arguments": {}});
        if let Some(state) = state {
            params["requestState"] = state.into();
            params["inputResponses"] = json!({"name": form(json!({"name": "Ann"}))});
        }
        door.ask(who, &json!({"elicitation": {}}), "tools/call", params).await
    };
    let asked = call(&door, "ann", None).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let state = asked["requestState"].as_str().expect("a state");
    let door = door.crash_and_open(data.path()).await;
    let answer = call(&door, "ann", Some(state)).await;
    assert_eq!(answer["content"][0]["text"], "Hello, \"Ann\"!", "{answer}");
    for (who, state) in [("bob", state.to_owned()), ("ann", format!("{state}x"))] {
        let refused = call(&door, who, Some(&state)).await;
        assert_eq!(
            refused.to_string(),
            r#"{"code":-32602,"message":"requestState was not made for this call, was changed, or is too old; make the call again without it"}"#
        );
    }
    let unable = door
        .ask("ann", &knows_nothing(), "tools/call", json!({"name": "ask-at-once", "arguments": {}}))
        .await;
    assert_eq!(unable["code"], -32021, "{unable}");
}

#[tokio::test]
async fn all_rounds_of_a_call_that_asks_are_one_call() {
    let data = tempfile::tempdir().expect("a directory");
    let door = Door::open_with(data.path(), DEADLINE).await;
    let client = json!({"elicitation": {}});
    let params = json!({"name": "note-then-ask", "arguments": {}});
    let asked = door.ask("ann", &client, "tools/call", params).await;
    let params = json!({
        "name": "note-then-ask", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": {"name": form(json!({"name": "Ann"}))},
    });
    door.crash().await;
    let door = Door::open_with(data.path(), DEADLINE).await;
    let answer = door.ask("ann", &client, "tools/call", params).await;
    assert_eq!(answer["content"][0]["text"], "Hello, \"Ann\"!", "{answer}");
    assert_eq!(door.n_notes(), 1);
}

#[test]
fn the_seal_s_key_is_the_hub_s_own_and_stays() {
    use std::os::unix::fs::PermissionsExt;
    let mut hub = crate::hub::Hub::start();
    let file = hub.data().join("seal.key");
    let key = std::fs::read(&file).expect("a key");
    assert_eq!(key.len(), KEY_BYTES);
    let mode = std::fs::metadata(&file).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    hub.crash_and_start_again();
    assert_eq!(std::fs::read(&file).expect("a key"), key);
}
