//! Tests of the responder alone: what it executes, and how it answers.

use super::*;
use crate::VecMemory;
use crate::memory::mr::MrTable;
use crate::queues::shared::Receives;
use crate::wire::Bth;
use shmem_verbs::{Mr, Qpn, RecvWr, Sge, WcOpcode};

const MTU: usize = 256;
const PSN: Psn = Psn(0xff_fffe);
const BASE: u64 = 0x4000;
const RNR_TIMER: u8 = 14;

struct Bench {
    responder: Responder,
    mrs: MrTable,
    memory: VecMemory,
    mr: Mr,
    access: Access,
    rq: VecDeque<RecvWqe>,
    received: Vec<Received>,
}

impl Bench {
    fn new() -> Self {
        let mut mrs = MrTable::new(1);
        let mr = mrs.register(BASE, 4096, Access::ALL).unwrap();
        let responder = Responder::new(PSN, MTU as u32, 2, RNR_TIMER);
        let memory = VecMemory::new(BASE, 4096);
        Self {
            responder,
            mrs,
            memory,
            mr,
            access: Access::ALL,
            rq: VecDeque::new(),
            received: Vec::new(),
        }
    }

    fn handle(&mut self, psn: u32, opcode: Opcode, ext: Ext, payload: &[u8]) -> Handled {
        let bth = Bth::new(opcode, Qpn(2), PSN.add(psn), true);
        self.handle_packet(&Packet { bth, ext, payload })
    }

    fn handle_packet(&mut self, packet: &Packet<'_>) -> Handled {
        let mut target = Target {
            mrs: &self.mrs,
            memory: &mut self.memory,
            access: self.access,
            domain: None,
            srqn: None,
            receives: Receives {
                own: &mut self.rq,
                shared: None,
            },
            placed: None,
            run: false,
            received: None,
        };
        let handled = self.responder.handle(packet, &mut target);
        self.received.extend(target.received);
        handled
    }

    fn reth(&self, offset: u64, len: u32) -> Ext {
        Ext::Reth(Reth {
            va: BASE + offset,
            rkey: self.mr.rkey,
            len,
        })
    }

    /// Posts a receive of buffers given by offset and length.
    fn receive(&mut self, wr_id: u64, buffers: &[(u64, u32)]) {
        let sge = |&(offset, len)| Sge {
            addr: BASE + offset,
            len,
            lkey: self.mr.lkey,
        };
        let sges: Vec<Sge> = buffers.iter().map(sge).collect();
        let wr = RecvWr { wr_id, sges: &sges };
        self.rq.push_back(RecvWqe::new(&wr));
    }

    fn write(&mut self, psn: u32, offset: u64, data: &[u8]) -> Handled {
        let ext = self.reth(offset, data.len() as u32);
        self.handle(psn, Opcode::WriteOnly, ext, data)
    }

    fn read(&mut self, psn: u32, offset: u64, len: u32) -> Handled {
        let ext = self.reth(offset, len);
        self.handle(psn, Opcode::ReadRequest, ext, &[])
    }

    fn add(&mut self, psn: u32, offset: u64) -> Handled {
        let eth = AtomicEth {
            va: BASE + offset,
            rkey: self.mr.rkey,
            swap_add: 1,
            compare: 0,
        };
        self.handle(psn, Opcode::FetchAdd, Ext::Atomic(eth), &[])
    }

    /// Everything to be sent: opcode, offset from the first PSN, verdict.
    fn replies(&mut self) -> Vec<(Opcode, i32, Option<Syndrome>)> {
        let mut out = Vec::new();
        while let Some(r) = self.responder.poll(&self.mrs, self.access, None, 1) {
            let syndrome = match r.ext {
                Ext::Aeth(a) | Ext::AtomicAck(a, _) => Some(a.syndrome),
                _ => None,
            };
            out.push((r.opcode, r.psn.since(PSN), syndrome));
        }
        out
    }

    fn byte(&self, offset: usize) -> u8 {
        self.memory.bytes()[offset]
    }
}

const OK: Option<Syndrome> = Some(Syndrome::OK);
const NAK: Option<Syndrome> = Some(Syndrome::Nak(NakCode::PsnSequence));
const DENIED: Option<Syndrome> = Some(Syndrome::Nak(NakCode::RemoteAccess));
const RNR: Option<Syndrome> = Some(Syndrome::Rnr(RNR_TIMER));
const INVALID: Option<Syndrome> = Some(Syndrome::Nak(NakCode::InvalidRequest));

#[test]
fn a_burst_of_writes_gets_one_ack() {
    let mut b = Bench::new();
    for i in 0..10 {
        assert_eq!(
            b.write(i, u64::from(i), &[i as u8 + 1]),
            Handled::Executed(true)
        );
    }
    assert_eq!(b.memory.bytes()[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(b.replies(), [(Opcode::Ack, 9, OK)]);
}

#[test]
fn duplicates_are_acknowledged_and_not_executed() {
    let mut b = Bench::new();
    b.write(0, 0, &[1]);
    b.write(1, 0, &[2]);
    b.replies();
    assert_eq!(b.write(0, 0, &[1]), Handled::Duplicate);
    assert_eq!(b.byte(0), 2);
    assert_eq!(b.replies(), [(Opcode::Ack, 1, OK)]);
}

#[test]
fn a_gap_gets_one_nak_until_it_is_filled() {
    let mut b = Bench::new();
    for psn in [1, 2, 3] {
        assert_eq!(b.write(psn, 0, &[9]), Handled::OutOfSequence);
    }
    assert_eq!(b.byte(0), 0);
    assert_eq!(b.replies(), [(Opcode::Ack, 0, NAK)]);
    b.write(0, 0, &[1]);
    b.write(2, 0, &[9]);
    assert_eq!(
        b.replies(),
        [(Opcode::Ack, 1, NAK)],
        "the NAK acknowledges what is before"
    );
}

#[test]
fn what_a_nak_asked_for_is_acknowledged_unasked() {
    let mut b = Bench::new();
    b.write(1, 0, &[9]);
    assert_eq!(b.replies(), [(Opcode::Ack, 0, NAK)]);
    let mut quietly = |psn| {
        let packet = Packet {
            bth: Bth::new(Opcode::WriteOnly, Qpn(2), PSN.add(psn), false),
            ext: b.reth(0, 1),
            payload: &[1],
        };
        assert_eq!(b.handle_packet(&packet), Handled::Executed(true));
        b.replies()
    };
    assert_eq!(quietly(0), [(Opcode::Ack, 0, OK)]);
    assert_eq!(quietly(1), []);
}

#[test]
fn answers_keep_the_order_of_requests() {
    let mut b = Bench::new();
    b.write(0, 0, &[1]);
    b.read(1, 0, 2 * MTU as u32 + 1);
    b.add(4, 8);
    b.write(5, 0, &[2]);
    b.write(6, 0, &[3]);
    let expected = [
        (Opcode::ReadFirst, 1, OK),
        (Opcode::ReadMiddle, 2, None),
        (Opcode::ReadLast, 3, OK),
        (Opcode::AtomicAck, 4, OK),
        (Opcode::Ack, 6, OK),
    ];
    assert_eq!(b.replies(), expected);
}

#[test]
fn atomics_are_executed_once_and_answered_from_the_saved_reply() {
    let mut b = Bench::new();
    b.add(0, 16);
    b.add(1, 16);
    b.replies();
    assert_eq!(b.add(0, 16), Handled::Duplicate);
    assert_eq!(b.byte(16), 2);
    let r = b
        .responder
        .poll(&b.mrs, b.access, None, 1)
        .expect("the saved reply");
    assert!(matches!(r.ext, Ext::AtomicAck(_, 0)), "{r:?}");
    // Only as many replies are kept as the requester may have outstanding: two.
    b.add(2, 16);
    b.replies();
    assert_eq!(b.add(0, 16), Handled::Dropped);
    assert_eq!(b.byte(16), 3);
}

#[test]
fn a_repeated_read_begins_where_it_is_asked_to() {
    let mut b = Bench::new();
    b.read(0, 0, 4 * MTU as u32);
    for _ in 0..2 {
        b.responder.poll(&b.mrs, b.access, None, 1);
    }
    // What has not been sent yet will come anyway.
    assert_eq!(
        b.read(2, 2 * MTU as u64, 2 * MTU as u32),
        Handled::Duplicate
    );
    assert_eq!(b.replies().len(), 2);
    // What has been sent comes again, in place of the rest.
    b.read(1, MTU as u64, 3 * MTU as u32);
    let expected = [
        (Opcode::ReadFirst, 1, OK),
        (Opcode::ReadMiddle, 2, None),
        (Opcode::ReadLast, 3, OK),
    ];
    assert_eq!(b.replies(), expected);
    // A repetition cannot reach beyond what was asked for.
    assert_eq!(b.read(3, 0, 2 * MTU as u32), Handled::Dropped);
}

#[test]
fn a_refusal_is_final_and_repeated() {
    let mut b = Bench::new();
    b.write(0, 0, &[1]);
    assert_eq!(b.write(1, 4090, &[2; 7]), Handled::Fatal);
    assert_eq!(b.replies(), [(Opcode::Ack, 1, DENIED)]);
    assert_eq!(b.write(1, 0, &[3]), Handled::Fatal);
    assert_eq!(b.write(2, 0, &[4]), Handled::Fatal);
    assert_eq!(b.byte(0), 1);
    assert_eq!(b.replies(), [(Opcode::Ack, 1, DENIED)]);
}

#[test]
fn messages_of_the_wrong_shape_are_refused() {
    let first = |b: &Bench| b.reth(0, 600);
    let cases: [&dyn Fn(&mut Bench) -> Handled; 9] = [
        // A middle or last packet without a first one.
        &|b| b.handle(0, Opcode::WriteMiddle, Ext::None, &[0; MTU]),
        &|b| b.handle(0, Opcode::WriteLast, Ext::None, &[0; 1]),
        // A first packet that is not full, or whose payload is the whole message.
        &|b| b.handle(0, Opcode::WriteFirst, first(b), &[0; MTU - 1]),
        &|b| b.handle(0, Opcode::WriteFirst, b.reth(0, MTU as u32), &[0; MTU]),
        // More or less than the RETH says.
        &|b| b.handle(0, Opcode::WriteOnly, b.reth(0, 4), &[0; 5]),
        // Another message inside of one.
        &|b| {
            b.handle(0, Opcode::WriteFirst, first(b), &[0; MTU]);
            b.read(1, 0, 1)
        },
        // A SEND goes on as a WRITE.
        &|b| {
            b.receive(7, &[(0, 600)]);
            b.handle(0, Opcode::SendFirst, Ext::None, &[0; MTU]);
            b.handle(1, Opcode::WriteLast, Ext::None, &[0; 1])
        },
        &|b| {
            b.handle(0, Opcode::WriteFirst, first(b), &[0; MTU]);
            b.handle(1, Opcode::SendLast, Ext::None, &[0; 1])
        },
        // A last packet without payload.
        &|b| {
            b.receive(7, &[(0, 600)]);
            b.handle(0, Opcode::SendFirst, Ext::None, &[0; MTU]);
            b.handle(1, Opcode::SendLast, Ext::None, &[])
        },
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let mut b = Bench::new();
        assert_eq!(case(&mut b), Handled::Fatal, "case {i}");
        assert_eq!(b.replies().last().map(|r| r.2), Some(INVALID), "case {i}");
    }
}

#[test]
fn memory_that_vanishes_during_a_message_is_not_touched() {
    let mut b = Bench::new();
    let ext = b.reth(0, 600);
    assert_eq!(
        b.handle(0, Opcode::WriteFirst, ext, &[1; MTU]),
        Handled::Executed(false)
    );
    b.mrs.deregister(b.mr.handle).unwrap();
    assert_eq!(
        b.handle(1, Opcode::WriteMiddle, Ext::None, &[1; MTU]),
        Handled::Fatal
    );
    assert_eq!((b.byte(MTU - 1), b.byte(MTU)), (1, 0));

    let mut b = Bench::new();
    b.read(0, 0, 600);
    b.mrs.deregister(b.mr.handle).unwrap();
    assert_eq!(b.replies(), [(Opcode::Ack, 0, DENIED)]);
    assert!(b.responder.has_failed());
}

#[test]
fn too_many_outstanding_reads_are_refused() {
    let mut b = Bench::new();
    for i in 0..4 {
        assert_eq!(b.read(i, 0, 1), Handled::Executed(true));
    }
    assert_eq!(b.read(4, 0, 1), Handled::Fatal);
}

#[test]
fn a_send_fills_the_buffers_of_one_receive() {
    let mut b = Bench::new();
    b.receive(7, &[(1000, 200), (0, 0), (2000, 400)]);
    b.receive(8, &[(3000, 10)]);
    let data: Vec<u8> = (0..600).map(|i| (i % 251) as u8).collect();
    b.handle(0, Opcode::SendFirst, Ext::None, &data[..MTU]);
    b.handle(1, Opcode::SendMiddle, Ext::None, &data[MTU..2 * MTU]);
    assert_eq!(b.received, []);
    let last = b.handle(2, Opcode::SendLastImm, Ext::Imm(5), &data[2 * MTU..]);
    assert_eq!(last, Handled::Executed(true));
    b.handle(3, Opcode::SendOnly, Ext::None, &[]);
    let success = |wr_id, byte_len, imm| Received {
        byte_len,
        imm,
        ..Received::new(wr_id, WcStatus::Success)
    };
    assert_eq!(b.received, [success(7, 600, Some(5)), success(8, 0, None)]);
    assert_eq!(b.memory.bytes()[1000..1200], data[..200]);
    assert_eq!(b.memory.bytes()[2000..2400], data[200..]);
    assert_eq!(b.replies(), [(Opcode::Ack, 3, OK)]);
}

#[test]
fn immediate_data_of_a_write_takes_a_receive_at_the_end() {
    let mut b = Bench::new();
    let ext = b.reth(0, MTU as u32 + 1);
    b.handle(0, Opcode::WriteFirst, ext, &[1; MTU]);
    b.replies();
    let last = |b: &mut Bench| b.handle(1, Opcode::WriteLastImm, Ext::Imm(9), &[2]);
    assert_eq!((last(&mut b), b.byte(MTU)), (Handled::NotReady, 0));
    assert_eq!(b.replies(), [(Opcode::Ack, 1, RNR)]);
    // Its buffers stay untouched; it need not have any.
    b.receive(7, &[]);
    assert_eq!((last(&mut b), b.byte(MTU)), (Handled::Executed(true), 2));
    assert_eq!(last(&mut b), Handled::Duplicate);
    let expected = Received {
        opcode: WcOpcode::RecvRdmaWithImm,
        byte_len: MTU as u32 + 1,
        imm: Some(9),
        ..Received::new(7, WcStatus::Success)
    };
    assert_eq!(b.received, [expected]);
}

#[test]
fn the_receive_of_a_broken_message_is_not_forgotten() {
    let mut b = Bench::new();
    b.receive(7, &[(0, 600)]);
    b.handle(0, Opcode::SendFirst, Ext::None, &[1; MTU]);
    assert_eq!(b.read(1, 0, 1), Handled::Fatal);
    assert_eq!(b.responder.take_unfinished(), Some((7, None)));
}
