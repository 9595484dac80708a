//! The runtime in addresses and byte counts: what the C library is made of.
//!
//! Nothing here knows a type. A place in symmetric memory is a [`SymAddr`], which [`symmetric`] finds for
//! a pointer; local memory is a pointer. The typed API of the crate's root and these functions are
//! two thin layers over the same engines, so both may be used in one program.

// ---- Life and memory.
pub use crate::allocate::{allocate, reallocate, release};
pub use crate::fault::{complain, end_at_panic};
pub use crate::heap::address::SymAddr;
pub use crate::init_finalize::{
    finalize, global_exit, init, init_from, initialized, start_pes, thread_level,
};
pub use crate::runtime::{ThreadLevel, pcontrol};
pub use crate::symmetric::address::{
    addr_accessible, local, pe_accessible, ptr, symmetric, why_not_symmetric, why_other_statics,
};
pub use crate::unique_id::UniqueId;
pub use crate::version::{SPEC_VERSION, VENDOR, info_name, info_version};
pub use shmem_node::template::marker::Note;

// Contexts, copies, atomics, signals, order.
pub use crate::atomics::{AtomicOp, Width, atomic, atomic_nbi, atomic_post, width};
pub use crate::context::{Connections, Ctx, CtxOptions, MAX_CONTEXTS};
pub use crate::order::quiet_alone;
pub use crate::rma::signalled::put_signal_mem as put_signal;
pub use crate::rma::{Blocks, Completion, get_blocks, put_blocks};
pub use crate::signal::{Signal, SignalOp, signal_word};

// Waiting and locks.
pub use crate::lock::queue::{lock_clear, lock_set, lock_test};
pub use crate::wait::words::{
    Cmp, Mask, Values, Waitable, Words, test, test_all, test_any, test_some, wait_until,
    wait_until_all, wait_until_any, wait_until_some,
};

// Teams, collectives, active sets.
pub use crate::collectives::group::*;
pub use crate::collectives::{Combine, SYNC_SIZE, combine, named};
pub use crate::team::{Members, Team, team_ptr};

// The short way inside a node.
pub use crate::runtime::{Near, near};
