//! How much room the disk has that the log is on. Below a reserve agents are refused, so that operators can still act.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::statvfs;

/// A reserve is at most this part of the disk: a small disk is not all reserve.
const RESERVE_PART: u64 = 20;

/// What was last seen of the disk.
#[derive(Debug, Default)]
pub struct Disk {
    is_low: AtomicBool,
    place: Mutex<Place>,
}

/// What is looked at.
#[derive(Debug, Default)]
struct Place {
    directory: Option<PathBuf>,
    reserve_bytes: u64,
}

impl Disk {
    /// Sets which disk is looked at, and how much of it is kept.
    pub fn keep(&self, directory: PathBuf, reserve_bytes: u64) {
        *self.place() = Place { directory: Some(directory), reserve_bytes };
        self.look();
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks how much room there is, and returns why agents may not write, if so. A disk that does not say counts as one
    /// with room.
    pub fn look(&self) -> Option<String> {
        let place = self.place();
        let disk = statvfs(place.directory.as_ref()?).ok()?;
        let block = disk.f_frsize.max(1);
        let (left, size) =
            (disk.f_bavail.saturating_mul(block), disk.f_blocks.saturating_mul(block));
        self.found(left, size, place.reserve_bytes)
    }

    fn found(&self, left: u64, size: u64, reserve_bytes: u64) -> Option<String> {
        let reserve = reserve_bytes.min(size / RESERVE_PART);
        let is_low = left < reserve;
        let was_low = self.is_low.swap(is_low, Ordering::Release);
        if is_low && !was_low {
            tracing::error!(
                left_bytes = left,
                "the disk is nearly full: agents' calls that write are refused"
            );
        }
        if was_low && !is_low {
            tracing::info!(left_bytes = left, "the disk has room again");
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        is_low.then(|| {
            format!(
                "the disk has {:.1} MiB left, and the last {:.1} MiB are kept for operators; ask the operator to free \
                 some, then repeat the call",
                mib(left),
                mib(reserve)
            )
        })
    }

    /// Returns why agents may not write, if so. Only a disk that had no room is looked at again.
    pub fn refuses_agents(&self) -> Option<String> {
        if self.is_low.load(Ordering::Acquire) { self.look() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_refused_while_less_than_the_reserve_is_left() {
        const MIB: u64 = 1 << 20;
        let disk = Disk::default();
        for (left, size, reserve, refuses) in [
            (600 * MIB, 100_000 * MIB, 512 * MIB, false),
            (500 * MIB, 100_000 * MIB, 512 * MIB, true),
            // Of a small disk a twentieth is kept.
            (2 * MIB, 20 * MIB, 512 * MIB, false),
            (MIB / 2, 20 * MIB, 512 * MIB, true),
            (0, 20 * MIB, 0, false),
        ] {
            assert_eq!(disk.found(left, size, reserve).is_some(), refuses, "{left} of {size}");
        }
        assert_eq!(
            disk.found(MIB / 2, 20 * MIB, 512 * MIB).as_deref(),
            Some(
                "the disk has 0.5 MiB left, and the last 1.0 MiB are kept for operators; ask the operator to free some, \
                 then repeat the call"
            )
        );
    }
}
