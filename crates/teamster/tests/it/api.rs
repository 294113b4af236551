//! The operator's API as its own types describe it: every row is served, lists have pages, and commands act once.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use teamster_api::paths::{self, ALL};
use teamster_api::runs::{EditItem, EditNote, Run, ShownRun};
use teamster_api::tokens::{CreatedToken, NewToken, Token};
use teamster_api::yaks::{WholeContent, Yak};
use teamster_api::{Code, Endpoint, ErrorBody, KEY_HEADER, Page};

use crate::hub::{Answer, Hub};

impl Hub {
    /// Sends a request of the operator's, with a key.
    async fn keyed(&self, method: Method, path: &str, key: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.operator);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            (KEY_HEADER, key),
        ];
        self.http().await.send(method, path, &headers, body.to_string()).await
    }

    async fn read<E: Endpoint>(&self, path: &str) -> E::Answer {
        let bearer = format!("Bearer {}", self.operator);
        let headers = [("authorization", bearer.as_str())];
        let answer = self.http().await.send(Method::GET, path, &headers, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {answer:?}");
        answer.read()
    }
}

fn refused(answer: &Answer) -> (Code, String) {
    let body: ErrorBody = answer.read();
    assert_eq!(answer.status.as_u16(), body.error.code.status(), "{answer:?}");
    (body.error.code, body.error.message)
}

#[tokio::test]
async fn every_row_of_the_table_is_served_to_operators_only() {
    let hub = Hub::start();
    let (ann, operator) = (hub.token("ann", "full,main,self"), hub.operator.clone());
    // What stops the hub comes last.
    let is_last = |path: &str| path == paths::StopHub::PATH;
    let rows = ALL.iter().filter(|row| !is_last(row.path));
    for row in rows.chain(ALL.iter().filter(|row| is_last(row.path))) {
        let path = row.path.split('{').next().expect("it has a beginning");
        let rest = row.path.split_once('}').map(|(_, rest)| rest).unwrap_or_default();
        let path = if row.param.is_some() { format!("{path}x{rest}") } else { path.to_owned() };
        for (token, is_operator) in [(&ann, false), (&operator, true)] {
            let bearer = format!("Bearer {token}");
            let headers =
                [("authorization", bearer.as_str()), ("content-type", "application/json")];
            let method = http::Method::from(row.method);
            let answer = hub.http().await.send(method, &path, &headers, "[").await;
            let what = format!("{} {path}: {answer:?}", row.method.as_str());
            if !is_operator {
                assert_eq!(refused(&answer).0, Code::Forbidden, "{what}");
            } else if answer.status != StatusCode::OK {
                let (code, _) = refused(&answer);
                assert_ne!(code, Code::MethodNotAllowed, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_command_acts_once_also_after_a_restart() {
    let mut hub = Hub::start();
    let items = "/api/runs/default/items";
    let (one, other) = (json!({"content": "one"}), json!({"content": "other"}));
    let first = hub.keyed(Method::POST, items, "key-1", &one).await;
    let first: Run = first.read();
    let again = hub.keyed(Method::POST, items, "key-1", &one).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    let before = hub.n_events_in_all().await;
    hub.crash_and_start_again();
    let again = hub.keyed(Method::POST, items, "key-1", &one).await;
    let again: Run = again.read();
    assert_eq!((first.item_list.len(), &again.item_list), (1, &first.item_list));
    // The hub said that it started, and nothing else happened.
    assert_eq!(hub.n_events_in_all().await, before + 1);

    let answer = hub.keyed(Method::POST, items, "key-1", &other).await;
    assert_eq!(refused(&answer).0, Code::Refused);
    let answer = hub.keyed(Method::POST, items, "key 2", &other).await;
    assert_eq!(refused(&answer).0, Code::Invalid);
    let without = hub.keyed(Method::POST, items, "key-2", &other).await;
    assert_eq!(without.status, StatusCode::OK, "{without:?}");
    let run: ShownRun = hub.read::<paths::ShowRun>("/api/runs/default").await;
    assert_eq!(run.run.item_list.len(), 2);
}

#[tokio::test]
async fn each_kind_of_command_acts_once() {
    let mut hub = Hub::start();
    let yak = WholeContent { title: "one".into(), priority: 2, ..WholeContent::default() };
    let cases: Vec<(Method, &str, Value)> = vec![
        (
            Method::POST,
            "/api/runs/default/items",
            json!(EditItem { content: Some("one".into()), ..EditItem::default() }),
        ),
        (
            Method::POST,
            "/api/runs/default/notes",
            json!(EditNote { content: Some("one".into()), ..EditNote::default() }),
        ),
        (Method::POST, "/api/yaks/import", json!({"yaks": [{"id": "p-1", "content": yak}]})),
        (Method::POST, "/api/tells", json!({"to": "nobody", "message": "hello", "wait": false})),
    ];
    let mut first = Vec::new();
    for (n, (method, path, body)) in cases.iter().enumerate() {
        first.push(hub.keyed(method.clone(), path, &format!("key-{n}"), body).await);
    }
    hub.crash_and_start_again();
    for (n, (method, path, body)) in cases.iter().enumerate() {
        let again = hub.keyed(method.clone(), path, &format!("key-{n}"), body).await;
        assert_eq!(again.status, first[n].status, "{path}: {again:?}");
    }
    let yaks: Page<Yak> = hub.read::<paths::ListYaks>("/api/yaks").await;
    assert_eq!(yaks.items.len(), 1, "{yaks:?}");
    let run: ShownRun = hub.read::<paths::ShowRun>("/api/runs/default").await;
    assert_eq!((run.run.item_list.len(), run.run.notes.len()), (1, 1));
}

#[tokio::test]
async fn a_secret_is_shown_once_and_a_repeated_request_says_so() {
    let hub = Hub::start();
    let new =
        NewToken { name: Some("ann".into()), grants: vec!["full".into()], ..NewToken::default() };
    let new = serde_json::to_value(new).expect("it has a JSON form");
    let made = hub.keyed(Method::POST, "/api/tokens", "key-1", &new).await;
    assert!(!made.read::<CreatedToken>().secret.is_empty(), "{made:?}");
    let again = hub.keyed(Method::POST, "/api/tokens", "key-1", &new).await;
    let (code, says) = refused(&again);
    assert!(code == Code::Gone && says.contains("only in the first answer"), "{again:?}");
    let tokens: Page<Token> = hub.read::<paths::ListTokens>("/api/tokens").await;
    assert_eq!(tokens.items.iter().filter(|token| token.name == "ann").count(), 1);
    // Revoking it twice with one key is one revocation; with two it is a mistake.
    for (key, expected) in
        [("key-2", StatusCode::OK), ("key-2", StatusCode::OK), ("key-3", StatusCode::CONFLICT)]
    {
        let answer = hub.keyed(Method::DELETE, "/api/tokens/ann", key, &Value::Null).await;
        assert_eq!(answer.status, expected, "{answer:?}");
    }
}

#[tokio::test]
async fn lists_have_pages_and_the_command_line_reads_them_all() {
    let hub = Hub::start();
    let grants = vec!["session".to_owned()];
    for n in 0..105 {
        let new =
            NewToken { name: Some(format!("a{n}")), grants: grants.clone(), ..NewToken::default() };
        let new = serde_json::to_value(new).expect("it has a JSON form");
        let made = hub.keyed(Method::POST, "/api/tokens", &format!("key-{n}"), &new).await;
        assert_eq!(made.status, StatusCode::OK, "{made:?}");
    }
    let first: Page<Token> = hub.read::<paths::ListTokens>("/api/tokens").await;
    let next = first.next.expect("there are more");
    assert_eq!(first.items.len(), 100);
    // What was revoked meanwhile is neither repeated nor a gap.
    hub.ok(&["token", "revoke", "a0"]);
    let path = format!("/api/tokens?limit=500&cursor={}", teamster_api::in_path(&next));
    let rest: Page<Token> = hub.read::<paths::ListTokens>(&path).await;
    assert_eq!((rest.items.len(), rest.next), (7, None));
    assert!(rest.items.iter().all(|token| !first.items.contains(token)));
    let listed: Vec<Token> =
        serde_json::from_str(&hub.ok(&["token", "list", "--json"])).expect("it is a list");
    assert_eq!(listed.len(), 106);
}
