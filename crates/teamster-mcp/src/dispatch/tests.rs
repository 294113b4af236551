use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::Set;
use crate::access::Needs;
use crate::catalogue::Tool;
use crate::testing::TestHub;
use crate::tools::session;

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
    match dispatch(catalogue, hub, token, &Scope::all(), &request).await {
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
