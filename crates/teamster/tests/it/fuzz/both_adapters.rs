//! Two identical hubs behind two doors: one answers directly what it can, the other everything by rmcp. Nobody may be
//! able to tell them apart, whatever is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::middleware::map_response;
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_core::topic::Topic;
use teamster_mcp::answer::{Block, Reply, Resource, ToolError};
use teamster_mcp::ask::{Ask, Capability};
use teamster_mcp::call::Call;
use teamster_mcp::catalogue::Needs;
use teamster_mcp::catalogue::{Entry, Tool};
use teamster_mcp::door::http::{BODY_BYTES_MAX, router, router_of};
use teamster_mcp::door::rmcp::Adapter;
use teamster_mcp::{Catalogue, Set};

use super::door::{Asked, Door, Routes, Said, headers, messages};
use super::mutate::Mutator;
use super::play;
use super::tools::World;
use crate::hub::{LEGACY, MODERN};

struct SayAnything;

/// Does what no tool of ours does yet, so that its answer has every form there is.
#[derive(Debug, Deserialize, JsonSchema)]
struct SayAnythingArgs {
    how: String,
}

impl Tool for SayAnything {
    const SET: Set = Set::Session;
    const NAME: &'static str = "say-anything";
    const NEEDS: Needs = Needs::Token;
    type Args = SayAnythingArgs;

    async fn call(cx: &Call<'_>, args: SayAnythingArgs) -> Result<Reply, ToolError> {
        let form = Ask::form("name", "?", &json!({"type": "object", "properties": {}}));
        let mime_type = || "text/plain".to_owned();
        match args.how.as_str() {
            "json" => Ok(Reply::Json(json!({"z": 1, "a": [null, 1.5, -0.0, "é\u{2028}\0"]}))),
            "null" => Ok(Reply::Json(Value::Null)),
            "blocks" => Ok(Reply::Blocks(vec![
                Block::text(""),
                Block::Image { data: "AA==".into(), mime_type: "image/png".into() },
                Block::Audio { data: "AA==".into(), mime_type: "audio/wav".into() },
                Block::Resource {
                    resource: Resource {
                        uri: "x:y".into(),
                        mime_type: mime_type(),
                        text: "t".into(),
                    },
                },
            ])),
            "nothing" => Ok(Reply::Blocks(Vec::new())),
            "ask" => Ok(match cx.answers().form("name") {
                None => Reply::Ask(vec![form, Ask::model("m", "?", 9), Ask::roots("r")]),
                Some(form) => Reply::Text(format!("{form:?}")),
            }),
            "need" => Ok(Reply::Needs(Capability::Sampling)),
            "progress" => {
                cx.progress(0.5, Some(1.0), Some("half".into()));
                Ok(Reply::Text("whole".into()))
            }
            other => Err(ToolError::new(format!("how: {other}?"))),
        }
    }
}

struct WaitForever;

/// Waits longer than anybody does.
#[derive(Debug, Deserialize, JsonSchema)]
struct WaitForeverArgs {}

impl Tool for WaitForever {
    const SET: Set = Set::Session;
    const NAME: &'static str = "wait-forever";
    const NEEDS: Needs = Needs::Token;
    const WAITS: bool = true;
    type Args = WaitForeverArgs;

    async fn call(cx: &Call<'_>, _args: WaitForeverArgs) -> Result<Reply, ToolError> {
        cx.wait(&Topic::Log, Duration::MAX, |_| None::<()>).await;
        Ok(Reply::Text("waited".into()))
    }
}

fn catalogue() -> Catalogue {
    let fixtures = [Entry::of::<SayAnything>(), Entry::of::<WaitForever>()];
    Catalogue::of(teamster_mcp::tools::all().into_iter().chain(fixtures).collect())
}

/// How long a call waits before it becomes an errand.
const PATIENCE: Duration = Duration::from_millis(1);

/// Every request goes to both doors.
struct Pair {
    direct: Door,
    by_rmcp: Door,
    /// The last session of the older era that each of them opened.
    sessions: Option<[String; 2]>,
}

/// Stands in a header for the session that the door at hand has opened.
const OWN_SESSION: &str = "own-session";

impl Pair {
    fn new() -> Self {
        Self::with(router)
    }

    fn with(direct: Routes) -> Self {
        let by_rmcp = |served, more, port| router_of(served, more, port, Adapter::new);
        let direct = Door::with(catalogue(), PATIENCE, direct);
        let by_rmcp = Door::with(catalogue(), PATIENCE, by_rmcp);
        for door in [&direct, &by_rmcp] {
            door.world.add_token("reader", &["read-only"], None);
            door.world.add_token("lister", &["session:task-list"], None);
            door.world.add_token("bound", &["full"], Some("other"));
        }
        Self { direct, by_rmcp, sessions: None }
    }

    /// Returns what both said if it is the same, or how it differs; nothing if no client could have sent that.
    fn ask(&mut self, asked: &Asked) -> Option<Result<Said, String>> {
        let sessions = self.sessions.clone().unwrap_or_default();
        let [direct, by_rmcp] =
            [(&self.direct, &sessions[0]), (&self.by_rmcp, &sessions[1])].map(|(door, session)| {
                let mut asked = asked.clone();
                for (_, value) in &mut asked.headers {
                    *value = value.replace(OWN_SESSION, session);
                }
                door.ask(&asked)
            });
        let (direct, by_rmcp) = (direct?, by_rmcp?);
        let opened =
            |said: &Said| Some(said.headers.get("mcp-session-id")?.to_str().ok()?.to_owned());
        if let (Some(one), Some(other)) = (opened(&direct), opened(&by_rmcp)) {
            self.sessions = Some([one, other]);
        }
        let said = comparable(direct);
        let same = said == comparable(by_rmcp.clone());
        let events = [self.direct.world.seq(), self.by_rmcp.world.seq()];
        Some(if same && events[0] == events[1] {
            Ok(said)
        } else {
            Err(format!(
                "to {asked:?}\n  direct: {said:?}\n  rmcp:   {by_rmcp:?}\n  events: {events:?}"
            ))
        })
    }

    fn assert_same_state(&self) {
        let (one, other) =
            (self.direct.world.hub.handle.state(), self.by_rmcp.world.hub.handle.state());
        assert_eq!(one.runs, other.runs);
        assert_eq!(one.yaks, other.yaks);
    }
}

/// Leaves out what is random by design, though not that it is there: the id of a new session, and sealed texts.
fn comparable(mut said: Said) -> Said {
    if let Some(session) = said.headers.get_mut("mcp-session-id") {
        *session = HeaderValue::from_static("a session");
    }
    const STATE: &str = "\"requestState\":\"";
    if let Some(at) = said.body.find(STATE).map(|at| at + STATE.len()) {
        let n_bytes = said.body[at..].find('"').expect("a text ends");
        said.body.replace_range(at..at + n_bytes, "sealed");
    }
    said
}

/// Good messages, of which those that the direct adapter answers are the most.
fn good() -> Vec<Value> {
    let mut good = messages();
    let call = good.last().expect("there are messages").clone();
    for how in ["json", "null", "blocks", "nothing", "ask", "need", "progress", "badly"] {
        let mut call = call.clone();
        call["params"]["name"] = "say-anything".into();
        call["params"]["arguments"] = json!({"how": how});
        good.push(call);
    }
    let mut wait = call;
    wait["params"]["name"] = "wait-forever".into();
    wait["params"]["arguments"] = json!({});
    good.push(wait);
    for message in &mut good {
        // A key makes the same call answered the same; without, each is a new one.
        if let Some(meta) = message.pointer_mut("/params/_meta").and_then(Value::as_object_mut) {
            meta.remove("teamster/key");
        }
    }
    good
}

const META: &str = "/params/_meta/";

/// Parts of a message that somebody could send, besides or instead of those of a good one.
fn parts() -> Vec<(String, Value)> {
    let everything = json!({
        "elicitation": {}, "sampling": {}, "roots": {"listChanged": true},
        "extensions": {"io.modelcontextprotocol/tasks": {}}, "unknown": {},
    });
    let own = |name: &str, value| (format!("{META}io.modelcontextprotocol~1{name}"), value);
    let meta = |name: &str, value| (format!("{META}{name}"), value);
    let part = |at: &str, value| (at.to_owned(), value);
    vec![
        part("/id", json!("text")),
        part("/id", json!("é\u{0}\"")),
        part("/id", json!("")),
        part("/id", json!(1.0)),
        part("/id", json!(1e2)),
        part("/id", json!(1.5)),
        part("/id", json!(-3)),
        part("/id", json!(i64::MAX)),
        part("/id", json!(u64::MAX)),
        part("/id", json!(null)),
        part("/id", json!([1])),
        part("/jsonrpc", json!("1.0")),
        part("/method", json!("tools/get")),
        part("/method", json!(1)),
        part("/result", json!({})),
        part("/error", json!({"code": 1, "message": "m"})),
        part("/more", json!(1)),
        part("/params", json!(null)),
        part("/params", json!([])),
        part("/params/cursor", json!("x")),
        part("/params/cursor", json!(1)),
        part("/params/requestState", json!("rs")),
        part("/params/requestState", json!(1)),
        part("/params/inputResponses", json!({})),
        part("/params/inputResponses", json!({"name": {"action": "accept", "content": {"a": 1}}})),
        part("/params/inputResponses", json!({"name": 1})),
        part("/params/task", json!({"ttl": 1})),
        part("/params/more", json!(1)),
        part("/params/name", json!("nothing")),
        part("/params/name", json!("=?base64?dGFzay1saXN0?=")),
        part("/params/name", json!(null)),
        part("/params/arguments", json!(null)),
        part("/params/arguments", json!([])),
        part("/params/arguments", json!({})),
        part("/params/_meta", json!(null)),
        part("/params/_meta", json!({})),
        meta("progressToken", json!(7)),
        meta("progressToken", json!("p")),
        meta("progressToken", json!({})),
        meta("teamster~1key", json!(5)),
        meta("teamster~1key", json!("a key")),
        meta("teamster~1key", json!("a-key")),
        meta("teamster~1key", json!("another-key")),
        meta("traceparent", json!("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01")),
        own("clientInfo", json!({"name": "n", "version": "1"})),
        own("clientInfo", json!(3)),
        own("logLevel", json!("debug")),
        own("logLevel", json!("loud")),
        own("protocolVersion", json!(LEGACY[0])),
        own("protocolVersion", json!("2027-01-01")),
        own("protocolVersion", json!(3)),
        own("protocolVersion", json!(null)),
        own("clientCapabilities", everything),
        own("clientCapabilities", json!({"elicitation": {"form": {}}, "sampling": null})),
        own("clientCapabilities", json!([])),
        own("clientCapabilities", json!([null, null, null, null, null])),
        own("clientCapabilities", json!({"roots": 1})),
        own("clientCapabilities", json!({"extensions": {"io.modelcontextprotocol/tasks": 1}})),
        own("clientCapabilities", json!(null)),
    ]
}

/// Puts a value into a message, where there is a place for it.
fn put(message: &mut Value, at: &str, value: Value) {
    let (parent, name) = at.rsplit_once('/').expect("a pointer has a slash");
    if let Some(parent) = message.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.insert(name.replace("~1", "/"), value);
    }
}

/// Changes of a text that JSON's values cannot express: what to replace, and by what.
const TEXTS: [(&str, &str); 26] = [
    (r#""id":1"#, r#""id":1,"id":1"#),
    (r#""id":1"#, r#""id":1,"id":2"#),
    (r#""id":1"#, r#""id":01"#),
    (r#""id":1"#, r#""id":-0"#),
    (r#""id":1"#, r#""id":1e400"#),
    (r#""id":1"#, r#""id":9007199254740993.0"#),
    (r#""id":1"#, r#""\u0069d":1"#),
    (r#""id":1,"#, ""),
    (r#""jsonrpc":"2.0""#, r#""jsonrpc":"2.0","jsonrpc":"2.0""#),
    (r#""2.0""#, r#""2\u002e0""#),
    (r#""method":"#, r#""method":"tools/list","method":"#),
    ("tools/call", r"tools\u002fcall"),
    (r#""params":{"#, r#""params":{},"params":{"#),
    (r#""params":{"#, r#""params":{"name":"task-list","#),
    (r#""params":{"#, r#""params":{"_meta":{},"#),
    (r#""name":"task-"#, r#""name":"t\u0061sk-"#),
    (r#""arguments":{"#, r#""arguments":{"id":"TAS-1","id":"TAS-2","#),
    (r#""arguments":{"#, r#""arguments":null,"arguments":{"#),
    (r#""_meta":{"#, r#""_meta":{"x":"\ud800","#),
    (r#""_meta":{"#, r#""_meta":{"x":1e999,"#),
    (r#""_meta":{"#, r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","#),
    (r#""clientCapabilities":{}"#, r#""clientCapabilities":{"x":"\ud800"}"#),
    (
        r#"":{}"#,
        r#"" :	{
 }"#,
    ),
    ("}", "} "),
    ("}", "}}"),
    ("{", " {"),
];

/// Changes a good message's text in a way that a careless reader would not notice.
fn text_of(mutator: &mut Mutator, message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let part = |name: &str| message.get(name).cloned().unwrap_or_default();
    let params = &message["params"];
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deep = |mutator: &mut Mutator, before: &str| {
        let deep = nested(118 + mutator.below(16));
        text.replacen(before, &format!("{before}\"deep\":{deep},"), 1)
    };
    match mutator.below(16) {
        0 => json!([message]).to_string(),
        1 => json!([part("jsonrpc"), part("id"), part("method"), params]).to_string(),
        2 => {
            let mut message = message.clone();
            message["params"] = json!([params["_meta"], params["name"], params["arguments"]]);
            message.to_string()
        }
        3 => deep(mutator, "\"_meta\":{"),
        4 => deep(mutator, "\"arguments\":{"),
        5 => return [text.as_bytes(), b"\xff"].concat(),
        6 => {
            return text
                .replacen("\"_meta\":{", "\"_meta\":{\"x\":\"\u{1}\",", 1)
                .replace('\u{1}', "\u{fffd}")
                .into_bytes();
        }
        7 => {
            return String::from("\u{feff}")
                .into_bytes()
                .into_iter()
                .chain(text.into_bytes())
                .collect();
        }
        8 => {
            // Not UTF-8, in a text that nobody reads.
            let text = text.replacen("\"_meta\":{", "\"_meta\":{\"x\":\"?\",", 1).into_bytes();
            let at = text.iter().position(|byte| *byte == b'?');
            return at.map_or(text.clone(), |at| [&text[..at], b"\xff", &text[at + 1..]].concat());
        }
        _ => {
            let (from, to) = *mutator.pick(&TEXTS);
            text.replacen(from, to, 1)
        }
    }
    .into_bytes()
}

/// Headers that somebody could send instead; no value means that it is missing.
const HEADERS: [(&str, Option<&str>); 36] = [
    ("host", None),
    ("host", Some("evil.example")),
    ("authorization", None),
    ("authorization", Some("Bearer nobody")),
    ("authorization", Some("Bearer reader")),
    ("authorization", Some("bearer  reader ")),
    ("authorization", Some("Bearer lister")),
    ("authorization", Some("Bearer bound")),
    ("accept", None),
    ("accept", Some("*/*")),
    ("accept", Some("application/json")),
    ("accept", Some("text/event-stream")),
    ("accept", Some("text/event-stream;q=0.1, application/json")),
    ("accept", Some("APPLICATION/JSON, TEXT/EVENT-STREAM")),
    ("content-type", None),
    ("content-type", Some("text/plain")),
    ("content-type", Some("application/json; charset=utf-8")),
    ("content-type", Some("application/jsonx")),
    ("content-type", Some("Application/JSON")),
    ("mcp-protocol-version", None),
    ("mcp-protocol-version", Some(LEGACY[0])),
    ("mcp-protocol-version", Some(LEGACY[1])),
    ("mcp-protocol-version", Some("2027-01-01")),
    ("mcp-protocol-version", Some("\u{e9}")),
    ("mcp-method", None),
    ("mcp-method", Some("tools/list")),
    ("mcp-method", Some("TOOLS/CALL")),
    ("mcp-method", Some("\u{e9}")),
    ("mcp-name", None),
    ("mcp-name", Some("task-list")),
    ("mcp-name", Some("=?base64?dGFzay1saXN0?=")),
    ("mcp-name", Some("=?base64?!?=")),
    ("mcp-session-id", Some("nobody's")),
    ("mcp-session-id", Some(OWN_SESSION)),
    ("origin", Some("https://evil.example")),
    ("upgrade", Some("mcp")),
];

/// Headers that may come in addition.
const MORE_HEADERS: [(&str, &str); 7] = [
    ("idempotency-key", "a-key"),
    ("idempotency-key", "another key"),
    ("idempotency-key", "\u{e9}"),
    ("mcp-param-id", "TAS-1"),
    ("last-event-id", "1"),
    ("origin", "http://localhost:80"),
    ("x-more", "more"),
];

/// All that requests are made of.
struct Source {
    good: Vec<Value>,
    parts: Vec<(String, Value)>,
}

impl Source {
    fn new() -> Self {
        Self { good: good(), parts: parts() }
    }

    fn any_request(&self, mutator: &mut Mutator, world: &World) -> Asked {
        // The last ones are calls, and those are what this is about.
        let n_calls = self.good.iter().filter(|message| message["method"] == "tools/call").count();
        let first = if mutator.one_in(3) { 0 } else { self.good.len() - n_calls };
        let good = mutator.pick(&self.good[first..]).clone();
        let mut message = world.with_ids(mutator, &good);
        if mutator.one_in(3) {
            let (at, value) = mutator.pick(&self.parts).clone();
            put(&mut message, &at, value);
        }
        let body = match mutator.below(18) {
            0 => {
                message = mutator.json(&message);
                message.to_string().into_bytes()
            }
            1 => mutator.bytes(message.to_string().as_bytes()),
            2 => text_of(mutator, &message),
            _ => message.to_string().into_bytes(),
        };
        let mut headers = headers(&message, MODERN);
        match mutator.below(24) {
            0..4 => {
                let (name, value) = *mutator.pick(&HEADERS);
                headers.retain(|(other, _)| *other != name);
                headers.extend(value.map(|value| (name, value.to_owned())));
            }
            4..6 => {
                let (name, value) = *mutator.pick(&MORE_HEADERS);
                headers.push((name, value.to_owned()));
            }
            6 => {
                // The same once more, or another of that name.
                let (name, value) = mutator.pick(&headers).clone();
                let value = if mutator.one_in(2) { value } else { mutator.text(&value) };
                let at = mutator.below(headers.len() + 1);
                headers.insert(at, (name, value));
            }
            _ => {}
        }
        let paths =
            ["/mcp", "/mcp", "/mcp/", "/mcp/session", "/mcp/session/other", "/mcp/yaks", "/mcp/no"];
        let path =
            format!("{}{}", mutator.pick(&paths), if mutator.one_in(9) { "?a=b" } else { "" });
        let method = if mutator.one_in(40) {
            mutator.pick(&[Method::GET, Method::DELETE, Method::PUT, Method::HEAD]).clone()
        } else {
            Method::POST
        };
        Asked { method, path, headers, body }
    }
}

#[test]
fn nobody_can_tell_the_adapters_apart() {
    let (mut pair, source) = (Pair::new(), Source::new());
    let mut answers = BTreeMap::new();
    let mut n_asked = 0;
    play("nobody_can_tell_the_adapters_apart", 6_000, |mutator| {
        let asked = source.any_request(mutator, &pair.direct.world);
        if let Some(said) = pair.ask(&asked) {
            let said = said.unwrap_or_else(|difference| panic!("{difference}"));
            n_asked += 1;
            *answers.entry(said.status.as_u16()).or_insert(0) += 1;
        }
    });
    let n_direct = pair.direct.served.n_answered_directly();
    println!("{n_direct} of {n_asked} answered directly; answers: {answers:?}");
    pair.assert_same_state();
    pair.direct.world.assert_replays();
    // Neither adapter may have been left out, unless one case is repeated.
    let some = n_asked / 4;
    assert!(n_asked < 2 || (some < n_direct && n_direct < n_asked - some), "{n_direct}");
    assert_eq!(pair.by_rmcp.served.n_answered_directly(), 0);
}

/// Plain requests: with these, an adapter that errs in anything errs in all of them.
fn plain_requests() -> Vec<Asked> {
    let calls = good().into_iter().filter(|message| {
        let (method, how) = (&message["method"], &message["params"]["arguments"]["how"]);
        method == "tools/list" || message["params"]["name"] == "task-add" || how == "need"
    });
    let request = |message: Value| Asked {
        method: Method::POST,
        path: "/mcp".into(),
        headers: headers(&message, MODERN),
        body: message.to_string().into_bytes(),
    };
    calls.map(request).collect()
}

#[test]
fn the_comparison_notices_every_difference() {
    let wrong: [Routes; 3] = [
        |served, more, port| {
            router(served, more, port).layer(map_response(async |mut response: Response| {
                *response.status_mut() = StatusCode::CREATED;
                response
            }))
        },
        |served, more, port| {
            router(served, more, port).layer(map_response(async |mut response: Response| {
                let kind = HeaderValue::from_static("application/json; charset=utf-8");
                response.headers_mut().insert("content-type", kind);
                response
            }))
        },
        |served, more, port| {
            router(served, more, port).layer(map_response(async |response: Response| {
                let (parts, body) = response.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                // The same JSON, in another order.
                let mut answer: Value = serde_json::from_slice(&body).expect("it is JSON");
                let id = answer.as_object_mut().and_then(|answer| answer.shift_remove("id"));
                answer["id"] = id.expect("an answer has an id");
                Response::from_parts(parts, Body::from(answer.to_string()))
            }))
        },
    ];
    let requests = plain_requests();
    assert_eq!(requests.len(), 3);
    for routes in wrong {
        for asked in &requests {
            let said = Pair::with(routes).ask(asked).expect("it can be sent");
            assert!(said.is_err(), "nothing was noticed: {said:?}");
        }
    }
    let mut pair = Pair::new();
    for asked in &requests {
        pair.ask(asked)
            .expect("it can be sent")
            .unwrap_or_else(|difference| panic!("{difference}"));
    }
    assert_eq!(pair.direct.served.n_answered_directly(), 3);
}

#[test]
fn a_body_that_is_too_large_or_nearly_so() {
    let mut pair = Pair::new();
    let plain = &plain_requests()[0];
    for n_bytes in [BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1] {
        let mut asked = plain.clone();
        asked.body.resize(n_bytes, b' ');
        let said = pair.ask(&asked).expect("it can be sent");
        let said = said.unwrap_or_else(|difference| panic!("{difference}"));
        assert_eq!(said.status.is_success(), n_bytes <= BODY_BYTES_MAX, "{said:?}");
    }
    assert_eq!(pair.direct.served.n_answered_directly(), 2);
}

/// A caller that goes away cannot know what became of its call; when it repeats it with its key, it does.
#[test]
fn a_caller_that_goes_away_in_the_middle() {
    let mut pair = Pair::new();
    let mut n_gone = 0;
    for case in 0..40_u32 {
        let mut message = good().into_iter().find(|call| call["params"]["name"] == "task-add");
        let message = message.as_mut().expect("there is one");
        message["params"]["arguments"] = json!({"tasks": [{"content": format!("task {case}")}]});
        message["params"]["_meta"]["teamster/key"] = format!("key-{case}").into();
        let asked = Asked {
            method: Method::POST,
            path: "/mcp".into(),
            headers: headers(message, MODERN),
            body: message.to_string().into_bytes(),
        };
        for door in [&pair.direct, &pair.by_rmcp] {
            n_gone += u32::from(door.ask_and_go(&asked, 1 + case % 3));
        }
        let said = pair.ask(&asked).expect("it can be sent");
        let said = said.unwrap_or_else(|difference| panic!("{difference}"));
        let expected = format!("Added 1 task(s):\\n  TAS-{}: task {case}", case + 1);
        assert!(said.body.contains(&expected), "{said:?}");
    }
    println!("{n_gone} callers went away");
    assert!(n_gone > 20, "{n_gone} callers went away");
    pair.assert_same_state();
}
