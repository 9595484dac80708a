//! What lies where in the memories of the two HCAs. A *direction* is one end of a connection as requester.

/// Words at the front of each memory, which both connections add to.
pub(super) const SHARED_WORDS: usize = 2;
/// Area of the target that a direction writes.
pub(super) const AREA: usize = 1024;
/// Local buffers of a direction, at its requester.
pub(super) const LOCAL: usize = 64 << 10;
/// Longest message.
pub(super) const MAX_LEN: usize = 900;
/// Connections.
pub(super) const PAIRS: usize = 2;
/// Receive buffers of an RC queue pair.
pub(super) const RECEIVES: usize = 8;
/// Memory of an HCA.
pub(super) const MEMORY: usize = 4096 + 2 * PAIRS * (AREA + LOCAL + RECEIVES * MAX_LEN);

/// Where the memory of a node begins.
pub(super) fn base(node: usize) -> u64 {
    0x1000_0000 * (node as u64 + 1)
}

/// Where the area of a direction is, at its target.
pub(super) fn area(direction: usize) -> usize {
    4096 + direction * AREA
}

/// Where the local buffers of a direction are, at its requester.
pub(super) fn local(direction: usize) -> usize {
    4096 + 2 * PAIRS * AREA + direction * LOCAL
}

/// Where the receive buffers for what a direction sends are, at its target.
pub(super) fn receives(direction: usize) -> usize {
    4096 + 2 * PAIRS * (AREA + LOCAL) + direction * RECEIVES * MAX_LEN
}
