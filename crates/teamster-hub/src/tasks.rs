//! The only place that starts background tasks: each has a name, and its end is reported if it was not a good one.

use tokio::task::JoinHandle;
use tracing::Instrument;

/// Starts a task. A panic in it is logged under its name and ends nothing else.
#[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
pub fn spawn(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let task = tokio::spawn(task.instrument(tracing::debug_span!("task", name)));
        let _abort_with_us = AbortOnDrop(task.abort_handle());
        if let Err(error) = task.await
            && error.is_panic()
        {
            tracing::error!(name, "a task panicked");
        }
    })
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
