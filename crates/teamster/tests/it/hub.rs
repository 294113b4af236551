//! A real hub for one test: the built program, on a data directory of its own, ended when the test ends.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the program under test is started as a person would start it, and a broken fixture should panic"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use teamster_api::hub::Status;
use tempfile::TempDir;

/// The program that is tested.
pub(crate) const TEAMSTER: &str = env!("CARGO_BIN_EXE_teamster");

/// The current revision of MCP, and the two older ones that clients still speak.
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];
pub(crate) const ERAS: [&str; 3] = [MODERN, LEGACY[0], LEGACY[1]];

/// What is waited for comes in milliseconds; only a fault, or a machine at many times its load, gets this far.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Hub {
    /// Such as `http://127.0.0.1:4321`.
    pub(crate) url: String,
    pub(crate) operator: String,
    data: PathBuf,
    /// The hub's own process, which a tracer may have started for us.
    pub(crate) hub_process: Pid,
    process: Option<Child>,
    _directory: Option<TempDir>,
}

impl Hub {
    /// Starts a hub on an empty data directory.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut hub = Self::start_in(&directory.path().join("data"));
        hub._directory = Some(directory);
        hub
    }

    /// Starts a hub on an empty data directory with a variable of its own.
    pub(crate) fn start_with_variable(name: &str, value: &str) -> (Self, TempDir) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        let mut command = command(&data);
        command.env(name, value).arg("up");
        (Self::start_with(command, &data), directory)
    }

    /// Starts a hub on this data directory and returns when it says that it is ready.
    pub(crate) fn start_in(data: &Path) -> Self {
        let mut command = command(data);
        command.arg("up");
        Self::start_with(command, data)
    }

    /// Starts a hub on this data directory by a command of one's own, and returns when it says that it is ready.
    pub(crate) fn start_with(mut command: Command, data: &Path) -> Self {
        command.stderr(Stdio::inherit());
        Self::try_start_with(command, data).unwrap_or_else(|said| panic!("the hub said {said:?}"))
    }

    /// Starts a hub that may not come up; then returns how it ended. What it says is where the command's stderr is.
    pub(crate) fn try_start_with(mut command: Command, data: &Path) -> Result<Self, ExitStatus> {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the hub starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the hub speaks UTF-8");
        if !line.starts_with("teamster is up: ") {
            return Err(ended(process));
        }
        // What else it prints is read too, so that it never waits for us.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let file = std::fs::read(data.join("hub.json")).expect("a ready hub leaves hub.json");
        let file: Value = serde_json::from_slice(&file).expect("hub.json is JSON");
        let token_file = file["token_file"].as_str().expect("hub.json names the token's file");
        let operator =
            std::fs::read_to_string(token_file).expect("the operator's token can be read");
        Ok(Self {
            url: file["url"].as_str().expect("hub.json has the URL").to_owned(),
            operator: operator.trim().to_owned(),
            data: data.to_owned(),
            hub_process: read_pid(&file),
            process: Some(process),
            _directory: None,
        })
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the hub runs").id()
    }

    /// Sends the hub a signal and returns how it ended.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        let process = self.process.take().expect("the hub runs");
        // What cannot be signalled has ended already.
        let _ = kill_process(self.hub_process, signal);
        ended(process)
    }

    /// Kills the hub as a crash would, and starts another on its data.
    pub(crate) fn crash_and_start_again(&mut self) {
        let mut process = self.process.take().expect("the hub runs");
        process.kill().expect("the hub can be killed");
        process.wait().expect("the hub can be waited for");
        let mut again = Self::start_in(&self.data);
        again._directory = self._directory.take();
        *self = again;
    }

    /// Prepares a command of the program for this hub.
    pub(crate) fn command(&self) -> Command {
        command(&self.data)
    }

    /// Runs a command of the program for this hub.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("the program starts")
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("the program prints UTF-8").trim_end().to_owned()
    }

    /// Runs a command that must fail, and returns what it said.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("the program speaks UTF-8").trim_end().to_owned()
    }

    /// Makes a token and returns its secret.
    pub(crate) fn token(&self, name: &str, grants: &str) -> String {
        self.ok(&["token", "create", name, "--grant", grants])
    }

    /// Returns who did what, oldest first, leaving out what the hub did to get ready.
    pub(crate) fn log(&self) -> Vec<(String, String)> {
        let lines = self.ok(&["log", "--json"]);
        let lines =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
        let told = lines.map(|line| {
            let word =
                |name: &str| line[name].as_str().expect("a line has all its parts").to_owned();
            (word("by"), word("summary"))
        });
        told.filter(|(by, what)| by != "hub" && !what.starts_with("token ")).collect()
    }

    /// Returns how many events there are in all.
    pub(crate) async fn n_events_in_all(&self) -> u64 {
        let bearer = format!("Bearer {}", self.operator);
        let headers = [("authorization", bearer.as_str())];
        let status = self.http().await.send(Method::GET, "/api/status", &headers, "").await;
        status.read::<Status>().events
    }

    /// Returns how many events there are, leaving out that clients of the older era opened sessions.
    pub(crate) async fn n_events(&self) -> usize {
        let lines = self.ok(&["log", "--json"]);
        lines.lines().filter(|line| !line.contains("\"client_session\"")).count()
    }

    /// Connects to the hub.
    pub(crate) async fn http(&self) -> Http {
        Http::connect(&self.url).await
    }

    /// Returns a client of the current era with this token at this path.
    pub(crate) async fn modern(&self, token: &str, path: &str) -> Mcp {
        Mcp::connect(&self.url, token, path).await.expect("the hub listens")
    }

    /// Returns a client of any era with this token at this path, ready for requests.
    pub(crate) async fn client(&self, revision: &'static str, token: &str, path: &str) -> Mcp {
        if revision == MODERN {
            self.modern(token, path).await
        } else {
            self.legacy(token, path, revision).await
        }
    }

    /// Returns an initialized client of an older era with this token at this path.
    pub(crate) async fn legacy(&self, token: &str, path: &str, revision: &'static str) -> Mcp {
        let mut mcp = self.reconnect(token, path, revision, None).await;
        mcp.initialize().await;
        mcp
    }

    /// Returns a client of an older era that goes on with a session.
    pub(crate) async fn reconnect(
        &self,
        token: &str,
        path: &str,
        revision: &'static str,
        session: Option<String>,
    ) -> Mcp {
        let (http, token, path) = (self.http().await, token.into(), path.into());
        Mcp { http, token, path, revision, session, key: None }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself; the test has said so then. A tracer that is killed would leave the hub running.
            if matches!(process.try_wait(), Ok(None)) {
                let _ = kill_process(self.hub_process, Signal::KILL);
            }
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A hub in the background, ended when the test is.
pub(crate) struct Detached {
    pub(crate) data: PathBuf,
    _directory: TempDir,
}

impl Detached {
    pub(crate) fn new() -> Self {
        Self::within(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn within(directory: TempDir) -> Self {
        Self { data: directory.path().join("data"), _directory: directory }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        run_in(&self.data, arguments)
    }

    pub(crate) fn file(&self) -> Value {
        let file = std::fs::read(self.data.join("hub.json")).expect("there is a hub.json");
        serde_json::from_slice(&file).expect("hub.json is JSON")
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // Nobody minds if there is none.
        let _ = self.run(&["down"]);
    }
}

/// Returns the process that `hub.json` names.
fn read_pid(file: &Value) -> Pid {
    let pid = file["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.expect("hub.json has the pid")
}

/// Waits until a process ends, and kills it if that takes too long.
pub(crate) fn ended(mut process: Child) -> ExitStatus {
    let pid = rustix::process::Pid::from_child(&process);
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let status = process.wait();
        let _ = tell.send(());
        status
    });
    if told.recv_timeout(DEADLINE).is_err() {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("process {pid:?} did not end in time");
    }
    waiter.join().expect("waiting does not panic").expect("it can be waited for")
}

/// Returns the program under test: the one built with the tests, unless another is named, such as a release build.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TEAMSTER_BIN").map_or(TEAMSTER.into(), PathBuf::from)
}

/// Prepares a command of the program for a data directory, in an environment without surprises.
pub(crate) fn command(data: &Path) -> Command {
    let mut command = Command::new(program());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TZ", "UTC").env("TEAMSTER_DATA", data);
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// Prepares a command of the program for a data directory, as somebody who is not root: directories that are read-only are
/// so for everybody but root.
pub(crate) fn ordinary(data: &Path) -> Command {
    let own = command(data);
    if !rustix::process::geteuid().is_root() {
        return own;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program());
    command.env_clear().current_dir("/").stdin(Stdio::null());
    command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Runs a command on a data directory. Returns whether it succeeded, and what it printed where.
pub(crate) fn run_in(data: &Path, arguments: &[&str]) -> (bool, String, String) {
    let output = command(data).args(arguments).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Returns who may do what with a file.
pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Runs a command with some input, and returns what it printed.
pub(crate) fn feed(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the input is written").expect("the input is read");
    output
}

/// A bare HTTP connection, for requests that no proper client would send.
pub(crate) struct Http {
    connection: SendRequest<BoxBody<Bytes, std::convert::Infallible>>,
    authority: String,
}

/// What a request was answered with.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads the body as an answer of the operator's API.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> T {
        let read = serde_json::from_str(&self.body);
        read.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the JSON in the body, whether it came plain or as the last event of a stream.
    pub(crate) fn json(&self) -> Value {
        let stream = self
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let json = if stream {
            self.body
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .next_back()
                .unwrap_or_default()
        } else {
            &self.body
        };
        serde_json::from_str(json.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the text of a tool's result and whether it is an error.
    fn result(&self) -> (String, bool) {
        let json = self.json();
        let text = json["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("no text in {self:?}"));
        (text.to_owned(), json["result"]["isError"] == true)
    }
}

impl Http {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.expect("the hub listens")
    }

    /// Connects to a hub's unix socket.
    pub(crate) async fn over_socket(socket: &Path) -> Self {
        let stream = tokio::net::UnixStream::connect(socket).await.expect("the hub listens");
        let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("the hub speaks HTTP");
        tokio::spawn(driver);
        Self { connection, authority: "localhost".to_owned() }
    }

    /// Connects to a hub that may have been killed.
    async fn try_connect(url: &str) -> std::io::Result<Self> {
        let authority = url.trim_start_matches("http://").to_owned();
        let stream = tokio::net::TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("the hub speaks HTTP");
        tokio::spawn(driver);
        Ok(Self { connection, authority })
    }

    /// Sends a request with these headers and no others but a Host, unless one is given.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_send(method, path, headers, body).await.expect("the hub answers in full")
    }

    /// Sends a request to a hub that may be killed meanwhile. Fails if it does not answer in full.
    async fn try_send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> hyper::Result<Answer> {
        let body = Full::new(body.into()).boxed();
        whole(self.exchange(method, path, headers, body).await?).await
    }

    /// Sends a body without saying how long it is. Fails if the hub does not answer in full.
    pub(crate) async fn send_chunked(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        chunks: Vec<Bytes>,
    ) -> hyper::Result<Answer> {
        let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)));
        let body = BodyExt::boxed(StreamBody::new(stream::iter(frames)));
        whole(self.exchange(Method::POST, path, headers, body).await?).await
    }

    /// Sends a request whose answer is a stream of events, and takes the connection for it.
    pub(crate) async fn open(
        mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Events {
        let body = Full::new(body.into()).boxed();
        let response = self.exchange(method, path, headers, body).await.expect("the hub answers");
        let kind = response.headers().get("content-type").map(|kind| kind.as_bytes().to_vec());
        assert_eq!(response.status(), StatusCode::OK, "{response:?}");
        assert_eq!(kind.as_deref(), Some(&b"text/event-stream"[..]), "{response:?}");
        Events { body: response.into_body(), unread: String::new() }
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: BoxBody<Bytes, std::convert::Infallible>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", &self.authority);
        }
        for (name, value) in headers.iter().filter(|(_, value)| *value != "<none>") {
            request = request.header(*name, *value);
        }
        let request = request.body(body).expect("a request can be built");
        self.connection.ready().await?;
        let answer = tokio::time::timeout(DEADLINE, self.connection.send_request(request));
        answer.await.expect("the hub answers in time")
    }
}

async fn whole(response: Response<Incoming>) -> hyper::Result<Answer> {
    let status = response.status();
    let headers = response.headers().iter();
    let headers = headers
        .map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let body = tokio::time::timeout(DEADLINE, response.into_body().collect());
    let body = body.await.expect("the answer ends in time")?.to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("the answer is UTF-8");
    Ok(Answer { status, headers, body })
}

/// An open stream of server-sent events.
pub(crate) struct Events {
    body: Incoming,
    unread: String,
}

impl Events {
    /// Waits for the next message; none means that the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            // Events end with an empty line; those without data only keep the connection alive.
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let data: String =
                    event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                self.unread = rest.to_owned();
                if !data.trim().is_empty() {
                    return Some(serde_json::from_str(&data).expect("events are JSON"));
                }
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await;
            let frame = frame.expect("something happens in time")?;
            // A stream that the hub cuts has ended too.
            let data = frame.ok()?.into_data().expect("there are no trailers");
            self.unread += std::str::from_utf8(&data).expect("events are UTF-8");
        }
    }

    /// Waits for the next notification of this method, and returns it whole.
    pub(crate) async fn until(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            let message = message.unwrap_or_else(|| panic!("the stream ended without {method}"));
            if message["method"] == method {
                return message;
            }
        }
    }
}

/// A plain MCP client of either era.
pub(crate) struct Mcp {
    pub(crate) http: Http,
    token: String,
    pub(crate) path: String,
    pub(crate) revision: &'static str,
    pub(crate) session: Option<String>,
    /// Sent as the `Idempotency-Key` header.
    pub(crate) key: Option<String>,
}

impl Mcp {
    /// Connects a client of the current era to a hub that may have been killed.
    pub(crate) async fn connect(url: &str, token: &str, path: &str) -> std::io::Result<Self> {
        Ok(Self {
            http: Http::try_connect(url).await?,
            token: token.into(),
            path: path.into(),
            revision: MODERN,
            session: None,
            key: None,
        })
    }

    async fn initialize(&mut self) {
        let client = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": self.revision, "capabilities": {}, "clientInfo": client});
        let answer = self.request("initialize", params).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], self.revision, "{answer:?}");
        self.session = answer.headers.get("mcp-session-id").cloned();
        assert!(self.session.is_some(), "the older era has sessions: {answer:?}");
        let answer =
            self.post(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    }

    /// Sends a request and returns the whole answer.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Answer {
        let message = self.message(method, params);
        self.post(message).await
    }

    fn message(&self, method: &str, mut params: Value) -> Value {
        if self.revision == MODERN {
            if params["_meta"].is_null() {
                params["_meta"] = json!({});
            }
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    pub(crate) async fn post(&mut self, message: Value) -> Answer {
        let headers = self.headers(&message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        self.http.send(Method::POST, &self.path, &headers, message.to_string()).await
    }

    /// Returns the headers that a client of this era sends with `message`.
    pub(crate) fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".into()),
            ("accept", "application/json, text/event-stream".into()),
        ];
        let method = message["method"].as_str().unwrap_or_default();
        let name = message["params"]["name"].as_str().unwrap_or_default();
        if method != "initialize" {
            headers.push(("mcp-protocol-version", self.revision.into()));
        }
        if self.revision == MODERN {
            headers.push(("mcp-method", method.into()));
            if !name.is_empty() {
                headers.push(("mcp-name", name.into()));
            }
        }
        headers.extend(self.session.clone().map(|session| ("mcp-session-id", session)));
        headers.extend(self.key.clone().map(|key| ("idempotency-key", key)));
        headers
    }

    /// Opens the stream on which the hub tells this client what changes, and returns it once the hub watches.
    pub(crate) async fn listen(&self, hub: &Hub) -> Events {
        if self.revision != MODERN {
            let headers = self.headers(&Value::Null);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            return hub.http().await.open(Method::GET, &self.path, &headers, "").await;
        }
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let message = self.message("subscriptions/listen", wanted);
        let headers = self.headers(&message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let http = hub.http().await;
        let mut events = http.open(Method::POST, &self.path, &headers, message.to_string()).await;
        events.until("notifications/subscriptions/acknowledged").await;
        events
    }

    /// Returns the tools that are listed.
    pub(crate) async fn tools(&mut self) -> Value {
        self.request("tools/list", json!({})).await.json()["result"]["tools"].clone()
    }

    /// Calls a tool and returns its text and whether it is an error.
    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let answer =
            self.request("tools/call", json!({"name": name, "arguments": arguments})).await;
        answer.result()
    }

    /// Calls a tool of a hub that may refuse the request as a whole, or end the connection.
    pub(crate) async fn try_request(
        &mut self,
        name: &str,
        arguments: Value,
    ) -> hyper::Result<Answer> {
        let message = self.message("tools/call", json!({"name": name, "arguments": arguments}));
        let headers = self.headers(&message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        self.http.try_send(Method::POST, &self.path, &headers, message.to_string()).await
    }

    /// Calls a tool of a hub that may be killed meanwhile, with an id that the answer will bear.
    pub(crate) async fn try_call(
        &mut self,
        id: &str,
        name: &str,
        arguments: Value,
    ) -> hyper::Result<(String, bool)> {
        let params = json!({"name": name, "arguments": arguments});
        let mut message = self.message("tools/call", params);
        message["id"] = id.into();
        let headers = self.headers(&message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let body = message.to_string();
        let answer = self.http.try_send(Method::POST, &self.path, &headers, body).await?;
        Ok(answer.result())
    }
}
