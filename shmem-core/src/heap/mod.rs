//! Symmetric memory as such: how a segment is laid out, given to arrays, cut into parts, and accessed. No
//! runtime is needed for that. The same objects lie at the same offsets on every PE.
//!
//! # Terms
//! * A *segment* is what a PE shows to the others: first a part of the runtime's own, then the
//!   heap. PEs of one node have all their node's segments mapped; other nodes reach a segment by
//!   RDMA.
//! * A *part* of a segment is what is registered with the network device at a time: the whole
//!   segment, or one of a few stretches of growing size (see [`parts`]).
//! * A *symmetric address* is an offset into the segment. It means the corresponding object on
//!   every PE.
//! * An access is *delivered* when it has taken effect in the target's memory, and *complete* when
//!   the caller knows so (see `quiet`).
//!
//! # Safety
//! The memory of a segment is written by other processes at any time. Therefore the library never
//! makes `&T` or `&mut T` to it except through `unsafe` functions whose caller promises that
//! nobody writes (or touches) it meanwhile. Everything else goes through [`access`], and through [`shmem_ib::atomic`].
//! What computes with elements, as reductions do, gets copies in private memory.
//!
//! A copy that races with another access yields some mix of old and new bytes, and every bit
//! pattern is a value of a `Datum`. One thing in this is beyond what Rust's memory model promises, and
//! rests on how processors work:
//! * Words of 32 bits are accessed atomically on their own by PEs of the node and, for others, by
//!   their owner, or as halves of 64 bits by HCAs (see `atomics`). Atomics of both sizes are coherent on x86-64 and on AArch64.

pub(crate) mod address;
pub(crate) mod allocator;
pub(crate) mod parts;

pub(crate) use shmem_ib::verbs::memory as access;
