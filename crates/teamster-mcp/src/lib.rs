//! The tools that agents call, who may call which, and the doors they come in by.
//!
//! A call goes from a door through [`dispatch`] to a tool and back. Doors are adapters around `dispatch`; nothing
//! outside of `door/` knows rmcp. What the hub is, this crate does not know: it talks to the [`Hub`] trait.

pub mod access;
pub mod ask;
pub mod catalogue;
pub mod dispatch;
pub mod docs;
pub mod door;
mod errands;
pub mod hub;
pub mod observe;
pub mod pace;
mod paging;
#[cfg(test)]
mod testing;
pub mod tools;

pub use catalogue::{Catalogue, Set};
pub use hub::Hub;
