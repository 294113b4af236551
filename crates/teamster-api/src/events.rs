//! The stream of events: `GET /api/events`, as server-sent events (`text/event-stream`).
//!
//! A reader that lost the connection continues with the header `Last-Event-ID`, as browsers do by themselves. The hub
//! keeps nothing for a reader: it reads the log again for each, as fast as the reader takes it.

use anyhow::{Context, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Method, Row};
use crate::error::Lost;
use crate::log::LogPage;

/// Where the stream is.
pub const PATH: &str = "/api/events";

/// The header that says where to continue.
pub const LAST_ID_HEADER: &str = "last-event-id";

/// Maximum bytes of one event. A commit is smaller.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The stream, as a row of the table.
pub(crate) const ROW: Row = Row {
    noun: "Events",
    name: "follow_events",
    method: Method::Get,
    path: PATH,
    says: "Streams what happens, as server-sent events, from the beginning or after a commit. The id of an event is the \
           number of a commit; send it as `Last-Event-ID` to continue there.",
    param: None,
    query: Some(|generator| generator.subschema_for::<FollowEvents>()),
    body: None,
    answer: |generator| generator.subschema_for::<Event>(),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FollowEvents {
    /// The number of the last commit that the caller has; 0 streams from the beginning. The header `Last-Event-ID` goes
    /// before it.
    #[serde(default)]
    pub after: u64,
}

/// One event of the stream: its name and its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// A commit of the log. Only these have an id.
    Log(LogPage),
    /// An agent's transcript has new records; read them from the agent's transcript.
    Transcript(Grown),
    /// The reader has everything up to this commit. It is sent once for each time that the reader has caught up.
    Current(Reached),
    /// Commits were left out: the reader was too slow, or it named a commit that this log does not have. It reads what it
    /// needs again, then continues with the stream.
    Missed(Missed),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Grown {
    /// The id of the agent.
    pub agent: String,
    /// The number of the last record.
    pub last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reached {
    /// The number of the last commit.
    pub last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Missed {
    /// The number of the last commit that was sent; 0 if the log is not the one that the reader knows.
    pub after: u64,
    /// The number of the last commit that was left out.
    pub up_to: u64,
}

impl Event {
    /// Returns its name and its data, as they are sent.
    pub fn parts(&self) -> anyhow::Result<(String, String)> {
        let mut value = serde_json::to_value(self)?;
        let name = value["event"].as_str().unwrap_or_default().to_owned();
        Ok((name, value["data"].take().to_string()))
    }

    /// Reads one, unless it is of a kind that only a newer hub knows.
    fn read(name: &str, data: &str) -> anyhow::Result<Option<Self>> {
        let data: serde_json::Value = serde_json::from_str(data)?;
        let known = matches!(name, "log" | "transcript" | "current" | "missed");
        let read = || serde_json::from_value(serde_json::json!({"event": name, "data": data}));
        Ok(if known { Some(read()?) } else { None })
    }
}

/// A stream that is being read.
pub struct Events {
    body: Incoming,
    read: BytesMut,
}

impl Events {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// Returns the next event; none when the hub has ended the stream. Fails with [`Lost`] when it is cut off.
    pub async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(block) = take_block(&mut self.read) {
                if let Some(event) = understand(&block)? {
                    return Ok(Some(event));
                }
            }
            if self.read.len() > EVENT_BYTES_MAX {
                bail!("an event of the hub has no end");
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.context(Lost::CutOff)?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// Takes the lines up to the next empty one.
fn take_block(read: &mut BytesMut) -> Option<Bytes> {
    let end = read.windows(2).position(|two| two == b"\n\n")?;
    let block = read.split_to(end).freeze();
    read.advance(2);
    Some(block)
}

fn understand(block: &[u8]) -> anyhow::Result<Option<Event>> {
    let text = std::str::from_utf8(block).context("the hub's stream is not text")?;
    let (mut name, mut data) = ("", String::new());
    for line in text.lines() {
        // A line that begins with a colon keeps the connection alive.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value,
            "data" => data.push_str(value),
            _ => {}
        }
    }
    if data.is_empty() { Ok(None) } else { Event::read(name, &data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_whatever_the_pieces_it_comes_in() {
        let text = ": hello\n\nevent: current\ndata: {\"last\":3}\n\nevent: later\ndata: {}\n\nid: 4\nevent: log\n\
                    data: {\"lines\":[],\"last\":4}\n\nevent: log\ndata: {";
        for size in 1..text.len() {
            let (mut read, mut events) = (BytesMut::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                read.extend_from_slice(piece);
                while let Some(block) = take_block(&mut read) {
                    events.extend(understand(&block).unwrap());
                }
            }
            let log = Event::Log(LogPage { lines: Vec::new(), last: 4 });
            assert_eq!(events, [Event::Current(Reached { last: 3 }), log], "{size}");
        }
    }

    #[test]
    fn an_event_is_read_as_it_is_sent() {
        let event = Event::Transcript(Grown { agent: "coder-1".into(), last: 7 });
        let (name, data) = event.parts().unwrap();
        assert_eq!(
            (name.as_str(), data.as_str()),
            ("transcript", r#"{"agent":"coder-1","last":7}"#)
        );
        assert_eq!(Event::read(&name, &data).unwrap(), Some(event));
    }
}
