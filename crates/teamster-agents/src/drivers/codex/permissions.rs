//! What Codex asks for: three kinds of questions, each of which wants its own kind of answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::items::{Calls, Command, payload};
use super::read;
use crate::agent::{
    Event, ID_BYTES_MAX, LABEL_BYTES_MAX, PermissionId, PermissionKind, PermissionOption, Shown,
    ToolCall, ToolKind, clipped,
};
use crate::drivers::Out;
use crate::drivers::json_rpc::{self, INVALID_PARAMS, METHOD_NOT_FOUND};

/// The options, by the names that Codex has for them. Without one the turn goes on as if it were declined.
const ACCEPT: &str = "accept";
const ACCEPT_FOR_SESSION: &str = "acceptForSession";
const DECLINE: &str = "decline";

/// What was asked and is not answered yet. The dialogue bounds how much that is.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    open: Vec<Open>,
    n_asked: u64,
}

#[derive(Debug)]
struct Open {
    permission: PermissionId,
    request: Box<RawValue>,
    wants: Wants,
}

/// The form of the answer.
#[derive(Debug)]
enum Wants {
    /// For a command or a change of files.
    Decision,
    /// For a call of an MCP server's tool, which is put as if the server had asked for input.
    Elicitation,
    /// For rights that the turn has from then on: those that were asked for, or none.
    Rights(Value),
}

struct Question {
    call: ToolCall,
    for_session: bool,
    wants: Wants,
}

impl Permissions {
    /// Takes in a request of Codex. What is no question for a permission is answered at once, so that nothing waits for it.
    pub(super) fn asked(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: &str,
        calls: &Calls,
        out: &mut Out,
    ) -> Result<(), String> {
        let fallback = format!("permission-{}", self.n_asked + 1);
        let question = match method {
            "item/commandExecution/requestApproval" => {
                read(method, params).map(|asked| command(asked, calls))
            }
            "item/fileChange/requestApproval" => {
                read(method, params).map(|asked| change(asked, calls))
            }
            "item/permissions/requestApproval" => read(method, params).map(rights),
            "mcpServer/elicitation/request" => match read::<AskedOfTool<'_>>(method, params) {
                Ok(asked) if asked.is_permission() => Ok(tool(asked, calls, fallback)),
                // A server wants to know something, and there is nobody who could say it.
                Ok(_) => {
                    let nobody = json!({"action": "cancel", "content": null, "_meta": null});
                    out.send(&json_rpc::answer(&id, &nobody));
                    return Ok(());
                }
                Err(wrong) => Err(wrong),
            },
            _ => {
                let message = format!("{} is not offered", clipped(method, LABEL_BYTES_MAX));
                out.send(&json_rpc::error(&id, METHOD_NOT_FOUND, &message));
                return Err(message);
            }
        };
        let question = question.and_then(|question| match question.call.id.len() {
            1..=ID_BYTES_MAX => Ok(question),
            _ => Err("a request for permission without a usable id".to_owned()),
        });
        let Question { call, for_session, wants } = question.inspect_err(|wrong| {
            let wrong = clipped(wrong, LABEL_BYTES_MAX);
            out.send(&json_rpc::error(&id, INVALID_PARAMS, &wrong));
        })?;
        self.n_asked += 1;
        let permission = PermissionId(self.n_asked);
        self.open.push(Open { permission, request: id, wants });
        let options = options(for_session);
        out.event(Event::PermissionAsked { id: permission, call, options });
        Ok(())
    }

    pub(super) fn answer(&mut self, id: PermissionId, option: Option<&str>, out: &mut Out) {
        let Some(at) = self.open.iter().position(|open| open.permission == id) else { return };
        let Open { request, wants, .. } = self.open.swap_remove(at);
        let option = option.unwrap_or(DECLINE);
        let accepted = option != DECLINE;
        let for_session = option == ACCEPT_FOR_SESSION;
        let answer = match wants {
            Wants::Decision => json!({"decision": option}),
            Wants::Elicitation if accepted => {
                let meta = for_session.then(|| json!({"persist": "session"}));
                json!({"action": "accept", "content": {}, "_meta": meta})
            }
            Wants::Elicitation => json!({"action": "decline", "content": null, "_meta": null}),
            Wants::Rights(rights) => {
                let granted = if accepted { rights } else { json!({}) };
                let scope = if for_session { "session" } else { "turn" };
                json!({"permissions": granted, "scope": scope})
            }
        };
        out.send(&json_rpc::answer(&request, &answer));
    }

    /// Takes in that Codex does not wait for an answer any more; it says so of those that were answered, too.
    pub(super) fn resolved(&mut self, told: Resolved<'_>, out: &mut Out) {
        let is_it = |open: &Open| open.request.get() == told.request_id.get();
        if let Some(at) = self.open.iter().position(is_it) {
            let Open { permission, .. } = self.open.swap_remove(at);
            out.event(Event::PermissionAnswered { id: permission, option: None });
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resolved<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// Adds the reason that the agent gives. Who decides by rules must not look at it, so it is in the title only.
fn because(what: &str, reason: Option<String>) -> String {
    match reason {
        Some(reason) if !reason.is_empty() => format!("{what} ({reason})"),
        _ => what.to_owned(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedOfCommand {
    item_id: String,
    reason: Option<String>,
    #[serde(flatten)]
    command: Command,
    network_approval_context: Option<Network>,
    available_decisions: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Network {
    host: String,
}

fn command(asked: AskedOfCommand, calls: &Calls) -> Question {
    let AskedOfCommand { item_id, reason, command, network_approval_context, .. } = &asked;
    let mut call = match calls.find(item_id) {
        Some(known) if !command.is_told() => known.clone(),
        _ => command.call(item_id),
    };
    // That Codex takes it for something that only reads is a guess, and it is to run without the sandbox.
    call.kind = ToolKind::Execute;
    if let Some(Network { host }) = network_approval_context {
        call.title = format!("reach {host}");
        call.kind = ToolKind::Fetch;
        call.targets = vec![clipped(host, LABEL_BYTES_MAX)];
    }
    call.title = clipped(because(&call.title, reason.clone()), LABEL_BYTES_MAX);
    let offered = asked.available_decisions;
    let for_session =
        offered.is_none_or(|offered| offered.iter().any(|one| one == ACCEPT_FOR_SESSION));
    Question { call, for_session, wants: Wants::Decision }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedOfChange {
    item_id: String,
    reason: Option<String>,
}

fn change(asked: AskedOfChange, calls: &Calls) -> Question {
    let AskedOfChange { item_id, reason } = asked;
    let call = calls.find(&item_id).cloned().unwrap_or_else(|| ToolCall {
        id: item_id,
        title: clipped(because("change files", reason), LABEL_BYTES_MAX),
        name: Some("apply_patch".to_owned()),
        kind: ToolKind::Edit,
        input: None,
        targets: Vec::new(),
        shown: Shown::default(),
    });
    Question { call, for_session: true, wants: Wants::Decision }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedOfRights {
    item_id: String,
    reason: Option<String>,
    permissions: Value,
}

fn rights(asked: AskedOfRights) -> Question {
    let AskedOfRights { item_id, reason, permissions } = asked;
    let call = ToolCall {
        id: item_id,
        title: clipped(because("get more rights", reason), LABEL_BYTES_MAX),
        name: Some("request_permissions".to_owned()),
        kind: ToolKind::Other,
        input: Some(payload(&permissions)),
        targets: Vec::new(),
        shown: Shown::default(),
    };
    // What was not asked for must not be granted as nothing.
    let Value::Object(mut granted) = permissions else {
        return Question { call, for_session: true, wants: Wants::Rights(json!({})) };
    };
    granted.retain(|_, right| !right.is_null());
    Question { call, for_session: true, wants: Wants::Rights(Value::Object(granted)) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedOfTool<'a> {
    #[serde(borrow)]
    server_name: Cow<'a, str>,
    #[serde(default)]
    message: String,
    #[serde(rename = "_meta", default)]
    meta: Value,
}

impl AskedOfTool<'_> {
    fn is_permission(&self) -> bool {
        self.meta["codex_approval_kind"] == "mcp_tool_call"
    }
}

fn tool(asked: AskedOfTool<'_>, calls: &Calls, fallback: String) -> Question {
    let AskedOfTool { server_name, message, meta } = asked;
    let input = &meta["tool_params"];
    let call =
        calls.of_server(&server_name, &message, input).cloned().unwrap_or_else(|| ToolCall {
            id: fallback,
            title: clipped(message, LABEL_BYTES_MAX),
            name: None,
            kind: ToolKind::Other,
            input: Some(payload(input)),
            targets: Vec::new(),
            shown: Shown::default(),
        });
    let persist = meta["persist"].as_array();
    let for_session = persist.is_some_and(|persist| persist.iter().any(|one| one == "session"));
    Question { call, for_session, wants: Wants::Elicitation }
}

fn options(for_session: bool) -> Vec<PermissionOption> {
    let option = |id: &str, name: &str, kind| PermissionOption {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
    };
    let once = option(ACCEPT, "Allow", PermissionKind::AllowOnce);
    let always = option(ACCEPT_FOR_SESSION, "Allow for this session", PermissionKind::AllowAlways);
    let not = option(DECLINE, "Decline", PermissionKind::RejectOnce);
    [Some(once), for_session.then_some(always), Some(not)].into_iter().flatten().collect()
}
