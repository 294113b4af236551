//! Tool calls: what is known of the program's own tools, by their names.

use serde_json::Value;

use super::{name, word};
use crate::agent::{
    Clipped, Event, LABEL_BYTES_MAX, PAYLOAD_BYTES_MAX, STEPS_MAX, Shown, Step, StepStatus,
    ToolCall, ToolKind, clipped,
};

/// Reads a call from a message of the model.
pub(super) fn read(block: &Value) -> Option<ToolCall> {
    call(&block["id"], &block["name"], &block["input"])
}

/// Reads the call that a permission is asked for.
pub(super) fn read_request(request: &Value) -> Option<ToolCall> {
    call(&request["tool_use_id"], &request["tool_name"], &request["input"])
}

fn call(id: &Value, tool: &Value, input: &Value) -> Option<ToolCall> {
    let (id, tool) = (name(id)?, name(tool)?);
    Some(ToolCall {
        id,
        title: title(&tool, input),
        kind: kind(&tool),
        input: (!input.is_null()).then(|| Clipped::new(input.to_string(), PAYLOAD_BYTES_MAX)),
        targets: targets(input),
        name: Some(tool),
        shown: Shown::default(),
    })
}

fn kind(tool: &str) -> ToolKind {
    match tool {
        "Read" | "NotebookRead" | "ListMcpResourcesTool" | "ReadMcpResourceTool" => ToolKind::Read,
        "Edit" | "MultiEdit" | "NotebookEdit" | "Write" => ToolKind::Edit,
        "Glob" | "Grep" | "LS" | "ToolSearch" | "WebSearch" => ToolKind::Search,
        "Bash" | "BashOutput" | "KillShell" | "Monitor" | "PowerShell" => ToolKind::Execute,
        "Agent" | "EnterPlanMode" | "ExitPlanMode" | "Task" | "TodoWrite" => ToolKind::Think,
        "WebFetch" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

/// What the call is about, where a tool of the program says it; otherwise its name.
fn title(tool: &str, input: &Value) -> String {
    let about =
        ["command", "file_path", "notebook_path", "pattern", "query", "url", "description", "path"];
    let about = about.into_iter().map(|field| word(&input[field])).find(|about| !about.is_empty());
    let is_own = kind(tool) != ToolKind::Other;
    match about.filter(|_| is_own) {
        Some(about) => clipped(format!("{tool}: {about}"), LABEL_BYTES_MAX),
        None => clipped(tool, LABEL_BYTES_MAX),
    }
}

fn targets(input: &Value) -> Vec<String> {
    let files = ["file_path", "notebook_path", "path"].into_iter();
    let file = files.map(|field| word(&input[field])).find(|file| !file.is_empty());
    let target = file.map(|file| match input["offset"].as_u64() {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    });
    target.into_iter().map(|target| clipped(target, LABEL_BYTES_MAX)).collect()
}

/// The plan that a call of `TodoWrite` sets.
pub(super) fn plan(block: &Value) -> Option<Event> {
    let todos = block["input"]["todos"].as_array().filter(|_| block["name"] == "TodoWrite")?;
    let step = |todo: &Value| Step {
        text: clipped(word(&todo["content"]), LABEL_BYTES_MAX),
        status: match word(&todo["status"]) {
            "in_progress" => StepStatus::InProgress,
            "completed" => StepStatus::Completed,
            _ => StepStatus::Pending,
        },
    };
    Some(Event::Plan { steps: todos.iter().take(STEPS_MAX).map(step).collect() })
}

/// What a tool gave back: a text, or a list of blocks of which only some are text.
pub(super) fn output(content: &Value) -> Clipped {
    let shown = |block: &Value| match word(&block["type"]) {
        "text" => word(&block["text"]).to_owned(),
        "image" => "[an image]".to_owned(),
        "" => String::new(),
        other => format!("[{}]", other.replace('_', " ")),
    };
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(shown).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    };
    Clipped::new(text, PAYLOAD_BYTES_MAX)
}
