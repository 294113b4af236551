//! Agents: how their processes are started, watched and ended, and how one talks to them.

pub mod agent;
#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod deputy;
pub mod dialogue;
pub mod drivers;
pub mod isolation;
pub mod launch;
pub mod launcher;
pub mod launches;
pub mod lines;
#[cfg(target_os = "linux")]
mod mounts;
pub mod process;
#[cfg(target_os = "linux")]
mod processes;
pub mod restarts;
pub mod started;
pub mod stdin;
pub mod supervise;
pub mod supervisor;
mod tail;
pub mod transcript;
pub mod verb;
mod wire;
