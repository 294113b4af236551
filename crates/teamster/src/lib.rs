//! The command line, its terminal views, and the scripted agent. What a hub does is in `teamster-hub`.

pub mod cli;
mod scripted_agent;
