//! Doors: the ways in. Each turns what it hears into a call of [`crate::dispatch::dispatch`].

mod direct;
pub mod http;
pub mod lines;
mod paced;
pub mod rmcp;
mod sessions;
mod strict;
mod unfinished;
