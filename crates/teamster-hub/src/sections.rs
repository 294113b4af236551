//! The sections of the settings: one struct for each table of `teamster.toml`, with its defaults.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::{CollectorUrl, GrantWord, Line, Money, Name, Remote, Rule, Variable, Whole};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Agents at work at a time; more wait in order, and one that waits for others does not count
    pub running: Whole<1, 1_000>,
    /// Agents' processes at a time, at work or waiting
    pub live: Whole<1, 10_000>,
    /// How long agents wait whose account has nothing left, if their program does not tell until when
    pub park_minutes: Whole<1, 10_080>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            running: const { Whole::new(8) },
            live: const { Whole::new(16) },
            park_minutes: const { Whole::new(30) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How deep agents may draft agents; 0 drafts none
    pub depth: Whole<0, 16>,
    /// Children of one agent at a time
    pub children: Whole<0, 1_000>,
    /// All agents that one draft may lead to
    pub total: Whole<0, 1_000_000>,
    /// Prompts that one agent may be given
    pub turns: Whole<1, 100_000>,
    /// How long one agent may take
    pub wall_minutes: Whole<1, 43_200>,
    /// What one drafted agent and all below it may cost; the turns under way when it is spent are not cut short
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars: Option<Money>,
    /// How many tokens they may use, cached ones included; likewise
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Whole<1, 4_000_000_000>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: const { Whole::new(3) },
            children: const { Whole::new(8) },
            total: const { Whole::new(100) },
            turns: const { Whole::new(200) },
            wall_minutes: const { Whole::new(240) },
            dollars: None,
            tokens: None,
        }
    }
}

/// Rules for what a program asks permission for. `deny` goes before `ask`, that before `allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// What is denied: tools or their kinds (read, edit, delete, move, search, execute, fetch), with `*` for anything, and in parentheses what they are about
    pub deny: Vec<Rule>,
    /// What a person is asked
    pub ask: Vec<Rule>,
    /// What is allowed
    pub allow: Vec<Rule>,
    /// What becomes of the rest
    pub otherwise: Verdict,
    /// How long a person is waited for; then it is denied
    pub ask_minutes: Whole<1, 10_080>,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
            otherwise: Verdict::Allow,
            ask_minutes: const { Whole::new(60) },
        }
    }
}

impl Permissions {
    /// Returns whether a request can be denied or become a question.
    pub fn hold_back(&self) -> bool {
        !self.deny.is_empty() || !self.ask.is_empty() || self.otherwise != Verdict::Allow
    }
}

/// How often an agent may do the same before it is stopped. A call is compared with its tool and its whole input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// The same call this often in a row stops the agent; 0 turns this off, 1 counts as 2
    pub repeats: Whole<0, 1_000>,
    /// Two calls that alternate this often stop the agent; 0 turns this off, 1 counts as 2
    pub pairs: Whole<0, 1_000>,
    /// The same error this often stops the agent; 0 turns this off
    pub errors: Whole<0, 1_000>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            repeats: const { Whole::new(5) },
            pairs: const { Whole::new(4) },
            errors: const { Whole::new(8) },
        }
    }
}

/// What becomes of a request for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Verdict {
    /// The agent goes on.
    Allow,
    /// A person decides.
    Ask,
    /// The agent is told no.
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Mcp {
    /// Categories whose roles may draft, await and kill agents; all others may only look
    pub full_access_categories: Vec<Name>,
    /// How long an agent program should keep a call's stream open, in ms, where it has such a setting
    pub stream_timeout: Whole<1_000, 86_400_000>,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            full_access_categories: vec![Name::known("conversational")],
            stream_timeout: const { Whole::new(600_000) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Transcripts {
    /// Records older than this are removed, once a day; 0 keeps them
    pub keep_days: Whole<0, 36_500>,
    /// Maximum records of each agent; the oldest are removed, but not those of a message that is being answered; 0 keeps all
    pub keep_records: Whole<0, 4_000_000_000>,
    /// Maximum MiB that one process of an agent adds; then its oldest records are removed; 0 keeps all
    pub keep_mib: Whole<0, 1_000_000>,
}

impl Default for Transcripts {
    fn default() -> Self {
        Self {
            keep_days: const { Whole::new(180) },
            keep_records: const { Whole::new(100_000) },
            keep_mib: const { Whole::new(128) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Maximum MiB that one agent and all agents of its tree store in the log; 0 is no limit
    pub stored_mib: Whole<0, 1_000_000>,
    /// Maximum MiB that all agents together store in one run; 0 is no limit
    pub run_stored_mib: Whole<0, 1_000_000>,
    /// Writes per second of one agent and all agents of its tree; faster ones are slowed down, then refused; 0 is no limit
    pub writes_per_s: Whole<0, 1_000_000>,
    /// Writes that may come at once before `writes_per_s` counts
    pub writes_at_once: Whole<1, 1_000_000>,
    /// MiB per second of large requests of one agent and all agents of its tree; more is read slowly; 0 is no limit
    pub received_mib_per_s: Whole<0, 1_000_000>,
    /// MiB of the disk that are kept for operators, at most a twentieth of it; below, agents' writes are refused
    pub disk_reserve_mib: Whole<0, 1_000_000>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            stored_mib: const { Whole::new(64) },
            run_stored_mib: const { Whole::new(256) },
            writes_per_s: const { Whole::new(200) },
            writes_at_once: const { Whole::new(4_000) },
            received_mib_per_s: const { Whole::new(2) },
            disk_reserve_mib: const { Whole::new(512) },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    /// `namespaces` refuses agents on a machine without namespaces; without it, agents start with the best isolation that
    /// the machine has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<Required>,
    /// Maximum memory of one agent with everything that it starts, in MiB; it needs a control group of the hub's own
    /// (docs/security.md), and `teamster up` warns where there is none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Whole<64, 16_000_000>>,
}

impl Isolation {
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.memory_mb.map(|mb| u64::from(mb.get()) << 20)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Required {
    Namespaces,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// A collector that is sent a span for each tool call over OTLP/HTTP, e.g. http://127.0.0.1:4318; without it, none is made
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<CollectorUrl>,
}

/// A project whose agents others can talk to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamFields {
    /// Its directory, absolute or below the home directory as `~/…`
    pub path: String,
    /// Where its agents run, if not here: what `ssh` is told, such as `ssh -p 2222 ann@box`; its path is one there
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// What it is for, in one line
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
    /// The program that plays it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Name>,
    /// The model, in its program's words
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Line>,
    /// The role whose prompt, limits and rules it has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Name>,
    /// Its color where it is shown, such as `#FF6B9D`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<Line>,
    /// How long its agents are kept awake that have nothing to do, 60 if not said
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minutes: Option<Whole<1, 10_080>>,
    /// Rules of its own for what its program asks permission for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Whether each of its conversations has a git worktree of its own; else they share its directory, one at a time
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub worktrees: bool,
    /// Variables of the hub's environment that its agents get beside those of their program
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<Variable>,
    /// All that its agents may use
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<GrantWord>>,
}

/// The kinds of roles, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Categories(pub BTreeMap<Name, Category>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Category {
    /// How long an agent may show nothing before it counts as stalled
    pub stall_s: Whole<1, 86_400>,
    /// How long it may show nothing while one of its tools is at work
    pub tool_stall_s: Whole<1, 86_400>,
}

/// A build or a run of tests takes its time.
const TOOL_STALL: Whole<1, 86_400> = Whole::new(3_600);

impl Default for Category {
    fn default() -> Self {
        Self { stall_s: const { Whole::new(300) }, tool_stall_s: TOOL_STALL }
    }
}

impl Default for Categories {
    fn default() -> Self {
        let stalls = [
            ("coding", const { Whole::new(300) }),
            ("conversational", const { Whole::new(180) }),
            ("research", const { Whole::new(420) }),
        ];
        let known =
            |(name, stall_s)| (Name::known(name), Category { stall_s, tool_stall_s: TOOL_STALL });
        Self(stalls.into_iter().map(known).collect())
    }
}
