//! Simulation of how PEs connect and disconnect: random networks from seeds, and all schedules of a few
//! endpoints within small budgets.
//!
//! - [`rc`]: a queue pair for each pair of PEs, from first contact to leaving, with queue pairs that run out
//! - [`xrc`]: one queue pair for each pair of a PE and a node
//!
//! `shmem_testkit::seeds` describes how to run more seeds, or one, which prints what happens.

mod explore;
mod rc;
mod world;
mod xrc;
