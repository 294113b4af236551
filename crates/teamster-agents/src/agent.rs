//! What is said between the hub and an agent, whatever program it is: the words that every driver translates to and from.
//!
//! Events are kept in transcripts just as they are written here. Variants and optional fields are added; meanings never
//! change.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is kept of a tool's input or output; the size above which the log wants a blob.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// What is kept of a title, a path, a step of a plan: what a person reads in a line or two.
pub const LABEL_BYTES_MAX: usize = 1024;
/// What is kept of a message about a failure; some programs put a stack trace there.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Longer ids are refused, because cut ones could be mistaken for each other.
pub const ID_BYTES_MAX: usize = 256;
/// As many files or other targets as are kept of one tool call.
pub const TARGETS_MAX: usize = 16;
/// Maximum texts that are kept of what else a program shows of a call.
pub const SHOWN_MAX: usize = 64;
/// As many steps as are kept of a plan. With every character escaped it is still a record that the log takes.
pub const STEPS_MAX: usize = 100;
/// As many answers as one permission request may offer.
pub const OPTIONS_MAX: usize = 16;
/// As many models as are kept of what a program offers; some list hundreds.
pub const MODELS_MAX: usize = 100;

/// Something that happened between the hub and an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The agent can be prompted.
    Started(Started),
    /// The handshake failed; nothing but the end follows.
    NotStarted {
        message: String,
    },
    /// The agent of a team begins with a message; what it is prompted follows. Those of one message that follow each other
    /// are one text.
    Told {
        /// By this name the hub knows the message.
        tell: String,
        from: String,
        to: String,
        text: String,
        /// When the message was sent, in milliseconds since 1970.
        told_at_ms: u64,
        /// It was begun before, and its agent was cut off.
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    },
    /// The agent is done with a message.
    Settled {
        tell: String,
        /// It answered; otherwise it ended before it had, and what it said by then was sent back.
        completed: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The hub prompted the agent: a turn began.
    Prompted {
        text: String,
    },
    /// The agent said something; a piece of it, as it came.
    Text(Piece),
    /// The agent thought aloud; a piece of it, as it came.
    Thought(Piece),
    /// The agent calls a tool. Said again when more is known of the call; the latest holds.
    ToolCall(ToolCall),
    ToolResult {
        /// The tool call's.
        id: String,
        ok: bool,
        output: Clipped,
    },
    /// The agent's plan, whole; the latest holds.
    Plan {
        steps: Vec<Step>,
    },
    Usage(Usage),
    /// The agent may not go on with a tool call before somebody answers.
    PermissionAsked {
        id: PermissionId,
        call: ToolCall,
        options: Vec<PermissionOption>,
    },
    /// A permission was decided, or nobody needs to decide it any more (then without an option).
    PermissionAnswered {
        id: PermissionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option: Option<String>,
    },
    /// The hub asked the agent to stop its turn.
    CancelAsked,
    TurnEnded(TurnEnd),
    /// The agent's account has nothing left; said before the turn ends.
    UsageLimit {
        /// When there is more, in seconds since 1970, if the program told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_unix_s: Option<u64>,
        message: String,
    },
    /// A request of the program to its model failed, and the program tries again. Until something else follows, it waits.
    Retrying {
        message: String,
    },
    /// The program said something that could not be understood; it was ignored.
    Trouble {
        message: String,
    },
    /// The program says nothing any more; the last event.
    Exited {
        how: String,
    },
}

/// What an agent says of itself when it can be prompted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Started {
    /// By this name the program resumes the session.
    pub session: String,
    /// It goes on with an earlier session.
    pub resumed: bool,
    /// The session can be resumed in another process.
    pub can_resume: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// The model in use, if the program tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// What a person has to do first, if the program says that nobody is logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_missing: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub text: String,
    /// The message that it is part of, if the program tells them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    /// What people are shown.
    pub title: String,
    /// The tool's name as the program has it, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: ToolKind,
    /// The arguments, as JSON if the program tells them so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Clipped>,
    /// Files that the call is about, as `path` or `path:line`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// What else the program shows of a call that it asks permission for. The model may have written it.
    #[serde(default, skip_serializing_if = "Shown::is_empty")]
    pub shown: Shown,
}

/// Texts that a program shows beside a call: earlier titles, contents, paths, a title that is longer than a label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shown {
    pub texts: Vec<String>,
    /// Bytes of texts that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: usize,
}

impl Shown {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.cut_bytes == 0
    }

    /// Adds a text, as far as there is room for it.
    pub fn push(&mut self, text: &str) {
        if text.trim().is_empty() || self.texts.iter().any(|known| known == text) {
            return;
        }
        let used: usize = self.texts.iter().map(String::len).sum();
        let room =
            if self.texts.len() < SHOWN_MAX { PAYLOAD_BYTES_MAX.saturating_sub(used) } else { 0 };
        let Clipped { text, cut_bytes } = Clipped::new(text.to_owned(), room);
        self.cut_bytes += cut_bytes;
        if !text.is_empty() {
            self.texts.push(text);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub text: String,
    pub status: StepStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Pending,
    InProgress,
    Completed,
}

/// What was used, as far as the program tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The model that used it, if the program tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Of the turn that ends, told once before its end. Programs count differently; some tell only of the turn's last
    /// request. Input that came from or went into a cache is counted there only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// Of this process so far; the latest holds. What the session had cost before it was resumed is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Of the turn under way so far; the latest holds, until [`Usage::tokens`] is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Tokens>,
    /// The turn used more than `tokens`: its program reports only the last of several model calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub at_least: bool,
    /// Calls of the model in this turn so far, as far as they can be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
}

/// What a program's reports of tokens count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reports {
    pub end: AtEnd,
    pub updates: InUpdates,
}

/// What the tokens count that a program reports at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtEnd {
    #[default]
    Turn,
    /// Only the turn's last model call.
    LastCall,
    /// The session so far.
    Session,
}

/// What the tokens count that a program reports during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InUpdates {
    /// The model's context, which says nothing about what was used.
    #[default]
    Context,
    /// All tokens of one model call.
    Calls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write: Option<u64>,
}

/// How full the model's context is, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub used: u64,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Millionths of the currency, rounded up: sums of these do not drift.
    pub micros: u64,
    /// A currency's code, or another unit such as credits.
    pub currency: String,
}

/// Names a permission request. No other of the same process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PermissionId(pub u64);

impl fmt::Display for PermissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionOption {
    pub id: String,
    /// What people are shown.
    pub name: String,
    pub kind: PermissionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    #[serde(other)]
    Other,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum TurnEnd {
    Done,
    Cancelled,
    /// The model would not go on.
    Refused,
    MaxTokens,
    /// The program's own limit of requests to the model.
    MaxTurns,
    Failed {
        message: String,
    },
    /// The program ended before the turn did.
    Gone,
}

/// A text that may have been cut at its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clipped {
    pub text: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
fn is_false(is: &bool) -> bool {
    !is
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Clipped {
    pub fn new(mut text: String, bytes_max: usize) -> Self {
        let kept = text.floor_char_boundary(bytes_max);
        let cut_bytes = text.len() - kept;
        text.truncate(kept);
        Self { text, cut_bytes }
    }
}

/// Cuts what is only read by people, and shows that it did.
pub fn clipped(text: impl Into<String>, bytes_max: usize) -> String {
    let Clipped { mut text, cut_bytes } = Clipped::new(text.into(), bytes_max);
    if cut_bytes > 0 {
        text.push('…');
    }
    text
}

/// How an agent is to begin.
#[derive(Debug, Clone, Default)]
pub struct Begin {
    /// Where it works; absolute.
    pub directory: PathBuf,
    pub mcp_servers: Vec<McpServer>,
    /// The session to go on with, instead of a new one.
    pub resume: Option<Resume>,
    /// A model that the program is asked to use, if it offers it. [`Started::model`] tells what came of it.
    pub model: Option<String>,
    /// A random number, of which a driver can make the name of a new session.
    pub nonce: u128,
    /// Rules can deny what it does, so it is to ask also for what it would otherwise do without.
    pub asks: bool,
    /// How the program takes its MCP servers.
    pub transport: Transport,
    /// Whether the program is asked for its login before it can be prompted, where that takes a request of its own.
    pub checks_login: bool,
    /// The login methods that fit the program's environment, for programs that want to be told one.
    pub logins: Vec<String>,
    /// The names of the environment variables that are set for the program beside the usual few.
    pub variables: Vec<String>,
    /// What the program's reports of tokens count, for drivers of several programs.
    pub reports: Reports,
    /// The program offers to load sessions, but is known to fail at it.
    pub cannot_resume: bool,
}

/// How a program takes its MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Over HTTP if the program advertises that, else over stdio.
    #[default]
    Auto,
    Http,
    Stdio,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resume {
    pub session: String,
    /// A session that cannot be resumed becomes a new one, instead of a failure. Programs that are told by their arguments
    /// cannot do that in the same process: they do not start, and are to be launched again.
    pub or_new: bool,
    /// What the session is known to have cost so far, in millionths of a dollar.
    pub spent_micros: u64,
}

/// An MCP server that the agent shall use.
#[derive(Clone)]
pub struct McpServer {
    pub name: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// How long one of its tools may take to answer, for programs that want to be told.
    pub tool_timeout: Option<Duration>,
    /// The command that serves the same over stdio, for programs that do not take HTTP.
    pub bridge: Option<Bridge>,
}

/// A command that serves an MCP server over stdio.
#[derive(Clone)]
pub struct Bridge {
    /// Absolute.
    pub command: PathBuf,
    pub args: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// The environment carries a token.
impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, args, environment } = self;
        let environment: Vec<_> = environment.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("Bridge");
        shown.field("command", command).field("args", args);
        shown.field("environment", &environment).finish()
    }
}

/// Headers carry tokens, and tokens are not for logs.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, url, headers, tool_timeout: _, bridge } = self;
        let headers: Vec<_> = headers.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", name).field("url", url).field("headers", &headers);
        shown.field("bridge", bridge).finish()
    }
}

/// Why the hub cannot say that to the agent now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the agent was begun already")]
    AlreadyBegun,
    #[error("the agent has not started yet; wait until it has")]
    NotStarted,
    #[error("the agent is in the middle of a turn; wait for its end or cancel it")]
    InTurn,
    #[error("the agent does not listen any more; start it again")]
    Over,
    #[error("permission {0} is not asked for, or was answered already")]
    NoSuchPermission(PermissionId),
    #[error("{0:?} is none of the options of that permission")]
    NoSuchOption(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_says_how_much_is_missing_and_stays_text() {
        let clipped = Clipped::new("größer".to_owned(), 3);
        assert_eq!(clipped, Clipped { text: "gr".to_owned(), cut_bytes: 6 });
    }

    #[test]
    fn a_server_is_shown_without_its_token() {
        let server = McpServer {
            name: "hub".to_owned(),
            url: "http://127.0.0.1:1/mcp".to_owned(),
            headers: vec![("Authorization".to_owned(), "Bearer secret".to_owned())],
            tool_timeout: None,
            bridge: Some(Bridge {
                command: "/bin/teamster".into(),
                args: Vec::new(),
                environment: vec![("TOKEN".to_owned(), "secret".to_owned())],
            }),
        };
        assert!(!format!("{server:?}").contains("secret"));
    }
}
