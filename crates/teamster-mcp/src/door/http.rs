//! The HTTP door: one URL for both protocol eras.
//!
//! Every request, on every route, is checked for where it comes from before anything else: [`guard`]; where a principal
//! is needed also for who it is: [`admit`], which does both, since each layer around a route costs. Nothing here trusts a header, a path or a body further than it was checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use hyper::body::Body as _;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use teamster_core::RunName;
use teamster_core::token::{SecretHash, Token};
use teamster_core::topic::Topic;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rmcp::{Adapter, Admitted};
use super::sessions::Sessions;
use super::unfinished::Unfinished;
use super::{direct, lines, strict};
use crate::catalogue::Catalogue;
use crate::errands;
use crate::hub::{Failure, Hub};
use crate::observe::Observer;
use crate::pace::Paces;
use crate::scope::Scope;
use crate::seal::Seal;
use crate::service::{Service, Spawn};
use crate::set::Set;

/// The largest body of a request.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// As much of a larger body as is read, and thrown away, before the connection is closed.
const BODY_BYTES_IGNORED_MAX: usize = 64 * 1024 * 1024;

/// The longest pause between two pieces of a body that comes too fast.
pub(super) const PACE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Requests up to this size are paced only as writes.
const UNPACED_BYTES: usize = 4 * 1024;

/// A connection, as the listener knows it.
pub trait Guest: Send + Sync {
    /// Says that a request on it had a valid token. Called for each such request.
    fn has_shown(&self, token: &Token);
}

/// The connection that a request came on. A listener that cares puts it into the request's extensions. A connection
/// that continues as lines holds it until it ends.
#[derive(Clone)]
pub struct Newcomer(pub Arc<dyn Guest>);

/// How tokens' secrets are made and hashed; the hub brings the way.
#[derive(Debug, Clone, Copy)]
pub struct Secrets {
    pub new: fn() -> String,
    pub hash: fn(&str) -> SecretHash,
}

/// What the door serves, and with what.
pub struct Setup {
    pub hub: Arc<dyn Hub>,
    pub catalogue: Catalogue,
    pub secrets: Secrets,
    pub spawn: Spawn,
    /// Seals what clients carry for us.
    pub seal: Seal,
    /// Hears of every call; [`crate::observe::Nobody`] where nobody cares.
    pub observer: Arc<dyn Observer>,
    /// How long a call may take that waits; usually [`crate::call::PATIENCE`].
    pub patience: Duration,
    /// How fast agents may send.
    pub paces: Arc<Paces>,
}

/// What the door serves.
pub struct Served {
    pub(super) service: Arc<Service>,
    pub(super) secrets: Secrets,
    sessions: Arc<Sessions>,
    unfinished: Unfinished,
    paces: Arc<Paces>,
    calls_end: CancellationToken,
    lines: TaskTracker,
    n_direct: AtomicU64,
}

impl Served {
    /// Opens the door, and carries on the calls that an earlier hub left behind.
    pub fn new(setup: Setup) -> Arc<Self> {
        let Setup { hub, catalogue, secrets, spawn, seal, observer, patience, paces } = setup;
        let sessions = Arc::new(Sessions::new(hub.clone()));
        let service = Arc::new(Service {
            hub,
            catalogue,
            seal,
            observer,
            patience,
            spawn,
            streams_end: CancellationToken::new(),
            n_calls: AtomicU64::new(0),
        });
        errands::resume(&service);
        Arc::new(Self {
            service,
            secrets,
            sessions,
            unfinished: Unfinished::default(),
            paces,
            calls_end: CancellationToken::new(),
            lines: TaskTracker::new(),
            n_direct: AtomicU64::new(0),
        })
    }

    /// Returns how many requests were answered without rmcp.
    pub fn n_answered_directly(&self) -> u64 {
        self.n_direct.load(Ordering::Relaxed)
    }

    /// Ends all open streams, which would otherwise keep a stopping hub waiting. Calls under way are finished.
    pub fn end_streams(&self) {
        self.service.streams_end.cancel();
        self.lines.close();
    }

    /// Waits until the connections of lines have finished their calls.
    pub async fn lines_ended(&self) {
        self.lines.wait().await;
    }

    /// Ends what is left when the hub's patience is over.
    pub fn end_calls(&self) {
        self.calls_end.cancel();
    }

    pub(super) fn lines(&self) -> &TaskTracker {
        &self.lines
    }

    /// Returns how long to wait before the next bytes of this token are read, after this many bytes.
    pub(super) fn pace(&self, token: &Token, n_bytes: usize) -> Duration {
        if token.kind.is_operator() {
            return Duration::ZERO;
        }
        let owner = self.service.hub.state().owner(&token.principal);
        self.paces.receive(&owner, n_bytes, self.service.hub.now())
    }

    /// Returns the live token whose secret the request carries.
    fn token(&self, headers: &HeaderMap) -> Option<Arc<Token>> {
        let mut given = headers.get_all(header::AUTHORIZATION).into_iter();
        let (only, None) = (given.next()?, given.next()) else { return None };
        let (scheme, secret) = only.to_str().ok()?.split_once(' ')?;
        let secret = Some(secret.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
        let token =
            self.service.hub.state().tokens.by_secret(&(self.secrets.hash)(secret)).cloned();
        token.filter(|token| !token.is_over(self.service.hub.now()))
    }
}

/// What answers MCP requests.
struct Mcp<H> {
    served: Arc<Served>,
    rmcp: StreamableHttpService<H, LocalSessionManager>,
    /// Whether what needs no rmcp is answered without it.
    directly: bool,
}

/// Returns the routes of the door. `more` are routes that need an admitted principal too; they find the
/// [`Token`] in the request's extensions. `port` is where the door listens.
pub fn router(served: Arc<Served>, more: Router, port: u16) -> Router {
    let directly = direct::serves(&served.service.catalogue);
    routes(served, more, port, Adapter::new, directly)
}

/// Returns the routes of a door that serves something of its own in the place of our tools, or around them.
pub fn router_of<H: ServerHandler>(
    served: Arc<Served>,
    more: Router,
    port: u16,
    make: impl Fn(Arc<Served>) -> H + Send + Sync + 'static,
) -> Router {
    routes(served, more, port, make, false)
}

fn routes<H: ServerHandler>(
    served: Arc<Served>,
    more: Router,
    port: u16,
    make: impl Fn(Arc<Served>) -> H + Send + Sync + 'static,
    directly: bool,
) -> Router {
    let mcp = Arc::new(Mcp { served: served.clone(), rmcp: rmcp_service(&served, make), directly });
    let admitted = Router::new()
        .route("/mcp", axum::routing::any(serve_mcp::<H>))
        .route("/mcp/", axum::routing::any(serve_mcp::<H>))
        .route("/mcp/{set}", axum::routing::any(serve_mcp::<H>))
        .route("/mcp/{set}/", axum::routing::any(serve_mcp::<H>))
        .route("/mcp/{set}/{run}", axum::routing::any(serve_mcp::<H>))
        .route("/mcp/{set}/{run}/mcp", axum::routing::any(serve_mcp::<H>))
        .with_state(mcp)
        .merge(more)
        .layer(middleware::from_fn_with_state((served, port), admit));
    Router::new()
        .route("/healthz", axum::routing::get(|| async { "ok\n" }))
        .method_not_allowed_fallback(wrong_method)
        .fallback(|| async {
            problem(StatusCode::NOT_FOUND, "there is nothing here; MCP clients connect to /mcp")
        })
        .layer(middleware::from_fn_with_state(port, guard))
        .merge(admitted)
}

fn rmcp_service<H: ServerHandler>(
    served: &Arc<Served>,
    make: impl Fn(Arc<Served>) -> H + Send + Sync + 'static,
) -> StreamableHttpService<H, LocalSessionManager> {
    let mut sessions = LocalSessionManager::default();
    // Gemini CLI cannot read the empty event that would announce a retry time.
    sessions.session_config.sse_retry = None;
    let mut config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_sse_retry(None)
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        // `guard` checks both, on every route and not only here.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    config.cancellation_token = served.calls_end.clone();
    config.session_store = Some(served.sessions.clone());
    let served = served.clone();
    StreamableHttpService::new(move || Ok(make(served.clone())), Arc::new(sessions), config)
}

/// Answers who asks a path for what it does not do.
pub async fn wrong_method(method: Method) -> Response {
    let message = format!("this path does not answer {method}; the Allow header says what it does");
    problem(StatusCode::METHOD_NOT_ALLOWED, &message)
}

/// Answers a failure of the door itself in words that people and programs can read.
pub fn problem(status: StatusCode, message: &str) -> Response {
    (status, axum::Json(json!({"error": message}))).into_response()
}

/// Keeps out what was not meant for this hub.
async fn guard(State(port): State<u16>, request: Request, next: Next) -> Response {
    match stranger(request.headers(), port) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Refuses what was not meant for this hub: its Host is no loopback, or it has an Origin that is not our own. This is what
/// keeps web pages out, whatever name they gave this address.
fn stranger(headers: &HeaderMap, port: u16) -> Option<Response> {
    let message = if !host_is_ours(headers) {
        "the Host header is not this hub's; use 127.0.0.1 or localhost"
    } else if !origin_is_ours(headers, port) {
        "the Origin header is not this hub's; other web pages may not call it"
    } else {
        return None;
    };
    Some(problem(StatusCode::FORBIDDEN, message))
}

fn host_is_ours(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let (Some(only), None) = (hosts.next(), hosts.next()) else { return false };
    only.to_str().ok().and_then(|host| host.parse::<http::uri::Authority>().ok()).is_some_and(
        |authority| {
            let plain = !authority.as_str().contains('@');
            plain
                && matches!(
                    authority.host().to_ascii_lowercase().as_str(),
                    "127.0.0.1" | "localhost" | "[::1]"
                )
        },
    )
}

fn origin_is_ours(headers: &HeaderMap, port: u16) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).into_iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(only), None) => {
            let ours =
                ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}"));
            only.to_str()
                .is_ok_and(|origin| ours.iter().any(|ours| ours.eq_ignore_ascii_case(origin)))
        }
        (Some(_), Some(_)) => false,
    }
}

/// Keeps out what was not meant for this hub, and finds out who calls. Streams that a token opened end when the token does.
async fn admit(
    State((served, port)): State<(Arc<Served>, u16)>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(refusal) = stranger(request.headers(), port) {
        return refusal;
    }
    let Some(token) = served.token(request.headers()) else {
        let mut response = problem(
            StatusCode::UNAUTHORIZED,
            "a valid token is needed: send the header `Authorization: Bearer <token>`; `teamster connect` makes one",
        );
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return response;
    };
    if let Some(Newcomer(guest)) = request.extensions().get() {
        guest.has_shown(&token);
    }
    request.extensions_mut().insert(token.clone());
    let listens = request.method() == Method::GET
        || request
            .headers()
            .get("mcp-method")
            .is_some_and(|method| method == "subscriptions/listen");
    let response = next.run(request).await;
    let is_stream = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "text/event-stream");
    if is_stream { ends_with_token(response, served, token, listens) } else { response }
}

/// Ends a stream with its token; one that only listens ends also when the hub does.
fn ends_with_token(
    response: Response,
    served: Arc<Served>,
    token: Arc<Token>,
    listens: bool,
) -> Response {
    let (parts, body) = response.into_parts();
    let ended = async move {
        tokio::select! {
            () = token_ended(&served, &token) => {}
            () = served.service.streams_end.cancelled(), if listens => {}
        }
    };
    Response::from_parts(
        parts,
        Body::from_stream(body.into_data_stream().take_until(ended.boxed())),
    )
}

/// Waits until the token ends.
pub(super) async fn token_ended(served: &Served, token: &Token) {
    let hub = served.service.hub.as_ref();
    let watch = hub.watch(&Topic::Principal(token.principal.clone()));
    watch.until(hub, |state| state.tokens.get(token.id).is_none().then_some(())).await;
}

async fn serve_mcp<H: ServerHandler>(
    State(mcp): State<Arc<Mcp<H>>>,
    axum::Extension(token): axum::Extension<Arc<Token>>,
    request: Request,
) -> Response {
    let served = &mcp.served;
    let scope = match scope(request.uri().path()) {
        Ok(scope) => scope,
        Err(message) => return problem(StatusCode::NOT_FOUND, &message),
    };
    // A path of one run is refused as a whole; at /mcp, where other sets are served too, only the session's tools are.
    if scope.set == Some(Set::Session)
        && let Err(message) = served.service.hub.state().check_run(&token, &scope.run)
    {
        return problem(StatusCode::FORBIDDEN, &message);
    }
    if lines::is_asked_for(request.headers()) {
        return lines::serve(served.clone(), request, token, scope).await;
    }
    let (parts, body) = request.into_parts();
    if let Some(session) = parts.headers.get(SESSION_HEADER) {
        // Another's session is answered like one that never was.
        if !served.sessions.belongs(session.to_str().unwrap_or_default(), &token, path_of(&parts)) {
            return problem(StatusCode::NOT_FOUND, "session not found; initialize again");
        }
    }
    let key =
        parts.headers.get("idempotency-key").map(|key| key.to_str().unwrap_or_default().to_owned());
    let asked = Admitted { token, scope, key };
    if parts.method != Method::POST {
        return serve_by_rmcp(&mcp, asked, parts, body).await;
    }
    let body = match read_body(served, &asked.token, &parts.headers, body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    if mcp.directly
        && let Some(response) = direct::answer(served, &asked, &parts.headers, &body).await
    {
        served.n_direct.fetch_add(1, Ordering::Relaxed);
        return response;
    }
    match refusal_of(&body) {
        Some(refusal) => refusal,
        None => serve_by_rmcp(&mcp, asked, parts, Body::from(body)).await,
    }
}

/// The header by which clients of the older era name their session.
const SESSION_HEADER: &str = "mcp-session-id";

/// Returns the path as sessions know it.
fn path_of(parts: &Parts) -> &str {
    plain(parts.uri.path())
}

/// Returns a path without a closing `/mcp` that says nothing: some clients append one to every URL that has none.
/// `/mcp/session/mcp` is the run `mcp`.
fn plain(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.strip_suffix("/mcp").filter(|rest| !matches!(*rest, "" | "/mcp/session")).unwrap_or(path)
}

async fn serve_by_rmcp<H: ServerHandler>(
    mcp: &Mcp<H>,
    asked: Admitted,
    mut parts: Parts,
    body: Body,
) -> Response {
    let (sessions, token) = (&mcp.served.sessions, asked.token.clone());
    let path = path_of(&parts).to_owned();
    let session = parts.headers.get(SESSION_HEADER).cloned();
    let method = parts.method.clone();
    parts.extensions.insert(asked);
    let response = mcp.rmcp.handle(Request::from_parts(parts, body)).await.map(Body::new);
    let opened = response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok());
    let kept = match (&session, opened) {
        (None, Some(opened)) => sessions.open(opened, &token, &path).await,
        (Some(closed), _) if method == Method::DELETE && response.status().is_success() => {
            sessions.close(closed.to_str().unwrap_or_default(), &token).await
        }
        (None, None) | (Some(_), _) => Ok(()),
    };
    match kept {
        // Some clients take «accepted» for a session that is still there.
        Ok(()) if method == Method::DELETE && response.status() == StatusCode::ACCEPTED => {
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(()) => response,
        Err(Failure::Refused(refusal)) => problem(StatusCode::CONFLICT, &refusal.to_string()),
        Err(Failure::Unavailable(why) | Failure::Unknown(why)) => {
            problem(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

/// Reads the path `/mcp`, `/mcp/<set>` or `/mcp/session/<run>`; each may end in one more `/mcp`.
fn scope(path: &str) -> Result<Scope, String> {
    let mut parts = plain(path).split('/').skip(2);
    let (set, run) = (parts.next(), parts.next());
    let Some(set) = set else { return Ok(Scope::all()) };
    let known = Set::parse(set);
    let shown: String = set.chars().take(80).collect();
    let set = known.ok_or_else(|| {
        format!("there is no tool set {shown:?}; there are {}", Set::ALL.map(Set::name).join(", "))
    })?;
    match run {
        None => Ok(Scope { set: Some(set), ..Scope::all() }),
        Some(run) if set == Set::Session => {
            let run = RunName::parse(run).map_err(|bad| bad.to_string())?;
            Ok(Scope { set: Some(set), run, names_run: true })
        }
        Some(_) => Err(format!("/mcp/{set} has no parts; only /mcp/session/<run> names a run")),
    }
}

/// Says in full what is wrong with a body that is not a message.
fn refusal_of(bytes: &[u8]) -> Option<Response> {
    let wrong = match strict::read(bytes) {
        Ok(message) => check_message(&message).err().map(|wrong| (message["id"].clone(), wrong)),
        // The text is JSON; it has a key twice or too many values.
        Err(error) if error.is_data() => {
            Some((Value::Null, (INVALID_REQUEST, format!("the body is refused: {error}"))))
        }
        Err(error) => {
            let message = format!("the body is not valid JSON: {error}");
            Some((Value::Null, (PARSE_ERROR, message)))
        }
    };
    let (id, (code, message)) = wrong?;
    let id = if id.is_number() || id.is_string() { id } else { Value::Null };
    let error = json!({"code": code, "message": message});
    let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
    Some((StatusCode::BAD_REQUEST, axum::Json(body)).into_response())
}

/// Reads a body, or says at once that it is too large, or one too many.
async fn read_body(
    served: &Served,
    token: &Token,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, Response> {
    let too_large = || {
        let message = format!(
            "the body is larger than {BODY_BYTES_MAX} bytes; send less at once, or put long text into a file"
        );
        problem(StatusCode::PAYLOAD_TOO_LARGE, &message)
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut chunks = body.into_data_stream();
    if announced > BODY_BYTES_MAX {
        // A client that asks before it sends need not send.
        if !headers.contains_key(header::EXPECT) {
            ignore(served, chunks);
        }
        return Err(too_large());
    }
    let mut room = served.unfinished.room_of(token);
    let mut bytes = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err(problem(StatusCode::BAD_REQUEST, "the body did not arrive in full"));
        };
        let n_bytes = bytes.len() + chunk.len();
        if bytes.is_empty() && n_bytes <= BODY_BYTES_MAX && chunks.is_end_stream() {
            if n_bytes > UNPACED_BYTES {
                pause(served, token, n_bytes).await;
            }
            return Ok(chunk);
        }
        if n_bytes > BODY_BYTES_MAX {
            ignore(served, chunks);
            return Err(too_large());
        }
        if let Err(message) = room.grow_to(n_bytes) {
            ignore(served, chunks);
            return Err(problem(StatusCode::TOO_MANY_REQUESTS, &message));
        }
        // As much as was announced, at once: a buffer that grows step by step leaves gaps behind it.
        if bytes.is_empty() {
            bytes.reserve(announced.max(chunk.len()));
        }
        bytes.extend_from_slice(&chunk);
        pause(served, token, chunk.len()).await;
    }
    Ok(bytes.freeze())
}

/// Waits until an agent that has sent so many bytes more may send others.
async fn pause(served: &Served, token: &Token, n_bytes: usize) {
    let wait = served.pace(token, n_bytes);
    if !wait.is_zero() {
        tokio::time::sleep(wait.min(PACE_WAIT_MAX)).await;
    }
}

/// Reads the rest of a body that was answered already, and throws it away: a client that is still sending would find
/// the connection closed instead of the answer.
fn ignore(served: &Served, mut chunks: axum::body::BodyDataStream) {
    served.service.spawn("ignore the rest of a body", async move {
        let mut n_bytes = 0;
        while n_bytes <= BODY_BYTES_IGNORED_MAX
            && let Some(Ok(chunk)) = chunks.next().await
        {
            n_bytes += chunk.len();
        }
    });
}

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// Says what is wrong with a message that rmcp would refuse without a reason, as a JSON-RPC error's code and message.
fn check_message(message: &Value) -> Result<(), (i32, String)> {
    let wrong = |code: i32, message: &str| Err((code, message.to_owned()));
    if message.is_array() {
        return wrong(INVALID_REQUEST, "the body is a batch; send each message by itself");
    }
    if message["jsonrpc"] != "2.0" {
        return wrong(INVALID_REQUEST, "the body is not a JSON-RPC 2.0 message");
    }
    if !matches!(message.get("id"), None | Some(Value::Number(_) | Value::String(_))) {
        return wrong(INVALID_REQUEST, "id: must be a number or a string");
    }
    if message.get("result").or(message.get("error")).is_none() && !message["method"].is_string() {
        return wrong(INVALID_REQUEST, "method: must be a string");
    }
    let params = &message["params"];
    if !params.is_object() && !params.is_null() {
        return wrong(INVALID_PARAMS, "params: must be an object");
    }
    if message["method"] == "tools/call" {
        if !params["name"].is_string() {
            return wrong(INVALID_PARAMS, "params.name: must be the name of a tool");
        }
        if !params["arguments"].is_object() && !params["arguments"].is_null() {
            return wrong(INVALID_PARAMS, "params.arguments: must be an object");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
