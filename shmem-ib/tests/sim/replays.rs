//! Packets that a stranger has recorded, and sends again from the address and port of their sender: to a later job, and to
//! their own job once more.
//!
//! The later job is the worst case. Its PEs have the addresses, ports, queue pairs, packet numbers and keys of memory of the
//! earlier one, which real jobs draw anew. Only the job's key is another.

use std::net::Ipv4Addr;

use shmem_ib::soft::stream::{StreamAction, StreamConfig, StreamId};
use shmem_ib::soft::{Engine, VecMemory};
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Cq, Gid, Mr, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
    RecvWr, SendOp, SendWr, Sge, WcStatus,
};
use shmem_ib::wire::{Flow, ICRC_LEN, Opcode, PACKET_MAX, Packet, icrc};

const BASE: u64 = 0x10_0000;
const LEN: usize = 1 << 17;
const MTU: Mtu = Mtu::M1024;
const FIRST: Psn = Psn(77);
/// From here on a request goes by a stream, if the peer accepts the invitation.
const LONG: u32 = 32 << 10;
/// Where the requester listens for streams, which are all refused.
const PORT: u16 = 4711;
/// Offsets in the responder's memory.
const TARGET: u64 = 0;
const COUNTER: u64 = 8;
const MESSAGE: u64 = 64;
const BULK: u64 = 1 << 16;

fn av(last: u8) -> AddressVector {
    AddressVector {
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, last)),
        udp_port: 4791,
    }
}

/// A packet that was recorded, and to which end it went.
#[derive(Clone)]
struct Recorded {
    to: usize,
    bytes: Vec<u8>,
}

impl Recorded {
    fn opcode(&self) -> Opcode {
        Packet::decode(&self.bytes).unwrap().bth.opcode
    }
}

struct End {
    engine: Engine<VecMemory>,
    cq: Cq,
    qpn: Qpn,
    mr: Mr,
}

/// Two PEs of a job, of which the first sends requests.
struct Job {
    ends: [End; 2],
    now: u64,
    sent: Vec<Recorded>,
    /// Connections that ends were made to begin.
    connects: Vec<(usize, StreamId)>,
}

impl Job {
    fn new(key: [u8; 16]) -> Self {
        let mut ends = [1, 2].map(|n| {
            let mut engine = Engine::new(av(n), MTU, n.into(), VecMemory::new(BASE, LEN));
            engine.set_key(key);
            engine.set_streams(StreamConfig::from_bytes(LONG));
            let mr = engine.reg_mr(BASE, LEN as u64, Access::ALL).unwrap();
            let cq = engine.create_cq(16).unwrap();
            let init = QpInit {
                max_recv_wr: 4,
                ..QpInit::new(QpType::Rc, cq)
            };
            let qpn = engine.create_qp(&init).unwrap();
            End {
                engine,
                cq,
                qpn,
                mr,
            }
        });
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (n, end) in ends.iter_mut().enumerate() {
            let dest = RcDest::new(av(2 - n as u8), qpns[1 - n], FIRST, MTU);
            let start = RcStart {
                access: Access::ALL,
                ..RcStart::new(dest, FIRST)
            };
            for attr in start.attrs() {
                end.engine.modify_qp(end.qpn, &attr).unwrap();
            }
        }
        Self {
            ends,
            now: 0,
            sent: Vec::new(),
            connects: Vec::new(),
        }
    }

    /// Takes what both ends send and want done about streams, and delivers the packets.
    fn exchange(&mut self) {
        let mut buf = vec![0; PACKET_MAX];
        loop {
            let mut packets = Vec::new();
            for n in [0, 1] {
                let engine = &mut self.ends[n].engine;
                while let Some(action) = engine.poll_stream_action() {
                    match action {
                        StreamAction::Listen => engine.stream_listening(Some(PORT)),
                        StreamAction::Connect(id, to) => {
                            assert_eq!(to, (Ipv4Addr::new(10, 0, 0, 2 - n as u8), PORT).into());
                            self.connects.push((n, id));
                        }
                        StreamAction::Unlisten | StreamAction::Close(_) => {}
                    }
                }
                while let Some(t) = engine.poll_transmit(self.now, &mut buf) {
                    let bytes = buf[..t.len].to_vec();
                    packets.push(Recorded { to: 1 - n, bytes });
                }
            }
            if packets.is_empty() {
                return;
            }
            packets.iter().for_each(|packet| self.deliver(packet));
            self.sent.append(&mut packets);
        }
    }

    fn deliver(&mut self, packet: &Recorded) {
        let from = av(2 - packet.to as u8);
        let engine = &mut self.ends[packet.to].engine;
        engine.handle_datagram(self.now, from, &packet.bytes);
    }

    /// Packets that both ends have dropped.
    fn dropped(&self) -> u64 {
        let counters = self.ends.iter().map(|end| end.engine.counters());
        counters.map(|c| c.icrc_errors + c.dropped).sum()
    }

    fn completions(&mut self) -> Vec<(usize, u64, WcStatus)> {
        let mut all = Vec::new();
        for (n, end) in self.ends.iter_mut().enumerate() {
            let mut out = [Completion::EMPTY; 16];
            let got = end.engine.poll_cq(end.cq, &mut out);
            all.extend(out[..got].iter().map(|c| (n, c.wr_id, c.status)));
        }
        all
    }

    fn bytes(&mut self, end: usize, at: u64, len: usize) -> Vec<u8> {
        let at = at as usize;
        self.ends[end].engine.memory_mut().bytes()[at..at + len].to_vec()
    }

    fn post(&mut self, wr_id: u64, op: SendOp, at: u64, len: u32) {
        let end = &mut self.ends[0];
        let sges = [Sge {
            addr: BASE + at,
            len,
            lkey: end.mr.lkey,
        }];
        let wr = SendWr::new(wr_id, op, &sges);
        end.engine.post_send(end.qpn, &wr).unwrap();
    }
}

/// What a program notices of its job.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    completions: Vec<(usize, u64, WcStatus)>,
    /// What a WRITE, a READ, a SEND and a long WRITE have brought, and the counter behind each addition.
    brought: [Vec<u8>; 4],
    counts: Vec<u64>,
    connects: usize,
}

/// Runs a job that writes `value` and reads it, with `replays` between all steps; each time they are sent to both ends.
fn run(key: [u8; 16], value: u8, replays: &[Recorded]) -> (Outcome, Job, u64) {
    let mut job = Job::new(key);
    let mut injected = 0;
    let mut disturb = |job: &mut Job| {
        replays.iter().for_each(|packet| job.deliver(packet));
        injected += replays.len() as u64;
    };
    let mut completions = Vec::new();
    let mut counts = Vec::new();
    job.ends[0].engine.memory_mut().bytes_mut().fill(value);
    let end = &mut job.ends[1];
    let (rkey, lkey) = (end.mr.rkey, end.mr.lkey);
    let addr = BASE + MESSAGE;
    let sges = [Sge { addr, len: 8, lkey }];
    for wr_id in [100, 101] {
        let wr = RecvWr { wr_id, sges: &sges };
        end.engine.post_recv(end.qpn, &wr).unwrap();
    }
    let write = |at| SendOp::write(BASE + at, rkey);
    let (raddr, back) = (BASE + TARGET, 1024);
    let add = SendOp::fetch_add(BASE + COUNTER, rkey, 1);
    for (wr_id, op, at, len) in [
        (1, write(TARGET), 0, 8),
        (2, SendOp::Read { raddr, rkey }, back, 8),
        (3, add, 2048, 8),
        (4, SendOp::Send { imm: None }, 0, 8),
        (5, add, 2048, 8),
        (6, write(BULK), 0, LONG),
    ] {
        disturb(&mut job);
        job.post(wr_id, op, at, len);
        disturb(&mut job);
        job.exchange();
        disturb(&mut job);
        job.exchange();
        completions.append(&mut job.completions());
        let count = job.bytes(1, COUNTER, 8).try_into().unwrap();
        counts.push(u64::from_ne_bytes(count));
    }
    let outcome = Outcome {
        completions,
        brought: [
            job.bytes(1, TARGET, 8),
            job.bytes(0, back, 8),
            job.bytes(1, MESSAGE, 8),
            job.bytes(1, BULK, LONG as usize),
        ],
        counts,
        connects: job.connects.len(),
    };
    (outcome, job, injected)
}

const EARLIER: [u8; 16] = [1; 16];
const LATER: [u8; 16] = [2; 16];

#[test]
fn packets_of_an_earlier_job_do_nothing_to_a_later_one() {
    let (outcome, earlier, _) = run(EARLIER, 0x11, &[]);
    assert!(outcome.completions.iter().all(|c| c.2 == WcStatus::Success));
    assert_eq!(outcome.counts, [0, 0, 1, 1, 2, 2]);
    assert_eq!(outcome.connects, 1);
    let kinds = [
        Opcode::WriteOnly,
        Opcode::ReadRequest,
        Opcode::ReadOnly,
        Opcode::FetchAdd,
        Opcode::AtomicAck,
        Opcode::SendOnly,
        Opcode::Ack,
        Opcode::WriteFirst,
        Opcode::Invite,
    ];
    for kind in kinds {
        let is_there = earlier.sent.iter().any(|packet| packet.opcode() == kind);
        assert!(is_there, "nothing was recorded of {kind:?}");
    }
    let (undisturbed, ..) = run(LATER, 0x22, &[]);
    let (disturbed, later, injected) = run(LATER, 0x22, &earlier.sent);
    assert_eq!(disturbed, undisturbed);
    assert_eq!(later.dropped(), injected);
    assert_eq!(later.sent.len(), earlier.sent.len(), "they were answered");
    // To a job with the same key they do harm.
    let (harmed, ..) = run(EARLIER, 0x22, &earlier.sent);
    assert_ne!(harmed, undisturbed, "the replays are harmless anyway");
}

/// Lets the connection that an invitation has led to come to be, and returns its two ends.
fn connected(job: &mut Job) -> [StreamId; 2] {
    let (now, theirs) = (job.now, job.connects.last().unwrap().1);
    let [inviter, invited] = &mut job.ends;
    invited.engine.stream_connected(theirs);
    let hello = invited.engine.stream_output(now, theirs).unwrap().head;
    let own = inviter.engine.stream_accepted(now, av(2).gid.ip()).unwrap();
    let room = inviter.engine.stream_room(own).unwrap();
    room.ahead[..hello.len()].copy_from_slice(hello);
    let len = hello.len();
    inviter.engine.stream_received(now, own, len);
    assert_eq!(inviter.engine.counters().streams_opened, 1);
    [own, theirs]
}

#[test]
fn an_invitation_that_was_recorded_makes_nobody_connect() {
    let (_, mut job, _) = run(EARLIER, 0x11, &[]);
    let first = job.sent.iter().find(|p| p.opcode() == Opcode::Invite);
    let first = first.unwrap().clone();
    let again = |job: &mut Job, connects| {
        for _ in 0..10 {
            job.deliver(&first);
            job.exchange();
        }
        assert_eq!(job.connects.len(), connects);
    };
    // While the process connects, while the stream is there, and after its end.
    again(&mut job, 1);
    let ids = connected(&mut job);
    again(&mut job, 1);
    for (end, id) in job.ends.iter_mut().zip(ids) {
        end.engine.stream_broke(id);
    }
    again(&mut job, 1);
    // The peer invites once more.
    let rkey = job.ends[1].mr.rkey;
    let op = SendOp::write(BASE + BULK, rkey);
    job.post(7, op, 0, LONG);
    job.exchange();
    assert_eq!(job.connects.len(), 2);
    let dropped = job.dropped();
    again(&mut job, 2);
    assert_eq!(job.dropped(), dropped + 10);
}

/// The salt of the check sum has 32 bits, which a stranger may guess some day. The code of the invitation has 128.
#[test]
fn an_invitation_with_the_right_salt_needs_its_code_too() {
    let (_, mut job, _) = run(EARLIER, 0x11, &[]);
    let first = job.sent.iter().find(|p| p.opcode() == Opcode::Invite);
    let first = first.unwrap().clone();
    let flow = Flow {
        src: av(1),
        dst: av(2),
    };
    let (body, sum) = first.bytes.split_last_chunk::<ICRC_LEN>().unwrap();
    let salt = u32::from_le_bytes(*sum) ^ icrc::compute(&flow, body);
    assert_ne!(salt, 0);
    // The packet number, and all of the text and its code.
    let guessed = (9..12).chain(12..body.len());
    let before = job.dropped();
    let mut injected = 0;
    for bit in guessed.flat_map(|byte| (0..8).map(move |bit| 8 * byte + bit)) {
        let mut bytes = first.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let end = body.len();
        let sum = icrc::compute(&flow, &bytes[..end]) ^ salt;
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        assert!(icrc::verify(&flow, &bytes, salt));
        job.deliver(&Recorded {
            to: first.to,
            bytes,
        });
        injected += 1;
        job.exchange();
    }
    assert_eq!(injected, 8 * (3 + 36));
    assert_eq!(job.dropped() - before, injected);
    assert_eq!(job.connects.len(), 1);
}
