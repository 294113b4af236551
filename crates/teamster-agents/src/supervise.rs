//! What the hub needs of whatever runs its agents' programs. A [`Supervisor`](crate::supervisor::Supervisor) runs them as
//! processes; the hub's simulation plays them without any.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::isolation::{Failure, Isolation};
use crate::launch::Launch;
use crate::launches::Leftover;
use crate::started::Started;

/// A launcher is ours and starts in milliseconds; a machine at many times its load, or a program on a slow network, takes
/// longer.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(30);

/// Why a program was not started. Nothing of it is left, or will be in a moment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Failed(#[from] Failure),
    #[error("cannot start a launcher")]
    Launcher(#[source] io::Error),
    #[error("cannot note the launch {id}")]
    Note { id: String, source: io::Error },
    #[error("the launcher ended without a word; its stderr: {stderr:?}")]
    Silent { stderr: String },
    #[error("the launcher did not start the program within {START_PATIENCE:?}")]
    Late,
}

/// Starts programs, and ends programs that an earlier hub left running.
pub trait Supervise: Send + Sync {
    /// Returns the strongest isolation that works now, and why it is not namespaces. `id` names the attempt.
    fn strongest<'a>(&'a self, id: &'a str) -> BoxFuture<'a, (Isolation, Option<Failure>)>;

    /// Starts a program. A caller that stops waiting leaves nothing of it running.
    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<Started, Error>>;

    /// Ends every program that an earlier hub did not see end, and returns them. They are returned again at the next call,
    /// until [`Supervise::forget`]. Call it before the first launch.
    fn end_leftovers(&self) -> io::Result<Vec<Leftover>>;

    /// Forgets programs of an earlier hub, once the log has what became of them.
    fn forget(&self, leftovers: &[Leftover]) -> io::Result<()>;
}
