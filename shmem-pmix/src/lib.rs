//! libpmix, loaded when it is needed: the one address of its types, functions and values.
//!
//! PMIx is a C interface whose wire format is the library's own business, so whoever wants to speak it,
//! as a process of a job or as its launcher, needs the library. A program that was linked against it
//! would not start where it is missing; this crate loads it while the program runs.
//!
//! # Map
//! * [`abi`]: the C types, with their sizes and offsets asserted; the module of a server.
//! * [`key`]: names of attributes. [`Status`]: what calls answer.
//! * [`Library`]: finding and loading it; its functions, for clients and for servers.
//! * [`server`]: the server of a node's processes.
//! * [`Data`], [`InfoArray`]: values and lists of attributes, built for the library and read from it.
//! * [`client`]: a process of a job.
//!
//! # Invariants
//! * Only functions named `PMIx_*` are used, and of those only what every release from 3.2 on has:
//!   helpers with other names have come and gone in minor releases. What later releases offer as functions
//!   for building and reading values, and older ones as macros of C, is written here once more.
//! * A number is read whatever its type is: servers disagree on the types of the same attribute.
//! * The library is loaded once and never unloaded: it has threads.

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "shmem is for 64-bit little-endian targets: offsets in symmetric memory are 64 bits wide, and nodes exchange them as they lie in memory"
);

pub mod abi;
pub mod client;
pub mod key;
mod library;
mod search;
pub mod server;
mod status;
mod value;

pub use library::{Library, LoadError, Version};
pub use status::Status;
pub use value::{Data, InfoArray, Packed, read_infos};
