//! How the table of paths is served: every request is read, keyed and answered in one place.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::StatusCode;
use teamster_api::{
    ApiError, Code, Endpoint, ErrorBody, KEY_HEADER, LIMIT_DEFAULT, LIMIT_MAX, Method, Page, fields,
};
use teamster_core::key::Key;
use teamster_core::token::Token;
use teamster_core::{Caller, Command, text};
use teamster_mcp::hub::{Done, Failure};

use super::Api;

/// A request that was read.
pub(super) struct ApiRequest<E: Endpoint> {
    pub(super) by: Operator,
    /// The parameter of the path.
    pub(super) param: String,
    pub(super) query: E::Query,
    pub(super) body: E::Body,
}

pub(super) type Answered<E> = Result<<E as Endpoint>::Answer, ApiError>;

/// The operator that sent a request, and the key that makes it repeatable.
pub(super) struct Operator {
    pub(super) api: Api,
    pub(super) token: Arc<Token>,
    key: Option<Key>,
}

impl Operator {
    /// Has the hub carry out a command, once for each key. A handler submits at most one command.
    pub(super) async fn submit(&self, command: Command) -> Result<Done, ApiError> {
        let done = self.api.hub.submit(Caller::of(&self.token), command, self.key.clone()).await;
        done.map_err(failed)
    }

    /// Says whether the command was carried out before. Then it is not checked again: it may stand in its own way.
    pub(super) fn is_repeated(&self) -> bool {
        let state = self.api.hub.state();
        self.key.as_ref().is_some_and(|key| state.remembers(&self.token.principal, key))
    }
}

pub(super) fn failed(failure: Failure) -> ApiError {
    let code = match failure {
        Failure::Refused(_) => Code::Refused,
        Failure::Unavailable(_) => Code::Unavailable,
        Failure::Unknown(_) => Code::UnknownOutcome,
    };
    ApiError::new(code, failure.to_string())
}

/// Reports a fault of the hub or its disk.
pub(super) fn internal(error: impl ToString) -> ApiError {
    ApiError::new(Code::Internal, error.to_string())
}

/// Says that a value cannot be.
pub(super) fn invalid(error: impl ToString) -> ApiError {
    ApiError::invalid(error.to_string())
}

pub(super) trait Serve {
    /// Binds the handler of a row.
    fn serve<E, F, A>(self, handler: F) -> Self
    where
        E: Endpoint,
        F: Fn(ApiRequest<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Answered<E>> + Send;
}

impl Serve for Router<Api> {
    fn serve<E, F, A>(self, handler: F) -> Self
    where
        E: Endpoint,
        F: Fn(ApiRequest<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Answered<E>> + Send,
    {
        let answer = move |State(api): State<Api>,
                           Extension(token): Extension<Arc<Token>>,
                           request: Request| {
            let handler = handler.clone();
            async move {
                let answered = match read::<E>(api, token, request).await {
                    Ok(asked) => handler(asked).await,
                    Err(error) => return problem(error),
                };
                match answered {
                    Ok(answer) => Json(answer).into_response(),
                    Err(error) => problem(naming_fields::<E>(error)),
                }
            }
        };
        let method = match E::METHOD {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Delete => MethodFilter::DELETE,
        };
        self.route(E::PATH, on(method, answer))
    }
}

async fn read<E: Endpoint>(
    api: Api,
    token: Arc<Token>,
    request: Request,
) -> Result<ApiRequest<E>, ApiError> {
    let (mut parts, body) = request.into_parts();
    let param = match E::PATH.contains('{') {
        true => {
            let read = Path::<String>::from_request_parts(&mut parts, &api).await;
            read.map_err(|wrong: PathRejection| rejected(wrong.status(), wrong.body_text()))?.0
        }
        false => String::new(),
    };
    let query = Query::<E::Query>::from_request_parts(&mut parts, &api).await;
    let Query(query) =
        query.map_err(|wrong: QueryRejection| rejected(wrong.status(), wrong.body_text()))?;
    let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), &api).await;
    let bytes =
        bytes.map_err(|wrong: BytesRejection| rejected(wrong.status(), wrong.body_text()))?;
    let key = match parts.headers.get(KEY_HEADER).filter(|_| E::METHOD.is_command()) {
        Some(key) => {
            let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
            let call = [E::METHOD.as_str().as_bytes(), b" ", target.as_bytes(), b" ", &bytes];
            let print = text::fingerprint(call.into_iter().flatten().copied());
            Some(Key::new(key.to_str().unwrap_or_default(), print).map_err(invalid)?)
        }
        None => None,
    };
    let body = match E::HAS_BODY {
        true => Json::from_request(Request::from_parts(parts, Body::from(bytes)), &api).await,
        // A row without a body takes anything, as HTTP does.
        false => Json::from_bytes(b"{}"),
    };
    let Json(body) = body.map_err(unreadable)?;
    Ok(ApiRequest { by: Operator { api, token, key }, param, query, body })
}

fn rejected(status: StatusCode, says: String) -> ApiError {
    ApiError::new(Code::of_status(status.as_u16()), says)
}

/// Says what is wrong with a body, and in which field.
fn unreadable(wrong: JsonRejection) -> ApiError {
    let error = rejected(wrong.status(), wrong.body_text());
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&wrong);
    while let Some(one) = source {
        if let Some(at) = one.downcast_ref::<serde_path_to_error::Error<serde_json::Error>>() {
            let path = at.path().to_string();
            return if path == "." { error } else { error.with_field(path) };
        }
        source = one.source();
    }
    error
}

/// Adds the fields that the sentences of an error name.
fn naming_fields<E: Endpoint>(error: ApiError) -> ApiError {
    let says = format!("{} {}", error.message, error.hint.as_deref().unwrap_or_default());
    let known = fields::<E::Body>().into_iter().chain(fields::<E::Query>());
    let named = known.filter(|field| says.contains(&format!("`{field}`")));
    named.fold(error, ApiError::with_field)
}

pub(super) fn problem(error: ApiError) -> Response {
    let status = StatusCode::from_u16(error.code.status());
    (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(ErrorBody { error })).into_response()
}

/// Returns one page of a list. `id` tells its items apart.
pub(super) fn page<T, U>(
    seq: u64,
    all: impl Iterator<Item = T>,
    id: impl Fn(&T) -> String,
    shown: impl FnMut(T) -> U,
    (limit, cursor): (Option<u32>, Option<&str>),
) -> Result<Page<U>, ApiError> {
    let limit = match limit.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => limit as usize,
        _ => return Err(invalid(format!("`limit` is a number from 1 to {LIMIT_MAX}"))),
    };
    let (n_before, last) = match cursor.map(|cursor| cursor.split_once('.')) {
        None => (0, None),
        Some(Some((n, last))) if n.parse::<usize>().is_ok() => {
            (n.parse().unwrap_or_default(), Some(last))
        }
        Some(_) => {
            let error = invalid("`cursor` is not one that the hub gave");
            return Err(error.with_hint("leave it out to read from the beginning"));
        }
    };
    let all: Vec<T> = all.collect();
    // The list may have changed since the page before; if its last item is gone, its place is still known.
    let after = last.and_then(|last| all.iter().position(|one| id(one) == last));
    let first = after.map_or(n_before, |after| after + 1).min(all.len());
    let end = (first + limit).min(all.len());
    let next = (end < all.len()).then(|| format!("{end}.{}", id(&all[end - 1])));
    let items = all.into_iter().skip(first).take(limit).map(shown).collect();
    Ok(Page { items, next, seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        all: &[&str],
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Page<String>, ApiError> {
        page(7, all.iter(), ToString::to_string, |one| (*one).to_owned(), (limit, cursor))
    }

    #[test]
    fn pages_follow_each_other_though_the_list_changes() {
        let first = read(&["a", "b", "c", "d", "e"], Some(2), None).unwrap();
        assert_eq!((first.items.join(""), first.seq), ("ab".to_owned(), 7));
        let next = first.next.unwrap();
        for (now, expected) in [
            (&["a", "b", "c", "d", "e"][..], "cd"),
            (&["new", "a", "b", "c", "d"][..], "cd"),
            (&["a", "c", "d", "e"][..], "de"),
            (&["b", "c"][..], "c"),
            (&["a", "b"][..], ""),
            (&[][..], ""),
        ] {
            assert_eq!(
                read(now, Some(2), Some(&next)).unwrap().items.join(""),
                expected,
                "{now:?}"
            );
        }
        assert_eq!(read(&["a", "b"], Some(2), None).unwrap().next, None);
    }

    #[test]
    fn a_limit_or_cursor_that_cannot_be_is_refused() {
        for (limit, cursor) in
            [(Some(0), None), (Some(LIMIT_MAX + 1), None), (None, Some("x")), (None, Some("x.y"))]
        {
            assert_eq!(read(&["a"], limit, cursor).unwrap_err().code, Code::Invalid);
        }
    }
}
