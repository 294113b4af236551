//! The shell around the core: command line, configuration, the hub's loop, and what it serves.

pub mod agents;
pub mod api;
pub(crate) mod beneath;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
mod fence;
pub mod held;
pub mod hub;
pub mod isolation;
pub mod listen;
mod outlive;
pub(crate) mod plain;
pub mod prices;
pub mod programs;
pub mod project;
pub mod quotas;
pub mod roles;
mod scripted_agent;
pub mod secret;
pub mod serve;
pub mod settings;
pub mod system_programs;
pub mod tasks;
pub mod telemetry;
pub mod work;
