//! Agents: their programs, drivers and processes.

pub mod agent;
pub mod dialogue;
pub mod drivers;
pub mod process;
pub mod transcript;
