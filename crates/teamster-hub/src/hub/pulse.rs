//! Whether the loop still answers: a stall is noticed, logged and shown, and a panic becomes a sentence.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::MissedTickBehavior;

/// How often the loop is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long no call may be answered while some wait, before that is a stall. A commit takes milliseconds, on a bad disk a
/// second.
const STALLS_AFTER: Duration = Duration::from_secs(10);

/// Counts what the loop is asked and what it has answered. Two additions for each call; only the watcher reads the time.
#[derive(Debug, Default)]
pub struct Pulse {
    n_asked: AtomicU64,
    n_answered: AtomicU64,
    stalled_s: AtomicU64,
}

/// A call that the loop has not answered. Dropped where it is answered, not where the caller stops waiting.
#[derive(Debug)]
pub struct Ticket(Arc<Pulse>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.n_answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Pulse {
    pub(super) fn ask(self: &Arc<Self>) -> Ticket {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        Ticket(self.clone())
    }

    /// Returns how many calls the loop has not answered yet.
    pub fn n_waiting(&self) -> u64 {
        let n_answered = self.n_answered.load(Ordering::Relaxed);
        self.n_asked.load(Ordering::Relaxed).saturating_sub(n_answered)
    }

    /// Returns for how long the loop has answered nothing while calls wait, if that is too long.
    pub fn stalled(&self) -> Option<Duration> {
        let seconds = self.stalled_s.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Returns the sentence that callers get during a stall.
    pub fn says(&self) -> Option<String> {
        let stalled = self.stalled()?;
        Some(format!(
            "the hub has answered no call for {} s ({} waiting); the disk of its log may hang",
            stalled.as_secs(),
            self.n_waiting()
        ))
    }

    /// Watches the loop, and never ends.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        // Time in which the whole process was stopped is not the loop's.
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen, mut silent) = (0, Duration::ZERO);
        loop {
            looks.tick().await;
            let n_answered = self.n_answered.load(Ordering::Relaxed);
            let is_silent = self.n_waiting() > 0 && n_answered == seen;
            (seen, silent) =
                (n_answered, if is_silent { silent + LOOK_EVERY } else { Duration::ZERO });
            let stalled_s = if silent >= STALLS_AFTER { silent.as_secs() } else { 0 };
            let before = self.stalled_s.swap(stalled_s, Ordering::Relaxed);
            match (before, stalled_s) {
                (0, 1..) => tracing::error!("{}", self.says().unwrap_or_default()),
                (1.., 0) => tracing::info!("the hub answers calls again"),
                _ => {}
            }
        }
    }
}

/// Runs the loop to its end, and returns why it ended if it should not have.
pub async fn guarded<E: std::error::Error + Send + Sync + 'static>(
    run: impl Future<Output = Result<(), E>>,
) -> Result<(), String> {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(ended) => ended.map_err(|error| format!("{:#}", anyhow::Error::from(error))),
        Err(panic) => Err(format!(
            "its loop panicked ({}). This is a bug in Teamster; nothing that was acknowledged is lost, and the hub can be \
             started again",
            message(panic.as_ref())
        )),
    }
}

/// Returns the words of a panic.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "without a message".to_owned())
}
