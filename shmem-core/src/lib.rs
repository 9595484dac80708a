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
//! * [`run`], or [`init`] and [`World`]; [`my_pe`], [`n_pes`]: the job.
//! * [`alloc`], [`alloc_from`], [`realloc`], [`free`], [`scratch()`]: symmetric memory. [`SymSlice`]: an array there;
//!   [`Sym`]: a value; [`SymGrid`]: a matrix, or a rectangle of one.
//! * [`put`], [`get`], [`get_vec`], [`p`], [`g`]: one-sided copies; [`put_sym`] and [`get_sym`] between symmetric arrays;
//!   [`iput`], [`iget`], [`ibput`], [`ibget`] with strides; [`nbi`] for many at a time.
//! * [`atomic_fetch_add`] and its like: atomics on any PE's words. [`put_signal`]: data that tells
//!   when it has come.
//! * [`fence`], [`quiet`], [`pe_quiet`]: order and completion; [`Context`] for separate streams of
//!   operations, which complete by themselves. [`wait_until`], [`test()`], [`wait_until_any`] and
//!   its like: waiting for others. [`Lock`].
//! * [`Team`]: sets of PEs with numbers and collectives of their own.
//! * [`barrier_all`]; collectives of values, as methods of teams: [`Team::sum`], [`Team::broadcast_value`],
//!   [`Team::all_gather`]; of symmetric arrays: [`broadcast`], [`reduce`], [`sum_inscan`], [`fcollect`], [`collect`],
//!   [`alltoall`]; of parts of any length: [`alltoallv`].
//!
//! # Threads
//! All threads of a PE may communicate at the same time, as with `SHMEM_THREAD_MULTIPLE` of
//! OpenSHMEM 1.6. [`quiet`] completes what any of them has started, [`fence`] orders what its own
//! thread has. Collectives ([`alloc`] and [`free`] are among them) of a team are called by one
//! thread at a time; two at once are found out and panic. The thread that called [`init`] finalizes.
//!
//! # Errors and panics
//! Mistakes of the program (a PE that does not exist, a range past an array's end, a call before
//! init) panic like an index out of bounds, and the launcher then ends the job with a message.
//! What depends on the environment (memory, settings) is an [`Error`]. A peer that cannot be
//! reached ends the job: a one-sided program has no way to go on. An error that [`run`]'s program gives, or
//! `main`, waits for nobody and ends the job, too.

// The modules in groups, from the bottom up: what needs nothing else here; memory as such; how a
// process comes to its job and its network; the state of a PE; one-sided operations; collectives and
// what is made of them; init and finalize. A module uses those of its group and of groups before it,
// and no two use each other.
mod datum;
mod error;
mod stderr;
mod told;
mod tree;
mod version;

mod heap;
mod statics;

mod attach;
mod before_main;
mod fault;
mod network;
mod pmi;

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
mod collectives;
mod lock;
mod views;

mod init_finalize;
mod world;

pub mod raw;

pub use allocate::Hints;
pub use allocate::scratch::{Arrays, scratch};
pub use allocate::typed::{
    alloc, alloc_aligned, alloc_from, alloc_uninit, alloc_with_hints, free, realloc,
};
pub use atomics::{
    atomic_add, atomic_and, atomic_compare_exchange, atomic_compare_swap, atomic_compare_swap_nbi,
    atomic_fetch, atomic_fetch_add, atomic_fetch_add_nbi, atomic_fetch_and, atomic_fetch_and_nbi,
    atomic_fetch_inc, atomic_fetch_inc_nbi, atomic_fetch_nbi, atomic_fetch_or, atomic_fetch_or_nbi,
    atomic_fetch_xor, atomic_fetch_xor_nbi, atomic_inc, atomic_or, atomic_set, atomic_swap,
    atomic_swap_nbi, atomic_xor,
};
pub use collectives::unequal::alltoallv;
pub use collectives::values::Parts;
pub use collectives::{api::*, op::*};
pub use context::{Context, ContextBuilder, Mode, Private, Serialized, Shareable, context};
pub use datum::{Arithmetic, Atomic, AtomicInt, Bits, Complex, Datum, Number};
pub use error::Error;
pub use init_finalize::{global_exit, initialized, thread_level};
pub use lock::{Lock, LockGuard};
pub use nonblocking::{Nbi, nbi};
pub use order::{fence, pe_quiet, quiet};
pub use rma::between::*;
pub use rma::typed::*;
pub use runtime::ThreadLevel;
pub use signal::{SignalOp, put_signal, put_signal_nbi, signal_add, signal_fetch, signal_set};
pub use symmetric::address::pe_accessible;
pub use symmetric::array::SymSlice;
pub use team::{MAX_TEAMS, Members, Team, TeamConfig};
pub use version::{SPEC_VERSION, VENDOR, info_name, info_version};
pub use views::grid::SymGrid;
pub use views::scalar::{Sym, alloc_value};
pub use wait::typed::{
    signal_wait_until, test, test_all, test_all_vector, test_any, test_any_vector, test_some,
    test_some_vector, wait_until, wait_until_all, wait_until_all_vector, wait_until_any,
    wait_until_any_vector, wait_until_some, wait_until_some_vector,
};
pub use wait::words::{Cmp, Waitable};
pub use world::{World, init, init_thread, my_pe, n_pes, node_of, run};

/// The programs in the README are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
