//! The hub: one loop that decides, and the handle by which everything else reaches it.

mod decider;
mod disk;
mod fair;
mod handle;
mod idlers;
mod open;
mod pids;
mod pulse;
mod stderrs;
mod trees;
mod unheard;
mod waiters;
mod words;
mod written;

pub use decider::{Ended, Input, Snapshots, Submission};
pub use disk::Disk;
pub use fair::WAITING_MAX;
pub use handle::Handle;
pub use idlers::WaitingCallers;
pub use open::{OpenError, Opened, Parts, start};
pub use pulse::{Pulse, Ticket, guarded};
pub use trees::{Claim, Tree, Trees};
pub use written::Written;
