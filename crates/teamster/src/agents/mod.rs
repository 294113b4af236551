//! Runs agents: gives them room in the order of drafting, starts their programs, and records what becomes of them.

mod guard;
mod outcome;
