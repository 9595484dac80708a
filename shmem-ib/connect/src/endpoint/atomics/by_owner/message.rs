//! The messages by which a PE has the owner of a word execute an atomic, and their codec.
//!
//! They are the payload of SENDs over the connection of the two PEs, which delivers them once and in
//! order. All numbers are big-endian. One row is 32 bits; the number at the right is the byte offset.
//! ```text
//!  REQUEST 44 bytes
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+---------------+---------------+
//! | version (= 1) |    kind = 1   |   operation   | width, 4 or 8 |  0
//! +---------------+---------------+---------------+---------------+
//! |                         source PE                             |  4
//! +---------------------------------------------------------------+
//! |                  token (64 bits, below 2^56)                  |  8
//! |                                                               |
//! +---------------------------------------------------------------+
//! |               offset in the segment (64 bits)                 | 16
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                      operand (64 bits)                        | 24
//! |                                                               |
//! +---------------------------------------------------------------+
//! |     compare-and-swap: the expected value, else 0 (64 bits)    | 32
//! |                                                               |
//! +---------------+-----------------------------------------------+
//! |  segment id   |                     zero                      | 40
//! +---------------+-----------------------------------------------+
//!
//!  ANSWERS 8 + 16 bytes each, at most 7
//! +---------------+---------------+---------------+---------------+
//! | version (= 1) |    kind = 2   |     count     |     zero      |  0
//! +---------------+---------------+---------------+---------------+
//! |                         source PE                             |  4
//! +---------------+-----------------------------------------------+
//! |    status     |              token (56 bits)                  |  8 + 16 i
//! |                                                               |
//! +---------------+-----------------------------------------------+
//! |              old value, or 0 if refused (64 bits)             | 16 + 16 i
//! |                                                               |
//! +---------------------------------------------------------------+
//!
//!  PROBE 8 bytes: the first two rows, kind = 3, and zero
//! ```
//! Operations: 1 fetch, whose operand is 0, 2 swap, 3 compare-and-swap, 4 add, 5 and, 6 or, 7 exclusive
//! or. Of others, and of other widths, the fields behind the offset mean nothing.
//! Status: 0 executed; 1 no such segment, 2 outside of it, 3 not aligned, 4 unknown operation or
//! width: refused, and nothing has changed.

#![forbid(unsafe_code)]

use crate::atomic::{AtomicOp, Width};

const VERSION: u8 = 1;
const KIND_REQUEST: u8 = 1;
const KIND_ANSWERS: u8 = 2;
const KIND_PROBE: u8 = 3;
const HEAD: usize = 8;
const REQUEST_LEN: usize = 44;
const ANSWER_LEN: usize = 16;
const TOKEN_BITS: u32 = 56;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;

/// Most answers of one message.
pub(super) const MAX_ANSWERS: usize = 7;
/// Longest message in bytes.
pub(super) const MAX_LEN: usize = HEAD + MAX_ANSWERS * ANSWER_LEN;

/// Why an owner did not execute an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no segment of this identifier.
    #[error("it has no such segment (any more)")]
    NoSegment,
    /// The word is not inside the segment.
    #[error("the word is outside of its segment")]
    OutOfRange,
    /// The address is no multiple of the width.
    #[error("the word is not aligned")]
    Misaligned,
    /// It does not know the operation or the width.
    #[error("it does not know this operation: the PEs of this job run different builds")]
    Unknown,
}

impl Refusal {
    const fn code(self) -> u8 {
        match self {
            Self::NoSegment => 1,
            Self::OutOfRange => 2,
            Self::Misaligned => 3,
            Self::Unknown => 4,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::NoSegment,
            2 => Self::OutOfRange,
            3 => Self::Misaligned,
            4 => Self::Unknown,
            _ => return None,
        })
    }
}

/// What is to be done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// Comes back in the answer; below 2^56.
    pub(super) token: u64,
    pub(super) segment: u8,
    /// In bytes, from the beginning of the segment.
    pub(super) offset: u64,
    /// `None` if the owner does not know it.
    pub(super) what: Option<(AtomicOp, Width)>,
}

/// What became of a request: the old value of the word, or why it was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) token: u64,
    pub(super) result: Result<u64, Refusal>,
}

impl Answer {
    const NONE: Self = Self {
        token: 0,
        result: Ok(0),
    };
}

/// Up to [`MAX_ANSWERS`] answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    list: [Answer; MAX_ANSWERS],
    count: usize,
}

impl Answers {
    pub(super) const fn new() -> Self {
        Self {
            list: [Answer::NONE; MAX_ANSWERS],
            count: 0,
        }
    }

    /// Adds one, unless there are as many as fit.
    pub(super) const fn push(&mut self, answer: Answer) -> bool {
        let room = self.count < MAX_ANSWERS;
        if room {
            self.list[self.count] = answer;
            self.count += 1;
        }
        room
    }

    pub(super) fn as_slice(&self) -> &[Answer] {
        &self.list[..self.count]
    }
}

impl PartialEq for Answers {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

/// One message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Message {
    Request(Request),
    Answers(Answers),
    /// Asks for nothing: that it is acknowledged says that the owner is there.
    Probe,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("its length {0} does not fit its kind")]
    Length(usize),
    #[error("it has version {0}, not 1: the PEs of this job run different builds")]
    Version(u8),
    #[error("its {0} has a value that is not allowed")]
    Field(&'static str),
}

/// Writes a message of PE `src` to the front of `out`; returns its length in bytes.
pub(super) fn encode(src: u32, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let (head, len) = match message {
        Message::Request(request) => {
            let (operation, width, operand, compare) = match request.what {
                Some((op, width)) => {
                    let (operation, operand, compare) = numbers(op);
                    (operation, width.bytes() as u8, operand, compare)
                }
                None => (0, 0, 0, 0),
            };
            put(8, &request.token.to_be_bytes());
            put(16, &request.offset.to_be_bytes());
            put(24, &operand.to_be_bytes());
            put(32, &compare.to_be_bytes());
            put(40, &[request.segment, 0, 0, 0]);
            ([VERSION, KIND_REQUEST, operation, width], REQUEST_LEN)
        }
        Message::Answers(answers) => {
            for (i, answer) in answers.as_slice().iter().enumerate() {
                let (status, value) = match answer.result {
                    Ok(value) => (0, value),
                    Err(refusal) => (refusal.code(), 0),
                };
                let first = u64::from(status) << TOKEN_BITS | (answer.token & TOKEN_MASK);
                put(HEAD + i * ANSWER_LEN, &first.to_be_bytes());
                put(HEAD + i * ANSWER_LEN + 8, &value.to_be_bytes());
            }
            let count = answers.count;
            let head = [VERSION, KIND_ANSWERS, count as u8, 0];
            (head, HEAD + count * ANSWER_LEN)
        }
        Message::Probe => ([VERSION, KIND_PROBE, 0, 0], HEAD),
    };
    put(0, &head);
    put(4, &src.to_be_bytes());
    len
}

/// Reads a message; gives the PE that says it is its source, too.
pub(super) fn decode(bytes: &[u8]) -> Result<(u32, Message), DecodeError> {
    let len = bytes.len();
    let Some((&[version, kind, a, b, s0, s1, s2, s3], rest)) = bytes.split_first_chunk::<HEAD>()
    else {
        return Err(DecodeError::Length(len));
    };
    let src = u32::from_be_bytes([s0, s1, s2, s3]);
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let message = match kind {
        KIND_REQUEST => Message::Request(decode_request(a, b, rest)?),
        KIND_ANSWERS => {
            let count = usize::from(a);
            if count == 0 || count > MAX_ANSWERS || b != 0 {
                return Err(DecodeError::Field("count"));
            }
            if rest.len() != count * ANSWER_LEN {
                return Err(DecodeError::Length(len));
            }
            let mut answers = Answers::new();
            for at in (0..rest.len()).step_by(ANSWER_LEN) {
                let (first, value) = (number(rest, at), number(rest, at + 8));
                let token = first & TOKEN_MASK;
                let result = match (first >> TOKEN_BITS) as u8 {
                    0 => Ok(value),
                    code => Err(Refusal::of(code)
                        .filter(|_| value == 0)
                        .ok_or(DecodeError::Field("status"))?),
                };
                answers.push(Answer { token, result });
            }
            Message::Answers(answers)
        }
        KIND_PROBE if !rest.is_empty() => return Err(DecodeError::Length(len)),
        KIND_PROBE if (a, b) != (0, 0) => return Err(DecodeError::Field("third byte")),
        KIND_PROBE => Message::Probe,
        _ => return Err(DecodeError::Field("kind")),
    };
    Ok((src, message))
}

fn decode_request(operation: u8, width: u8, rest: &[u8]) -> Result<Request, DecodeError> {
    if rest.len() != REQUEST_LEN - HEAD {
        return Err(DecodeError::Length(HEAD + rest.len()));
    }
    let (token, offset) = (number(rest, 0), number(rest, 8));
    let (operand, compare) = (number(rest, 16), number(rest, 24));
    if token > TOKEN_MASK {
        return Err(DecodeError::Field("token"));
    }
    if rest[33..] != [0; 3] {
        return Err(DecodeError::Field("last row"));
    }
    // What is not known is refused by an answer, and costs no connection.
    let op = match operation {
        1 => Some(AtomicOp::Fetch),
        2 => Some(AtomicOp::Swap(operand)),
        3 => Some(AtomicOp::CompareSwap {
            compare,
            new: operand,
        }),
        4 => Some(AtomicOp::Add(operand)),
        5 => Some(AtomicOp::And(operand)),
        6 => Some(AtomicOp::Or(operand)),
        7 => Some(AtomicOp::Xor(operand)),
        _ => None,
    };
    let what = op.zip(Width::of(usize::from(width)));
    // What an operation does not need is 0: every request has one form.
    if let Some((op, _)) = what
        && numbers(op) != (operation, operand, compare)
    {
        return Err(DecodeError::Field(
            "operand that the operation does not have",
        ));
    }
    Ok(Request {
        token,
        segment: rest[32],
        offset,
        what,
    })
}

/// For fuzzing: the message that bytes are, encoded anew; `None` if they are none.
#[doc(hidden)]
#[must_use]
pub fn recode_message(bytes: &[u8]) -> Option<Vec<u8>> {
    let (src, message) = decode(bytes).ok()?;
    let mut out = [0; MAX_LEN];
    let len = encode(src, &message, &mut out);
    Some(out[..len].to_vec())
}

/// Number, operand and expected value of an operation.
const fn numbers(op: AtomicOp) -> (u8, u64, u64) {
    match op {
        AtomicOp::Fetch => (1, 0, 0),
        AtomicOp::Swap(new) => (2, new, 0),
        AtomicOp::CompareSwap { compare, new } => (3, new, compare),
        AtomicOp::Add(n) => (4, n, 0),
        AtomicOp::And(n) => (5, n, 0),
        AtomicOp::Or(n) => (6, n, 0),
        AtomicOp::Xor(n) => (7, n, 0),
    }
}

/// The 64-bit number at `at`, which is inside of `bytes`.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(src: u32, message: &Message) -> Vec<u8> {
        let mut out = [0xee; MAX_LEN];
        let len = encode(src, message, &mut out);
        out[..len].to_vec()
    }

    #[test]
    fn a_request_has_the_layout_of_the_documentation() {
        let op = AtomicOp::CompareSwap {
            compare: 0x3132_3334_3536_3738,
            new: 0x2122_2324_2526_2728,
        };
        let request = Request {
            token: 0x0001_0203_0405_0607,
            segment: 9,
            offset: 0x1112_1314_1516_1718,
            what: Some((op, Width::W4)),
        };
        let bytes = encoded(0x4142_4344, &Message::Request(request));
        let mut expected = vec![1, 1, 3, 4, 0x41, 0x42, 0x43, 0x44];
        for first in [0, 0x10, 0x20, 0x30] {
            expected.extend(first + u8::from(first > 0)..first + 8 + u8::from(first > 0));
        }
        expected.extend([9, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_longest_message_is_full_of_answers() {
        let mut answers = Answers::new();
        let answer = Answer {
            token: 5,
            result: Err(Refusal::OutOfRange),
        };
        while answers.push(answer) {}
        let bytes = encoded(7, &Message::Answers(answers));
        assert_eq!(bytes.len(), MAX_LEN);
        assert_eq!(
            bytes[..16],
            [1, 2, 7, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 0, 0, 5]
        );
        assert_eq!(encoded(1, &Message::Probe), [1, 3, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn an_unknown_operation_is_a_request_that_can_be_refused() {
        let request = Request {
            token: 1,
            segment: 0,
            offset: 8,
            what: None,
        };
        let mut bytes = encoded(1, &Message::Request(request));
        for (operation, width) in [(0, 8), (8, 8), (1, 2), (4, 255)] {
            (bytes[2], bytes[3]) = (operation, width);
            assert_eq!(decode(&bytes), Ok((1, Message::Request(request))));
        }
    }

    #[test]
    fn operands_that_an_operation_does_not_have_are_refused() {
        let request = |op| Request {
            token: 1,
            segment: 0,
            offset: 8,
            what: Some((op, Width::W8)),
        };
        for (op, byte) in [(AtomicOp::Fetch, 31), (AtomicOp::Add(7), 39)] {
            let mut bytes = encoded(1, &Message::Request(request(op)));
            assert!(decode(&bytes).is_ok());
            bytes[byte] = 1;
            assert!(matches!(decode(&bytes), Err(DecodeError::Field(_))));
        }
    }

    fn op() -> impl Strategy<Value = AtomicOp> {
        let n = any::<u64>;
        prop_oneof![
            Just(AtomicOp::Fetch),
            n().prop_map(AtomicOp::Swap),
            (n(), n()).prop_map(|(compare, new)| AtomicOp::CompareSwap { compare, new }),
            n().prop_map(AtomicOp::Add),
            n().prop_map(AtomicOp::And),
            n().prop_map(AtomicOp::Or),
            n().prop_map(AtomicOp::Xor),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let token = || 0..=TOKEN_MASK;
        let width = prop_oneof![Just(Width::W4), Just(Width::W8)];
        let request = (token(), any::<u8>(), any::<u64>(), op(), width);
        let request = request.prop_map(|(token, segment, offset, op, width)| {
            Message::Request(Request {
                token,
                segment,
                offset,
                what: Some((op, width)),
            })
        });
        let result = prop_oneof![
            any::<u64>().prop_map(Ok),
            (1..=4u8).prop_map(|code| Err(Refusal::of(code).expect("one of four"))),
        ];
        let answer = (token(), result).prop_map(|(token, result)| Answer { token, result });
        let answers = prop::collection::vec(answer, 1..=MAX_ANSWERS).prop_map(|list| {
            let mut answers = Answers::new();
            assert!(list.into_iter().all(|answer| answers.push(answer)));
            Message::Answers(answers)
        });
        prop_oneof![request, answers, Just(Message::Probe)]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(src: u32, message in message()) {
            prop_assert_eq!(decode(&encoded(src, &message)), Ok((src, message)));
        }

        /// Whatever decodes says the same when it is encoded again; nothing panics.
        #[test]
        fn bytes_of_strangers_do_no_harm(
            mut bytes in prop::collection::vec(any::<u8>(), 0..2 * MAX_LEN),
            head in prop::option::of((1..5u8, 0..9u8, 0..9u8)),
        ) {
            if let (Some((kind, a, b)), Some(front)) = (head, bytes.first_chunk_mut::<4>()) {
                *front = [VERSION, kind, a, b];
            }
            if let Ok((src, message)) = decode(&bytes)
                && !matches!(message, Message::Request(Request { what: None, .. }))
            {
                let (_, again) = decode(&encoded(src, &message)).expect("it was valid");
                prop_assert_eq!(again, message);
            }
        }

        /// A message that was cut or has grown is none.
        #[test]
        fn lengths_are_checked(message in message(), cut in 1..MAX_LEN, more in 1..20usize) {
            let bytes = encoded(3, &message);
            prop_assert!(decode(&bytes[..bytes.len().saturating_sub(cut)]).is_err());
            let longer = [bytes.as_slice(), &vec![0; more]].concat();
            prop_assert!(decode(&longer).is_err());
        }
    }
}
