//! Servers, clients and agents in simulation: no process, no socket, everything from a seed.
//!
//! - [`jobs`]: whole jobs over streams that are cut and delayed
//! - [`mixed`]: clients of all versions, some of which go wrong
//! - [`pmix`]: agents that join PMIx servers
//! - [`scale`]: messages and bytes of jobs of 8192 PEs
//!
//! `shmem_testkit::seeds` describes how to run more seeds, or one.

mod jobs;
mod mixed;
mod pmix;
mod rng;
mod scale;
mod world;
