//! The C library as users get it: installed under a prefix, with programs in C and C++ compiled by its
//! wrappers and run through the real `shmrun`.
//!
//! Needs a C compiler. Where there is none, the tests say so and pass, unless `C_REQUIRED` is set, as it
//! is in continuous integration.

mod conformance;
mod coverage;
mod ends;
mod exports;
mod headers;
mod install;
mod programs;
mod toolchain;
