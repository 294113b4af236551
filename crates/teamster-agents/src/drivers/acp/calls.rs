//! Tool calls, which programs tell in pieces: some the input later than the call, some the call only when they ask for
//! permission.

use std::collections::VecDeque;

use agent_client_protocol_schema::v1::{
    Meta, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind as Kind,
};
use serde_json::{Value, json};

use super::text;
use crate::agent::{
    Clipped, Event, ID_BYTES_MAX, LABEL_BYTES_MAX, PAYLOAD_BYTES_MAX, ToolCall, ToolKind, clipped,
};
use crate::drivers::{Out, targets};

/// As many calls of a turn are remembered; then the oldest is forgotten. Programs make a few at a time.
const CALLS_MAX: usize = 64;

/// The calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<Told>);

/// What was told of a call.
#[derive(Debug, Clone)]
struct Told {
    call: ToolCall,
    /// Its input; and what a request for permission showed beside it, or in its place.
    input: Option<Clipped>,
    shown: Option<Clipped>,
    /// Of the places that it is about and that are not kept.
    cut_bytes: usize,
    output: Clipped,
    finished: bool,
}

impl Calls {
    /// Takes in what is newly told of a call.
    pub(super) fn update(&mut self, update: ToolCallUpdate, out: &mut Out) -> Result<(), String> {
        let status = update.fields.status;
        let output = output(&update.fields);
        let begins = matches!(status, Some(ToolCallStatus::Pending | ToolCallStatus::InProgress));
        let told = self.tell(update, None, begins, out)?;
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
        let output = std::mem::take(&mut told.output);
        out.event(Event::ToolResult { id: told.call.id.clone(), ok, output });
        Ok(())
    }

    /// Takes in a call that waits for a permission, and returns it.
    pub(super) fn ask(
        &mut self,
        update: ToolCallUpdate,
        out: &mut Out,
    ) -> Result<ToolCall, String> {
        // Whoever decides must see what is asked for; Gemini tells it as content only.
        let shown = output(&update.fields).filter(|shown| !shown.text.is_empty());
        Ok(self.tell(update, shown, true, out)?.call.clone())
    }

    /// Says the call if something is new in it. A finished call is over: what begins under its id, or tells something else
    /// of it, is another call, of which nothing is known yet.
    fn tell(
        &mut self,
        update: ToolCallUpdate,
        shown: Option<Clipped>,
        begins: bool,
        out: &mut Out,
    ) -> Result<&mut Told, String> {
        let id = update.tool_call_id.0.to_string();
        if id.len() > ID_BYTES_MAX {
            return Err("a tool call with too long an id".to_owned());
        }
        let known = self.0.iter().position(|told| told.call.id == id);
        let at = known.unwrap_or_else(|| {
            if self.0.len() == CALLS_MAX {
                self.0.pop_front();
            }
            self.0.push_back(Told::unknown(&id));
            self.0.len() - 1
        });
        let Some(told) = self.0.get_mut(at) else {
            return Err("a tool call was lost".to_owned());
        };
        let taken = |mut told: Told| {
            told.take(update.clone(), shown.clone());
            told
        };
        let mut next = taken(told.clone());
        let is_another = told.finished;
        if is_another {
            // Late words are no news.
            next.call.title.clone_from(&told.call.title);
            if !begins && next.call == told.call {
                return Ok(told);
            }
            next = taken(Told::unknown(&id));
        }
        if known.is_none() || is_another || next.call != told.call {
            out.event(Event::ToolCall(next.call.clone()));
        }
        *told = next;
        Ok(told)
    }
}

impl Told {
    fn unknown(id: &str) -> Self {
        let call = ToolCall {
            id: id.to_owned(),
            title: id.to_owned(),
            name: None,
            kind: ToolKind::Other,
            input: None,
            targets: Vec::new(),
        };
        let output = Clipped::default();
        Self { call, input: None, shown: None, cut_bytes: 0, output, finished: false }
    }

    fn take(&mut self, update: ToolCallUpdate, shown: Option<Clipped>) {
        let ToolCallUpdateFields { kind, title, name, locations, raw_input, .. } = update.fields;
        let call = &mut self.call;
        if let Some(title) = title {
            call.title = clipped(title, LABEL_BYTES_MAX);
        }
        if let Some(name) = name.or_else(|| name_in(update.meta.as_ref()?)) {
            call.name = Some(clipped(name, LABEL_BYTES_MAX));
        }
        if let Some(kind) = kind {
            call.kind = tool_kind(kind);
        }
        if let Some(locations) = locations.filter(|locations| !locations.is_empty()) {
            (call.targets, self.cut_bytes) = targets(locations.into_iter().map(target));
        }
        match raw_input {
            Some(input) => (self.input, self.shown) = (Some(payload(&input)), None),
            None => self.shown = shown.or(self.shown.take()),
        }
        self.call.input = self.whole_input();
    }

    /// Returns all that is known of what the tool would be given. What was shown never hides the input.
    fn whole_input(&self) -> Option<Clipped> {
        let mut whole = match (&self.input, &self.shown) {
            (Some(input), Some(shown)) => {
                let text = || Value::String(input.text.clone());
                let parsed = serde_json::from_str(&input.text).unwrap_or_else(|_| text());
                let mut both = payload(&json!({"input": parsed, "content": shown.text}));
                both.cut_bytes += input.cut_bytes + shown.cut_bytes;
                both
            }
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) if self.cut_bytes > 0 => Clipped::default(),
            (None, None) => return None,
        };
        whole.cut_bytes += self.cut_bytes;
        Some(whole)
    }
}

/// Where Claude and Goose have the tool's name.
fn name_in(meta: &Meta) -> Option<String> {
    let claude = meta.get("claudeCode").and_then(|claude| claude.pointer("/toolName"));
    let goose = || meta.get("goose")?.pointer("/toolCall/toolName");
    claude.or_else(goose)?.as_str().map(str::to_owned)
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
    match location.line {
        Some(line) => format!("{path}:{line}"),
        None => path.to_string(),
    }
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
