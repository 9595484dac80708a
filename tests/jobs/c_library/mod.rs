//! The C library as users get it: installed under a prefix, with programs in C and C++ compiled by its
//! wrappers and run through the real `shmrun`.
//!
//! Needs compilers of C and C++: the need `c` of `SHMEM_TEST_REQUIRE`.

mod conformance;
mod coverage;
mod ends;
mod exports;
mod headers;
mod install;
mod pmi2;
mod programs;
mod statics;
pub(crate) mod toolchain;
