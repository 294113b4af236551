//! Clients that stop in the middle: each ends at a deadline, and its place is free again. Served by the hub's own
//! listener, with less patience than a hub has.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use teamster::listen::{self, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::hub::DEADLINE;

/// More than the buffers between the two ends hold.
const LONG: usize = 64 << 20;

/// A listener with room for one connection, and what ends it.
async fn listener(
    connections: usize,
) -> (String, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let router = Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/long", get(|| async { vec![b'x'; LONG] }))
        .route("/echo", post(|body: Bytes| async move { body }));
    let limits = Limits { connections, patience: Duration::from_millis(300) };
    let (stop, stopped) = oneshot::channel::<()>();
    let served =
        listen::serve(listener, router, limits, Default::default(), async { drop(stopped.await) });
    (address, stop, tokio::spawn(served))
}

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
    let (address, stop, served) = listener(100).await;
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

/// Whoever does not read keeps a place only so long. The control is the refusal: while the place is taken, there is none.
#[tokio::test]
async fn those_who_do_not_read_lose_their_place() {
    let (address, stop, served) = listener(1).await;
    let lazy = send(&address, "GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await;
    lazy.readable().await.expect("the answer begins");
    let (mut n_refused, mut n_tries) = (0, 0);
    loop {
        n_tries += 1;
        let stream = send(&address, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        let answer = read(stream).await;
        if answer.ends_with("\r\n\r\nok") {
            break;
        }
        let refusal = "the hub has too many connections; close some and go on";
        // A refusal that was overtaken by the end of its connection is empty.
        assert!(answer.is_empty() || answer.contains(refusal), "{answer}");
        n_refused += 1;
        assert!(n_tries < 100_000, "its place is never free");
    }
    println!("{n_refused} connections were refused until one who did not read had lost its place");
    assert!(n_refused > 0, "there was room all the time");
    let left = read(lazy).await;
    assert!(left.len() < LONG, "it got all of the answer: nothing was cut");
    drop(stop);
    served.await.expect("it ends");
}

#[tokio::test]
async fn an_orderly_end_answers_what_is_under_way_and_closes_what_is_idle() {
    let (address, stop, served) = listener(10).await;
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
