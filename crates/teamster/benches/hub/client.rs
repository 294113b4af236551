//! An MCP client of either era that makes one call over and over, as cheaply as that can be done: the request's bytes
//! are prepared and only the numbers in them change.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::connection::{Connection, position, request};

/// Both eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Every request stands for itself.
    Modern,
    /// A session is opened first.
    Legacy,
}

impl Era {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    fn revision(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}

/// What is called. The tools are the hub's; the echoes answer the same words to the same calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// A durable write: `task-add` of one task.
    Add,
    /// A read: `task-next` without a claim.
    Next,
    /// A larger read: the first page of `task-list`.
    List,
    /// A durable write that leaves as many tasks as there were: `task-update` of the first.
    Update,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "write",
            Self::Next => "read",
            Self::List => "list",
            Self::Update => "update",
        }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Add => "task-add",
            Self::Next => "task-next",
            Self::List => "task-list",
            Self::Update => "task-update",
        }
    }

    fn arguments(self) -> Value {
        match self {
            Self::Add => json!({"tasks": [{"content": content(FIRST_NUMBER)}]}),
            Self::Next | Self::List => json!({}),
            Self::Update => json!({"id": "TAS-1", "priority": 2}),
        }
    }
}

/// Returns a task's content: no two are the same, and all have the same length.
pub(crate) fn content(number: u64) -> String {
    format!("{number}: mend the fence behind the barn before the yaks find out")
}

/// Numbers have as many digits as the first, so that a new one fits where the last one stood.
pub(crate) const FIRST_NUMBER: u64 = 100_000_000;

/// Calls are numbered through, whoever makes them: a number is a call's id and makes its content its own.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(FIRST_NUMBER);

pub(crate) struct Client {
    connection: Connection,
    request: Vec<u8>,
    /// Where the number stands in the request.
    numbers: Vec<usize>,
}

/// Where a client connects, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) path: String,
}

impl Client {
    pub(crate) async fn connect(target: &Target, era: Era, call: Call) -> Self {
        let mut connection = Connection::open(target.address).await;
        let session = match era {
            Era::Modern => None,
            Era::Legacy => Some(initialize(&mut connection, target).await),
        };
        let params = json!({"name": call.tool(), "arguments": call.arguments()});
        let request =
            post(target, era, session.as_deref(), message(era, FIRST_NUMBER, "tools/call", params));
        let number = FIRST_NUMBER.to_string();
        let numbers = (0..request.len()).filter(|at| request[*at..].starts_with(number.as_bytes()));
        Self { connection, numbers: numbers.collect(), request }
    }

    /// Makes the call once more. An answer that is not a success ends the bench: its time would mean nothing.
    pub(crate) async fn call(&mut self) {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
        for at in &self.numbers {
            self.request[*at..*at + number.len()].copy_from_slice(number.as_bytes());
        }
        let answer = self.connection.exchange(&self.request).await;
        let good = answer.status == 200
            && answer.body.contains(&number)
            && answer.body.contains("\"result\":{")
            && !answer.body.contains("\"isError\":true");
        assert!(good, "{answer:?}");
    }
}

/// Returns how many bytes the list of tools has that a client of the current era gets.
pub(crate) async fn tools_list_bytes(target: &Target) -> usize {
    let mut connection = Connection::open(target.address).await;
    let message = message(Era::Modern, FIRST_NUMBER, "tools/list", json!({}));
    let answer = connection.exchange(&post(target, Era::Modern, None, message)).await;
    assert!(answer.status == 200 && position(answer.body.as_bytes(), b"task-add").is_some());
    answer.body.len()
}

fn message(era: Era, id: u64, method: &str, mut params: Value) -> Value {
    if era == Era::Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": era.revision(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn initialize(connection: &mut Connection, target: &Target) -> String {
    let client = json!({"name": "bench", "version": "1"});
    let revision = Era::Legacy.revision();
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    let hello = message(Era::Legacy, 1, "initialize", params);
    let answer = connection.exchange(&post(target, Era::Legacy, None, hello)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = answer.header("mcp-session-id").expect("the older era has sessions").to_owned();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = connection.exchange(&post(target, Era::Legacy, Some(&session), initialized)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    session
}

fn post(target: &Target, era: Era, session: Option<&str>, message: Value) -> Vec<u8> {
    let bearer = format!("Bearer {}", target.token);
    let method = message["method"].as_str().unwrap_or_default();
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    if method != "initialize" {
        headers.push(("mcp-protocol-version", era.revision()));
    }
    if era == Era::Modern {
        headers.push(("mcp-method", method));
        headers.extend(message["params"]["name"].as_str().map(|name| ("mcp-name", name)));
    }
    headers.extend(session.map(|session| ("mcp-session-id", session)));
    request("POST", target.address, &target.path, &headers, &message.to_string())
}
