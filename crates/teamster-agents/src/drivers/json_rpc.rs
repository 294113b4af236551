//! JSON-RPC, as far as agents speak it: one message on a line, no batches.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::{ID_BYTES_MAX, LABEL_BYTES_MAX, clipped};

pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;

#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request { id: Box<RawValue>, method: Cow<'a, str>, params: &'a str },
    Notification { method: Cow<'a, str>, params: &'a str },
    Answer { id: &'a str, outcome: Result<&'a str, Failure> },
}

/// The error of an answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    #[serde(default)]
    pub(crate) code: i64,
    #[serde(default)]
    message: String,
    data: Option<Value>,
}

/// The message, and what else there is: programs like to hide the reason in the data.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, message, data } = self;
        match message.as_str() {
            "" => write!(f, "error {code}")?,
            message => f.write_str(message)?,
        }
        let said = ["details", "message", "error"]
            .iter()
            .find_map(|key| data.as_ref()?.get(key)?.as_str())
            .or(data.as_ref().and_then(Value::as_str));
        match (said, data) {
            (Some(said), _) if said == message => Ok(()),
            (Some(said), _) => write!(f, ": {said}"),
            (None, None | Some(Value::Null)) => Ok(()),
            (None, Some(data)) => write!(f, ": {data}"),
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Tells `null` from nothing at all: some answers are `null`.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// Reads a line, or says what is wrong with it.
pub(crate) fn parse(line: &[u8]) -> Result<Message<'_>, String> {
    let shown = || clipped(String::from_utf8_lossy(line), LABEL_BYTES_MAX);
    // A list could be read as a message, too, field by field.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(format!("not a message: {}", shown()));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line)
        .map_err(|error| format!("not a message ({error}): {}", shown()))?;
    let params = envelope.params.map_or("null", RawValue::get);
    let id = match envelope.id {
        Some(id) if id.get().len() > ID_BYTES_MAX || id.get().starts_with(['{', '[']) => {
            return Err(format!("not an id: {}", shown()));
        }
        id => id,
    };
    match (envelope.method, id) {
        (Some(method), Some(id)) => Ok(Message::Request { id: id.to_owned(), method, params }),
        (Some(method), None) => Ok(Message::Notification { method, params }),
        (None, Some(id)) => {
            let outcome = match (envelope.error, envelope.result) {
                (Some(error), _) => Err(failure(error)),
                (None, Some(result)) => Ok(result.get()),
                (None, None) => return Err(format!("neither question nor answer: {}", shown())),
            };
            Ok(Message::Answer { id: id.get(), outcome })
        }
        (None, None) => Err(format!("neither question nor answer: {}", shown())),
    }
}

fn failure(error: &RawValue) -> Failure {
    serde_json::from_str(error.get()).unwrap_or_else(|_| Failure {
        code: 0,
        message: clipped(error.get(), LABEL_BYTES_MAX),
        data: None,
    })
}

pub(crate) fn request<'a>(
    id: u64,
    method: &'a str,
    params: &'a impl Serialize,
) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    Request { jsonrpc: "2.0", id, method, params }
}

pub(crate) fn notification<'a>(method: &'a str, params: &'a impl Serialize) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a P,
    }
    Notification { jsonrpc: "2.0", method, params }
}

pub(crate) fn answer<'a>(id: &'a RawValue, result: &'a impl Serialize) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Answer<'a, R> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a R,
    }
    Answer { jsonrpc: "2.0", id, result }
}

pub(crate) fn error<'a>(id: &'a RawValue, code: i64, message: &'a str) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Answer<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        error: Error<'a>,
    }
    #[derive(Serialize)]
    struct Error<'a> {
        code: i64,
        message: &'a str,
    }
    Answer { jsonrpc: "2.0", id, error: Error { code, message } }
}
