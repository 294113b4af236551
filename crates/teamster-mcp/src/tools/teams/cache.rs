//! What `team_cache_read` shows: entries for messages, and for starts of their agent.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use teamster_core::conversation::{Conversation, How, Progress, Tell};
use teamster_core::ids::TellId;
use teamster_core::{State, Timestamp};

use super::{iso, progress_word};
use crate::answer::ToolError;
use crate::call::Call;
use crate::hub::RecordsQuery;

/// As many entries as one page has.
const ENTRIES_MAX: usize = 50;
/// A page ends when it is this large, unless its first entry is larger. What is answered has it twice, as text and as
/// JSON, and is to stay far below the 4 MiB that lines between programs may have.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// As much of an entry's protocol messages as is shown, the newest.
const PROTOCOL_BYTES_MAX: usize = 128 * 1024;
/// As much as is shown of one protocol message.
const RECORD_BYTES_MAX: usize = 4 * 1024;
/// How long texts in a larger one may be, and how long its lists.
const CUT_CHARS: usize = 200;
const CUT_ITEMS: usize = 8;

/// What a caller wants to see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) messages: bool,
    pub(super) protocol: bool,
    pub(super) n_messages: usize,
    pub(super) as_text: bool,
}

/// An entry of a page.
pub(super) struct Entry {
    pub(super) status: &'static str,
    /// As a value or as text.
    pub(super) shown: Value,
}

/// Returns the entries of a page and where the next begins.
pub(super) async fn page(
    cx: &Call<'_>,
    state: &State,
    conversation: &Conversation,
    tells: &[&Arc<Tell>],
    after: Option<TellId>,
    wanted: Wanted,
) -> Result<(Vec<Entry>, Option<TellId>), ToolError> {
    let mut page = Vec::new();
    let (mut n_bytes, mut n_tells) = (0, 0);
    let mut last = None;
    for tell in tells.iter().filter(|tell| Some(tell.id) > after) {
        let entries = entries(cx, state, conversation, tell, wanted).await?;
        let size: usize = entries.iter().map(|entry| entry.shown.to_string().len()).sum();
        let is_full = n_tells >= ENTRIES_MAX || n_bytes + size > PAGE_BYTES_MAX;
        if n_tells > 0 && is_full {
            return Ok((page, last));
        }
        page.extend(entries);
        n_bytes += size;
        n_tells += 1;
        last = Some(tell.id);
    }
    // It may have started again since.
    if let Some(end) = ends(state, conversation, None) {
        page.extend(spawn(cx, conversation, (end, None), wanted).await?);
    }
    Ok((page, None))
}

/// Returns the entry of a message, and before it that of a start of its agent.
async fn entries(
    cx: &Call<'_>,
    state: &State,
    conversation: &Conversation,
    tell: &Tell,
    wanted: Wanted,
) -> Result<Vec<Entry>, ToolError> {
    let mut entries = Vec::new();
    if let Some(begun) = tell.records.after
        && let Some(end) = ends(state, conversation, Some(tell.id))
    {
        entries.extend(spawn(cx, conversation, (end, Some(begun)), wanted).await?);
    }
    let mut messages = vec![json!({
        "timestamp": tell.at.0, "type": "user", "data": {"text": tell.message, "tellId": tell.id.to_string()},
    })];
    let mut n_messages = 1;
    if let Some(after) = tell.records.after.filter(|_| wanted.protocol) {
        let up_to = tell.records.up_to.or_else(|| next_begins(state, conversation, tell.id));
        let protocol = protocol(cx, conversation, (after, up_to), wanted).await?;
        n_messages += match up_to {
            Some(up_to) => usize::try_from(up_to.saturating_sub(after)).unwrap_or(usize::MAX),
            None => protocol.len(),
        };
        messages.extend(protocol);
    }
    if let Progress::Active { .. } = &tell.progress {
        let said = cx.live(&conversation.agent).await.said;
        if !said.is_empty() {
            let data = json!({"text": said, "partial": true});
            messages.push(json!({"timestamp": cx.now().0, "type": "assistant", "data": data}));
            n_messages += 1;
        }
    }
    if let Progress::Settled { how, answer, at } = &tell.progress {
        if !answer.is_empty() {
            messages
                .push(json!({"timestamp": at.0, "type": "assistant", "data": {"text": answer}}));
            n_messages += 1;
        }
        let result = match how {
            How::Completed => json!({"status": "completed"}),
            How::Terminated { why } => json!({"status": "terminated", "reason": why}),
            How::Cancelled => json!({"status": "cancelled"}),
        };
        messages.push(json!({"timestamp": at.0, "type": "result", "data": result}));
        n_messages += 1;
    }
    let from = messages.len().saturating_sub(wanted.n_messages);
    let status = progress_word(tell);
    let shown = match wanted.as_text {
        true => text(conversation, (tell.id, tell.at, status), &messages[from..], wanted).into(),
        false => entry("TELL", status, n_messages, messages.split_off(from), wanted),
    };
    entries.push(Entry { status, shown });
    Ok(entries)
}

fn entry(
    kind: &str,
    status: &str,
    n_messages: usize,
    messages: Vec<Value>,
    wanted: Wanted,
) -> Value {
    let mut entry = json!({"type": kind, "status": status, "messageCount": n_messages});
    if wanted.messages {
        entry["messages"] = messages.into();
    }
    entry
}

/// Returns the entry of a start, if the agent was started in this piece of its transcript.
async fn spawn(
    cx: &Call<'_>,
    conversation: &Conversation,
    piece: (u64, Option<u64>),
    wanted: Wanted,
) -> Result<Option<Entry>, ToolError> {
    if !wanted.protocol || piece.1.is_some_and(|up_to| up_to <= piece.0) {
        return Ok(None);
    }
    let messages = protocol(cx, conversation, piece, wanted).await?;
    let of = |kind: &str| messages.iter().rposition(|message| message["type"] == kind);
    let status = match (of("started"), of("not_started")) {
        (None, None) => return Ok(None),
        (started, failed) if started > failed => "completed",
        _ => "terminated",
    };
    let shown = match (wanted.as_text, wanted.messages) {
        (true, true) => {
            let mut text = String::new();
            messages.iter().for_each(|message| line(&mut text, conversation, message));
            text.into()
        }
        (true, false) => format!("start of {} {status}\n", conversation.agent).into(),
        (false, _) => entry("SPAWN", status, messages.len(), messages, wanted),
    };
    Ok(Some(Entry { status, shown }))
}

/// Returns where the records of the last message before this one end, if they do; of the last of all if none is named.
fn ends(state: &State, conversation: &Conversation, before: Option<TellId>) -> Option<u64> {
    let tells = conversation.tells.iter().rev().filter(|id| before.is_none_or(|tell| **id < tell));
    let begun = tells
        .filter_map(|id| state.conversations.tell(*id))
        .find(|tell| tell.records.after.is_some());
    match begun {
        // Those of one that was cut off, or is under way, go on.
        Some(begun) => begun.records.up_to,
        // Of what came before those at hand, nothing is known.
        None => (conversation.tells.len() == conversation.n_tells as usize).then_some(0),
    }
}

/// Returns where the records of the next message begin.
fn next_begins(state: &State, conversation: &Conversation, tell: TellId) -> Option<u64> {
    let later = conversation.tells.iter().filter(|id| **id > tell);
    later.filter_map(|id| state.conversations.tell(*id)).find_map(|tell| tell.records.after)
}

/// Returns the newest records of a piece of the transcript, as messages.
async fn protocol(
    cx: &Call<'_>,
    conversation: &Conversation,
    (after, up_to): (u64, Option<u64>),
    wanted: Wanted,
) -> Result<Vec<Value>, ToolError> {
    let (agent, n_records) = (conversation.agent.clone(), wanted.n_messages);
    let records = cx.records(RecordsQuery { agent, after, up_to, n_records }).await?;
    let mut messages: Vec<Value> = records.into_iter().map(message).collect();
    let mut n_bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
    let mut n_over = 0;
    while n_bytes > PROTOCOL_BYTES_MAX
        && let Some(message) = messages.get(n_over)
    {
        n_bytes -= message.to_string().len();
        n_over += 1;
    }
    messages.drain(..n_over);
    Ok(messages)
}

/// Shows a record as a message.
fn message(mut record: Value) -> Value {
    let Some(fields) = record.as_object_mut() else { return json!({"type": "unreadable"}) };
    let mut take = |name: &str| fields.remove(name).unwrap_or_default();
    let (timestamp, kind, _) = (take("at_ms"), take("type"), take("v"));
    if record.to_string().len() > RECORD_BYTES_MAX {
        cut(&mut record);
    }
    let n_bytes = record.to_string().len();
    if n_bytes > RECORD_BYTES_MAX {
        record = json!({"tooLarge": n_bytes});
    }
    json!({"timestamp": timestamp, "type": kind, "data": record})
}

/// Shortens texts and lists.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(CUT_CHARS) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(items) => {
            items.truncate(CUT_ITEMS);
            items.iter_mut().for_each(cut);
        }
        Value::Object(fields) => fields.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Shows a message and what came of it as lines.
fn text(
    conversation: &Conversation,
    (id, at, status): (TellId, Timestamp, &str),
    messages: &[Value],
    wanted: Wanted,
) -> String {
    let mut text = String::new();
    if !wanted.messages {
        let _ = writeln!(text, "[{}] {id} {status}", iso(at));
        return text;
    }
    for message in messages {
        let data = &message["data"];
        let at = Timestamp(message["timestamp"].as_i64().unwrap_or_default());
        let said = data["text"].as_str().unwrap_or_default();
        let _ = match message["type"].as_str() {
            Some("user") => writeln!(text, "[{}] {}: {said}", iso(at), conversation.from),
            Some("assistant") => {
                writeln!(text, "[{}] {} ({status}): {said}", iso(at), conversation.to)
            }
            // What came of it stands with the answer, if there is one.
            Some("result") if data["status"] == "completed" => Ok(()),
            Some("result") => {
                let why = data["reason"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
                writeln!(text, "[{}] {} ({status}){why}", iso(at), conversation.to)
            }
            _ => {
                line(&mut text, conversation, message);
                Ok(())
            }
        };
    }
    text
}

/// Shows a protocol message in a line.
fn line(text: &mut String, conversation: &Conversation, message: &Value) {
    let at = Timestamp(message["timestamp"].as_i64().unwrap_or_default());
    let kind = message["type"].as_str().unwrap_or_default();
    let _ = writeln!(text, "[{}] {} {kind}: {}", iso(at), conversation.to, message["data"]);
}
