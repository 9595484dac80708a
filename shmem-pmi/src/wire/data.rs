//! Data of any length through the agents: collective operations, and messages between two PEs.
//!
//! The collective ones are operations of PMI's agents as fences are, in the same order: one
//! message up and one down for each agent. What all PEs give goes to the root of the tree; what
//! comes down is what they get, and to each subtree only its part. So the root *of an operation* can
//! be any PE, while its data pass the root *of the tree*. Messages between two PEs wait at the
//! sender's agent until the receiver asks for them.

use std::fmt;

/// Longest message that a PE can send to another, in bytes.
pub const MAX_MESSAGE: usize = 16 << 10;

/// Most bytes that a PE may have sent and others have not received; each message counts
/// [`MESSAGE_OVERHEAD`] bytes more than it has.
pub const MAX_UNRECEIVED: usize = 16 << 20;

/// What a message costs beside its bytes, so that empty ones are bounded, too.
pub const MESSAGE_OVERHEAD: usize = 64;

/// Most bytes that a PE may bring to a collective operation. A list of byte strings needs four bytes
/// more for each of them.
pub const MAX_CONTRIBUTION: usize = 16 << 20;

/// Most bytes that all PEs together may bring to a collective operation.
pub const MAX_TOTAL: usize = 256 << 20;

/// The collective operations that carry data. A barrier is a fence of the key-value space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Every PE gives bytes; the root gets all.
    Gather,
    /// The root gives bytes; every PE gets them.
    Broadcast,
    /// The root gives one byte string for each PE; each gets its own.
    Scatter,
    /// Every PE gives bytes; every PE gets all.
    Allgather,
    /// Every PE gives one byte string for each PE; each gets those meant for it.
    Alltoall,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 5] = [
        Self::Gather,
        Self::Broadcast,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
    ];

    /// Name on the wire of PMI-2.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Broadcast => "broadcast",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
        }
    }

    /// The operation with a name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|op| op.name().as_bytes() == name)
    }

    /// Number on the wire between agents.
    pub(crate) fn code(self) -> u8 {
        1 + self as u8
    }

    /// The operation with a number.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == code)
    }

    /// Whether one PE differs from the others.
    pub fn has_root(self) -> bool {
        matches!(self, Self::Gather | Self::Broadcast | Self::Scatter)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A list of byte strings as one: each preceded by its length (u32, little-endian).
pub fn pack<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut packed = Vec::new();
    for item in items {
        packed.extend_from_slice(&(item.len() as u32).to_le_bytes());
        packed.extend_from_slice(item);
    }
    packed
}

/// The byte strings of a list, if it has exactly `count` of them.
pub fn unpack(packed: &[u8], count: usize) -> Option<Vec<&[u8]>> {
    let mut rest = packed;
    // Each takes four bytes at least: an impossible count costs nothing.
    if rest.len() / 4 < count {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let (&len, after) = rest.split_first_chunk()?;
        let (item, after) = after.split_at_checked(u32::from_le_bytes(len) as usize)?;
        items.push(item);
        rest = after;
    }
    rest.is_empty().then_some(items)
}
