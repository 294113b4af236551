//! The tests of the whole program, in one binary. Every file beside this one is a module of it.

mod hub;
mod hub_loop;
mod in_process;
mod lost_writes;
mod real_agents;
mod scripted_model;
mod simulation;
