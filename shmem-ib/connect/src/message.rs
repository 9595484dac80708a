//! The datagrams of connection management, and their codec.
//!
//! There is one message that connects, OFFER: "this is my queue pair, and this is the memory
//! that you may access through it". A request and its reply are both OFFERs, which is why two
//! PEs that offer at the same moment need no rule who wins. WAIT says that the sender is alive
//! but cannot do yet what it was asked for: it has no memory to offer, no queue pair to spare, or
//! operations under way. BYE says that the sender leaves: none of its operations is under way to
//! the receiver, and none will come. DRAIN says the same of one pair of queue pairs, which is to
//! make room for another. SEGMENTS tells over an existing connection that the sender's memory
//! has grown, and SEGMENTS-ACK that this was understood.
//!
//! With XRC ([`xrc`](super::xrc)) the same messages say the same of an initiator queue pair and its target,
//! which has the generation of the initiator: an OFFER without echo asks for a target, and one with echo
//! tells of it. A DRAIN without echo says that the initiator is gone, one with that the target is. ASK asks
//! for the SEGMENTS of a PE that is reached through the queue pair of another.
//!
//! # Layout
//! All numbers are big-endian. One row is 32 bits; the number at the right is the byte offset.
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+---------------+---------------+
//! | version (= 4) | kind 1=OFFER  |W|  reserved   | segment count |  0
//! |               | 2=WAIT 3=BYE  | |   (zero)    |               |
//! |               | 4=DRAIN       | |             |               |
//! |               | 5=SEGMENTS    | |             |               |
//! |               | 6=SEGMENTS-ACK| |             |               |
//! |               | 7=ASK         | |             |               |
//! +---------------+---------------+---------------+---------------+
//! |                                                               |  4
//! |                     job tag (64 bits)                         |
//! +---------------------------------------------------------------+
//! |                         source PE                             | 12
//! +---------------------------------------------------------------+
//! |                       destination PE                          | 16
//! +---------------------------------------------------------------+
//! |       generation of the source's QP towards this peer         | 20
//! +---------------------------------------------------------------+
//! |   echo: generation of the destination's QP, 0 = none heard    | 24
//! +---------------------------------------------------------------+
//! |                                                               | 28
//! |                      ticket (64 bits)                         |
//! +===============================================================+
//! |   WAIT and BYE end here, OFFER, DRAIN and ASK go on with      |
//! +---------------------------------------------------------------+
//! |                                                               | 36
//! |        GID of the source's UD endpoint (128 bits)             |
//! |                                                               |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                UD Q_Key (bit 31 is zero)                      | 52
//! +-----------------------------------------------+---------------+
//! |                   UD QPN                      | MTU code, or 0| 56
//! +-----------------------------------------------+---------------+
//! |     UDP port of the UD QP     |            (zero)             | 60
//! +===============================================================+
//! |     DRAIN and ASK end here, an OFFER goes on with             |
//! +-----------------------------------------------+---------------+
//! |                   RC QPN                      | max rd atomic | 64
//! +-----------------------------------------------+---------------+
//! |           starting PSN of the RC QP           |    (zero)     | 68
//! +-----------------------------------------------+---------------+
//! |     how many of the destination's segments are known          | 72
//! +-----------------------------------------------+---------------+
//! |     memory                                                    | 76
//! +===============================================================+
//! ```
//! SEGMENTS goes on behind the ticket with the memory (offset 36), SEGMENTS-ACK with how many segments
//! are known (32 bits). Memory is
//! ```text
//! +-----------------------------------------------+---------------+
//! |     number of the XRC SRQ, or 0               |    (zero)     |  0
//! +-----------------------------------------------+---------------+
//! |     segments                                                  |  4
//! +---------------------------------------------------------------+
//! ```
//! and each segment
//! ```text
//! +---------------------------------------------------------------+
//! |                                                               |  0
//! |      address (64 bits)                                        |
//! +---------------------------------------------------------------+
//! |                                                               |  8
//! |      size in bytes (64 bits)                                  |
//! +---------------------------------------------------------------+
//! |      rkey                                                     | 16
//! +-----------------------------------------------+---------------+
//! |      (zero)                                   |  identifier   | 20
//! +-----------------------------------------------+---------------+
//! ```
//! and every message ends with the MAC, the 16 bytes of SipHash-2-4-128 of all bytes before.
//!
//! `W` (WANT_REPLY) asks for a message of the same kind in return, in SEGMENTS for a
//! SEGMENTS-ACK. WAIT and BYE are 52 bytes, a DRAIN 80, an OFFER with one segment is 120, the
//! longest OFFER (6 segments) 240: each fits into the smallest MTU of InfiniBand.
//!
//! The ticket of an OFFER with W is its place in the line of those who want a queue pair: the
//! smaller one is served first, at the same ticket the smaller PE. In other messages it is the
//! sender's logical clock, above every ticket that it has seen.
//!
//! The echo names the queue pair of the *receiver* for which the sender's queue pair is
//! ready: an OFFER whose echo is mine proves that the peer answers my RDMA.

#![forbid(unsafe_code)]

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use smallvec::SmallVec;

use super::UdAddress;
use shmem_verbs::{Gid, Mtu, Psn, Qkey, Qpn, Rkey, SrqNum};

/// Most segments of one PE.
pub const MAX_SEGMENTS: usize = 6;
/// Longest encoded message in bytes.
pub const MAX_LEN: usize = OFFER_FIXED + MAX_SEGMENTS * SEGMENT_LEN + MAC_LEN;

const VERSION: u8 = 4;
const KIND_OFFER: u8 = 1;
const KIND_WAIT: u8 = 2;
const KIND_BYE: u8 = 3;
const KIND_DRAIN: u8 = 4;
const KIND_SEGMENTS: u8 = 5;
const KIND_SEGMENTS_ACK: u8 = 6;
const KIND_ASK: u8 = 7;
const FLAG_WANT_REPLY: u8 = 0x80;
const COMMON: usize = 36;
const ADDRESS_END: usize = COMMON + 28;
const ACK_LEN: usize = COMMON + 4;
const MEMORY_FIXED: usize = 4;
const OFFER_FIXED: usize = ADDRESS_END + 12 + MEMORY_FIXED;
const SEGMENTS_FIXED: usize = COMMON + MEMORY_FIXED;
const SEGMENT_LEN: usize = 24;
const MAC_LEN: usize = 16;

const _: () = assert!(MAX_LEN <= 256, "an OFFER has to fit into the smallest MTU");

/// Names one queue pair of one side of a pair of PEs for good, while QPNs recur: counts those that the PE
/// has made towards this peer. A later one is larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// No queue pair.
    pub const NONE: Self = Self(0);

    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One registered range of memory that a peer may access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Segment {
    /// First byte, as the owner's virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The key of the registration.
    pub rkey: Rkey,
    /// Which of its owner's segments it is; 0 is the symmetric heap.
    pub id: u8,
}

/// The segments of one PE, at most [`MAX_SEGMENTS`], with different identifiers. A PE registers more, and
/// none is ever taken back: of two lists of one PE the longer one is the newer.
pub type Segments = SmallVec<[Segment; 1]>;

/// How a PE is addressed over a connection that leads to its memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    /// Its XRC SRQ, which says to an HCA whose memory is meant; 0 without XRC.
    pub srqn: SrqNum,
    /// The ranges that may be accessed.
    pub segments: Segments,
}

/// What one side brings to a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    /// Where the sender takes connection messages, so that an answer needs no directory.
    pub ud: UdAddress,
    /// The queue pair made for this peer.
    pub qpn: Qpn,
    /// PSN of the first request that it will send.
    pub psn: Psn,
    /// Largest packet payload that the sender's port can do.
    pub mtu: Mtu,
    /// Most READs and atomics that the sender can answer at a time.
    pub max_rd_atomic: u8,
    /// How many of the receiver's segments the sender knows, if the echo is set; else 0.
    pub heard: u32,
    /// The memory that may be accessed.
    pub memory: Memory,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Here is my queue pair and my memory.
    Offer(Offer),
    /// I have heard you, but cannot do it yet: be patient, I shall answer.
    Wait,
    /// Nothing of mine is under way to you, and nothing will come.
    Bye,
    /// Nothing of mine is under way on these two queue pairs, and nothing will come. Without
    /// `want_reply`: and mine is gone. The address is where the sender takes messages.
    Drain(UdAddress),
    /// This is all of my memory now. With XRC it answers an ASK.
    Segments(Memory),
    /// I know so many of your segments.
    SegmentsAck(u32),
    /// How are you addressed? For XRC. The address is where the sender takes messages.
    Ask(UdAddress),
}

/// One datagram.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Who sent it: a PE, or the [number](crate::admission::number_of) of a branch.
    pub src_pe: u32,
    /// Whom it is for; the same.
    pub dst_pe: u32,
    /// The sender's queue pair. In a WAIT there is none, in a BYE there may be none for this peer. An
    /// ASK has its own number, and so has its answer.
    pub generation: Generation,
    /// OFFER: the receiver's queue pair for which the sender's is ready. WAIT: the one of the
    /// message that cannot be answered yet. BYE, DRAIN: the one that the sender will not use;
    /// always set. SEGMENTS and its acknowledgement: the one to which the sender's is linked.
    ///
    /// With XRC there is none in the DRAIN of an initiator and in the WAIT that answers a BYE, and whatever
    /// answers an ASK has its number.
    pub echo: Option<Generation>,
    /// Whether the sender asks for a message of the same kind, or an acknowledgement.
    pub want_reply: bool,
    /// Place in the line of those who want a queue pair, or logical time.
    pub ticket: u64,
    /// The rest.
    pub body: Body,
}

/// Why a datagram was not understood.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter or longer than any message, or than this one says it is.
    #[error("length {0} does not fit the kind and segment count of the message")]
    Length(usize),
    /// It says that it belongs to another job.
    #[error("the message is of another job")]
    WrongJob,
    /// The sender does not have the key of the job, or the message was damaged.
    #[error("the MAC is wrong: the sender does not know the key of this job")]
    BadMac,
    /// Authentic, but of another version of this protocol.
    #[error("protocol version {0}, expected 4: the PEs of this job run different builds")]
    Version(u8),
    /// Authentic, but a field has a value that no correct sender produces.
    #[error("field {0} has a value that is not allowed")]
    Field(&'static str),
}

/// The key that is derived from a job's secret for packets of its queue pairs.
pub(crate) fn packet_key(job_key: &[u8; 32]) -> [u8; 16] {
    derived(job_key, b"packets")
}

fn derived(job_key: &[u8; 32], purpose: &[u8]) -> [u8; 16] {
    let (head, rest) = job_key.split_first_chunk().expect("32 bytes");
    let mut hasher = SipHasher24::new_with_key(head);
    hasher.write(rest);
    hasher.write(purpose);
    let key = hasher.finish128().as_u128().to_be_bytes();
    // It holds half of the secret.
    std::hint::black_box(&mut hasher).clone_from(&SipHasher24::new());
    key
}

/// Encodes and decodes messages of one job.
#[derive(Clone)]
pub struct Codec {
    tag: u64,
    key: [u8; 16],
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Codec")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

impl Codec {
    /// A codec for the job with this identity and secret.
    ///
    /// The MAC key is derived from the whole secret, so that the same secret may serve other
    /// purposes, too.
    #[must_use]
    pub fn new(job_id: &[u8; 16], job_key: &[u8; 32]) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(job_id);
        let tag = hasher.finish128().h1;
        let key = derived(job_key, b"connection messages");
        Self { tag, key }
    }

    /// The MAC that belongs behind these bytes of a message.
    #[must_use]
    pub fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(bytes);
        hasher.finish128().as_u128().to_be_bytes()
    }

    /// Writes `message` to the front of `out` and returns its length in bytes.
    ///
    /// # Panics
    /// If the message has more than [`MAX_SEGMENTS`] segments; such a message cannot come from
    /// [`Self::decode`], and who registers segments checks the limit.
    pub fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        out[0] = VERSION;
        out[2] = if message.want_reply {
            FLAG_WANT_REPLY
        } else {
            0
        };
        out[4..12].copy_from_slice(&self.tag.to_be_bytes());
        out[12..16].copy_from_slice(&message.src_pe.to_be_bytes());
        out[16..20].copy_from_slice(&message.dst_pe.to_be_bytes());
        out[20..24].copy_from_slice(&message.generation.0.to_be_bytes());
        let echo = message.echo.unwrap_or(Generation::NONE);
        out[24..28].copy_from_slice(&echo.0.to_be_bytes());
        out[28..COMMON].copy_from_slice(&message.ticket.to_be_bytes());
        out[3] = 0;
        let (kind, end) = match &message.body {
            Body::Wait => (KIND_WAIT, COMMON),
            Body::Bye => (KIND_BYE, COMMON),
            Body::Drain(ud) => {
                encode_address(ud, 0, out);
                (KIND_DRAIN, ADDRESS_END)
            }
            Body::Segments(memory) => (KIND_SEGMENTS, encode_memory(memory, COMMON, out)),
            Body::SegmentsAck(heard) => {
                out[COMMON..ACK_LEN].copy_from_slice(&heard.to_be_bytes());
                (KIND_SEGMENTS_ACK, ACK_LEN)
            }
            Body::Offer(offer) => (KIND_OFFER, encode_offer(offer, out)),
            Body::Ask(ud) => {
                encode_address(ud, 0, out);
                (KIND_ASK, ADDRESS_END)
            }
        };
        out[1] = kind;
        let mac = self.mac(&out[..end]);
        out[end..end + MAC_LEN].copy_from_slice(&mac);
        end + MAC_LEN
    }

    /// Reads one datagram. The MAC is checked before any field is believed.
    ///
    /// # Errors
    /// Every byte string that [`Self::encode`] of the same job did not produce.
    pub fn decode(&self, bytes: &[u8]) -> Result<Message, DecodeError> {
        let len = bytes.len();
        if !(COMMON + MAC_LEN..=MAX_LEN).contains(&len) {
            return Err(DecodeError::Length(len));
        }
        let (text, mac) = bytes.split_at(len - MAC_LEN);
        let mut input = Reader::new(text);
        let difference = self
            .mac(text)
            .iter()
            .zip(mac)
            .fold(0, |acc, (a, b)| acc | (a ^ b));
        let [version, kind, flags, count] = input.array();
        let tag = u64::from_be_bytes(input.array());
        if difference != 0 {
            // The tag of a message without a valid MAC proves nothing, but it tells a stray
            // neighbour from a forger in the counters.
            return Err(if tag == self.tag {
                DecodeError::BadMac
            } else {
                DecodeError::WrongJob
            });
        }
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if tag != self.tag {
            return Err(DecodeError::WrongJob);
        }
        if flags & !FLAG_WANT_REPLY != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let src_pe = input.u32();
        let dst_pe = input.u32();
        let generation = Generation(input.u32());
        let echo = Some(Generation(input.u32())).filter(|echo| *echo != Generation::NONE);
        let ticket = u64::from_be_bytes(input.array());
        let want_reply = flags & FLAG_WANT_REPLY != 0;
        let around = |body| Message {
            src_pe,
            dst_pe,
            generation,
            echo,
            want_reply,
            ticket,
            body,
        };
        check_length(kind, count, text.len())?;
        let optional = matches!(kind, KIND_OFFER | KIND_WAIT | KIND_DRAIN | KIND_ASK);
        if !optional && echo.is_none() {
            return Err(DecodeError::Field("echo"));
        }
        if !matches!(kind, KIND_WAIT | KIND_BYE) && generation == Generation::NONE {
            return Err(DecodeError::Field("generation"));
        }
        let body = match kind {
            KIND_OFFER => Body::Offer(decode_offer(&mut input, count)?),
            KIND_WAIT => Body::Wait,
            KIND_BYE => Body::Bye,
            KIND_DRAIN | KIND_ASK => match decode_address(&mut input)? {
                (ud, 0) if kind == KIND_DRAIN => Body::Drain(ud),
                (ud, 0) => Body::Ask(ud),
                _ => return Err(DecodeError::Field("reserved")),
            },
            KIND_SEGMENTS => Body::Segments(decode_memory(&mut input, count)?),
            KIND_SEGMENTS_ACK => Body::SegmentsAck(input.u32()),
            _ => return Err(DecodeError::Field("kind")),
        };
        Ok(around(body))
    }
}

/// Whether a datagram of this kind may carry so many segments, and is then so long without its MAC.
fn check_length(kind: u8, count: u8, len: usize) -> Result<(), DecodeError> {
    let fixed = match kind {
        KIND_OFFER => OFFER_FIXED,
        KIND_WAIT | KIND_BYE => COMMON,
        KIND_SEGMENTS => SEGMENTS_FIXED,
        KIND_DRAIN | KIND_ASK => ADDRESS_END,
        KIND_SEGMENTS_ACK => ACK_LEN,
        _ => return Err(DecodeError::Field("kind")),
    };
    let most = match kind {
        KIND_OFFER | KIND_SEGMENTS => MAX_SEGMENTS,
        _ => 0,
    };
    if usize::from(count) > most {
        return Err(DecodeError::Field("segment count"));
    }
    if len != fixed + usize::from(count) * SEGMENT_LEN {
        return Err(DecodeError::Length(len + MAC_LEN));
    }
    Ok(())
}

/// A 24-bit field and the 8-bit field behind it.
const fn packed(high24: u32, low8: u8) -> [u8; 4] {
    ((high24 & Psn::MASK) << 8 | low8 as u32).to_be_bytes()
}

fn encode_address(ud: &UdAddress, low8: u8, out: &mut [u8; MAX_LEN]) {
    out[36..52].copy_from_slice(&ud.gid.0);
    out[52..56].copy_from_slice(&ud.qkey.0.to_be_bytes());
    out[56..60].copy_from_slice(&packed(ud.qpn.0, low8));
    out[60..62].copy_from_slice(&ud.udp_port.to_be_bytes());
    out[62..64].fill(0);
}

fn encode_offer(offer: &Offer, out: &mut [u8; MAX_LEN]) -> usize {
    encode_address(&offer.ud, offer.mtu.code(), out);
    out[64..68].copy_from_slice(&packed(offer.qpn.0, offer.max_rd_atomic));
    out[68..72].copy_from_slice(&packed(offer.psn.0, 0));
    out[72..76].copy_from_slice(&offer.heard.to_be_bytes());
    encode_memory(&offer.memory, 76, out)
}

fn encode_memory(memory: &Memory, mut at: usize, out: &mut [u8; MAX_LEN]) -> usize {
    assert!(memory.segments.len() <= MAX_SEGMENTS, "too many segments");
    out[3] = memory.segments.len() as u8;
    out[at..at + MEMORY_FIXED].copy_from_slice(&packed(memory.srqn.0, 0));
    at += MEMORY_FIXED;
    for segment in &memory.segments {
        out[at..at + 8].copy_from_slice(&segment.address.to_be_bytes());
        out[at + 8..at + 16].copy_from_slice(&segment.size.to_be_bytes());
        out[at + 16..at + 20].copy_from_slice(&segment.rkey.0.to_be_bytes());
        out[at + 20..at + 24].copy_from_slice(&packed(0, segment.id));
        at += SEGMENT_LEN;
    }
    at
}

/// The address and the 8 bits behind its QPN.
fn decode_address(input: &mut Reader<'_>) -> Result<(UdAddress, u8), DecodeError> {
    let gid = Gid(input.array());
    let qkey = input.u32();
    let (qpn, low8) = input.packed();
    let port_and_zero = input.u32();
    if qkey >> 31 != 0 {
        return Err(DecodeError::Field("UD Q_Key"));
    }
    if port_and_zero & 0xffff != 0 {
        return Err(DecodeError::Field("reserved"));
    }
    let ud = UdAddress {
        gid,
        udp_port: (port_and_zero >> 16) as u16,
        qpn: Qpn(qpn),
        qkey: Qkey(qkey),
    };
    Ok((ud, low8))
}

fn decode_offer(input: &mut Reader<'_>, count: u8) -> Result<Offer, DecodeError> {
    let (ud, mtu) = decode_address(input)?;
    let (qpn, max_rd_atomic) = input.packed();
    let (psn, zero) = input.packed();
    if zero != 0 {
        return Err(DecodeError::Field("reserved"));
    }
    let mtu = Mtu::from_code(mtu).ok_or(DecodeError::Field("MTU"))?;
    Ok(Offer {
        ud,
        qpn: Qpn(qpn),
        psn: Psn(psn),
        mtu,
        max_rd_atomic,
        heard: input.u32(),
        memory: decode_memory(input, count)?,
    })
}

fn decode_memory(input: &mut Reader<'_>, count: u8) -> Result<Memory, DecodeError> {
    let (srqn, zero) = input.packed();
    if zero != 0 {
        return Err(DecodeError::Field("reserved"));
    }
    let mut segments = Segments::new();
    for _ in 0..count {
        let address = u64::from_be_bytes(input.array());
        let size = u64::from_be_bytes(input.array());
        if address.checked_add(size).is_none() {
            return Err(DecodeError::Field("segment size"));
        }
        let rkey = Rkey(input.u32());
        let (zero, id) = input.packed();
        if zero != 0 {
            return Err(DecodeError::Field("reserved"));
        }
        if segments.iter().any(|s: &Segment| s.id == id) {
            return Err(DecodeError::Field("segment identifier"));
        }
        segments.push(Segment {
            address,
            size,
            rkey,
            id,
        });
    }
    Ok(Memory {
        srqn: SrqNum(srqn),
        segments,
    })
}

/// Takes fields off the front. Whoever uses it has checked the length; past the end it yields
/// zeros rather than panicking.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                *head
            }
            None => {
                self.bytes = &[];
                [0; N]
            }
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// A 24-bit field and the 8-bit field behind it.
    fn packed(&mut self) -> (u32, u8) {
        let word = self.u32();
        (word >> 8, word as u8)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
