//! How fast agents may write and send.
//!
//! Each owner (an agent with its whole tree, or somebody without one) has two allowances that refill with time: one of
//! writes and one of bytes. While an allowance lasts, nothing waits. Then calls are slowed down to the configured rate,
//! and a write that would have to wait too long is refused. Operators are never slowed down.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use teamster_core::{PrincipalName, Timestamp};

/// How fast one owner may be; none is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub writes_per_s: Option<u32>,
    /// Writes that may come at once, before the rate counts.
    pub writes_at_once: u32,
    /// Bytes of requests.
    pub bytes_per_s: Option<u64>,
}

/// A write waits no longer than this for its turn; one that would have to is refused.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// The bytes that may come at once are those of so many seconds, and at least two of the largest requests.
const BYTES_AT_ONCE_S: u64 = 8;
const BYTES_AT_ONCE_MIN: u64 = 8 * 1024 * 1024;
/// Maximum owners in memory. At this number, owners with a full allowance are dropped.
const OWNERS_TIDY: usize = 1_000;

/// What all owners have left.
#[derive(Debug, Default)]
pub struct Paces {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    limits: Limits,
    owners: HashMap<PrincipalName, Allowances>,
}

#[derive(Debug, Clone, Copy)]
struct Allowances {
    writes: f64,
    bytes: f64,
    at: Timestamp,
}

impl Limits {
    fn bytes_at_once(&self) -> f64 {
        let per_s = self.bytes_per_s.unwrap_or_default();
        per_s.saturating_mul(BYTES_AT_ONCE_S).max(BYTES_AT_ONCE_MIN) as f64
    }

    fn full(&self, at: Timestamp) -> Allowances {
        Allowances { writes: self.writes_at_once.into(), bytes: self.bytes_at_once(), at }
    }
}

impl Allowances {
    fn refill(&mut self, limits: &Limits, now: Timestamp) {
        // A clock that was set back refills nothing.
        let seconds = (now.0 - self.at.0).max(0) as f64 / 1_000.0;
        self.at = now;
        let (writes, bytes) = (limits.writes_per_s, limits.bytes_per_s);
        self.writes += seconds * f64::from(writes.unwrap_or_default());
        self.writes = self.writes.min(limits.writes_at_once.into());
        self.bytes += seconds * bytes.unwrap_or_default() as f64;
        self.bytes = self.bytes.min(limits.bytes_at_once());
    }
}

impl Paces {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how fast everybody may be from now on.
    pub fn limit(&self, limits: Limits) {
        let mut inner = self.inner();
        if inner.limits != limits {
            *inner = Inner { limits, owners: HashMap::new() };
        }
    }

    /// Returns how long an owner's next write has to wait, or the sentence that refuses it.
    pub fn write(&self, owner: &PrincipalName, now: Timestamp) -> Result<Duration, String> {
        let mut inner = self.inner();
        let Some(per_s) = inner.limits.writes_per_s else { return Ok(Duration::ZERO) };
        let at_once = inner.limits.writes_at_once;
        let left = inner.of(owner, now);
        let wait = (1.0 - left.writes).max(0.0) / f64::from(per_s.max(1));
        if wait > WAIT_MAX.as_secs_f64() {
            return Err(format!(
                "you and the agents of your tree may write {per_s} times a second, and {at_once} times at once; wait \
                 {} s, then repeat the call",
                wait.ceil()
            ));
        }
        left.writes -= 1.0;
        Ok(Duration::from_secs_f64(wait))
    }

    /// Returns how long to wait before more is read of an owner, after so many bytes.
    pub fn receive(&self, owner: &PrincipalName, n_bytes: usize, now: Timestamp) -> Duration {
        let mut inner = self.inner();
        let Some(per_s) = inner.limits.bytes_per_s else { return Duration::ZERO };
        let left = inner.of(owner, now);
        left.bytes -= n_bytes as f64;
        Duration::from_secs_f64((-left.bytes).max(0.0) / per_s.max(1) as f64)
    }
}

impl Inner {
    fn of(&mut self, owner: &PrincipalName, now: Timestamp) -> &mut Allowances {
        let Self { limits, owners } = self;
        if owners.len() >= OWNERS_TIDY && !owners.contains_key(owner) {
            let full = limits.full(now);
            owners.retain(|_, left| {
                left.refill(limits, now);
                left.writes < full.writes || left.bytes < full.bytes
            });
        }
        let left = owners.entry(owner.clone()).or_insert_with(|| limits.full(now));
        left.refill(limits, now);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { writes_per_s: Some(10), writes_at_once: 100, bytes_per_s: Some(1 << 20) };

    fn name(name: &str) -> PrincipalName {
        PrincipalName::parse(name).unwrap()
    }

    fn paces() -> Paces {
        let paces = Paces::default();
        paces.limit(LIMITS);
        paces
    }

    #[test]
    fn writes_are_free_then_slowed_down_then_refused() {
        let (paces, ann) = (paces(), name("ann"));
        let now = Timestamp(1_000_000);
        for _ in 0..100 {
            assert_eq!(paces.write(&ann, now), Ok(Duration::ZERO));
        }
        assert_eq!(paces.write(&ann, now), Ok(Duration::from_millis(100)));
        for _ in 0..49 {
            paces.write(&ann, now).unwrap();
        }
        let refused = paces.write(&ann, now).unwrap_err();
        assert_eq!(
            refused,
            "you and the agents of your tree may write 10 times a second, and 100 times at once; wait 6 s, then repeat \
             the call"
        );
        // Refusals cost nothing, others are not concerned, and time gives all of it back, but not more.
        assert_eq!(paces.write(&name("bob"), now), Ok(Duration::ZERO));
        let later = Timestamp(now.0 + 60_000);
        for _ in 0..100 {
            assert_eq!(paces.write(&ann, later), Ok(Duration::ZERO));
        }
        assert_eq!(paces.write(&ann, later), Ok(Duration::from_millis(100)));
        // A clock that is set back gives nothing.
        assert_eq!(paces.write(&ann, now), Ok(Duration::from_millis(200)));
    }

    #[test]
    fn bytes_are_free_then_slowed_down() {
        let (paces, ann) = (paces(), name("ann"));
        let now = Timestamp(0);
        assert_eq!(paces.receive(&ann, 8 << 20, now), Duration::ZERO);
        assert_eq!(paces.receive(&ann, 1 << 20, now), Duration::from_secs(1));
        assert_eq!(paces.receive(&ann, 1 << 20, Timestamp(1_000)), Duration::from_secs(1));
        assert_eq!(paces.receive(&name("bob"), 1 << 20, now), Duration::ZERO);
    }

    #[test]
    fn without_limits_nothing_waits_and_owners_are_forgotten() {
        let unlimited = Paces::default();
        for n in 0..10_000 {
            assert_eq!(unlimited.write(&name("ann"), Timestamp(n)), Ok(Duration::ZERO));
        }
        let paces = paces();
        for n in 0..5_000 {
            let owner = name(&format!("agent-{n}"));
            paces.write(&owner, Timestamp(n * 1_000)).unwrap();
        }
        assert!(paces.inner().owners.len() <= OWNERS_TIDY);
    }
}
