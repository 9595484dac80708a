//! Between verbs as this project names them and the numbers of libibverbs.

#![forbid(unsafe_code)]

use rdma_sys::{
    ibv_access_flags, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_attr_mask,
    ibv_qp_state, ibv_qp_type, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};

use crate::hardware::{LinkLayer, RdmaPort};
use crate::options::{VerbsConfig, VerbsOptions};
use crate::quirks::Quirks;
use shmem_verbs::{
    Access, AddressVector, GRH_LEN, Gid, Lane, Pkey, QpAttr, QpState, QpType, SendOp, WcOpcode,
    WcStatus,
};

/// The port of RoCE version 2, by which software HCAs find a device.
pub(super) const ROCE_PORT: u16 = 4791;
/// Routers that a packet may pass; the default of rdma_cm.
const HOP_LIMIT: u8 = 64;

/// Access rights of registrations and queue pairs.
pub(super) fn access_flags(access: Access) -> u32 {
    use ibv_access_flags as f;
    [
        (Access::LOCAL_WRITE, f::IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_WRITE, f::IBV_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_READ, f::IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_ATOMIC, f::IBV_ACCESS_REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access.contains(*right))
    .fold(0, |all, (_, flag)| all | flag)
}

/// How a request ended. What has no counterpart is a failure of the device or of the peer.
pub(super) fn wc_status(status: u32) -> WcStatus {
    use ibv_wc_status as s;
    match status {
        s::IBV_WC_SUCCESS => WcStatus::Success,
        s::IBV_WC_LOC_LEN_ERR => WcStatus::LocLenErr,
        s::IBV_WC_LOC_PROT_ERR | s::IBV_WC_LOC_ACCESS_ERR | s::IBV_WC_MW_BIND_ERR => {
            WcStatus::LocProtErr
        }
        s::IBV_WC_WR_FLUSH_ERR => WcStatus::WrFlushErr,
        s::IBV_WC_BAD_RESP_ERR => WcStatus::BadRespErr,
        s::IBV_WC_REM_INV_REQ_ERR | s::IBV_WC_REM_INV_RD_REQ_ERR => WcStatus::RemInvReqErr,
        s::IBV_WC_REM_ACCESS_ERR => WcStatus::RemAccessErr,
        s::IBV_WC_REM_OP_ERR | s::IBV_WC_REM_ABORT_ERR => WcStatus::RemOpErr,
        s::IBV_WC_RETRY_EXC_ERR | s::IBV_WC_RESP_TIMEOUT_ERR => WcStatus::RetryExcErr,
        s::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExcErr,
        _ => WcStatus::LocQpOpErr,
    }
}

/// Kind of a request; `None` for those that are never posted here.
pub(super) fn wc_opcode(opcode: u32) -> Option<WcOpcode> {
    use ibv_wc_opcode as o;
    Some(match opcode {
        o::IBV_WC_SEND => WcOpcode::Send,
        o::IBV_WC_RDMA_WRITE => WcOpcode::Write,
        o::IBV_WC_RDMA_READ => WcOpcode::Read,
        o::IBV_WC_COMP_SWAP => WcOpcode::CmpSwap,
        o::IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
        o::IBV_WC_RECV => WcOpcode::Recv,
        o::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
        _ => return None,
    })
}

/// The operation of a send request.
pub(super) fn wr_opcode(op: &SendOp) -> u32 {
    use ibv_wr_opcode as o;
    match op {
        SendOp::UdSend { imm: None, .. } | SendOp::Send { imm: None } => o::IBV_WR_SEND,
        SendOp::UdSend { .. } | SendOp::Send { .. } => o::IBV_WR_SEND_WITH_IMM,
        SendOp::Write { imm: None, .. } => o::IBV_WR_RDMA_WRITE,
        SendOp::Write { .. } => o::IBV_WR_RDMA_WRITE_WITH_IMM,
        SendOp::Read { .. } => o::IBV_WR_RDMA_READ,
        SendOp::FetchAdd { .. } => o::IBV_WR_ATOMIC_FETCH_AND_ADD,
        SendOp::CmpSwap { .. } => o::IBV_WR_ATOMIC_CMP_AND_SWP,
    }
}

/// Transport service.
pub(super) const fn qp_type(ty: QpType) -> u32 {
    match ty {
        QpType::Rc => ibv_qp_type::IBV_QPT_RC,
        QpType::Ud => ibv_qp_type::IBV_QPT_UD,
        QpType::XrcIni => ibv_qp_type::IBV_QPT_XRC_SEND,
        QpType::XrcTgt => ibv_qp_type::IBV_QPT_XRC_RECV,
    }
}

const fn state_code(state: QpState) -> u32 {
    match state {
        QpState::Reset => ibv_qp_state::IBV_QPS_RESET,
        QpState::Init => ibv_qp_state::IBV_QPS_INIT,
        QpState::Rtr => ibv_qp_state::IBV_QPS_RTR,
        QpState::Rts => ibv_qp_state::IBV_QPS_RTS,
        QpState::Sqe => ibv_qp_state::IBV_QPS_SQE,
        QpState::Err => ibv_qp_state::IBV_QPS_ERR,
    }
}

/// State of a queue pair. A code that is none counts as failed.
pub(super) const fn qp_state(code: u32) -> QpState {
    match code {
        ibv_qp_state::IBV_QPS_RESET => QpState::Reset,
        ibv_qp_state::IBV_QPS_INIT => QpState::Init,
        ibv_qp_state::IBV_QPS_RTR => QpState::Rtr,
        ibv_qp_state::IBV_QPS_RTS => QpState::Rts,
        ibv_qp_state::IBV_QPS_SQE => QpState::Sqe,
        _ => QpState::Err,
    }
}

/// Largest LMC of the InfiniBand specification.
const MAX_LMC: u8 = 7;

/// The LID that stands for a subnet in all others (FLID), where its subnet manager has put it into the prefix: a
/// site-local one, and the LID in its third word. Switches send what goes there to a router; where there is none,
/// only a subnet administrator knows the router's own LID.
fn flid(gid: Gid) -> Option<u16> {
    let site_local = gid.0[0] == 0xfe && gid.0[1] & 0xc0 == 0xc0;
    let lid = u16::from_be_bytes([gid.0[4], gid.0[5]]);
    Some(lid).filter(|lid| site_local && *lid != 0)
}

/// From where packets leave: what every path begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) port: u8,
    pub(super) gid: Gid,
    pub(super) gid_index: u8,
    /// On Ethernet there are no LIDs: peers are found by GID alone.
    pub(super) ethernet: bool,
    /// It takes packets only with a global routing header.
    pub(super) needs_grh: bool,
    /// That of the port which this process uses, and how far it is from the first one.
    pub(super) lid: u16,
    pub(super) path_bits: u8,
    /// Its partition, by the place in the port's table and the key there.
    pub(super) pkey: (u16, Pkey),
    /// What else a user says.
    pub(super) options: VerbsOptions,
}

impl Origin {
    pub(super) fn new(port: &RdmaPort, gid: Gid, pkey: (u16, Pkey), config: &VerbsConfig) -> Self {
        let lids = 1 << port.lmc.min(MAX_LMC);
        let path_bits = (config.path % lids) as u8;
        Self {
            port: port.number,
            gid,
            gid_index: config.gid_index,
            ethernet: port.link == LinkLayer::Ethernet,
            needs_grh: port.needs_grh,
            lid: port.lid | u16::from(path_bits),
            path_bits,
            pkey,
            options: config.options,
        }
    }

    /// How packets are marked.
    pub(super) const fn lane(&self) -> Lane {
        self.options.lane(self.pkey.1)
    }

    /// How peers find this port. In place of a UDP port an InfiniBand port has its LID.
    pub(super) const fn av(&self) -> AddressVector {
        AddressVector {
            gid: self.gid,
            udp_port: match self.ethernet {
                true => ROCE_PORT,
                false => self.lid,
            },
        }
    }

    /// The way to a peer. InfiniBand packets within a subnet need only the LID; between subnets,
    /// and on Ethernet always, they carry a global routing header. Their LID then is one that stands for the
    /// peer's subnet, where GIDs have such, or what the peer says of itself.
    pub(super) fn path_to(&self, av: &AddressVector) -> ibv_ah_attr {
        let elsewhere = !self.ethernet && self.is_elsewhere(av.gid);
        let subnet = flid(av.gid).filter(|_| elsewhere && flid(self.gid).is_some());
        let lid = match self.ethernet {
            true => 0,
            false => subnet.unwrap_or(av.udp_port),
        };
        let always = self.ethernet || self.needs_grh || self.options.global_route;
        let is_global = always || lid == 0 || elsewhere;
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: av.gid.0 },
                flow_label: 0,
                sgid_index: self.gid_index,
                hop_limit: HOP_LIMIT,
                traffic_class: self.options.traffic_class,
            },
            dlid: lid,
            sl: self.options.service_level,
            src_path_bits: self.path_bits,
            static_rate: 0,
            is_global: is_global.into(),
            port_num: self.port,
        }
    }

    /// Whether a GID is of another InfiniBand subnet. A GID of zeros is one that is not known,
    /// as of a datagram without a global routing header.
    fn is_elsewhere(&self, gid: Gid) -> bool {
        gid != Gid::default() && gid.0[..8] != self.gid.0[..8]
    }

    /// The sender of a datagram, from its completion and from what stands in front of it.
    pub(super) fn source_of(&self, grh: Option<&[u8; GRH_LEN]>, slid: u16) -> AddressVector {
        AddressVector {
            gid: grh.map(grh_source).unwrap_or_default(),
            udp_port: match self.ethernet {
                true => ROCE_PORT,
                false => slid,
            },
        }
    }
}

/// The source in the 40 bytes before a datagram. They hold a global routing header, which looks
/// like an IPv6 header, or, from an IPv4 sender of RoCE version 2, its IPv4 header in the last 20,
/// with anything before (annex A17 of the InfiniBand specification).
pub(super) fn grh_source(grh: &[u8; GRH_LEN]) -> Gid {
    let (_, ipv4) = grh.split_at(GRH_LEN - 20);
    // An IPv4 header without options, version and length; the first bytes may still look like
    // IPv6, and the end of an IPv6 header like IPv4, but hardly with a right checksum.
    let is_ipv4 = ipv4[0] == 0x45 && (grh[0] >> 4 != 6 || checksum_holds(ipv4));
    match is_ipv4 {
        true => std::net::Ipv4Addr::new(ipv4[12], ipv4[13], ipv4[14], ipv4[15]).into(),
        false => Gid(std::array::from_fn(|i| grh[8 + i])),
    }
}

/// Whether the words of an IPv4 header add up to all ones (RFC 1071).
fn checksum_holds(header: &[u8]) -> bool {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Fills in what a transition takes and returns the mask that says what it was. Legal transitions
/// of the specification have exactly these required attributes, and a device refuses others.
pub(super) fn transition(
    ty: QpType,
    attr: &QpAttr,
    origin: &Origin,
    quirks: Quirks,
    out: &mut ibv_qp_attr,
) -> u32 {
    use ibv_qp_attr_mask as m;
    out.qp_state = state_code(attr.target());
    let mut mask = m::IBV_QP_STATE;
    // The two halves of an RC connection, which XRC has apart.
    let requester = matches!(ty, QpType::Rc | QpType::XrcIni);
    let responder = matches!(ty, QpType::Rc | QpType::XrcTgt);
    match attr {
        QpAttr::Init { access, qkey } => {
            out.pkey_index = origin.pkey.0;
            out.port_num = origin.port;
            mask |= m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT;
            if let Some(qkey) = qkey {
                out.qkey = qkey.0;
                mask |= m::IBV_QP_QKEY;
            } else {
                out.qp_access_flags = access_flags(*access);
                mask |= m::IBV_QP_ACCESS_FLAGS;
            }
        }
        QpAttr::Rtr { dest: None } => {}
        QpAttr::Rtr { dest: Some(dest) } => {
            out.ah_attr = origin.path_to(&dest.av);
            out.path_mtu = dest.mtu.code().into();
            out.dest_qp_num = dest.qpn.0;
            out.rq_psn = dest.rq_psn.0;
            mask |= m::IBV_QP_AV | m::IBV_QP_PATH_MTU | m::IBV_QP_DEST_QPN | m::IBV_QP_RQ_PSN;
            if responder {
                out.max_dest_rd_atomic = dest.max_dest_rd_atomic;
                out.min_rnr_timer = dest.min_rnr_timer;
                mask |= m::IBV_QP_MAX_DEST_RD_ATOMIC | m::IBV_QP_MIN_RNR_TIMER;
            }
        }
        QpAttr::Rts {
            sq_psn,
            timeout,
            retry_cnt,
            rnr_retry,
            max_rd_atomic,
        } => {
            out.sq_psn = sq_psn.0;
            mask |= m::IBV_QP_SQ_PSN;
            if ty != QpType::Ud {
                out.timeout = *timeout;
                mask |= m::IBV_QP_TIMEOUT;
            }
            if requester {
                out.retry_cnt = (*retry_cnt).min(quirks.most_retries());
                out.rnr_retry = *rnr_retry;
                out.max_rd_atomic = *max_rd_atomic;
                mask =
                    mask | m::IBV_QP_RETRY_CNT | m::IBV_QP_RNR_RETRY | m::IBV_QP_MAX_QP_RD_ATOMIC;
            }
        }
        QpAttr::Err | QpAttr::Reset => {}
    }
    mask
}

#[cfg(test)]
mod tests {
    use ibv_qp_attr_mask as m;

    use super::super::qp::blank_attr;
    use super::*;
    use shmem_verbs::{Mtu, Psn, Qkey, Qpn, RcDest, Rkey};

    fn gid(text: &str) -> Gid {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    fn origin(ethernet: bool, gid: Gid) -> Origin {
        Origin {
            port: 2,
            gid,
            gid_index: 3,
            ethernet,
            needs_grh: false,
            lid: 17,
            path_bits: 0,
            pkey: (0, Pkey::DEFAULT),
            options: VerbsOptions::default(),
        }
    }

    #[test]
    fn rights_are_flags() {
        assert_eq!(access_flags(Access::NONE), 0);
        // IBV_ACCESS_LOCAL_WRITE to IBV_ACCESS_REMOTE_ATOMIC are the four lowest bits.
        assert_eq!(access_flags(Access::ALL), 15);
        assert_eq!(access_flags(Access::REMOTE_READ), 4);
    }

    #[test]
    fn every_status_has_a_meaning_and_only_one_is_success() {
        for status in 0..64 {
            let success = wc_status(status) == WcStatus::Success;
            assert_eq!(success, status == 0, "{status}");
        }
        // Numbers of <infiniband/verbs.h>.
        assert_eq!(wc_status(4), WcStatus::LocProtErr);
        assert_eq!(wc_status(5), WcStatus::WrFlushErr);
        assert_eq!(wc_status(10), WcStatus::RemAccessErr);
        assert_eq!(wc_status(12), WcStatus::RetryExcErr);
        assert_eq!(wc_status(13), WcStatus::RnrRetryExcErr);
        assert_eq!(wc_status(1000), WcStatus::LocQpOpErr);
    }

    #[test]
    fn what_is_posted_completes_as_that() {
        let (raddr, rkey) = (0, Rkey(0));
        let write = |imm| SendOp::Write { raddr, rkey, imm };
        let (compare, swap) = (0, 0);
        // Work requests and their completions, as <infiniband/verbs.h> numbers them.
        for (op, request, completion) in [
            (SendOp::Send { imm: None }, 2, 0),
            (SendOp::Send { imm: Some(0) }, 3, 0),
            (write(None), 0, 1),
            (write(Some(0)), 1, 1),
            (SendOp::Read { raddr, rkey }, 4, 2),
            (
                SendOp::CmpSwap {
                    raddr,
                    rkey,
                    compare,
                    swap,
                },
                5,
                3,
            ),
            (SendOp::fetch_add(raddr, rkey, 0), 6, 4),
        ] {
            assert_eq!(wr_opcode(&op), request, "{op:?}");
            assert_eq!(wc_opcode(completion), Some(WcOpcode::from(&op)), "{op:?}");
        }
        assert_eq!(wc_opcode(128), Some(WcOpcode::Recv));
        assert_eq!(wc_opcode(129), Some(WcOpcode::RecvRdmaWithImm));
        assert_eq!(wc_opcode(5), None);
    }

    #[test]
    fn states_go_there_and_back() {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqe};
        for state in [Reset, Init, Rtr, Rts, Sqe, Err] {
            assert_eq!(qp_state(state_code(state)), state);
        }
        assert_eq!(qp_state(77), Err);
    }

    #[test]
    fn ethernet_needs_the_global_header_and_no_lid() {
        let origin = origin(true, gid("10.0.0.1"));
        assert_eq!(origin.av().udp_port, ROCE_PORT);
        // Whatever port a peer names: software HCAs have any.
        for udp_port in [0, 4791, 33333] {
            let path = origin.path_to(&AddressVector {
                gid: gid("10.0.0.2"),
                udp_port,
            });
            assert_eq!((path.is_global, path.dlid, path.port_num), (1, 0, 2));
            assert_eq!((path.grh.sgid_index, path.grh.hop_limit), (3, 64));
        }
    }

    #[test]
    fn infiniband_takes_the_lid_within_a_subnet() {
        let origin = origin(false, gid("fe80::1"));
        assert_eq!(origin.av().udp_port, 17);
        let way = |gid_text, udp_port| {
            let path = origin.path_to(&AddressVector {
                gid: gid(gid_text),
                udp_port,
            });
            (path.is_global, path.dlid)
        };
        assert_eq!(way("fe80::2", 5), (0, 5));
        assert_eq!(way("fec0::2", 5), (1, 5), "behind a router");
        assert_eq!(way("fe80::2", 0), (1, 0), "no LID is known");
        assert_eq!(way("::", 5), (0, 5), "the sender of a local datagram");
        // Of two subnets that are routed by LIDs of their own.
        let here = super::tests::origin(false, gid("fec0:0:7::1"));
        let there = AddressVector {
            gid: gid("fec0:0:8::1"),
            udp_port: 5,
        };
        let path = here.path_to(&there);
        assert_eq!((path.is_global, path.dlid), (1, 8));
        let at_home = AddressVector {
            gid: gid("fec0:0:7::2"),
            udp_port: 5,
        };
        let path = here.path_to(&at_home);
        assert_eq!((path.is_global, path.dlid), (0, 5));
        let src = origin.source_of(None, 5);
        assert_eq!((src.gid, src.udp_port), (Gid::default(), 5));
    }

    #[test]
    fn the_sender_of_a_datagram_stands_in_front_of_it() {
        let mut grh = [0; GRH_LEN];
        // A global routing header: version 6, source at byte 8.
        grh[0] = 0x60;
        grh[8..24].copy_from_slice(&gid("fd00::7").0);
        assert_eq!(grh_source(&grh), gid("fd00::7"));
        // The end of its source may look like the beginning of an IPv4 header.
        grh[20] = 0x45;
        let source = Gid(std::array::from_fn(|i| grh[8 + i]));
        assert_eq!(grh_source(&grh), source);
        // An IPv4 header in the last 20 bytes, behind nothing: a well-known example of its
        // checksum, b861, from 192.168.0.1.
        let mut ipv4 = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert!(checksum_holds(&ipv4));
        let mut grh = [0; GRH_LEN];
        grh[20..].copy_from_slice(&ipv4);
        assert_eq!(grh_source(&grh), gid("192.168.0.1"));
        // Behind something that looks like IPv6, the checksum decides.
        grh[0] = 0x60;
        assert_eq!(grh_source(&grh), gid("192.168.0.1"));
        ipv4[10] ^= 1;
        grh[20..].copy_from_slice(&ipv4);
        assert_ne!(grh_source(&grh), gid("192.168.0.1"));
    }

    /// The required attributes of each transition, from the kernel's `qp_state_table`, which has
    /// them from the specification (tables 91 and on).
    #[test]
    fn transitions_set_what_is_required() {
        let dest = RcDest {
            av: AddressVector::default(),
            qpn: Qpn(9),
            rq_psn: Psn(8),
            mtu: Mtu::M1024,
            max_dest_rd_atomic: 7,
            min_rnr_timer: 6,
        };
        let init = |qkey| QpAttr::Init {
            access: Access::ALL,
            qkey,
        };
        let rts = QpAttr::Rts {
            sq_psn: Psn(5),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
        };
        let way = m::IBV_QP_AV | m::IBV_QP_PATH_MTU | m::IBV_QP_DEST_QPN | m::IBV_QP_RQ_PSN;
        let answers = m::IBV_QP_MAX_DEST_RD_ATOMIC | m::IBV_QP_MIN_RNR_TIMER;
        let place = m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT;
        let retries = m::IBV_QP_RETRY_CNT | m::IBV_QP_RNR_RETRY | m::IBV_QP_MAX_QP_RD_ATOMIC;
        let sends = m::IBV_QP_TIMEOUT | m::IBV_QP_SQ_PSN;
        let (rights, none) = (m::IBV_QP_ACCESS_FLAGS, 0);
        let rtr = |dest| QpAttr::Rtr { dest };
        let cases = [
            (QpType::Rc, init(None), place | rights),
            (QpType::Rc, rtr(Some(dest)), way | answers),
            (QpType::Rc, rts, sends | retries),
            (QpType::XrcIni, rtr(Some(dest)), way),
            (QpType::XrcIni, rts, sends | retries),
            (QpType::XrcTgt, rtr(Some(dest)), way | answers),
            (QpType::XrcTgt, rts, sends),
            (QpType::Ud, init(Some(Qkey(1))), place | m::IBV_QP_QKEY),
            (QpType::Ud, rtr(None), none),
            (QpType::Ud, rts, m::IBV_QP_SQ_PSN),
            (QpType::Ud, QpAttr::Err, none),
            (QpType::Rc, QpAttr::Reset, none),
        ];
        let origin = origin(true, gid("10.0.0.1"));
        for (ty, attr, expected) in cases {
            let mut raw = blank_attr();
            let mask = transition(ty, &attr, &origin, Quirks::default(), &mut raw);
            let expected = expected | m::IBV_QP_STATE;
            assert_eq!(mask, expected, "{ty:?} {attr:?}");
            assert_eq!(qp_state(raw.qp_state), attr.target());
        }
        let mut raw = blank_attr();
        let endless = Quirks {
            endless_retries: true,
            ..Quirks::default()
        };
        transition(QpType::Rc, &rts, &origin, endless, &mut raw);
        assert_eq!(raw.retry_cnt, 6, "7 would be for ever");
        assert_eq!(raw.rnr_retry, 7, "where 7 is to be for ever");
    }
}
