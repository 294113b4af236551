//! The suite's tools, as far as our own model of a tool can express them: they go through the same dispatch as ours.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_mcp::Set;
use teamster_mcp::answer::{Block, Reply, Resource, ToolError};
use teamster_mcp::ask::{Ask, Capability};
use teamster_mcp::call::Call;
use teamster_mcp::catalogue::Needs;
use teamster_mcp::catalogue::{Entry, Tool};
use tokio::time::sleep;

/// A red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A millisecond of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

/// Longer than this door's patience.
const LONG: Duration = Duration::from_millis(400);

/// Without arguments.
#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// With whatever the suite sends.
#[derive(Debug, Deserialize, JsonSchema)]
struct Anything {
    #[serde(flatten)]
    _all: serde_json::Map<String, Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Greet {
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SlowCompute {
    seconds: u32,
    label: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ConfirmDelete {
    filename: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Region {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

/// Writes the tools and lists them.
macro_rules! tools {
    ($($(#[$more:ident = $value:expr])* $type:ident $name:literal $of:ident |$cx:pat_param, $args:pat_param| $body:block)*) => {
        $(
            struct $type;

            impl Tool for $type {
                const SET: Set = Set::Session;
                const NAME: &'static str = $name;
                const NEEDS: Needs = tools!(@needs $($more = $value)*);
                const WAITS: bool = tools!(@waits $($more = $value)*);
                type Args = $of;

                async fn call($cx: &Call<'_>, $args: $of) -> Result<Reply, ToolError> {
                    $body
                }
            }
        )*

        fn written() -> Vec<Entry> {
            vec![$(Entry::of::<$type>()),*]
        }
    };
    (@needs needs = $needs:expr) => { $needs };
    (@needs $($other:tt)*) => { Needs::Token };
    (@waits waits = $waits:expr) => { $waits };
    (@waits $($other:tt)*) => { false };
}

tools! {
    SimpleText "test_simple_text" Nothing |_, _| {
        text("This is a simple text response for testing.")
    }

    Image "test_image_content" Nothing |_, _| {
        Ok(Reply::Blocks(vec![image()]))
    }

    Audio "test_audio_content" Nothing |_, _| {
        Ok(Reply::Blocks(vec![Block::Audio { data: WAV.into(), mime_type: "audio/wav".into() }]))
    }

    Embedded "test_embedded_resource" Nothing |_, _| {
        let text = "This is an embedded resource content.";
        Ok(Reply::Blocks(vec![resource("test://embedded-resource", "text/plain", text)]))
    }

    Mixed "test_multiple_content_types" Nothing |_, _| {
        let json = json!({"test": "data", "value": 123}).to_string();
        Ok(Reply::Blocks(vec![
            Block::text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", &json),
        ]))
    }

    Fails "test_error_handling" Nothing |_, _| {
        Err(ToolError::new("This tool intentionally returns an error for testing"))
    }

    Steps "test_tool_with_progress" Nothing |cx, _| {
        for done in [0.0, 50.0, 100.0] {
            cx.progress(done, Some(100.0), None);
            sleep(Duration::from_millis(50)).await;
        }
        text("Done in three steps.")
    }

    NeedsSampling "test_missing_capability" Nothing |cx, _| {
        if !cx.client().has(Capability::Sampling) {
            return Ok(Reply::Needs(Capability::Sampling));
        }
        text("The client has a model.")
    }

    Streams "test_streaming_elicitation" Nothing |cx, _| {
        match cx.answers().form("name") {
            None => Ok(Reply::Ask(vec![ask_name("name", "What is your name?")])),
            Some(form) => text(&format!("Hello, {}!", word(form, "name"))),
        }
    }

    // We have no protocol logging; what is to be shown is that nothing is logged unasked.
    Logs "test_logging_tool" Nothing |_, _| {
        text("Nothing was logged.")
    }

    Schema "json_schema_2020_12_tool" Anything |_, _| {
        text("The schema is what counts.")
    }

    Header "test_custom_header" Region |_, Region { region }| {
        text(&format!("Region {region}"))
    }

    #[needs = Needs::Main]
    ComesAndGoes "test_dynamic_tool" Nothing |_, _| {
        text("I am here now.")
    }

    AsksForm "test_input_required_result_elicitation" Nothing |cx, _| {
        match cx.answers().form("user_name") {
            None => Ok(Reply::Ask(vec![ask_name("user_name", "What is your name?")])),
            Some(form) => text(&format!("Hello, {}!", word(form, "name"))),
        }
    }

    AsksModel "test_input_required_result_sampling" Nothing |cx, _| {
        match cx.answers().get("capital_question") {
            None => {
                let question = "What is the capital of France?";
                Ok(Reply::Ask(vec![Ask::model("capital_question", question, 100)]))
            }
            Some(answer) => text(&format!("The model says: {}", answer["content"]["text"])),
        }
    }

    AsksRoots "test_input_required_result_list_roots" Nothing |cx, _| {
        match cx.answers().get("client_roots") {
            None => Ok(Reply::Ask(vec![Ask::roots("client_roots")])),
            Some(answer) => text(&format!("The roots are {}", answer["roots"])),
        }
    }

    CarriesState "test_input_required_result_request_state" Nothing |cx, _| {
        // A state that does not open does not come this far.
        match cx.answers().form("confirm") {
            None => Ok(Reply::Ask(vec![ask_ok("confirm")])),
            Some(_) => text("state-ok"),
        }
    }

    AsksMuch "test_input_required_result_multiple_inputs" Nothing |cx, _| {
        let answers = cx.answers();
        let form = answers.form("user_name");
        match (form, answers.get("greeting"), answers.get("client_roots")) {
            (Some(_), Some(_), Some(_)) => text("All three were answered."),
            _ => Ok(Reply::Ask(vec![
                ask_name("user_name", "What is your name?"),
                Ask::model("greeting", "Generate a greeting", 50),
                Ask::roots("client_roots"),
            ])),
        }
    }

    AsksTwice "test_input_required_result_multi_round" Nothing |cx, _| {
        match (cx.answers().form("step1"), cx.answers().form("step2")) {
            (None, _) => Ok(Reply::Ask(vec![ask_name("step1", "Step 1: What is your name?")])),
            (Some(_), None) => {
                let color = object(json!({"color": {"type": "string"}}), &["color"]);
                let question = "Step 2: What is your favorite color?";
                Ok(Reply::Ask(vec![Ask::form("step2", question, &color)]))
            }
            (Some(one), Some(two)) => {
                text(&format!("{} likes {}.", word(one, "name"), word(two, "color")))
            }
        }
    }

    Tampered "test_input_required_result_tampered_state" Nothing |cx, _| {
        match cx.answers().form("confirm") {
            None => Ok(Reply::Ask(vec![ask_ok("confirm")])),
            Some(_) => text("The state was as it was sealed."),
        }
    }

    AsksWhatItCan "test_input_required_result_capabilities" Nothing |cx, _| {
        let all = [
            ask_name("user_name", "What is your name?"),
            Ask::model("greeting", "Generate a greeting", 50),
            Ask::roots("client_roots"),
        ];
        let asks: Vec<Ask> = all.into_iter().filter(|ask| cx.client().has(ask.needs)).collect();
        if asks.is_empty() || !cx.answers().is_empty() {
            return text("There is nothing to ask.");
        }
        Ok(Reply::Ask(asks))
    }

    Greets "greet" Greet |_, Greet { name }| {
        text(&format!("Hello, {name}!"))
    }

    #[waits = true]
    Slow "slow_compute" SlowCompute |_, SlowCompute { seconds, label }| {
        sleep(Duration::from_secs(seconds.into())).await;
        text(&format!("{} took {seconds} s.", label.unwrap_or_default()))
    }

    #[waits = true]
    FailsLate "failing_job" Nothing |cx, _| {
        if !cx.client().has(Capability::Tasks) {
            return Ok(Reply::Needs(Capability::Tasks));
        }
        sleep(LONG).await;
        Err(ToolError::new("This job always fails."))
    }

    #[waits = true]
    Breaks "protocol_error_job" Nothing |_, _| {
        sleep(LONG).await;
        panic!("this tool panics on purpose")
    }

    #[waits = true]
    Confirms "confirm_delete" ConfirmDelete |cx, ConfirmDelete { filename }| {
        match cx.answers().form("confirm") {
            None => {
                sleep(LONG).await;
                let confirm = object(json!({"confirm": {"type": "boolean"}}), &["confirm"]);
                let question = format!("Delete {filename}?");
                Ok(Reply::Ask(vec![Ask::form("confirm", &question, &confirm)]))
            }
            Some(form) => text(&format!("{filename} deleted: {}", form["confirm"])),
        }
    }

    #[waits = true]
    AsksTwo "multi_input" Nothing |cx, _| {
        match (cx.answers().form("first"), cx.answers().form("second")) {
            (Some(first), Some(second)) => {
                text(&format!("{} and {}", word(first, "name"), word(second, "name")))
            }
            _ => {
                sleep(LONG).await;
                Ok(Reply::Ask(vec![ask_name("first", "Who first?"), ask_name("second", "Who then?")]))
            }
        }
    }

    #[waits = true]
    AsksThenWorks "test_tool_with_task" Nothing |cx, _| {
        match cx.answers().form("user_name") {
            None => Ok(Reply::Ask(vec![ask_name("user_name", "What is your name?")])),
            Some(form) => {
                let name = word(form, "name");
                sleep(LONG).await;
                text(&format!("Hello, {name}!"))
            }
        }
    }
}

/// Returns all of them, as the suite wants them listed.
pub(crate) fn all() -> Vec<Entry> {
    let mut all = written();
    for entry in &mut all {
        entry.description = format!("The suite's fixture {}.", entry.name);
        if entry.name == "json_schema_2020_12_tool"
            && let Value::Object(schema) = schema_2020_12()
        {
            entry.schema = Arc::new(schema);
        }
    }
    all
}

/// A schema with the words that must not get lost on the way.
fn schema_2020_12() -> Value {
    let text = json!({"type": "string"});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef", "type": "object", "properties": {"street": text, "city": text},
        }},
        "properties": {
            "name": text, "address": {"$ref": "#/$defs/address"}, "phone": text, "email": text,
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

fn text(text: &str) -> Result<Reply, ToolError> {
    Ok(Reply::Text(text.into()))
}

fn image() -> Block {
    Block::Image { data: PNG.into(), mime_type: "image/png".into() }
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Block {
    let (uri, mime_type, text) = (uri.into(), mime_type.into(), text.into());
    Block::Resource { resource: Resource { uri, mime_type, text } }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn ask_name(name: &str, question: &str) -> Ask {
    Ask::form(name, question, &object(json!({"name": {"type": "string"}}), &["name"]))
}

fn ask_ok(name: &str) -> Ask {
    Ask::form(name, "Please confirm", &object(json!({"ok": {"type": "boolean"}}), &["ok"]))
}

fn word<'a>(form: &'a serde_json::Map<String, Value>, field: &str) -> &'a str {
    form.get(field).and_then(Value::as_str).unwrap_or_default()
}
