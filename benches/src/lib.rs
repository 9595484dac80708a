//! Benchmarks of `shmem`: programs that print what they measured, with the raw samples.
//!
//! * `startup`: time and memory of whole `shmrun` jobs beside a loop of `posix_spawn`, and beside other
//!   launchers, in turn, so that all see the same machine.
//! * `spawn-loop`: that loop.
//! * `idle`: PEs that meet and report the memory they need.
//! * `p2p`: time and CPU time per one-sided operation between two PEs.
//! * `raw-sockets`: the same rows over bare sockets, the limit between nodes.
//! * `collectives`: time of collectives on all PEs.
//! * `by_bytes`: time and CPU time of collectives by the bytes of a contribution.
//! * `compare`: both beside their twins in C on other OpenSHMEM libraries, and on none, in turn.
//! * `first_contact`: time of the first operation between two PEs, by what the target does.
//! * `footprint`: memory that a job takes of its machine, the kernel's included.
//! * `qp_table`: queue pairs per PE of whole programs, under different settings.
//! * `pmi_collectives`: PMI's fence and allgather, blocking and not, and how much of them hides.
//! * `pmi_caches`: exchanges under the caches of PMI, in real jobs and in virtual time.
//! * `pmi_scale`: PMI in jobs of up to a million processes, in virtual time.
//! * `pmi_get`: time of a get from the node's key-value store, by the number of readers.
//! * `contexts`: what connections of its own are worth to a context, beside a bulk transfer and among threads.
//! * `halo`: time of a step of a halo exchange, by what sends it and what it waits for.
//! * `jacobi`: the same halo exchange in two manners of the Rust interface, to be compared with `rivals/jacobi.c`.
//! * `incast`: rate of one PE that many PEs write to at the same time.
//! * `pages`: what pages of the heap cost, by their kind.
//! * `waiting`: what it costs that many PEs wait for one.
//! * `many`: first calls of collectives among many PEs, and page tables of all.
//! * `npb_beside`: rates of the NAS benchmarks beside those of other implementations.
//! * `figures`: the figures of the works behind this runtime, by what all of these measure (`cargo xtask figures`).
//! * `npb_table`: rates, peers and queue pairs of the NAS benchmarks.
//!
//! `cargo bench` has `calls`: what a call costs in a job of one PE, repeated and compared by criterion.
//!
//! Times are never asserted: machines differ and are noisy. Compare ratios inside one run.

pub mod batches;
pub mod counts;
pub mod cpu;
pub mod figures;
pub mod memory;
pub mod pmi;
pub mod rivals;
pub mod rows;
pub mod stats;
pub mod table;
pub mod turns;
