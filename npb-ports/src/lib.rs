//! The NAS parallel benchmarks over `shmem`.
//!
//! What a PE computes is in the crate [`npb_kernels`], with the definition of each benchmark
//! (`params`). Here each has a folder or a file with a `run`, which adds the communication;
//! [`kernels`] lists them, and a program of the same name in `src/bin` runs each. What they share
//! is here:
//!
//! | module | what it holds |
//! |---|---|
//! | [`adi`] | implicit time steps on a grid in cells, which BT and SP share, and LU in part |
//! | [`exchange`] | messages into landing slots |
//! | [`job`] | sums and maxima over all PEs; the clock of the timed region |
//! | [`processes`] | on which numbers of PEs a benchmark runs |
//! | [`memory`] | whether the data fits |
//! | [`error`] | why a benchmark can't run |
//! | [`verify`] | comparison with the published results |
//! | [`console`] | what is said while a benchmark runs |
//! | [`report`] | the text of the reference programs, or JSON |
//! | [`numbers`] | numbers as the reference programs print them |
//! | [`options`] | what all benchmarks can be told |
//! | [`cli`] | from the command line to the exit status |
//! | [`peers`] | a model of whom PEs talk to |
//!
//! The other modules are the benchmarks. A new one adds its folder, its line at the end of this file, its row
//! in [`kernels`], and its program; tests, tables and scripts go through that list, and tests tell what lacks.
//!
//! # Terms
//!
//! *Class*: a problem size with its reference results. *Batch*: the unit in which EP divides its
//! work. *Lane*: one of many positions of a computation done side by side in a vector.
//! *Timed region*: what the reference programs time; the report's seconds are those of the
//! slowest PE. *Mop/s*: millions of operations a second by each benchmark's own definition,
//! which for EP counts random numbers, so that rates of different benchmarks do not compare.
//!
//! # Invariants
//!
//! * Kernels know neither PEs nor clocks: they can be called, and are tested, without a job.
//! * Vector code is in [`npb_kernels`]: every change of the runtime compiles this crate again.
//! * The result does not depend on the number of PEs, apart from rounding.
//! * A run that does not verify, and a result that is not a number never does, ends with a
//!   failure status on every PE.

#![deny(unsafe_code)]

pub mod adi;
pub mod cli;
pub mod console;
pub mod error;
pub mod exchange;
pub mod job;
pub mod kernels;
pub mod memory;
pub mod numbers;
pub mod options;
pub mod peers;
pub mod processes;
pub mod report;
pub mod verify;

// The benchmarks.
pub mod bt;
pub mod cg;
pub mod ep;
pub mod ft;
pub mod is;
pub mod lu;
pub mod mg;
pub mod sp;

pub use npb_kernels::{array, class, cpu, random, simd};

/// Constants of all of them beside other publications.
#[cfg(test)]
mod published;
