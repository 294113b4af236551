//! Items: what an agent did in a turn. Most are calls of tools.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::{
    Clipped, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, PAYLOAD_BYTES_MAX, Shown, TARGETS_MAX, ToolCall,
    ToolKind, clipped,
};
use crate::drivers::Out;

/// As many calls under way are remembered; then the oldest is forgotten. Codex makes a few at a time.
const CALLS_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Item {
    AgentMessage {
        id: String,
        #[serde(default)]
        text: String,
    },
    Plan {
        id: String,
        #[serde(default)]
        text: String,
    },
    Reasoning {
        id: String,
        #[serde(default)]
        summary: Vec<String>,
        #[serde(default)]
        content: Vec<String>,
    },
    CommandExecution {
        id: String,
        #[serde(flatten)]
        command: Command,
        #[serde(default)]
        status: Status,
        aggregated_output: Option<String>,
        exit_code: Option<i64>,
    },
    FileChange {
        id: String,
        #[serde(default)]
        changes: Vec<Change>,
        #[serde(default)]
        status: Status,
    },
    McpToolCall {
        id: String,
        server: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        read_only_hint: Option<bool>,
        #[serde(default)]
        status: Status,
        #[serde(default)]
        result: Value,
        #[serde(default)]
        error: Value,
    },
    DynamicToolCall {
        id: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        #[serde(default)]
        status: Status,
        #[serde(default)]
        content_items: Value,
    },
    /// A call of an agent that Codex has itself.
    CollabAgentToolCall {
        id: String,
        tool: String,
        prompt: Option<String>,
        #[serde(default)]
        status: Status,
    },
    WebSearch {
        id: String,
        #[serde(default)]
        query: String,
        action: Option<WebAction>,
    },
    ImageView {
        id: String,
        path: String,
    },
    ImageGeneration {
        id: String,
        revised_prompt: Option<String>,
    },
    Sleep {
        id: String,
    },
    // Our own prompts, and what only matters to somebody who sits before the program.
    ContextCompaction,
    EnteredReviewMode,
    ExitedReviewMode,
    FunctionCallOutput,
    HookPrompt,
    SubAgentActivity,
    UserMessage,
    #[serde(other)]
    Unknown,
}

/// A command of a shell, as items and requests for permission tell it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Command {
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    command_actions: Option<Vec<Action>>,
}

/// What Codex makes of a part of a command.
#[derive(Debug, Clone, Deserialize)]
struct Action {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    command: String,
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Change {
    path: String,
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    diff: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WebAction {
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Status {
    #[default]
    InProgress,
    Completed,
    Failed,
    Declined,
    #[serde(other)]
    Other,
}

/// The calls under way, whose results are still to be told.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<ToolCall>);

impl Calls {
    pub(super) fn began(&mut self, item: &Item, out: &mut Out) -> Result<(), String> {
        let Some(call) = item.call() else { return Ok(()) };
        if call.id.len() > ID_BYTES_MAX {
            return Err("a tool call with too long an id".to_owned());
        }
        self.0.retain(|known| known.id != call.id);
        if self.0.len() == CALLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(call.clone());
        out.event(Event::ToolCall(call));
        Ok(())
    }

    pub(super) fn completed(&mut self, item: &Item, out: &mut Out) -> Result<(), String> {
        let Some(call) = item.call() else { return Ok(()) };
        // Of some, such as searches, it is only known now what they were about.
        if self.find(&call.id).is_none_or(|known| *known != call) {
            self.began(item, out)?;
        }
        self.0.retain(|known| known.id != call.id);
        let (ok, output) = item.result();
        let output = Clipped::new(output, PAYLOAD_BYTES_MAX);
        out.event(Event::ToolResult { id: call.id, ok, output });
        Ok(())
    }

    pub(super) fn find(&self, id: &str) -> Option<&ToolCall> {
        self.0.iter().find(|call| call.id == id)
    }

    /// Returns the call of an MCP server's tool that a question is about, which names neither the call nor, but for its
    /// words, the tool.
    pub(super) fn of_server(&self, server: &str, says: &str, input: &Value) -> Option<&ToolCall> {
        let prefix = mcp_name(server, "");
        let input = payload(input);
        let is_meant = |call: &&ToolCall| {
            let tool = call.name.as_deref().and_then(|name| name.strip_prefix(prefix.as_str()));
            tool.is_some_and(|tool| says.contains(&format!("\"{tool}\"")))
        };
        let meant = || self.0.iter().rev().filter(is_meant);
        meant().find(|call| call.input.as_ref() == Some(&input)).or_else(|| meant().next())
    }
}

/// The name under which models are offered the tool of an MCP server.
fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

impl Item {
    /// Returns the call of a tool that this is, if it is one.
    fn call(&self) -> Option<ToolCall> {
        let call = |id: &str, title: &str, name: &str, kind: ToolKind, input: Value| ToolCall {
            id: id.to_owned(),
            title: clipped(title, LABEL_BYTES_MAX),
            name: Some(clipped(name, LABEL_BYTES_MAX)),
            kind,
            input: (!input.is_null()).then(|| payload(&input)),
            targets: Vec::new(),
            shown: Shown::default(),
        };
        Some(match self {
            Self::CommandExecution { id, command, .. } => command.call(id),
            Self::FileChange { id, changes, .. } => changed(id, changes),
            Self::McpToolCall { id, server, tool, arguments, read_only_hint, .. } => {
                let reads = *read_only_hint == Some(true);
                let kind = if reads { ToolKind::Read } else { ToolKind::Other };
                let title = format!("{server}: {tool}");
                call(id, &title, &mcp_name(server, tool), kind, arguments.clone())
            }
            Self::DynamicToolCall { id, tool, arguments, .. } => {
                call(id, tool, tool, ToolKind::Other, arguments.clone())
            }
            Self::CollabAgentToolCall { id, tool, prompt, .. } => {
                call(id, tool, tool, ToolKind::Other, json!(prompt))
            }
            Self::WebSearch { id, query, action } => {
                let url = action.as_ref().and_then(|action| action.url.clone());
                let (verb, kind) = match url {
                    Some(_) => ("open", ToolKind::Fetch),
                    None => ("search for", ToolKind::Search),
                };
                let title = match url.as_deref().unwrap_or(query) {
                    "" => "search the web".to_owned(),
                    about => format!("{verb} {about}"),
                };
                let targets = url.iter().map(|url| clipped(url, LABEL_BYTES_MAX)).collect();
                ToolCall { targets, ..call(id, &title, "web_search", kind, json!(query)) }
            }
            Self::ImageView { id, path } => {
                let targets = vec![clipped(path, LABEL_BYTES_MAX)];
                let title = format!("look at {path}");
                ToolCall { targets, ..call(id, &title, "view_image", ToolKind::Read, Value::Null) }
            }
            Self::ImageGeneration { id, revised_prompt } => {
                let title = "make an image";
                call(id, title, "image_generation", ToolKind::Other, json!(revised_prompt))
            }
            Self::Sleep { id } => call(id, "sleep", "sleep", ToolKind::Other, Value::Null),
            Self::AgentMessage { .. }
            | Self::Plan { .. }
            | Self::Reasoning { .. }
            | Self::ContextCompaction
            | Self::EnteredReviewMode
            | Self::ExitedReviewMode
            | Self::FunctionCallOutput
            | Self::HookPrompt
            | Self::SubAgentActivity
            | Self::UserMessage
            | Self::Unknown => return None,
        })
    }

    /// Returns whether the call went well, and what it gave back.
    fn result(&self) -> (bool, String) {
        match self {
            Self::CommandExecution { status, aggregated_output, exit_code, .. } => {
                let output = match (aggregated_output, status, exit_code) {
                    (Some(output), ..) => output.clone(),
                    (None, Status::Completed, _) => String::new(),
                    (None, Status::Failed, Some(code)) => format!("it exited with {code}"),
                    (None, status, _) => status.says(),
                };
                (*status == Status::Completed, output)
            }
            Self::FileChange { status, .. } => (*status == Status::Completed, status.says()),
            Self::McpToolCall { status, result, error, .. } => {
                let ok = *status == Status::Completed && result["isError"] != true;
                match error["message"].as_str() {
                    Some(message) => (false, message.to_owned()),
                    None => (ok, texts(&result["content"])),
                }
            }
            Self::DynamicToolCall { status, content_items, .. } => {
                (*status == Status::Completed, texts(content_items))
            }
            Self::CollabAgentToolCall { status, .. } => {
                (*status == Status::Completed, status.says())
            }
            Self::WebSearch { .. }
            | Self::ImageView { .. }
            | Self::ImageGeneration { .. }
            | Self::Sleep { .. }
            | Self::AgentMessage { .. }
            | Self::Plan { .. }
            | Self::Reasoning { .. }
            | Self::ContextCompaction
            | Self::EnteredReviewMode
            | Self::ExitedReviewMode
            | Self::FunctionCallOutput
            | Self::HookPrompt
            | Self::SubAgentActivity
            | Self::UserMessage
            | Self::Unknown => (true, String::new()),
        }
    }
}

impl Status {
    fn says(self) -> String {
        match self {
            Self::InProgress | Self::Completed => String::new(),
            Self::Failed => "it failed".to_owned(),
            Self::Declined => "it was declined".to_owned(),
            Self::Other => "it did not complete".to_owned(),
        }
    }
}

impl Command {
    /// Returns it as a call. Rules may look at the title and at the input, so both begin with what the model cannot
    /// choose, or are nothing but what will run.
    pub(super) fn call(&self, id: &str) -> ToolCall {
        let Self { command, cwd, command_actions } = self;
        let actions = command_actions.as_deref().unwrap_or_default();
        let command = match actions {
            // Of a command that Codex makes nothing of, this is the whole without the shell around it. Of others it may
            // be less.
            [action] if action.kind == "unknown" && !action.command.is_empty() => &action.command,
            _ => command.as_deref().unwrap_or("a command"),
        };
        let all = |kinds: &[&str]| {
            let is_one = |action: &Action| kinds.contains(&action.kind.as_str());
            !actions.is_empty() && actions.iter().all(is_one)
        };
        let kind = if all(&["read"]) {
            ToolKind::Read
        } else if all(&["read", "listFiles", "search"]) {
            ToolKind::Search
        } else {
            ToolKind::Execute
        };
        let targets = actions.iter().filter_map(|action| action.path.as_deref());
        ToolCall {
            id: id.to_owned(),
            title: clipped(format!("$ {command}"), LABEL_BYTES_MAX),
            name: Some("shell".to_owned()),
            kind,
            input: Some(payload(&json!({"command": command, "cwd": cwd}))),
            targets: targets.take(TARGETS_MAX).map(|path| clipped(path, LABEL_BYTES_MAX)).collect(),
            shown: Shown::default(),
        }
    }

    pub(super) fn is_told(&self) -> bool {
        self.command.is_some()
    }
}

fn changed(id: &str, changes: &[Change]) -> ToolCall {
    let all = |kind: &str| !changes.is_empty() && changes.iter().all(|c| c.kind["type"] == kind);
    let moved = |change: &Change| !change.kind["move_path"].is_null();
    let (verb, kind) = if all("delete") {
        ("delete", ToolKind::Delete)
    } else if !changes.is_empty() && changes.iter().all(moved) {
        ("move", ToolKind::Move)
    } else {
        ("edit", ToolKind::Edit)
    };
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    // Whoever decides by rules must see every file.
    let mut more = Shown::default();
    let kept = |at: usize, path: &str| at < TARGETS_MAX && path.len() <= LABEL_BYTES_MAX;
    paths
        .iter()
        .enumerate()
        .filter(|(at, path)| !kept(*at, path))
        .for_each(|(_, path)| more.push(path));
    let shown = changes
        .iter()
        .map(|Change { path, kind, diff }| json!({"path": path, "kind": kind, "diff": diff}));
    ToolCall {
        id: id.to_owned(),
        title: clipped(format!("{verb} {}", paths.join(", ")), LABEL_BYTES_MAX),
        name: Some("apply_patch".to_owned()),
        kind,
        input: Some(payload(&shown.collect())),
        targets: paths
            .iter()
            .take(TARGETS_MAX)
            .map(|path| clipped(*path, LABEL_BYTES_MAX))
            .collect(),
        shown: more,
    }
}

pub(super) fn payload(value: &Value) -> Clipped {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Clipped::new(text, PAYLOAD_BYTES_MAX)
}

/// The text of what a tool gave back, or what stands for it.
fn texts(content: &Value) -> String {
    let block = |block: &Value| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("[{}]", block["type"].as_str().unwrap_or("something")),
    };
    content.as_array().into_iter().flatten().map(block).collect::<Vec<_>>().join("\n")
}
