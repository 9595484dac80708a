//! Names and numbers of verbs objects: newtypes, so that a QPN is never taken for an rkey.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::lane::Lane;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub u32);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number! {
    /// Queue pair number, 24 bits, unique per HCA.
    Qpn
}
number! {
    /// Key by which a peer names a memory region.
    Rkey
}
number! {
    /// Key by which a local work request names a memory region.
    Lkey
}
number! {
    /// Key which a datagram must carry to be accepted by a UD queue pair. Bit 31 stays clear:
    /// hardware gives keys with bit 31 a privileged meaning.
    Qkey
}
number! {
    /// A completion queue.
    Cq
}
number! {
    /// A memory registration.
    MrHandle
}
number! {
    /// A shared receive queue.
    Srq
}
number! {
    /// The number by which XRC packets name a shared receive queue: 24 bits, unique per HCA.
    SrqNum
}
number! {
    /// An XRC domain: targets in it serve the shared receive queues in it.
    Xrcd
}
/// Packet sequence number: 24 bits that wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(pub u32);

impl Psn {
    /// All bits that a PSN has.
    pub const MASK: u32 = 0x00ff_ffff;

    /// A PSN from the low 24 bits of `n`.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self(n & Self::MASK)
    }

    /// The PSN `n` packets later.
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) & Self::MASK)
    }

    /// How many packets `self` is after `earlier`, from -2^23 to 2^23-1.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i32 {
        // Shifting up makes the 24-bit difference wrap as a signed number.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

/// Global identifier of a port: an IPv6 address, or `::ffff:a.b.c.d` for IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address that this GID stands for; IPv4-mapped ones become IPv4.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.0)).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::V4(ip).into()
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", self.ip())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// Where a port is. The software HCA is found by address and UDP port. A RoCE device listens on
/// the one port of RoCEv2 (4791) and ignores that of its peers. An InfiniBand port is found by its
/// GID, and within its subnet by its local identifier (LID) alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AddressVector {
    /// Address of the port.
    pub gid: Gid,
    /// UDP port of a software HCA; 4791 of a RoCE device; the LID of an InfiniBand port, which has
    /// no UDP ports.
    pub udp_port: u16,
}

impl fmt::Display for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.gid.ip(), self.udp_port).fmt(f)
    }
}

/// What carries the packets of a port. Ports on different fabrics cannot reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Fabric {
    /// Software HCAs, which find each other at any UDP port and send packets in trains.
    #[default]
    Soft,
    /// RoCEv2 as all makes speak it.
    Roce,
    /// InfiniBand.
    InfiniBand,
}

impl Fabric {
    /// The fabrics, in the order of their codes.
    const ALL: [Self; 3] = [Self::Soft, Self::Roce, Self::InfiniBand];

    /// The fabric of a code, if it is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// A number for it, which fits into a byte.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Soft => "the software HCA",
            Self::Roce => "RoCEv2",
            Self::InfiniBand => "InfiniBand",
        })
    }
}

/// Largest payload of one packet on a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mtu {
    /// 256 bytes.
    M256,
    /// 512 bytes.
    M512,
    /// 1024 bytes: what fits into an Ethernet frame of 1500.
    M1024,
    /// 2048 bytes.
    M2048,
    /// 4096 bytes.
    M4096,
    /// 61440 bytes, what fits into a datagram: more than any InfiniBand port has. For software HCAs of one machine.
    M61440,
}

impl Mtu {
    /// Bytes of payload.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::M61440 => 61_440,
            _ => 256 << self as u8,
        }
    }

    /// The code of verbs and of the wire, 1 to 5; that of [`Self::M61440`] is 6.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The MTU of a code, if it is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::M256,
            2 => Self::M512,
            3 => Self::M1024,
            4 => Self::M2048,
            5 => Self::M4096,
            6 => Self::M61440,
            _ => return None,
        })
    }
}

bitflags::bitflags! {
    /// Rights on a memory region or queue pair; combine them with `|`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u8 {
        /// The HCA may write it for local requests (receives, READ and atomic results).
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may execute atomics.
        const REMOTE_ATOMIC = 8;
    }
}

impl Access {
    /// Local reading only: a source of sends and writes.
    pub const NONE: Self = Self::empty();
    /// Everything that a symmetric segment needs.
    pub const ALL: Self = Self::all();
}

/// Transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection to one peer queue pair.
    Rc,
    /// Unreliable datagrams to any UD queue pair.
    Ud,
    /// Initiator of an extended reliable connection: a send queue only, whose requests name a
    /// shared receive queue of the peer.
    XrcIni,
    /// Target of an extended reliable connection: a responder only.
    XrcTgt,
}

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpState {
    /// As created: packets are dropped, nothing may be posted.
    Reset,
    /// Receives may be posted; packets are still dropped.
    Init,
    /// Ready to receive: inbound requests are executed and answered.
    Rtr,
    /// Ready to send, too.
    Rts,
    /// A datagram could not be sent: requests of the send queue complete with a flush error,
    /// receives go on (UD).
    Sqe,
    /// Failed, or moved here to flush: every request completes with a flush error.
    Err,
}

/// A registered memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    /// Names the registration for [`super::Hca::dereg_mr`].
    pub handle: MrHandle,
    /// First byte, as a virtual address; peers use the same addresses.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// For local work requests.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// What a port is and what it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Where peers find it.
    pub av: AddressVector,
    /// How its packets are marked.
    pub lane: Lane,
    /// Largest packet payload.
    pub active_mtu: Mtu,
    /// Longest inline payload of a work request, in bytes.
    pub max_inline: u32,
    /// Most outstanding READs and atomics that one queue pair can start or answer.
    pub max_rd_atomic: u8,
    /// Most work requests that a queue can hold.
    pub max_qp_wr: u32,
    /// Most completions that a CQ can hold.
    pub max_cqe: u32,
    /// Longest message of one work request, in bytes.
    pub max_msg: u64,
    /// Most local buffers of one work request.
    pub max_sge: u32,
    /// Most receives that a shared receive queue can hold.
    pub max_srq_wr: u32,
    /// Whether there are XRC domains, queue pairs and receive queues.
    pub xrc: bool,
    /// Whether remote atomics are atomic with CPU atomics of the owner, too.
    pub atomics_coherent: bool,
    /// Whether [`super::Hca::inbound`] tells of what peers have done here. Where it does not, who
    /// waits for memory has to look at it again and again.
    pub notices_inbound: bool,
    /// Whether a registration takes the memory of all its pages, and keeps it, rather than
    /// leaving pages to be made when they are touched.
    pub pins_memory: bool,
}

/// Why [`super::Hca::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// There was work: packets or timers were handled, completions are waiting, or the alarm is due.
    Work,
    /// [`super::Hca::wake`] was called.
    Woken,
    /// Nothing happened for as long as the caller wanted to wait.
    Timeout,
}

/// Counts since the HCA was made. A packet is a RoCEv2 packet, not a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Packets sent, with retransmissions.
    pub packets_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Packets received, with those that were dropped afterwards.
    pub packets_received: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Request packets received that had been executed already.
    pub duplicates: u64,
    /// Request packets received ahead of their turn, and dropped.
    pub out_of_sequence: u64,
    /// Negative acknowledgements sent.
    pub naks_sent: u64,
    /// Negative acknowledgements received.
    pub naks_received: u64,
    /// Packets whose invariant CRC was wrong.
    pub icrc_errors: u64,
    /// Packets dropped: malformed, no such QP, wrong state, wrong key, no receive buffer.
    pub dropped: u64,
    /// SEND, READ, WRITE and atomic operations of peers that were executed here.
    pub rdma_inbound: u64,
    /// Datagrams delivered to a UD queue pair.
    pub ud_received: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// Of those, the ones that were refused, except for want of room: what they were to send is lost, or
    /// goes out in smaller pieces.
    pub send_refusals: u64,
    /// System calls that received packets, successful or not.
    pub recv_calls: u64,
    /// Streams opened, by either side: TCP connections of the software HCA, by which long messages go.
    pub streams_opened: u64,
    /// Bytes sent by streams, which are not in `bytes_sent`.
    pub stream_bytes_sent: u64,
    /// Bytes received by streams.
    pub stream_bytes_received: u64,
}
