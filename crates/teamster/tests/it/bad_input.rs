//! Bad input: whatever is sent, the hub answers, says which field is at fault, writes nothing and goes on.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use teamster_mcp::catalogue::Entry;
use teamster_mcp::set::Set;

use crate::hub::{Answer, Hub, LEGACY, MODERN, Mcp};

/// No answer repeats more than a little of what was sent.
const ANSWER_BYTES_MAX: usize = 2_000;

/// A hub with something in each list, so that the only fault of a call is the one that is tested.
struct Fixture {
    hub: Hub,
    token: String,
    yaks: [String; 2],
    /// That of the directory that the hub was started in.
    team: String,
    n_events: usize,
    _directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (hub, directory) = Hub::start_with_variable("TEAMSTER_PROGRAM", "goose");
        let token = hub.token("ann", "full,main,teams");
        let mut client = hub.modern(&token, "/mcp").await;
        let tasks = json!({"tasks": [{"content": "one"}, {"content": "two"}]});
        assert!(!client.call("task-add", tasks).await.1);
        let mut yak = async |title: &str| {
            let arguments =
                json!({"title": title, "yak_type": "bug", "priority": 1, "description": title});
            let (text, _) = client.call("create_yak", arguments).await;
            let id = text.strip_prefix("Yak created: ").and_then(|rest| rest.split(' ').next());
            id.unwrap_or_else(|| panic!("no id in {text:?}")).to_owned()
        };
        let yaks = [yak("first").await, yak("second").await];
        // Its program is not installed, so it ends at once.
        let draft = json!({"role": "coder", "prompt": "something"});
        assert!(!client.call("draft_agent", draft).await.1);
        assert!(!client.call("await_agent", json!({"agentId": "coder-1"})).await.1);
        let (teams, _) = client.call("team_teams", json!({})).await;
        let teams: Value = serde_json::from_str(&teams).expect("it is JSON");
        let team = teams["teams"][0]["name"].as_str().expect("there is one").to_owned();
        assert!(!client.call("team_tell", json!({"toTeam": team, "message": "something"})).await.1);
        let n_events = hub.n_events().await;
        Self { hub, token, yaks, team, n_events, _directory: directory }
    }

    async fn client(&self) -> Mcp {
        self.hub.modern(&self.token, "/mcp").await
    }

    /// Makes sure that nothing was written and that the hub still answers.
    async fn assert_unharmed(&self) {
        assert_eq!(self.hub.n_events().await, self.n_events, "something was written");
        let (text, is_error) = self.client().await.call("task-list", json!({})).await;
        assert_eq!((text.as_str(), is_error), ("Remaining:\n  [TAS-1] one\n  [TAS-2] two", false));
    }

    /// Returns arguments with which a tool works.
    fn arguments(&self, entry: &Entry) -> Map<String, Value> {
        let object = valid(&Value::Object((*entry.schema).clone()));
        let Value::Object(mut arguments) = object else { panic!("arguments are an object") };
        for (name, value) in &mut arguments {
            match (entry.set, name.as_str()) {
                (Set::Session, "id") => *value = "TAS-1".into(),
                (Set::Session, "depends_on") => *value = "TAS-2".into(),
                (Set::Session, "cursor") => {
                    *value =
                        if entry.name == "note-list" { "NOT-1" } else { "remaining.2.TAS-1" }.into()
                }
                (Set::Agents, "role") => *value = "coder".into(),
                (Set::Agents, "agentId") => *value = "coder-1".into(),
                (Set::Agents, "taskSlug") => *value = "something-1".into(),
                (Set::Agents, "cursor") => *value = "0".into(),
                (Set::Teams, "team" | "toTeam") => *value = self.team.as_str().into(),
                (Set::Teams, "fromTeam") => *value = "ann".into(),
                (Set::Teams, "sessionId") => *value = "CONV-1".into(),
                (Set::Teams, "timeout") => *value = 30_000.into(),
                (Set::Teams, "messageCount") => *value = 10.into(),
                (Set::Teams, "format") => *value = "json".into(),
                (Set::Teams, "all") => *value = false.into(),
                (Set::Teams, "cursor") => *value = "TELL-1".into(),
                (Set::Teams, "pwd") => *value = "/".into(),
                (Set::Yaks, "cursor") => *value = "hairy.1.1".into(),
                (Set::Yaks, "yak_id" | "parent") => *value = self.yaks[0].as_str().into(),
                (Set::Yaks, "dep_id") => *value = self.yaks[1].as_str().into(),
                _ => {}
            }
        }
        arguments
    }
}

/// Returns a value that a schema allows, with every field there is.
fn valid(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") => "some text".into(),
        Some("integer") if schema["minimum"].is_null() => 1.into(),
        Some("integer") => schema["minimum"].clone(),
        Some("boolean") => true.into(),
        Some("array") => json!([valid(&schema["items"])]),
        Some("object") => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties
                .map(|(name, schema)| (name.clone(), valid(schema)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => panic!("a schema of type {other:?}: {schema}"),
    }
}

/// A place in a tool's arguments, such as `tasks[0].priority`.
struct Field {
    /// As a JSON pointer.
    pointer: String,
    /// As the caller is told.
    path: String,
    schema: Value,
    required: bool,
}

/// Returns every field of an object's schema, also those within.
fn fields(schema: &Value, pointer: &str, path: &str) -> Vec<Field> {
    let mut all = Vec::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (pointer, path) = (format!("{pointer}/{name}"), format!("{path}{name}"));
        if schema["type"] == "array" {
            all.extend(fields(&schema["items"], &format!("{pointer}/0"), &format!("{path}[0].")));
        }
        all.push(Field {
            pointer,
            path,
            schema: schema.clone(),
            required: required.contains(&json!(name)),
        });
    }
    all
}

fn schema(entry: &Entry) -> Value {
    Value::Object((*entry.schema).clone())
}

/// Calls a tool, which must refuse in words that contain `named`.
async fn refused(client: &mut Mcp, tool: &str, arguments: &Value, named: &str) {
    let (text, is_error) = client.call(tool, arguments.clone()).await;
    let mut shown = arguments.to_string();
    shown.truncate(shown.floor_char_boundary(300));
    assert!(is_error, "{tool} {shown} was accepted: {text}");
    assert!(text.contains(named), "{tool} {shown}: {text:?} does not name {named:?}");
    assert!(text.len() < ANSWER_BYTES_MAX, "{tool} {shown}: {} bytes", text.len());
}

#[tokio::test]
async fn every_tool_accepts_what_its_schema_allows() {
    // Without this, the tests below could refuse for another reason than they think.
    for entry in teamster_mcp::tools::catalogue().entries() {
        let fixture = Fixture::new().await;
        let arguments = Value::Object(fixture.arguments(entry));
        let mut client = fixture.client().await;
        if entry.name == "session-complete" {
            for id in ["TAS-1", "TAS-2"] {
                client.call("task-update", json!({"id": id, "status": "completed"})).await;
            }
        }
        let (text, is_error) = client.call(entry.name, arguments.clone()).await;
        // Its program is not installed.
        let is_accepted = !is_error || (entry.name == "team_wake" && text.contains("ProcessError"));
        assert!(is_accepted, "{} {arguments}: {text}", entry.name);
    }
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_refused_by_the_fields_name() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let mut n_cases = 0;
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!("text"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"a": 1}),
        json!(["a", 1, null]),
    ];
    for entry in teamster_mcp::tools::catalogue().entries() {
        let base = Value::Object(fixture.arguments(entry));
        for field in fields(&schema(entry), "", "") {
            for value in &values {
                let kind = field.schema["type"].as_str().expect("a field has a type");
                let fits = match kind {
                    "string" => value.is_string() && field.schema["enum"].is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => field.path == "messageCount" && *value == 7,
                    _ => false,
                };
                // What may be left out may also be null.
                if fits || (value.is_null() && !field.required) {
                    continue;
                }
                let mut arguments = base.clone();
                *arguments.pointer_mut(&field.pointer).expect("the field is there") = value.clone();
                refused(&mut client, entry.name, &arguments, &field.path).await;
                n_cases += 1;
            }
        }
    }
    assert!(n_cases > 300, "{n_cases}");
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn an_array_is_no_object() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    // The fields in their order, which a careless reader would take for the object.
    let task = json!(["three", "remaining", 1]);
    refused(&mut client, "task-add", &json!({"tasks": [task]}), "tasks[0]").await;
    refused(&mut client, "task-add", &json!({"tasks": [{"content": "three"}, task]}), "tasks[1]")
        .await;
    refused(&mut client, "note-add", &json!({"notes": [["x", "tip"]]}), "notes[0]").await;
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn a_missing_or_unknown_field_is_named() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    for entry in teamster_mcp::tools::catalogue().entries() {
        let base = Value::Object(fixture.arguments(entry));
        let mut objects = vec![String::new()];
        for field in fields(&schema(entry), "", "") {
            let (parent, name) = field.pointer.rsplit_once('/').expect("a pointer has a slash");
            if field.schema["type"] == "array" {
                objects.push(format!("{}/0", field.pointer));
            }
            if field.required {
                let mut arguments = base.clone();
                let parent = arguments.pointer_mut(parent).and_then(Value::as_object_mut);
                parent.expect("the parent is an object").remove(name);
                refused(&mut client, entry.name, &arguments, &format!("'{name}'")).await;
            }
        }
        for object in objects {
            for unknown in ["surprise", "", "__proto__", "Content", "_meta"] {
                let mut arguments = base.clone();
                let object = arguments.pointer_mut(&object).and_then(Value::as_object_mut);
                object.expect("an object").insert(unknown.into(), json!(1));
                refused(&mut client, entry.name, &arguments, &format!("`{unknown}`")).await;
            }
        }
    }
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn long_and_unprintable_texts_are_refused_by_the_fields_name() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    for entry in teamster_mcp::tools::catalogue().entries() {
        // What teams tell each other may be longer than all else.
        let long = "x".repeat(if entry.set == Set::Teams { 102_401 } else { 64 * 1024 + 1 });
        let base = Value::Object(fixture.arguments(entry));
        for field in
            fields(&schema(entry), "", "").iter().filter(|field| field.schema["type"] == "string")
        {
            let name = field.pointer.rsplit('/').next().expect("a pointer has a slash");
            // An id that names nothing is repeated, so that its sender recognises it.
            let named = match name {
                "id" | "depends_on" => "task not found: ",
                "yak_id" | "dep_id" | "parent" => "ak ",
                "agentId" => "No agent with ID ",
                "taskSlug" if entry.name == "get_task_context" => "Task ",
                _ => field.path.as_str(),
            };
            let texts = [
                long.as_str(),
                "nul\0nul",
                "bell\u{7}",
                "escape\u{1b}[31m",
                "delete\u{7f}",
                "c1\u{85}nel",
            ];
            let empty = if field.required { &[""; 1][..] } else { &[] };
            for text in texts.iter().chain(empty) {
                let mut arguments = base.clone();
                *arguments.pointer_mut(&field.pointer).expect("the field is there") =
                    (*text).into();
                refused(&mut client, entry.name, &arguments, named).await;
            }
        }
    }
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn more_than_fits_is_refused_whole() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let tasks =
        |n: usize| (0..n).map(|i| json!({"content": format!("task {i}")})).collect::<Vec<_>>();
    let notes = |n: usize| {
        (0..n).map(|i| json!({"content": format!("note {i}"), "type": "tip"})).collect::<Vec<_>>()
    };
    refused(
        &mut client,
        "task-add",
        &json!({"tasks": tasks(501)}),
        "501 tasks in one call; the limit is 500",
    )
    .await;
    refused(
        &mut client,
        "note-add",
        &json!({"notes": notes(501)}),
        "501 notes in one call; the limit is 500",
    )
    .await;
    refused(&mut client, "task-add", &json!({"tasks": tasks(40_000)}), "40000 tasks").await;
    refused(&mut client, "task-add", &json!({"tasks": []}), "'tasks'").await;
    refused(&mut client, "note-add", &json!({"notes": []}), "'notes'").await;
    // The last of many is at fault, and none is added.
    let mut last_is_bad = tasks(499);
    last_is_bad.push(json!({"content": " \n "}));
    refused(&mut client, "task-add", &json!({"tasks": last_is_bad}), "tasks[499].content").await;
    let title = "x".repeat(301);
    let yak = json!({"title": title, "yak_type": "bug", "priority": 1, "description": "x"});
    refused(&mut client, "create_yak", &yak, "title is 301 bytes long; the limit is 300").await;
    let yak = json!({"title": "two\nlines", "yak_type": "bug", "priority": 1, "description": "x"});
    refused(&mut client, "create_yak", &yak, "title has a line break").await;
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn unknown_cursors_are_refused() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let long = "9".repeat(100_000);
    for tool in ["task-list", "note-list", "list_yaks"] {
        for cursor in [
            "x",
            "1",
            "-1",
            "..",
            "remaining",
            "remaining.2",
            "remaining.9.TAS-1",
            "remaining.2.TAS-1.x",
            "hairy.0.1",
            "hairy.1.-1",
            "NOT-0",
            "NOT-99999999999",
            "TAS-1",
            "\u{1b}[31m",
            &long,
        ] {
            refused(&mut client, tool, &json!({"cursor": cursor}), "cursor").await;
        }
    }
    fixture.assert_unharmed().await;
}

/// Says in a line how a request was answered; to be accepted is not an answer here.
fn outcome(answer: &Answer) -> String {
    let status = answer.status.as_u16();
    let kind = answer.headers.get("content-type").map(String::as_str).unwrap_or_default();
    if kind.is_empty() || kind.starts_with("text/plain") {
        return format!("{status} (plain) {}", answer.body);
    }
    let json = answer.json();
    let text =
        |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text in {json}")).to_owned();
    match (&json["error"], &json["result"]) {
        (Value::Object(error), _) => {
            format!("{status} {} {}", error["code"], text(&error["message"]))
        }
        (Value::String(error), _) => format!("{status} {error}"),
        (_, result) if result["isError"] == true => {
            format!("{status} ! {}", text(&result["content"][0]["text"]))
        }
        _ => panic!("accepted: {answer:?}"),
    }
}

#[tokio::test]
async fn a_body_that_is_no_call_is_answered_in_the_current_era() {
    check_bodies(MODERN, expect![[r#"
        empty: 400 -32700 the body is not valid JSON: EOF while parsing a value at line 1 column 0
        white space: 400 -32700 the body is not valid JSON: EOF while parsing a value at line 2 column 2
        a word: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        null: 400 -32600 the body is not a JSON-RPC 2.0 message
        a number: 400 -32600 the body is not a JSON-RPC 2.0 message
        a string: 400 -32600 the body is not a JSON-RPC 2.0 message
        an empty object: 400 -32600 the body is not a JSON-RPC 2.0 message
        an empty batch: 400 -32600 the body is a batch; send each message by itself
        a batch: 400 -32600 the body is a batch; send each message by itself
        cut off: 400 -32700 the body is not valid JSON: EOF while parsing an object at line 1 column 227
        something after it: 400 -32700 the body is not valid JSON: trailing characters at line 1 column 229
        a comma too many: 400 -32700 the body is not valid JSON: trailing comma at line 1 column 112
        single quotes: 400 -32700 the body is not valid JSON: key must be a string at line 1 column 2
        a comment: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        a byte order mark: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        NULs: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        10,000 arrays deep: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 128
        10,000 objects deep: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 636
        10,000 arrays deep, never closed: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 128
        a deep argument: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 220
        a deep unknown argument: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 729
        a fairly deep argument: 200 ! error: tasks[0]: invalid type: sequence, expected an object
        a huge number: 400 -32700 the body is not valid JSON: number out of range at line 1 column 127
        many digits: 400 -32700 the body is not valid JSON: number out of range at line 1 column 10122
        a large number: 200 ! error: tasks[0].priority: 1e+300 is not a whole number
        not a number: 400 -32700 the body is not valid JSON: expected value at line 1 column 123
        arguments as an array: 400 -32602 params.arguments: must be an object
        arguments as a string: 400 -32602 params.arguments: must be an object
        arguments as null: 200 ! error: missing 'tasks' parameter
        no JSON-RPC: 400 -32600 the body is not a JSON-RPC 2.0 message
        another JSON-RPC: 400 -32600 the body is not a JSON-RPC 2.0 message
        no method: 400 -32600 method: must be a string
        method as a number: 400 -32600 method: must be a string
        no params: 400 -32602 params.name: must be the name of a tool
        params as an array: 400 -32602 params: must be an object
        no name: 400 -32602 params.name: must be the name of a tool
        name as a number: 400 -32602 params.name: must be the name of a tool
        id as an object: 400 -32600 id: must be a number or a string
        id as null: 400 -32600 id: must be a number or a string
        UTF-16: 400 -32700 the body is not valid JSON: key must be a string at line 1 column 2
        invalid UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        cut UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        overlong UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        half a surrogate: 400 -32700 the body is not valid JSON: unexpected end of hex escape at line 1 column 115
        a raw NUL in a string: 400 -32700 the body is not valid JSON: control character (\u0000-\u001F) found while parsing a string at line 1 column 110
        a raw line break in a string: 400 -32700 the body is not valid JSON: control character (\u0000-\u001F) found while parsing a string at line 2 column 0
        an escaped NUL in a string: 200 ! error: tasks[0].content contains a control character (\u{0}); only line breaks and tabs are allowed
    "#]]).await;
}

#[tokio::test]
async fn a_body_that_is_no_call_is_answered_in_the_older_era() {
    check_bodies(LEGACY[0], expect![[r#"
        empty: 400 -32700 the body is not valid JSON: EOF while parsing a value at line 1 column 0
        white space: 400 -32700 the body is not valid JSON: EOF while parsing a value at line 2 column 2
        a word: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        null: 400 -32600 the body is not a JSON-RPC 2.0 message
        a number: 400 -32600 the body is not a JSON-RPC 2.0 message
        a string: 400 -32600 the body is not a JSON-RPC 2.0 message
        an empty object: 400 -32600 the body is not a JSON-RPC 2.0 message
        an empty batch: 400 -32600 the body is a batch; send each message by itself
        a batch: 400 -32600 the body is a batch; send each message by itself
        cut off: 400 -32700 the body is not valid JSON: EOF while parsing an object at line 1 column 114
        something after it: 400 -32700 the body is not valid JSON: trailing characters at line 1 column 116
        a comma too many: 400 -32700 the body is not valid JSON: trailing comma at line 1 column 112
        single quotes: 400 -32700 the body is not valid JSON: key must be a string at line 1 column 2
        a comment: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        a byte order mark: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        NULs: 400 -32700 the body is not valid JSON: expected value at line 1 column 1
        10,000 arrays deep: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 128
        10,000 objects deep: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 636
        10,000 arrays deep, never closed: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 128
        a deep argument: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 220
        a deep unknown argument: 400 -32700 the body is not valid JSON: recursion limit exceeded at line 1 column 729
        a fairly deep argument: 200 ! error: tasks[0]: invalid type: sequence, expected an object
        a huge number: 400 -32700 the body is not valid JSON: number out of range at line 1 column 127
        many digits: 400 -32700 the body is not valid JSON: number out of range at line 1 column 10122
        a large number: 200 ! error: tasks[0].priority: 1e+300 is not a whole number
        not a number: 400 -32700 the body is not valid JSON: expected value at line 1 column 123
        arguments as an array: 400 -32602 params.arguments: must be an object
        arguments as a string: 400 -32602 params.arguments: must be an object
        arguments as null: 200 ! error: missing 'tasks' parameter
        no JSON-RPC: 400 -32600 the body is not a JSON-RPC 2.0 message
        another JSON-RPC: 400 -32600 the body is not a JSON-RPC 2.0 message
        no method: 400 -32600 method: must be a string
        method as a number: 400 -32600 method: must be a string
        no params: 400 -32602 params.name: must be the name of a tool
        params as an array: 400 -32602 params: must be an object
        no name: 400 -32602 params.name: must be the name of a tool
        name as a number: 400 -32602 params.name: must be the name of a tool
        id as an object: 400 -32600 id: must be a number or a string
        id as null: 400 -32600 id: must be a number or a string
        UTF-16: 400 -32700 the body is not valid JSON: key must be a string at line 1 column 2
        invalid UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        cut UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        overlong UTF-8: 400 -32700 the body is not valid JSON: invalid unicode code point at line 1 column 109
        half a surrogate: 400 -32700 the body is not valid JSON: unexpected end of hex escape at line 1 column 115
        a raw NUL in a string: 400 -32700 the body is not valid JSON: control character (\u0000-\u001F) found while parsing a string at line 1 column 110
        a raw line break in a string: 400 -32700 the body is not valid JSON: control character (\u0000-\u001F) found while parsing a string at line 2 column 0
        an escaped NUL in a string: 200 ! error: tasks[0].content contains a control character (\u{0}); only line breaks and tabs are allowed
    "#]]).await;
}

async fn check_bodies(era: &'static str, expected: Expect) {
    let fixture = Fixture::new().await;
    let client = fixture.hub.client(era, &fixture.token, "/mcp").await;
    let headers = client.headers(&json!({"method": "tools/call", "params": {"name": "task-add"}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let mut outcomes = String::new();
    for (what, body) in no_calls(era) {
        let answer = fixture.hub.http().await.send(Method::POST, "/mcp", &headers, body).await;
        let outcome = outcome(&answer);
        assert!(outcome.len() < ANSWER_BYTES_MAX, "{what}: {outcome}");
        let _ = writeln!(outcomes, "{what}: {outcome}");
    }
    expected.assert_eq(&outcomes);
    fixture.assert_unharmed().await;
}

/// Returns bodies in which something is wrong, each with what that is, as a client of this era would send them.
fn no_calls(era: &str) -> Vec<(&'static str, Vec<u8>)> {
    let meta = if era == MODERN { format!(r#","_meta":{}"#, meta()) } else { String::new() };
    let call = |arguments: &str| {
        let params = format!(r#"{{"name":"task-add","arguments":{arguments}{meta}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let good = call(r#"{"tasks":[{"content":"x"}]}"#);
    let task = |fields: &str| call(&format!(r#"{{"tasks":[{{"content":"x",{fields}}}]}}"#));
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let deep_object = |n: usize| format!("{}1{}", r#"{"a":"#.repeat(n), "}".repeat(n));
    let texts = vec![
        ("empty", String::new()),
        ("white space", " \n\t ".into()),
        ("a word", "hello".into()),
        ("null", "null".into()),
        ("a number", "7".into()),
        ("a string", "\"tools/call\"".into()),
        ("an empty object", "{}".into()),
        ("an empty batch", "[]".into()),
        ("a batch", format!("[{good},{good}]")),
        ("cut off", good[..good.len() - 1].into()),
        ("something after it", format!("{good}{good}")),
        ("a comma too many", good.replace("\"}]}", "\",}]}")),
        ("single quotes", good.replace('"', "'")),
        ("a comment", format!("// hello\n{good}")),
        ("a byte order mark", format!("\u{feff}{good}")),
        ("NULs", "\0".repeat(1_000)),
        ("10,000 arrays deep", deep(10_000)),
        ("10,000 objects deep", deep_object(10_000)),
        ("10,000 arrays deep, never closed", "[".repeat(10_000)),
        ("a deep argument", call(&format!(r#"{{"tasks":{}}}"#, deep(10_000)))),
        ("a deep unknown argument", task(&format!(r#""deep":{}"#, deep_object(10_000)))),
        ("a fairly deep argument", call(&format!(r#"{{"tasks":{}}}"#, deep(100)))),
        ("a huge number", task(r#""priority":1e999"#)),
        ("many digits", task(&format!(r#""priority":{}"#, "9".repeat(10_000)))),
        ("a large number", task(r#""priority":1e300"#)),
        ("not a number", task(r#""priority":NaN"#)),
        ("arguments as an array", call("[]")),
        ("arguments as a string", call("\"x\"")),
        ("arguments as null", call("null")),
        ("no JSON-RPC", good.replace(r#""jsonrpc":"2.0","#, "")),
        ("another JSON-RPC", good.replace(r#""2.0""#, r#""1.0""#)),
        ("no method", good.replace(r#""method":"tools/call","#, "")),
        ("method as a number", good.replace(r#""method":"tools/call""#, r#""method":7"#)),
        ("no params", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#.into()),
        (
            "params as an array",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#.into(),
        ),
        ("no name", good.replace(r#""name":"task-add","#, "")),
        ("name as a number", good.replace(r#""task-add""#, "7")),
        ("id as an object", good.replace(r#""id":1"#, r#""id":{}"#)),
        ("id as null", good.replace(r#""id":1"#, r#""id":null"#)),
    ];
    let content = |bytes: &[u8]| {
        let (before, after) = good.split_once("\"x\"").expect("the content");
        [before.as_bytes(), b"\"", bytes, b"\"", after.as_bytes()].concat()
    };
    let bytes = vec![
        ("UTF-16", good.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("invalid UTF-8", content(&[0xff, 0xfe])),
        ("cut UTF-8", content(&[0xe2, 0x82])),
        ("overlong UTF-8", content(&[0xc0, 0x80])),
        ("half a surrogate", content(br"\ud800")),
        ("a raw NUL in a string", content(b"a\0b")),
        ("a raw line break in a string", content(b"a\nb")),
        ("an escaped NUL in a string", content(br"a\u0000b")),
    ];
    texts.into_iter().map(|(what, text)| (what, text.into_bytes())).chain(bytes).collect()
}

/// What a request of the current era carries beside its parameters.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A call with which nothing is wrong.
fn good_call() -> Value {
    let arguments = json!({"tasks": [{"content": "x"}]});
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "task-add", "arguments": arguments, "_meta": meta()},
    })
}

#[tokio::test]
async fn names_in_paths_are_checked() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let call = good_call();
    let headers = client.headers(&call);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let (long, longer) = (
        format!("/mcp/session/{}", "x".repeat(65)),
        format!("/mcp/session/{}", "x".repeat(20_000)),
    );
    let mut outcomes = String::new();
    for path in [
        "/mcp/session//",
        "/mcp/session/..",
        "/mcp/session/.",
        "/mcp/session/%2e%2e",
        "/mcp/session/%2E%2E",
        "/mcp/session/a%2fb",
        "/mcp/session/a%5cb",
        "/mcp/session/a/b",
        "/mcp/session/../../etc/passwd",
        "/mcp/session/a.b",
        "/mcp/session/a%00b",
        "/mcp/session/a%0ab",
        "/mcp/session/a%20b",
        "/mcp/session/%c3%a4",
        "/mcp/session/%ff",
        "/mcp/session/%",
        "/mcp/session/a;b",
        "/mcp/session/-%1b[31m",
        "/mcp/yaks/alpha",
        "/mcp/nothing",
        "/mcp/SESSION",
        "/mcp/sess%69on",
        "/mcp%2fsession",
        "//mcp",
        &long,
        &longer,
    ] {
        let answer =
            fixture.hub.http().await.send(Method::POST, path, &headers, call.to_string()).await;
        assert!(answer.status.is_client_error(), "{path}: {answer:?}");
        let outcome = outcome(&answer);
        assert!(outcome.len() < ANSWER_BYTES_MAX, "{path}: {outcome}");
        let _ = writeln!(outcomes, "{}: {outcome}", path.chars().take(60).collect::<String>());
    }
    expect![[r#"
        /mcp/session//: 404 there is nothing here; MCP clients connect to /mcp
        /mcp/session/..: 404 run ".." is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/.: 404 run "." is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/%2e%2e: 404 run "%2e%2e" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/%2E%2E: 404 run "%2E%2E" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a%2fb: 404 run "a%2fb" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a%5cb: 404 run "a%5cb" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a/b: 404 there is nothing here; MCP clients connect to /mcp
        /mcp/session/../../etc/passwd: 404 there is nothing here; MCP clients connect to /mcp
        /mcp/session/a.b: 404 run "a.b" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a%00b: 404 run "a%00b" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a%0ab: 404 run "a%0ab" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a%20b: 404 run "a%20b" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/%c3%a4: 404 run "%c3%a4" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/%ff: 404 run "%ff" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/%: 404 run "%" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/a;b: 404 run "a;b" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/-%1b[31m: 404 run "-%1b[31m" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/yaks/alpha: 404 /mcp/yaks has no parts; only /mcp/session/<run> names a run
        /mcp/nothing: 404 there is no tool set "nothing"; there are session, agents, teams, yaks
        /mcp/SESSION: 404 there is no tool set "SESSION"; there are session, agents, teams, yaks
        /mcp/sess%69on: 404 there is no tool set "sess%69on"; there are session, agents, teams, yaks
        /mcp%2fsession: 404 there is nothing here; MCP clients connect to /mcp
        //mcp: 404 there is nothing here; MCP clients connect to /mcp
        /mcp/session/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: 404 run "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        /mcp/session/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: 404 run "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
    "#]].assert_eq(&outcomes);
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn the_operators_routes_say_what_is_wrong() {
    let fixture = Fixture::new().await;
    let bearer = format!("Bearer {}", fixture.hub.operator);
    let yak = &fixture.yaks[0];
    let labels = format!("/api/yaks/{yak}/labels");
    let deep = format!(r#"{{"grants":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let cases: Vec<(Method, &str, &str)> = vec![
        (Method::POST, "/api/tokens", ""),
        (Method::POST, "/api/tokens", "hello"),
        (Method::POST, "/api/tokens", "{}"),
        (Method::POST, "/api/tokens", r#"{"grants":"full"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"surprise":1}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":7}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["nothing"]}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["session:nothing"]}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["a b"]}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":"a/b"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":".."}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":""}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":"hub"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":"operator","replace":true}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"name":"ann"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"run":"a b"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"team":"a/b"}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"expires_in_s":-1}"#),
        (Method::POST, "/api/tokens", r#"{"grants":["full"],"expires_in_s":0}"#),
        (Method::POST, "/api/tokens", &deep),
        (Method::POST, "/api/tokens/ann/grants", "{}"),
        (Method::POST, "/api/tokens/nobody/grants", r#"["full"]"#),
        (Method::POST, "/api/tokens/operator/grants", r#"["full"]"#),
        (Method::DELETE, "/api/tokens/nobody", ""),
        (Method::DELETE, "/api/tokens/operator", ""),
        (Method::DELETE, "/api/tokens/%2e%2e", ""),
        (Method::DELETE, "/api/tokens/%ff", ""),
        (Method::DELETE, "/api/tokens/a%2fb", ""),
        (Method::GET, "/api/log?after=x", ""),
        (Method::GET, "/api/log?after=-1", ""),
        (Method::GET, "/api/log?surprise=1", ""),
        (Method::POST, &labels, "{"),
        (Method::POST, &labels, r#"{"add":[""]}"#),
        (Method::POST, &labels, r#"{"add":["a\u0000"]}"#),
        (Method::POST, &labels, r#"{"surprise":[]}"#),
        (Method::POST, "/api/yaks/nobody-0000/labels", r#"{"add":["a"]}"#),
        (Method::POST, "/api/status", "{}"),
        (Method::GET, "/api/nothing", ""),
    ];
    let mut outcomes = String::new();
    for (method, path, body) in cases {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer =
            fixture.hub.http().await.send(method.clone(), path, &headers, body.to_owned()).await;
        assert!(answer.status.is_client_error(), "{method} {path} {body}: {answer:?}");
        let body: String = body.chars().take(60).collect();
        let path = path.replace(yak, "yak-1");
        let _ = writeln!(outcomes, "{method} {path} {body}: {}", outcome(&answer));
    }
    expect![[r#"
        POST /api/tokens : 400 "malformed" Failed to parse the request body as JSON: EOF while parsing a value at line 1 column 0
        POST /api/tokens hello: 400 "malformed" Failed to parse the request body as JSON: expected value at line 1 column 1
        POST /api/tokens {}: 422 "invalid" Failed to deserialize the JSON body into the target type: missing field `grants` at line 1 column 2
        POST /api/tokens {"grants":"full"}: 422 "invalid" Failed to deserialize the JSON body into the target type: grants: invalid type: string "full", expected a sequence at line 1 column 16
        POST /api/tokens {"grants":["full"],"surprise":1}: 422 "invalid" Failed to deserialize the JSON body into the target type: surprise: unknown field `surprise`, expected one of `name`, `grants`, `run`, `team`, `expires_in_s`, `replace` at line 1 column 29
        POST /api/tokens {"grants":["full"],"name":7}: 422 "invalid" Failed to deserialize the JSON body into the target type: name: invalid type: integer `7`, expected a string at line 1 column 27
        POST /api/tokens {"grants":["nothing"]}: 422 "invalid" grant nothing names no tool set or tool; the sets are session, agents, teams, yaks
        POST /api/tokens {"grants":["session:nothing"]}: 422 "invalid" grant session:nothing names no tool set or tool; the sets are session, agents, teams, yaks
        POST /api/tokens {"grants":["a b"]}: 422 "invalid" grant "a b" is not known; use full, read-only, main, self, metrics, a set such as `session`, or a tool such as `session:task-list`
        POST /api/tokens {"grants":["full"],"name":"a/b"}: 422 "invalid" name "a/b" is not a valid name; use 1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`
        POST /api/tokens {"grants":["full"],"name":".."}: 422 "invalid" name ".." is not a valid name; use 1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`
        POST /api/tokens {"grants":["full"],"name":""}: 422 "invalid" name "" is not a valid name; use 1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`
        POST /api/tokens {"grants":["full"],"name":"hub"}: 409 "refused" the name hub belongs to the hub or its operator; choose another `name`
        POST /api/tokens {"grants":["full"],"name":"operator","replace":true}: 409 "refused" the name operator belongs to the hub or its operator; choose another `name`
        POST /api/tokens {"grants":["full"],"name":"ann"}: 409 "refused" ann has a live token already (TOK-3); choose another `name`, or `replace` to end the old one
        POST /api/tokens {"grants":["full"],"run":"a b"}: 422 "invalid" run "a b" is not a valid name; use 1 to 64 letters, digits, `_` or `-`
        POST /api/tokens {"grants":["full"],"team":"a/b"}: 422 "invalid" team "a/b" is not a valid name; use 1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`
        POST /api/tokens {"grants":["full"],"expires_in_s":-1}: 422 "invalid" Failed to deserialize the JSON body into the target type: expires_in_s: invalid value: integer `-1`, expected u32 at line 1 column 36
        POST /api/tokens {"grants":["full"],"expires_in_s":0}: 409 "refused" the token would have expired already; give a time to come
        POST /api/tokens {"grants":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[: 422 "invalid" Failed to deserialize the JSON body into the target type: grants[0]: invalid type: sequence, expected a string at line 1 column 11
        POST /api/tokens/ann/grants {}: 422 "invalid" Failed to deserialize the JSON body into the target type: invalid type: map, expected a sequence at line 1 column 0
        POST /api/tokens/nobody/grants ["full"]: 409 "refused" no live token is called "nobody"; `teamster token list` shows them
        POST /api/tokens/operator/grants ["full"]: 409 "refused" the operator's own token stays as it is; it belongs to the data directory
        DELETE /api/tokens/nobody : 409 "refused" no live token is called "nobody"; `teamster token list` shows them
        DELETE /api/tokens/operator : 409 "refused" the operator's own token stays as it is; it belongs to the data directory
        DELETE /api/tokens/%2e%2e : 409 "refused" no live token is called ".."; `teamster token list` shows them
        DELETE /api/tokens/%ff : 400 "malformed" Invalid URL: Invalid UTF-8 in `which`
        DELETE /api/tokens/a%2fb : 409 "refused" no live token is called "a/b"; `teamster token list` shows them
        GET /api/log?after=x : 400 "malformed" Failed to deserialize query string: after: invalid digit found in string
        GET /api/log?after=-1 : 400 "malformed" Failed to deserialize query string: after: invalid digit found in string
        GET /api/log?surprise=1 : 400 "malformed" Failed to deserialize query string: surprise: unknown field `surprise`, expected one of `after`, `limit`, `wait_ms`
        POST /api/yaks/yak-1/labels {: 400 "malformed" Failed to parse the request body as JSON: EOF while parsing an object at line 1 column 1
        POST /api/yaks/yak-1/labels {"add":[""]}: 409 "refused" label is empty; give it some text
        POST /api/yaks/yak-1/labels {"add":["a\u0000"]}: 409 "refused" label contains a control character (\u{0}); only line breaks and tabs are allowed
        POST /api/yaks/yak-1/labels {"surprise":[]}: 422 "invalid" Failed to deserialize the JSON body into the target type: surprise: unknown field `surprise`, expected `add` or `remove` at line 1 column 11
        POST /api/yaks/nobody-0000/labels {"add":["a"]}: 409 "refused" yak nobody-0000 not found; list_yaks shows the ids
        POST /api/status {}: 405 "method_not_allowed" this path does not answer POST; the Allow header says what it does
        GET /api/nothing : 404 there is nothing here; MCP clients connect to /mcp
    "#]].assert_eq(&outcomes);
    fixture.assert_unharmed().await;
}

#[tokio::test]
async fn headers_that_make_no_sense_are_answered() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let call = good_call();
    let usual = client.headers(&call);
    let mut outcomes = String::new();
    for (name, value) in [
        ("content-type", "<none>"),
        ("content-type", "text/plain"),
        ("accept", "<none>"),
        ("accept", "text/html"),
        ("mcp-protocol-version", "1999-01-01"),
        ("mcp-protocol-version", "\u{fc}"),
        ("mcp-method", "tools/list"),
        ("mcp-name", "task-list"),
        ("mcp-session-id", "no-such-session"),
        ("mcp-session-id", ""),
        ("mcp-session-id", "\u{fc}"),
    ] {
        let mut headers: Vec<_> = usual
            .iter()
            .map(|(name, value)| (*name, &**value))
            .filter(|(other, _)| *other != name)
            .collect();
        headers.push((name, value));
        let answer =
            fixture.hub.http().await.send(Method::POST, "/mcp", &headers, call.to_string()).await;
        assert!(answer.status.is_client_error(), "{name}: {value}: {answer:?}");
        let _ = writeln!(outcomes, "{name}: {value}: {}", outcome(&answer));
    }
    for method in
        [Method::PUT, Method::PATCH, Method::OPTIONS, Method::HEAD, Method::GET, Method::DELETE]
    {
        let headers: Vec<_> = usual.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = fixture.hub.http().await.send(method.clone(), "/mcp", &headers, "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method}: {answer:?}");
    }
    expect![[r#"
        content-type: <none>: 415 (plain) Unsupported Media Type: Content-Type must be application/json
        content-type: text/plain: 415 (plain) Unsupported Media Type: Content-Type must be application/json
        accept: <none>: 406 (plain) Not Acceptable: Client must accept both application/json and text/event-stream
        accept: text/html: 406 (plain) Not Acceptable: Client must accept both application/json and text/event-stream
        mcp-protocol-version: 1999-01-01: 400 -32020 MCP-Protocol-Version header (1999-01-01) does not match request _meta protocolVersion (2026-07-28)
        mcp-protocol-version: ü: 400 (plain) Bad Request: Invalid MCP-Protocol-Version header encoding
        mcp-method: tools/list: 400 -32020 Mcp-Method header `tools/list` does not match body method `tools/call`
        mcp-name: task-list: 400 -32020 Mcp-Name header `task-list` does not match body value `task-add`
        mcp-session-id: no-such-session: 404 session not found; initialize again
        mcp-session-id: : 404 session not found; initialize again
        mcp-session-id: ü: 404 session not found; initialize again
    "#]].assert_eq(&outcomes);
    fixture.assert_unharmed().await;
}
