//! Plays a script, step by step, as one turn.

use std::fs;
use std::future;
use std::path::Path;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, ContentBlock, ContentChunk, Cost, MessageId, PermissionOption,
    PermissionOptionKind, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionUpdate, StopReason, ToolCall, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use anyhow::{Context, bail};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use teamster_agents::process;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OwnedMappedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::script::Step;
use super::session::Session;
use super::wire::Wire;

/// The context that we pretend to have, in tokens.
const CONTEXT_TOKENS: u64 = 1_000_000;
/// Stands for a text that is too long to be held.
const LONG_TEXT: &str = "LONG TEXT";

/// Starts one process in our group, one in a session of its own, one that is nobody's child, and one that is both.
const FORK: &str = r#"
trap '' TERM
sleep "$0" &
setsid sleep "$0" &
(sleep "$0" &)
(setsid sh -c 'sleep "$0" &' "$0" &)
"#;

/// The account that we pretend to have has nothing left.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Limited(String);

/// A call was denied, at which some programs end their turn as if they were done.
#[derive(Debug, thiserror::Error)]
#[error("denied")]
struct Denied;

/// What was decided about a permission.
struct Decided {
    decided: String,
    is_allowed: bool,
}

type SessionGuard = OwnedMappedMutexGuard<Option<Session>, Session>;

pub(super) struct Turn {
    session: SessionGuard,
    wire: Arc<Wire>,
    /// What went in and what came out.
    tokens: Option<(u64, u64)>,
}

impl Turn {
    pub(super) fn new(session: SessionGuard, wire: Arc<Wire>) -> Self {
        Self { session, wire, tokens: None }
    }

    /// Plays what is left of the script, and returns the answer to the prompt.
    pub(super) async fn play(mut self, cancel: CancellationToken) -> anyhow::Result<Value> {
        let played = tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(StopReason::Cancelled),
            played = self.play_all() => played.map(|()| StopReason::EndTurn),
        };
        // What a limit or a denial stopped goes on later.
        let is_denied = played.as_ref().is_err_and(|error| error.is::<Denied>());
        if !is_denied && !played.as_ref().is_err_and(|error| error.is::<Limited>()) {
            self.session.rest.clear();
            self.session.save()?;
        }
        let ended = if is_denied { StopReason::EndTurn } else { played? };
        let mut answer = json!(PromptResponse::new(ended));
        if self.tokens.is_none() && self.session.cost_dollars == 0.0 {
            // Without a model nothing is used; a script that says otherwise has said so.
            let update = UsageUpdate::new(0, CONTEXT_TOKENS).cost(Cost::new(0.0, "USD"));
            self.update(SessionUpdate::UsageUpdate(update)).await?;
            self.tokens = Some((0, 0));
        }
        if let Some((input, output)) = self.tokens {
            answer["usage"] = json!({
                "totalTokens": input.saturating_add(output), "inputTokens": input, "outputTokens": output,
            });
        }
        Ok(answer)
    }

    async fn play_all(&mut self) -> anyhow::Result<()> {
        while let Some(line) = self.session.rest.front().cloned() {
            let step = line.step()?;
            self.session.n_steps += 1;
            if matches!(step, Step::Crash | Step::Exit(_) | Step::Limit(_)) {
                // It would be played again and again.
                self.session.rest.pop_front();
                self.session.save()?;
            }
            if let Step::Limit(message) = step {
                return Err(Limited(message).into());
            }
            let is_denied = match step {
                Step::Need(text) => {
                    !self.asked(&text).await.with_context(|| line.place())?.is_allowed
                }
                step => {
                    self.play_step(step).await.with_context(|| line.place())?;
                    false
                }
            };
            self.session.rest.pop_front();
            self.session.save()?;
            if is_denied {
                return Err(Denied.into());
            }
        }
        Ok(())
    }

    async fn play_step(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Say(text) => self.say(&self.session.results.fill(&text)?).await,
            Step::Think(text) => {
                let text = self.session.results.fill(&text)?;
                self.update(SessionUpdate::AgentThoughtChunk(self.chunk(text))).await
            }
            Step::Call { tool, arguments } => self.call(&tool, arguments).await,
            Step::Outcome(outcome) => {
                let outcome = self.session.results.fill_json(outcome)?;
                self.say(&outcome.to_string()).await
            }
            Step::Write { path, text } => self.write(&path, &text).await,
            Step::Run(command) => self.run(&command).await,
            Step::Ask(text) => {
                let Decided { decided, .. } = self.asked(&text).await?;
                self.say(&format!("permission: {decided}")).await
            }
            Step::Need(text) => self.asked(&text).await.map(drop),
            Step::Usage { input, output, dollars } => self.usage(input, output, dollars).await,
            Step::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Step::Hang => future::pending().await,
            Step::Flood(n_bytes) => Ok(self.wire.flood(n_bytes).await?),
            Step::LongLine(n_bytes) => {
                let update = SessionUpdate::AgentMessageChunk(self.chunk(LONG_TEXT));
                self.wire.long_line(&self.session.id, update, LONG_TEXT, n_bytes).await
            }
            Step::Garbage => Ok(self.wire.line(r#"{"jsonrpc":"2.0","method":"#).await?),
            Step::IgnoreSigterm => {
                // Once somebody has listened to it, the signal does not end us any more.
                drop(signal(SignalKind::terminate())?);
                self.wire.stay();
                Ok(())
            }
            Step::Fork { seconds } => {
                let mut shell = process::command("sh", &self.session.directory);
                let status = shell.args(["-c", FORK, &seconds]).status().await?;
                if status.success() { Ok(()) } else { bail!("sh ended with {status}") }
            }
            Step::Crash => {
                self.begin_tool_call(ToolCall::new(self.name("call"), "crash")).await?;
                kill_process(getpid(), Signal::KILL)?;
                future::pending().await
            }
            Step::Exit(code) => std::process::exit(code),
            Step::Limit(message) => Err(Limited(message).into()),
        }
    }

    async fn say(&self, text: &str) -> anyhow::Result<()> {
        self.update(SessionUpdate::AgentMessageChunk(self.chunk(text))).await
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<()> {
        let arguments = self.session.results.fill_json(arguments)?;
        let server = self.session.server.as_ref().context("the session has no MCP server")?;
        let call = ToolCall::new(self.name("call"), tool).name(tool.to_owned());
        self.begin_tool_call(call.raw_input(arguments.clone())).await?;
        let (text, is_error) = server.call(tool, &arguments).await?;
        self.end_tool_call(!is_error, &text).await?;
        self.session.results.add(text);
        Ok(())
    }

    async fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let text = self.session.results.fill(text)?;
        let path = self.session.directory.join(path);
        let call = ToolCall::new(self.name("call"), "write").kind(ToolKind::Edit);
        self.begin_tool_call(call.locations(vec![ToolCallLocation::new(&path)])).await?;
        match fs::write(&path, text + "\n") {
            Ok(()) => self.end_tool_call(true, "written").await,
            Err(error) => self.end_tool_call(false, &error.to_string()).await,
        }
    }

    async fn run(&mut self, command: &str) -> anyhow::Result<()> {
        let command = self.session.results.fill(command)?;
        let call = ToolCall::new(self.name("call"), &*command).kind(ToolKind::Execute);
        self.begin_tool_call(call.raw_input(json!({"command": command}))).await?;
        let mut shell = process::command("sh", &self.session.directory);
        let output = shell.args(["-c", &command]).output().await?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).trim_end().to_owned();
        self.end_tool_call(output.status.success(), &printed).await?;
        self.session.results.add(printed);
        Ok(())
    }

    /// Asks for permission, and returns what was decided.
    async fn asked(&self, text: &str) -> anyhow::Result<Decided> {
        let text = self.session.results.fill(text)?;
        let mut fields =
            ToolCallUpdateFields::new().title(text.clone()).status(ToolCallStatus::Pending);
        // `execute cargo test` asks for a kind of tool and says what it is about.
        let kind = text.split_once(' ').and_then(|(kind, target)| {
            Some((serde_json::from_value::<ToolKind>(json!(kind)).ok()?, target))
        });
        if let Some((kind, target)) = kind.filter(|(kind, _)| *kind != ToolKind::Other) {
            fields = fields.kind(kind).raw_input(json!({"command": target}));
        }
        let request = RequestPermissionRequest::new(
            self.session.id.clone(),
            ToolCallUpdate::new(self.name("call"), fields),
            vec![
                PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
                PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
            ],
        );
        let answer =
            self.wire.ask(CLIENT_METHOD_NAMES.session_request_permission, &request).await?;
        let RequestPermissionResponse { outcome, .. } = serde_json::from_value(answer)?;
        let decided = match outcome {
            RequestPermissionOutcome::Selected(selected) => selected.option_id.to_string(),
            _ => "nobody decided".to_owned(),
        };
        let is_allowed = decided == "allow";
        self.end_tool_call(is_allowed, &decided).await?;
        Ok(Decided { decided, is_allowed })
    }

    async fn usage(&mut self, input: u64, output: u64, cost: Option<f64>) -> anyhow::Result<()> {
        let before = self.tokens.unwrap_or_default();
        self.tokens = Some((before.0.saturating_add(input), before.1.saturating_add(output)));
        self.session.cost_dollars += cost.unwrap_or_default();
        let update = UsageUpdate::new(input.saturating_add(output), CONTEXT_TOKENS);
        let cost = cost.map(|_| Cost::new(self.session.cost_dollars, "USD"));
        self.update(SessionUpdate::UsageUpdate(update.cost(cost))).await
    }

    async fn begin_tool_call(&self, call: ToolCall) -> anyhow::Result<()> {
        self.update(SessionUpdate::ToolCall(call.status(ToolCallStatus::InProgress))).await
    }

    /// Ends the tool call of this step.
    async fn end_tool_call(&self, ok: bool, output: &str) -> anyhow::Result<()> {
        let status = if ok { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let fields = ToolCallUpdateFields::new().status(status).content(vec![output.into()]);
        let update = ToolCallUpdate::new(self.name("call"), fields);
        self.update(SessionUpdate::ToolCallUpdate(update)).await
    }

    async fn update(&self, update: SessionUpdate) -> anyhow::Result<()> {
        Ok(self.wire.update(&self.session.id, update).await?)
    }

    fn chunk(&self, text: impl Into<String>) -> ContentChunk {
        ContentChunk::new(ContentBlock::from(text)).message_id(MessageId::new(self.name("message")))
    }

    /// Names what this step does; there is at most one of a kind.
    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.session.n_steps)
    }
}
