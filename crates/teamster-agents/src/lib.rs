//! Agents: how their processes are started, watched and ended. Nothing here knows what an agent says.

pub mod isolation;
pub mod launch;
pub mod launcher;
pub mod launches;
pub mod lines;
pub mod process;
#[cfg(target_os = "linux")]
mod processes;
pub mod restarts;
pub mod stdin;
pub mod supervisor;
mod tail;
mod wire;
