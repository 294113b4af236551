//! Agent programs as data: those of `programs.toml`, which is built in, and those that the user adds.

mod asks;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_agents::agent::{AtEnd, InUpdates, Reports};

use crate::reading::{self, Layer, Name, Node, Origin, Problem, Variable, Whole};
use crate::sections::Mcp;
use crate::system_programs::{is_program, on_path};

pub use self::asks::Asks;

/// What is built in.
const BUILT_IN: &str = include_str!("../programs.toml");

/// This command is the program that runs, wherever it is.
const OURSELVES: &str = "teamster";

/// An agent program: how it is started, what it needs, how it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    /// The program: a name that is on the PATH, or an absolute path; `teamster` is the program that runs
    pub command: String,
    /// Its arguments
    pub args: Vec<String>,
    /// How to talk to it
    pub driver: Driver,
    /// What makes it end
    pub ends: Ends,
    /// How long it may take to end before it is killed
    pub grace_s: Whole<0, 60>,
    /// Environment variables that are passed on to it if they are set, such as that of its key
    pub pass: Vec<Variable>,
    /// Environment variables that are set for it; `{mcp.streamTimeout}` stands for that setting
    pub set: BTreeMap<Variable, String>,
    /// Whether it asks permission before it runs a command or changes a file, given the variables of `asking`
    pub asks: Asks,
    /// Environment variables that make it ask; they are set when a role's rules can deny or ask, and replace passed ones
    pub asking: BTreeMap<Variable, String>,
    /// The names of its own tools, by what they do
    pub tools: Tools,
    /// The account whose usage limit it has in common with other programs, if not one of its own
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Name>,
    /// How it takes the hub's tools: over `http`, over `stdio` through a command of ours, or as it advertises (`auto`)
    pub mcp: Transport,
    /// The ACP login method to use when the program wants a login, for each environment variable that may hold its key
    pub authenticate: BTreeMap<Variable, String>,
    /// Whether a session can be loaded into a new process
    pub load_session: bool,
    /// The environment variable that chooses its model
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_env: Option<Variable>,
    /// The arguments that choose its model; `{model}` stands for it
    pub model_args: Vec<String>,
    /// The command that opens a copy of one of its sessions in a terminal; `{command}` and `{session}` stand for those
    pub opens: Vec<String>,
    /// How long it waits for the answer to a tool call; longer calls become something to ask for again
    pub max_wait_s: Whole<1, 3_600>,
    /// What the tokens count that it reports; only for ACP, where programs differ
    pub usage: Usage,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            driver: Driver::Acp,
            ends: Ends::Stdin,
            grace_s: const { Whole::new(5) },
            pass: Vec::new(),
            set: BTreeMap::new(),
            asks: Asks::Unknown,
            asking: BTreeMap::new(),
            tools: Tools::default(),
            account: None,
            mcp: Transport::Auto,
            authenticate: BTreeMap::new(),
            load_session: true,
            model_env: None,
            model_args: Vec::new(),
            opens: Vec::new(),
            max_wait_s: const { Whole::new(50) },
            usage: Usage::default(),
        }
    }
}

/// How to talk to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Driver {
    /// The Agent Client Protocol, over stdin and stdout.
    Acp,
    /// Claude Code's own lines of JSON, over stdin and stdout.
    Claude,
    /// Codex's own protocol, that of `codex app-server`.
    Codex,
}

impl Driver {
    pub fn word(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// How a program that speaks ACP takes the hub's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Transport {
    /// Over HTTP if it advertises that, else over stdio.
    Auto,
    /// Over HTTP, also if it does not advertise that.
    Http,
    /// Over stdio, also if it advertises HTTP.
    Stdio,
}

/// The names of a program's own tools, by what they do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// Names of its tools that read files, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Names of its tools that change files, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edit: Vec<String>,
    /// Names of its tools that delete files, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// Names of its tools that move files, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub r#move: Vec<String>,
    /// Names of its tools that search, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Names of its tools that run commands, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<String>,
    /// Names of its tools that reach addresses, for the rules of `permissions`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<String>,
}

impl Tools {
    /// Returns the word for what a tool does, as rules have it.
    fn kind_of(&self, tool: &str) -> Option<&'static str> {
        let kinds = [
            ("execute", &self.execute),
            ("edit", &self.edit),
            ("delete", &self.delete),
            ("move", &self.r#move),
            ("fetch", &self.fetch),
            ("search", &self.search),
            ("read", &self.read),
        ];
        let has = |names: &Vec<String>| names.iter().any(|name| name.eq_ignore_ascii_case(tool));
        kinds.into_iter().find(|(_, names)| has(names)).map(|(kind, _)| kind)
    }
}

/// What the tokens count that a program reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Usage {
    /// The tokens at the end of a turn
    pub end: UsageAtEnd,
    /// The tokens in updates during a turn
    pub updates: UsageInUpdates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum UsageAtEnd {
    /// The turn.
    #[default]
    Turn,
    /// The turn's last model call.
    LastCall,
    /// The session so far.
    Session,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum UsageInUpdates {
    /// The size of the model's context, which is not what was used.
    #[default]
    Context,
    /// All tokens of one model call.
    Calls,
}

impl Usage {
    pub fn reports(self) -> Reports {
        Reports {
            end: match self.end {
                UsageAtEnd::Turn => AtEnd::Turn,
                UsageAtEnd::LastCall => AtEnd::LastCall,
                UsageAtEnd::Session => AtEnd::Session,
            },
            updates: match self.updates {
                UsageInUpdates::Context => InUpdates::Context,
                UsageInUpdates::Calls => InUpdates::Calls,
            },
        }
    }
}

/// What makes a program end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Ends {
    /// The end of its input.
    Stdin,
    /// SIGTERM to all of its processes, since it does not mind the end of its input.
    Sigterm,
}

/// Returns the file of the program that runs, if it is still there.
pub fn own_file() -> Option<PathBuf> {
    std::env::current_exe().ok().filter(is_program)
}

impl Program {
    /// Returns the file to start, looked for in `search_path`.
    pub fn find(&self, search_path: &[PathBuf]) -> Option<PathBuf> {
        if self.is_ourselves()
            && let Some(own) = own_file()
        {
            return Some(own);
        }
        on_path(&self.command, search_path)
    }

    fn is_ourselves(&self) -> bool {
        self.command == OURSELVES
    }

    /// Returns its arguments, with those that choose the model.
    pub fn arguments(&self, model: Option<&str>) -> Vec<String> {
        let choose = model.into_iter().flat_map(|model| {
            self.model_args.iter().map(move |word| word.replace("{model}", model))
        });
        self.args.iter().cloned().chain(choose).collect()
    }

    /// Returns the command that opens a copy of a session in a terminal, if it has one.
    pub fn opening(&self, session: &str) -> Option<Vec<String>> {
        let word = |word: &String| match word.as_str() {
            "{command}" => self.command.clone(),
            word => word.replace("{session}", session),
        };
        (!self.opens.is_empty()).then(|| self.opens.iter().map(word).collect())
    }

    /// Returns the variables to set for it. Those it is passed on are in `pass`.
    pub fn variables(&self, model: Option<&str>, mcp: &Mcp) -> Vec<(String, String)> {
        let timeout = mcp.stream_timeout.get().to_string();
        let set = self.set.iter().map(|(name, value)| {
            (name.to_string(), value.replace("{mcp.streamTimeout}", &timeout))
        });
        let chosen = self.model_env.as_ref().zip(model);
        set.chain(chosen.map(|(name, model)| (name.to_string(), model.to_owned()))).collect()
    }

    /// Says whether a role can choose its model before it starts.
    pub fn has_model_choice(&self) -> bool {
        let by_driver = match self.driver {
            Driver::Acp | Driver::Claude => false,
            Driver::Codex => true,
        };
        by_driver || self.model_env.is_some() || !self.model_args.is_empty()
    }
}

/// The programs that can be run, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Programs(BTreeMap<Name, Program>);

/// A program that is installed here.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub name: &'a Name,
    pub program: &'a Program,
}

impl Programs {
    pub fn iter(&self) -> impl Iterator<Item = Known<'_>> {
        self.0.iter().map(|(name, program)| Known { name, program })
    }

    /// Returns the kind of a program's own tool, as rules have it.
    pub fn kind_of(&self, program: &str, tool: &str) -> Option<&'static str> {
        self.0.get(program)?.tools.kind_of(tool)
    }

    /// Returns what a tool of this name is with any program: one that the user adds may be one of them.
    pub fn kinds_of(&self, tool: &str) -> impl Iterator<Item = &'static str> {
        self.0.values().filter_map(move |program| program.tools.kind_of(tool))
    }

    /// Returns the program of a name, or a sentence that says which there are.
    pub fn find(&self, name: &str) -> Result<Known<'_>, String> {
        match self.0.get_key_value(name) {
            Some((name, program)) => Ok(Known { name, program }),
            None => {
                let names: Vec<&str> = self.0.keys().map(Name::as_str).collect();
                Err(format!("there is no program {name:?}; there are {}", names.join(", ")))
            }
        }
    }

    /// Returns the program `wanted` and its file; if none is wanted, the first that is installed, but never ourselves:
    /// nobody who has not asked for it wants to be served by a script.
    pub fn choose(
        &self,
        wanted: Option<&str>,
        search_path: &[PathBuf],
    ) -> Result<(Known<'_>, PathBuf), String> {
        if let Some(name) = wanted {
            let known = self.find(name)?;
            let missing = || {
                format!(
                    "the program {name} needs {:?}, which is not on the PATH (a hub has that of the shell it was started from)",
                    known.program.command
                )
            };
            return Ok((known, known.program.find(search_path).ok_or_else(missing)?));
        }
        let others = || self.iter().filter(|known| !known.program.is_ourselves());
        let installed = |known: Known<'_>| known.program.find(search_path);
        others().find_map(|known| Some((known, installed(known)?))).ok_or_else(|| {
            let commands: Vec<&str> =
                others().map(|known| known.program.command.as_str()).collect();
            format!("no agent program is on the PATH; install one of {}", commands.join(", "))
        })
    }
}

/// Returns the programs that are built in, as what a configuration file would say.
pub(crate) fn built_in(problems: &mut Vec<Problem>) -> Node {
    let at = Origin::new(Layer::BuiltIn, "programs.toml");
    reading::read_toml(BUILT_IN, &at, problems).unwrap_or_else(|| Node::table(at))
}

/// Takes programs out that say how they run but not what to run.
pub(crate) fn leave_out_incomplete(tree: &mut Node, problems: &mut Vec<Problem>) {
    let Some(programs) = tree.member_mut("programs") else { return };
    let incomplete = programs.members().filter_map(|(name, program)| {
        let command = program.member("command").map(Node::json);
        let command = command.as_ref().and_then(|command| command.as_str()).unwrap_or_default();
        let says = if command.is_empty() {
            "has no command; name what to start"
        } else if command.contains('/') && !command.starts_with('/') {
            "has a relative path as its command; write a name that is on the PATH, or an absolute path"
        } else {
            return None;
        };
        Some((name.clone(), Problem::new(&program.at, format!("programs.{name}: {says}"))))
    });
    for (name, problem) in incomplete.collect::<Vec<_>>() {
        programs.take(&name);
        problems.push(problem);
    }
}

#[cfg(test)]
mod tests;
