//! The software HCA: packets, the engine that makes and takes them, and the whole of it over the loopback.
//!
//! Processor time, in one process. Both ends of a connection take turns in one thread, so nobody waits.

mod cpu_time;
mod setting;

use std::hint::black_box;
use std::net::Ipv4Addr;

use cpu_time::CpuTime;
use criterion::measurement::Measurement;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use shmem_ib::soft::{Engine, SoftConfig, SoftHca, VecMemory};
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Cq, Gid, Mr, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart,
    Rkey, SendOp, SendWr, Sge, WcStatus,
};
use shmem_ib::wire::{Bth, Ext, Flow, Header, Opcode, PACKET_MAX, Packet, Reth, icrc};
use shmem_ib_kit::conformance::{Beyond, Fabric, Link, Options};

/// Operations by their length.
const OPERATIONS: [(&str, usize); 5] = [
    ("write", 8),
    ("write", 64 << 10),
    ("read", 8),
    ("read", 64 << 10),
    ("fetch_add", 8),
];

fn main() {
    let mut criterion = setting::criterion(CpuTime);
    packets(&mut criterion);
    engines(&mut criterion);
    loopback(&mut criterion);
    criterion.final_summary();
}

fn av(last: u8) -> AddressVector {
    AddressVector {
        gid: Gid::from(Ipv4Addr::new(127, 0, 0, last)),
        udp_port: 4791,
    }
}

/// One packet with its ICRC, as a sender makes it and as a receiver checks it.
fn packets(criterion: &mut Criterion<CpuTime>) {
    let flow = Flow {
        src: av(1),
        dst: av(2),
    };
    let mut group = criterion.benchmark_group("packet");
    for bytes in [8, 1024, 4096] {
        group.throughput(Throughput::Bytes(bytes as u64));
        let reth = Reth {
            va: 0x1000,
            rkey: Rkey(7),
            len: bytes as u32,
        };
        let header = Header {
            bth: Bth::new(Opcode::WriteOnly, Qpn(0x12), Psn(0x34), true),
            ext: Ext::Reth(reth),
        };
        let (payload, mut out) = (vec![7; bytes], vec![0; PACKET_MAX]);
        let mut encode = || {
            let at = black_box(&header).encode(&mut out, bytes);
            out[at..at + bytes].copy_from_slice(&payload);
            header.seal(&mut out, bytes, &flow)
        };
        group.bench_function(format!("encode/{bytes}"), |b| b.iter(&mut encode));
        let len = encode();
        group.bench_function(format!("decode/{bytes}"), |b| {
            b.iter(|| {
                let packet = black_box(&out[..len]);
                assert!(icrc::verify(&flow, packet, 0));
                Packet::decode(packet).map(|packet| packet.payload.len())
            });
        });
    }
    group.finish();
}

const BASE: u64 = 0x10_0000;

/// An engine with a connected queue pair.
struct End {
    engine: Engine<VecMemory>,
    cq: Cq,
    qpn: Qpn,
    mr: Mr,
}

/// Two engines, without sockets between them.
struct Engines {
    ends: [End; 2],
    now: u64,
    packet: Vec<u8>,
}

impl Engines {
    fn new() -> Self {
        const MTU: Mtu = Mtu::M4096;
        const LEN: usize = 64 << 10;
        let mut ends = [1, 2].map(|n| {
            let mut engine = Engine::new(av(n), MTU, n.into(), VecMemory::new(BASE, LEN));
            let mr = engine.reg_mr(BASE, LEN as u64, Access::ALL).expect("an MR");
            let cq = engine.create_cq(8).expect("a CQ");
            let qpn = engine.create_qp(&QpInit::new(QpType::Rc, cq));
            End {
                engine,
                cq,
                qpn: qpn.expect("a QP"),
                mr,
            }
        });
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (n, end) in ends.iter_mut().enumerate() {
            let dest = RcDest::new(av(2 - n as u8), qpns[1 - n], Psn(5), MTU);
            for attr in RcStart::new(dest, Psn(5)).attrs() {
                let moved = end.engine.modify_qp(end.qpn, &attr);
                moved.expect("a legal transition");
            }
        }
        Self {
            ends,
            now: 0,
            packet: vec![0; PACKET_MAX],
        }
    }

    /// One operation, from the request to its completion.
    fn run(&mut self, op: SendOp, bytes: usize) {
        let [first, _] = &mut self.ends;
        let sges = [Sge {
            addr: BASE,
            len: bytes as u32,
            lkey: first.mr.lkey,
        }];
        let posted = first
            .engine
            .post_send(first.qpn, &SendWr::new(0, op, &sges));
        posted.expect("the queue is empty");
        let mut done = [Completion::EMPTY; 1];
        while self.ends[0].engine.poll_cq(self.ends[0].cq, &mut done) == 0 {
            if !self.deliver() {
                self.now += 1_000;
                for end in &mut self.ends {
                    end.engine.polled();
                    end.engine.handle_timeout(self.now);
                }
            }
        }
        assert_eq!(done[0].status, WcStatus::Success);
    }

    /// Takes all packets from either engine to the other; returns whether there was one.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for from in [0, 1] {
            while let Some(sent) = self.ends[from]
                .engine
                .poll_transmit(self.now, &mut self.packet)
            {
                let (bytes, source) = (&self.packet[..sent.len], av(1 + from as u8));
                let to = &mut self.ends[1 - from].engine;
                to.handle_datagram(self.now, source, bytes);
                any = true;
            }
        }
        any
    }
}

fn operation(name: &str, raddr: u64, rkey: Rkey) -> SendOp {
    match name {
        "write" => SendOp::Write {
            raddr,
            rkey,
            imm: None,
        },
        "read" => SendOp::Read { raddr, rkey },
        _ => SendOp::FetchAdd {
            raddr,
            rkey,
            add: 1,
        },
    }
}

/// Requester and responder, with the packets between them.
fn engines(criterion: &mut Criterion<CpuTime>) {
    let mut engines = Engines::new();
    let rkey = engines.ends[1].mr.rkey;
    each_operation(criterion.benchmark_group("engine"), |name, bytes| {
        engines.run(operation(name, BASE, rkey), bytes);
    });
}

fn each_operation<M: Measurement>(
    mut group: BenchmarkGroup<'_, M>,
    mut run: impl FnMut(&str, usize),
) {
    for (name, bytes) in OPERATIONS {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{name}/{bytes}"), |b| b.iter(|| run(name, bytes)));
    }
    group.finish();
}

/// Two ports of the loopback.
struct Ports([SoftHca; 2]);

impl Fabric for Ports {
    type H = SoftHca;

    fn hcas(&self) -> [&SoftHca; 2] {
        self.0.each_ref()
    }

    fn beyond(&self) -> Beyond {
        Beyond::SOFTWARE
    }

    fn advance(&self) {}
}

/// The same operations with the kernel's sockets.
fn loopback(criterion: &mut Criterion<CpuTime>) {
    let port = |seed| SoftHca::open(&SoftConfig::loopback(seed)).expect("a port of the loopback");
    let ports = Ports([port(1), port(2)]);
    let link = Link::new(&ports, Options::default());
    let to = (link.b.mem.at(0), link.b.mem.mr.rkey);
    each_operation(criterion.benchmark_group("loopback"), |name, bytes| {
        let from = link.a.mem.sge(0, bytes);
        link.a.post(0, operation(name, to.0, to.1), from);
        link.expect(0);
    });
}
