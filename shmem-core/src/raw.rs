//! The runtime in addresses and byte counts: what the C library is made of.
//!
//! Nothing here knows a type. A place in symmetric memory is a [`Sym`], which [`symmetric`] finds for
//! a pointer; local memory is a pointer. The typed API of the crate's root and these functions are
//! two thin layers over the same engines, so both may be used in one program.

// ---- Life and memory
pub use crate::heap::address::{Sym, addr_accessible, local, pe_accessible, ptr, symmetric};
pub use crate::heap::memory::{allocate, reallocate, release};
pub use crate::life::{
    ThreadLevel, finalize, global_exit, init, initialized, start_pes, thread_level,
};

// ---- Waiting
pub use crate::wait::words::{
    Cmp, Mask, Values, Waitable, Words, test, test_all, test_any, test_some, wait_until,
    wait_until_all, wait_until_any, wait_until_some,
};
