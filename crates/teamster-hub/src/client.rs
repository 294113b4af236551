//! The command line's way to a running hub: plain HTTP on loopback, one connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::DataFiles;
use crate::tasks;

/// What `<data>/hub.json` says about the running hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubFile {
    pub url: String,
    pub pid: u32,
    pub token_file: PathBuf,
    pub version: String,
    /// The unix socket that serves the same as the URL, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

impl HubFile {
    /// Reads the file, if there is one.
    pub fn read(data: &DataFiles) -> anyhow::Result<Option<Self>> {
        let path = data.hub();
        match std::fs::read(&path) {
            Ok(bytes) => {
                let file = serde_json::from_slice(&bytes);
                file.map(Some).with_context(|| {
                    format!("{} is not what a hub writes; remove it", path.display())
                })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Why a request has no answer: the hub is gone, or goes. What was sent may or may not have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the hub has ended")]
    Ended,
    #[error("the hub closed the connection")]
    Closed,
    #[error("the hub's answer was cut off")]
    CutOff,
}

/// How often to look whether a hub runs again; nothing tells of one that starts.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// How often to look for what changes within a moment.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// A hub that is well answers within milliseconds, also under load. A person who waits longer wants to know why.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why there is no connection to a hub that holds its data directory.
enum NotReached {
    /// Nobody answered.
    Gone(anyhow::Error),
    /// It answered, and said this.
    Refused(String),
    WrongToken,
    NoToken(std::io::Error),
}

/// A connection to the hub, as the operator.
pub struct Client {
    pub hub: HubFile,
    authority: String,
    token: String,
    connection: SendRequest<Full<Bytes>>,
}

/// The revision of MCP that the command line speaks.
const MCP_REVISION: &str = "2026-07-28";

impl Client {
    /// Connects to the hub of this data directory.
    pub async fn connect(data: &DataFiles) -> anyhow::Result<Self> {
        match Self::connect_if_running(data).await? {
            Some(client) => Ok(client),
            None => bail!(
                "no hub is running for {}; start it with `{}`",
                data.directory().display(),
                data.call("up -d")
            ),
        }
    }

    /// Connects to the hub of this data directory, if there is one. Its lock says so, and nothing else: a hub that was
    /// killed leaves its file behind, and whoever listens on its port now is not to be told a token. Whatever is wrong with
    /// the hub, this ends within a few times [`PATIENCE`].
    pub async fn connect_if_running(data: &DataFiles) -> anyhow::Result<Option<Self>> {
        let Some(hub) = Self::find(data).await? else { return Ok(None) };
        let (pid, token_file) = (hub.pid, hub.token_file.clone());
        let reached = tokio::time::timeout(PATIENCE, Self::connect_to(hub)).await;
        let up = data.call("up -d");
        let new_token = format!(
            "end the hub (`kill {pid}`) and start it again (`{up}`): a hub that starts makes a new token"
        );
        let again =
            format!("try again, or end it (`kill -KILL {pid}`) and start it again (`{up}`)");
        let (why, hint) = match reached {
            Ok(Ok(client)) => return Ok(Some(client)),
            Ok(Err(NotReached::WrongToken)) => {
                (format!("it does not know the token in {}", token_file.display()), new_token)
            }
            Ok(Err(NotReached::NoToken(why))) => {
                (format!("cannot read the token in {}: {why}", token_file.display()), new_token)
            }
            Ok(Err(NotReached::Refused(why))) => (why, again),
            // It is on its way out: it holds the lock as long as it lives.
            Ok(Err(NotReached::Gone(error))) => {
                let gone = tokio::time::timeout(PATIENCE, wait_until_gone(data)).await;
                match gone {
                    Ok(gone) => return gone.map(|()| None),
                    Err(_) => (format!("it takes no connections: {error:#}"), again),
                }
            }
            Err(_) => {
                let why = format!("it did not answer within {} s", PATIENCE.as_secs());
                (
                    why,
                    format!(
                        "if it is suspended, continue it with `kill -CONT {pid}`; else {again}"
                    ),
                )
            }
        };
        bail!("cannot talk to the hub (process {pid}): {why}\nhint: {hint}");
    }

    /// Returns what a running hub says of itself, waiting a moment for one that starts.
    async fn find(data: &DataFiles) -> anyhow::Result<Option<HubFile>> {
        let found = async {
            loop {
                let pid = holder(data)?;
                let file = HubFile::read(data).ok().flatten();
                if let Some(hub) = file.filter(|hub| hub.pid == pid) {
                    return Some(hub);
                }
                tokio::time::sleep(LOOK_SOON).await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => Ok(found),
            Err(_) => bail!(
                "process {} holds {} but does not say where it listens: it is still starting, or its hub.json is gone; \
                 try again, or end that process",
                holder(data).unwrap_or_default(),
                data.directory().display()
            ),
        }
    }

    async fn connect_to(hub: HubFile) -> Result<Self, NotReached> {
        let authority = hub.url.trim_start_matches("http://").to_owned();
        let connection = open(&hub).await.map_err(NotReached::Gone)?;
        let token = std::fs::read_to_string(&hub.token_file).map_err(NotReached::NoToken)?;
        let token = token.trim().to_owned();
        let mut client = Self { hub, authority, token, connection };
        // A process that is ending still accepts connections; only an answer shows that it is there.
        let answered = client.exchange(Method::GET, "/api/status", &[], None).await;
        let (status, answer) = answered.map_err(NotReached::Gone)?;
        if status.is_success() {
            return Ok(client);
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(NotReached::WrongToken);
        }
        let why = failure(&answer).map_or_else(|| status.to_string(), str::to_owned);
        Err(NotReached::Refused(why))
    }

    /// Connects to the hub of this data directory as soon as there is one, however long that takes.
    pub async fn connect_patiently(data: &DataFiles) -> Self {
        loop {
            // One that starts, or is about to end, is none yet.
            if let Ok(Some(client)) = Self::connect_if_running(data).await {
                return client;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until a hub runs for this data directory, and talks to it from then on.
    pub async fn connect_again(&mut self, data: &DataFiles) {
        *self = Self::connect_patiently(data).await;
    }

    /// Reads what can be read as often as one likes, from the next hub if this one goes away. `lost` is told of that.
    pub async fn get_patiently(
        &mut self,
        data: &DataFiles,
        path: &str,
        lost: impl Fn(),
    ) -> anyhow::Result<Value> {
        loop {
            match self.get(path).await {
                Err(error) if error.is::<Lost>() => {
                    lost();
                    self.connect_again(data).await;
                }
                answer => return answer,
            }
        }
    }

    /// Says so if the hub is of another version than this program.
    pub fn version_difference(&self) -> Option<String> {
        let ours = env!("CARGO_PKG_VERSION");
        let theirs = &self.hub.version;
        (theirs != ours).then(|| {
            format!("the hub runs version {theirs}, this is {ours}; restart it (`teamster down`, `teamster up -d`)")
        })
    }

    /// Sends a request and returns the JSON it was answered with; a refusal is an error.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let (status, answer) = self.exchange(method, path, &[], body).await?;
        if status.is_success() {
            return Ok(answer);
        }
        match answer.get("error").and_then(Value::as_str) {
            Some(message) => bail!("{message}"),
            None => bail!("the hub answered {status}"),
        }
    }

    pub async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Calls a tool at one of the hub's MCP paths, the way any MCP client does. Returns its text and whether it failed.
    pub async fn call_tool(
        &mut self,
        path: &str,
        name: &str,
        arguments: &Value,
        key: Option<&str>,
    ) -> anyhow::Result<(String, bool)> {
        let call = tool_call(name, arguments, key);
        let headers = tool_call_headers(name);
        let (status, answer) = self.exchange(Method::POST, path, &headers, Some(&call)).await?;
        if let Some(result) = tool_result(&answer) {
            return Ok(result);
        }
        match failure(&answer) {
            Some(message) => bail!("{message}"),
            None => bail!("the hub answered {status}"),
        }
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        if self.connection.ready().await.is_err() {
            // The hub ends a connection that nobody used for some time, such as between two lines of somebody's input.
            self.connection = open(&self.hub).await.context(Lost::Ended)?;
        }
        let response = self.connection.send_request(request.body(Full::new(body))?).await;
        let response = response.context(Lost::Closed)?;
        let status = response.status();
        let bytes = response.into_body().collect().await.context(Lost::CutOff)?.to_bytes();
        let answer = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
        Ok((status, answer))
    }
}

/// Returns the message that calls a tool.
pub fn tool_call(name: &str, arguments: &Value, key: Option<&str>) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": MCP_REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "teamster", "version": env!("CARGO_PKG_VERSION")},
    });
    if let (Some(meta), Some(key)) = (meta.as_object_mut(), key) {
        meta.insert("teamster/key".into(), key.into());
    }
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": arguments, "_meta": meta},
    })
}

/// Returns the headers that go with a tool call, besides those of any request.
pub fn tool_call_headers(name: &str) -> [(&'static str, &str); 4] {
    [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MCP_REVISION),
        ("mcp-method", "tools/call"),
        ("mcp-name", name),
    ]
}

/// Returns the text of a tool's result and whether the tool failed, if that is what the answer is.
pub fn tool_result(answer: &Value) -> Option<(String, bool)> {
    let text = answer.pointer("/result/content/0/text")?.as_str()?;
    let is_error = answer.pointer("/result/isError").and_then(Value::as_bool).unwrap_or(false);
    Some((text.to_owned(), is_error))
}

/// Returns what is said of a failure, in the words of MCP or of the hub.
pub fn failure(answer: &Value) -> Option<&str> {
    answer.pointer("/error/message").or(answer.get("error")).and_then(Value::as_str)
}

/// Connects to a hub: by its socket, which nobody but its user can reach, so that a crowd at its port keeps no operator out.
async fn open(hub: &HubFile) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    if let Some(socket) = &hub.socket
        && let Ok(stream) = UnixStream::connect(socket).await
    {
        return shake_hands(stream).await;
    }
    let stream = TcpStream::connect(hub.url.trim_start_matches("http://")).await?;
    stream.set_nodelay(true)?;
    shake_hands(stream).await
}

pub async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tasks::spawn("talk to the hub", async move {
        // The end of the connection shows in the request that needed it.
        let _ = driver.await;
    });
    Ok(connection)
}

/// Returns the process that holds a data directory, if one does.
fn holder(data: &DataFiles) -> Option<u32> {
    let mut file = std::fs::File::open(data.lock()).ok()?;
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            std::io::Read::read_to_string(&mut file, &mut pid).ok()?;
            Some(pid.trim().parse().unwrap_or(0))
        }
        Ok(()) | Err(std::fs::TryLockError::Error(_)) => None,
    }
}

/// Waits until the hub that holds this data directory has ended. It holds its lock for as long as it lives.
pub async fn wait_until_gone(data: &DataFiles) -> anyhow::Result<()> {
    let file = match std::fs::File::open(data.lock()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file.context("cannot tell whether the hub is gone")?,
    };
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            // A thread that waits for the lock could not be given up.
            Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(LOOK_SOON).await,
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).context("cannot tell whether the hub is gone");
            }
        }
    }
}

/// Reads a token's secret from its file.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let secret = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(secret.trim().to_owned())
}

/// Writes what a person typed so that it is one step of a path, whatever it is.
pub fn in_path(text: &str) -> String {
    use std::fmt::Write as _;
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => path.push(byte.into()),
            _ => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}
