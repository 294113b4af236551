//! What people's programs ask of the hub beside the tools: tokens, the log, how things stand. Operators only, but for the
//! metrics, which a token can be granted.

mod agents;
mod configuration;
mod conversations;
mod events;
mod log;
mod questions;
mod runs;
mod serving;
mod shapes;
mod stands;
mod status;
mod teams;
mod tells;
mod tokens;
mod top;
mod waiting;
mod yaks;

pub use self::agents::ENDED_PAGE;
pub use self::log::lines;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use http::{Method, StatusCode, header};
use teamster_api::{ApiError, Code};
use teamster_core::grant::Grant;
use teamster_core::token::Token;
use teamster_log::Log;
use teamster_mcp::door::http::{problem, wrong_method};
use tokio::sync::watch;

use crate::agents::{Configured, Live, Queue};
use crate::clock::Clock;
use crate::hub::Handle;
use crate::isolation::Standing;
use crate::telemetry::{self, Telemetry};

/// What the routes need.
#[derive(Clone)]
pub struct Api {
    pub hub: Handle,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// Set to true to end the hub.
    pub stop: watch::Sender<bool>,
    /// Which agents' transcripts grow.
    pub live: Live,
    /// What agents wait for.
    pub queue: Queue,
    pub telemetry: Arc<Telemetry>,
    pub configured: Arc<Configured>,
    /// How agents are isolated.
    pub standing: Standing,
}

pub fn router(api: Api) -> Router {
    Router::new()
        .merge(agents::routes())
        .merge(configuration::routes())
        .merge(conversations::routes())
        .merge(events::routes())
        .merge(log::routes())
        .merge(questions::routes())
        .merge(runs::routes())
        .merge(status::routes())
        .merge(teams::routes())
        .merge(tells::routes())
        .merge(tokens::routes())
        .merge(top::routes())
        .merge(yaks::routes())
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn(operators_only))
        .merge(metrics_route())
        .with_state(api)
}

async fn operators_only(
    Extension(token): Extension<Arc<Token>>,
    request: Request,
    next: Next,
) -> Response {
    match token.kind.is_operator() {
        true => next.run(request).await,
        false => serving::problem(ApiError::new(Code::Forbidden, "only an operator may do this")),
    }
}

async fn no_such_method(method: Method) -> Response {
    let says = format!("this path does not answer {method}; the Allow header says what it does");
    serving::problem(ApiError::new(Code::MethodNotAllowed, says))
}

/// Returns the route that Prometheus reads.
fn metrics_route() -> Router<Api> {
    Router::new().route("/metrics", get(metrics)).method_not_allowed_fallback(wrong_method)
}

/// It tells names of agents and roles, so not every agent may read it.
async fn metrics(State(api): State<Api>, Extension(token): Extension<Arc<Token>>) -> Response {
    let may = token.kind.is_operator() || token.grants.has(&Grant::Metrics);
    if !may {
        let message = "reading the metrics needs the grant `metrics`, or the operator's token";
        return problem(StatusCode::FORBIDDEN, message);
    }
    let kind = [(header::CONTENT_TYPE, telemetry::metrics::CONTENT_TYPE)];
    (kind, api.telemetry.metrics()).into_response()
}
