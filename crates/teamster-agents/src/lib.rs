//! Agents: their programs, drivers and processes. So far only the one way to start a process.

pub mod process;
