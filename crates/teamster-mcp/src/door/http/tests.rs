use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;
use crate::door::seal::KEY_BYTES;
use crate::observe::Nobody;
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

/// Returns the routes of a door for ann and bob.
fn door(spawn: Spawn) -> Router {
    let hub = TestHub::default();
    hub.token("ann", &["full"]);
    hub.token("bob", &["full"]);
    let served = Served::new(Setup {
        hub: Arc::new(hub),
        catalogue: Catalogue::new(),
        secrets: Secrets { new: String::new, hash },
        spawn,
        seal: Seal::new([7; KEY_BYTES]),
        observer: Arc::new(Nobody),
        patience: PATIENCE,
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
    (sender, answer.boxed())
}

#[tokio::test]
async fn unfinished_bodies_of_one_principal_are_bounded() {
    let router = door(Arc::new(|_, _| ()));
    let large = BODY_BYTES_MAX - 1;
    let begin = |who: &str, n_bytes: usize| {
        let (sender, mut answer) = unfinished(&router, who, n_bytes);
        assert!((&mut answer).now_or_never().is_none(), "it is not all there");
        (sender, answer)
    };
    // Whether there was room shows in the answer: a body of spaces is no JSON.
    let end =
        async |(sender, answer): (mpsc::UnboundedSender<Bytes>, BoxFuture<'static, Response>)| {
            drop(sender);
            answer.await.status()
        };
    let mut held: Vec<_> = (0..8).map(|_| begin("ann", large)).collect();
    for (who, n_bytes, status) in [
        ("ann", large, StatusCode::TOO_MANY_REQUESTS),
        ("ann", BODY_BYTES_MAX + 1, StatusCode::PAYLOAD_TOO_LARGE),
        ("ann", 10_000, StatusCode::BAD_REQUEST),
        ("bob", large, StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(end(begin(who, n_bytes)).await, status, "{who} {n_bytes}");
    }
    // Whoever goes away, or ends, makes room.
    drop(held.pop());
    assert_eq!(end(begin("ann", large)).await, StatusCode::BAD_REQUEST);
    assert_eq!(end(begin("ann", large)).await, StatusCode::BAD_REQUEST);
    let refused = {
        let _more = begin("ann", large);
        let (sender, answer) = begin("ann", large);
        drop(sender);
        answer.await.into_body().collect().await.unwrap().to_bytes()
    };
    let refused: Value = serde_json::from_slice(&refused).unwrap();
    let message = format!(
        "ann has {} bytes of unfinished requests already; finish some, then send this again",
        8 * large
    );
    assert_eq!(refused, json!({"error": message}));
    for unfinished in held {
        assert_eq!(end(unfinished).await, StatusCode::BAD_REQUEST);
    }
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
