//! Byte strings for, or from, single PEs: what collective operations with data carry.

use super::take_u32;

/// A record that is meant for all PEs has this instead of a rank.
pub(crate) const EVERYBODY: u32 = u32::MAX;

/// The checked records of a message: rank and bytes of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Records<'a> {
    /// Number of records.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The records as they are encoded, without their count.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Rank and bytes of each record.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (rank, bytes, after) = split_record(rest)?;
            rest = after;
            Some((rank, bytes))
        })
    }

    pub(super) fn decode(body: &'a [u8]) -> Result<Self, &'static str> {
        let (count, bytes) = take_u32(body).ok_or("no count of records")?;
        let mut rest = bytes;
        for _ in 0..count {
            (_, _, rest) = split_record(rest).ok_or("fewer records than counted")?;
        }
        match rest.is_empty() {
            true => Ok(Self { count, bytes }),
            false => Err("bytes after the last record"),
        }
    }
}

fn split_record(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (rank, rest) = take_u32(bytes)?;
    let (len, rest) = take_u32(rest)?;
    let (record, rest) = rest.split_at_checked(len as usize)?;
    Some((rank, record, rest))
}

/// Appends one record; its length is bounded by the message's.
pub(crate) fn append_record(out: &mut Vec<u8>, rank: u32, bytes: &[u8]) {
    out.extend_from_slice(&rank.to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
