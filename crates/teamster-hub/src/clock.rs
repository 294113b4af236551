//! The only place that reads the time. Everything else is given it, so that tests can give another.

use std::time::Duration;

use futures_util::future::BoxFuture;
use teamster_core::Timestamp;

/// Tells the time and waits for it.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Returns when the clock shows `at` or later.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// Returns how long something took.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
pub fn time<T>(measured: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let outcome = measured();
    (outcome, start.elapsed())
}

/// Returns the time as finely as the machine tells it.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
pub fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Returns a time of the machine, such as that of a file, as the log has times.
pub fn timestamp(at: std::time::SystemTime) -> Timestamp {
    let since_epoch = at.duration_since(std::time::UNIX_EPOCH);
    Timestamp(since_epoch.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

/// Tells how long ago it was started, also if the machine's clock is set meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// A timer does not sleep longer than this at once: the machine's clock can be set forward meanwhile.
const NAP_MAX: Duration = Duration::from_secs(60 * 60);

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn now(&self) -> Timestamp {
        timestamp(std::time::SystemTime::now())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            while clock.now() < at {
                let left = Duration::from_millis(u64::try_from(at.0 - clock.now().0).unwrap_or(0));
                tokio::time::sleep(left.min(NAP_MAX)).await;
            }
        })
    }
}
