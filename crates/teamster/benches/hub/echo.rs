//! What the hub is compared with: servers that answer the same calls with the same words, from memory and without asking
//! who calls. One is as little as axum can do, the other as little as rmcp can do.

use std::io::Read;
use std::sync::Arc;

use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{FIRST_NUMBER, content};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Echo {
    Axum,
    Rmcp,
}

impl Echo {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Axum => "axum",
            Self::Rmcp => "rmcp",
        }
    }
}

/// Serves until whoever started this process is gone. The runtime is the hub's.
pub(crate) fn serve(echo: Echo) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("{}", listener.local_addr().expect("an address"));
        let listener =
            listener.tap_io(|stream| stream.set_nodelay(true).expect("TCP_NODELAY can be set"));
        let router = match echo {
            Echo::Axum => Router::new().route("/mcp", post(answer)),
            Echo::Rmcp => Router::new().route_service("/mcp", rmcp_service()),
        };
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        axum::serve(listener, router).await.expect("the echo stays open");
    });
}

async fn answer(Json(request): Json<Value>) -> Json<Value> {
    let text = text(&request["params"]["arguments"]);
    let result = json!({"content": [{"type": "text", "text": text}], "isError": false});
    Json(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// Returns what the hub would answer.
fn text(arguments: &Value) -> String {
    match arguments["tasks"][0]["content"].as_str() {
        Some(content) => format!("Added 1 task(s):\n  TAS-10000: {content}"),
        None => {
            let content = content(FIRST_NUMBER);
            json!({"id": "TAS-10000", "content": content, "priority": 2, "status": "remaining"})
                .to_string()
        }
    }
}

struct RmcpEcho;

fn rmcp_service() -> StreamableHttpService<RmcpEcho, LocalSessionManager> {
    // As in the hub's own door.
    let config =
        StreamableHttpServerConfig::default().with_json_response(true).with_sse_retry(None);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.sse_retry = None;
    StreamableHttpService::new(|| Ok(RmcpEcho), Arc::new(sessions), config)
}

impl ServerHandler for RmcpEcho {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = text(&Value::Object(request.arguments.unwrap_or_default()));
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
