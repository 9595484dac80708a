//! Bytes that come by a stream between two software HCAs: requests to a responder, answers to a requester that waits for some.

use std::net::Ipv4Addr;

use shmem_ib::soft::stream::{StreamAction, StreamConfig, StreamId};
use shmem_ib::soft::{Engine, VecMemory};
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Gid, Mr, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
    SendOp, SendWr, Sge,
};
use shmem_ib::wire::{Aeth, Bth, Ext, FRAME_HEAD_MAX, Frame, Header, Opcode, PACKET_MAX, Syndrome};

const BASE: u64 = 0x10_0000;
/// Memory, and how much of it is registered: an access beyond is a panic of the memory only behind its end, so that the rest
/// is checked.
const LEN: usize = 1 << 14;
const REGISTERED: usize = LEN / 2;
const FIRST: Psn = Psn(5);
/// Bytes of the requests, in packets of 256.
const LONG: u32 = 600;

struct End {
    engine: Engine<VecMemory>,
    qpn: Qpn,
    mr: Mr,
    stream: StreamId,
}

fn address(last: u8) -> AddressVector {
    AddressVector {
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, last)),
        udp_port: 4791,
    }
}

fn post(ends: &mut [End; 2], wr_id: u64, read: bool) {
    let (raddr, rkey) = (BASE, ends[1].mr.rkey);
    let op = match read {
        true => SendOp::Read { raddr, rkey },
        false => SendOp::Write {
            raddr,
            rkey,
            imm: None,
        },
    };
    let me = &mut ends[0];
    let sges = [Sge {
        addr: BASE + 1024,
        len: LONG,
        lkey: me.mr.lkey,
    }];
    let posted = me.engine.post_send(me.qpn, &SendWr::new(wr_id, op, &sges));
    posted.expect("there is room");
}

/// Lets datagrams travel, and does what both want of streams.
fn settle(ends: &mut [End; 2]) {
    let mut buf = vec![0; PACKET_MAX];
    let mut quiet = false;
    while !std::mem::replace(&mut quiet, true) {
        for from in 0..2 {
            while let Some(action) = ends[from].engine.poll_stream_action() {
                quiet = false;
                match action {
                    StreamAction::Listen => ends[from].engine.stream_listening(Some(7)),
                    StreamAction::Connect(id, _) => {
                        ends[from].stream = id;
                        ends[from].engine.stream_connected(id);
                        let ip = address(from as u8 + 1).gid.ip();
                        let id = ends[1 - from].engine.stream_accepted(0, ip);
                        ends[1 - from].stream = id.expect("it was invited");
                    }
                    StreamAction::Unlisten | StreamAction::Close(_) => {}
                }
            }
            while let Some(t) = ends[from].engine.poll_transmit(0, &mut buf) {
                quiet = false;
                let src = address(from as u8 + 1);
                ends[1 - from].engine.handle_datagram(0, src, &buf[..t.len]);
            }
        }
    }
}

/// What an end sends by its stream now.
fn said(end: &mut End) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(out) = end.engine.stream_output(0, end.stream) {
        let mut bytes = out.head.to_vec();
        for piece in out.pieces {
            let at = bytes.len();
            bytes.resize(at + piece.len, 0);
            shmem_ib::soft::Memory::read(end.engine.memory_mut(), piece.addr, &mut bytes[at..]);
        }
        end.engine.stream_sent(0, end.stream, bytes.len());
        all.extend(bytes);
    }
    all
}

/// Brings bytes by a stream, in portions as they fit.
fn hear(end: &mut End, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Some(room) = end.engine.stream_room(end.stream) else {
            return;
        };
        let (at, direct) = room.direct.unwrap_or((0, 0));
        let all = (direct + room.ahead.len()).min(bytes.len());
        let (now, later) = bytes.split_at(all);
        let (first, rest) = now.split_at(direct.min(all));
        room.ahead[..rest.len()].copy_from_slice(rest);
        if !first.is_empty() {
            shmem_ib::soft::Memory::write(end.engine.memory_mut(), at, first);
        }
        end.engine.stream_received(0, end.stream, all);
        bytes = later;
    }
}

/// Two HCAs with a stream, by which the first waits for the answers to a WRITE and a READ; and the frames of these requests.
fn open() -> ([End; 2], Vec<u8>) {
    let mut ends = [1, 2].map(|n| {
        let memory = VecMemory::new(BASE, LEN);
        let mut engine = Engine::new(address(n), Mtu::M256, n.into(), memory);
        engine.set_streams(StreamConfig {
            from: LONG,
            run: 512,
            direct: 100,
        });
        let mr = engine.reg_mr(BASE, REGISTERED as u64, Access::ALL);
        let cq = engine.create_cq(16).expect("a CQ");
        let qpn = engine.create_qp(&QpInit::new(QpType::Rc, cq));
        End {
            engine,
            qpn: qpn.expect("a queue pair"),
            mr: mr.expect("a region"),
            stream: StreamId(0),
        }
    });
    let qpns = [ends[0].qpn, ends[1].qpn];
    for n in 0..2 {
        let dest = RcDest::new(address(2 - n as u8), qpns[1 - n], FIRST, Mtu::M256);
        let start = RcStart {
            access: Access::ALL,
            ..RcStart::new(dest, FIRST)
        };
        for attr in start.attrs() {
            let modified = ends[n].engine.modify_qp(qpns[n], &attr);
            modified.expect("a legal transition");
        }
    }
    post(&mut ends, 1, false);
    settle(&mut ends);
    let hello = said(&mut ends[1]);
    hear(&mut ends[0], &hello);
    post(&mut ends, 2, false);
    post(&mut ends, 3, true);
    settle(&mut ends);
    let requests = said(&mut ends[0]);
    (ends, requests)
}

/// Heads of frames say the same when they are encoded again. Whatever comes by a stream, nothing outside of what is registered
/// is touched, and the HCA goes on.
///
/// # Panics
/// If not.
pub fn hca_stream(data: &[u8]) {
    if let Ok(Some((frame, n))) = Frame::decode(data) {
        let mut out = [0; FRAME_HEAD_MAX];
        assert_eq!(frame.encode(&mut out), n);
        assert_eq!(Frame::decode(&out[..n]), Ok(Some((frame, n))));
    }
    let Some((side, bytes)) = data.split_first() else {
        return;
    };
    let (mut ends, _) = open();
    let end = &mut ends[usize::from(side & 1)];
    hear(end, bytes);
    let _ = said(end);
    settle(&mut ends);
    for end in &mut ends {
        let beyond = &end.engine.memory_mut().bytes()[REGISTERED..];
        assert!(beyond.iter().all(|b| *b == 0), "it was not registered");
        let mut out = [Completion::EMPTY; 4];
        let cq = shmem_ib::verbs::Cq(0);
        let _ = end.engine.poll_cq(cq, &mut out);
    }
}

/// Requests as they go, the answers to them, and one of another kind.
#[must_use]
pub fn hca_stream_seeds() -> Vec<Vec<u8>> {
    let (mut ends, requests) = open();
    hear(&mut ends[1], &requests);
    let answers = said(&mut ends[1]);
    assert!(!requests.is_empty() && answers.len() > LONG as usize);
    let aeth = Aeth {
        syndrome: Syndrome::OK,
        msn: 1,
    };
    let bth = Bth::new(Opcode::AtomicAck, ends[0].qpn, FIRST.add(3), false);
    let header = Header {
        bth,
        ext: Ext::AtomicAck(aeth, 7),
    };
    let mut head = [0; FRAME_HEAD_MAX];
    let n = Frame { header, len: 0 }.encode(&mut head);
    let to = |side: u8, bytes: &[u8]| [&[side], bytes].concat();
    vec![to(1, &requests), to(0, &answers), to(0, &head[..n])]
}
