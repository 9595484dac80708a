//! How large the table of a domain is. Apart from the protocols, which a model checks on smaller ones.

/// Most processes in a domain.
pub(super) const MEMBERS: usize = 1024;
/// Most receive queues of a domain.
pub(super) const SRQS: usize = 1 << INDEX_BITS;
/// Bits of a queue's number that say where it is listed.
pub(super) const INDEX_BITS: u32 = 12;
/// Most regions that a process lists.
pub(super) const REGIONS: usize = 32;
