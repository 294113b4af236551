//! The way of programs to a running hub: plain HTTP on loopback, one connection.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::KEY_HEADER;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Code, ErrorBody, Lost};
use crate::events::Events;
use crate::hub_file::{HubFile, LOOK_SOON, Place, wait_until_gone};
use crate::page::{Page, Paged};

/// How often to look whether a hub runs again; nothing tells of one that starts.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// A hub that is well answers within milliseconds, also under load. A person who waits longer wants to know why.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often a command is sent whose answer is lost, each time with the same key.
const TRIES_MAX: usize = 3;
/// Maximum pages that [`Client::all`] reads: a list that is longer than this is no list for a program.
const PAGES_MAX: usize = 10_000;

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
    place: Place,
    authority: String,
    token: String,
    connection: SendRequest<Full<Bytes>>,
}

/// The revision of MCP that the client speaks.
const MCP_REVISION: &str = "2026-07-28";

impl Client {
    /// Connects to the hub of this data directory.
    pub async fn connect(place: impl Into<Place>) -> anyhow::Result<Self> {
        let place = place.into();
        match Self::connect_if_running(place.clone()).await? {
            Some(client) => Ok(client),
            None => bail!(
                "no hub is running for {}; start it with `{}`",
                place.directory.display(),
                place.starts_hub
            ),
        }
    }

    /// Connects to the hub of this data directory, if there is one. Its lock says so, and nothing else: a hub that was
    /// killed leaves its file behind, and whoever listens on its port now is not to be told a token. Whatever is wrong with
    /// the hub, this ends within a few times [`PATIENCE`].
    pub async fn connect_if_running(place: impl Into<Place>) -> anyhow::Result<Option<Self>> {
        let place = place.into();
        let Some(hub) = Self::find(&place).await? else { return Ok(None) };
        let (pid, token_file) = (hub.pid, hub.token_file.clone());
        let reached = tokio::time::timeout(PATIENCE, Self::connect_to(&place, hub)).await;
        let up = &place.starts_hub;
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
                let gone = tokio::time::timeout(PATIENCE, wait_until_gone(place.clone())).await;
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
    async fn find(place: &Place) -> anyhow::Result<Option<HubFile>> {
        let found = async {
            loop {
                let pid = place.holder()?;
                let file = HubFile::read(place.clone()).ok().flatten();
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
                place.holder().unwrap_or_default(),
                place.directory.display()
            ),
        }
    }

    async fn connect_to(place: &Place, hub: HubFile) -> Result<Self, NotReached> {
        let authority = hub.url.trim_start_matches("http://").to_owned();
        let connection = open(&hub).await.map_err(NotReached::Gone)?;
        let token = std::fs::read_to_string(&hub.token_file).map_err(NotReached::NoToken)?;
        let token = token.trim().to_owned();
        let mut client = Self { hub, place: place.clone(), authority, token, connection };
        // A process that is ending still accepts connections; only an answer shows that it is there.
        let status = crate::paths::ShowStatus::PATH;
        let answered = client.exchange(http::Method::GET, status, &[], Bytes::new()).await;
        let (status, answer) = answered.map_err(NotReached::Gone)?;
        if status.is_success() {
            return Ok(client);
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(NotReached::WrongToken);
        }
        Err(NotReached::Refused(refusal(status, &answer).message))
    }

    /// Connects to the hub of this data directory as soon as there is one, however long that takes.
    pub async fn connect_patiently(place: impl Into<Place>) -> Self {
        let place = place.into();
        loop {
            // One that starts, or is about to end, is none yet.
            if let Ok(Some(client)) = Self::connect_if_running(place.clone()).await {
                return client;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until a hub runs for this data directory, and talks to it from then on.
    pub async fn connect_again(&mut self) {
        *self = Self::connect_patiently(self.place.clone()).await;
    }

    /// Says so if the hub is of another version than this program.
    pub fn version_difference(&self) -> Option<String> {
        let ours = env!("CARGO_PKG_VERSION");
        let theirs = &self.hub.version;
        (theirs != ours).then(|| {
            format!("the hub runs version {theirs}, this is {ours}; restart it (`teamster down`, `teamster up -d`)")
        })
    }

    /// Sends a request of the table and returns its answer; a refusal is an error, [`ApiError`]. A command whose answer is
    /// lost is sent again with its key, so the hub carries it out once.
    pub async fn send<E: Endpoint>(
        &mut self,
        param: &str,
        query: &E::Query,
        body: &E::Body,
    ) -> anyhow::Result<E::Answer> {
        let query = serde_urlencoded::to_string(query)?;
        let mut path = E::path(param);
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        let body = if E::HAS_BODY { Bytes::from(serde_json::to_vec(body)?) } else { Bytes::new() };
        let key = E::METHOD.is_command().then(new_key).transpose()?;
        let headers: Vec<_> = key.iter().map(|key| (KEY_HEADER, key.as_str())).collect();
        let mut n_tries = 1;
        let (status, answer) = loop {
            let method = http::Method::from(E::METHOD);
            let lost = match self.exchange(method, &path, &headers, body.clone()).await {
                Err(error) if error.is::<Lost>() && key.is_some() => error,
                answered => break answered?,
            };
            n_tries += 1;
            if n_tries > TRIES_MAX {
                return Err(lost);
            }
            match Self::connect_if_running(self.place.clone()).await {
                Ok(Some(again)) => *self = again,
                Ok(None) | Err(_) => return Err(lost),
            }
        };
        if !status.is_success() {
            return Err(refusal(status, &answer).into());
        }
        understood(&answer)
    }

    /// Sends a read-only request, and sends it again to the next hub if this one ends. Calls `lost` each time.
    pub async fn send_patiently<E>(
        &mut self,
        param: &str,
        query: &E::Query,
        lost: impl Fn(),
    ) -> anyhow::Result<E::Answer>
    where
        E: Endpoint<Body = crate::Nothing>,
    {
        loop {
            match self.send::<E>(param, query, &crate::Nothing {}).await {
                Err(error) if error.is::<Lost>() => {
                    lost();
                    self.connect_again().await;
                }
                answer => return answer,
            }
        }
    }

    /// Returns all items of a list, page by page.
    pub async fn all<E, T>(&mut self, query: &E::Query) -> anyhow::Result<Vec<T>>
    where
        E: Endpoint<Body = crate::Nothing, Answer = Page<T>>,
        E::Query: Paged,
    {
        let mut query = query.clone();
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.send::<E>("", &query, &crate::Nothing {}).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => query.set_cursor(next),
                None => return Ok(all),
            }
        }
        bail!("the hub's list has no end")
    }

    /// Follows the stream of events after a commit, on a connection of its own.
    pub async fn follow(&self, after: u64) -> anyhow::Result<Events> {
        let mut connection = open(&self.hub).await.context(Lost::Ended)?;
        let request = Request::builder()
            .uri(crate::events::PATH)
            .header(header::HOST, &self.authority)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(crate::events::LAST_ID_HEADER, after.to_string())
            .body(Full::default())?;
        let response = connection.send_request(request).await.context(Lost::Closed)?;
        let status = response.status();
        if !status.is_success() {
            let answer = response.into_body().collect().await.context(Lost::CutOff)?.to_bytes();
            return Err(refusal(status, &answer).into());
        }
        Ok(Events::new(response.into_body()))
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
        let body = Bytes::from(call.to_string());
        let (status, answer) = self.exchange(http::Method::POST, path, &headers, body).await?;
        let json: Value = read(&answer)?;
        if let Some(result) = tool_result(&json) {
            return Ok(result);
        }
        Err(refusal(status, &answer).into())
    }

    async fn exchange(
        &mut self,
        method: http::Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if self.connection.ready().await.is_err() {
            // The hub ends a connection that nobody used for some time, such as between two lines of somebody's input.
            self.connection = open(&self.hub).await.context(Lost::Ended)?;
        }
        let response = self.connection.send_request(request.body(Full::new(body))?).await;
        let response = response.context(Lost::Closed)?;
        let status = response.status();
        let bytes = response.into_body().collect().await.context(Lost::CutOff)?.to_bytes();
        Ok((status, bytes))
    }
}

/// Returns a key that no other command has.
fn new_key() -> anyhow::Result<String> {
    let random = || getrandom::u64().context("the operating system has no random numbers");
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(if answer.is_empty() { b"null" } else { answer })?)
}

fn understood<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    read(answer).context("the hub is of another version; restart it")
}

/// Returns what the hub, or its door, says of a failure.
fn refusal(status: StatusCode, answer: &[u8]) -> ApiError {
    if let Ok(ErrorBody { error }) = serde_json::from_slice(answer) {
        return error;
    }
    let json: Value = serde_json::from_slice(answer).unwrap_or_default();
    let message =
        failure(&json).map_or_else(|| format!("the hub answered {status}"), str::to_owned);
    ApiError::new(Code::of_status(status.as_u16()), message)
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

/// Begins to speak HTTP.
#[expect(
    clippy::disallowed_methods,
    reason = "the task ends with its connection, and has nothing to report"
)]
pub async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The end of the connection shows in the request that needed it.
        let _ = driver.await;
    });
    Ok(connection)
}

/// What a step of a path is written with as it is. A dot is not, so that `..` is a name.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Writes what a person typed so that it is one step of a path, whatever it is.
pub fn in_path(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests;
