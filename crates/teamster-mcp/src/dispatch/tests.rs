use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::answer::{Answer, Block, Reply, ToolError};
use crate::call::Call;
use crate::catalogue::{Entry, Needs, Tool};
use crate::observe::{Nobody, Observed};
use crate::set::Set;
use crate::testing::TestHub;
use crate::tools::session;
use futures_util::FutureExt as _;

struct Panics;

/// Fails as no tool should.
#[derive(Debug, Deserialize, JsonSchema)]
struct PanicsArgs {
    after_waiting: bool,
}

impl Tool for Panics {
    const SET: Set = Set::Session;
    const NAME: &'static str = "panics";
    const NEEDS: Needs = Needs::Token;
    type Args = PanicsArgs;

    async fn call(_cx: &Call<'_>, args: PanicsArgs) -> Result<Reply, ToolError> {
        if args.after_waiting {
            tokio::task::yield_now().await;
        }
        panic!("the tool's own fault")
    }
}

async fn call(catalogue: &Catalogue, hub: &TestHub, name: &str, arguments: Value) -> String {
    let state = hub.state();
    let token = state.tokens.live().next().unwrap();
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let request = Request { name: name.into(), arguments, ..Request::default() };
    match dispatch(catalogue, hub, &Nobody, token, &Scope::all(), &request).await {
        Ok(Outcome::Answer(Answer { content, is_error, .. })) => match &content[..] {
            [Block::Text { text }] => format!("{}{text}", if is_error { "! " } else { "" }),
            other => panic!("one text was expected: {other:?}"),
        },
        Ok(Outcome::Ask(asks)) => panic!("nothing is asked here: {asks:?}"),
        Err(fault) => format!("fault: {fault}"),
    }
}

#[tokio::test]
async fn a_tool_that_panics_is_answered_and_the_next_call_works() {
    let hub = TestHub::default();
    hub.token("ann", &["full"]);
    let catalogue = Catalogue::of(vec![Entry::of::<Panics>(), Entry::of::<session::TaskAdd>()]);
    for after_waiting in [false, true] {
        let answer =
            call(&catalogue, &hub, "panics", json!({"after_waiting": after_waiting})).await;
        assert_eq!(
            answer,
            "! error: the tool failed inside; this is a bug in Teamster, the hub's log has the details, and other calls still work"
        );
        let content = format!("after {after_waiting}");
        let added =
            call(&catalogue, &hub, "task-add", json!({"tasks": [{"content": content}]})).await;
        assert!(added.starts_with("Added 1 task(s):"), "{added}");
    }
}

/// Writes down what it hears, on a clock of its own.
#[derive(Default)]
struct Told {
    calls: Mutex<Vec<String>>,
    now_ns: AtomicU64,
}

impl Observer for Told {
    fn clock_ns(&self) -> u64 {
        self.now_ns.fetch_add(10, Ordering::Relaxed)
    }

    fn called(&self, call: &Observed<'_>) {
        let tool = call.entry.map_or("?", |entry| entry.name);
        let (who, how, took) = (&call.token.principal, call.how.as_str(), call.took);
        self.calls.lock().unwrap().push(format!("{who} {tool}: {how} in {took:?}"));
    }
}

#[tokio::test]
async fn every_call_is_told_once_however_it_ends() {
    let hub = TestHub::default();
    let token = hub.token("ann", &["session:task-list"]);
    let catalogue = Catalogue::of(vec![
        Entry::of::<Panics>(),
        Entry::of::<session::TaskAdd>(),
        Entry::of::<session::TaskList>(),
    ]);
    let told = Told::default();
    let (scope, panics) = (Scope::all(), json!({"after_waiting": true}));
    for (name, arguments) in [
        ("task-list", json!({})),
        ("task-list", json!({"status": 7})),
        ("task-add", json!({})),
        ("panics", panics.clone()),
        ("nothing", json!({})),
    ] {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let request = Request { name: name.into(), arguments, ..Request::default() };
        let _ = dispatch(&catalogue, &hub, &told, &token, &scope, &request).await;
    }
    let Value::Object(arguments) = panics else { panic!("arguments are an object") };
    let request = Request { name: "panics".into(), arguments, ..Request::default() };
    let left = dispatch(&catalogue, &hub, &told, &token, &scope, &request).now_or_never();
    assert!(left.is_none(), "it waits, and its caller does not");
    expect_test::expect![[r#"
        ann task-list: ok in 10ns
        ann task-list: refused in 10ns
        ann task-add: refused in 10ns
        ann panics: failed in 10ns
        ann ?: failed in 10ns
        ann panics: abandoned in 10ns"#]]
    .assert_eq(&told.calls.lock().unwrap().join("\n"));
}
