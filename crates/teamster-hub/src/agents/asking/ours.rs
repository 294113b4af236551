//! Recognises the hub's own tools, however a program spells them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};
use teamster_agents::agent::{ToolCall, ToolKind};
use teamster_core::permission::Ours;

/// How programs put the name of our server before a tool. A tool of ours must follow: another server may have a name that
/// begins like ours.
const PREFIXES: [&str; 16] = [
    "mcp__teamster__",
    "mcp__teamster/",
    "mcp__teamster.",
    "mcp_teamster_",
    "mcp_teamster.",
    "mcp.teamster.",
    "mcp:teamster:",
    "teamster__",
    "teamster_",
    "teamster/",
    "teamster.",
    "teamster-",
    "teamster:",
    "teamster: ",
    "teamster - ",
    "Tool: teamster/",
];
/// How they put it behind.
const SUFFIXES: [&str; 3] = [" (teamster MCP Server)", " (teamster)", " (from teamster)"];
/// And what some add to either.
const MARK: &str = " (MCP)";

/// Says whether a call is one of a tool of ours.
pub(super) fn ours(call: &ToolCall, arguments: &Value) -> Ours {
    if is_forwarded(call, arguments) {
        return Ours::Surely;
    }
    match &call.name {
        Some(name) if is_spelled(name) => Ours::Surely,
        Some(name) => bare(name, call, arguments),
        // The model may have written the title of such a call.
        None if changes_something(call) => Ours::No,
        None if is_spelled(&call.title) => Ours::Surely,
        None => match announced(call) {
            Some(announced) if is_spelled(announced) && announced.ends_with(&call.title) => {
                Ours::Surely
            }
            Some(announced) if announced.ends_with(&call.title) => Ours::No,
            Some(_) | None => bare(&call.title, call, arguments),
        },
    }
}

/// The first title of a call that has another by now.
fn announced(call: &ToolCall) -> Option<&str> {
    call.shown.texts.first().map(String::as_str).filter(|text| !text.contains(char::is_whitespace))
}

fn changes_something(call: &ToolCall) -> bool {
    match call.kind {
        ToolKind::Execute
        | ToolKind::Edit
        | ToolKind::Delete
        | ToolKind::Move
        | ToolKind::Fetch => true,
        ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::Other => false,
    }
}

/// codex-acp shows which server's tool it calls beside the arguments; a command has other arguments.
fn is_forwarded(call: &ToolCall, arguments: &Value) -> bool {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let is_call = arguments.as_object().is_some_and(|fields| {
        fields.keys().all(|key| matches!(key.as_str(), "server" | "tool" | "arguments"))
    });
    let tool = text("tool");
    let title = call.title.strip_suffix(tool).unwrap_or_default();
    is_call
        && text("server") == "teamster"
        && is_tool(tool)
        && matches!(title, "mcp.teamster." | "Tool: teamster/")
}

/// A name alone counts only for a call that is not about a file or a command, with arguments that our tool takes.
fn bare(name: &str, call: &ToolCall, arguments: &Value) -> Ours {
    let fits = !changes_something(call) && call.targets.is_empty() && takes(name, arguments);
    if fits { Ours::ByName } else { Ours::No }
}

fn is_spelled(text: &str) -> bool {
    let text = text.strip_suffix(MARK).unwrap_or(text);
    let after = PREFIXES.iter().filter_map(|prefix| text.strip_prefix(prefix));
    let before = SUFFIXES.iter().filter_map(|suffix| text.strip_suffix(suffix));
    after.chain(before).any(is_tool)
}

/// Our tools by their names, with `_` for `-` as some programs write it, and what they take.
static TOOLS: LazyLock<HashMap<String, Arc<Map<String, Value>>>> = LazyLock::new(|| {
    let catalogue = teamster_mcp::tools::catalogue();
    let entries = catalogue.entries().iter();
    entries.map(|entry| (entry.name.replace('-', "_"), entry.schema.clone())).collect()
});

fn is_tool(name: &str) -> bool {
    TOOLS.contains_key(&name.replace('-', "_"))
}

fn takes(name: &str, arguments: &Value) -> bool {
    let (Some(schema), Value::Object(arguments)) = (TOOLS.get(&name.replace('-', "_")), arguments)
    else {
        return false;
    };
    let known = schema.get("properties").and_then(Value::as_object);
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    arguments.keys().all(|key| known.is_some_and(|known| known.contains_key(key)))
        && required.all(|key| key.as_str().is_some_and(|key| arguments.contains_key(key)))
}
