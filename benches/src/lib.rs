//! Benchmarks of `shmem`: programs that print what they measured, with the raw samples.
//!
//! * `spawn-loop`: a loop of `posix_spawn`, the yardstick of start-up.
//! * `idle`: PEs that meet and report the memory they need.
//! * `p2p`: time and CPU time per one-sided operation between two PEs.
//! * `busy_cores`: jobs beside endless loops, by `SHMEM_SPIN`.
//! * `raw-sockets`: the same rows over bare sockets, the limit between nodes.
//! * `collectives`: time of collectives on all PEs.
//! * `by_bytes`: time and CPU time of collectives by the bytes of a contribution.
//! * `first_contact`: time of the first operation between two PEs, by what the target does.
//! * `footprint`: memory that a job takes of its machine, the kernel's included.
//! * `pmi_collectives`: PMI's fence and allgather, blocking and not, and how much of them hides.
//! * `pmi_get`: time of a get from the node's key-value store, by the number of readers.
//! * `contexts`: what connections of its own are worth to a context, beside a bulk transfer and among threads.
//! * `halo`: time of a step of a halo exchange, by what sends it and what it waits for.
//! * `jacobi`: the same halo exchange in two manners of the Rust interface, to be compared with `rivals/jacobi.c`.
//! * `incast`: rate of one PE that many PEs write to at the same time.
//! * `pages`: what pages of the heap cost, by their kind.
//! * `waiting`: what it costs that many PEs wait for one.
//! * `many`: first calls of collectives among many PEs, and page tables of all.
//! * `npb_rates`: rates of the NAS benchmarks, also beside those of other implementations.
//!
//! `cargo bench -p shmem-benches` runs the benchmarks that criterion repeats and compares, `benches/`: "Judging a change" in
//! `docs/performance.md` says how to find out with them whether a change made something slower.
//!
//! The figures of the works behind this runtime, measured by these programs in turn and drawn, are in `figures/`
//! (`cargo xtask figures`); models of jobs beyond the size of a machine in `model/`. Both are packages of their own.
//!
//! Times are never asserted: machines differ and are noisy. Compare ratios inside one run.

pub mod batches;
pub mod counts;
pub mod cpu;
pub mod memory;
pub mod pmi;
pub mod rows;
pub mod stats;
pub mod turns;
