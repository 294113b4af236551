//! The adapter between rmcp and [`dispatch`]. Nothing else in Teamster knows rmcp.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::http::Served;
use crate::access::{Scope, allowed};
use crate::catalogue::Entry;
use crate::dispatch::{Answer, Request, dispatch};

/// Who asks, and where; the door puts it into each request after it has checked the token.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) token: Arc<Token>,
    pub(super) scope: Scope,
    pub(super) key: Option<String>,
}

/// One session's, or one request's, view of the tools.
pub(super) struct Adapter {
    served: Arc<Served>,
    /// Who asks on a connection whose requests do not say so each time.
    connection: Option<Asked>,
    /// Cancelled when the session is over, so that what watches for it ends too.
    over: CancellationToken,
    _ends_with_us: DropGuard,
}

/// How long a client may keep a tool list before it asks again; a change is also announced at once.
const LIST_FRESH_MS: u64 = 60_000;

impl Adapter {
    pub(super) fn new(served: Arc<Served>) -> Self {
        let over = CancellationToken::new();
        Self { served, connection: None, over: over.clone(), _ends_with_us: over.drop_guard() }
    }

    /// An adapter for one connection that was checked as a whole.
    pub(super) fn for_connection(served: Arc<Served>, asked: Asked) -> Self {
        Self { connection: Some(asked), ..Self::new(served) }
    }

    fn asked(&self, extensions: &rmcp::model::Extensions) -> Result<Asked, ErrorData> {
        if let Some(asked) = &self.connection {
            return Ok(asked.clone());
        }
        let parts = extensions.get::<http::request::Parts>();
        let asked = parts.and_then(|parts| parts.extensions.get::<Asked>());
        asked.cloned().ok_or_else(|| {
            ErrorData::internal_error("the request did not come through the door", None)
        })
    }
}

/// Returns the tools that the caller has, in the order of the catalogue.
fn tools(served: &Served, asked: &Asked) -> Vec<Tool> {
    // Grants can change while a token lives; what it has now counts.
    let state = served.hub.state();
    let Some(token) = state.tokens.get(asked.token.id) else { return Vec::new() };
    let entries = served.catalogue.entries().iter().filter(|entry| asked.scope.shows(entry.set));
    entries.filter(|entry| allowed(token, entry, &asked.scope)).map(as_tool).collect()
}

/// Waits until the caller's tools are others than `before`.
async fn changed(served: &Served, asked: &Asked, before: &[Tool]) -> Vec<Tool> {
    let hub = served.hub.as_ref();
    let watch = hub.watch(&Topic::Principal(asked.token.principal.clone()));
    watch.until(hub, |_| Some(tools(served, asked)).filter(|tools| tools != before)).await
}

fn as_tool(entry: &Entry) -> Tool {
    let mut tool = Tool::new(entry.name, entry.description.clone(), entry.schema.clone());
    // Codex asks a person before it calls a tool that does not say it is harmless.
    let mut annotations = ToolAnnotations::new().read_only(entry.reads_only()).open_world(false);
    if !entry.reads_only() {
        annotations = annotations.destructive(false);
    }
    tool.annotations = Some(annotations);
    // Claude Code hides tools behind a search unless they ask to be seen.
    let mut meta = MetaObject::default();
    meta.insert("anthropic/alwaysLoad".into(), true.into());
    tool.meta = Some(meta);
    tool
}

impl ServerHandler for Adapter {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("teamster", env!("CARGO_PKG_VERSION"));
        config.with_instructions(
            "A task list and a backlog shared by all agents of this workspace. Take work with task-next (claim: true), \
             finish it with task-update, keep what others should know with note-add.",
        )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let asked = self.asked(&context.extensions)?;
        let mut result = ListToolsResult::with_all_items(tools(&self.served, &asked));
        result.ttl_ms = Some(LIST_FRESH_MS);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asked = self.asked(&context.extensions)?;
        // A key that is no text is refused like a malformed one: a call taken as without would not be repeatable.
        let key = context.meta.get("teamster/key").map(|key| key.as_str().unwrap_or_default());
        let key = key.or(asked.key.as_deref());
        let arguments = request.arguments.unwrap_or_default();
        let call = Request { name: &request.name, arguments, key };
        let Served { catalogue, hub, .. } = &*self.served;
        let state = hub.state();
        // The door let this token in, but it may have ended, or been granted other things, in a session's lifetime.
        let Some(token) = state.tokens.get(asked.token.id) else {
            return Err(ErrorData::invalid_request("this token has ended", None));
        };
        match dispatch(catalogue, hub.as_ref(), token, &asked.scope, call).await {
            Ok(Answer { text, is_error: false }) => {
                Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
            }
            Ok(Answer { text, is_error: true }) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into())
            }
            Err(unknown) => Err(ErrorData::invalid_params(unknown.to_string(), None)),
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    /// Tells a client of the current era when its tools change.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let asked = self.asked(&context.request_context().extensions)?;
        let mut known = tools(&self.served, &asked);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changed(&self.served, &asked, &known) => known = changed,
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Tells a client of the older era when its tools change.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(asked) = self.asked(&context.extensions) else { return };
        let (served, over, peer) = (self.served.clone(), self.over.clone(), context.peer.clone());
        let mut known = tools(&served, &asked);
        self.served.spawn("tell a session about its tools", async move {
            loop {
                tokio::select! {
                    () = over.cancelled() => return,
                    changed = changed(&served, &asked, &known) => known = changed,
                }
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    /// What models read of every tool. Read the difference as one would, before it is accepted.
    #[test]
    fn the_whole_catalogue_as_it_is_listed() {
        let listed: Vec<Tool> = Catalogue::new().entries().iter().map(as_tool).collect();
        let listed = serde_json::to_string_pretty(&listed).unwrap();
        expect_test::expect_file!["../../tests/catalogue.json"].assert_eq(&format!("{listed}\n"));
    }
}
