//! Two engines with a connected queue pair each, for tests of what travels between them.

use super::*;
use crate::VecMemory;
use shmem_verbs::{
    Access, AddressVector, Cq, Gid, Mr, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
};

pub(super) const BASE: u64 = 0x10_0000;
pub(super) const LEN: usize = 1 << 18;

pub(super) struct End {
    pub(super) engine: Engine<VecMemory>,
    pub(super) cq: Cq,
    pub(super) qpn: Qpn,
    pub(super) mr: Mr,
}

pub(super) fn av(last: u8) -> AddressVector {
    AddressVector {
        gid: Gid::from(std::net::Ipv4Addr::new(127, 0, 0, last)),
        udp_port: 4791,
    }
}

/// Two connected queue pairs, each with memory that the other may use as `access` says.
pub(super) fn pair(mtu: Mtu, access: Access) -> [End; 2] {
    pair_of(mtu, access, |_| {})
}

/// The same, with engines that `prepare` has changed.
pub(super) fn pair_of(
    mtu: Mtu,
    access: Access,
    prepare: impl Fn(&mut Engine<VecMemory>),
) -> [End; 2] {
    let mut ends = [1, 2].map(|n| {
        let mut engine = Engine::new(av(n), mtu, n.into(), VecMemory::new(BASE, LEN));
        prepare(&mut engine);
        let mr = engine.reg_mr(BASE, LEN as u64, access).unwrap();
        let cq = engine.create_cq(8).unwrap();
        let qpn = engine.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        End {
            engine,
            cq,
            qpn,
            mr,
        }
    });
    let qpns = [ends[0].qpn, ends[1].qpn];
    for (n, end) in ends.iter_mut().enumerate() {
        let dest = RcDest::new(av(2 - n as u8), qpns[1 - n], Psn(5), mtu);
        let start = RcStart {
            access: Access::ALL,
            ..RcStart::new(dest, Psn(5))
        };
        for attr in start.attrs() {
            end.engine.modify_qp(end.qpn, &attr).unwrap();
        }
    }
    ends
}
