//! The tools that agents call, who may call which, and the doors they come in by.
//!
//! A call goes from a door through [`dispatch`] to a tool and back. Doors are adapters around `dispatch`; nothing
//! outside of `door/` knows rmcp. What the hub is, this crate does not know: it talks to the [`Hub`] trait.

pub mod access;
pub mod answer;
mod arguments;
pub mod ask;
pub mod call;
pub mod catalogue;
pub mod dispatch;
pub mod docs;
pub mod door;
mod errands;
pub mod hub;
pub mod observe;
pub mod pace;
mod paging;
pub mod progress;
mod running;
pub mod scope;
pub mod seal;
pub mod service;
pub mod set;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod trace;

pub use catalogue::Catalogue;
pub use hub::Hub;
pub use set::Set;
