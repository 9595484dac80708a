//! PMI-2 for C, with the non-blocking extensions: `libshmem_pmi2`, a thin shell over
//! [`shmem_pmi::process::Process`].
//!
//! The functions are named and typed as MPICH's and Slurm's `pmi2.h` has them, so that programs that were
//! written for `libpmi2` link with this library as they are, and as "Non-blocking PMI Extensions for Fast
//! MPI Startup" has them. `include/shmem_pmi2.h` is written by hand; where a function changes, it has to.
//!
//! Every function checks its arguments ([`arguments`]) and runs inside [`answer::answer`], which makes a code of
//! what went wrong, tells the reason, and keeps panics from the caller.
//!
//! # Safety
//! What is demanded of the caller of every function, and what "by the caller" in comments refers to: a
//! pointer that is not null leads to a string that ends with NUL, to a variable of its type, or to
//! as many bytes as the argument behind it says; the buffer of a non-blocking operation
//! until that has been waited for.

#![allow(
    non_snake_case,
    reason = "the names are those of the C interface, on purpose"
)]

mod answer;
mod arguments;
mod attributes;
mod collectives;
mod job;
mod names;
mod pairs;
mod state;
mod status;
