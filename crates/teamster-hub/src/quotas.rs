//! Has the hub keep to the configured quotas, follows their changes, and watches the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use teamster_core::quota;
use teamster_mcp::pace;
use tokio_util::sync::CancellationToken;

use crate::agents::Configured;
use crate::hub::Handle;
use crate::settings::Quotas;

/// How often the disk is looked at. The hub writes less than a reserve in this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const MIB: u64 = 1 << 20;

/// Sets the quotas of a hub that starts.
pub fn apply(hub: &Handle, quotas: &Quotas, data: PathBuf) {
    let mib = |n: u32| (n > 0).then(|| u64::from(n) * MIB);
    let stored = quota::Limits {
        owner_bytes: mib(quotas.stored_mib.get()),
        run_bytes: mib(quotas.run_stored_mib.get()),
    };
    let paces = pace::Limits {
        writes_per_s: Some(quotas.writes_per_s.get()).filter(|n| *n > 0),
        writes_at_once: quotas.writes_at_once.get(),
        bytes_per_s: mib(quotas.received_mib_per_s.get()),
    };
    hub.limit(stored, paces);
    hub.disk().keep(data, u64::from(quotas.disk_reserve_mib.get()) * MIB);
}

/// Follows what is configured, and looks at the disk, until `stop`.
pub async fn run(hub: Handle, configured: Arc<Configured>, data: PathBuf, stop: CancellationToken) {
    let mut changes = configured.changes();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {
                hub.disk().look();
            }
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                apply(&hub, &changes.borrow_and_update().settings.quotas.clone(), data.clone());
            }
            () = stop.cancelled() => return,
        }
    }
}
