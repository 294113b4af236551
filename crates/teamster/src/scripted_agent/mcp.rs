//! Calls tools of the session's MCP server, in the current era: one request, one answer, nothing kept.

use std::time::Duration;

use agent_client_protocol_schema::v1::McpServerHttp;
use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use tokio::net::TcpStream;

use teamster_api::{failure, shake_hands, tool_call, tool_call_headers, tool_result};

/// A result with more is refused: scripts look up a word in it, and the session keeps it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// A little longer than the longest `max_wait_s` of a program.
const PATIENCE: Duration = Duration::from_secs(3_700);

#[derive(Debug)]
pub(super) struct Server(McpServerHttp);

impl Server {
    pub(super) fn new(server: McpServerHttp) -> Self {
        Self(server)
    }

    /// Returns the text of the tool's result, and whether it failed.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<(String, bool)> {
        let Self(McpServerHttp { url, headers, .. }) = self;
        let url: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let authority = url.authority().context("the MCP server's URL has no host")?;
        if url.scheme_str() != Some("http") {
            bail!("{url} is not plain http, and nothing else is spoken");
        }
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, authority.as_str())
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in tool_call_headers(tool) {
            request = request.header(name, value);
        }
        for header in headers {
            request = request.header(&header.name, &header.value);
        }
        let body = tool_call(tool, arguments, None).to_string();
        let request = request.body(Full::new(Bytes::from(body)))?;
        let address = (authority.host(), authority.port_u16().unwrap_or(80));
        let exchange = async {
            let stream = TcpStream::connect(address).await?;
            let response = shake_hands(stream).await?.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!(error))?.to_bytes();
            let answer = answer(&body).with_context(|| format!("it answered {status}"))?;
            match (tool_result(&answer), failure(&answer)) {
                (Some(result), _) => Ok(result),
                // A tool that is not there is the model's mistake, not the end of its turn.
                (None, Some(message)) if status.is_success() => Ok((message.to_owned(), true)),
                (None, Some(message)) => bail!("it answered {status}: {message}"),
                (None, None) => bail!("it answered {status}, without a result"),
            }
        };
        let exchanged = tokio::time::timeout(PATIENCE, exchange).await;
        exchanged
            .unwrap_or_else(|_| bail!("no answer within {PATIENCE:?}"))
            .with_context(|| format!("{tool} at {url} cannot be called"))
    }
}

/// Returns the message in an answer, which is plain or the last of a stream of events.
fn answer(body: &[u8]) -> anyhow::Result<Value> {
    let text = std::str::from_utf8(body)?;
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).next_back();
    Ok(serde_json::from_str(data.unwrap_or(text))?)
}
