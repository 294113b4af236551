//! An agent without a model: it speaks ACP over stdin and stdout, and plays the script that it finds in its prompt.
//! It behaves as well or as badly as it is told to, and so carries tests and demonstrations.
//!
//! Lines of the prompt that begin with `! ` are steps, one after the other; all other lines are ignored.
//!
//! ```text
//! ! say TEXT              says something
//! ! think TEXT            thinks aloud
//! ! call TOOL {JSON}      calls a tool of the session's MCP server and waits for its result
//! ! outcome {JSON}        says the JSON, as agents do in the end
//! ! write PATH TEXT       writes a file, beginning in its directory
//! ! run COMMAND           has a shell run it in its directory; what it prints is a result as of a call
//! ! ask TEXT              asks for permission, and says what was decided
//! ! need TEXT             asks for permission, and ends the turn without a word if it is denied
//! ! usage IN OUT [COST]   reports tokens, which are added up over the turn, and dollars, over the session
//! ! sleep MS
//! ! hang                  goes on forever, unless it is cancelled
//! ! flood BYTES           writes this much without a newline
//! ! long-line BYTES       says a text of this length, in one message
//! ! garbage               writes a line that is no message
//! ! ignore-sigterm        from now on ends neither by SIGTERM nor at the end of its input
//! ! fork [SECONDS]        leaves four processes behind that ignore SIGTERM, such as `sleep SECONDS`
//! ! crash                 is gone in the middle of a tool call
//! ! exit CODE
//! ```
//!
//! In TEXT and in the strings of JSON, `$last` is the result of the latest call, `$call2` that of the session's second,
//! and `$last.agents.0.id` is looked up in a result that is JSON. A string that is nothing but such a reference becomes
//! what it finds, be it a number or a list. `$$` is a dollar sign, also to leave a reference to a script within the
//! script: `! call draft_agent {"role":"coder","prompt":"! call task-next\n! say $$last"}`.
//!
//! A tool that fails is a result like any other. A step that cannot be played ends the turn as failed, and a script with
//! a wrong line is not begun. After a crash the session can be loaded in another process, and a prompt without steps
//! then goes on with the step that was cut off. Otherwise such a prompt plays a short script of our own.

mod mcp;
mod script;
mod session;
mod turn;
mod wire;

use std::future;
use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentCapabilities, ContentBlock, Implementation, InitializeResponse,
    LoadSessionRequest, LoadSessionResponse, McpCapabilities, McpServer, NewSessionRequest,
    NewSessionResponse, PromptRequest,
};
use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use teamster_agents::launch::LINE_BYTES_MAX;
use teamster_agents::lines::{Line, Lines};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use self::session::Session;
use self::turn::Turn;
use self::wire::Wire;
use teamster_hub::{config, tasks};

/// JSON-RPC's codes, as far as we need them.
const PARSE_ERROR: i64 = -32700;
const METHOD_NOT_FOUND: i64 = -32601;
const INTERNAL_ERROR: i64 = -32603;

/// Speaks ACP until the input ends.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut agent = Agent {
        wire: Arc::new(Wire::new()),
        state: config::scripted_agent_state(),
        session: Arc::default(),
        cancel: CancellationToken::new(),
    };
    let mut lines = Lines::new(tokio::io::stdin(), LINE_BYTES_MAX);
    while let Some(line) = lines.next().await? {
        match line {
            Line::Whole(line) => agent.hear(&line).await?,
            Line::TooLong => {
                let message = format!("a message may have {LINE_BYTES_MAX} bytes");
                agent.wire.fail(&Value::Null, PARSE_ERROR, &message).await?;
            }
            Line::Unfinished(_) => {}
        }
    }
    if agent.wire.stays() {
        future::pending::<()>().await;
    }
    Ok(())
}

struct Agent {
    wire: Arc<Wire>,
    /// Where sessions are kept.
    state: PathBuf,
    /// The one session there is. A turn holds it until it ends.
    session: Arc<Mutex<Option<Session>>>,
    /// Cancels the turn under way.
    cancel: CancellationToken,
}

#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    result: Option<Value>,
    error: Option<Value>,
}

impl Agent {
    async fn hear(&mut self, line: &[u8]) -> std::io::Result<()> {
        let message: Message = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                return self.wire.fail(&Value::Null, PARSE_ERROR, &error.to_string()).await;
            }
        };
        match (message.method, message.id) {
            (Some(method), Some(id)) if method == AGENT_METHOD_NAMES.session_prompt => {
                match self.begin_turn(id.clone(), message.params) {
                    Ok(()) => Ok(()),
                    Err(error) => self.wire.fail(&id, INTERNAL_ERROR, &format!("{error:#}")).await,
                }
            }
            (Some(method), Some(id)) => match self.answer(&method, message.params) {
                Some(Ok(result)) => self.wire.answer(&id, &result).await,
                Some(Err(error)) => {
                    self.wire.fail(&id, INTERNAL_ERROR, &format!("{error:#}")).await
                }
                None => self.wire.fail(&id, METHOD_NOT_FOUND, &format!("no method {method}")).await,
            },
            (Some(method), None) => {
                if method == AGENT_METHOD_NAMES.session_cancel {
                    self.cancel.cancel();
                }
                Ok(())
            }
            (None, Some(id)) => {
                self.wire.answered(&id, message.result.ok_or(message.error)).await;
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Returns the answer to a request, if there is such a method.
    fn answer(&self, method: &str, params: Value) -> Option<anyhow::Result<Value>> {
        let names = AGENT_METHOD_NAMES;
        if method == names.initialize {
            let mcp = McpCapabilities::new().http(true);
            let can = AgentCapabilities::new().load_session(true).mcp_capabilities(mcp);
            let us = Implementation::new("scripted", env!("CARGO_PKG_VERSION"));
            let answer = InitializeResponse::new(ProtocolVersion::V1);
            Some(Ok(json!(answer.agent_capabilities(can).agent_info(us))))
        } else if method == names.session_new {
            Some(self.new_session(params))
        } else if method == names.session_load {
            Some(self.load_session(params))
        } else {
            None
        }
    }

    fn new_session(&self, params: Value) -> anyhow::Result<Value> {
        let NewSessionRequest { cwd, mcp_servers, .. } = read(params)?;
        let session = Session::new(&self.state, cwd, http(mcp_servers));
        let answer = NewSessionResponse::new(session.id.clone());
        session.save()?;
        *self.idle()? = Some(session);
        Ok(json!(answer))
    }

    fn load_session(&self, params: Value) -> anyhow::Result<Value> {
        let LoadSessionRequest { session_id, cwd, mcp_servers, .. } = read(params)?;
        let session = Session::load(&self.state, &session_id.0, cwd, http(mcp_servers))?;
        *self.idle()? = Some(session);
        Ok(json!(LoadSessionResponse::new()))
    }

    fn idle(&self) -> anyhow::Result<OwnedMutexGuard<Option<Session>>> {
        self.session.clone().try_lock_owned().context("a turn is under way")
    }

    fn begin_turn(&mut self, id: Value, params: Value) -> anyhow::Result<()> {
        let PromptRequest { session_id, prompt, .. } = read(params)?;
        let blocks = prompt.into_iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text),
            _ => None,
        });
        let prompt = blocks.collect::<Vec<_>>().join("\n");
        let mut session = OwnedMutexGuard::try_map(self.idle()?, Option::as_mut)
            .ok()
            .filter(|session| *session.id == *session_id.0)
            .with_context(|| format!("there is no session {session_id}"))?;
        session.begin(&prompt)?;
        self.cancel = CancellationToken::new();
        let turn = Turn::new(session, Arc::clone(&self.wire));
        let (wire, cancel) = (Arc::clone(&self.wire), self.cancel.clone());
        tasks::spawn("play a script", async move {
            // If nobody hears it any more, the input ends too.
            let _ = match turn.play(cancel).await {
                Ok(answer) => wire.answer(&id, &answer).await,
                Err(error) => wire.fail(&id, INTERNAL_ERROR, &format!("{error:#}")).await,
            };
        });
        Ok(())
    }
}

fn read<T: DeserializeOwned>(params: Value) -> anyhow::Result<T> {
    serde_json::from_value(params).context("the parameters are wrong")
}

fn http(servers: Vec<McpServer>) -> Option<mcp::Server> {
    servers.into_iter().find_map(|server| match server {
        McpServer::Http(server) => Some(mcp::Server::new(server)),
        _ => None,
    })
}
