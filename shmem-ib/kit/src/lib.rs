//! What tests of `shmem-ib` share: [`conformance`], one suite of checks that every HCA has to pass, [`sim`],
//! HCAs in a seeded network with virtual time, and [`job`], endpoints in one process.

pub mod conformance;
pub mod job;
pub mod sim;

/// For the macros of [`conformance`].
#[doc(hidden)]
pub use shmem_verbs as verbs;
