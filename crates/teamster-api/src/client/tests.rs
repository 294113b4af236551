use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::tokens::NewToken;

/// A hub with prepared answers. It loses its first answers to commands.
struct Stub {
    place: Place,
    /// The keys of the commands that it got.
    keys: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
    _lock: std::fs::File,
}

impl Stub {
    async fn start(n_lost: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place =
            Place { directory: directory.path().to_owned(), starts_hub: "teamster up -d".into() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (pid, token_file) = (std::process::id(), directory.path().join("operator.token"));
        std::fs::write(&token_file, "secret").unwrap();
        std::fs::write(place.lock(), pid.to_string()).unwrap();
        let lock = std::fs::File::open(place.lock()).unwrap();
        lock.lock().unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let file = HubFile { url, pid, token_file, version, socket: None };
        std::fs::write(place.hub_file(), serde_json::to_vec(&file).unwrap()).unwrap();
        let keys = Arc::new(Mutex::new(Vec::new()));
        let seen = keys.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                while let Some(request) = read_request(&mut stream).await {
                    let key =
                        request.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
                    if let Some(key) = key {
                        seen.lock().unwrap().push(key.to_owned());
                        if seen.lock().unwrap().len() <= n_lost {
                            break;
                        }
                    }
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        Self { place, keys, _directory: directory, _lock: lock }
    }
}

/// Reads a request with its body; nothing if the connection has ended.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text.into_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn a_command_whose_answer_is_lost_is_sent_again_with_its_key() {
    let stub = Stub::start(TRIES_MAX - 1).await;
    let mut client = Client::connect(stub.place.clone()).await.unwrap();
    client.create_token(&NewToken::default()).await.unwrap();
    client.create_token(&NewToken::default()).await.unwrap();
    let keys = stub.keys.lock().unwrap().clone();
    assert_eq!(keys.len(), TRIES_MAX + 1);
    let (first, second) = keys.split_at(TRIES_MAX);
    assert!(first.iter().all(|key| *key == first[0]), "{keys:?}");
    assert_ne!(first[0], second[0], "another command has another key");
}

#[tokio::test]
async fn a_command_is_not_sent_without_end() {
    let stub = Stub::start(usize::MAX).await;
    let mut client = Client::connect(stub.place.clone()).await.unwrap();
    let error = client.create_token(&NewToken::default()).await.unwrap_err();
    assert!(error.is::<Lost>(), "{error:?}");
    assert_eq!(stub.keys.lock().unwrap().len(), TRIES_MAX);
}

#[test]
fn what_a_door_or_a_hub_says_of_a_failure_is_one_error() {
    for (status, answer, expected) in [
        (401, r#"{"error": "who are you?"}"#, ApiError::new(Code::Unauthorized, "who are you?")),
        (
            409,
            r#"{"error": {"code": "refused", "message": "no"}}"#,
            ApiError::new(Code::Refused, "no"),
        ),
        (502, "<html>", ApiError::new(Code::Other, "the hub answered 502 Bad Gateway")),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(refusal(status, answer.as_bytes()), expected, "{answer}");
    }
}
