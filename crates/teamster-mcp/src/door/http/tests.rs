use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use teamster_core::token::Kind;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;
use crate::call::PATIENCE;
use crate::observe::Nobody;
use crate::seal::KEY_BYTES;
use crate::testing::{TestHub, hash};

const DEADLINE: Duration = Duration::from_secs(60);

fn request(method: Method, session: Option<&str>, body: Value) -> Request {
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in [
        ("host", "127.0.0.1:1"),
        ("authorization", "Bearer ann"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ] {
        request = request.header(name, value);
    }
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    request.body(Body::from(body.to_string())).unwrap()
}

/// Returns the routes of a door for ann, bob, six more agents, and olga, an operator.
fn door(spawn: Spawn) -> Router {
    let hub = TestHub::default();
    hub.token("ann", &["full"]);
    hub.token("bob", &["full"]);
    (0..6).for_each(|n| drop(hub.token(&format!("agent-{n}"), &["full"])));
    hub.token_of(Kind::OPERATOR, "olga", &["full"]);
    let served = Served::new(Setup {
        hub: Arc::new(hub),
        catalogue: crate::tools::catalogue(),
        secrets: Secrets { new: String::new, hash },
        spawn,
        seal: Seal::new([7; KEY_BYTES]),
        observer: Arc::new(Nobody),
        patience: PATIENCE,
        paces: Arc::default(),
    });
    router(served, Router::new(), 1)
}

/// Sends a request of which so many bytes have come and more are to come, until it is dropped or told that it ends.
fn unfinished(
    router: &Router,
    who: &str,
    n_bytes: usize,
) -> (mpsc::UnboundedSender<Bytes>, BoxFuture<'static, Response>) {
    let (sender, chunks) = mpsc::unbounded_channel();
    sender.send(Bytes::from(vec![b' '; n_bytes])).unwrap();
    let chunks = futures_util::stream::unfold(chunks, async |mut chunks| {
        Some((Ok::<_, std::io::Error>(chunks.recv().await?), chunks))
    });
    let mut request = request(Method::POST, None, Value::Null);
    let bearer = header::HeaderValue::from_str(&format!("Bearer {who}")).unwrap();
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    *request.body_mut() = Body::from_stream(chunks);
    let answer = router.clone().oneshot(request).map(Result::unwrap);
    // Polled by hand as often as it takes, whatever the runtime thinks of that.
    (sender, tokio::task::unconstrained(answer).boxed())
}

type Begun = (mpsc::UnboundedSender<Bytes>, BoxFuture<'static, Response>);

/// Sends a body of which so many bytes have come, and of which more are to come.
fn begin(router: &Router, who: &str, n_bytes: usize) -> Begun {
    let (sender, mut answer) = unfinished(router, who, n_bytes);
    assert!((&mut answer).now_or_never().is_none(), "{who}: it is not all there");
    (sender, answer)
}

/// Ends the body. Whether there was room shows in the answer: a body of spaces is no JSON.
async fn end((sender, answer): Begun) -> StatusCode {
    drop(sender);
    answer.await.status()
}

/// Returns the refusal of a body that is not all there.
fn refused_at_once(router: &Router, who: &str, n_bytes: usize) -> (StatusCode, String) {
    let (_sender, mut answer) = unfinished(router, who, n_bytes);
    let answer = (&mut answer).now_or_never().expect("it is refused before it is all there");
    let status = answer.status();
    let body = answer.into_body().collect().now_or_never().expect("a whole answer").unwrap();
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    (status, body["error"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn unfinished_bodies_of_one_principal_are_bounded() {
    let router = door(Arc::new(|_, _| ()));
    let large = BODY_BYTES_MAX - 1;
    let mut held: Vec<_> = (0..2).map(|_| begin(&router, "ann", large)).collect();
    let (status, says) = refused_at_once(&router, "ann", large);
    let expected = format!(
        "ann has {} bytes of unfinished requests already; finish some, then send this again",
        2 * large
    );
    assert_eq!((status, says), (StatusCode::TOO_MANY_REQUESTS, expected));
    assert_eq!(end(begin(&router, "ann", 10_000)).await, StatusCode::BAD_REQUEST);
    assert_eq!(end(begin(&router, "bob", large)).await, StatusCode::BAD_REQUEST);
    // A connection that ends makes room.
    drop(held.pop());
    assert_eq!(end(begin(&router, "ann", large)).await, StatusCode::BAD_REQUEST);
    assert_eq!(end(begin(&router, "ann", large)).await, StatusCode::BAD_REQUEST);
    // Small ones have room of their own, which is bounded too.
    let mut small: Vec<_> = (0..128).map(|_| begin(&router, "ann", 64 * 1024)).collect();
    assert_eq!(refused_at_once(&router, "ann", 64 * 1024).0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(end(begin(&router, "bob", 64 * 1024)).await, StatusCode::BAD_REQUEST);
    small.pop();
    assert_eq!(end(begin(&router, "ann", 64 * 1024)).await, StatusCode::BAD_REQUEST);
    for unfinished in held.into_iter().chain(small) {
        assert_eq!(end(unfinished).await, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn unfinished_bodies_of_all_principals_are_bounded() {
    let router = door(Arc::new(|_, _| ()));
    let large = BODY_BYTES_MAX - 1;
    let held: Vec<_> =
        (0..12).map(|n| begin(&router, &format!("agent-{}", n / 2), large)).collect();
    let (status, says) = refused_at_once(&router, "ann", large);
    let expected = format!(
        "the hub has {} bytes of unfinished requests already; send this again in a moment",
        12 * large
    );
    assert_eq!((status, says), (StatusCode::TOO_MANY_REQUESTS, expected));
    // Usual calls continue, and so does an operator.
    assert_eq!(end(begin(&router, "ann", 60_000)).await, StatusCode::BAD_REQUEST);
    assert_eq!(end(begin(&router, "olga", large)).await, StatusCode::BAD_REQUEST);
    drop(held);
    assert_eq!(end(begin(&router, "ann", large)).await, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_all_there() {
    let router = door(Arc::new(|_, _| ()));
    let (status, says) = refused_at_once(&router, "ann", BODY_BYTES_MAX + 1);
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(says.starts_with("the body is larger than 4194304 bytes"), "{says}");
    assert_eq!(end(begin(&router, "ann", BODY_BYTES_MAX)).await, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_key_that_is_there_twice_is_refused() {
    let router = door(Arc::new(|_, _| ()));
    let call = |arguments: &str| {
        let mut request = request(Method::POST, None, Value::Null);
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"task-add","arguments":{arguments}}}}}"#
        );
        *request.body_mut() = Body::from(text);
        router.clone().oneshot(request).map(Result::unwrap)
    };
    let answer = call(r#"{"tasks":[{"content":"a","content":"b"}]}"#).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let expected = "the body is refused: the key \"content\" is there twice; send it once";
    assert!(body["error"]["message"].as_str().unwrap().starts_with(expected), "{body}");
    // The control: the same key in two objects.
    let answer = call(r#"{"tasks":[{"content":"a"},{"content":"b"}]}"#).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("twice"), "{body:?}");
}

#[tokio::test]
async fn what_watches_for_a_session_ends_with_it() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let spawn: Spawn = Arc::new(move |name, task| {
        let ended = ended.clone();
        #[expect(clippy::disallowed_methods, reason = "this stands for teamster::tasks::spawn")]
        tokio::spawn(async move {
            task.await;
            let _ = ended.send(name);
        });
    });
    let router = door(spawn);
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let response = router.clone().oneshot(request(Method::POST, None, initialize)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    response.into_body().collect().await.unwrap();
    let session = Some(session.as_str());
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let response = router.clone().oneshot(request(Method::POST, session, initialized)).await;
    assert_eq!(response.unwrap().status(), StatusCode::ACCEPTED);
    // Once a later request is answered, the watch has begun.
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    let response = router.clone().oneshot(request(Method::POST, session, list)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap();
    assert!(ends.try_recv().is_err(), "the session is open");

    let response = router.oneshot(request(Method::DELETE, session, Value::Null)).await.unwrap();
    assert!(response.status().is_success(), "{response:?}");
    let ended = tokio::time::timeout(DEADLINE, ends.recv()).await;
    assert_eq!(ended, Ok(Some("tell a session about its tools")));
}
