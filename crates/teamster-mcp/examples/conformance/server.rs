//! What the suite wants to see besides tools of ours: prompts, resources, completion, and what the older era could do.
//! All else is handed on to the adapter that serves our tools.

#![expect(deprecated, reason = "the suite tests the older era too")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use teamster_core::grant::{Grant, Grants};
use teamster_core::{Caller, Command, token};
use teamster_hub::hub::Handle;
use teamster_mcp::door::http::Served;
use teamster_mcp::door::rmcp::Adapter;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::PRINCIPAL;
use crate::tools::PNG;

type Context = RequestContext<RoleServer>;

pub(crate) struct Fixtures {
    ours: Adapter,
    hub: Handle,
    prompts_changed: watch::Sender<()>,
}

impl Fixtures {
    pub(crate) fn new(
        served: Arc<Served>,
        hub: Handle,
        prompts_changed: watch::Sender<()>,
    ) -> Self {
        Self { ours: Adapter::new(served), hub, prompts_changed }
    }

    /// Grants a tool to the suite, or takes it away again: so its list of tools changes.
    async fn change_tools(&self) -> CallToolResponse {
        let name = teamster_core::PrincipalName::parse(PRINCIPAL).expect("a name");
        let state = self.hub.state();
        let has_main =
            state.tokens.by_principal(&name).is_some_and(|token| token.grants.has(&Grant::Main));
        let more = if has_main { None } else { Some(Grant::Main) };
        let grants = Grants::new([Grant::Full].into_iter().chain(more));
        let grant = token::Command::Grant { which: PRINCIPAL.into(), grants };
        let done = self.hub.submit(Caller::hub(), Command::Token(grant), None).await;
        done.expect("the suite's token lives");
        said("The tools have changed.")
    }
}

fn said(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// Reads a value of the protocol's from its JSON, which is shorter than building it.
fn of<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a fixture is in the protocol's words")
}

/// Reads a result, as the current era wants it marked; for the older one rmcp takes the mark off again.
fn result<T: serde::de::DeserializeOwned>(mut json: Value) -> T {
    json["resultType"] = "complete".into();
    of(json)
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// The tools that our model of a tool cannot express: they speak to the client while they run, as only the older era
/// allows, or change what there is.
fn own_tools() -> Vec<Tool> {
    let nothing = json!({"type": "object", "properties": {}});
    let text = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let tools = [
        ("test_tool_with_logging", nothing.clone()),
        ("test_sampling", text("prompt")),
        ("test_elicitation", text("message")),
        ("test_elicitation_sep1034_defaults", nothing.clone()),
        ("test_elicitation_sep1330_enums", nothing.clone()),
        ("test_trigger_tool_change", nothing.clone()),
        ("test_trigger_prompt_change", nothing),
    ];
    let tool = |(name, schema): (&str, Value)| {
        let description = format!("The suite's fixture {name}.");
        of(json!({"name": name, "description": description, "inputSchema": schema}))
    };
    tools.into_iter().map(tool).collect()
}

async fn log_thrice(context: &Context) -> Result<CallToolResponse, ErrorData> {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, message.into());
        context.peer.notify_logging_message(message).await.map_err(failed)?;
        sleep(Duration::from_millis(50)).await;
    }
    Ok(said("Logged three times."))
}

async fn sample(prompt: &Value, context: &Context) -> Result<CallToolResponse, ErrorData> {
    let content = json!({"type": "text", "text": prompt});
    let messages = json!([{"role": "user", "content": content}]);
    let params = of(json!({"messages": messages, "maxTokens": 100}));
    let answer = context.peer.create_message(params).await.map_err(failed)?;
    let answer = serde_json::to_value(answer).map_err(failed)?;
    Ok(said(format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default())))
}

async fn elicit(
    message: &str,
    properties: Value,
    required: &[&str],
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let request = of(json!({"method": "elicitation/create", "params": params}));
    let answer = context.peer.send_request(ServerRequest::ElicitRequest(request)).await;
    let ClientResult::ElicitResult(answer) = answer.map_err(failed)? else {
        return Err(failed("the client answered something else"));
    };
    let action = serde_json::to_value(&answer.action).map_err(failed)?;
    let content = serde_json::to_string(&answer.content).map_err(failed)?;
    let action = action.as_str().unwrap_or_default();
    Ok(said(format!("Elicitation completed: action={action}, content={content}")))
}

fn contact_form() -> Value {
    json!({
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    })
}

fn form_with_defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn form_with_choices() -> Value {
    let titled = |n: u32, title: &str| json!({"const": format!("value{n}"), "title": title});
    let options = ["option1", "option2", "option3"];
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": [
            titled(1, "First Option"), titled(2, "Second Option"), titled(3, "Third Option"),
        ]},
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": [
            titled(1, "First Choice"), titled(2, "Second Choice"), titled(3, "Third Choice"),
        ]}},
    })
}

fn prompts() -> Value {
    let argument = |name: &str| json!({"name": name, "description": name, "required": true});
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().copied().map(argument).collect();
        json!({"name": name, "description": "A fixture of the suite's.", "arguments": arguments})
    };
    json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ])
}

fn text_of(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn prompt(messages: &[Value]) -> GetPromptResponse {
    let messages: Vec<Value> =
        messages.iter().map(|content| json!({"role": "user", "content": content})).collect();
    result::<GetPromptResult>(json!({"messages": messages})).into()
}

fn resource_contents(uri: &str) -> Option<Value> {
    Some(match uri {
        "test://static-text" | "test://watched-resource" => json!({
            "uri": uri, "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = format!("Data for ID: {id}");
            let text = json!({"id": id, "templateTest": true, "data": data}).to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
    })
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.ours.get_info();
        info.capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.ours.list_tools(request, context).await?;
        list.tools.extend(own_tools());
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.ours.get_tool(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            arguments.and_then(|arguments| arguments.get(name)).cloned().unwrap_or_default()
        };
        match request.name.as_ref() {
            "test_tool_with_logging" => log_thrice(&context).await,
            "test_sampling" => sample(&argument("prompt"), &context).await,
            "test_elicitation" => {
                let message = argument("message");
                let message = message.as_str().unwrap_or_default();
                elicit(message, contact_form(), &["username", "email"], &context).await
            }
            "test_elicitation_sep1034_defaults" => {
                elicit("As it is?", form_with_defaults(), &[], &context).await
            }
            "test_elicitation_sep1330_enums" => {
                elicit("Which ones?", form_with_choices(), &[], &context).await
            }
            "test_trigger_tool_change" => Ok(self.change_tools().await),
            "test_trigger_prompt_change" => {
                self.prompts_changed.send_replace(());
                Ok(said("The prompts have changed."))
            }
            _ => self.ours.call_tool(request, context).await,
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        self.ours.get_task(request, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.ours.update_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.ours.cancel_task(request, context).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.ours.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let (sink, mut changes) = (context.sink().clone(), self.prompts_changed.subscribe());
        let prompts = async move {
            while changes.changed().await.is_ok() {
                // A subscription without prompts does not get this; the sink sees to it.
                let _ = sink.notify_prompt_list_changed().await;
            }
        };
        tokio::select! {
            ended = self.ours.listen(context) => ended,
            () = prompts => Ok(()),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.ours.on_initialized(context).await;
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(result(json!({"prompts": prompts()})))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            let argument = arguments.and_then(|arguments| arguments.get(name));
            argument.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Ok(match request.name.as_str() {
            "test_simple_prompt" => prompt(&[text_of("This is a simple prompt for testing.")]),
            "test_prompt_with_arguments" => {
                let (one, two) = (argument("arg1"), argument("arg2"));
                let text = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
                prompt(&[text_of(&text)])
            }
            "test_prompt_with_embedded_resource" => {
                let text = "Embedded resource content for testing.";
                let resource =
                    json!({"uri": argument("resourceUri"), "mimeType": "text/plain", "text": text});
                prompt(&[
                    json!({"type": "resource", "resource": resource}),
                    text_of("Please process the embedded resource above."),
                ])
            }
            "test_prompt_with_image" => prompt(&[
                json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
                text_of("Please analyze the image above."),
            ]),
            "test_input_required_result_prompt" => {
                match request.input_responses.and_then(|given| given.get("user_context").cloned()) {
                    None => {
                        let schema = json!({
                            "type": "object", "properties": {"context": {"type": "string"}},
                            "required": ["context"],
                        });
                        let question = "What context should the prompt use?";
                        let params = json!({
                            "mode": "form", "message": question, "requestedSchema": schema,
                        });
                        let ask = json!({"method": "elicitation/create", "params": params});
                        let asks = InputRequests::from([("user_context".into(), of(ask))]);
                        InputRequiredResult::from_input_requests(asks).into()
                    }
                    Some(answer) => prompt(&[text_of(&format!("In context: {answer}"))]),
                }
            }
            _ => return Err(ErrorData::invalid_params("unknown prompt", None)),
        })
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |(uri, mime_type)| {
            let description = "A fixture of the suite's.";
            json!({"uri": uri, "name": uri, "description": description, "mimeType": mime_type})
        };
        let resources = [
            ("test://static-text", "text/plain"),
            ("test://static-binary", "image/png"),
            ("test://watched-resource", "text/plain"),
        ];
        Ok(result(json!({"resources": resources.map(resource)})))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({
            "uriTemplate": "test://template/{id}/data", "name": "template",
            "description": "A fixture of the suite's.", "mimeType": "application/json",
        });
        Ok(result(json!({"resourceTemplates": [template]})))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resource_contents(&request.uri) {
            Some(contents) => {
                Ok(result::<ReadResourceResult>(json!({"contents": [contents]})).into())
            }
            None => {
                let data = json!({"uri": request.uri});
                Err(ErrorData::resource_not_found("Resource not found", Some(data)))
            }
        }
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let known = ["paris", "park", "party"].into_iter();
        let values: Vec<&str> =
            known.filter(|word| word.starts_with(&request.argument.value)).collect();
        Ok(result(
            json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}),
        ))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        // The current era has no such method.
        let modern = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if modern { Err(ErrorData::method_not_found::<SetLevelRequestMethod>()) } else { Ok(()) }
    }
}
