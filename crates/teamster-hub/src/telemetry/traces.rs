//! Spans for a collector that speaks OTLP, if one is configured: one for each tool call, in the trace that its caller said.
//!
//! A span is made when its call is over, from what was observed. It waits in a bounded queue of OpenTelemetry's, whose own
//! thread hands batches to [`Courier`]; what does not fit is dropped. So nobody waits for the collector, whatever it does.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::TryFutureExt;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, StringValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use teamster_mcp::observe::{How, Observed};
use teamster_mcp::trace::Trace;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::callers::Whose;
use crate::clock;
use crate::settings::CollectorUrl;
use crate::tasks;
use teamster_api::shake_hands;

/// How long the collector may take for one batch.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a hub that ends waits for the last batches.
const PATIENCE_AT_END: Duration = Duration::from_secs(2);
/// As much as is read of the collector's answer, which says what it did not like.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans go.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    failures: Arc<Failures>,
}

impl Traces {
    /// Gets ready to send spans; nothing is connected before there is one. It must be called within the runtime that is to
    /// send them.
    pub fn to(collector: &CollectorUrl) -> anyhow::Result<Self> {
        let endpoint = format!("{}/v1/traces", collector.as_str().trim_end_matches('/'));
        let failures = Arc::new(Failures::default());
        let courier = Courier { runtime: Handle::current(), failures: failures.clone() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(courier)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(PATIENCE)
            .build()
            .context("cannot send spans")?;
        let resource = Resource::builder()
            .with_service_name("teamster")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("teamster");
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new(), failures })
    }

    /// Makes a span of a call that has just ended.
    pub(super) fn called(&self, call: &Observed<'_>, agent: Option<&Whose>) {
        let (set, name) = match call.entry {
            Some(entry) => (entry.set.name(), entry.name),
            None => (super::UNKNOWN.set, super::UNKNOWN.name),
        };
        let principal = call.token.principal.as_str();
        let mut attributes = vec![
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", name),
            KeyValue::new("teamster.set", set),
            KeyValue::new("teamster.principal", principal.to_owned()),
            KeyValue::new("teamster.outcome", call.how.as_str()),
        ];
        if let Some(Whose { id, role, .. }) = agent {
            let text = |text: &str| StringValue::from(text.to_owned());
            attributes.push(KeyValue::new("teamster.agent", text(id.as_str())));
            attributes.push(KeyValue::new("teamster.role", text(role.as_str())));
        }
        let wrong = match call.how {
            How::Ok => None,
            How::Refused => Some("tool_error"),
            How::Failed => Some("failed"),
            How::Abandoned => Some("abandoned"),
        };
        attributes.extend(wrong.map(|wrong| KeyValue::new("error.type", wrong)));

        let ended = clock::wall();
        let began = ended.checked_sub(call.took).unwrap_or(ended);
        let parent = self.propagator.extract_with_context(&Context::new(), &Carrier(call.trace));
        let builder = self
            .tracer
            .span_builder(format!("tools/call {name}"))
            .with_kind(SpanKind::Server)
            .with_start_time(began)
            .with_attributes(attributes);
        let mut span = self.tracer.build_with_context(builder, &parent);
        if wrong.is_some() {
            span.set_status(Status::Error { description: Cow::Borrowed("") });
        }
        span.end_with_timestamp(ended);
    }

    /// Returns how often spans could not be sent.
    pub(super) fn n_failures(&self) -> u64 {
        self.failures.n.load(Ordering::Relaxed)
    }

    /// Sends what is left.
    pub(super) async fn end(&self) {
        let provider = self.provider.clone();
        let ended =
            tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(PATIENCE_AT_END));
        if let Ok(Err(error)) = ended.await {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// What a caller said of its trace, as OpenTelemetry asks for it.
struct Carrier<'a>(&'a Trace);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.parent.as_deref(),
            "tracestate" => self.0.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// Whether spans can be sent. That they cannot is said once, and once that they can again.
#[derive(Debug, Default)]
struct Failures {
    n: AtomicU64,
    is_failing: AtomicBool,
}

impl Failures {
    fn note(&self, sent: &anyhow::Result<Response<Bytes>>) {
        let why = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(format!("{error:#}")),
        };
        let was_failing = self.is_failing.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) => {
                self.n.fetch_add(1, Ordering::Relaxed);
                if !was_failing {
                    tracing::warn!(why, "the collector does not take spans; they are dropped");
                }
            }
            None if was_failing => tracing::info!("the collector takes spans again"),
            None => {}
        }
    }
}

/// Carries batches to the collector, on a connection for each: there is one every few seconds.
#[derive(Debug)]
struct Courier {
    runtime: Handle,
    failures: Arc<Failures>,
}

#[async_trait::async_trait]
impl HttpClient for Courier {
    /// It is called on a thread of OpenTelemetry's that has no runtime, so ours does the work.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (tell, told) = oneshot::channel();
        let failures = self.failures.clone();
        let deliver = async move {
            let patience = tokio::time::timeout(PATIENCE, deliver(request));
            let sent = patience.map_err(|_| anyhow::anyhow!("it does not answer")).await;
            let sent = sent.flatten();
            failures.note(&sent);
            let _ = tell.send(sent);
        };
        {
            let _within = self.runtime.enter();
            tasks::spawn("send spans", deliver);
        }
        Ok(told.await??)
    }
}

async fn deliver(mut request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let authority = request.uri().authority().context("the collector's URL has no host")?.clone();
    let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("cannot connect to {authority}"))?;
    let mut connection = shake_hands(stream).await?;
    let host = HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>()?;
    *request.uri_mut() = path;
    let (parts, body) = connection.send_request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|_| anyhow::anyhow!("its answer cannot be read"))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}
