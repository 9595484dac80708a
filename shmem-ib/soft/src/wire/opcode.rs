//! Opcodes of the RC and UD services, and which extended headers each carries. The upper three
//! bits name the service; XRC has those of RC under a prefix of its own, and so have manufacturers.

/// The bits of an opcode that name the service.
pub(super) const SERVICE: u8 = 0xe0;
/// The service of XRC.
pub(super) const XRC: u8 = 0xa0;

/// Extended headers that follow the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtKind {
    /// None.
    None,
    /// `ImmDt`.
    Imm,
    /// `RETH`.
    Reth,
    /// `RETH` and `ImmDt`.
    RethImm,
    /// `AETH`.
    Aeth,
    /// `AETH` and `AtomicAckETH`.
    AtomicAck,
    /// `AtomicETH`.
    Atomic,
    /// `DETH`.
    Deth,
    /// `DETH` and `ImmDt`.
    DethImm,
}

impl ExtKind {
    /// Bytes on the wire.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Imm | Self::Aeth => 4,
            Self::Reth => 16,
            Self::RethImm => 20,
            Self::AtomicAck => 12,
            Self::Atomic => 28,
            Self::Deth => 8,
            Self::DethImm => 12,
        }
    }

    /// Whether there are no extended headers.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $ext:ident;)*) => {
        /// What a packet is.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// Every opcode known here.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The opcode of a code, if it is known.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The extended headers.
            #[must_use]
            pub const fn ext(self) -> ExtKind {
                match self { $(Self::$name => ExtKind::$ext,)* }
            }
        }
    };
}

opcodes! {
    /// RC SEND, first packet.
    SendFirst = 0, None;
    /// RC SEND, middle packet.
    SendMiddle = 1, None;
    /// RC SEND, last packet.
    SendLast = 2, None;
    /// RC SEND, last packet with immediate data.
    SendLastImm = 3, Imm;
    /// RC SEND of one packet.
    SendOnly = 4, None;
    /// RC SEND of one packet with immediate data.
    SendOnlyImm = 5, Imm;
    /// RDMA WRITE, first packet.
    WriteFirst = 6, Reth;
    /// RDMA WRITE, middle packet.
    WriteMiddle = 7, None;
    /// RDMA WRITE, last packet.
    WriteLast = 8, None;
    /// RDMA WRITE, last packet with immediate data.
    WriteLastImm = 9, Imm;
    /// RDMA WRITE of one packet.
    WriteOnly = 10, Reth;
    /// RDMA WRITE of one packet with immediate data.
    WriteOnlyImm = 11, RethImm;
    /// RDMA READ request.
    ReadRequest = 12, Reth;
    /// RDMA READ response, first packet.
    ReadFirst = 13, Aeth;
    /// RDMA READ response, middle packet.
    ReadMiddle = 14, None;
    /// RDMA READ response, last packet.
    ReadLast = 15, Aeth;
    /// RDMA READ response of one packet.
    ReadOnly = 16, Aeth;
    /// Acknowledgement, positive or negative.
    Ack = 17, Aeth;
    /// Old value of an atomic, and acknowledgement.
    AtomicAck = 18, AtomicAck;
    /// Compare and swap.
    CompareSwap = 19, Atomic;
    /// Fetch and add.
    FetchAdd = 20, Atomic;
    /// Datagram.
    UdSendOnly = 100, Deth;
    /// Datagram with immediate data.
    UdSendOnlyImm = 101, DethImm;
    /// Congestion notification of a switch or NIC; 16 reserved bytes follow.
    Cnp = 0x81, None;
    /// A requester asks its peer to open a stream to it ([`Invite`](super::Invite)). Of the opcodes that
    /// InfiniBand leaves to manufacturers.
    Invite = 0xc0, None;
}

impl Opcode {
    /// Whether an RC responder handles it (and not the requester).
    #[must_use]
    pub const fn is_rc_request(self) -> bool {
        let code = self as u8;
        code <= 12 || code == 19 || code == 20
    }

    /// Whether an RC requester handles it.
    #[must_use]
    pub const fn is_rc_response(self) -> bool {
        let code = self as u8;
        code >= 13 && code <= 18
    }

    /// Whether it carries what a READ asked for.
    #[must_use]
    pub const fn is_read_response(self) -> bool {
        let code = self as u8;
        code >= 13 && code <= 16
    }

    /// Whether it ends a message.
    #[must_use]
    pub const fn is_last_or_only(self) -> bool {
        !matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::WriteFirst
                | Self::WriteMiddle
                | Self::ReadFirst
                | Self::ReadMiddle
        )
    }

    /// Whether it begins a message.
    #[must_use]
    pub const fn is_first_or_only(self) -> bool {
        !matches!(
            self,
            Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImm
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImm
        )
    }
}
