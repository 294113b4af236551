//! Transcripts: what is kept of the talk with an agent.
//!
//! Text comes in pieces of a word or two. They are kept as one record for each stretch of text that nothing interrupts:
//! it ends when something else happens, when it is long, or when it has waited for as long as the hub allows. So a
//! record is written once, and a crash loses no more than the stretch under way.

use serde::{Deserialize, Serialize};

use crate::agent::{Event, Piece};

/// The version of records written now. Another number means that an older program cannot read them.
const VERSION: u32 = 1;
/// A longer text becomes several records. With every character escaped, one is still well below what the log takes.
pub const RECORD_TEXT_BYTES_MAX: usize = 64 * 1024;

/// One entry of a transcript, as it is stored. Records of text that follow each other and are of one message are one
/// text; so are prompts that follow each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    v: u32,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// Why a stored record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the record is of version {0}; this program reads up to {VERSION}")]
    Newer(u32),
    #[error("the record is damaged")]
    Damaged(#[source] serde_json::Error),
}

impl Record {
    pub fn new(at_ms: u64, event: Event) -> Self {
        Self { v: VERSION, at_ms, event }
    }

    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = serde_json::from_slice(bytes).map_err(Unreadable::Damaged)?;
        if v > VERSION {
            return Err(Unreadable::Newer(v));
        }
        serde_json::from_slice(bytes).map_err(Unreadable::Damaged)
    }
}

/// Makes records of events.
#[derive(Debug)]
pub struct Transcriber {
    wait_ms_max: u64,
    unfinished: fn(&str) -> usize,
    /// What may still grow.
    pending: Option<Record>,
}

impl Transcriber {
    /// Text waits no longer than this for more of it, or twice as long where `unfinished` says that this many bytes at its
    /// end may be the beginning of something that has to stay in one record.
    pub fn new(wait_ms_max: u64, unfinished: fn(&str) -> usize) -> Self {
        Self { wait_ms_max, unfinished, pending: None }
    }

    /// Takes in an event and returns the records that are complete by it, in order.
    pub fn take(&mut self, at_ms: u64, event: Event) -> Vec<Record> {
        let mut complete = Vec::new();
        let joined = self.pending.as_mut().is_some_and(|pending| join(&mut pending.event, &event));
        if !joined {
            complete.extend(self.pending.replace(Record::new(at_ms, event)));
        }
        let unfinished = self.unfinished;
        while let Some(rest) = self.pending.as_mut().and_then(|record| split(record, unfinished)) {
            complete.extend(self.pending.replace(rest));
        }
        if self.due_ms().is_none_or(|due| due <= at_ms) {
            complete.extend(self.flush());
        }
        complete
    }

    /// When [`flush`](Self::flush) is due, if something waits.
    pub fn due_ms(&self) -> Option<u64> {
        let pending = self.pending.as_ref().filter(|pending| may_grow(&pending.event))?;
        let n_waits = match &pending.event {
            Event::Text(Piece { text, .. }) | Event::Thought(Piece { text, .. })
                if (self.unfinished)(text) > 0 =>
            {
                2
            }
            _ => 1,
        };
        Some(pending.at_ms.saturating_add(self.wait_ms_max.saturating_mul(n_waits)))
    }

    /// Returns what waits, as it is.
    pub fn flush(&mut self) -> Option<Record> {
        self.pending.take()
    }
}

fn may_grow(event: &Event) -> bool {
    matches!(event, Event::Text(_) | Event::Thought(_) | Event::ToolCall(_))
}

/// Puts `next` into `pending` if they belong together.
fn join(pending: &mut Event, next: &Event) -> bool {
    match (pending, next) {
        (Event::Text(pending), Event::Text(next))
        | (Event::Thought(pending), Event::Thought(next))
            if pending.message == next.message =>
        {
            pending.text.push_str(&next.text);
            true
        }
        (Event::ToolCall(pending), Event::ToolCall(next)) if pending.id == next.id => {
            *pending = next.clone();
            true
        }
        _ => false,
    }
}

/// Cuts a text that is too long, and returns the rest of it.
fn split(record: &mut Record, unfinished: fn(&str) -> usize) -> Option<Record> {
    let (Event::Text(Piece { text, .. })
    | Event::Thought(Piece { text, .. })
    | Event::Told { text, .. }
    | Event::Prompted { text }) = &mut record.event
    else {
        return None;
    };
    if text.len() <= RECORD_TEXT_BYTES_MAX {
        return None;
    }
    let end = text.floor_char_boundary(RECORD_TEXT_BYTES_MAX);
    let whole = end.saturating_sub(unfinished(&text[..end]));
    let rest = text.split_off(if whole > 0 { whole } else { end });
    let mut event = record.event.clone();
    if let Event::Text(Piece { text, .. })
    | Event::Thought(Piece { text, .. })
    | Event::Told { text, .. }
    | Event::Prompted { text } = &mut event
    {
        *text = rest;
    }
    Some(Record::new(record.at_ms, event))
}

#[cfg(test)]
mod tests;
