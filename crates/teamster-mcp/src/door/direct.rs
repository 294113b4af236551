//! The second adapter: it answers the plain `tools/list` and `tools/call` of the current era without rmcp, which builds
//! and runs a service for each request and spends most of a call's time on that.
//!
//! It recognises strictly. What it does not know in every part it leaves alone, before anything has happened, and then
//! rmcp answers it: other methods, other eras, other headers, questions and their answers, calls that wait or that report
//! progress, and everything that is wrong with a request. Requests and answers are rmcp's own types wherever their form
//! could differ; `tests/it/fuzz/both_adapters.rs` shows that nobody can tell the two adapters apart.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use rmcp::model::{
    ErrorCode, ErrorData, JsonObject, ProtocolVersion, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::http::{Served, problem};
use super::rmcp::{Admitted, declared_by, key_of, listed, response_of};
use super::strict;
use crate::call::Request;
use crate::catalogue::Catalogue;
use crate::dispatch;
use crate::trace::Trace;

/// A request that this adapter may answer. Anything more in it, or twice, is not for us.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    jsonrpc: &'a str,
    id: RequestId,
    method: &'a str,
    #[serde(borrow, deserialize_with = "object")]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(rename = "_meta", deserialize_with = "strict::object")]
    meta: JsonObject,
    name: Option<&'a str>,
    #[serde(default, deserialize_with = "strict::optional_object")]
    arguments: Option<JsonObject>,
}

/// Reads an object and nothing else: serde would also read an array as the fields in their order.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    from.deserialize_map(Object(PhantomData))
}

/// Says whether this adapter can serve these tools: the headers that mirror a tool's arguments are left to rmcp.
pub(super) fn serves(catalogue: &Catalogue) -> bool {
    let mirrors = |schema: &JsonObject| {
        serde_json::to_string(schema).is_ok_and(|schema| schema.contains("\"x-mcp-header\""))
    };
    !catalogue.entries().iter().any(|entry| mirrors(&entry.schema))
}

/// Answers a request, or leaves it to rmcp.
pub(super) async fn answer(
    served: &Arc<Served>,
    asked: &Admitted,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Response> {
    if !are_plain(headers) {
        return None;
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let message: Message<'_> = object(&mut reader).ok()?;
    reader.end().ok()?;
    let Message { jsonrpc: "2.0", id, method, params } = message else { return None };
    if only(headers, "mcp-method") != Some(method) {
        return None;
    }
    let Params { meta, name, arguments } = params;
    let meta = RequestMetaObject::from(meta);
    if meta.protocol_version() != Some(ProtocolVersion::V_2026_07_28)
        || meta.contains_key("progressToken")
    {
        return None;
    }
    let client = declared_by(&meta.client_capabilities()?);
    match (method, name) {
        ("tools/list", None) if arguments.is_none() => {
            Some(answered(id, Ok(ServerResult::ListToolsResult(listed(served, asked)))))
        }
        ("tools/call", Some(name)) if only(headers, "mcp-name") == Some(name) => {
            let entry = served
                .service
                .catalogue
                .find(asked.scope.set, name)
                .filter(|entry| !entry.waits)?;
            // The door let it in, but it may have ended while the body came.
            let token = served.service.hub.state().tokens.get(asked.token.id).cloned()?;
            let call = Request {
                name: entry.name.into(),
                arguments: arguments.unwrap_or_default(),
                key: key_of(&meta, asked),
                client,
                trace: Trace::of(|name| meta.get(name)),
                ..Request::default()
            };
            let called = dispatch::call(&served.service, &token, &asked.scope, call, None).await;
            Some(answered(id, response_of(called).map(ServerResult::from)))
        }
        _ => None,
    }
}

/// Says whether these are the headers of a plain request of the current era.
fn are_plain(headers: &HeaderMap) -> bool {
    let first = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accept = first(ACCEPT);
    only(headers, "mcp-protocol-version") == Some(ProtocolVersion::V_2026_07_28.as_str())
        && accept.contains("application/json")
        && accept.contains("text/event-stream")
        && first(CONTENT_TYPE).starts_with("application/json")
        && !headers.contains_key("mcp-session-id")
}

/// Returns the value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let (only, None) = (values.next()?, values.next()) else { return None };
    only.to_str().ok()
}

/// Writes an answer as rmcp does, with the status that it gives to what can go wrong with such a request.
fn answered(id: RequestId, result: Result<ServerResult, ErrorData>) -> Response {
    let (status, message) = match result {
        Ok(result) => (StatusCode::OK, ServerJsonRpcMessage::response(result, id)),
        Err(error) => {
            let status = match error.code {
                ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => StatusCode::BAD_REQUEST,
                _ => StatusCode::OK,
            };
            (status, ServerJsonRpcMessage::error(error, Some(id)))
        }
    };
    match serde_json::to_vec(&message) {
        Ok(message) => {
            let mut response = Response::new(Body::from(message));
            *response.status_mut() = status;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written")
        }
    }
}
