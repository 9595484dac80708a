//! The kernels of the NAS parallel benchmarks: what one PE computes between two messages.
//!
//! This crate knows no messages, no symmetric memory and no clock. `npb-ports` depends on it, and adds
//! the messages between PEs, the programs and their reports. Kernels take long to compile. They are a
//! crate of their own so that a change of the runtime compiles `npb-ports` again, and not the kernels.
//!
//! | module | what it holds |
//! |---|---|
//! | [`class`] | problem classes S, W, A to F |
//! | [`random`] | the random sequence of all benchmarks, with jumps and lanes |
//! | [`cpu`] | running a kernel as code for the best vector instructions |
//! | [`mod@array`] | memory of grids, on huge pages |
//! | [`simd`] | eight numbers side by side |
//! | [`adi`] | implicit time steps on a grid in cells, which BT and SP share, and LU in part |
//!
//! The other modules are the benchmarks: sizes and published results (`params`), and kernels.
//!
//! # Compiled once
//!
//! A generic function is compiled in the crate that names its types. Therefore only this crate can run
//! a kernel by its type. Other crates call functions and methods without type parameters, such as
//! `at` of a kernel, which contain the kernel's code for every level.

#![deny(unsafe_code)]

pub mod adi;
pub mod array;
pub mod class;
pub mod cpu;
pub mod random;
pub mod simd;

// The benchmarks.
pub mod bt;
pub mod cg;
pub mod ep;
pub mod ft;
pub mod is;
pub mod lu;
pub mod mg;
pub mod sp;
