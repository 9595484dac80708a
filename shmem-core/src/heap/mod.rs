//! The symmetric heap: the same objects at the same offsets on every PE.
//!
//! # Terms
//! * A *segment* is what a PE shows to the others: first a part of the runtime's own, then the
//!   heap. PEs of one node have all their node's segments mapped; other nodes reach a segment by
//!   RDMA.
//! * A *symmetric address* is an offset into the segment. It means the corresponding object on
//!   every PE.
//! * An access is *delivered* when it has taken effect in the target's memory, and *complete* when
//!   the caller knows so (see `quiet`).
//!
//! # Safety
//! The memory of a segment is written by other processes at any time. Therefore the library never
//! makes `&T` or `&mut T` to it except through `unsafe` functions whose caller promises that
//! nobody writes (or touches) it meanwhile. Everything else goes through [`access`]: atomic loads
//! and stores for naturally aligned 1, 2, 4 and 8 bytes, and byte copies through raw pointers for
//! the rest. A copy that races with another PE's access yields some mix of old and new bytes, never
//! undefined behaviour, because every bit pattern is a value of a `Datum`.

pub(crate) mod access;
pub(crate) mod alloc;
pub(crate) mod sym;
