//! Whose completion is it? All queue pairs of an endpoint report to one completion queue; the number
//! that each work request carries says what it belongs to.

#![forbid(unsafe_code)]

use super::operations::table::OpId;

/// What a work request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// An operation of the program.
    Operation(OpId),
    /// A receive for a connection message, in this slot.
    Received(u32),
    /// A connection message that goes out, from this slot.
    Sent(u32),
    /// A receive for a message of atomics that owners execute, in this slot.
    Asked(u32),
    /// Answers to such, from this slot.
    Answered(u16),
}

/// The upper 8 bits say which kind, the others which one.
const KIND_SHIFT: u32 = OpId::BITS;

impl Whose {
    pub(super) const fn to_wr_id(self) -> u64 {
        let (kind, which) = match self {
            Self::Operation(id) => (0, id.to_bits()),
            Self::Received(slot) => (1, slot as u64),
            Self::Sent(slot) => (2, slot as u64),
            Self::Asked(slot) => (3, slot as u64),
            Self::Answered(slot) => (4, slot as u64),
        };
        kind << KIND_SHIFT | which
    }

    /// `wr_id` is one that [`to_wr_id`](Self::to_wr_id) gave.
    pub(super) const fn of_wr_id(wr_id: u64) -> Self {
        let which = wr_id & ((1 << KIND_SHIFT) - 1);
        match wr_id >> KIND_SHIFT {
            0 => Self::Operation(OpId::from_bits(which)),
            1 => Self::Received(which as u32),
            2 => Self::Sent(which as u32),
            3 => Self::Asked(which as u32),
            _ => Self::Answered(which as u16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_finds_its_owner() {
        for whose in [
            Whose::Operation(OpId::from_bits((1 << OpId::BITS) - 1)),
            Whose::Received(7),
            Whose::Sent(u32::MAX),
            Whose::Asked(255),
            Whose::Answered(u16::MAX),
        ] {
            assert_eq!(Whose::of_wr_id(whose.to_wr_id()), whose);
        }
    }
}
