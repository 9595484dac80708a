//! Reliable connections packet by packet: which packets cross the wire when a given one is lost,
//! doubled, or finds no receive.
//!
//! Two engines face each other. A case says what is posted, which packets are lost (counted per
//! direction from 0) and when a receive is posted; the trace of all packets and the completions are
//! compared with what the specification asks for. PSNs are relative to the first.

use shmem_ib::soft::Engine;
use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Cq, Gid, Mr, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
    RecvWr, Rkey, SendOp, SendWr, Sge, WcStatus,
};
use shmem_ib::wire::{Ext, Flow, Header, NakCode, PACKET_MAX, Packet, Syndrome};

const MTU: u32 = 256;
const PSN: Psn = Psn(0xff_ffff);
/// 10.24 ms times eight: long enough not to be in the way.
const TIMEOUT: u8 = 13;

struct End {
    engine: Engine<VecMemory>,
    qpn: Qpn,
    cq: Cq,
    mr: Mr,
}

fn base(node: u64) -> u64 {
    0x10_0000 * (node + 1)
}

fn av(node: u8) -> AddressVector {
    AddressVector {
        gid: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, node)),
        udp_port: 4791,
    }
}

/// Two connected engines; `a` sends.
struct Wire {
    a: End,
    b: End,
    now: u64,
    trace: Vec<String>,
    /// Packets sent by `a` and by `b`.
    counts: [usize; 2],
    lost: Vec<(usize, usize)>,
    doubled: Vec<(usize, usize)>,
}

impl Wire {
    fn new(rnr_retry: u8) -> Self {
        let mut ends = [0, 1].map(|i: u8| {
            let memory = VecMemory::new(base(i.into()), 8192);
            let mut engine = Engine::new(av(i), Mtu::M256, i.into(), memory);
            let mr = engine.reg_mr(base(i.into()), 8192, Access::ALL).unwrap();
            let cq = engine.create_cq(64).unwrap();
            let init = QpInit {
                max_recv_wr: 16,
                ..QpInit::new(QpType::Rc, cq)
            };
            let qpn = engine.create_qp(&init).unwrap();
            End {
                engine,
                qpn,
                cq,
                mr,
            }
        });
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (i, end) in ends.iter_mut().enumerate() {
            let dest = RcDest {
                max_dest_rd_atomic: 4,
                ..RcDest::new(av(1 - i as u8), qpns[1 - i], PSN, Mtu::M256)
            };
            let start = RcStart {
                timeout: TIMEOUT,
                rnr_retry,
                ..RcStart::new(dest, PSN)
            };
            for attr in start.attrs() {
                end.engine.modify_qp(end.qpn, &attr).unwrap();
            }
        }
        let [a, b] = ends;
        Self {
            a,
            b,
            now: 0,
            trace: Vec::new(),
            counts: [0, 0],
            lost: Vec::new(),
            doubled: Vec::new(),
        }
    }

    /// Packet `n` of `a` (0) or `b` (1) is lost.
    fn lose(mut self, from: usize, n: usize) -> Self {
        self.lost.push((from, n));
        self
    }

    /// It arrives twice.
    fn double(mut self, from: usize, n: usize) -> Self {
        self.doubled.push((from, n));
        self
    }

    fn post(&mut self, wr_id: u64, op: SendOp, len: u32) {
        let sges = [Sge {
            addr: base(0),
            len,
            lkey: self.a.mr.lkey,
        }];
        let wr = SendWr::new(wr_id, op, &sges);
        self.a.engine.post_send(self.a.qpn, &wr).unwrap();
    }

    fn receive(&mut self, wr_id: u64, len: u32) {
        let sges = [Sge {
            addr: base(1),
            len,
            lkey: self.b.mr.lkey,
        }];
        let wr = RecvWr { wr_id, sges: &sges };
        self.b.engine.post_recv(self.b.qpn, &wr).unwrap();
    }

    fn target(&self) -> (u64, Rkey) {
        (base(1) + 4096, self.b.mr.rkey)
    }

    /// Lets all packets cross that are ready now; returns whether there were any.
    fn exchange(&mut self) -> bool {
        let mut buf = vec![0; PACKET_MAX];
        let mut any = false;
        for from in [0, 1] {
            let (src, dst) = match from {
                0 => (&mut self.a, &mut self.b),
                _ => (&mut self.b, &mut self.a),
            };
            while let Some(t) = src.engine.poll_transmit(self.now, &mut buf) {
                any = true;
                let bytes = &buf[..t.len];
                let at = (from, self.counts[from]);
                self.counts[from] += 1;
                let lost = self.lost.contains(&at);
                self.trace.push(describe(bytes, from, lost));
                let copies = match lost {
                    true => 0,
                    false => 1 + usize::from(self.doubled.contains(&at)),
                };
                for _ in 0..copies {
                    dst.engine.handle_datagram(self.now, av(from as u8), bytes);
                }
            }
        }
        any
    }

    /// Lets everything happen until nothing is left to do, or `limit` timers have fired.
    fn run(&mut self, limit: usize) {
        let mut timers = 0;
        loop {
            while self.exchange() {}
            let ends = [&mut self.a, &mut self.b];
            let next = ends
                .into_iter()
                .filter_map(|e| e.engine.next_timeout())
                .min();
            let Some(at) = next.filter(|_| timers < limit) else {
                return;
            };
            timers += 1;
            self.now = at;
            self.trace.push("timer".into());
            self.a.engine.handle_timeout(at);
            self.b.engine.handle_timeout(at);
        }
    }

    fn completions(&mut self) -> [Vec<(u64, WcStatus)>; 2] {
        [&mut self.a, &mut self.b].map(|end| {
            let mut out = [Completion::EMPTY; 64];
            let n = end.engine.poll_cq(end.cq, &mut out);
            out[..n].iter().map(|c| (c.wr_id, c.status)).collect()
        })
    }

    /// A packet that `b` never sent reaches `a`.
    fn inject_ack(&mut self, psn: u32) {
        let ack = shmem_ib::wire::Aeth {
            syndrome: Syndrome::OK,
            msn: 0,
        };
        let opcode = shmem_ib::wire::Opcode::Ack;
        let header = Header {
            bth: shmem_ib::wire::Bth::new(opcode, self.a.qpn, PSN.add(psn), false),
            ext: Ext::Aeth(ack),
        };
        let mut buf = vec![0; PACKET_MAX];
        header.encode(&mut buf, 0);
        let flow = Flow {
            src: av(1),
            dst: av(0),
        };
        let len = header.seal(&mut buf, 0, &flow);
        self.a.engine.handle_datagram(self.now, av(1), &buf[..len]);
    }
}

/// `>SendFirst 0`: from `a`, or `<` from `b`; `x` in front if it is lost.
fn describe(bytes: &[u8], from: usize, lost: bool) -> String {
    let packet = Packet::decode(bytes).unwrap();
    let what = match packet.ext {
        Ext::Aeth(aeth) => match aeth.syndrome {
            Syndrome::Nak(NakCode::PsnSequence) => "NakSequence".into(),
            Syndrome::Nak(code) => format!("{code:?}"),
            Syndrome::Rnr(_) => "Rnr".into(),
            _ => format!("{:?}", packet.bth.opcode),
        },
        _ => format!("{:?}", packet.bth.opcode),
    };
    let lost = if lost { "x" } else { "" };
    let arrow = [">", "<"][from];
    format!("{lost}{arrow}{what} {}", packet.bth.psn.since(PSN))
}

const SEND: SendOp = SendOp::Send { imm: None };
const OK: WcStatus = WcStatus::Success;

#[track_caller]
fn check(wire: &mut Wire, trace: &[&str], sent: &[(u64, WcStatus)], received: &[(u64, WcStatus)]) {
    assert_eq!(wire.trace, trace);
    assert_eq!(wire.completions(), [sent.to_vec(), received.to_vec()]);
}

#[test]
fn the_middle_of_a_send_is_lost() {
    let mut w = Wire::new(7).lose(0, 1);
    w.receive(7, 1000);
    w.receive(8, 1000);
    w.post(1, SEND, 2 * MTU + 1);
    w.run(9);
    let trace = [
        ">SendFirst 0",
        "x>SendMiddle 1",
        ">SendLast 2",
        "<NakSequence 1",
        ">SendMiddle 1",
        ">SendLast 2",
        "<Ack 2",
    ];
    check(&mut w, &trace, &[(1, OK)], &[(7, OK)]);
}

#[test]
fn the_acknowledgement_of_a_send_is_lost() {
    let mut w = Wire::new(7).lose(1, 0);
    w.receive(7, 1000);
    w.receive(8, 1000);
    w.post(1, SEND, MTU + 1);
    w.run(9);
    let trace = [
        ">SendFirst 0",
        ">SendLast 1",
        "x<Ack 1",
        "timer",
        ">SendFirst 0",
        "<Ack 1",
    ];
    check(&mut w, &trace, &[(1, OK)], &[(7, OK)]);
}

#[test]
fn a_doubled_send_is_executed_once() {
    let mut w = Wire::new(7).double(0, 0).double(0, 1);
    for wr_id in 5..9 {
        w.receive(wr_id, 1000);
    }
    w.post(1, SEND, 1);
    w.post(2, SEND, 1);
    w.run(9);
    let trace = [">SendOnly 0", ">SendOnly 1", "<Ack 1"];
    check(&mut w, &trace, &[(1, OK), (2, OK)], &[(5, OK), (6, OK)]);
}

#[test]
fn no_receive_for_a_message_of_two_packets() {
    let mut w = Wire::new(7);
    let (raddr, rkey) = w.target();
    let write = SendOp::write(raddr, rkey);
    w.post(1, write, 1);
    w.post(2, SEND, MTU + 1);
    w.post(3, write, 1);
    w.run(1);
    w.receive(7, 1000);
    w.run(9);
    let trace = [
        ">WriteOnly 0",
        ">SendFirst 1",
        ">SendLast 2",
        ">WriteOnly 3",
        "<Rnr 1",
        "timer",
        ">SendFirst 1",
        ">SendLast 2",
        ">WriteOnly 3",
        "<Rnr 1",
        "timer",
        ">SendFirst 1",
        ">SendLast 2",
        ">WriteOnly 3",
        "<Ack 3",
    ];
    check(&mut w, &trace, &[(1, OK), (2, OK), (3, OK)], &[(7, OK)]);
}

#[test]
fn the_rnr_nak_is_lost() {
    let mut w = Wire::new(0).lose(1, 0);
    w.post(1, SEND, 1);
    w.run(0);
    w.receive(7, 1000);
    w.run(9);
    let trace = [">SendOnly 0", "x<Rnr 0", "timer", ">SendOnly 0", "<Ack 0"];
    check(&mut w, &trace, &[(1, OK)], &[(7, OK)]);
}

#[test]
fn the_budget_of_rnr_naks_ends() {
    let mut w = Wire::new(1);
    w.post(1, SEND, 1);
    w.post(2, SEND, 1);
    w.run(9);
    let trace = [
        ">SendOnly 0",
        ">SendOnly 1",
        "<Rnr 0",
        "timer",
        ">SendOnly 0",
        ">SendOnly 1",
        "<Rnr 0",
    ];
    let sent = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
    check(&mut w, &trace, &sent, &[]);
}

#[test]
fn only_the_last_packet_of_a_write_needs_a_receive() {
    let mut w = Wire::new(7);
    let (raddr, rkey) = w.target();
    let imm = Some(5);
    w.post(1, SendOp::Write { raddr, rkey, imm }, 2 * MTU + 1);
    w.run(0);
    w.receive(7, 0);
    w.run(9);
    let trace = [
        ">WriteFirst 0",
        ">WriteMiddle 1",
        ">WriteLastImm 2",
        "<Rnr 2",
        "timer",
        ">WriteLastImm 2",
        "<Ack 2",
    ];
    check(&mut w, &trace, &[(1, OK)], &[(7, OK)]);
}

#[test]
fn an_ack_shows_that_the_answer_to_a_read_was_lost() {
    let mut w = Wire::new(7).lose(1, 1);
    let (raddr, rkey) = w.target();
    w.post(1, SendOp::Read { raddr, rkey }, 2 * MTU);
    w.receive(7, 1000);
    w.post(2, SEND, 1);
    w.run(9);
    let trace = [
        ">ReadRequest 0",
        ">SendOnly 2",
        "<ReadFirst 0",
        "x<ReadLast 1",
        "<Ack 2",
        // Only what is missing is asked for again, and the SEND behind it is a duplicate.
        ">ReadRequest 1",
        ">SendOnly 2",
        "<ReadOnly 1",
        "<Ack 2",
    ];
    check(&mut w, &trace, &[(1, OK), (2, OK)], &[(7, OK)]);
}

#[test]
fn ghost_acknowledgements_complete_nothing() {
    let mut w = Wire::new(7).lose(0, 0);
    w.receive(7, 1000);
    w.post(1, SEND, 1);
    w.exchange();
    for psn in [1, 2, 1 << 22, Psn::MASK] {
        w.inject_ack(psn);
    }
    assert_eq!(w.completions(), [vec![], vec![]]);
    w.run(9);
    let trace = ["x>SendOnly 0", "timer", ">SendOnly 0", "<Ack 0"];
    check(&mut w, &trace, &[(1, OK)], &[(7, OK)]);
}

#[test]
fn a_refusal_within_a_message_that_was_lost_is_repeated() {
    let mut w = Wire::new(7).lose(1, 0);
    w.receive(7, MTU + 1);
    w.receive(8, 1000);
    w.post(1, SEND, 2 * MTU);
    w.run(9);
    let trace = [
        ">SendFirst 0",
        ">SendLast 1",
        "x<InvalidRequest 1",
        "timer",
        ">SendFirst 0",
        "<InvalidRequest 1",
    ];
    let sent = [(1, WcStatus::RemInvReqErr)];
    let received = [(7, WcStatus::LocLenErr), (8, WcStatus::WrFlushErr)];
    check(&mut w, &trace, &sent, &received);
}
