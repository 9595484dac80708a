//! Work requests, completions, and the attributes of queue pairs.

use super::{
    Access, AddressVector, Cq, Lkey, Mtu, Psn, Qkey, QpState, QpType, Qpn, Rkey, Srq, SrqNum, Xrcd,
};

/// What a new queue pair is to be. Begin with [`QpInit::new`] and change what differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub ty: QpType,
    /// Where completions of the send queue go.
    pub send_cq: Cq,
    /// Where completions of the receive queue go.
    pub recv_cq: Cq,
    /// Where receives come from, instead of a receive queue of its own.
    pub srq: Option<Srq>,
    /// The domain of an XRC target; `None` for all other types.
    pub xrcd: Option<Xrcd>,
    /// Most uncompleted send requests.
    pub max_send_wr: u32,
    /// Most posted receives.
    pub max_recv_wr: u32,
    /// Most local buffers of a send request.
    pub max_send_sge: u32,
    /// Most local buffers of a receive.
    pub max_recv_sge: u32,
    /// Longest inline payload in bytes.
    pub max_inline: u32,
    /// Every send request completes visibly, as if it were signaled.
    pub sq_sig_all: bool,
}

impl QpInit {
    /// A queue pair with one CQ for both queues, 16 send requests of one buffer each, and no
    /// receives.
    #[must_use]
    pub const fn new(ty: QpType, cq: Cq) -> Self {
        Self {
            ty,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            xrcd: None,
            max_send_wr: 16,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            sq_sig_all: false,
        }
    }
}

/// What a new shared receive queue is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInit {
    /// Most posted receives.
    pub max_wr: u32,
    /// Most local buffers of a receive.
    pub max_sge: u32,
    /// Who takes receives from it.
    pub kind: SrqKind,
}

/// Who takes receives from a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqKind {
    /// The queue pairs that were created with it.
    Basic,
    /// The XRC targets of a domain, for packets that name this queue.
    Xrc {
        /// The domain.
        xrcd: Xrcd,
        /// Where completions go.
        cq: Cq,
    },
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
    /// How long a peer has to wait when there is no receive for what it sent: the code of an
    /// RNR NAK timer, 0 to 31 (1: 10 us, 12: 640 us, 31: 491.52 ms, 0: 655.36 ms).
    pub min_rnr_timer: u8,
}

impl RcDest {
    /// A peer that may have 16 READs and atomics outstanding, and tries again after 0.64 ms where it finds no
    /// receive.
    #[must_use]
    pub const fn new(av: AddressVector, qpn: Qpn, rq_psn: Psn, mtu: Mtu) -> Self {
        Self {
            av,
            qpn,
            rq_psn,
            mtu,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
        }
    }
}

/// How a connected queue pair is to start. Begin with [`RcStart::new`] and change what differs; fields mean
/// what they mean in [`QpAttr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "see `QpAttr`")]
pub struct RcStart {
    pub access: Access,
    pub dest: RcDest,
    pub sq_psn: Psn,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub max_rd_atomic: u8,
}

impl RcStart {
    /// All rights for the peer, which counts as gone after 8 seconds without a sign of it, and may always be
    /// short of receives.
    #[must_use]
    pub const fn new(dest: RcDest, sq_psn: Psn) -> Self {
        Self {
            access: Access::ALL,
            dest,
            sq_psn,
            timeout: 18,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: dest.max_dest_rd_atomic,
        }
    }

    /// What takes the queue pair from RESET to RTS, one after the other.
    #[must_use]
    pub const fn attrs(&self) -> [QpAttr; 3] {
        [
            QpAttr::Init {
                access: self.access,
                qkey: None,
            },
            QpAttr::Rtr {
                dest: Some(self.dest),
            },
            QpAttr::Rts {
                sq_psn: self.sq_psn,
                timeout: self.timeout,
                retry_cnt: self.retry_cnt,
                rnr_retry: self.rnr_retry,
                max_rd_atomic: self.max_rd_atomic,
            },
        ]
    }
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
        /// How often a request is sent again because the peer has no receive for it, before
        /// the queue pair fails with [`WcStatus::RnrRetryExcErr`]: 0 to 6, or 7: always.
        rnr_retry: u8,
        /// How many READs and atomics may be outstanding; the peer's `max_dest_rd_atomic`.
        max_rd_atomic: u8,
    },
    /// Any state to ERR: flushes both queues.
    Err,
    /// Any state to RESET: forgets everything.
    Reset,
}

impl QpAttr {
    /// What takes a UD queue pair from RESET to RTS, one after the other.
    #[must_use]
    pub const fn of_ud(qkey: Qkey, sq_psn: Psn) -> [Self; 3] {
        [
            Self::Init {
                access: Access::NONE,
                qkey: Some(qkey),
            },
            Self::Rtr { dest: None },
            Self::Rts {
                sq_psn,
                timeout: 0,
                retry_cnt: 0,
                rnr_retry: 0,
                max_rd_atomic: 0,
            },
        ]
    }
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

/// A local buffer, laid out as the verbs library has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
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
        /// Immediate data for its completion.
        imm: Option<u32>,
    },
    /// Sends the local buffers to a receive of the peer.
    Send {
        /// Immediate data for its completion.
        imm: Option<u32>,
    },
    /// Writes the local buffers to the peer's memory.
    Write {
        /// First byte there.
        raddr: u64,
        /// Key of the region.
        rkey: Rkey,
        /// Immediate data: then a receive of the peer completes with it.
        imm: Option<u32>,
    },
    /// Reads the peer's memory into the local buffers.
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
    /// A WRITE without immediate data.
    #[must_use]
    pub const fn write(raddr: u64, rkey: Rkey) -> Self {
        let imm = None;
        Self::Write { raddr, rkey, imm }
    }

    /// An addition.
    #[must_use]
    pub const fn fetch_add(raddr: u64, rkey: Rkey, add: u64) -> Self {
        Self::FetchAdd { raddr, rkey, add }
    }

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
            Self::Write { imm, .. } => Self::Write { raddr, rkey, imm },
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
            Self::Send { .. } => "send",
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
    /// The local buffers, one after the other.
    pub sges: &'a [Sge],
    /// Payload that is copied while posting, instead of `sges`: only for sends and writes.
    pub inline: Option<&'a [u8]>,
    /// Whether success gives a completion. Errors always do.
    ///
    /// A request without one keeps its place in the send queue until a later request of that
    /// queue has completed visibly: a queue of which no request is signaled fills up for good.
    pub signaled: bool,
    /// Whether to begin only after all earlier READs and atomics of this queue are complete.
    pub fence: bool,
    /// The shared receive queue of the peer (XRC initiators, and only they).
    pub srqn: Option<SrqNum>,
}

impl<'a> SendWr<'a> {
    /// A signaled request.
    #[must_use]
    pub const fn new(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> Self {
        Self {
            wr_id,
            op,
            sges,
            inline: None,
            signaled: true,
            fence: false,
            srqn: None,
        }
    }
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The buffers, filled one after the other; a datagram begins at byte
    /// [`super::GRH_LEN`].
    pub sges: &'a [Sge],
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
    /// The HCA found the request inconsistent while it executed it.
    LocQpOpErr,
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
    /// A message or datagram was sent.
    Send,
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
    /// Fetch-and-add.
    FetchAdd,
    /// Compare-and-swap.
    CmpSwap,
    /// A receive was filled.
    Recv,
    /// A receive was used up by a write with immediate data, which lies elsewhere.
    RecvRdmaWithImm,
}

impl From<&SendOp> for WcOpcode {
    fn from(op: &SendOp) -> Self {
        match op {
            SendOp::UdSend { .. } | SendOp::Send { .. } => Self::Send,
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
    /// Bytes received, of a datagram with the [`super::GRH_LEN`] bytes in front; bytes written
    /// by the peer for a write with immediate data; bytes read for a READ.
    pub byte_len: u32,
    /// Who sent a datagram. A device tells it in front of the payload only, so it is `None` there
    /// for a datagram in a receive of a shared queue, or in one whose first buffer is shorter than
    /// [`super::GRH_LEN`].
    pub src: Option<(AddressVector, Qpn)>,
    /// Immediate data of what was received.
    pub imm: Option<u32>,
    /// The shared receive queue of an XRC receive. On a device it is told only if no other such
    /// queue reports to the same completion queue.
    pub srqn: Option<SrqNum>,
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
        imm: None,
        srqn: None,
    };
}
