//! The tests of the whole program, in one binary. Every file beside this one is a module of it.

mod bad_input;
mod cli;
mod configuration;
mod crash;
mod disk;
mod door;
mod driven_agents;
mod errands;
mod fuzz;
mod history;
mod hostile;
mod hub;
mod hub_loop;
mod in_process;
mod launcher;
mod load;
mod lost_writes;
mod normal;
mod operators;
mod power_loss;
mod real_agents;
mod scripted_agent;
mod scripted_model;
mod simulation;
mod stdio;
mod transcripts;
