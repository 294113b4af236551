//! Counters that many threads add to, and what they add up to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use teamster_mcp::observe::How;

/// The upper bounds of the latency histogram, in seconds; one more bucket holds what took longer. Reading takes tens of
/// microseconds, writing as long as the disk syncs, and waiting for an agent up to hours.
pub const BOUNDS_S: [f64; 23] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0,
];
const N_BUCKETS: usize = BOUNDS_S.len() + 1;
const N_WAYS: usize = How::ALL.len();

/// The bounds in nanoseconds, as calls are timed.
const BOUNDS_NS: [u64; BOUNDS_S.len()] = {
    let mut bounds = [0; BOUNDS_S.len()];
    let mut i = 0;
    while i < bounds.len() {
        bounds[i] = (BOUNDS_S[i] * 1e9) as u64;
        i += 1;
    }
    bounds
};

/// Returns the place of a way of ending in [`Tally::by_how`].
pub(super) fn place(how: How) -> usize {
    match how {
        How::Ok => 0,
        How::Refused => 1,
        How::Failed => 2,
        How::Abandoned => 3,
    }
}

/// Counts calls and how long they took. It has cache lines of its own, so that two of them never share one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter {
    by_how: [AtomicU64; N_WAYS],
    buckets: [AtomicU64; N_BUCKETS],
    sum_ns: AtomicU64,
}

impl Counter {
    pub(super) fn add(&self, how: How, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.by_how[place(how)].fetch_add(1, Ordering::Relaxed);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, tally: &mut Tally) {
        for (sum, one) in tally.by_how.iter_mut().zip(&self.by_how) {
            *sum += one.load(Ordering::Relaxed);
        }
        for (sum, one) in tally.buckets.iter_mut().zip(&self.buckets) {
            *sum += one.load(Ordering::Relaxed);
        }
        tally.sum_ns = tally.sum_ns.saturating_add(self.sum_ns.load(Ordering::Relaxed));
    }
}

/// As many copies of the counters as there are, at most: threads share them in turn.
const SHARDS_MAX: usize = 16;

/// The same counters several times, so that threads do not wait for each other's cache lines.
#[derive(Debug)]
pub(super) struct Sharded(Box<[Box<[Counter]>]>);

impl Sharded {
    pub(super) fn new(n_counters: usize) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let counters = || (0..n_counters).map(|_| Counter::default()).collect();
        Self((0..threads.min(SHARDS_MAX)).map(|_| counters()).collect())
    }

    /// Returns the counters that this thread adds to.
    pub(super) fn mine(&self) -> &[Counter] {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        &self.0[THREAD.with(|thread| *thread) % self.0.len()]
    }

    pub(super) fn tally(&self, counter: usize) -> Tally {
        let mut tally = Tally::default();
        self.0.iter().for_each(|shard| shard[counter].add_to(&mut tally));
        tally
    }
}

/// What counters add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    by_how: [u64; N_WAYS],
    buckets: [u64; N_BUCKETS],
    sum_ns: u64,
}

impl Tally {
    pub fn calls(&self) -> u64 {
        self.by_how.iter().sum()
    }

    pub fn ended(&self, how: How) -> u64 {
        self.by_how[place(how)]
    }

    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.sum_ns).as_secs_f64()
    }

    /// Returns how many calls each bucket of [`BOUNDS_S`] holds, without those before it.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Returns the time within which this share of all calls ended, as exactly as the buckets tell: within a bucket, calls
    /// count as spread evenly.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let n: u64 = self.buckets.iter().sum();
        let wanted = share * n as f64;
        let mut before = 0;
        for (i, &bucket) in self.buckets.iter().enumerate() {
            let through = before + bucket;
            if bucket > 0 && through as f64 >= wanted {
                let lower = if i == 0 { 0.0 } else { BOUNDS_S[i - 1] };
                // Of the last one only the lower bound is known.
                let upper = BOUNDS_S.get(i).copied().unwrap_or(lower);
                let part = (wanted - before as f64) / bucket as f64;
                return Some(Duration::from_secs_f64(lower + (upper - lower) * part));
            }
            before = through;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_adds_up_and_quantiles_lie_in_their_bucket() {
        let counters = Sharded::new(2);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for i in 0..1_000 {
                        let took = if i < 980 { 300 } else { 40_000 };
                        let how = if i % 10 == 0 { How::Refused } else { How::Ok };
                        counters.mine()[1].add(how, Duration::from_micros(took));
                    }
                });
            }
        });
        assert_eq!(counters.tally(0), Tally::default());
        assert_eq!(counters.tally(0).quantile(0.5), None);
        let tally = counters.tally(1);
        assert_eq!((tally.calls(), tally.ended(How::Refused)), (8_000, 800));
        let at = |share| tally.quantile(share).unwrap();
        let (half, most) = (at(0.5), at(0.99));
        assert!((250..=500).contains(&half.as_micros()), "{half:?}");
        assert!((25..=50).contains(&most.as_millis()), "{most:?}");
        let seconds = 8.0 * (980.0 * 0.000_3 + 20.0 * 0.04);
        assert!((tally.seconds() - seconds).abs() < 1e-6, "{}", tally.seconds());
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_is_longer_to_the_last() {
        for (ns, bucket) in
            [(0, 0), (10_000, 0), (10_001, 1), (1_800_000_000_000, 22), (u64::MAX, 23)]
        {
            let (counter, mut tally) = (Counter::default(), Tally::default());
            counter.add(How::Ok, Duration::from_nanos(ns));
            counter.add_to(&mut tally);
            assert_eq!(tally.buckets.iter().position(|n| *n == 1), Some(bucket), "{ns}");
        }
    }
}
