//! The page that Prometheus reads, in its text format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use teamster_core::State;
use teamster_core::agent::Ending;
use teamster_core::spending::Spent;
use teamster_mcp::observe::How;

use super::callers::{AGENTS_MAX, OTHER, ROLES_MAX};
use super::counts::{BOUNDS_S, Tally};
use super::{Telemetry, process};

/// What the page is served as.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page under way: metric after metric, each with all its samples.
#[derive(Default)]
struct Page(String);

#[derive(Clone, Copy)]
enum Kind {
    /// It only grows; it begins anew when the hub does.
    Counter,
    Gauge,
    Histogram,
}

type Labels<'a> = [(&'a str, &'a str)];

impl Page {
    /// Begins a metric.
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{open}{label}=\"{text}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// Writes a metric that has only one sample.
    fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Writes how calls ended, one sample for each way.
    fn ends(&mut self, name: &str, labels: &Labels<'_>, tally: &Tally) {
        for how in How::ALL {
            let labels = [labels, &[("outcome", how.as_str())]].concat();
            self.sample(name, &labels, tally.ended(how));
        }
    }

    fn histogram(&mut self, name: &str, labels: &Labels<'_>, tally: &Tally) {
        let bounds = BOUNDS_S.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let mut through = 0;
        for (bound, n) in bounds.zip(tally.buckets()) {
            through += n;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&format!("{name}_bucket"), &labels, through);
        }
        self.sample(&format!("{name}_sum"), labels, tally.seconds());
        self.sample(&format!("{name}_count"), labels, through);
    }
}

pub(super) fn page(telemetry: &Telemetry) -> String {
    let mut page = Page::default();
    let state = telemetry.sources.hub.state();
    calls(&mut page, telemetry, &state);
    agents(&mut page, telemetry, &state);
    spent(&mut page, &state);
    log(&mut page, telemetry, &state);
    hub(&mut page, telemetry, &state);
    page.0
}

fn calls(page: &mut Page, telemetry: &Telemetry, state: &State) {
    let tools: Vec<_> = telemetry.tools().filter(|(_, tally)| tally.calls() > 0).collect();
    let name = "teamster_tool_calls_total";
    page.metric(name, Kind::Counter, "Tool calls since the hub started, by how they ended.");
    for (tool, tally) in &tools {
        page.ends(name, &[("set", tool.set), ("tool", tool.name)], tally);
    }
    let name = "teamster_tool_call_duration_seconds";
    page.metric(name, Kind::Histogram, "How long tool calls took.");
    for (tool, tally) in &tools {
        page.histogram(name, &[("set", tool.set), ("tool", tool.name)], tally);
    }
    let roles = telemetry.roles();
    let name = "teamster_role_calls_total";
    page.metric(name, Kind::Counter, "Tool calls by the role of the agent that made them.");
    for (role, tally) in &roles {
        page.ends(name, &[("role", role)], tally);
    }
    let name = "teamster_role_call_duration_seconds";
    page.metric(name, Kind::Histogram, "How long tool calls took, by the role of the agent.");
    for (role, tally) in roles.iter().filter(|(_, tally)| tally.calls() > 0) {
        page.histogram(name, &[("role", role)], tally);
    }
    let agents = telemetry.callers.live(state);
    let text = |agent: &super::callers::AgentCounts| {
        let of = agent.of.as_ref();
        let id = of.map_or(OTHER, |of| of.id.as_str()).to_owned();
        (id, of.map_or(OTHER, |of| of.role.as_str()).to_owned())
    };
    let name = "teamster_agent_calls_total";
    page.metric(name, Kind::Counter, "Tool calls of each live agent, over all its processes.");
    for agent in &agents {
        let (id, role) = text(agent);
        page.ends(name, &[("agent", &id), ("role", &role)], &agent.tally());
    }
    let name = "teamster_agent_call_seconds_total";
    page.metric(name, Kind::Counter, "How long the tool calls of each live agent took in all.");
    for agent in &agents {
        let (id, role) = text(agent);
        page.sample(name, &[("agent", &id), ("role", &role)], agent.tally().seconds());
    }
}

fn agents(page: &mut Page, telemetry: &Telemetry, state: &State) {
    let hub = &telemetry.sources.hub;
    let idlers = hub.idlers();
    let mut by_phase = BTreeMap::from([("running", 0), ("ending", 0), ("waiting", 0)]);
    for agent in state.agents.active() {
        let waits = idlers.contains(&agent.id.principal());
        let phase = if waits { "waiting" } else { agent.phase.as_str() };
        *by_phase.entry(phase).or_default() += 1;
    }
    let parked = state.agents.queued().filter(|agent| agent.parked.is_some()).count();
    by_phase.insert("queued", state.agents.queued().count() - parked);
    by_phase.insert("parked", parked);
    by_phase.insert("adopted", state.agents.adopted().count());
    let name = "teamster_agents";
    page.metric(
        name,
        Kind::Gauge,
        "Agents by what they do; one that waits only waits for others or for a person.",
    );
    for (phase, n) in by_phase {
        page.sample(name, &[("phase", phase)], n);
    }
    let name = "teamster_agents_ended_total";
    page.metric(name, Kind::Counter, "Agents that ended since the hub started, by role and how.");
    for ((role, ending), n) in hub.written().ended() {
        page.sample(name, &[("role", role.as_str()), ("ending", Ending::as_str(ending))], n);
    }
}

/// What agents used: of each live one, and summed by role over all that are at hand. What has no known price is counted
/// in turns, never as nothing.
fn spent(page: &mut Page, state: &State) {
    let mut roles: BTreeMap<&str, Spent> = BTreeMap::new();
    for agent in state.agents.iter() {
        let has_room = roles.len() < ROLES_MAX || roles.contains_key(agent.role.as_str());
        let role = if has_room { agent.role.as_str() } else { OTHER };
        roles.entry(role).or_default().add_all(&agent.used);
    }
    let roles: Vec<_> = roles.iter().map(|(role, spent)| (vec![("role", *role)], *spent)).collect();
    let live = state.agents.active().chain(state.agents.queued()).take(AGENTS_MAX);
    let agents = live.map(|agent| {
        (vec![("agent", agent.id.as_str()), ("role", agent.role.as_str())], agent.used)
    });
    for (whose, all) in [("role", roles), ("agent", agents.collect())] {
        let name = format!("teamster_{whose}_tokens");
        page.metric(&name, Kind::Gauge, "Tokens that agents used, of those at hand.");
        for (labels, spent) in &all {
            let Spent { input, output, cached_read, cached_write, .. } = spent;
            for (kind, n) in [
                ("input", input),
                ("output", output),
                ("cached_read", cached_read),
                ("cached_write", cached_write),
            ] {
                page.sample(&name, &[labels.as_slice(), &[("kind", kind)]].concat(), n);
            }
        }
        let name = format!("teamster_{whose}_cost_dollars");
        page.metric(&name, Kind::Gauge, "What their turns of known price cost.");
        for (labels, spent) in &all {
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            page.sample(&name, labels, spent.microdollars as f64 / 1e6);
        }
        let name = format!("teamster_{whose}_unpriced_turns");
        page.metric(&name, Kind::Gauge, "Their turns whose price is not known.");
        for (labels, spent) in &all {
            page.sample(&name, labels, spent.n_unpriced);
        }
    }
    let open = state.questions.n_open();
    page.single("teamster_questions", Kind::Gauge, "Questions that wait for a person.", open);
}

fn log(page: &mut Page, telemetry: &Telemetry, state: &State) {
    let written = telemetry.sources.hub.written();
    page.single(
        "teamster_log_commits_total",
        Kind::Counter,
        "Batches that were made durable since the hub started, each with one sync.",
        written.commits(),
    );
    page.single(
        "teamster_log_records_total",
        Kind::Counter,
        "Commands in those batches; records per commit is how well batching works.",
        written.records(),
    );
    page.single("teamster_log_events", Kind::Gauge, "Events in the whole log.", state.seq());
    let size = |name| {
        let file = telemetry.sources.data.as_ref()?.join(name);
        std::fs::metadata(file).ok().map(|file| file.len())
    };
    if let Some(bytes) = size("log.db") {
        let bytes = bytes + size("log.db-wal").unwrap_or(0);
        let help = "Size of the log's database, with what is still to be moved into it.";
        page.single("teamster_log_bytes", Kind::Gauge, help, bytes);
    }
}

fn hub(page: &mut Page, telemetry: &Telemetry, state: &State) {
    let sources = &telemetry.sources;
    let live = state.tokens.live().count();
    page.single("teamster_tokens", Kind::Gauge, "Live tokens.", live);
    let help = "Calls and streams that wait for something to happen.";
    page.single("teamster_waiting", Kind::Gauge, help, sources.hub.n_waiting());
    let help = "Calls that the hub's loop has not answered yet.";
    page.single("teamster_loop_waiting", Kind::Gauge, help, sources.hub.pulse().n_waiting());
    let stalled = sources.hub.pulse().stalled().unwrap_or_default();
    let help = "Seconds for which the loop has answered nothing while calls wait; 0 below ten.";
    page.single("teamster_loop_stalled_seconds", Kind::Gauge, help, stalled.as_secs());
    let help = "Open HTTP connections, on TCP and on the unix socket.";
    page.single("teamster_connections", Kind::Gauge, help, sources.connections.n_open());
    if let Some(traces) = &sources.traces {
        let help = "Batches of spans that the collector did not take.";
        page.single("teamster_otlp_failures_total", Kind::Counter, help, traces.n_failures());
    }
    let help = "Processor time used, in user and system mode.";
    page.single("process_cpu_seconds_total", Kind::Counter, help, process::cpu_seconds());
    if let Some(bytes) = process::resident_bytes() {
        let help = "Memory held by the process.";
        page.single("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    if let Some(n) = process::open_files() {
        page.single("process_open_fds", Kind::Gauge, "Open files and connections.", n);
    }
    let started = state.hub.last_at.0 as f64 / 1e3;
    let help = "When the hub started, in seconds since 1970.";
    page.single("process_start_time_seconds", Kind::Gauge, help, started);
    let name = "teamster_build_info";
    page.metric(name, Kind::Gauge, "Always 1; the label says which version runs.");
    page.sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("a", &[("b", "x\"y\\z\n"), ("c", "")], 1.5);
        assert_eq!(page.0, "a{b=\"x\\\"y\\\\z\\n\",c=\"\"} 1.5\n");
    }
}
