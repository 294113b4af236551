//! What calls need of whoever serves them, whatever door they came by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use teamster_core::token::Token;
use tokio_util::sync::CancellationToken;

use crate::answer::Fault;
use crate::catalogue::{Catalogue, Entry};
use crate::hub::Hub;
use crate::observe::{How, Observer, Watched};
use crate::scope::Scope;
use crate::seal::Seal;
use crate::trace::Trace;

/// Starts a background task with a name; the hub brings the way.
pub type Spawn = Arc<dyn Fn(&'static str, BoxFuture<'static, ()>) + Send + Sync>;

/// The tools, the hub behind them, and what goes with each call.
pub struct Service {
    pub(crate) hub: Arc<dyn Hub>,
    pub(crate) catalogue: Catalogue,
    pub(crate) seal: Seal,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) patience: Duration,
    pub(crate) spawn: Spawn,
    pub(crate) streams_end: CancellationToken,
    pub(crate) n_calls: AtomicU64,
}

impl Service {
    /// Returns a key that no call had before: no two hubs on one log count the same start.
    pub(crate) fn new_key(&self) -> String {
        let n_calls = self.n_calls.fetch_add(1, Ordering::Relaxed);
        format!("call-{}-{n_calls}", self.hub.state().hub.n_starts)
    }

    /// Returns the tool that a call names.
    pub(crate) fn find(&self, scope: &Scope, name: &str) -> Result<&Entry, Fault> {
        find(&self.catalogue, scope, name)
    }

    /// Tells of a call that is over before its tool is called; of all others [`crate::running::run`] tells. One that
    /// joins an errand is not told: it is the same call.
    pub(crate) fn over(&self, entry: Option<&Entry>, token: &Token, trace: &Trace, how: How) {
        Watched::begin(self.observer.as_ref(), entry, token, trace).ends(how);
    }

    pub(crate) fn streams_ended(&self) -> CancellationToken {
        self.streams_end.clone()
    }

    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        (self.spawn)(name, task.boxed());
    }
}

/// Returns the tool that a call names, or says that there is none.
pub(crate) fn find<'a>(
    catalogue: &'a Catalogue,
    scope: &Scope,
    name: &str,
) -> Result<&'a Entry, Fault> {
    catalogue
        .find(scope.set, name)
        .ok_or_else(|| Fault::UnknownTool(name.chars().take(80).collect()))
}
