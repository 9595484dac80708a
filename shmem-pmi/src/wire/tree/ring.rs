//! What agents tell each other for a ring.

use super::{MAX_VALUE, take_u32};

/// A piece of a ring. On the way up: what a subtree brings. On the way down: where the subtree
/// stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPart<'a> {
    /// Down: rank in the ring of the subtree's first PE. Up: 0.
    pub first: u32,
    /// Up: number of PEs of the subtree. Down: of the whole ring.
    pub count: u32,
    /// Up: the left value of the subtree's first PE. Down: what that PE finds to its left.
    pub left: &'a [u8],
    /// Up: the right value of the subtree's last PE. Down: what that PE finds to its right.
    pub right: &'a [u8],
}

impl<'a> RingPart<'a> {
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, &'static str> {
        let number = |rest| take_u32(rest).ok_or("no rank, count and lengths");
        let (first, rest) = number(body)?;
        let (count, rest) = number(rest)?;
        let (left_len, values) = number(rest)?;
        let left_len = left_len as usize;
        let (left, right) = values
            .split_at_checked(left_len)
            .ok_or("shorter than its left value")?;
        match left.len() <= MAX_VALUE && right.len() <= MAX_VALUE {
            true => Ok(Self {
                first,
                count,
                left,
                right,
            }),
            false => Err("a value has an impossible length"),
        }
    }

    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let left_len = self.left.len() as u32;
        for number in [self.first, self.count, left_len] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.left);
        out.extend_from_slice(self.right);
    }
}
