//! Clients that stop in the middle: each ends at a deadline, and its place is free again. Served by the hub's own
//! listener, with less patience than a hub has.

use std::time::Duration;

use axum::body::Bytes;
use axum::routing::{get, post};
use axum::{Extension, Router};
use teamster_core::grant::Grants;
use teamster_core::ids::TokenId;
use teamster_core::token::{Kind, SecretHash, Token};
use teamster_core::{PrincipalName, Timestamp};
use teamster_hub::listen::{self, Connections, Limits};
use teamster_mcp::door::http::Newcomer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::hub::DEADLINE;

/// More than the buffers between the two ends hold.
const LONG: usize = 64 << 20;

/// A listener, and what ends it.
struct Listening {
    address: String,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
    open: Connections,
}

/// Listens with less patience than a hub has.
async fn listener(limits: Limits) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let router = Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/known", get(known))
        .route("/long", get(|| async { vec![b'x'; LONG] }))
        .route("/echo", post(|body: Bytes| async move { body }));
    let (stop, stopped) = oneshot::channel::<()>();
    let open = Connections::default();
    let served =
        listen::serve(listener, router, limits, open.clone(), async { drop(stopped.await) });
    Listening { address, stop, served: tokio::spawn(served), open }
}

/// Does what the door does for a request with a valid token.
async fn known(Extension(newcomer): Extension<Newcomer>) -> &'static str {
    let token = Token {
        id: TokenId(1),
        principal: PrincipalName::parse("ann").expect("a name"),
        kind: Kind::Agent,
        secret: SecretHash([0; 32]),
        grants: Grants::default(),
        run: None,
        team: None,
        expires_at: None,
        created_at: Timestamp(0),
    };
    newcomer.0.has_shown(&token);
    "ok"
}

const PATIENCE: Duration = Duration::from_millis(300);

/// Everybody is a stranger here, and nobody minds.
const LIMITS: Limits =
    Limits { connections: 100, strangers: 100, strangers_patience: DEADLINE, patience: PATIENCE };

async fn send(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(text.as_bytes()).await.expect("it is open");
    stream
}

/// Returns everything the other end sends until it closes.
async fn read(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes));
    // A reset is an end too.
    let _ = read.await.expect("the other end closes");
    String::from_utf8(bytes).expect("UTF-8")
}

#[tokio::test]
async fn those_who_stop_in_the_middle_are_ended_and_others_are_served() {
    let Listening { address, stop, served, .. } = listener(LIMITS).await;
    let kinds = [
        ("nothing", ""),
        ("half a line", "GET / HT"),
        ("half a head", "GET / HTTP/1.1\r\nhost: a\r\nx-"),
        ("half a body", "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf"),
        (
            "half a chunk",
            "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\na\r\nhalf",
        ),
        ("a request, and then nothing", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
    ];
    let mut silent = Vec::new();
    for (kind, text) in kinds {
        for _ in 0..10 {
            silent.push((kind, send(&address, text).await));
        }
    }
    let good = send(&address, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(read(good).await.ends_with("\r\n\r\nok"));
    let n_silent = silent.len();
    for (kind, stream) in silent {
        let answer = read(stream).await;
        let expected: &[&str] = match kind {
            "half a body" | "half a chunk" => &["HTTP/1.1 400 "],
            "a request, and then nothing" => &["HTTP/1.1 200 "],
            _ => &["", "HTTP/1.1 408 "],
        };
        assert!(expected.iter().any(|start| answer.starts_with(start)), "{kind}: {answer}");
    }
    println!("{n_silent} half-open connections of {} kinds were ended", kinds.len());
    drop(stop);
    served.await.expect("it ends");
}

/// Whoever does not read keeps a place only so long. The control: until then it has one.
#[tokio::test]
async fn those_who_do_not_read_lose_their_place() {
    let Listening { address, stop, served, open } = listener(LIMITS).await;
    let lazy = send(&address, "GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await;
    lazy.readable().await.expect("the answer begins");
    assert_eq!(open.n_open(), 1);
    let mut n_served = 0;
    while open.n_open() > 0 {
        let stream = send(&address, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(read(stream).await.ends_with("\r\n\r\nok"));
        n_served += 1;
        assert!(n_served < 1_000_000, "its place is never free");
    }
    println!("{n_served} connections were served until one who did not read had lost its place");
    let left = read(lazy).await;
    assert!(left.len() < LONG, "it got all of the answer: nothing was cut");
    drop(stop);
    served.await.expect("it ends");
}

async fn ask(stream: &mut TcpStream, path: &str) -> std::io::Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let n_read = stream.read_buf(&mut answer).await?;
        if n_read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// The control is the connection that has shown a token: it keeps its place, whoever comes.
#[tokio::test]
async fn strangers_are_few_and_stay_shortly() {
    let limits = Limits { connections: 8, strangers: 4, patience: DEADLINE, ..LIMITS };
    let Listening { address, stop, served, open } = listener(limits).await;
    let mut ann = send(&address, "").await;
    ask(&mut ann, "/known").await.expect("it is served");
    let mut crowd = Vec::new();
    for _ in 0..50 {
        let mut stranger = send(&address, "").await;
        ask(&mut stranger, "/").await.expect("whoever comes is served");
        crowd.push(stranger);
    }
    let last = crowd.split_off(46);
    for stranger in crowd {
        assert_eq!(read(stranger).await, "", "older strangers are ended");
    }
    assert_eq!(open.n_open(), 5);
    ask(&mut ann, "/").await.expect("it has kept its place");
    drop((last, ann, stop));
    served.await.expect("it ends");

    let limits = Limits { strangers_patience: PATIENCE, patience: DEADLINE, ..LIMITS };
    let Listening { address, stop, served, open } = listener(limits).await;
    let mut ann = send(&address, "").await;
    ask(&mut ann, "/known").await.expect("it is served");
    let mut stranger = send(&address, "").await;
    ask(&mut stranger, "/").await.expect("it is served");
    assert_eq!(read(stranger).await, "", "without a token it ends soon");
    ask(&mut ann, "/").await.expect("with one it does not");
    assert_eq!(open.n_open(), 1);
    drop((ann, stop));
    served.await.expect("it ends");
}

#[tokio::test]
async fn an_orderly_end_answers_what_is_under_way_and_closes_what_is_idle() {
    let Listening { address, stop, served, .. } = listener(LIMITS).await;
    let mut idle = send(&address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut answer = [0; 15];
    idle.read_exact(&mut answer).await.expect("it is answered");
    let under_way =
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    let mut under_way = send(&address, under_way).await;
    let mut go_on = [0; 25];
    under_way.read_exact(&mut go_on).await.expect("the body is asked for");
    drop(stop);
    assert!(!read(idle).await.contains("HTTP/1.1 4"), "idle connections are closed");
    under_way.write_all(b"late").await.expect("it is open");
    assert!(read(under_way).await.ends_with("\r\n\r\nlate"));
    served.await.expect("it ends");
    assert!(TcpStream::connect(&address).await.is_err(), "nobody listens any more");
}
