//! What must still be done because of an event: start a process, deliver a message.
//!
//! An obligation is part of the state from the event that causes it until the event that records it as done, so a
//! restart finds it again. Spawning, committing and posting are not idempotent; each kind therefore says in its
//! variant's comment how a restarted hub recognises that it was done already (a process marker, a commit trailer, a
//! message key). There is no kind yet: that an agent must be started or ended is its phase, in `agent.rs`, and its process
//! is recognised by the mark of its launch.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// One thing to do. The hub performs it after the event is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Obligation {}

/// All that is still to be done, by the sequence of the event that caused it.
pub type Obligations = OrdMap<u64, Obligation>;
