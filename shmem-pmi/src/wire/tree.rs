//! Messages between node agents.
//!
//! One message for each agent and collective operation goes up, one comes down. All integers are
//! little-endian:
//!
//! ```text
//!  0         1        2          4           8                  16
//! +---------+--------+----------+-----------+------------------+----------
//! | version | kind   | 0        | body      | request          | body ...
//! | 1       |        |          | length    | number           |
//! +---------+--------+----------+-----------+------------------+----------
//!
//! Gather, up / down    value_len u32, count u32, count values of value_len bytes
//! Fence,  up / down    count u32, count x (key_len u16, value_len u16, key, value)
//! Failed, up / down    rank u32, reason in UTF-8
//! ```
//!
//! The values of a gather stand in the order of their ranks: of the sender's subtree on the way
//! up, of the job on the way down. Both ends of a link know which ranks these are, so no rank is
//! on the wire. A message down is forwarded as it is.

use super::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE};

/// Version of this format, the first byte of each message.
pub const VERSION: u8 = 1;

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 16;

/// Longest body, in bytes: 1 GiB, the puts of a fence of a very large job.
pub const MAX_BODY: usize = 1 << 30;

/// Offset of the values in a gather message.
pub(crate) const GATHER_VALUES: usize = HEADER_LEN + 8;

/// Offset of the pairs in a fence message.
pub(crate) const FENCE_PAIRS: usize = HEADER_LEN + 4;

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
    /// Which way it goes.
    pub direction: Direction,
    /// Number of the collective operation.
    pub request: u64,
    /// What it carries.
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
}

/// Up is odd, down is the next even number.
fn kind_byte(kind: Kind, direction: Direction) -> u8 {
    let up = match kind {
        Kind::Gather => 1,
        Kind::Fence => 3,
        Kind::Failed => 5,
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
    message[HEADER_LEN..FENCE_PAIRS].copy_from_slice(&count.to_le_bytes());
    seal(message, Kind::Fence, direction, request)
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
            Body::Fence(pairs) => {
                let mut message = vec![0; FENCE_PAIRS];
                message.extend_from_slice(pairs.bytes);
                seal_fence(&mut message, self.direction, self.request, pairs.count)?;
                Ok(message)
            }
            Body::Failed { rank, reason } => Ok(failed(self.direction, self.request, rank, reason)),
        }
    }
}

/// Cuts the byte stream of a link into messages.
///
/// Memory grows with the bytes that came, never with a length that was merely announced.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    failed: Option<TreeWireError>,
}

impl Decoder {
    /// A decoder for the beginning of a link.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// How many bytes complete the header of the message that is coming, or, where the header is
    /// here, the whole message; 0 while a message waits to be taken.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::next_message`].
    pub(crate) fn missing(&mut self) -> Result<usize, TreeWireError> {
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return match &self.failed {
                Some(error) => Err(error.clone()),
                None => Ok(HEADER_LEN - rest.len()),
            };
        };
        let whole = match body_len(header) {
            Ok(len) => HEADER_LEN + len,
            // Permanent, which is noted there.
            Err(error) => return self.next_message().and(Err(error)),
        };
        let result = header[1] == kind_byte(Kind::Gather, Direction::Down);
        let want = if result && rest.len() < GATHER_VALUES {
            whole.min(GATHER_VALUES)
        } else {
            whole
        };
        Ok(want.saturating_sub(rest.len()))
    }

    /// Takes the header of an allgather's result, if exactly that is here; the values are then the
    /// next bytes of the link.
    ///
    /// # Errors
    ///
    /// The header contradicts itself.
    pub(crate) fn take_result_header(&mut self) -> Result<Option<ResultHeader>, TreeWireError> {
        let Ok(bytes) = <[u8; GATHER_VALUES]>::try_from(&self.buffer[self.start..]) else {
            return Ok(None);
        };
        let (Some(header), Some(fields)) = (
            bytes.first_chunk::<HEADER_LEN>(),
            bytes.last_chunk::<{ GATHER_VALUES - HEADER_LEN }>(),
        ) else {
            return Ok(None);
        };
        if header[1] != kind_byte(Kind::Gather, Direction::Down) {
            return Ok(None);
        }
        let whole = HEADER_LEN + body_len(header)?;
        let request = request_of(header);
        let bad = |what| TreeWireError::Body { request, what };
        let Some(len) = whole.checked_sub(GATHER_VALUES) else {
            return Ok(None);
        };
        let (value_len, count) = gather_fields(fields).map_err(bad)?;
        if len as u64 != u64::from(count) * value_len as u64 {
            return Err(bad("length differs from count and value length"));
        }
        self.buffer.clear();
        self.start = 0;
        Ok(Some(ResultHeader {
            request,
            value_len,
            len,
            bytes,
        }))
    }

    /// Takes in bytes. Call [`Decoder::next_message`] afterwards until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message with its header, for [`Message::decode`] and for forwarding.
    ///
    /// # Errors
    ///
    /// The header is impossible; the error is permanent, since the stream has lost its step.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TreeWireError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = match body_len(header) {
            Ok(len) => HEADER_LEN + len,
            Err(error) => {
                self.failed = Some(error.clone());
                self.buffer = Vec::new();
                self.start = 0;
                return Err(error);
            }
        };
        if rest.len() < len {
            return Ok(None);
        }
        if self.start == 0 && len >= rest.len() / 2 {
            // A large message is handed over in its buffer; only what follows it is copied.
            let rest = self.buffer.split_off(len);
            return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
        }
        let message = rest[..len].to_vec();
        self.start += len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn direction() -> impl Strategy<Value = Direction> {
        prop_oneof![Just(Direction::Up), Just(Direction::Down)]
    }

    /// A random valid message, encoded.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let gather = (1usize..20, 0usize..6).prop_flat_map(|(len, count)| {
            (
                direction(),
                any::<u64>(),
                Just(len),
                prop::collection::vec(any::<u8>(), len * count),
            )
        });
        let pairs = prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 1..=MAX_KEY),
                prop::collection::vec(any::<u8>(), 0..50),
            ),
            0..5,
        );
        prop_oneof![
            gather.prop_map(|(direction, request, value_len, values)| {
                let values = &values[..];
                let body = Body::Gather { value_len, values };
                Message {
                    direction,
                    request,
                    body,
                }
                .encode()
                .unwrap()
            }),
            (direction(), any::<u64>(), pairs).prop_map(|(direction, request, pairs)| {
                let mut message = vec![0; FENCE_PAIRS];
                for (key, value) in &pairs {
                    append_pair(&mut message, key, value);
                }
                seal_fence(&mut message, direction, request, pairs.len() as u32).unwrap();
                let decoded = Message::decode(&message).unwrap();
                let Body::Fence(read) = decoded.body else {
                    panic!("{decoded:?}")
                };
                assert_eq!(read.count() as usize, pairs.len());
                for ((k, v), (key, value)) in read.iter().zip(&pairs) {
                    assert_eq!((k, v), (&key[..], &value[..]));
                }
                message
            }),
            (direction(), any::<u64>(), any::<u32>(), "\\PC{0,30}").prop_map(
                |(direction, request, rank, reason)| failed(direction, request, rank, &reason)
            ),
        ]
    }

    proptest! {
        #[test]
        fn messages_round_trip(bytes in message()) {
            let decoded = Message::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.encode().unwrap(), bytes);
        }

        #[test]
        fn damaged_messages_never_panic(mut bytes in message(), at: usize, to: u8, cut: usize) {
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = Message::decode(&bytes);
            let _ = Message::decode(&bytes[..cut % bytes.len()]);
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(message)) = decoder.next_message() {
                let _ = Message::decode(&message);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Message::decode(&bytes);
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_message() {}
        }

        #[test]
        fn fragmentation_does_not_matter(
            messages in prop::collection::vec(message(), 1..6),
            cuts in prop::collection::vec(1usize..80, 1..20),
        ) {
            let stream = messages.concat();
            let (mut decoder, mut seen, mut rest) = (Decoder::new(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                decoder.push(now);
                while let Some(message) = decoder.next_message().unwrap() {
                    seen.push(message);
                }
            }
            prop_assert_eq!(seen, messages);
            prop_assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn header_on_the_wire() {
        let message = Message {
            direction: Direction::Down,
            request: 0x0102,
            body: Body::Gather {
                value_len: 2,
                values: b"abcd",
            },
        };
        assert_eq!(
            message.encode().unwrap(),
            [
                &[1, 2, 0, 0, 12, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0][..],
                &[2, 0, 0, 0, 2, 0, 0, 0],
                b"abcd",
            ]
            .concat()
        );
    }

    #[test]
    fn announced_lengths_cost_no_memory() {
        let mut header = vec![0; HEADER_LEN];
        header[0] = VERSION;
        header[1] = 3;
        header[4..8].copy_from_slice(&(MAX_BODY as u32).to_le_bytes());
        let mut decoder = Decoder::new();
        decoder.push(&header);
        assert_eq!(decoder.next_message(), Ok(None));
        assert!(decoder.buffer.capacity() < 1000);
        header[7] = 0xff;
        decoder = Decoder::new();
        decoder.push(&header);
        assert!(matches!(
            decoder.next_message(),
            Err(TreeWireError::Header { .. })
        ));
        assert!(decoder.next_message().is_err());
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let reason = "ä".repeat(600);
        let bytes = failed(Direction::Up, 1, 2, &format!("x{reason}"));
        let Body::Failed { rank: 2, reason } = Message::decode(&bytes).unwrap().body else {
            panic!("not a failure");
        };
        assert_eq!(reason.len(), 1023);
    }
}
