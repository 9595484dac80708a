//! Streams of the software HCA: what they bring, to whom they listen, and what happens without them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, Completion, Cq, Hca, Mtu, Psn, QpAttr, QpInit, QpType, Qpn, RcDest, RcStart, SendOp,
    SendWr, WcStatus,
};
use shmem_ib_kit::conformance::Region;

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const FROM: u32 = 64 << 10;

struct Port {
    hca: Arc<SoftHca>,
    cq: Cq,
    qp: Qpn,
    mem: Region,
}

fn open(seed: u64, ports: (u16, u16), stream: Option<u32>) -> Port {
    let config = SoftConfig {
        mtu: Mtu::M1024,
        ports,
        stream,
        ..SoftConfig::loopback(seed)
    };
    queue_pair(&Arc::new(SoftHca::open(&config).unwrap()))
}

fn queue_pair(hca: &Arc<SoftHca>) -> Port {
    let hca = Arc::clone(hca);
    let cq = hca.create_cq(1024).unwrap();
    let init = QpInit {
        max_send_wr: 128,
        max_inline: 64,
        ..QpInit::new(QpType::Rc, cq)
    };
    let qp = hca.create_qp(&init).unwrap();
    let mem = Region::new(&*hca, 8 * MIB, Access::ALL);
    Port { hca, cq, qp, mem }
}

/// Two connected ports.
fn pair(streams: [Option<u32>; 2]) -> [Port; 2] {
    let mut seed = 0;
    let ends = streams.map(|stream| {
        seed += 1;
        open(seed, (0, 0), stream)
    });
    for (me, peer) in [(0, 1), (1, 0)] {
        connect(&ends[me], &ends[peer]);
    }
    ends
}

fn connect(me: &Port, peer: &Port) {
    connect_with(me, peer, RcStart::new);
}

fn connect_with(me: &Port, peer: &Port, start: impl Fn(RcDest, Psn) -> RcStart) {
    let dest = RcDest::new(peer.hca.port().av, peer.qp, Psn(7), Mtu::M1024);
    let start = RcStart {
        access: Access::ALL,
        ..start(dest, Psn(7))
    };
    for attr in start.attrs() {
        me.hca.modify_qp(me.qp, &attr).unwrap();
    }
}

impl Port {
    fn post(&self, wr_id: u64, op: SendOp, at: usize, len: usize) {
        let sges = [self.mem.sge(at, len)];
        let wr = SendWr::new(wr_id, op, &sges);
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, &wr) }.unwrap();
    }

    fn try_reap(&self) -> Option<Completion> {
        let mut out = [Completion::EMPTY];
        (self.hca.poll_cq(self.cq, &mut out) == 1).then_some(out[0])
    }

    fn streams(&self) -> u64 {
        self.hca.counters().streams_opened
    }
}

fn write(to: &Port, at: usize) -> SendOp {
    SendOp::write(to.mem.at(at), to.mem.mr.rkey)
}

fn read(from: &Port, at: usize) -> SendOp {
    SendOp::Read {
        raddr: from.mem.at(at),
        rkey: from.mem.mr.rkey,
    }
}

/// Polls both until the condition holds.
fn until(ends: &[Port; 2], what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        for end in ends {
            end.hca.poll_cq(end.cq, &mut []);
            end.hca.wait(Duration::from_micros(1));
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

/// The next completion of the first, while both poll.
fn reap(ends: &[Port; 2]) -> Completion {
    let mut got = None;
    until(ends, "no completion", || {
        got = got.or_else(|| ends[0].try_reap());
        got.is_some()
    });
    got.unwrap()
}

/// Has both get a stream for what the first sends.
fn opened(ends: &[Port; 2]) {
    let before = ends.each_ref().map(Port::streams);
    ends[0].post(1, write(&ends[1], 0), 0, FROM as usize);
    assert_eq!(reap(ends).status, WcStatus::Success);
    until(ends, "no stream", || {
        let mut both = ends.iter().zip(before);
        both.all(|(end, before)| end.streams() == before + 1)
    });
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + seed) as u8).collect()
}

#[test]
fn long_messages_go_by_a_stream_and_short_ones_by_datagrams() {
    let ends = pair([Some(FROM); 2]);
    opened(&ends);
    for (n, len) in [FROM as usize, MIB, MIB + 1, 4 * MIB - 3]
        .into_iter()
        .enumerate()
    {
        let before = ends[0].hca.counters();
        let data = pattern(n, len);
        ends[0].mem.fill(0, &data);
        ends[0].post(2, write(&ends[1], 5), 0, len);
        assert_eq!(reap(&ends).status, WcStatus::Success);
        assert!(ends[1].mem.bytes(5, len) == data, "a WRITE of {len}");
        let data = pattern(n + 100, len);
        ends[1].mem.fill(3, &data);
        ends[0].post(3, read(&ends[1], 3), 1, len);
        assert_eq!(reap(&ends).status, WcStatus::Success);
        assert!(ends[0].mem.bytes(1, len) == data, "a READ of {len}");
        let after = ends[0].hca.counters();
        assert!(after.stream_bytes_sent - before.stream_bytes_sent >= len as u64);
        assert!(after.stream_bytes_received - before.stream_bytes_received >= len as u64);
        assert!(after.packets_sent - before.packets_sent < 5, "{after:?}");
    }
    let before = ends[0].hca.counters();
    ends[0].post(4, write(&ends[1], 0), 0, 8);
    assert_eq!(reap(&ends).status, WcStatus::Success);
    let after = ends[0].hca.counters();
    assert_eq!(before.stream_bytes_sent, after.stream_bytes_sent);
    assert_eq!(ends.each_ref().map(Port::streams), [1, 1]);
}

#[test]
fn who_sleeps_is_woken_by_a_stream() {
    let ends = [1, 2].map(|seed| open(seed, (0, 0), Some(FROM)));
    for (me, peer) in [(0, 1), (1, 0)] {
        // No timer may help out while others keep the processors: this one takes over a minute.
        connect_with(&ends[me], &ends[peer], |dest, psn| RcStart {
            timeout: 24,
            ..RcStart::new(dest, psn)
        });
    }
    opened(&ends);
    let before = ends[0].hca.counters().retransmitted;
    let stop = AtomicBool::new(false);
    let (sleeper, stopped) = (Arc::clone(&ends[1].hca), &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                sleeper.wait(Duration::from_secs(3600));
            }
        });
        for n in 0..20 {
            let data = pattern(n, MIB);
            ends[0].mem.fill(0, &data);
            ends[0].post(n as u64, write(&ends[1], 0), 0, MIB);
            let start = Instant::now();
            while ends[0].try_reap().is_none() {
                assert!(start.elapsed() < PATIENCE, "turn {n}");
                ends[0].hca.wait(Duration::from_secs(1));
            }
            assert!(ends[1].mem.bytes(0, MIB) == data, "turn {n}");
        }
        stop.store(true, Ordering::Relaxed);
        ends[1].hca.wake();
    });
    assert_eq!(ends[0].hca.counters().retransmitted, before);
}

#[test]
fn who_has_no_streams_gets_datagrams() {
    for streams in [[Some(FROM), None], [None, Some(FROM)]] {
        let ends = pair(streams);
        for n in 0..3 {
            let data = pattern(n, MIB);
            ends[0].mem.fill(0, &data);
            ends[0].post(n as u64, write(&ends[1], 0), 0, MIB);
            assert_eq!(reap(&ends).status, WcStatus::Success);
            assert!(ends[1].mem.bytes(0, MIB) == data);
        }
        assert_eq!(ends.each_ref().map(Port::streams), [0, 0]);
    }
}

#[test]
fn a_queue_pair_takes_its_streams_along() {
    let ends = pair([Some(FROM); 2]);
    opened(&ends);
    ends[1].hca.modify_qp(ends[1].qp, &QpAttr::Reset).unwrap();
    ends[0].hca.modify_qp(ends[0].qp, &QpAttr::Reset).unwrap();
    connect(&ends[1], &ends[0]);
    connect(&ends[0], &ends[1]);
    ends[0].mem.fill(0, &pattern(9, MIB));
    ends[0].post(1, write(&ends[1], 0), 0, MIB);
    assert_eq!(reap(&ends).status, WcStatus::Success);
    assert!(ends[1].mem.bytes(0, MIB) == pattern(9, MIB));
    until(&ends, "no stream again", || {
        ends.iter().all(|end| end.streams() == 2)
    });
}

/// A region that ends while it is sent from: nothing is read behind its end, and the request fails.
#[test]
fn memory_is_not_sent_any_more_when_its_registration_has_ended() {
    let ends = pair([Some(FROM); 2]);
    opened(&ends);
    let source = Region::new(&*ends[0].hca, 8 * MIB, Access::ALL);
    let sges = [source.sge(0, 8 * MIB)];
    let wr = SendWr::new(1, write(&ends[1], 0), &sges);
    // SAFETY: regions are never freed.
    unsafe { ends[0].hca.post_send(ends[0].qp, &wr) }.unwrap();
    // The peer takes nothing, so the kernel does not take it all.
    ends[0].hca.dereg_mr(&source.mr).unwrap();
    assert_eq!(reap(&ends).status, WcStatus::LocProtErr);
}

/// One that ends while it is written to: the rest does not come there.
#[test]
fn memory_is_not_written_to_any_more_when_its_registration_has_ended() {
    let ends = pair([Some(FROM); 2]);
    opened(&ends);
    let target = Region::new(&*ends[1].hca, 8 * MIB, Access::ALL);
    let op = SendOp::write(target.at(0), target.mr.rkey);
    ends[0].post(1, op, 0, 8 * MIB);
    ends[1].hca.poll_cq(ends[1].cq, &mut []);
    ends[1].hca.dereg_mr(&target.mr).unwrap();
    let seen = target.bytes(0, 8 * MIB);
    assert_eq!(reap(&ends).status, WcStatus::RemAccessErr);
    assert!(target.bytes(0, 8 * MIB) == seen, "it was written to");
}

/// A port that a stream is awaited at, while the peer is not there to connect.
fn awaited(port: u16) -> Port {
    let me = open(1, (port, port), Some(FROM));
    let silent = open(2, (0, 0), Some(FROM));
    connect(&me, &silent);
    me.post(1, write(&silent, 0), 0, MIB);
    me
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// What a stream leaves at the port where it was accepted keeps nobody from listening there.
#[test]
fn one_port_does_for_one_stream_after_another() {
    let port = free_port();
    let mut me = open(1, (port, port), Some(FROM));
    for seed in 2..6 {
        let ends = [me, open(seed, (0, 0), Some(FROM))];
        connect(&ends[0], &ends[1]);
        connect(&ends[1], &ends[0]);
        opened(&ends);
        let [first, _peer] = ends;
        if seed % 2 == 0 {
            first.hca.modify_qp(first.qp, &QpAttr::Reset).unwrap();
        }
        me = queue_pair(&first.hca);
    }
}

/// All who are invited may come at the same time.
#[test]
fn many_are_invited_at_once() {
    const PEERS: u64 = 40;
    let ends = pair([Some(FROM); 2]);
    let mut more = Vec::new();
    for _ in 0..PEERS {
        let both = ends.each_ref().map(|end| queue_pair(&end.hca));
        connect(&both[0], &both[1]);
        connect(&both[1], &both[0]);
        more.push(both);
    }
    for [me, peer] in &more {
        me.post(1, write(peer, 0), 0, FROM as usize);
    }
    until(&ends, "no streams", || ends[0].streams() == PEERS);
    assert_eq!(ends[1].streams(), PEERS, "some had to come again");
}

fn poll(me: &Port) {
    me.hca.poll_cq(me.cq, &mut []);
    me.hca.wait(Duration::from_micros(100));
}

#[test]
fn strangers_are_closed() {
    let port = free_port();
    let me = awaited(port);
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let mut wrong = TcpStream::connect(at).unwrap();
    let hello = [b"SHS1\0".as_slice(), &me.qp.0.to_be_bytes()[1..], &[0; 16]].concat();
    wrong.write_all(&hello).unwrap();
    let mut noise = TcpStream::connect(at).unwrap();
    noise.write_all(&[7; 100]).unwrap();
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut ended = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let start = Instant::now();
        loop {
            poll(&me);
            match stream.read(&mut [0; 8]) {
                Ok(0) => return,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
                Ok(_) => panic!("a stranger was answered"),
            }
            assert!(start.elapsed() < PATIENCE, "a stranger stays");
        }
    };
    ended(&mut wrong);
    ended(&mut noise);
    silent.iter_mut().for_each(&mut ended);
    assert_eq!(me.streams(), 0);
    // Nobody is invited any more.
    let start = Instant::now();
    while TcpStream::connect(at).is_ok() {
        poll(&me);
        assert!(start.elapsed() < PATIENCE, "it still listens");
    }
}
