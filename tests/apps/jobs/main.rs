//! The benchmarks as whole jobs through the real `shmrun`: NAS, Graph500, and the model of whole jobs.
//!
//! They are a package of their own, so that a change of the library is tested by `shmem-tests` before these programs, which take
//! the longest to compile, are built.

mod graph500;
mod npb;
mod programs;
mod scale;
