//! What somebody can do to a queue pair who sends from the very address and port of its peer, and knows all numbers of the
//! connection, but not the key of the job: nothing, and nothing that it could notice. Any user of the peer's host can send so.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::Duration;

use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Counters, Cq, Gid, Hca, Mtu, Psn, QpInit, QpType, Qpn,
    RcDest, RcStart, Rkey, SendOp, SendWr,
};
use shmem_ib::wire::{
    Aeth, AtomicEth, Bth, Ext, ExtKind, Flow, Header, Invite, Opcode, PACKET_MAX, Reth, Syndrome,
};
use shmem_ib_kit::conformance::Region;

const LEN: usize = 4096;
const FIRST: Psn = Psn(7);
const PEER_QP: Qpn = Qpn(0x1234);
const FORGED: u8 = 0xee;

/// A PE whose peer's address and port are a stranger's, who listens there for streams, too.
struct Attack {
    hca: SoftHca,
    cq: Cq,
    qp: Qpn,
    mem: Region,
    stranger: UdpSocket,
    listener: TcpListener,
    sent: u64,
}

fn address(socket: &UdpSocket) -> AddressVector {
    let at = socket.local_addr().unwrap();
    AddressVector {
        gid: Gid::from(at.ip()),
        udp_port: at.port(),
    }
}

impl Attack {
    fn new(key: Option<[u8; 16]>) -> Self {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let stranger = UdpSocket::bind((local, 0)).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let listener = TcpListener::bind((local, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let config = SoftConfig {
            mtu: Mtu::M1024,
            stream: Some(64 << 10),
            ..SoftConfig::loopback(1)
        };
        let hca = SoftHca::open(&config).unwrap();
        if let Some(key) = key {
            hca.set_key(key);
        }
        let cq = hca.create_cq(16).unwrap();
        let qp = hca.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        let mem = Region::new(&hca, LEN, Access::ALL);
        let dest = RcDest::new(address(&stranger), PEER_QP, FIRST, Mtu::M1024);
        let start = RcStart {
            access: Access::ALL,
            ..RcStart::new(dest, FIRST)
        };
        for attr in start.attrs() {
            hca.modify_qp(qp, &attr).unwrap();
        }
        Self {
            hca,
            cq,
            qp,
            mem,
            stranger,
            listener,
            sent: 0,
        }
    }

    /// Has a READ wait for its answer, which nobody but a stranger could send.
    fn wants(&self) {
        let sges = [self.mem.sge(0, 8)];
        let (raddr, rkey) = (0x1000, Rkey(9));
        let wr = SendWr::new(1, SendOp::Read { raddr, rkey }, &sges);
        // SAFETY: the region is never freed.
        unsafe { self.hca.post_send(self.qp, &wr) }.unwrap();
        self.pump();
    }

    /// Has everything handled that has arrived.
    fn pump(&self) {
        for _ in 0..20 {
            self.hca.poll_cq(self.cq, &mut []);
            self.hca.wait(Duration::from_millis(1));
        }
    }

    /// Sends a forged packet, right in all that is no secret.
    fn forge(&mut self, opcode: Opcode, to: Qpn, psn: Psn, payload: &[u8]) {
        let reth = Reth {
            va: self.mem.at(0),
            rkey: self.mem.mr.rkey,
            len: payload.len() as u32,
        };
        let aeth = Aeth {
            syndrome: Syndrome::OK,
            msn: 1,
        };
        let atomic = AtomicEth {
            va: self.mem.at(0),
            rkey: self.mem.mr.rkey,
            swap_add: 1,
            compare: 0,
        };
        let ext = match opcode.ext() {
            ExtKind::Imm => Ext::Imm(1),
            ExtKind::Reth => Ext::Reth(reth),
            ExtKind::RethImm => Ext::RethImm(reth, 1),
            ExtKind::Aeth => Ext::Aeth(aeth),
            ExtKind::AtomicAck => Ext::AtomicAck(aeth, 1),
            ExtKind::Atomic => Ext::Atomic(atomic),
            _ => Ext::None,
        };
        let header = Header {
            bth: Bth::new(opcode, to, psn, true),
            ext,
        };
        let mut packet = vec![0; PACKET_MAX];
        let at = header.encode(&mut packet, payload.len());
        packet[at..at + payload.len()].copy_from_slice(payload);
        let av = self.hca.port().av;
        let flow = Flow {
            src: address(&self.stranger),
            dst: av,
        };
        let len = header.seal(&mut packet, payload.len(), &flow);
        let to = (av.gid.ip(), av.udp_port);
        self.stranger.send_to(&packet[..len], to).unwrap();
        self.sent += 1;
    }

    /// An invitation to the stranger's port, as a stranger without a key can make it.
    fn invitation(&self) -> Vec<u8> {
        let port = self.listener.local_addr().unwrap().port();
        let invite = Invite {
            attempt: 1,
            port,
            token: [3; 16],
        };
        invite.encode(|_| [0; 16]).to_vec()
    }

    fn payload(&self, opcode: Opcode) -> Vec<u8> {
        match opcode {
            Opcode::Invite => self.invitation(),
            Opcode::Ack | Opcode::AtomicAck | Opcode::ReadRequest => Vec::new(),
            Opcode::CompareSwap | Opcode::FetchAdd => Vec::new(),
            _ => vec![FORGED; 8],
        }
    }

    /// What has come to the stranger, by datagram or as a connection, but for the READ, which is sent again.
    fn answers(&self) -> usize {
        let mut buf = [0; 2048];
        let came = std::iter::from_fn(|| self.stranger.recv(&mut buf).ok().map(|_| buf[0]));
        let datagrams = came
            .filter(|code| *code != Opcode::ReadRequest as u8)
            .count();
        let connection = match self.listener.accept() {
            Ok(_) => 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                0
            }
        };
        datagrams + connection
    }

    fn completions(&self) -> usize {
        let mut out = [Completion::EMPTY; 4];
        self.hca.poll_cq(self.cq, &mut out)
    }

    fn untouched(&self) -> bool {
        self.mem.bytes(0, LEN).iter().all(|&byte| byte == 0)
    }
}

fn of_connections() -> impl Iterator<Item = Opcode> {
    let of_ud = [Opcode::UdSendOnly, Opcode::UdSendOnlyImm];
    let all = Opcode::ALL.iter().copied();
    all.filter(move |opcode| !of_ud.contains(opcode))
}

#[test]
fn no_kind_of_packet_of_a_stranger_does_anything_or_is_answered() {
    for opcode in of_connections() {
        let mut attack = Attack::new(Some([5; 16]));
        attack.wants();
        let (before, payload) = (attack.hca.counters(), attack.payload(opcode));
        // The expected number, one before, and one after; a queue pair that there is, and one that there is not.
        for psn in [0, 1, Psn::MASK, 1 << 22] {
            let qp = attack.qp;
            attack.forge(opcode, qp, FIRST.add(psn), &payload);
            attack.forge(opcode, Qpn(qp.0 ^ 1), FIRST.add(psn), &payload);
        }
        attack.pump();
        assert_eq!(attack.answers(), 0, "{opcode:?}");
        assert_eq!(attack.completions(), 0, "{opcode:?}");
        assert!(attack.untouched(), "{opcode:?}");
        let after = attack.hca.counters();
        let refused = after.icrc_errors + after.dropped - before.icrc_errors - before.dropped;
        assert_eq!(refused, attack.sent, "{opcode:?}");
        let sent = |counters: &Counters| counters.packets_sent - counters.retransmitted;
        assert_eq!(sent(&after), sent(&before), "{opcode:?}");
        let state = attack.hca.failure();
        assert!(state.is_none(), "{opcode:?}");
    }
}

/// What the test above sends is what would do harm to an HCA without a key.
#[test]
fn without_a_key_such_packets_are_those_of_the_peer() {
    let mut harmful = 0;
    for opcode in of_connections().filter(|opcode| *opcode != Opcode::Invite) {
        let mut attack = Attack::new(None);
        attack.wants();
        attack.answers();
        let (qp, payload) = (attack.qp, attack.payload(opcode));
        attack.forge(opcode, qp, FIRST, &payload);
        attack.pump();
        harmful += usize::from(attack.answers() + attack.completions() > 0 || !attack.untouched());
    }
    assert!(harmful > 12, "{harmful}");
}
