//! The public interface by topic. Everything is in the root of the crate as well.

/// A process in its job: how it comes in and leaves, who it is, what can go wrong.
pub mod job {
    pub use crate::error::Error;
    pub use crate::init_finalize::{global_exit, initialized, thread_level};
    pub use crate::runtime::{ThreadLevel, pcontrol};
    pub use crate::unique_id::UniqueId;
    pub use crate::version::{SPEC_VERSION, VENDOR, info_name, info_version};
    pub use crate::world::{
        World, init, init_from, init_thread, init_thread_from, my_pe, n_pes, node_of, run,
    };
    pub use shmem_macros::main;
}

/// Tests that are jobs, with the feature `test`.
pub mod testing {
    #[cfg(feature = "test")]
    pub use shmem_macros::test;
}

/// Everything but the attribute `test`, for `use shmem::prelude::*`.
///
/// With the feature `test`, `use shmem::*` imports the attribute, too. Then the compiler refuses an ordinary `#[test]` in that
/// module, and in modules that import it by `use super::*`: "`test` is ambiguous". No crate can avoid that for an attribute
/// of this name. With the prelude `#[test]` is the standard library's, and `#[shmem::test]` a job.
pub mod prelude {
    #[doc(no_inline)]
    pub use super::{
        atomic::*, collective::*, contexts::*, job::*, memory::*, one_sided::*, ordering::*,
        teams::*, waiting::*,
    };
}

/// Symmetric memory: how it is allocated, what may lie in it, and handles to it.
pub mod memory {
    pub use crate::allocate::scratch::{Arrays, scratch};
    pub use crate::allocate::typed::{
        alloc, alloc_aligned, alloc_from, alloc_uninit, free, realloc,
    };
    pub use crate::datum::{Arithmetic, Atomic, AtomicInt, Bits, Complex, Datum, Number};
    pub use crate::symmetric::address::pe_accessible;
    pub use crate::symmetric::array::SymSlice;
    pub use crate::symmetric::element::Element;
    pub use crate::views::grid::SymGrid;
    pub use crate::views::scalar::{Sym, alloc_value};
    pub use shmem_macros::{Arithmetic, Datum};
}

/// Copies from and to any PE's memory.
pub mod one_sided {
    pub use crate::nonblocking::{
        Buffer, Delivered, End, Nbi, Old, Released, Request, Start, nbi, nbi_local, start,
    };
    pub use crate::rma::between::*;
    pub use crate::rma::typed::*;
}

/// Atomic operations on any PE's words of 32 and 64 bits.
pub mod atomic {
    pub use crate::atomics::{
        atomic_add, atomic_and, atomic_compare_exchange, atomic_compare_swap, atomic_fetch,
        atomic_fetch_add, atomic_fetch_and, atomic_fetch_inc, atomic_fetch_or, atomic_fetch_xor,
        atomic_inc, atomic_or, atomic_set, atomic_swap, atomic_xor,
    };
}

/// Order of operations, and their completion.
pub mod ordering {
    pub use crate::order::{fence, pe_quiet, quiet};
}

/// Waiting for what other PEs do: words, signals that come with data, locks.
pub mod waiting {
    pub use crate::lock::{Lock, LockGuard};
    pub use crate::rma::signalled::put_signal;
    pub use crate::signal::{SignalOp, signal_add, signal_fetch, signal_set};
    pub use crate::views::mutex::{Mutex, MutexGuard};
    pub use crate::wait::typed::{
        Expected, signal_wait_until, test, test_all, test_any, test_some, wait_until,
        wait_until_all, wait_until_any, wait_until_some,
    };
    pub use crate::wait::words::{Cmp, Waitable};
}

/// Streams of operations that are completed by themselves.
pub mod contexts {
    pub use crate::context::{
        Context, ContextBuilder, Mode, Private, Serialized, Shareable, context,
    };
}

/// Sets of PEs that number themselves anew.
pub mod teams {
    pub use crate::team::{MAX_TEAMS, Members, Team};
}

/// What all PEs, or all members of a team, do together.
pub mod collective {
    pub use crate::alltoallv::alltoallv;
    pub use crate::collectives::values::Parts;
    pub use crate::collectives::{api::*, op::*};
}

/// Without the feature there is no attribute that a `#[test]` could be taken for.
#[cfg(all(test, not(feature = "test")))]
mod tests {
    use crate::*;

    #[test]
    fn all_names_leave_ordinary_tests_alone() {
        assert_eq!(SPEC_VERSION, (1, 6));
    }
}

/// Which handles threads may share, and which belong to the thread that made them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<memory::SymSlice<u64>>();
    shared::<memory::SymGrid<u64>>();
    shared::<memory::Sym<u64>>();
    shared::<waiting::Lock>();
    shared::<waiting::Mutex<u64>>();
    shared::<waiting::LockGuard>();
    shared::<waiting::MutexGuard<u64>>();
    shared::<teams::Team>();
    shared::<contexts::Context>();
    shared::<collective::Parts<u64>>();
    shared::<job::Error>();
};
