//! Tool calls, which programs tell in pieces: some the input later than the call, some the call only when they ask for
//! permission.

use std::collections::VecDeque;

use agent_client_protocol_schema::v1::{
    Meta, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind as Kind,
};
use serde_json::Value;

use super::text;
use crate::agent::{
    Clipped, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, PAYLOAD_BYTES_MAX, PermissionOption, Shown,
    TARGETS_MAX, ToolCall, ToolKind, clipped,
};
use crate::drivers::Out;

/// As many calls of a turn are remembered; then the oldest is forgotten. Programs make a few at a time.
const CALLS_MAX: usize = 64;

/// The calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<Told>);

/// What was told of a call.
#[derive(Debug)]
struct Told {
    call: ToolCall,
    /// Its first title, which is the tool's name with some programs.
    announced: Option<String>,
    output: Clipped,
    finished: bool,
}

impl Calls {
    /// Takes in what is newly told of a call.
    pub(super) fn update(&mut self, update: ToolCallUpdate, out: &mut Out) -> Result<(), String> {
        let status = update.fields.status;
        let output = output(&update.fields);
        let told = self.tell(update, out)?;
        if told.finished {
            return Ok(());
        }
        if let Some(output) = output {
            told.output = output;
        }
        let ok = match status {
            Some(ToolCallStatus::Completed) => true,
            Some(ToolCallStatus::Failed) => false,
            _ => return Ok(()),
        };
        told.finished = true;
        told.call.input = None;
        let output = std::mem::take(&mut told.output);
        out.event(Event::ToolResult { id: told.call.id.clone(), ok, output });
        Ok(())
    }

    /// Takes in a call that waits for a permission, and returns it with everything that the program shows of it.
    pub(super) fn ask(
        &mut self,
        mut update: ToolCallUpdate,
        options: &[PermissionOption],
        out: &mut Out,
    ) -> Result<ToolCall, String> {
        let id = update.tool_call_id.0.as_ref();
        let told = self.0.iter().find(|told| told.call.id == id);
        let mut shown = Shown::default();
        let fields = &update.fields;
        let locations = fields.locations.iter().flatten().enumerate();
        let cut = locations.filter(|(at, location)| {
            *at >= TARGETS_MAX || location.path.as_os_str().len() > LABEL_BYTES_MAX
        });
        cut.for_each(|(_, location)| shown.push(&location.path.to_string_lossy()));
        fields
            .title
            .iter()
            .filter(|title| title.len() > LABEL_BYTES_MAX)
            .for_each(|title| shown.push(title));
        let title = fields.title.as_deref().or(told.map(|told| told.call.title.as_str()));
        let announced = told.and_then(|told| told.announced.as_deref());
        announced
            .filter(|announced| Some(*announced) != title)
            .into_iter()
            .for_each(|one| shown.push(one));
        fields.content.iter().flatten().for_each(|content| show(content, &mut shown));
        let earlier = told.map(|told| told.output.text.as_str()).unwrap_or_default();
        shown.push(earlier);
        // Gemini and Kimi show the arguments of a call as a text only.
        let is_known =
            fields.raw_input.is_some() || told.is_some_and(|told| told.call.input.is_some());
        if !is_known {
            let content = output(fields).unwrap_or_default();
            let texts = [content.text.as_str(), earlier];
            update.fields.raw_input = texts.into_iter().find_map(arguments);
        }
        if !is_known && update.fields.raw_input.is_none() {
            options.iter().for_each(|option| shown.push(&option.name));
        }
        let mut call = self.tell(update, out)?.call.clone();
        call.shown = shown;
        Ok(call)
    }

    /// Says the call if something is new in it.
    fn tell(&mut self, update: ToolCallUpdate, out: &mut Out) -> Result<&mut Told, String> {
        let id = update.tool_call_id.0.as_ref();
        if id.len() > ID_BYTES_MAX {
            return Err("a tool call with too long an id".to_owned());
        }
        let known = self.0.iter().position(|told| told.call.id == id);
        let at = known.unwrap_or_else(|| {
            if self.0.len() == CALLS_MAX {
                self.0.pop_front();
            }
            self.0.push_back(Told {
                call: unknown(id),
                announced: update
                    .fields
                    .title
                    .as_ref()
                    .map(|title| clipped(title, LABEL_BYTES_MAX)),
                output: Clipped::default(),
                finished: false,
            });
            self.0.len() - 1
        });
        let Some(told) = self.0.get_mut(at) else {
            return Err("a tool call was lost".to_owned());
        };
        let mut call = told.call.clone();
        take(&mut call, update);
        let is_news = known.is_none() || call != told.call;
        if is_news && !told.finished {
            told.call = call.clone();
            out.event(Event::ToolCall(call));
        }
        Ok(told)
    }
}

fn unknown(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        title: id.to_owned(),
        name: None,
        kind: ToolKind::Other,
        input: None,
        targets: Vec::new(),
        shown: Shown::default(),
    }
}

fn take(call: &mut ToolCall, update: ToolCallUpdate) {
    let ToolCallUpdateFields { kind, title, name, locations, raw_input, .. } = update.fields;
    if let Some(title) = title {
        call.title = clipped(title, LABEL_BYTES_MAX);
    }
    if let Some(name) = name.or_else(|| name_in(update.meta.as_ref()?)) {
        call.name = Some(clipped(name, LABEL_BYTES_MAX));
    }
    if let Some(kind) = kind {
        call.kind = tool_kind(kind);
    }
    if let Some(input) = raw_input {
        call.input = Some(payload(&input));
    }
    if let Some(locations) = locations.filter(|locations| !locations.is_empty()) {
        call.targets = locations.into_iter().take(TARGETS_MAX).map(target).collect();
    }
}

/// Where Claude, Goose, Qwen and Vibe have the tool's name.
fn name_in(meta: &Meta) -> Option<String> {
    let claude = meta.get("claudeCode").and_then(|claude| claude.pointer("/toolName"));
    let goose = || meta.get("goose")?.pointer("/toolCall/toolName");
    let qwen = || meta.get("toolName");
    let vibe = || meta.get("tool_name");
    claude.or_else(goose).or_else(qwen).or_else(vibe)?.as_str().map(str::to_owned)
}

fn tool_kind(kind: Kind) -> ToolKind {
    match kind {
        Kind::Read => ToolKind::Read,
        Kind::Edit => ToolKind::Edit,
        Kind::Delete => ToolKind::Delete,
        Kind::Move => ToolKind::Move,
        Kind::Search => ToolKind::Search,
        Kind::Execute => ToolKind::Execute,
        Kind::Think => ToolKind::Think,
        Kind::Fetch => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

fn target(location: ToolCallLocation) -> String {
    let path = location.path.display();
    let target = match location.line {
        Some(line) => format!("{path}:{line}"),
        None => path.to_string(),
    };
    clipped(target, LABEL_BYTES_MAX)
}

/// What a tool gave back, if the update tells: its content, or else its raw output.
fn output(fields: &ToolCallUpdateFields) -> Option<Clipped> {
    let content = fields.content.iter().flatten().map(shown).collect::<Vec<_>>().join("\n");
    if content.is_empty() {
        fields.raw_output.as_ref().map(payload)
    } else {
        Some(Clipped::new(content, PAYLOAD_BYTES_MAX))
    }
}

/// Adds what a request for permission shows: each text and each path by itself, so that rules can look at it.
fn show(content: &ToolCallContent, shown: &mut Shown) {
    match content {
        ToolCallContent::Content(content) => shown.push(&text(content.content.clone())),
        ToolCallContent::Diff(diff) => {
            shown.push(&diff.path.to_string_lossy());
            shown.push(&diff.new_text);
            diff.old_text.iter().for_each(|old| shown.push(old));
        }
        _ => {}
    }
}

/// Reads arguments that are shown as a text.
fn arguments(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_object)
}

fn shown(content: &ToolCallContent) -> String {
    match content {
        ToolCallContent::Content(content) => text(content.content.clone()),
        ToolCallContent::Diff(diff) => format!("[a change of {}]", diff.path.display()),
        ToolCallContent::Terminal(_) => "[a terminal]".to_owned(),
        _ => String::new(),
    }
}

fn payload(value: &Value) -> Clipped {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Clipped::new(text, PAYLOAD_BYTES_MAX)
}
