use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;
use crate::door::seal::KEY_BYTES;
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

#[tokio::test]
async fn what_watches_for_a_session_ends_with_it() {
    let hub = TestHub::default();
    hub.token("ann", &["full"]);
    let (ended, mut ends) = mpsc::unbounded_channel();
    let spawn: Spawn = Arc::new(move |name, task| {
        let ended = ended.clone();
        #[expect(clippy::disallowed_methods, reason = "this stands for teamster::tasks::spawn")]
        tokio::spawn(async move {
            task.await;
            let _ = ended.send(name);
        });
    });
    let served = Served::new(Setup {
        hub: Arc::new(hub),
        catalogue: Catalogue::new(),
        secrets: Secrets { new: String::new, hash },
        spawn,
        seal: Seal::new([7; KEY_BYTES]),
        patience: PATIENCE,
    });
    let router = router(served, Router::new(), 1);

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
