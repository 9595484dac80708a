//! Benchmarks of `shmem`: programs that print what they measured, with the raw samples.
//!
//! * `startup`: wall and CPU time of whole `shmrun` jobs beside a loop of `posix_spawn`, in turn,
//!   so that both see the same machine.
//! * `spawn-loop`: that loop.
//! * `idle`: PEs that meet and report the memory they need.
//! * `latency`: time per one-sided operation between two PEs.
//!
//! Times are never asserted: machines differ and are noisy. Compare ratios inside one run.

pub mod stats;
