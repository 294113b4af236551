//! `teamster scripted-agent`: an agent without a model, for tests and demonstrations.

use crate::scripted_agent;

pub(super) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(scripted_agent::run());
    // A thread that still reads or writes would be waited for.
    runtime.shutdown_background();
    outcome
}
