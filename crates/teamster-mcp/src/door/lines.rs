//! The lines door: MCP as messages on lines, which is what clients speak over stdio.
//!
//! A connection comes in by the HTTP door, on TCP or on the unix socket, and asks to go on as lines (`Upgrade: mcp`).
//! So it has passed the same guard, token and path as every other request; `teamster mcp` then only copies bytes. An
//! operator may open a connection for an agent (`Teamster-As`): the agent's token is made for the connection, is never
//! told to anyone, and ends with it.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize;
use teamster_core::token::{self, Kind, NewToken, Token};
use teamster_core::{Caller, Command, PrincipalName, TeamName};
use tokio_util::sync::CancellationToken;

use super::http::{BODY_BYTES_MAX, Newcomer, Served, problem, token_ended};
use super::paced::Paced;
use super::rmcp::{Adapter, Admitted};
use crate::access::parse_grants;
use crate::hub::Failure;
use crate::scope::Scope;

/// What the connection is asked to become.
const PROTOCOL: &str = "mcp";

/// The header by which an operator opens a connection for an agent.
pub const AS_HEADER: &str = "teamster-as";

/// Whom an operator opens a connection for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct As {
    /// What the agent is called; a number is added if that name is taken.
    name: String,
    grants: Vec<String>,
    team: Option<String>,
}

pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()))
}

/// Turns the connection into lines and serves it until it ends, its token ends, or the hub does.
pub(super) async fn serve(
    served: Arc<Served>,
    mut request: Request,
    token: Arc<Token>,
    scope: Scope,
) -> Response {
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return problem(StatusCode::BAD_REQUEST, "this connection cannot be upgraded");
    };
    let opened_for = match request.headers().get(AS_HEADER) {
        None => None,
        Some(asked) => match open_for(&served, &token, &scope, asked.as_bytes()).await {
            Ok(agent) => Some(agent),
            Err((status, message)) => return problem(status, &message),
        },
    };
    let served_token = opened_for.clone().unwrap_or(token);
    let place = request.extensions_mut().remove::<Newcomer>();
    let connection = served.clone();
    served.service.spawn(
        "serve lines",
        served.lines().track_future(async move {
            if let Ok(upgraded) = upgrade.await {
                let (read, write) = tokio::io::split(TokioIo::new(upgraded));
                let read = Paced::new(read, connection.clone(), served_token.clone());
                let transport =
                    AsyncRwTransport::new(read, write).with_max_line_length(BODY_BYTES_MAX);
                let asked = Admitted { token: served_token.clone(), scope, key: None };
                let adapter = Adapter::for_connection(connection.clone(), asked);
                tokio::select! {
                    () = serve_transport(adapter, transport, connection.service.streams_ended().child_token()) => {}
                    () = token_ended(&connection, &served_token) => {}
                }
            }
            drop(place);
            if let Some(agent) = opened_for {
                end(&connection, &agent).await;
            }
        }),
    );
    let to = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, to).into_response()
}

/// Serves the connection until it ends, or until the hub does and the calls under way are answered.
async fn serve_transport<R, W>(
    adapter: Adapter,
    transport: AsyncRwTransport<rmcp::RoleServer, R, W>,
    hub_ends: CancellationToken,
) where
    R: tokio::io::AsyncRead + Send + Unpin + 'static,
    W: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    match rmcp::service::serve_server_with_ct(adapter, transport, hub_ends).await {
        Ok(running) => {
            // How it ended says only that it did.
            let _ = running.waiting().await;
        }
        Err(error) => tracing::info!(%error, "a connection of lines did not begin as MCP"),
    }
}

/// Makes the token of the agent that an operator opens the connection for.
async fn open_for(
    served: &Served,
    operator: &Token,
    scope: &Scope,
    asked: &[u8],
) -> Result<Arc<Token>, (StatusCode, String)> {
    let bad = |message: String| (StatusCode::BAD_REQUEST, message);
    if !operator.kind.is_operator() {
        return Err((
            StatusCode::FORBIDDEN,
            "only an operator opens a connection for another".into(),
        ));
    }
    let asked: As =
        serde_json::from_slice(asked).map_err(|error| bad(format!("{AS_HEADER}: {error}")))?;
    let grants = parse_grants(&served.service.catalogue, &asked.grants).map_err(bad)?;
    let team = asked
        .team
        .as_deref()
        .map(TeamName::parse)
        .transpose()
        .map_err(|error| bad(error.to_string()))?;
    let run = scope.names_run.then(|| scope.run.clone());
    let tokens = served.service.hub.state().tokens.clone();
    let plain = PrincipalName::parse(&asked.name).map_err(|error| bad(error.to_string()))?;
    let principal = if tokens.by_principal(&plain).is_none() {
        plain
    } else {
        let numbered = format!("{plain}-{}", tokens.next_id().0);
        PrincipalName::parse(&numbered).map_err(|error| bad(error.to_string()))?
    };
    let secret = (served.secrets.hash)(&(served.secrets.new)());
    let new =
        NewToken { principal, kind: Kind::Agent, secret, grants, run, team, expires_at: None };
    let create = Command::Token(token::Command::Create { new, replace: false });
    let done =
        served.service.hub.submit(Caller::of(operator), create, None).await.map_err(|failure| {
            match failure {
                Failure::Refused(refusal) => (StatusCode::CONFLICT, refusal.to_string()),
                Failure::Unavailable(why) | Failure::Unknown(why) => {
                    (StatusCode::SERVICE_UNAVAILABLE, why)
                }
            }
        })?;
    let made = done.state.tokens.by_secret(&secret).cloned();
    made.ok_or_else(|| (StatusCode::GONE, "the token was revoked at once".into()))
}

/// Ends the token of a connection that is over; what its agent had in progress returns to the list.
async fn end(served: &Served, agent: &Token) {
    let revoke = Command::Token(token::Command::Revoke { which: agent.id.to_string() });
    if let Err(failure) = served.service.hub.submit(Caller::hub(), revoke, None).await {
        tracing::info!(token = %agent.id, %failure, "the token of an ended connection was not revoked");
    }
}
