//! XRC requests packet by packet: whom they are for, and what becomes of those that change their
//! mind, come too late, or come to the wrong queue pair.

use std::cell::Cell;
use std::collections::VecDeque;

use super::Engine;
use crate::VecMemory;
use crate::memory::mr::{Memory as _, MrTable};
use crate::queues::receive::RecvWqe;
use crate::queues::shared::Receives;
use crate::rc::responder::replies::Response;
use crate::rc::responder::{Handled, Responder};
use crate::rc::target::Target;
use crate::wire::{
    Aeth, AtomicEth, Bth, Ext, Flow, Header, NakCode, Opcode, PACKET_MAX, Packet, Reth, Syndrome,
    Xrc,
};
use crate::xrc::{Domain, Private, Reach, SrqOwner};
use shmem_verbs::{
    Access, AddressVector, Gid, Mr, Mtu, Psn, QpInit, QpState, QpType, Qpn, RcDest, RcStart,
    RecvWr, Rkey, SrqNum, VerbsError,
};

const BASE: u64 = 0x4000;
const PSN: Psn = Psn(100);
const MTU: u32 = 256;
const HERE: SrqNum = SrqNum(1);
const ELSEWHERE: SrqNum = SrqNum(2);
const GONE: SrqNum = SrqNum(3);
/// A region of the other process: 1024 bytes which it numbers from `THEIRS`, and this process finds
/// at `BASE + 2048`.
const RKEY: Rkey = Rkey(77);
const THEIRS: u64 = 0x9000_0000;

#[derive(Debug, Default)]
struct TwoProcesses {
    /// The other one has ended its region.
    ended: Cell<bool>,
    /// How far this process has it from where it should be.
    askew: u64,
}

impl Domain for TwoProcesses {
    fn add_srq(&mut self) -> Result<SrqNum, VerbsError> {
        Ok(HERE)
    }

    fn remove_srq(&mut self, _srqn: SrqNum) {}

    fn owner(&self, srqn: SrqNum) -> SrqOwner {
        match srqn {
            HERE => SrqOwner::Here,
            ELSEWHERE => SrqOwner::Elsewhere,
            _ => SrqOwner::Nobody,
        }
    }

    fn publish(&mut self, _mr: &Mr, _access: Access) -> Result<(), VerbsError> {
        Ok(())
    }

    fn withdraw(&mut self, _rkey: Rkey) {}

    fn enter(&self) {}

    fn exit(&self) {}

    fn resolve(&self, srqn: SrqNum, reach: &Reach) -> Option<u64> {
        let at = reach.va.checked_sub(THEIRS)?;
        let covered = srqn == ELSEWHERE && reach.rkey == RKEY && at + reach.len <= 1024;
        (covered && !self.ended.get()).then_some(BASE + 2048 + at + self.askew)
    }
}

struct Bench {
    responder: Responder,
    mrs: MrTable,
    memory: VecMemory,
    domain: TwoProcesses,
    rq: VecDeque<RecvWqe>,
}

impl Bench {
    fn new() -> Self {
        let wr = RecvWr {
            wr_id: 1,
            sges: &[],
        };
        Self {
            responder: Responder::new(PSN, MTU, 2, 1),
            mrs: MrTable::new(1),
            memory: VecMemory::new(BASE, 4096),
            domain: TwoProcesses::default(),
            rq: VecDeque::from([RecvWqe::new(&wr)]),
        }
    }

    fn handle(&mut self, psn: u32, srqn: SrqNum, opcode: Opcode, ext: Ext, data: &[u8]) -> Handled {
        let bth = Bth {
            xrc: Xrc::Request(srqn),
            ..Bth::new(opcode, Qpn(2), PSN.add(psn), true)
        };
        let payload = data;
        let mut target = Target {
            mrs: &self.mrs,
            memory: &mut self.memory,
            access: Access::ALL,
            domain: Some(&self.domain),
            srqn: Some(srqn),
            receives: Receives {
                own: &mut self.rq,
                shared: None,
            },
            placed: None,
            run: false,
            received: None,
        };
        let packet = Packet { bth, ext, payload };
        self.responder.handle(&packet, &mut target)
    }

    fn reply(&mut self) -> Option<Response> {
        let domain: &dyn Domain = &self.domain;
        self.responder.poll(&self.mrs, Access::ALL, Some(domain), 1)
    }

    fn refusal(&mut self) -> NakCode {
        match self.reply().map(|r| r.ext) {
            Some(Ext::Aeth(Aeth {
                syndrome: Syndrome::Nak(code),
                ..
            })) => code,
            other => panic!("{other:?} is no refusal"),
        }
    }

    fn bytes(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read(BASE + offset, &mut out);
        out
    }
}

fn reth(len: u32) -> Reth {
    Reth {
        va: THEIRS,
        rkey: RKEY,
        len,
    }
}

fn atomic() -> Ext {
    Ext::Atomic(AtomicEth {
        va: THEIRS + 8,
        rkey: RKEY,
        swap_add: 5,
        compare: 0,
    })
}

#[test]
fn memory_of_another_process_is_written_read_and_added_to() {
    let mut b = Bench::new();
    let write = Ext::Reth(reth(300));
    let done = Handled::Executed(true);
    let first = b.handle(0, ELSEWHERE, Opcode::WriteFirst, write, &[1; 256]);
    assert_eq!(first, Handled::Executed(false));
    let last = b.handle(1, ELSEWHERE, Opcode::WriteLast, Ext::None, &[2; 44]);
    assert_eq!(last, done);
    assert_eq!(b.bytes(2048, 300), [vec![1; 256], vec![2; 44]].concat());
    assert_eq!(
        b.handle(2, ELSEWHERE, Opcode::FetchAdd, atomic(), &[]),
        done
    );
    let read = Ext::Reth(reth(300));
    let asked = b.handle(3, ELSEWHERE, Opcode::ReadRequest, read, &[]);
    assert_eq!(asked, done);
    assert!(matches!(b.reply().unwrap().ext, Ext::AtomicAck(..)));
    let payloads = [(); 2].map(|()| b.reply().unwrap().payload);
    let at = BASE + 2048;
    assert_eq!(payloads, [Some((at, 256)), Some((at + 256, 44))]);
}

#[test]
fn receives_of_another_process_are_out_of_reach() {
    let imm = Ext::RethImm(reth(4), 9);
    let requests = [
        (Opcode::SendOnly, Ext::None),
        (Opcode::SendFirst, Ext::None),
        (Opcode::SendOnlyImm, Ext::Imm(9)),
        (Opcode::WriteOnlyImm, imm),
    ];
    for (opcode, ext) in requests {
        let mut b = Bench::new();
        let data = vec![1; if opcode == Opcode::SendFirst { 256 } else { 4 }];
        let handled = b.handle(0, ELSEWHERE, opcode, ext, &data);
        assert_eq!(handled, Handled::Fatal, "{opcode:?}");
        assert_eq!(b.refusal(), NakCode::InvalidRequest);
        assert_eq!(b.rq.len(), 1, "{opcode:?} took a receive of this process");
        assert_eq!(b.bytes(2048, 4), [0; 4]);
    }
}

#[test]
fn a_message_cannot_change_whom_it_is_for() {
    for other in [HERE, GONE] {
        let mut b = Bench::new();
        let write = Ext::Reth(reth(300));
        b.handle(0, ELSEWHERE, Opcode::WriteFirst, write, &[1; 256]);
        let last = b.handle(1, other, Opcode::WriteLast, Ext::None, &[2; 44]);
        assert_eq!(last, Handled::Fatal);
        assert_eq!(b.refusal(), NakCode::InvalidRequest);
        assert_eq!(b.bytes(2048 + 256, 44), [0; 44]);
    }
    let mut b = Bench::new();
    let nobody = b.handle(0, GONE, Opcode::WriteOnly, Ext::Reth(reth(0)), &[]);
    assert_eq!(nobody, Handled::Fatal);
    assert_eq!(b.refusal(), NakCode::InvalidRequest);
}

#[test]
fn a_region_may_end_at_any_packet() {
    let mut b = Bench::new();
    let write = Ext::Reth(reth(300));
    b.handle(0, ELSEWHERE, Opcode::WriteFirst, write, &[1; 256]);
    b.domain.ended.set(true);
    let last = b.handle(1, ELSEWHERE, Opcode::WriteLast, Ext::None, &[2; 44]);
    assert_eq!(last, Handled::Fatal);
    assert_eq!(b.refusal(), NakCode::RemoteAccess);
    assert_eq!(b.bytes(2048 + 256, 44), [0; 44]);

    let mut b = Bench::new();
    let read = Ext::Reth(reth(300));
    b.handle(0, ELSEWHERE, Opcode::ReadRequest, read, &[]);
    assert!(b.reply().unwrap().payload.is_some());
    b.domain.ended.set(true);
    assert_eq!(b.refusal(), NakCode::RemoteAccess);
}

/// The window need not be aligned alike in all processes; an atomic must not be torn for that.
#[test]
fn a_word_that_is_not_aligned_here_is_refused() {
    let mut b = Bench::new();
    b.domain.askew = 4;
    let handled = b.handle(0, ELSEWHERE, Opcode::FetchAdd, atomic(), &[]);
    assert_eq!(handled, Handled::Fatal);
    assert_eq!(b.refusal(), NakCode::RemoteOperational);
}

#[test]
fn each_type_of_queue_pair_hears_its_own_service_only() {
    let port = |last, udp_port| AddressVector {
        gid: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, last)),
        udp_port,
    };
    let (here, peer) = (port(1, 4791), port(2, 4791));
    let services = [Xrc::No, Xrc::Request(HERE), Xrc::Response];
    for (ty, hears) in [
        (QpType::Rc, Xrc::No),
        (QpType::XrcTgt, Xrc::Request(HERE)),
        (QpType::XrcIni, Xrc::Response),
    ] {
        for xrc in services {
            let mut engine = Engine::new(here, Mtu::M1024, 1, VecMemory::new(BASE, 4096));
            let cq = engine.create_cq(8).unwrap();
            let xrcd = (ty == QpType::XrcTgt)
                .then(|| engine.open_xrcd(Box::<Private>::default(), None).unwrap());
            let init = QpInit {
                xrcd,
                ..QpInit::new(ty, cq)
            };
            let qpn = engine.create_qp(&init).unwrap();
            let dest = RcDest::new(peer, Qpn(9), PSN, Mtu::M1024);
            for attr in RcStart::new(dest, PSN).attrs() {
                engine.modify_qp(qpn, &attr).unwrap();
            }
            // A response to nothing is heard and ignored; a request for nobody is refused.
            let (opcode, ext) = match xrc {
                Xrc::Response => {
                    let (syndrome, msn) = (Syndrome::OK, 0);
                    (Opcode::Ack, Ext::Aeth(Aeth { syndrome, msn }))
                }
                _ => (Opcode::WriteOnly, Ext::Reth(reth(0))),
            };
            let bth = Bth {
                xrc,
                ..Bth::new(opcode, qpn, PSN, true)
            };
            let header = Header { bth, ext };
            let mut buf = vec![0; PACKET_MAX];
            header.encode(&mut buf, 0);
            let flow = Flow {
                src: peer,
                dst: here,
            };
            let len = header.seal(&mut buf, 0, &flow);
            engine.handle_datagram(0, peer, &buf[..len]);
            let dropped = u64::from(xrc != hears);
            assert_eq!(engine.counters().dropped, dropped, "{ty:?} {xrc:?}");
            let failed = ty == QpType::XrcTgt && xrc == hears;
            let state = engine.query_qp(qpn).unwrap();
            assert_eq!(state == QpState::Err, failed, "{ty:?} {xrc:?}");
        }
    }
}
