//! What the software HCA can do at most.

/// Longest inline payload.
pub const MAX_INLINE: u32 = 1024;
/// Most READs and atomics in flight per queue pair and direction.
pub const MAX_RD_ATOMIC: u8 = 128;
/// Deepest queue of a queue pair.
pub const MAX_QP_WR: u32 = 1 << 15;
/// Deepest completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Longest message: its packets stay well below half of the PSN space at the smallest MTU.
pub const MAX_MSG: u64 = 1 << 30;
/// Most local buffers of one work request.
pub const MAX_SGE: u32 = 16;
