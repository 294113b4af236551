//! The hub: its loop, the agents and runs it drives, its settings, and what it serves.

pub mod agents;
pub mod api;
pub(crate) mod beneath;
pub mod client;
pub mod clock;
pub mod config;
pub mod fence;
pub mod held;
pub mod hub;
pub mod isolation;
pub mod listen;
pub mod outlive;
pub mod plain;
pub mod prices;
pub mod programs;
pub mod project;
pub mod quotas;
pub mod roles;
pub mod secret;
pub mod serve;
pub mod settings;
pub mod system_programs;
pub mod tasks;
pub mod telemetry;
pub mod work;
