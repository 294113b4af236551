//! The tests of the whole program, in one binary. Every file beside this one is a module of it.

mod bad_input;
mod cli;
mod door;
mod errands;
mod hub;
mod hub_loop;
mod in_process;
mod lost_writes;
mod normal;
mod real_agents;
mod scripted_model;
mod simulation;
mod transcripts;
