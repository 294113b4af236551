//! The HTTP door and the operator's API, with the hub behind them: paths, headers and bodies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use teamster_hub::agents::{Configured, Live, Queue};
use teamster_hub::api::{self, Api};
use teamster_hub::clock::SystemClock;
use teamster_hub::listen::Connections;
use teamster_hub::telemetry::{Sources, Telemetry};
use teamster_hub::{secret, settings, tasks};
use teamster_log::memory::Memory;
use teamster_mcp::Catalogue;
use teamster_mcp::call::PATIENCE;
use teamster_mcp::door::http::{Secrets, Served, Setup, router};
use teamster_mcp::seal::{KEY_BYTES, Seal};
use tokio::sync::watch;

use super::mutate::Mutator;
use super::play;
use super::tools::{World, good_calls};
use crate::hub::{LEGACY, MODERN};

pub(super) const SECRET: &str = "tmst_fuzz";

pub(super) struct Door {
    pub(super) world: World,
    pub(super) served: Arc<Served>,
    router: TowerToHyperService<Router>,
}

/// A request before it is one: any part may be wrong.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// What was said to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// Makes the routes of a door out of what it serves and the operator's API.
pub(super) type Routes = fn(Arc<Served>, Router, u16) -> Router;

impl Door {
    pub(super) fn new() -> Self {
        Self::with(teamster_mcp::tools::catalogue(), PATIENCE, router)
    }

    pub(super) fn with(catalogue: Catalogue, patience: Duration, routes: Routes) -> Self {
        let world = World::new(secret::hash(SECRET));
        let hub = world.hub.handle.clone();
        let spawn = Arc::new(|name, task| drop(tasks::spawn(name, task)));
        let secrets = Secrets { new: secret::new_secret, hash: secret::hash };
        let sources = Sources {
            hub: hub.clone(),
            data: None,
            connections: Connections::default(),
            traces: None,
        };
        let telemetry = Arc::new(Telemetry::new(&catalogue, sources));
        let served = Served::new(Setup {
            hub: Arc::new(hub.clone()),
            catalogue,
            secrets,
            spawn,
            seal: Seal::new([7; KEY_BYTES]),
            observer: telemetry.clone(),
            patience,
            paces: Arc::default(),
        });
        let log = Arc::new(Memory::new(&world.store));
        let nothing = settings::read(&settings::Sources::default());
        let configured = Arc::new(Configured::new(
            hub.clone(),
            teamster_hub::config::DataFiles::of(std::path::Path::new("/nowhere")),
            nothing,
        ));
        let stop = watch::Sender::new(false);
        let queue = Queue::new(hub.clone(), Arc::new(SystemClock), configured.clone());
        let api = api::router(Api {
            hub,
            log,
            clock: Arc::new(SystemClock),
            stop,
            live: Live::default(),
            queue,
            telemetry,
            configured,
            standing: teamster_hub::isolation::Standing::default(),
        });
        let router = TowerToHyperService::new(routes(served.clone(), api, 80));
        Self { world, served, router }
    }

    /// Returns what was said, or nothing if no client could have sent that.
    pub(super) fn ask(&self, asked: &Asked) -> Option<Said> {
        let request = asked.request()?;
        Some(self.world.runtime.block_on(async {
            let answer = tokio::time::timeout(Duration::from_secs(120), self.router.call(request));
            let answer = answer.await.expect("there is an answer").expect("it cannot fail");
            let (parts, mut body) = answer.into_parts();
            let mut said = Vec::new();
            // A stream does not end by itself. Time passes only when nothing else can happen, so little is enough; and rmcp
            // mixes its streams' time with the real one, which must not be far away.
            let frames = async {
                while let Some(frame) = body.frame().await {
                    said.extend(frame.expect("it is whole").into_data().unwrap_or_default());
                }
            };
            let _ = tokio::time::timeout(Duration::from_millis(1), frames).await;
            let body = String::from_utf8(said).expect("answers are UTF-8");
            Said { status: parts.status, headers: parts.headers, body }
        }))
    }

    /// Asks and goes away after so many looks at what comes, if there is no answer by then.
    pub(super) fn ask_and_go(&self, asked: &Asked, looks: u32) -> bool {
        let request = asked.request().expect("it can be sent");
        self.world.runtime.block_on(async {
            let mut answer = std::pin::pin!(self.router.call(request));
            for _ in 0..looks {
                if answer.as_mut().now_or_never().is_some() {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            true
        })
    }

    /// Asks, and checks what holds for every answer.
    fn check(&self, asked: &Asked) -> Option<StatusCode> {
        let before = self.world.seq();
        let Said { status, body: said, .. } = self.ask(asked)?;
        assert!(!status.is_server_error(), "{status} {said}\nto {asked:?}");
        assert!(!said.contains("this is a bug in Teamster"), "{said}\nto {asked:?}");
        let refused = !status.is_success()
            || said.contains("\"isError\":true")
            || said.contains("\"error\":");
        assert!(!refused || self.world.seq() == before, "refused, but: {asked:?}\n{said}");
        assert!(
            status.is_success() || !said.is_empty() || asked.method == Method::HEAD,
            "{asked:?}"
        );
        Some(status)
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, headers, body } = self;
        write!(f, "{method} {path} {headers:?} {:?}", String::from_utf8_lossy(body))
    }
}

impl Asked {
    pub(super) fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::builder().method(&self.method).uri(&self.path);
        for (name, value) in &self.headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            request = request.header(HeaderName::from_static(name), value);
        }
        request.body(Body::from(self.body.clone())).ok()
    }
}

pub(super) fn headers(message: &Value, revision: &str) -> Vec<(&'static str, String)> {
    let word =
        |at: &str| message.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    vec![
        ("host", "127.0.0.1".into()),
        ("authorization", format!("Bearer {SECRET}")),
        ("content-type", "application/json".into()),
        ("accept", "application/json, text/event-stream".into()),
        ("mcp-protocol-version", revision.into()),
        ("mcp-method", word("/method")),
        ("mcp-name", word("/params/name")),
    ]
}

/// Good messages of the current era.
pub(super) fn messages() -> Vec<Value> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
        "teamster/key": "k",
    });
    let message = |method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    };
    let mut messages = vec![
        message("tools/list", json!({})),
        message("server/discover", json!({})),
        message("ping", json!({})),
        message("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})),
        message(
            "initialize",
            json!({"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        ),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
    ];
    for (name, arguments) in good_calls() {
        messages.push(message("tools/call", json!({"name": name, "arguments": arguments})));
    }
    messages
}

#[test]
fn messages_at_the_door() {
    let door = Door::new();
    let messages = messages();
    let mut statuses = std::collections::BTreeMap::new();
    play("door::messages_at_the_door", 3_000, |mutator| {
        let good = mutator.pick(&messages).clone();
        let good = door.world.with_ids(mutator, &good);
        let revision = *mutator.pick(&[MODERN, MODERN, MODERN, LEGACY[0], LEGACY[1]]);
        let (message, body) = match mutator.below(4) {
            0 => (good.clone(), mutator.bytes(good.to_string().as_bytes())),
            1 => (good.clone(), good.to_string().into_bytes()),
            _ => {
                let message = mutator.json(&good);
                (message.clone(), message.to_string().into_bytes())
            }
        };
        let mut headers = headers(&message, revision);
        if mutator.one_in(4) {
            let at = mutator.below(headers.len());
            headers[at].1 = mutator.text(&headers[at].1.clone());
        }
        let path =
            mutator.pick(&["/mcp", "/mcp/session", "/mcp/yaks", "/mcp/session/other"]).to_string();
        let asked = Asked { method: Method::POST, path, headers, body };
        if let Some(status) = door.check(&asked) {
            *statuses.entry(status.as_u16()).or_insert(0) += 1;
        }
    });
    println!("answers: {statuses:?}");
    assert!(statuses.get(&200).is_some_and(|n| *n > 100), "{statuses:?}");
    assert!(statuses.get(&400).is_some_and(|n| *n > 100), "{statuses:?}");
    door.world.assert_replays();
}

#[test]
fn paths_and_the_api() {
    let door = Door::new();
    let good: Vec<(Method, &str, Value)> = vec![
        (Method::GET, "/healthz", Value::Null),
        (Method::GET, "/mcp/session/run-1", Value::Null),
        (Method::DELETE, "/mcp/yaks", Value::Null),
        (Method::GET, "/api/status", Value::Null),
        (Method::GET, "/api/log?after=3&wait_ms=10", Value::Null),
        (Method::GET, "/api/yaks", Value::Null),
        (Method::POST, "/api/yaks/p-1234/labels", json!({"add": ["a"], "remove": ["b"]})),
        (Method::GET, "/api/tokens", Value::Null),
        (
            Method::POST,
            "/api/tokens",
            json!({"name": "bob", "grants": ["full"], "run": "r", "team": "t", "expires_in_s": 60, "replace": true}),
        ),
        (Method::POST, "/api/tokens/bob/grants", json!(["session", "yaks:list_yaks"])),
        (Method::DELETE, "/api/tokens/bob", Value::Null),
    ];
    let mut statuses = std::collections::BTreeMap::new();
    play("door::paths_and_the_api", 3_000, |mutator| {
        let (method, path, body) = mutator.pick(&good).clone();
        let (path, body) = match mutator.below(3) {
            0 => (odd_path(mutator, path), body.to_string().into_bytes()),
            1 => (path.to_owned(), mutator.json(&body).to_string().into_bytes()),
            _ => (path.to_owned(), mutator.bytes(body.to_string().as_bytes())),
        };
        let headers = headers(&Value::Null, MODERN);
        if let Some(status) = door.check(&Asked { method, path, headers, body }) {
            *statuses.entry(status.as_u16()).or_insert(0) += 1;
        }
    });
    println!("answers: {statuses:?}");
    assert!(statuses.len() > 4, "{statuses:?}");
    door.world.assert_replays();
}

/// Changes a path and writes it as a client would that knows how paths are written, or does not.
fn odd_path(mutator: &mut Mutator, path: &str) -> String {
    let odd = mutator.text(path);
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    let written: String = odd
        .bytes()
        .take(4_000)
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    if written.starts_with('/') { written } else { format!("/{written}") }
}
