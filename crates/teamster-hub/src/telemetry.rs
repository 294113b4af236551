//! How the hub works, counted since it started: every tool call by tool, by role and by agent, with what came of it and how
//! long it took. Nothing of it is stored.
//!
//! What people see of it is in `status` and `agent show`; what Prometheus sees is made in `metrics.rs`; `traces.rs` sends
//! spans to a collector if one is configured. Names are bounded: tools are those of the catalogue, and agents and roles
//! beyond a limit count together.

mod callers;
mod counts;
pub(crate) mod metrics;
mod process;
mod traces;

use std::path::PathBuf;

use teamster_api::agents::{AgentCalls, AgentToolCalls};
use teamster_api::calls::{self, Failures};
use teamster_api::hub::{Calls, RoleCalls, ToolCalls};
use teamster_core::agent::AgentId;
use teamster_mcp::catalogue::Catalogue;
use teamster_mcp::observe::{How, Observed, Observer};
use teamster_mcp::set::Set;

use self::callers::{Callers, NOT_ROLES, ROLES_MAX};
use self::counts::Sharded;
pub use self::counts::{BOUNDS_S, Tally};
pub use self::traces::Traces;
use crate::clock::Stopwatch;
use crate::hub::Handle;
use crate::listen::Connections;

/// What telemetry looks at beside the calls.
pub struct Sources {
    pub hub: Handle,
    /// The data directory, for the size of the log.
    pub data: Option<PathBuf>,
    pub connections: Connections,
    /// Where spans are sent, if anywhere.
    pub traces: Option<Traces>,
}

/// The one place where calls are counted.
pub struct Telemetry {
    sources: Sources,
    stopwatch: Stopwatch,
    tools: Vec<Tool>,
    /// The counters of the tools, then those of the roles.
    counters: Sharded,
    callers: Callers,
}

/// A tool as it is labelled. What was called by a name that no tool has counts as the last one.
#[derive(Debug, Clone, Copy)]
struct Tool {
    set: &'static str,
    name: &'static str,
}

const UNKNOWN: Tool = Tool { set: "", name: "(unknown)" };

impl Telemetry {
    pub fn new(catalogue: &Catalogue, sources: Sources) -> Self {
        let tools = catalogue.entries().iter();
        let tools = tools.map(|entry| Tool { set: Set::name(entry.set), name: entry.name });
        let tools: Vec<Tool> = tools.chain([UNKNOWN]).collect();
        Self {
            sources,
            stopwatch: Stopwatch::start(),
            counters: Sharded::new(tools.len() + NOT_ROLES.len() + ROLES_MAX),
            callers: Callers::new(tools.len()),
            tools,
        }
    }

    /// Returns the tools in the order of the catalogue, each with its calls.
    fn tools(&self) -> impl Iterator<Item = (Tool, Tally)> {
        self.tools.iter().enumerate().map(|(i, tool)| (*tool, self.counters.tally(i)))
    }

    /// Returns the roles, each with the calls of its agents, and those who have none.
    fn roles(&self) -> Vec<(String, Tally)> {
        let roles = self.callers.roles();
        let names = NOT_ROLES.into_iter().chain(roles.iter().map(|role| role.as_str()));
        let tally = |i| self.counters.tally(self.tools.len() + i);
        names.enumerate().map(|(i, name)| (name.to_owned(), tally(i))).collect()
    }

    /// Returns what `status` tells of calls: of every tool and role that had any.
    pub fn calls(&self) -> Calls {
        let tools = self.tools().filter(|(_, tally)| tally.calls() > 0);
        let tools = tools.map(|(tool, tally)| ToolCalls {
            tally: shown(&tally),
            set: tool.set.to_owned(),
            tool: tool.name.to_owned(),
        });
        let roles = self.roles().into_iter().filter(|(_, tally)| tally.calls() > 0);
        let roles = roles.map(|(role, tally)| RoleCalls { tally: shown(&tally), role });
        Calls { tools: tools.collect(), roles: roles.collect() }
    }

    /// Returns what `agent show` tells of an agent's calls, or nothing if it made none since the hub started.
    pub fn calls_of(&self, agent: &AgentId) -> Option<AgentCalls> {
        let counts = self.callers.agent(agent)?;
        let tools = self.tools.iter().zip(counts.by_tool());
        let tools = tools.filter(|(_, by_how)| by_how.iter().sum::<u64>() > 0);
        let tools = tools.map(|(tool, by_how)| AgentToolCalls {
            set: tool.set.to_owned(),
            tool: tool.name.to_owned(),
            calls: by_how.iter().sum(),
            failures: failures(|how| by_how[counts::place(how)]),
        });
        Some(AgentCalls { tally: shown(&counts.tally()), tools: tools.collect() })
    }

    /// Returns the page that Prometheus reads.
    pub fn metrics(&self) -> String {
        metrics::page(self)
    }

    /// Sends what is left to send, when the hub ends.
    pub async fn end(&self) {
        if let Some(traces) = &self.sources.traces {
            traces.end().await;
        }
    }
}

fn shown(tally: &Tally) -> calls::Tally {
    let ms = |share| tally.quantile(share).map(|took| (took.as_secs_f64() * 1e6).round() / 1e3);
    calls::Tally {
        calls: tally.calls(),
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        failures: failures(|how| tally.ended(how)),
    }
}

fn failures(ended: impl Fn(How) -> u64) -> Failures {
    Failures {
        refused: ended(How::Refused),
        failed: ended(How::Failed),
        abandoned: ended(How::Abandoned),
    }
}

impl Observer for Telemetry {
    fn clock_ns(&self) -> u64 {
        self.stopwatch.elapsed_ns()
    }

    fn called(&self, call: &Observed<'_>) {
        let tool = call.entry.map_or(self.tools.len() - 1, |entry| entry.number);
        let counters = self.counters.mine();
        counters[tool].add(call.how, call.took);
        self.callers.with(
            call.token,
            || self.sources.hub.state(),
            |who| {
                counters[self.tools.len() + who.role].add(call.how, call.took);
                if let Some(agent) = &who.agent {
                    agent.add(tool, call.how, call.took);
                }
                if let Some(traces) = &self.sources.traces {
                    traces.called(call, who.agent.as_ref().and_then(|agent| agent.of.as_ref()));
                }
            },
        );
    }
}
