//! A READ that is longer than any of ours: its answer must not keep everybody else from the HCA.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::{SoftConfig, SoftHca};
use crate::wire::{Bth, Ext, Flow, Header, Opcode, Reth};
use shmem_verbs::{
    Access, AddressVector, Completion, Hca, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
};

const LEN: usize = 64 << 20;
const PACKETS: u64 = LEN as u64 / 4096;

/// An HCA with a queue pair, which a stranger asks for `LEN` bytes.
fn asked() -> (SoftHca, shmem_verbs::Cq) {
    let hca = SoftHca::open(&SoftConfig::loopback(1)).expect("a socket");
    let cq = hca.create_cq(16).expect("a CQ");
    let qp = hca.create_qp(&QpInit::new(QpType::Rc, cq)).expect("a QP");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let there = stranger.local_addr().expect("an address");
    let there = AddressVector {
        gid: there.ip().into(),
        udp_port: there.port(),
    };
    let dest = RcDest::new(there, Qpn(7), Psn::new(5), Mtu::M4096);
    // A queue pair that is ready to receive alone answers READs.
    for attr in &RcStart::new(dest, Psn::new(5)).attrs()[..2] {
        hca.modify_qp(qp, attr).expect("its next state");
    }
    let memory: &'static mut [u8] = Box::leak(vec![0; LEN].into_boxed_slice());
    // SAFETY: it is never freed, and nobody else accesses it.
    let mr = unsafe { hca.reg_mr(memory.as_mut_ptr(), LEN, Access::ALL) }.expect("memory");
    let reth = Reth {
        va: mr.addr,
        rkey: mr.rkey,
        len: LEN as u32,
    };
    let header = Header {
        bth: Bth::new(Opcode::ReadRequest, qp, Psn::new(5), true),
        ext: Ext::Reth(reth),
    };
    let here = hca.port().av;
    let flow = Flow {
        src: there,
        dst: here,
    };
    let mut bytes = [0; 256];
    header.encode(&mut bytes, 0);
    let len = header.seal(&mut bytes, 0, &flow);
    let to = std::net::SocketAddr::new(here.gid.ip(), here.udp_port);
    stranger.send_to(&bytes[..len], to).expect("it is sent");
    (hca, cq)
}

#[test]
fn others_get_the_hca_while_a_long_read_is_answered() {
    let (hca, cq) = asked();
    let end = Instant::now() + Duration::from_secs(120);
    let mut turns = 0;
    while hca.counters().packets_sent < PACKETS {
        assert!(Instant::now() < end, "{:?}", hca.counters());
        let before = hca.counters().packets_sent;
        assert_eq!(hca.poll_cq(cq, &mut [Completion::EMPTY]), 0);
        let sent = hca.counters().packets_sent - before;
        assert!(sent <= 257, "{sent} packets in one turn");
        turns += u64::from(sent > 0);
    }
    assert!(turns >= PACKETS / 257, "{turns}");
}

#[test]
fn a_thread_that_only_sleeps_answers_all_of_it() {
    let (hca, _) = asked();
    let end = Instant::now() + Duration::from_secs(120);
    while hca.counters().packets_sent < PACKETS {
        assert!(Instant::now() < end, "{:?}", hca.counters());
        hca.wait(Duration::from_secs(60));
    }
}
