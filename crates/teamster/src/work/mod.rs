//! Working a spec off in iterations.

pub mod hooks;
