//! The pure core: what there is, what may happen to it, and what follows.
//!
//! A [`Command`] is decided against a [`State`]: it causes [`Event`]s or is refused. Recorded events are applied to
//! the state and can always be applied again. Nothing here reads a clock, a file, the network or a random number;
//! what a decision needs of those comes in through its [`Context`].

pub mod agent;
pub mod client_session;
pub mod compaction;
pub mod conversation;
pub mod dossier;
pub mod drive;
pub mod errand;
pub mod event;
pub mod grant;
pub mod guard;
pub mod hub;
pub mod ids;
pub mod item;
pub mod iteration;
pub mod key;
pub mod note;
pub mod permission;
pub mod person;
pub mod question;
pub mod quota;
pub mod record;
pub mod role;
pub mod run;
pub mod spending;
pub mod state;
pub mod team;
pub mod text;
pub mod token;
pub mod topic;
pub mod yak;

#[cfg(test)]
mod testing;

pub use event::{Command, Event, Refusal, Summary};
pub use ids::{DossierName, NodeName, PrincipalName, RunName, TeamName, Timestamp};
pub use record::Record;
pub use state::{Caller, Context, Decision, State};
