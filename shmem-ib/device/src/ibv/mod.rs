//! RDMA devices through libibverbs. The only place with foreign functions of it.
//!
//! # Map
//! * [`devices`]: what there is, as [`Abilities`](crate::abilities::Abilities); `discover` asks.
//! * [`VerbsHca`]: a port as an [`Hca`](shmem_verbs::Hca). `open`: how it comes to be; `hca`: its
//!   tables; `verbs`: the trait; `qp`: states; `post`, `poll`: the hot paths; `datagrams`: what UD
//!   needs besides; `events`; `sleepers`, `sleep`, `stash`: sleeping.
//! * `library`: libibverbs, loaded when it is first needed; `context`, `objects`: owners of its
//!   pointers; `table`: objects by number; `map`: its numbers; `error`: its answers, and what
//!   to do.
//!
//! # Invariants
//! * What an object needs it holds, so nothing is destroyed before its users.
//! * Whoever passes an object's pointer to the library holds the object's place in its table, so
//!   it is not destroyed meanwhile. Places are taken in this order: the sleepers' mutex, a
//!   completion queue with the mutex in it, a queue pair.

mod context;
mod datagrams;
mod discover;
mod error;
mod events;
#[cfg(test)]
mod failing_tests;
#[cfg(test)]
mod fake;
mod hca;
mod library;
mod map;
mod objects;
mod open;
mod poll;
mod post;
mod qp;
mod sleep;
mod sleepers;
mod stash;
mod table;
#[cfg(test)]
mod told_tests;
mod verbs;

pub use discover::{FoundDevice, devices};
pub use error::SysError;
pub use hca::VerbsHca;
