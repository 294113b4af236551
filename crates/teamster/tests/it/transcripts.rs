//! Tool transcripts: each file in `tests/transcripts` is played to a hub of its own, and what the tools answer must be
//! what the file says. `UPDATE_EXPECT=1` writes the answers anew; read the difference before you keep it.
//!
//! ```text
//! # ann full                                      a principal: its name, its grants, and perhaps its path
//! // A comment.
//! > ann task-add {"tasks":[{"content":"sweep"}]}  a call: who, the tool, its arguments
//! < Added 1 task(s):                              its answer, line by line; `< ! ` begins a failure
//! <   TAS-1: sweep
//! ```
//!
//! `{1..120}` in an element of an array stands for that many elements. The ids of yaks are random; here they are
//! called `yak-1`, `yak-2` and so on, in the order in which they appear, and times are `<time>`.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde_json::Value;

use crate::hub::{Hub, LEGACY, MODERN, Mcp};
use crate::normal::{Yaks, mask};

macro_rules! transcripts {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            play(stringify!($name)).await;
        })*

        #[test]
        fn no_transcript_is_forgotten() {
            let files = std::fs::read_dir(directory()).expect("there are transcripts");
            let mut files: Vec<String> = files
                .map(|file| file.expect("the directory can be read").path())
                .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
                .collect();
            files.sort();
            let mut played = vec![$(stringify!($name)),*];
            played.sort();
            assert_eq!(files, played);
        }
    };
}

transcripts! {
    paging_notes
    paging_tasks
    paging_yaks
    session_complete
    session_dependencies
    session_in_progress
    session_notes
    session_runs
    session_tasks
    yaks
    yaks_refusals
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

async fn play(name: &str) {
    let path = directory().join(format!("{name}.txt"));
    let script = std::fs::read_to_string(&path).expect("the transcript can be read");
    let hub = Hub::start();
    let mut principals = BTreeMap::new();
    let mut yaks = Yaks::default();
    let mut played = String::new();
    let mut n_calls = 0;
    for line in script.lines() {
        if line.starts_with('<') {
            continue;
        }
        played += line;
        played.push('\n');
        if let Some(principal) = line.strip_prefix("# ") {
            introduce(&hub, &mut principals, principal).await;
        } else if let Some(call) = line.strip_prefix("> ") {
            let (principal, call) = call.split_once(' ').expect("a call is of somebody");
            let principal = principals.get_mut(principal).expect("the principal is introduced");
            // The eras take turns, so that each sees what the other did.
            let client = &mut principal.clients[n_calls % 2];
            n_calls += 1;
            let (tool, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
            let arguments = serde_json::from_str(&yaks.ids(arguments));
            let arguments = arguments.unwrap_or_else(|error| panic!("{error}: {line}"));
            let (text, is_error) = client.call(tool, expanded(arguments)).await;
            let mark = if is_error { "! " } else { "" };
            let answer =
                yaks.names(&mask(&format!("{mark}{text}"), "0000-00-00T00:00:00Z", "<time>"));
            for line in answer.split('\n') {
                played += format!("< {line}").trim_end();
                played.push('\n');
            }
        } else {
            assert!(
                line.is_empty() || line.starts_with("//"),
                "not a line of a transcript: {line}"
            );
        }
    }
    expect_file![path].assert_eq(&played);
}

/// Whoever calls: a token, and a client of each era that has it.
struct Principal {
    token: String,
    clients: [Mcp; 2],
}

/// Makes a principal of a line such as `ann full` or `ann full /mcp/session/alpha`, or another place for a known one
/// of a line such as `ann-beta as ann /mcp/session/beta`.
async fn introduce(hub: &Hub, known: &mut BTreeMap<String, Principal>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, token, path) = match words[..] {
        [name, "as", other, path] => (name, known[other].token.clone(), path),
        [name, grants] => (name, hub.token(name, grants), "/mcp"),
        [name, grants, path] => (name, hub.token(name, grants), path),
        _ => panic!("not a principal: {line}"),
    };
    let clients =
        [hub.client(MODERN, &token, path).await, hub.client(LEGACY[0], &token, path).await];
    assert!(known.insert(name.to_owned(), Principal { token, clients }).is_none(), "{line}");
}

/// Replaces each element of an array that contains `{first..last}` by one for each number.
fn expanded(value: Value) -> Value {
    match value {
        Value::Array(elements) => elements.into_iter().flat_map(copies).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, expanded(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}

fn copies(element: Value) -> Vec<Value> {
    let text = element.to_string();
    let range = text.split_once("..").and_then(|(before, after)| {
        let first: u32 = before.rsplit_once('{')?.1.parse().ok()?;
        let last: u32 = after.split_once('}')?.0.parse().ok()?;
        Some((first, last))
    });
    let Some((first, last)) = range else { return vec![element] };
    let copy = |n: u32| text.replace(&format!("{{{first}..{last}}}"), &n.to_string());
    (first..=last).map(|n| serde_json::from_str(&copy(n)).expect("a number fits in")).collect()
}
