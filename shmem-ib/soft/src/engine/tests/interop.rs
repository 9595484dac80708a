//! Packets as only devices of other makes send them: from any UDP port, and over IPv4 with an
//! identification.

use super::*;
use crate::VecMemory;
use crate::wire::{Bth, Deth, Ext, Flow, Header, ICRC_LEN, Opcode, PACKET_MAX, icrc};
use shmem_verbs::{
    Access, AddressVector, Completion, Cq, GRH_LEN, Gid, Mtu, Psn, Qkey, QpAttr, QpInit, QpType,
    Qpn, RecvWr, Sge, WcStatus,
};

const BASE: u64 = 0x1000;
const QKEY: Qkey = Qkey(0x0123_4567);

fn av(last: u8, udp_port: u16) -> AddressVector {
    AddressVector {
        gid: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, last)),
        udp_port,
    }
}

/// An HCA with a UD queue pair that has a receive.
fn engine() -> (Engine<VecMemory>, Cq, Qpn) {
    let memory = VecMemory::new(BASE, 4096);
    let mut engine = Engine::new(av(1, 4791), Mtu::M1024, 1, memory);
    let mr = engine.reg_mr(BASE, 4096, Access::LOCAL_WRITE).unwrap();
    let cq = engine.create_cq(8).unwrap();
    let init = QpInit {
        max_recv_wr: 4,
        ..QpInit::new(QpType::Ud, cq)
    };
    let qpn = engine.create_qp(&init).unwrap();
    for attr in &QpAttr::of_ud(QKEY, Psn(0))[..2] {
        engine.modify_qp(qpn, attr).unwrap();
    }
    let sges = [Sge {
        addr: BASE,
        len: 1024,
        lkey: mr.lkey,
    }];
    let wr = RecvWr {
        wr_id: 1,
        sges: &sges,
    };
    engine.post_recv(qpn, &wr).unwrap();
    (engine, cq, qpn)
}

fn datagram(flow: &Flow, qpn: Qpn, id: u16) -> Vec<u8> {
    let header = Header {
        bth: Bth::new(Opcode::UdSendOnly, qpn, Psn(7), false),
        ext: Ext::Deth(Deth {
            qkey: QKEY,
            src_qp: Qpn(99),
        }),
    };
    let mut out = vec![0; PACKET_MAX];
    let at = header.encode(&mut out, 4);
    out[at..at + 4].copy_from_slice(b"data");
    let len = header.seal(&mut out, 4, flow);
    out.truncate(len);
    let body = len - ICRC_LEN;
    let crc = icrc::compute_with_id(flow, &out[..body], id);
    out[body..].copy_from_slice(&crc.to_le_bytes());
    out
}

#[test]
fn packets_of_other_makes_are_taken_only_if_asked_for() {
    let foreign = Flow {
        src: av(2, 0xc123),
        dst: av(1, 4791),
    };
    for interop in [false, true] {
        for id in [0, 0x718c] {
            let (mut engine, cq, qpn) = engine();
            engine.set_interop(interop);
            let bytes = datagram(&foreign, qpn, id);
            engine.handle_datagram(0, foreign.src, &bytes);
            let mut out = [Completion::EMPTY; 2];
            let taken = interop || id == 0;
            assert_eq!(engine.poll_cq(cq, &mut out), usize::from(taken));
            assert_eq!(engine.counters().icrc_errors, u64::from(!taken));
            if taken {
                let c = &out[0];
                assert_eq!(c.status, WcStatus::Success);
                assert_eq!(c.byte_len as usize, GRH_LEN + 4);
                // Answers go to where devices listen.
                let port = if interop { 4791 } else { 0xc123 };
                assert_eq!(c.src, Some((av(2, port), Qpn(99))));
            }
        }
    }
    // A damaged one is never taken.
    let (mut engine, cq, qpn) = engine();
    engine.set_interop(true);
    let mut bytes = datagram(&foreign, qpn, 0x718c);
    bytes[20] ^= 4;
    engine.handle_datagram(0, foreign.src, &bytes);
    assert_eq!(engine.poll_cq(cq, &mut [Completion::EMPTY; 2]), 0);
    assert_eq!(engine.counters().icrc_errors, 1);
}
