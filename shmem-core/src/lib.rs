//! OpenSHMEM in Rust.
//!
//! A job is a number of processes, the *PEs*, that run the same program. Each has a *symmetric
//! heap*, and every PE can read and write every other's with one-sided operations: the target does
//! nothing for it. Inside a node that is shared memory; between nodes it is RDMA over InfiniBand
//! queue pairs that are connected when two PEs first talk.
//!
//! ```no_run
//! use shmem::{alloc, barrier_all, get, my_pe, n_pes, put};
//!
//! shmem::run(|_world| {
//!     let inbox = alloc::<u64>(1)?; // the same object on every PE
//!     let right = (my_pe() + 1) % n_pes();
//!     put(inbox, &[my_pe() as u64], right);
//!     barrier_all();
//!     let mut from = [0];
//!     get(&mut from, inbox, right);
//!     assert_eq!(from[0] as usize, my_pe());
//!     Ok(())
//! });
//! ```
//!
//! Run it with `shmrun -n 4 ./program`. Alone it is a job of one PE.
//!
//! # Map
//! Everything is here, in the root, and once more by topic:
//!
//! * [`job`]: [`run`], or [`init`] and [`World`]; [`my_pe`], [`n_pes`]; [`Error`].
//! * [`memory`]: [`alloc`], [`free`], [`scratch()`]. [`SymSlice`], an array on every PE; [`Sym`], a value; [`field!`], a field of one; [`SymGrid`], a
//!   matrix; [`Datum`], what may lie there.
//! * [`one_sided`]: [`put`], [`get`], [`p`], [`g`]; with strides; between symmetric arrays; [`nbi`] and
//!   [`nbi_local`] for many at a time, [`start`] for one that is waited for by itself.
//! * [`atomic`]: [`atomic_fetch_add`] and its like, on any PE's words.
//! * [`ordering`]: [`fence`], [`quiet`].
//! * [`waiting`]: [`wait_until`] and its like; [`put_signal`], data that tells when it has come; [`Lock`] and
//!   [`Mutex`].
//! * [`contexts`]: [`Context`], a stream of operations that are completed by themselves.
//! * [`teams`]: [`Team`], a set of PEs with numbers and collectives of its own.
//! * [`collective`]: [`barrier_all`]; of values, as methods of teams: [`Team::sum`], [`Team::broadcast_value`],
//!   [`Team::all_gather`], [`Team::gather`], [`Team::scatter`]; of slices, [`Team::sum_slice`],
//!   [`Team::broadcast_slice`]; of symmetric arrays: [`broadcast`], [`reduce`], [`fcollect`], [`alltoall`]; of parts of any
//!   length: [`alltoallv()`].
//! * [`testing`]: with the feature `test`, `#[shmem::test]`, a test that is a job.
//! * [`prelude`]: everything but that attribute. Import it with `*`, not the root: `use shmem::*` makes ordinary `#[test]`s
//!   ambiguous where the feature `test` is on.
//! * [`raw`]: addresses and byte counts, for other languages.
//!
//! # Threads
//! All threads of a PE may communicate at the same time, as with `SHMEM_THREAD_MULTIPLE` of
//! OpenSHMEM 1.6. [`quiet`] completes what any of them has started, [`fence`] orders what its own
//! thread has. Collectives ([`alloc`] and [`free`] are among them) of a team are called by one
//! thread at a time; two at once are found out and panic. The thread that called [`init`] finalizes.
//!
//! # Errors and panics
//! Mistakes of the program (a PE that does not exist, a range past an array's end, a call before
//! init) panic like an index out of bounds, at the line that makes them, and the launcher then ends the job with a
//! message: `shmem: PE 1 (node 0): src/sort.rs:14: put of 5 elements into a symmetric array of 4`. PEs that are in
//! different collectives, or in the same with different arguments, are told so where that is looked for, as in debug
//! builds (`SHMEM_CHECK`).
//! What depends on the environment (memory, settings) is an [`Error`]. A peer that cannot be
//! reached ends the job: a one-sided program has no way to go on. An error that [`run`]'s program gives, or
//! `main`, waits for nobody and ends the job, too.

// The modules in groups, from the bottom up: what needs nothing else here; memory as such; how a
// process comes to its job and its network; the state of a PE; one-sided operations; collectives and
// what is made of them; init and finalize. A module uses those of its group and of groups before it,
// and no two use each other.
mod datum;
mod error;
mod naps;
mod stderr;
mod sync;
mod tree;
mod unique_id;
mod version;
mod wait_report;

mod heap;
mod statics;

mod attach;
mod before_main;
mod fault;
mod network;
mod pmi;
mod recording;

mod context;
mod runtime;
mod symmetric;
mod team;
mod wait;

mod atomics;
mod nonblocking;
mod order;
mod rma;
mod signal;

mod allocate;
mod alltoallv;
mod collectives;
mod lock;
mod slices;
mod views;

mod init_finalize;
mod world;

pub mod raw;

mod topics;

#[doc(hidden)]
pub mod for_macros;

/// For models of jobs.
#[doc(hidden)]
pub use collectives::plans;

#[doc(no_inline)]
pub use atomic::*;
#[doc(no_inline)]
pub use collective::*;
#[doc(no_inline)]
pub use contexts::*;
#[doc(no_inline)]
pub use job::*;
#[doc(no_inline)]
pub use memory::*;
#[doc(no_inline)]
pub use one_sided::*;
#[doc(no_inline)]
pub use ordering::*;
#[doc(no_inline)]
pub use teams::*;
pub use topics::*;
#[doc(no_inline)]
pub use waiting::*;

// Not by way of `testing`, so that the compiler names the feature where it is missing. Without the feature no attribute of
// this name may be here: with one, `use shmem::*` would make each `#[test]` ambiguous.
#[cfg(feature = "test")]
#[doc(no_inline)]
pub use shmem_macros::test;
