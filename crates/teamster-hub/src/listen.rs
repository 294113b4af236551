//! Serving connections: as many as there is room for, none for longer than it makes progress, and an orderly end.
//!
//! Who has a place is decided in `rooms.rs`. What is served and who may call is the door's business; here a client is only somebody who may be slow, silent or many.

mod patience;
mod rooms;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::serve::Listener;
use futures_util::FutureExt;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::patience::{PatientBody, PatientIo};
use self::rooms::Rooms;
use crate::tasks;

/// What clients may take up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// How many of them may belong to clients that have not shown a valid token.
    pub strangers: usize,
    /// How long such a client may take to show one.
    pub strangers_patience: Duration,
    /// How long a client may take to send a request's head, then to send its body, and how long it may leave what it is
    /// sent unread. A connection that nobody uses ends after this, too.
    pub patience: Duration,
}

/// Clients are on this machine, so what takes so long will not come any more. And it is longer than the 90 seconds after
/// which the usual clients close a connection they do not use, so that they hardly ever use one that is being closed.
const PATIENCE: Duration = Duration::from_secs(120);
/// An idle connection takes about 13 KiB.
const CONNECTIONS_MAX: usize = 10_000;
/// Command lines, and clients that are connected over stdio.
const SOCKET_CONNECTIONS_MAX: usize = 1_000;
/// Enough for all clients of a large team that connect at the same moment.
const STRANGERS_MAX: usize = 1_024;
/// Clients send their token with their first request, and that as soon as they are connected.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(10);
/// Files that are kept for the log, its snapshots and the programs that the hub starts.
const FILES_KEPT: u64 = 32;
/// As much as is buffered of one connection: more than any client's headers.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

impl Limits {
    /// Returns what this process has room for, after asking for as many open files as it may have.
    pub fn of_this_process() -> Self {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let room = usize::try_from(files.saturating_sub(FILES_KEPT)).unwrap_or(usize::MAX);
        Self::with_room(room.clamp(4, CONNECTIONS_MAX))
    }

    fn with_room(connections: usize) -> Self {
        Self {
            connections,
            strangers: (connections / 4).clamp(1, STRANGERS_MAX),
            strangers_patience: STRANGERS_PATIENCE,
            patience: PATIENCE,
        }
    }

    /// Keeps a part of the room for the socket, which only the hub's user reaches: whoever crowds the port, on which
    /// anybody on this machine can connect, does not keep the command line out. Returns the port's part first.
    pub fn with_socket(self) -> (Self, Self) {
        let socket = (self.connections / 4).clamp(1, SOCKET_CONNECTIONS_MAX);
        (Self::with_room(self.connections - socket), Self::with_room(socket))
    }
}

/// How many connections are open.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    pub fn n_open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn open(&self) -> Open {
        self.0.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }
}

/// One that is open until this is dropped.
struct Open(Connections);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves `router` to whoever connects, until `stop`; then returns when the requests under way are answered.
pub async fn serve(
    mut listener: impl Listener,
    router: Router,
    limits: Limits,
    open: Connections,
    stop: impl Future<Output = ()>,
) {
    let Limits { connections, patience, .. } = limits;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(BUFFER_BYTES_MAX);
    let router = TowerToHyperService::new(router);
    let rooms = Rooms::new(limits, open);
    let serving = TaskTracker::new();
    let ending = CancellationToken::new();
    let mut stop = std::pin::pin!(stop);
    let mut crowded = false;
    loop {
        let (io, _) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Some(place) = rooms.enter().await else {
            // Said once, not to each of a crowd.
            if !std::mem::replace(&mut crowded, true) {
                tracing::warn!(connections, "refusing connections: there is no room for more");
            }
            refuse(io);
            continue;
        };
        crowded = false;
        let router = router.clone();
        let newcomer = place.as_newcomer();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(|body| Body::new(PatientBody::new(body, patience)));
            request.extensions_mut().insert(newcomer.clone());
            router.call(request)
        });
        let io = TokioIo::new(PatientIo::new(io, patience));
        let connection = http.serve_connection(io, service).with_upgrades();
        let ending = ending.clone();
        let task = async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = place.is_lost() => return,
                () = ending.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        };
        tasks::spawn("serve a connection", serving.track_future(task));
    }
    // Nobody new is let in while the last are served.
    drop(listener);
    ending.cancel();
    serving.close();
    serving.wait().await;
}

/// Tells a client that there is no room. A new connection takes this much at once, so nothing is waited for.
fn refuse(mut io: impl AsyncWrite + Unpin) {
    const ANSWER: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 67\r\n\
        connection: close\r\n\r\n{\"error\":\"the hub has too many connections; close some and go on\"}\n";
    let _ = io.write_all(ANSWER.as_bytes()).now_or_never();
    let _ = io.shutdown().now_or_never();
}
