//! Messages between node agents.
//!
//! One message for each agent and collective operation goes up, one comes down. All integers are
//! little-endian:
//!
//! ```text
//!  0         1        2          4           8                  16
//! +---------+--------+----------+-----------+------------------+----------
//! | version | kind   | 0        | body      | request          | body ...
//! | 5       |        |          | length    | number           |
//! +---------+--------+----------+-----------+------------------+----------
//!
//! Gather, up / down    value_len u32, count u32, count values of value_len bytes
//! Fence,  up / down    count u32, count x (key_len u16, value_len u16, key, value)
//! Failed, up / down    rank u32, reason in UTF-8
//! Ask,    up / down    asker u32, question (postcard)
//! Answer, up / down    asker u32, answer (postcard)
//! Ring,   up / down    first u32, count u32, left_len u32, left, right
//! Puts,   up           as Fence; request is the first operation that can be their fence
//! Changed, down        as Fence; values are empty
//! Data,   up / down    operation u8, 0 u8, 0 u16, root u32, count u32,
//!                      count x (rank u32, length u32, bytes)
//! Group,  up / down    a group barrier (postcard); request is 0
//! ```
//!
//! The values of a gather stand in the order of their ranks: of the sender's subtree on the way
//! up, of the job on the way down. Both ends of a link know which ranks these are, so no rank is
//! on the wire. A message down is forwarded as it is.
//!
//! Gather, Fence, Failed, Changed and Data belong to collective operations and come in the order of
//! their numbers. Changed is the result of a fence whose pairs are not sent to all agents. Questions
//! and answers ([`crate::question`]) go from one agent to one other, in either direction; the number
//! in their header is the asking agent's ticket.

mod decoder;
mod records;
mod ring;

pub use decoder::Decoder;
pub use records::Records;
pub(crate) use records::{EVERYBODY, append_record};
pub use ring::RingPart;

use super::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE};
use crate::wire::data::Operation;

/// Version of this format, the first byte of each message.
pub const VERSION: u8 = 5;

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 16;

/// Longest body, in bytes: 1 GiB, the puts of a fence of a very large job.
pub const MAX_BODY: usize = 1 << 30;

/// Offset of the values in a gather message.
pub(crate) const GATHER_VALUES: usize = HEADER_LEN + 8;

/// Offset of the pairs in a fence message.
pub(crate) const FENCE_PAIRS: usize = HEADER_LEN + 4;

/// Offset of the records in a message of an operation with data.
pub(crate) const DATA_RECORDS: usize = HEADER_LEN + 12;

/// Longest text of a failure that is sent, in bytes.
const MAX_REASON: usize = 1024;

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a child to its parent: the contribution of a subtree.
    Up,
    /// From a parent to its children: the result for the job.
    Down,
}

/// A message between agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Which way the message goes.
    pub direction: Direction,
    /// Number of the collective operation.
    pub request: u64,
    /// What the message carries.
    pub body: Body<'a>,
}

/// The contents of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body<'a> {
    /// Values of an allgather.
    Gather {
        /// Length of each value in bytes, 1 to [`MAX_ALLGATHER_VALUE`].
        value_len: usize,
        /// The values, one behind the other in the order of ranks.
        values: &'a [u8],
    },
    /// Pairs of a fence.
    Fence(Pairs<'a>),
    /// The operation cannot succeed.
    Failed {
        /// The PE that differs from the others.
        rank: u32,
        /// What is wrong, in words.
        reason: &'a str,
    },
    /// A ring.
    Ring(RingPart<'a>),
    /// A question on its way to whoever can answer it; see [`crate::question::Question`].
    Ask {
        /// The PE that asks: the answer goes to its agent.
        asker: u32,
        /// The encoded question.
        question: &'a [u8],
    },
    /// The answer on its way to the asker's agent; see [`crate::question::Answer`].
    Answer {
        /// The PE that asked.
        asker: u32,
        /// The encoded answer.
        answer: &'a [u8],
    },
    /// Puts on their way to the root, ahead of their fence.
    Puts(Pairs<'a>),
    /// Keys that have another value after a fence; the values of the pairs are empty.
    Changed(Pairs<'a>),
    /// A group barrier: a [`crate::server::pmix::Part`].
    Group(&'a [u8]),
    /// A collective operation with data of any length.
    Data {
        /// Which.
        operation: Operation,
        /// Rank of the PE from which or to which data goes; 0 where there is none.
        root: u32,
        /// On the way up what PEs give, with their ranks; on the way down what PEs get.
        records: Records<'a>,
    },
}

/// Why bytes from another agent are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeWireError {
    /// The sender uses another version of the format, or the stream is out of step.
    #[error(
        "agent message has format version {version}, this agent has {VERSION}; are all nodes running the same installation?"
    )]
    Version {
        /// The version byte.
        version: u8,
    },
    /// Header fields with values that do not exist.
    #[error(
        "agent message has an impossible header: kind {kind}, reserved {reserved}, body length {len}"
    )]
    Header {
        /// The kind byte.
        kind: u8,
        /// The reserved field, to be 0.
        reserved: u16,
        /// Announced length of the body in bytes.
        len: u32,
    },
    /// The body does not have the form of its kind.
    #[error("agent message for request {request} has a malformed body: {what}")]
    Body {
        /// Number of the operation.
        request: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// What an agent has to send does not fit a message.
    #[error("agent message of {len} bytes is longer than the limit of {MAX_BODY}")]
    TooLong {
        /// Needed length of the body in bytes.
        len: usize,
    },
}

/// The checked pairs of a fence, in order of their puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Number of pairs.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The pairs as they are encoded, without their count.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Key and value of each pair.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (key, value, after) = split_pair(rest)?;
            rest = after;
            Some((key, value))
        })
    }

    /// Pairs of which it is known that they are well-formed; at the first that is not, they end.
    pub(crate) fn checked(bytes: &'a [u8]) -> Self {
        let mut count = 0;
        let mut rest = bytes;
        while let Some((_, _, after)) = split_pair(rest) {
            rest = after;
            count += 1;
        }
        Self { count, bytes }
    }

    fn decode(body: &'a [u8]) -> Result<Self, &'static str> {
        let (count, bytes) = take_u32(body).ok_or("no count of pairs")?;
        let mut rest = bytes;
        for _ in 0..count {
            let (key, value, after) = split_pair(rest).ok_or("fewer pairs than counted")?;
            if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
                return Err("a key or value has an impossible length");
            }
            rest = after;
        }
        if rest.is_empty() {
            Ok(Self { count, bytes })
        } else {
            Err("bytes after the last pair")
        }
    }
}

fn split_pair(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&key_len, rest) = bytes.split_first_chunk::<2>()?;
    let (&value_len, rest) = rest.split_first_chunk::<2>()?;
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes(key_len).into())?;
    let (value, rest) = rest.split_at_checked(u16::from_le_bytes(value_len).into())?;
    Some((key, value, rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (&number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(number), rest))
}

/// Appends one pair. Lengths are the caller's duty: at most [`MAX_KEY`] and [`MAX_VALUE`].
pub(crate) fn append_pair(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    debug_assert!(key.len() <= MAX_KEY && value.len() <= MAX_VALUE);
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gather,
    Fence,
    Failed,
    Ring,
    Ask,
    Answer,
    Puts,
    Changed,
    Data,
    Group,
}

/// Up is odd, down is the next even number.
fn kind_byte(kind: Kind, direction: Direction) -> u8 {
    let up = match kind {
        Kind::Gather => 1,
        Kind::Fence => 3,
        Kind::Failed => 5,
        Kind::Ask => 7,
        Kind::Answer => 9,
        Kind::Ring => 11,
        Kind::Puts => 21,
        Kind::Changed => 23,
        Kind::Data => 25,
        Kind::Group => 27,
    };
    up + u8::from(direction == Direction::Down)
}

fn parse_kind(byte: u8) -> Option<(Kind, Direction)> {
    let direction = if byte % 2 == 1 {
        Direction::Up
    } else {
        Direction::Down
    };
    let kind = match byte {
        1 | 2 => Kind::Gather,
        3 | 4 => Kind::Fence,
        5 | 6 => Kind::Failed,
        7 | 8 => Kind::Ask,
        9 | 10 => Kind::Answer,
        11 | 12 => Kind::Ring,
        21 => Kind::Puts,
        24 => Kind::Changed,
        25 | 26 => Kind::Data,
        27 | 28 => Kind::Group,
        _ => return None,
    };
    Some((kind, direction))
}

/// Fills in the header of a gather message whose values stand behind [`GATHER_VALUES`] bytes.
pub(crate) fn seal_gather(
    message: &mut [u8],
    direction: Direction,
    request: u64,
    value_len: usize,
) -> Result<(), TreeWireError> {
    let count = (message.len() - GATHER_VALUES) / value_len.max(1);
    message[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&(value_len as u32).to_le_bytes());
    message[HEADER_LEN + 4..GATHER_VALUES].copy_from_slice(&(count as u32).to_le_bytes());
    seal(message, Kind::Gather, direction, request)
}

/// Fills in the header of a fence message whose pairs stand behind [`FENCE_PAIRS`] bytes.
pub(crate) fn seal_fence(
    message: &mut [u8],
    direction: Direction,
    request: u64,
    count: u32,
) -> Result<(), TreeWireError> {
    seal_pairs(message, Kind::Fence, direction, request, count)
}

fn seal_pairs(
    message: &mut [u8],
    kind: Kind,
    direction: Direction,
    request: u64,
    count: u32,
) -> Result<(), TreeWireError> {
    message[HEADER_LEN..FENCE_PAIRS].copy_from_slice(&count.to_le_bytes());
    seal(message, kind, direction, request)
}

/// Fills in the header of a message whose records stand behind [`DATA_RECORDS`] bytes.
pub(crate) fn seal_data(
    message: &mut [u8],
    direction: Direction,
    request: u64,
    (operation, root): (Operation, u32),
    count: u32,
) -> Result<(), TreeWireError> {
    message[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&[operation.code(), 0, 0, 0]);
    message[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&root.to_le_bytes());
    message[HEADER_LEN + 8..DATA_RECORDS].copy_from_slice(&count.to_le_bytes());
    seal(message, Kind::Data, direction, request)
}

/// A message that begins with a count of pairs.
fn with_pairs(
    kind: Kind,
    direction: Direction,
    request: u64,
    pairs: Pairs<'_>,
) -> Result<Vec<u8>, TreeWireError> {
    let mut message = vec![0; FENCE_PAIRS];
    message.extend_from_slice(pairs.bytes);
    seal_pairs(&mut message, kind, direction, request, pairs.count)?;
    Ok(message)
}

/// A whole failure message.
pub(crate) fn failed(direction: Direction, request: u64, rank: u32, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut message = vec![0; HEADER_LEN];
    message.extend_from_slice(&rank.to_le_bytes());
    message.extend_from_slice(&reason.as_bytes()[..end]);
    // Cannot fail: the reason has been cut.
    let _ = seal(&mut message, Kind::Failed, direction, request);
    message
}

fn seal(
    message: &mut [u8],
    kind: Kind,
    direction: Direction,
    request: u64,
) -> Result<(), TreeWireError> {
    let len = message.len() - HEADER_LEN;
    if len > MAX_BODY {
        return Err(TreeWireError::TooLong { len });
    }
    message[0] = VERSION;
    message[1] = kind_byte(kind, direction);
    message[2..4].fill(0);
    message[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    message[8..16].copy_from_slice(&request.to_le_bytes());
    Ok(())
}

/// Checks a header and returns the length of the body that it announces.
fn body_len(header: &[u8; HEADER_LEN]) -> Result<usize, TreeWireError> {
    let [version, kind, r0, r1, l0, l1, l2, l3, ..] = *header;
    if version != VERSION {
        return Err(TreeWireError::Version { version });
    }
    let reserved = u16::from_le_bytes([r0, r1]);
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    if reserved != 0 || parse_kind(kind).is_none() || len as usize > MAX_BODY {
        return Err(TreeWireError::Header {
            kind,
            reserved,
            len,
        });
    }
    Ok(len as usize)
}

fn request_of(header: &[u8; HEADER_LEN]) -> u64 {
    header[8..16]
        .iter()
        .rfold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Length of each value and number of values of a gather.
fn gather_fields(fields: &[u8; 8]) -> Result<(usize, u32), &'static str> {
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *fields;
    let value_len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if value_len == 0 || value_len > MAX_ALLGATHER_VALUE {
        return Err("impossible value length");
    }
    Ok((value_len, u32::from_le_bytes([c0, c1, c2, c3])))
}

/// What stands before the values of an allgather's result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultHeader {
    /// Number of the operation.
    pub(crate) request: u64,
    /// Length of each value in bytes.
    pub(crate) value_len: usize,
    /// Length of all values in bytes.
    pub(crate) len: usize,
    /// As it was on the wire.
    pub(crate) bytes: [u8; GATHER_VALUES],
}

impl<'a> Message<'a> {
    /// Reads one whole message, header included.
    ///
    /// # Errors
    ///
    /// Header or body do not have the documented form.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, TreeWireError> {
        let short = TreeWireError::Body {
            request: 0,
            what: "shorter than its header",
        };
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(short)?;
        let len = body_len(header)?;
        let request = request_of(header);
        let bad = |what| TreeWireError::Body { request, what };
        if rest.len() != len {
            return Err(bad("length differs from the header"));
        }
        let (kind, direction) = parse_kind(header[1]).ok_or_else(|| bad("unknown kind"))?;
        let body = match kind {
            Kind::Gather => {
                let (fields, values) = rest
                    .split_first_chunk()
                    .ok_or_else(|| bad("no value length and count"))?;
                let (value_len, count) = gather_fields(fields).map_err(bad)?;
                if values.len() as u64 != u64::from(count) * value_len as u64 {
                    return Err(bad("length differs from count and value length"));
                }
                Body::Gather { value_len, values }
            }
            Kind::Fence => Body::Fence(Pairs::decode(rest).map_err(bad)?),
            Kind::Failed => {
                let (rank, text) = take_u32(rest).ok_or_else(|| bad("no rank"))?;
                Body::Failed {
                    rank,
                    reason: std::str::from_utf8(text).map_err(|_| bad("reason is not UTF-8"))?,
                }
            }
            Kind::Ask => {
                let (asker, question) = take_u32(rest).ok_or_else(|| bad("no asker"))?;
                Body::Ask { asker, question }
            }
            Kind::Answer => {
                let (asker, answer) = take_u32(rest).ok_or_else(|| bad("no asker"))?;
                Body::Answer { asker, answer }
            }
            Kind::Ring => Body::Ring(RingPart::decode(rest).map_err(bad)?),
            Kind::Group => Body::Group(rest),
            Kind::Puts => Body::Puts(Pairs::decode(rest).map_err(bad)?),
            Kind::Changed => {
                let keys = Pairs::decode(rest).map_err(bad)?;
                if keys.iter().any(|(_, value)| !value.is_empty()) {
                    return Err(bad("a changed key with a value"));
                }
                Body::Changed(keys)
            }
            Kind::Data => {
                let (&[code, a, b, c], rest) = rest
                    .split_first_chunk()
                    .ok_or_else(|| bad("no operation"))?;
                let operation = Operation::from_code(code).filter(|_| [a, b, c] == [0; 3]);
                let (root, rest) = take_u32(rest).ok_or_else(|| bad("no root"))?;
                Body::Data {
                    operation: operation.ok_or_else(|| bad("unknown operation"))?,
                    root,
                    records: Records::decode(rest).map_err(bad)?,
                }
            }
        };
        Ok(Self {
            direction,
            request,
            body,
        })
    }

    /// The whole message, header included.
    ///
    /// # Errors
    ///
    /// [`TreeWireError::TooLong`] if the body exceeds [`MAX_BODY`].
    pub fn encode(&self) -> Result<Vec<u8>, TreeWireError> {
        match self.body {
            Body::Gather { value_len, values } => {
                let mut message = vec![0; GATHER_VALUES];
                message.extend_from_slice(values);
                seal_gather(&mut message, self.direction, self.request, value_len)?;
                Ok(message)
            }
            Body::Fence(pairs) => with_pairs(Kind::Fence, self.direction, self.request, pairs),
            Body::Ring(part) => {
                let mut message = vec![0; HEADER_LEN];
                part.append(&mut message);
                seal(&mut message, Kind::Ring, self.direction, self.request)?;
                Ok(message)
            }
            Body::Group(part) => {
                let mut message = vec![0; HEADER_LEN];
                message.extend_from_slice(part);
                seal(&mut message, Kind::Group, self.direction, self.request)?;
                Ok(message)
            }
            Body::Puts(pairs) => with_pairs(Kind::Puts, self.direction, self.request, pairs),
            Body::Changed(keys) => with_pairs(Kind::Changed, self.direction, self.request, keys),
            Body::Data {
                operation,
                root,
                records,
            } => {
                let mut message = vec![0; DATA_RECORDS];
                message.extend_from_slice(records.bytes());
                let what = (operation, root);
                seal_data(
                    &mut message,
                    self.direction,
                    self.request,
                    what,
                    records.count(),
                )?;
                Ok(message)
            }
            Body::Failed { rank, reason } => Ok(failed(self.direction, self.request, rank, reason)),
            Body::Ask { asker, question } => self.addressed(Kind::Ask, asker, question),
            Body::Answer { asker, answer } => self.addressed(Kind::Answer, asker, answer),
        }
    }

    fn addressed(&self, kind: Kind, asker: u32, what: &[u8]) -> Result<Vec<u8>, TreeWireError> {
        let mut message = vec![0; HEADER_LEN];
        message.extend_from_slice(&asker.to_le_bytes());
        message.extend_from_slice(what);
        seal(&mut message, kind, self.direction, self.request)?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests;
