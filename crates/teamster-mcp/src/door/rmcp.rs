//! The adapter between rmcp and our calls. Nothing else in Teamster knows rmcp, but for the door that hands it requests
//! and the adapter beside it.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    ClientCapabilities, ContentBlock, CreateTaskResult, DetailedTask, ErrorCode, ErrorData,
    GetTaskParams, GetTaskResult, Implementation, InputRequest, InputRequests, InputRequiredResult,
    JsonObject, ListToolsResult, MetaObject, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, RequestMetaObject, ResourceContents, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Task, TaskPayload, TaskStatus, Tool, ToolAnnotations, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use teamster_core::errand::{self, Errand};
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::http::Served;
use crate::access::shown;
use crate::answer::{Answer, Block, Fault, Resource};
use crate::ask::{Answers, Ask, Capability, Client};
use crate::call::Request;
use crate::catalogue::Entry;
use crate::dispatch;
use crate::errands::{self, Called};
use crate::hub::Failure;
use crate::progress::{Progress, Step};
use crate::scope::Scope;
use crate::tools::iso;
use crate::trace::Trace;

/// Who asks, and where; the door puts it into each request after it has checked the token.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) token: Arc<Token>,
    pub(super) scope: Scope,
    pub(super) key: Option<String>,
}

/// One session's, or one request's, view of the tools.
pub struct Adapter {
    served: Arc<Served>,
    /// Who asks on a connection whose requests do not say so each time.
    connection: Option<Admitted>,
    /// Cancelled when the session is over, so that what watches for it ends too.
    over: CancellationToken,
    _ends_with_us: DropGuard,
}

/// How long a client may keep a tool list before it asks again; a change is also announced at once.
const LIST_FRESH_MS: u64 = 60_000;

impl Adapter {
    pub fn new(served: Arc<Served>) -> Self {
        let over = CancellationToken::new();
        Self { served, connection: None, over: over.clone(), _ends_with_us: over.drop_guard() }
    }

    /// An adapter for one connection that was checked as a whole.
    pub(super) fn for_connection(served: Arc<Served>, asked: Admitted) -> Self {
        Self { connection: Some(asked), ..Self::new(served) }
    }

    fn asked(&self, extensions: &rmcp::model::Extensions) -> Result<Admitted, ErrorData> {
        if let Some(asked) = &self.connection {
            return Ok(asked.clone());
        }
        let parts = extensions.get::<http::request::Parts>();
        let asked = parts.and_then(|parts| parts.extensions.get::<Admitted>());
        asked.cloned().ok_or_else(|| {
            ErrorData::internal_error("the request did not come through the door", None)
        })
    }

    /// Returns the token as it is now: the door let it in, but in a session's lifetime it may have ended, or been
    /// granted other things.
    fn token(&self, asked: &Admitted) -> Result<Arc<Token>, ErrorData> {
        let token = self.served.service.hub.state().tokens.get(asked.token.id).cloned();
        token.ok_or_else(|| ErrorData::invalid_request("this token has ended", None))
    }

    /// Submits what a caller asks of one of its errands.
    async fn submit(
        &self,
        context: &RequestContext<RoleServer>,
        command: impl FnOnce(errand::Place) -> errand::Command,
    ) -> Result<(), ErrorData> {
        let asked = self.asked(&context.extensions)?;
        let token = self.token(&asked)?;
        let command = Command::Errand(command(errands::place(&asked.scope)));
        match self.served.service.hub.submit(Caller::of(&token), command, None).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(refusal)) => {
                Err(ErrorData::invalid_params(refusal.to_string(), None))
            }
            Err(failure @ (Failure::Unavailable(_) | Failure::Unknown(_))) => {
                Err(ErrorData::internal_error(failure.to_string(), None))
            }
        }
    }
}

/// Returns what a caller is told of its tools.
pub(super) fn listed(served: &Served, asked: &Admitted) -> ListToolsResult {
    let result = ListToolsResult::with_all_items(tools(served, asked));
    result.with_ttl_ms(LIST_FRESH_MS).with_cache_scope(CacheScope::Private)
}

/// Returns the tools that the caller has, in the order of the catalogue.
fn tools(served: &Served, asked: &Admitted) -> Vec<Tool> {
    // Grants can change while a token lives; what it has now counts.
    let state = served.service.hub.state();
    let Some(token) = state.tokens.get(asked.token.id) else { return Vec::new() };
    let entries =
        served.service.catalogue.entries().iter().filter(|entry| asked.scope.shows(entry.set));
    entries.filter(|entry| shown(token, entry, &asked.scope)).map(as_tool).collect()
}

/// Waits until the caller's tools are others than `before`.
async fn changed(served: &Served, asked: &Admitted, before: &[Tool]) -> Vec<Tool> {
    let hub = served.service.hub.as_ref();
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

/// Returns what the client of this request can do. One of the older era can be asked nothing in the course of a call:
/// what it is asked in another way, it is asked by the tool's own means.
fn client_of(context: &RequestContext<RoleServer>) -> Client {
    let modern = context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    let declared = context.client_capabilities().filter(|_| modern);
    declared.as_ref().map(declared_by).unwrap_or_default()
}

/// Returns what a client of the current era can do that declares this.
pub(super) fn declared_by(declared: &ClientCapabilities) -> Client {
    Client {
        elicitation: declared.elicitation.is_some(),
        sampling: declared.sampling.is_some(),
        roots: declared.roots.is_some(),
        tasks: declared.supports_tasks(),
    }
}

/// Returns the key that a call can be repeated with. One that is no text is refused like a malformed one: a call taken as
/// without would not be repeatable.
pub(super) fn key_of(meta: &RequestMetaObject, asked: &Admitted) -> Option<String> {
    let key = meta.get("teamster/key").map(|key| key.as_str().unwrap_or_default().to_owned());
    key.or_else(|| asked.key.clone())
}

/// Tells the client how far its call is, if it asked to be told.
async fn tell(context: &RequestContext<RoleServer>, step: Step) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let mut progress = ProgressNotificationParam::new(token, step.done);
    progress.total = step.total;
    progress.message = step.message;
    // A client that is gone needs no progress, and its call ends by itself.
    let _ = context.peer.notify_progress(progress).await;
}

async fn tell_rest(context: &RequestContext<RoleServer>, steps: &mut mpsc::Receiver<Step>) {
    while let Ok(step) = steps.try_recv() {
        tell(context, step).await;
    }
}

fn error_of(fault: Fault) -> ErrorData {
    match fault {
        Fault::UnknownTool(_) | Fault::BadAnswers(_) => {
            ErrorData::invalid_params(fault.to_string(), None)
        }
        Fault::Needs(capability) => {
            let mut needed = ClientCapabilities::default();
            match capability {
                Capability::Elicitation => needed.elicitation = Some(Default::default()),
                Capability::Sampling => needed.sampling = Some(Default::default()),
                Capability::Roots => needed.roots = Some(Default::default()),
                Capability::Tasks => {
                    needed = ClientCapabilities::builder().enable_tasks().build();
                }
            }
            ErrorData::missing_required_client_capability(needed)
        }
    }
}

/// Returns what a call came to in the protocol's words.
pub(super) fn response_of(called: Result<Called, Fault>) -> Result<CallToolResponse, ErrorData> {
    match called.map_err(error_of)? {
        Called::Answer(answer) => Ok(result_of(answer).into()),
        Called::Ask { asks, state } => {
            let asks = asks.into_iter().map(|Ask { name, request, .. }| (name, request));
            Ok(InputRequiredResult::new(Some(requests_of(asks)?), Some(state)).into())
        }
        Called::Errand(errand) => Ok(CreateTaskResult::new(task_of(&errand)).into()),
    }
}

fn result_of(answer: Answer) -> CallToolResult {
    let Answer { content, structured_content, is_error, is_bug: _ } = answer;
    let content = content.into_iter().map(block_of).collect();
    let mut result =
        if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = structured_content;
    result
}

fn block_of(block: Block) -> ContentBlock {
    match block {
        Block::Text { text } => ContentBlock::text(text),
        Block::Image { data, mime_type } => ContentBlock::image(data, mime_type),
        Block::Audio { data, mime_type } => ContentBlock::audio(data, mime_type),
        Block::Resource { resource: Resource { uri, mime_type, text } } => {
            let contents = ResourceContents::text(text, uri).with_mime_type(mime_type);
            ContentBlock::resource(contents)
        }
    }
}

fn requests_of(asks: impl Iterator<Item = (String, Value)>) -> Result<InputRequests, ErrorData> {
    let request = |(name, request): (String, Value)| {
        let request: Result<InputRequest, _> = serde_json::from_value(request);
        request.map(|request| (name, request))
    };
    asks.map(request).collect::<Result<_, _>>().map_err(|error| {
        tracing::error!(%error, "a tool's question is not in the protocol's words");
        ErrorData::internal_error("the tool asked something that cannot be sent", None)
    })
}

/// How often a client should ask what became of a task.
const POLL_EVERY_MS: u64 = 1_000;

fn task_of(errand: &Errand) -> Task {
    let status = match (&errand.outcome, errand.asked.is_empty()) {
        (None, true) => TaskStatus::Working,
        (None, false) => TaskStatus::InputRequired,
        (Some(errand::Outcome::Answered(_)), _) => TaskStatus::Completed,
        (Some(errand::Outcome::Failed(_)), _) => TaskStatus::Failed,
        (Some(errand::Outcome::Cancelled), _) => TaskStatus::Cancelled,
    };
    let id = errand.id.to_string();
    let kept_ms = u64::try_from(errand::KEPT_MS).unwrap_or_default();
    Task::new(id, status, iso(errand.begun_at), iso(errand.changed_at))
        .with_ttl_ms(kept_ms)
        .with_poll_interval_ms(POLL_EVERY_MS)
}

fn payload_of(errand: &Errand) -> Result<TaskPayload, ErrorData> {
    let unreadable = |error| {
        tracing::error!(%error, errand = %errand.id, "what is kept of a call is not JSON");
        ErrorData::internal_error("what is kept of this call cannot be read", None)
    };
    Ok(match &errand.outcome {
        None if errand.asked.is_empty() => TaskPayload::Working,
        None => {
            let read = |(name, ask): (&Arc<str>, &Arc<str>)| {
                serde_json::from_str(ask).map(|ask: Value| (name.to_string(), ask))
            };
            let asks: Vec<_> =
                errand.asked.iter().map(read).collect::<Result<_, _>>().map_err(unreadable)?;
            TaskPayload::InputRequired { input_requests: requests_of(asks.into_iter())? }
        }
        Some(errand::Outcome::Answered(answer)) => {
            TaskPayload::Completed { result: serde_json::from_str(answer).map_err(unreadable)? }
        }
        Some(errand::Outcome::Failed(why)) => {
            let mut error = JsonObject::new();
            error.insert("code".into(), ErrorCode::INTERNAL_ERROR.0.into());
            error.insert("message".into(), why.as_ref().into());
            TaskPayload::Failed { error }
        }
        Some(errand::Outcome::Cancelled) => TaskPayload::Cancelled,
    })
}

impl ServerHandler for Adapter {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_tasks();
        let mut config = ServerConfig::new(capabilities.build());
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
        Ok(listed(&self.served, &asked))
    }

    /// Returns the schema by which rmcp checks the headers that mirror a call's arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let entry = self.served.service.catalogue.find(None, name)?;
        Some(Tool::new(entry.name, "", entry.schema.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asked = self.asked(&context.extensions)?;
        let token = self.token(&asked)?;
        let (progress, mut steps) = Progress::channel();
        let answers =
            Answers::read(request.input_responses.unwrap_or_default()).map_err(Fault::BadAnswers);
        let call = Request {
            name: request.name.into(),
            arguments: request.arguments.unwrap_or_default(),
            key: key_of(&context.meta, &asked),
            answers: answers.map_err(error_of)?,
            client: client_of(&context),
            progress,
            trace: Trace::of(|name| context.meta.get(name)),
        };
        let state = request.request_state.as_deref();
        let mut called =
            std::pin::pin!(dispatch::call(&self.served.service, &token, &asked.scope, call, state));
        let called = loop {
            tokio::select! {
                biased;
                Some(step) = steps.recv() => tell(&context, step).await,
                called = &mut called => break called,
            }
        };
        tell_rest(&context, &mut steps).await;
        response_of(called)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let asked = self.asked(&context.extensions)?;
        let token = self.token(&asked)?;
        let state = self.served.service.hub.state();
        let place = errands::place(&asked.scope);
        let errand = state.errands.find(&token.principal, &request.task_id, &place);
        let errand =
            errand.map_err(|unknown| ErrorData::invalid_params(unknown.to_string(), None))?;
        Ok(GetTaskResult::new(DetailedTask::new(task_of(errand), payload_of(errand)?)))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let answers = Answers::read(request.input_responses)
            .map_err(|says| error_of(Fault::BadAnswers(says)))?;
        let answers = errands::texts(&answers);
        self.submit(&context, |place| errand::Command::Give {
            which: request.task_id,
            place,
            answers,
        })
        .await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.submit(&context, |place| errand::Command::Cancel { which: request.task_id, place })
            .await
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
        self.served.service.spawn("tell a session about its tools", async move {
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

    /// What models read of every tool. Read the difference as one would, before it is accepted.
    #[test]
    fn the_whole_catalogue_as_it_is_listed() {
        let listed: Vec<Tool> = crate::tools::catalogue().entries().iter().map(as_tool).collect();
        let listed = serde_json::to_string_pretty(&listed).unwrap();
        expect_test::expect_file!["../../tests/catalogue.json"].assert_eq(&format!("{listed}\n"));
    }
}
