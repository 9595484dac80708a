//! Many senders of long messages to one receiver whose buffer is as small as Linux has it by default:
//! how much has to be sent again.

use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Access, Completion, Counters, Cq, Mr, Mtu, Psn, QpInit, QpType, Qpn, SendOp, SendWr, Sge,
    WcStatus,
};
use shmem_ib_kit::sim::{NetConfig, RcEnd, Receiver, SimNet};
use shmem_testkit::seeds;

const BASE: u64 = 0x10_0000;

const MESSAGE: usize = 1 << 20;
/// `net.core.rmem_max` of Linux, which the kernel doubles.
const BUFFER: u32 = 2 * 212_992;
/// Longer than a receiver remembers who has sent.
const LONG: u64 = 1_000_000_000;

struct Sender {
    node: usize,
    qp: Qpn,
    cq: Cq,
    mr: Mr,
}

struct Totals {
    packets: u64,
    again: u64,
    overflowed: u64,
    nanos: u64,
}

impl Totals {
    /// Packets sent again, in a thousand.
    fn again(&self) -> u64 {
        1000 * self.again / self.packets
    }
}

/// Many nodes that write to node 0.
struct Incast {
    net: SimNet<VecMemory>,
    target: Mr,
    senders: Vec<Sender>,
    rounds: u8,
}

impl Incast {
    fn new(config: NetConfig, senders: usize, tells: bool) -> Self {
        let len = |node: usize| match node {
            0 => senders * MESSAGE,
            _ => MESSAGE,
        };
        let memories = (0..=senders).map(|node| VecMemory::new(BASE, len(node)));
        let mut net = SimNet::new(config, memories);
        if !tells {
            (0..=senders).for_each(|node| net.engine(node).set_receive_buffer(0));
        }
        let target = net.engine(0).reg_mr(BASE, len(0) as u64, Access::ALL);
        Self {
            target: target.expect("memory"),
            senders: (1..=senders).map(|node| connect(&mut net, node)).collect(),
            net,
            rounds: 0,
        }
    }

    fn post(&mut self, sender: usize, op: SendOp, len: usize) {
        let s = &self.senders[sender];
        let sge = Sge {
            addr: BASE,
            len: len as u32,
            lkey: s.mr.lkey,
        };
        let (engine, sges) = (self.net.engine(s.node), [sge]);
        let posted = engine.post_send(s.qp, &SendWr::new(1, op, &sges));
        posted.expect("post_send");
    }

    /// The part of node 0's memory that is a sender's.
    fn part(&self, sender: usize) -> u64 {
        BASE + (sender * MESSAGE) as u64
    }

    fn post_write(&mut self, sender: usize) {
        let op = SendOp::write(self.part(sender), self.target.rkey);
        self.post(sender, op, MESSAGE);
    }

    /// Until so many requests have ended.
    fn run(&mut self, mut left: usize) {
        let mut steps = 0;
        while left > 0 {
            assert!(self.net.step(), "nothing happens any more, {left} are left");
            steps += 1;
            assert!(steps < 10_000_000, "{left} are left");
            for s in &self.senders {
                let mut done = [Completion::EMPTY; 64];
                let n = self.net.engine(s.node).poll_cq(s.cq, &mut done);
                for c in &done[..n] {
                    assert_eq!(c.status, WcStatus::Success, "{c:?}");
                }
                left -= n;
            }
        }
    }

    /// All write one message each at the same time.
    fn round(&mut self) {
        let fill = |round: u8, node: usize| (16 * round).wrapping_add(node as u8);
        for i in 0..self.senders.len() {
            let node = self.senders[i].node;
            let memory = self.net.engine(node).memory_mut();
            memory.bytes_mut().fill(fill(self.rounds, node));
            self.post_write(i);
        }
        self.run(self.senders.len());
        let memory = self.net.engine(0).memory_mut().bytes();
        for (s, part) in self.senders.iter().zip(memory.chunks(MESSAGE)) {
            let fill = fill(self.rounds, s.node);
            assert!(part.iter().all(|b| *b == fill), "from node {}", s.node);
        }
        self.rounds += 1;
    }

    fn pause(&mut self, nanos: u64) {
        let until = self.net.now() + nanos;
        self.net.run_until(until);
    }

    fn sums(&mut self, of: impl Fn(Counters) -> u64) -> u64 {
        let engines = 1..=self.senders.len();
        engines
            .map(|node| of(self.net.engine(node).counters()))
            .sum()
    }
}

fn config(seed: u64, mtu: Mtu) -> NetConfig {
    NetConfig {
        delay_ns: 20_000,
        jitter_ns: 5_000,
        mtu,
        receiver: Some(Receiver {
            service_ns: 2_000,
            buffer: BUFFER,
        }),
        ..NetConfig::perfect(seed)
    }
}

/// `senders` nodes write to node 0, eight times one message each at the same time.
fn incast(seed: u64, senders: usize, tells: bool, mtu: Mtu) -> Totals {
    let mut incast = Incast::new(config(seed, mtu), senders, tells);
    for round in 0..8 {
        incast.round();
        // The program computes; sometimes for longer than anybody remembers.
        incast.pause(if round % 4 == 3 { LONG } else { 300_000 });
    }
    Totals {
        packets: incast.sums(|c| c.packets_sent),
        again: incast.sums(|c| c.retransmitted),
        overflowed: incast.net.stats().overflowed,
        nanos: incast.net.now(),
    }
}

fn connect(net: &mut SimNet<VecMemory>, node: usize) -> Sender {
    let ends = [0, node].map(|node| {
        let engine = net.engine(node);
        let cq = engine.create_cq(64).expect("create_cq");
        let init = QpInit {
            max_send_wr: 64,
            ..QpInit::new(QpType::Rc, cq)
        };
        let end = RcEnd {
            node,
            qpn: engine.create_qp(&init).expect("create_qp"),
            psn: Psn::new(1),
            max_rd_atomic: 64,
            min_rnr_timer: 1,
        };
        (end, cq)
    });
    net.connect(ends.map(|(end, _)| end));
    let mr = net.engine(node).reg_mr(BASE, MESSAGE as u64, Access::ALL);
    let (end, cq) = ends[1];
    Sender {
        node,
        qp: end.qpn,
        cq,
        mr: mr.expect("memory"),
    }
}

#[test]
fn many_senders_send_little_again() {
    seeds::each_costly(1, 1000, |seed, verbose| {
        for (senders, mtu) in [(4, Mtu::M4096), (15, Mtu::M4096), (15, Mtu::M1024)] {
            let shared = incast(seed, senders, true, mtu);
            let greedy = incast(seed, senders, false, mtu);
            let text = |t: &Totals| {
                format!(
                    "{} of {} packets again ({} found no room), {} us",
                    t.again,
                    t.packets,
                    t.overflowed,
                    t.nanos / 1000
                )
            };
            if verbose {
                eprintln!("{senders} senders, {mtu:?}: {}", text(&shared));
                eprintln!("  without shares: {}", text(&greedy));
            }
            assert!(shared.again() < 50, "{senders} {mtu:?}: {}", text(&shared));
            assert!(
                4 * shared.again < greedy.again,
                "{senders} {mtu:?}: {}, and without shares {}",
                text(&shared),
                text(&greedy)
            );
        }
    });
}

#[test]
fn one_sender_has_the_receiver_to_itself() {
    seeds::each_costly(1, 1000, |seed, _| {
        let alone = incast(seed, 1, true, Mtu::M4096);
        assert_eq!((alone.again, alone.overflowed), (0, 0));
        let untold = incast(seed, 1, false, Mtu::M4096);
        assert_eq!(alone.nanos, untold.nanos, "a share is no brake on one");
    });
}

/// How long the first sender alone needs for READs, atomics and a WRITE, once it has read something.
fn alone(incast: &mut Incast) -> u64 {
    let (raddr, rkey) = (incast.part(0), incast.target.rkey);
    let read = SendOp::Read { raddr, rkey };
    let add = SendOp::fetch_add(raddr, rkey, 1);
    let mut begun = 0;
    for round in 0..8 {
        if round == 4 {
            begun = incast.net.now();
        }
        incast.post(0, read, MESSAGE);
        incast.run(1);
    }
    (0..64).for_each(|_| incast.post(0, add, 8));
    incast.run(64);
    incast.post_write(0);
    incast.run(1);
    incast.net.now() - begun
}

#[test]
fn who_only_reads_and_adds_after_an_incast_has_the_receiver_to_itself() {
    seeds::each_costly(1, 1000, |seed, _| {
        for senders in [15, 64] {
            let after = |senders| {
                let mut incast = Incast::new(config(seed, Mtu::M4096), senders, true);
                (0..2).for_each(|_| incast.round());
                incast.pause(LONG);
                alone(&mut incast)
            };
            let (crowd, one) = (after(senders), after(1));
            assert!(
                10 * crowd < 11 * one,
                "{senders}: {crowd} ns, {one} ns of one that was alone"
            );
        }
    });
}

#[test]
fn who_has_sent_more_than_its_share_hears_when_it_may_go_on() {
    seeds::each_costly(1, 1000, |seed, _| {
        for (senders, link_ns) in [(15, 2_000), (40, 4_000)] {
            let config = NetConfig {
                link_ns,
                receiver: Some(Receiver {
                    service_ns: 20,
                    buffer: BUFFER,
                }),
                ..config(seed, Mtu::M4096)
            };
            for after in (100_000..200_000).step_by(20_000) {
                let mut incast = Incast::new(config, senders, true);
                incast.post_write(0);
                incast.pause(after);
                (1..senders).for_each(|i| incast.post_write(i));
                incast.run(senders);
                let overflowed = incast.net.stats().overflowed;
                let timeouts = incast.sums(|c| c.timeouts);
                assert_eq!((overflowed, timeouts), (0, 0), "{senders} {after}");
            }
        }
    });
}
