//! Work requests, completions, and the attributes of queue pairs.

use super::{Access, AddressVector, Cq, Lkey, Mtu, Psn, Qkey, QpState, QpType, Qpn, Rkey};

/// What a new queue pair is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub ty: QpType,
    /// Where completions of the send queue go.
    pub send_cq: Cq,
    /// Where completions of the receive queue go.
    pub recv_cq: Cq,
    /// Most uncompleted send requests.
    pub max_send_wr: u32,
    /// Most posted receives.
    pub max_recv_wr: u32,
    /// Longest inline payload in bytes.
    pub max_inline: u32,
}

/// The other end of an RC queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcDest {
    /// Port of the peer.
    pub av: AddressVector,
    /// Its queue pair.
    pub qpn: Qpn,
    /// PSN of the first request that the peer will send.
    pub rq_psn: Psn,
    /// Payload per packet on this path; both sides must agree.
    pub mtu: Mtu,
    /// How many READs and atomics of the peer may be outstanding.
    pub max_dest_rd_atomic: u8,
}

/// One variant per legal transition, with just the attributes that it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpAttr {
    /// RESET to INIT.
    Init {
        /// What peers may do through this queue pair (RC).
        access: Access,
        /// The key of a UD queue pair; required there and refused for RC.
        qkey: Option<Qkey>,
    },
    /// INIT to RTR.
    Rtr {
        /// The peer; required for RC and refused for UD.
        dest: Option<RcDest>,
    },
    /// RTR to RTS.
    Rts {
        /// PSN of the first request.
        sq_psn: Psn,
        /// Local ACK timeout: 4.096 us * 2^timeout, 1 to 31. 0 means: never give up.
        timeout: u8,
        /// How many timeouts without progress follow the first, 0 to 7, before the queue
        /// pair fails with [`WcStatus::RetryExcErr`].
        retry_cnt: u8,
        /// How many READs and atomics may be outstanding; the peer's `max_dest_rd_atomic`.
        max_rd_atomic: u8,
    },
    /// Any state to ERR: flushes both queues.
    Err,
    /// Any state to RESET: forgets everything.
    Reset,
}

impl QpAttr {
    /// The state that this leads to.
    #[must_use]
    pub const fn target(&self) -> QpState {
        match self {
            Self::Init { .. } => QpState::Init,
            Self::Rtr { .. } => QpState::Rtr,
            Self::Rts { .. } => QpState::Rts,
            Self::Err => QpState::Err,
            Self::Reset => QpState::Reset,
        }
    }
}

/// A local buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The registration that covers it.
    pub lkey: Lkey,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Sends a datagram (UD).
    UdSend {
        /// Port of the receiver.
        av: AddressVector,
        /// Its queue pair.
        qpn: Qpn,
        /// Its key.
        qkey: Qkey,
    },
    /// Writes the local buffer to the peer's memory.
    Write {
        /// First byte there.
        raddr: u64,
        /// Key of the region.
        rkey: Rkey,
    },
    /// Reads the peer's memory into the local buffer.
    Read {
        /// First byte there.
        raddr: u64,
        /// Key of the region.
        rkey: Rkey,
    },
    /// Adds to a 64-bit word of the peer; its old value comes to the local buffer (8 bytes).
    FetchAdd {
        /// The word, aligned to 8.
        raddr: u64,
        /// Key of the region.
        rkey: Rkey,
        /// What to add, wrapping.
        add: u64,
    },
    /// Replaces a 64-bit word of the peer if it equals `compare`; its old value comes to the
    /// local buffer (8 bytes).
    CmpSwap {
        /// The word, aligned to 8.
        raddr: u64,
        /// Key of the region.
        rkey: Rkey,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
}

impl SendOp {
    /// Whether the local buffer is written by the operation rather than read.
    #[must_use]
    pub const fn writes_local(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::FetchAdd { .. } | Self::CmpSwap { .. }
        )
    }

    /// The same RDMA operation on another place; a UD send stays as it is.
    #[must_use]
    pub const fn aimed_at(self, raddr: u64, rkey: Rkey) -> Self {
        match self {
            Self::Write { .. } => Self::Write { raddr, rkey },
            Self::Read { .. } => Self::Read { raddr, rkey },
            Self::FetchAdd { add, .. } => Self::FetchAdd { raddr, rkey, add },
            Self::CmpSwap { compare, swap, .. } => Self::CmpSwap {
                raddr,
                rkey,
                compare,
                swap,
            },
            other => other,
        }
    }

    /// The name of the operation as used in error messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UdSend { .. } => "UD send",
            Self::Write { .. } => "RDMA write",
            Self::Read { .. } => "RDMA read",
            Self::FetchAdd { .. } => "fetch-and-add",
            Self::CmpSwap { .. } => "compare-and-swap",
        }
    }
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The local buffer.
    pub sge: Sge,
    /// Payload that is copied while posting, instead of `sge`: only for sends and writes.
    pub inline: Option<&'a [u8]>,
    /// Whether success gives a completion. Errors always do.
    pub signaled: bool,
}

/// A request for the receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The buffer; a UD queue pair fills it from byte [`super::GRH_LEN`] on.
    pub sge: Sge,
}

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WcStatus {
    /// It was executed.
    Success,
    /// The received message is longer than the buffer.
    LocLenErr,
    /// A local buffer is not registered (any more).
    LocProtErr,
    /// The queue pair failed or was moved to ERR before this request was executed.
    WrFlushErr,
    /// The peer's queue pair does not support the request, or it was malformed.
    RemInvReqErr,
    /// The rkey, the range or the rights do not allow it.
    RemAccessErr,
    /// The peer could not complete it for another reason.
    RemOpErr,
    /// No answer within the retry budget: the peer, its queue pair or the path is gone.
    RetryExcErr,
    /// The peer had no receive buffer within the retry budget.
    RnrRetryExcErr,
    /// An answer of the peer does not fit the request.
    BadRespErr,
}

/// Which kind of request completed. Undefined (as in verbs) if the status is an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// A datagram was sent.
    Send,
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
    /// Fetch-and-add.
    FetchAdd,
    /// Compare-and-swap.
    CmpSwap,
    /// A receive buffer was filled.
    Recv,
}

impl From<&SendOp> for WcOpcode {
    fn from(op: &SendOp) -> Self {
        match op {
            SendOp::UdSend { .. } => Self::Send,
            SendOp::Write { .. } => Self::Write,
            SendOp::Read { .. } => Self::Read,
            SendOp::FetchAdd { .. } => Self::FetchAdd,
            SendOp::CmpSwap { .. } => Self::CmpSwap,
        }
    }
}

/// The end of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number given with the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// Kind of request.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Bytes received, with the [`super::GRH_LEN`] bytes in front; bytes read for a READ.
    pub byte_len: u32,
    /// Who sent a datagram.
    pub src: Option<(AddressVector, Qpn)>,
}

impl Completion {
    /// An entry to fill arrays with before polling.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        qpn: Qpn(0),
        byte_len: 0,
        src: None,
    };
}
