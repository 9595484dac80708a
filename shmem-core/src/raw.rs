//! The engine without types: symmetric addresses and byte counts, for those who build other
//! interfaces on the runtime, as the C library does.
//!
//! Nothing here knows the type of what it moves. Ranges are not checked against any object, so most
//! functions are `unsafe`; numbers of PEs and alignments are checked and panic.

// Symmetric addresses.
pub use crate::heap::address::Sym;

// Teams.
pub use crate::team::Members;

// Contexts, copies, atomics, signals, order.
pub use crate::atomics::{AtomicOp, Width, atomic, atomic_nbi, atomic_post};
pub use crate::context::{Ctx, CtxOptions, MAX_CONTEXTS};
pub use crate::order::{fence_on as fence, pe_quiet_on as pe_quiet, quiet_on as quiet};
pub use crate::rma::{Blocks, get_blocks, get_mem as get, put_blocks, put_mem as put};
pub use crate::signal::{Signal, SignalOp, put_signal_mem as put_signal};
