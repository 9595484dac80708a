//! OpenSHMEM 1.6 for C and C++: `libshmem`.
//!
//! Every exported function is a line of the table in crate `shmem-table`, from which the headers are
//! made too; the build script turns it into [`exports`], which call the generic functions of the
//! other modules. Those check what C programs cannot be kept from getting wrong ([`check`]), turn
//! handles into objects ([`handles`]), and call `shmem::raw`.
//!
//! # Conventions
//! The functions behind the exports take the C routine's name first, for messages, and the context
//! next if it has one; then its arguments as C passes them. They never call an exported function,
//! which a profiling library may have replaced.
//!
//! # Safety
//! What OpenSHMEM demands of the caller of a routine: arrays that are as long as its arguments
//! say, private ones readable or writable for that length (of a non-blocking routine until quiet),
//! handles that are not yet destroyed. Everything else is checked. "By the caller" in comments
//! refers to this.

#![allow(
    clippy::too_many_arguments,
    reason = "as many as the C routines have, and a name"
)]

mod active;
mod atomics;
mod check;
mod collectives;
mod constants;
mod contexts;
mod exports;
mod handles;
mod long_double;
mod memory;
mod order;
mod place;
mod rma;
mod setup;
mod signal;
mod sync;
mod teams;
mod types;
